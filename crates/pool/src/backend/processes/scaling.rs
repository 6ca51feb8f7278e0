//! How many workers a pool has: a number that the program changes, or one that follows the load.
//!
//! **Growth is driven by the time that tasks wait**, not by their number: a thousand short tasks may be done in a
//! moment. While no lane is free and the oldest task that has not started has waited for a millisecond, the number
//! doubles. The next step waits until the workers of the last one are there, or for five milliseconds if they take
//! longer. There are never more workers than tasks.
//!
//! **Shrinking is driven by idleness.** A worker that has had no task for the pool's idle time is retired, those that
//! have rested longest first, down to the least number. One without states of sessions goes before one that has some.
//!
//! A pool inside of a worker (`lazy`) grows in the same way from one worker on; it starts that one with its first task.

use std::time::{Duration, Instant};

use super::workers::Worker;
use super::{Crew, ProcessPool, ProcessPoolState};
use crate::cause::Cause;
use crate::config::Scale;
use crate::events::{self, What};
use crate::pool::Lifecycle;

/// How long the oldest task may wait before the pool grows.
const WAITED: Duration = Duration::from_millis(1);
/// How long a step waits at most for the workers of the step before.
const STEP: Duration = Duration::from_millis(5);

/// The state of a pool whose size follows its load.
#[derive(Debug, Default)]
pub(crate) struct Growth {
    last: Option<Instant>,
}

impl ProcessPool {
    /// A task was accepted by a pool whose size follows its load: the supervisor looks when it has waited too long.
    pub(super) fn may_have_to_grow(&self, state: &mut ProcessPoolState, now: Instant) {
        if state.size < self.most(state) && !state.members.any_free() {
            self.wake_supervisor_at(state, now + WAITED);
        }
    }

    fn most(&self, state: &ProcessPoolState) -> usize {
        if state.is_sized { state.size } else { self.config.workers }
    }

    /// Lets the number of workers follow the load; gives the time of the next look.
    pub(super) fn follow_load(&self, state: &mut ProcessPoolState, now: Instant) -> Option<Instant> {
        let scale = self.config.scale()?;
        if state.is_sized || !matches!(state.lifecycle, Lifecycle::Open) {
            return None;
        }
        let grows = self.grow(state, now);
        grows.or_else(|| self.shrink(state, scale, now))
    }

    fn grow(&self, state: &mut ProcessPoolState, now: Instant) -> Option<Instant> {
        if state.size >= self.config.workers || state.members.any_free() {
            return None;
        }
        let oldest = state.oldest_waiting()?;
        let due = oldest + WAITED;
        if now < due {
            return Some(due);
        }
        let rested = state.members.growth.last.is_none_or(|last| now >= last + STEP);
        if state.members.starting == 0 || rested {
            let tasks = state.queue.len() + state.members.outstanding;
            let size = (state.size * 2).min(self.config.workers).min(tasks.max(state.size));
            if size > state.size {
                state.members.growth.last = Some(now);
                self.change_size(state, size);
                self.fill_or_fall_short(state);
            }
        }
        Some(now + WAITED)
    }

    fn shrink(&self, state: &mut ProcessPoolState, scale: Scale, now: Instant) -> Option<Instant> {
        let idle = scale.idle?;
        while state.size > scale.least {
            let rested = |since: Instant| since.checked_add(idle).is_some_and(|due| due <= now);
            let first = state.members.longest_idle()?;
            let due = first.since.checked_add(idle)?;
            if due > now {
                return Some(due);
            }
            let plain = state.members.idle_workers().filter(|idle| !idle.keeps && rested(idle.since)).min();
            let index = plain.unwrap_or(first).index;
            let size = state.size - 1;
            self.change_size(state, size);
            self.retire(state, index, Cause::Shrunk, true);
        }
        None
    }

    fn change_size(&self, state: &mut ProcessPoolState, size: usize) {
        state.size = size;
        events::tell(&self.config.name, What::Resized { workers: size });
    }

