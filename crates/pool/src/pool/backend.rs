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
use crate::calls::{Answered, Calling};
use crate::clock::Anchor;
use crate::locked::Opaque;
use crate::outcome::{Record, Reply};
use crate::payload::Payload;
use crate::pulse::Progress;
use crate::session::{COMMON, Session};
use crate::statistics::{Doing, WorkerStatistics};
use crate::task::Task;
use crate::times::Times;

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
    /// Tasks of a session find its state. Where calls are encoded each worker has a state of its own.
    pub keeps_states: bool,
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
    /// How long the call took.
    pub times: Times,
    /// The function's name.
    pub function: Option<Arc<str>>,
    /// Whether it raised because it was asked to stop.
    pub stopped: bool,
    /// The call, for a retry.
    pub again: Option<Opaque>,
}

/// A worker's answer, as the thread that serves it has decoded it.
#[derive(Debug)]
pub struct Answer {
    /// Its result or exception.
    pub value: Opaque,
    /// Whether it raised.
    pub raised: bool,
    /// Whether it may be run again after that, if it has retries.
    pub again: bool,
    /// Whether it ended because it was asked to stop.
    pub stopped: bool,
    /// How long the call took by the worker's own clock, in nanoseconds.
    pub busy_ns: u64,
    /// How far the task has said that it is, if it did.
    pub progress: Option<Progress>,
}

/// A report of a thread that serves a worker of the layer above.
#[derive(Debug)]
pub enum News {
    /// It is there for a task.
    Nothing,
    /// The worker, of this process id, takes tasks from now on.
    Ready(i32),
    /// There is no worker yet, for this reason; an empty text says that there will be one soon.
    Missing(Arc<str>),
    /// The worker has answered its task.
    Answered(Answer),
    /// The worker could not make the object of the actor whose task it has: the exception.
    Unmade(Reply),
    /// The worker is no more, for this reason.
    Gone(Arc<str>),
    /// The thread ends, and its worker is no more.
    Left,
    /// The worker's task reports how far it is.
    Said(Attempt, Progress),
    /// The worker's task calls a function of the program: the number of the call, as the worker counts, and its frame.
    Called(Attempt, u64, Reply),
}

/// A run of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The task's id.
    pub task: u64,
    /// Which attempt it is, from 1 on.
    pub number: u32,
}

/// What another thread than that of a worker is to do, because that one waits for its worker.
#[derive(Debug)]
pub struct Order {
    /// The worker, as in [`Engine::attend`](crate::Engine::attend).
    pub worker: usize,
    /// How many [`News::Ready`] it has reported: a later worker of that number is another one.
    pub which: u64,
    /// What to do.
    pub what: Errand,
}

/// See [`Order`].
#[derive(Debug)]
pub enum Errand {
    /// Start a thread that serves a worker of this number, of which there is none any more. If it is to take the place
    /// of another one, that one goes on when it cannot be made.
    Begin {
        /// Whether it is to take the place of another one.
        stands_in: bool,
    },
    /// End the worker.
    End,
    /// Ask this task, which it has, to stop.
    Stop(u64),
    /// Give this task the answer to its call of this number.
    Answer(u64, u64, Payload),
}

/// What such a thread is to do.
#[derive(Debug)]
pub enum Attended {
    /// Hand this task to the worker.
    Task(Arc<Task>),
    /// The same; the worker makes the state of the task's session first.
    First(Arc<Task>),
    /// Let the worker drop the states of the sessions of these numbers; and come again.
    Drop(Vec<u32>),
    /// Come again.
    Nothing,
    /// End the worker, and report that it is gone.
    Doomed,
    /// End the worker: the pool has no more tasks.
    Closed,
    /// Drop this task, which has ended, where its value may be dropped; and come again.
    Last(Box<Task>),
}

/// A task that hangs in a thread of this process.
#[derive(Clone, Debug)]
pub struct Hung {
    /// The task.
    pub task: Arc<Task>,
    /// The thread that runs it, as [`thread_ident`](ropewalk_os::process::thread_ident) names it.
    pub thread: u64,
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

/// Which workers to replace.
#[derive(Clone, Copy, Debug)]
pub enum Which {
    /// All that are ready.
    All,
    /// The one with this number.
    Number(u64),
    /// The one with this process id.
    Process(i32),
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

    // --- records -----------------------------------------------------------------------------------

    /// Adds what is known of the run of a task that ends before its worker has answered.
    fn describe_run(_members: &Self::Members, _task: &Arc<Task>, _record: &mut Record, _monotonic: &Anchor) {}

    // --- a pool's begin -----------------------------------------------------------------------------

    /// Makes the backend's starter of workers; `page` is the pool's control page.
    fn prepare(pool: &Pool<Self>, page: OwnedFd) -> Result<()>;

    /// Starts the workers that the pool begins with.
    fn start(pool: &Pool<Self>) -> Result<()>;

    // --- tasks on their way -------------------------------------------------------------------------

    /// A task was queued, and needs a worker.
    fn submitted(pool: &Pool<Self>, state: &mut PoolState<Self>, task: &Arc<Task>);

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

    // --- sessions -----------------------------------------------------------------------------------

    /// A task of a session is about to be queued: decides where it waits.
    fn bind(_pool: &Pool<Self>, _state: &mut PoolState<Self>, session: &Arc<Session>, _task: &Arc<Task>) {
        session.set_place(COMMON);
    }

