//! The end of a pool: closed, broken, joined.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Core, Engine, Sleeper, State, lock};
use crate::events::{self, What};
use crate::task::{Failure, Outcome, Record};

impl Engine {
    /// Takes no more tasks; with `cancel`, drops those that have not started. The workers leave when all is done.
    pub fn close(&self, cancel: bool) {
        let mut core = self.lock();
        if matches!(core.state, State::Open) {
            core.state = State::Closing;
        }
        if cancel {
            if self.is_remote() {
                self.poll(&mut core);
            }
            let mut waiting = core.queue.drain();
            let taken = if self.is_remote() { core.busy.len() } else { core.local_running };
            // A worker that is free would have taken one, had it been looked at a moment later: those count as started.
            let free = (self.config.workers * self.config.threads).saturating_sub(taken).min(waiting.len());
            let spared: Vec<_> = waiting.drain(..free).collect();
            for task in spared.into_iter().rev() {
                core.queue.push_front(task);
            }
            if self.is_remote() {
                waiting.extend(core.take_back_waiting());
                self.dispatch(&mut core);
            }
            for task in waiting {
                self.finish(&mut core, &task, Outcome::Cancelled, Record::default());
            }
        }
        self.local_ready.notify_all();
        Self::bump(&self.change_word);
        self.check_end(&mut core);
        if core.leader {
            self.control.wake_sleeper();
        } else {
            self.rest(&mut core);
        }
        self.control.kick();
    }

    /// Ends every worker at once; whatever has no result fails with `failure`.
    pub fn break_down(&self, failure: &Failure) {
        let mut core = self.lock();
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
            Failure::TimedOut(_) => "its time was up".into(),
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
        let drained = core.queue.is_empty() && core.outstanding == 0 && core.local_running == 0;
        if !drained && !broken {
            return;
        }
        if self.is_remote() && !self.dismiss_workers(core) {
            return;
        }
        if !self.is_remote() && core.local_running > 0 {
            return;
        }
        if !broken {
            core.state = State::Ended;
            events::tell(&self.config.name, What::Ended);
        }
        self.local_ready.notify_all();
        self.ended.notify_all();
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
        self.lock().is_over()
    }

    /// Blocks until the pool has ended or the time is up; true if it has.
    pub fn join(&self, timeout: Duration) -> bool {
        if self.fork_generation != windlass_os::process::fork_generation() {
            return true;
        }
        let deadline = Instant::now() + timeout;
        while !self.has_ended() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let core = self.lock();
            drop(self.ended.wait_timeout(core, left.min(Duration::from_millis(20))));
        }
        true
    }

    /// Whether it takes no tasks any more.
    pub fn is_closed(&self) -> bool {
        !matches!(self.lock().state, State::Open)
    }

    /// What the zygote had to say about preloads that failed.
    pub fn complaints(&self) -> Vec<String> {
        lock(&self.spawning).as_ref().map_or_else(Vec::new, |spawning| spawning.zygote.complaints())
    }

    /// The failure that broke the pool, if one did.
    pub fn broken(&self) -> Option<Failure> {
        match &self.lock().state {
            State::Broken(failure) => Some(failure.clone()),
            _ => None,
        }
    }
}
