//! Keys of Curve25519.

use zeroize::Zeroizing;

use super::{SharedKey, random, sodium};

/// A new public key, and the secret one.
///
/// The process ends if the system has no random bytes.
pub fn curve_keypair() -> ([u8; 32], [u8; 32]) {
    let secret = random();
    (curve_public(&secret), secret)
}

/// The public key that belongs to a secret one.
pub fn curve_public(secret: &[u8; 32]) -> [u8; 32] {
    sodium::public_of(secret)
}

/// Both keys of one end; the secret one is wiped on drop.
pub(crate) struct Keypair {
    pub(crate) public: [u8; 32],
    secret: Zeroizing<[u8; 32]>,
}

impl Keypair {
    pub(crate) fn new(public: [u8; 32], secret: &[u8; 32]) -> Self {
        Self { public, secret: Zeroizing::new(*secret) }
    }

    pub(crate) fn of_secret(secret: &[u8; 32]) -> Self {
        Self::new(curve_public(secret), secret)
    }

    pub(crate) fn generate() -> Self {
        Self::of_secret(&Zeroizing::new(random()))
    }

    pub(crate) fn secret(&self) -> &[u8; 32] {
        &self.secret
    }

    /// The key that both ends can compute; `None` for a public key with which it would be the same for every peer.
    pub(crate) fn share(&self, public: &[u8; 32]) -> Option<SharedKey> {
        SharedKey::of_keys(public, &self.secret)
    }
}
