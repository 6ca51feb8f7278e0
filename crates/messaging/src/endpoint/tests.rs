use std::fs;
use std::net::SocketAddr;
use std::os::unix::net::UnixListener;

use super::*;

fn errno_of(text: &str) -> i32 {
    Endpoint::parse(text).expect_err(text).errno()
}

#[test]
fn an_endpoint_displays_as_it_was_written() {
    for text in [
        "tcp://*:5555",
        "tcp://127.0.0.1:*",
        "tcp://eth0:0",
        "tcp://[::1]:99",
        "tcp://::1:99",
        "tcp://[fe80::1%lo]:99",
        "tcp://[*]:99",
        "tcp://localhost:5555",
        "tcp://my_host-1.example.org:65535",
        "tcp://192.168.1.17:5555;192.168.1.1:5556",
        "tcp://*:0;a:5556",
        "ipc:///tmp/a b",
        "ipc://relative/path",
        "ipc://@abstract",
        "ipc://*",
        "shm:///tmp/a b",
        "shm://@abstract",
        "shm://*",
        "inproc://any thing://at all",
    ] {
        assert_eq!(Endpoint::parse(text).expect(text).to_string(), text);
    }
}

#[test]
fn what_is_no_endpoint_is_refused() {
    for text in [
        "",
        "tcp",
        "tcp:",
        "tcp://",
        "://a",
        "ipc://",
        "inproc://",
        "tcp://a",
        "tcp://:5",
        "tcp://a:",
        "tcp://a:b",
        "tcp://a:65536",
        "tcp://a:-1",
        "tcp://a:+1",
        "tcp://a:5;",
        "tcp://;a:5",
        "tcp://a b:5",
        "tcp://[::1:5",
        "tcp://[a]:5",
        "tcp://fe80::1%:5",
        "tcp://a*:5",
        "tcp://ä:5",
        "tcp://-a:5",
        "ipc://@",
        "ipc://a\0b",
    ] {
        assert_eq!(errno_of(text), errno::EINVAL, "{text}");
    }
    for text in [
        "pgm://a",
        "epgm://a",
        "norm://a",
        "tipc://a",
        "vmci://a",
        "udp://a:1",
        "ws://a:1",
        "TCP://a:1",
        "?://a",
    ] {
        assert_eq!(errno_of(text), errno::EPROTONOSUPPORT, "{text}");
    }
    assert_eq!(errno_of(&format!("ipc://{}", "a".repeat(UnixName::MOST + 1))), errno::ENAMETOOLONG);
    assert!(Endpoint::parse(&format!("ipc://{}", "a".repeat(UnixName::MOST))).is_ok());
}

#[test]
fn the_addresses_of_descriptors_are_endpoints() {
    let inet = |text: &str| endpoint_of(Transport::Tcp, &Address::Inet(text.parse().expect("an address")));
    assert_eq!(inet("0.0.0.0:5"), "tcp://0.0.0.0:5");
    assert_eq!(inet("[::]:5"), "tcp://[::]:5");
    assert_eq!(endpoint_of(Transport::Ipc, &Address::Unix(UnixName::Path("/tmp/a".into()))), "ipc:///tmp/a");
    assert_eq!(endpoint_of(Transport::Ipc, &Address::Unix(UnixName::Abstract(b"a".to_vec()))), "ipc://@a");
    assert_eq!(endpoint_of(Transport::Tcp, &Address::Unnamed), "");
}

fn tcp(text: &str) -> TcpEndpoint {
    match Endpoint::parse(text).expect(text) {
        Endpoint::Tcp(tcp) => tcp,
        other => panic!("{other:?}"),
    }
}

fn ipc(text: &str) -> IpcEndpoint {
    match Endpoint::parse(text).expect(text) {
        Endpoint::Ipc(ipc) => ipc,
        other => panic!("{other:?}"),
    }
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect(text)
}

#[test]
fn a_bind_knows_addresses_and_interfaces_without_a_lookup() {
    let bind = |text: &str, ipv6| tcp(text).bind_address(ipv6).map_err(|error| error.errno());
    assert_eq!(bind("tcp://*:5555", false), Ok(address("0.0.0.0:5555")));
    assert_eq!(bind("tcp://*:*", true), Ok(address("[::]:0")));
    assert_eq!(bind("tcp://127.0.0.1:00", true), Ok(address("127.0.0.1:0")));
    assert_eq!(bind("tcp://[::1]:7", true), Ok(address("[::1]:7")));
    assert_eq!(bind("tcp://localhost:7", false), Ok(address("127.0.0.1:7")));
    // Whoever connects to the name finds it there: the system's first answer.
    let first = resolve("localhost", 7, true).expect("every system knows it")[0];
    assert_eq!(bind("tcp://LOCALHOST:7", true), Ok(first));
    assert_eq!(bind("tcp://[::ffff:127.0.0.1]:7", false), Ok(address("127.0.0.1:7")));
    assert!(bind("tcp://lo:7", false).is_ok_and(|found| found.ip().is_loopback() && found.port() == 7));
    let zone = bind("tcp://[fe80::1%lo]:7", true).expect("an address");
    assert!(matches!(zone, SocketAddr::V6(six) if six.scope_id() > 0));
    assert_eq!(bind("tcp://fe80::1%3:7", true), Ok(address("[fe80::1%3]:7")));
    assert_eq!(bind("tcp://[fe80::1%nosuch]:7", true), Err(errno::ENODEV));
    assert_eq!(bind("tcp://nosuch0:7", false), Err(errno::ENODEV));
    assert_eq!(bind("tcp://www.example.org:7", false), Err(errno::ENODEV));
    assert_eq!(bind("tcp://[::1]:7", false), Err(errno::ENODEV));
    assert_eq!(bind("tcp://127.0.0.1:1;127.0.0.1:2", false), Err(errno::EINVAL));
}

