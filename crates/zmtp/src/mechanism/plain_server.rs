//! PLAIN, the end that checks: a HELLO comes, the handler judges it, WELCOME, an INITIATE comes, READY.

use super::{Next, Outcome, Reaction};
use crate::error::Step;
use crate::handshake::send;
use crate::metadata::{self, Introduction};
use crate::{Command, Config, HandshakeError, Session};

#[derive(Debug)]
enum State {
    Hello,
    Initiate,
}

#[derive(Debug)]
pub(crate) struct PlainServer {
    state: State,
}

impl PlainServer {
    pub(super) fn new() -> Self {
        Self { state: State::Hello }
    }

    pub(super) fn command(
        &mut self,
        name: &[u8],
        data: &[u8],
        config: &Config,
        out: &mut Vec<u8>,
    ) -> Reaction {
        match (&self.state, name) {
            (State::Hello, b"HELLO") => {
                let (username, rest) = split_text(data)?;
                let (password, []) = split_text(rest)? else {
                    return Err(HandshakeError::Malformed(Step::Hello));
                };
                Ok(Some(match config.zap {
                    Some(_) => Next::AskZap(vec![username.to_vec(), password.to_vec()]),
                    None => self.allowed(out),
                }))
            }
            (State::Initiate, b"INITIATE") => {
                let peer = Introduction::of_peer(data, config)?;
                let mut metadata = Vec::new();
                metadata::introduce(config, &mut metadata);
                send(out, |body| Command::Ready(&metadata).encode(body));
                Ok(Some(Next::Done(Box::new(Outcome { peer, session: Session::Clear }))))
            }
            _ => Ok(None),
        }
    }

    pub(super) fn allowed(&mut self, out: &mut Vec<u8>) -> Next {
        send(out, |body| Command::Unknown { name: b"WELCOME", data: b"" }.encode(body));
        self.state = State::Initiate;
        Next::More
    }
}

/// What stands after its length, and what follows.
fn split_text(data: &[u8]) -> Result<(&[u8], &[u8]), HandshakeError> {
    data.split_first()
        .and_then(|(&len, rest)| rest.split_at_checked(usize::from(len)))
        .ok_or(HandshakeError::Malformed(Step::Hello))
}
