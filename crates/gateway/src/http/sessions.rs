//! `POST /v1/sessions/NAME` opens a session, `POST /v1/sessions/ID/METHOD` calls it, `DELETE /v1/sessions/ID` ends it.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::header::{HeaderValue, LOCATION};
use http::{Extensions, HeaderMap, Request as HttpRequest, StatusCode};
use serde_json::{Value, json};

use super::{Catalog, Path, Shared, npy, tools};
use crate::arrays::Given;
use crate::call::{Form, Request};
use crate::clients::Caller;
use crate::deadline::Deadline;
use crate::failed::{Code, Failed};
use crate::sessions::{Entered, Owner, method};
use crate::telemetry::{Ended, Protocol, Watched};
use crate::tool::{SessionTool, Tool};

/// A session, with its methods.
pub(super) fn described(of: &SessionTool) -> Value {
    let opens = tools::described(&of.open);
    let methods: Vec<Value> = of
        .methods
        .iter()
        .map(|(name, tool)| {
            let mut method = tools::described(tool);
            method["name"] = json!(**name);
            method
        })
        .collect();
    json!({
        "name": opens["name"],
        "description": opens["description"],
        "input_schema": opens["input_schema"],
        "idle_timeout": of.idle_timeout.as_secs_f64(),
        "methods": methods,
    })
}

/// There is no tool of this name for the caller; perhaps there is a session.
pub(super) fn no_tool(catalog: &Catalog, caller: &Caller, name: &str, failed: Failed) -> Failed {
    match catalog.session_for(caller, name) {
        Err(_) => failed,
        Ok(_) => {
            let text = format!("{name:?} is a session: open it by POST /v1/sessions/{name}");
            Failed::new(Code::FailedPrecondition, text)
        }
    }
}

/// Opens a session.
pub(super) async fn open(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    request: HttpRequest<Body>,
) -> Response {
    let (caller, catalog) = (Caller::of(request.extensions()), shared.catalog.get());
    let found = catalog.session_for(&caller, &name);
    let tool = found.as_ref().ok().map(|of| &of.open);
    let watched = shared.telemetry.begin(Protocol::Http, tool, request.headers());
    watched.by(&caller);
    let opened = async {
        let of = found.and_then(|of| caller.take().map(|()| of))?;
        let owner = Owner::of(request.extensions());
        let (_, request) = read(&shared, &of.open, request, &watched).await?;
        let session = shared.sessions.open(of, owner, Protocol::Http, request).await?;
        Ok((session, of))
    };
    match opened.await {
        Err(failed) => answered(&watched, failed),
        Ok((session, of)) => {
            watched.ended();
            let said = json!({"session": **session.id(), "idle_timeout": of.idle_timeout.as_secs_f64()});
            let mut response = (StatusCode::CREATED, axum::Json(said)).into_response();
            if let Ok(place) = HeaderValue::try_from(format!("/v1/sessions/{}", session.id())) {
                response.headers_mut().insert(LOCATION, place);
            }
            response
        }
    }
}

/// Calls a method of a session.
pub(super) async fn call(
    State(shared): State<Arc<Shared>>,
    Path((id, name)): Path<(String, String)>,
    request: HttpRequest<Body>,
) -> Response {
    let caller = Caller::of(request.extensions());
    let found = shared.sessions.find(&id, &Owner::of(request.extensions()));
    let found = found.and_then(|session| {
        session.admit(&caller)?;
        let tool = Arc::clone(method(session.of(), &name)?);
        Ok((session, tool))
    });
    let tool = found.as_ref().ok().map(|(_, tool)| tool);
    let watched = shared.telemetry.begin(Protocol::Http, tool, request.headers());
    watched.by(&caller);
    let called = async {
        let (session, tool) = found.and_then(|found| caller.take().map(|()| found))?;
        let (headers, request) = read(&shared, &tool, request, &watched).await?;
        if tool.streams {
            tools::check_stream(request.form)?;
        }
        run(&shared, shared.sessions.enter(&session)?, headers, request, &watched).await
    };
    called.await.unwrap_or_else(|failed| answered(&watched, failed))
}

async fn run(
    shared: &Shared,
    entered: Entered,
    headers: HeaderMap,
    request: Request,
    watched: &Watched,
) -> Result<Response, Failed> {
    if request.tool.streams {
        let items = shared.sessions.stream(entered, request).await?;
        return tools::begun(items, tools::wants_events(&headers), watched.clone()).await;
    }
    let answer = shared.sessions.call(entered, request).await?;
    watched.ended();
    Ok(answer.into_response())
}

/// Ends a session.
pub(super) async fn end(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    extensions: Extensions,
) -> Response {
    let ended = match shared.sessions.find(&id, &Owner::of(&extensions)) {
        Ok(session) => shared.sessions.end(&session, Ended::Closed).await,
        Err(failed) => Err(failed),
    };
    match ended {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(failed) => failed.into_response(),
    }
}

fn answered(watched: &Watched, failed: Failed) -> Response {
    watched.failed(&failed);
    failed.into_response()
}

/// The call that a request asks for, and the request's headers.
async fn read(
    shared: &Shared,
    tool: &Arc<Tool>,
    request: HttpRequest<Body>,
    watched: &Watched,
) -> Result<(HeaderMap, Request), Failed> {
    let (parts, body) = request.into_parts();
    let form = tools::form_of(&parts.headers)?;
    let deadline = tools::deadline(&parts.headers)?.map(Deadline::from);
    let metadata = tools::metadata(&parts.headers, watched);
    let arguments = tools::read(body, shared.largest, shared.patience).await?;
    // What opens or ends a session may have no body.
    let arguments =
        if arguments.is_empty() && form == Form::Json { bytes::Bytes::from_static(b"{}") } else { arguments };
    let Given { form, arguments, beside } = npy::given(form, arguments, &parts.headers, tool.streams)?;
    let (tool, watched) = (Arc::clone(tool), watched.clone());
    let request = Request { tool, form, arguments, beside, metadata, deadline, reports: None, watched };
    Ok((parts.headers, request))
}
