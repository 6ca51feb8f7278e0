//! Whatever is put in and however much the kernel takes: what was sent is the stream's start, and every message of
//! which nothing was sent is recovered.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Act {
    /// A message; of each part its size, and whether it has an owner.
    Message(Vec<(usize, bool)>),
    Command(usize),
    Took(u64),
    PopFrame,
    DropUnsent,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let size = prop_oneof![4 => 0_usize..300, 1 => 8_000_usize..9_000];
    let act = prop_oneof![
        3 => vec((size, any::<bool>()), 1..4).prop_map(Act::Message),
        1 => (1_usize..40).prop_map(Act::Command),
        3 => (1_u64..12_000).prop_map(Act::Took),
        1 => Just(Act::PopFrame),
        1 => Just(Act::DropUnsent),
    ];
    vec(act, 0..24)
}

/// Where a frame begins and ends in the stream, and its message, if it is a part of one.
struct Span {
    start: u64,
    end: u64,
    message: Option<usize>,
}

proptest! {
    #[test]
    fn what_was_not_begun_is_recovered(acts in acts()) {
        let (mut outgoing, mut spare) = (Outgoing::default(), Vec::new());
        let (mut stream, mut spans, mut messages) = (Vec::new(), Vec::<Span>::new(), Vec::<Vec<u8>>::new());
        let mut sent = 0_u64;
        for act in acts {
            match act {
                Act::Message(parts) => {
                    outgoing.borrow_room(&mut spare);
                    let mut encoded = Vec::new();
                    for (place, (size, is_shared)) in parts.iter().enumerate() {
                        let more = place + 1 < parts.len();
                        let owner = Bytes::from(vec![messages.len() as u8; *size]);
                        let shared = is_shared.then_some(&owner);
                        outgoing.push(&Out { bytes: &owner, shared, is_lent: false, routing_id: 0, group: "" }, more);
                        let start = (stream.len() + encoded.len()) as u64;
                        frame::encode(&mut encoded, if more { MORE } else { 0 }, &owner);
                        let end = (stream.len() + encoded.len()) as u64;
                        spans.push(Span { start, end, message: Some(messages.len()) });
                    }
                    stream.extend_from_slice(&encoded);
                    messages.push(encoded);
                }
                Act::Command(size) => {
                    let start = stream.len() as u64;
                    let mut framed = Vec::new();
                    frame::encode(&mut framed, frame::COMMAND, &vec![1; size]);
                    outgoing.push_plain(&framed);
                    stream.extend_from_slice(&framed);
                    spans.push(Span { start, end: stream.len() as u64, message: None });
                }
                Act::Took(count) => {
                    // What a flush would have handed to the kernel.
                    prop_assert_eq!(outgoing.remaining(), &stream[sent as usize..]);
                    let count = count.min(outgoing.bytes());
                    if count > 0 {
                        outgoing.took(count as usize);
                        sent += count;
                    }
                    outgoing.return_room(&mut spare);
                }
                Act::DropUnsent => {
                    outgoing.drop_unsent();
                    let is_begun = |span: &Span| {
                        let first = spans.iter().find(|first| first.message == span.message);
                        span.message.is_none() || first.is_some_and(|first| first.start < sent)
                    };
                    let (mut kept, mut shorter) = (Vec::new(), Vec::new());
                    for span in spans.iter().filter(|span| is_begun(span)) {
                        let start = shorter.len() as u64;
                        shorter.extend_from_slice(&stream[span.start as usize..span.end as usize]);
                        kept.push(Span { start, end: shorter.len() as u64, message: span.message });
                    }
                    (spans, stream) = (kept, shorter);
                    prop_assert_eq!(outgoing.remaining(), &stream[sent as usize..]);
                }
                Act::PopFrame => {
                    // An encrypting session takes whole frames only, from the first on.
                    if let Some(span) = spans.iter().find(|span| span.start == sent) {
                        let mut body = Vec::new();
                        let flags = outgoing.pop_frame(&mut body);
                        let mut again = Vec::new();
                        frame::encode(&mut again, flags.expect("there is one"), &body);
                        prop_assert_eq!(&again[..], &stream[span.start as usize..span.end as usize]);
                        sent = span.end;
                    }
                }
            }
            prop_assert_eq!(outgoing.bytes(), stream.len() as u64 - sent);
            prop_assert_eq!(outgoing.is_empty(), sent == stream.len() as u64);
        }
        let first_of = |message: usize| spans.iter().find(|span| span.message == Some(message));
        let expected: Vec<u8> = (0..messages.len())
            .filter(|message| first_of(*message).is_some_and(|span| span.start >= sent))
            .flat_map(|message| messages[message].clone())
            .collect();
        let whole = (0..messages.len())
            .filter(|message| spans.iter().rev().find(|span| span.message == Some(*message))
                .is_some_and(|span| span.end > sent))
            .count();
        // A command behind a message counts as its end, so one more may be counted than is not sent.
        prop_assert!((whole..=whole + 1).contains(&outgoing.messages()), "{} of {whole}", outgoing.messages());
        let kept = outgoing.recover();
        prop_assert_eq!(kept.remaining(), expected);
    }
}
