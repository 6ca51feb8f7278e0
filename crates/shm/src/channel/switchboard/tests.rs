use std::collections::VecDeque;
use std::time::Duration;

use ropewalk_os::process;
use ropewalk_sync::atomic::Ordering;

use super::*;

const NOW: Duration = Duration::ZERO;

fn hub(slots: usize, ring: usize) -> (Arc<Segment>, Switchboard) {
    Switchboard::make(slots, ring).expect("memory")
}

fn layout(segment: &Arc<Segment>, slots: usize) -> Layout {
    Layout { segment: Arc::clone(segment), slots, ring: 1024 }
}

fn receive(board: &Switchboard) -> Vec<HubEvent> {
    let mut events = VecDeque::new();
    board.receive(&mut events).expect("the hub is ours");
    events.into()
}

#[test]
fn messages_go_both_ways_in_order_and_in_pieces() {
    let (segment, board) = hub(2, 1024);
    let port = Port::take(segment, NOW).expect("a free port");
    let pid = u32::try_from(process::current_pid()).expect("a process id");
    assert_eq!(receive(&board), [HubEvent::Joined { port: 0, pid }]);
    let long: Vec<u8> = (0..100_000_u32).map(|n| n as u8).collect();
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            for message in [&b"short"[..], &[], &long] {
                assert!(port.send(message, || true).expect("sent"));
            }
        });
        let mut events = Vec::new();
        while events.len() < 3 {
            board.wait(Duration::from_millis(100)).expect("the hub is ours");
            events.extend(receive(&board));
        }
        let message = |message: &[u8]| HubEvent::Message { port: 0, message: message.to_vec() };
        assert_eq!(events, [message(b"short"), message(&[]), message(&long)]);
        sender.join().expect("no panic");
        let sender = scope.spawn(|| assert!(board.send(0, &long, || true).expect("sent")));
        let mut received = None;
        while received.is_none() {
            received = match port.receive(Duration::from_millis(100)).expect("sound") {
                Received::Message(message) => Some(message),
                Received::Nothing => None,
                Received::Ended => panic!("the hub goes on"),
            };
        }
        assert_eq!(received, Some(long.clone()));
        sender.join().expect("no panic");
    });
}

#[test]
fn a_port_is_taken_once_and_can_be_cleared() {
    let (segment, board) = hub(1, 1024);
    let first = Port::take(Arc::clone(&segment), NOW).expect("a free port");
    assert_eq!(Port::take(Arc::clone(&segment), NOW).expect_err("taken").code(), Code::OutOfPorts);
    first.send(b"left behind", || true).expect("sent");
    assert_eq!(receive(&board).len(), 2);
    board.clear(0).expect("the hub is ours");
    drop(first);
    let second = Port::take(segment, NOW).expect("free again");
    assert!(matches!(receive(&board)[..], [HubEvent::Joined { .. }]));
    assert!(second.receive(NOW).expect("sound") == Received::Nothing);
}

#[test]
fn a_sender_waits_for_room_until_its_callback_refuses() {
    let (segment, board) = hub(1, 1024);
    let port = Port::take(segment, NOW).expect("a free port");
    receive(&board);
    let mut asked = 0;
    let sent = port.send(&[7; 5000], || {
        asked += 1;
        asked < 3
    });
    assert!(!sent.expect("no error"));
    assert_eq!(asked, 3);
}

#[test]
fn an_acknowledgement_is_waited_for() {
    let (segment, board) = hub(1, 1024);
    let port = Port::take(segment, NOW).expect("a free port");
    assert!(!port.wait_acknowledged(5, Duration::from_millis(1)).expect("mapped"));
    std::thread::scope(|scope| {
        scope.spawn(|| board.acknowledge(0, 6).expect("there is such a port"));
        assert!(port.wait_acknowledged(5, Duration::from_secs(30)).expect("mapped"));
    });
}

#[test]
fn the_hub_does_not_sleep_before_it_has_received_everything() {
    let (segment, board) = hub(2, 1024);
    let anything = || board.anything().expect("mapped");
    assert!(!anything());
    let port = Port::take(segment, NOW).expect("a free port");
    assert!(anything(), "a port was taken");
    receive(&board);
    assert!(!anything());
    assert!(port.offer(b"word").expect("sound"));
    assert!(anything());
    board.pause(0, true);
    assert!(!anything(), "nothing to read now");
    board.pause(0, false);
    receive(&board);
    assert!(!anything());
    drop(port);
    assert!(anything(), "it has left");
    board.clear(board.gone().expect("the hub is ours")[0]).expect("the hub is ours");
    assert!(!anything());
}

