//! Results that answer equal calls, without a worker.
//!
//! Calls are equal when tool, form, arguments, arrays and metadata are the same bytes, and the result is wanted in the
//! same form. While one of them runs, the others wait
//! for its result; what runs is given up when the last of them has left. Only results are kept, and no failures.

mod kept;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared as Joint, WeakShared};
use ropewalk_pool::Engine;
use ropewalk_sync::Mutex;
use serde_json::{Map, Value};
use tokio::time::timeout_at;

use self::kept::{Kept, Key};
use crate::call::{Answer, Items, Readiness, Request, Runner, Seat};
use crate::deadline::Deadline;
use crate::failed::{Failed, Shed};
use crate::telemetry::{Lookup, Now, PARENT, STATE};
use crate::tool::SessionTool;

/// A run that several calls wait for.
type Flight = BoxFuture<'static, Result<Answer, Failed>>;

/// Answers calls of tools that have `cache_ttl` from memory, and passes on all others.
pub struct Cached(Arc<Shared>);

struct Shared {
    runner: Arc<dyn Runner>,
    state: Mutex<State>,
}

struct State {
    kept: Kept,
    /// Each has a number.
    flights: HashMap<Key, (u64, WeakShared<Flight>)>,
    /// The number of the last.
    flown: u64,
}

impl Cached {
    /// Calls go to this runner whose result is not here. So many bytes are kept at most.
    pub fn new(runner: Arc<dyn Runner>, size: usize) -> Self {
        let state = Mutex::new(State { kept: Kept::new(size), flights: HashMap::new(), flown: 0 });
        Self(Arc::new(Shared { runner, state }))
    }

    /// Forgets all results. What runs answers the calls that wait for it, and no later ones.
    pub fn clear(&self) {
        let mut state = self.0.state.lock();
        let left = (state.kept.clear(), std::mem::take(&mut state.flights));
        drop(state);
        drop(left);
    }
}

/// What makes calls equal beside their arguments: the metadata without the trace, which is another one for each call.
fn metadata(said: &Bytes) -> Bytes {
    if said.is_empty() {
        return Bytes::new();
    }
    let Ok(mut found) = serde_json::from_slice::<Map<String, Value>>(said) else { return said.clone() };
    let traced = [PARENT, STATE].iter().filter(|name| found.remove(name.as_str()).is_some()).count();
    match (traced, found.is_empty()) {
        (0, _) => said.clone(),
        (_, true) => Bytes::new(),
        (_, false) => Bytes::from(Value::Object(found).to_string()),
    }
}

impl Shared {
    async fn call(self: Arc<Self>, ttl: Duration, request: Request) -> Result<Answer, Failed> {
        let now = Instant::now();
        let (deadline, watched) = (request.deadline, request.watched.clone());
        if let Some(deadline) = deadline.filter(|deadline| deadline.at <= now) {
            return Err(deadline.passed().shed(Shed::Deadline));
        }
        let key = Key::new(&request, metadata(&request.metadata));
        let (flight, found) = {
            let mut state = self.state.lock();
            if let Some(answer) = state.kept.get(&key, now) {
                drop(state);
                watched.looked_up(Lookup::Hit);
                return Ok(answer);
            }
            match state.flights.get(&key).and_then(|(_, flight)| flight.upgrade()) {
                Some(flight) => (flight, Lookup::Shared),
                None => {
                    state.flown += 1;
                    let number = state.flown;
                    let flight = Arc::clone(&self).fly(number, key.clone(), ttl, request).boxed().shared();
                    if let Some(weak) = flight.downgrade() {
                        state.flights.insert(key, (number, weak));
                    }
                    (flight, Lookup::Miss)
                }
            }
        };
        watched.looked_up(found);
        wait(flight, deadline).await
    }

    /// Runs a call for all that wait for it. Each of them has a deadline of its own; the tool's hold for all.
    async fn fly(
        self: Arc<Self>,
        number: u64,
        key: Key,
        ttl: Duration,
        request: Request,
    ) -> Result<Answer, Failed> {
        let tool = Arc::clone(&request.tool);
        let landing = Landing { shared: &self, number, key: &key };
        let done = self.runner.call(Request { deadline: None, reports: None, ..request }).await;
        if let Ok(answer) = &done {
            // What it came in may be much larger, a batch's answer for instance.
            let answer = Answer { form: answer.form, bytes: Bytes::copy_from_slice(&answer.bytes) };
            let until = Instant::now().checked_add(ttl);
            let mut state = self.state.lock();
            let left = state.kept.put(key.clone(), answer, until);
            drop(state);
            drop(left);
        }
        drop(landing);
        drop(tool);
        done
    }
}

async fn wait(flight: Joint<Flight>, deadline: Option<Deadline>) -> Result<Answer, Failed> {
    match deadline {
        None => flight.await,
        Some(deadline) => {
            timeout_at(deadline.at.into(), flight).await.unwrap_or_else(|_| Err(deadline.passed()))
        }
    }
}

/// A run that others may wait for; they may not when it has ended, or was given up.
struct Landing<'a> {
    shared: &'a Shared,
    number: u64,
    key: &'a Key,
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        let gone = {
            let flights = &mut self.shared.state.lock().flights;
            // Once all have left this one, the next call begins another under its key.
            let is_own = flights.get(self.key).is_some_and(|(number, _)| *number == self.number);
            if is_own { flights.remove(self.key) } else { None }
        };
        drop(gone);
    }
}

impl Runner for Cached {
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Answer, Failed>> {
        match request.tool.cache_ttl {
            Some(ttl) => Box::pin(Arc::clone(&self.0).call(ttl, request)),
            None => self.0.runner.call(request),
        }
    }

    fn stream(&self, request: Request) -> BoxFuture<'_, Result<Items, Failed>> {
        self.0.runner.stream(request)
    }

    fn seat(&self, of: &SessionTool) -> Result<Arc<dyn Seat>, Failed> {
        self.0.runner.seat(of)
    }

    fn readiness(&self) -> Readiness {
        self.0.runner.readiness()
    }

    fn now(&self) -> Now {
        let cached = {
            let state = self.0.state.lock();
            (state.kept.len(), state.kept.bytes())
        };
        Now { cached: Some(cached), ..self.0.runner.now() }
    }

    fn engines(&self) -> Vec<Engine> {
        self.0.runner.engines()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_makes_no_call_another_one() {
        let plain = Bytes::from_static(br#"{"user": "a"}"#);
        assert_eq!(metadata(&plain), plain);
        let traced = Bytes::from_static(br#"{"traceparent": "00-1-2-01", "user": "a", "tracestate": "x=y"}"#);
        assert_eq!(metadata(&traced), Bytes::from_static(br#"{"user":"a"}"#));
        assert_eq!(metadata(&Bytes::from_static(br#"{"traceparent": "00-1-2-01"}"#)), Bytes::new());
        assert_eq!(metadata(&Bytes::from_static(b"[")), Bytes::from_static(b"["));
    }
}
