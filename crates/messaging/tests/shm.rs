//! Shared memory: strangers, peers that break the protocol, and peers that end.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use ropewalk_messaging::SocketType::{Pair, Pull, Push, Rep, Req, Stream};
use ropewalk_messaging::{Context, Frame, Socket, SocketType, errno, option};
use ropewalk_os::socket;
use ropewalk_shm::channel::pipe::End;

/// How long anything may take on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(30);

fn soon() -> Option<Instant> {
    Some(Instant::now() + PATIENCE)
}

fn bound(context: &Context, kind: SocketType) -> (Socket, String) {
    let socket = context.socket(kind).expect("a socket");
    socket.bind("shm://*").expect("bound");
    let endpoint = match socket.get(option::LAST_ENDPOINT).expect("bound") {
        ropewalk_messaging::Value::Bytes(bytes) => String::from_utf8(bytes).expect("text"),
        _ => unreachable!("an endpoint is text"),
    };
    assert!(endpoint.starts_with("shm:///"), "{endpoint}");
    (socket, endpoint)
}

fn connected(context: &Context, kind: SocketType, endpoint: &str) -> Socket {
    let socket = context.socket(kind).expect("a socket");
    socket.connect(endpoint).expect("an endpoint");
    socket
}

fn path(endpoint: &str) -> &str {
    endpoint.strip_prefix("shm://").expect("a path")
}

