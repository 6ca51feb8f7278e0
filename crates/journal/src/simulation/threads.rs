//! Many threads on one journal.

use std::path::Path;
use std::time::Duration;

use super::disk::SimulatedDisk;
use crate::journal::{Config, Durability, Journal};

const THREADS: u64 = 8;
const EACH: u64 = 200;

fn run(durability: Durability) -> (u64, u64) {
    let disk = SimulatedDisk::new(11);
    let config = Config { durability, ..Config::default() };
    let path = Path::new("journal");
    let (journal, _) = Journal::open_on(disk.clone(), path, config, |_| Ok(())).expect("it opens");
    let before = disk.syncs();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let journal = journal.clone();
            scope.spawn(move || {
                let mut last = 0;
                for number in 0..EACH {
                    let payload = [thread.to_le_bytes(), number.to_le_bytes()].concat();
                    let sequence = journal.append(&payload).expect("appended");
                    assert!(sequence > last, "numbers rise");
                    last = sequence;
                    if thread == 0 && number % 50 == 25 {
                        journal.sync().expect("synced");
                    }
                }
            });
        }
    });
    let syncs = disk.syncs() - before;
    journal.close().expect("closed");
    let mut next = [0; THREADS as usize];
    let mut count = 0;
    let each = |record: crate::Record<'_>| {
        let (thread, number) = record.payload.split_at(8);
        let thread = usize::try_from(u64::from_le_bytes(thread.try_into().expect("8"))).expect("small");
        assert_eq!(
            u64::from_le_bytes(number.try_into().expect("8")),
            next[thread],
            "in the order of its thread"
        );
        next[thread] += 1;
        count += 1;
        assert_eq!(record.sequence, count);
        Ok(())
    };
    let (_, recovered) = Journal::open_on(disk, path, config, each).expect("it opens");
    assert!(recovered.was_closed);
    (count, syncs)
}

#[test]
fn every_record_is_there_once_and_in_the_order_of_its_thread() {
    for durability in [
        Durability::Always,
        Durability::Group(Duration::from_micros(50)),
        Durability::Interval(Duration::from_millis(1)),
    ] {
        let (count, syncs) = run(durability);
        assert_eq!(count, THREADS * EACH);
        assert!(syncs <= count + THREADS, "{syncs}");
    }
}

#[test]
fn threads_that_wait_at_the_same_time_share_a_sync() {
    let disk = SimulatedDisk::new(12);
    let (journal, _) = Journal::open_on(disk.clone(), Path::new("journal"), Config::default(), |_| Ok(()))
        .expect("it opens");
    let before = disk.syncs();
    let tickets: Vec<_> =
        (0..100_u64).map(|number| journal.begin([&number.to_le_bytes()[..]]).expect("begun")).collect();
    for ticket in &tickets {
        journal.finish(ticket).expect("written");
    }
    assert_eq!((disk.syncs() - before, tickets[99].sequence()), (1, 100));
}
