//! How tasks end: answered, retried, cancelled, out of time. And the supervisor's look that ends the overdue ones.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use ropewalk_shm::ring::Retract;

use super::{Core, Engine, State};
use crate::backend::processes::dispatch::STEAL_AFTER;
use crate::clock;
use crate::events::{self, How, What};
use crate::outcome::{Failure, Outcome, Phase, Record};
use crate::task::{Call, Stage, Task};
use crate::wire::flags;

impl Engine {
    /// Ends a task, frees what it held, and tells whoever wants to know.
    pub(crate) fn finish(&self, core: &mut Core, task: &Arc<Task>, outcome: Outcome, mut record: Record) {
        if task.is_done() {
            return;
        }
        let counters = &mut core.counters;
        match &outcome {
            Outcome::Replied(reply) if reply.flags & flags::ERROR == 0 => counters.completed += 1,
            Outcome::Local { raised: false, .. } => counters.completed += 1,
            Outcome::Cancelled => counters.cancelled += 1,
            Outcome::Failed(Failure::TimedOut(..)) => {
                counters.timed_out += 1;
                counters.failed += 1;
            }
            _ => counters.failed += 1,
        }
        counters.busy_ns = counters.busy_ns.saturating_add(record.busy_ns);
        if task.options.timeout.is_some() || task.options.deadline.is_some() {
            core.timers.forget_one();
        }
        self.tell_failure(task, &outcome, record.pid);
        record.total_ns = u64::try_from(clock::now().saturating_duration_since(task.submitted).as_nanos())
            .unwrap_or(u64::MAX);
        match &task.call {
            Call::Remote { function, payload } => {
                let mut payload = payload.lock();
                let all = std::mem::take(&mut *payload);
                if matches!(&outcome, Outcome::Failed(Failure::Crashed { .. })) {
                    // The error names the function.
                    *payload = all.for_description();
                } else {
                    *function.lock() = None;
                }
            }
            Call::Local(call) => drop(call.lock().take()),
        }
        if task.finish(outcome, record) {
            self.completed.lock().push(Arc::clone(task));
            Self::bump(&self.completed_word);
        }
        if core.change_waiters > 0 {
            Self::bump(&self.change_word);
        }
        self.tell_room(core);
    }

    /// Tells of a task that has no result, to whoever listens.
    fn tell_failure(&self, task: &Task, outcome: &Outcome, pid: i32) {
        let how = match outcome {
            Outcome::Replied(reply) if reply.flags & flags::ERROR != 0 => How::Raised,
            Outcome::Local { raised: true, .. } => How::Raised,
            Outcome::Failed(Failure::TimedOut(..)) => How::TimedOut,
            Outcome::Failed(Failure::Crashed { .. }) => How::Crashed,
            Outcome::Failed(_) => How::Broken,
            Outcome::Replied(_) | Outcome::Local { .. } | Outcome::Cancelled => return,
        };
        events::tell(&self.config.name, What::TaskFailed { task: task.id, pid, how });
    }

    /// Runs a task again if it may be, else ends it.
    pub(crate) fn retry_or_finish(
        &self,
        core: &mut Core,
        task: &Arc<Task>,
        outcome: Outcome,
        record: Record,
    ) {
        if task.is_done() {
            return;
        }
        if self.may_retry(core) && task.attempt() <= task.options.retries {
            self.run_again(core, task);
        } else {
            self.finish(core, task, outcome, record);
        }
    }

    pub(crate) fn may_retry(&self, core: &Core) -> bool {
        matches!(core.state, State::Open | State::Closing) && !core.ending
    }

    pub(crate) fn run_again(&self, core: &mut Core, task: &Arc<Task>) {
        core.counters.retried += 1;
        task.set_stage(Stage::Queued);
        core.queue.push_front(Arc::clone(task));
        if !self.is_remote() {
            self.local_changed(core);
        }
    }

    /// Watched tasks that have ended since the last call.
    pub fn take_completed(&self) -> Vec<Arc<Task>> {
        std::mem::take(&mut *self.completed.lock())
    }

    /// True for the first caller: the pool needs one collector.
    pub fn start_collecting(&self) -> bool {
        !self.collecting.swap(true, Ordering::AcqRel)
    }

