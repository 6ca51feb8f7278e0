//! A call as telemetry sees it: from its head to the end of what runs for it.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant, SystemTime};

use futures::{Stream, StreamExt as _};
use ropewalk_pool::{Engine, Failure, Outcome, Record, Task};
use serde_json::{Map, Value};

use super::Telemetry;
use super::context::{PARENT, STATE, Trace};
use super::failures::{LONGEST_TRACEBACK, bounded};
use super::lines::EndedWorker;
use super::meters::{Lookup, OfTool, Protocol};
use crate::clients::Caller;
use crate::failed::{Code, Failed, Shed, Thrown};

/// A hold on a call. With the last one the call has ended, and is counted: what reads and answers it has one until the
/// client has its answer or leaves, and the engine has one until the task has ended.
#[derive(Clone, Debug)]
pub struct Watched(Seen);

/// One call, or those that a worker runs together: each, and how long it had waited before its batch was submitted.
#[derive(Clone, Debug)]
enum Seen {
    One(Arc<Watching>),
    Batch(Arc<Vec<(Watched, Duration)>>),
}

/// See [`Watched`].
#[derive(Debug)]
pub(super) struct Watching {
    telemetry: Arc<Telemetry>,
    pub(super) protocol: Protocol,
    pub(super) tool: Arc<OfTool>,
    pub(super) began: Instant,
    /// The time of day at which it began, if it has a span.
    pub(super) since: Option<SystemTime>,
    pub(super) trace: Option<Trace>,
    /// The name of the caller, if it has one. It is no secret, as its token is.
    pub(super) caller: OnceLock<Arc<str>>,
    /// How it was answered; unset when the client has left.
    end: OnceLock<End>,
    pub(super) ran: OnceLock<Ran>,
    /// Items that the client was sent. A count alone: relaxed.
    items: AtomicU64,
    /// Where it found its result, if its tool has a cache.
    looked_up: OnceLock<Lookup>,
}

/// How a call ended.
#[derive(Debug)]
pub(super) struct End {
    pub(super) code: Option<Code>,
    pub(super) shed: Option<Shed>,
    pub(super) message: Option<String>,
    raised: Option<Arc<Thrown>>,
    at: Instant,
}

/// What the record of a call's task says.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) record: Record,
    pub(super) task: u64,
    pub(super) attempts: u32,
    pub(super) outcome: &'static str,
    /// How long the task waited for its last run, if a worker began it.
    pub(super) queued: Option<Duration>,
    /// Whether the worker has answered.
    pub(super) answered: bool,
}

impl Watched {
    pub(super) fn new(
        telemetry: &Arc<Telemetry>,
        protocol: Protocol,
        tool: &Arc<OfTool>,
        trace: Option<Trace>,
    ) -> Self {
        tool.active.fetch_add(1, Ordering::Relaxed);
        let since = matches!(&trace, Some(Trace::Own(own)) if own.sampled).then(SystemTime::now);
        Self(Seen::One(Arc::new(Watching {
            telemetry: Arc::clone(telemetry),
            protocol,
            tool: Arc::clone(tool),
            began: Instant::now(),
            since,
            trace,
            caller: OnceLock::new(),
            end: OnceLock::new(),
            ran: OnceLock::new(),
            items: AtomicU64::new(0),
            looked_up: OnceLock::new(),
        })))
    }

    /// Calls that go to a worker together, each with the time for which it has waited for others.
    pub(crate) fn batch(calls: Vec<(Self, Duration)>) -> Self {
        if let Some(one) = calls.first().and_then(|(first, _)| first.one()) {
            one.telemetry.batched(&one.tool, calls.len());
        }
        Self(Seen::Batch(Arc::new(calls)))
    }

    /// The call, if it is one.
    fn one(&self) -> Option<&Arc<Watching>> {
        match &self.0 {
            Seen::One(one) => Some(one),
            Seen::Batch(_) => None,
        }
    }

    /// Where it has found its result, if its tool has a cache.
    pub(crate) fn lookup(&self) -> Option<Lookup> {
        self.one()?.looked_up.get().copied()
    }

    /// It has looked into the cache.
    pub(crate) fn looked_up(&self, found: Lookup) {
        if let Some(one) = self.one()
            && one.looked_up.set(found).is_ok()
        {
            one.tool.looked_up(found);
        }
    }

    fn end(&self, end: End) {
        if let Some(one) = self.one() {
            let _ = one.end.set(end);
        }
    }

    /// A caller with this name has called.
    pub(crate) fn by(&self, caller: &Caller) {
        if let Some((one, name)) = self.one().zip(caller.name()) {
            let _ = one.caller.set(Arc::clone(name));
        }
    }

