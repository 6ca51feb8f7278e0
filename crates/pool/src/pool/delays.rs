//! Tasks that have failed and wait before they are run once more.
//!
//! Such a task is neither in the queue nor with a worker. It can be cancelled, its pool waits for it when it is closed,
//! and its deadline holds: if the delay would outlast the deadline or the budget of its retries, the task ends with its
//! failure at once.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Backend, Lifecycle, Pool, PoolState};
use crate::backoff::Backoff;
use crate::clock;
use crate::outcome::{Failure, Outcome};
use crate::task::{Stage, Task};

/// See the module.
#[derive(Debug)]
pub(crate) struct Delays {
    by_time: BTreeMap<(Instant, u64), Arc<Task>>,
    /// When the task of each number is due.
    due: HashMap<u64, Instant>,
    /// The state of the generator that spreads the delays.
    seed: u64,
}

impl Default for Delays {
    fn default() -> Self {
        Self { by_time: BTreeMap::new(), due: HashMap::new(), seed: seed() }
    }
}

/// Pools must not delay alike; simulations must.
fn seed() -> u64 {
    use std::hash::BuildHasher;
    if cfg!(any(test, fuzzing)) { 0 } else { std::hash::RandomState::new().hash_one(0_u8) }
}

impl Delays {
    pub(crate) fn len(&self) -> usize {
        self.by_time.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_time.is_empty()
    }

    /// When the first of them is due.
    pub(crate) fn first(&self) -> Option<Instant> {
        self.by_time.first_key_value().map(|((at, _), _)| *at)
    }

    fn add(&mut self, task: Arc<Task>, at: Instant) {
        self.due.insert(task.id, at);
        self.by_time.insert((at, task.id), task);
    }

    /// A task does not wait any more.
    pub(crate) fn remove(&mut self, task: &Task) {
        if let Some(at) = self.due.remove(&task.id) {
            self.by_time.remove(&(at, task.id));
        }
    }

    fn pop_due(&mut self, now: Instant) -> Option<Arc<Task>> {
        let first = self.by_time.first_entry().filter(|first| first.key().0 <= now)?;
        let task = first.remove();
        self.due.remove(&task.id);
        Some(task)
    }

    /// Takes out all, in the order of their numbers.
    pub(crate) fn drain(&mut self) -> Vec<Arc<Task>> {
        self.due.clear();
        let mut all: Vec<_> = std::mem::take(&mut self.by_time).into_values().collect();
        all.sort_by_key(|task| task.id);
        all
    }

