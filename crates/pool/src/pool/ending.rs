//! How tasks end: answered, retried, cancelled, out of time; and the supervisor's check that ends the overdue ones.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::delays::Next;
use super::{Backend, Interrupted, Lifecycle, Pool, PoolState};
use crate::clock;
use crate::events::{self, How, What};
use crate::outcome::{Failure, Limit, Outcome, Phase, Record};
use crate::pulse::Progress;
use crate::records;
use crate::task::{Call, Remote, Stage, Task};
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
        record: Record,
    ) {
        self.finish_named(state, task, outcome, record, None);
    }

    /// The same for a task whose function's name the caller knows.
    pub(crate) fn finish_named(
        &self,
        state: &mut PoolState<B>,
        task: &Arc<Task>,
        outcome: Outcome,
        mut record: Record,
        mut name: Option<Arc<str>>,
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
            Outcome::Failed(Failure::Dropped { .. }) => {
                counters.dropped += 1;
                counters.failed += 1;
            }
            Outcome::Failed(Failure::Poisoned { .. }) => {
                counters.poisoned += 1;
                counters.failed += 1;
            }
            _ => counters.failed += 1,
        }
        counters.busy_ns = counters.busy_ns.saturating_add(record.busy_ns);
        if task.options.has_limits() {
            state.timers.forget_one();
        }
        self.tell_end(task, &outcome, record.pid);
        if record.begun_ns.is_none() && matches!(task.stage(), Stage::Sent | Stage::Running) {
            B::describe_run(&state.members, task, &mut record, &state.records.monotonic);
        }
        let now = record.ended.unwrap_or_else(clock::now);
        record.total_ns = clock::in_nanos(now.saturating_duration_since(task.submitted));
        match &task.call {
            Call::Remote(call) => {
                let mut call = call.lock();
                let Remote { function, payload } = &mut *call;
                record.sent = records::size(payload.flags, &payload.bytes);
                name = function.as_ref().map(|function| Arc::clone(&function.name));
                let all = std::mem::take(payload);
                if matches!(&outcome, Outcome::Failed(failure) if failure.took_worker()) {
                    // The error names the function.
                    *payload = all.for_description();
                } else {
                    drop((function.take(), call));
                }
            }
            Call::Local(call) => {
                drop(call.lock().take());
                name = name.or_else(|| task.known_name());
            }
        }
        if task.session().is_some() {
            self.left_session(state, task);
        }
        let kept = state.records.note(task, &outcome, record, name.as_ref(), now);
        if task.finish_named(outcome, kept, name) {
            self.completed.lock().push(Arc::clone(task));
            Self::bump(&self.completed_word);
        }
        if state.change_waiters > 0 {
            Self::bump(&self.change_word);
        }
        if task.stream().is_some() {
            self.stream_ended(state, task);
        }
        self.tell_room(state);
    }

    /// Reports a task without a result, and the end of a stream, to the listeners.
    fn tell_end(&self, task: &Task, outcome: &Outcome, pid: i32) {
        if task.stream().is_some() {
            events::tell(&self.config.name, What::StreamClosed { task: task.id, why: outcome.name() });
        }
        let how = match outcome {
            Outcome::Replied(reply) if reply.flags & flags::ERROR != 0 => How::Raised,
            Outcome::Local { raised: true, .. } => How::Raised,
            Outcome::Failed(Failure::TimedOut(..)) => How::TimedOut,
            Outcome::Failed(Failure::Crashed { .. }) => How::Crashed,
            Outcome::Failed(Failure::Dropped { depth, .. }) => How::Dropped(*depth),
            Outcome::Failed(Failure::Hung { .. }) => How::Hung,
            Outcome::Failed(Failure::Poisoned { .. }) => How::Poisoned,
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
        if task.is_asked_to_stop() && !matches!(&outcome, Outcome::Replied(_) | Outcome::Local { .. }) {
            // Its worker died before it could stop by itself.
            self.finish(state, task, Outcome::Cancelled, record);
            return;
        }
        let next =
            if self.may_run_again(state, task) { Self::next_run(state, task, &outcome) } else { Next::End };
        if !matches!(next, Next::End) {
            let why = outcome.name();
            events::tell(&self.config.name, What::TaskRetried { task: task.id, pid: record.pid, why });
        }
        match next {
            Next::End => self.finish(state, task, outcome, record),
            Next::Now => self.run_again(state, task),
            Next::At(at) => self.delay(state, task, at),
        }
    }

    fn may_run_again(&self, state: &PoolState<B>, task: &Task) -> bool {
        self.may_retry(state) && task.attempt() <= task.options.retries && self.is_repeatable(task)
    }

    /// Whether a task may be run twice, apart from its number of retries.
    pub(crate) fn is_repeatable(&self, task: &Task) -> bool {
        !task.is_asked_to_stop() && !task.has_delivered()
    }

    pub(crate) fn may_retry(&self, state: &PoolState<B>) -> bool {
        matches!(state.lifecycle, Lifecycle::Open | Lifecycle::Closing) && !state.ending
    }

    pub(crate) fn run_again(&self, state: &mut PoolState<B>, task: &Arc<Task>) {
        state.counters.retried += 1;
        task.set_stage(Stage::Queued);
        task.waits_again();
        state.queue.push_again(Arc::clone(task));
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

    /// See [`Engine::ask_to_stop`](crate::Engine::ask_to_stop).
    pub(crate) fn ask_to_stop(&self, task: &Arc<Task>) -> bool {
        let Some(mut state) = self.enter() else { return false };
        self.stop(&mut state, task);
        self.after_outside_change(&mut state);
        !task.is_done() || matches!(task.outcome(), Some(Outcome::Cancelled))
    }

    /// Ends a task that has not started, and asks one that runs to stop.
    pub(crate) fn stop(&self, state: &mut PoolState<B>, task: &Arc<Task>) {
        if self.end_early(state, task, false, Why::Cancelled) || task.is_done() {
            return;
        }
        task.signals().ask_to_stop();
        B::ask_to_stop(self, state, task);
        if let Some(stream) = task.stream() {
            stream.wake();
        }
    }

    /// See [`Engine::progress`](crate::Engine::progress).
    pub(crate) fn progress(&self, task: &Arc<Task>) -> Option<Progress> {
        let running = match task.stage() {
            Stage::Sent | Stage::Running => self.enter().and_then(|state| B::progress(&state.members, task)),
            Stage::Queued | Stage::Delayed | Stage::Done => None,
        };
        running.or_else(|| task.known_signals()?.progress())
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
        let mut came = match task.stage() {
            Stage::Queued => Interrupted::Queued,
            Stage::Delayed => Interrupted::Left,
            _ => B::interrupt(self, state, task, force, matches!(why, Why::Cancelled)),
        };
        // Also if its failure was found only now.
        if task.stage() == Stage::Delayed {
            state.delays.remove(task);
            came = Interrupted::TakenBack;
        }
        let (phase, pid) = match came {
            Interrupted::Queued => {
                state.queue.forget_one(task);
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
        B::before_look(self, now);
        let mut state = self.lock();
        B::poll(self, &mut state);
        self.expire(&mut state, now);
        self.release(&mut state, now);
        let members = B::look_after(self, &mut state, now);
        if state.end_at.is_some_and(|at| at <= now) {
            self.terminate_now(&mut state);
        }
        self.after_outside_change(&mut state);
        let own = [state.timers.first(), state.delays.first(), state.end_at, state.next_watch(now)];
        let wakes = own.into_iter().chain([members, B::next_look(&state, now)]).flatten().min();
        state.supervisor_wakes = wakes;
        wakes
    }
}
