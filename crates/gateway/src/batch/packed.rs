//! A batch as its worker reads it, and as it answers; `python/ropewalk/serving/_batch.py` is the other side.
//!
//! Of each call: the number of its form (a byte), as a call alone has it; the number of its parts (2 bytes, little
//! endian), the length of each (8 bytes), and the parts. They are its arguments and its metadata; with arrays among the
//! arguments, these are JSON, and behind the metadata stand the list of the arrays and the items of each, which begin
//! at a multiple of 16 bytes. Of each result: its length (8 bytes), and what the answer of a call would be, or 255 and
//! a failure as JSON. What a worker sends is not trusted.

use bytes::{Buf as _, Bytes};
use serde::Deserialize;

use super::queue::Item;
use crate::call::{Answer, Form};
use crate::envelope;
use crate::failed::{Code, Failed, Violation};

/// The first byte of a result that is a failure of one call.
const FAILED: u8 = 255;
/// Where the items of an array may begin.
const ALIGNED: usize = 16;

#[derive(Deserialize)]
struct Failure {
    code: String,
    message: String,
    #[serde(default)]
    violations: Vec<(String, String)>,
}

pub(super) fn arguments(items: &[Item]) -> Bytes {
    let size = |item: &Item| item.size() + 27 + (8 + ALIGNED) * (1 + item.beside.buffers.len());
    let mut packed = Vec::with_capacity(items.iter().map(size).sum());
    for item in items {
        let beside = &item.beside;
        let header = (!beside.arrays.is_empty()).then_some(&beside.arrays);
        let parts = || [&item.arguments, &item.metadata].into_iter().chain(header);
        let count = parts().count() + beside.buffers.len();
        packed.push(envelope::number(item.form, beside));
        // A call has 256 arrays at most.
        packed.extend(u16::try_from(count).unwrap_or(u16::MAX).to_le_bytes());
        for part in parts().chain(&beside.buffers) {
            packed.extend((part.len() as u64).to_le_bytes());
        }
        parts().for_each(|part| packed.extend_from_slice(part));
        for buffer in &beside.buffers {
            packed.resize(packed.len().next_multiple_of(ALIGNED), 0);
            packed.extend_from_slice(buffer);
        }
    }
    Bytes::from(packed)
}

/// The results of so many calls.
///
/// # Errors
///
/// When the answer is something else.
pub(super) fn results(answer: &Answer, wanted: usize) -> Result<Vec<Result<Answer, Failed>>, Failed> {
    let strange = || Failed::new(Code::Internal, "the tool's worker has sent something that is no batch");
    if answer.form != Form::Raw {
        return Err(strange());
    }
    let mut rest = answer.bytes.clone();
    let mut found = Vec::with_capacity(wanted);
    while !rest.is_empty() {
        let length = rest.try_get_u64_le().map_err(|_| strange())?;
        let length =
            usize::try_from(length).ok().filter(|length| *length <= rest.len()).ok_or_else(strange)?;
        found.push(result(rest.split_to(length)));
    }
    if found.len() == wanted { Ok(found) } else { Err(strange()) }
}

fn result(bytes: Bytes) -> Result<Answer, Failed> {
    if bytes.first() != Some(&FAILED) {
        return envelope::opened(bytes);
    }
    let strange = |_| Failed::new(Code::Internal, "the tool's worker has sent something that is no failure");
    let failure: Failure = serde_json::from_slice(bytes.get(1..).unwrap_or_default()).map_err(strange)?;
    let violations =
        failure.violations.into_iter().map(|(field, description)| Violation { field, description });
    let code = Code::of_name(&failure.code).unwrap_or(Code::Unknown);
    Err(Failed { violations: Violation::bounded(violations), ..Failed::new(code, failure.message) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(parts: &[&[u8]]) -> Answer {
        let mut packed = Vec::new();
        for part in parts {
            packed.extend((part.len() as u64).to_le_bytes());
            packed.extend_from_slice(part);
        }
        Answer { form: Form::Raw, bytes: Bytes::from(packed) }
    }

    #[test]
    fn each_call_has_its_own_result() {
        let failure = br#"f{"code": "NOT_FOUND", "message": "no"}"#;
        let mut failure = failure.to_vec();
        failure[0] = FAILED;
        let whole = answer(&[b"\x017", b"\x03x", &failure, br#""#]);
        let found = results(&whole, 4).expect("results");
        assert_eq!(found[0].as_ref().ok(), Some(&Answer { form: Form::Json, bytes: Bytes::from("7") }));
        assert_eq!(found[1].as_ref().map(|one| one.form).ok(), Some(Form::Raw));
        assert_eq!(found[2].as_ref().err().map(|one| one.code), Some(Code::NotFound));
        assert_eq!(found[3].as_ref().err().map(|one| one.code), Some(Code::Internal));
        assert_eq!(results(&whole, 3).err().map(|one| one.code), Some(Code::Internal));
    }

    #[test]
    fn what_is_wrong_with_one_call_is_bounded() {
        let many = vec![r#"["a", "is wrong"]"#; 1000].join(",");
        let mut failure =
            format!(r#"f{{"code": "INVALID_ARGUMENT", "message": "no", "violations": [{many}]}}"#)
                .into_bytes();
        failure[0] = FAILED;
        let found = results(&answer(&[&failure]), 1).expect("results");
        assert_eq!(found[0].as_ref().err().map(|failed| failed.violations.len()), Some(101));
    }

    #[test]
    fn nonsense_of_a_worker_is_an_error() {
        let whole = answer(&[b"\x01123", b"\x01456"]);
        for end in (0..whole.bytes.len()).filter(|end| *end != 0) {
            let cut = Answer { form: Form::Raw, bytes: whole.bytes.slice(..end) };
            assert!(results(&cut, 2).is_err(), "cut at {end}");
        }
        let endless = Answer { form: Form::Raw, bytes: Bytes::from_static(&[0xff; 20]) };
        assert!(results(&endless, 1).is_err());
        assert!(results(&Answer { form: Form::Json, bytes: Bytes::new() }, 0).is_err());
    }
}
