//! A serial queue: jobs run one after another, on threads that do other work in between.

use std::any::type_name;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use ropewalk_sync::{Event, Mutex, MutexGuard};

use crate::delayed::Delayed;
use crate::executor::Executor;
use crate::job::{Job, Priority};
use crate::panic::contain;
use crate::pool::current;
use crate::rejected::{Reason, Rejected};
use crate::report::{RunningJob, ShutdownReport};
use crate::statistics::{Statistics, WorkerStatistics};
use crate::work::{Context, Ran, Runnable, Unobserved, Work};

/// After this many jobs the queue goes to the back of its executor's queue.
const JOBS_A_TURN: usize = 64;

/// Runs its jobs one after another, in the order in which they were accepted, on another executor; holds no
/// thread while it has none. Known elsewhere as a strand, or a serial queue.
///
/// Priorities have no effect. A delayed job takes its place when it is due; a delayed job that is refused or withdrawn
/// comes back as a job that takes its place in this queue when it is run. A job that joins a later job of the same
/// queue waits for ever. Dropping the queue does not stop its jobs.
///
/// The executor counts turns of up to 64 jobs, not single jobs; each panic is reported to its hook.
///
/// # Examples
///
/// ```
/// use std::sync::{Arc, mpsc};
/// use ropewalk_executor::{Config, FixedExecutor, Serial, Submit};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let events = Serial::new(Arc::new(FixedExecutor::new(2, Config::named("events"))?));
/// let (send, received) = mpsc::channel();
/// for number in 0..100 {
///     let send = send.clone();
///     events.submit(move || send.send(number))?.detach();
/// }
/// drop(send);
/// assert!(received.into_iter().eq(0..100));
/// # Ok(())
/// # }
/// ```
pub struct Serial(Arc<SerialQueue>);

struct SerialQueue {
    executor: Arc<dyn Executor>,
    state: Mutex<SerialState>,
    /// Notified when nothing is left.
    rest: Event,
}

#[derive(Default)]
struct SerialState {
    jobs: VecDeque<(u64, Work)>,
    next: u64,
    /// The thread whose turn it is, and what it runs.
    turn: Option<(Thread, &'static str)>,
    /// The turns that the executor is known to have accepted, and the turns that have begun. While more are accepted
    /// than begun, one is to come. A turn may begin before its acceptance is recorded; then one too many is handed in
    /// later, which finds nothing to do.
    accepted: u64,
    begun: u64,
    delayed: usize,
    closed: bool,
    executed: u64,
    panicked: u64,
}

impl SerialState {
    fn at_rest(&self) -> bool {
        self.jobs.is_empty() && self.turn.is_none() && self.delayed == 0
    }
}

/// A delayed job of the queue: counted until it takes its place or is dropped.
struct Waiting {
    shared: Arc<SerialQueue>,
    job: Option<Work>,
}

impl Serial {
    /// A serial queue on this executor.
    pub fn new(executor: Arc<dyn Executor>) -> Self {
        Self(Arc::new(SerialQueue {
            executor,
            state: Mutex::new(SerialState::default()),
            rest: Event::new(),
        }))
    }
}

impl SerialQueue {
    /// Hands in a turn.
    fn ask_for_turn(self: &Arc<Self>) -> Result<(), Reason> {
        let turn = Work::new(Turn(Arc::clone(self)));
        self.executor.execute(Job { priority: Priority::Normal, work: turn }).map_err(|it| it.reason)?;
        self.state.lock().accepted += 1;
        Ok(())
    }

    /// Queues a job; returns its number, and whether a turn must be requested.
    fn push(&self, mut state: MutexGuard<'_, SerialState>, work: Work) -> (u64, bool) {
        let number = state.next;
        state.next += 1;
        state.jobs.push_back((number, work));
        (number, state.turn.is_none() && state.accepted <= state.begun)
    }

