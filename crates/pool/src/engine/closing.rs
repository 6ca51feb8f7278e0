//! The end of a pool: closed, broken, joined.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use windlass_os::futex::{self, Scope};

use super::{Core, Engine, Sleeper, State, Waited, lock};
use crate::clock;
use crate::events::{self, What};
use crate::task::{Failure, Outcome, Record};
use crate::workers::Worker;

impl Engine {
    /// Takes no more tasks; with `cancel`, drops those that have not started. The workers leave when all is done.
    pub fn close(&self, cancel: bool) {
        let Some(mut core) = self.enter() else { return };
        if cancel {
            // A worker that is free would have taken one, had it been looked at a moment later: those count as started.
            let taken = if self.is_remote() { core.busy.len() } else { core.local.len() };
            let free = (self.config.workers * self.config.threads).saturating_sub(taken);
            self.cancel_waiting(&mut core, Some(free));
        }
        self.closed(&mut core);
    }

    /// Takes no more tasks, cancels those that have not started, and ends those that still run after `grace`, as
    /// [`terminate`](Self::terminate) does.
    pub fn end(&self, grace: Duration) {
        let Some(mut core) = self.enter() else { return };
        if matches!(core.state, State::Ended | State::Broken(_)) {
            return;
        }
        self.cancel_waiting(&mut core, None);
        core.ending = true;
        match clock::now().checked_add(grace) {
            _ if grace.is_zero() => self.terminate_core(&mut core),
            Some(at) => core.end_at = Some(core.end_at.map_or(at, |before| before.min(at))),
            None => {}
        }
        self.forget_unborn(&mut core);
        self.closed(&mut core);
    }

    /// Ends everything now: tasks that wait are cancelled, those that run fail with [`Failure::Terminated`], and the
    /// worker processes are killed. A call that runs in a thread of this process goes on, and its pool ends after it.
    pub fn terminate(&self) {
        let Some(mut core) = self.enter() else { return };
        if matches!(core.state, State::Ended | State::Broken(_)) {
            return;
        }
        self.terminate_core(&mut core);
        self.closed(&mut core);
    }

    /// Takes no more tasks, cancels those that have not started, and sends every worker process a signal. A task whose
    /// worker dies of it fails with [`Failure::Terminated`]; no worker is replaced.
    pub fn signal_workers(&self, signal: i32) {
        let Some(mut core) = self.enter() else { return };
        if matches!(core.state, State::Ended) {
            return;
        }
        self.cancel_waiting(&mut core, None);
        core.ending = true;
        for worker in core.workers.iter_mut().flatten() {
            worker.signal(signal);
        }
        self.closed(&mut core);
    }

    /// Ends every task that has not been started. With `spare` the first of each lane counts as started, and so many of
    /// the queue, which go to free workers.
    fn cancel_waiting(&self, core: &mut Core, spare: Option<usize>) {
        if matches!(core.state, State::Open) {
            core.state = State::Closing;
        }
        if self.is_remote() {
            self.drain_lanes(core);
        }
        let mut waiting = core.queue.drain();
        let spared: Vec<_> = waiting.drain(..spare.unwrap_or(0).min(waiting.len())).collect();
        for task in spared.into_iter().rev() {
            core.queue.push_front(task);
        }
        if self.is_remote() {
            waiting.extend(core.take_back_waiting(spare.is_some()));
            self.dispatch(core);
        }
        for task in waiting {
            self.finish(core, &task, Outcome::Cancelled, Record::default());
        }
    }

    /// See [`terminate`](Self::terminate).
    pub(super) fn terminate_core(&self, core: &mut Core) {
        core.end_at = None;
        core.ending = true;
        self.cancel_waiting(core, None);
        let lanes = core.lanes.iter().flatten();
        let mut running: Vec<_> =
            lanes.flat_map(|lane| lane.outstanding.iter().map(|sent| Arc::clone(&sent.task))).collect();
        running.extend(core.local.iter().map(|running| Arc::clone(&running.task)));
        for task in running {
            let pid = task.lane().and_then(|lane| core.lanes.get(lane)?.as_ref()).map(|lane| lane.worker);
            let pid = pid.and_then(|worker| core.workers.get(worker)?.as_ref()).map_or(0, Worker::known_pid);
            let record = Record { pid, ..Record::default() };
            core.leave_arguments(&task);
            self.finish(core, &task, Outcome::Failed(Failure::Terminated), record);
        }
        for worker in core.workers.iter_mut().flatten() {
            worker.kill();
        }
        self.forget_unborn(core);
    }

