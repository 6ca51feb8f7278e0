//! JSON-RPC messages as they come, before rmcp reads them: what is wrong with them, and the parts that stay bytes.

use std::borrow::Cow;

use bytes::Bytes;
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, GetExtensions as _};
use serde::Deserialize;
use serde_json::error::Category;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// The message is no JSON.
const PARSE_ERROR: i32 = -32700;
/// The message is no request.
const INVALID_REQUEST: i32 = -32600;
/// The call has no result, because its client has cancelled it.
pub(super) const CANCELLED: i32 = -32603;
/// The parameters do not fit the method.
pub(super) const INVALID_PARAMS: i32 = -32602;

/// A message.
#[derive(Debug, Deserialize)]
pub(super) struct Seen<'a> {
    jsonrpc: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) id: Option<&'a RawValue>,
    pub(super) method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) params: Option<&'a RawValue>,
}

/// The parameters of `tools/call`. With others than these rmcp reads them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CallParams<'a> {
    #[serde(borrow)]
    pub(super) name: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) arguments: Option<&'a RawValue>,
    #[serde(borrow, rename = "_meta")]
    pub(super) meta: Option<&'a RawValue>,
}

/// The arguments of a call, as they came. rmcp has them as values, whose numbers have 64 bits.
#[derive(Clone, Debug)]
pub(super) struct Arguments(pub(super) Bytes);

/// Why a message is not taken.
#[derive(Debug)]
pub(crate) struct Refusal {
    code: i32,
    id: Value,
    text: Cow<'static, str>,
}

impl Refusal {
    pub(super) fn new(code: i32, id: Option<&RawValue>, text: impl Into<Cow<'static, str>>) -> Self {
        let id = id.and_then(|id| serde_json::from_str::<Value>(id.get()).ok());
        let id = id.filter(|id| id.is_string() || id.is_i64() || id.is_u64()).unwrap_or(Value::Null);
        Self { code, id, text: text.into() }
    }

    /// A message that is larger than it may be.
    pub(crate) fn too_large(largest: usize) -> Self {
        let text = format!("the message is larger than {largest} bytes, which is the server's limit");
        Self::new(INVALID_REQUEST, None, text)
    }

    /// The message that says so.
    pub(crate) fn json(&self) -> String {
        json!({"jsonrpc": "2.0", "id": self.id, "error": {"code": self.code, "message": self.text}})
            .to_string()
    }
}

/// Whether an id is a text or a whole number.
fn is_id(id: &RawValue) -> bool {
    let json = id.get();
    json.starts_with('"') || json.parse::<i64>().is_ok()
}

impl<'a> Seen<'a> {
    /// Looks at a message.
    pub(super) fn of(bytes: &'a [u8]) -> Result<Self, Refusal> {
        let refused = |text: &'static str| Refusal::new(INVALID_REQUEST, None, text);
        if bytes.trim_ascii_start().first() == Some(&b'[') {
            return Err(refused(
                "the server takes no batches, which MCP removed in revision 2025-06-18: send each message",
            ));
        }
        let seen: Self = serde_json::from_slice(bytes).map_err(|error| match error.classify() {
            Category::Data => refused("the message is no JSON-RPC request, notification or response"),
            _ => Refusal::new(PARSE_ERROR, None, format!("the message is no JSON: {error}")),
        })?;
        let fault = if seen.jsonrpc.as_deref() != Some("2.0") {
            Some("the message needs \"jsonrpc\": \"2.0\"")
        } else if seen.method.is_some() && seen.id.is_some_and(|id| !is_id(id)) {
            Some("the id of a request is a text or a whole number")
        } else {
            None
        };
        match fault {
            Some(text) => Err(Refusal::new(INVALID_REQUEST, seen.id, text)),
            None => Ok(seen),
        }
    }

    /// The parameters of a call of a tool, if it is one that can be read as bytes.
    pub(super) fn call(&self) -> Option<CallParams<'a>> {
        if self.method.as_deref() != Some("tools/call") {
            return None;
        }
        serde_json::from_str(self.params?.get()).ok()
    }

    /// The name of the tool that this message calls, whatever else its parameters have.
    pub(super) fn tool(&self) -> Option<Cow<'a, str>> {
        #[derive(Deserialize)]
        struct Named<'a> {
            #[serde(borrow)]
            name: Cow<'a, str>,
        }
        if self.method.as_deref() != Some("tools/call") {
            return None;
        }
        serde_json::from_str::<Named<'a>>(self.params?.get()).ok().map(|named| named.name)
    }

    /// The JSON of the id of the request that this message cancels.
    pub(super) fn cancels(&self) -> Option<&'a str> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Cancelled<'a> {
            #[serde(borrow)]
            request_id: &'a RawValue,
        }
        if self.method.as_deref() != Some("notifications/cancelled") {
            return None;
        }
        let params: Cancelled<'a> = serde_json::from_str(self.params?.get()).ok()?;
        Some(params.request_id.get())
    }
}

