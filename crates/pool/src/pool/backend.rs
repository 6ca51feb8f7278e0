//! What a pool asks of its workers, whatever they are: the interface that each kind of worker implements.
//!
//! [`Pool`] has the queue, the limits, the retries, the waits and the end of a pool; a [`Backend`] has its workers.
//! Nothing outside of `src/backend` asks which kind a pool has: it calls the backend, or reads its
//! [capabilities](Capabilities). Calls are resolved at compile time for each backend; there is no table of functions on
//! a task's path.

use std::fmt::Debug;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ropewalk_base::Result;
use ropewalk_sync::spin::AdaptiveSpin;

use super::{Pool, PoolState};
use crate::locked::Opaque;
use crate::statistics::WorkerStatistics;
use crate::task::Task;

/// The capabilities of a kind of worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The user's name of the kind.
    pub kind: &'static str,
    /// A call and its result travel as bytes, for the workers have other objects than the pool. Else they are values of
    /// this process.
    pub encodes: bool,
    /// Large parts of a call may be in shared memory.
    pub shares_memory: bool,
    /// The engine starts workers, and replaces those that end. Else threads of the layer above come for tasks.
    pub starts_workers: bool,
    /// A task that runs can be ended, by a limit of its time or a cancellation. Else its caller goes on alone.
    pub ends_running: bool,
    /// A worker is a process of its own: it has an id, takes signals, and a crash costs this process nothing.
    pub isolates: bool,
}

/// The result of a thread's request for a task.
#[derive(Debug)]
pub enum Taken {
    /// A task, and the call.
    Task(Arc<Task>, Opaque),
    /// Nothing yet: ask again.
    Nothing,
    /// The pool has no more tasks.
    Closed,
}

/// A task that a thread has run.
#[derive(Debug)]
pub struct Finished {
    /// The task that [`Engine::take_local`](crate::Engine::take_local) gave.
    pub task: Arc<Task>,
    /// Its result or exception.
    pub value: Opaque,
    /// Whether it raised.
    pub raised: bool,
    /// How long the call took, in nanoseconds.
    pub busy_ns: u64,
    /// The call, for a retry.
    pub again: Option<Opaque>,
}

/// The result of an attempt to end a task that a worker has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Interrupted {
    /// It had ended meanwhile.
    Ended,
    /// It is in the queue again.
    Queued,
    /// It had not started, and was taken back from its worker.
    TakenBack,
    /// It had started, and its worker, of this process id, is being ended.
    Killed(i32),
    /// It runs on: its worker was to be left alone, or does not have it.
    Left,
    /// It runs on: this kind of worker cannot be ended.
    Unstoppable,
}