    /// Runs up to `limit` jobs, unless another thread has the turn; returns whether there are more.
    fn take_turn(&self, context: &dyn Context, limit: usize) -> bool {
        let mut state = self.state.lock();
        if state.turn.is_some() {
            return false;
        }
        let me = thread::current();
        for _ in 0..limit {
            let Some((_, work)) = state.jobs.pop_front() else { break };
            state.turn = Some((me.clone(), (work.label())()));
            drop(state);
            let mut ran = Ran::Done;
            let whole = contain(|| ran = work.run(context));
            state = self.state.lock();
            state.executed += u64::from(ran != Ran::Skipped);
            state.panicked += u64::from(ran == Ran::Panicked || !whole);
        }
        state.turn = None;
        let more = !state.jobs.is_empty();
        drop(state);
        self.rest.notify();
        more
    }
}

/// The queue's turn on its executor, to which it reports its jobs' panics.
struct Turn(Arc<SerialQueue>);

impl Runnable for Turn {
    fn run(self, context: &dyn Context) -> Ran {
        self.0.state.lock().begun += 1;
        while self.0.take_turn(context, JOBS_A_TURN) {
            // Accepted jobs must run, and a closed executor gives no turn but this one.
            if self.0.ask_for_turn().is_ok() {
                break;
            }
        }
        Ran::Done
    }

    fn name() -> &'static str {
        type_name::<Self>()
    }

    fn bind(&self, _home: usize) {}
}

impl Waiting {
    /// The job is due.
    fn arrive(mut self) {
        let Some(job) = self.job.take() else { return };
        let (_, ask) = self.shared.push(self.shared.state.lock(), job);
        if ask && self.shared.ask_for_turn().is_err() {
            while self.shared.take_turn(&Unobserved, usize::MAX) {}
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.shared.state.lock().delayed -= 1;
        self.shared.rest.notify();
    }
}

impl Executor for Serial {
    fn execute(&self, job: Job) -> Result<(), Rejected> {
        let Job { priority, work } = job;
        let state = self.0.state.lock();
        if state.closed {
            return Err(Rejected { reason: Reason::Closed, job: Job { priority, work } });
        }
        let (number, ask) = self.0.push(state, work);
        if !ask {
            return Ok(());
        }
        let Err(reason) = self.0.ask_for_turn() else { return Ok(()) };
        let mut state = self.0.state.lock();
        let at = state.jobs.iter().position(|(other, _)| *other == number);
        // If the job is not in the queue, another thread's turn has run it, so it was accepted.
        match at.and_then(|at| state.jobs.remove(at)) {
            Some((_, work)) => Err(Rejected { reason, job: Job { priority, work } }),
            None => Ok(()),
        }
    }

    fn execute_after(&self, delay: Duration, job: Job) -> Result<Delayed, Rejected> {
        let Job { priority, work } = job;
        let mut state = self.0.state.lock();
        if state.closed {
            return Err(Rejected { reason: Reason::Closed, job: Job { priority, work } });
        }
        state.delayed += 1;
        drop(state);
        let waiting = Waiting { shared: Arc::clone(&self.0), job: Some(work) };
        self.0.executor.execute_after(delay, Job::new(move || waiting.arrive()))
    }

    /// Closes this queue only, not the executor below.
    fn shutdown(&self) {
        self.0.state.lock().closed = true;
    }

    fn join(&self, deadline: Option<Instant>) -> ShutdownReport {
        self.shutdown();
        if !self.is_current() {
            current::wait_for(&self.0.rest, deadline, &|| self.0.state.lock().at_rest());
        }
        let state = self.0.state.lock();
        let running = state
            .turn
            .iter()
            .map(|(thread, job)| RunningJob { worker: thread.name().unwrap_or("unnamed").to_owned(), job });
        ShutdownReport { running: running.collect(), queued: state.jobs.len(), delayed: state.delayed }
    }

    fn statistics(&self) -> Statistics {
        let state = self.0.state.lock();
        let done = WorkerStatistics {
            executed: state.executed,
            panicked: state.panicked,
            ..WorkerStatistics::default()
        };
        Statistics {
            workers: vec![done],
            running: usize::from(state.turn.is_some()),
            queued: state.jobs.len(),
            delayed: state.delayed,
            ..Statistics::default()
        }
    }

    fn is_current(&self) -> bool {
        let state = self.0.state.lock();
        state.turn.as_ref().is_some_and(|(thread, _)| thread.id() == thread::current().id())
    }
}

impl fmt::Debug for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Serial").field(&self.statistics()).finish()
    }
}
