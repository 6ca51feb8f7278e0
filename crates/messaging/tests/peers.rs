//! What a ROUTER's owner decides about its peers: their names, their number and their end.

use std::io::Read as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use ropewalk_messaging::SocketType::{Dealer, Router};
use ropewalk_messaging::{Context, Events, Frame, PollItem, Socket, Target, Value, errno, option, poll};

fn soon() -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(30))
}

fn receive(socket: &Socket) -> Vec<Frame> {
    let mut parts = vec![socket.recv(soon()).expect("received")];
    while parts.last().is_some_and(Frame::more) {
        parts.push(socket.recv(soon()).expect("received"));
    }
    parts
}

fn send(socket: &Socket, parts: &[&[u8]]) {
    for (index, part) in parts.iter().enumerate() {
        socket.send(&Frame::copy_of(part), index + 1 < parts.len(), soon()).expect("sent");
    }
}

/// A ROUTER with these options, and where it listens.
fn router(context: &Context, options: &[(i32, i32)]) -> (Socket, String) {
    let router = context.socket(Router).expect("a socket");
    for (option, value) in options {
        router.set(*option, &value.to_ne_bytes()).expect("set");
    }
    router.bind("tcp://127.0.0.1:*").expect("bound");
    let Ok(Value::Bytes(address)) = router.get(option::LAST_ENDPOINT) else { panic!("no endpoint") };
    (router, String::from_utf8(address).expect("text"))
}

fn dealer(context: &Context, address: &str, name: &[u8]) -> Socket {
    let dealer = context.socket(Dealer).expect("a socket");
    dealer.set(option::ROUTING_ID, name).expect("set");
    dealer.set(option::LINGER, &0_i32.to_ne_bytes()).expect("set");
    dealer.connect(address).expect("connected");
    dealer
}

fn end(context: &Context, sockets: &[&Socket]) {
    sockets.iter().for_each(|socket| socket.close(Some(0)));
    assert!(context.term(Duration::from_secs(30)), "sockets linger");
}

#[test]
fn peers_with_one_name_have_ids_of_their_own_and_none_gets_that_of_another() {
    let context = Context::new();
    let (router, address) = router(
        &context,
        &[
            (option::ROUTER_OWN_IDS, 1),
            (option::ROUTER_MANDATORY, 1),
            (option::ROUTER_NOTIFY, option::NOTIFY_DISCONNECT),
        ],
    );
    let mut ids = Vec::new();
    let dealers = [b"1", b"2"].map(|text| {
        let made = dealer(&context, &address, b"same");
        send(&made, &[text]);
        let parts = receive(&router);
        assert_eq!(parts[1].bytes(), text);
        assert_eq!(parts[0].property("Identity"), Some("same"));
        ids.push(parts[0].bytes().to_vec());
        made
    });
    assert_ne!(ids[0], ids[1]);
    for (id, dealer) in ids.iter().zip(&dealers) {
        send(&router, &[id, b"for", id]);
        assert_eq!(receive(dealer)[1].bytes(), id);
    }
    // A peer cannot send what reports an end: its messages have properties.
    send(&dealers[0], &[b""]);
    assert!(receive(&router)[0].property("Socket-Type").is_some());
    dealers[0].close(None);
    let parts = receive(&router);
    assert_eq!((parts[0].bytes(), parts[1].bytes(), parts.len()), (&*ids[0], &b""[..], 2));
    assert_eq!(parts[0].property("Socket-Type"), None);
    let third = dealer(&context, &address, b"same");
    send(&third, &[b"3"]);
    let found = receive(&router)[0].bytes().to_vec();
    assert!(!ids.contains(&found));
    let gone = router.send(&Frame::copy_of(&ids[0]), true, soon()).expect_err("nobody has it");
    assert_eq!(gone.errno(), errno::EHOSTUNREACH);
    end(&context, &[&router, &dealers[1], &third]);
}

