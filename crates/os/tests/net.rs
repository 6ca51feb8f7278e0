//! Connections on this host are made, refused and queried.

use std::fs;
use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use ropewalk_os::epoll::{Epoll, Interest};
use ropewalk_os::net::{self, Address, TcpOptions, UnixName};
use ropewalk_os::stream;

fn local(fd: &OwnedFd) -> SocketAddr {
    match net::local_address(fd.as_fd()).expect("an address") {
        Address::Inet(address) => address,
        other => panic!("{other:?}"),
    }
}

/// Polls until there is a value, up to a generous deadline.
fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "it did not happen");
        std::thread::yield_now();
    }
}

fn accepted(listener: &OwnedFd) -> OwnedFd {
    until(|| net::accept(listener.as_fd()).expect("a listener that works"))
}

fn connected(address: SocketAddr, source: Option<SocketAddr>, options: &TcpOptions) -> io::Result<OwnedFd> {
    let (fd, at_once) = net::connect_tcp(address, source, options)?;
    if !at_once {
        let poll = Epoll::new()?;
        poll.add(fd.as_fd(), 1, Interest::WRITE)?;
        let mut ready = Vec::new();
        until(|| {
            poll.wait(&mut ready, Some(Duration::from_secs(1))).expect("a wait");
            (!ready.is_empty()).then_some(())
        });
        net::take_error(fd.as_fd())?;
    }
    Ok(fd)
}

fn received(fd: &OwnedFd) -> Vec<u8> {
    until(|| {
        let mut buffer = Vec::with_capacity(64);
        match stream::recv_buf(fd.as_fd(), &mut buffer, 64) {
            Ok(_) => Some(buffer),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(error) => panic!("{error}"),
        }
    })
}

fn any(ip: impl Into<std::net::IpAddr>) -> SocketAddr {
    SocketAddr::new(ip.into(), 0)
}

fn has_ipv6() -> bool {
    std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok()
}

#[test]
fn bytes_go_both_ways_over_tcp_and_nothing_blocks() {
    let options = TcpOptions {
        keepalive: Some(true),
        keepalive_probes: Some(3),
        keepalive_idle: Some(10),
        keepalive_interval: Some(5),
        send_buffer: Some(65_536),
        receive_buffer: Some(65_536),
        tos: Some(0x28),
        priority: Some(3),
        user_timeout: Some(Duration::from_secs(30)),
        ..TcpOptions::default()
    };
    let listener = net::listen_tcp(any(Ipv4Addr::LOCALHOST), 16, &options).expect("a listener");
    assert!(net::accept(listener.as_fd()).expect("nothing wrong").is_none());
    let a = connected(local(&listener), None, &options).expect("a connection");
    let b = accepted(&listener);
    options.tune(b.as_fd()).expect("tuned");
    assert_eq!(net::peer_address(b.as_fd()).expect("a peer"), Address::Inet(local(&a)));
    for fd in [&a, &b] {
        assert!(stream::is_tcp(fd.as_fd()));
        let nothing = stream::recv_buf(fd.as_fd(), &mut Vec::new(), 1);
        assert_eq!(nothing.expect_err("nothing").kind(), io::ErrorKind::WouldBlock);
    }
    stream::send_vectored(a.as_fd(), &[IoSlice::new(b"he"), IoSlice::new(b"llo")]).expect("sent");
    assert_eq!(received(&b), b"hello");
    stream::send(b.as_fd(), b"!").expect("sent");
    assert_eq!(received(&a), b"!");
    assert!(!net::is_at_end(b.as_fd()));
    drop(a);
    until(|| net::is_at_end(b.as_fd()).then_some(()));
    assert_eq!(received(&b), b"");
}

#[test]
fn descriptors_are_closed_on_exec() {
    let options = TcpOptions::default();
    let listener = net::listen_tcp(any(Ipv4Addr::LOCALHOST), 1, &options).expect("a listener");
    let a = connected(local(&listener), None, &options).expect("a connection");
    let b = accepted(&listener);
    for fd in [&listener, &a, &b] {
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).expect("its flags");
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).expect("flags").trim();
        let flags = u32::from_str_radix(flags, 8).expect("octal");
        assert_eq!(flags & 0o2_004_000, 0o2_004_000, "O_CLOEXEC and O_NONBLOCK in {flags:o}");
    }
}

#[test]
fn a_connection_without_listener_is_refused() {
    // An address of its own, so that no other test gets the port.
    let listener =
        net::listen_tcp(any(Ipv4Addr::new(127, 0, 0, 3)), 1, &TcpOptions::default()).expect("a listener");
    let address = local(&listener);
    drop(listener);
    let refused = connected(address, None, &TcpOptions::default()).expect_err("no listener");
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
}