impl CallParams<'_> {
    /// The arguments, if they are an object; none are an empty one.
    pub(super) fn bytes(&self) -> Option<Bytes> {
        let Some(arguments) = self.arguments else { return Some(Bytes::from_static(b"{}")) };
        let json = arguments.get();
        json.starts_with('{').then(|| Bytes::copy_from_slice(json.as_bytes()))
    }
}

/// A message as rmcp has it. The arguments of a call are beside it, as they came.
pub(crate) fn read(bytes: &[u8]) -> Result<ClientJsonRpcMessage, Refusal> {
    let seen = Seen::of(bytes)?;
    let mut message: ClientJsonRpcMessage = serde_json::from_slice(bytes).map_err(|_| {
        Refusal::new(INVALID_REQUEST, seen.id, "the message is no JSON-RPC request, notification or response")
    })?;
    if let ClientJsonRpcMessage::Request(request) = &mut message
        && let ClientRequest::CallToolRequest(call) = &mut request.request
        && let Some(arguments) = seen.call().and_then(|call| call.bytes())
    {
        call.extensions_mut().insert(Arguments(arguments));
    }
    Ok(message)
}

/// What a fuzzer asks of a message: whatever it is, what is made of it is JSON.
#[cfg(any(test, fuzzing))]
pub(crate) fn look(bytes: &[u8]) {
    let is_json = |text: &[u8]| serde_json::from_slice::<&RawValue>(text).is_ok();
    if let Ok(seen) = Seen::of(bytes) {
        assert!(seen.cancels().is_none_or(|id| is_json(id.as_bytes())));
        let arguments = seen.call().and_then(|call| call.bytes());
        assert!(arguments.is_none_or(|bytes| bytes.starts_with(b"{") && is_json(&bytes)));
    }
    if let Err(refusal) = read(bytes) {
        assert!(is_json(refusal.json().as_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> Value {
        let refusal = read(text.as_bytes()).expect_err("it is wrong");
        serde_json::from_str(&refusal.json()).expect("JSON")
    }

    #[test]
    fn what_is_wrong_with_a_message_is_said() {
        for (text, code, id) in [
            ("{", PARSE_ERROR, json!(null)),
            ("", PARSE_ERROR, json!(null)),
            ("7", INVALID_REQUEST, json!(null)),
            (" [{}]", INVALID_REQUEST, json!(null)),
            (r#"{"id": 1, "method": "ping"}"#, INVALID_REQUEST, json!(1)),
            (r#"{"jsonrpc": "1.0", "id": "a", "method": "ping"}"#, INVALID_REQUEST, json!("a")),
            (r#"{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}"#, INVALID_REQUEST, json!(null)),
            (r#"{"jsonrpc": "2.0", "id": 4}"#, INVALID_REQUEST, json!(4)),
            (r#"{"jsonrpc": "2.0", "id": 4, "method": 5}"#, INVALID_REQUEST, json!(null)),
        ] {
            let said = refused(text);
            assert_eq!((&said["error"]["code"], &said["id"]), (&json!(code), &id), "{text}");
        }
    }

    #[test]
    fn arguments_stay_as_they_came() {
        let text = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call",
            "params":{"name":"t","arguments":{"n": 36893488147419103232}}}"#;
        let message = read(text.as_bytes()).expect("a message");
        let ClientJsonRpcMessage::Request(mut request) = message else { panic!("it is a request") };
        let arguments = request.request.extensions_mut().remove::<Arguments>().expect("arguments");
        assert_eq!(&arguments.0[..], br#"{"n": 36893488147419103232}"#);
    }

    #[test]
    fn cancelling_names_a_request() {
        let text = br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a","reason":"x"}}"#;
        assert_eq!(Seen::of(text).expect("a message").cancels(), Some("\"a\""));
    }
}
