//! A session: each frame of a message, or command, becomes one MESSAGE frame.
//!
//! Source: RFC 26/CurveZMQ, "The MESSAGE Command".

use std::fmt;

use super::sodium::TAG;
use super::{SharedKey, short_nonce};
use crate::frame::{COMMAND, MORE, write_header};

const FROM_CLIENT: &[u8; 16] = b"CurveZMQMESSAGEC";
const FROM_SERVER: &[u8; 16] = b"CurveZMQMESSAGES";
const NAME: &[u8; 8] = b"\x07MESSAGE";

/// Where a frame's flags begin in a body: after the name, the nonce and the tag.
const FLAGS: usize = NAME.len() + 8 + TAG;
/// What the flags are called inside of a box. COMMAND has another bit than in a frame.
const BOXED_MORE: u8 = 1;
const BOXED_COMMAND: u8 = 2;

/// Which end we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Client,
    Server,
}

/// Why a frame is not the next of the session. The connection is of no more use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionError {
    /// It is no MESSAGE, or too short for one.
    Malformed,
    /// Its nonce is not greater than that of the frame before: it was repeated, or comes late.
    Nonce,
    /// Its box cannot be opened: it was changed on its way.
    Cryptographic,
    /// Its flags are none that a frame may have.
    Flags,
}

impl SessionError {
    /// libzmq's number for it, of those in [`code`](crate::code).
    pub fn code(self) -> i32 {
        match self {
            Self::Malformed | Self::Flags => crate::code::ZMTP_MALFORMED_COMMAND_MESSAGE,
            Self::Nonce => crate::code::ZMTP_INVALID_SEQUENCE,
            Self::Cryptographic => crate::code::ZMTP_CRYPTOGRAPHIC,
        }
    }
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "a frame of an encrypted session is no MESSAGE",
            Self::Nonce => "a MESSAGE was repeated, or comes late",
            Self::Cryptographic => "a MESSAGE cannot be decrypted",
            Self::Flags => "a MESSAGE has flags that no frame may have",
        })
    }
}

impl std::error::Error for SessionError {}

/// Both directions of an encrypted connection.
#[derive(Debug)]
pub struct CurveSession {
    sender: CurveSender,
    receiver: CurveReceiver,
}

/// Encrypts what this end sends.
pub struct CurveSender {
    key: SharedKey,
    prefix: &'static [u8; 16],
    /// The number of the last frame; the next has one more.
    nonce: u64,
}

/// Decrypts what the peer sends.
pub struct CurveReceiver {
    key: SharedKey,
    prefix: &'static [u8; 16],
    /// The number of the last frame; the next has a greater one.
    nonce: u64,
}

impl CurveSession {
    /// After a handshake in which these were the last nonces of both ends.
    pub(crate) fn new(role: Role, key: &SharedKey, ours: u64, theirs: u64) -> Self {
        let (out, back) = match role {
            Role::Client => (FROM_CLIENT, FROM_SERVER),
            Role::Server => (FROM_SERVER, FROM_CLIENT),
        };
        Self {
            sender: CurveSender { key: key.clone(), prefix: out, nonce: ours },
            receiver: CurveReceiver { key: key.clone(), prefix: back, nonce: theirs },
        }
    }

    /// The two directions, for different threads.
    pub fn split(self) -> (CurveSender, CurveReceiver) {
        (self.sender, self.receiver)
    }

    /// Appends one whole frame; see [`CurveSender::encrypt`].
    #[inline]
    pub fn encrypt(&mut self, flags: u8, body: &[u8], out: &mut Vec<u8>) {
        self.sender.encrypt(flags, body, out);
    }

    /// Reads the body of a MESSAGE; see [`CurveReceiver::decrypt`].
    ///
    /// # Errors
    /// [`SessionError`], after which the connection is of no more use.
    #[inline]
    pub fn decrypt(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<u8, SessionError> {
        self.receiver.decrypt(body, out)
    }
}

impl CurveSender {
    /// Appends one whole frame that holds this one, whose flags are `MORE`, `COMMAND` or none.
    ///
    /// The outer frame sets no flag, as libzmq has it.
    pub fn encrypt(&mut self, flags: u8, body: &[u8], out: &mut Vec<u8>) {
        // 2^64 frames take longer than any connection lasts.
        self.nonce += 1;
        let mut header = [0; 9];
        let len = write_header(&mut header, 0, (FLAGS + 1 + body.len()) as u64);
        out.reserve(len + FLAGS + 1 + body.len());
        out.extend_from_slice(&header[..len]);
        out.extend_from_slice(NAME);
        out.extend_from_slice(&self.nonce.to_be_bytes());
        let start = out.len();
        out.extend_from_slice(&[0; TAG]);
        out.push(
            if flags & MORE == 0 { 0 } else { BOXED_MORE }
                | if flags & COMMAND == 0 { 0 } else { BOXED_COMMAND },
        );
        out.extend_from_slice(body);
        self.key.seal_in_place(&short_nonce(self.prefix, self.nonce), &mut out[start..]);
    }
}

impl CurveReceiver {
    /// Appends the plaintext in the body of a MESSAGE frame, and gives its flags: `MORE`, `COMMAND` or none.
    ///
    /// # Errors
    /// [`SessionError`]; nothing was appended then, and the connection is of no more use.
    pub fn decrypt(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<u8, SessionError> {
        let body = body.strip_prefix(NAME).ok_or(SessionError::Malformed)?;
        let (number, sealed) = body.split_first_chunk::<8>().ok_or(SessionError::Malformed)?;
        // A frame without a text still has its flags.
        if sealed.len() <= TAG {
            return Err(SessionError::Malformed);
        }
        let nonce = u64::from_be_bytes(*number);
        if nonce <= self.nonce {
            return Err(SessionError::Nonce);
        }
        let start = out.len();
        self.key.open(&short_nonce(self.prefix, nonce), sealed, out).ok_or(SessionError::Cryptographic)?;
        // Only a peer that has the key moves the nonce.
        self.nonce = nonce;
        match out.remove(start) {
            0 => Ok(0),
            BOXED_MORE => Ok(MORE),
            BOXED_COMMAND => Ok(COMMAND),
            _ => {
                out.truncate(start);
                Err(SessionError::Flags)
            }
        }
    }
}

impl fmt::Debug for CurveSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CurveSender").field("nonce", &self.nonce).finish_non_exhaustive()
    }
}

impl fmt::Debug for CurveReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CurveReceiver").field("nonce", &self.nonce).finish_non_exhaustive()
    }
}
