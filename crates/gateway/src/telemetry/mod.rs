//! What operators see of a server: numbers for Prometheus, spans and numbers for OpenTelemetry, records for a log.
//!
//! All of it comes from the gateway's own view of a call, from the records of tasks and from the pools' supervisors; no
//! worker runs code for it. See [`families`] for the numbers, [`otlp`] for what is exported, [`lines`] for the log.

mod call;
mod context;
mod failures;
mod families;
mod lines;
mod meters;
mod otlp;
mod pools;
mod prometheus;
mod seconds;
mod sessions;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};
use std::{fmt, io};

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method, StatusCode};
use opentelemetry::KeyValue;
use tokio::runtime::Handle;

pub use self::call::Watched;
use self::call::Watching;
use self::context::Trace;
pub(crate) use self::context::{PARENT, STATE};
pub(crate) use self::failures::{Failure, Failures};
use self::families::{Family, Name, Value};
pub use self::lines::{EndedWorker, Gravity, Lines, Logged, Logging, Taken};
pub(crate) use self::meters::Lookup;
pub use self::meters::Protocol;
use self::meters::{OfTool, Requests, is_fault, route, status};
pub use self::otlp::Export;
use self::otlp::Otlp;
pub use self::pools::{BusNow, Now};
use self::prometheus::Format;
pub(crate) use self::seconds::{KEPT, Second, Totals};
pub(crate) use self::sessions::{Ended, OfSessions};
use crate::failed::Code;
use crate::swap::Swap;
use crate::tool::{Tool, Tools};

/// The label of calls whose tool does not exist: the names that clients make up are no labels.
const UNKNOWN: &str = "_unknown";

/// See the module.
pub(crate) struct Telemetry {
    /// What is counted of each tool, of those that are gone, too.
    tools: Swap<HashMap<Arc<str>, Arc<OfTool>>>,
    unknown: Arc<OfTool>,
    /// What is counted of sessions by their names, of those that are gone, too.
    sessions: Swap<BTreeMap<Arc<str>, Arc<OfSessions>>>,
    requests: Requests,
    /// Clients that were dropped, by protocol. Orders nothing: relaxed.
    dropped: [AtomicU64; Protocol::ALL.len()],
    lines: Arc<Lines>,
    /// What gives the pools' numbers.
    now: Box<dyn Fn() -> Now + Send + Sync>,
    /// Set when an exporter was started.
    otlp: OnceLock<Otlp>,
    /// When the server's first second began.
    began: Instant,
    failures: Failures,
}

/// What has been counted of a tool.
pub(crate) struct Counted {
    pub(crate) name: Arc<str>,
    /// Its calls that go on.
    pub(crate) active: u64,
    pub(crate) totals: Totals,
    pub(crate) seconds: Vec<Second>,
    pub(crate) shed: Vec<(&'static str, u64)>,
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry").field("otlp", &self.otlp).finish_non_exhaustive()
    }
}

impl Telemetry {
    /// Counts the calls of these tools. `now` asks the pools.
    pub(crate) fn new(
        tools: &Tools,
        lines: Arc<Lines>,
        now: impl Fn() -> Now + Send + Sync + 'static,
    ) -> Arc<Self> {
        let of = |name: &Arc<str>| Arc::new(OfTool::new(Arc::clone(name)));
        Arc::new(Self {
            tools: Swap::new(tools.all().map(|tool| (Arc::clone(&tool.name), of(&tool.name))).collect()),
            unknown: of(&UNKNOWN.into()),
            sessions: Swap::new(sessions::counted(BTreeMap::new(), tools)),
            requests: Requests::default(),
            dropped: Default::default(),
            lines,
            now: Box::new(now),
            otlp: OnceLock::new(),
            began: Instant::now(),
            failures: Failures::default(),
        })
    }

    /// Starts what exports spans and numbers, if the settings or the environment want that.
    ///
    /// # Errors
    ///
    /// When the collector's address is none.
    pub(crate) fn export(self: &Arc<Self>, export: &Export, runtime: &Handle) -> io::Result<()> {
        let weak = Arc::downgrade(self);
        let source: otlp::Source =
            Arc::new(move || weak.upgrade().map_or_else(Vec::new, |telemetry| telemetry.families()));
        if let Some(otlp) = Otlp::start(export, runtime, &source)? {
            let _ = self.otlp.set(otlp);
        }
        Ok(())
    }

