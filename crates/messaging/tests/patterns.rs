//! Every pair of types, over every transport, both ends ours.

use std::time::{Duration, Instant};

use ropewalk_messaging::SocketType::{self, *};
use ropewalk_messaging::{Context, Error, Events, Frame, Result, Socket, Value, errno, option};

fn soon() -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(30))
}

fn endpoint(transport: &str) -> &'static str {
    match transport {
        "tcp" => "tcp://127.0.0.1:*",
        "ipc" => "ipc://*",
        "shm" => "shm://*",
        _ => "inproc://here",
    }
}

fn last_endpoint(socket: &Socket) -> String {
    match socket.get(option::LAST_ENDPOINT) {
        Ok(Value::Bytes(bytes)) => String::from_utf8(bytes).expect("text"),
        other => panic!("no endpoint: {other:?}"),
    }
}

/// Two sockets that are connected; the first one binds.
fn pair(context: &Context, transport: &str, bound: SocketType, connected: SocketType) -> (Socket, Socket) {
    let (a, b) = (context.socket(bound).expect("a socket"), context.socket(connected).expect("a socket"));
    a.bind(endpoint(transport)).expect("bound");
    b.connect(&last_endpoint(&a)).expect("connected");
    (a, b)
}

fn send(socket: &Socket, parts: &[&[u8]]) {
    for (index, part) in parts.iter().enumerate() {
        socket.send(&Frame::copy_of(part), index + 1 < parts.len(), soon()).expect("sent");
    }
}

fn receive(socket: &Socket) -> Vec<Vec<u8>> {
    let mut parts = Vec::new();
    loop {
        let frame = socket.recv(soon()).expect("received");
        parts.push(frame.bytes().to_vec());
        if !frame.more() {
            return parts;
        }
    }
}

fn end(context: &Context, sockets: &[&Socket]) {
    for socket in sockets {
        socket.close(None);
    }
    assert!(context.term(Duration::from_secs(30)), "sockets linger");
}

const TRANSPORTS: [&str; 4] = ["tcp", "ipc", "shm", "inproc"];

#[test]
fn messages_of_all_sizes_go_both_ways_between_pairs() {
    for transport in TRANSPORTS {
        for (one, other) in [(Pair, Pair), (Dealer, Dealer), (Push, Pull), (Pull, Push)] {
            let context = Context::new();
            let (a, b) = pair(&context, transport, one, other);
            let (from, to) = if one == Pull { (&b, &a) } else { (&a, &b) };
            for size in [0, 1, 71, 72, 255, 256, 8_192, 70_000, 3 << 20] {
                let body = vec![7; size];
                send(from, &[&body]);
                assert_eq!(receive(to), [body], "{transport} {one:?} {size}");
            }
            send(from, &[b"one", b"", b"three"]);
            assert_eq!(receive(to), [&b"one"[..], b"", b"three"]);
            if one != Push && one != Pull {
                send(to, &[b"back"]);
                assert_eq!(receive(from), [b"back"]);
            }
            end(&context, &[&a, &b]);
        }
    }
}

#[test]
fn many_messages_arrive_in_order_and_none_is_lost() {
    for transport in TRANSPORTS {
        let context = Context::new();
        let (pull, push) = pair(&context, transport, Pull, Push);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..100_000_u32 {
                    push.send(&Frame::copy_of(&number.to_be_bytes()), false, soon()).expect("sent");
                }
            });
            for number in 0..100_000_u32 {
                assert_eq!(pull.recv(soon()).expect("received").bytes(), number.to_be_bytes(), "{transport}");
            }
        });
        end(&context, &[&pull, &push]);
    }
}

#[test]
fn what_is_left_behind_goes_out_without_another_call() {
    let context = Context::new();
    let (pull, push) = pair(&context, "tcp", Pull, Push);
    send(&push, &[b"first"]);
    assert_eq!(receive(&pull), [b"first"]);
    for round in 0..200_u32 {
        for number in 0..5_u32 {
            send(&push, &[&round.to_be_bytes(), &number.to_be_bytes()]);
        }
        for number in 0..5_u32 {
            assert_eq!(receive(&pull), [round.to_be_bytes(), number.to_be_bytes()]);
        }
    }
    end(&context, &[&pull, &push]);
}

