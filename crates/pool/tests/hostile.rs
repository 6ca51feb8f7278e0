//! Whatever a worker writes, wherever it can write: the parent answers or reports an error, never hangs, and no other
//! worker is affected.

mod rust_workers;

use std::sync::Arc;
use std::time::{Duration, Instant};

use ropewalk_pool::codec::table::{self, Entry, Part};
use ropewalk_pool::wire::{flags, kind};
use ropewalk_pool::{Failure, LaneLayout, Options, Outcome, Task, WaitFor, Waited};
use rust_workers::{Pool, config, hex};

/// Not a test of its own: what a zygote runs.
#[test]
fn zygote_main() {
    rust_workers::zygote_main();
}

/// Numbers that look random and are the same in each run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 ^ self.0 >> 29
    }
}

/// The task has ended: with its own answer, or by the end of its worker.
fn ended(pool: &Pool, task: &Arc<Task>, answer: Option<&str>, what: &str) {
    let deadline = Instant::now() + Duration::from_secs(20);
    let waited = pool.engine.wait(&WaitFor::Task(Arc::clone(task)), Some(deadline));
    // A wait that reaches its deadline checks once more, and would find an answer that it was not woken for.
    assert!(waited == Waited::Ready && Instant::now() < deadline, "nobody answers after {what}");
    match (task.outcome(), answer) {
        (Some(Outcome::Replied(reply)), Some(answer)) => {
            assert_eq!(String::from_utf8_lossy(&reply.bytes), answer, "after {what}");
        }
        (Some(Outcome::Replied(_) | Outcome::Failed(Failure::Crashed { .. } | Failure::Limit { .. })), _) => {
        }
        (other, _) => panic!("{other:?} after {what}"),
    }
}

/// One worker misbehaves while another works: the other's tasks are done, and the pool goes on.
fn survives(pool: &Pool, deed: &str) {
    let bystander = pool.submit("nap 30");
    let hostile = pool.submit(deed);
    let others: Vec<_> = (0..12).map(|i| (i, pool.submit(&format!("echo {i}")))).collect();
    ended(pool, &hostile, None, deed);
    ended(pool, &bystander, Some("30"), deed);
    assert!(matches!(bystander.outcome(), Some(Outcome::Replied(_))), "a bystander was hit by {deed}");
    for (i, task) in &others {
        ended(pool, task, Some(&i.to_string()), deed);
    }
    // The worker that is killed for it loses its tasks; the pool goes on and gives correct answers.
    let retried = Options { retries: 5, ..Options::default() };
    for i in 0..4 {
        let task = pool.try_submit(&format!("echo {i}"), retried.clone()).expect("the pool is whole");
        ended(pool, &task, Some(&i.to_string()), deed);
        assert!(matches!(task.outcome(), Some(Outcome::Replied(_))), "after {deed}");
    }
}

const RECORDS: usize = 256;
/// Where the ring of results begins in a lane.
fn results() -> usize {
    LaneLayout::DEFAULT.size() / 2
}

#[test]
fn every_word_of_a_lane_is_scribbled() {
    let mut numbers = Numbers(7);
    let pool = Pool::new(config(2));
    for ring in [0, results()] {
        // head, tail, sleep, full; then a record's first words.
        for offset in [0, 64, 128, 192, RECORDS, RECORDS + 8, RECORDS + 16, RECORDS + 24] {
            for value in [0, 1, 32, u64::MAX, 1 << 63, numbers.next()] {
                survives(&pool, &format!("poke lane {} {value}", ring + offset));
            }
        }
    }
}

#[test]
fn every_word_of_the_control_page_is_scribbled() {
    let mut numbers = Numbers(8);
    let pool = Pool::new(config(2));
    for offset in [0, 64, 128, 192, 4088] {
        for value in [0, 1, 8, u64::MAX, numbers.next()] {
            for verb in ["poke", "late"] {
                survives(&pool, &format!("{verb} control {offset} {value}"));
            }
        }
    }
}