    /// After the state has changed for good.
    fn closed(&self, core: &mut Core) {
        if matches!(core.state, State::Open) {
            core.state = State::Closing;
        }
        self.local_ready.notify_all();
        Self::bump(&self.change_word);
        self.check_end(core);
        if core.leader {
            self.control.wake_sleeper();
        } else {
            self.rest(core);
        }
        // The supervisor has to learn when to look.
        self.control.kick();
    }

    /// Ends every worker at once; whatever has no result fails with `failure`.
    pub fn break_down(&self, failure: &Failure) {
        let Some(mut core) = self.enter() else { return };
        self.break_core(&mut core, failure);
        self.after_outside_change(&mut core);
        self.control.kick();
    }

    pub(crate) fn break_core(&self, core: &mut Core, failure: &Failure) {
        if matches!(core.state, State::Ended | State::Broken(_)) {
            return;
        }
        core.state = State::Broken(failure.clone());
        let reason = match failure {
            Failure::Broken(reason) => Arc::clone(reason),
            Failure::Crashed { pid, .. } => format!("worker {pid} died").into(),
            Failure::Initializer(_) => "an initializer failed".into(),
            Failure::TimedOut(..) | Failure::Neighbour { .. } => "its time was up".into(),
            Failure::Terminated => "it was terminated".into(),
            Failure::Limit { reason, .. } => Arc::clone(reason),
        };
        events::tell(&self.config.name, What::Broken { reason });
        let mut waiting = core.queue.drain();
        waiting.extend(self.kill_everything(core));
        for task in waiting {
            self.finish(core, &task, Outcome::Failed(failure.clone()), Record::default());
        }
        self.local_ready.notify_all();
        Self::bump(&self.change_word);
    }

    /// Moves to the end if nothing is left to do.
    pub(crate) fn check_end(&self, core: &mut Core) {
        let broken = match core.state {
            State::Open | State::Ended => return,
            State::Closing => false,
            State::Broken(_) => true,
        };
        let drained = core.queue.is_empty() && core.outstanding == 0 && core.local.is_empty();
        if !drained && !broken {
            return;
        }
        if self.is_remote() && !self.dismiss_workers(core) {
            return;
        }
        if !self.is_remote() && !core.local.is_empty() {
            return;
        }
        if let Some(spawn) = &self.config.spawn {
            spawn.handed.close();
        }
        if !broken {
            core.state = State::Ended;
            events::tell(&self.config.name, What::Ended);
        }
        self.local_ready.notify_all();
        Self::bump(&self.ended_word);
        self.nudge_all(core);
    }

    pub(super) fn nudge_all(&self, core: &mut Core) {
        for (_, sleeper) in &core.followers {
            if let Sleeper::Task(task) = sleeper {
                task.nudge();
            }
        }
        Self::bump(&self.completed_word);
        Self::bump(&self.change_word);
        self.control.wake_sleeper();
    }

    /// Whether every worker is gone and no task is left.
    pub fn has_ended(&self) -> bool {
        self.enter().is_none_or(|core| core.is_over())
    }

    /// Blocks until the pool has ended. A signal's handler may have to run first: then join again.
    pub fn join(&self, deadline: Option<Instant>) -> Waited {
        loop {
            let observed = self.ended_word.load(Ordering::Acquire);
            if self.has_ended() {
                return Waited::Ready;
            }
            let left = deadline.map(|at| at.saturating_duration_since(clock::now()));
            if left == Some(Duration::ZERO) {
                return Waited::TimedOut;
            }
            if matches!(
                futex::wait(&self.ended_word, observed, left, Scope::Private),
                futex::Wait::Interrupted
            ) {
                return Waited::Interrupted;
            }
        }
    }

    /// Whether it takes no tasks any more; those of a forked child's parent do not count.
    pub fn is_closed(&self) -> bool {
        self.enter().is_none_or(|core| !matches!(core.state, State::Open))
    }

    /// Why there are fewer workers than there should be, as long as that is so.
    pub fn shortage(&self) -> Option<String> {
        self.enter()?.shortage.as_ref().map(ToString::to_string)
    }

    /// What the zygote had to say about preloads that failed.
    pub fn complaints(&self) -> Vec<String> {
        if self.is_forked() {
            return Vec::new();
        }
        lock(&self.spawning).as_ref().map_or_else(Vec::new, |spawning| spawning.zygote.complaints())
    }

    /// The failure that broke the pool, if one did.
    pub fn broken(&self) -> Option<Failure> {
        match &self.enter()?.state {
            State::Broken(failure) => Some(failure.clone()),
            _ => None,
        }
    }
}
