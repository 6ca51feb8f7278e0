//! The engine of a pool with any backend: the interface for the layer above.
//!
//! A kind of worker has one line in `kinds!`, which says what starts a pool of it and in which file of `src/backend` it
//! is. A call dispatches once, and the rest is the code of that kind alone.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ropewalk_base::Result;
use ropewalk_shm::memory::Arena;
use ropewalk_sync::spin::AdaptiveSpin;

use crate::config::Config;
use crate::function::Function;
use crate::outcome::Failure;
use crate::payload::Payload;
use crate::pool::{Backend, Capabilities, Finished, Pool, Refused, Taken, WaitFor, Waited};
use crate::statistics::Statistics;
use crate::task::{Call, Options, Task};

/// Makes the enum of the kinds, the functions that start a pool of each, and `each!`, which runs an expression with the
/// pool of any kind.
macro_rules! kinds {
    ($dollar:tt $($(#[$doc:meta])* $start:ident($($settings:ident: $of:ty)?) => $file:ident::$kind:ident,)+) => {
        /// A pool of one of the kinds.
        #[derive(Clone, Debug)]
        enum Kind {
            $($kind(Arc<Pool<crate::backend::$file::$kind>>),)+
        }

        macro_rules! each {
            ($dollar kind:expr, $dollar pool:ident => $dollar call:expr) => {
                match $dollar kind {
                    $(Kind::$kind($dollar pool) => $dollar call,)+
                }
            };
        }

        impl Kind {
            fn capabilities(&self) -> Capabilities {
                match self {
                    $(Self::$kind(_) => crate::backend::$file::$kind::CAPABILITIES,)+
                }
            }
        }

        impl Engine {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                ///
                /// When the machine is out of memory, processes or descriptors.
                pub fn $start(config: Config $(, $settings: $of)?) -> Result<Self> {
                    Pool::start(config, ($($settings)?)).map(|pool| Self(Kind::$kind(pool)))
                }
            )+
        }
    };
}

kinds! {
    $
    /// Starts a pool of worker processes: the zygote and the workers are asked for at once, unless the pool is `lazy`,
    /// and come up in the background.
    of_processes(spawn: crate::Spawn) => processes::Processes,
    /// Starts a pool of threads of this process, which come to [`take_local`](Self::take_local).
    of_threads() => threads::Threads,
}

/// A handle to a pool's engine. Dropping the last one does not end the pool: call [`close`](Self::close).
#[derive(Clone, Debug)]
pub struct Engine(Kind);

/// Makes methods that do what [`Pool`]'s of the same name do.
macro_rules! of_every_pool {
    ($($(#[$doc:meta])* fn $name:ident(&self $(, $argument:ident: $of:ty)* $(,)?) $(-> $gives:ty)?;)+) => {
        impl Engine {
            $(
                $(#[$doc])*
                #[inline]
                pub fn $name(&self $(, $argument: $of)*) $(-> $gives)? {
                    each!(&self.0, pool => pool.$name($($argument),*))
                }
            )+
        }
    };
}

impl Engine {
    /// The capabilities of its workers.
    #[inline]
    pub fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    /// The arena for large arguments.
    pub fn arena(&self) -> &'static Arc<Arena> {
        Arena::global()
    }
}

of_every_pool! {
    /// Starts the first workers, and what they need, if that has not been done.
    ///
    /// # Errors
    ///
    /// When the machine is out of memory, processes or descriptors.
    fn awaken(&self) -> Result<()>;

    /// Whether it has started nothing yet.
    fn is_asleep(&self) -> bool;

    /// Whether this process has forked off the one that made the pool: its workers and threads are not here.
    fn is_forked(&self) -> bool;

    /// Registers an encoded function, to be shipped to each worker once.
    fn function(&self, name: &str, payload: Payload) -> Arc<Function>;

    /// Takes a task, or gives the call back with the reason. With `wait` false it does not even wait for the lock, for
    /// callers that hold one of their own.
    ///
    /// # Errors
    ///
    /// See [`Refused`]; the call comes back with it.
    fn submit(
        &self,
        call: Call,
        task_flags: u16,
        options: Options,
        wait: bool,
    ) -> Result<Arc<Task>, Box<(Call, Refused)>>;

    /// The same for a part of an accepted task that comes back: the queue's limit has counted that task.
    ///
    /// # Errors
    ///
    /// See [`Refused`]; it is never for want of room.
    fn submit_again(&self, call: Call, task_flags: u16, options: Options) -> Result<Arc<Task>, Box<(Call, Refused)>>;

    /// Whether a submission waits for room in a full queue, and is not refused.
    fn waits_for_room(&self) -> bool;

    /// A task that ends, as cancelled, when a submission need not wait for room any more; `None` if it need not now.
    /// One that is not wanted any more is given back to [`forget_room`](Self::forget_room).
    fn room(&self) -> Option<Arc<Task>>;

    /// Ends a task of [`room`](Self::room) that no caller waits for any more.
    fn forget_room(&self, room: &Arc<Task>);

    /// Takes the next task for a thread of the layer above, blocking up to `timeout`. A pool that starts its workers
    /// itself has none for it, and is as good as closed to it; the same goes for the next two.
    fn take_local(&self, spin: &mut AdaptiveSpin, timeout: Duration) -> Taken;

    /// Ends a task that such a thread has run, and takes the next one with the same hold of the lock.
    ///
    /// # Errors
    ///
    /// Returns the task, and takes none, if it has no other references: the layer above decides where its result may be
    /// dropped.
    fn finish_and_take_local(
        &self,
        finished: Finished,
        spin: &mut AdaptiveSpin,
        timeout: Duration,
    ) -> Result<Taken, Box<Task>>;

    /// Ends a task that such a thread has run, and takes none.
    fn finish_local(&self, finished: Finished);

    /// Blocks until `what` is there, driving the pool meanwhile. Call it with the interpreter released.
    fn wait(&self, what: &WaitFor, deadline: Option<Instant>) -> Waited;

    /// Reads the available results, if no thread waits for them: for callers that poll and never wait.
    fn catch_up(&self);

    /// Cancels a task. One that has not started is simply dropped; one that is running is ended, with its worker, if
    /// `running` says so and it runs in a worker process. True if the task is cancelled now.
    fn cancel(&self, task: &Arc<Task>, running: bool) -> bool;

    /// Whether the task is being run right now.
    fn is_running(&self, task: &Arc<Task>) -> bool;

    /// Watched tasks that have ended since the last call.
    fn take_completed(&self) -> Vec<Arc<Task>>;

    /// True for the first caller: the pool needs one collector.
    fn start_collecting(&self) -> bool;

    /// The collector could not be started: the next caller of [`start_collecting`](Self::start_collecting) is the
    /// first.
    fn stop_collecting(&self);

    /// Takes no more tasks; with `cancel`, drops those that have not started. The workers leave when all is done.
    fn close(&self, cancel: bool);

    /// Takes no more tasks, cancels those that have not started, and ends those that still run after `grace`, as
    /// [`terminate`](Self::terminate) does.
    fn end(&self, grace: Duration);

    /// Ends everything now: tasks that wait are cancelled, those that run fail with [`Failure::Terminated`], and the
    /// worker processes are killed. A call that runs in a thread of this process goes on, and its pool ends after it.
    fn terminate(&self);

    /// Takes no more tasks, cancels those that have not started, and sends every worker process a signal. A task whose
    /// worker dies of it fails with [`Failure::Terminated`]; no worker is replaced.
    fn signal_workers(&self, signal: i32);

    /// Ends every worker at once; whatever has no result fails with `failure`.
    fn break_down(&self, failure: &Failure);

    /// Blocks until the pool has ended. A signal's handler may have to run first: then join again.
    fn join(&self, deadline: Option<Instant>) -> Waited;

    /// Whether every worker is gone and no task is left.
    fn has_ended(&self) -> bool;

    /// Whether it takes no tasks any more; those of a forked child's parent do not count.
    fn is_closed(&self) -> bool;

    /// The failure that broke the pool, if one did.
    fn broken(&self) -> Option<Failure>;

    /// Why there are fewer workers than there should be, as long as that is so.
    fn shortage(&self) -> Option<String>;

    /// The zygote's reports of failed preloads.
    fn complaints(&self) -> Vec<String>;

    /// A snapshot of the counters; `None` in a forked child.
    fn statistics(&self) -> Option<Statistics>;
}
