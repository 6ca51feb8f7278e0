//! Reading single records of a journal, in any order.

use std::path::{Path, PathBuf};

use ropewalk_base::Result;

use crate::disk::{Disk, LocalDisk, LocalFile};
use crate::errors;
use crate::format::{HEADER, Header};
use crate::recovery::{Refusal, Window};

/// How much is read at once: more would be wasted on records that are far apart.
const CHUNK: usize = 1 << 16;

/// Reads the records whose [`offset`](crate::Record::offset) is known, from the file that it has opened.
///
/// It takes no lock, and every record is checked again. Records in the order of the file cost one read for many.
pub struct Lookup {
    path: PathBuf,
    window: Window<LocalFile>,
    id: u64,
}

impl Lookup {
    /// Opens the journal at a path.
    ///
    /// # Errors
    ///
    /// Those of [`Reader::open`](crate::Reader::open).
    pub fn open(path: &Path) -> Result<Self> {
        let file = LocalDisk.open(path, false).map_err(|error| errors::of_opening(path, error))?;
        let unreadable = |error| errors::of_refusal(path, Refusal::Unreadable(error));
        let mut window = Window::new(file, CHUNK).map_err(unreadable)?;
        let header = Header::decode(window.bytes(0, HEADER as usize).map_err(unreadable)?);
        let header = header.map_err(|why| errors::of_refusal(path, Refusal::NoHeader(why)))?;
        Ok(Self { path: path.to_owned(), window, id: header.id })
    }

    /// What was appended as the record at this offset, which was there when the file was opened.
    ///
    /// # Errors
    ///
    /// `JournalCorrupt` if no whole record is there; `JournalError`.
    pub fn payload(&mut self, offset: u64) -> Result<&[u8]> {
        let unreadable = |error| errors::of_refusal(&self.path, Refusal::Unreadable(error));
        let found = self.window.record(self.id, offset).map_err(unreadable)?;
        found.map(|(_, payload)| payload).ok_or_else(|| errors::of_lost(&self.path, offset))
    }
}

#[cfg(test)]
mod tests {
    use super::Lookup;
    use crate::{Config, Journal};

    #[test]
    fn records_are_found_in_any_order() {
        let path = std::env::temp_dir().join(format!("ropewalk-lookup-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let payloads: Vec<Vec<u8>> = (0..300_u32).map(|n| vec![n as u8; n as usize * 7]).collect();
        let (journal, _) = Journal::open(&path, Config::default(), |_| Ok(())).expect("a new journal");
        journal.append_all(payloads.iter().map(Vec::as_slice)).expect("room");
        journal.close().expect("an open journal");
        let mut offsets = Vec::new();
        let kept = |record: crate::Record<'_>| {
            offsets.push(record.offset);
            Ok(())
        };
        let (journal, _) = Journal::open(&path, Config::default(), kept).expect("the same journal");
        let mut lookup = Lookup::open(&path).expect("the same file");
        for number in (0..300).rev().chain((0..300).step_by(7)) {
            assert_eq!(lookup.payload(offsets[number]).expect("a record"), payloads[number]);
        }
        let between = lookup.payload(offsets[200] + 8).expect_err("no record begins there");
        assert_eq!(between.code(), ropewalk_base::Code::JournalCorrupt);
        drop(journal);
        std::fs::remove_file(&path).expect("the file");
    }
}