#[test]
fn a_router_hangs_up_on_a_peer_and_hears_of_its_end() {
    let context = Context::new();
    let (router, address) = router(&context, &[(option::ROUTER_NOTIFY, option::NOTIFY_DISCONNECT)]);
    let dealer = dealer(&context, &address, b"name");
    dealer.set(option::RECONNECT_IVL, &(-1_i32).to_ne_bytes()).expect("set");
    send(&dealer, &[b"here"]);
    receive(&router);
    assert_eq!(router.hang_up(b"other").expect_err("no peer").errno(), errno::EHOSTUNREACH);
    assert_eq!(dealer.hang_up(b"name").expect_err("no ROUTER").errno(), errno::ENOTSUP);
    router.hang_up(b"name").expect("there is one");
    let parts = receive(&router);
    assert_eq!((parts[0].bytes(), parts[1].bytes()), (&b"name"[..], &b""[..]));
    assert_eq!(router.hang_up(b"name").expect_err("gone").errno(), errno::EHOSTUNREACH);
    end(&context, &[&router, &dealer]);
}

/// The first byte that the server sends, or none if it has closed the connection.
fn first_byte(stream: &mut TcpStream) -> Option<u8> {
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("set");
    let mut byte = [0];
    match stream.read(&mut byte) {
        Ok(1) => Some(byte[0]),
        Ok(_) => None,
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => None,
        Err(error) => panic!("the server says nothing: {error}"),
    }
}

#[test]
fn connections_beyond_the_limit_are_closed_and_their_places_come_back() {
    let context = Context::new();
    let (router, address) = router(&context, &[(option::MAX_CONNECTIONS, 2)]);
    let address = address.trim_start_matches("tcp://").to_owned();
    let connect = || TcpStream::connect(&address).expect("connected");
    let mut first: Vec<TcpStream> = (0..2).map(|_| connect()).collect();
    for stream in &mut first {
        assert_eq!(first_byte(stream), Some(0xff));
    }
    assert_eq!(first_byte(&mut connect()), None);
    drop(first.pop());
    // The server notices the end in its own time.
    let end_of_patience = Instant::now() + Duration::from_secs(30);
    while first_byte(&mut connect()).is_none() {
        assert!(Instant::now() < end_of_patience, "the place of the connection is not free again");
    }
    end(&context, &[&router]);
}

/// A limit in bytes, and the largest part.
fn limit(router: &Socket, bytes: i64, largest: i64) {
    router.set(option::RCVHWM_BYTES, &bytes.to_ne_bytes()).expect("set");
    router.set(option::MAXMSGSIZE, &largest.to_ne_bytes()).expect("set");
}

#[test]
fn a_message_above_the_limit_in_bytes_comes_whole() {
    let context = Context::new();
    let (router, address) = router(&context, &[]);
    limit(&router, 64 << 10, 4 << 20);
    let client = dealer(&context, &address, b"a");
    let body = vec![7; 4 << 20];
    for number in 0..20_u8 {
        send(&client, &[&[number], &body]);
    }
    for number in 0..20_u8 {
        // The background reads for a program that does something else.
        std::thread::sleep(Duration::from_millis(20));
        let mut items =
            [PollItem { target: Target::Socket(&router), events: Events::READ, revents: Events::NONE }];
        poll(&mut items, soon()).expect("polled");
        assert_eq!(items[0].revents, Events::READ, "message {number}");
        let parts = receive(&router);
        assert_eq!(parts[1].bytes(), [number]);
        assert_eq!(parts[2].bytes().len(), body.len());
    }
    end(&context, &[&router, &client]);
}

#[test]
fn parts_of_one_message_above_both_limits_end_the_connection() {
    let context = Context::new();
    let notify = (option::ROUTER_NOTIFY, option::NOTIFY_DISCONNECT);
    let (router, address) = router(&context, &[notify]);
    limit(&router, 1 << 20, 1 << 20);
    let client = dealer(&context, &address, b"a");
    let part = vec![7; 1 << 20];
    // With the routing id that the router adds it has two such parts.
    send(&client, &[&part[..part.len() - 64], &part[..part.len() - 64]]);
    assert_eq!(receive(&router).len(), 3);
    send(&client, &[&*part; 8]);
    let end_of_peer = receive(&router);
    assert_eq!(end_of_peer.len(), 2);
    assert!(end_of_peer[1].bytes().is_empty());
    end(&context, &[&router, &client]);
}