#[test]
fn what_comes_ends_a_wait_and_what_came_makes_none() {
    let (segment, board) = hub(2, 1024);
    let long = Duration::from_secs(60);
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    let port = Port::take(segment, NOW).expect("a free port");
    // Each of these waits ends although no port sends during it.
    board.wait(long).expect("the hub is ours");
    receive(&board);
    assert!(port.send(b"word", || true).expect("sent"));
    board.wait(long).expect("the hub is ours");
    receive(&board);
    let other = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !other.load(Ordering::Relaxed) {
                board.wake().expect("mapped");
                std::thread::yield_now();
            }
        });
        board.wait(long).expect("the hub is ours");
        other.store(true, Ordering::Relaxed);
    });
    assert!(std::time::Instant::now() < deadline, "a wait that no port ended");
}

#[test]
fn a_sender_gives_up_when_the_port_leaves_or_its_callback_refuses() {
    let (segment, board) = hub(1, 1024);
    let port = Port::take(segment, NOW).expect("a free port");
    receive(&board);
    assert!(board.send(0, b"fits", || false).expect("sound"), "the callback is not called");
    assert!(!board.send(0, &[7; 5000], || false).expect("sound"));
    drop(port);
    let mut asked = 0;
    let sent = board.send(0, &[7; 5000], || {
        asked += 1;
        assert!(asked < 1000, "it has left");
        true
    });
    assert!(!sent.expect("sound"));
    assert!(!board.send(5, b"no port", || true).expect("sound"));
}

#[test]
fn a_switchboard_has_to_fit() {
    let create = |slots, ring, size| {
        let segment = Segment::create(size, false).expect("room").publish(None);
        Switchboard::create(segment, slots, ring).map_err(|error| error.code())
    };
    let size = Switchboard::required(2, 1024);
    assert!(create(2, 1024, size).is_ok() && create(2, 1024, size + 1).is_ok());
    for (slots, ring, size) in [(2, 1024, size - 1), (0, 1024, size), (2, 1000, size), (2, 64, size)] {
        assert_eq!(create(slots, ring, size).err(), Some(Code::TooLarge), "{slots} {ring} {size}");
    }
    assert!(create(1, 128, Switchboard::required(1, 128)).is_ok());
}

#[test]
fn a_hostile_segment_is_refused() {
    let segment = Segment::create(8192, true).expect("memory").publish(None);
    assert_eq!(Port::take(Arc::clone(&segment), NOW).expect_err("zeros").code(), Code::SharedMemoryCorrupt);
    let head = segment.data().expect("mapped").cast::<u32>();
    for (slots, ring) in [(0, 1024), (u32::MAX, 1024), (1, u32::MAX), (1 << 16, 1 << 30), (4, 4096)] {
        // SAFETY: the first words of a mapped segment that no other thread has.
        unsafe {
            head.write(MAGIC);
            head.add(1).write(slots);
            head.add(2).write(ring);
        }
        let error = Port::take(Arc::clone(&segment), NOW).expect_err("nonsense");
        assert!(matches!(error.code(), Code::SharedMemoryCorrupt | Code::TooLarge), "{error:?}");
    }
}

#[test]
fn a_port_that_scribbles_is_reported_and_no_other_is_affected() {
    let (segment, board) = hub(2, 1024);
    let _one = Port::take(Arc::clone(&segment), NOW).expect("a free port");
    let two = Port::take(Arc::clone(&segment), NOW).expect("a free port");
    receive(&board);
    two.send(b"sound", || true).expect("sent");
    let (up, _) = layout(&segment, 2).open(0).expect("it fits");
    let mut rogue = up.producer();
    for _ in 0..20 {
        let _ = rogue.try_push(Header { kind: 77, ..Header::default() }, &[b"no such kind"]);
    }
    let events = receive(&board);
    assert!(events.contains(&HubEvent::Corrupt { port: 0 }), "{events:?}");
    assert!(events.contains(&HubEvent::Message { port: 1, message: b"sound".to_vec() }), "{events:?}");
    board.clear(0).expect("the hub is ours");
    two.send(b"still", || true).expect("sent");
    assert_eq!(receive(&board), [HubEvent::Message { port: 1, message: b"still".to_vec() }]);
}

/// Bytes of memory that a segment has.
fn memory(segment: &Segment) -> u64 {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(format!("/proc/self/fd/{}", segment.fd().expect("open").as_raw_fd()))
        .expect("open")
        .blocks()
        * 512
}

