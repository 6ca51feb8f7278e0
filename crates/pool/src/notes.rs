//! The last words of workers that die: one memfd with a part for each worker that a pool can have at a time.
//!
//! A worker's fault handler writes there while the process is already lost, so the parent reads it after the death and
//! trusts nothing of it: it is text to be shown. A part is emptied before its slot goes to another worker.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ropewalk_base::{Result, ResultExt};
use ropewalk_os::memfd;

/// Bytes of a part. A writer that goes beyond it spoils the words of a neighbour, and nothing else.
pub(crate) const PART: u64 = 64 * 1024;
/// The most bytes that are shown.
const SHOWN: usize = 16 * 1024;

/// The parent's hold on a pool's notes.
#[derive(Debug)]
pub(crate) struct Notes {
    memory: OwnedFd,
    parts: usize,
}

impl Notes {
    /// Notes for this many workers; they take memory only where a worker writes.
    pub(crate) fn create(workers: usize) -> Result<Self> {
        let size = PART.saturating_mul(workers as u64);
        let memory =
            memfd::create_sparse(c"ropewalk-notes", size).context("could not make a pool's notes")?;
        Ok(Self { memory, parts: workers })
    }

    /// Whether there is a part of this number.
    pub(crate) fn has(&self, slot: usize) -> bool {
        slot < self.parts
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    /// Empties a part.
    pub(crate) fn clear(&self, slot: usize) {
        if self.written(slot) > 0 {
            let _ = memfd::write_at(self.fd(), &vec![0; PART as usize], PART.saturating_mul(slot as u64));
        }
    }

    /// How many bytes a worker has written into a part.
    pub(crate) fn written(&self, slot: usize) -> usize {
        let bytes =
            memfd::read_at(self.fd(), PART as usize, PART.saturating_mul(slot as u64)).unwrap_or_default();
        bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len())
    }

    /// The text in a part after so many bytes, if there is any.
    pub(crate) fn read_after(&self, slot: usize, from: usize) -> Option<String> {
        let at = PART.saturating_mul(slot as u64).saturating_add(from as u64);
        let most = SHOWN.min((PART as usize).saturating_sub(from));
        let bytes = memfd::read_at(self.fd(), most, at).ok()?;
        let length = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        let text = String::from_utf8_lossy(bytes.get(..length)?).trim().to_owned();
        (!text.is_empty()).then_some(text)
    }

    /// The text in a part, if there is any.
    pub(crate) fn read(&self, slot: usize) -> Option<String> {
        self.read_after(slot, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_holds_what_its_worker_wrote_until_the_next_one_comes() {
        let notes = Notes::create(2).unwrap();
        assert_eq!((notes.read(0), notes.read(1)), (None, None));
        memfd::write_at(notes.fd(), b"here\n", PART).unwrap();
        assert_eq!(notes.read(1).as_deref(), Some("here"));
        assert_eq!(notes.read(0), None);
        assert_eq!((notes.written(1), notes.read_after(1, 2).as_deref()), (5, Some("re")));
        assert_eq!(notes.read_after(1, 5), None);
        notes.clear(1);
        assert_eq!((notes.read(1), notes.written(1)), (None, 0));
        assert_eq!(notes.read(7), None, "beyond the last part");
    }
}
