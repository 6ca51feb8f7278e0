//! Errors: a number for programs and a phrase for people.

use std::borrow::Cow;
use std::fmt;
use std::io;

/// The result of an operation of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation failed.
///
/// Programs decide by [`errno`](Error::errno), which is libzmq's number; the phrase is for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    errno: i32,
    what: Cow<'static, str>,
}

impl Error {
    /// An error with this number; `what` says what failed and what to try.
    pub fn new(errno: i32, what: impl Into<Cow<'static, str>>) -> Self {
        Self { errno, what: what.into() }
    }

    /// The number: one of Linux's or one of [`mod@errno`].
    pub fn errno(&self) -> i32 {
        self.errno
    }

    /// It would have to wait.
    pub const fn again() -> Self {
        Self::fixed(errno::EAGAIN, "the operation would have to wait: try again later, or without DONTWAIT")
    }

    /// An argument or an option is invalid.
    pub fn invalid(what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(errno::EINVAL, what)
    }

    /// The context was terminated.
    pub const fn terminated() -> Self {
        Self::fixed(errno::ETERM, "the context was terminated: close the socket")
    }

    /// The socket is closed.
    pub const fn closed() -> Self {
        Self::fixed(errno::ENOTSOCK, "the socket is closed: make a new one")
    }

    /// The socket's pattern does not allow this now.
    pub fn state(what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(errno::EFSM, what)
    }

    /// This kind of socket cannot do this at all.
    pub fn not_supported(what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(errno::ENOTSUP, what)
    }

    /// No peer has the identity that the message names.
    pub const fn unroutable() -> Self {
        Self::fixed(errno::EHOSTUNREACH, "no peer has this routing id: it may not have connected yet")
    }

    /// There is no such endpoint on this socket.
    pub fn no_endpoint(what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(errno::ENOENT, what)
    }

    /// A signal ended a wait.
    pub const fn interrupted() -> Self {
        Self::fixed(errno::EINTR, "a signal interrupted the wait: call again")
    }

