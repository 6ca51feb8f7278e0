//! Waiting for something, and driving the pool meanwhile: the leader, its followers, and the wake-up of a resting pool.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use windlass_os::futex::{self, Scope};
use windlass_shm::attention;
use windlass_shm::ring::AdaptiveSpin;

use super::{Core, Engine, Sleeper, State, Waited};
use crate::clock;
use crate::control::WATCH;
use crate::dispatch::STEAL_AFTER;
use crate::locked::Guard;

impl Engine {
    pub(super) fn is_ready(&self, what: &Sleeper) -> bool {
        match what {
            Sleeper::Task(task) => task.is_done(),
            Sleeper::Completed => !self.completed.lock().is_empty(),
            Sleeper::Space => false,
            Sleeper::Any(tasks) => tasks.iter().any(|task| task.is_done()),
        }
    }

    pub(super) fn has_space(&self, core: &Core) -> bool {
        !matches!(core.state, State::Open) || self.config.max_queue.is_none_or(|max| core.queued() < max)
    }

    /// Blocks until `what` is there, driving the pool meanwhile. Call it with the interpreter released.
    pub fn wait(&self, what: &Sleeper, deadline: Option<Instant>) -> Waited {
        if let (false, Sleeper::Task(task)) = (self.is_remote(), what) {
            return self.wait_local(task, deadline);
        }
        loop {
            if self.is_ready(what) {
                return Waited::Ready;
            }
            let Some(mut core) = self.enter() else { return Waited::TimedOut };
            if matches!(what, Sleeper::Space) && self.has_space(&core) {
                return Waited::Ready;
            }
            if core.is_over() {
                // Every task has its outcome by now; nobody is left who would wake a sleeper.
                return Waited::Ready;
            }
            if self.is_remote() && !core.leader {
                core.leader = true;
                self.control.arm(attention::AWAKE);
                let spin = std::mem::replace(&mut core.spin, AdaptiveSpin::new());
                return self.lead(core, what, deadline, spin);
            }
            let waited = self.follow(core, what, deadline);
            if waited != Waited::Ready {
                return waited;
            }
        }
    }

    pub(super) fn follow(
        &self,
        mut core: Guard<'_, Core>,
        what: &Sleeper,
        deadline: Option<Instant>,
    ) -> Waited {
        let timeout = deadline.map(|at| at.saturating_duration_since(clock::now()));
        if timeout == Some(Duration::ZERO) {
            return Waited::TimedOut;
        }
        let token = core.next_follower;
        core.next_follower += 1;
        core.followers.push((token, what.clone()));
        let any_change = matches!(what, Sleeper::Space | Sleeper::Any(_));
        if any_change {
            core.change_waiters += 1;
        }
        let interrupted = match what {
            Sleeper::Task(task) => {
                let observed = task.prepare_sleep();
                drop(core);
                task.sleep(observed, timeout)
            }
            Sleeper::Completed => self.sleep_on(core, &self.completed_word, what, timeout),
            Sleeper::Space | Sleeper::Any(_) => self.sleep_on(core, &self.change_word, what, timeout),
        };
        let mut core = self.lock();
        core.followers.retain(|(id, _)| *id != token);
        if any_change {
            core.change_waiters -= 1;
        }
        if !core.leader {
            // The nudge of a leader that left may have come to us, who need it no more.
            self.promote(&mut core);
        }
        if interrupted { Waited::Interrupted } else { Waited::Ready }
    }

    pub(super) fn sleep_on(
        &self,
        core: Guard<'_, Core>,
        word: &AtomicU32,
        what: &Sleeper,
        timeout: Option<Duration>,
    ) -> bool {
        let observed = word.load(Ordering::Acquire);
        drop(core);
        if self.is_ready(what) {
            return false;
        }
        matches!(futex::wait(word, observed, timeout, Scope::Private), futex::Wait::Interrupted)
    }

