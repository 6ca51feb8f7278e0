//! Calls and answers as workers read and write them: pickles (protocol 5, PEP 574) of nothing but bytes.
//!
//! A worker's function is called with the form's number, the arguments and the metadata's bytes. Beside them stand
//! the exceptions after which it is called again: none, because a tool that raised has answered. The arguments are
//! bytes; with arrays among them they are a tuple of bytes: JSON, a list of the arrays, and the items of each. What is
//! long is no part of the pickle: the worker has a view of it in shared memory.
//!
//! It returns bytes: the number of a form and the result, or 0 and what is wrong with the arguments, as JSON. Or it
//! returns a tuple of such bytes and of buffers, which stand behind the first. What a worker sends is not trusted:
//! everything else is an error.

use bytes::{Buf as _, Bytes};
use ropewalk_pool::Reply;
use ropewalk_pool::codec::{Entry, Table};
use ropewalk_pool::wire::flags;

use crate::arrays::Results;
use crate::call::{Answer, Beside, Form};
use crate::failed::{Code, Failed, Violation};

const PROTO: [u8; 2] = [0x80, 5];
const FRAME: u8 = 0x95;
const BININT1: u8 = b'K';
const SHORT_BINBYTES: u8 = b'C';
const SHORT_BINUNICODE: u8 = 0x8c;
const BINBYTES: u8 = b'B';
const BINBYTES8: u8 = 0x8e;
const MARK: u8 = b'(';
const TUPLE: u8 = b't';
const TUPLE1: u8 = 0x85;
const TUPLE2: u8 = 0x86;
const TUPLE3: u8 = 0x87;
const NEXT_BUFFER: u8 = 0x97;
const READONLY_BUFFER: u8 = 0x98;
const EMPTY_DICT: u8 = b'}';
const EMPTY_TUPLE: u8 = b')';
const MEMOIZE: u8 = 0x94;
const STOP: u8 = b'.';

/// Bytes from which on a part of a long call stays out of the pickle.
const LONG: usize = 1024;

/// The pickle of `((form, arguments, metadata), {}, ())`, and the parts of the arguments that it leaves out.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) pickle: Vec<u8>,
    pub(crate) outside: Vec<&'a [u8]>,
}

/// The number that says in what form arguments are, and in what form the result is wanted.
pub(crate) fn number(form: Form, beside: &Beside) -> u8 {
    form as u8 | beside.wanted.map_or(0, |wanted| (wanted as u8) << 4)
}

/// What a worker reads of a call. If all of it has more than `most` bytes, long parts are left out.
pub(crate) fn call<'a>(
    form: Form,
    arguments: &'a [u8],
    beside: &'a Beside,
    metadata: &[u8],
    most: usize,
) -> Call<'a> {
    let long: usize = beside.buffers.iter().map(Bytes::len).sum::<usize>() + arguments.len();
    let rest = metadata.len() + beside.arrays.len() + 10 * beside.buffers.len() + 32;
    let leaves = long + rest > most;
    let mut call =
        Call { pickle: Vec::with_capacity(rest + if leaves { LONG } else { long }), outside: Vec::new() };
    call.pickle.extend(PROTO);
    call.pickle.extend([BININT1, number(form, beside)]);
    if beside.arrays.is_empty() {
        call.add(arguments, leaves);
    } else {
        call.pickle.push(MARK);
        call.add(arguments, leaves);
        push(&mut call.pickle, &beside.arrays);
        beside.buffers.iter().for_each(|buffer| call.add(buffer, leaves));
        call.pickle.push(TUPLE);
    }
    push(&mut call.pickle, metadata);
    call.pickle.extend([TUPLE3, EMPTY_DICT, EMPTY_TUPLE, TUPLE3, STOP]);
    call
}