    const fn fixed(errno: i32, what: &'static str) -> Self {
        Self { errno, what: Cow::Borrowed(what) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.what)
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    /// Keeps the system's number; other errors get a number by their kind.
    fn from(error: io::Error) -> Self {
        let number = error.raw_os_error().unwrap_or_else(|| match error.kind() {
            io::ErrorKind::WouldBlock => errno::EAGAIN,
            io::ErrorKind::InvalidInput => errno::EINVAL,
            io::ErrorKind::TimedOut => errno::ETIMEDOUT,
            io::ErrorKind::Interrupted => errno::EINTR,
            io::ErrorKind::NotFound => errno::ENOENT,
            io::ErrorKind::Unsupported => errno::ENOTSUP,
            _ => errno::EIO,
        });
        match error.raw_os_error() {
            Some(number) => Self::new(number, strerror(number)),
            None => Self::new(number, error.to_string()),
        }
    }
}

/// The text of an error number.
pub fn strerror(number: i32) -> String {
    match number {
        errno::EFSM => "the socket's pattern does not allow this now".to_owned(),
        errno::ENOCOMPATPROTO => "this transport does not suit this type of socket".to_owned(),
        errno::ETERM => "the context was terminated".to_owned(),
        errno::EMTHREAD => "the context has no thread for input and output".to_owned(),
        _ => {
            let mut words = io::Error::from_raw_os_error(number).to_string();
            if let Some(at) = words.rfind(" (os error") {
                words.truncate(at);
            }
            words
        }
    }
}

/// Error numbers: Linux's own, and libzmq's where Linux has none.
pub mod errno {
    /// Not permitted.
    pub const EPERM: i32 = 1;
    /// There is no such thing.
    pub const ENOENT: i32 = 2;
    /// A signal came.
    pub const EINTR: i32 = 4;
    /// Input or output failed.
    pub const EIO: i32 = 5;
    /// Not a descriptor.
    pub const EBADF: i32 = 9;
    /// It would have to wait.
    pub const EAGAIN: i32 = 11;
    /// Out of memory.
    pub const ENOMEM: i32 = 12;
    /// No right to it.
    pub const EACCES: i32 = 13;
    /// Not an address.
    pub const EFAULT: i32 = 14;
    /// It is in use.
    pub const EBUSY: i32 = 16;
    /// There is no such interface.
    pub const ENODEV: i32 = 19;
    /// An argument is invalid.
    pub const EINVAL: i32 = 22;
    /// Out of descriptors or sockets.
    pub const EMFILE: i32 = 24;
    /// The other end is gone.
    pub const EPIPE: i32 = 32;
    /// A name is too long.
    pub const ENAMETOOLONG: i32 = 36;
    /// The peer does not keep to the protocol.
    pub const EPROTO: i32 = 71;
    /// Not a socket, or not any more.
    pub const ENOTSOCK: i32 = 88;
    /// A message is too large.
    pub const EMSGSIZE: i32 = 90;
    /// There is no such transport.
    pub const EPROTONOSUPPORT: i32 = 93;
    /// Not supported.
    pub const ENOTSUP: i32 = 95;
    /// Not supported by this family of addresses.
    pub const EAFNOSUPPORT: i32 = 97;
    /// The address is taken.
    pub const EADDRINUSE: i32 = 98;
    /// The address is not of this machine.
    pub const EADDRNOTAVAIL: i32 = 99;
    /// The network is down.
    pub const ENETDOWN: i32 = 100;
    /// The network cannot be reached.
    pub const ENETUNREACH: i32 = 101;
    /// The network reset the connection.
    pub const ENETRESET: i32 = 102;
    /// The connection was given up here.
    pub const ECONNABORTED: i32 = 103;
    /// The peer reset the connection.
    pub const ECONNRESET: i32 = 104;
    /// No room for buffers.
    pub const ENOBUFS: i32 = 105;
    /// Not connected.
    pub const ENOTCONN: i32 = 107;
    /// It took too long.
    pub const ETIMEDOUT: i32 = 110;
    /// No socket listens there.
    pub const ECONNREFUSED: i32 = 111;
    /// The host cannot be reached.
    pub const EHOSTUNREACH: i32 = 113;
    /// It has begun already.
    pub const EALREADY: i32 = 114;
    /// It has begun and is not done.
    pub const EINPROGRESS: i32 = 115;

    /// Where libzmq's own numbers begin.
    pub const HAUSNUMERO: i32 = 156_384_712;

    macro_rules! own {
        ($(#[doc = $about:literal] $name:ident = $number:literal;)*) => {
            $(#[doc = $about] pub const $name: i32 = HAUSNUMERO + $number;)*

            /// Names and numbers of libzmq's own: Python's enum is made from them.
            pub const OWN: &[(&str, i32)] = &[$((stringify!($name), $name)),*];
        };
    }

    own! {
        /// The socket's pattern does not allow this now.
        EFSM = 51;
        /// The transport does not suit the type of socket.
        ENOCOMPATPROTO = 52;
        /// The context was terminated.
        ETERM = 53;
        /// There is no thread for input and output.
        EMTHREAD = 54;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_errors_keep_their_numbers() {
        let refused = Error::from(io::Error::from_raw_os_error(errno::ECONNREFUSED));
        assert_eq!((refused.errno(), refused.to_string().as_str()), (111, "Connection refused"));
        assert_eq!(Error::from(io::Error::from(io::ErrorKind::WouldBlock)).errno(), errno::EAGAIN);
        assert_eq!(Error::from(io::Error::other("odd")), Error::new(errno::EIO, "odd"));
    }

    #[test]
    fn libzmqs_numbers_have_words_too() {
        assert_eq!(errno::ETERM, 156_384_765);
        for number in [errno::EFSM, errno::ENOCOMPATPROTO, errno::ETERM, errno::EMTHREAD] {
            assert!(!strerror(number).starts_with("Unknown"), "{number}");
        }
        assert_eq!(strerror(errno::EAGAIN), "Resource temporarily unavailable");
        assert!(strerror(-7).starts_with("Unknown"));
    }
}
