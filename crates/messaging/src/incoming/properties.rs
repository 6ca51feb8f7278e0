//! However the bytes of a stream are split, the same messages and commands come out.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// One frame of a stream: flags and body.
fn frames() -> impl Strategy<Value = Vec<(u8, Vec<u8>)>> {
    let body = prop_oneof![vec(any::<u8>(), 0..20), vec(any::<u8>(), 70..75), vec(any::<u8>(), 250..300)];
    vec((prop_oneof![Just(0), Just(MORE), Just(COMMAND)], body), 0..24)
}

/// What a program would see: the parts of whole messages, and the commands.
type Seen = (Vec<(Vec<u8>, bool)>, Vec<Vec<u8>>);

fn expected(frames: &[(u8, Vec<u8>)]) -> Seen {
    let (mut parts, mut commands, mut open) = (Vec::new(), Vec::new(), Vec::new());
    for (flags, body) in frames {
        if flags & COMMAND != 0 {
            commands.push(body.clone());
            continue;
        }
        open.push((body.clone(), flags & MORE != 0));
        if flags & MORE == 0 {
            parts.append(&mut open);
        }
    }
    (parts, commands)
}

/// Takes whole messages by one of the ways there are.
fn take(incoming: &mut Incoming, way: u8, parts: &mut Vec<(Vec<u8>, bool)>) {
    while incoming.messages() > 0 {
        let peeked = incoming.peek().map(|(bytes, more)| (bytes.to_vec(), more));
        let part = if way.is_multiple_of(2) {
            incoming.take_frame().map(|frame| (frame.bytes().to_vec(), frame.more()))
        } else {
            incoming.take_with(|bytes, more| (bytes.to_vec(), more))
        };
        assert_eq!(peeked, part);
        parts.extend(part);
    }
}

proptest! {
    #[test]
    fn any_split_gives_the_same_messages(frames in frames(), cuts in vec((0_usize..8_000, any::<u8>()), 0..12)) {
        let mut bytes = Vec::new();
        for (flags, body) in &frames {
            frame::encode(&mut bytes, *flags, body);
        }
        let mut cuts: Vec<_> = cuts.into_iter().map(|(at, way)| (at % (bytes.len() + 1), way)).collect();
        cuts.extend([(0, 0), (bytes.len(), 1)]);
        cuts.sort_unstable();
        let (mut incoming, mut spare) = (Incoming::default(), BytesMut::new());
        let (mut parts, mut commands) = (Vec::new(), Vec::new());
        for pair in cuts.windows(2) {
            incoming.borrow_room(&mut spare);
            incoming.feed(&bytes[pair[0].0..pair[1].0], false);
            incoming.scan(None).expect("good frames");
            let way = pair[1].1;
            if way & 2 == 0 {
                take(&mut incoming, way, &mut parts);
            }
            while let Some(command) = incoming.take_command() {
                commands.push(command);
            }
            if way & 4 == 0 {
                take(&mut incoming, way, &mut parts);
            }
            incoming.return_room(&mut spare);
        }
        // The connection breaks: what is not whole is gone, and nothing else.
        let whole = incoming.messages();
        incoming.cut();
        prop_assert_eq!(incoming.messages(), whole);
        take(&mut incoming, 1, &mut parts);
        prop_assert_eq!((parts, commands), expected(&frames));
        prop_assert_eq!(incoming.held(), 0);
    }

    #[test]
    fn any_bytes_are_refused_or_understood(bytes in vec(any::<u8>(), 0..600), cut in 0_usize..600) {
        let cut = cut.min(bytes.len());
        let mut incoming = Incoming::default();
        for piece in [&bytes[..cut], &bytes[cut..]] {
            incoming.feed(piece, false);
            if incoming.scan(Some(1 << 16)).is_err() {
                break;
            }
        }
        let mut parts = Vec::new();
        take(&mut incoming, 0, &mut parts);
        prop_assert!(parts.iter().map(|(body, _)| body.len() + 2).sum::<usize>() <= bytes.len());
    }
}
