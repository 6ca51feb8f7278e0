//! PLAIN, the end that checks: a HELLO comes, the handler judges it, WELCOME, an INITIATE comes, READY.

use super::{End, Next, Reaction, Session, Turn};
use crate::HandshakeError;
use crate::error::Step;

/// The command that comes next.
#[derive(Debug)]
enum Awaits {
    Hello,
    Initiate,
}

#[derive(Debug)]
pub(crate) struct PlainServer {
    awaits: Awaits,
}

impl PlainServer {
    pub(super) fn new() -> Self {
        Self { awaits: Awaits::Hello }
    }
}

impl End for PlainServer {
    fn command(&mut self, name: &[u8], data: &[u8], turn: &mut Turn<'_>) -> Reaction {
        match (&self.awaits, name) {
            (Awaits::Hello, b"HELLO") => {
                let (username, rest) = split_text(data)?;
                let (password, []) = split_text(rest)? else {
                    return Err(HandshakeError::Malformed(Step::Hello));
                };
                Ok(Some(turn.judge(self, || vec![username.to_vec(), password.to_vec()])))
            }
            (Awaits::Initiate, b"INITIATE") => {
                let peer = turn.peer(data)?;
                turn.send(b"READY", &turn.introduction());
                Ok(Some(Next::done(peer, Session::Clear)))
            }
            _ => Ok(None),
        }
    }

    fn allowed(&mut self, turn: &mut Turn<'_>) -> Next {
        turn.send(b"WELCOME", b"");
        self.awaits = Awaits::Initiate;
        Next::More
    }
}

/// What stands after its length, and what follows.
fn split_text(data: &[u8]) -> Result<(&[u8], &[u8]), HandshakeError> {
    data.split_first()
        .and_then(|(&len, rest)| rest.split_at_checked(usize::from(len)))
        .ok_or(HandshakeError::Malformed(Step::Hello))
}
