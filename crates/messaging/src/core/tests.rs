use std::time::{Duration, Instant};

use crate::frame::Out;
use crate::{Context, Frame, SocketType, Value, option};

/// What was left for one peer is not held up by what is written to another, however often.
#[test]
fn a_busy_peer_does_not_hold_up_a_quiet_one() {
    let soon = || Some(Instant::now() + Duration::from_secs(30));
    let context = Context::new();
    let router = context.socket(SocketType::Router).expect("a socket");
    router.bind("tcp://127.0.0.1:*").expect("bound");
    let Ok(Value::Bytes(address)) = router.get(option::LAST_ENDPOINT) else { panic!("no endpoint") };
    let address = String::from_utf8(address).expect("text");
    let [busy, quiet] = [b"a", b"b"].map(|name| {
        let dealer = context.socket(SocketType::Dealer).expect("a socket");
        dealer.set(option::ROUTING_ID, name).expect("set");
        dealer.connect(&address).expect("connected");
        dealer.send(&Frame::copy_of(b"here"), false, soon()).expect("sent");
        dealer
    });
    for _ in 0..4 {
        router.recv(soon()).expect("received");
    }
    // Under the lock the background does not come; its steps are made here.
    let mut core = router.0.lock();
    let just_now = Instant::now() + Duration::from_secs(3_600);
    (core.is_calm, core.last_flush) = (false, just_now);
    core.send(&[Out::copied(b"b"), Out::copied(b"left")]).expect("sent");
    assert!(core.has_unsent());
    core.settle_left();
    assert!(core.has_unsent(), "it may still be joined by others");
    core.is_calm = true;
    let flushes = core.flushes();
    core.send(&[Out::copied(b"a"), Out::copied(b"written")]).expect("sent");
    assert!(core.flushes() > flushes);
    core.settle_left();
    assert!(!core.has_unsent());
    drop(core);
    for (socket, expected) in [(&quiet, &b"left"[..]), (&busy, b"written")] {
        assert_eq!(socket.recv(soon()).expect("received").bytes(), expected);
    }
    for socket in [router, busy, quiet] {
        socket.close(None);
    }
    assert!(context.term(Duration::from_secs(30)).expect("ended"));
}
