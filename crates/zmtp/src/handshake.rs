//! The handshake: from the first byte to the first that belongs to the session.

use zeroize::Zeroize;

use crate::frame::{self, Header};
use crate::mechanism::{End, Next, Outcome, Turn, end_of};
use crate::metadata::Properties;
use crate::zap::Reply;
use crate::{Command, Config, HandshakeError, Mechanism, Session, SocketType, command, greeting, zap};

/// The longest command of a handshake. The keys and names of the protocol take less than 1 KiB; the rest is metadata.
const LONGEST: u64 = 16 * 1024;

/// How a command that refuses a peer begins: the length of its name, and its name.
const ERROR: &[u8] = b"\x05ERROR";
/// How libzmq has it with PLAIN, at both ends: in C, "\x5ERROR" has an E in its first letter.
const MISSPELT: &[u8] = b"^RROR";

/// Under this name a handler says who the peer is. A peer that used it would be believed.
const USER_ID: &str = "User-Id";

/// What has to happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The peer must say more. After an error, nothing helps.
    Going,
    /// The handler must be asked: [`Handshake::zap_request`], then [`Handshake::answer_zap`].
    WantsZap,
    /// [`Handshake::finish`] gives the peer.
    Done,
}

/// One end of a handshake.
#[derive(Debug)]
pub struct Handshake {
    config: Config,
    end: Box<dyn End>,
    stage: Stage,
    /// What has come of the greeting, or of a frame; wiped when done with, since it may hold a password.
    buffer: Vec<u8>,
    minor: u8,
    allowed: Option<Reply>,
}

#[derive(Debug)]
enum Stage {
    Greeting,
    Commands,
    /// The credentials that the handler is to judge.
    Zap(Vec<Vec<u8>>),
    Done(Box<Outcome>),
    Failed(HandshakeError),
}

/// The peer at the other end.
#[derive(Debug)]
pub struct Peer {
    /// How messages stand on the wire.
    pub session: Session,
    /// The minor version that both speak: 0 or 1. With 0 there is no PING, and subscriptions are messages.
    pub minor: u8,
    /// The peer's type; one that ours accepts.
    pub socket_type: SocketType,
    /// What the peer wants to be known by; often empty.
    pub identity: Vec<u8>,
    /// The `User-Id` and the other properties that the ZAP handler gave the peer, then the peer's own: without those
    /// that the handler gave, and without its `User-Id`.
    pub properties: Vec<(String, Vec<u8>)>,
    /// The user that the ZAP handler took the peer for; `None` if it was not asked.
    pub user_id: Option<Vec<u8>>,
}

impl Handshake {
    /// An end that has said nothing yet.
    ///
    /// # Panics
    /// If the identity, or PLAIN's name or password, is longer than 255 bytes.
    pub fn new(config: Config) -> Self {
        assert!(config.identity.len() <= 255, "an identity has at most 255 bytes");
        let end = end_of(&config.mechanism);
        Self { config, end, stage: Stage::Greeting, buffer: Vec::new(), minor: 0, allowed: None }
    }

    /// Appends our greeting, with which the conversation begins.
    pub fn start(&mut self, out: &mut Vec<u8>) {
        greeting::write(&self.config.mechanism, out);
    }

