//! NULL: each end sends READY, and that is all.

use super::{End, Next, Reaction, Session, Turn};
use crate::HandshakeError;

#[derive(Debug)]
pub(crate) struct Null;

impl End for Null {
    /// With a handler, the peer gets this end's READY only when it is admitted.
    fn greeted(&mut self, turn: &mut Turn<'_>) -> Result<Next, HandshakeError> {
        Ok(turn.judge(self, Vec::new))
    }

    fn command(&mut self, name: &[u8], data: &[u8], turn: &mut Turn<'_>) -> Reaction {
        if name != b"READY" {
            return Ok(None);
        }
        Ok(Some(Next::done(turn.peer(data)?, Session::Clear)))
    }

    fn allowed(&mut self, turn: &mut Turn<'_>) -> Next {
        turn.send(b"READY", &turn.introduction());
        Next::More
    }
}
