//! Calls as tasks of the pools' engines.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream;
use ropewalk_pool::codec::{Frame, Loans, limits};
use ropewalk_pool::wire::{flags, form};
use ropewalk_pool::{
    Beside, Call, Credit, Engine, Failure, Item, Items as Came, Limit, Mode, Options, Outcome, Payload, Rare,
    Reply, Session, SessionSettings, Task,
};
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::call::{Answer, Items, Readiness, Reports, Request, Runner, Seat};
use crate::deadline::Deadline;
use crate::depth;
use crate::driver::Driver;
use crate::envelope;
use crate::explain::Exceptions;
use crate::failed::{Code, Failed, Shed};
use crate::telemetry::{Now, Watched};
use crate::tool::{SessionTool, Tool};

/// Items of a stream that its worker may be ahead of the client.
const AHEAD: u32 = 64;

/// The pools of a server.
#[derive(Debug)]
pub struct Engines {
    drivers: Vec<Arc<Driver>>,
    /// Whether every worker has been ready once. One that is replaced later does not take the server out of service.
    warm: AtomicBool,
    exceptions: Arc<Exceptions>,
}

impl Engines {
    /// Runs the calls of tools on these engines, which their tools name by number. The exceptions of tools are read
    /// elsewhere.
    pub fn new(drivers: Vec<Arc<Driver>>, exceptions: Arc<Exceptions>) -> Self {
        Self { drivers, warm: AtomicBool::new(false), exceptions }
    }

    /// The driver of a tool's pool.
    fn driver(&self, tool: &Tool) -> Result<&Arc<Driver>, Failed> {
        self.drivers.get(tool.engine).ok_or_else(|| nowhere(tool))
    }
}

fn nowhere(tool: &Tool) -> Failed {
    Failed::new(Code::Internal, format!("no pool runs the tool {:?}", tool.name))
}

/// Submits a call; `ahead` items may be unread if it is a stream. One of a session goes to the session's worker.
fn begin(
    driver: &Arc<Driver>,
    request: &Request,
    ahead: u32,
    session: Option<u32>,
) -> Result<Running, Failed> {
    let tool = &request.tool;
    let function = tool.function.as_ref().ok_or_else(|| nowhere(tool))?;
    let now = Instant::now();
    let deadline = Deadline::first(request.deadline, tool.deadline, now);
    if let Some(deadline) = deadline.filter(|deadline| deadline.at <= now) {
        return Err(deadline.passed().shed(Shed::Deadline));
    }
    depth::check(request.form, &request.arguments)?;
    let payload = placed(driver.engine(), request)?;
    let left = deadline.map(|deadline| deadline.at.saturating_duration_since(now));
    let limits = Rare { timeout: tool.timeout, deadline: left, hang: tool.hang, ..Rare::default() };
    let options = Options { retries: tool.retries, stream: ahead, session, ..limits.into() };
    let call = Call::remote(Arc::clone(function), payload);
    match driver.engine().submit(call, 0, options, true) {
        Ok(task) => {
            let (driver, watched) = (Arc::clone(driver), request.watched.clone());
            Ok(Running { driver, task, deadline, grace: grace(tool), watched })
        }
        Err(refused) => Err(Failed::from(&refused.1)),
    }
}

/// Waits for the result of a call.
async fn finished(running: Running, request: &Request, exceptions: &Exceptions) -> Result<Answer, Failed> {
    let mut reporting = Reporting::new(request);
    running.ended(&running.task, reporting.as_mut()).await;
    if let Some(reporting) = &mut reporting {
        running.report(reporting);
    }
    envelope::answer(reply(&running, exceptions).await?)
}

/// The items of a stream that has begun.
fn items(running: Running, request: &Request, exceptions: &Arc<Exceptions>) -> Items {
    let reader = Reader {
        running,
        exceptions: Arc::clone(exceptions),
        reporting: Reporting::new(request),
        came: Came::default(),
        unsaid: Credit::default(),
        ended: false,
    };
    stream::unfold(reader, Reader::next).boxed()
}