    /// These are the tools from now on. Those that there were go on counting where they were.
    pub(crate) fn replace(&self, tools: &Tools) {
        let mut counted = HashMap::clone(&self.tools.get());
        for tool in tools.all() {
            let name = Arc::clone(&tool.name);
            counted.entry(name).or_insert_with(|| Arc::new(OfTool::new(Arc::clone(&tool.name))));
        }
        drop(self.tools.replace(counted));
        let counted = sessions::counted(BTreeMap::clone(&self.sessions.get()), tools);
        drop(self.sessions.replace(counted));
    }

    /// A call has come, of a tool if there is such a one.
    pub(crate) fn begin(
        self: &Arc<Self>,
        protocol: Protocol,
        tool: Option<&Arc<Tool>>,
        headers: &HeaderMap,
    ) -> Watched {
        let tools = self.tools.get();
        let tool = tool.and_then(|tool| tools.get(&tool.name)).unwrap_or(&self.unknown);
        let trace = match self.otlp.get().and_then(Otlp::sampler) {
            Some(sampler) => Some(Trace::own(headers, sampler, &tool.name)),
            None => Trace::passed(headers),
        };
        Watched::new(self, protocol, tool, trace)
    }

    /// A client did not take what it was sent, and was dropped.
    pub(crate) fn dropped(&self, protocol: Protocol) {
        if let Some(count) = self.dropped.get(protocol as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What is counted of the sessions of this name.
    pub(crate) fn sessions(&self, name: &str) -> Option<Arc<OfSessions>> {
        self.sessions.get().get(name).cloned()
    }

    /// Calls of a tool go to a worker together.
    fn batched(&self, tool: &OfTool, size: usize) {
        tool.batched(size);
        if let Some(otlp) = self.otlp.get() {
            otlp.batched(&tool.name, size);
        }
    }

    /// A call is over.
    fn over(&self, call: &Watching) {
        let (code, shed, message) = call.end();
        let took = call.took();
        let ran = call.ran.get();
        call.tool.items.fetch_add(call.items(), Ordering::Relaxed);
        if let Some(ran) = ran {
            if let Some(queued) = ran.queued {
                call.tool.queue.add(queued);
            }
            if ran.answered {
                call.tool.run.add(Duration::from_nanos(ran.record.busy_ns));
            }
        }
        let second = self.second();
        call.tool.turn(second);
        call.tool.ended(call.protocol, code, shed, took);
        if is_fault(code) {
            self.failures.add(second, || self.failure(call));
        }
        if let Some(otlp) = self.otlp.get() {
            otlp.over(call);
        }
        let gravity = gravity(code);
        if self.lines.wants(gravity) {
            self.lines.add(Logged {
                gravity,
                at: SystemTime::now(),
                tool: Arc::clone(&call.tool.name),
                protocol: call.protocol.name(),
                caller: call.caller.get().cloned(),
                status: status(code),
                message: message.map(str::to_owned),
                raised: call.raised(),
                took,
                queued: ran.and_then(|ran| ran.queued),
                ran: ran.filter(|ran| ran.answered).map(|ran| Duration::from_nanos(ran.record.busy_ns)),
                pid: ran.map_or(0, |ran| ran.record.pid),
                attempts: ran.map_or(0, |ran| ran.attempts),
                items: call.items(),
                trace: call.trace.as_ref().and_then(Trace::numbers),
            });
        }
    }

    /// The number of this second since the server's start, from 1 on.
    pub(crate) fn second(&self) -> u64 {
        self.began.elapsed().as_secs() + 1
    }

    /// How long the server has been there.
    pub(crate) fn age(&self) -> Duration {
        self.began.elapsed()
    }

    /// The last calls that failed.
    pub(crate) fn failures(&self) -> &Failures {
        &self.failures
    }

    /// What has been counted of the tools, with the seconds from `from` on; nothing of those that no client has called.
    pub(crate) fn counted(&self, from: u64) -> Vec<Counted> {
        let now = self.second();
        let tools = self.tools_by_name().into_iter();
        let counted = tools.map(|tool| {
            let (seconds, totals) = tool.seconds(from, now);
            let shed = tool.shed().filter(|(_, count)| *count > 0);
            Counted {
                name: Arc::clone(&tool.name),
                active: tool.active.load(Ordering::Relaxed),
                totals,
                seconds,
                shed: shed.map(|(cause, count)| (cause.name(), count)).collect(),
            }
        });
        counted.filter(|tool| tool.totals.ended > 0 || tool.active > 0).collect()
    }

    fn failure(&self, call: &Watching) -> Failure {
        let (code, _, message) = call.end();
        let ran = call.ran.get();
        Failure {
            number: 0,
            at: SystemTime::now(),
            tool: Arc::clone(&call.tool.name),
            protocol: call.protocol.name(),
            status: status(code),
            message: message.unwrap_or_default().into(),
            traceback: call.traceback(),
            took: call.took().as_secs_f64(),
            pid: ran.map_or(0, |ran| ran.record.pid),
            attempts: ran.map_or(0, |ran| ran.attempts),
            trace: call.trace.as_ref().and_then(Trace::numbers).map(|(trace, _)| trace),
        }
    }

    /// All numbers.
    fn families(&self) -> Vec<Family> {
        let mut families = meters::families(self.tools_by_name().iter());
        families.extend(sessions::families(self.sessions.get().values()));
        families.extend(self.requests.families());
        families.extend(pools::families(&(self.now)()));
        let mut dropped = Family::new(Name::Dropped);
        for (protocol, count) in Protocol::ALL.iter().zip(&self.dropped) {
            if let count @ 1.. = count.load(Ordering::Relaxed) {
                dropped.add(&[("protocol", &protocol.name().into())], Value::Whole(count));
            }
        }
        families.push(dropped);
        let mut lost = Family::new(Name::Lost);
        lost.add(&[], Value::Whole(self.lines.dropped()));
        families.push(lost);
        families
    }

    fn tools_by_name(&self) -> Vec<Arc<OfTool>> {
        let mut tools: Vec<_> = self.tools.get().values().cloned().collect();
        tools.sort_by(|one, other| one.name.cmp(&other.name));
        tools.push(Arc::clone(&self.unknown));
        tools
    }

    /// `GET /metrics`.
    pub(crate) fn show(&self, headers: &HeaderMap) -> Response {
        let format = Format::of(headers);
        match prometheus::text(self.families(), format) {
            Ok(text) => ([(CONTENT_TYPE, format.content_type())], text).into_response(),
            Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        }
    }

    /// Exports what is left.
    pub(crate) fn shutdown(&self) {
        if let Some(otlp) = self.otlp.get() {
            otlp.shutdown();
        }
    }

    fn request(&self, method: &Method, route: &'static str, status: u16, took: Duration) {
        let method = self.requests.ended(method, route, status, took);
        if let Some(otlp) = self.otlp.get() {
            let attributes = || {
                vec![
                    KeyValue::new("http.request.method", method),
                    KeyValue::new("http.route", route),
                    KeyValue::new("http.response.status_code", i64::from(status)),
                ]
            };
            otlp.request(&attributes, took);
        }
    }
}

/// How grave the end of a call is, for the operator of the server.
fn gravity(code: Option<Code>) -> Gravity {
    match code {
        Some(Code::Unknown | Code::Internal | Code::DataLoss) => Gravity::Error,
        Some(Code::Unavailable | Code::DeadlineExceeded) => Gravity::Warning,
        // A server that sheds load must not have more to write the more it sheds: that is counted.
        _ => Gravity::Info,
    }
}

/// A request whose answer has not begun. Dropped before that, its client has left.
struct Answering<'a>(&'a Telemetry);

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        self.0.requests.active.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts a request, whatever becomes of it.
pub(crate) async fn measure(
    State(telemetry): State<Arc<Telemetry>>,
    request: Request,
    next: Next,
) -> Response {
    let (began, method) = (Instant::now(), request.method().clone());
    let route = route(request.uri().path());
    telemetry.requests.active.fetch_add(1, Ordering::Relaxed);
    let answering = Answering(&telemetry);
    let response = next.run(request).await;
    drop(answering);
    telemetry.request(&method, route, response.status().as_u16(), began.elapsed());
    response
}
