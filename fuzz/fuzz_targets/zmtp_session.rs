//! An encrypted session. The input is a program: frames that are sent as they are, changed, repeated or made
//! up. Nothing but what was sent is ever received, at most once, and in order.

#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use ropewalk_zmtp::{
    Config, CurveReceiver, CurveSender, Handshake, Mechanism, Session, SocketType, Status, curve_public,
    frame,
};

const SECRET: [u8; 32] = [7; 32];

/// A sender and the receiver of what it sends.
fn meet() -> (CurveSender, CurveReceiver) {
    let public = curve_public(&SECRET);
    let config = |mechanism| Config::new(SocketType::Pair, mechanism);
    let mut server = Handshake::new(config(Mechanism::CurveServer { public, secret: SECRET }));
    let mut client =
        Handshake::new(config(Mechanism::CurveClient { server: public, public, secret: SECRET }));
    let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
    server.start(&mut to_client);
    client.start(&mut to_server);
    while client.status() == Status::Going {
        server.input(&std::mem::take(&mut to_server), &mut to_client).expect("the client is honest");
        client.input(&std::mem::take(&mut to_client), &mut to_server).expect("the server is honest");
    }
    match (server.finish().session, client.finish().session) {
        (Session::Curve(server), Session::Curve(client)) => (server.split().0, client.split().1),
        _ => unreachable!("CURVE encrypts"),
    }
}

thread_local! {
    // A handshake takes longer than a program; a session goes on for ever.
    static SESSION: RefCell<(CurveSender, CurveReceiver)> = RefCell::new(meet());
}

fuzz_target!(|program: &[u8]| SESSION.with_borrow_mut(|(sender, receiver)| run(sender, receiver, program)));

fn run(sender: &mut CurveSender, receiver: &mut CurveReceiver, mut program: &[u8]) {
    let (mut wire, mut last, mut plain) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(([what, size], after)) = program.split_first_chunk() {
        let (bytes, after) = after.split_at(usize::from(*size).min(after.len()));
        program = after;
        plain.clear();
        let flags = [0, frame::MORE, frame::COMMAND][usize::from(what >> 4) % 3];
        match what % 4 {
            0 | 1 => {
                wire.clear();
                sender.encrypt(flags, bytes, &mut wire);
                let header = frame::parse_header(&wire).expect("well formed").expect("complete");
                let body = &mut wire[header.len..];
                if what % 4 == 1 {
                    let at = usize::from(what >> 2) % body.len();
                    body[at] ^= 1;
                    assert!(receiver.decrypt(body, &mut plain).is_err());
                    assert!(plain.is_empty());
                    body[at] ^= 1;
                }
                assert_eq!(receiver.decrypt(body, &mut plain), Ok(flags));
                assert_eq!(plain, bytes);
                last = body.to_vec();
            }
            2 => assert!(receiver.decrypt(&last, &mut plain).is_err()),
            _ => assert!(receiver.decrypt(bytes, &mut plain).is_err()),
        }
    }
}
