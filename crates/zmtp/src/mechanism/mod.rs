//! The common part of the mechanisms, and their choice. Each file is one end of one of them, and takes the same three
//! steps: `greeted`, `command`, and `allowed` if a ZAP handler may be asked.

mod curve_client;
mod curve_server;
mod null;
mod plain_client;
mod plain_server;

use std::fmt;

use crate::command;
use crate::metadata::{self, Introduction};
use crate::{Command, Config, CurveSession, HandshakeError, Mechanism};

use curve_client::CurveClient;
use curve_server::CurveServer;
use null::Null;
use plain_client::PlainClient;
use plain_server::PlainServer;

/// How messages of a connection stand on the wire.
#[derive(Debug)]
pub enum Session {
    /// As they are.
    Clear,
    /// Encrypted, each frame in a MESSAGE of its own.
    Curve(Box<CurveSession>),
}

/// What follows from a step.
pub(crate) enum Next {
    /// The peer must say more.
    More,
    /// The handler must judge these credentials.
    AskZap(Vec<Vec<u8>>),
    /// Both ends know each other.
    Done(Box<Outcome>),
}

impl Next {
    fn done(peer: Introduction, session: Session) -> Self {
        Self::Done(Box::new(Outcome { peer, session }))
    }
}

/// What a handshake ends with.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) peer: Introduction,
    pub(crate) session: Session,
}

/// What a command leads to; `None` if it does not belong here.
type Reaction = Result<Option<Next>, HandshakeError>;

/// What an end needs in a step: its configuration, and the bytes that go to the peer.
pub(crate) struct Turn<'a> {
    pub(crate) config: &'a Config,
    pub(crate) out: &'a mut Vec<u8>,
}

impl Turn<'_> {
    fn send(&mut self, name: &[u8], data: &[u8]) {
        command::send(self.out, |body| Command::Unknown { name, data }.encode(body));
    }

    /// What this end says of itself.
    fn introduction(&self) -> Vec<u8> {
        let mut metadata = Vec::new();
        metadata::introduce(self.config, &mut metadata);
        metadata
    }

    /// What the peer says of itself; it must be one that our socket can talk to.
    fn peer(&self, metadata: &[u8]) -> Result<Introduction, HandshakeError> {
        let peer = Introduction::parse(metadata)?;
        let (ours, theirs) = (self.config.socket_type, peer.socket_type);
        if ours.accepts(theirs) { Ok(peer) } else { Err(HandshakeError::Incompatible { ours, theirs }) }
    }

    /// Asks the handler, if there is one; else the peer is allowed in.
    fn judge(&mut self, end: &mut impl End, credentials: impl FnOnce() -> Vec<Vec<u8>>) -> Next {
        match self.config.zap {
            Some(_) => Next::AskZap(credentials()),
            None => end.allowed(self),
        }
    }
}

/// One end of a mechanism.
pub(crate) trait End: Send + fmt::Debug {
    /// The peer's greeting has come, and suits ours.
    fn greeted(&mut self, turn: &mut Turn<'_>) -> Result<Next, HandshakeError> {
        let _ = turn;
        Ok(Next::More)
    }

    /// A command has come that is no ERROR.
    fn command(&mut self, name: &[u8], data: &[u8], turn: &mut Turn<'_>) -> Reaction;

    /// The handler lets the peer in. Clients ask no handler.
    fn allowed(&mut self, turn: &mut Turn<'_>) -> Next {
        let _ = turn;
        unreachable!("clients ask nobody")
    }
}

/// This end of a mechanism.
pub(crate) fn end_of(mechanism: &Mechanism) -> Box<dyn End> {
    match mechanism {
        Mechanism::Null => Box::new(Null),
        Mechanism::PlainServer => Box::new(PlainServer::new()),
        Mechanism::PlainClient { username, password } => Box::new(PlainClient::new(username, password)),
        Mechanism::CurveServer { public, secret } => Box::new(CurveServer::new(public, secret)),
        Mechanism::CurveClient { server, public, secret } => {
            Box::new(CurveClient::new(server, public, secret))
        }
    }
}
