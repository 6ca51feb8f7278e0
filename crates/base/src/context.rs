//! Saying what was being done when something failed.

use std::borrow::Cow;

use crate::{Code, Error, Result};

/// Says what was being done when something failed.
///
/// ```
/// use ropewalk_base::{Code, ResultExt};
///
/// let failed = std::fs::File::open("/no/such/file").context("could not read the settings");
/// let error = failed.unwrap_err();
/// assert_eq!(error.code(), Code::Os);
/// assert!(error.report().starts_with("could not read the settings: No such file"));
/// ```
pub trait ResultExt<T>: Sized {
    /// Wraps the error with a message that is only made if there is one.
    ///
    /// # Errors
    ///
    /// The wrapped error, if there was one.
    #[track_caller]
    fn with_context<M: Into<Cow<'static, str>>>(self, message: impl FnOnce() -> M) -> Result<T>;

    /// Wraps the error with a message.
    ///
    /// # Errors
    ///
    /// The wrapped error, if there was one.
    #[track_caller]
    fn context(self, message: &'static str) -> Result<T> {
        self.with_context(|| message)
    }
}

/// Linux's numbers for the limits that `io::ErrorKind` has no name of its own for.
const EAGAIN: i32 = 11;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const ENOSYS: i32 = 38;

/// Which limit it was. ENOMEM and ENOSPC mean "no room" for memory of ours. EAGAIN is what `fork` and `clone` say at
/// the limit of processes; sockets say it too, but that is an answer and never becomes an error of ours.
fn code_of(error: &std::io::Error) -> Code {
    match error.raw_os_error() {
        Some(ENFILE | EMFILE) => return Code::Files,
        Some(EAGAIN) => return Code::Processes,
        Some(ENOSYS) => return Code::Unsupported,
        _ => {}
    }
    match error.kind() {
        std::io::ErrorKind::OutOfMemory | std::io::ErrorKind::StorageFull => Code::NoMemory,
        std::io::ErrorKind::FileTooLarge => Code::FileSize,
        _ => Code::Os,
    }
}

impl<T> ResultExt<T> for std::io::Result<T> {
    fn with_context<M: Into<Cow<'static, str>>>(self, message: impl FnOnce() -> M) -> Result<T> {
        // A match, because the caller that is to be told does not go through a closure.
        match self {
            Ok(value) => Ok(value),
            Err(error) => Err(Error::caused(code_of(&error), message(), error)),
        }
    }
}

/// An error of ours keeps its code.
impl<T> ResultExt<T> for Result<T> {
    fn with_context<M: Into<Cow<'static, str>>>(self, message: impl FnOnce() -> M) -> Result<T> {
        match self {
            Ok(value) => Ok(value),
            Err(error) => Err(Error::caused(error.code(), message(), error)),
        }
    }
}

/// Says what it means that something is not there.
pub trait OptionExt<T> {
    /// The value, or an error with this code and message.
    ///
    /// # Errors
    ///
    /// If there is no value.
    #[track_caller]
    fn or_error(self, code: Code, message: &'static str) -> Result<T>;
}

impl<T> OptionExt<T> for Option<T> {
    fn or_error(self, code: Code, message: &'static str) -> Result<T> {
        match self {
            Some(value) => Ok(value),
            None => Err(Error::new(code, message)),
        }
    }
}
