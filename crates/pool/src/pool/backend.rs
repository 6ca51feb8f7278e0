//! What a pool asks of its workers, whatever they are: the interface that each kind of worker implements.
//!
//! [`Pool`] has the queue, the limits, the retries, the waits and the end of a pool; a [`Backend`] has its workers.
//! Nothing outside of `src/backend` asks which kind a pool has: it calls the backend, or looks at what the kind
//! [can do](Capabilities). Calls are resolved when this is compiled, for each kind on its own; there is no table of
//! functions on a task's way.

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

/// What a kind of worker can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// What users of a pool call the kind.
    pub kind: &'static str,
    /// A call and its result travel as bytes, for the workers have other objects than the pool. Else they are values of
    /// this process.
    pub encodes: bool,
    /// Large parts of a call may lie in shared memory.
    pub shares_memory: bool,
    /// The engine starts workers, and replaces those that end. Else threads of the layer above come for tasks.
    pub starts_workers: bool,
    /// A task that runs can be ended, by a limit of its time or a cancellation. Else its caller goes on alone.
    pub ends_running: bool,
    /// A worker is a process of its own: it has an id, takes signals, and a crash costs this process nothing.
    pub isolates: bool,
}

/// What a thread gets when it asks for a task.
#[derive(Debug)]
pub enum Taken {
    /// A task, and what to call for it.
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
    /// What it returned or raised.
    pub value: Opaque,
    /// Whether it raised.
    pub raised: bool,
    /// How long the call took, in nanoseconds.
    pub busy_ns: u64,
    /// The call, for a retry.
    pub again: Option<Opaque>,
}

/// What came of an attempt to end a task that a worker has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Interrupted {
    /// It had ended meanwhile.
    Ended,
    /// It is in the queue again.
    Queued,
    /// It had not started, and its worker does not have it any more.
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
    /// What the layer above says of its workers.
    type Settings;
    /// What the pool's lock guards of them.
    type Members: Debug + Default + Send;

    /// What it can do.
    const CAPABILITIES: Capabilities;
    /// Answers are found by looking, and queued tasks given out then: whoever waits looks, or else the supervisor.
    const POLLED: bool;

    /// Workers for a pool that has started none yet.
    fn new(settings: Self::Settings) -> Self;

    // --- a pool's begin -----------------------------------------------------------------------------

    /// Makes what workers are started by; `page` is the pool's control page.
    fn prepare(pool: &Pool<Self>, page: OwnedFd) -> Result<()>;

    /// Starts the workers that the pool begins with.
    fn start(pool: &Pool<Self>) -> Result<()>;

    // --- tasks on their way -------------------------------------------------------------------------

    /// A task of this priority has been queued: some worker is to have it.
    fn submitted(pool: &Pool<Self>, state: &mut PoolState<Self>, priority: i32);

    /// A task that was run before has been queued again.
    fn requeued(pool: &Pool<Self>, state: &mut PoolState<Self>);

    /// Gives queued tasks to workers.
    fn feed(_pool: &Pool<Self>, _state: &mut PoolState<Self>) {}

    /// Reads what workers have to say; true if anything came.
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

    /// How long a thread that waits may sleep before it looks by itself, if it has to.
    fn patience(_state: &PoolState<Self>) -> Option<Duration> {
        None
    }

    /// Nobody looks from now on: has workers wake the supervisor when that is needed.
    fn rest(_pool: &Pool<Self>, _state: &mut PoolState<Self>) {}

    // --- numbers ------------------------------------------------------------------------------------

    /// Workers that have a task.
    fn busy(members: &Self::Members) -> usize;

    /// Tasks that workers have and do not run, as far as is known without a look.
    fn waiting(members: &Self::Members) -> usize;

    /// Whether workers have tasks, or are about to be there.
    fn has_work(members: &Self::Members) -> bool;

    /// Whether no worker has a task.
    fn is_drained(members: &Self::Members) -> bool;

    /// Whether no worker is left.
    fn is_gone(members: &Self::Members) -> bool;

    /// Tasks that are being run, tasks that workers have besides, and what there is to say of each worker.
    fn statistics(state: &PoolState<Self>) -> (usize, usize, Vec<WorkerStatistics>);

    /// Why there are fewer workers than there should be, while that is so.
    fn shortage(_members: &Self::Members) -> Option<Arc<str>> {
        None
    }

    /// What failed while workers were being prepared, and was survived.
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

    /// When the run of a task with this limit is over, or when to look again; `None` if no worker has it.
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

    /// Makes every worker that sleeps look at where the pool stands.
    fn wake_all(_pool: &Pool<Self>) {}

    /// Nothing is left to do: sends the workers away. True when none is left.
    fn dismiss(pool: &Pool<Self>, state: &mut PoolState<Self>) -> bool;

    // --- the supervisor's look ----------------------------------------------------------------------

    /// Looks after the workers; gives when that is due again for a reason that [`next_look`](Self::next_look) does not
    /// know.
    fn look_after(_pool: &Pool<Self>, _state: &mut PoolState<Self>, _now: Instant) -> Option<Instant> {
        None
    }

    /// When the workers are to be looked after next.
    fn next_look(_state: &PoolState<Self>, _now: Instant) -> Option<Instant> {
        None
    }
}
