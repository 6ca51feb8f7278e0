//! The promises of a ring to two ends that keep to its protocol.

#![cfg(not(loom))]

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use ropewalk_os::memfd;
use ropewalk_os::mmap::{Mapping, Protection};
use ropewalk_shm::channel::ring::{Consumer, Header, Producer, PushError, Retract, RingMemory};
use ropewalk_sync::spin::AdaptiveSpin;

fn mapping(size: usize) -> Arc<Mapping> {
    let fd = memfd::create(c"ropewalk-test", size as u64, true).expect("a memfd");
    Arc::new(Mapping::map(fd.as_fd(), size, Protection::ReadWrite).expect("a mapping"))
}

fn ring(capacity: usize) -> (Producer, Consumer) {
    let memory = RingMemory::new(mapping(RingMemory::required(capacity)), 0, capacity).expect("it fits");
    memory.initialise();
    (memory.clone().producer(), memory.consumer())
}

fn header(id: u64) -> Header {
    Header { kind: 3, flags: 5, len: 0, id, aux: id << 32 }
}

fn take(consumer: &mut Consumer) -> Option<(Header, Vec<u8>)> {
    let header = consumer.peek().expect("a sound ring")?;
    let mut copy = Vec::new();
    consumer.copy_payload(&mut copy);
    assert_eq!(copy, consumer.payload());
    consumer.finish();
    Some((header, copy))
}

#[test]
fn a_record_arrives_as_it_was_sent() {
    let (mut producer, mut consumer) = ring(4096);
    assert!(!consumer.is_ready() && producer.is_empty());
    assert!(take(&mut consumer).is_none());
    producer.try_push(header(7), &[b"he", b"", b"llo, wor", b"ld, how do you do"]).expect("room");
    assert!(consumer.is_ready() && !producer.is_empty());
    let (found, payload) = take(&mut consumer).expect("a record");
    assert_eq!(found, Header { len: 27, ..header(7) });
    assert_eq!(payload, b"hello, world, how do you do");
    assert!(!consumer.is_ready() && producer.is_empty());
    assert_eq!(producer.used(), 0);
}

#[test]
fn every_length_fits_everywhere() {
    let (mut producer, mut consumer) = ring(1024);
    let most = producer.max_record();
    let bytes: Vec<u8> = (0..=255).cycle().take(most).collect();
    for length in (0..=most).chain((0..=most).rev()) {
        producer.try_push(header(length as u64), &[&bytes[..length]]).expect("an empty ring has room");
        let (found, payload) = take(&mut consumer).expect("a record");
        assert_eq!((found.len as usize, found.id), (length, length as u64));
        assert_eq!(payload, &bytes[..length]);
    }
    assert_eq!(producer.try_push(header(0), &[&bytes, b"x"]), Err(PushError::TooLarge));
}

#[test]
fn a_full_ring_says_so_and_has_room_again() {
    let (mut producer, mut consumer) = ring(256);
    for id in 0..8 {
        producer.try_push(header(id), &[]).expect("room for eight");
    }
    assert_eq!(producer.used(), 256);
    assert_eq!(producer.try_push(header(8), &[]), Err(PushError::Full));
    assert!(!producer.wait_space(0, Some(Duration::from_millis(1))));
    for id in 0..8 {
        assert_eq!(take(&mut consumer).expect("a record").0.id, id);
    }
    assert!(producer.wait_space(0, None));
    producer.try_push(header(8), &[]).expect("room");
}

#[test]
fn what_is_taken_back_is_skipped_and_what_was_started_is_not_taken_back() {
    let (mut producer, mut consumer) = ring(4096);
    let positions: Vec<_> =
        (0..4).map(|id| producer.try_push(header(id), &[b"payload"]).expect("room")).collect();
    assert_eq!(consumer.peek().expect("sound").map(|header| header.id), Some(0));
    assert!(!producer.started(positions[0]));
    assert!(consumer.start());
    assert!(consumer.start(), "starting twice is starting");
    assert!(producer.started(positions[0]));
    assert_eq!(producer.retract(positions[0]), Retract::Started);
    assert_eq!(producer.retract(positions[1]), Retract::Taken);
    assert_eq!(producer.retract(positions[1]), Retract::Started, "only once");
    assert_eq!(producer.retract(positions[3]), Retract::Taken);
    assert_eq!(
        consumer.peek().expect("sound").map(|header| header.id),
        Some(0),
        "peeking again gives it again"
    );
    consumer.finish();
    assert_eq!(consumer.peek().expect("sound").map(|header| header.id), Some(2));
    assert_eq!(producer.retract(positions[2]), Retract::Taken);
    assert!(!consumer.start(), "taken back after the peek");
    assert_eq!(consumer.peek(), Ok(None));
    assert!(!consumer.start() && consumer.payload().is_empty());
    assert!(producer.is_empty());
    assert!(positions.iter().all(|position| producer.retract(*position) == Retract::Started));
}

#[test]
fn where_a_ring_does_not_fit_it_is_refused() {
    let map = mapping(8192);
    for (offset, capacity) in [(0, 8192), (64, 8192 - 256), (0, 4095), (0, 64), (8, 1024), (usize::MAX, 1024)]
    {
        assert!(RingMemory::new(Arc::clone(&map), offset, capacity).is_err(), "{offset} {capacity}");
    }
    RingMemory::new(map, 4096 - 256, 4096).expect("exactly to the end");
}