impl<'a> Call<'a> {
    fn add(&mut self, part: &'a [u8], leaves: bool) {
        if leaves && part.len() >= LONG {
            self.pickle.extend([NEXT_BUFFER, READONLY_BUFFER]);
            self.outside.push(part);
        } else {
            push(&mut self.pickle, part);
        }
    }
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

/// A part of an answer.
enum Part {
    /// Bytes of the pickle.
    Within(Bytes),
    /// The next of those that it leaves out.
    Outside,
}

/// The bytes of a pickle of bytes, or of a tuple of such and of buffers; `None` if it is anything else.
fn pickled(mut pickle: Bytes) -> Option<Vec<Part>> {
    if pickle.get(..2) != Some(&PROTO[..]) {
        return None;
    }
    pickle.advance(2);
    let mut parts = Vec::new();
    let mut is_marked = false;
    loop {
        let code = pickle.try_get_u8().ok()?;
        let length = match code {
            // Frames say what a reader may fetch at once; it is all here.
            FRAME => {
                pickle.try_get_u64_le().ok()?;
                continue;
            }
            MEMOIZE => continue,
            MARK if parts.is_empty() && !is_marked => {
                is_marked = true;
                continue;
            }
            NEXT_BUFFER => {
                parts.push(Part::Outside);
                continue;
            }
            READONLY_BUFFER if matches!(parts.last(), Some(Part::Outside)) => continue,
            TUPLE1 | TUPLE2 | TUPLE3 | TUPLE => {
                let is_whole = match code {
                    TUPLE => is_marked,
                    _ => !is_marked && parts.len() == usize::from(code - TUPLE1) + 1,
                };
                let tail = if pickle.first() == Some(&FRAME) { pickle.get(9..)? } else { &pickle[..] };
                return (is_whole && (tail == [MEMOIZE, STOP] || tail == [STOP])).then_some(parts);
            }
            // Bytes alone.
            STOP => return (parts.len() == 1 && !is_marked && pickle.is_empty()).then_some(parts),
            SHORT_BINBYTES => u64::from(pickle.try_get_u8().ok()?),
            BINBYTES => u64::from(pickle.try_get_u32_le().ok()?),
            BINBYTES8 => pickle.try_get_u64_le().ok()?,
            _ => return None,
        };
        let length = usize::try_from(length).ok().filter(|length| *length <= pickle.len())?;
        parts.push(Part::Within(pickle.split_to(length)));
    }
}

/// What a reply consists of.
struct Parts<'a> {
    reply: &'a Reply,
    table: Option<Table<'a>>,
}

fn strange() -> Failed {
    Failed::new(Code::Internal, "the tool's worker has sent something that is no answer")
}

impl<'a> Parts<'a> {
    fn of(reply: &'a Reply) -> Result<Self, Failed> {
        let described = reply.flags & flags::DESCRIBED != 0;
        let table = if described { Some(Table::parse(&reply.bytes).map_err(|_| strange())?) } else { None };
        Ok(Self { reply, table })
    }

    fn pickle(&self) -> Result<Bytes, Failed> {
        let Some(table) = &self.table else { return Ok(Bytes::copy_from_slice(&self.reply.bytes)) };
        let mut pickle = Vec::new();
        self.copy(&table.entry(0).ok_or_else(strange)?, &mut pickle)?;
        Ok(Bytes::from(pickle))
    }

    /// The buffers that the pickle leaves out.
    fn outside(&self) -> impl Iterator<Item = Entry> + '_ {
        self.table.iter().flat_map(Table::buffers)
    }

    /// Appends what an entry names.
    fn copy(&self, entry: &Entry, into: &mut Vec<u8>) -> Result<(), Failed> {
        if let Some(inline) = self.table.as_ref().and_then(|table| table.inline(entry)) {
            into.extend_from_slice(inline);
            return Ok(());
        }
        let mut segments = self.reply.segments.iter();
        let segment = segments.find(|segment| segment.id() == entry.segment).ok_or_else(strange)?;
        segment.check(entry.generation).map_err(|_| strange())?;
        segment.copy_to(entry.offset, entry.length, into).map_err(|_| strange())
    }
}

