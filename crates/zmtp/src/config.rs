//! The configuration of one end of a handshake.

use std::fmt;

use zeroize::Zeroize;

use crate::SocketType;

/// The identity of this end, and how it authenticates.
#[derive(Clone, Debug)]
pub struct Config {
    /// The type of our socket.
    pub socket_type: SocketType,
    /// How we authenticate; the peer must have chosen the same.
    pub mechanism: Mechanism,
    /// The name by which a ROUTER at the other end knows us; at most 255 bytes.
    pub identity: Vec<u8>,
    /// What else is sent to the peer; names of visible ASCII characters, "X-..." by custom.
    pub metadata: Vec<(String, Vec<u8>)>,
    /// `Some` if a ZAP handler must be asked about the peer. Without it every peer that completes the mechanism is
    /// admitted: with PLAIN, that is every peer that sends any name and password.
    pub zap: Option<ZapConfig>,
}

impl Config {
    /// A configuration without identity, further metadata, and a handler to ask.
    pub fn new(socket_type: SocketType, mechanism: Mechanism) -> Self {
        Self { socket_type, mechanism, identity: Vec::new(), metadata: Vec::new(), zap: None }
    }
}

/// What a ZAP handler receives besides the credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZapConfig {
    /// The domain for which the peer asks to be let in.
    pub domain: Vec<u8>,
    /// The peer's address.
    pub address: Vec<u8>,
    /// Comes back with the reply.
    pub request_id: Vec<u8>,
    /// Our identity.
    pub identity: Vec<u8>,
}

/// How the ends of a connection authenticate. Keys and passwords are wiped on drop.
#[derive(Clone)]
pub enum Mechanism {
    /// Not at all.
    Null,
    /// By a name and a password in the clear; this end checks them.
    PlainServer,
    /// By a name and a password in the clear; these are ours.
    PlainClient {
        /// At most 255 bytes.
        username: Vec<u8>,
        /// At most 255 bytes.
        password: Vec<u8>,
    },
    /// By keys, with encryption; the peer must know our public key.
    CurveServer {
        /// Our public key.
        public: [u8; 32],
        /// Our secret key.
        secret: [u8; 32],
    },
    /// By keys, with encryption; we know the server's.
    CurveClient {
        /// The server's public key.
        server: [u8; 32],
        /// Our public key.
        public: [u8; 32],
        /// Our secret key.
        secret: [u8; 32],
    },
}

impl Mechanism {
    /// The name in the greeting.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Null => "NULL",
            Self::PlainServer | Self::PlainClient { .. } => "PLAIN",
            Self::CurveServer { .. } | Self::CurveClient { .. } => "CURVE",
        }
    }

    /// Whether this end checks the other.
    pub const fn is_server(&self) -> bool {
        matches!(self, Self::PlainServer | Self::CurveServer { .. })
    }
}

impl Drop for Mechanism {
    fn drop(&mut self) {
        match self {
            Self::PlainClient { username, password } => {
                username.zeroize();
                password.zeroize();
            }
            Self::CurveServer { secret, .. } | Self::CurveClient { secret, .. } => secret.zeroize(),
            Self::Null | Self::PlainServer => {}
        }
    }
}

impl fmt::Debug for Mechanism {
    /// Without keys and passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name(), if self.is_server() { "server" } else { "client" })
    }
}
