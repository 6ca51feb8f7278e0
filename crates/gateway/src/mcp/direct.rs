//! Calls that need nothing of rmcp: one request, one response, and arguments that stay bytes on their way.
//!
//! rmcp makes a service, three tasks and several trees of values for each request. A call that is plainly in order, and
//! wants no progress, has no use for them. Anything unusual in a request, and anything wrong with it, is rmcp's to
//! answer; the tests send the same calls both ways.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap};
use rmcp::model::{ClientCapabilities, ProtocolVersion};
use rmcp::transport::common::http_header::{HEADER_MCP_METHOD, HEADER_MCP_NAME, HEADER_MCP_PROTOCOL_VERSION};
use serde_json::value::RawValue;

use super::answers::Said;
use super::handler::{Handler, metadata};
use super::listing::{Kind, Listing, Shown};
use super::message::Seen;
use crate::call::{Beside, Form, Request};
use crate::clients::Caller;
use crate::sessions::Owner;

const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// Such a call.
pub(super) struct Direct<'a> {
    shown: &'a Shown,
    id: &'a RawValue,
    request: Request,
    caller: &'a Caller,
    /// Whether its revision is the one without sessions.
    modern: bool,
}

/// The only value of a header.
fn only<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

fn takes_both(headers: &HeaderMap) -> bool {
    let accepted = only(headers, ACCEPT.as_str()).unwrap_or_default();
    let mut found = (false, false);
    for one in accepted.split(',') {
        match one.trim() {
            "application/json" => found.0 = true,
            "text/event-stream" => found.1 = true,
            _ => return false,
        }
    }
    found == (true, true)
}

fn text(json: &RawValue) -> Option<Cow<'_, str>> {
    let json = json.get();
    json.starts_with('"').then(|| serde_json::from_str::<String>(json).ok().map(Cow::from)).flatten()
}

/// Whether the request is of the revision without sessions; `None` if that is not plain.
fn is_modern(headers: &HeaderMap, name: &str, meta: &BTreeMap<Cow<'_, str>, &RawValue>) -> Option<bool> {
    let said = headers.contains_key(HEADER_MCP_PROTOCOL_VERSION);
    let header = only(headers, HEADER_MCP_PROTOCOL_VERSION);
    let modern = ProtocolVersion::V_2026_07_28;
    let Some(version) = meta.get(VERSION) else {
        let mut older = ProtocolVersion::KNOWN_VERSIONS.iter().map(ProtocolVersion::as_str);
        let is_older =
            header.is_some_and(|header| header < modern.as_str() && older.any(|one| one == header));
        return (!said || is_older).then_some(false);
    };
    let agree = header == Some(modern.as_str())
        && text(version)? == modern.as_str()
        // A call of a client that takes tasks may become one.
        && serde_json::from_str::<ClientCapabilities>(meta.get(CAPABILITIES)?.get())
            .is_ok_and(|client| !client.supports_tasks())
        && only(headers, HEADER_MCP_METHOD) == Some("tools/call")
        && only(headers, HEADER_MCP_NAME) == Some(name);
    agree.then_some(true)
}

impl<'a> Direct<'a> {
    /// The call of this message, if it is such a one.
    pub(super) fn of(
        handler: &Handler,
        listing: &'a Listing,
        headers: &HeaderMap,
        caller: &'a Caller,
        seen: &Seen<'a>,
    ) -> Option<Self> {
        let call = seen.call()?;
        let shown = listing.shown(caller, &call.name).ok()?;
        let is_json = only(headers, CONTENT_TYPE.as_str()) == Some("application/json");
        if !matches!(shown.kind, Kind::Tool) || shown.has_headers || !is_json || !takes_both(headers) {
            return None;
        }
        let meta: BTreeMap<Cow<'_, str>, &RawValue> = match call.meta {
            Some(meta) => serde_json::from_str(meta.get()).ok()?,
            None => BTreeMap::new(),
        };
        if meta.contains_key("progressToken") {
            return None;
        }
        let modern = is_modern(headers, &call.name, &meta)?;
        let texts = || meta.iter().filter_map(|(key, value)| Some((&**key, text(value)?)));
        let (arguments, id) = (call.bytes()?, seen.id?);
        let watched = handler.begin(Some(&shown.tool), Some(headers), texts());
        watched.by(caller);
        let request = Request {
            tool: Arc::clone(&shown.tool),
            form: Form::Json,
            arguments,
            beside: Beside::default(),
            metadata: metadata(texts(), &watched),
            deadline: None,
            reports: None,
            watched,
        };
        Some(Self { shown, id, request, caller, modern })
    }

    /// Its id.
    pub(super) fn id(&self) -> Option<&'a RawValue> {
        Some(self.id)
    }

    /// Runs it; the message that answers it.
    pub(super) async fn run(self, handler: &Handler) -> serde_json::Result<Bytes> {
        let said = match self.caller.take() {
            Ok(()) => handler.run(self.shown, &Owner::default(), self.request).await,
            Err(failed) => {
                self.request.watched.failed(&failed);
                Said::failed(&failed)
            }
        };
        let result = said.write(self.modern)?;
        let mut message = Vec::with_capacity(result.len() + 48);
        message.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
        message.extend_from_slice(self.id.get().as_bytes());
        message.extend_from_slice(b",\"result\":");
        message.extend_from_slice(&result);
        message.push(b'}');
        Ok(Bytes::from(message))
    }
}