    /// From 0 to 1.
    ///
    /// Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators" (OOPSLA 2014): SplitMix64.
    fn chance(&mut self) -> f64 {
        self.seed = self.seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        // The 53 bits that a double holds.
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// What becomes of a task that has failed.
pub(super) enum Next {
    /// It ends with its failure.
    End,
    /// It is run again at once.
    Now,
    /// It is run again then.
    At(Instant),
}

impl<B: Backend> Pool<B> {
    /// When a task that has failed so, and has runs left, is run again.
    pub(super) fn next_run(state: &mut PoolState<B>, task: &Task, outcome: &Outcome) -> Next {
        let Some(backoff) = task.options.backoff() else { return Next::Now };
        let cost_a_worker =
            matches!(outcome, Outcome::Failed(Failure::Crashed { .. } | Failure::Hung { .. }));
        if !backoff.crashes && cost_a_worker {
            return Next::End;
        }
        let delay = backoff.delay(task.attempt().max(1), task.last_delay(), state.delays.chance());
        task.set_last_delay(delay);
        let now = clock::now();
        match now.checked_add(delay) {
            Some(at) if !is_over(backoff, task, at) => {
                if delay.is_zero() {
                    Next::Now
                } else {
                    Next::At(at)
                }
            }
            _ => Next::End,
        }
    }

    /// A task is run again at this time.
    pub(super) fn delay(&self, state: &mut PoolState<B>, task: &Arc<Task>, at: Instant) {
        task.set_stage(Stage::Delayed);
        state.delays.add(Arc::clone(task), at);
        self.wake_supervisor_at(state, at);
        // A worker that was busy with it is free.
        self.tell_room(state);
    }

    /// Queues the tasks whose delay is over.
    pub(super) fn release(&self, state: &mut PoolState<B>, now: Instant) {
        while let Some(task) = state.delays.pop_due(now) {
            self.run_again(state, &task);
        }
    }
}

impl<B: Backend> PoolState<B> {
    /// Whether a worker without a task has to stay: one of them has to be there when a delayed task is due.
    pub(crate) fn may_get_tasks(&self) -> bool {
        match self.lifecycle {
            Lifecycle::Open => true,
            Lifecycle::Closing => !self.delays.is_empty(),
            Lifecycle::Broken(_) | Lifecycle::Ended => false,
        }
    }
}

/// Whether a task may not begin at this time any more.
fn is_over(backoff: &Backoff, task: &Task, at: Instant) -> bool {
    let limits = [backoff.budget, task.options.deadline()];
    let passed = |limit: Duration| task.submitted.checked_add(limit).is_some_and(|end| at >= end);
    limits.into_iter().flatten().any(passed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backoff::Jitter;
    use crate::config::{Config, Overflow};
    use crate::outcome::{Limit, Phase};
    use crate::simulation::scene::{Actor, Scene};
    use crate::task::{Options, Rare};
    use crate::wire::{flags, kind};

    const DELAY: Duration = Duration::from_millis(100);
    const MS: Duration = Duration::from_millis(1);

    fn options(retries: u32) -> Options {
        let most = DELAY * 8;
        let backoff = Backoff { first: DELAY, most, jitter: Jitter::None, budget: None, crashes: true };
        Options { retries, ..Rare { backoff: Some(backoff), ..Rare::default() }.into() }
    }

    fn with(retries: u32, change: impl FnOnce(&mut Backoff)) -> Options {
        options(retries).with(|rare| change(rare.backoff.as_mut().expect("it has one")))
    }

    fn raise(worker: &mut Actor, task: u64) {
        worker.say(0, kind::DONE, flags::ERROR, task, 0);
    }

    /// A pool of one worker, whose task has failed once.
    fn failed(options: Options) -> (Scene, Actor, Arc<Task>) {
        let (scene, mut workers) = Scene::ready(Scene::config(1, 1));
        let task = scene.submit(options);
        let mut worker = workers.pop().expect("one");
        assert_eq!(worker.start(0), Some(task.id));
        raise(&mut worker, task.id);
        scene.tick();
        (scene, worker, task)
    }

    fn has_raised(task: &Task) -> bool {
        matches!(task.outcome(), Some(Outcome::Replied(reply)) if reply.flags & flags::ERROR != 0)
    }

    fn delayed(scene: &Scene) -> usize {
        scene.engine.statistics().expect("this process").delayed
    }

    #[test]
    fn each_run_waits_for_twice_as_long_and_no_worker_is_held() {
        let (mut scene, mut worker, task) = failed(options(2));
        for (failures, delay) in [(1, DELAY), (2, DELAY * 2)] {
            assert_eq!((task.stage(), task.attempt(), delayed(&scene)), (Stage::Delayed, failures, 1));
            let statistics = scene.engine.statistics().expect("this process");
            assert_eq!((statistics.queued, statistics.running, statistics.oldest), (0, 0, None));
            // The worker is free for others meanwhile.
            let other = scene.task();
            assert_eq!(worker.start(0), Some(other.id));
            worker.answer(0, other.id);
            assert_eq!(scene.tick().map(|next| next <= scene.now + delay), Some(true), "it looks in time");
            scene.pass(delay - MS);
            assert_eq!(worker.start(0), None);
            scene.pass(MS);
            assert_eq!((worker.start(0), delayed(&scene)), (Some(task.id), 0));
            raise(&mut worker, task.id);
            scene.tick();
        }
        assert!(has_raised(&task) && task.attempt() == 3);
        assert_eq!(scene.engine.statistics().expect("this process").counters.retried, 2);
    }

    #[test]
    fn the_supervisor_looks_when_a_delay_is_over_though_nothing_else_happens() {
        let (mut scene, mut worker, task) = failed(with(1, |backoff| {
            (backoff.first, backoff.most) = (DELAY * 1000, DELAY * 1000);
        }));
        let due = scene.now + DELAY * 1000;
        // Long after the pool has been left alone.
        while let Some(next) = scene.tick() {
            if next == due {
                break;
            }
            scene.pass(next - scene.now);
        }
        assert!(scene.now < due);
        scene.pass(due - scene.now);
        assert_eq!(worker.start(0), Some(task.id));
    }

    #[test]
    fn a_delayed_task_can_be_cancelled() {
        let (mut scene, mut worker, task) = failed(options(1));
        assert!(!scene.engine.is_running(&task));
        assert!(scene.engine.cancel(&task, false) && matches!(task.outcome(), Some(Outcome::Cancelled)));
        assert!(!scene.has_killed(&worker) && delayed(&scene) == 0);
        scene.pass(DELAY * 2);
        assert_eq!(worker.start(0), None);
        let (_scene, _worker, task) = failed(options(1));
        assert!(_scene.engine.ask_to_stop(&task) && matches!(task.outcome(), Some(Outcome::Cancelled)));
    }

    #[test]
    fn a_task_whose_failure_nobody_has_seen_yet_can_be_cancelled_too() {
        type End = fn(&Scene, &Arc<Task>) -> bool;
        let ends: [End; 3] = [
            |scene, task| scene.engine.cancel(task, false),
            |scene, task| scene.engine.cancel(task, true),
            |scene, task| scene.engine.ask_to_stop(task),
        ];
        for end in ends {
            let (scene, mut workers) = Scene::ready(Scene::config(1, 1));
            let task = scene.submit(options(1));
            let mut worker = workers.pop().expect("one");
            assert_eq!(worker.start(0), Some(task.id));
            raise(&mut worker, task.id);
            assert!(end(&scene, &task) && matches!(task.outcome(), Some(Outcome::Cancelled)));
            assert!(!scene.has_killed(&worker) && delayed(&scene) == 0);
        }
    }

    #[test]
    fn a_delay_that_would_outlast_a_limit_ends_the_task_with_its_failure() {
        for limited in [
            with(1, |backoff| backoff.budget = Some(DELAY)),
            options(1).with(|rare| rare.deadline = Some(DELAY)),
        ] {
            let (_scene, _worker, task) = failed(limited);
            assert!(has_raised(&task) && task.attempt() == 1);
        }
        // And one that ends before it leaves the task its next run, and the limit.
        let (mut scene, mut worker, task) = failed(options(1).with(|rare| rare.deadline = Some(DELAY + MS)));
        scene.pass(DELAY);
        assert_eq!(worker.start(0), Some(task.id));
        scene.pass(MS);
        let Some(Outcome::Failed(failure)) = task.outcome() else { panic!("its time is up") };
        assert!(matches!(failure, Failure::TimedOut(Limit::Deadline, Phase::Running)));
    }

    #[test]
    fn a_pool_that_closes_waits_for_what_is_delayed() {
        let (mut scene, mut worker, task) = failed(options(1));
        scene.engine.close(false);
        scene.tick();
        assert!(!scene.engine.has_ended() && !worker.is_dismissed(0));
        scene.pass(DELAY);
        assert_eq!(worker.start(0), Some(task.id));
        worker.answer(0, task.id);
        scene.tick();
        assert!(task.is_done() && worker.is_dismissed(0));
        // Even if its only worker dies meanwhile: another one is there when it is due.
        let (mut scene, worker, task) = failed(options(1));
        scene.engine.close(false);
        scene.die(worker, 9);
        let mut next = scene.asked().pop_front().expect("another worker");
        scene.fork(&next);
        next.ready();
        scene.pass(DELAY);
        assert_eq!(next.start(0), Some(task.id));
    }

    #[test]
    fn the_end_of_a_pool_ends_what_is_delayed() {
        let (scene, _worker, task) = failed(options(1));
        scene.engine.close(true);
        assert!(matches!(task.outcome(), Some(Outcome::Cancelled)));
        let (scene, _worker, task) = failed(options(1));
        scene.engine.terminate();
        assert!(matches!(task.outcome(), Some(Outcome::Cancelled)));
        let (scene, _worker, task) = failed(options(1));
        scene.engine.break_down(&Failure::Broken("of a test".into()));
        assert!(matches!(task.outcome(), Some(Outcome::Failed(Failure::Broken(_)))));
    }

    #[test]
    fn a_crash_is_a_failure_unless_told_otherwise() {
        for crashes in [true, false] {
            let (scene, mut workers) = Scene::ready(Scene::config(1, 1));
            let task = scene.submit(with(1, |backoff| backoff.crashes = crashes));
            assert_eq!(workers[0].start(0), Some(task.id));
            scene.die(workers.remove(0), 9);
            assert_eq!((task.is_done(), delayed(&scene)), (!crashes, usize::from(crashes)));
        }
    }

    #[test]
    fn a_hang_is_the_death_of_a_worker() {
        for crashes in [true, false] {
            let (mut scene, mut workers) = Scene::ready(Scene::config(1, 1));
            let options = with(1, |backoff| backoff.crashes = crashes).with(|rare| rare.hang = Some(DELAY));
            let task = scene.submit(options);
            assert_eq!(workers[0].start(0), Some(task.id));
            workers[0].begin(0, task.id);
            for _ in 0..4 {
                scene.pass(DELAY);
            }
            assert!(scene.has_killed(&workers[0]));
            scene.die(workers.remove(0), 9);
            assert_eq!((task.is_done(), delayed(&scene)), (!crashes, usize::from(crashes)));
        }
    }

    #[test]
    fn what_is_final_is_not_run_again() {
        let (scene, mut workers) = Scene::ready(Scene::config(1, 1));
        let task = scene.submit(options(5));
        assert_eq!(workers[0].start(0), Some(task.id));
        workers[0].say(0, kind::DONE, flags::ERROR | flags::FINAL, task.id, 0);
        scene.tick();
        assert!(has_raised(&task) && task.attempt() == 1 && delayed(&scene) == 0);
    }

    #[test]
    fn a_worker_does_not_run_a_task_whose_deadline_has_passed_and_cannot_lie_about_it() {
        for passed in [true, false] {
            let (mut scene, mut workers) = Scene::ready(Scene::config(1, 1));
            let task = scene.submit(Rare { deadline: Some(DELAY), ..Rare::default() }.into());
            assert_eq!(workers[0].start(0), Some(task.id));
            if passed {
                scene.now += DELAY;
                clock::set(scene.now);
            }
            workers[0].say(0, kind::DONE, flags::FINAL | flags::EMPTY, task.id, 0);
            scene.engine.catch_up();
            let late = matches!(
                task.outcome(),
                Some(Outcome::Failed(Failure::TimedOut(Limit::Deadline, Phase::Queued)))
            );
            assert_eq!((late, scene.has_killed(&workers[0])), (passed, !passed));
            assert_eq!(task.attempt(), 0);
        }
    }

    #[test]
    fn a_delayed_task_takes_no_room_in_the_queue() {
        let config = Config { capacity: Some(1), overflow: Overflow::Error, ..Scene::config(1, 1) };
        let (mut scene, mut workers) = Scene::ready(config);
        let task = scene.submit(options(1));
        assert_eq!(workers[0].start(0), Some(task.id));
        raise(&mut workers[0], task.id);
        scene.tick();
        let others = [scene.task(), scene.task()];
        assert_eq!(workers[0].start(0), Some(others[0].id));
        // It comes back all the same, before the others.
        scene.pass(DELAY);
        workers[0].answer(0, others[0].id);
        scene.tick();
        let order: Vec<_> = std::iter::from_fn(|| {
            let id = workers[0].start(0)?;
            workers[0].answer(0, id);
            scene.tick();
            Some(id)
        })
        .collect();
        assert!(order.contains(&task.id) && order.contains(&others[1].id) && order.len() == 2);
    }

    #[test]
    fn chance_is_spread_between_nothing_and_the_whole() {
        let mut delays = Delays::default();
        let drawn: Vec<_> = (0..1000).map(|_| delays.chance()).collect();
        assert!(drawn.iter().all(|chance| (0.0..1.0).contains(chance)));
        for tenth in 0..10 {
            let count = drawn.iter().filter(|chance| (**chance * 10.0) as usize == tenth).count();
            assert!((50..150).contains(&count), "{count} of {tenth}");
        }
    }
}
