//! ZAP: the request to a handler that admits or refuses a peer, and its reply.
//!
//! Source: RFC 27/ZAP.

use std::fmt;

use crate::metadata::{self, Properties};
use crate::{ZapConfig, code};

/// What is wrong with a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ZapError {
    /// There are not seven frames, beginning with an empty one.
    Frames,
    /// It speaks another version.
    Version,
    /// It answers another request.
    RequestId,
    /// The status is none of 200, 300, 400, 500.
    Status,
    /// The metadata is malformed.
    Metadata,
}

impl ZapError {
    pub(crate) const fn code(self) -> i32 {
        match self {
            Self::Frames => code::ZAP_MALFORMED_REPLY,
            Self::Version => code::ZAP_BAD_VERSION,
            Self::RequestId => code::ZAP_BAD_REQUEST_ID,
            Self::Status => code::ZAP_INVALID_STATUS_CODE,
            Self::Metadata => code::ZAP_INVALID_METADATA,
        }
    }
}

impl fmt::Display for ZapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Frames => "the ZAP handler's reply does not have the seven frames of one",
            Self::Version => "the ZAP handler speaks another version than 1.0",
            Self::RequestId => "the ZAP handler answers another request",
            Self::Status => "the ZAP handler answers with no known status",
            Self::Metadata => "the ZAP handler's metadata is malformed",
        })
    }
}

impl std::error::Error for ZapError {}

/// The frames of a request, the empty delimiter first.
pub(crate) fn request(config: &ZapConfig, mechanism: &str, credentials: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let head: [&[u8]; 7] = [
        b"",
        b"1.0",
        &config.request_id,
        &config.domain,
        &config.address,
        &config.identity,
        mechanism.as_bytes(),
    ];
    head.into_iter().chain(credentials.iter().map(Vec::as_slice)).map(<[u8]>::to_vec).collect()
}

/// A reply that is well formed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) text: String,
    pub(crate) user_id: Vec<u8>,
    pub(crate) metadata: Properties,
}

impl Reply {
    pub(crate) fn parse(frames: &[Vec<u8>], request_id: &[u8]) -> Result<Self, ZapError> {
        let [delimiter, version, id, status, text, user_id, metadata] = frames else {
            return Err(ZapError::Frames);
        };
        if !delimiter.is_empty() {
            return Err(ZapError::Frames);
        }
        if version != b"1.0" {
            return Err(ZapError::Version);
        }
        if id != request_id {
            return Err(ZapError::RequestId);
        }
        let status = match status.as_slice() {
            b"200" => 200,
            b"300" => 300,
            b"400" => 400,
            b"500" => 500,
            _ => return Err(ZapError::Status),
        };
        let metadata = metadata::parse(metadata).map_err(|_| ZapError::Metadata)?;
        Ok(Self {
            status,
            text: String::from_utf8_lossy(text).into_owned(),
            user_id: user_id.clone(),
            metadata,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(change: impl Fn(&mut Vec<Vec<u8>>)) -> Result<Reply, ZapError> {
        let mut frames: Vec<Vec<u8>> =
            [b"".as_slice(), b"1.0", b"7", b"200", b"OK", b"ada", b"\x01a\0\0\0\x01b"]
                .map(<[u8]>::to_vec)
                .into();
        change(&mut frames);
        Reply::parse(&frames, b"7")
    }

    #[test]
    fn replies() {
        let good = reply(|_| ()).expect("well formed");
        assert_eq!((good.status, good.user_id.as_slice()), (200, b"ada".as_slice()));
        assert_eq!(good.metadata, [("a".to_owned(), b"b".to_vec())]);
        assert_eq!(reply(|frames| drop(frames.pop())), Err(ZapError::Frames));
        assert_eq!(reply(|frames| frames.push(Vec::new())), Err(ZapError::Frames));
        assert_eq!(reply(|frames| frames[0] = b"x".to_vec()), Err(ZapError::Frames));
        assert_eq!(reply(|frames| frames[1] = b"1.1".to_vec()), Err(ZapError::Version));
        assert_eq!(reply(|frames| frames[2] = b"8".to_vec()), Err(ZapError::RequestId));
        assert_eq!(reply(|frames| frames[3] = b"2000".to_vec()), Err(ZapError::Status));
        assert_eq!(reply(|frames| frames[3] = b"201".to_vec()), Err(ZapError::Status));
        assert_eq!(reply(|frames| frames[6] = b"\x01".to_vec()), Err(ZapError::Metadata));
    }
}