    pub(super) fn lead<'a>(
        &'a self,
        mut core: Guard<'a, Core>,
        what: &Sleeper,
        deadline: Option<Instant>,
        mut spin: AdaptiveSpin,
    ) -> Waited {
        let mut interrupted = false;
        loop {
            self.poll(&mut core);
            let ready = self.is_there(&core, what);
            let late = deadline.is_some_and(|at| clock::now() >= at);
            if ready || late || interrupted {
                core.spin = spin;
                core.leader = false;
                self.rest(&mut core);
                self.promote(&mut core);
                return match (ready, interrupted) {
                    (true, _) => Waited::Ready,
                    (false, true) => Waited::Interrupted,
                    (false, false) => Waited::TimedOut,
                };
            }
            drop(core);
            let spun = spin.spin(|| self.control.may_spin(), || self.glance() || self.is_ready(what));
            core = self.lock();
            if spun {
                continue;
            }
            self.control.arm(attention::SLEEPING);
            if self.poll(&mut core) || self.is_there(&core, what) {
                self.control.arm(attention::AWAKE);
                continue;
            }
            let look = if core.steal_pending() {
                Some(STEAL_AFTER)
            } else {
                // Without tasks nothing comes, and the first one that does sets the supervisor to watch.
                core.has_work().then_some(WATCH)
            };
            drop(core);
            let left = deadline.map(|at| at.saturating_duration_since(clock::now()));
            let timeout = match (left, look) {
                (Some(left), Some(look)) => Some(left.min(look)),
                (left, look) => left.or(look),
            };
            interrupted = self.control.sleep(timeout);
            core = self.lock();
            self.control.arm(attention::AWAKE);
        }
    }

    pub(super) fn is_there(&self, core: &Core, what: &Sleeper) -> bool {
        self.is_ready(what) || (matches!(what, Sleeper::Space) && self.has_space(core)) || core.is_over()
    }

    /// Whether a look at the rings would find something; no more than a hint.
    pub(super) fn glance(&self) -> bool {
        let Some(core) = self.core.try_lock() else { return false };
        core.any_ready()
    }

    /// Makes another waiting thread look, because the leader leaves.
    pub(super) fn promote(&self, core: &mut Core) {
        match core.followers.first() {
            None => {}
            Some((_, Sleeper::Task(task))) => task.nudge(),
            Some((_, Sleeper::Completed)) => Self::bump(&self.completed_word),
            Some((_, Sleeper::Space | Sleeper::Any(_))) => Self::bump(&self.change_word),
        }
    }

    pub(super) fn bump(word: &AtomicU32) {
        word.fetch_add(1, Ordering::AcqRel);
        futex::wake(word, u32::MAX >> 1, Scope::Private);
    }

    /// Arms the wake-up for a time in which nobody looks at the rings.
    pub(crate) fn rest(&self, core: &mut Core) {
        if !self.is_remote() {
            return;
        }
        if core.steal_pending() {
            // Nobody rings for a lane that is stuck behind a long task: the supervisor looks by itself.
            let at = clock::now() + STEAL_AFTER;
            if core.supervisor_wakes.is_none_or(|wakes| at < wakes) {
                core.supervisor_wakes = Some(at);
                self.control.kick();
            }
        }
        for _ in 0..3 {
            let mode = if core.starting > 0 || core.doomed > 0 || !matches!(core.state, State::Open) {
                attention::ANY
            } else if !core.queue.is_empty() || core.outstanding > core.busy.len() {
                attention::HUNGRY
            } else {
                attention::QUIET
            };
            if self.control.mode() == mode {
                return;
            }
            self.control.arm(mode);
            // What came while no wake-up was armed has woken nobody: look once more.
            let missed = match mode {
                attention::ANY => core.any_ready(),
                attention::HUNGRY => core.any_ready() && core.somebody_hungry(),
                _ => false,
            };
            if !missed || !self.poll(core) {
                return;
            }
        }
    }

    /// Reads the results that are there, if nobody waits for them: for those who ask again and again and never wait.
    pub fn catch_up(&self) {
        // Whoever has the lock is looking, or is about to be done; and in a forked child it may be held for ever.
        if self.is_remote()
            && !self.is_forked()
            && let Some(mut core) = self.core.try_lock()
        {
            self.look(&mut core);
        }
    }

    pub(super) fn look(&self, core: &mut Core) {
        if self.is_remote() && !core.leader {
            self.poll(core);
            self.rest(core);
        }
    }

    /// Reads the result rings and feeds the task rings; true if anything came.
    pub(crate) fn poll(&self, core: &mut Core) -> bool {
        let came = self.drain_lanes(core);
        if came || !core.queue.is_empty() || !core.idle.is_empty() {
            self.dispatch(core);
        }
        came
    }
}
