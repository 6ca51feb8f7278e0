//! Calls and answers as workers read and write them: pickles (protocol 5, PEP 574) of nothing but bytes.
//!
//! A worker's function is called with the form's number, the arguments' bytes and the metadata's. Beside them stand
//! the exceptions after which it is called again: none, because a tool that raised has answered. It returns bytes: the
//! number of a form and the result, or 0 and what is wrong with the arguments, as JSON. What a worker sends is not
//! trusted: everything else is an error.

use bytes::{Buf as _, Bytes};
use ropewalk_pool::Reply;
use ropewalk_pool::codec::Table;
use ropewalk_pool::wire::flags;

use crate::call::{Answer, Form};
use crate::failed::{Code, Failed, Violation};

const PROTO: [u8; 2] = [0x80, 5];
const FRAME: u8 = 0x95;
const BININT1: u8 = b'K';
const SHORT_BINBYTES: u8 = b'C';
const SHORT_BINUNICODE: u8 = 0x8c;
const BINBYTES: u8 = b'B';
const BINBYTES8: u8 = 0x8e;
const TUPLE3: u8 = 0x87;
const EMPTY_DICT: u8 = b'}';
const EMPTY_TUPLE: u8 = b')';
const MEMOIZE: u8 = 0x94;
const STOP: u8 = b'.';

/// The pickle of `((form, arguments, metadata), {}, ())`.
pub(crate) fn call(form: Form, arguments: &[u8], metadata: &[u8]) -> Vec<u8> {
    let mut pickle = Vec::with_capacity(arguments.len() + metadata.len() + 32);
    pickle.extend(PROTO);
    pickle.extend([BININT1, form as u8]);
    push(&mut pickle, arguments);
    push(&mut pickle, metadata);
    pickle.extend([TUPLE3, EMPTY_DICT, EMPTY_TUPLE, TUPLE3, STOP]);
    pickle
}

/// The pickle of `((), {}, name)`: what makes the state of a session, which is empty until its first call. A name is
/// at most 64 bytes long.
pub(crate) fn empty_state(name: &str) -> Vec<u8> {
    let mut pickle = PROTO.to_vec();
    pickle.extend([EMPTY_TUPLE, EMPTY_DICT, SHORT_BINUNICODE]);
    let name = name.as_bytes();
    let name = name.get(..name.len().min(64)).unwrap_or_default();
    pickle.push(name.len() as u8);
    pickle.extend_from_slice(name);
    pickle.extend([TUPLE3, STOP]);
    pickle
}

fn push(pickle: &mut Vec<u8>, bytes: &[u8]) {
    let length = bytes.len();
    if let Ok(short) = u8::try_from(length) {
        pickle.extend([SHORT_BINBYTES, short]);
    } else if let Ok(usual) = u32::try_from(length) {
        pickle.push(BINBYTES);
        pickle.extend(usual.to_le_bytes());
    } else {
        pickle.push(BINBYTES8);
        pickle.extend((length as u64).to_le_bytes());
    }
    pickle.extend_from_slice(bytes);
}

/// The bytes of a pickle of bytes; `None` if it is anything else.
fn pickled(mut pickle: Bytes) -> Option<Bytes> {
    if pickle.get(..2) != Some(&PROTO[..]) {
        return None;
    }
    pickle.advance(2);
    if pickle.first() == Some(&FRAME) {
        pickle = rest(pickle, 9)?;
    }
    let (header, length) = match *pickle.first()? {
        SHORT_BINBYTES => (2, u64::from(*pickle.get(1)?)),
        BINBYTES => (5, u64::from(u32::from_le_bytes(pickle.get(1..5)?.try_into().ok()?))),
        BINBYTES8 => (9, u64::from_le_bytes(pickle.get(1..9)?.try_into().ok()?)),
        _ => return None,
    };
    let length = usize::try_from(length).ok()?;
    let end = length.checked_add(header)?;
    let tail = pickle.get(end..)?;
    // Long bytes end their frame, and have one of their own behind them.
    let tail = if tail.first() == Some(&FRAME) { tail.get(9..)? } else { tail };
    (tail == [MEMOIZE, STOP] || tail == [STOP]).then(|| pickle.slice(header..end))
}

fn rest(bytes: Bytes, from: usize) -> Option<Bytes> {
    (bytes.len() >= from).then(|| bytes.slice(from..))
}

/// The stream of a reply: beside it there is nothing, because bytes are pickled within it.
fn stream(reply: &Reply) -> Result<Bytes, Failed> {
    if reply.flags & flags::DESCRIBED == 0 {
        return Ok(Bytes::copy_from_slice(&reply.bytes));
    }
    let strange = || Failed::new(Code::Internal, "the tool's worker has sent a result that cannot be read");
    let table = Table::parse(&reply.bytes).map_err(|_| strange())?;
    let entry = table.entry(0).ok_or_else(strange)?;
    if let Some(inline) = table.inline(&entry) {
        return Ok(Bytes::copy_from_slice(inline));
    }
    let segment = reply.segments.iter().find(|segment| segment.id() == entry.segment).ok_or_else(strange)?;
    segment.check(entry.generation).map_err(|_| strange())?;
    segment.copy_out(entry.offset, entry.length).map(Bytes::from).map_err(|_| strange())
}

