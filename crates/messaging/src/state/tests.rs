use std::time::{Duration, Instant};

use super::SocketState;
use super::pace::Pace;
use crate::frame::Out;
use crate::{Context, Events, Frame, Slices, Socket, SocketType, Value, Woken, option};

fn soon() -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(30))
}

/// A ROUTER, and two DEALERs with these names, each of which has sent it a message that it has taken.
fn router_and_two(names: [&[u8]; 2]) -> (Context, Socket, [Socket; 2]) {
    let context = Context::new();
    let router = context.socket(SocketType::Router).expect("a socket");
    router.bind("tcp://127.0.0.1:*").expect("bound");
    let Ok(Value::Bytes(address)) = router.get(option::LAST_ENDPOINT) else { panic!("no endpoint") };
    let address = String::from_utf8(address).expect("text");
    let dealers = names.map(|name| {
        let dealer = context.socket(SocketType::Dealer).expect("a socket");
        dealer.set(option::ROUTING_ID, name).expect("set");
        dealer.connect(&address).expect("connected");
        dealer.send(&Frame::copy_of(b"here"), false, soon()).expect("sent");
        dealer
    });
    for _ in 0..4 {
        router.recv(soon()).expect("received");
    }
    (context, router, dealers)
}

/// Ends all of it.
fn end(context: &Context, sockets: impl IntoIterator<Item = Socket>) {
    for socket in sockets {
        socket.close(None);
    }
    assert!(context.term(Duration::from_secs(30)));
}

/// The socket has just made so many writes that its next messages are left.
fn exhaust(state: &mut SocketState) {
    let (now, hour) = (Instant::now(), Duration::from_secs(3_600));
    state.pace = Pace::new(now + hour);
    state.is_calm = false;
}

/// Bytes left for one peer are not held up by frequent writes to another.
#[test]
fn a_busy_peer_does_not_hold_up_a_quiet_one() {
    let (context, router, [busy, quiet]) = router_and_two([b"a", b"b"]);
    // Under the lock the background does not come; its steps are made here.
    let mut state = router.0.lock();
    let is_left = |state: &mut SocketState| state.conns.iter().flatten().any(|conn| !conn.is_flushed());
    state.is_calm = true;
    state.send(&[Out::copied(b"b"), Out::copied(b"answer")]).expect("sent");
    exhaust(&mut state);
    // Earlier than the message, so that a slow machine does not make it overdue.
    let now = Instant::now();
    state.send(&[Out::copied(b"b"), Out::copied(b"left")]).expect("sent");
    let (written, next) = state.settle_overdue(now);
    let next = next.expect("it may still be joined by others");
    assert!(written == 0 && is_left(&mut state));
    state.is_calm = true;
    state.send(&[Out::copied(b"a"), Out::copied(b"written")]).expect("sent");
    exhaust(&mut state);
    assert!(is_left(&mut state), "the other's is not written with it");
    assert_eq!(state.settle_overdue(next), (1, None));
    assert!(!is_left(&mut state));
    drop(state);
    for (socket, expected) in [(&quiet, &b"answer"[..]), (&quiet, b"left"), (&busy, b"written")] {
        assert_eq!(socket.recv(soon()).expect("received").bytes(), expected);
    }
    end(&context, [router, busy, quiet]);
}

/// A message for several peers is written for all of them, and none is left to the background.
#[test]
fn a_message_is_written_for_all_who_get_it() {
    let (context, router, dealers) = router_and_two([b"a", b"b"]);
    let mut state = router.0.lock();
    (state.pace, state.is_calm) = (Pace::new(Instant::now()), false);
    for name in [b"a", b"b"] {
        state.send(&[Out::copied(name), Out::copied(b"news")]).expect("sent");
        assert!(state.unsent.is_empty());
    }
    drop(state);
    for dealer in &dealers {
        assert_eq!(dealer.recv(soon()).expect("received").bytes(), b"news");
    }
    let [one, other] = dealers;
    end(&context, [router, one, other]);
}

/// Answers to messages that came together go out together, with the last of them.
#[test]
fn an_answer_is_written_when_nothing_else_was_said() {
    let (context, router, [one, other]) = router_and_two([b"a", b"b"]);
    let mut state = one.0.lock();
    exhaust(&mut state);
    for question in [b"1", b"2"] {
        state.send(&[Out::copied(question)]).expect("sent");
    }
    state.settle();
    drop(state);
    assert_eq!(router.wait(Events::READ, soon(), &mut Slices::of(None)).expect("waited"), Woken::Ready);
    let mut state = router.0.lock();
    exhaust(&mut state);
    for (question, is_written) in [(b"1", false), (b"2", true)] {
        assert_eq!(state.take_part().expect("a name").bytes(), b"a");
        assert_eq!(state.take_part().expect("a question").bytes(), question);
        state.send(&[Out::copied(b"a"), Out::copied(question)]).expect("sent");
        assert_eq!(state.conns.iter().flatten().all(|conn| conn.is_flushed()), is_written);
    }
    drop(state);
    for answer in [b"1", b"2"] {
        assert_eq!(one.recv(soon()).expect("received").bytes(), answer);
    }
    end(&context, [router, one, other]);
}

/// A caller with an interpreter lets go of it before it wakes another thread of its process.
#[test]
fn a_message_to_a_sleeping_thread_of_the_process_is_known_to_wake_it() {
    for endpoint in ["inproc://asleep", "tcp://127.0.0.1:*"] {
        let context = Context::new();
        let pull = context.socket(SocketType::Pull).expect("a socket");
        pull.bind(endpoint).expect("bound");
        let Ok(Value::Bytes(address)) = pull.get(option::LAST_ENDPOINT) else { panic!("no endpoint") };
        let push = context.socket(SocketType::Push).expect("a socket");
        push.connect(&String::from_utf8(address).expect("text")).expect("connected");
        assert!(!push.would_wake(), "nobody sleeps");
        let receiver = {
            let pull = pull.clone();
            std::thread::spawn(move || pull.recv(soon()).expect("received"))
        };
        if endpoint.starts_with("inproc") {
            while !push.would_wake() {
                assert!(!receiver.is_finished());
                std::thread::yield_now();
            }
        } else {
            assert!(!push.would_wake(), "the kernel wakes it");
        }
        push.send(&Frame::copy_of(b"awake"), false, soon()).expect("sent");
        assert_eq!(receiver.join().expect("joined").bytes(), b"awake");
        end(&context, [push, pull]);
    }
}

/// Between the slices the caller looks for signals; they change nothing else.
#[test]
fn a_wait_ends_with_each_slice() {
    let context = Context::new();
    let (push, pull) = (
        context.socket(SocketType::Push).expect("a socket"),
        context.socket(SocketType::Pull).expect("a socket"),
    );
    pull.bind("inproc://slices").expect("bound");
    push.connect("inproc://slices").expect("connected");
    let mut slices = Slices::of(Some(Duration::from_millis(1)));
    for _ in 0..3 {
        assert_eq!(pull.wait(Events::READ, soon(), &mut slices).expect("waited"), Woken::Interrupted);
    }
    let over = Some(Instant::now() + Duration::from_micros(100));
    assert_eq!(pull.wait(Events::READ, over, &mut slices).expect("waited"), Woken::TimedOut);
    push.send(&Frame::copy_of(b"late"), false, soon()).expect("sent");
    assert_eq!(pull.wait(Events::READ, soon(), &mut slices).expect("waited"), Woken::Ready);
    end(&context, [push, pull]);
}
