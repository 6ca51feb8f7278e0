//! Journals that were written, and then cut off or damaged at every byte.

use std::path::Path;

use ropewalk_base::Code;

use super::disk::SimulatedDisk;
use crate::format::{Chain, Header, Kind, encode};
use crate::journal::{Config, Journal};
use crate::recovery::{Dropped, Record};

const PATH: &str = "journal";
const RECORDS: u64 = 12;

/// The bytes of a journal whose records have 0, 1, 2 … bytes, and where each record ends.
fn written(close: bool) -> (Vec<u8>, Vec<u64>) {
    let disk = SimulatedDisk::new(9);
    let (journal, _) =
        Journal::open_on(disk.clone(), Path::new(PATH), Config::default(), |_| Ok(())).expect("it opens");
    let mut ends = vec![64];
    for length in 0..RECORDS {
        let payload = vec![0xee; usize::try_from(length).expect("small")];
        journal.append(&payload).expect("appended");
        ends.push(journal.size().expect("open"));
    }
    if close {
        journal.close().expect("closed");
    } else {
        std::mem::forget(journal);
    }
    let mut bytes = disk.content(Path::new(PATH));
    if !close {
        bytes.truncate(usize::try_from(*ends.last().expect("some")).expect("small"));
    }
    (bytes, ends)
}

/// How many records such a file has, and what was dropped.
fn read(bytes: &[u8]) -> Result<(u64, Option<Dropped>), Code> {
    let disk = SimulatedDisk::new(10);
    disk.put(Path::new(PATH), bytes);
    let mut count = 0;
    let each = |record: Record<'_>| {
        assert_eq!((record.sequence, record.payload.len() as u64), (count + 1, count));
        count += 1;
        Ok(())
    };
    match Journal::open_on(disk.clone(), Path::new(PATH), Config::default(), each) {
        Ok((journal, recovered)) => {
            assert_eq!(recovered.records, count);
            // It goes on behind what was read.
            assert_eq!(
                journal.append(&vec![1; usize::try_from(count).expect("small")]).expect("appended"),
                count + 1
            );
            drop(journal);
            Ok((count, recovered.dropped))
        }
        Err(error) => {
            assert_eq!(disk.content(Path::new(PATH)), bytes, "a refused file is left as it is");
            Err(error.code())
        }
    }
}

#[test]
fn a_file_that_is_cut_off_has_the_whole_records_before() {
    let (bytes, ends) = written(false);
    for length in 0..=bytes.len() {
        let whole = ends.iter().filter(|end| **end <= length as u64).count() as u64;
        match read(&bytes[..length]) {
            // An empty file is one that somebody began to make.
            Ok((count, dropped)) => {
                assert_eq!(count, whole.saturating_sub(1), "{length}");
                let end = ends[usize::try_from(count).expect("small")];
                let rest = bytes[..length].get(usize::try_from(end).expect("small")..).unwrap_or_default();
                let is_dropped = rest.iter().any(|byte| *byte != 0);
                assert_eq!(dropped.map(|it| it.offset), is_dropped.then_some(end));
            }
            Err(code) => {
                assert!((1..64).contains(&length) && code == Code::NotAJournal, "{length}: {code:?}")
            }
        }
    }
}

#[test]
fn a_damaged_byte_before_the_last_record_is_refused_and_never_the_end() {
    for close in [false, true] {
        let (bytes, ends) = written(close);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x41;
            let last = ends[ends.len() - 2];
            let padding = {
                let index = ends.iter().rposition(|end| *end <= at as u64);
                index.is_some_and(|index| {
                    index < ends.len() - 1 && at as u64 >= ends[index] + 32 + index as u64
                })
            };
            match read(&damaged) {
                Err(Code::NotAJournal) => assert!(at < 6, "{at}"),
                Err(code) => {
                    assert_eq!(code, Code::JournalCorrupt);
                    assert!((at as u64) < if close { ends[ends.len() - 1] } else { last }, "{at}");
                }
                // What fills a record up to a multiple of 8 says nothing.
                Ok((count, None)) => assert!(padding && count == RECORDS, "{at}"),
                Ok((count, Some(dropped))) if close => {
                    assert_eq!(
                        (count, dropped.offset),
                        (RECORDS, ends[ends.len() - 1]),
                        "{at}: the mark of the end"
                    );
                }
                Ok((count, Some(dropped))) => {
                    assert_eq!((count, dropped.offset), (RECORDS - 1, last), "{at}");
                }
            }
        }
    }
}

#[test]
fn files_that_are_no_journals_are_left_as_they_are() {
    for content in [&b"{}"[..], &[0; 64], &[0; 200], b"RWJRNL", &[b'x'; 4096]] {
        assert_eq!(read(content), Err(Code::NotAJournal));
    }
}

/// Records have numbers that rise; the first that has none of these ends the file.
#[test]
fn a_number_that_was_there_before_is_no_record() {
    for (second, count) in [(6, 1), (7, 1), (8, 2), (100, 2)] {
        let header = Header { id: 1, base: 0 };
        let mut bytes = header.encode().to_vec();
        let mut chain = Chain { id: 1, synced: 64, previous: header.sum(), run: 1 };
        for sequence in [7, second] {
            encode(&mut bytes, 0, &mut chain, Kind::Appended, sequence, b"x");
        }
        let disk = SimulatedDisk::new(19);
        disk.put(Path::new(PATH), &bytes);
        let opened = Journal::open_on(disk, Path::new(PATH), Config::default(), |_| Ok(()));
        assert_eq!(opened.expect("it opens").1.records, count, "7, then {second}");
    }
}

