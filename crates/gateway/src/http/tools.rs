//! `POST /v1/tools/NAME`.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt as _;
use futures::stream::Peekable;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Request as HttpRequest, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::timeout;

use super::{Path, Shared, answers, npy, sessions};
use crate::call::{Answer, Form, Items, Request};
use crate::clients::Caller;
use crate::deadline::Deadline;
use crate::failed::{Code, Failed, shortened};
use crate::telemetry::{Protocol, Watched};
use crate::tool::Tool;

/// For how many seconds the caller waits.
pub(crate) const TIMEOUT: &str = "x-ropewalk-timeout";
/// Where a result was found, if the tool has a cache.
pub(crate) const CACHE: &str = "x-ropewalk-cache";
/// Headers with this prefix are for the tool.
const METADATA: &str = "x-ropewalk-meta-";

/// Lists the tools and sessions that the caller may call, with their schemas.
pub(super) async fn list(State(shared): State<Arc<Shared>>, request: HttpRequest<Body>) -> Response {
    let (caller, catalog) = (Caller::of(request.extensions()), shared.catalog.get());
    let tools: Vec<serde_json::Value> = catalog.tools_of(&caller).map(|tool| described(tool)).collect();
    let sessions: Vec<serde_json::Value> =
        catalog.sessions_of(&caller).map(|one| sessions::described(one)).collect();
    axum::Json(json!({ "tools": tools, "sessions": sessions })).into_response()
}

pub(super) fn described(tool: &Tool) -> serde_json::Value {
    let schema = |text: &str| serde_json::from_str::<Box<RawValue>>(text).ok();
    json!({
        "name": *tool.name,
        "description": tool.description,
        "input_schema": schema(&tool.input_schema),
        "output_schema": schema(&tool.output_schema),
        "streams": tool.streams,
        "read_only": tool.read_only,
        "idempotent": tool.idempotent,
    })
}

/// Calls a tool.
pub(super) async fn call(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    request: HttpRequest<Body>,
) -> Response {
    let (caller, catalog) = (Caller::of(request.extensions()), shared.catalog.get());
    let found = catalog.tool_for(&caller, &name);
    let found = found.map_err(|failed| sessions::no_tool(&catalog, &caller, &name, failed));
    let watched = shared.telemetry.begin(Protocol::Http, found.as_ref().ok().copied(), request.headers());
    watched.by(&caller);
    let answered = match found.and_then(|tool| caller.take().map(|()| tool)) {
        Ok(tool) => called(&shared, tool, request, &watched).await,
        Err(failed) => Err(failed),
    };
    answered.unwrap_or_else(|failed| {
        watched.failed(&failed);
        failed.into_response()
    })
}

async fn called(
    shared: &Shared,
    tool: &Arc<Tool>,
    request: HttpRequest<Body>,
    watched: &Watched,
) -> Result<Response, Failed> {
    let (parts, body) = request.into_parts();
    let form = form_of(&parts.headers)?;
    let deadline = deadline(&parts.headers)?.map(Deadline::from);
    let metadata = metadata(&parts.headers, watched);
    let arguments = read(body, shared.largest, shared.patience).await?;
    let given = npy::given(form, arguments, &parts.headers, tool.streams)?;
    let tool = Arc::clone(tool);
    let watched = watched.clone();
    let request = Request {
        tool: Arc::clone(&tool),
        form: given.form,
        arguments: given.arguments,
        beside: given.beside,
        metadata,
        deadline,
        reports: None,
        watched: watched.clone(),
    };
    if !tool.streams {
        let answer = shared.runner.call(request).await?;
        watched.ended();
        let mut response = answer.into_response();
        if let Some(found) = watched.lookup() {
            response.headers_mut().insert(CACHE, HeaderValue::from_static(found.name()));
        }
        return Ok(response);
    }
    check_stream(request.form)?;
    let as_events = wants_events(&parts.headers);
    let items = shared.runner.stream(request).await?;
    begun(items, as_events, watched).await
}

/// Answers a request by a method that its path does not take. The header `Allow` comes with the router.
pub(crate) async fn not_allowed(request: HttpRequest<Body>) -> Response {
    let text = format!(
        "this path takes no {}: the header Allow says what it takes",
        shortened(request.method().as_str())
    );
    Failed::new(Code::FailedPrecondition, text).with_status(StatusCode::METHOD_NOT_ALLOWED).into_response()
}

/// The items of a stream are JSON.
pub(super) fn check_stream(form: Form) -> Result<(), Failed> {
    if form != Form::Msgpack {
        return Ok(());
    }
    let text = "the items of a stream are JSON over HTTP: send its arguments as application/json";
    Err(Failed::new(Code::InvalidArgument, text).with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE))
}

/// A stream that has begun. A failure before the first item has a status of its own.
pub(super) async fn begun(items: Items, as_events: bool, watched: Watched) -> Result<Response, Failed> {
    let mut items = items.peekable();
    if let Some(Err(failed)) = Pin::new(&mut items).next_if(Result::is_err).await {
        return Err(failed);
    }
    Ok(streamed(items, as_events, watched))
}