#[test]
fn an_address_is_taken_once_and_free_after() {
    let options = TcpOptions::default();
    let listener = net::listen_tcp(any(Ipv4Addr::new(127, 0, 0, 4)), 1, &options).expect("a listener");
    let address = local(&listener);
    let taken = net::listen_tcp(address, 1, &options).expect_err("taken");
    assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
    // A connection that the listening side closes first leaves its port waiting: that must not keep the next
    // one out.
    let a = connected(address, None, &options).expect("a connection");
    drop(accepted(&listener));
    assert_eq!(received(&a), b"");
    drop((listener, a));
    net::listen_tcp(address, 1, &options).expect("free again");
}

#[test]
fn a_connection_comes_from_its_source() {
    let options = TcpOptions::default();
    let listener = net::listen_tcp(any(Ipv4Addr::LOCALHOST), 1, &options).expect("a listener");
    let source = any(Ipv4Addr::new(127, 0, 0, 2));
    let a = connected(local(&listener), Some(source), &options).expect("a connection");
    assert_eq!(local(&a).ip(), source.ip());
    let elsewhere = net::connect_tcp(local(&listener), Some(any(Ipv4Addr::new(192, 0, 2, 1))), &options);
    assert_eq!(elsewhere.expect_err("not ours").kind(), io::ErrorKind::AddrNotAvailable);
}

#[test]
fn ipv6_speaks_ipv4_if_it_shall() {
    if !has_ipv6() {
        // Then the wildcard is the other one.
        let options = TcpOptions { dual_stack: true, ..TcpOptions::default() };
        let listener = net::listen_tcp(any(Ipv6Addr::UNSPECIFIED), 1, &options).expect("a listener");
        assert!(local(&listener).is_ipv4());
        return;
    }
    for dual_stack in [true, false] {
        let options = TcpOptions { dual_stack, tos: Some(0x10), ..TcpOptions::default() };
        let listener = net::listen_tcp(any(Ipv6Addr::UNSPECIFIED), 1, &options).expect("a listener");
        let port = local(&listener).port();
        let six = connected((Ipv6Addr::LOCALHOST, port).into(), None, &options);
        assert_eq!(local(&six.expect("a connection")).ip(), Ipv6Addr::LOCALHOST);
        let four = connected((Ipv4Addr::LOCALHOST, port).into(), None, &options);
        assert_eq!(four.is_ok(), dual_stack);
    }
}

#[test]
fn a_path_and_an_abstract_name_can_be_met_at() {
    let directory = std::env::temp_dir().join(format!("ropewalk-net-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("a directory");
    let path = UnixName::Path(directory.join("socket"));
    let hidden = UnixName::Abstract(format!("ropewalk-net-{}\0with a zero", std::process::id()).into_bytes());
    for name in [&path, &hidden] {
        assert!(net::connect_unix(name).is_err(), "no listener yet");
        let listener = net::listen_unix(name, 4).expect("a listener");
        assert_eq!(net::local_address(listener.as_fd()).expect("a name"), Address::Unix(name.clone()));
        let taken = net::listen_unix(name, 4).expect_err("taken");
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        let a = net::connect_unix(name).expect("a connection");
        let b = accepted(&listener);
        assert_eq!(net::peer_address(b.as_fd()).expect("a peer"), Address::Unnamed);
        let peer = net::peer_credentials(b.as_fd()).expect("credentials");
        assert_eq!(peer.process, i32::try_from(std::process::id()).expect("an id"));
        stream::send(a.as_fd(), b"x").expect("sent");
        assert_eq!(received(&b), b"x");
    }
    fs::remove_dir_all(&directory).expect("removed");
}

#[test]
fn what_is_no_name_is_refused() {
    let long = UnixName::Path("x".repeat(UnixName::MOST + 1).into());
    // ENAMETOOLONG.
    assert_eq!(net::listen_unix(&long, 1).expect_err("too long").raw_os_error(), Some(36));
    for name in [UnixName::Path("".into()), UnixName::Path("a\0b".into()), UnixName::Abstract(Vec::new())] {
        assert_eq!(net::connect_unix(&name).expect_err("no name").kind(), io::ErrorKind::InvalidInput);
    }
    let longest = UnixName::Abstract(vec![b'w'; UnixName::MOST]);
    let listener = net::listen_unix(&longest, 1).expect("room for it");
    assert_eq!(net::local_address(listener.as_fd()).expect("a name"), Address::Unix(longest));
}

#[test]
fn interfaces_have_addresses_and_numbers() {
    assert!(net::interface_index("lo").expect("there is one") > 0);
    let address = net::interface_address("lo", false).expect("it has one");
    assert!(address.is_ipv4() && address.ip().is_loopback(), "{address}");
    if has_ipv6() {
        assert!(net::interface_address("lo", true).expect("it has one").is_ipv6());
    }
    // ENODEV.
    for name in ["no such", "", "a\0b"] {
        assert_eq!(net::interface_index(name).expect_err(name).raw_os_error(), Some(19));
        assert_eq!(net::interface_address(name, true).expect_err(name).raw_os_error(), Some(19));
    }
}