/// What a reply that is no exception says.
pub(crate) fn answer(reply: &Reply) -> Result<Answer, Failed> {
    if reply.flags & flags::EMPTY != 0 {
        return Err(strange());
    }
    let from = Parts::of(reply)?;
    let mut parts = pickled(from.pickle()?).ok_or_else(strange)?.into_iter();
    let Some(Part::Within(first)) = parts.next() else { return Err(strange()) };
    if parts.len() == 0 {
        return opened(first);
    }
    // A result that is bytes stands behind its form; arrays stand behind a header.
    let form = match first.first() {
        Some(&kind) if kind == Form::Raw as u8 && first.len() == 1 && parts.len() == 1 => Form::Raw,
        Some(&kind) if kind == Form::Arrays as u8 => Form::Arrays,
        _ => return Err(strange()),
    };
    let mut outside = from.outside();
    let parts: Vec<_> = parts
        .map(|part| match part {
            Part::Within(bytes) => Some((Some(bytes), None)),
            // A buffer in a shared array takes two entries. A worker copies what it answers.
            Part::Outside => {
                outside.next().filter(|entry| !entry.is_shared()).map(|entry| (None, Some(entry)))
            }
        })
        .collect::<Option<_>>()
        .ok_or_else(strange)?;
    let lengths = parts.iter().map(|(within, entry)| {
        within.as_ref().map_or_else(|| entry.map_or(0, |entry| entry.length), |bytes| bytes.len() as u64)
    });
    // The room is asked for when the first part has been found to exist: its length may be anything.
    let whole = lengths.fold(0_u64, u64::saturating_add).min(self::MOST_AHEAD);
    let whole = usize::try_from(whole).unwrap_or_default();
    let mut bytes = match form {
        Form::Arrays => Results::joined(&first[1..], whole),
        _ => Vec::with_capacity(whole),
    };
    for (within, entry) in parts {
        match (within, entry) {
            (Some(within), _) => bytes.extend_from_slice(&within),
            (None, Some(entry)) => from.copy(&entry, &mut bytes)?,
            (None, None) => return Err(strange()),
        }
    }
    Ok(Answer { form, bytes: Bytes::from(bytes) })
}

/// Bytes that are asked for before the parts of an answer are found to be as long as they say.
const MOST_AHEAD: u64 = 1 << 30;

/// What the bytes of an answer say.
pub(crate) fn opened(bytes: Bytes) -> Result<Answer, Failed> {
    let kind = *bytes.first().ok_or_else(strange)?;
    let content = bytes.slice(1..);
    if kind == 0 {
        let violations: Vec<Violation> = serde_json::from_slice(&content).map_err(|_| strange())?;
        return Err(invalid(violations));
    }
    let form = Form::of(kind).ok_or_else(strange)?;
    Ok(Answer { form, bytes: content })
}

/// Violations that a message names.
const MOST_IN_MESSAGE: usize = 3;

/// The arguments are wrong. Its caller reads a bounded part of what is wrong, and how much more there is.
pub(crate) fn invalid(violations: Vec<Violation>) -> Failed {
    let violations = Violation::bounded(violations);
    let found = violations.iter().fold(0_usize, |found, one| found.saturating_add(one.count()));
    let texts: Vec<String> = violations.iter().take(MOST_IN_MESSAGE).map(described).collect();
    let more = match found.saturating_sub(texts.len()) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let message = format!("the arguments do not fit: {}{more}", texts.join("; "));
    Failed { violations, ..Failed::new(Code::InvalidArgument, message) }
}

fn described(violation: &Violation) -> String {
    let Violation { field, description } = violation;
    if field.is_empty() { description.clone() } else { format!("{field}: {description}") }
}

#[cfg(test)]
mod tests {
    use ropewalk_pool::codec::{Part as Piece, table};

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

    /// The pickle of a call, and the lengths of what is left out of it.
    fn written(form: Form, arguments: &[u8], beside: &Beside, most: usize) -> (Vec<u8>, Vec<usize>) {
        let call = call(form, arguments, beside, b"", most);
        (call.pickle, call.outside.iter().map(|part| part.len()).collect())
    }

    #[test]
    fn a_call_is_what_pickle_writes() {
        let none = Beside::default();
        let wanted = b"\x80\x05K\x01C\x02{}C\x00\x87})\x87.".to_vec();
        assert_eq!(written(Form::Json, b"{}", &none, 1 << 20), (wanted, vec![]));
        let (long, _) = written(Form::Raw, &[7; 300], &none, 1 << 20);
        assert_eq!(long.get(..9), Some(&b"\x80\x05K\x03B\x2c\x01\x00\x00"[..]));
    }