/// The reply of a task that has ended well.
async fn reply<'a>(running: &'a Running, exceptions: &Exceptions) -> Result<&'a Reply, Failed> {
    let task = &running.task;
    match task.outcome() {
        Some(Outcome::Replied(reply)) if reply.flags & flags::ERROR != 0 => Err(exceptions.read(task).await),
        Some(Outcome::Replied(reply)) => Ok(reply),
        Some(Outcome::Failed(failure)) => Err(match (failure, running.deadline) {
            (Failure::TimedOut(Limit::Deadline, _), Some(deadline)) => {
                Failed { message: deadline.passed().message, ..Failed::from(failure) }
            }
            _ => Failed::from(failure),
        }),
        // The caller waits: its pool, which a reload has replaced, gave up what had not begun.
        Some(Outcome::Cancelled) if running.driver.engine().is_closed() => {
            Err(Failed::leaving().shed(Shed::Leaving))
        }
        Some(Outcome::Cancelled) => Err(Failed::new(Code::Cancelled, "the call was cancelled")),
        Some(Outcome::Local { .. }) | None => Err(Failed::leaving()),
    }
}

/// The call's bytes, where workers find them: short ones in the record, long ones in shared memory.
fn placed(engine: &Engine, request: &Request) -> Result<Payload, Failed> {
    let Request { form, arguments, beside, metadata, .. } = request;
    let call = envelope::call(*form, arguments, beside, metadata, limits::INLINE);
    if call.outside.is_empty() && call.pickle.len() <= limits::INLINE {
        return Ok(Payload { bytes: call.pickle, ..Payload::default() });
    }
    let loans = Loans::default();
    let leased = Frame::new(&call.pickle, call.outside.iter().copied(), &loans).lease(engine.arena());
    let leased = leased.map_err(|error| Failed::new(Code::ResourceExhausted, error.to_string()))?;
    let beside =
        Beside { lease: Some(Arc::new(leased.lease)), segments: leased.segments, ..Beside::default() };
    Ok(Payload { flags: flags::DESCRIBED | flags::LEASED, bytes: leased.bytes, ..beside.into() })
}

/// How long a run that was asked to stop may take for that, unless its tool says so; then it is ended with its worker.
const GRACE: Duration = Duration::from_millis(20);
/// The same for a stream. It can end by itself after a step of its generator, and a step may take longer than 20 ms: a
/// model makes a token, a loop sleeps.
const STREAM_GRACE: Duration = Duration::from_secs(1);

fn grace(tool: &Tool) -> Duration {
    tool.grace.unwrap_or(if tool.streams { STREAM_GRACE } else { GRACE })
}

/// How often a call is asked how far it is, whose caller wants to know: a tool that says so wakes no thread.
const REPORTED_EVERY: Duration = Duration::from_millis(100);

/// A task whose caller waits. Dropped before the task has ended, it asks it to stop, and ends it if it does not.
struct Running {
    driver: Arc<Driver>,
    task: Arc<Task>,
    deadline: Option<Deadline>,
    /// How long it may take to stop.
    grace: Duration,
    watched: Watched,
}

impl Running {
    /// Returns when a task has ended: the call's own, or one that signals. Meanwhile it reports.
    async fn ended(&self, task: &Arc<Task>, reporting: Option<&mut Reporting>) {
        let Some(reporting) = reporting else { return self.driver.ended(task).await };
        let mut ended = pin!(self.driver.ended(task));
        while timeout(reporting.next.saturating_duration_since(Instant::now()), ended.as_mut()).await.is_err()
        {
            self.report(reporting);
        }
    }

    /// Says how far the call is, if that is news.
    fn report(&self, reporting: &mut Reporting) {
        reporting.next = Instant::now() + REPORTED_EVERY;
        let now = self.driver.engine().progress(&self.task);
        reporting.reports.send_if_modified(|last| {
            let is_news = now.is_some() && *last != now;
            if is_news {
                *last = now;
            }
            is_news
        });
    }
}

