//! The error itself: one pointer to a static or to a box.

#![expect(unsafe_code, reason = "argued in README.md")]

use std::borrow::Cow;
use std::fmt;
use std::panic::Location;
use std::ptr::NonNull;

use crate::Code;

type Source = Box<dyn std::error::Error + Send + Sync>;

/// The parts of an error. Public for the `error!` macro only.
#[doc(hidden)]
pub struct Inner {
    code: Code,
    module: &'static str,
    message: Cow<'static, str>,
    source: Option<Source>,
}

impl Inner {
    /// The parts that `error!` puts into a static.
    ///
    /// # Panics
    ///
    /// At compile time, if the message has a brace: it was meant to be formatted.
    pub const fn fixed(code: Code, module: &'static str, message: &'static str) -> Self {
        let mut at = 0;
        while at < message.len() {
            assert!(
                message.as_bytes()[at] != b'{',
                "a literal is not formatted: give the arguments after it"
            );
            at += 1;
        }
        Self { code, module, message: Cow::Borrowed(message), source: None }
    }
}

/// The lowest bit of the pointer: set if the pointer is to a static, which is never freed.
const STATIC: usize = 1;
const _: () = assert!(align_of::<Inner>() > STATIC, "the bit must be free");

/// A result whose error has a code.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error with a code, a message and perhaps a cause.
///
/// It is one pointer wide. If the message is known at compile time, make the error with [`error!`](crate::error!),
/// which allocates nothing.
pub struct Error(NonNull<Inner>);

// SAFETY: an error owns its `Inner`, or shares a static one; all parts of `Inner` are Send and Sync.
unsafe impl Send for Error {}
// SAFETY: as above.
unsafe impl Sync for Error {}

impl Error {
    /// An error without a cause.
    #[track_caller]
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self::boxed(code, message.into(), None, Location::caller())
    }

    /// An error that another one caused.
    #[track_caller]
    pub fn caused(
        code: Code,
        message: impl Into<Cow<'static, str>>,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        Self::boxed(code, message.into(), Some(Box::new(source)), Location::caller())
    }

    #[cold]
    fn boxed(
        code: Code,
        message: Cow<'static, str>,
        source: Option<Source>,
        place: &'static Location<'_>,
    ) -> Self {
        let inner = Inner { code, module: place.file(), message, source };
        Self(NonNull::from(Box::leak(Box::new(inner))))
    }

    /// Public for the `error!` macro only.
    #[doc(hidden)]
    #[inline]
    pub fn of_static(inner: &'static Inner) -> Self {
        Self(NonNull::from(inner).map_addr(|address| address | STATIC))
    }

    fn is_static(&self) -> bool {
        self.0.addr().get() & STATIC != 0
    }

    fn inner(&self) -> &Inner {
        let address = |address: std::num::NonZeroUsize| {
            // The address is aligned, so bits beside the lowest one are set.
            std::num::NonZeroUsize::new(address.get() & !STATIC).unwrap_or(address)
        };
        // SAFETY: without the bit this is a pointer to a static or to the box that this error owns; both live as long
        // as `self`.
        unsafe { self.0.map_addr(address).as_ref() }
    }

    /// What kind of failure it was.
    pub fn code(&self) -> Code {
        self.inner().code
    }

    /// Where the error was made: a module's path, or a source file.
    pub fn module(&self) -> &'static str {
        self.inner().module
    }

    /// What to try, in a sentence or two.
    pub fn remedy(&self) -> &'static str {
        self.code().remedy()
    }

    /// The operating system's error number, if a system call failed.
    pub fn os_error(&self) -> Option<i32> {
        self.chain()
            .filter_map(|error| error.downcast_ref::<std::io::Error>())
            .find_map(std::io::Error::raw_os_error)
    }

    /// The error, what caused it, what caused that, and so on.
    pub fn chain(&self) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
        std::iter::successors(Some(self as &(dyn std::error::Error + 'static)), |error| error.source())
    }

    /// The message, its causes, and what to try, as sentences.
    pub fn report(&self) -> String {
        let mut text = self.message();
        text.push_str(". ");
        text.push_str(self.remedy());
        text
    }

    /// The message and its causes, as a part of a sentence.
    pub fn message(&self) -> String {
        let mut text = self.to_string();
        for cause in self.chain().skip(1) {
            text.push_str(": ");
            text.push_str(&cause.to_string());
        }
        text
    }

    #[cold]
    fn free(&mut self) {
        // SAFETY: called by `drop` only, once, and for a box only.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl Drop for Error {
    #[inline]
    fn drop(&mut self) {
        if !self.is_static() {
            self.free();
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.inner().message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{} in {}]", self.report(), self.code().as_str(), self.module())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.inner().source.as_deref().map(|source| source as &(dyn std::error::Error + 'static))
    }
}

/// Makes an [`Error`] from a code and a message.
///
/// With a literal message nothing is allocated: the error points to a static. With format arguments the error is boxed.
/// The arguments come after the literal; a name inside its braces does not compile.
///
/// ```
/// use ropewalk_base::{Code, Result, error};
///
/// fn check(bytes: usize) -> Result<()> {
///     match bytes {
///         0 => Err(error!(Code::TooLarge, "nothing fits into nothing")),
///         1..100 => Ok(()),
///         _ => Err(error!(Code::TooLarge, "{} bytes do not fit", bytes)),
///     }
/// }
///
/// let error = check(200).unwrap_err();
/// assert_eq!((error.code(), error.to_string().as_str()), (Code::TooLarge, "200 bytes do not fit"));
/// assert_eq!(check(0).unwrap_err().module(), module_path!());
/// ```
#[macro_export]
macro_rules! error {
    ($code:expr, $message:literal $(,)?) => {{
        static MESSAGE: $crate::error::Inner = $crate::error::Inner::fixed($code, module_path!(), $message);
        $crate::Error::of_static(&MESSAGE)
    }};
    ($code:expr, $($format:tt)+) => {
        $crate::Error::new($code, ::std::format!($($format)+))
    };
}