    /// The collector could not be started: the next caller of [`start_collecting`](Self::start_collecting) is the
    /// first.
    pub fn stop_collecting(&self) {
        self.collecting.store(false, Ordering::Release);
    }

    /// Makes the collector look, whatever there is: for a pool's end.
    pub fn nudge_collector(&self) {
        Self::bump(&self.completed_word);
        self.control.wake_sleeper();
    }

    /// Cancels a task. One that has not started is simply dropped; one that is running is ended, with its worker, if
    /// `running` says so and it runs in a worker process. True if the task is cancelled now.
    pub fn cancel(&self, task: &Arc<Task>, running: bool) -> bool {
        // In a forked child the task, and the worker that would be killed, are the parent's.
        let Some(mut core) = self.enter() else { return false };
        let cancelled = self.end_early(&mut core, task, running, |_| Outcome::Cancelled);
        // Also when it was too late: the look at the rings may have ended what another thread sleeps for.
        self.after_outside_change(&mut core);
        cancelled
    }

    /// Whether the task is being run right now.
    pub fn is_running(&self, task: &Arc<Task>) -> bool {
        let Some(mut core) = self.enter() else { return false };
        match task.stage() {
            Stage::Running => true,
            Stage::Sent => core.sent_started(task).unwrap_or(false),
            Stage::Queued | Stage::Done => false,
        }
    }

    pub(crate) fn end_early(
        &self,
        core: &mut Core,
        task: &Arc<Task>,
        running: bool,
        outcome: impl FnOnce(Phase) -> Outcome,
    ) -> bool {
        match task.stage() {
            Stage::Done => false,
            Stage::Queued => {
                core.queue.forget_one();
                self.finish(core, task, outcome(Phase::Queued), Record::default());
                true
            }
            Stage::Running => {
                // A thread cannot be ended from outside: the caller is told, the call goes on.
                let told = outcome(Phase::Running);
                if running && matches!(told, Outcome::Failed(_)) {
                    self.finish(core, task, told, Record::default());
                    return true;
                }
                false
            }
            Stage::Sent => {
                if self.poll(core) && task.is_done() {
                    return false;
                }
                if task.stage() == Stage::Queued {
                    return self.end_early(core, task, running, outcome);
                }
                match core.retract(task) {
                    Some(Retract::Taken) => {
                        self.finish(core, task, outcome(Phase::Queued), Record::default());
                        true
                    }
                    Some(Retract::Started) if running => {
                        task.count_attempt();
                        let outcome = outcome(Phase::Running);
                        let cancelled = matches!(outcome, Outcome::Cancelled);
                        let pid = self.end_worker_of(core, task, cancelled);
                        self.finish(core, task, outcome, Record { pid, ..Record::default() });
                        true
                    }
                    Some(Retract::Started) | None => false,
                }
            }
        }
    }

    /// After a change made by a thread that may not be the leader.
    pub(crate) fn after_outside_change(&self, core: &mut Core) {
        if self.is_remote() {
            self.dispatch(core);
        }
        if core.leader {
            self.control.wake_sleeper();
        } else {
            self.rest(core);
        }
        self.check_end(core);
    }

    /// One look by the supervisor; gives the time of the next one.
    pub(crate) fn tick(&self, now: Instant) -> Option<Instant> {
        let mut core = self.lock();
        self.poll(&mut core);
        self.expire(&mut core, now);
        self.end_doomed(&mut core, now);
        self.expire_deaths(&mut core, now);
        if core.end_at.is_some_and(|at| at <= now) {
            self.terminate_core(&mut core);
        }
        self.ask_again(&mut core, now);
        let sweep = self.sweep_segments(&mut core, now);
        self.after_outside_change(&mut core);
        let first = core.timers.first();
        let steal = core.steal_pending().then(|| now + STEAL_AFTER);
        let watch = core.next_watch(now);
        let own = [first, core.next_death(), core.next_doom(), core.end_at, core.refused_until];
        let wakes = own.into_iter().chain([sweep, steal, watch]).flatten().min();
        core.supervisor_wakes = wakes;
        wakes
    }
}