#[test]
fn memory_is_that_of_the_ports_in_use() {
    let (segment, board) = hub(256, 64 * 1024);
    let idle = memory(&segment);
    assert!(idle <= 64 * 1024, "{idle} bytes without a port");
    for _ in 0..3 {
        let ports: Vec<_> =
            (0..4).map(|_| Port::take(Arc::clone(&segment), NOW).expect("a free port")).collect();
        assert_eq!(receive(&board).len(), 4);
        assert!(memory(&segment) <= idle + 4 * 140 * 1024, "{} bytes for four", memory(&segment));
        for port in ports {
            assert!(port.offer(&[7; 60_000]).expect("sound"));
        }
        assert_eq!(receive(&board).len(), 4, "messages sent before they left");
        let gone = board.gone().expect("the hub is ours");
        assert_eq!(gone, [0, 1, 2, 3]);
        gone.into_iter().for_each(|port| board.clear(port).expect("the hub is ours"));
        assert_eq!(memory(&segment), idle);
    }
}

#[test]
fn messages_sent_before_leaving_arrive_and_then_the_port_is_gone() {
    let (segment, board) = hub(1, 1 << 14);
    let port = Port::take(Arc::clone(&segment), NOW).expect("a free port");
    for number in 0..200_u32 {
        assert!(port.offer(&number.to_le_bytes()).expect("sound"), "there is room");
    }
    drop(port);
    let mut events = receive(&board);
    assert!(board.gone().expect("ours").is_empty(), "more messages than one call returns");
    while board.gone().expect("ours").is_empty() {
        events.extend(receive(&board));
    }
    let numbers: Vec<u32> = events
        .iter()
        .filter_map(|event| match event {
            HubEvent::Message { message, .. } => Some(u32::from_le_bytes(message[..].try_into().ok()?)),
            _ => None,
        })
        .collect();
    assert!(numbers.into_iter().eq(0..200));
}

#[test]
fn taking_a_port_waits_for_one_to_be_cleared() {
    let (segment, board) = hub(1, 1024);
    let first = Port::take(Arc::clone(&segment), NOW).expect("a free port");
    receive(&board);
    std::thread::scope(|scope| {
        let second = scope.spawn(|| Port::take(segment, Duration::from_secs(60)));
        drop(first);
        while board.pid(0).is_some() {
            board.wait(Duration::from_millis(100)).expect("ours");
            for port in board.gone().expect("ours") {
                board.clear(port).expect("ours");
            }
        }
        second.join().expect("no panic").expect("it was cleared");
    });
}

