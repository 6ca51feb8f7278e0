//! NULL: each end sends READY, and that is all.

use super::{Next, Outcome, Reaction};
use crate::handshake::send;
use crate::metadata::{self, Introduction};
use crate::{Command, Config, Session};

#[derive(Debug)]
pub(crate) struct Null;

impl Null {
    /// With a handler, the peer hears of us only when it is let in.
    pub(super) fn greeted(&mut self, config: &Config, out: &mut Vec<u8>) -> Next {
        match config.zap {
            Some(_) => Next::AskZap(Vec::new()),
            None => self.allowed(config, out),
        }
    }

    pub(super) fn allowed(&mut self, config: &Config, out: &mut Vec<u8>) -> Next {
        let mut metadata = Vec::new();
        metadata::introduce(config, &mut metadata);
        send(out, |body| Command::Ready(&metadata).encode(body));
        Next::More
    }

    pub(super) fn command(&mut self, name: &[u8], data: &[u8], config: &Config) -> Reaction {
        if name != b"READY" {
            return Ok(None);
        }
        let peer = Introduction::of_peer(data, config)?;
        Ok(Some(Next::Done(Box::new(Outcome { peer, session: Session::Clear }))))
    }
}