/// What the body is, by its media type; JSON if there is none.
pub(super) fn form_of(headers: &HeaderMap) -> Result<Form, Failed> {
    let Some(value) = headers.get(CONTENT_TYPE) else { return Ok(Form::Json) };
    let media_type = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    Ok(match media_type.to_ascii_lowercase().as_str() {
        "application/json" | "" => Form::Json,
        "application/msgpack" | "application/x-msgpack" | "application/vnd.msgpack" => Form::Msgpack,
        "application/octet-stream" => Form::Raw,
        npy::MEDIA_TYPE => Form::Array,
        _ => {
            return Err(Failed::new(
                Code::InvalidArgument,
                "the body must be application/json, application/msgpack, application/octet-stream or \
                 application/x-npy",
            )
            .with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE));
        }
    })
}

/// When the caller gives up, by its header of seconds.
pub(super) fn deadline(headers: &HeaderMap) -> Result<Option<Instant>, Failed> {
    let Some(value) = headers.get(TIMEOUT) else { return Ok(None) };
    let seconds = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    let wrong =
        || Failed::new(Code::InvalidArgument, "the header X-Ropewalk-Timeout must be a number of seconds");
    seconds.and_then(after).ok_or_else(wrong)
}

/// The moment after so many seconds, if that is a time; one beyond the clock is none at all.
#[expect(clippy::option_option, reason = "no time is one thing, and what is none is another")]
pub(crate) fn after(seconds: f64) -> Option<Option<Instant>> {
    let is_time = seconds.is_finite() && seconds >= 0.0;
    let time = is_time.then(|| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX));
    time.map(|time| Instant::now().checked_add(time))
}

/// The headers for the tool, as a JSON object.
pub(super) fn metadata(headers: &HeaderMap, watched: &Watched) -> Bytes {
    let mut found = serde_json::Map::new();
    watched.add_context(&mut found);
    for (name, value) in headers {
        if let Some(key) = name.as_str().strip_prefix(METADATA)
            && let Ok(text) = value.to_str()
        {
            found.insert(key.to_owned(), json!(text));
        }
    }
    if found.is_empty() { Bytes::new() } else { Bytes::from(serde_json::Value::Object(found).to_string()) }
}

pub(crate) async fn read(body: Body, largest: usize, patience: Duration) -> Result<Bytes, Failed> {
    let mut body = Limited::new(body, largest);
    let mut first = Bytes::new();
    let mut whole = Vec::new();
    loop {
        let Ok(frame) = timeout(patience, body.frame()).await else {
            let text = "the body did not come in time";
            return Err(Failed::new(Code::Cancelled, text).with_status(StatusCode::REQUEST_TIMEOUT));
        };
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|error| unread(&*error, largest))?;
        let Ok(part) = frame.into_data() else { continue };
        // Most bodies come in one part, which is not copied.
        if first.is_empty() && whole.is_empty() {
            first = part;
        } else {
            whole.extend_from_slice(&std::mem::take(&mut first));
            whole.extend_from_slice(&part);
        }
    }
    Ok(if whole.is_empty() { first } else { Bytes::from(whole) })
}

/// Why a body was not read to its end.
fn unread(error: &(dyn Error + Send + Sync + 'static), largest: usize) -> Failed {
    if error.downcast_ref::<LengthLimitError>().is_none() {
        return Failed::new(Code::Cancelled, "the body did not come");
    }
    let text = format!("the body is larger than {largest} bytes, which is the server's limit");
    Failed::new(Code::ResourceExhausted, text).with_status(StatusCode::PAYLOAD_TOO_LARGE)
}

pub(super) fn wants_events(headers: &HeaderMap) -> bool {
    accepts(headers, "text/event-stream")
}

/// Whether a caller names this media type among those that it takes.
pub(super) fn accepts(headers: &HeaderMap, media_type: &str) -> bool {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|one| one.trim().starts_with(media_type))
}

/// An item as JSON: bytes are written in base64, as they are within JSON.
pub(crate) fn text_of(answer: &Answer) -> Bytes {
    if answer.form != Form::Raw {
        return answer.bytes.clone();
    }
    Bytes::from(format!("\"{}\"", STANDARD.encode(&answer.bytes)))
}

/// The most items that one part of a body has.
const TOGETHER: usize = 256;

/// Items as server-sent events, or as JSON Lines. A failure in the midst is the last one. Items that have come already
/// go out as one part, so that a fast generator does not cost a system call for each.
fn streamed(items: Peekable<Items>, as_events: bool, watched: Watched) -> Response {
    let parts = watched.over(items).ready_chunks(TOGETHER).map(move |items| {
        let mut part = Vec::with_capacity(items.len() * 32);
        for item in &items {
            let (name, text) = match item {
                Ok(answer) => ("item", text_of(answer)),
                Err(failed) => ("error", Bytes::from(answers::document(failed).to_string())),
            };
            if as_events { event(&mut part, name, &text) } else { line(&mut part, &text) }
        }
        Ok::<_, std::convert::Infallible>(Bytes::from(part))
    });
    let mut response = Response::new(Body::from_stream(parts));
    let media_type = if as_events { "text/event-stream" } else { "application/jsonl" };
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// Writes an event. JSON has no line breaks of its own; those of other text begin a field of their own each.
fn event(part: &mut Vec<u8>, name: &str, text: &[u8]) {
    part.extend_from_slice(b"event: ");
    part.extend_from_slice(name.as_bytes());
    for one in text.split(|byte| *byte == b'\n') {
        part.extend_from_slice(b"\ndata: ");
        part.extend_from_slice(one);
    }
    part.extend_from_slice(b"\n\n");
}

fn line(part: &mut Vec<u8>, text: &[u8]) {
    part.extend_from_slice(text);
    part.push(b'\n');
}
