//! How tasks end: answered, retried, cancelled, out of time; and the supervisor's check that ends the overdue ones.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::{Backend, Interrupted, Lifecycle, Pool, PoolState};
use crate::clock;
use crate::events::{self, How, What};
use crate::outcome::{Failure, Limit, Outcome, Phase, Record};
use crate::task::{Call, Stage, Task};
use crate::wire::flags;

/// Why a task is ended before it has ended by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Why {
    Cancelled,
    Late(Limit),
}

impl Why {
    fn outcome(self, phase: Phase) -> Outcome {
        match self {
            Self::Cancelled => Outcome::Cancelled,
            Self::Late(limit) => Outcome::Failed(Failure::TimedOut(limit, phase)),
        }
    }
}

impl<B: Backend> Pool<B> {
    /// Ends a task, frees its resources, and notifies its waiters.
    pub(crate) fn finish(
        &self,
        state: &mut PoolState<B>,
        task: &Arc<Task>,
        outcome: Outcome,
        mut record: Record,
    ) {
        if task.is_done() {
            return;
        }
        let counters = &mut state.counters;
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
            state.timers.forget_one();
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
        if state.change_waiters > 0 {
            Self::bump(&self.change_word);
        }
        self.tell_room(state);
    }

    /// Reports a task without a result to the listeners.
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
        state: &mut PoolState<B>,
        task: &Arc<Task>,
        outcome: Outcome,
        record: Record,
    ) {
        if task.is_done() {
            return;
        }
        if self.may_retry(state) && task.attempt() <= task.options.retries {
            self.run_again(state, task);
        } else {
            self.finish(state, task, outcome, record);
        }
    }

    pub(crate) fn may_retry(&self, state: &PoolState<B>) -> bool {
        matches!(state.lifecycle, Lifecycle::Open | Lifecycle::Closing) && !state.ending
    }

    pub(crate) fn run_again(&self, state: &mut PoolState<B>, task: &Arc<Task>) {
        state.counters.retried += 1;
        task.set_stage(Stage::Queued);
        state.queue.push_front(Arc::clone(task));
        B::requeued(self, state);
    }

    /// See [`Engine::take_completed`](crate::Engine::take_completed).
    pub(crate) fn take_completed(&self) -> Vec<Arc<Task>> {
        std::mem::take(&mut *self.completed.lock())
    }

    /// See [`Engine::start_collecting`](crate::Engine::start_collecting).
    pub(crate) fn start_collecting(&self) -> bool {
        !self.collecting.swap(true, Ordering::AcqRel)
    }

    /// See [`Engine::stop_collecting`](crate::Engine::stop_collecting).
    pub(crate) fn stop_collecting(&self) {
        self.collecting.store(false, Ordering::Release);
    }

    /// See [`Engine::cancel`](crate::Engine::cancel).
    pub(crate) fn cancel(&self, task: &Arc<Task>, running: bool) -> bool {
        // In a forked child the task, and the worker that would be killed, are the parent's.
        let Some(mut state) = self.enter() else { return false };
        let cancelled = self.end_early(&mut state, task, running, Why::Cancelled);
        // Also when it was too late: the check of the rings may have ended a task that another thread sleeps for.
        self.after_outside_change(&mut state);
        cancelled
    }

    /// See [`Engine::is_running`](crate::Engine::is_running).
    pub(crate) fn is_running(&self, task: &Arc<Task>) -> bool {
        let Some(mut state) = self.enter() else { return false };
        matches!(task.stage(), Stage::Sent | Stage::Running) && B::is_running(&mut state, task)
    }

    /// Ends a task before it has ended by itself, if that can be done; with `force` one that runs, too.
    pub(crate) fn end_early(
        &self,
        state: &mut PoolState<B>,
        task: &Arc<Task>,
        force: bool,
        why: Why,
    ) -> bool {
        if task.is_done() {
            return false;
        }
        let came = match task.stage() {
            Stage::Queued => Interrupted::Queued,
            _ => B::interrupt(self, state, task, force, matches!(why, Why::Cancelled)),
        };
        let (phase, pid) = match came {
            Interrupted::Queued => {
                state.queue.forget_one();
                (Phase::Queued, 0)
            }
            Interrupted::TakenBack => (Phase::Queued, 0),
            Interrupted::Killed(pid) => (Phase::Running, pid),
            // The future reports that the time is up, and the call goes on.
            Interrupted::Unstoppable if force && matches!(why, Why::Late(_)) => (Phase::Running, 0),
            Interrupted::Ended | Interrupted::Left | Interrupted::Unstoppable => return false,
        };
        self.finish(state, task, why.outcome(phase), Record { pid, ..Record::default() });
        true
    }

    /// After a change made by a thread that may not be the leader.
    pub(crate) fn after_outside_change(&self, state: &mut PoolState<B>) {
        B::feed(self, state);
        if state.leader {
            self.control.wake_sleeper();
        } else {
            B::rest(self, state);
        }
        self.check_end(state);
    }

    /// One check by the supervisor; returns the time of the next one.
    pub(crate) fn look_after(&self, now: Instant) -> Option<Instant> {
        let mut state = self.lock();
        B::poll(self, &mut state);
        self.expire(&mut state, now);
        let members = B::look_after(self, &mut state, now);
        if state.end_at.is_some_and(|at| at <= now) {
            self.terminate_now(&mut state);
        }
        self.after_outside_change(&mut state);
        let own = [state.timers.first(), state.end_at, state.next_watch(now)];
        let wakes = own.into_iter().chain([members, B::next_look(&state, now)]).flatten().min();
        state.supervisor_wakes = wakes;
        wakes
    }
}