    /// The program has set the number of workers.
    pub(super) fn resized(&self, state: &mut ProcessPoolState) {
        if !matches!(state.lifecycle, Lifecycle::Open) || self.is_asleep() {
            return;
        }
        while state.members.alive() > state.size {
            let Some(index) = state.members.to_spare() else { break };
            self.retire(state, index, Cause::Shrunk, true);
        }
        self.fill_or_fall_short(state);
        self.after_outside_change(state);
        self.control.kick();
    }
}

/// A worker in service without a task. The least has rested longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Idle {
    since: Instant,
    index: usize,
    /// Whether it has states of sessions.
    keeps: bool,
}

impl Crew {
    /// Whether a task could be given to a lane that has none.
    fn any_free(&self) -> bool {
        self.idle.iter().any(|lane| {
            self.lanes.get(*lane).is_some_and(|lane| lane.as_ref().is_some_and(|lane| !lane.closed))
        })
    }

    /// The workers in service that have no task.
    fn idle_workers(&self) -> impl Iterator<Item = Idle> {
        let all =
            self.workers.iter().enumerate().filter_map(|(index, worker)| Some((index, worker.as_ref()?)));
        let ready = all.filter(|(_, worker)| {
            worker.tenure.ready.is_some() && !worker.tenure.stands_in && !worker.is_dying()
        });
        ready.filter_map(|(index, worker)| {
            let lanes = || worker.lanes.iter().filter_map(|lane| self.lanes.get(*lane)?.as_ref());
            let since = lanes().map(|lane| lane.front_since).max()?;
            let rests = lanes().all(|lane| lane.outstanding.is_empty());
            rests.then(|| Idle { since, index, keeps: self.keeps_states(worker) })
        })
    }

    /// The one that has been without a task for longest.
    fn longest_idle(&self) -> Option<Idle> {
        self.idle_workers().min()
    }

    /// Whether a worker has states of sessions or objects of actors, which would be lost with it.
    fn keeps_states(&self, worker: &Worker) -> bool {
        let mut lanes = worker.lanes.iter().filter_map(|lane| self.lanes.get(*lane)?.as_ref());
        lanes.any(|lane| !lane.sessions.is_empty())
    }

