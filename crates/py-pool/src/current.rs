//! The task that the calling thread runs, whichever kind of pool it is of.
//!
//! A lane's thread enters its lane once, and the words of the lane say which task it runs. A thread of a thread pool
//! notes each task, which moves a reference and no more. The object for Python is made when a task asks for it.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ropewalk_os::process::fork_generation;
use ropewalk_pool::worker::WorkerEnd;
use ropewalk_pool::{Progress, Running, Signals, Task};

thread_local! {
    static LANE: RefCell<Option<Lane>> = const { RefCell::new(None) };
    static LOCAL: RefCell<Option<(Arc<Task>, u64)>> = const { RefCell::new(None) };
}

/// A lane's end, with the worker's number and the lane's index there.
pub(crate) type Named = (Rc<RefCell<WorkerEnd>>, (u64, usize));

/// The lane that this thread serves, in the process of this fork generation.
struct Lane {
    running: Arc<Running>,
    end: Rc<RefCell<WorkerEnd>>,
    /// The worker's number, and the lane's index there.
    name: (u64, usize),
    forks: u64,
}

/// This thread serves a lane until the result is dropped.
pub(crate) fn serve_lane(end: &Rc<RefCell<WorkerEnd>>, name: (u64, usize)) -> Serving {
    let running = Arc::clone(end.borrow().running());
    LANE.set(Some(Lane { running, end: Rc::clone(end), name, forks: fork_generation() }));
    Serving
}

/// See [`serve_lane`].
pub(crate) struct Serving;

impl Drop for Serving {
    fn drop(&mut self) {
        drop(LANE.take());
    }
}

/// Runs a call, which began at that time of the monotonic clock, with its task noted as this thread's; gives the task
/// back.
pub(crate) fn during<T>(task: Arc<Task>, began: u64, call: impl FnOnce() -> T) -> (Arc<Task>, T) {
    let outer = LOCAL.replace(Some((task, began)));
    let made = call();
    match LOCAL.replace(outer) {
        Some((task, _)) => (task, made),
        None => unreachable!("a call within this one puts back what it found"),
    }
}

/// A task that runs, or did when this was made. It holds no Python object.
pub(crate) enum CurrentTask {
    Lane { running: Arc<Running>, task: u64, attempt: u64 },
    Local { signals: Arc<Signals>, task: u64, attempt: u64, ends: Option<Instant> },
}

/// The task that this thread runs. A fork of a worker runs none: the worker still does.
pub(crate) fn current() -> Option<CurrentTask> {
    let local = LOCAL.with_borrow(|local| {
        let (task, began) = local.as_ref()?;
        Some(CurrentTask::Local {
            signals: Arc::clone(task.signals()),
            task: task.id,
            attempt: task.attempt().into(),
            ends: task.ends(*began),
        })
    });
    local.or_else(|| {
        LANE.with_borrow(|lane| {
            let Lane { running, forks, .. } = lane.as_ref()?;
            let task = running.task();
            (task != 0 && *forks == fork_generation()).then(|| CurrentTask::Lane {
                running: Arc::clone(running),
                task,
                attempt: running.attempt(),
            })
        })
    })
}

impl CurrentTask {
    pub(crate) fn id(&self) -> u64 {
        match self {
            Self::Lane { task, .. } | Self::Local { task, .. } => *task,
        }
    }

    pub(crate) fn attempt(&self) -> u64 {
        match self {
            Self::Lane { attempt, .. } | Self::Local { attempt, .. } => *attempt,
        }
    }

    /// The time that is left, if there is a limit.
    pub(crate) fn left(&self) -> Option<Duration> {
        match self {
            Self::Lane { running, task, .. } => {
                if running.task() == *task {
                    running.left()
                } else {
                    Some(Duration::ZERO)
                }
            }
            Self::Local { ends, .. } => ends.map(|at| at.saturating_duration_since(Instant::now())),
        }
    }

    /// The lane's end and its name, if the calling thread is the one that runs the task.
    pub(crate) fn lane(&self) -> Option<Named> {
        let Self::Lane { running, .. } = self else { return None };
        if self.has_ended() {
            return None;
        }
        LANE.with_borrow(|lane| {
            let lane = lane.as_ref()?;
            let own = Arc::ptr_eq(&lane.running, running) && lane.forks == fork_generation();
            own.then(|| (Rc::clone(&lane.end), lane.name))
        })
    }

    /// Whether the calling thread is one of a thread pool, and runs it.
    pub(crate) fn is_local_here(&self) -> bool {
        let Self::Local { signals, .. } = self else { return false };
        LOCAL.with_borrow(|local| {
            local.as_ref().is_some_and(|(task, _)| Arc::ptr_eq(task.signals(), signals))
                && !signals.has_ended()
        })
    }

    /// Whether it is asked to stop.
    pub(crate) fn is_asked_to_stop(&self) -> bool {
        match self {
            Self::Lane { running, task, .. } => running.stopped(*task),
            Self::Local { signals, .. } => signals.is_asked_to_stop(),
        }
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        match self {
            Self::Lane { running, task, .. } => running.task() != *task,
            Self::Local { signals, .. } => signals.has_ended(),
        }
    }

    /// Reports that it is alive, and how far it is.
    pub(crate) fn report(&self, progress: Option<Progress>) {
        match (self, progress) {
            (Self::Lane { running, task, .. }, progress) => running.report(*task, progress),
            (Self::Local { signals, .. }, Some(progress)) => signals.report(progress),
            (Self::Local { signals, .. }, None) => signals.beat(),
        }
    }
}
