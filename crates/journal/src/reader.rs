//! Reading a journal that another process may be writing.

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use ropewalk_base::Result;

use crate::disk::{Disk, LocalDisk};
use crate::errors;
use crate::recovery::{Record, Refusal, Scanner};

/// Reads the records of a journal, and those that are appended meanwhile.
///
/// It takes no lock. It goes on in the file that it has opened, also when the journal is compacted, which puts another
/// file into its place.
pub struct Reader<D: Disk = LocalDisk> {
    path: PathBuf,
    scanner: Scanner<D::File>,
}

impl Reader {
    /// Opens the journal at a path.
    ///
    /// # Errors
    ///
    /// Those of [`Journal::open`](crate::Journal::open), but for `JournalLocked`.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_on(&LocalDisk, path)
    }
}

impl<D: Disk> Reader<D> {
    /// The same on another disk.
    ///
    /// # Errors
    ///
    /// Those of [`open`](Reader::open).
    pub fn open_on(disk: &D, path: &Path) -> Result<Self> {
        let file = disk.open(path, false).map_err(|error| errors::of_opening(path, error))?;
        let scanner = Scanner::new(file).map_err(|why| errors::of_refusal(path, why))?;
        Ok(Self { path: path.to_owned(), scanner })
    }

    /// Calls `each` with the next whole record; `None` if there is none yet.
    ///
    /// # Errors
    ///
    /// `JournalCorrupt`, `JournalError`.
    pub fn next<T>(&mut self, each: impl FnOnce(Record<'_>) -> T) -> Result<Option<T>> {
        let path = &self.path;
        let refused = |why| errors::of_refusal(path, why);
        // A record that is being written may be seen in parts, and those behind it a moment later. The third look is
        // after that moment.
        for look in 0..3 {
            if look > 0 {
                self.scanner.refresh().map_err(refused)?;
            }
            if let Some(record) = self.scanner.next().map_err(refused)? {
                return Ok(Some(each(record)));
            }
            match self.scanner.end() {
                Err(Refusal::Corrupt { .. }) if look < 2 => {}
                Ok(_) if look == 0 => {}
                ended => return ended.map(|_| None).map_err(refused),
            }
        }
        Ok(None)
    }
}
