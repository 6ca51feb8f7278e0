//! The greeting: 64 bytes by which peers agree on a version and a mechanism.

use crate::{HandshakeError, Mechanism};

/// Bytes of a greeting.
pub(crate) const LEN: usize = 64;

const VERSION: usize = 10;
const MECHANISM: std::ops::Range<usize> = 12..32;
const AS_SERVER: usize = 32;

/// Appends ours. All of it goes out at once: who speaks an older version is refused anyway.
pub(crate) fn write(mechanism: &Mechanism, out: &mut Vec<u8>) {
    let mut bytes = [0; LEN];
    bytes[0] = 0xFF;
    bytes[8] = 1;
    bytes[9] = 0x7F;
    bytes[VERSION..MECHANISM.start].copy_from_slice(&[3, 1]);
    let name = mechanism.name().as_bytes();
    bytes[MECHANISM][..name.len()].copy_from_slice(name);
    bytes[AS_SERVER] = u8::from(mechanism.is_server());
    out.extend_from_slice(&bytes);
}

/// Judges what has come so far, at most [`LEN`] bytes; gives the minor version once that is all of them.
///
/// A peer that is no server may be one all the same: libzmq never says so.
pub(crate) fn parse(bytes: &[u8], ours: &Mechanism) -> Result<Option<u8>, HandshakeError> {
    if bytes.first().is_some_and(|&first| first != 0xFF) || bytes.get(9).is_some_and(|&last| last != 0x7F) {
        return Err(HandshakeError::Greeting);
    }
    if let Some(&major) = bytes.get(VERSION)
        && major < 3
    {
        return Err(HandshakeError::Version { major });
    }
    if bytes.len() < LEN {
        return Ok(None);
    }
    let name = &bytes[MECHANISM];
    let end = name.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    if &name[..end] != ours.name().as_bytes() {
        let theirs = String::from_utf8_lossy(&name[..end]).into_owned();
        return Err(HandshakeError::Mechanism { ours: ours.name(), theirs });
    }
    if ours.is_server() && bytes[AS_SERVER] & 1 == 1 {
        return Err(HandshakeError::TwoServers);
    }
    // Whoever speaks a later version must know this one.
    Ok(Some(if bytes[VERSION] > 3 { 1 } else { bytes[VERSION + 1].min(1) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greeting(change: impl Fn(&mut Vec<u8>)) -> Result<Option<u8>, HandshakeError> {
        let mut bytes = Vec::new();
        write(&Mechanism::PlainServer, &mut bytes);
        bytes[AS_SERVER] = 0;
        change(&mut bytes);
        parse(&bytes, &Mechanism::PlainServer)
    }

    #[test]
    fn versions() {
        assert_eq!(greeting(|_| ()), Ok(Some(1)));
        assert_eq!(greeting(|bytes| bytes[11] = 0), Ok(Some(0)));
        assert_eq!(greeting(|bytes| bytes[11] = 7), Ok(Some(1)));
        assert_eq!(greeting(|bytes| bytes[10..12].copy_from_slice(&[4, 0])), Ok(Some(1)));
        for major in 0..3 {
            assert_eq!(greeting(|bytes| bytes[10] = major), Err(HandshakeError::Version { major }));
        }
    }

    #[test]
    fn a_refusal_comes_as_early_as_it_can() {
        assert_eq!(parse(b"", &Mechanism::Null), Ok(None));
        assert_eq!(parse(b"G", &Mechanism::Null), Err(HandshakeError::Greeting));
        assert_eq!(
            parse(b"\xFF\0\0\0\0\0\0\0\x01\x7F\x01", &Mechanism::Null),
            Err(HandshakeError::Version { major: 1 })
        );
        assert_eq!(
            parse(b"\xFF\0\0\0\0\0\0\0\x01\0", &Mechanism::Null),
            Err(HandshakeError::Greeting),
            "ZMTP 1"
        );
    }

    #[test]
    fn mechanisms_are_compared_whole() {
        let theirs = |name: &[u8]| {
            let result = greeting(|bytes| {
                bytes[MECHANISM].fill(0);
                bytes[MECHANISM][..name.len()].copy_from_slice(name);
            });
            match result {
                Err(HandshakeError::Mechanism { ours: "PLAIN", theirs }) => theirs,
                other => panic!("{other:?}"),
            }
        };
        for name in ["", "NULL", "PLAINER", "PLAIN\0PLAIN", "ABCDEFGHIJKLMNOPQRST"] {
            assert_eq!(theirs(name.as_bytes()), name);
        }
        assert_eq!(greeting(|bytes| bytes[AS_SERVER] = 1), Err(HandshakeError::TwoServers));
    }
}