    /// It has a result.
    pub(crate) fn ended(&self) {
        let at = Instant::now();
        self.end(End { code: None, shed: None, message: None, raised: None, at });
    }

    /// It has none.
    pub(crate) fn failed(&self, failed: &Failed) {
        let (code, shed) = (Some(failed.code), failed.shed);
        let message = Some(failed.message.clone().into_owned());
        let raised = failed.raised.clone();
        self.end(End { code, shed, message, raised, at: Instant::now() });
    }

    /// The items of its stream, counted, and the call ended with the last one.
    pub(crate) fn over<T>(
        self,
        items: impl Stream<Item = Result<T, Failed>> + Unpin,
    ) -> impl Stream<Item = Result<T, Failed>> + Unpin {
        Over { items, watched: self }
    }

    /// An item of its stream is on its way to the client.
    fn item(&self) {
        if let Some(one) = self.one() {
            one.items.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Its task has ended.
    pub(crate) fn ran(&self, task: &Task, pool: &Engine) {
        match &self.0 {
            Seen::One(one) => one.ran_after(task, pool, Duration::ZERO),
            Seen::Batch(calls) => {
                for (one, waited) in calls.iter().filter_map(|(call, waited)| Some((call.one()?, *waited))) {
                    one.ran_after(task, pool, waited);
                }
            }
        }
    }

    /// Adds the trace's context to what the tool is given beside its arguments.
    pub(crate) fn add_context(&self, metadata: &mut Map<String, Value>) {
        let Some(trace) = self.one().and_then(|one| one.trace.as_ref()) else { return };
        let (parent, state) = trace.headers();
        metadata.insert(PARENT.as_str().to_owned(), Value::String(parent));
        if !state.is_empty() {
            metadata.insert(STATE.as_str().to_owned(), Value::String(state));
        }
    }
}

impl Watching {
    /// Its task has ended, for which it had waited so long before that was submitted.
    fn ran_after(&self, task: &Task, pool: &Engine, waited: Duration) {
        let record = task.record();
        let late = match task.outcome() {
            Some(Outcome::Cancelled) => Some(false),
            Some(Outcome::Failed(Failure::TimedOut(..))) => Some(true),
            _ => None,
        };
        // One that no worker had begun has no process, and a thread goes on.
        if let Some(late) = late
            && record.pid != 0
        {
            let tool = Arc::clone(&self.tool.name);
            self.telemetry.lines.ended(EndedWorker {
                pool: pool.name(),
                pid: record.pid,
                tool,
                late,
                others: 0,
            });
        }
        let begun = record.begun_ns.map(|begun| begun.saturating_sub(task.queued_again_ns()));
        let _ = self.ran.set(Ran {
            record,
            task: task.id,
            attempts: task.attempt(),
            outcome: task.outcome().map_or("", Outcome::name),
            queued: begun.map(|begun| waited + Duration::from_nanos(begun)),
            answered: matches!(task.outcome(), Some(Outcome::Replied(_))),
        });
    }
}

/// The items of a stream, counted on their way.
struct Over<S> {
    items: S,
    watched: Watched,
}

impl<T, S: Stream<Item = Result<T, Failed>> + Unpin> Stream for Over<S> {
    type Item = Result<T, Failed>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = ready!(self.items.poll_next_unpin(context));
        match &next {
            Some(Ok(_)) => self.watched.item(),
            Some(Err(failed)) => self.watched.failed(failed),
            None => self.watched.ended(),
        }
        Poll::Ready(next)
    }
}

impl Watching {
    /// How it ended: a call without an answer was left by its client.
    pub(super) fn end(&self) -> (Option<Code>, Option<Shed>, Option<&str>) {
        match self.end.get() {
            Some(end) => (end.code, end.shed, end.message.as_deref()),
            None => (Some(Code::Cancelled), None, Some("the caller has left")),
        }
    }

    /// Where its tool raised.
    pub(super) fn traceback(&self) -> Option<Arc<str>> {
        self.end.get()?.raised.as_ref()?.traceback.clone()
    }

    /// What its tool raised, unless that is an answer.
    pub(super) fn raised(&self) -> Option<Thrown> {
        let raised = self.end.get()?.raised.as_ref().filter(|raised| raised.class.is_some())?;
        let traceback = raised.traceback.as_deref().map(|text| bounded(text, LONGEST_TRACEBACK, true));
        Some(Thrown { class: raised.class.clone(), traceback })
    }

    /// How long the client had to do with it.
    pub(super) fn took(&self) -> Duration {
        let end = self.end.get().map_or_else(Instant::now, |end| end.at);
        end.saturating_duration_since(self.began)
    }

    pub(super) fn items(&self) -> u64 {
        self.items.load(Ordering::Relaxed)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let telemetry = Arc::clone(&self.telemetry);
        telemetry.over(self);
    }
}
