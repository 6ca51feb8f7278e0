//! The fuzz targets' access to private parts of this crate.

use crate::incoming::Incoming;

/// Passes a peer's bytes, in pieces, through the reader of frames. The first byte of each piece is its length.
pub fn incoming(mut input: &[u8]) {
    let (mut incoming, mut fed, mut taken) = (Incoming::default(), 0, 0);
    while let Some((&length, rest)) = input.split_first() {
        let (piece, rest) = rest.split_at(rest.len().min(usize::from(length)));
        input = rest;
        incoming.feed(piece, false);
        fed += piece.len();
        if incoming.scan(Some(1 << 16)).is_err() {
            incoming.cut();
            input = &[];
        }
        while let Some(command) = incoming.take_command() {
            assert!(command.len() <= fed);
        }
        for step in 0.. {
            let peeked = incoming.peek().map(|(bytes, more)| (bytes.len(), more));
            let part = match step % 3 {
                0 => incoming.take_frame().map(|frame| (frame.bytes().len(), frame.more())),
                1 => incoming.take_with(|bytes, more| (bytes.len(), more)),
                _ if length.is_multiple_of(2) => {
                    incoming.skip_message();
                    continue;
                }
                _ => incoming.take_with(|bytes, more| (bytes.len(), more)),
            };
            assert_eq!(peeked, part);
            let Some((length, _)) = part else { break };
            taken += length + 2;
        }
        assert!(taken <= fed && incoming.messages() == 0 && incoming.held() <= fed);
    }
}
