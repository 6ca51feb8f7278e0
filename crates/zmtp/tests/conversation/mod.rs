//! Two ends of a handshake that talk to each other, for several tests.

#![allow(dead_code, reason = "each test takes what it needs")]

use ropewalk_zmtp::{
    Config, Handshake, HandshakeError, Mechanism, SocketType, Status, ZapConfig, curve_keypair,
};

/// Both ends of a mechanism, the server first.
pub(crate) fn ends(name: &str) -> (Mechanism, Mechanism) {
    let (server, secret) = curve_keypair();
    let (public, client_secret) = curve_keypair();
    match name {
        "NULL" => (Mechanism::Null, Mechanism::Null),
        "PLAIN" => (
            Mechanism::PlainServer,
            Mechanism::PlainClient { username: b"ada".to_vec(), password: b"lovelace".to_vec() },
        ),
        "CURVE" => (
            Mechanism::CurveServer { public: server, secret },
            Mechanism::CurveClient { server, public, secret: client_secret },
        ),
        other => panic!("{other} is no mechanism"),
    }
}

/// A ROUTER that speaks as the server, and a DEALER that has an identity and metadata of its own.
pub(crate) fn configs(name: &str, zap: bool) -> (Config, Config) {
    let (server, client) = ends(name);
    let mut router = Config::new(SocketType::Router, server);
    router.zap = zap.then(|| ZapConfig {
        domain: b"domain".to_vec(),
        address: b"127.0.0.1".to_vec(),
        request_id: b"1".to_vec(),
        identity: b"router".to_vec(),
    });
    let mut dealer = Config::new(SocketType::Dealer, client);
    dealer.identity = b"dealer".to_vec();
    dealer.metadata = vec![("X-Colour".into(), b"red".to_vec())];
    (router, dealer)
}

/// A reply of a ZAP handler.
pub(crate) fn reply(status: &str) -> Vec<Vec<u8>> {
    ["", "1.0", "1", status, "text", "user", "\x05X-Age\0\0\0\x0242"]
        .map(|frame| frame.as_bytes().to_vec())
        .into()
}

/// What one end ended with.
pub(crate) type End = Result<Handshake, HandshakeError>;

/// Lets both ends talk until they are done, fail, or have nothing more to say; `cut` says how many of so many bytes
/// arrive next. What an end leaves over is given to it again, as a socket's owner does.
pub(crate) fn talk(
    server: Config,
    client: Config,
    status: &str,
    mut cut: impl FnMut(usize) -> usize,
) -> (End, End) {
    let mut ends = [Handshake::new(server), Handshake::new(client)];
    let mut wires = [Vec::new(), Vec::new()]; // What each end has still to read.
    let mut errors = [None, None];
    for (at, end) in ends.iter_mut().enumerate() {
        end.start(&mut wires[1 - at]);
    }
    let mut quiet = 0;
    while quiet < 2 {
        for at in 0..2 {
            quiet += 1;
            if errors[at].is_some() {
                continue;
            }
            let mut out = Vec::new();
            if ends[at].status() == Status::WantsZap {
                errors[at] = ends[at].answer_zap(&reply(status), &mut out).err();
                quiet = 0;
            } else if !wires[at].is_empty() && ends[at].status() == Status::Going {
                let len = cut(wires[at].len()).clamp(1, wires[at].len());
                match ends[at].input(&wires[at][..len], &mut out) {
                    Ok(taken) => drop(wires[at].drain(..taken)),
                    Err(error) => errors[at] = Some(error),
                }
                quiet = 0;
            }
            wires[1 - at].extend_from_slice(&out);
        }
    }
    let [first, second] = ends;
    let [first_error, second_error] = errors;
    (first_error.map_or(Ok(first), Err), second_error.map_or(Ok(second), Err))
}