/// A file may say that it goes on behind any number.
#[test]
fn behind_the_largest_number_is_no_record() {
    let disk = SimulatedDisk::new(18);
    disk.put(Path::new(PATH), &Header { id: 1, base: u64::MAX - 1 }.encode());
    let (journal, _) =
        Journal::open_on(disk.clone(), Path::new(PATH), Config::default(), |_| Ok(())).expect("it opens");
    let both = [&b"one"[..], b"two"];
    assert_eq!(journal.append_all(both).expect_err("no number for both").code(), Code::JournalFull);
    assert_eq!(journal.append(b"one").expect("the last number"), u64::MAX);
    assert_eq!(journal.append(b"two").expect_err("no number").code(), Code::JournalFull);
    drop(journal);
    assert_eq!(
        Journal::open_on(disk, Path::new(PATH), Config::default(), |_| Ok(())).expect("it opens").1.records,
        1
    );
}

/// What the file holds after a program that opens it, appends such records, and dies; and where its records end.
fn killed(seed: u64, bytes: &[u8], payloads: &[&[u8]]) -> (Vec<u8>, usize) {
    let disk = SimulatedDisk::new(seed);
    disk.put(Path::new(PATH), bytes);
    let (journal, _) =
        Journal::open_on(disk.clone(), Path::new(PATH), Config::default(), |_| Ok(())).expect("it opens");
    journal.append_all(payloads.iter().copied()).expect("appended");
    let end = usize::try_from(journal.size().expect("open")).expect("small");
    std::mem::forget(journal);
    (disk.content(Path::new(PATH)), end)
}

/// What is left of records that were lost is no part of the journal, though it fits the place, the number and the file,
/// and the record before it is the same again.
#[test]
fn records_do_not_follow_those_that_were_written_again() {
    let (bytes, ends) = written(false);
    let four = &bytes[..usize::try_from(ends[4]).expect("small")];
    // The opening leaves a mark, behind which both lives write.
    let (bytes, end) = killed(11, four, &[&[0xee; 4], &[0xee; 5]]);
    let (at, mark) = (end - 40, end - 80);
    let (again, its_end) = killed(12, &bytes[..mark], &[&[0xee; 4]]);
    assert_eq!((its_end, mark), (at, four.len() + 32), "a second opening leaves no second mark");
    assert_eq!(
        again[mark + 8..mark + 28],
        bytes[mark + 8..mark + 28],
        "the same number, behind the same record"
    );
    let again = [&again[..at], &bytes[at..end]].concat();
    let dropped = Dropped { offset: at as u64, bytes: dropped_bytes(&again, at) };
    assert_eq!(read(&again), Ok((5, Some(dropped))));
}

/// Damages every byte up to an end, and says where that was not noticed.
fn unnoticed(bytes: &[u8], end: usize) -> Vec<usize> {
    let is_refused = |at: &usize| {
        let mut damaged = bytes.to_vec();
        damaged[*at] ^= 0x41;
        let disk = SimulatedDisk::new(10);
        disk.put(Path::new(PATH), &damaged);
        Journal::open_on(disk, Path::new(PATH), Config::default(), |_| Ok(())).is_err()
    };
    (0..end).filter(|at| !is_refused(at)).collect()
}

/// One batch, of which no record says that another one was on the disk.
#[test]
fn records_that_were_recovered_are_proved_from_then_on() {
    let payloads: [&[u8]; 5] = [&[0xee; 8]; 5];
    let (bytes, end) = killed(13, &[], &payloads);
    let first = end - 5 * 40;
    assert_eq!(unnoticed(&bytes, end), (first..end).collect::<Vec<_>>(), "as if they were on their way");
    let (opened, its_end) = killed(14, &bytes, &[]);
    assert_eq!(its_end, end + 32);
    assert_eq!(unnoticed(&opened, end), []);
    assert_eq!(
        unnoticed(&opened, its_end),
        (end..its_end).collect::<Vec<_>>(),
        "the mark proves itself by nothing"
    );
    let (again, same_end) = killed(15, &opened, &[]);
    assert_eq!((same_end, &again[..end]), (its_end, &opened[..end]), "one mark is enough");
}

#[test]
fn a_compacted_file_is_proved_at_once() {
    let disk = SimulatedDisk::new(16);
    let (journal, _) =
        Journal::open_on(disk.clone(), Path::new(PATH), Config::default(), |_| Ok(())).expect("it opens");
    journal.append_all([&[1; 8][..]; 6]).expect("appended");
    journal.compact(4, [[2; 8]; 3]).expect("compacted");
    let size = usize::try_from(journal.size().expect("open")).expect("small");
    std::mem::forget(journal);
    let bytes = disk.content(Path::new(PATH));
    assert_eq!((bytes.len(), size), (64 + (3 + 2) * 40 + 32, bytes.len()));
    assert_eq!(unnoticed(&bytes, size - 32), []);
    let (later, end) = killed(17, &bytes, &[b"more"]);
    assert_eq!(unnoticed(&later, end - 40), [], "it goes on behind the mark");
}

fn dropped_bytes(bytes: &[u8], end: usize) -> u64 {
    bytes[end..].iter().rposition(|byte| *byte != 0).map_or(0, |at| at as u64 + 1)
}
