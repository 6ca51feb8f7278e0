//! What the messages of a client say: see `docs/serving.md`.

use std::collections::BTreeMap;
use std::time::Instant;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::arrays::Given;
use crate::call::{Answer, Beside, Form};
use crate::failed::{Code, Failed};
use crate::http::{TIMEOUT, after, document, text_of};
use crate::rpc::{self, Said};

/// Bytes that the id of a call may have.
const LONGEST_ID: usize = 64;

/// How a call is written, and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writing {
    Protobuf,
    Json,
}

/// A message of a client.
pub(super) enum Message {
    Call {
        id: Bytes,
        writing: Writing,
        said: Said,
        deadline: Option<Instant>,
    },
    /// The call of this id is not wanted any more.
    Cancel(Bytes),
}

/// A call as JSON.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written<'a> {
    tool: String,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
    #[serde(default)]
    timeout: Option<f64>,
}

fn wrong(text: impl Into<std::borrow::Cow<'static, str>>) -> Failed {
    Failed::new(Code::InvalidArgument, text)
}

/// When the caller gives up, by the metadata.
fn deadline(metadata: &mut Map<String, Value>) -> Result<Option<Instant>, Failed> {
    let Some(text) = metadata.remove(TIMEOUT) else { return Ok(None) };
    let seconds = text.as_str().and_then(|text| text.trim().parse().ok());
    let is_wrong = || wrong(format!("{TIMEOUT} in the metadata must be a number of seconds"));
    seconds.and_then(after).ok_or_else(is_wrong)
}

impl Message {
    /// The message of these parts, which stand behind the client's identity: the id alone cancels, the id and a request
    /// call.
    ///
    /// # Errors
    ///
    /// Why it is none, with the id to answer to.
    pub(super) fn of(parts: &[Bytes]) -> Result<Self, (Bytes, Failed)> {
        let id = parts.first().cloned().unwrap_or_default();
        if id.is_empty() || id.len() > LONGEST_ID {
            let text = format!("the first part is the id of the call: 1 to {LONGEST_ID} bytes");
            return Err((Bytes::new(), wrong(text)));
        }
        match parts {
            [_] => Ok(Self::Cancel(id)),
            [_, request] => Self::call(request).map_or_else(
                |failed| Err((id.clone(), failed)),
                |(writing, said, deadline)| Ok(Self::Call { id: id.clone(), writing, said, deadline }),
            ),
            _ => Err((
                id,
                wrong("a message has two parts, an id and a request, or the id alone, which cancels"),
            )),
        }
    }

    fn call(request: &Bytes) -> Result<(Writing, Said, Option<Instant>), Failed> {
        // No message of protobuf begins so: it would be a group, which proto3 has not.
        if request.first() != Some(&b'{') {
            let mut said = Said::of(request).ok_or_else(|| {
                wrong("the request is neither a ropewalk.v1.ExecuteRequest nor an object of JSON")
            })?;
            let deadline = deadline(&mut said.metadata)?;
            return Ok((Writing::Protobuf, said, deadline));
        }
        let written: Written<'_> = serde_json::from_slice(request)
            .map_err(|error| wrong(format!("the request does not fit: {error}")))?;
        let arguments = written.arguments.map_or("{}", RawValue::get);
        let mut metadata: Map<String, Value> =
            written.metadata.into_iter().map(|(key, text)| (key, Value::String(text))).collect();
        let deadline = match written.timeout {
            None => deadline(&mut metadata)?,
            Some(_) if metadata.contains_key(TIMEOUT) => {
                return Err(wrong(format!("the timeout is there twice: as timeout, and as {TIMEOUT}")));
            }
            Some(seconds) => after(seconds).ok_or_else(|| wrong("timeout must be a number of seconds"))?,
        };
        let arguments = Bytes::copy_from_slice(arguments.as_bytes());
        let given = Given { form: Form::Json, arguments, beside: Beside::default() };
        let said = Said { tool: written.tool, given: Ok(given), metadata };
        Ok((Writing::Json, said, deadline))
    }
}

/// A result or an item, as its caller writes.
pub(super) fn answer(answer: Answer, writing: Writing) -> Result<Bytes, Failed> {
    match writing {
        Writing::Protobuf => rpc::response(answer),
        Writing::Json => Ok(text_of(&answer)),
    }
}