#[test]
fn a_port_that_is_cleared_meanwhile_is_sent_nothing() {
    // Threads that send to a port while it is cleared and taken again must not reach its new owner through the old
    // ends, nor spoil the ring that the new ends use.
    let (segment, board) = hub(1, 1024);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let _ = board.offer(0, b"stray").expect("never corrupt");
                }
            });
        }
        for round in 0..300 {
            let port = Port::take(Arc::clone(&segment), Duration::from_secs(60)).expect("a free port");
            while board.pid(0).is_none() {
                receive(&board);
            }
            for _ in 0..20 {
                match port.receive(NOW).unwrap_or_else(|error| panic!("round {round}: {error}")) {
                    Received::Message(message) => assert_eq!(message, b"stray"),
                    other => assert_eq!(other, Received::Nothing),
                }
            }
            drop(port);
            board.clear(0).expect("ours");
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn what_has_no_room_is_not_sent_in_part() {
    let (segment, board) = hub(1, 1024);
    let port = Port::take(segment, NOW).expect("a free port");
    receive(&board);
    assert!(!port.offer(&[7; 5000]).expect("sound"));
    assert!(!board.offer(0, &[7; 5000]).expect("sound"));
    assert!(!board.offer(1, b"no port").expect("sound"));
    assert!(receive(&board).is_empty());
    assert_eq!(port.receive(NOW).expect("sound"), Received::Nothing);
    let mut sent = 0;
    while port.offer(&[sent; 100]).expect("sound") {
        sent += 1;
    }
    assert!(sent == 6, "a ring of 1024 bytes holds six records of 160");
    assert_eq!(receive(&board).len(), usize::from(sent));
    assert!(port.offer(&[9; 800]).expect("sound"), "two pieces");
    assert_eq!(receive(&board), [HubEvent::Message { port: 0, message: vec![9; 800] }]);
}

#[test]
fn a_paused_port_is_neither_read_nor_gone() {
    let (segment, board) = hub(2, 1024);
    let one = Port::take(Arc::clone(&segment), NOW).expect("a free port");
    let two = Port::take(segment, NOW).expect("a free port");
    receive(&board);
    board.pause(0, true);
    one.offer(b"later").expect("sound");
    two.offer(b"now").expect("sound");
    drop(one);
    assert_eq!(receive(&board), [HubEvent::Message { port: 1, message: b"now".to_vec() }]);
    assert!(board.gone().expect("ours").is_empty());
    board.pause(0, false);
    assert_eq!(receive(&board), [HubEvent::Message { port: 0, message: b"later".to_vec() }]);
    assert_eq!(board.gone().expect("ours"), [0]);
}

#[test]
fn closing_ends_a_port_once_it_has_received_everything() {
    let (segment, board) = hub(1, 1024);
    let port = Port::take(segment, NOW).expect("a free port");
    receive(&board);
    assert!(board.offer(0, b"last").expect("sound"));
    board.close().expect("ours");
    assert_eq!(port.receive(NOW).expect("sound"), Received::Message(b"last".to_vec()));
    assert_eq!(port.receive(NOW).expect("sound"), Received::Ended);
    assert!(!port.send(&[1; 5000], || true).expect("sound"), "the hub listens no more");
}

#[test]
fn a_process_that_has_ended_is_gone() {
    let (segment, board) = hub(2, 1024);
    let _port = Port::take(Arc::clone(&segment), NOW).expect("a free port");
    receive(&board);
    assert!(board.gone().expect("ours").is_empty());
    let mut child = std::process::Command::new("true").spawn().expect("a process");
    let slot = layout(&segment, 2);
    slot.slot(1).expect("there is").pid.store(child.id(), Ordering::Release);
    assert_eq!(receive(&board), [HubEvent::Joined { port: 1, pid: child.id() }]);
    child.wait().expect("it ends");
    assert_eq!(board.gone().expect("ours"), [1]);
}

/// Overwrites every word of the shared memory that a port's process can write.
fn scribble(segment: &Segment, skip: &[usize], mut value: impl FnMut() -> u32) {
    let words = usize::try_from(segment.size()).expect("small") / 4;
    let start = segment.data().expect("mapped").cast::<AtomicU32>();
    for at in (0..words).filter(|at| !skip.contains(at)) {
        // SAFETY: inside the segment, aligned; atomics only are laid over it.
        unsafe { (*start.add(at)).store(value(), Ordering::Relaxed) };
    }
}

#[test]
fn hostile_words_hang_no_thread() {
    let mut seed = 0x9E37_79B9_u32;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 17;
        seed ^= seed << 5;
        seed
    };
    for round in 0..16 {
        let (segment, board) = hub(3, 1024);
        let sound = Port::take(Arc::clone(&segment), NOW).expect("a free port");
        let rogue = Port::take(Arc::clone(&segment), NOW).expect("a free port");
        receive(&board);
        sound.offer(b"before").expect("sound");
        match round % 4 {
            0 => scribble(&segment, &[], || 0),
            1 => scribble(&segment, &[], || 1),
            2 => scribble(&segment, &[], || u32::MAX),
            _ => scribble(&segment, &[], &mut random),
        }
        // Each of these calls returns, with an error at worst.
        for _ in 0..2 {
            receive(&board);
            board.wait(Duration::from_millis(1)).expect("mapped");
            for port in 0..3 {
                let _ = board.offer(port, &[1; 100]);
                let _ = board.send(port, &[2; 3000], || false);
                board.acknowledge(port, 7).expect("there is such a port");
            }
            for port in board.gone().expect("ours") {
                board.clear(port).expect("mapped");
            }
            let _ = rogue.receive(NOW);
            let _ = rogue.offer(b"after");
            let _ = rogue.send(&[3; 3000], || false);
            let _ = rogue.wait_acknowledged(1, NOW);
            let _ = Port::take(Arc::clone(&segment), NOW);
        }
        board.close().expect("mapped");
    }
}

#[test]
fn pieces_without_end_are_refused() {
    let (segment, board) = hub(1, 1024);
    let _port = Port::take(Arc::clone(&segment), NOW).expect("a free port");
    receive(&board);
    let (up, _) = layout(&segment, 1).open(0).expect("it fits");
    up.producer().try_push(Header { kind: MORE, ..Header::default() }, &[]).expect("room");
    assert_eq!(receive(&board), [HubEvent::Corrupt { port: 0 }]);
}
