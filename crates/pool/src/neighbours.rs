//! Ending a worker for one of its tasks, and what becomes of the others in it.
//!
//! A task that runs in a worker can be ended only with the worker. Tasks that have not started are taken back first. If
//! others run in it, in its other threads, the worker is given no more, another is started in its place, and those that
//! run are given a grace to finish. What has not finished by then fails with an error that says why, or is run again if
//! it may be: the attempt is not counted, for it is no fault of its own.

use std::sync::Arc;
use std::time::Instant;

use windlass_shm::ring::Retract;

use crate::clock;
use crate::engine::{Core, Engine};
use crate::task::{Failure, Outcome, Stage, Task};

/// Why a worker is being ended though nothing is wrong with it.
#[derive(Clone, Debug)]
pub(crate) struct Doom {
    /// When those that still run in it are given up.
    at: Instant,
    /// The task that it is ended for, and how that one ends.
    task: u64,
    cancelled: bool,
}

impl Doom {
    pub(crate) fn failure(&self, pid: i32) -> Failure {
        Failure::Neighbour { pid, task: self.task, cancelled: self.cancelled }
    }
}

impl Engine {
    /// Ends the worker that runs `task`, and gives its process id. The caller ends the task itself.
    pub(crate) fn end_worker_of(&self, core: &mut Core, task: &Arc<Task>, cancelled: bool) -> i32 {
        let lane = task.lane().and_then(|lane| core.lanes.get(lane)?.as_ref());
        let Some(index) = lane.map(|lane| lane.worker) else { return 0 };
        let Some(worker) = core.workers.get(index).and_then(Option::as_ref) else { return 0 };
        let (pid, lanes) = (worker.known_pid(), worker.lanes.clone());
        self.take_back_from(core, &lanes);
        core.leave_arguments(task);
        let first = {
            let Some(worker) = core.workers.get_mut(index).and_then(Option::as_mut) else { return pid };
            let first = worker.doom.is_none();
            worker.doom.get_or_insert(Doom {
                at: clock::now() + self.config.grace,
                task: task.id,
                cancelled,
            });
            first
        };
        if first {
            core.doomed += 1;
        }
        if self.end_if_alone(core, index, Some(task)) || !first {
            return pid;
        }
        // The pool goes on with as many threads as before, while this worker's last ones finish.
        self.replace(core);
        self.control.kick();
        pid
    }

    /// Takes what has not started out of these lanes, and gives them nothing more.
    fn take_back_from(&self, core: &mut Core, lanes: &[usize]) {
        let mut back = Vec::new();
        for index in lanes {
            let Some(lane) = core.lanes.get_mut(*index).and_then(Option::as_mut) else { continue };
            lane.closed = true;
            let before = lane.outstanding.len();
            let mut at = 0;
            while let Some(sent) = lane.outstanding.get(at) {
                if matches!(lane.tasks.retract(sent.position), Retract::Taken) {
                    back.extend(lane.outstanding.remove(at).map(|sent| sent.task));
                } else {
                    at += 1;
                }
            }
            let removed = before - lane.outstanding.len();
            core.lane_shrank(*index, removed);
        }
        back.retain(|task| !task.is_done());
        back.sort_by_key(|task| std::cmp::Reverse(task.id));
        for task in back {
            task.set_stage(Stage::Queued);
            core.queue.push_front(task);
        }
    }

    /// Kills a worker that is to be ended, if nothing but `except` still runs in it; true if it was killed.
    pub(crate) fn end_if_alone(&self, core: &mut Core, index: usize, except: Option<&Arc<Task>>) -> bool {
        let Some(worker) = core.workers.get(index).and_then(Option::as_ref) else { return false };
        if worker.doom.is_none() {
            return false;
        }
        let lanes = worker.lanes.iter().filter_map(|lane| core.lanes.get(*lane)?.as_ref());
        let mut running = lanes.flat_map(|lane| &lane.outstanding).filter(|sent| {
            !sent.task.is_done() && !except.is_some_and(|except| Arc::ptr_eq(except, &sent.task))
        });
        let alone = running.next().is_none() || self.config.grace.is_zero();
        if alone && let Some(worker) = core.workers.get_mut(index).and_then(Option::as_mut) {
            worker.kill();
        }
        alone
    }

    /// Kills the workers whose grace is over.
    pub(crate) fn end_doomed(&self, core: &mut Core, now: Instant) {
        for worker in core.workers.iter_mut().flatten() {
            if worker.doom.as_ref().is_some_and(|doom| doom.at <= now) {
                worker.kill();
            }
        }
    }

    /// A task was started in a worker that was ended for another's sake.
    pub(crate) fn lose_neighbour(&self, core: &mut Core, task: &Arc<Task>, failure: Failure, pid: i32) {
        let record = crate::task::Record { pid, ..crate::task::Record::default() };
        // It has run in part: only one that may be run twice is run again. Its own attempts are not counted.
        if task.options.retries > 0 && self.may_retry(core) {
            self.run_again(core, task);
        } else {
            task.count_attempt();
            self.finish(core, task, Outcome::Failed(failure), record);
        }
    }
}

impl Core {
    /// A started task ends before its worker does: what its arguments lie in stays the worker's.
    pub(crate) fn leave_arguments(&mut self, task: &Task) {
        let lane = task.lane().and_then(|lane| self.lanes.get(lane)?.as_ref());
        let Some(worker) = lane.map(|lane| lane.worker) else { return };
        if let Some(worker) = self.workers.get_mut(worker).and_then(Option::as_mut)
            && let Some(mut payload) = task.payload()
        {
            worker.outlived.push(std::mem::take(&mut *payload));
        }
    }

    /// When the next grace is over.
    pub(crate) fn next_doom(&self) -> Option<Instant> {
        let dooms = self.workers.iter().flatten().filter(|worker| !worker.is_killed());
        dooms.filter_map(|worker| worker.doom.as_ref().map(|doom| doom.at)).min()
    }
}
