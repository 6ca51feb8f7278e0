//! Adds to an error what the program was doing when it failed.

use std::borrow::Cow;

use crate::{Code, Error, Result};

/// Adds to an error what the program was doing when it failed.
///
/// ```
/// use ropewalk_base::{Code, ResultExt};
///
/// let failed = std::fs::File::open("/no/such/file").context("could not read the settings");
/// let error = failed.unwrap_err();
/// assert_eq!(error.code(), Code::SystemCallFailed);
/// assert!(error.report().starts_with("could not read the settings: No such file"));
/// ```
pub trait ResultExt<T>: Sized {
    /// Wraps the error with a message, which is made only if there is an error.
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

impl<T> ResultExt<T> for std::io::Result<T> {
    fn with_context<M: Into<Cow<'static, str>>>(self, message: impl FnOnce() -> M) -> Result<T> {
        // A match and no closure, so that `#[track_caller]` finds the caller.
        match self {
            Ok(value) => Ok(value),
            Err(error) => Err(Error::caused(Code::of_system(&error), message(), error)),
        }
    }
}

/// An [`Error`] keeps its code.
impl<T> ResultExt<T> for Result<T> {
    fn with_context<M: Into<Cow<'static, str>>>(self, message: impl FnOnce() -> M) -> Result<T> {
        match self {
            Ok(value) => Ok(value),
            Err(error) => Err(Error::caused(error.code(), message(), error)),
        }
    }
}

/// Makes an error of a missing value.
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
