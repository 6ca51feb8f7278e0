//! Metadata: the properties that peers send of themselves, and that a ZAP handler adds.

use std::fmt;

use crate::{Config, SocketType};

/// More properties than this are refused.
const MOST: usize = 64;

/// Name and value, as they came.
pub(crate) type Properties = Vec<(String, Vec<u8>)>;

/// What is wrong with metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetadataError {
    /// A property is cut short.
    Truncated,
    /// A name is empty, or has bytes that no name may have.
    Name,
    /// A name comes twice.
    Twice(String),
    /// There are more properties than are read.
    TooMany,
    /// There is no socket type, or none that is known.
    SocketType,
    /// The identity is longer than 255 bytes.
    Identity,
}

impl fmt::Display for MetadataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("a property is cut short"),
            Self::Name => f.write_str("a property has no proper name"),
            Self::Twice(name) => write!(f, "the property {name} comes twice"),
            Self::TooMany => write!(f, "there are more than {MOST} properties"),
            Self::SocketType => f.write_str("the peer names no known socket type"),
            Self::Identity => f.write_str("the identity is longer than 255 bytes"),
        }
    }
}

impl std::error::Error for MetadataError {}

/// What a peer tells of itself.
#[derive(Clone, Debug)]
pub(crate) struct Introduction {
    pub(crate) socket_type: SocketType,
    pub(crate) identity: Vec<u8>,
    pub(crate) properties: Properties,
}

impl Introduction {
    /// Reads the metadata of a READY or INITIATE.
    pub(crate) fn parse(metadata: &[u8]) -> Result<Self, MetadataError> {
        let properties = parse(metadata)?;
        let value = |wanted: &str| {
            properties
                .iter()
                .find(|(name, _)| name.eq_ignore_ascii_case(wanted))
                .map(|(_, value)| value.as_slice())
        };
        let socket_type =
            value("Socket-Type").and_then(SocketType::from_name).ok_or(MetadataError::SocketType)?;
        let identity = value("Identity").unwrap_or_default().to_vec();
        if identity.len() > 255 {
            return Err(MetadataError::Identity);
        }
        Ok(Self { socket_type, identity, properties })
    }
}

/// Reads properties.
pub(crate) fn parse(mut rest: &[u8]) -> Result<Properties, MetadataError> {
    let mut properties: Properties = Vec::new();
    while let Some((&len, after)) = rest.split_first() {
        let (name, after) = after.split_at_checked(usize::from(len)).ok_or(MetadataError::Truncated)?;
        let (size, after) = after.split_first_chunk().ok_or(MetadataError::Truncated)?;
        // A size that does not fit this machine's words is longer than any metadata.
        let size = usize::try_from(u32::from_be_bytes(*size)).map_err(|_| MetadataError::Truncated)?;
        let (value, after) = after.split_at_checked(size).ok_or(MetadataError::Truncated)?;
        let name = match std::str::from_utf8(name) {
            Ok(name) if is_name(name) => name,
            _ => return Err(MetadataError::Name),
        };
        if properties.iter().any(|(known, _)| known.eq_ignore_ascii_case(name)) {
            return Err(MetadataError::Twice(name.to_owned()));
        }
        if properties.len() == MOST {
            return Err(MetadataError::TooMany);
        }
        properties.push((name.to_owned(), value.to_vec()));
        rest = after;
    }
    Ok(properties)
}

/// Letters, digits and `-_.+`, as the RFC has it. Whatever else can be seen is let through: libzmq does so.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Appends one property.
pub(crate) fn write(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    assert!(is_name(name), "a property has a name of visible ASCII characters");
    out.push(u8::try_from(name.len()).expect("the name of a property has at most 255 bytes"));
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(&u32::try_from(value.len()).expect("a property's value is small").to_be_bytes());
    out.extend_from_slice(value);
}

/// Appends what we tell of ourselves.
pub(crate) fn introduce(config: &Config, out: &mut Vec<u8>) {
    write(out, "Socket-Type", config.socket_type.name().as_bytes());
    if config.socket_type.tells_identity() {
        write(out, "Identity", &config.identity);
    }
    for (name, value) in &config.metadata {
        write(out, name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_any_case() {
        let peer = Introduction::parse(b"\x0Bsocket-TYPE\0\0\0\x04PUSH\x08IDENTITY\0\0\0\x01a")
            .expect("well formed");
        assert_eq!((peer.socket_type, peer.identity), (SocketType::Push, b"a".to_vec()));
    }

    #[test]
    fn malformed_metadata_is_refused() {
        assert_eq!(parse(b"\x00\0\0\0\0"), Err(MetadataError::Name));
        assert_eq!(parse(b"\x01\xFF\0\0\0\0"), Err(MetadataError::Name));
        assert_eq!(parse(b"\x02a"), Err(MetadataError::Truncated));
        assert_eq!(parse(b"\x01a\0\0\0"), Err(MetadataError::Truncated));
        assert_eq!(parse(b"\x01a\xFF\xFF\xFF\xFFbc"), Err(MetadataError::Truncated));
        assert_eq!(parse(b"\x01a\0\0\0\0\x01A\0\0\0\0"), Err(MetadataError::Twice("A".into())));
        let mut many = Vec::new();
        for number in 0..=MOST {
            write(&mut many, &format!("X-{number}"), b"");
        }
        assert_eq!(parse(&many), Err(MetadataError::TooMany));
        assert!(
            parse(&many[..many.len() - 9]).is_ok_and(|some| some.len() == MOST),
            "the last has nine bytes"
        );
        assert_eq!(Introduction::parse(b"").map(drop), Err(MetadataError::SocketType));
        let mut long = b"\x0BSocket-Type\0\0\0\x04PUSH".to_vec();
        write(&mut long, "Identity", &[b'a'; 256]);
        assert_eq!(Introduction::parse(&long).map(drop), Err(MetadataError::Identity));
    }
}