    /// Whether a task of the session would have to wait for its worker.
    fn is_busy(_state: &PoolState<Self>, session: &Session) -> bool {
        session.pending() > 0
    }

    /// A task of the session has ended.
    fn left(_pool: &Pool<Self>, _state: &mut PoolState<Self>, _session: &Arc<Session>, _task: &Arc<Task>) {}

    /// The session was closed, and none of its tasks is left: drops its states.
    fn drop_session(_pool: &Pool<Self>, _state: &mut PoolState<Self>, _session: &Session) {}

    // --- numbers ------------------------------------------------------------------------------------

    /// Workers that have a task.
    fn busy(members: &Self::Members) -> usize;

    /// Tasks that workers have and do not run, as far as is known without polling.
    fn waiting(members: &Self::Members) -> usize;

    /// Calls this for each task that workers have and have not begun.
    fn each_waiting(_members: &Self::Members, _see: &mut dyn FnMut(&Arc<Task>)) {}

    /// Takes back one of those; false if its worker has begun it.
    fn take_one_back(_members: &mut Self::Members, _task: &Arc<Task>) -> bool {
        false
    }

    /// Whether workers have tasks, or are about to be there.
    fn has_work(members: &Self::Members) -> bool;

    /// Whether no worker has a task.
    fn is_drained(members: &Self::Members) -> bool;

    /// Whether no worker is left.
    fn is_gone(members: &Self::Members) -> bool;

    /// Running tasks, other tasks that workers have, and the record of each worker.
    fn statistics(state: &PoolState<Self>) -> (usize, usize, Vec<WorkerStatistics>);

    /// What worker processes run.
    fn doing(_members: &Self::Members) -> Vec<Doing> {
        Vec::new()
    }

    /// The process of the worker of this number.
    fn process(_members: &Self::Members, _number: u64) -> Option<(i32, Arc<OwnedFd>)> {
        None
    }

    /// Why there are fewer workers than there should be, while that is so.
    fn shortage(_members: &Self::Members) -> Option<Arc<str>> {
        None
    }

    /// What the program should know of its settings, if they were seen not to fit its tasks.
    fn advice(_members: &Self::Members) -> Option<Arc<str>> {
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

    // --- workers that threads of the layer above serve -----------------------------------------------

    /// Takes the report of the thread that serves this worker, and gives it a task, for which it waits up to `timeout`.
    fn attend(_pool: &Pool<Self>, _worker: usize, _news: News, _timeout: Duration) -> Attended {
        Attended::Closed
    }

    /// Waits up to `timeout` for orders; `None` when there will be none any more.
    fn orders(_pool: &Pool<Self>, _timeout: Duration) -> Option<Vec<Order>> {
        None
    }

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

    /// Asks a task that runs to stop by itself, where its worker does not read that from the task.
    fn ask_to_stop(_pool: &Pool<Self>, _state: &mut PoolState<Self>, _task: &Arc<Task>) {}

    /// How far a task that runs has reported that it is, where its worker does not write that into the task.
    fn progress(_members: &Self::Members, _task: &Arc<Task>) -> Option<Progress> {
        None
    }

    /// Sends the answer to a call that a task made.
    fn answer(
        _pool: &Pool<Self>,
        _state: &mut PoolState<Self>,
        _call: &Calling,
        _answer: &Payload,
    ) -> Answered {
        Answered::Gone
    }

    /// How many lanes there are, if each waits for the answer to a call.
    fn all_call(_members: &Self::Members) -> Option<usize> {
        None
    }

    /// When the run of a task with this limit is overdue, or when to check again; `None` if no worker has it.
    fn run_ends(
        members: &mut Self::Members,
        task: &Arc<Task>,
        timeout: Duration,
        now: Instant,
    ) -> Option<Instant>;

    /// When the run of a task with this limit is hung, or when to check again; `None` if no worker has it.
    fn hangs_at(
        _members: &mut Self::Members,
        _task: &Arc<Task>,
        _limit: Duration,
        _now: Instant,
    ) -> Option<Instant> {
        None
    }

    /// The run of a task has given no sign of life for too long.
    fn hung(_pool: &Pool<Self>, _state: &mut PoolState<Self>, _task: &Arc<Task>, _now: Instant) {}

    /// The runs that hang and that only the layer above can ask where they are; waits for one.
    fn take_hung(_pool: &Pool<Self>, _timeout: Duration) -> Vec<Hung> {
        Vec::new()
    }

    /// The threads of this process whose calls go on though their tasks have ended.
    fn given_up(_members: &Self::Members) -> Vec<u64> {
        Vec::new()
    }

    /// Fails such a run, if it still goes on.
    fn fail_hung(_pool: &Pool<Self>, _hung: &Hung, _stack: Option<Arc<str>>) {}

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

    // --- the life of workers ------------------------------------------------------------------------

    /// Marks workers that another is to replace; gives their number.
    fn recycle(_pool: &Pool<Self>, _state: &mut PoolState<Self>, _which: Which) -> usize {
        0
    }

    /// The pool is to have `state.size` workers; gives how many threads the layer above has to start.
    fn resized(_pool: &Pool<Self>, _state: &mut PoolState<Self>) -> usize {
        0
    }

    // --- the supervisor's look ----------------------------------------------------------------------

    /// What the supervisor does before its look, without the lock.
    fn before_look(_pool: &Pool<Self>, _now: Instant) {}

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