#[test]
fn a_lane_that_is_full_and_corrupt_is_given_up() {
    for head in [1, u64::MAX, u64::MAX - 31, 1 << 40] {
        let pool = Pool::new(config(1));
        // Short tasks, so that many are put into the lane at once.
        for _ in 0..300 {
            pool.text(&pool.submit("echo short"));
        }
        let hostile = pool.submit(&format!("stay lane 0 {head}"));
        // The parent finds its ring full, reads the worker's position, and that is impossible.
        let filler = "x".repeat(30_000);
        let others: Vec<_> = (0..40).map(|_| pool.submit(&format!("echo {filler}"))).collect();
        ended(&pool, &hostile, None, "a corrupt head");
        assert!(matches!(hostile.outcome(), Some(Outcome::Failed(Failure::Crashed { .. }))));
        for task in &others {
            ended(&pool, task, Some(&filler), "a corrupt head");
        }
        let retried = Options { retries: 5, ..Options::default() };
        let task = pool.try_submit("echo on", retried.clone()).expect("the pool is whole");
        assert_eq!(pool.text(&task), "on");
    }
}

#[test]
fn whatever_is_sent_over_the_socket() {
    let mut numbers = Numbers(9);
    let pool = Pool::new(config(2));
    let entry = Entry { segment: 77, generation: 1, offset: 0, length: 10 };
    let named = hex(&table::write(0, &[Part::Placed(entry)], &[]));
    let ask = |pool: &Pool| {
        // A reply that names a segment, so that the parent reads the socket.
        let deed = format!("say {} {} own 0 {named}", kind::DONE, flags::DESCRIBED);
        survives(pool, &deed);
    };
    for count in [0, 1, 2, 200] {
        for op in [0, 1, 2, 3, u32::MAX] {
            let mut message = op.to_le_bytes().to_vec();
            message.resize(8, 0);
            for field in [77, 1, numbers.next()] {
                message.extend_from_slice(&field.to_le_bytes());
            }
            for length in [0, 1, 31, 32] {
                survives(&pool, &format!("post {} {count}", hex(&message[..length])));
            }
            ask(&pool);
        }
    }
}

#[test]
fn whatever_is_said_in_a_record() {
    let mut numbers = Numbers(10);
    let pool = Pool::new(config(2));
    let kinds = [0, 1, 2, 4, kind::READY, kind::INIT_FAILED, kind::DONE, kind::RELEASE, kind::LOST, 21, 999];
    for kind in kinds {
        for id in ["own", "0", "18446744073709551615"] {
            for aux in [0, 1, u64::MAX, numbers.next()] {
                let flags = numbers.next() & 0xFFFF;
                let mut payload = numbers.next().to_le_bytes().to_vec();
                payload.resize((numbers.next() % 100) as usize, 0xA5);
                survives(&pool, &format!("say {kind} {flags} {id} {aux} {}", hex(&payload)));
            }
        }
    }
}

#[test]
fn whatever_a_table_says() {
    let mut numbers = Numbers(11);
    let pool = Pool::new(config(2));
    let odd = [0, 1, 77, 1 << 32, 1 << 63, u64::MAX];
    for _ in 0..60 {
        let mut pick = || odd[(numbers.next() % odd.len() as u64) as usize];
        let mut entry = || Entry { segment: pick(), generation: pick(), offset: pick(), length: pick() };
        let table = table::write(0, &[Part::Placed(entry()), Part::Placed(entry())], &[entry()]);
        survives(&pool, &format!("say {} {} own 0 {}", kind::DONE, flags::DESCRIBED, hex(&table)));
    }
}

#[test]
fn an_initializer_that_fails_late_breaks_no_pool() {
    let pool = Pool::new(config(2));
    survives(&pool, &format!("say {} 4 own 0 -", kind::INIT_FAILED));
    assert!(pool.engine.broken().is_none());
}
