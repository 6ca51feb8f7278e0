//! `/mcp`: Streamable HTTP.
//!
//! The server keeps no sessions. A client of a revision that has them is given a name for one, by which it can cancel
//! its calls; a client that leaves has cancelled them, in any revision.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, StatusCode};
use http_body_util::Full;
use rmcp::transport::common::http_header::HEADER_SESSION_ID;
use rmcp::transport::common::server_side_http::session_id;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};

use super::cancels::{Cancels, Entered};
use super::direct::Direct;
use super::handler::Handler;
use super::message::{Arguments, CANCELLED, INVALID_PARAMS, Refusal, Seen};
use crate::clients::Caller;
use crate::http::read;

struct Door {
    handler: Handler,
    cancels: Arc<Cancels>,
    service: StreamableHttpService<Handler, NeverSessionManager>,
}

pub(super) fn routes(handler: Handler) -> Router {
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_max_request_body_bytes(handler.shared.largest)
        // What guards every path guards this one: see `guard.rs`.
        .disable_allowed_hosts();
    let made = handler.clone();
    let service = StreamableHttpService::new(
        move || Ok(made.clone()),
        Arc::new(NeverSessionManager::default()),
        config,
    );
    let door = Door { handler, cancels: Arc::default(), service };
    Router::new().route("/mcp", any(serve)).with_state(Arc::new(door))
}

/// A message of JSON-RPC.
fn message(status: StatusCode, json: Bytes) -> Response {
    let mut response = Response::new(Body::from(json));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn refused(status: StatusCode, refusal: &Refusal) -> Response {
    message(status, Bytes::from(refusal.json()))
}

async fn serve(State(door): State<Arc<Door>>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    if parts.method != Method::POST {
        let request = Request::from_parts(parts, Full::new(Bytes::new()));
        return door.service.handle(request).await.into_response();
    }
    let body = match read(body, door.handler.shared.largest, door.handler.shared.patience).await {
        Ok(body) => body,
        Err(failed) if failed.status == Some(StatusCode::PAYLOAD_TOO_LARGE) => {
            return refused(StatusCode::PAYLOAD_TOO_LARGE, &Refusal::too_large(door.handler.shared.largest));
        }
        Err(failed) => return failed.into_response(),
    };
    let seen = match Seen::of(&body) {
        Ok(seen) => seen,
        Err(refusal) => return refused(StatusCode::BAD_REQUEST, &refusal),
    };
    let session = parts.headers.get(HEADER_SESSION_ID).and_then(|value| value.to_str().ok());
    if let Some((session, id)) = session.zip(seen.cancels()) {
        door.cancels.cancel(session, id);
    }
    let call = seen.call();
    let entered =
        call.as_ref().and(session).zip(seen.id).map(|(session, id)| door.cancels.enter(session, id.get()));
    let caller = Caller::of(&parts.extensions);
    // rmcp compares a call with the tool's schema before the handler hears of it, and would say what it found.
    let listing = door.handler.listing.get();
    if let Some(name) = seen.tool().filter(|name| !listing.may_call(&caller, name)) {
        let failed = Caller::denied(&name);
        let watched = door.handler.begin(None, Some(&parts.headers), std::iter::empty());
        watched.by(&caller);
        watched.failed(&failed);
        return refused(StatusCode::OK, &Refusal::new(INVALID_PARAMS, seen.id, failed.message));
    }
    if let Some(direct) = Direct::of(&door.handler, &listing, &parts.headers, &caller, &seen) {
        return called(&door.handler, direct, entered).await;
    }
    drop(listing);
    if let Some(entered) = entered {
        parts.extensions.insert(Arc::new(entered));
    }
    if let Some(arguments) = call.and_then(|call| call.bytes()) {
        parts.extensions.insert(Arguments(arguments));
    }
    let opens = seen.method.as_deref() == Some("initialize");
    let request = Request::from_parts(parts, Full::new(body.clone()));
    let mut response = door.service.handle(request).await.into_response();
    if opens
        && response.status() == StatusCode::OK
        && let Ok(name) = HeaderValue::from_str(&session_id())
    {
        response.headers_mut().insert(HEADER_SESSION_ID, name);
    }
    response
}

async fn called(handler: &Handler, direct: Direct<'_>, entered: Option<Entered>) -> Response {
    let id = direct.id();
    let done = match &entered {
        None => Some(direct.run(handler).await),
        Some(entered) => tokio::select! {
            biased;
            () = entered.cancelled() => None,
            done = direct.run(handler) => Some(done),
        },
    };
    match done {
        Some(Ok(json)) => message(StatusCode::OK, json),
        Some(Err(_)) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        // The client does not wait for what it has cancelled, but the request must end.
        None => refused(StatusCode::OK, &Refusal::new(CANCELLED, id, "the call was cancelled")),
    }
}
