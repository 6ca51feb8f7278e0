//! The accounts of a simulated world: what is checked when a task starts, and at the end.

use std::sync::Arc;
use std::time::Duration;

use super::super::far::tag_of;
use super::World;
use crate::clock;
use crate::config::Overflow;
use crate::outcome::{Failure, Limit, Outcome};
use crate::session::Mode;
use crate::wire::flags;

impl World {
    /// A task was started in a lane, with the state of a session or without.
    pub(super) fn check_session(&mut self, worker: u64, lane: usize, task: u64, session: Option<(u32, u32)>) {
        let its = Arc::clone(&self.entered(task).task);
        let expected = its.session().map(|session| (session.id, its.generation()));
        assert_eq!(session, expected, "task {task} was started in another session");
        let Some(session) = its.session() else { return };
        if session.mode == Mode::Prefer {
            return;
        }
        let elsewhere = self.workers.iter().filter(|other| self.trusts(other.id)).flat_map(|other| {
            let lanes = other.lanes.iter().enumerate();
            lanes
                .filter(|(at, _)| (other.id, *at) != (worker, lane))
                .filter_map(|(_, far)| far.started.as_ref())
        });
        let twice = elsewhere.filter_map(|started| started.session).any(|(id, _)| id == session.id);
        assert!(!twice, "session {} runs in two lanes at once", session.id);
        let opened = self.sessions.iter_mut().find(|opened| opened.session.id == session.id).expect("opened");
        assert!(!session.is_actor || opened.last < task, "call {task} was started after {}", opened.last);
        opened.last = task;
    }

    /// Closes the pool, and lets everything that is sound come to its end.
    pub(super) fn end(&mut self) {
        self.dropped = self.dice.one_in(2);
        self.tell(|| format!("close, dropping what waits: {}", self.dropped));
        self.engine.close(self.dropped);
        for opened in &self.sessions {
            self.engine.close_session(&opened.session);
        }
        for _ in 0..20_000 {
            self.read_requests();
            self.fork();
            for at in (0..self.workers.len()).rev() {
                for lane in (0..self.workers[at].lanes.len()).rev() {
                    if at < self.workers.len() && lane < self.workers[at].lanes.len() {
                        self.work_in(at, lane);
                    }
                }
            }
            while self.answer_call() {}
            self.report_death();
            self.blame_liars();
            self.now += Duration::from_millis(2);
            clock::set(self.now);
            self.tick();
            self.bury_the_killed();
            if self.engine.has_ended() {
                return;
            }
        }
        panic!("the pool does not end: {:?}", self.engine.statistics());
    }

    pub(super) fn read_the_books(&mut self) {
        for entered in self.tasks.iter_mut().filter(|entered| entered.options.stream > 0) {
            let _ = entered.read_what_is_there();
            // What comes after the pool has given it up is ignored.
            let given_up = matches!(
                entered.task.outcome(),
                Some(Outcome::Failed(Failure::Hung { .. } | Failure::Unhealthy { .. }))
            );
            assert!(
                entered.harmed || entered.left || given_up || entered.read == entered.sent,
                "of the {} items of task {} came {}",
                entered.sent,
                entered.task.id,
                entered.read
            );
        }
        let broken = self.engine.broken().is_some();
        for entered in &self.tasks {
            let (task, id) = (&entered.task, entered.task.id);
            let outcome = task.outcome().unwrap_or_else(|| panic!("task {id} has not ended"));
            let limited = |limit| match limit {
                Limit::Timeout => entered.options.timeout().is_some(),
                Limit::Deadline => entered.options.deadline().is_some(),
                Limit::Hang => false,
            };
            // What ran beside a task that was ended may be started once more for nothing.
            let beside = self.engine.config.threads > 1 && entered.options.retries > 0;
            match outcome {
                Outcome::Replied(reply) if reply.flags & flags::ERROR != 0 => {
                    assert!(entered.raised || entered.harmed, "task {id} failed and nobody raised");
                }
                Outcome::Replied(reply) => {
                    let own = tag_of(&reply.bytes) == Some(entered.tag);
                    assert!(own || entered.harmed, "task {id} got another task's value");
                }
                Outcome::Failed(Failure::TimedOut(limit, _)) => {
                    assert!(limited(*limit), "task {id} had no such limit");
                }
                Outcome::Failed(Failure::Neighbour { .. }) => {
                    let repeatable = entered.options.retries > 0 && entered.options.stream == 0;
                    assert!(self.engine.config.threads > 1 && !repeatable);
                }
                Outcome::Failed(Failure::Dropped { depth, capacity }) => {
                    assert_eq!(self.engine.config.overflow, Overflow::DropOldest);
                    assert!(depth >= capacity && *capacity == 8);
                    assert!(entered.starts <= entered.options.retries || entered.harmed);
                }
                Outcome::Failed(Failure::Hung { .. }) => {
                    assert!(entered.options.hang().is_some(), "task {id} had no such limit");
                }
                Outcome::Failed(Failure::Poisoned { deaths, .. }) => {
                    let most = self.engine.config.health.poison_after;
                    assert_eq!(most, u32::try_from(deaths.len()).ok(), "task {id} is no poison");
                    let hung = deaths.iter().all(|death| death.hung) && entered.options.hang().is_some();
                    assert!(entered.harmed || hung, "task {id} killed nobody");
                }
                Outcome::Failed(Failure::Unhealthy { .. }) => {
                    assert!(self.engine.config.health.max_restarts.is_some() && broken);
                }
                Outcome::Failed(Failure::Broken(_)) => assert!(broken, "the pool is not broken"),
                Outcome::Failed(Failure::ActorDied { .. }) => {
                    assert!(task.session().is_some_and(|session| session.lost().is_some()), "it lives");
                }
                Outcome::Failed(_) => {
                    assert!(entered.harmed, "task {id} failed in no worker's death: {outcome:?}")
                }
                Outcome::Cancelled => {
                    let wanted = entered.cancelled || self.dropped || entered.options.stream > 0;
                    assert!(wanted, "task {id} was cancelled by nobody");
                }
                Outcome::Local { .. } => panic!("task {id} ran in a thread"),
            }
            assert!(
                beside || entered.starts <= entered.options.retries + 1,
                "task {id} was started {} times, with {} retries",
                entered.starts,
                entered.options.retries
            );
            assert!(
                entered.harmed || task.attempt() <= entered.starts,
                "task {id} counts {} attempts after {} starts",
                task.attempt(),
                entered.starts
            );
            assert_eq!(entered.lease.strong_count(), 0, "the lease of task {id} is still held");
        }
        for opened in &self.sessions {
            assert_eq!(opened.lease.strong_count(), 0, "the lease of session {} is held", opened.session.id);
        }
        assert_eq!(self.engine.statistics().expect("this process").sessions, 0);
        let counters = self.engine.statistics().expect("this process").counters;
        assert_eq!(counters.submitted, self.tasks.len() as u64);
        assert_eq!(counters.completed + counters.failed + counters.cancelled, counters.submitted);
        let recycled: u64 = counters.recycled.iter().sum();
        assert!(recycled <= self.ended, "{recycled} recycled workers of {} that have ended", self.ended);
    }
}