/// Whether the other end has hung up.
fn is_hung_up(peer: &mut UnixStream) -> bool {
    peer.set_read_timeout(Some(PATIENCE)).expect("set");
    let mut buffer = [0; 256];
    loop {
        match peer.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

/// The end of somebody who speaks no ZMTP, but has taken the memory.
fn taken(endpoint: &str) -> (UnixStream, End) {
    let peer = UnixStream::connect(path(endpoint)).expect("somebody listens");
    let (mut said, mut given) = ([0; 64], Vec::new());
    let got = socket::recv(peer.as_fd(), &mut said, &mut given, true).expect("an offer");
    let capacity = u32::from_le_bytes(said[got - 4..got].try_into().expect("four bytes"));
    let end = End::open(given[0].as_fd(), capacity as usize).expect("memory");
    (peer, end)
}

fn works(context: &Context, rep: &Socket, endpoint: &str) {
    let req = connected(context, Req, endpoint);
    req.send(&Frame::copy_of(b"still there?"), false, soon()).expect("sent");
    let asked = rep.recv(soon()).expect("asked");
    rep.send(&asked, false, soon()).expect("sent");
    assert_eq!(req.recv(soon()).expect("answered").bytes(), b"still there?");
    req.close(Some(0));
}

#[test]
fn a_stranger_is_disconnected_and_disturbs_no_peer() {
    let context = Context::new();
    let (rep, endpoint) = bound(&context, Rep);
    let _silent = UnixStream::connect(path(&endpoint)).expect("somebody listens");
    // By the socket: what an ipc peer would say.
    let mut stranger = UnixStream::connect(path(&endpoint)).expect("somebody listens");
    stranger.write_all(b"\xff\0\0\0\0\0\0\0\x01\x7f").expect("said");
    assert!(is_hung_up(&mut stranger));
    // By the memory: bytes that are no greeting.
    let (mut peer, mut end) = taken(&endpoint);
    assert!(end.writer.write(&[b'x'; 1000]).is_ok_and(|sent| sent == 1000));
    peer.write_all(b"!").expect("woken");
    assert!(is_hung_up(&mut peer));
    // Wake-ups without end.
    let (mut peer, _end) = taken(&endpoint);
    for _ in 0..100 {
        peer.write_all(&[b'!'; 1000]).expect("woken");
    }
    works(&context, &rep, &endpoint);
    rep.close(Some(0));
    assert!(context.term(PATIENCE));
}

#[test]
fn positions_that_make_no_sense_end_the_connection_and_nothing_else() {
    let context = Context::new();
    let (rep, endpoint) = bound(&context, Rep);
    for word in 0..8 {
        let mut peer = UnixStream::connect(path(&endpoint)).expect("somebody listens");
        let (mut said, mut given) = ([0; 64], Vec::new());
        socket::recv(peer.as_fd(), &mut said, &mut given, true).expect("an offer");
        // The words of the two pipes are 128 bytes apart.
        for value in [u64::MAX, 1 << 40] {
            let bytes = value.to_le_bytes();
            ropewalk_os::memfd::write_at(given[0].as_fd(), &bytes, word * 128).expect("written");
            let _ = peer.write_all(b"!");
        }
        drop(given);
        if word == 4 {
            // The position up to which we have written, says the peer.
            assert!(is_hung_up(&mut peer));
        }
    }
    works(&context, &rep, &endpoint);
    rep.close(Some(0));
    assert!(context.term(PATIENCE));
}

#[test]
fn an_offer_that_is_none_is_refused_and_tried_again() {
    let folder = std::env::temp_dir().join(format!("ropewalk-shm-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("socket");
    let listener = UnixListener::bind(&file).expect("bound");
    let context = Context::new();
    let pair = context.socket(Pair).expect("a socket");
    pair.set(option::RECONNECT_IVL, &1_i32.to_ne_bytes()).expect("set");
    pair.connect(&format!("shm://{}", file.display())).expect("an endpoint");
    let mut good = b"ropewalk\0shm".to_vec();
    good.extend_from_slice(&[1, 0]);
    good.extend_from_slice(&8192_u32.to_le_bytes());
    let memfd = |size: u64, is_sealed| ropewalk_os::memfd::create(c"test", size, is_sealed).expect("memory");
    let (small, open) = (memfd(4096 + 2 * 4096, true), memfd(4096 + 2 * 8192, false));
    // An ipc peer's greeting; no descriptor; memory that is too small; memory that could be taken away; a wrong name.
    let offers: [(&[u8], Option<&std::os::fd::OwnedFd>); 5] = [
        (b"\xff\0\0\0\0\0\0\0\x01\x7f", None),
        (&good, None),
        (&good, Some(&small)),
        (&good, Some(&open)),
        (b"ropewalk\0xxx\x01\0\0\x20\0\0", Some(&small)),
    ];
    for (said, given) in offers {
        let (mut peer, _) = listener.accept().expect("it connects again");
        let given: Vec<_> = given.into_iter().map(AsFd::as_fd).collect();
        socket::send(peer.as_fd(), &[said], &given, true).expect("offered");
        assert!(is_hung_up(&mut peer));
    }
    pair.close(Some(0));
    assert!(context.term(PATIENCE));
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn what_was_written_before_the_end_is_received_and_memory_goes() {
    let context = Context::new();
    let (pull, endpoint) = bound(&context, Pull);
    for round in 0..20_u32 {
        let push = connected(&context, Push, &endpoint);
        for number in 0..50_u32 {
            let body = [round.to_le_bytes(), number.to_le_bytes()].concat();
            push.send(&Frame::copy_of(&body), false, soon()).expect("sent");
        }
        push.close(None);
    }
    let mut next = [0_u32; 20];
    for _ in 0..20 * 50 {
        let frame = pull.recv(soon()).expect("nothing is lost");
        let (round, number) = frame.bytes().split_at(4);
        let round = u32::from_le_bytes(round.try_into().expect("four bytes")) as usize;
        assert_eq!(u32::from_le_bytes(number.try_into().expect("four bytes")), next[round]);
        next[round] += 1;
    }
    pull.close(None);
    assert!(context.term(PATIENCE));
    assert!(!std::path::Path::new(path(&endpoint)).exists());
}

#[test]
fn raw_bytes_have_no_such_endpoint() {
    let context = Context::new();
    let stream = context.socket(Stream).expect("a socket");
    for refused in [stream.bind("shm://*"), stream.connect("shm://@somewhere")] {
        assert_eq!(refused.expect_err("refused").errno(), errno::ENOCOMPATPROTO);
    }
    stream.close(None);
    assert!(context.term(PATIENCE));
}
