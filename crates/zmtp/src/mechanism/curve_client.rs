//! CURVE, the end that knows the other's key: HELLO, then INITIATE for a WELCOME, then a READY comes.
//!
//! The names of the keys are those of RFC 26: C and S last, C' and S' are for this connection.

use super::{End, Next, Reaction, Session, Turn};
use crate::HandshakeError;
use crate::curve::{CurveSession, Keypair, Role, SharedKey, long_nonce, random, short_nonce};
use crate::error::Step;
use crate::metadata;

pub(crate) struct CurveClient {
    server: [u8; 32],
    /// C and c.
    lasting: Keypair,
    /// C' and c'.
    passing: Keypair,
    awaits: Awaits,
}

/// The command that comes next.
enum Awaits {
    Welcome,
    /// With what both ends share for this connection: S' and c'.
    Ready(SharedKey),
    Nothing,
}

impl CurveClient {
    pub(super) fn new(server: &[u8; 32], public: &[u8; 32], secret: &[u8; 32]) -> Self {
        let lasting = Keypair::new(*public, secret);
        Self { server: *server, lasting, passing: Keypair::generate(), awaits: Awaits::Welcome }
    }

    fn welcomed(&mut self, data: &[u8], turn: &mut Turn<'_>) -> Result<Next, HandshakeError> {
        let Some((nonce, sealed)) = data.split_first_chunk::<16>() else {
            return Err(HandshakeError::Malformed(Step::Welcome));
        };
        if sealed.len() != 32 + 96 + 16 {
            return Err(HandshakeError::Malformed(Step::Welcome));
        }
        let broken = || HandshakeError::Cryptographic(Step::Welcome);
        let key = self.passing.share(&self.server).ok_or_else(broken)?;
        let mut opened = Vec::new();
        key.open(&long_nonce(b"WELCOME-", nonce), sealed, &mut opened).ok_or_else(broken)?;
        let (connection, cookie) = opened.split_first_chunk::<32>().ok_or_else(broken)?;
        let shared = self.passing.share(connection).ok_or_else(broken)?;

        // The vouch: C says to S', which only S can know of, that C' is its own.
        let mut vouched = [0; 64];
        vouched[..32].copy_from_slice(&self.passing.public);
        vouched[32..].copy_from_slice(&self.server);
        let nonce: [u8; 16] = random();
        let mut plain = self.lasting.public.to_vec();
        plain.extend_from_slice(&nonce);
        let key = self.lasting.share(connection).ok_or_else(broken)?;
        key.seal(&long_nonce(b"VOUCH---", &nonce), &vouched, &mut plain);
        metadata::introduce(turn.config, &mut plain);

        let mut initiate = cookie.to_vec();
        initiate.extend_from_slice(&2_u64.to_be_bytes());
        shared.seal(&short_nonce(b"CurveZMQINITIATE", 2), &plain, &mut initiate);
        turn.send(b"INITIATE", &initiate);
        self.awaits = Awaits::Ready(shared);
        Ok(Next::More)
    }

    fn ready(key: &SharedKey, data: &[u8], turn: &Turn<'_>) -> Result<Next, HandshakeError> {
        let Some((nonce, sealed)) = data.split_first_chunk::<8>() else {
            return Err(HandshakeError::Malformed(Step::Ready));
        };
        if sealed.len() < 16 {
            return Err(HandshakeError::Malformed(Step::Ready));
        }
        let nonce = u64::from_be_bytes(*nonce);
        let mut metadata = Vec::new();
        key.open(&short_nonce(b"CurveZMQREADY---", nonce), sealed, &mut metadata)
            .ok_or(HandshakeError::Cryptographic(Step::Ready))?;
        let peer = turn.peer(&metadata)?;
        let session = Session::Curve(Box::new(CurveSession::new(Role::Client, key, 2, nonce)));
        Ok(Next::done(peer, session))
    }
}

impl End for CurveClient {
    fn greeted(&mut self, turn: &mut Turn<'_>) -> Result<Next, HandshakeError> {
        let key = self.passing.share(&self.server).ok_or(HandshakeError::Cryptographic(Step::Hello))?;
        let mut hello = vec![1, 0]; // The version of CurveZMQ.
        hello.resize(2 + 72, 0); // So long that an answer is no amplification.
        hello.extend_from_slice(&self.passing.public);
        hello.extend_from_slice(&1_u64.to_be_bytes());
        key.seal(&short_nonce(b"CurveZMQHELLO---", 1), &[0; 64], &mut hello);
        turn.send(b"HELLO", &hello);
        Ok(Next::More)
    }

    fn command(&mut self, name: &[u8], data: &[u8], turn: &mut Turn<'_>) -> Reaction {
        match (&self.awaits, name) {
            (Awaits::Welcome, b"WELCOME") => self.welcomed(data, turn).map(Some),
            (Awaits::Ready(key), b"READY") => {
                let next = Self::ready(key, data, turn)?;
                self.awaits = Awaits::Nothing;
                Ok(Some(next))
            }
            _ => Ok(None),
        }
    }
}

impl std::fmt::Debug for CurveClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CurveClient")
    }
}
