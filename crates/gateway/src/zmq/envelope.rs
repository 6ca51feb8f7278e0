//! What the messages of a client say: see `docs/serving.md`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::call::{Answer, Form};
use crate::failed::{Code, Failed};
use crate::http::{document, text_of};
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

fn deadline(seconds: f64) -> Result<Option<Instant>, Failed> {
    let time = Duration::try_from_secs_f64(seconds);
    let time = time.map_err(|_| wrong("the timeout must be a number of seconds"))?;
    // A time beyond the clock is none.
    Ok(Instant::now().checked_add(time))
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
            let said = Said::of(request).ok_or_else(|| {
                wrong("the request is neither a ropewalk.v1.ExecuteRequest nor an object of JSON")
            })?;
            return Ok((Writing::Protobuf, said, None));
        }
        let written: Written<'_> = serde_json::from_slice(request)
            .map_err(|error| wrong(format!("the request does not fit: {error}")))?;
        let deadline = written.timeout.map_or(Ok(None), deadline)?;
        let arguments = written.arguments.map_or("{}", RawValue::get);
        let metadata: Map<String, Value> =
            written.metadata.into_iter().map(|(key, text)| (key, Value::String(text))).collect();
        let said = Said {
            tool: written.tool,
            form: Form::Json,
            arguments: Bytes::copy_from_slice(arguments.as_bytes()),
            metadata,
        };
        Ok((Writing::Json, said, deadline))
    }
}

/// A result or an item, as its caller writes.
pub(super) fn answer(answer: Answer, writing: Writing) -> Bytes {
    match writing {
        Writing::Protobuf => rpc::response(answer),
        Writing::Json => text_of(&answer),
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
        assert_eq!((&*said.arguments, deadline.is_some()), (&br#"{"a": 1}"#[..], true));
        let Ok(Message::Call { writing, said, deadline, .. }) = of(&[b"7", b"\x0a\x03add"]) else {
            panic!("none")
        };
        assert_eq!((writing, &*said.tool, deadline), (Writing::Protobuf, "add", None));
        assert_eq!((said.form, &*said.arguments), (Form::Json, &b"{}"[..]));
        assert!(matches!(of(&[b"7"]), Ok(Message::Cancel(id)) if &*id == b"7"));
    }

    #[test]
    fn what_is_no_message_says_why() {
        let long = [7; LONGEST_ID + 1];
        /// The parts, the id that is answered to, and a part of the reason.
        type Case<'a> = (&'a [&'a [u8]], &'a [u8], &'a str);
        let cases: [Case<'_>; 9] = [
            (&[], b"", "the first part"),
            (&[b"", b"{}"], b"", "the first part"),
            (&[&long, b"{}"], b"", "the first part"),
            (&[b"1", b"{}", b"3"], b"1", "a message has two parts"),
            (&[b"1", b"{"], b"1", "does not fit"),
            (&[b"1", br#"{"tool": 3}"#], b"1", "does not fit"),
            (&[b"1", br#"{"tool": "t", "x": 1}"#], b"1", "unknown field"),
            (&[b"1", br#"{"tool": "t", "timeout": -1}"#], b"1", "number of seconds"),
            (&[b"1", b"\xff\xff"], b"1", "neither"),
        ];
        for (parts, id, text) in cases {
            let Err((found, failed)) = of(parts) else { panic!("{parts:?} is a message") };
            assert_eq!(&*found, id);
            assert!(failed.message.contains(text), "{}", failed.message);
        }
    }
}
