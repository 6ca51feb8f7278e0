//! What each call gives, and which calls are refused.

use std::path::Path;
use std::time::{Duration, Instant};

use ropewalk_base::Code;

use super::disk::SimulatedDisk;
use crate::format::MOST_BYTES;
use crate::journal::{Config, Durability, Journal};
use crate::writer::MOST_GATHERED;

fn new(seed: u64, config: Config) -> (Journal<SimulatedDisk>, SimulatedDisk) {
    let disk = SimulatedDisk::new(seed);
    let opened = Journal::open_on(disk.clone(), Path::new("journal"), config, |_| Ok(()));
    (opened.expect("it opens").0, disk)
}

#[test]
fn a_closed_journal_refuses_all_but_another_close() {
    let (journal, _) = new(31, Config::default());
    assert!(!journal.is_closed());
    journal.close().expect("closed");
    assert!(journal.is_closed());
    journal.close().expect("closed already");
    let refused = [
        journal.append(b"x").err(),
        journal.sync().err(),
        journal.last().err(),
        journal.size().err(),
        journal.compact(0, [b"x"]).err(),
    ];
    assert!(refused.into_iter().all(|error| error.is_some_and(|error| error.code() == Code::JournalClosed)));
}

#[test]
fn records_of_one_batch_are_written_together() {
    let (journal, _) = new(32, Config::default());
    let (one, two) =
        (journal.begin([&b"one"[..]]).expect("open"), journal.begin([&b"two"[..]]).expect("open"));
    assert!(one.is_of_batch(&two) && !one.is_written() && !two.is_written());
    journal.finish(&two).expect("written");
    assert!(one.is_written() && two.is_written());
    let three = journal.begin([&b"three"[..]]).expect("open");
    assert!(!three.is_of_batch(&one) && !three.is_written());
    journal.finish(&one).expect("written long ago");
    assert!(!three.is_written());
}

#[test]
fn a_batch_that_has_gathered_much_is_written_before_it_gathers_more() {
    let (journal, _) = new(33, Config::default());
    let one = journal.begin([&[1; MOST_GATHERED][..]]).expect("open");
    assert!(!one.is_written());
    let two = journal.begin([&b"x"[..]]).expect("open");
    assert!(one.is_written() && two.is_written() && one.is_of_batch(&two));
    let three = journal.begin([&[1; MOST_GATHERED + 100][..]]).expect("open");
    assert!(three.is_written());
}

#[test]
fn records_that_do_not_fit_are_refused_and_all_that_came_with_them() {
    let (journal, _) = new(34, Config { max_bytes: 64 + 2 * 40, ..Config::default() });
    // Memory that no page is used of.
    let large = vec![0; MOST_BYTES + 1];
    assert_eq!(journal.append(&large).expect_err("too large").code(), Code::JournalError);
    let three = [&[1; 8][..]; 3];
    assert_eq!(journal.append_all(three).expect_err("one too many").code(), Code::JournalFull);
    assert_eq!((journal.last().expect("open"), journal.size().expect("open")), (0, 64));
    assert_eq!(journal.append_all([&[1; 8][..]; 2]).expect("they fit"), 2);
    assert_eq!(journal.append(b"").expect_err("full").code(), Code::JournalFull);
}

#[test]
fn a_snapshot_that_no_reader_would_take_leaves_the_file() {
    let (journal, _) = new(37, Config::default());
    journal.append_all([&b"x"[..]; 4]).expect("appended");
    // Memory that no page is used of.
    let large = vec![0; MOST_BYTES + 1];
    let refused = journal.compact(4, [&b"first"[..], &large]).expect_err("too large");
    assert_eq!(refused.code(), Code::JournalError);
    assert_eq!(journal.append(b"y").expect("as before"), 5);
    journal.compact(5, [&b"first"[..], b"second"]).expect("compacted");
}

#[test]
fn a_snapshot_ends_with_a_record_that_is_there() {
    let (journal, _) = new(35, Config::default());
    journal.append_all([&b"x"[..]; 4]).expect("appended");
    assert_eq!(journal.compact(5, [b"x"]).expect_err("not yet").code(), Code::JournalError);
    journal.compact(3, [b"x"]).expect("compacted");
    assert_eq!(journal.compact(2, [b"x"]).expect_err("passed").code(), Code::JournalError);
    journal.compact(3, [b"y"]).expect("the same again");
    journal.compact(4, [b"z"]).expect("the last one");
}

/// A record waits for 63 others, and all of them share one sync.
#[test]
fn a_leader_waits_for_company() {
    let config = Config { durability: Durability::Group(Duration::MAX), ..Config::default() };
    let (journal, disk) = new(36, config);
    let syncs = disk.syncs();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| journal.append(b"first").expect("appended"));
        let since = Instant::now();
        while journal.last().expect("open") == 0 {
            assert!(since.elapsed() < Duration::from_secs(30), "it was never begun");
            std::thread::yield_now();
        }
        let others = journal.begin([&b"x"[..]; 63]).expect("open");
        journal.finish(&others).expect("written");
        assert_eq!((first.join().expect("no panic"), others.sequence()), (1, 64));
    });
    assert_eq!(disk.syncs() - syncs, 1);
    // Nobody comes any more.
    let last = journal.begin([&b"last"[..]]).expect("open");
    journal.close().expect("closed");
    assert!(last.is_written());
}
