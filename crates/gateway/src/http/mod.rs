//! HTTP: tools by POST, streams as server-sent events or JSON Lines, and what operators ask for.

mod answers;
mod openapi;
mod sessions;
mod tools;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::IntoResponse as _;
use axum::routing::{get, post};
use http::StatusCode;

pub(crate) use answers::document;
pub(crate) use tools::{CACHE, read, text_of};

use crate::call::Runner;
use crate::sessions::Sessions;
use crate::swap::Swap;
use crate::telemetry::Telemetry;
use crate::tool::Tools;

/// The tools, as they were loaded last. A call has begun when it has found its tool here, and holds the whole
/// meanwhile: what a reload replaces stays until the last such call has ended.
pub(crate) struct Catalog {
    pub(crate) tools: Tools,
    pub(crate) openapi: String,
}

impl Catalog {
    pub(crate) fn new(tools: Tools) -> Self {
        let openapi = openapi::document(&tools);
        Self { tools, openapi }
    }
}

/// What every request needs.
pub(crate) struct Shared {
    pub(crate) catalog: Swap<Catalog>,
    pub(crate) runner: Arc<dyn Runner>,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) sessions: Arc<Sessions>,
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
        largest: usize,
        patience: Duration,
    ) -> Self {
        let catalog = Swap::new(Catalog::new(tools));
        Self { catalog, runner, telemetry, sessions, largest, patience }
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
    headers: http::HeaderMap,
) -> axum::response::Response {
    // It asks the pools, whose locks are held for moments, and reads a file for each worker.
    let made = tokio::task::spawn_blocking(move || shared.telemetry.show(&headers)).await;
    made.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}
