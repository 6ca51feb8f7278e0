//! Either end of each mechanism. The input is a program: what the other end really says, changed or not;
//! commands that are made up; bytes that are nothing at all; and where all of that is cut.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ropewalk_zmtp::{Config, Handshake, Mechanism, SocketType, Status, ZapConfig, curve_public, frame};

const SERVER: [u8; 32] = [7; 32];
const CLIENT: [u8; 32] = [9; 32];

fn mechanisms(which: u8) -> (Mechanism, Mechanism) {
    match which % 3 {
        0 => (Mechanism::Null, Mechanism::Null),
        1 => (
            Mechanism::PlainServer,
            Mechanism::PlainClient { username: b"ada".to_vec(), password: b"lovelace".to_vec() },
        ),
        _ => (
            Mechanism::CurveServer { public: curve_public(&SERVER), secret: SERVER },
            Mechanism::CurveClient {
                server: curve_public(&SERVER),
                public: curve_public(&CLIENT),
                secret: CLIENT,
            },
        ),
    }
}

fuzz_target!(|program: &[u8]| {
    let Some((&choice, mut program)) = program.split_first() else { return };
    let (server, client) = mechanisms(choice);
    let (mut ours, theirs) =
        (Config::new(SocketType::Dealer, server), Config::new(SocketType::Dealer, client));
    ours.zap = (choice & 0x40 != 0).then(ZapConfig::default);
    let (ours, theirs) = if choice & 0x80 == 0 { (ours, theirs) } else { (theirs, ours) };
    let (mut end, mut honest) = (Handshake::new(ours), Handshake::new(theirs));
    let (mut to_end, mut to_honest) = (Vec::new(), Vec::new());
    end.start(&mut to_honest);
    honest.start(&mut to_end);
    let mut failed = None;
    while let Some(([what, size], after)) = program.split_first_chunk() {
        let (bytes, after) = after.split_at(usize::from(*size).min(after.len()));
        program = after;
        match what % 6 {
            // The honest end's answer to all that it has received.
            0 => {
                let said = std::mem::take(&mut to_honest);
                let _ = honest.input(&said, &mut to_end);
            }
            1 => {
                for (at, change) in bytes.iter().enumerate() {
                    let len = to_end.len().max(1);
                    if let Some(byte) = to_end.get_mut(at * 31 % len) {
                        *byte ^= change;
                    }
                }
            }
            2 => frame::encode(&mut to_end, frame::COMMAND, bytes),
            3 => to_end.extend_from_slice(bytes),
            4 if end.status() == Status::WantsZap => {
                assert!(end.zap_request().is_some_and(|frames| frames[0].is_empty() && frames.len() >= 7));
                let reply = ["", "1.0", "", "200", "", "", ""].map(|text| text.as_bytes().to_vec());
                if bytes.is_empty() {
                    end.answer_zap(&reply, &mut to_honest).expect("let in");
                }
            }
            _ => {}
        }
        let cut = if what & 0x80 == 0 { to_end.len() } else { usize::from(*size).min(to_end.len()) };
        match (end.input(&to_end[..cut], &mut to_honest), &failed) {
            (Ok(taken), None) => {
                assert!(taken == cut || end.status() != Status::Going);
                to_end.drain(..taken);
            }
            (Err(error), None) => failed = Some(error),
            (result, Some(error)) => assert_eq!(result, Err(error.clone())),
        }
    }
    if end.status() == Status::Done {
        assert_eq!(end.finish().socket_type, SocketType::Dealer);
    }
});
