//! The times at which tasks are ended: `deadline` counts from the submission, `timeout` from the begin of the run.
//!
//! The begin of a run in a worker is the worker's word, in the lane's memory (`lane::Begun`). The parent looks at it
//! when the earliest time has come at which the run could be over, so nobody has to be woken for it. A task that had
//! not begun by then cannot be over for another `timeout`.

use std::collections::BinaryHeap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use windlass_os::clock::monotonic_nanos;

use super::{Core, Engine};
use crate::clock;
use crate::task::{Failure, Limit, Outcome, Stage, Task};

/// The least time between two looks at a task that has not begun, and the most that a look may come late.
const LEAST_LOOK: Duration = Duration::from_millis(10);
const MOST_LATE: Duration = Duration::from_millis(250);
/// A worker that has taken a task and does not say for so long that the call has begun is not believed any more: its
/// run counts from then on.
const PREPARATION: Duration = Duration::from_secs(300);
/// Below so many entries nothing is gained by looking for those of tasks that have ended.
const FEW: usize = 64;

#[derive(Debug)]
struct Due {
    at: Instant,
    limit: Limit,
    task: Weak<Task>,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}
impl Eq for Due {}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.at.cmp(&self.at)
    }
}

/// Entries of tasks that have ended are dropped as soon as they are half of all: what is kept is bounded by the number
/// of tasks that have not ended.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Due>,
    /// Tasks with a limit that have ended since the heap was last cleared of them.
    ended: usize,
}

impl Timers {
    pub(crate) fn first(&self) -> Option<Instant> {
        self.heap.peek().map(|due| due.at)
    }

    fn pop_due(&mut self, now: Instant) -> Option<Due> {
        if self.first()? > now { None } else { self.heap.pop() }
    }

    /// A task with a limit has ended.
    pub(crate) fn forget_one(&mut self) {
        self.ended += 1;
        if self.ended * 2 > self.heap.len() && self.heap.len() >= FEW {
            self.heap.retain(|due| due.task.upgrade().is_some_and(|task| !task.is_done()));
            self.heap.shrink_to(FEW.max(self.heap.len() * 2));
            self.ended = 0;
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.heap.len()
    }
}

impl Engine {
    /// A task was accepted: its deadline counts from now.
    pub(super) fn add_deadline(&self, core: &mut Core, task: &Arc<Task>) {
        let at = task.options.deadline.and_then(|deadline| task.submitted.checked_add(deadline));
        if let Some(at) = at {
            self.add_timer(core, task, Limit::Deadline, at);
        }
    }

    /// A task may begin from now on.
    pub(crate) fn may_begin(&self, core: &mut Core, task: &Arc<Task>) {
        let Some(timeout) = task.options.timeout else { return };
        if task.arm()
            && let Some(at) = clock::now().checked_add(timeout)
        {
            self.add_timer(core, task, Limit::Timeout, at);
        }
    }

    fn add_timer(&self, core: &mut Core, task: &Arc<Task>, limit: Limit, at: Instant) {
        core.timers.heap.push(Due { at, limit, task: Arc::downgrade(task) });
        if core.supervisor_wakes.is_none_or(|wakes| at < wakes) {
            core.supervisor_wakes = Some(at);
            self.control.kick();
        }
    }

    /// Ends the tasks whose time is up.
    pub(super) fn expire(&self, core: &mut Core, now: Instant) {
        while let Some(due) = core.timers.pop_due(now) {
            let Some(task) = due.task.upgrade() else { continue };
            if due.limit == Limit::Timeout {
                match Self::run_ends(core, &task, now) {
                    Some(at) if at > now => {
                        core.timers.heap.push(Due { at, ..due });
                        continue;
                    }
                    Some(_) => {}
                    None => {
                        task.disarm();
                        continue;
                    }
                }
            }
            let limit = due.limit;
            self.end_early(core, &task, true, |phase| Outcome::Failed(Failure::TimedOut(limit, phase)));
        }
    }

    /// When a task's run is over, or when to look again; `None` if no worker has it.
    fn run_ends(core: &mut Core, task: &Arc<Task>, now: Instant) -> Option<Instant> {
        let timeout = task.options.timeout?;
        match task.stage() {
            Stage::Done | Stage::Queued => None,
            Stage::Running => {
                let running = core.local.iter().find(|running| Arc::ptr_eq(&running.task, task))?;
                running.since.checked_add(timeout)
            }
            Stage::Sent => {
                let lane = core.lanes.get_mut(task.lane()?)?.as_mut()?;
                let sent = lane.outstanding.iter_mut().find(|sent| Arc::ptr_eq(&sent.task, task))?;
                if sent.begun.is_none() {
                    // Seen for the first time it is kept, lest the worker change its mind. It is no later than now, and
                    // what is earlier than the record is another's, or an earlier attempt's.
                    sent.begun = lane.begun.read(task.id).and_then(|begun| {
                        // In this order: the time comes out rather too late than before the record was sent.
                        let ago = Duration::from_nanos(monotonic_nanos().saturating_sub(begun));
                        clock::now().checked_sub(ago).filter(|at| *at >= sent.at)
                    });
                }
                if sent.begun.is_none() && lane.tasks.started(sent.position) {
                    let taken = *sent.taken.get_or_insert(now);
                    if now.duration_since(taken) >= PREPARATION {
                        sent.begun = Some(now);
                    }
                }
                match sent.begun {
                    Some(begun) => begun.checked_add(timeout),
                    None => {
                        let late = (now.duration_since(sent.at) / 16).min(MOST_LATE);
                        now.checked_add(timeout.max(late).max(LEAST_LOOK))
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::task::{Call, Options, Record};

    #[test]
    fn what_is_kept_is_bounded_by_the_tasks_that_have_not_ended() {
        let mut timers = Timers::default();
        let hour = Duration::from_secs(3600);
        let make = |id| {
            let options = Options { deadline: Some(hour), ..Options::default() };
            Arc::new(Task::new(id, Call::Local(Mutex::new(None)), 0, options, 0))
        };
        let held: Vec<_> = (0..100).map(make).collect();
        let add = |timers: &mut Timers, task: &Arc<Task>| {
            let at = Instant::now() + hour;
            timers.heap.push(Due { at, limit: Limit::Deadline, task: Arc::downgrade(task) });
        };
        for task in &held {
            add(&mut timers, task);
        }
        for id in 100..100_000 {
            let task = make(id);
            add(&mut timers, &task);
            task.finish(Outcome::Cancelled, Record::default());
            timers.forget_one();
            assert!(timers.len() <= 2 * held.len() + FEW + 1);
        }
        for task in &held {
            assert!(timers.heap.iter().any(|due| due.task.ptr_eq(&Arc::downgrade(task))));
        }
    }

    #[test]
    fn the_earliest_comes_first_and_none_before_its_time() {
        let (mut timers, now) = (Timers::default(), Instant::now());
        let second = Duration::from_secs(1);
        assert!(timers.first().is_none() && timers.pop_due(now).is_none());
        for after in [3, 1, 2] {
            timers.heap.push(Due { at: now + second * after, limit: Limit::Deadline, task: Weak::new() });
        }
        assert_eq!(timers.first(), Some(now + second));
        assert!(timers.pop_due(now + second - Duration::from_nanos(1)).is_none());
        let mut due = |at| timers.pop_due(at).map(|due| due.at);
        assert_eq!(due(now + second), Some(now + second));
        assert_eq!(due(now + second), None);
        assert_eq!(due(now + second * 9), Some(now + second * 2));
        assert_eq!(due(now + second * 9), Some(now + second * 3));
        assert_eq!(due(now + second * 9), None);
    }
}
