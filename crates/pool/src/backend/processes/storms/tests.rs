//! Deaths of workers one after the other, in a simulated pool without chance.

use super::*;
use crate::config::{Config, Health};
use crate::outcome::Outcome;
use crate::pool::Lifecycle;
use crate::simulation::scene::{Actor, Scene};
use crate::task::Options;

const MS: Duration = Duration::from_millis(1);

fn health(poison_after: Option<u32>, max_restarts: Option<(u32, Duration)>) -> Config {
    Config { health: Health { poison_after, max_restarts }, ..Scene::config(1, 1) }
}

/// The worker that the pool asks for next, ready.
fn next(scene: &mut Scene) -> Option<Actor> {
    let mut asked = scene.asked();
    assert!(asked.len() <= 1);
    let mut worker = asked.pop_front()?;
    scene.fork(&worker);
    worker.ready();
    scene.tick();
    Some(worker)
}

#[test]
fn a_task_that_kills_its_workers_is_poison_however_often_it_may_be_run() {
    for (poison_after, retries, runs) in [(Some(3), 9, 3), (Some(1), 9, 1), (Some(3), 1, 2), (None, 4, 5)] {
        let mut scene = Scene::new(health(poison_after, None));
        let task = scene.submit(Options { retries, ..Options::default() });
        let mut pids = Vec::new();
        while !task.is_done() {
            let mut worker = next(&mut scene).expect("another one");
            assert_eq!(worker.start(0), Some(task.id));
            pids.push(worker.pid());
            scene.die(worker, 11);
            scene.pass(LONGEST_DELAY);
        }
        assert_eq!((task.attempt(), pids.len()), (runs, runs as usize));
        let quarantine = scene.engine.quarantine();
        let counters = scene.engine.statistics().expect("this process").counters;
        assert_eq!((counters.failed, counters.retried), (1, u64::from(runs) - 1));
        if poison_after == Some(runs) {
            let Some(Outcome::Failed(Failure::Poisoned { deaths, .. })) = task.outcome() else {
                panic!("{:?}", task.outcome());
            };
            let died: Vec<_> = deaths.iter().map(|death| (death.pid, death.status, death.hung)).collect();
            let expected: Vec<_> = pids.iter().map(|pid| (*pid, Some(11), false)).collect();
            assert_eq!(died, expected);
            assert_eq!((quarantine.len(), counters.poisoned), (1, 1));
            assert_eq!((quarantine[0].task, quarantine[0].attempt), (task.id, runs));
            let call = quarantine[0].call.as_ref().expect("a call");
            assert_eq!(call.function.as_deref(), Some("f"));
            assert_eq!(call.arguments.as_deref(), Some(&b"arguments"[..]));
        } else {
            assert!(matches!(task.outcome(), Some(Outcome::Failed(Failure::Crashed { .. }))));
            assert!(quarantine.is_empty() && counters.poisoned == 0);
        }
    }
}

#[test]
fn a_death_that_was_not_its_fault_is_not_held_against_a_task() {
    let mut scene = Scene::new(Config { grace: Duration::ZERO, ..health(Some(1), None) });
    let config = Config { threads: 2, ..scene.engine.config.clone() };
    scene = Scene::new(config);
    let mut worker = next(&mut scene).expect("one");
    let tasks = [scene.task(), scene.submit(Options { retries: 2, ..Options::default() })];
    assert!((0..2).all(|lane| worker.start(lane).is_some()));
    assert!(scene.engine.cancel(&tasks[0], true));
    scene.die(worker, 9);
    assert!(!tasks[1].is_done() && tasks[1].deaths() == 0);
}

#[test]
fn more_deaths_than_allowed_break_the_pool_with_the_last_of_them() {
    const WITHIN: Duration = Duration::from_secs(2);
    for spread in [false, true] {
        let mut scene = Scene::new(health(None, Some((2, WITHIN))));
        let waiting = scene.task();
        let mut died = 0;
        while scene.engine.broken().is_none() && died < 12 {
            let worker = next(&mut scene).expect("another one");
            let pid = worker.pid();
            scene.die(worker, 9);
            died += 1;
            if let Some(Failure::Unhealthy { most, within, last }) = scene.engine.broken() {
                assert_eq!((most, within), (2, WITHIN));
                assert!(matches!(&*last, Failure::Crashed { pid: last, .. } if *last == pid));
            }
            scene.pass(if spread { WITHIN } else { MS });
        }
        if spread {
            assert!(died == 12 && !waiting.is_done(), "each is forgotten in time");
        } else {
            assert_eq!(died, 3);
            assert!(matches!(waiting.outcome(), Some(Outcome::Failed(Failure::Unhealthy { .. }))));
        }
    }
}