    /// The worker that a smaller pool can best do without: one that is due, or has no states, or rests, or has run
    /// fewest tasks.
    fn to_spare(&self) -> Option<usize> {
        let all =
            self.workers.iter().enumerate().filter_map(|(index, worker)| Some((index, worker.as_ref()?)));
        let mut idle: Vec<Idle> = self.idle_workers().collect();
        idle.sort();
        let rests = |states: bool| idle.iter().find(|idle| idle.keeps == states).map(|idle| idle.index);
        let rests = [rests(false), rests(true)];
        all.filter(|(_, worker)| !worker.tenure.stands_in && !worker.is_dying())
            .min_by_key(|(index, worker)| {
                let stays = worker.tenure.due.is_none();
                (stays, self.keeps_states(worker), !rests.contains(&Some(*index)), worker.completed)
            })
            .map(|(index, _)| index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Life};
    use crate::pool::Which;
    use crate::session::{Mode, SessionSettings};
    use crate::simulation::scene::{Actor, Scene};
    use crate::statistics::{WorkerState, WorkerStatistics};

    const MOMENT: Duration = Duration::from_micros(1);
    const IDLE: Duration = Duration::from_secs(3);

    fn scaling(least: usize, most: usize) -> Config {
        let life = Life { scale: Some(Scale { least, idle: Some(IDLE) }), ..Life::default() };
        Config { life, ..Scene::config(most, 1) }
    }

    /// Forks everything that was asked for; gives how many that were.
    fn come(scene: &mut Scene, workers: &mut Vec<Actor>) -> usize {
        let mut asked = scene.asked();
        for worker in &mut asked {
            scene.fork(worker);
            worker.ready();
        }
        scene.tick();
        let came = asked.len();
        workers.extend(asked);
        came
    }

    #[test]
    fn the_number_doubles_while_tasks_wait_for_a_millisecond() {
        let (mut scene, mut workers) = Scene::ready(scaling(1, 16));
        assert_eq!(workers.len(), 1);
        let _tasks: Vec<_> = (0..100).map(|_| scene.task()).collect();
        assert!(scene.kicked(), "the supervisor is to look");
        scene.pass(WAITED - MOMENT);
        assert_eq!(come(&mut scene, &mut workers), 0, "nothing has waited for so long");
        for sizes in [1, 2, 4, 8] {
            scene.pass(WAITED);
            assert_eq!(come(&mut scene, &mut workers), sizes, "with {} workers", workers.len());
        }
        scene.pass(STEP);
        assert_eq!(come(&mut scene, &mut workers), 0);
        assert_eq!(scene.engine.statistics().expect("this process").size, 16);
    }

    #[test]
    fn a_step_waits_for_the_workers_of_the_last_one_but_not_for_long() {
        let (mut scene, _worker) = Scene::ready(scaling(1, 16));
        let _tasks: Vec<_> = (0..100).map(|_| scene.task()).collect();
        scene.pass(WAITED);
        assert_eq!(scene.asked().len(), 1);
        scene.pass(STEP - MOMENT);
        assert_eq!(scene.asked().len(), 0);
        scene.pass(MOMENT);
        assert_eq!(scene.asked().len(), 2);
    }

    #[test]
    fn a_pool_has_no_more_workers_than_tasks_and_grows_for_none_that_rest() {
        let (mut scene, mut workers) = Scene::ready(scaling(2, 16));
        let _tasks: Vec<_> = (0..3).map(|_| scene.task()).collect();
        for _ in 0..3 {
            scene.pass(STEP);
            come(&mut scene, &mut workers);
        }
        assert_eq!(workers.len(), 3);
        let (mut scene, mut workers) = Scene::ready(scaling(2, 16));
        let task = scene.task();
        scene.pass(STEP);
        assert_eq!((come(&mut scene, &mut workers), task.is_done()), (0, false), "a lane is free");
    }

    #[test]
    fn workers_that_rest_are_sent_away_one_by_one_down_to_the_least_number() {
        let (mut scene, mut workers) = Scene::ready(scaling(1, 4));
        let tasks: Vec<_> = (0..8).map(|_| scene.task()).collect();
        for _ in 0..3 {
            scene.pass(STEP);
            come(&mut scene, &mut workers);
        }
        assert_eq!(workers.len(), 4);
        for _ in 0..2 {
            for worker in &mut workers {
                if let Some(task) = worker.start(0) {
                    worker.answer(0, task);
                }
            }
            scene.tick();
        }
        assert!(tasks.iter().all(|task| task.is_done()));
        scene.pass(IDLE / 2);
        // The warmest one works on.
        let task = scene.task();
        let used = workers.iter_mut().position(|worker| worker.start(0) == Some(task.id)).expect("one");
        workers[used].answer(0, task.id);
        scene.tick();
        scene.pass(IDLE / 2 - MOMENT);
        assert_eq!(scene.engine.statistics().expect("this process").size, 4);
        let next = scene.tick().expect("a time");
        assert!(next <= scene.now + MOMENT);
        scene.pass(MOMENT);
        let leave: Vec<bool> = workers.iter_mut().map(|worker| worker.is_dismissed(0)).collect();
        let expected: Vec<bool> = (0..4).map(|at| at != used).collect();
        assert_eq!(leave, expected);
        for at in (0..4).rev().filter(|at| *at != used) {
            scene.die(workers.remove(at), 0);
        }
        scene.pass(IDLE);
        let statistics = scene.engine.statistics().expect("this process");
        assert_eq!((statistics.size, statistics.workers.len()), (1, 1));
        assert_eq!(statistics.counters.recycled[Cause::Shrunk as usize], 3);
        assert_eq!((statistics.counters.crashed, statistics.counters.restarted), (0, 0));
        assert!(scene.asked().is_empty());
    }

    #[test]
    fn a_lazy_pool_begins_with_one_worker_and_grows() {
        let mut scene = Scene::new(Config { lazy: true, ..Scene::config(3, 1) });
        let mut workers = Vec::new();
        assert_eq!(come(&mut scene, &mut workers), 1);
        let _tasks: Vec<_> = (0..5).map(|_| scene.task()).collect();
        for more in [1, 1, 0] {
            scene.pass(STEP);
            assert_eq!(come(&mut scene, &mut workers), more);
        }
        scene.pass(Duration::from_secs(3600));
        assert!(workers.iter_mut().all(|worker| !worker.is_dismissed(0)), "it never shrinks");
    }

    #[test]
    fn a_larger_pool_asks_for_workers_and_a_smaller_one_sends_those_away_that_rest() {
        let (mut scene, mut workers) = Scene::ready(Scene::config(2, 1));
        scene.engine.resize(4);
        assert_eq!(come(&mut scene, &mut workers), 2);
        let task = scene.task();
        let used = workers.iter_mut().position(|worker| worker.start(0) == Some(task.id)).expect("one");
        scene.engine.resize(1);
        let states: Vec<_> =
            scene.engine.statistics().expect("this process").workers.iter().map(|it| it.state).collect();
        assert_eq!(states.iter().filter(|state| **state == WorkerState::Leaving).count(), 3);
        assert_eq!(states.iter().filter(|state| **state == WorkerState::Busy).count(), 1);
        workers[used].answer(0, task.id);
        scene.tick();
        assert!(task.is_done() && !workers[used].is_dismissed(0));
        for at in (0..4).rev().filter(|at| *at != used) {
            scene.die(workers.remove(at), 0);
        }
        assert!(scene.asked().is_empty() && scene.workers() == 1);
    }

    #[test]
    fn a_smaller_pool_does_without_a_worker_that_is_due_first() {
        let (mut scene, mut workers) = Scene::ready(Scene::config(3, 1));
        for number in [2, 3] {
            scene.engine.recycle(Which::Number(number));
            scene.engine.resize(4 - number as usize);
            let due = workers.iter_mut().position(|worker| worker.is_dismissed(0)).expect("one leaves");
            let state = |worker: &WorkerStatistics| (worker.number, worker.state == WorkerState::Leaving);
            let statistics = scene.engine.statistics().expect("this process");
            assert!(statistics.workers.iter().map(state).any(|it| it == (number, true)));
            scene.die(workers.remove(due), 0);
        }
        assert!(scene.asked().is_empty());
    }

    #[test]
    fn a_smaller_pool_keeps_a_worker_with_the_state_of_a_session() {
        let (mut scene, mut workers) = Scene::ready(Scene::config(2, 1));
        let session =
            scene.session(SessionSettings { name: "s".into(), mode: Mode::Queue, ..Default::default() });
        let first = scene.task_of(&session);
        let home = workers.iter_mut().position(|it| it.start(0) == Some(first.id)).expect("one");
        workers[home].answer(0, first.id);
        scene.tick();
        scene.pass(MOMENT);
        let plain = scene.task();
        assert_eq!(workers[1 - home].start(0), Some(plain.id));
        workers[1 - home].answer(0, plain.id);
        scene.tick();
        // It has rested for longer, but has the state.
        scene.engine.resize(1);
        assert!(workers[1 - home].is_dismissed(0) && !workers[home].is_dismissed(0));
    }

    #[test]
    fn what_a_smaller_pool_takes_from_a_worker_is_run_by_another() {
        let (scene, mut workers) = Scene::ready(Scene::config(2, 1));
        let tasks: Vec<_> = (0..4).map(|_| scene.task()).collect();
        let running: Vec<_> = workers.iter_mut().map(|worker| worker.start(0).expect("one each")).collect();
        scene.engine.resize(1);
        for (worker, task) in workers.iter_mut().zip(&running) {
            worker.answer(0, *task);
        }
        scene.tick();
        let leaving = workers.iter_mut().position(|worker| worker.is_dismissed(0)).expect("one leaves");
        scene.die(workers.remove(leaving), 0);
        for _ in 0..2 {
            let task = workers[0].start(0).expect("one that was taken back");
            workers[0].answer(0, task);
            scene.tick();
        }
        assert!(tasks.iter().all(|task| task.is_done() && task.attempt() == 1));
    }
}
