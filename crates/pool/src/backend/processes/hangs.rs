//! Runs that hang: their stack, their end, and the worker that takes the place of theirs.
//!
//! A run that gives no sign of life for as long as its task's limit is hung. The pool then does the following, without
//! waiting for anything under its lock:
//!
//! 1. The worker gets no more tasks, those that it had not started go to others, and another worker is asked for.
//! 2. The worker is sent [`STACK_SIGNAL`], whose handler writes the stacks of its threads into its notes. The handler
//!    is C code that needs no GIL, so it also runs when the task is in C and holds the GIL.
//! 3. When the notes have stopped growing, or after [`PATIENCE`], the task fails with the stack, or is run again once
//!    the worker is gone; and the worker is ended as for any other task, so the tasks beside it have the pool's grace.
//!
//! What a hung task answers after all is ignored: the signal may have cut the call short in which it hung, `sleep` for
//! instance, and the answer be made from that.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ropewalk_os::pidfd;

use super::workers::Worker;
use super::{Crew, ProcessPool, ProcessPoolState, Processes};
use crate::clock;
use crate::events::{self, What};
use crate::lane::Lane;
use crate::outcome::{Failure, Record};
use crate::pool::Backend;
use crate::task::Task;
use crate::wire::STACK_SIGNAL;

/// The least time that a worker may take to begin a task: the machine may be busy with others.
const LEAST_IDLE: Duration = Duration::from_secs(1);
/// How long a worker may take to write the stacks of its threads.
const PATIENCE: Duration = Duration::from_millis(50);
/// The time from one look at its notes to the next.
const STEP: Duration = Duration::from_millis(2);
const UNKNOWN: &str = "its process could not be looked at";
const STOPPED: &str = "its process is stopped, by SIGSTOP or a debugger";
const DEAF: &str = "its process does not handle the signal that asks for one";
const MUTE: &str = "its process did not answer the signal that asks for one";
const IDLE: &str =
    "it takes no tasks: none of its threads has begun one for as long as a run may give no sign of life";

/// The hung tasks of a worker.
#[derive(Debug)]
pub(crate) struct Hang {
    tasks: Vec<Arc<Task>>,
    asked: Asked,
}

/// How far the request for the stacks is.
#[derive(Debug)]
enum Asked {
    /// The notes are `from` bytes long without the answer, and were `seen` at the last look.
    Waiting { from: usize, seen: usize, until: Instant, next: Instant },
    /// The answer, or why there is none.
    Answered { stack: Option<Arc<str>>, silent: Option<&'static str> },
}

impl Hang {
    fn has(&self, task: &Arc<Task>) -> bool {
        self.tasks.iter().any(|hung| Arc::ptr_eq(hung, task))
    }

    fn is_waiting(&self) -> bool {
        matches!(self.asked, Asked::Waiting { .. })
    }

    fn failure(&self, pid: i32) -> Failure {
        let (stack, silent) = match &self.asked {
            Asked::Waiting { .. } => (None, None),
            Asked::Answered { stack, silent } => (stack.clone(), *silent),
        };
        Failure::Hung { pid, stack, silent }
    }
}

impl Worker {
    /// Whether this task of its hangs.
    pub(super) fn has_hung(&self, task: &Arc<Task>) -> bool {
        self.hang.as_ref().is_some_and(|hang| hang.has(task))
    }

    /// How a task that hung in it, and waits for its death, has failed.
    pub(super) fn failure_of_hung(&self, task: &Arc<Task>) -> Option<Failure> {
        let hang = self.hang.as_ref().filter(|hang| self.is_killed() && hang.has(task))?;
        Some(hang.failure(self.known_pid()))
    }

    /// Whether it must live on for a moment, to answer.
    pub(super) fn is_asked_for_stacks(&self) -> bool {
        self.hang.as_ref().is_some_and(Hang::is_waiting)
    }

    /// Asks it for the stacks of its threads; `Err` says why it cannot answer.
    fn ask_for_stacks(&self) -> Result<(), &'static str> {
        match condition(self) {
            None => Err(UNKNOWN),
            Some(condition) if condition.stopped => Err(STOPPED),
            // Unhandled, the signal would end the process, and with it the tasks beside the hung one.
            Some(condition) if !condition.catches(STACK_SIGNAL) => Err(DEAF),
            Some(_) => {
                if let Some(fd) = &self.pidfd {
                    let _ = pidfd::send_signal(fd.as_fd(), STACK_SIGNAL);
                }
                Ok(())
            }
        }
    }
}

#[cfg(not(any(test, fuzzing)))]
fn condition(worker: &Worker) -> Option<ropewalk_os::process::Condition> {
    ropewalk_os::process::condition(worker.pid)
}

