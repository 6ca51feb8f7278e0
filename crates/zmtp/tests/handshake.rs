//! Both ends of each mechanism, driven against each other.

mod conversation;

use conversation::{configs, ends, reply, talk};
use ropewalk_zmtp::{
    Config, ErrorKind, Handshake, HandshakeError, Mechanism, Peer, Session, SocketType, Status, code,
    curve_keypair, frame,
};

const ALL: [&str; 3] = ["NULL", "PLAIN", "CURVE"];

fn whole(len: usize) -> usize {
    len
}

fn peers(name: &str, zap: bool) -> (Peer, Peer) {
    let (server, client) = configs(name, zap);
    let (server, client) = talk(server, client, "200", whole);
    (client.expect("a client").finish(), server.expect("a server").finish())
}

/// What both ends say of a handshake that fails.
fn failure(server: Config, client: Config, status: &str) -> (Option<HandshakeError>, Option<HandshakeError>) {
    let (server, client) = talk(server, client, status, whole);
    (server.err(), client.err())
}

#[test]
fn ends_know_each_other() {
    for name in ALL {
        let (router, dealer) = peers(name, false);
        assert_eq!(
            (router.socket_type, router.minor, router.user_id),
            (SocketType::Router, 1, None),
            "{name}"
        );
        assert_eq!(
            (dealer.socket_type, dealer.identity.as_slice()),
            (SocketType::Dealer, b"dealer".as_slice())
        );
        assert!(dealer.properties.contains(&("X-Colour".into(), b"red".to_vec())), "{name}");
        assert_eq!(dealer.user_id, None);
    }
}

#[test]
fn the_handler_tells_of_the_peer() {
    for name in ALL {
        let (_, dealer) = peers(name, true);
        assert_eq!(dealer.user_id.as_deref(), Some(b"user".as_slice()), "{name}");
        assert!(dealer.properties.contains(&("User-Id".into(), b"user".to_vec())));
        assert!(dealer.properties.contains(&("X-Age".into(), b"42".to_vec())));
    }
}

#[test]
fn the_handler_gets_the_credentials() {
    for (name, credentials) in [("NULL", vec![]), ("PLAIN", vec![b"ada".to_vec(), b"lovelace".to_vec()])] {
        let (router, dealer) = configs(name, true);
        let (mut router, mut dealer) = (Handshake::new(router), Handshake::new(dealer));
        let (mut there, mut back) = (Vec::new(), Vec::new());
        dealer.start(&mut there);
        router.start(&mut back);
        let silence = back.len();
        dealer.input(&back, &mut there).expect("the greeting");
        let taken = router.input(&there, &mut back).expect("the greeting, and what follows");
        assert_eq!(router.status(), Status::WantsZap, "{name}");
        assert_eq!(back.len(), silence, "{name}: nothing is said before the handler has judged");
        assert!(name != "NULL" || taken == 64, "READY is left for later");
        let mut frames: Vec<Vec<u8>> = ["", "1.0", "1", "domain", "127.0.0.1", "router", name]
            .map(|text| text.as_bytes().to_vec())
            .into();
        frames.extend(credentials);
        assert_eq!(router.zap_request(), Some(frames));
        assert_eq!(router.input(&there[taken..], &mut back), Ok(0), "{name}: and nothing is read");
    }
}

#[test]
fn the_handler_gets_the_key() {
    let (public, secret) = curve_keypair();
    let (mut router, mut dealer) = configs("CURVE", true);
    let Mechanism::CurveServer { public: server, .. } = &router.mechanism else { panic!("a server") };
    dealer.mechanism = Mechanism::CurveClient { server: *server, public, secret };
    router.identity = b"r".to_vec();
    let (mut router, mut dealer) = (Handshake::new(router), Handshake::new(dealer));
    let (mut there, mut back) = (Vec::new(), Vec::new());
    dealer.start(&mut there);
    router.start(&mut back);
    while router.status() == Status::Going {
        dealer.input(&std::mem::take(&mut back), &mut there).expect("the server speaks");
        router.input(&std::mem::take(&mut there), &mut back).expect("the client speaks");
    }
    let request = router.zap_request().expect("the handler is asked");
    assert_eq!(request[6..], [b"CURVE".to_vec(), public.to_vec()]);
    assert_eq!(dealer.status(), Status::Going);
}