#[test]
fn two_threads_pass_records_in_order_and_sleep_meanwhile() {
    const COUNT: u64 = 20_000;
    let (mut producer, mut consumer) = ring(1024);
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut spin = AdaptiveSpin::new();
            for id in 0..COUNT {
                while !consumer.wait(&mut spin, || id % 3 == 0, Some(Duration::from_secs(10))) {
                    assert!(std::time::Instant::now() < deadline, "a wake-up was lost");
                }
                let (found, payload) = take(&mut consumer).expect("the wait was over");
                assert_eq!(found.id, id);
                assert_eq!(payload, id.to_le_bytes().repeat((id % 5) as usize));
            }
        });
        scope.spawn(move || {
            for id in 0..COUNT {
                let payload = id.to_le_bytes().repeat((id % 5) as usize);
                while let Err(error) = producer.try_push(header(id), &[&payload]) {
                    assert_eq!(error, PushError::Full);
                    producer.wait_space(payload.len(), Some(Duration::from_secs(10)));
                    assert!(std::time::Instant::now() < deadline, "a wake-up was lost");
                }
                producer.wake_consumer();
            }
        });
    });
}

#[test]
fn a_promise_of_room_is_kept_and_a_refusal_is_right() {
    // SplitMix64, which reaches every place in the ring and every padding.
    let mut state = 1_u64;
    let mut random = move |below: u64| {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % below
    };
    let (mut producer, mut consumer) = ring(1024);
    assert_eq!((producer.capacity(), producer.max_record()), (1024, 448));
    let (mut kept, mut refused) = (0, 0);
    for _ in 0..5000 {
        let lengths: Vec<usize> = (0..random(7)).map(|_| random(449) as usize).collect();
        let promised = producer.has_room_for(lengths.iter().copied()).expect("sound");
        let fit = lengths.iter().all(|length| producer.try_push(header(1), &[&vec![1; *length]]).is_ok());
        assert_eq!(promised, fit, "{lengths:?}");
        if fit {
            kept += 1
        } else {
            refused += 1
        }
        while random(3) > 0 && take(&mut consumer).is_some() {}
        if !fit {
            while take(&mut consumer).is_some() {}
            assert!(producer.has_room_for([448, 32].into_iter()).expect("sound"), "an empty ring has room");
        }
    }
    assert!(kept > 500 && refused > 500, "{kept} {refused}");
}

#[test]
fn bytes_in_use_are_counted_with_headers_and_padding() {
    let (mut producer, mut consumer) = ring(256);
    assert!(producer.has_room_for(std::iter::empty()).expect("sound"));
    producer.try_push(header(1), &[&[1; 33]]).expect("room");
    assert_eq!(producer.used(), 96);
    producer.try_push(header(2), &[&[1; 32], b""]).expect("room");
    assert_eq!((producer.used(), producer.is_empty()), (160, false));
    take(&mut consumer).expect("the first");
    assert_eq!(producer.used(), 64);
    // 96 bytes are left before the end, and then 32, which are not enough for the next record.
    producer.try_push(header(3), &[b"x"]).expect("room");
    producer.try_push(header(4), &[b"x"]).expect("room, behind the padding");
    assert_eq!(producer.used(), 64 + 64 + 32 + 64);
    let ids: Vec<u64> = std::iter::from_fn(|| take(&mut consumer)).map(|(header, _)| header.id).collect();
    assert_eq!((ids, producer.used()), (vec![2, 3, 4], 0));
}

#[test]
fn every_field_of_a_header_arrives() {
    let (mut producer, mut consumer) = ring(1024);
    for (kind, flags, id, aux) in [
        (0, 0, 0, 0),
        (u16::MAX - 1, 0, 1, 2),
        (0, u16::MAX, u64::MAX, 0),
        (0x1234, 0x5678, 0x9ABC_DEF0_1234_5678, u64::MAX),
    ] {
        let sent = Header { kind, flags, len: 7, id, aux };
        producer.try_push(sent, &[b"ab", b"", b"c"]).expect("room");
        let (found, payload) = take(&mut consumer).expect("a record");
        assert_eq!((found, payload), (Header { len: 3, ..sent }, b"abc".to_vec()));
    }
}

#[test]
fn an_end_that_comes_later_goes_on_where_the_last_one_was() {
    let memory = RingMemory::new(mapping(RingMemory::required(1024)), 0, 1024).expect("it fits");
    memory.initialise();
    let mut producer = memory.clone().producer();
    for id in 0..3 {
        producer.try_push(header(id), &[&[1; 40]]).expect("room");
    }
    take(&mut memory.clone().consumer()).expect("the first");
    let (mut producer, mut consumer) = (memory.clone().producer(), memory.clone().consumer());
    assert_eq!(producer.used(), 192);
    producer.try_push(header(3), &[]).expect("room");
    let ids: Vec<u64> = std::iter::from_fn(|| take(&mut consumer)).map(|(header, _)| header.id).collect();
    assert_eq!(ids, [1, 2, 3]);
    assert!(!memory.wake_consumer() && !producer.wake_consumer(), "no thread sleeps");
    memory.initialise();
    assert!(!memory.clone().consumer().is_ready() && memory.producer().is_empty());
}

#[test]
fn a_waiting_end_sleeps() {
    let (mut producer, mut consumer) = ring(1024);
    while producer.try_push(header(1), &[&[1; 400]]).is_ok() {}
    let pause = Duration::from_millis(20);
    // A wait may end early, for instance because of a signal, but not again and again.
    let waits = |wait: &mut dyn FnMut() -> bool| {
        let (start, mut count) = (std::time::Instant::now(), 0);
        while start.elapsed() < 3 * pause {
            assert!(!wait());
            count += 1;
        }
        count
    };
    let rounds = waits(&mut || producer.wait_space(400, Some(pause)));
    assert!(rounds < 100, "a producer looked {rounds} times");
    while take(&mut consumer).is_some() {}
    let mut spin = AdaptiveSpin::new();
    let rounds = waits(&mut || consumer.wait(&mut spin, || false, Some(pause)));
    assert!(rounds < 100, "a consumer looked {rounds} times");
}