/// A failure: the same JSON as over HTTP.
pub(super) fn failure(failed: &Failed) -> Bytes {
    Bytes::from(document(failed).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(parts: &[&[u8]]) -> Result<Message, (Bytes, Failed)> {
        let parts: Vec<Bytes> = parts.iter().map(|part| Bytes::copy_from_slice(part)).collect();
        Message::of(&parts)
    }

    #[test]
    fn a_request_is_protobuf_or_json() {
        let json = br#"{"tool": "add", "arguments": {"a": 1}, "metadata": {"k": "v"}, "timeout": 5}"#;
        let Ok(Message::Call { id, writing, said, deadline }) = of(&[b"7", json]) else { panic!("no call") };
        assert_eq!((&*id, writing, &*said.tool), (&b"7"[..], Writing::Json, "add"));
        let given = said.given.expect("arguments");
        assert_eq!((&*given.arguments, deadline.is_some()), (&br#"{"a": 1}"#[..], true));
        let Ok(Message::Call { writing, said, deadline, .. }) = of(&[b"7", b"\x0a\x03add"]) else {
            panic!("none")
        };
        assert_eq!((writing, &*said.tool, deadline), (Writing::Protobuf, "add", None));
        let given = said.given.expect("arguments");
        assert_eq!((given.form, &*given.arguments), (Form::Json, &b"{}"[..]));
        assert!(matches!(of(&[b"7"]), Ok(Message::Cancel(id)) if &*id == b"7"));
    }

    /// An `ExecuteRequest` of a tool with this timeout in its metadata.
    fn timed(text: &str) -> Vec<u8> {
        let key = TIMEOUT.as_bytes();
        let length = |bytes: &[u8]| u8::try_from(bytes.len()).expect("short");
        let mut entry = vec![0x0a, length(key)];
        entry.extend_from_slice(key);
        entry.extend([0x12, length(text.as_bytes())]);
        entry.extend_from_slice(text.as_bytes());
        let mut request = b"\x0a\x01t\x1a".to_vec();
        request.push(length(&entry));
        request.extend(entry);
        request
    }

    #[test]
    fn a_deadline_stands_in_the_metadata_whichever_way_a_request_is_written() {
        let json = br#"{"tool": "t", "metadata": {"x-ropewalk-timeout": "5"}}"#;
        for request in [&timed(" 2.5 ")[..], json] {
            let Ok(Message::Call { said, deadline, .. }) = of(&[b"7", request]) else { panic!("no call") };
            // The tool does not see it.
            assert!(deadline.is_some() && said.metadata.is_empty());
        }
        // A time that the clock does not reach is none.
        let Ok(Message::Call { deadline: None, .. }) = of(&[b"7", &timed("1e300")]) else {
            panic!("no call")
        };
    }

    #[test]
    fn what_is_no_message_says_why() {
        let long = [7; LONGEST_ID + 1];
        /// The parts, the id that is answered to, and a part of the reason.
        type Case<'a> = (&'a [&'a [u8]], &'a [u8], &'a str);
        let cases: [Case<'_>; 13] = [
            (&[], b"", "the first part"),
            (&[b"", b"{}"], b"", "the first part"),
            (&[&long, b"{}"], b"", "the first part"),
            (&[b"1", b"{}", b"3"], b"1", "a message has two parts"),
            (&[b"1", b"{"], b"1", "does not fit"),
            (&[b"1", br#"{"tool": 3}"#], b"1", "does not fit"),
            (&[b"1", br#"{"tool": "t", "x": 1}"#], b"1", "unknown field"),
            (&[b"1", br#"{"tool": "t", "timeout": -1}"#], b"1", "number of seconds"),
            (
                &[b"1", br#"{"tool": "t", "metadata": {"x-ropewalk-timeout": "1 s"}}"#],
                b"1",
                "number of seconds",
            ),
            (
                &[b"1", br#"{"tool": "t", "timeout": 1, "metadata": {"x-ropewalk-timeout": "1"}}"#],
                b"1",
                "twice",
            ),
            (&[b"1", &timed("-1")], b"1", "x-ropewalk-timeout in the metadata must be a number of seconds"),
            (&[b"1", &timed("nan")], b"1", "x-ropewalk-timeout in the metadata must be a number of seconds"),
            (&[b"1", b"\xff\xff"], b"1", "neither"),
        ];
        for (parts, id, text) in cases {
            let Err((found, failed)) = of(parts) else { panic!("{parts:?} is a message") };
            assert_eq!(&*found, id);
            assert!(failed.message.contains(text), "{}", failed.message);
        }
    }
}
