//! Boxes: XSalsa20 and Poly1305 as NaCl puts them together. A box is the tag, then the ciphertext.

use zeroize::{Zeroize, ZeroizeOnDrop};

use super::random;
use super::sodium::{self, TAG};

/// A nonce of a name and a number.
#[inline]
pub(crate) fn short_nonce(prefix: &[u8; 16], number: u64) -> [u8; 24] {
    let mut nonce = [0; 24];
    nonce[..16].copy_from_slice(prefix);
    nonce[16..].copy_from_slice(&number.to_be_bytes());
    nonce
}

/// A nonce of a name and random bytes.
pub(crate) fn long_nonce(prefix: &[u8; 8], random: &[u8; 16]) -> [u8; 24] {
    let mut nonce = [0; 24];
    nonce[..8].copy_from_slice(prefix);
    nonce[8..].copy_from_slice(random);
    nonce
}

/// A key that both ends have; of two Curve25519 keys, or random. Wiped on drop.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub(crate) struct SharedKey([u8; 32]);

impl SharedKey {
    pub(crate) fn generate() -> Self {
        Self(random())
    }

    /// The key that both ends can compute; `None` for a public key with which it would be the same for every peer.
    pub(super) fn of_keys(public: &[u8; 32], secret: &[u8; 32]) -> Option<Self> {
        let mut key = Self([0; 32]);
        sodium::share(public, secret, &mut key.0).then_some(key)
    }

    /// Appends a box.
    pub(crate) fn seal(&self, nonce: &[u8; 24], plain: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; TAG]);
        out.extend_from_slice(plain);
        self.seal_in_place(nonce, &mut out[start..]);
    }

    /// Makes a box of a text that follows the place for the tag.
    ///
    /// # Panics
    /// If there is no such place.
    #[inline]
    pub(super) fn seal_in_place(&self, nonce: &[u8; 24], place: &mut [u8]) {
        let (tag, text) = place.split_first_chunk_mut().expect("a box begins with its tag");
        *tag = sodium::seal(&self.0, nonce, text);
    }

    /// Appends what is in a box; `None`, and nothing appended, if it is not one of this key.
    #[inline]
    #[must_use]
    pub(crate) fn open(&self, nonce: &[u8; 24], sealed: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let (tag, text) = sealed.split_first_chunk()?;
        let start = out.len();
        out.extend_from_slice(text);
        let opened = sodium::open(&self.0, nonce, tag, &mut out[start..]);
        if !opened {
            out.truncate(start);
        }
        opened.then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes<const N: usize>(hex: &str) -> [u8; N] {
        let digit = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("two digits");
        assert_eq!(hex.len(), 2 * N);
        std::array::from_fn(|at| digit(2 * at))
    }

    // Bernstein's own example: Cryptography in NaCl, sections 2 to 10.
    #[test]
    fn the_example_of_nacl() {
        let ours: [u8; 32] = bytes("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a");
        let theirs: [u8; 32] = bytes("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb");
        let [our_public, their_public] = [&ours, &theirs].map(sodium::public_of);
        assert_eq!(our_public, bytes("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"));
        assert_eq!(their_public, bytes("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"));

        let key = SharedKey::of_keys(&their_public, &ours).expect("a key");
        assert_eq!(key.0, bytes("1b27556473e985d462cd51197a9a46c76009549eac6474f206c4ee0844f68389"));
        assert_eq!(key.0, SharedKey::of_keys(&our_public, &theirs).expect("a key").0);

        let nonce = bytes("69696ee955b62b73cd62bda875fc73d68219e0036b7a0b37");
        let plain: [u8; 131] = bytes(concat!(
            "be075fc53c81f2d5cf141316ebeb0c7b5228c52a4c62cbd44b66849b64244ffce5ecbaaf33bd751a",
            "1ac728d45e6c61296cdc3c01233561f41db66cce314adb310e3be8250c46f06dceea3a7fa1348057",
            "e2f6556ad6b1318a024a838f21af1fde048977eb48f59ffd4924ca1c60902e52f0a089bc76897040",
            "e082f937763848645e0705",
        ));
        let sealed: [u8; 147] = bytes(concat!(
            "f3ffc7703f9400e52a7dfb4b3d3305d98e993b9f48681273c29650ba32fc76ce48332ea7164d96a4",
            "476fb8c531a1186ac0dfc17c98dce87b4da7f011ec48c97271d2c20f9b928fe2270d6fb863d51738",
            "b48eeee314a7cc8ab932164548e526ae90224368517acfeabd6bb3732bc0e9da99832b61ca01b6de",
            "56244a9e88d5f9b37973f622a43d14a6599b1f654cb45a74e355a5",
        ));
        let mut out = b"before".to_vec();
        key.seal(&nonce, &plain, &mut out);
        assert_eq!(out, [b"before".as_slice(), &sealed].concat());
        let mut out = b"before".to_vec();
        assert_eq!(key.open(&nonce, &sealed, &mut out), Some(()));
        assert_eq!(out, [b"before".as_slice(), &plain].concat());
    }

    #[test]
    fn a_box_that_was_changed_gives_nothing() {
        let (key, nonce) = (SharedKey::generate(), [7; 24]);
        let (mut sealed, mut out) = (Vec::new(), b"before".to_vec());
        key.seal(&nonce, b"text", &mut sealed);
        for at in 0..sealed.len() {
            sealed[at] ^= 1;
            assert_eq!(key.open(&nonce, &sealed, &mut out), None);
            assert_eq!(key.open(&nonce, &sealed[..at], &mut out), None);
            sealed[at] ^= 1;
        }
        assert_eq!(SharedKey::generate().open(&nonce, &sealed, &mut out), None);
        assert_eq!(key.open(&[8; 24], &sealed, &mut out), None);
        assert_eq!(out, b"before");
        assert_eq!(key.open(&nonce, &sealed, &mut out), Some(()));
        assert_eq!(out, b"beforetext");
    }

    #[test]
    fn a_public_key_of_small_order_gives_no_shared_key() {
        // Points of a small order: 0, 1, and one of order 8.
        let mut one = [0; 32];
        one[0] = 1;
        let eight = bytes("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800");
        for public in [[0; 32], one, eight] {
            assert!(SharedKey::of_keys(&public, &[7; 32]).is_none());
        }
    }
}
