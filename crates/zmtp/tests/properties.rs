//! Properties of all input: encoding and decoding are inverse, and the splits of bytes make no difference.

mod conversation;

use conversation::{configs, talk};
use proptest::collection::vec;
use proptest::prelude::*;
use ropewalk_zmtp::{Command, CurveSession, Handshake, HandshakeError, Peer, Session, Status, frame, z85};

fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..=most)
}

fn mechanism() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("NULL"), Just("PLAIN"), Just("CURVE")]
}

/// A command that takes `data`; a PING or PONG takes no more than 16 bytes.
fn command(which: usize, ttl: u16, name: &[u8], data: &[u8], check: impl FnOnce(Command<'_>)) {
    let context = &data[..data.len().min(16)];
    check(match which {
        0 => Command::Ready(data),
        1 => Command::Error(&data[..data.len().min(255)]),
        2 => Command::Subscribe(data),
        3 => Command::Cancel(data),
        4 => Command::Join(data),
        5 => Command::Leave(data),
        6 => Command::Ping { ttl, context },
        7 => Command::Pong { context },
        _ => Command::Unknown { name, data },
    });
}

/// What can be compared of a peer.
fn facts(peer: Peer) -> impl PartialEq + std::fmt::Debug {
    (peer.minor, peer.socket_type, peer.identity, peer.properties, peer.user_id)
}

/// Two sessions that belong together, the server's first.
fn sessions() -> (CurveSession, CurveSession) {
    let (server, client) = configs("CURVE", false);
    let (server, client) = talk(server, client, "200", |len| len);
    match (server.expect("a server").finish().session, client.expect("a client").finish().session) {
        (Session::Curve(server), Session::Curve(client)) => (*server, *client),
        other => panic!("{other:?}"),
    }
}

/// Body of a frame.
fn body(frame: &[u8]) -> &[u8] {
    &frame[frame::parse_header(frame).expect("well formed").expect("complete").len..]
}

/// What a server says to these bytes when they come in such pieces: what was consumed, what it answers, what follows.
fn listen(name: &str, input: &[u8], pieces: &[usize]) -> (usize, Vec<u8>, Result<Status, HandshakeError>) {
    let mut server = Handshake::new(configs(name, false).0);
    let (mut out, mut taken, mut pieces) = (Vec::new(), 0, pieces.iter().cycle());
    while taken < input.len() && server.status() == Status::Going {
        let piece = pieces.next().map_or(input.len(), |piece| (*piece).clamp(1, input.len() - taken));
        match server.input(&input[taken..][..piece.min(input.len() - taken)], &mut out) {
            Ok(len) => taken += len,
            Err(error) => return (0, out, Err(error)),
        }
    }
    (taken, out, Ok(server.status()))
}

proptest! {
    #[test]
    fn frames(
        body in bytes(600),
        flags in prop_oneof![Just(0), Just(frame::MORE), Just(frame::COMMAND)],
        before in bytes(3),
    ) {
        let mut out = before.clone();
        frame::encode(&mut out, flags, &body);
        let frame = &out[before.len()..];
        let header = frame::parse_header(frame).expect("well formed").expect("complete");
        prop_assert_eq!(header.flags & !frame::LONG, flags);
        prop_assert_eq!(header.size, body.len() as u64);
        prop_assert_eq!(&frame[header.len..], body);
        for cut in 0..header.len {
            prop_assert_eq!(frame::parse_header(&frame[..cut]), Ok(None));
        }
    }

    #[test]
    fn headers_of_anything(bytes in bytes(12)) {
        if let Ok(Some(header)) = frame::parse_header(&bytes) {
            prop_assert!(header.len <= bytes.len() && i64::try_from(header.size).is_ok());
            prop_assert_eq!(header.len, if header.flags & frame::LONG == 0 { 2 } else { 9 });
        }
    }

    #[test]
    fn commands(which in 0..9_usize, ttl: u16, name in "[A-Z]{1,3}X", data in bytes(300)) {
        command(which, ttl, name.as_bytes(), &data, |command| {
            let mut body = Vec::new();
            command.encode(&mut body);
            assert_eq!(Command::parse(&body), Ok(command));
        });
    }

    #[test]
    fn commands_of_anything(body in bytes(40)) {
        if let Ok(command) = Command::parse(&body) {
            let mut again = Vec::new();
            command.encode(&mut again);
            prop_assert!(body.starts_with(&again), "all but the end of a long context");
        }
    }

    #[test]
    fn keys_as_text(bytes in bytes(40)) {
        match z85::encode(&bytes) {
            Some(text) => prop_assert_eq!(z85::decode(&text), Some(bytes)),
            None => prop_assert!(bytes.len() % 4 != 0),
        }
    }

    #[test]
    fn text_as_keys(text in "[0-9a-zA-Z.:+=^!/*?&<>()\\[\\]{}@%$#-]{0,20}") {
        if let Some(bytes) = z85::decode(&text) {
            prop_assert_eq!(z85::encode(&bytes), Some(text));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn cuts_make_no_difference(name in mechanism(), zap: bool, cuts in vec(1..90_usize, 1..20)) {
        let talk = |mut cut: Box<dyn FnMut(usize) -> usize>| {
            let (server, client) = configs(name, zap);
            let (server, client) = talk(server, client, "200", &mut cut);
            (facts(server.expect("a server").finish()), facts(client.expect("a client").finish()))
        };
        let mut cuts = cuts.into_iter().cycle();
        let cut = talk(Box::new(move |_| cuts.next().expect("it goes round")));
        prop_assert!(cut == talk(Box::new(|len| len)));
        prop_assert!(cut == talk(Box::new(|_| 1)));
    }

    #[test]
    fn cuts_make_no_difference_to_what_is_wrong(
        name in mechanism(),
        at in 0..200_usize,
        change in 1..=255_u8,
        more in bytes(100),
        cuts in vec(1..90_usize, 1..20),
    ) {
        // What a client would say, one byte of it changed, and anything after it.
        let mut client = Handshake::new(configs(name, false).1);
        let (mut said, mut greeting) = (Vec::new(), Vec::new());
        client.start(&mut said);
        Handshake::new(configs(name, false).0).start(&mut greeting);
        client.input(&greeting, &mut said).expect("a greeting");
        if name == "PLAIN" {
            client.input(b"\x04\x08\x07WELCOME", &mut said).expect("a welcome");
        }
        said.extend_from_slice(&more);
        let at = at % said.len();
        said[at] ^= change;
        // CURVE's answer is never the same twice; a failed box is.
        let strip = |(taken, out, result): (usize, Vec<u8>, _)| {
            (taken, if name == "CURVE" { out.len() } else { 0 }, result)
        };
        let whole = strip(listen(name, &said, &[said.len()]));
        prop_assert_eq!(&strip(listen(name, &said, &cuts)), &whole);
        prop_assert_eq!(&strip(listen(name, &said, &[1])), &whole);
    }

    #[test]
    fn sessions_carry_anything(messages in vec((any::<bool>(), 0..3_u8, 0..1500_usize), 1..40)) {
        let (mut server, mut client) = sessions();
        let (mut wire, mut plain) = (Vec::new(), Vec::new());
        for (at, (from_server, flags, size)) in messages.into_iter().enumerate() {
            let flags = [0, frame::MORE, frame::COMMAND][usize::from(flags)];
            let said: Vec<u8> = (0..size).map(|byte| (byte * 7 + at) as u8).collect();
            let (from, to) = if from_server { (&mut server, &mut client) } else { (&mut client, &mut server) };
            wire.clear();
            from.encrypt(flags, &said, &mut wire);
            plain.clear();
            prop_assert_eq!(to.decrypt(body(&wire), &mut plain), Ok(flags));
            prop_assert_eq!(&plain, &said);
        }
    }

    #[test]
    fn sessions_notice_any_change(size in 0..700_usize, at: prop::sample::Index, change in 1..=255_u8) {
        let (mut server, mut client) = sessions();
        let (mut wire, mut plain) = (Vec::new(), b"before".to_vec());
        server.encrypt(0, &vec![b'x'; size], &mut wire);
        let whole = wire.clone();
        let header = wire.len() - body(&wire).len();
        let at = header + at.index(wire.len() - header);
        wire[at] ^= change;
        prop_assert!(client.decrypt(&wire[header..], &mut plain).is_err());
        prop_assert!(client.decrypt(&whole[header..whole.len() - 1], &mut plain).is_err());
        prop_assert_eq!(&plain, b"before", "nothing of it is let out");
        prop_assert_eq!(client.decrypt(&whole[header..], &mut plain), Ok(0), "a forgery does not move the nonce");
    }

    #[test]
    fn anything_after_a_greeting(
        name in mechanism(),
        as_server: bool,
        bodies in vec((any::<bool>(), bytes(300)), 0..6),
    ) {
        let (server, client) = configs(name, false);
        let (ours, theirs) = if as_server { (server, client) } else { (client, server) };
        let mut wire = Vec::new();
        Handshake::new(theirs).start(&mut wire);
        for (framed, body) in bodies {
            if framed { frame::encode(&mut wire, frame::COMMAND, &body) } else { wire.extend_from_slice(&body) }
        }
        let mut end = Handshake::new(ours);
        let (mut out, mut first) = (Vec::new(), None);
        for byte in wire {
            match (end.input(&[byte], &mut out), &first) {
                (Err(error), None) => first = Some(error),
                (result, Some(error)) => prop_assert_eq!(result, Err(error.clone()), "an end that failed stays so"),
                (Ok(_), None) => {}
            }
        }
        prop_assert!(end.status() != Status::Done, "nobody says READY by chance");
    }
}