#[test]
fn requests_and_replies_take_turns() {
    for transport in TRANSPORTS {
        let context = Context::new();
        let (rep, req) = pair(&context, transport, Rep, Req);
        assert_eq!(req.try_recv().expect_err("not yet").errno(), errno::EFSM);
        assert_eq!(rep.try_send_bytes(b"", false).expect_err("not yet").errno(), errno::EFSM);
        for round in 0..100_u32 {
            send(&req, &[&round.to_be_bytes(), b"more"]);
            assert_eq!(req.try_send_bytes(b"", false).expect_err("twice").errno(), errno::EFSM);
            assert_eq!(receive(&rep), [&round.to_be_bytes()[..], b"more"]);
            send(&rep, &[b"reply"]);
            assert_eq!(receive(&req), [b"reply"]);
        }
        end(&context, &[&rep, &req]);
    }
}

#[test]
fn a_router_knows_its_dealers_by_name() {
    for transport in TRANSPORTS {
        let context = Context::new();
        let router = context.socket(Router).expect("a socket");
        router.set(option::ROUTER_MANDATORY, &1_i32.to_ne_bytes()).expect("set");
        router.bind(endpoint(transport)).expect("bound");
        let dealers: Vec<Socket> = (0..3)
            .map(|number| {
                let dealer = context.socket(Dealer).expect("a socket");
                dealer.set(option::ROUTING_ID, format!("dealer {number}").as_bytes()).expect("set");
                dealer.connect(&last_endpoint(&router)).expect("connected");
                send(&dealer, &[b"hello"]);
                dealer
            })
            .collect();
        let mut names: Vec<Vec<u8>> = (0..3).map(|_| receive(&router)[0].clone()).collect();
        names.sort();
        assert_eq!(names, [b"dealer 0", b"dealer 1", b"dealer 2"]);
        for (name, dealer) in names.iter().zip(&dealers) {
            send(&router, &[name, b"", b"to you"]);
            assert_eq!(receive(dealer), [&b""[..], b"to you"]);
        }
        let unknown = router.try_send_all(&mut vec![Frame::copy_of(b"nobody"), Frame::copy_of(b"x")]);
        assert_eq!(unknown.expect_err("nobody").errno(), errno::EHOSTUNREACH);
        let mut all: Vec<&Socket> = dealers.iter().collect();
        all.push(&router);
        end(&context, &all);
    }
}

fn publish_until(publisher: &Socket, subscriber: &Socket, topic: &[u8]) -> Result<()> {
    let until = Instant::now() + Duration::from_secs(30);
    while Instant::now() < until {
        publisher.try_send_bytes(topic, false)?;
        match subscriber.recv(Some(Instant::now() + Duration::from_millis(5))) {
            Ok(frame) if frame.bytes() == topic => return Ok(()),
            Ok(_) => {} // Left over from the topic before.
            Err(error) if error == Error::again() => {}
            Err(error) => return Err(error),
        }
    }
    panic!("nothing arrived");
}

#[test]
fn subscribers_get_what_they_want() {
    for transport in TRANSPORTS {
        for (publisher, subscriber) in [(Pub, Sub), (XPub, Sub), (Pub, XSub), (XPub, XSub)] {
            let context = Context::new();
            let (publisher, subscriber) = pair(&context, transport, publisher, subscriber);
            if subscriber.kind() == Sub {
                subscriber.set(option::SUBSCRIBE, b"end").expect("set");
                subscriber.set(option::SUBSCRIBE, b"a.").expect("set");
            } else {
                send(&subscriber, &[b"\x01end"]);
                send(&subscriber, &[b"\x01a."]);
            }
            // A new connection tells what was subscribed before it in no promised order: each has to serve.
            publish_until(&publisher, &subscriber, b"a.sync").expect("synchronized");
            publish_until(&publisher, &subscriber, b"end.sync").expect("synchronized");
            send(&publisher, &[b"b.no", b"x"]);
            send(&publisher, &[b"a.yes", b"y"]);
            send(&publisher, &[b"end"]);
            let mut got = Vec::new();
            loop {
                let message = receive(&subscriber);
                if message == [b"end"] {
                    break;
                }
                got.extend(message.into_iter().filter(|part| !part.ends_with(b".sync")));
            }
            assert_eq!(got, [&b"a.yes"[..], b"y"], "{transport}");
            end(&context, &[&publisher, &subscriber]);
        }
    }
}

