//! Commands of anything, keys as text of anything, and a handler that answers anything.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ropewalk_zmtp::{Command, Config, Handshake, Mechanism, SocketType, Status, ZapConfig, z85};

fuzz_target!(|input: &[u8]| {
    if let Ok(command) = Command::parse(input) {
        let mut again = Vec::new();
        command.encode(&mut again);
        assert!(input.starts_with(&again));
        assert_eq!(Command::parse(&again), Ok(command));
    }
    if let Some(bytes) = std::str::from_utf8(input).ok().and_then(z85::decode) {
        assert_eq!(z85::encode(&bytes).map(String::into_bytes).as_deref(), Some(input));
    }

    // Frames of a reply: each after its length.
    let (mut frames, mut rest) = (Vec::new(), input);
    while let Some((&len, after)) = rest.split_first() {
        let (frame, after) = after.split_at(usize::from(len).min(after.len()));
        frames.push(frame.to_vec());
        rest = after;
    }
    let mut config = Config::new(SocketType::Pair, Mechanism::Null);
    let (mut greeting, mut out) = (Vec::new(), Vec::new());
    Handshake::new(config.clone()).start(&mut greeting);
    config.zap = Some(ZapConfig::default());
    let mut handshake = Handshake::new(config);
    handshake.input(&greeting, &mut out).expect("a greeting");
    let let_in = handshake.answer_zap(&frames, &mut out).is_ok();
    assert_eq!(let_in, frames.get(3).is_some_and(|status| status == b"200") && !out.is_empty());
    assert_ne!(handshake.status(), Status::WantsZap);
});
