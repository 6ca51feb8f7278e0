//! CURVE, the end whose key is known: a HELLO comes, WELCOME, an INITIATE comes, the handler judges it, READY.
//!
//! Between WELCOME and INITIATE nothing is kept but the key of the cookie: the keys of the connection are in the
//! cookie, which the client brings back. The names of the keys are those of RFC 26.

use super::{End, Next, Reaction, Session, Turn};
use crate::HandshakeError;
use crate::curve::{CurveSession, Keypair, Role, SharedKey, long_nonce, random, same, short_nonce};
use crate::error::Step;
use crate::metadata::Introduction;

pub(crate) struct CurveServer {
    /// S and s.
    lasting: Keypair,
    awaits: Awaits,
}

/// What comes next.
enum Awaits {
    Hello,
    Initiate {
        cookie: SharedKey,
        /// The nonce of HELLO.
        nonce: u64,
    },
    /// The handler's judgement.
    Judgement(Box<Judged>),
    Nothing,
}

struct Judged {
    /// Of S' and C'.
    key: SharedKey,
    peer: Introduction,
    /// The nonce of INITIATE.
    nonce: u64,
}

impl CurveServer {
    pub(super) fn new(public: &[u8; 32], secret: &[u8; 32]) -> Self {
        Self { lasting: Keypair::new(*public, secret), awaits: Awaits::Hello }
    }

    fn hello(&mut self, data: &[u8], turn: &mut Turn<'_>) -> Result<Next, HandshakeError> {
        let malformed = || HandshakeError::Malformed(Step::Hello);
        if data.len() != 2 + 72 + 32 + 8 + 80 || data[0] != 1 {
            return Err(malformed());
        }
        let (passing, data) = data[2 + 72..].split_first_chunk::<32>().ok_or_else(malformed)?;
        let (nonce, sealed) = data.split_first_chunk::<8>().ok_or_else(malformed)?;
        let nonce = u64::from_be_bytes(*nonce);

        let broken = || HandshakeError::Cryptographic(Step::Hello);
        let key = self.lasting.share(passing).ok_or_else(broken)?;
        let mut opened = Vec::new();
        key.open(&short_nonce(b"CurveZMQHELLO---", nonce), sealed, &mut opened).ok_or_else(broken)?;
        if opened != [0; 64] {
            return Err(broken());
        }

        let ours = Keypair::generate();
        let cookie = SharedKey::generate();
        let mut plain = zeroize::Zeroizing::new([0; 64]);
        plain[..32].copy_from_slice(passing);
        plain[32..].copy_from_slice(ours.secret());
        let cookie_nonce: [u8; 16] = random();
        let mut plain_welcome = ours.public.to_vec();
        plain_welcome.extend_from_slice(&cookie_nonce);
        cookie.seal(&long_nonce(b"COOKIE--", &cookie_nonce), plain.as_slice(), &mut plain_welcome);

        let welcome_nonce: [u8; 16] = random();
        let mut welcome = welcome_nonce.to_vec();
        key.seal(&long_nonce(b"WELCOME-", &welcome_nonce), &plain_welcome, &mut welcome);
        turn.send(b"WELCOME", &welcome);
        self.awaits = Awaits::Initiate { cookie, nonce };
        Ok(Next::More)
    }

    /// The client's lasting key, and what READY will need.
    fn initiate(
        &self,
        cookie: &SharedKey,
        hello: u64,
        data: &[u8],
        turn: &Turn<'_>,
    ) -> Result<([u8; 32], Judged), HandshakeError> {
        let malformed = || HandshakeError::Malformed(Step::Initiate);
        let broken = || HandshakeError::Cryptographic(Step::Initiate);
        let (cookie_nonce, data) = data.split_first_chunk::<16>().ok_or_else(malformed)?;
        let (sealed_cookie, data) = data.split_first_chunk::<80>().ok_or_else(malformed)?;
        let (nonce, sealed) = data.split_first_chunk::<8>().ok_or_else(malformed)?;
        if sealed.len() < 32 + 16 + 80 + 16 {
            return Err(malformed());
        }
        let nonce = u64::from_be_bytes(*nonce);
        if nonce <= hello {
            return Err(HandshakeError::Nonce);
        }

        let mut keys = zeroize::Zeroizing::new(Vec::new());
        cookie.open(&long_nonce(b"COOKIE--", cookie_nonce), sealed_cookie, &mut keys).ok_or_else(broken)?;
        let (passing, secret) = keys.split_first_chunk::<32>().ok_or_else(broken)?;
        let ours = Keypair::of_secret(secret.first_chunk().ok_or_else(broken)?);
        let key = ours.share(passing).ok_or_else(broken)?;
        let mut opened = Vec::new();
        key.open(&short_nonce(b"CurveZMQINITIATE", nonce), sealed, &mut opened).ok_or_else(broken)?;

        let (client, rest) = opened.split_first_chunk::<32>().ok_or_else(broken)?;
        let (vouch_nonce, rest) = rest.split_first_chunk::<16>().ok_or_else(broken)?;
        let (vouch, metadata) = rest.split_first_chunk::<80>().ok_or_else(broken)?;
        let mut vouched = Vec::new();
        ours.share(client)
            .and_then(|key| key.open(&long_nonce(b"VOUCH---", vouch_nonce), vouch, &mut vouched))
            .ok_or_else(broken)?;
        let (its_passing, its_server) = vouched.split_first_chunk::<32>().ok_or_else(broken)?;
        if !(same(its_passing, passing) & same(its_server, &self.lasting.public)) {
            return Err(broken());
        }
        Ok((*client, Judged { key, peer: turn.peer(metadata)?, nonce }))
    }
}

impl End for CurveServer {
    fn command(&mut self, name: &[u8], data: &[u8], turn: &mut Turn<'_>) -> Reaction {
        match (&self.awaits, name) {
            (Awaits::Hello, b"HELLO") => self.hello(data, turn).map(Some),
            (Awaits::Initiate { cookie, nonce }, b"INITIATE") => {
                let (client, judged) = self.initiate(cookie, *nonce, data, turn)?;
                self.awaits = Awaits::Judgement(Box::new(judged));
                Ok(Some(turn.judge(self, || vec![client.to_vec()])))
            }
            _ => Ok(None),
        }
    }

    fn allowed(&mut self, turn: &mut Turn<'_>) -> Next {
        let Awaits::Judgement(judged) = std::mem::replace(&mut self.awaits, Awaits::Nothing) else {
            unreachable!("a client was judged")
        };
        let Judged { key, peer, nonce } = *judged;
        let mut ready = 1_u64.to_be_bytes().to_vec();
        key.seal(&short_nonce(b"CurveZMQREADY---", 1), &turn.introduction(), &mut ready);
        turn.send(b"READY", &ready);
        Next::done(peer, Session::Curve(Box::new(CurveSession::new(Role::Server, &key, 1, nonce))))
    }
}

impl std::fmt::Debug for CurveServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CurveServer")
    }
}