/// Where a call says how far it is.
struct Reporting {
    reports: Reports,
    /// When it is asked next.
    next: Instant,
}

impl Reporting {
    fn new(request: &Request) -> Option<Self> {
        let reports = request.reports.clone()?;
        Some(Self { reports, next: Instant::now() + REPORTED_EVERY })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.task.is_done() {
            self.watched.ran(&self.task, self.driver.engine());
            return;
        }
        // One that has not started is cancelled by this.
        let _ = self.driver.engine().ask_to_stop(&self.task);
        if self.task.is_done() {
            self.watched.ran(&self.task, self.driver.engine());
            return;
        }
        let (driver, task) = (Arc::clone(&self.driver), Arc::clone(&self.task));
        let stopping = Stopping { driver, task, watched: self.watched.clone() };
        if let Ok(runtime) = Handle::try_current() {
            // A runtime that leaves drops the future, and ends the task at once.
            let grace = self.grace;
            drop(runtime.spawn(async move {
                let _ = timeout(grace, stopping.driver.ended(&stopping.task)).await;
            }));
        }
    }
}

/// A task that was asked to stop. Dropped before the task has ended, it ends it, and what runs with it.
struct Stopping {
    driver: Arc<Driver>,
    task: Arc<Task>,
    watched: Watched,
}

impl Drop for Stopping {
    fn drop(&mut self) {
        if !self.task.is_done() {
            let _ = self.driver.engine().cancel(&self.task, true);
        }
        self.watched.ran(&self.task, self.driver.engine());
    }
}

/// The reader of a stream.
struct Reader {
    running: Running,
    exceptions: Arc<Exceptions>,
    reporting: Option<Reporting>,
    came: Came,
    unsaid: Credit,
    ended: bool,
}

impl Reader {
    async fn next(mut self) -> Option<(Result<Answer, Failed>, Self)> {
        if self.ended {
            return None;
        }
        loop {
            if let Some(item) = self.pop() {
                self.ended = item.is_err();
                return Some((item, self));
            }
            let task = Arc::clone(&self.running.task);
            let stream = task.stream()?;
            // Looked at first: every item has come before the end.
            let done = task.is_done();
            if stream.take(&mut self.came) {
                continue;
            }
            if done {
                self.ended = true;
                if let Some(reporting) = &mut self.reporting {
                    self.running.report(reporting);
                }
                let failed = reply(&self.running, &self.exceptions).await.err()?;
                return Some((Err(failed), self));
            }
            if let Some(signal) = self.running.driver.engine().stream_signal(&task) {
                self.running.ended(&signal, self.reporting.as_mut()).await;
            }
        }
    }

    /// The next item that has come.
    fn pop(&mut self) -> Option<Result<Answer, Failed>> {
        let (item, cost) = self.came.take_next()?;
        let read = match item {
            Item::Record(form::BYTES, _, bytes, _) => envelope::opened(Bytes::copy_from_slice(bytes)),
            Item::Record(_, bits, bytes, segments) => {
                envelope::answer(&Reply { flags: bits & flags::DESCRIBED, bytes: bytes.to_vec(), segments })
            }
            Item::Lost(failure) => Err(Failed::from(&failure)),
            Item::Local(_) => Err(Failed::new(Code::Internal, "an item of a stream is no bytes")),
        };
        self.unsaid.items += 1;
        self.unsaid.bytes = self.unsaid.bytes.saturating_add(cost);
        let task = &self.running.task;
        if let Some(stream) = task.stream()
            && (self.unsaid.items >= stream.worth_saying() || self.unsaid.bytes >= SAY_AFTER)
        {
            stream.say_read(task.id, std::mem::take(&mut self.unsaid));
        }
        Some(read)
    }
}

/// Unread bytes after which the worker hears that they were read.
const SAY_AFTER: u64 = ropewalk_pool::MOST_UNREAD_BYTES / 4;