/// What a reply that is no exception says.
pub(crate) fn answer(reply: &Reply) -> Result<Answer, Failed> {
    let strange = || Failed::new(Code::Internal, "the tool's worker has sent something that is no answer");
    if reply.flags & flags::EMPTY != 0 {
        return Err(strange());
    }
    opened(pickled(stream(reply)?).ok_or_else(strange)?)
}

/// What the bytes of an answer say.
pub(crate) fn opened(bytes: Bytes) -> Result<Answer, Failed> {
    let strange = || Failed::new(Code::Internal, "the tool's worker has sent something that is no answer");
    let kind = *bytes.first().ok_or_else(strange)?;
    let content = bytes.slice(1..);
    if kind == 0 {
        let violations: Vec<Violation> = serde_json::from_slice(&content).map_err(|_| strange())?;
        return Err(invalid(violations));
    }
    let form = Form::of(kind).ok_or_else(strange)?;
    Ok(Answer { form, bytes: content })
}

/// The arguments are wrong.
pub(crate) fn invalid(violations: Vec<Violation>) -> Failed {
    let texts: Vec<String> = violations.iter().take(3).map(described).collect();
    let more = if violations.len() > texts.len() { ", and more" } else { "" };
    let message = format!("the arguments do not fit: {}{more}", texts.join("; "));
    Failed { violations, ..Failed::new(Code::InvalidArgument, message) }
}

fn described(violation: &Violation) -> String {
    let Violation { field, description } = violation;
    if field.is_empty() { description.clone() } else { format!("{field}: {description}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reply with this stream.
    fn reply(bytes: Vec<u8>) -> Reply {
        Reply { flags: 0, bytes, segments: Vec::new() }
    }

    /// As CPython's pickler writes bytes.
    fn of(bytes: &[u8]) -> Vec<u8> {
        let mut inner = Vec::new();
        push(&mut inner, bytes);
        inner.extend([MEMOIZE, STOP]);
        let mut pickle = PROTO.to_vec();
        if inner.len() >= 4 {
            pickle.push(FRAME);
            pickle.extend((inner.len() as u64).to_le_bytes());
        }
        pickle.extend(inner);
        pickle
    }

    #[test]
    fn a_call_is_what_pickle_writes() {
        let wanted = b"\x80\x05K\x01C\x02{}C\x00\x87})\x87.";
        assert_eq!(call(Form::Json, b"{}", b""), wanted);
        let long = call(Form::Raw, &[7; 300], b"m");
        assert_eq!(long.get(..9), Some(&b"\x80\x05K\x03B\x2c\x01\x00\x00"[..]));
    }

    #[test]
    fn an_empty_state_has_no_more_than_a_name() {
        assert_eq!(empty_state("ab"), b"\x80\x05)}\x8c\x02ab\x87.");
    }

    #[test]
    fn answers_are_read() {
        for length in [0, 1, 3, 255, 256, 70_000] {
            let mut content = vec![1];
            content.extend(vec![b' '; length]);
            let answer = answer(&reply(of(&content))).expect("an answer");
            assert_eq!((answer.form, answer.bytes.len()), (Form::Json, length));
        }
    }

    #[test]
    fn long_bytes_lie_between_two_frames() {
        // CPython writes objects of 64 KiB and more outside of any frame.
        let mut pickle = PROTO.to_vec();
        pickle.push(BINBYTES);
        pickle.extend(70_001_u32.to_le_bytes());
        pickle.push(1);
        pickle.extend(vec![b'x'; 70_000]);
        pickle.push(FRAME);
        pickle.extend(2_u64.to_le_bytes());
        pickle.extend([MEMOIZE, STOP]);
        assert_eq!(answer(&reply(pickle)).expect("an answer").bytes.len(), 70_000);
    }

    #[test]
    fn wrong_arguments_name_their_fields() {
        let mut content = vec![0];
        content.extend(br#"[{"field": "items[2].n", "description": "is no number"}]"#);
        let failed = answer(&reply(of(&content))).expect_err("a failure");
        assert_eq!(failed.code, Code::InvalidArgument);
        assert_eq!(failed.message, "the arguments do not fit: items[2].n: is no number");
        assert_eq!(failed.violations.first().map(|one| one.field.as_str()), Some("items[2].n"));
    }

    #[test]
    fn nonsense_of_a_worker_is_an_error() {
        let whole = of(&[1, b'{', b'}']);
        for end in 0..whole.len() {
            let cut = whole.get(..end).unwrap_or_default().to_vec();
            assert!(answer(&reply(cut)).is_err(), "cut at {end}");
        }
        for strange in
            [&b"\x80\x05N."[..], b"\x80\x05\x8e\xff\xff\xff\xff\xff\xff\xff\xff.", b"\x80\x05C\x01\x09\x94."]
        {
            assert!(answer(&reply(strange.to_vec())).is_err());
        }
        let described = Reply { flags: flags::DESCRIBED, bytes: vec![0xff; 40], segments: Vec::new() };
        assert!(answer(&described).is_err());
        assert!(answer(&Reply { flags: flags::EMPTY, bytes: Vec::new(), segments: Vec::new() }).is_err());
    }
}
