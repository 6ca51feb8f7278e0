//! Z85: keys as text, five characters for four bytes.
//!
//! Source: RFC 32/Z85.

const LETTERS: &[u8; 85] =
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";

/// The text; `None` if there are not 4·n bytes.
pub fn encode(bytes: &[u8]) -> Option<String> {
    let (groups, []) = bytes.as_chunks::<4>() else { return None };
    let mut text = String::with_capacity(groups.len() * 5);
    for group in groups {
        let number = u32::from_be_bytes(*group);
        for power in [85 * 85 * 85 * 85, 85 * 85 * 85, 85 * 85, 85, 1] {
            text.push(char::from(LETTERS[(number / power % 85) as usize]));
        }
    }
    Some(text)
}

/// The bytes; `None` if there are not 5·n characters, all of the alphabet, or if five of them stand for too much.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let (groups, []) = text.as_bytes().as_chunks::<5>() else { return None };
    let mut bytes = Vec::with_capacity(groups.len() * 4);
    for group in groups {
        let mut number = 0_u64;
        for letter in group {
            number = number * 85 + LETTERS.iter().position(|known| known == letter)? as u64;
        }
        bytes.extend_from_slice(&u32::try_from(number).ok()?.to_be_bytes());
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_rfc() {
        let bytes = [0x86, 0x4F, 0xD2, 0x6F, 0xB5, 0x59, 0xF7, 0x5B];
        assert_eq!(encode(&bytes).as_deref(), Some("HelloWorld"));
        assert_eq!(decode("HelloWorld").as_deref(), Some(bytes.as_slice()));
    }

    #[test]
    fn what_is_no_z85_is_refused() {
        assert_eq!(encode(&[1, 2, 3]), None);
        assert_eq!(decode("Hell"), None);
        assert_eq!(decode("Hell~"), None);
        assert_eq!(decode("Hellé"), None);
        assert_eq!(decode("#####"), None, "more than 32 bits");
        assert_eq!(decode("%nSc0"), Some(vec![0xFF; 4]));
        assert_eq!(decode("%nSc1"), None);
        assert_eq!(decode(""), Some(Vec::new()));
    }
}
