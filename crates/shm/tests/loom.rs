//! Every interleaving of the ring's protocols that the memory model allows, by loom.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p ropewalk-shm --release --test loom`

#![cfg(loom)]

use ropewalk_shm::channel::ring::{Consumer, Header, Position, Producer, PushError, Retract, RingMemory};
use ropewalk_sync::loom::{self, thread};
use ropewalk_sync::spin::AdaptiveSpin;

/// Four records without payload.
const SMALL: usize = 128;

fn pair(capacity: usize) -> (Producer, Consumer) {
    let memory = RingMemory::model(capacity);
    (memory.clone().producer(), memory.consumer())
}

fn header(id: u64) -> Header {
    Header { kind: 1, flags: 2, len: 0, id, aux: !id }
}

fn push(producer: &mut Producer, id: u64, payload: &[u8]) -> Position {
    producer.try_push(header(id), &[payload]).expect("there is room")
}

/// All interleavings with at most three forced switches of threads: for models whose full space takes
/// minutes.
fn bounded(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// Takes the next record as the engine's consumer does: peek, start, check, finish, else sleep.
fn take(consumer: &mut Consumer, spin: &mut AdaptiveSpin) -> u64 {
    loop {
        if let Some(found) = consumer.peek().expect("the producer is sound") {
            assert_eq!((found.kind, found.flags, found.aux), (1, 2, !found.id));
            if consumer.start() {
                let mut payload = Vec::new();
                consumer.copy_payload(&mut payload);
                assert!(payload.iter().all(|byte| u64::from(*byte) == found.id), "another record's bytes");
                consumer.finish();
                return found.id;
            }
            continue;
        }
        consumer.wait(spin, || false, None);
    }
}

#[test]
fn exactly_one_of_start_and_retract_wins() {
    loom::model(|| {
        let (mut producer, mut consumer) = pair(SMALL);
        let position = push(&mut producer, 1, &[]);
        let far = thread::spawn(move || matches!(consumer.peek(), Ok(Some(_))) && consumer.start());
        let taken = matches!(producer.retract(position), Retract::Taken);
        let started = far.join().expect("no panic");
        assert_ne!(taken, started);
        assert_eq!(producer.started(position) && !taken, started);
    });
}

#[test]
fn what_was_taken_back_is_skipped_and_what_follows_is_not() {
    loom::model(|| {
        let (mut producer, mut consumer) = pair(SMALL);
        let first = push(&mut producer, 1, &[]);
        let far = thread::spawn(move || {
            let mut spin = AdaptiveSpin::new();
            let one = take(&mut consumer, &mut spin);
            (one, if one == 1 { take(&mut consumer, &mut spin) } else { one })
        });
        let taken = matches!(producer.retract(first), Retract::Taken);
        push(&mut producer, 2, &[]);
        producer.wake_consumer();
        assert_eq!(far.join().expect("no panic"), if taken { (2, 2) } else { (1, 2) });
    });
}

#[test]
fn no_wake_up_is_lost_by_a_sleeping_consumer() {
    bounded(|| {
        let (mut producer, mut consumer) = pair(SMALL);
        let far = thread::spawn(move || {
            let mut spin = AdaptiveSpin::new();
            [take(&mut consumer, &mut spin), take(&mut consumer, &mut spin)]
        });
        for id in [1, 2] {
            push(&mut producer, id, &[]);
            producer.wake_consumer();
        }
        assert_eq!(far.join().expect("no panic"), [1, 2]);
    });
}

#[test]
fn a_consumer_that_is_not_seen_asleep_finds_the_record() {
    loom::model(|| {
        let (mut producer, mut consumer) = pair(SMALL);
        let far = thread::spawn(move || take(&mut consumer, &mut AdaptiveSpin::new()));
        push(&mut producer, 1, &[]);
        if let Some(sleeper) = producer.sleeper() {
            sleeper.wake_consumer();
        }
        assert_eq!(far.join().expect("no panic"), 1);
    });
}

#[test]
fn one_wake_up_is_enough_for_a_batch() {
    loom::model(|| {
        let (mut producer, mut consumer) = pair(SMALL);
        let far = thread::spawn(move || {
            let mut spin = AdaptiveSpin::new();
            [take(&mut consumer, &mut spin), take(&mut consumer, &mut spin)]
        });
        push(&mut producer, 1, &[]);
        push(&mut producer, 2, &[]);
        producer.wake_consumer();
        assert_eq!(far.join().expect("no panic"), [1, 2]);
    });
}

#[test]
fn no_wake_up_is_lost_by_a_producer_that_waits_for_room() {
    loom::model(|| {
        let (mut producer, mut consumer) = pair(SMALL);
        for id in 1..=4 {
            push(&mut producer, id, &[]);
        }
        let far = thread::spawn(move || {
            let mut spin = AdaptiveSpin::new();
            for id in 1..=3 {
                assert_eq!(take(&mut consumer, &mut spin), id);
            }
            consumer
        });
        while let Err(error) = producer.try_push(header(5), &[]) {
            assert_eq!(error, PushError::Full);
            producer.wait_space(0, None);
        }
        let mut consumer = far.join().expect("no panic");
        let mut spin = AdaptiveSpin::new();
        assert_eq!((take(&mut consumer, &mut spin), take(&mut consumer, &mut spin)), (4, 5));
    });
}

#[test]
fn bytes_are_not_reused_before_they_have_been_read() {
    loom::model(|| {
        // Four records of 64 bytes fill it; the fifth takes the first one's place.
        let (mut producer, mut consumer) = pair(2 * SMALL);
        for id in 1..=4 {
            push(&mut producer, id, &[id as u8; 8]);
        }
        let far = thread::spawn(move || {
            let mut spin = AdaptiveSpin::new();
            assert_eq!(take(&mut consumer, &mut spin), 1);
            assert_eq!(take(&mut consumer, &mut spin), 2);
        });
        for id in 5..=6 {
            match producer.try_push(header(id), &[&[id as u8; 8]]) {
                Ok(_) | Err(PushError::Full) => {}
                Err(other) => panic!("a sound consumer was blamed: {other:?}"),
            }
        }
        far.join().expect("no panic");
    });
}

#[test]
fn a_record_that_was_passed_is_never_taken_back() {
    loom::model(|| {
        // The consumer takes the first, the producer fills its place anew, and then asks for the old
        // position.
        let (mut producer, mut consumer) = pair(SMALL);
        let first = push(&mut producer, 1, &[]);
        for id in 2..=4 {
            push(&mut producer, id, &[]);
        }
        let far = thread::spawn(move || {
            let mut spin = AdaptiveSpin::new();
            take(&mut consumer, &mut spin)
        });
        if producer.try_push(header(5), &[]).is_ok() {
            assert_eq!(producer.retract(first), Retract::Started);
            assert!(producer.started(first));
        }
        assert_eq!(far.join().expect("no panic"), 1);
    });
}