impl Drop for Reader {
    fn drop(&mut self) {
        // The generator is closed, so that its `finally` runs, before the grace of a running task is over.
        drop(self.running.driver.engine().leave_stream(&self.running.task));
    }
}

impl Runner for Engines {
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Answer, Failed>> {
        Box::pin(async move {
            let running = begin(self.driver(&request.tool)?, &request, 0, None)?;
            finished(running, &request, &self.exceptions).await
        })
    }

    fn stream(&self, request: Request) -> BoxFuture<'_, Result<Items, Failed>> {
        Box::pin(async move {
            let running = begin(self.driver(&request.tool)?, &request, AHEAD, None)?;
            Ok(items(running, &request, &self.exceptions))
        })
    }

    fn seat(&self, of: &SessionTool) -> Result<Arc<dyn Seat>, Failed> {
        let driver = self.driver(&of.open)?;
        let settings = SessionSettings {
            name: Arc::clone(of.name()),
            mode: Mode::Queue,
            // An actor that is not made again: its state is gone with its worker, and the caller must know.
            restarts: Some(0),
            arguments: Payload { bytes: envelope::empty_state(of.name()), ..Payload::default() },
            ..SessionSettings::default()
        };
        let session = driver.engine().open_session(settings);
        let session = session.ok_or_else(Failed::leaving)?;
        let (driver, exceptions) = (Arc::clone(driver), Arc::clone(&self.exceptions));
        Ok(Arc::new(Kept { driver, session, exceptions }))
    }

    fn now(&self) -> Now {
        let engines = || self.drivers.iter().map(|driver| driver.engine());
        Now {
            pools: engines().filter_map(|engine| Some((engine.name(), engine.statistics()?))).collect(),
            shared_bytes: engines().next().map_or(0, |engine| engine.arena().shared_bytes()),
            ready: self.readiness().why_not().is_none(),
            cached: None,
            buses: Vec::new(),
        }
    }

    fn engines(&self) -> Vec<Engine> {
        self.drivers.iter().map(|driver| driver.engine().clone()).collect()
    }

    fn readiness(&self) -> Readiness {
        for driver in &self.drivers {
            let engine = driver.engine();
            if let Some(failure) = engine.broken() {
                return Readiness::NotReady(format!("the workers are gone: {}", failure.cause()));
            }
            if engine.is_closed() {
                return Readiness::NotReady(String::from("the server is leaving"));
            }
        }
        // It guards nothing: relaxed.
        if !self.warm.load(Ordering::Relaxed) {
            let counted = self.drivers.iter().filter_map(|driver| driver.engine().statistics());
            let (ready, size) =
                counted.fold((0, 0), |(ready, size), one| (ready + one.ready.min(one.size), size + one.size));
            if ready < size {
                return Readiness::Starting(ready, size);
            }
            self.warm.store(true, Ordering::Relaxed);
        }
        Readiness::Ready
    }
}

/// A session of a pool, whose tasks are the calls of one session of a tool.
struct Kept {
    driver: Arc<Driver>,
    session: Arc<Session>,
    exceptions: Arc<Exceptions>,
}

impl Seat for Kept {
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Answer, Failed>> {
        Box::pin(async move {
            let running = begin(&self.driver, &request, 0, Some(self.session.id))?;
            finished(running, &request, &self.exceptions).await
        })
    }

    fn stream(&self, request: Request) -> BoxFuture<'_, Result<Items, Failed>> {
        Box::pin(async move {
            let running = begin(&self.driver, &request, AHEAD, Some(self.session.id))?;
            Ok(items(running, &request, &self.exceptions))
        })
    }

    fn lost(&self) -> Option<Failed> {
        let engine = self.driver.engine();
        // A pool that a reload has replaced takes no calls any more, and a broken one has no workers.
        let closed = || engine.is_closed().then(Failed::leaving);
        let failure = self.session.lost().or_else(|| engine.broken());
        failure.map(|failure| Failed::from(&failure)).or_else(closed)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.driver.engine().close_session(&self.session);
    }
}
