//! Commands: what peers send to each other besides messages. This is the body; the frame around it sets `COMMAND`.

use std::fmt;

use zeroize::Zeroize;

use crate::frame;

/// The longest context of a PING that is answered.
const CONTEXT: usize = 16;

/// A command by its name, and what it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command<'a> {
    /// The end of a handshake, with metadata.
    Ready(&'a [u8]),
    /// The peer gives up, for this reason.
    Error(&'a [u8]),
    /// Messages that begin with this are wanted.
    Subscribe(&'a [u8]),
    /// They are no longer wanted.
    Cancel(&'a [u8]),
    /// Messages of this group are wanted.
    Join(&'a [u8]),
    /// They are no longer wanted.
    Leave(&'a [u8]),
    /// Asks for a sign of life.
    Ping {
        /// For how long the sender stays reachable without hearing anything, in tenths of a second; 0 for no limit.
        ttl: u16,
        /// Comes back with the answer; at most 16 bytes.
        context: &'a [u8],
    },
    /// Answers a PING.
    Pong {
        /// What the PING carried.
        context: &'a [u8],
    },
    /// A command that this crate gives no meaning; to be ignored after the handshake.
    Unknown {
        /// Its name.
        name: &'a [u8],
        /// What follows the name.
        data: &'a [u8],
    },
}

/// Why a body is no command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommandError {
    /// There is no name, or one without a letter.
    Nameless,
    /// The name is longer than the body.
    Name,
    /// A PING without the two bytes of its time to live.
    Ttl,
    /// An ERROR whose reason is longer or shorter than it says.
    Reason,
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nameless => "a command has no name",
            Self::Name => "the name of a command is cut short",
            Self::Ttl => "a PING has no time to live",
            Self::Reason => "the reason of an ERROR is not as long as it says",
        })
    }
}

impl std::error::Error for CommandError {}

impl Command<'_> {
    /// Reads the body of a frame whose `COMMAND` flag is set.
    ///
    /// Of a PING's context, the first 16 bytes count, as libzmq has it.
    ///
    /// # Errors
    /// [`CommandError`] if there is no name, or if what a known command must carry is malformed.
    #[inline]
    pub fn parse(body: &[u8]) -> Result<Command<'_>, CommandError> {
        let (name, data) = split_name(body)?;
        Ok(match name {
            b"READY" => Command::Ready(data),
            b"SUBSCRIBE" => Command::Subscribe(data),
            b"CANCEL" => Command::Cancel(data),
            b"JOIN" => Command::Join(data),
            b"LEAVE" => Command::Leave(data),
            b"PING" => {
                let (ttl, context) = data.split_first_chunk().ok_or(CommandError::Ttl)?;
                Command::Ping {
                    ttl: u16::from_be_bytes(*ttl),
                    context: &context[..context.len().min(CONTEXT)],
                }
            }
            b"PONG" => Command::Pong { context: &data[..data.len().min(CONTEXT)] },
            b"ERROR" => match data.split_first() {
                Some((&len, reason)) if reason.len() == usize::from(len) => Command::Error(reason),
                _ => return Err(CommandError::Reason),
            },
            _ => Command::Unknown { name, data },
        })
    }

    /// Appends the body; the frame around it is [`frame::encode`]'s.
    ///
    /// A reason is cut after 255 bytes and a context after 16, the most that they may have.
    ///
    /// # Panics
    /// If the name of an unknown command is empty or longer than 255 bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (name, data): (&[u8], &[u8]) = match *self {
            Command::Ready(data) => (b"READY", data),
            Command::Subscribe(topic) => (b"SUBSCRIBE", topic),
            Command::Cancel(topic) => (b"CANCEL", topic),
            Command::Join(group) => (b"JOIN", group),
            Command::Leave(group) => (b"LEAVE", group),
            Command::Ping { context, .. } => (b"PING", &context[..context.len().min(CONTEXT)]),
            Command::Pong { context } => (b"PONG", &context[..context.len().min(CONTEXT)]),
            Command::Error(reason) => (b"ERROR", &reason[..reason.len().min(255)]),
            Command::Unknown { name, data } => (name, data),
        };
        assert!(!name.is_empty(), "a command has a name");
        out.push(u8::try_from(name.len()).expect("the name of a command has at most 255 bytes"));
        out.extend_from_slice(name);
        match *self {
            Command::Ping { ttl, .. } => out.extend_from_slice(&ttl.to_be_bytes()),
            Command::Error(_) => out.push(data.len() as u8), // Cut to 255 above.
            _ => {}
        }
        out.extend_from_slice(data);
    }
}

/// The name of a command, and what follows it.
#[inline]
pub(crate) fn split_name(body: &[u8]) -> Result<(&[u8], &[u8]), CommandError> {
    match body.split_first() {
        None | Some((0, _)) => Err(CommandError::Nameless),
        Some((&len, rest)) => rest.split_at_checked(usize::from(len)).ok_or(CommandError::Name),
    }
}

/// Appends a frame with the command that `write` appends to it.
pub(crate) fn send(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let mut body = Vec::new();
    write(&mut body);
    frame::encode(out, frame::COMMAND, &body);
    body.zeroize();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_those_of_the_rfc() {
        let cases: [(Command<'_>, &[u8]); 4] = [
            (Command::Ping { ttl: 0x0102, context: b"hi" }, b"\x04PING\x01\x02hi"),
            (Command::Pong { context: b"hi" }, b"\x04PONGhi"),
            (Command::Error(b"400"), b"\x05ERROR\x03400"),
            (Command::Subscribe(b"a"), b"\x09SUBSCRIBEa"),
        ];
        for (command, body) in cases {
            let mut out = Vec::new();
            command.encode(&mut out);
            assert_eq!(out, body);
            assert_eq!(Command::parse(body), Ok(command));
        }
    }

    #[test]
    fn malformed_bodies_are_refused() {
        assert_eq!(Command::parse(b""), Err(CommandError::Nameless));
        assert_eq!(Command::parse(b"\x00READY"), Err(CommandError::Nameless));
        assert_eq!(Command::parse(b"\x06READY"), Err(CommandError::Name));
        assert_eq!(Command::parse(b"\xFF"), Err(CommandError::Name));
        assert_eq!(Command::parse(b"\x04PING\x01"), Err(CommandError::Ttl));
        assert_eq!(Command::parse(b"\x05ERROR"), Err(CommandError::Reason));
        assert_eq!(Command::parse(b"\x05ERROR\x02a"), Err(CommandError::Reason));
        assert_eq!(Command::parse(b"\x05ERROR\x00a"), Err(CommandError::Reason));
    }

    #[test]
    fn a_context_ends_after_sixteen_bytes() {
        let body = [b"\x04PING\x00\x00".as_slice(), &[7; 40]].concat();
        assert_eq!(Command::parse(&body), Ok(Command::Ping { ttl: 0, context: &[7; 16] }));
    }
}
