//! ZeroMQ's sockets: every pattern over tcp, ipc, shm and inproc, wire-compatible with libzmq's peers (ZMTP 3.1, 3.0).
//!
//! The thread that calls a socket does its work: it writes, reads and decodes under the socket's lock, and sleeps on
//! the socket's own set of descriptors. One thread for each context serves the sockets that no thread calls. The
//! crate's `README.md` explains how the two share a socket, and why no message is stranded.
//!
//! ```
//! use ropewalk_messaging::{Context, Frame, SocketType};
//!
//! let context = Context::new();
//! let (push, pull) = (context.socket(SocketType::Push)?, context.socket(SocketType::Pull)?);
//! pull.bind("inproc://work")?;
//! push.connect("inproc://work")?;
//! push.send(&Frame::copy_of(b"a message"), false, None)?;
//! assert_eq!(pull.recv(None)?.bytes(), b"a message");
//! push.close(None);
//! pull.close(None);
//! # Ok::<(), ropewalk_messaging::Error>(())
//! ```

#![forbid(unsafe_code)]

mod background;
mod backoff;
mod conn;
mod conn_ref;
mod context;
pub mod endpoint;
mod error;
mod events;
mod frame;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod hang_up;
mod incoming;
mod lane;
mod mail;
mod mailbox;
mod monitor;
mod names;
mod near_look;
mod notifier;
pub mod options;
mod outgoing;
mod poll;
mod proxy;
mod registry;
mod shared_socket;
mod shm_link;
mod slices;
mod socket;
mod state;
mod trie;
mod wire;

pub use context::Context;
pub use error::{Error, Result, errno, strerror};
pub use events::{Events, Woken};
pub use frame::Frame;
pub use monitor::event;
pub use near_look::NearLook;
pub use options::{Options, Value, option};
pub use poll::{PollItem, PollWoken, Target, poll};
pub use proxy::proxy;
pub use ropewalk_zmtp::SocketType;
pub use slices::Slices;
pub use socket::{Socket, Unsent};

use ropewalk_zmtp::z85;

/// A new pair of keys for CURVE: public and secret, each of 40 characters (RFC 32).
///
/// # Panics
///
/// If the system has no random bytes.
pub fn curve_keypair() -> (String, String) {
    let (public, secret) = ropewalk_zmtp::curve_keypair();
    let text = |key: [u8; 32]| z85::encode(&key).unwrap_or_default();
    (text(public), text(secret))
}

/// The public key that belongs to a secret one, both of 40 characters.
///
/// # Errors
///
/// EINVAL for malformed text.
pub fn curve_public(secret: &str) -> Result<String> {
    let key = z85::decode(secret)
        .and_then(|key| <[u8; 32]>::try_from(key).ok())
        .ok_or_else(|| Error::invalid("a CURVE key is 40 characters of Z85"))?;
    z85::encode(&ropewalk_zmtp::curve_public(&key)).ok_or_else(|| Error::invalid("no such key"))
}

/// Whether an optional capability is supported: `ipc`, `shm`, `curve` and `draft` are.
pub fn has(capability: &str) -> bool {
    matches!(capability, "ipc" | "shm" | "curve" | "draft")
}

/// The release of libzmq whose behaviour this has.
pub fn version() -> (i32, i32, i32) {
    (4, 3, 5)
}