/// A kind of worker; see the module.
///
/// Everything with a [`PoolState`] is called under the pool's lock, and never waits.
pub(crate) trait Backend: Debug + Sized + Send + Sync + 'static {
    /// The layer above's settings for its workers.
    type Settings;
    /// The backend's state under the pool's lock.
    type Members: Debug + Default + Send;

    /// The capabilities of the kind.
    const CAPABILITIES: Capabilities;
    /// Answers are found by polling, and queued tasks are handed out then: a waiting thread polls, or else the
    /// supervisor.
    const POLLED: bool;

    /// Workers for a pool that has started none yet.
    fn new(settings: Self::Settings) -> Self;

    // --- a pool's begin -----------------------------------------------------------------------------

    /// Makes the backend's starter of workers; `page` is the pool's control page.
    fn prepare(pool: &Pool<Self>, page: OwnedFd) -> Result<()>;

    /// Starts the workers that the pool begins with.
    fn start(pool: &Pool<Self>) -> Result<()>;

    // --- tasks on their way -------------------------------------------------------------------------

    /// A task of this priority was queued, and needs a worker.
    fn submitted(pool: &Pool<Self>, state: &mut PoolState<Self>, priority: i32);

    /// A task that was run before has been queued again.
    fn requeued(pool: &Pool<Self>, state: &mut PoolState<Self>);

    /// Gives queued tasks to workers.
    fn feed(_pool: &Pool<Self>, _state: &mut PoolState<Self>) {}

    /// Reads the workers' records; returns whether any came.
    fn collect(_pool: &Pool<Self>, _state: &mut PoolState<Self>) -> bool {
        false
    }

    /// Both; true if anything came.
    fn poll(pool: &Pool<Self>, state: &mut PoolState<Self>) -> bool {
        let came = Self::collect(pool, state);
        Self::feed(pool, state);
        came
    }

    /// Whether [`collect`](Self::collect) would find something; no more than a hint.
    fn has_answers(_members: &Self::Members) -> bool {
        false
    }

    /// How long a waiting thread may sleep before it must check by itself, if it must.
    fn patience(_state: &PoolState<Self>) -> Option<Duration> {
        None
    }

    /// No thread polls from now on: makes workers wake the supervisor when that is needed.
    fn rest(_pool: &Pool<Self>, _state: &mut PoolState<Self>) {}

    // --- numbers ------------------------------------------------------------------------------------

    /// Workers that have a task.
    fn busy(members: &Self::Members) -> usize;

    /// Tasks that workers have and do not run, as far as is known without polling.
    fn waiting(members: &Self::Members) -> usize;

    /// Whether workers have tasks, or are about to be there.
    fn has_work(members: &Self::Members) -> bool;

    /// Whether no worker has a task.
    fn is_drained(members: &Self::Members) -> bool;

    /// Whether no worker is left.
    fn is_gone(members: &Self::Members) -> bool;

    /// Running tasks, other tasks that workers have, and the record of each worker.
    fn statistics(state: &PoolState<Self>) -> (usize, usize, Vec<WorkerStatistics>);

    /// Why there are fewer workers than there should be, while that is so.
    fn shortage(_members: &Self::Members) -> Option<Arc<str>> {
        None
    }

    /// Failures while workers were being prepared, which the pool survived.
    fn complaints(_pool: &Pool<Self>) -> Vec<String> {
        Vec::new()
    }

    // --- threads of the layer above, where the engine starts no workers ------------------------------

    /// The next task for a thread that has come for one.
    fn take_local(_pool: &Pool<Self>, _spin: &mut AdaptiveSpin, _timeout: Duration) -> Taken {
        Taken::Closed
    }

    /// Ends a task that such a thread has run, and takes the next one with the same hold of the lock.
    fn finish_and_take_local(
        _pool: &Pool<Self>,
        _finished: Finished,
        _spin: &mut AdaptiveSpin,
        _timeout: Duration,
    ) -> Result<Taken, Box<Task>> {
        Ok(Taken::Closed)
    }

    /// Ends a task that such a thread has run, and takes none.
    fn finish_local(_pool: &Pool<Self>, _finished: Finished) {}

    // --- the end of a task --------------------------------------------------------------------------

    /// Whether a task that a worker has is being run.
    fn is_running(state: &mut PoolState<Self>, task: &Arc<Task>) -> bool;

    /// Tries to end a task that a worker has; with `force` one that runs too, for which its worker may have to end.
    /// The caller ends the task itself.
    fn interrupt(
        pool: &Pool<Self>,
        state: &mut PoolState<Self>,
        task: &Arc<Task>,
        force: bool,
        cancelled: bool,
    ) -> Interrupted;

    /// When the run of a task with this limit is overdue, or when to check again; `None` if no worker has it.
    fn run_ends(
        members: &mut Self::Members,
        task: &Arc<Task>,
        timeout: Duration,
        now: Instant,
    ) -> Option<Instant>;

    // --- the end of a pool --------------------------------------------------------------------------

    /// Takes back every task that has not started; with `spare`, each worker keeps the first that it has.
    fn take_back(_members: &mut Self::Members, _spare: bool) -> Vec<Arc<Task>> {
        Vec::new()
    }

    /// The tasks that are left with workers, which are to end before those do, each with its worker's process id.
    fn abandon(members: &mut Self::Members) -> Vec<(Arc<Task>, i32)>;

    /// Kills every worker, and waits for none that is not there yet.
    fn kill(_pool: &Pool<Self>, _state: &mut PoolState<Self>) {}

    /// Kills every worker of a broken pool; gives the tasks that are lost with them.
    fn give_up(_members: &mut Self::Members) -> Vec<Arc<Task>> {
        Vec::new()
    }

    /// Sends every worker a signal.
    fn signal(_members: &mut Self::Members, _signal: i32) {}

    /// Waits for no worker that is not there yet.
    fn forget_requested(_pool: &Pool<Self>, _state: &mut PoolState<Self>) {}

    /// Makes every sleeping worker check the state of the pool.
    fn wake_all(_pool: &Pool<Self>) {}

    /// Nothing is left to do: sends the workers away. True when none is left.
    fn dismiss(pool: &Pool<Self>, state: &mut PoolState<Self>) -> bool;

    // --- the supervisor's look ----------------------------------------------------------------------

    /// Supervises the workers; returns when that is due again for a reason that [`next_look`](Self::next_look) does not
    /// cover.
    fn look_after(_pool: &Pool<Self>, _state: &mut PoolState<Self>, _now: Instant) -> Option<Instant> {
        None
    }

    /// When the workers must be supervised next.
    fn next_look(_state: &PoolState<Self>, _now: Instant) -> Option<Instant> {
        None
    }
}