#[cfg(any(test, fuzzing))]
use simulated::condition;

/// The workers of a simulation are no processes.
#[cfg(any(test, fuzzing))]
pub(crate) mod simulated {
    use std::cell::Cell;

    use ropewalk_os::process::Condition;

    use super::Worker;

    thread_local! {
        static ANSWER: Cell<Option<Condition>> = const { Cell::new(None) };
    }

    #[cfg_attr(mutants, mutants::skip)]
    pub(super) fn condition(_worker: &Worker) -> Option<Condition> {
        ANSWER.get()
    }

    /// Makes all workers of this thread's simulation stand to signals like this; unknown to begin with.
    #[cfg(test)]
    pub(crate) fn set(condition: Option<Condition>) {
        ANSWER.set(condition);
    }
}

impl ProcessPool {
    /// A task of a worker has given no sign of life for too long.
    pub(super) fn end_hung(&self, state: &mut ProcessPoolState, task: &Arc<Task>, now: Instant) {
        let Some(lane) = task.lane() else { return };
        if !state.members.sent_started(task).unwrap_or(false) {
            // It is not the task's fault: others get it.
            self.condemn_lane(state, lane, IDLE);
            return;
        }
        let index = state.members.lanes.get(lane).and_then(Option::as_ref).map(|lane| lane.worker);
        let Some(index) = index else { return };
        let Some(worker) = state.members.workers.get(index).and_then(Option::as_ref) else { return };
        if worker.is_killed() {
            return;
        }
        let is_first = worker.hang.is_none();
        let pid = worker.known_pid();
        state.counters.hung += 1;
        events::tell(&self.config.name, What::Hung { task: task.id, pid });
        if !is_first {
            let hang = state.members.workers.get_mut(index).and_then(|worker| worker.as_mut()?.hang.as_mut());
            if let Some(hang) = hang {
                hang.tasks.push(Arc::clone(task));
            }
            self.settle_hung(state, index);
            return;
        }
        let Some((_, newly)) = self.evict(state, task, false) else { return };
        let Some(worker) = state.members.workers.get_mut(index).and_then(Option::as_mut) else { return };
        let written = worker.notes.as_ref().map_or(0, |notes| notes.written(index));
        let asked = match worker.ask_for_stacks() {
            Ok(()) => {
                Asked::Waiting { from: written, seen: written, until: now + PATIENCE, next: now + STEP }
            }
            Err(silent) => Asked::Answered { stack: None, silent: Some(silent) },
        };
        worker.hang = Some(Hang { tasks: vec![Arc::clone(task)], asked });
        if newly {
            self.replace(state);
        }
        self.settle_hung(state, index);
        self.control.kick();
    }

    /// Looks whether workers that were asked for stacks have written them.
    pub(super) fn read_stacks(&self, state: &mut ProcessPoolState, now: Instant) {
        if state.members.evictions == 0 {
            return;
        }
        for index in 0..state.members.workers.len() {
            let Some(worker) = state.members.workers[index].as_mut() else { continue };
            let Some(Hang { asked: Asked::Waiting { from, seen, until, next }, .. }) = &mut worker.hang
            else {
                continue;
            };
            if now < *next && now < *until {
                continue;
            }
            let written = worker.notes.as_ref().map_or(0, |notes| notes.written(index));
            let is_whole = written > *from && written == *seen;
            if !is_whole && now < *until {
                (*seen, *next) = (written, now + STEP);
                continue;
            }
            self.take_stacks(state, index);
            self.settle_hung(state, index);
        }
    }

    /// A worker answers a task of its; true if that comes too late, because the task hung.
    pub(super) fn answers_too_late(
        &self,
        state: &mut ProcessPoolState,
        index: usize,
        task: &Arc<Task>,
        record: Record,
    ) -> bool {
        let worker = state.members.workers.get_mut(index).and_then(Option::as_mut);
        let Some(hang) = worker.and_then(|worker| worker.hang.as_mut()) else { return false };
        let Some(at) = hang.tasks.iter().position(|hung| Arc::ptr_eq(hung, task)) else { return false };
        hang.tasks.remove(at);
        // What it has not written by now it wrote in no call of this task.
        self.take_stacks(state, index);
        let worker = state.members.workers.get(index).and_then(Option::as_ref);
        if let Some(failure) = worker.and_then(|worker| Some(worker.hang.as_ref()?.failure(record.pid))) {
            self.blame(state, task, failure, record);
        }
        self.settle_hung(state, index);
        true
    }

