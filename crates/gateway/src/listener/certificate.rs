//! The names in a client's certificate.

use tokio_rustls::rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

/// The object identifier of a common name, 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const IA5_STRING: u8 = 0x16;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;

/// The alternative names of a certificate that was verified, hosts and URIs, and behind them its common names.
pub(super) fn names(certificate: &CertificateDer<'_>) -> Vec<Box<str>> {
    let Ok(read) = EndEntityCert::try_from(certificate) else { return Vec::new() };
    let alternative = read.valid_dns_names().chain(read.valid_uri_names()).map(Box::from);
    alternative.chain(common_names(read.subject()).map(Box::from)).collect()
}

/// The common names of a subject: sets of pairs of an identifier and a text (RFC 5280, section 4.1.2.4).
fn common_names(subject: &[u8]) -> impl Iterator<Item = &str> {
    let pairs = Elements(subject).filter(|(tag, _)| *tag == SET).flat_map(|(_, set)| Elements(set));
    pairs.filter(|(tag, _)| *tag == SEQUENCE).filter_map(|(_, pair)| {
        let mut parts = Elements(pair);
        let is_common = parts.next() == Some((OBJECT_IDENTIFIER, COMMON_NAME));
        let (tag, text) = parts.next()?;
        let is_text = matches!(tag, UTF8_STRING | PRINTABLE_STRING | IA5_STRING);
        (is_common && is_text).then(|| std::str::from_utf8(text).ok()).flatten()
    })
}

/// The elements of DER beside each other, each with its tag; it ends at what is none.
struct Elements<'a>(&'a [u8]);

impl<'a> Iterator for Elements<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (tag, rest) = self.0.split_first()?;
        let (first, rest) = rest.split_first()?;
        let (length, rest) = match *first {
            short @ 0..0x80 => (usize::from(short), rest),
            long => {
                let (digits, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
                if digits.len() > 4 {
                    return None;
                }
                (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
            }
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((*tag, content))
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, DnValue, KeyPair, SanType};

    use super::*;

    fn certificate(change: impl FnOnce(&mut CertificateParams)) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        change(&mut params);
        let key = KeyPair::generate().expect("a key");
        params.self_signed(&key).expect("a certificate").der().clone()
    }

    fn of(change: impl FnOnce(&mut CertificateParams)) -> Vec<String> {
        names(&certificate(change)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn alternative_names_and_common_names_are_found() {
        let found = of(|params| {
            params.distinguished_name.push(DnType::OrganizationName, "ropes");
            params.distinguished_name.push(DnType::CommonName, "ann");
            let uri = SanType::URI("spiffe://example/ann".try_into().expect("a name"));
            params.subject_alt_names = vec![SanType::DnsName("ann.example".try_into().expect("a name")), uri];
        });
        assert_eq!(found, ["ann.example", "spiffe://example/ann", "ann"]);
    }

    #[test]
    fn a_long_common_name_is_one() {
        let long = "é".repeat(400);
        let found = of(|params| {
            params.distinguished_name = rcgen::DistinguishedName::new();
            params.distinguished_name.push(DnType::CommonName, DnValue::Utf8String(long.clone()));
        });
        assert_eq!(found, [long]);
    }

    #[test]
    fn what_is_no_certificate_has_no_names() {
        assert!(names(&CertificateDer::from(&b"nothing"[..])).is_empty());
        let whole = certificate(|params| params.distinguished_name.push(DnType::CommonName, "ann"));
        for end in 0..whole.len() {
            assert!(names(&CertificateDer::from(whole.get(..end).unwrap_or_default())).is_empty(), "{end}");
        }
        for strange in [&b"\x31\x84\xff\xff\xff\xff"[..], b"\x31\x89", b"\x31\x05\x30", b"\x31\x02\x30\x00"] {
            assert_eq!(common_names(strange).count(), 0);
        }
    }
}
