//! HTTP: tools by POST, streams as server-sent events or JSON Lines, and what operators ask for.

mod answers;
mod asked;
mod npy;
mod openapi;
mod sessions;
mod tools;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::IntoResponse as _;
use axum::routing::{get, post};
use http::StatusCode;

pub(crate) use answers::{document, whole_seconds};
pub(crate) use asked::{Path, Query};
pub(crate) use tools::{CACHE, TIMEOUT, after, not_allowed, read, text_of};

use crate::call::Runner;
use crate::clients::{Caller, Roster};
use crate::failed::{Code, Failed};
use crate::sessions::Sessions;
use crate::swap::Swap;
use crate::telemetry::Telemetry;
use crate::tool::{SessionTool, Tool, Tools};

/// The tools, as they were loaded last. A call has begun when it has found its tool here, and holds the whole
/// meanwhile: what a reload replaces stays until the last such call has ended.
pub(crate) struct Catalog {
    pub(crate) tools: Tools,
    pub(crate) openapi: String,
}

impl Catalog {
    pub(crate) fn new(tools: Tools) -> Self {
        let openapi = openapi::document(tools.iter(), tools.sessions());
        Self { tools, openapi }
    }

    /// The tool of this name, if the caller may call it. One that may not does not learn whether there is such a tool.
    pub(crate) fn tool_for(&self, caller: &Caller, name: &str) -> Result<&Arc<Tool>, Failed> {
        if !caller.may_call(name) {
            return Err(Caller::denied(name));
        }
        self.tools.get(name).ok_or_else(|| Failed::no_tool(name))
    }

    /// The session of this name, if the caller may open it. Who may do that may call its methods.
    pub(crate) fn session_for(&self, caller: &Caller, name: &str) -> Result<&Arc<SessionTool>, Failed> {
        if !caller.may_call(name) {
            return Err(Caller::denied(name));
        }
        self.tools.session(name).ok_or_else(|| Failed::no_session(name))
    }

    /// The sessions that the caller may know of.
    pub(crate) fn sessions_of(&self, caller: &Caller) -> impl Iterator<Item = &Arc<SessionTool>> {
        self.tools.sessions().filter(|session| caller.may_call(session.name()))
    }

    /// The tools that the caller may know of.
    pub(crate) fn tools_of(&self, caller: &Caller) -> impl Iterator<Item = &Arc<Tool>> {
        self.tools.iter().filter(|tool| caller.may_call(&tool.name))
    }
}

/// What every request needs.
pub(crate) struct Shared {
    pub(crate) catalog: Swap<Catalog>,
    pub(crate) runner: Arc<dyn Runner>,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) sessions: Arc<Sessions>,
    /// Who may call.
    pub(crate) roster: Arc<Roster>,
    /// Bytes that the body of a request may have.
    pub(crate) largest: usize,
    /// How long the next part of a body may take.
    pub(crate) patience: Duration,
}

impl Shared {
    pub(crate) fn new(
        tools: Tools,
        runner: Arc<dyn Runner>,
        telemetry: Arc<Telemetry>,
        sessions: Arc<Sessions>,
        roster: Arc<Roster>,
        largest: usize,
        patience: Duration,
    ) -> Self {
        let catalog = Swap::new(Catalog::new(tools));
        Self { catalog, runner, telemetry, sessions, roster, largest, patience }
    }
}

pub(crate) fn routes(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/v1/tools", get(tools::list))
        .route("/v1/tools/{name}", post(tools::call))
        .route("/v1/sessions/{session}", post(sessions::open).delete(sessions::end))
        .route("/v1/sessions/{session}/{method}", post(sessions::call))
        .route("/openapi.json", get(openapi::show))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(shared)
}

/// The server runs, whatever its tools do.
async fn healthz() -> &'static str {
    "ok\n"
}

/// Whether it takes calls.
async fn readyz(
    axum::extract::State(shared): axum::extract::State<Arc<Shared>>,
) -> (http::StatusCode, String) {
    match shared.runner.readiness().why_not() {
        None => (http::StatusCode::OK, String::from("ready\n")),
        Some(why) => (http::StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

/// The numbers, for Prometheus.
async fn metrics(
    axum::extract::State(shared): axum::extract::State<Arc<Shared>>,
    request: axum::extract::Request,
) -> axum::response::Response {
    if !Caller::of(request.extensions()).may_read_metrics() {
        let text = "the caller may not read the server's numbers: its entry needs `metrics = true`";
        return Failed::new(Code::PermissionDenied, text).into_response();
    }
    let headers = request.into_parts().0.headers;
    // It asks the pools, whose locks are held for moments, and reads a file for each worker.
    let made = tokio::task::spawn_blocking(move || shared.telemetry.show(&headers)).await;
    made.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}
