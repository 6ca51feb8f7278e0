//! Known attacks of peers.

mod conversation;

use conversation::configs;
use ropewalk_zmtp::{
    CommandError, CurveSession, FrameError, Handshake, HandshakeError, Session, SessionError, Status, Step,
    frame,
};

const ALL: [&str; 3] = ["NULL", "PLAIN", "CURVE"];

/// A server that has received the greeting of a client.
fn greeted(name: &str) -> Handshake {
    let (server, client) = configs(name, false);
    let (mut server, mut greeting) = (Handshake::new(server), Vec::new());
    Handshake::new(client).start(&mut greeting);
    assert_eq!(server.input(&greeting, &mut Vec::new()), Ok(64));
    server
}

fn answer(name: &str, bytes: &[u8]) -> Result<usize, HandshakeError> {
    greeted(name).input(bytes, &mut Vec::new())
}

fn command(name: &str, body: &[u8]) -> Result<usize, HandshakeError> {
    let mut wire = Vec::new();
    frame::encode(&mut wire, frame::COMMAND, body);
    answer(name, &wire)
}

// CVE-2019-6250: a size near 2^64 overflowed the pointer to the end of the message.
#[test]
fn a_size_that_would_overflow() {
    for name in ALL {
        let frame = [[6, 0xFF].as_slice(), &[0xFF; 7]].concat();
        assert_eq!(answer(name, &frame), Err(HandshakeError::Frame(FrameError::Size { size: u64::MAX })));
        let frame = [[6, 0x7F].as_slice(), &[0xFF; 7]].concat();
        assert_eq!(answer(name, &frame), Err(HandshakeError::TooLong { size: i64::MAX as u64 }));
    }
}

// CVE-2019-13132: metadata longer than a fixed buffer, before anything was authenticated.
#[test]
fn a_command_longer_than_any() {
    for name in ALL {
        for size in [16 * 1024 + 1, 1 << 20, 1 << 32] {
            let header = [[6].as_slice(), &u64::to_be_bytes(size)].concat();
            assert_eq!(
                answer(name, &header),
                Err(HandshakeError::TooLong { size }),
                "{name}: by the header alone"
            );
        }
        let long = [b"\x08INITIATE".as_slice(), &vec![b'x'; 16 * 1024 - 9]].concat();
        assert_eq!(
            command(name, &long),
            Err(HandshakeError::Unexpected { name: "INITIATE".into() }),
            "{name}"
        );
    }
}

// CVE-2020-15166: a client that says nothing, or nothing whole, kept others waiting. An end without a socket cannot be
// waited for; what it can do is keep little, and not answer.
#[test]
fn a_client_that_stops_half_way() {
    for name in ALL {
        let (server, client) = configs(name, false);
        let mut greeting = Vec::new();
        Handshake::new(client).start(&mut greeting);
        for len in 0..64 {
            let (mut server, mut out) = (Handshake::new(server.clone()), Vec::new());
            assert_eq!(server.input(&greeting[..len], &mut out), Ok(len));
            assert_eq!((server.status(), out.as_slice()), (Status::Going, b"".as_slice()));
        }
        assert_eq!(answer(name, &[4, 200, 5]), Ok(3));
    }
    assert_eq!(
        Handshake::new(configs("NULL", false).0).input(b"GET / HTTP/1.1\r\n", &mut Vec::new()),
        Err(HandshakeError::Greeting)
    );
}

#[test]
fn a_message_before_its_time() {
    for name in ALL {
        assert_eq!(answer(name, b"\x00\x05hello"), Err(HandshakeError::Message));
        assert_eq!(answer(name, b"\x01\x05"), Err(HandshakeError::Message));
        assert_eq!(answer(name, b"\x05"), Err(HandshakeError::Frame(FrameError::CommandWithMore)));
        assert_eq!(answer(name, b"\x08"), Err(HandshakeError::Frame(FrameError::Reserved { flags: 8 })));
    }
}

#[test]
fn commands_that_do_not_belong_here() {
    for name in ALL {
        for other in ["PING", "SUBSCRIBE", "WELCOME", "MESSAGE", "ready", "X"] {
            let body = [&[other.len() as u8], other.as_bytes(), &[0; 8]].concat();
            assert_eq!(
                command(name, &body),
                Err(HandshakeError::Unexpected { name: other.into() }),
                "{name}"
            );
        }
        assert_eq!(command(name, b""), Err(HandshakeError::Command(CommandError::Nameless)));
        assert_eq!(command(name, b"\x00"), Err(HandshakeError::Command(CommandError::Nameless)));
        assert_eq!(command(name, b"\x09READY"), Err(HandshakeError::Command(CommandError::Name)));
        assert_eq!(command(name, b"\x05ERROR"), Err(HandshakeError::Command(CommandError::Reason)));
        assert_eq!(command(name, b"\x05ERROR\x09400"), Err(HandshakeError::Command(CommandError::Reason)));
        assert_eq!(
            command(name, b"^RROR\x03400"),
            Err(HandshakeError::Command(CommandError::Name)),
            "to clients only"
        );
    }
}

#[test]
fn plain_credentials_cut_short() {
    for data in ["", "\u{1}", "\u{3}ada", "\u{3}ada\u{2}x", "\u{3}ada\u{1}xy", "\u{7f}ada\u{1}x"] {
        let body = [b"\x05HELLO", data.as_bytes()].concat();
        assert_eq!(command("PLAIN", &body), Err(HandshakeError::Malformed(Step::Hello)), "{data:?}");
    }
    assert_eq!(command("PLAIN", b"\x05HELLO\x00\x00"), Ok(10), "both may be empty");
}

