//! What a call does to the disk, step by step, and what comes of an error in each of its steps.

use std::path::Path;
use std::time::Duration;

use ropewalk_base::Code;

use super::disk::{Plan, SimulatedDisk};
use crate::journal::{Config, Durability, Journal};

const PATH: &str = "journal";
/// What room is taken in, in a test.
const STEP: usize = 256;

fn open(disk: &SimulatedDisk, config: Config) -> ropewalk_base::Result<Journal<SimulatedDisk>> {
    Journal::open_on(disk.clone(), Path::new(PATH), config, |_| Ok(())).map(|(journal, _)| journal)
}

/// A new journal.
fn new(seed: u64) -> (Journal<SimulatedDisk>, SimulatedDisk) {
    let disk = SimulatedDisk::new(seed);
    (open(&disk, Config::default()).expect("it opens"), disk)
}

fn size(disk: &SimulatedDisk) -> usize {
    disk.content(Path::new(PATH)).len()
}

/// The steps of an append.
fn steps(journal: &Journal<SimulatedDisk>, disk: &SimulatedDisk, payload: &[u8]) -> u64 {
    disk.plan(Plan::default());
    journal.append(payload).expect("appended");
    disk.steps()
}

#[test]
fn room_is_taken_ahead_and_filled() {
    let (journal, disk) = new(21);
    // Room, three times 64 zeros and fewer behind the record, the record, a sync.
    assert_eq!((steps(&journal, &disk, &[1; 8]), size(&disk)), (1 + 3 + 2, STEP));
    // 64 bytes of header and 3 records of 40 leave 72, which the next one takes.
    for _ in 0..2 {
        assert_eq!((steps(&journal, &disk, &[1; 8]), size(&disk)), (2, STEP));
    }
    assert_eq!((steps(&journal, &disk, &[1; 40]), size(&disk)), (2, STEP), "it fits");
    assert_eq!(journal.size().expect("open"), STEP as u64);
    assert_eq!((steps(&journal, &disk, &[1; 8]), size(&disk)), (1 + 4 + 2, 2 * STEP));
}

#[test]
fn where_no_room_is_left_to_be_ahead_the_record_takes_what_it_needs() {
    let (journal, disk) = new(22);
    disk.plan(Plan { capacity: Some(64 + 40), ..Plan::default() });
    journal.append(&[1; 8]).expect("just enough");
    assert_eq!(size(&disk), 64 + 40);
    let syncs = disk.syncs();
    assert_eq!(journal.append(&[1; 8]).expect_err("no room").code(), Code::OutOfDisk);
    assert_eq!(disk.syncs(), syncs, "the file is as it was, and needs no cut");
}

/// Taking room and filling it changes no record, so an error costs the batch alone; any other one ends the journal.
#[test]
fn an_error_of_the_disk_in_each_step_of_an_append() {
    for at in 1..=6 {
        let (journal, disk) = new(23);
        disk.plan(Plan { fail_at: Some(at), ..Plan::default() });
        let error = journal.append(&[1; 8]).expect_err("broken");
        let expected = if at <= 4 { Code::JournalError } else { Code::JournalFailed };
        assert_eq!((error.code(), error.os_error()), (expected, Some(5)), "step {at}");
        assert_eq!((journal.is_closed(), journal.append(&[2; 8]).is_err()), (at > 4, at > 4), "step {at}");
    }
}

/// A part of a record that found no room is cut off; if that fails, nobody knows what is there.
#[test]
fn a_cut_that_fails_ends_the_journal() {
    for at in [2, 3] {
        let (journal, disk) = new(24);
        let capacity = Some(size(&disk) as u64 + 10);
        // Room is refused, then the write, which the cut and its sync follow.
        disk.plan(Plan { bare: true, capacity, fail_at: Some(at + 1), ..Plan::default() });
        assert_eq!(journal.append(&[1; 8]).expect_err("no room").code(), Code::JournalFailed, "step {at}");
    }
}

/// An opening reports every error of the disk, those of its mark too.
#[test]
fn an_error_of_the_disk_in_each_step_of_an_opening() {
    let (journal, disk) = new(25);
    journal.append(&[1; 8]).expect("appended");
    let end = usize::try_from(journal.size().expect("open")).expect("small");
    let bytes = disk.content(Path::new(PATH))[..end].to_vec();
    let opened = |fail_at| {
        let disk = SimulatedDisk::new(26);
        disk.put(Path::new(PATH), &bytes);
        disk.plan(Plan { fail_at, ..Plan::default() });
        let opened = open(&disk, Config::default());
        (opened.map(std::mem::forget), disk)
    };
    let (fine, disk) = opened(None);
    fine.expect("it opens");
    for at in 1..=disk.steps() {
        let error = opened(Some(at)).0.expect_err("broken");
        assert_eq!((error.code(), error.os_error()), (Code::JournalError, Some(5)), "step {at}");
    }
}

#[test]
fn a_sync_of_what_is_on_the_disk_costs_nothing() {
    let (journal, disk) = new(27);
    journal.append(b"x").expect("appended");
    for is_compacted in [false, true] {
        if is_compacted {
            journal.compact(1, [b"snapshot"]).expect("compacted");
        }
        disk.plan(Plan::default());
        journal.sync().expect("synced");
        assert_eq!(disk.steps(), 0);
    }
}

#[test]
fn a_snapshot_may_make_the_file_as_large_as_its_bound() {
    for (bound, fits) in [(64 + 64, true), (64 + 64 - 1, false)] {
        let disk = SimulatedDisk::new(28);
        let journal = open(&disk, Config { max_bytes: bound, ..Config::default() }).expect("it opens");
        assert_eq!(journal.compact(0, [[1; 32]]).is_ok(), fits);
    }
}

/// What was written without a sync gets one from the background, also what came while one was under way.
#[test]
fn an_interval_ends_with_a_sync() {
    let disk = SimulatedDisk::new(29);
    let durability = Durability::Interval(Duration::from_millis(1));
    let journal = open(&disk, Config { durability, ..Config::default() }).expect("it opens");
    for _ in 0..2 {
        let syncs = disk.syncs();
        journal.append(b"x").expect("appended");
        let since = std::time::Instant::now();
        while disk.syncs() == syncs {
            assert!(since.elapsed() < Duration::from_secs(30), "no sync came");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Otherwise an idle journal would wake a thread in each interval.
#[test]
fn a_sync_is_ahead_only_of_what_needs_one() {
    let disk = SimulatedDisk::new(30);
    let durability = Durability::Interval(Duration::MAX);
    let journal = open(&disk, Config { durability, ..Config::default() }).expect("it opens");
    journal.sync().expect("nothing to do");
    assert!(!journal.has_sync_ahead());
    journal.append(b"x").expect("appended");
    assert!(journal.has_sync_ahead());
}