#[test]
fn what_the_pool_ends_itself_counts_as_no_death() {
    let mut scene = Scene::new(health(None, Some((0, Duration::from_secs(60)))));
    let mut worker = next(&mut scene).expect("one");
    for _ in 0..9 {
        let task = scene.task();
        assert_eq!(worker.start(0), Some(task.id));
        assert!(scene.engine.cancel(&task, true));
        scene.die(worker, 9);
        worker = next(&mut scene).expect("at once");
    }
    assert!(scene.engine.broken().is_none() && scene.engine.shortage().is_none());
    scene.die(worker, 9);
    assert!(matches!(scene.engine.broken(), Some(Failure::Unhealthy { most: 0, .. })));
}

#[test]
fn after_a_storm_workers_are_started_later_and_later_until_one_works() {
    let mut scene = Scene::new(health(None, None));
    // A few are replaced at once.
    for _ in 0..=UNDELAYED {
        let worker = next(&mut scene).expect("at once");
        scene.die(worker, 9);
        scene.pass(MS);
    }
    let mut delays = Vec::new();
    for _ in 0..12 {
        assert!(scene.asked().is_empty());
        let reason = scene.engine.shortage().expect("it says why");
        assert!(reason.contains("in a row, the last one (") && reason.contains(") by signal 9"), "{reason}");
        let begin = scene.now;
        let mut worker = loop {
            let at = scene.tick().expect("a time to look");
            assert!(at > scene.now && at <= scene.now + LONGEST_DELAY);
            scene.pass(at - scene.now);
            if let Some(worker) = next(&mut scene) {
                break worker;
            }
        };
        delays.push(scene.now - begin);
        assert!(scene.engine.shortage().is_none());
        let task = scene.task();
        assert_eq!(worker.start(0), Some(task.id));
        scene.die(worker, 9);
    }
    assert!(delays.is_sorted(), "{delays:?}");
    assert!(delays[0] <= FIRST_DELAY && delays[1] > FIRST_DELAY, "{delays:?}");
    assert!(delays[11] <= LONGEST_DELAY && delays[11] > LONGEST_DELAY / 2, "{delays:?}");
    // One that answers its first task shows that the storm is over.
    scene.pass(LONGEST_DELAY);
    let mut worker = next(&mut scene).expect("the next");
    let task = scene.task();
    assert_eq!(worker.start(0), Some(task.id));
    worker.answer(0, task.id);
    scene.tick();
    scene.die(worker, 9);
    assert!(next(&mut scene).is_some(), "at once");
}

#[test]
fn deaths_that_are_far_apart_are_no_storm() {
    let mut scene = Scene::new(health(None, None));
    for _ in 0..20 {
        let worker = next(&mut scene).expect("at once");
        scene.die(worker, 9);
        scene.pass(APART + MS);
    }
    assert!(scene.engine.shortage().is_none());
}

#[test]
fn a_delay_keeps_nothing_of_a_pool_that_ends() {
    for ends in [true, false] {
        let mut scene = Scene::new(health(None, None));
        for _ in 0..=UNDELAYED {
            let worker = next(&mut scene).expect("at once");
            scene.die(worker, 9);
        }
        let task = scene.task();
        assert!(scene.asked().is_empty() && scene.engine.shortage().is_some());
        if ends {
            scene.engine.end(Duration::ZERO);
            assert!(matches!(task.outcome(), Some(Outcome::Cancelled)) && scene.engine.has_ended());
        } else {
            // What waits is run, when it is time.
            scene.engine.close(false);
            assert!(matches!(scene.engine.lock().lifecycle, Lifecycle::Closing));
            scene.pass(LONGEST_DELAY);
            let mut worker = next(&mut scene).expect("one");
            assert_eq!(worker.start(0), Some(task.id));
            worker.answer(0, task.id);
            scene.tick();
            assert!(matches!(task.outcome(), Some(Outcome::Replied(_))));
        }
    }
}
