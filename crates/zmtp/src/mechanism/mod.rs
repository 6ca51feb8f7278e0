//! What the mechanisms have in common, and which is which. Each file is one end of one of them, and all have the same
//! three steps: `greeted`, `command`, and `allowed` if a ZAP handler may be asked.

mod curve_client;
mod curve_server;
mod null;
mod plain_client;
mod plain_server;

use crate::metadata::Introduction;
use crate::{Config, HandshakeError, Mechanism, Session};

use curve_client::CurveClient;
use curve_server::CurveServer;
use null::Null;
use plain_client::PlainClient;
use plain_server::PlainServer;

/// What follows from a step.
pub(crate) enum Next {
    /// The peer must say more.
    More,
    /// The handler must judge these credentials.
    AskZap(Vec<Vec<u8>>),
    /// Both ends know each other.
    Done(Box<Outcome>),
}

/// What a handshake ends with.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) peer: Introduction,
    pub(crate) session: Session,
}

/// One end of a mechanism.
#[derive(Debug)]
pub(crate) enum Exchange {
    Null(Null),
    PlainClient(PlainClient),
    PlainServer(PlainServer),
    CurveClient(Box<CurveClient>),
    CurveServer(Box<CurveServer>),
}

impl Exchange {
    pub(crate) fn new(mechanism: &Mechanism) -> Self {
        match mechanism {
            Mechanism::Null => Self::Null(Null),
            Mechanism::PlainServer => Self::PlainServer(PlainServer::new()),
            Mechanism::PlainClient { username, password } => {
                Self::PlainClient(PlainClient::new(username, password))
            }
            Mechanism::CurveServer { public, secret } => {
                Self::CurveServer(Box::new(CurveServer::new(public, secret)))
            }
            Mechanism::CurveClient { server, public, secret } => {
                Self::CurveClient(Box::new(CurveClient::new(server, public, secret)))
            }
        }
    }

    /// The peer's greeting has come, and suits ours.
    pub(crate) fn greeted(&mut self, config: &Config, out: &mut Vec<u8>) -> Result<Next, HandshakeError> {
        match self {
            Self::Null(end) => Ok(end.greeted(config, out)),
            Self::PlainClient(end) => Ok(end.greeted(out)),
            Self::CurveClient(end) => end.greeted(out),
            Self::PlainServer(_) | Self::CurveServer(_) => Ok(Next::More),
        }
    }

    /// A command has come that is no ERROR.
    pub(crate) fn command(
        &mut self,
        name: &[u8],
        data: &[u8],
        config: &Config,
        out: &mut Vec<u8>,
    ) -> Result<Next, HandshakeError> {
        let next = match self {
            Self::Null(end) => end.command(name, data, config),
            Self::PlainClient(end) => end.command(name, data, config, out),
            Self::PlainServer(end) => end.command(name, data, config, out),
            Self::CurveClient(end) => end.command(name, data, config, out),
            Self::CurveServer(end) => end.command(name, data, config, out),
        };
        next?.ok_or_else(|| HandshakeError::Unexpected { name: String::from_utf8_lossy(name).into_owned() })
    }

    /// The handler lets the peer in.
    pub(crate) fn allowed(&mut self, config: &Config, out: &mut Vec<u8>) -> Result<Next, HandshakeError> {
        match self {
            Self::Null(end) => Ok(end.allowed(config, out)),
            Self::PlainServer(end) => Ok(end.allowed(out)),
            Self::CurveServer(end) => Ok(end.allowed(config, out)),
            Self::PlainClient(_) | Self::CurveClient(_) => unreachable!("clients ask nobody"),
        }
    }
}

/// What a command leads to; `None` if it does not belong here.
type Reaction = Result<Option<Next>, HandshakeError>;
