//! How deeply arguments are nested. What reads them in a worker recurses, so the bound is kept before they get there.

use crate::call::Form;
use crate::failed::{Code, Failed, Violation};

/// Lists and objects that may lie within each other.
pub(crate) const MOST: usize = 128;

/// Refuses arguments that are nested more deeply than anything has use for.
///
/// # Errors
///
/// INVALID_ARGUMENT. Bytes that are no JSON or MessagePack are not judged: what reads them says what is wrong.
pub(crate) fn check(form: Form, bytes: &[u8]) -> Result<(), Failed> {
    let fits = match form {
        Form::Json | Form::Arrays | Form::Array => json_fits(bytes),
        Form::Msgpack => msgpack_fits(bytes),
        Form::Raw => true,
    };
    if fits {
        return Ok(());
    }
    let description = format!("is nested more deeply than {MOST} levels, which is the server's limit");
    let violations = vec![Violation { field: String::new(), description: description.clone() }];
    let message = format!("the arguments do not fit: the body {description}");
    Err(Failed { violations, ..Failed::new(Code::InvalidArgument, message) })
}

fn json_fits(bytes: &[u8]) -> bool {
    // Few brackets cannot be too deep, and counting them is quick.
    let opening = bytes.iter().filter(|byte| matches!(byte, b'[' | b'{')).count();
    if opening <= MOST {
        return true;
    }
    let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
    for byte in bytes {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'[' | b'{' if !in_text => {
                depth += 1;
                if depth > MOST {
                    return false;
                }
            }
            b']' | b'}' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    true
}

/// What the head of a value of MessagePack says: bytes of the head and of what follows it, and values within it.
///
/// Source: <https://github.com/msgpack/msgpack/blob/master/spec.md>
fn head(bytes: &[u8]) -> Option<(usize, u64)> {
    let number = |width: usize| {
        let digits = bytes.get(1..1 + width)?;
        Some(digits.iter().fold(0_u64, |number, digit| number << 8 | u64::from(*digit)))
    };
    // Bytes that follow a length of so many bytes, and further ones.
    let long = |width: usize, further: usize| {
        let length = usize::try_from(number(width)?).ok()?;
        Some((length.checked_add(1 + width + further)?, 0))
    };
    let first = *bytes.first()?;
    Some(match first {
        0x00..=0x7f | 0xc0..=0xc3 | 0xe0..=0xff => (1, 0),
        0x80..=0x8f => (1, u64::from(first & 0x0f) * 2),
        0x90..=0x9f => (1, u64::from(first & 0x0f)),
        0xa0..=0xbf => (1 + usize::from(first & 0x1f), 0),
        0xc4 | 0xd9 => long(1, 0)?,
        0xc5 | 0xda => long(2, 0)?,
        0xc6 | 0xdb => long(4, 0)?,
        0xc7 => long(1, 1)?,
        0xc8 => long(2, 1)?,
        0xc9 => long(4, 1)?,
        0xcc | 0xd0 => (2, 0),
        0xcd | 0xd1 | 0xd4 => (3, 0),
        0xd5 => (4, 0),
        0xca | 0xce | 0xd2 => (5, 0),
        0xd6 => (6, 0),
        0xcb | 0xcf | 0xd3 => (9, 0),
        0xd7 => (10, 0),
        0xd8 => (18, 0),
        0xdc => (3, number(2)?),
        0xdd => (5, number(4)?),
        0xde => (3, number(2)? * 2),
        0xdf => (5, number(4)? * 2),
    })
}

fn msgpack_fits(mut bytes: &[u8]) -> bool {
    // How many values are still to come of each list and map that is open.
    let mut open = [0_u64; MOST];
    let mut depth = 0_usize;
    while let Some((length, within)) = head(bytes) {
        let Some(rest) = bytes.get(length..) else { break };
        bytes = rest;
        if within > 0 {
            let Some(place) = open.get_mut(depth) else { return false };
            *place = within;
            depth += 1;
            continue;
        }
        while let Some(place) = depth.checked_sub(1).and_then(|last| open.get_mut(last)) {
            *place -= 1;
            if *place > 0 {
                break;
            }
            depth -= 1;
        }
        if depth == 0 {
            break;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(form: Form, bytes: &[u8]) -> bool {
        check(form, bytes).is_ok()
    }

    #[test]
    fn json_is_as_deep_as_its_brackets() {
        let nested = |open: &str, close: &str, depth| open.repeat(depth) + &close.repeat(depth);
        assert!(fits(Form::Json, nested("[", "]", MOST).as_bytes()));
        assert!(!fits(Form::Json, nested("[", "]", MOST + 1).as_bytes()));
        assert!(!fits(Form::Json, nested("{\"a\":[", "]}", MOST / 2 + 1).as_bytes()));
        assert!(!fits(Form::Json, "[".repeat(100_000).as_bytes()));
        assert!(fits(Form::Json, nested("[]", "", 1000).as_bytes()));
        // Brackets within texts are none.
        assert!(fits(Form::Json, format!("{{\"a\": \"{}\\\"[[\"}}", "[".repeat(1000)).as_bytes()));
        assert!(!fits(Form::Json, format!("[\"\\\\\", {}", "[".repeat(MOST)).as_bytes()));
        let failed = check(Form::Json, &[b'['; 1000]).expect_err("too deep");
        assert_eq!(failed.code, Code::InvalidArgument);
        assert!(failed.message.contains("more deeply than 128 levels"), "{}", failed.message);
    }

    #[test]
    fn msgpack_is_as_deep_as_its_heads_say() {
        for open in
            [&b"\x91"[..], b"\xdc\x00\x01", b"\xdd\x00\x00\x00\x01", b"\x81\xa1a", b"\xde\x00\x01\x01"]
        {
            let mut bytes = open.repeat(MOST);
            bytes.push(0xc0);
            assert!(fits(Form::Msgpack, &bytes), "{open:?}");
            assert!(!fits(Form::Msgpack, &open.repeat(MOST + 1)), "{open:?}");
            assert!(!fits(Form::Msgpack, &open.repeat(100_000)), "{open:?}");
        }
        // Many values beside each other, of every kind, are not deep.
        let beside: Vec<&[u8]> = vec![
            b"\x01",
            b"\xff",
            b"\xc0",
            b"\xc4\x01a",
            b"\xc5\x00\x01a",
            b"\xc6\x00\x00\x00\x01a",
            b"\xc7\x01\x05a",
            b"\xc8\x00\x01\x05a",
            b"\xc9\x00\x00\x00\x01\x05a",
            b"\xca1234",
            b"\xcb12345678",
            b"\xcc1",
            b"\xcd12",
            b"\xce1234",
            b"\xcf12345678",
            b"\xd0a",
            b"\xd1ab",
            b"\xd2abcd",
            b"\xd3abcdefgh",
            b"\xd4\x01a",
            b"\xd5\x01ab",
            b"\xd6\x01abcd",
            b"\xd7\x01abcdefgh",
            b"\xd8\x01abcdefghijklmnop",
            b"\xd9\x01a",
            b"\xda\x00\x01a",
            b"\xdb\x00\x00\x00\x01a",
            b"\xa2ab",
            b"\x90",
            b"\x80",
            b"\x92\x01\x91\x02",
        ];
        let mut bytes = vec![0xdc];
        bytes.extend(u16::try_from(beside.len() * 9).expect("few").to_be_bytes());
        for _ in 0..9 {
            beside.iter().for_each(|one| bytes.extend_from_slice(one));
        }
        assert!(fits(Form::Msgpack, &bytes));
        // And the next thing is still found to be deep.
        let mut deep = vec![0xdc];
        deep.extend(u16::try_from(beside.len() + 1).expect("few").to_be_bytes());
        beside.iter().for_each(|one| deep.extend_from_slice(one));
        deep.extend(vec![0x91; MOST]);
        assert!(!fits(Form::Msgpack, &deep));
        // What is cut off is another's to judge.
        for end in 0..bytes.len() {
            assert!(fits(Form::Msgpack, bytes.get(..end).unwrap_or_default()));
        }
        assert!(fits(Form::Raw, &[b'['; 1000]));
    }
}