#[test]
fn the_thread_safe_types_talk() {
    for transport in TRANSPORTS {
        let context = Context::new();
        let (server, client) = pair(&context, transport, Server, Client);
        send(&client, &[b"request"]);
        let request = server.recv(soon()).expect("received");
        assert!(request.bytes() == b"request" && request.routing_id() != 0);
        let mut reply = Frame::copy_of(b"reply");
        reply.set_routing_id(request.routing_id());
        server.send(&reply, false, soon()).expect("sent");
        assert_eq!(receive(&client), [b"reply"]);
        assert!(client.try_send_bytes(b"", true).is_err());
        let (gather, scatter) =
            (context.socket(Gather).expect("made"), context.socket(Scatter).expect("made"));
        let there = if transport == "inproc" { "inproc://there" } else { endpoint(transport) };
        gather.bind(there).expect("bound");
        scatter.connect(&last_endpoint(&gather)).expect("connected");
        send(&scatter, &[b"work"]);
        assert_eq!(receive(&gather), [b"work"]);
        let (radio, dish) = (context.socket(Radio).expect("made"), context.socket(Dish).expect("made"));
        radio.bind(if transport == "inproc" { "inproc://radio" } else { there }).expect("bound");
        dish.join("weather").expect("joined");
        assert!(dish.join("weather").is_err());
        dish.connect(&last_endpoint(&radio)).expect("connected");
        let until = Instant::now() + Duration::from_secs(30);
        let heard = loop {
            for group in ["sports", "weather"] {
                let mut frame = Frame::copy_of(group.as_bytes());
                frame.set_group(group).expect("set");
                radio.try_send(frame, false).expect("sent");
            }
            match dish.recv(Some(Instant::now() + Duration::from_millis(5))) {
                Ok(frame) => break frame,
                Err(error) => assert!(error == Error::again() && Instant::now() < until, "{error}"),
            }
        };
        assert_eq!((heard.bytes(), heard.group()), (&b"weather"[..], "weather"));
        end(&context, &[&server, &client, &gather, &scatter, &radio, &dish]);
    }
}

#[test]
fn a_socket_connects_before_a_peer_listens() {
    for transport in ["tcp", "inproc"] {
        let context = Context::new();
        let probe = context.socket(Pull).expect("a socket");
        probe.bind(endpoint(transport)).expect("bound");
        let place = last_endpoint(&probe);
        probe.unbind(&place).expect("unbound");
        probe.close(None);
        let push = context.socket(Push).expect("a socket");
        push.connect(&place).expect("connected");
        send(&push, &[b"early"]);
        let pull = context.socket(Pull).expect("a socket");
        pull.bind(&place).expect("bound");
        assert_eq!(receive(&pull), [b"early"]);
        end(&context, &[&push, &pull]);
    }
}

#[test]
fn limits_block_and_room_wakes() {
    for transport in TRANSPORTS {
        let context = Context::new();
        let (pull, push) = (context.socket(Pull).expect("a socket"), context.socket(Push).expect("a socket"));
        for socket in [&pull, &push] {
            socket.set(option::SNDHWM, &10_i32.to_ne_bytes()).expect("set");
            socket.set(option::RCVHWM, &10_i32.to_ne_bytes()).expect("set");
        }
        pull.bind(endpoint(transport)).expect("bound");
        push.connect(&last_endpoint(&pull)).expect("connected");
        let body = vec![1; 1 << 20];
        let mut sent = 0;
        while push
            .send(&Frame::copy_of(&body), false, Some(Instant::now() + Duration::from_millis(300)))
            .is_ok()
        {
            sent += 1;
            assert!(sent < 1_000, "no limit on {transport}");
        }
        assert!(sent >= 10);
        assert!(!push.events().expect("open").has(Events::WRITE));
        std::thread::scope(|scope| {
            scope.spawn(|| send(&push, &[b"last"]));
            for _ in 0..sent {
                assert_eq!(receive(&pull)[0].len(), body.len());
            }
            assert_eq!(receive(&pull), [b"last"]);
        });
        end(&context, &[&push, &pull]);
    }
}

