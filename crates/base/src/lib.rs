//! Coded errors: what failed, why, and what to try.
//!
//! An [`Error`] is one pointer wide, so that a `Result` stays small on the way up; everything in it is behind
//! the pointer and made only when something fails.

use std::borrow::Cow;
use std::fmt;

/// What kind of failure it was. The text of each is stable across versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// The operating system refused a call.
    Os,
    /// There is no room for a buffer.
    NoMemory,
    /// The process, or the machine, has as many files open as it may.
    Files,
    /// Shared memory holds numbers that make no sense: its peer is faulty or hostile.
    ShmCorrupt,
    /// A handle names memory that has been given back.
    ShmStale,
    /// A record does not fit where it should go.
    TooLarge,
    /// The pool takes no more tasks.
    PoolClosed,
    /// The process that forks workers failed.
    Zygote,
}

impl Code {
    /// The stable text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Os => "WL-OS",
            Self::NoMemory => "WL-NOMEM",
            Self::Files => "WL-FILES",
            Self::ShmCorrupt => "WL-SHM-CORRUPT",
            Self::ShmStale => "WL-SHM-STALE",
            Self::TooLarge => "WL-TOO-LARGE",
            Self::PoolClosed => "WL-POOL-CLOSED",
            Self::Zygote => "WL-ZYGOTE",
        }
    }

    /// What to try, as a sentence; empty where there is nothing general to say.
    pub fn hint(self) -> &'static str {
        match self {
            Self::Os => "Check the limits of this process: `windlass doctor` prints them.",
            Self::NoMemory => "Free memory, send less at once, or raise the memory limit.",
            Self::Files => "Raise the limit of open files (`ulimit -n`), or run fewer workers.",
            Self::ShmStale => "Keep the shared object alive for as long as its handle is used.",
            Self::PoolClosed => "Make a new pool.",
            Self::ShmCorrupt | Self::TooLarge | Self::Zygote => "",
        }
    }
}

struct Inner {
    code: Code,
    message: Cow<'static, str>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// An error with a code, a message and perhaps a cause.
pub struct Error(Box<Inner>);

/// A result whose error has a code.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error without a cause.
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Inner { code, message: message.into(), source: None }))
    }

    /// An error that another one caused.
    pub fn caused(
        code: Code,
        message: impl Into<Cow<'static, str>>,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        Self(Box::new(Inner { code, message: message.into(), source: Some(Box::new(source)) }))
    }

    /// What kind of failure it was.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// What to try, as a sentence; empty where there is nothing general to say.
    pub fn hint(&self) -> &'static str {
        self.code().hint()
    }

    /// The message, its causes, and what to try, as sentences.
    pub fn report(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        let hint = self.hint();
        if !hint.is_empty() {
            text.push_str(". ");
            text.push_str(hint);
        }
        text
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}]", self.report(), self.code().as_str())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn std::error::Error + 'static))
    }
}

/// Says what was being done when something failed.
pub trait ResultExt<T> {
    /// Wraps the error with a message.
    ///
    /// # Errors
    ///
    /// The wrapped error, if there was one.
    fn context(self, message: &'static str) -> Result<T>;
}

/// Linux's numbers for "too many open files", of the machine and of the process: `io::ErrorKind` has no name
/// for them.
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;

/// ENOMEM and ENOSPC mean "no room" for memory of ours; so does a limit on file sizes.
fn code_of(error: &std::io::Error) -> Code {
    if matches!(error.raw_os_error(), Some(ENFILE | EMFILE)) {
        return Code::Files;
    }
    match error.kind() {
        std::io::ErrorKind::OutOfMemory
        | std::io::ErrorKind::StorageFull
        | std::io::ErrorKind::FileTooLarge => Code::NoMemory,
        _ => Code::Os,
    }
}

impl<T> ResultExt<T> for std::io::Result<T> {
    fn context(self, message: &'static str) -> Result<T> {
        self.map_err(|error| Error::caused(code_of(&error), message, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_pointer() {
        assert_eq!(size_of::<Error>(), size_of::<usize>());
        assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
    }

    #[test]
    fn system_errors_are_sorted_by_number() {
        for (number, code) in
            [(12, Code::NoMemory), (28, Code::NoMemory), (23, Code::Files), (24, Code::Files), (1, Code::Os)]
        {
            let failed: std::io::Result<()> = Err(std::io::Error::from_raw_os_error(number));
            assert_eq!(failed.context("it failed").expect_err("it failed").code(), code);
        }
    }

    #[test]
    fn a_report_tells_message_cause_and_hint() {
        let failed: std::io::Result<()> = Err(std::io::Error::from(std::io::ErrorKind::OutOfMemory));
        let error = failed.context("could not make a segment").expect_err("it failed");
        assert_eq!(error.code(), Code::NoMemory);
        let report = error.report();
        assert!(report.starts_with("could not make a segment: "), "{report}");
        assert!(report.ends_with("raise the memory limit."), "{report}");
    }
}
