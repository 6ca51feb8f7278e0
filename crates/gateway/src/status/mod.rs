//! What goes on, for those who watch: a document of the pools, calls and failures, as it is and as it changes; the page
//! that draws it; and what an operator may do about it.
//!
//! Nothing here runs while no client watches, but for the counters of the telemetry. See [`document`] for the numbers,
//! [`watchers`] for the events, [`inspector`] for the stacks of workers, [`actions`] for what is changed.

mod actions;
mod document;
mod dumps;
mod history;
mod inspector;
mod page;
mod watchers;
mod wishes;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::{fmt, io};

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use ropewalk_sync::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;

use self::history::Histories;
use self::inspector::Inspector;
use self::watchers::Watchers;
pub use self::wishes::{Answering, Counting, Wish, Wishes};
use crate::call::Runner;
use crate::clients::Caller;
use crate::failed::{Code, Failed};
use crate::guard::Guard;
use crate::http::Shared;
use crate::telemetry::Telemetry;

/// The dashboard of a server.
#[derive(Clone, Debug, Default)]
pub struct Dashboard {
    /// The socket, which listens, that workers connect to for their stacks to be looked at. Without one no stack is.
    pub socket: Option<Arc<OwnedFd>>,
}

/// Why a caller is none of the operator's, where every caller is admitted and the server listens to this machine alone.
const NO_OPERATOR: &str = "a proxy has passed the request on, or the request names another machine, and the \
                           server has no tokens by which it knows its operator: give it tokens (--token-file, \
                           --clients-file), or ask it at 127.0.0.1";

/// See the module.
pub(crate) struct Status {
    runner: Arc<dyn Runner>,
    telemetry: Arc<Telemetry>,
    shared: Arc<Shared>,
    guard: Arc<Guard>,
    inspector: Arc<Inspector>,
    histories: Mutex<Histories>,
    watchers: Watchers,
    wishes: Arc<Wishes>,
    /// Becomes true when the server leaves.
    leaving: watch::Receiver<bool>,
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Status").field("inspector", &self.inspector).finish_non_exhaustive()
    }
}

/// What a dashboard is made of.
pub(crate) struct Made<'a> {
    pub(crate) dashboard: &'a Dashboard,
    pub(crate) wishes: Arc<Wishes>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) runner: Arc<dyn Runner>,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) guard: Arc<Guard>,
    pub(crate) leaving: watch::Receiver<bool>,
}

impl Status {
    /// # Errors
    ///
    /// When the socket is none.
    pub(crate) fn new(parts: Made<'_>, runtime: &Handle) -> io::Result<Arc<Self>> {
        let Made { dashboard, wishes, shared, runner, telemetry, guard, leaving } = parts;
        let inspector = Inspector::start(dashboard.socket.as_deref(), runtime)?;
        Ok(Arc::new(Self {
            runner,
            telemetry,
            shared,
            guard,
            inspector,
            histories: Mutex::default(),
            watchers: Watchers::default(),
            wishes,
            leaving,
        }))
    }

    pub(crate) fn routes(self: Arc<Self>) -> Router {
        Router::new()
            .route("/v1/status", get(show))
            .route("/v1/status/events", get(watchers::events))
            .route("/v1/workers/{pool}/{number}/stack", post(actions::stack))
            .route("/v1/workers/{pool}/{number}/flame", post(actions::flame))
            .route("/v1/workers/{pool}/{number}/recycle", post(actions::recycle))
            .route("/v1/pools/{pool}/resize", post(actions::resize))
            .route("/v1/drain", post(actions::drain))
            .with_state(self)
            .merge(page::routes())
    }

    /// Whether the caller may change the server, or look into its workers.
    fn may_administer(&self, caller: &Caller) -> bool {
        (self.guard.is_local() && caller.is_direct()) || caller.is_admin()
    }

    /// Lets a caller read what goes on.
    ///
    /// # Errors
    ///
    /// When it may neither read the server's numbers nor control it.
    fn may_read(caller: &Caller) -> Result<(), Failed> {
        if caller.may_read_status() {
            return Ok(());
        }
        let text = if caller.is_client() {
            "the caller may not see what the server does: its entry needs `metrics = true` or `admin = true`"
        } else {
            NO_OPERATOR
        };
        Err(Failed::new(Code::PermissionDenied, text))
    }
}

/// `GET /v1/status`.
async fn show(State(status): State<Arc<Status>>, request: axum::extract::Request) -> Response {
    let caller = Caller::of(request.extensions());
    drop(request);
    if let Err(failed) = Status::may_read(&caller) {
        return failed.into_response();
    }
    let may_administer = status.may_administer(&caller);
    match document::whole(&status).await {
        Ok(text) => json(document::with_rights(&text, may_administer)),
        Err(failed) => failed.into_response(),
    }
}

fn json(text: String) -> Response {
    let mut response = text.into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A refusal with a status of its own.
fn refused(failed: Failed, status: StatusCode) -> Response {
    failed.with_status(status).into_response()
}
