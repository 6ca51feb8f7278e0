//! The errors of a journal, each made in one place.

use std::io;
use std::path::Path;
use std::sync::Arc;

use ropewalk_base::{Code, Error, error};

use crate::format::{MOST_BYTES, NoHeader};
use crate::recovery::Refusal;

/// An error that several threads get: all whose records went in one batch.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    code: Code,
    message: Arc<str>,
    number: Option<i32>,
}

impl Shared {
    /// A batch was not written, and the file is as it was.
    pub(crate) fn without(path: &Path, error: &io::Error) -> Self {
        let code = if is_no_room(error) { Code::OutOfDisk } else { Code::JournalError };
        Self::new(code, format!("could not append to the journal {}", path.display()), error)
    }

    /// The disk has failed.
    pub(crate) fn failed(path: &Path, error: &io::Error) -> Self {
        let message = format!(
            "the disk of the journal {} has failed, and nobody knows whether its last records are there",
            path.display()
        );
        Self::new(Code::JournalFailed, message, error)
    }

    /// A compaction has failed after the name may lead to the new file.
    pub(crate) fn after(path: &Path, error: &Error) -> Self {
        let message = format!("the journal {} has failed: {}", path.display(), error.message());
        Self { code: Code::JournalFailed, message: message.into(), number: error.os_error() }
    }

    /// A thread has panicked with the writer in its hands.
    pub(crate) fn panicked(path: &Path) -> Self {
        let message = format!("a thread panicked while it wrote to the journal {}", path.display());
        Self { code: Code::JournalFailed, message: message.into(), number: None }
    }

    fn new(code: Code, message: String, error: &io::Error) -> Self {
        let (message, number) = match error.raw_os_error() {
            Some(number) => (message, Some(number)),
            None => (format!("{message}: {error}"), None),
        };
        Self { code, message: message.into(), number }
    }

    /// The error for one more thread.
    pub(crate) fn again(&self) -> Error {
        match self.number {
            Some(number) => {
                Error::caused(self.code, self.message.to_string(), io::Error::from_raw_os_error(number))
            }
            None => Error::new(self.code, self.message.to_string()),
        }
    }
}

/// Whether a disk, a quota or a limit of file sizes refuses more bytes.
pub(crate) fn is_no_room(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull, WriteZero};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge | WriteZero)
}

fn of_system(path: &Path, doing: &str, error: io::Error) -> Error {
    let code = match error.kind() {
        io::ErrorKind::PermissionDenied if error.raw_os_error().is_none() => Code::JournalUnsafe,
        _ if is_no_room(&error) => Code::OutOfDisk,
        _ => Code::JournalError,
    };
    Error::caused(code, format!("could not {doing} the journal {}", path.display()), error)
}

pub(crate) fn of_opening(path: &Path, error: io::Error) -> Error {
    of_system(path, "open", error)
}

pub(crate) fn of_closing(path: &Path, error: io::Error) -> Error {
    of_system(path, "close", error)
}

pub(crate) fn of_compacting(path: &Path, error: io::Error) -> Error {
    of_system(path, "compact", error)
}

pub(crate) fn of_refusal(path: &Path, why: Refusal) -> Error {
    let name = path.display();
    match why {
        Refusal::NoHeader(NoHeader::Foreign) => {
            Error::new(Code::NotAJournal, format!("{name} is not a journal"))
        }
        Refusal::NoHeader(NoHeader::Version) => {
            Error::new(Code::NotAJournal, format!("the journal {name} was written by a newer version"))
        }
        Refusal::NoHeader(NoHeader::Damaged) => Error::new(
            Code::JournalCorrupt,
            format!("the journal {name} is damaged at offset 0: in its header"),
        ),
        Refusal::Corrupt { offset, witness } => Error::new(
            Code::JournalCorrupt,
            format!(
                "the journal {name} is damaged at offset {offset}: the record at offset {witness} was written when \
                 that place was already on the disk"
            ),
        ),
        Refusal::Unreadable(why) => of_system(path, "read", why),
    }
}

pub(crate) fn of_lost(path: &Path, offset: u64) -> Error {
    let path = path.display();
    error!(Code::JournalCorrupt, "the journal {} has no whole record at offset {} any more", path, offset)
}

pub(crate) fn of_lock(path: &Path, holder: u32) -> Error {
    let path = path.display();
    let message = match holder {
        0 => format!("another process has the journal {path} open"),
        pid if pid == std::process::id() => format!(
            "this process has the journal {path} open already, in another `Journal`, `Flows`, `Store` or map"
        ),
        pid => format!("process {pid} has the journal {path} open"),
    };
    Error::new(Code::JournalLocked, message)
}

pub(crate) fn of_name(path: &Path, suffix: &str) -> Error {
    let path = path.display();
    error!(Code::JournalError, "no journal can be {}: names that end in {} are for drafts", path, suffix)
}

pub(crate) fn of_size(length: usize) -> Error {
    error!(Code::JournalError, "a record of {} bytes is too large: a journal takes {}", length, MOST_BYTES)
}

pub(crate) fn of_room(path: &Path, most: u64) -> Error {
    error!(Code::JournalFull, "the journal {} would have more than max_bytes={}", path.display(), most)
}

pub(crate) fn of_numbers(path: &Path) -> Error {
    error!(Code::JournalFull, "the journal {} has no number for one more record", path.display())
}

pub(crate) fn of_upto(path: &Path, upto: u64, base: u64, last: u64) -> Error {
    let path = path.display();
    error!(
        Code::JournalError,
        "record {} of the journal {} cannot end a snapshot: records {} to {} can", upto, path, base, last
    )
}

pub(crate) fn of_closed(path: &Path) -> Error {
    error!(Code::JournalClosed, "the journal {} is closed", path.display())
}

pub(crate) fn of_fork(path: &Path) -> Error {
    let path = path.display();
    error!(Code::JournalClosed, "the journal {} belongs to the process that this one was forked from", path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_which_process_has_the_journal() {
        let path = Path::new("journal");
        let ours = std::process::id();
        for (holder, expected) in [
            (0, "another process has the journal journal open".to_string()),
            (
                ours,
                "this process has the journal journal open already, in another `Journal`, `Flows`, `Store` or map"
                    .to_string(),
            ),
            (ours + 1, format!("process {} has the journal journal open", ours + 1)),
        ] {
            assert_eq!(of_lock(path, holder).message(), expected);
        }
    }

    /// The system refuses a file for its own reasons; only ours says that it is unsafe.
    #[test]
    fn what_the_system_denies_is_not_unsafe() {
        let path = Path::new("journal");
        // EACCES, ENOSPC
        for (error, code) in [
            (io::Error::from_raw_os_error(13), Code::JournalError),
            (io::Error::from(io::ErrorKind::PermissionDenied), Code::JournalUnsafe),
            (io::Error::from_raw_os_error(28), Code::OutOfDisk),
        ] {
            assert_eq!(of_opening(path, error).code(), code);
        }
    }
}
