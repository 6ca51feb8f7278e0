//! Room in a full queue by dropping: [`Overflow::DropOldest`](crate::Overflow::DropOldest).
//!
//! The task that goes is the oldest of the lowest priority, also if it lies in a lane behind another. Among named
//! clients it is the oldest of the client that has the most tasks waiting for its share, so that a client that floods
//! the queue loses its own.
//!
//! Source: to drop from the longest queue is McKenney, "Stochastic fairness queueing" (INFOCOM 1990).

use std::sync::Arc;

use super::{Backend, Pool, PoolState};
use crate::outcome::{Failure, Outcome, Record};
use crate::task::Task;

/// The task that makes room.
enum Victim {
    Waiting(Arc<Task>),
    /// The newcomer itself: all that wait have a higher priority.
    Newcomer,
    /// None that waits can be taken back any more.
    None,
}

impl<B: Backend> Pool<B> {
    /// Drops what has to go for a newcomer to a full queue; false if that is the newcomer itself.
    pub(super) fn drop_for(&self, state: &mut PoolState<B>, newcomer: &Task, capacity: usize) -> bool {
        // Some may have ended, or begun, since a thread looked last.
        B::collect(self, state);
        let mut looked_twice = false;
        while state.queued() >= capacity {
            let depth = state.queued();
            match Self::victim(state, newcomer.options.priority) {
                Victim::Waiting(task) => self.drop_task(state, &task, depth, capacity),
                Victim::Newcomer => return false,
                // Tasks of sessions wait in places of their own, and are not dropped.
                Victim::None if !state.queue.is_empty() => return false,
                // The worker that has begun the last of them has answered the one before.
                Victim::None if looked_twice => return true,
                Victim::None => {
                    looked_twice = true;
                    B::collect(self, state);
                }
            }
        }
        true
    }

    pub(super) fn drop_task(
        &self,
        state: &mut PoolState<B>,
        task: &Arc<Task>,
        depth: usize,
        capacity: usize,
    ) {
        let outcome = Outcome::Failed(Failure::Dropped { depth, capacity });
        self.finish(state, task, outcome, Record::default());
    }