#[test]
fn a_refusal_reaches_the_peer() {
    for name in ALL {
        for status in [400, 500] {
            let (server, client) = configs(name, true);
            let (server, client) = failure(server, client, &status.to_string());
            assert_eq!(server, Some(HandshakeError::Denied { status, text: "text".into() }), "{name}");
            assert_eq!(client, Some(HandshakeError::Refused { reason: status.to_string() }), "{name}");
            assert_eq!(client.map(|error| error.kind()), Some(ErrorKind::Auth(status)));
        }
    }
}

#[test]
fn plain_understands_a_refusal_in_either_spelling() {
    for refusal in [b"\x05ERROR\x03400".as_slice(), b"^RROR\x03400"] {
        let (server, client) = configs("PLAIN", false);
        let (mut server, mut client) = (Handshake::new(server), Handshake::new(client));
        let (mut back, mut out) = (Vec::new(), Vec::new());
        server.start(&mut back);
        frame::encode(&mut back, frame::COMMAND, refusal);
        let error = client.input(&back, &mut out).expect_err("a refusal");
        assert_eq!(error, HandshakeError::Refused { reason: "400".into() });
        assert_eq!(client.input(b"", &mut out), Err(error), "it stays refused");
    }
}

// libzmq's clients know the one name with PLAIN, and the other with the rest.
#[test]
fn a_refusal_is_spelt_as_libzmq_spells_it() {
    for name in ALL {
        let (server, client) = configs(name, true);
        let (mut server, mut client) = (Handshake::new(server), Handshake::new(client));
        let (mut there, mut back) = (Vec::new(), Vec::new());
        client.start(&mut there);
        server.start(&mut back);
        while server.status() == Status::Going {
            client.input(&std::mem::take(&mut back), &mut there).expect("the server speaks");
            server.input(&std::mem::take(&mut there), &mut back).expect("the client speaks");
        }
        let mut out = Vec::new();
        assert!(server.answer_zap(&reply("400"), &mut out).is_err(), "{name}");
        let expected =
            if name == "PLAIN" { b"\x04\x09^RROR\x03400".as_slice() } else { b"\x04\x0A\x05ERROR\x03400" };
        assert_eq!(out, expected, "{name}");
    }
}

#[test]
fn a_refusal_for_now_is_silent() {
    for name in ALL {
        let (server, client) = configs(name, true);
        let (server, client) = failure(server, client, "300");
        assert_eq!(server.map(|error| error.kind()), Some(ErrorKind::Auth(300)), "{name}");
        assert_eq!(client, None, "{name}");
    }
}

#[test]
fn a_malformed_reply_admits_no_peer() {
    for name in ALL {
        let (server, client) = configs(name, true);
        let (server, client) = failure(server, client, "201");
        let kind = server.map(|error| error.kind());
        assert_eq!(kind, Some(ErrorKind::Protocol(code::ZAP_INVALID_STATUS_CODE)), "{name}");
        assert_eq!(client, None, "{name}");
    }
}

#[test]
fn mechanisms_must_be_the_same() {
    for ours in ALL {
        for theirs in ALL.into_iter().filter(|theirs| *theirs != ours) {
            let (server, _) = configs(ours, false);
            let (_, client) = configs(theirs, false);
            let (server, client) = failure(server, client, "200");
            assert_eq!(server, Some(HandshakeError::Mechanism { ours, theirs: theirs.into() }));
            assert_eq!(client, Some(HandshakeError::Mechanism { ours: theirs, theirs: ours.into() }));
        }
    }
}

#[test]
fn one_end_is_the_server() {
    for name in ["PLAIN", "CURVE"] {
        let config = |mechanism| Config::new(SocketType::Pair, mechanism);
        let (server, client) = failure(config(ends(name).0), config(ends(name).0), "200");
        assert_eq!(
            (&server, &client),
            (&Some(HandshakeError::TwoServers), &Some(HandshakeError::TwoServers))
        );
        let (server, _) = failure(config(ends(name).1), config(ends(name).1), "200");
        assert_eq!(server, Some(HandshakeError::Unexpected { name: "HELLO".into() }), "{name}");
    }
}

