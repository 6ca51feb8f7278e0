//! Frames: a flag byte, a size of one or of eight bytes, and that many bytes of body.

use std::fmt;

/// Another frame of the same message follows.
pub const MORE: u8 = 1;
/// The size has eight bytes instead of one.
pub const LONG: u8 = 2;
/// The body is a command, not a part of a message.
pub const COMMAND: u8 = 4;

/// What stands before a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// [`MORE`], [`LONG`], [`COMMAND`].
    pub flags: u8,
    /// Bytes of body that follow; at most `i64::MAX`.
    pub size: u64,
    /// Bytes of the header itself: 2 or 9.
    pub len: usize,
}

/// Why bytes are no header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FrameError {
    /// Reserved bits are set in the flag byte.
    Reserved {
        /// The byte.
        flags: u8,
    },
    /// A command announces further frames.
    CommandWithMore,
    /// The size is beyond `i64::MAX`.
    Size {
        /// The size.
        size: u64,
    },
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reserved { flags } => write!(f, "a frame sets reserved flags ({flags:#04x})"),
            Self::CommandWithMore => f.write_str("a command announces further frames"),
            Self::Size { size } => write!(f, "a frame claims {size} bytes, which no peer can send"),
        }
    }
}

impl std::error::Error for FrameError {}

/// Reads a header from the start of `bytes`; `None` if more bytes are needed.
///
/// Of a header that is cut short, nothing but the flags is judged.
///
/// # Errors
/// [`FrameError`] for reserved flags, for a command that announces further frames, and for a size beyond `i64::MAX`.
#[inline]
pub fn parse_header(bytes: &[u8]) -> Result<Option<Header>, FrameError> {
    let Some(&flags) = bytes.first() else { return Ok(None) };
    if flags & !(MORE | LONG | COMMAND) != 0 {
        return Err(FrameError::Reserved { flags });
    }
    if flags & (MORE | COMMAND) == MORE | COMMAND {
        return Err(FrameError::CommandWithMore);
    }
    if flags & LONG == 0 {
        return Ok(bytes.get(1).map(|&size| Header { flags, size: u64::from(size), len: 2 }));
    }
    let Some(size) = bytes.get(1..).and_then(|rest| rest.first_chunk()) else { return Ok(None) };
    let size = u64::from_be_bytes(*size);
    if size > i64::MAX as u64 {
        return Err(FrameError::Size { size });
    }
    Ok(Some(Header { flags, size, len: 9 }))
}

/// Writes a header and gives its length, 2 or 9. `flags` is without [`LONG`], which is chosen by the size.
#[inline]
pub fn write_header(out: &mut [u8; 9], flags: u8, size: u64) -> usize {
    debug_assert_eq!(flags & !(MORE | COMMAND), 0, "the size decides on LONG");
    if let Ok(short) = u8::try_from(size) {
        out[0] = flags;
        out[1] = short;
        return 2;
    }
    out[0] = flags | LONG;
    out[1..].copy_from_slice(&size.to_be_bytes());
    9
}

/// Appends a whole frame. `flags` is without [`LONG`].
#[inline]
pub fn encode(out: &mut Vec<u8>, flags: u8, body: &[u8]) {
    let mut header = [0; 9];
    let len = write_header(&mut header, flags, body.len() as u64);
    out.reserve(len + body.len());
    out.extend_from_slice(&header[..len]);
    out.extend_from_slice(body);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_chooses_the_form() {
        for (size, len) in [(0, 2), (255, 2), (256, 9), (u64::from(u32::MAX) + 1, 9)] {
            let mut out = [0; 9];
            assert_eq!(write_header(&mut out, MORE, size), len);
            let header = parse_header(&out[..len]).expect("well formed").expect("complete");
            assert_eq!((header.flags & !LONG, header.size, header.len), (MORE, size, len));
            for short in 0..len {
                assert_eq!(parse_header(&out[..short]), Ok(None));
            }
        }
    }

    #[test]
    fn a_long_form_of_a_short_size_is_understood() {
        let bytes = [LONG, 0, 0, 0, 0, 0, 0, 0, 5];
        assert_eq!(parse_header(&bytes), Ok(Some(Header { flags: LONG, size: 5, len: 9 })));
    }

    // CVE-2019-6250 began with a size that overflowed the position it was added to.
    #[test]
    fn a_size_beyond_what_can_be_is_refused() {
        let mut bytes = [0xFF; 9];
        bytes[0] = LONG;
        assert_eq!(parse_header(&bytes), Err(FrameError::Size { size: u64::MAX }));
        bytes[1] = 0x80;
        bytes[2..].fill(0);
        assert_eq!(parse_header(&bytes), Err(FrameError::Size { size: 1 << 63 }));
        bytes[1] = 0x7F;
        assert!(matches!(parse_header(&bytes), Ok(Some(_))));
    }

    #[test]
    fn flags_are_judged_by_the_first_byte() {
        for flags in 8..=255 {
            assert_eq!(parse_header(&[flags]), Err(FrameError::Reserved { flags }));
        }
        assert_eq!(parse_header(&[MORE | COMMAND]), Err(FrameError::CommandWithMore));
    }
}
