//! The engine of a pool with any backend: the interface for the layer above.
//!
//! A kind of worker has one line in `kinds!`, which says what starts a pool of it and in which file of `src/backend` it
//! is. A call dispatches once, and the rest is the code of that kind alone.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ropewalk_base::Result;
use ropewalk_shm::memory::Arena;
use ropewalk_sync::spin::AdaptiveSpin;

use crate::calls::{Answered, Calling};
use crate::config::Config;
use crate::function::Function;
use crate::locked::Opaque;
use crate::outcome::Failure;
use crate::payload::Payload;
use crate::pool::{
    Attended, Capabilities, Finished, Hung, News, Order, Pool, Refused, Taken, WaitFor, Waited, Which,
};
use crate::pulse::Progress;
use crate::quarantine::Quarantined;
use crate::records::Ended;
use crate::session::{Session, SessionSettings};
use crate::statistics::{Doing, Signalled, Statistics};
use crate::stream::Items;
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
                    $(Self::$kind(_) => crate::backend::$file::CAPABILITIES,)+
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
    /// Starts a pool of actors of a Ray cluster, each served by a thread that comes to [`attend`](Self::attend).
    of_ray() => ray::Ray,
    /// Starts a pool of interpreters of this process: threads of the layer above take the [`Seats`](crate::Seats) that
    /// it offers, and serve.
    of_interpreters(spawn: crate::Spawn) => interpreters::Interpreters,
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

    /// The pool's name.
    fn name(&self) -> Arc<str>;

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

    /// The same, if there is room for it: no other task is dropped for it.
    ///
    /// # Errors
    ///
    /// See [`Refused`]; the call comes back with it.
    fn submit_in_room(
        &self,
        call: Call,
        task_flags: u16,
        options: Options,
        wait: bool,
    ) -> Result<Arc<Task>, Box<(Call, Refused)>>;

    /// Whether a submission is refused by a full queue.
    fn refuses_when_full(&self) -> bool;
    /// Registers a session; tasks name it by its number. `None` in a forked child.
    fn open_session(&self, settings: SessionSettings) -> Option<Arc<Session>>;

    /// Takes no more tasks of a session, and drops its states when those that were accepted have ended.
    fn close_session(&self, session: &Arc<Session>);

    /// The layer above has made and keeps a session's state, because nothing is encoded. Gives the state's number.
    fn made_here(&self, session: &Session) -> u32;

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

    /// Takes the report of a thread of the layer above that serves a worker, and gives it a task for that worker, for
    /// which it waits up to `timeout`. Workers are numbered from 0.
    fn attend(&self, worker: usize, news: News, timeout: Duration) -> Attended;

    /// Waits up to `timeout` for what is to be done with such workers besides; `None` when the pool has ended.
    fn orders(&self, timeout: Duration) -> Option<Vec<Order>>;

    /// Functions that no task names any more, since the last call: for a layer above that ships them itself.
    fn take_dropped(&self) -> Vec<u32>;

    /// Waits for runs in threads of this process that hang, and takes them; empty when the time is up. A pool that can
    /// ask its workers itself where they are gives none.
    fn take_hung(&self, timeout: Duration) -> Vec<Hung>;

    /// The threads of this process, by the system's library's names for them, whose calls go on though their tasks have
    /// ended: nothing can end such a call, and nothing should wait for it.
    fn given_up(&self) -> Vec<u64>;

    /// Fails a hung run with the stack of its thread, if it still goes on. The call goes on.
    fn fail_hung(&self, hung: &Hung, stack: Option<Arc<str>>);

    /// Blocks until `what` is there, driving the pool meanwhile. Call it with the interpreter released.
    fn wait(&self, what: &WaitFor, deadline: Option<Instant>) -> Waited;

    /// Spins for the end of a task, for as long as that has paid lately, and returns whether it has ended. It does so
    /// only while no thread waits in [`wait`](Self::wait) and a core is to spare, and reads the pool's results
    /// meanwhile. It never sleeps: a thread of an event loop may call it.
    fn spin_for(&self, task: &Arc<Task>) -> bool;

    /// Reads the available results, if no thread waits for them: for callers that poll and never wait.
    fn catch_up(&self);

    /// Cancels a task. One that has not started is simply dropped; one that is running is ended, with its worker, if
    /// `running` says so and it runs in a worker process. True if the task is cancelled now.
    fn cancel(&self, task: &Arc<Task>, running: bool) -> bool;

    /// Asks a task to stop. One that has not started is cancelled; one that runs can see that it is asked to, and is
    /// cancelled if it stops for that. False if it has ended otherwise.
    fn ask_to_stop(&self, task: &Arc<Task>) -> bool;

    /// The reader of a stream leaves: its task is cancelled, or asked to stop, and what was not read is returned, to be
    /// dropped where that may run code of the program's.
    fn leave_stream(&self, task: &Arc<Task>) -> Items;

    /// A task that ends, as cancelled, when something of a stream comes, or the stream ends; `None` if there is
    /// something to read or to hear now. A stream has one such task at a time.
    fn stream_signal(&self, stream: &Arc<Task>) -> Option<Arc<Task>>;

    /// Takes an item of a stream from a thread of this process, which asks for [`credit`](crate::Stream::credit) first;
    /// it uses so many bytes of that.
    ///
    /// # Errors
    ///
    /// The stream's reader has not allowed the item.
    fn item_made(&self, stream: &Arc<Task>, item: Opaque, cost: u64) -> Result<()>;

    /// From now on a thread takes the calls of tasks; before, they are refused.
    fn serve_calls(&self);

    /// The next call of a task; blocks up to this time, and less if the pool has ended. Call it with the interpreter
    /// released.
    fn next_call(&self, deadline: Instant) -> Option<Calling>;

    /// Sends the answer to a call.
    fn answer_call(&self, call: &Calling, answer: &Payload) -> Answered;

    /// How many lanes there are, if the task of each waits for the answer to a call, so that no other task can start.
    fn all_call(&self) -> Option<usize>;

    /// How far a task has last reported that it is, if it has.
    fn progress(&self, task: &Arc<Task>) -> Option<Progress>;

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

    /// The same; when the time is up, what is left is ended as [`terminate`](Self::terminate) does. Until then, tasks
    /// run and are run again as usual.
    fn close_within(&self, cancel: bool, time: Duration);

    /// Takes no more tasks, cancels those that have not started, and ends those that still run after `grace`, as
    /// [`terminate`](Self::terminate) does.
    fn end(&self, grace: Duration);

    /// Ends everything now: tasks that wait are cancelled, those that run fail with [`Failure::Terminated`], and the
    /// worker processes are killed. A call that runs in a thread of this process goes on, and its pool ends without it.
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

    /// What the program should know of its settings, if they were seen not to fit its tasks.
    fn advice(&self) -> Option<String>;

    /// The zygote's reports of failed preloads.
    fn complaints(&self) -> Vec<String>;

    /// Replaces workers, one after the other, without a dip; gives the number of workers that will be. A pool whose
    /// workers are threads of the layer above replaces none.
    fn recycle(&self, which: Which) -> usize;

    /// Sets the number of workers. A pool whose workers are threads of the layer above lets those leave that are too
    /// many; gives the number of threads that the layer above has to start.
    fn resize(&self, workers: usize) -> usize;

    /// The last tasks that have cost too many workers their life, oldest first.
    fn quarantine(&self) -> Vec<Quarantined>;

    /// A snapshot of the counters; `None` in a forked child.
    fn statistics(&self) -> Option<Statistics>;

    /// What the worker processes run now; nothing for workers that are no processes.
    fn doing(&self) -> Vec<Doing>;

    /// Sends a signal to the worker process of this number, if the process has a handler for the signal.
    fn signal_worker(&self, number: u64, signal: i32) -> Signalled;

    /// The last tasks that have ended, the newest at the end; `None` in a forked child.
    fn records(&self) -> Option<Vec<Ended>>;

    /// Whether the CPU time of each call is measured, however short it is.
    fn measures_cpu(&self) -> bool;
}
