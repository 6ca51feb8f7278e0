//! Frames of anything: what is understood is written again as it was, and nothing is longer than what came.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ropewalk_zmtp::frame::{COMMAND, LONG, MORE, encode, parse_header};

fuzz_target!(|input: &[u8]| {
    let mut rest = input;
    while let Ok(Some(header)) = parse_header(rest) {
        assert!(header.len <= rest.len() && header.size <= i64::MAX as u64);
        assert_eq!(header.flags & !(MORE | LONG | COMMAND), 0);
        let Some(body) = usize::try_from(header.size).ok().and_then(|size| rest[header.len..].get(..size))
        else {
            return;
        };
        let mut again = Vec::new();
        encode(&mut again, header.flags & !LONG, body);
        let second = parse_header(&again).expect("well formed").expect("complete");
        assert_eq!((second.flags & !LONG, second.size), (header.flags & !LONG, header.size));
        assert_eq!(&again[second.len..], body);
        rest = &rest[header.len + body.len()..];
    }
});
