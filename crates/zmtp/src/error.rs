//! Why a handshake failed.

use std::fmt;

use crate::zap::ZapError;
use crate::{CommandError, FrameError, MetadataError, SocketType, code};

/// How a monitor reports a failure: one of libzmq's three events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// An end broke the protocol, in the way that this [`code`] says.
    Protocol(i32),
    /// The peer, or we, were refused with this status of ZAP.
    Auth(u16),
    /// There is no number for it.
    NoDetail,
}

/// A command of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are the commands' names")]
pub enum Step {
    Hello,
    Welcome,
    Initiate,
    Ready,
}

impl Step {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Hello => "HELLO",
            Self::Welcome => "WELCOME",
            Self::Initiate => "INITIATE",
            Self::Ready => "READY",
        }
    }

    const fn code(self) -> i32 {
        match self {
            Self::Hello => code::ZMTP_MALFORMED_COMMAND_HELLO,
            Self::Welcome => code::ZMTP_MALFORMED_COMMAND_WELCOME,
            Self::Initiate => code::ZMTP_MALFORMED_COMMAND_INITIATE,
            Self::Ready => code::ZMTP_MALFORMED_COMMAND_READY,
        }
    }
}

/// Why a handshake failed. The connection is of no more use.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The peer's first bytes are not those of ZMTP 2 or later.
    Greeting,
    /// The peer speaks an older ZMTP than 3.0.
    Version {
        /// What it speaks.
        major: u8,
    },
    /// The peer has chosen another mechanism.
    Mechanism {
        /// Ours.
        ours: &'static str,
        /// Its, as it stands in the greeting.
        theirs: String,
    },
    /// Both ends are servers of the mechanism.
    TwoServers,
    /// A frame is malformed.
    Frame(FrameError),
    /// A command is longer than a handshake's may be.
    TooLong {
        /// What its frame claims.
        size: u64,
    },
    /// A message came before the handshake was done.
    Message,
    /// A command is malformed.
    Command(CommandError),
    /// A command came that is none of the handshake's, or not now.
    Unexpected {
        /// Its name.
        name: String,
    },
    /// The content of a command is malformed.
    Malformed(Step),
    /// The peer's metadata is malformed.
    Metadata(MetadataError),
    /// The sockets are of types that do not talk to each other.
    Incompatible {
        /// Ours.
        ours: SocketType,
        /// The peer's.
        theirs: SocketType,
    },
    /// A box could not be opened, or what it holds does not belong to this handshake.
    Cryptographic(Step),
    /// The peer's nonces do not increase.
    Nonce,
    /// The ZAP handler's reply is malformed.
    Zap(ZapError),
    /// The ZAP handler refused the peer.
    Denied {
        /// 300, 400 or 500.
        status: u16,
        /// What it said of it.
        text: String,
    },
    /// The peer gave up.
    Refused {
        /// Its reason: with ZAP, the status.
        reason: String,
    },
}

impl HandshakeError {
    /// How a monitor reports it.
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::Protocol(match self {
            Self::Greeting | Self::Version { .. } => return ErrorKind::NoDetail,
            Self::Mechanism { .. } | Self::TwoServers => code::ZMTP_MECHANISM_MISMATCH,
            Self::Frame(_) | Self::TooLong { .. } => code::ZMTP_MALFORMED_COMMAND_UNSPECIFIED,
            Self::Command(CommandError::Reason) => code::ZMTP_MALFORMED_COMMAND_ERROR,
            Self::Command(_) => code::ZMTP_MALFORMED_COMMAND_UNSPECIFIED,
            Self::Message | Self::Unexpected { .. } => code::ZMTP_UNEXPECTED_COMMAND,
            Self::Malformed(step) => step.code(),
            Self::Metadata(_) | Self::Incompatible { .. } => code::ZMTP_INVALID_METADATA,
            Self::Cryptographic(_) => code::ZMTP_CRYPTOGRAPHIC,
            Self::Nonce => code::ZMTP_INVALID_SEQUENCE,
            Self::Zap(error) => error.code(),
            Self::Denied { status, .. } => return ErrorKind::Auth(*status),
            Self::Refused { reason } => {
                return match reason.as_str() {
                    "300" => ErrorKind::Auth(300),
                    "400" => ErrorKind::Auth(400),
                    "500" => ErrorKind::Auth(500),
                    _ => ErrorKind::NoDetail,
                };
            }
        })
    }
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Greeting => f.write_str("the peer does not speak ZMTP 3"),
            Self::Version { major } => {
                write!(f, "the peer speaks version {major} of ZMTP; at least version 3 is needed")
            }
            Self::Mechanism { ours, theirs } => {
                write!(f, "the peer authenticates by {theirs:?}, and this end by {ours}; choose one for both")
            }
            Self::TwoServers => {
                f.write_str("both ends are servers of the mechanism; make one of them a client")
            }
            Self::Frame(error) => error.fmt(f),
            Self::TooLong { size } => write!(f, "a command of {size} bytes is too long for a handshake"),
            Self::Message => f.write_str("a message came before the handshake was done"),
            Self::Command(error) => error.fmt(f),
            Self::Unexpected { name } => write!(f, "the command {name:?} does not belong here"),
            Self::Malformed(step) => write!(f, "the command {} is malformed", step.name()),
            Self::Metadata(error) => write!(f, "the peer's metadata is malformed: {error}"),
            Self::Incompatible { ours, theirs } => {
                write!(f, "a {ours} socket cannot talk to a {theirs} socket")
            }
            Self::Cryptographic(step) => {
                write!(f, "the box in {} cannot be opened; compare the keys of both ends", step.name())
            }
            Self::Nonce => f.write_str("the peer's nonces do not increase"),
            Self::Zap(error) => error.fmt(f),
            Self::Denied { status, text } => write!(f, "the ZAP handler refused the peer: {status} {text}"),
            Self::Refused { reason } => write!(f, "the peer refused this end: {reason:?}"),
        }
    }
}

impl std::error::Error for HandshakeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Frame(error) => Some(error),
            Self::Command(error) => Some(error),
            Self::Metadata(error) => Some(error),
            Self::Zap(error) => Some(error),
            _ => None,
        }
    }
}

impl From<FrameError> for HandshakeError {
    fn from(error: FrameError) -> Self {
        Self::Frame(error)
    }
}

impl From<CommandError> for HandshakeError {
    fn from(error: CommandError) -> Self {
        Self::Command(error)
    }
}

impl From<MetadataError> for HandshakeError {
    fn from(error: MetadataError) -> Self {
        Self::Metadata(error)
    }
}

impl From<ZapError> for HandshakeError {
    fn from(error: ZapError) -> Self {
        Self::Zap(error)
    }
}