    #[test]
    fn long_parts_are_left_out_of_long_calls() {
        let (none, most) = (Beside::default(), 4 * LONG);
        let (pickle, outside) = written(Form::Raw, &vec![7; most], &none, most);
        assert_eq!((&pickle[..], outside), (&b"\x80\x05K\x03\x97\x98C\x00\x87})\x87."[..], vec![most]));
        assert!(written(Form::Raw, &vec![7; most - 64], &none, most).1.is_empty());
        let buffers = [LONG - 1, LONG, most].map(|length| Bytes::from(vec![1; length])).to_vec();
        let beside = Beside { arrays: Bytes::from_static(b"[]"), buffers, wanted: Some(Form::Json) };
        let (pickle, outside) = written(Form::Arrays, b"{}", &beside, most);
        assert_eq!(outside, [LONG, most]);
        assert_eq!(pickle.get(..14), Some(&b"\x80\x05K\x14(C\x02{}C\x02[]B"[..]));
        assert!(pickle.ends_with(b"\x97\x98\x97\x98tC\x00\x87})\x87."));
    }

    /// A reply whose buffers lie in its record.
    fn described(pickle: &[u8], buffers: &[&[u8]]) -> Reply {
        let parts: Vec<_> = std::iter::once(&pickle).chain(buffers).map(|part| Piece::Inline(part)).collect();
        Reply { flags: flags::DESCRIBED, bytes: table::write(0, &parts, &[]), segments: Vec::new() }
    }

    #[test]
    fn buffers_stand_behind_what_says_what_they_are() {
        let pickle = b"\x80\x05C\x01\x03\x94\x97\x98\x86\x94.";
        let raw = answer(&described(pickle, &[b"bytes"])).expect("an answer");
        assert_eq!((raw.form, &raw.bytes[..]), (Form::Raw, &b"bytes"[..]));
        let header = br#"["list", [[null, "uint8", [1]], [null, "uint8", [2]]]]"#;
        let mut pickle = b"\x80\x05(".to_vec();
        push(&mut pickle, &[&[4], &header[..]].concat());
        pickle.extend(b"\x97\x98C\x02yzt\x94.");
        let arrays = answer(&described(&pickle, &[b"x"])).expect("an answer");
        let read = Results::read(&arrays.bytes).expect("arrays");
        assert_eq!((arrays.form, read.items.len()), (Form::Arrays, 2));
        // A buffer that is not there, one that nobody asked for, and an answer that starts with one.
        assert!(answer(&described(&pickle, &[])).is_err());
        assert!(answer(&reply(pickle)).is_err());
        assert!(answer(&described(b"\x80\x05\x97\x98.", &[b"x"])).is_err());
        assert!(answer(&described(b"\x80\x05C\x01\x01\x97\x98\x86.", &[b"{}"])).is_err());
        let far = Entry { segment: 9, generation: 1, offset: 0, length: u64::MAX };
        let parts = [Piece::Inline(b"\x80\x05C\x01\x03\x97\x86."), Piece::Placed(far)];
        let far =
            Reply { flags: flags::DESCRIBED, bytes: table::write(0, &parts, &[]), segments: Vec::new() };
        assert!(answer(&far).is_err());
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
    fn what_is_wrong_is_bounded_however_much_a_worker_says() {
        let field = "k".repeat(10_000);
        let one = format!(r#"{{"field": "{field}", "description": "is no number"}}"#);
        let many = vec![one; 1000].join(",");
        let failed = opened(Bytes::from(format!("\0[{many}]"))).expect_err("a failure");
        assert_eq!(failed.violations.len(), 101);
        assert!(
            failed
                .violations
                .iter()
                .take(100)
                .all(|one| one.field.len() == 200 && one.field.ends_with("k..."))
        );
        assert!(failed.message.ends_with("is no number, and 997 more"), "{}", failed.message);
        assert!(failed.message.len() < 1000, "{}", failed.message);
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
