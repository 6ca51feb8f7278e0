//! CurveZMQ's cryptography: keys, boxes, and the session that encrypts what follows a handshake.
//!
//! libsodium computes; this module calls it.
//!
//! Source: RFC 26/CurveZMQ; Bernstein, Cryptography in NaCl (2009).

mod keys;
mod sealed;
mod session;
mod sodium;

pub(crate) use keys::Keypair;
pub use keys::{curve_keypair, curve_public};
pub(crate) use sealed::{SharedKey, long_nonce, short_nonce};
pub(crate) use session::Role;
pub use session::{CurveReceiver, CurveSender, CurveSession, SessionError};
pub(crate) use sodium::{random, same};
