//! An executor without threads, with a manual clock.

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use ropewalk_sync::Mutex;

use crate::config::Config;
use crate::delayed::{Delayed, Keeper, Key, due};
use crate::executor::Executor;
use crate::job::Job;
use crate::panic::{PanicReport, contain, message_of};
use crate::rejected::{Reason, Rejected};
use crate::report::{RunningJob, ShutdownReport};
use crate::statistics::{Statistics, WorkerStatistics};
use crate::work::{Context, Ran, Work};

/// Runs each job in the thread that hands it in, before `execute` returns: for tests and other deterministic use.
///
/// A job that another job hands in runs within that job. Delayed jobs run when [`advance`](Self::advance) or
/// [`drain`](Self::drain) moves the clock past their time, in the order of their times; jobs of one time run in the
/// order of their acceptance. Of the settings, `max_queue` bounds the delayed jobs. A job beyond the bound is refused
/// whatever `when_full` is, because no other thread would make room. Priorities have no effect, because jobs never wait
/// beside each other. Dropping the executor drops the delayed jobs, and their handles report that.
pub struct InlineExecutor(Arc<InlineRunner>);

struct InlineRunner {
    config: Config,
    me: Weak<InlineRunner>,
    state: Mutex<InlineState>,
}

struct InlineState {
    /// The manual clock's time.
    now: Instant,
    jobs: BTreeMap<Key, Job>,
    next: u64,
    closed: bool,
    running: Vec<RunningJob>,
    done: WorkerStatistics,
    hook_panics: u64,
}

thread_local! {
    /// The executors whose jobs this thread is running, by their addresses, outermost first.
    static RUNNING: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

impl InlineExecutor {
    /// An executor whose clock stands still.
    pub fn new(config: Config) -> Self {
        Self(Arc::new_cyclic(|me| InlineRunner {
            config,
            me: Weak::clone(me),
            state: Mutex::new(InlineState {
                now: Instant::now(),
                jobs: BTreeMap::new(),
                next: 0,
                closed: false,
                running: Vec::new(),
                done: WorkerStatistics::default(),
                hook_panics: 0,
            }),
        }))
    }

    /// Moves the clock and runs the jobs that become due, also those that they hand in; returns the number of delayed
    /// jobs run. While a job runs, the clock shows the job's time.
    pub fn advance(&self, by: Duration) -> usize {
        let until = due(self.0.state.lock().now, by);
        let count = self.0.run_delayed(Some(until));
        let mut state = self.0.state.lock();
        state.now = state.now.max(until);
        count
    }

    /// Moves the clock until no job is delayed; returns the number of jobs run. Does not return if jobs hand in delayed
    /// jobs for ever.
    pub fn drain(&self) -> usize {
        self.0.run_delayed(None)
    }
}

impl InlineRunner {
    fn run_delayed(&self, until: Option<Instant>) -> usize {
        let mut count = 0;
        loop {
            let mut state = self.state.lock();
            let Some(first) = state.jobs.first_entry() else { return count };
            let (at, _) = *first.key();
            if until.is_some_and(|until| at > until) {
                return count;
            }
            let job = first.remove();
            state.now = state.now.max(at);
            drop(state);
            self.run(job.work);
            count += 1;
        }
    }

    fn run(&self, work: Work) {
        let identity = std::ptr::from_ref(self).addr();
        let label = work.label();
        RUNNING.with_borrow_mut(|running| running.push(identity));
        let worker = thread::current().name().unwrap_or("unnamed").to_owned();
        self.state.lock().running.push(RunningJob { worker: worker.clone(), job: label() });
        let mut ran = Ran::Done;
        let whole = contain(|| ran = work.run(self));
        let mut state = self.state.lock();
        let at = state.running.iter().rposition(|other| other.worker == worker);
        if let Some(at) = at {
            state.running.remove(at);
        }
        state.done.executed += u64::from(ran != Ran::Skipped);
        state.done.panicked += u64::from(ran == Ran::Panicked || !whole);
        drop(state);
        RUNNING.with_borrow_mut(Vec::pop);
    }
}

impl Context for InlineRunner {
    fn panicked(&self, job: &'static str, payload: &(dyn Any + Send)) {
        let Some(hook) = &self.config.on_panic else { return };
        let report = PanicReport { executor: &self.config.name, job, message: message_of(payload) };
        if !contain(|| hook(&report)) {
            self.state.lock().hook_panics += 1;
        }
    }
}

impl Keeper for InlineRunner {
    fn withdraw(&self, key: Key) -> Option<Job> {
        self.state.lock().jobs.remove(&key)
    }
}

impl Executor for InlineExecutor {
    fn execute(&self, job: Job) -> Result<(), Rejected> {
        if self.0.state.lock().closed {
            return Err(Rejected { reason: Reason::Closed, job });
        }
        self.0.run(job.work);
        Ok(())
    }

    fn execute_after(&self, delay: Duration, job: Job) -> Result<Delayed, Rejected> {
        let mut state = self.0.state.lock();
        if state.closed {
            return Err(Rejected { reason: Reason::Closed, job });
        }
        if self.0.config.max_queue.is_some_and(|limit| state.jobs.len() >= limit) {
            return Err(Rejected { reason: Reason::Full, job });
        }
        let key = (due(state.now, delay), state.next);
        state.next += 1;
        state.jobs.insert(key, job);
        Ok(Delayed::new(Weak::clone(&self.0.me) as Weak<dyn Keeper>, key))
    }

    fn shutdown(&self) {
        self.0.state.lock().closed = true;
    }

    /// Drains: the manual clock moves as far as it must, so the deadline, which belongs to the real clock, has no
    /// effect.
    fn join(&self, _deadline: Option<Instant>) -> ShutdownReport {
        self.shutdown();
        self.drain();
        let state = self.0.state.lock();
        ShutdownReport { running: state.running.clone(), queued: 0, delayed: state.jobs.len() }
    }

    fn statistics(&self) -> Statistics {
        let state = self.0.state.lock();
        Statistics {
            workers: vec![state.done.clone()],
            running: state.running.len(),
            delayed: state.jobs.len(),
            hook_panics: state.hook_panics,
            ..Statistics::default()
        }
    }

    fn is_current(&self) -> bool {
        let identity = Arc::as_ptr(&self.0).addr();
        RUNNING.with_borrow(|running| running.contains(&identity))
    }
}

impl fmt::Debug for InlineExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InlineExecutor").field(&self.statistics()).finish()
    }
}