#[test]
fn sockets_must_suit_each_other() {
    for name in ALL {
        let (mut server, client) = configs(name, false);
        server.socket_type = SocketType::Push;
        let (server, client) = failure(server, client, "200");
        let (ours, theirs) = (SocketType::Push, SocketType::Dealer);
        assert_eq!(server, Some(HandshakeError::Incompatible { ours, theirs }), "{name}");
        if name == "NULL" {
            assert_eq!(client, Some(HandshakeError::Incompatible { ours: theirs, theirs: ours }));
        } else {
            assert_eq!(client, None, "{name}: the server has not said READY");
        }
    }
}

#[test]
fn keys_must_be_right() {
    let (server, _) = configs("CURVE", false);
    let (_, client) = configs("CURVE", false); // Of another server.
    let (server, client) = failure(server, client, "200");
    assert_eq!(server.map(|error| error.kind()), Some(ErrorKind::Protocol(code::ZMTP_CRYPTOGRAPHIC)));
    assert_eq!(client, None);

    // A client that claims a public key whose secret it does not have cannot vouch for it.
    let (server, mut client) = configs("CURVE", false);
    let Mechanism::CurveClient { server: key, secret, .. } = &client.mechanism else { panic!("a client") };
    client.mechanism = Mechanism::CurveClient { server: *key, public: curve_keypair().0, secret: *secret };
    let (server, _) = failure(server, client, "200");
    assert_eq!(server.map(|error| error.kind()), Some(ErrorKind::Protocol(code::ZMTP_CRYPTOGRAPHIC)));

    // A server whose key is the one that everybody shares a secret with.
    let (server, mut client) = configs("CURVE", false);
    let (public, secret) = curve_keypair();
    client.mechanism = Mechanism::CurveClient { server: [0; 32], public, secret };
    let (_, client) = failure(server, client, "200");
    assert_eq!(client.map(|error| error.kind()), Some(ErrorKind::Protocol(code::ZMTP_CRYPTOGRAPHIC)));
}

#[test]
fn what_follows_the_handshake_is_left() {
    for name in ALL {
        let (server, client) = configs(name, false);
        let (mut server, mut client) = (Handshake::new(server), Handshake::new(client));
        let (mut there, mut back) = (Vec::new(), Vec::new());
        client.start(&mut there);
        server.start(&mut back);
        for _ in 0..4 {
            let taken = server.input(&there, &mut back).expect("the client speaks");
            there.drain(..taken);
            if server.status() == Status::Done {
                frame::encode(&mut back, 0, b"first message");
                break;
            }
            let taken = client.input(&back, &mut there).expect("the server speaks");
            back.drain(..taken);
        }
        assert_eq!(server.status(), Status::Done, "{name}");
        let taken = client.input(&back, &mut there).expect("the server speaks");
        assert_eq!(back[taken..], *b"\x00\x0dfirst message", "{name}");
        assert_eq!(client.status(), Status::Done, "{name}");
        assert_eq!(client.input(&back[taken..], &mut there), Ok(0), "{name}");
    }
}

#[test]
fn sessions_carry_what_was_said() {
    let (router, dealer) = peers("CURVE", false);
    let (Session::Curve(mut to_router), Session::Curve(mut to_dealer)) = (router.session, dealer.session)
    else {
        panic!("CURVE encrypts")
    };
    for (flags, size) in [(frame::MORE, 0), (0, 1), (frame::COMMAND, 64), (0, 255), (0, 70_000)] {
        let body = vec![b'x'; size];
        let mut wire = b"before".to_vec();
        to_router.encrypt(flags, &body, &mut wire);
        let header = frame::parse_header(&wire[6..]).expect("well formed").expect("complete");
        assert_eq!(header.flags & !frame::LONG, 0);
        assert_eq!(header.size as usize, wire.len() - 6 - header.len);
        let mut plain = b"before".to_vec();
        assert_eq!(to_dealer.decrypt(&wire[6 + header.len..], &mut plain), Ok(flags));
        assert_eq!(plain[6..], body);
    }
}
