//! PLAIN, the end that sends its name and password: HELLO, then INITIATE for a WELCOME, then a READY comes.

use zeroize::Zeroizing;

use super::{End, Next, Reaction, Session, Turn};
use crate::HandshakeError;
use crate::error::Step;

/// The command that comes next.
#[derive(Debug)]
enum Awaits {
    Welcome,
    Ready,
}

pub(crate) struct PlainClient {
    awaits: Awaits,
    /// Name and password, each after its length.
    hello: Zeroizing<Vec<u8>>,
}

impl PlainClient {
    pub(super) fn new(username: &[u8], password: &[u8]) -> Self {
        let mut hello = Zeroizing::new(Vec::with_capacity(2 + username.len() + password.len()));
        for text in [username, password] {
            hello.push(u8::try_from(text.len()).expect("a name or password has at most 255 bytes"));
            hello.extend_from_slice(text);
        }
        Self { awaits: Awaits::Welcome, hello }
    }
}

impl End for PlainClient {
    fn greeted(&mut self, turn: &mut Turn<'_>) -> Result<Next, HandshakeError> {
        turn.send(b"HELLO", &self.hello);
        Ok(Next::More)
    }

    fn command(&mut self, name: &[u8], data: &[u8], turn: &mut Turn<'_>) -> Reaction {
        match (&self.awaits, name) {
            (Awaits::Welcome, b"WELCOME") => {
                if !data.is_empty() {
                    return Err(HandshakeError::Malformed(Step::Welcome));
                }
                turn.send(b"INITIATE", &turn.introduction());
                self.awaits = Awaits::Ready;
                Ok(Some(Next::More))
            }
            (Awaits::Ready, b"READY") => Ok(Some(Next::done(turn.peer(data)?, Session::Clear))),
            _ => Ok(None),
        }
    }
}

impl std::fmt::Debug for PlainClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PlainClient").field("awaits", &self.awaits).finish_non_exhaustive()
    }
}
