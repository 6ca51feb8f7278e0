//! PLAIN, the end that tells who it is: HELLO, then INITIATE for a WELCOME, then a READY comes.

use zeroize::Zeroizing;

use super::{Next, Outcome, Reaction};
use crate::error::Step;
use crate::handshake::send;
use crate::metadata::{self, Introduction};
use crate::{Command, Config, HandshakeError, Session};

#[derive(Debug)]
enum State {
    Welcome,
    Ready,
}

pub(crate) struct PlainClient {
    state: State,
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
        Self { state: State::Welcome, hello }
    }

    pub(super) fn greeted(&mut self, out: &mut Vec<u8>) -> Next {
        send(out, |body| Command::Unknown { name: b"HELLO", data: &self.hello }.encode(body));
        Next::More
    }

    pub(super) fn command(
        &mut self,
        name: &[u8],
        data: &[u8],
        config: &Config,
        out: &mut Vec<u8>,
    ) -> Reaction {
        match (&self.state, name) {
            (State::Welcome, b"WELCOME") => {
                if !data.is_empty() {
                    return Err(HandshakeError::Malformed(Step::Welcome));
                }
                let mut metadata = Vec::new();
                metadata::introduce(config, &mut metadata);
                send(out, |body| Command::Unknown { name: b"INITIATE", data: &metadata }.encode(body));
                self.state = State::Ready;
                Ok(Some(Next::More))
            }
            (State::Ready, b"READY") => {
                let peer = Introduction::of_peer(data, config)?;
                Ok(Some(Next::Done(Box::new(Outcome { peer, session: Session::Clear }))))
            }
            _ => Ok(None),
        }
    }
}

impl std::fmt::Debug for PlainClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PlainClient").field("state", &self.state).finish_non_exhaustive()
    }
}