#[test]
fn a_connect_has_a_target_and_perhaps_a_source() {
    let target = |text: &str, ipv6| tcp(text).connect_target(ipv6).map_err(|error| error.errno());
    let name = |host: &str, port| Ok(Target::Name { host: host.to_owned(), port });
    assert_eq!(target("tcp://127.0.0.1:5", false), Ok(Target::Address(address("127.0.0.1:5"))));
    assert_eq!(target("tcp://::1:5", true), Ok(Target::Address(address("[::1]:5"))));
    assert_eq!(target("tcp://localhost:5", false), Ok(Target::Address(address("127.0.0.1:5"))));
    assert_eq!(target("tcp://localhost:5", true), name("localhost", 5));
    assert_eq!(target("tcp://[::ffff:127.0.0.1]:5", false), Ok(Target::Address(address("127.0.0.1:5"))));
    assert_eq!(target("tcp://www.example.org:5", false), name("www.example.org", 5));
    assert_eq!(target("tcp://127.0.0.1:0", false), Ok(Target::Address(address("127.0.0.1:0"))));
    for text in ["tcp://*:5", "tcp://127.0.0.1:*", "tcp://[::1]:5"] {
        assert_eq!(target(text, false), Err(errno::EINVAL), "{text}");
    }
    let from = |text: &str| tcp(text).source_address(false).map_err(|error| error.errno());
    assert_eq!(from("tcp://127.0.0.1:5"), Ok(None));
    assert_eq!(from("tcp://127.0.0.2:*;127.0.0.1:5"), Ok(Some(address("127.0.0.2:0"))));
    assert_eq!(from("tcp://*:17;a:5"), Ok(Some(address("0.0.0.0:17"))));
    assert_eq!(from("tcp://nosuch0:17;a:5"), Err(errno::ENODEV));
    assert_eq!(target("tcp://127.0.0.2:*;127.0.0.1:5", false), Ok(Target::Address(address("127.0.0.1:5"))));
}

#[test]
fn a_name_is_looked_up_in_the_families_that_are_wanted() {
    let found = resolve("127.0.0.1", 5, false).expect("a literal is its own address");
    assert_eq!(found, [address("127.0.0.1:5")]);
    assert_eq!(resolve("::1", 5, true), Ok(vec![address("[::1]:5")]));
    assert_eq!(resolve("::1", 5, false).expect_err("the other family").errno(), errno::EINVAL);
    assert_eq!(resolve("no\0name", 5, true).expect_err("no name").errno(), errno::EINVAL);
}

#[test]
fn a_temporary_name_goes_with_its_owner() {
    let (one, two) =
        (ipc("ipc://*").bind_name(false).expect("a name"), ipc("ipc://*").bind_name(false).expect("another"));
    assert_ne!(one.name(), two.name());
    let UnixName::Path(path) = one.name().clone() else { panic!("a path") };
    let directory = path.parent().expect("a directory").to_owned();
    let listener = UnixListener::bind(&path).expect("a listener");
    assert!(path.exists());
    drop((listener, one));
    assert!(!directory.exists());
    assert_eq!(ipc("ipc://*").connect_name().expect_err("no name to connect to").errno(), errno::EINVAL);
}

#[test]
fn a_bind_clears_away_a_socket_and_nothing_else() {
    let kept = ipc("ipc://*").bind_name(false).expect("a directory");
    let UnixName::Path(path) = kept.name().clone() else { panic!("a path") };
    let endpoint = ipc(&format!("ipc://{}", path.display()));
    assert_eq!(endpoint.connect_name().expect("a name"), UnixName::Path(path.clone()));
    drop(UnixListener::bind(&path).expect("a listener"));
    assert!(path.exists(), "a listener leaves its file");
    let name = endpoint.bind_name(false).expect("a name");
    assert!(!path.exists());
    fs::write(&path, "a file").expect("written");
    assert_eq!(endpoint.bind_name(false).expect("a name").name(), name.name());
    drop(name);
    assert_eq!(fs::read(&path).expect("still there"), b"a file");
    let hidden = ipc("ipc://@a b").bind_name(false).expect("a name");
    assert_eq!(hidden.name(), &UnixName::Abstract(b"a b".to_vec()));
}