    /// Waits no longer for a worker's stacks.
    fn take_stacks(&self, state: &mut ProcessPoolState, index: usize) {
        let Some(worker) = state.members.workers.get_mut(index).and_then(Option::as_mut) else { return };
        let Some(Hang { asked, .. }) = worker.hang.as_mut() else { return };
        let Asked::Waiting { from, .. } = asked else { return };
        let stack = worker.notes.as_ref().and_then(|notes| notes.read_after(index, *from));
        let silent = if stack.is_none() { Some(MUTE) } else { None };
        *asked = Asked::Answered { stack: stack.map(Into::into), silent };
    }

    /// The stacks of a worker are known: fails what hangs in it and may not run again, and ends it.
    fn settle_hung(&self, state: &mut ProcessPoolState, index: usize) {
        let Some(worker) = state.members.workers.get(index).and_then(Option::as_ref) else { return };
        let Some(hang) = worker.hang.as_ref().filter(|hang| !hang.is_waiting()) else { return };
        let (pid, failure, tasks) =
            (worker.known_pid(), hang.failure(worker.known_pid()), hang.tasks.clone());
        for task in tasks {
            // What is to run again waits for the worker's death, for until then it may still be running.
            if task.is_done() || self.will_run_again(state, &task) {
                continue;
            }
            let lane = task.lane().and_then(|lane| state.members.lanes.get(lane)?.as_ref());
            let reached = lane.map_or(0, |lane| lane.reached.read(task.id));
            task.count_attempt();
            state.members.leave_arguments(&task);
            self.blame(state, &task, failure.clone(), Record { pid, reached, ..Record::default() });
        }
        self.end_if_alone(state, index, None);
    }
}

impl Crew {
    /// When a run is hung, or when to look again; `None` if no worker has the task.
    pub(super) fn hangs_at(&mut self, task: &Arc<Task>, limit: Duration, now: Instant) -> Option<Instant> {
        let look = Processes::run_ends(self, task, limit, now)?;
        let index = task.lane()?;
        let waits_since = self.waits_untaken(index, task);
        let lane = self.lanes.get_mut(index)?.as_mut()?;
        let word = lane.pulse.read(task.id).map(|beat| beat.at);
        let sent = lane.outstanding.iter_mut().find(|sent| Arc::ptr_eq(&sent.task, task))?;
        let Some(begun) = sent.begun else {
            return waits_since.map_or(Some(look), |since| since.checked_add(limit.max(LEAST_IDLE)));
        };
        if let Some(word) = word
            && sent.pulse.is_none_or(|(known, _)| known != word)
        {
            // What is yet to come counts as now, and what is before the run as nothing.
            let ago = Duration::from_nanos(clock::nanos().saturating_sub(word));
            let at = clock::now().checked_sub(ago).unwrap_or(begun).max(begun);
            sent.pulse = Some((word, sent.pulse.map_or(at, |(_, known)| known.max(at))));
        }
        if task.gets_on(&mut sent.pace) {
            sent.pulse = Some((word.unwrap_or(0), now));
        }
        sent.pulse.map_or(begun, |(_, at)| at).checked_add(limit)
    }

    /// Since when a task waits to be taken by a worker that has nothing else to do.
    fn waits_untaken(&self, index: usize, task: &Arc<Task>) -> Option<Instant> {
        let lane = self.lanes.get(index)?.as_ref()?;
        let sent = lane.outstanding.front().filter(|sent| Arc::ptr_eq(&sent.task, task))?;
        let is_busy = |lane: &Lane| {
            lane.outstanding.front().is_some_and(|sent| {
                lane.tasks.started(sent.position) || sent.function.is_some_and(|at| lane.tasks.started(at))
            })
        };
        let worker = self.workers.get(lane.worker)?.as_ref()?;
        let mut all = worker.lanes.iter().map(|lane| self.lanes.get(*lane)?.as_ref());
        // A thread that is not there yet, or that holds the GIL, keeps the others from their tasks.
        let rests = all.all(|lane| lane.is_some_and(|lane| lane.ready && !is_busy(lane)));
        rests.then(|| lane.front_since.max(sent.at))
    }

    /// When to look at the notes of a worker next.
    pub(super) fn next_stack(&self) -> Option<Instant> {
        if self.evictions == 0 {
            return None;
        }
        let hangs = self.workers.iter().flatten().filter_map(|worker| worker.hang.as_ref());
        let next = |hang: &Hang| match &hang.asked {
            Asked::Waiting { next, .. } => Some(*next),
            Asked::Answered { .. } => None,
        };
        hangs.filter_map(next).min()
    }
}

#[cfg(test)]
mod tests;