    /// Takes out the task that is to be dropped for one of this priority.
    fn victim(state: &mut PoolState<B>, priority: i32) -> Victim {
        let mut sent = Vec::new();
        B::each_waiting(&state.members, &mut |task| sent.push(Arc::clone(task)));
        loop {
            let queued = state.queue.least();
            let least_sent = sent.iter().map(|task| task.options.priority).min();
            let least = match (&queued, least_sent) {
                (Some((queued, _)), Some(sent)) => sent.min(*queued),
                (Some((queued, _)), None) => *queued,
                (None, Some(sent)) => sent,
                (None, None) => return Victim::None,
            };
            if least > priority {
                return Victim::Newcomer;
            }
            let queued = queued.filter(|(level, _)| *level == least);
            let is_candidate = |task: &Task| {
                let client = task.options.client().map(|client| &client.name);
                task.options.priority == least
                    && queued.as_ref().is_none_or(|(_, largest)| client == largest.as_ref())
            };
            let candidates = sent.iter().enumerate().filter(|(_, task)| is_candidate(task));
            if let Some((at, _)) = candidates.min_by_key(|(_, task)| task.id) {
                let task = sent.swap_remove(at);
                if B::take_one_back(&mut state.members, &task) {
                    return Victim::Waiting(task);
                }
                continue;
            }
            let Some((_, client)) = queued else { return Victim::None };
            return state.queue.pop_of(least, client.as_deref()).map_or(Victim::None, Victim::Waiting);
        }
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::client::Client;
    use crate::config::{Config, Overflow};
    use crate::simulation::scene::Scene;
    use crate::task::{Options, Rare};

    fn full(capacity: usize) -> Config {
        Config { capacity: Some(capacity), overflow: Overflow::DropOldest, ..Scene::config(1, 1) }
    }

    fn dropped(task: &Task) -> Option<(usize, usize)> {
        match task.outcome() {
            Some(Outcome::Failed(Failure::Dropped { depth, capacity })) => Some((*depth, *capacity)),
            _ => None,
        }
    }

    fn of(priority: i32, client: Option<&str>) -> Options {
        let client = client.map(|name| Client { name: name.into(), share: 1 });
        Options { priority, ..Rare { client, ..Rare::default() }.into() }
    }

    #[test]
    fn the_oldest_goes_wherever_it_waits() {
        let (scene, mut workers) = Scene::ready(full(3));
        let running = scene.task();
        assert_eq!(workers[0].start(0), Some(running.id));
        // The first of them lies in the lane, behind the running one.
        let tasks: Vec<_> = (0..3).map(|_| scene.task()).collect();
        assert_eq!(scene.engine.given_to(workers[0].id), [running.id, tasks[0].id]);
        for (at, task) in tasks.iter().enumerate() {
            let newer = scene.task();
            assert!(!newer.is_done());
            assert_eq!(dropped(task), Some((3, 3)), "task {at}");
            assert_eq!((task.attempt(), task.record().pid), (0, 0), "it never ran");
        }
        assert!(!running.is_done());
        let statistics = scene.engine.statistics().expect("this process");
        assert_eq!((statistics.queued, statistics.counters.dropped, statistics.counters.failed), (3, 3, 3));
        workers[0].answer(0, running.id);
        scene.tick();
        for _ in 0..3 {
            let id = workers[0].start(0).expect("those that are left");
            assert!(!tasks.iter().any(|task| task.id == id));
            workers[0].answer(0, id);
            scene.tick();
        }
        assert_eq!(workers[0].start(0), None);
    }

    #[test]
    fn the_lowest_priority_goes_first_and_a_newcomer_below_all_is_the_one() {
        let (scene, mut workers) = Scene::ready(full(3));
        let running = scene.task();
        assert_eq!(workers[0].start(0), Some(running.id));
        let [low, high, usual] = [-1, 5, 0].map(|priority| scene.submit(of(priority, None)));
        let lower = scene.submit(of(-2, None));
        assert_eq!(dropped(&lower), Some((3, 3)));
        let second = scene.submit(of(-1, None));
        assert!(dropped(&low).is_some() && !second.is_done(), "the older one of two equals");
        let third = scene.submit(of(0, None));
        assert!(dropped(&second).is_some() && !third.is_done());
        let fourth = scene.submit(of(0, None));
        assert!(dropped(&usual).is_some() && !fourth.is_done() && !high.is_done());
        let counters = scene.engine.statistics().expect("this process").counters;
        assert_eq!((counters.submitted, counters.dropped), (8, 4));
    }

    #[test]
    fn a_client_that_floods_loses_its_own() {
        let (scene, mut workers) = Scene::ready(full(4));
        let running = scene.task();
        assert_eq!(workers[0].start(0), Some(running.id));
        let polite = scene.submit(of(0, Some("polite")));
        let flood: Vec<_> = (0..40).map(|_| scene.submit(of(0, Some("flood")))).collect();
        assert!(!polite.is_done());
        assert_eq!(flood.iter().filter(|task| dropped(task).is_some()).count(), 37);
        assert!(flood[..37].iter().all(|task| task.is_done()), "its oldest");
        let statistics = scene.engine.statistics().expect("this process");
        let clients: Vec<_> = statistics.clients.iter().map(|(name, depth)| (&**name, *depth)).collect();
        assert_eq!(clients, [("flood", 3), ("polite", 1)]);
    }

    #[test]
    fn an_answer_that_is_there_makes_room_and_no_task_is_dropped() {
        let (scene, mut workers) = Scene::ready(full(1));
        let running = scene.task();
        assert_eq!(workers[0].start(0), Some(running.id));
        let waiting = scene.task();
        workers[0].answer(0, running.id);
        assert_eq!(workers[0].start(0), Some(waiting.id));
        // The pool has not read the answer, and counts the second one as waiting.
        let third = scene.task();
        assert!(!third.is_done() && !waiting.is_done() && running.is_done());
        // Nor one that is in the queue.
        let (scene, mut workers) = Scene::ready(full(2));
        let tasks = [scene.task(), scene.task(), scene.task()];
        assert_eq!(workers[0].start(0), Some(tasks[0].id));
        workers[0].answer(0, tasks[0].id);
        assert_eq!(workers[0].start(0), Some(tasks[1].id));
        let fourth = scene.task();
        assert!(!fourth.is_done() && !tasks[2].is_done() && tasks[0].is_done());
    }

    #[test]
    fn a_submission_that_waits_for_room_drops_none() {
        let (scene, mut workers) = Scene::ready(full(1));
        let running = scene.task();
        assert_eq!(workers[0].start(0), Some(running.id));
        let waiting = scene.task();
        let call = crate::task::Call::Local(ropewalk_sync::Mutex::new(None));
        let refused = scene.engine.submit_in_room(call, 0, Options::default(), true).expect_err("it is full");
        assert!(matches!(refused.1, crate::Refused::MustWait(1, 1)) && !waiting.is_done());
        assert!(scene.engine.room().is_some_and(|room| !room.is_done()));
    }
}