#[test]
fn a_context_that_ends_wakes_waiting_threads() {
    let context = Context::new();
    let pull = context.socket(Pull).expect("a socket");
    pull.bind("tcp://127.0.0.1:*").expect("bound");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(pull.recv(None).expect_err("ended").errno(), errno::ETERM);
            pull.close(None);
        });
        assert!(context.term(Duration::from_secs(30)));
    });
    assert_eq!(context.socket(Pull).map(drop).expect_err("ended").errno(), errno::ETERM);
}

#[test]
fn a_socket_is_closed_under_a_waiting_call() {
    let context = Context::new();
    let pull = context.socket(Pull).expect("a socket");
    pull.bind("inproc://x").expect("bound");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| pull.recv(None).expect_err("closed").errno());
        std::thread::sleep(Duration::from_millis(20));
        pull.close(None);
        assert_eq!(waiting.join().expect("no panic"), errno::ENOTSOCK);
    });
    assert!(context.term(Duration::from_secs(30)));
}

#[test]
fn the_missed_value_goes_only_to_the_peer_that_asked() {
    let context = Context::new();
    let publisher = context.socket(XPub).expect("a socket");
    publisher.set(option::XPUB_MANUAL_LAST_VALUE, &1_i32.to_ne_bytes()).expect("set");
    publisher.bind("inproc://values").expect("bound");
    let subscribers: Vec<Socket> = (0..2)
        .map(|_| {
            let subscriber = context.socket(Sub).expect("a socket");
            subscriber.set(option::SUBSCRIBE, b"a").expect("set");
            subscriber.connect("inproc://values").expect("connected");
            assert_eq!(receive(&publisher), [b"\x01a"]);
            publisher.set(option::SUBSCRIBE, b"a").expect("set");
            send(&publisher, &[b"a: the last value"]);
            subscriber
        })
        .collect();
    send(&publisher, &[b"a: the next one"]);
    for subscriber in &subscribers {
        assert_eq!(receive(subscriber), [b"a: the last value"]);
        assert_eq!(receive(subscriber), [b"a: the next one"]);
    }
    end(&context, &[&publisher, &subscribers[0], &subscribers[1]]);
}

#[test]
fn a_part_is_no_larger_than_its_context_allows() {
    let context = Context::new();
    context.set(option::context::MAX_MSGSZ, 10).expect("set");
    let (pull, push) = pair(&context, "inproc", Pull, Push);
    assert_eq!(push.try_send_bytes(&[0; 11], false).expect_err("too large").errno(), errno::EMSGSIZE);
    send(&push, &[&[0; 10]]);
    assert_eq!(receive(&pull), [[0; 10]]);
    end(&context, &[&pull, &push]);
}

#[test]
fn a_descriptor_that_listens_already_is_used() {
    use std::os::fd::AsRawFd;
    let context = Context::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let place = format!("tcp://{}", listener.local_addr().expect("an address"));
    let pull = context.socket(Pull).expect("a socket");
    pull.set(option::USE_FD, &listener.as_raw_fd().to_ne_bytes()).expect("set");
    pull.bind("tcp://127.0.0.1:1").expect("bound");
    drop(listener);
    assert_eq!(last_endpoint(&pull), place);
    let push = context.socket(Push).expect("a socket");
    push.connect(&place).expect("connected");
    send(&push, &[b"by the given one"]);
    assert_eq!(receive(&pull), [b"by the given one"]);
    end(&context, &[&pull, &push]);
}

#[test]
fn the_file_of_a_descriptor_that_listens_already_stays() {
    use std::os::fd::AsRawFd;
    let context = Context::new();
    let path = std::env::temp_dir().join(format!("ropewalk-given-{}", std::process::id()));
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("bound");
    let place = format!("ipc://{}", path.display());
    let pull = context.socket(Pull).expect("a socket");
    pull.set(option::USE_FD, &listener.as_raw_fd().to_ne_bytes()).expect("set");
    pull.bind(&place).expect("bound");
    drop(listener);
    assert_eq!(last_endpoint(&pull), place);
    let push = context.socket(Push).expect("a socket");
    push.connect(&place).expect("connected");
    send(&push, &[b"by its file"]);
    assert_eq!(receive(&pull), [b"by its file"]);
    end(&context, &[&pull, &push]);
    std::fs::remove_file(&path).expect("it stays");
}
