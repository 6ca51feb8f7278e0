//! libsodium, behind functions that are safe to call.
//!
//! All cryptography of this crate is in here, and none of it is our own.

#![expect(unsafe_code, reason = "argued in README.md")]

use std::sync::Once;

use libsodium_sys as ffi;

/// Bytes of a tag.
pub(super) const TAG: usize = 16;

/// Before this, libsodium is slow and its random bytes are not for several threads.
#[inline]
fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        // SAFETY: it takes nothing, and any thread may call it at any time.
        let status = unsafe { ffi::sodium_init() };
        assert!(status >= 0, "libsodium has the lock that it starts with");
    });
}

/// Random bytes for keys. libsodium ends the process if the system has none, because keys would be worthless.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    start();
    let mut bytes = [0; N];
    // SAFETY: the array has N bytes, which may be anything.
    unsafe { ffi::randombytes_buf(bytes.as_mut_ptr().cast(), N) };
    bytes
}

/// Whether both are the same, in constant time; their lengths are no secret.
pub(crate) fn same(one: &[u8], other: &[u8]) -> bool {
    let len = one.len();
    // SAFETY: both have that many bytes, which are only read.
    len == other.len() && unsafe { ffi::sodium_memcmp(one.as_ptr().cast(), other.as_ptr().cast(), len) == 0 }
}

/// The public key of a secret one.
pub(super) fn public_of(secret: &[u8; 32]) -> [u8; 32] {
    start();
    let mut public = [0; 32];
    // SAFETY: both have the 32 bytes of a key.
    let status = unsafe { ffi::crypto_scalarmult_base(public.as_mut_ptr(), secret.as_ptr()) };
    assert_eq!(status, 0, "every secret key has a public one");
    public
}

/// Writes the key that both ends can compute; false for a public key with which it would be the same for every peer.
#[must_use]
pub(super) fn share(public: &[u8; 32], secret: &[u8; 32], shared: &mut [u8; 32]) -> bool {
    start();
    // SAFETY: all three have the 32 bytes of a key, and the one that is written is no other's.
    unsafe { ffi::crypto_box_beforenm(shared.as_mut_ptr(), public.as_ptr(), secret.as_ptr()) == 0 }
}

/// Encrypts in place, and gives the tag: XSalsa20 and Poly1305.
#[inline]
pub(super) fn seal(key: &[u8; 32], nonce: &[u8; 24], text: &mut [u8]) -> [u8; TAG] {
    start();
    let mut tag = [0; TAG];
    let (at, len) = (text.as_mut_ptr(), text.len() as u64);
    // SAFETY: `at` has `len` bytes to read and write, and the text may be where its cipher goes; the tag, the nonce and
    // the key have the 16, 24 and 32 bytes that are theirs here, and are apart from the text.
    unsafe {
        ffi::crypto_secretbox_detached(at, tag.as_mut_ptr(), at, len, nonce.as_ptr(), key.as_ptr());
    }
    tag
}

/// Decrypts in place if the tag is the text's; otherwise gives false, and leaves the text as it was.
#[inline]
#[must_use]
pub(super) fn open(key: &[u8; 32], nonce: &[u8; 24], tag: &[u8; TAG], text: &mut [u8]) -> bool {
    start();
    let (at, len) = (text.as_mut_ptr(), text.len() as u64);
    // SAFETY: as in `seal`; the tag is only read.
    unsafe {
        ffi::crypto_secretbox_open_detached(at, at, tag.as_ptr(), len, nonce.as_ptr(), key.as_ptr()) == 0
    }
}