    /// Takes what the peer has sent, appends what it is to be sent, and gives how many bytes were consumed.
    ///
    /// Consumes all, unless the handler must be asked or the handshake is done: what follows is for later.
    ///
    /// # Errors
    /// [`HandshakeError`], now and at every later call. `out` may hold an ERROR that the peer should be sent.
    pub fn input(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, HandshakeError> {
        let mut rest = bytes;
        let result = loop {
            let step = match &self.stage {
                Stage::Greeting => self.greet(&mut rest, out),
                Stage::Commands => self.command(&mut rest, out),
                Stage::Zap(_) | Stage::Done(_) => break Ok(bytes.len() - rest.len()),
                Stage::Failed(error) => return Err(error.clone()),
            };
            match step {
                Ok(true) => {}
                Ok(false) => break Ok(bytes.len()),
                Err(error) => break Err(error),
            }
        };
        self.settle(result)
    }

    /// What has to happen next.
    pub fn status(&self) -> Status {
        match self.stage {
            Stage::Zap(_) => Status::WantsZap,
            Stage::Done(_) => Status::Done,
            Stage::Greeting | Stage::Commands | Stage::Failed(_) => Status::Going,
        }
    }

    /// The frames for the handler, beginning with the empty delimiter; `None` unless it must be asked.
    pub fn zap_request(&self) -> Option<Vec<Vec<u8>>> {
        match (&self.stage, &self.config.zap) {
            (Stage::Zap(credentials), Some(config)) => {
                Some(zap::request(config, self.config.mechanism.name(), credentials))
            }
            _ => None,
        }
    }

    /// Takes the handler's reply, beginning with the empty delimiter, and appends what the peer is to be sent.
    ///
    /// # Errors
    /// If the reply is malformed, or refuses the peer: with 400 and 500, `out` holds an ERROR that the peer should be
    /// sent; with 300, which means "later", it should only be disconnected.
    ///
    /// # Panics
    /// If the handler was not to be asked.
    pub fn answer_zap(&mut self, reply: &[Vec<u8>], out: &mut Vec<u8>) -> Result<(), HandshakeError> {
        let (Stage::Zap(_), Some(config)) = (&self.stage, &self.config.zap) else {
            panic!("no handler was to be asked")
        };
        let result =
            Reply::parse(reply, &config.request_id).map_err(HandshakeError::from).and_then(|reply| {
                self.wipe();
                if reply.status == 200 {
                    self.allowed = Some(reply);
                    let next = self.end.allowed(&mut Turn { config: &self.config, out });
                    self.proceed(next);
                    return Ok(());
                }
                if reply.status != 300 {
                    self.refuse(reply.status, out);
                }
                Err(HandshakeError::Denied { status: reply.status, text: reply.text })
            });
        self.settle(result)
    }

    /// The peer.
    ///
    /// # Panics
    /// Unless the status is [`Status::Done`].
    pub fn finish(mut self) -> Peer {
        let Stage::Done(outcome) = std::mem::replace(&mut self.stage, Stage::Commands) else {
            panic!("the handshake is not done")
        };
        let Outcome { peer, session } = *outcome;
        let mut properties = Properties::new();
        let user_id = self.allowed.take().map(|reply| tell(&mut properties, reply));
        let told = properties.len();
        for (name, value) in peer.properties {
            let is_its = |(known, _): &(String, Vec<u8>)| known.eq_ignore_ascii_case(&name);
            if !name.eq_ignore_ascii_case(USER_ID) && !properties[..told].iter().any(is_its) {
                properties.push((name, value));
            }
        }
        Peer {
            session,
            minor: self.minor,
            socket_type: peer.socket_type,
            identity: peer.identity,
            properties,
            user_id,
        }
    }

    /// `Ok(false)`: all bytes are taken, and more are needed.
    fn greet(&mut self, rest: &mut &[u8], out: &mut Vec<u8>) -> Result<bool, HandshakeError> {
        self.gather(rest, greeting::LEN);
        let Some(minor) = greeting::parse(&self.buffer, &self.config.mechanism)? else { return Ok(false) };
        self.minor = minor;
        self.buffer.clear();
        let next = self.end.greeted(&mut Turn { config: &self.config, out })?;
        self.proceed(next);
        Ok(true)
    }

    /// `Ok(false)`: all bytes are taken, and more are needed.
    fn command(&mut self, rest: &mut &[u8], out: &mut Vec<u8>) -> Result<bool, HandshakeError> {
        let header = loop {
            if let Some(header) = frame::parse_header(&self.buffer)? {
                break header;
            }
            // The flags say whether the header has two bytes or nine.
            let needed = match self.buffer.first() {
                None => 1,
                Some(flags) if flags & frame::LONG == 0 => 2,
                Some(_) => 9,
            };
            if !self.gather(rest, needed) {
                return Ok(false);
            }
        };
        let Header { flags, size, len } = header;
        if flags & frame::COMMAND == 0 {
            return Err(HandshakeError::Message);
        }
        if size > LONGEST {
            return Err(HandshakeError::TooLong { size });
        }
        if !self.gather(rest, len + size as usize) {
            return Ok(false);
        }
        let mut frame = std::mem::take(&mut self.buffer);
        let next = self.obey(&frame[len..], out);
        frame.zeroize();
        self.buffer = frame;
        self.proceed(next?);
        Ok(true)
    }

    /// Sends the peer the reason why it is refused.
    ///
    /// PLAIN's clients are sent the misspelt name: those of libzmq 4.3.5 take the right one for an unknown command, and
    /// report that the protocol was broken instead of the status.
    fn refuse(&self, status: u16, out: &mut Vec<u8>) {
        command::send(out, |body| {
            Command::Error(status.to_string().as_bytes()).encode(body);
            if matches!(self.config.mechanism, Mechanism::PlainServer) {
                body.splice(..ERROR.len(), MISSPELT.iter().copied());
            }
        });
    }

    fn obey(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<Next, HandshakeError> {
        let misspelt = match (&self.config.mechanism, body.strip_prefix(MISSPELT)) {
            (Mechanism::PlainClient { .. }, Some(rest)) => Some([ERROR, rest].concat()),
            _ => None,
        };
        let body = misspelt.as_deref().unwrap_or(body);
        let (name, data) = command::split_name(body)?;
        match name {
            b"ERROR" => match Command::parse(body)? {
                Command::Error(reason) => {
                    Err(HandshakeError::Refused { reason: String::from_utf8_lossy(reason).into_owned() })
                }
                _ => unreachable!("its name is ERROR"),
            },
            _ => {
                let reaction = self.end.command(name, data, &mut Turn { config: &self.config, out })?;
                reaction.ok_or_else(|| HandshakeError::Unexpected {
                    name: String::from_utf8_lossy(name).into_owned(),
                })
            }
        }
    }

    fn proceed(&mut self, next: Next) {
        self.stage = match next {
            Next::More => Stage::Commands,
            Next::AskZap(credentials) => Stage::Zap(credentials),
            Next::Done(outcome) => Stage::Done(outcome),
        };
    }

    /// Fills the buffer up to `len` bytes; whether it has that many now. Memory grows with what has come.
    fn gather(&mut self, rest: &mut &[u8], len: usize) -> bool {
        let missing = len.saturating_sub(self.buffer.len());
        let (taken, left) = rest.split_at(missing.min(rest.len()));
        self.buffer.extend_from_slice(taken);
        *rest = left;
        self.buffer.len() >= len
    }

    fn settle<T>(&mut self, result: Result<T, HandshakeError>) -> Result<T, HandshakeError> {
        if let Err(error) = &result {
            self.wipe();
            self.stage = Stage::Failed(error.clone());
        }
        result
    }

    /// Wipes the peer's secrets.
    fn wipe(&mut self) {
        self.buffer.zeroize();
        if let Stage::Zap(credentials) = &mut self.stage {
            credentials.zeroize();
        }
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.wipe();
    }
}

/// Adds what the handler has said; gives the user that it named.
fn tell(properties: &mut Properties, reply: Reply) -> Vec<u8> {
    properties.push((USER_ID.to_owned(), reply.user_id.clone()));
    properties.extend(reply.metadata);
    reply.user_id
}
