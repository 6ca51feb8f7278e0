//! Journals that were written, and then cut off or damaged at every byte.

use std::path::Path;

use ropewalk_base::Code;

use super::disk::SimulatedDisk;
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

/// What is left of records that were lost is no part of the journal, though it fits the place, the number and the file,
/// and the record before it is the same again.
#[test]
fn records_do_not_follow_those_that_were_written_again() {
    let (bytes, ends) = written(false);
    let at = |index: usize| usize::try_from(ends[index]).expect("small");
    let disk = SimulatedDisk::new(10);
    disk.put(Path::new(PATH), &bytes[..at(4)]);
    let (journal, _) =
        Journal::open_on(disk.clone(), Path::new(PATH), Config::default(), |_| Ok(())).expect("it opens");
    assert_eq!(journal.append(&[0xee; 4]).expect("appended"), 5);
    std::mem::forget(journal);
    let mut again = disk.content(Path::new(PATH))[..at(5)].to_vec();
    let of = |bytes: &[u8]| bytes[at(4) + 8..at(4) + 28].to_vec();
    assert_eq!(of(&again)[..8], of(&bytes)[..8], "the same number");
    again.extend_from_slice(&bytes[at(5)..at(6)]);
    assert_eq!(read(&again), Ok((5, Some(Dropped { offset: ends[5], bytes: dropped_bytes(&again, at(5)) }))));
}

fn dropped_bytes(bytes: &[u8], end: usize) -> u64 {
    bytes[end..].iter().rposition(|byte| *byte != 0).map_or(0, |at| at as u64 + 1)
}
