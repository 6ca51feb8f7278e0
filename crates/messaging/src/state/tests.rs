use std::time::{Duration, Instant};

use crate::frame::Out;
use crate::{Context, Events, Frame, Socket, SocketType, Value, Woken, option};

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

/// Bytes left for one peer are not held up by frequent writes to another.
#[test]
fn a_busy_peer_does_not_hold_up_a_quiet_one() {
    let (context, router, [busy, quiet]) = router_and_two([b"a", b"b"]);
    // Under the lock the background does not come; its steps are made here.
    let mut state = router.0.lock();
    let just_now = Instant::now() + Duration::from_secs(3_600);
    state.is_calm = true;
    state.send(&[Out::copied(b"b"), Out::copied(b"answer")]).expect("sent");
    (state.is_calm, state.last_flush) = (false, just_now);
    state.send(&[Out::copied(b"b"), Out::copied(b"left")]).expect("sent");
    assert!(state.has_unsent());
    state.settle_left();
    assert!(state.has_unsent(), "it may still be joined by others");
    state.is_calm = true;
    let flushes = state.flushes();
    state.send(&[Out::copied(b"a"), Out::copied(b"written")]).expect("sent");
    assert!(state.flushes() > flushes);
    state.settle_left();
    assert!(!state.has_unsent());
    drop(state);
    for (socket, expected) in [(&quiet, &b"answer"[..]), (&quiet, b"left"), (&busy, b"written")] {
        assert_eq!(socket.recv(soon()).expect("received").bytes(), expected);
    }
    end(&context, [router, busy, quiet]);
}

/// Answers to messages that came together go out together, with the last of them.
#[test]
fn an_answer_is_written_when_nothing_else_was_said() {
    let (context, router, [one, other]) = router_and_two([b"a", b"b"]);
    let mut state = one.0.lock();
    (state.is_calm, state.last_flush) = (false, Instant::now() + Duration::from_secs(3_600));
    for question in [b"1", b"2"] {
        state.send(&[Out::copied(question)]).expect("sent");
    }
    state.settle();
    drop(state);
    assert_eq!(router.wait(Events::READ, soon()).expect("waited"), Woken::Ready);
    let mut state = router.0.lock();
    (state.is_calm, state.last_flush) = (false, Instant::now() + Duration::from_secs(3_600));
    for (question, is_written) in [(b"1", false), (b"2", true)] {
        let flushes = state.flushes();
        assert_eq!(state.take_part().expect("a name").bytes(), b"a");
        assert_eq!(state.take_part().expect("a question").bytes(), question);
        state.send(&[Out::copied(b"a"), Out::copied(question)]).expect("sent");
        assert_eq!(state.flushes() > flushes, is_written);
    }
    drop(state);
    for answer in [b"1", b"2"] {
        assert_eq!(one.recv(soon()).expect("received").bytes(), answer);
    }
    end(&context, [router, one, other]);
}