#[test]
fn a_step_taken_twice() {
    let mut server = greeted("PLAIN");
    let hello = b"\x04\x08\x05HELLO\x00\x00";
    assert_eq!(server.input(hello, &mut Vec::new()), Ok(10));
    let error = HandshakeError::Unexpected { name: "HELLO".into() };
    assert_eq!(server.input(hello, &mut Vec::new()), Err(error));
}

#[test]
fn curve_commands_of_the_wrong_length() {
    for len in [0, 1, 193, 195, 1000] {
        let mut body = b"\x05HELLO".to_vec();
        body.resize(6 + len, 1);
        assert_eq!(command("CURVE", &body), Err(HandshakeError::Malformed(Step::Hello)), "{len}");
    }
    let mut body = b"\x05HELLO\x02\x00".to_vec();
    body.resize(200, 0);
    assert_eq!(command("CURVE", &body), Err(HandshakeError::Malformed(Step::Hello)), "another version");
    body[6] = 1;
    assert_eq!(
        command("CURVE", &body),
        Err(HandshakeError::Cryptographic(Step::Hello)),
        "a key that is none"
    );
    body[6 + 74] = 9;
    assert_eq!(
        command("CURVE", &body),
        Err(HandshakeError::Cryptographic(Step::Hello)),
        "a box that is none"
    );
}

/// What both ends of CURVE say, turn by turn: the client's commands and the server's.
fn eavesdrop(mut change: impl FnMut(usize, &mut Vec<u8>)) -> (Handshake, Handshake, Option<HandshakeError>) {
    let (server, client) = configs("CURVE", false);
    let mut ends = [Handshake::new(server), Handshake::new(client)];
    let (mut greetings, mut out) = ([Vec::new(), Vec::new()], Vec::new());
    for (end, greeting) in ends.iter_mut().zip(&mut greetings) {
        end.start(greeting);
    }
    ends[0].input(&greetings[1], &mut out).expect("a greeting");
    ends[1].input(&greetings[0], &mut out).expect("a greeting");
    let mut error = None;
    for turn in 0..4 {
        let mut said = std::mem::take(&mut out);
        change(turn, &mut said);
        error = error.or(ends[turn % 2].input(&said, &mut out).err());
    }
    let [server, client] = ends;
    (server, client, error)
}

#[test]
fn whatever_is_changed_on_the_way_is_noticed() {
    let mut lengths = [0; 4];
    let (server, client, _) = eavesdrop(|turn, said| lengths[turn] = said.len());
    assert_eq!((server.status(), client.status()), (Status::Done, Status::Done));
    assert_eq!(lengths[..2], [202, 170], "HELLO and WELCOME with their headers");
    for (turn, len) in lengths.into_iter().enumerate() {
        // The padding and the minor version of HELLO say nothing.
        let start = if turn == 0 { 2 + 6 + 2 + 72 } else { 0 };
        for at in (start..len).step_by(3) {
            let (server, client, error) = eavesdrop(|now, said| {
                if now == turn {
                    said[at] ^= 0x10;
                }
            });
            let receiver = if turn % 2 == 0 { server } else { client };
            assert_ne!(receiver.status(), Status::Done, "turn {turn}, byte {at}");
            // A header that claims more makes it wait; anything else is an error.
            assert!(error.is_some() || at < 9, "turn {turn}, byte {at}");
        }
    }
}

#[test]
fn an_initiate_is_of_its_own_connection() {
    let mut first = Vec::new();
    eavesdrop(|turn, said| {
        if turn == 2 {
            first.clone_from(said);
        }
    });
    let (server, _, error) = eavesdrop(|turn, said| {
        if turn == 2 {
            said.clone_from(&first);
        }
    });
    assert_ne!(server.status(), Status::Done);
    assert_eq!(error, Some(HandshakeError::Cryptographic(Step::Initiate)), "the cookie is another's");
}

fn sessions() -> (CurveSession, CurveSession) {
    let (server, client, _) = eavesdrop(|_, _| ());
    match (server.finish().session, client.finish().session) {
        (Session::Curve(server), Session::Curve(client)) => (*server, *client),
        other => panic!("{other:?}"),
    }
}

#[test]
fn messages_are_taken_once_and_in_order() {
    let (mut server, mut client) = sessions();
    let frames: Vec<Vec<u8>> = (0..3)
        .map(|number| {
            let mut wire = Vec::new();
            server.encrypt(0, &[number], &mut wire);
            wire.split_off(2)
        })
        .collect();
    let mut plain = Vec::new();
    assert_eq!(client.decrypt(&frames[0], &mut plain), Ok(0));
    assert_eq!(client.decrypt(&frames[0], &mut plain), Err(SessionError::Nonce), "repeated");
    assert_eq!(client.decrypt(&frames[2], &mut plain), Ok(0), "one is missing, which TCP does not do");
    assert_eq!(client.decrypt(&frames[1], &mut plain), Err(SessionError::Nonce), "late");
    assert_eq!(
        server.decrypt(&frames[2], &mut plain),
        Err(SessionError::Cryptographic),
        "sent back to its sender"
    );
    assert_eq!(plain, [0, 2]);
}

#[test]
fn what_is_no_message() {
    let (_, mut client) = sessions();
    let bodies: [&[u8]; 4] =
        [b"", b"hello", b"\x07MESSAGE", b"\x07MESSAGE\0\0\0\0\0\0\0\x09sixteen byte tag"];
    for body in bodies {
        assert_eq!(client.decrypt(body, &mut Vec::new()), Err(SessionError::Malformed), "{body:?}");
    }
}
