//! What an operator does: looks into a worker, replaces it, changes the number of workers, ends the server.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use http::request::Parts;
use ropewalk_pool::{Engine, Which};
use serde::Deserialize;
use serde_json::{Value, json};

use super::inspector::{Look, Worker};
use super::wishes::Wish;
use super::{NO_OPERATOR, Status, json as answered};
use crate::clients::Caller;
use crate::failed::{Code, Failed};
use crate::http::{Path, Query, read};

/// Bytes of a body.
const LARGEST: usize = 1024;
/// Workers that a pool may be given here.
const MOST_WORKERS: usize = 1024;
/// How long a flame may be looked at.
const LONGEST_FLAME: f64 = 30.0;

type Asked = axum::extract::Request;

impl Status {
    fn admit(&self, request: &Parts) -> Result<(), Failed> {
        if self.may_administer(&Caller::of(&request.extensions)) {
            return Ok(());
        }
        let text = if self.shared.roster.is_open() && self.guard.is_local() {
            NO_OPERATOR
        } else if self.shared.roster.is_open() {
            "the server is open to other machines and has no tokens, so it takes no orders: give it tokens \
             (--token-file, --clients-file), or let it serve 127.0.0.1"
        } else {
            "the caller may not control the server: its entry needs `admin = true`"
        };
        Err(Failed::new(Code::PermissionDenied, text))
    }

    fn pool(&self, name: &str) -> Result<Engine, Failed> {
        let found = self.runner.engines().into_iter().find(|engine| *engine.name() == *name);
        found.ok_or_else(|| Failed::new(Code::NotFound, "the server has no pool of this name"))
    }

    /// The pool of this name, and the process of its worker of this number.
    fn worker(&self, pool: &str, number: u64) -> Result<(Engine, i32), Failed> {
        let engine = self.pool(pool)?;
        let workers = engine.statistics().map(|statistics| statistics.workers).unwrap_or_default();
        let found = workers.iter().find(|worker| worker.number == number).map(|worker| worker.pid);
        let pid = found.ok_or_else(|| {
            Failed::new(Code::NotFound, format!("the pool has no worker {number} any more"))
        })?;
        Ok((engine, pid))
    }

    async fn look(&self, pool: &str, number: u64, look: Look) -> Result<Value, Failed> {
        let (engine, pid) = self.worker(pool, number)?;
        let seen = self.inspector.look(Worker { engine: &engine, number, pid }, look).await?;
        let mut said = serde_json::to_value(seen)
            .map_err(|_| Failed::new(Code::Internal, "what the worker said cannot be shown"))?;
        if let Some(said) = said.as_object_mut() {
            said.insert(String::from("pool"), json!(pool));
            said.insert(String::from("worker"), json!(number));
            said.insert(String::from("pid"), json!(pid));
        }
        Ok(said)
    }
}

fn reply(result: Result<Value, Failed>) -> Response {
    match result {
        Ok(value) => answered(value.to_string()),
        Err(failed) => failed.into_response(),
    }
}

/// `POST /v1/workers/POOL/NUMBER/stack`.
pub(super) async fn stack(
    State(status): State<Arc<Status>>,
    Path((pool, number)): Path<(String, u64)>,
    request: Asked,
) -> Response {
    let (parts, _) = request.into_parts();
    let looked = async {
        status.admit(&parts)?;
        status.look(&pool, number, Look::Stack).await
    };
    reply(looked.await)
}

/// For how long a flame is looked at.
#[derive(Debug, Deserialize)]
pub(super) struct Time {
    seconds: Option<f64>,
}

/// `POST /v1/workers/POOL/NUMBER/flame?seconds=2`.
pub(super) async fn flame(
    State(status): State<Arc<Status>>,
    Path((pool, number)): Path<(String, u64)>,
    Query(time): Query<Time>,
    request: Asked,
) -> Response {
    let (parts, _) = request.into_parts();
    let looked = async {
        status.admit(&parts)?;
        let seconds = time.seconds.unwrap_or(2.0);
        if !(0.1..=LONGEST_FLAME).contains(&seconds) {
            let text = format!("seconds must be from 0.1 to {LONGEST_FLAME}");
            return Err(Failed::new(Code::InvalidArgument, text));
        }
        status.look(&pool, number, Look::Flame(Duration::from_secs_f64(seconds))).await
    };
    reply(looked.await)
}

/// `POST /v1/workers/POOL/NUMBER/recycle`: another worker takes its place, and it leaves when it has run what it runs.
pub(super) async fn recycle(
    State(status): State<Arc<Status>>,
    Path((pool, number)): Path<(String, u64)>,
    request: Asked,
) -> Response {
    let (parts, _) = request.into_parts();
    let done = || {
        status.admit(&parts)?;
        let (engine, _) = status.worker(&pool, number)?;
        let marked = engine.recycle(Which::Number(number));
        if marked == 0 {
            return Err(Failed::new(Code::FailedPrecondition, "the worker leaves already"));
        }
        Ok(json!({"recycling": marked}))
    };
    reply(done())
}

/// `POST /v1/pools/POOL/resize` with `{"workers": 4}`.
pub(super) async fn resize(
    State(status): State<Arc<Status>>,
    Path(pool): Path<String>,
    request: Asked,
) -> Response {
    let (parts, body) = request.into_parts();
    let done = async {
        status.admit(&parts)?;
        let engine = status.pool(&pool)?;
        let body = read(Body::new(body), LARGEST, Duration::from_secs(10)).await?;
        let size: Option<Value> = serde_json::from_slice(&body).ok();
        let workers = size.as_ref().and_then(|size| usize::try_from(size.get("workers")?.as_u64()?).ok());
        let Some(workers) = workers.filter(|workers| (1..=MOST_WORKERS).contains(workers)) else {
            let text = format!("the body must be {{\"workers\": N}}, with N from 1 to {MOST_WORKERS}");
            return Err(Failed::new(Code::InvalidArgument, text));
        };
        if engine.is_closed() {
            return Err(Failed::new(Code::FailedPrecondition, "the pool takes no more tasks"));
        }
        engine.resize(workers);
        Ok(json!({"workers": workers}))
    };
    reply(done.await)
}

/// `POST /v1/drain`: the server ends as after SIGTERM.
pub(super) async fn drain(State(status): State<Arc<Status>>, request: Asked) -> Response {
    let (parts, _) = request.into_parts();
    if let Err(failed) = status.admit(&parts) {
        return failed.into_response();
    }
    if !status.wishes.leave(Wish::Drain) {
        return Failed::new(Code::FailedPrecondition, "the program does not end its server on request")
            .into_response();
    }
    (StatusCode::ACCEPTED, answered(String::from("{\"draining\":true}"))).into_response()
}
