//! ZMTP 3.1 without any I/O: frames, commands, the handshake with each mechanism, and sessions that encrypt.
//!
//! Bytes go in, bytes and results come out; the owner of the socket decides when. The crate's `README.md` has the
//! states, the limits and what is not guaranteed.
//!
//! ```
//! use ropewalk_zmtp::{Config, Handshake, Mechanism, SocketType, Status};
//!
//! let mut push = Handshake::new(Config::new(SocketType::Push, Mechanism::Null));
//! let mut pull = Handshake::new(Config::new(SocketType::Pull, Mechanism::Null));
//! let (mut to_pull, mut to_push) = (Vec::new(), Vec::new());
//! push.start(&mut to_pull);
//! pull.start(&mut to_push);
//! while push.status() != Status::Done || pull.status() != Status::Done {
//!     let sent = std::mem::take(&mut to_push);
//!     push.input(&sent, &mut to_pull)?;
//!     let sent = std::mem::take(&mut to_pull);
//!     pull.input(&sent, &mut to_push)?;
//! }
//! assert_eq!(push.finish().socket_type, SocketType::Pull);
//! # Ok::<(), ropewalk_zmtp::HandshakeError>(())
//! ```
//!
//! Source: RFC 37/ZMTP 3.1, 23/ZMTP 3.0, 24/ZMTP-PLAIN, 25/ZMTP-CURVE, 26/CurveZMQ, 27/ZAP, 32/Z85.

#![deny(unsafe_code)]

pub mod code;
mod command;
mod config;
mod curve;
mod error;
pub mod frame;
mod greeting;
mod handshake;
mod mechanism;
mod metadata;
mod socket_type;
pub mod z85;
pub mod zap;

pub use command::{Command, CommandError};
pub use config::{Config, Mechanism, ZapConfig};
pub use curve::{CurveReceiver, CurveSender, CurveSession, SessionError, curve_keypair, curve_public};
pub use error::{ErrorKind, HandshakeError, Step};
pub use frame::FrameError;
pub use handshake::{Handshake, Peer, Status};
pub use mechanism::Session;
pub use metadata::MetadataError;
pub use socket_type::SocketType;
