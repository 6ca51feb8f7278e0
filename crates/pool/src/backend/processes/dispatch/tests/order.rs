//! Who goes first where tasks wait in lanes: by priority, by age, by client, and never after a deadline.

use super::*;
use crate::client::Client;
use crate::config::Config;
use crate::outcome::{Limit, Phase};
use crate::task::Rare;

fn of(client: &str) -> Options {
    let client = Some(Client { name: client.into(), share: 1 });
    Rare { client, ..Rare::default() }.into()
}

fn order(scene: &Scene, worker: &mut Actor) -> Vec<u64> {
    let mut order = Vec::new();
    while let Some(id) = worker.start(0) {
        order.push(id);
        worker.answer(0, id);
        scene.tick();
    }
    order
}

#[test]
fn an_aged_task_stays_in_its_lane_before_newer_ones_of_higher_priority() {
    let step = Duration::from_secs(1);
    for (aging, stays) in [(Some(step), true), (None, false)] {
        let (mut scene, mut workers) = Scene::ready(Config { aging, ..Scene::config(1, 1) });
        let running = scene.task();
        assert_eq!(workers[0].start(0), Some(running.id));
        let low = scene.submit(Options { priority: -2, ..Options::default() });
        assert_eq!(scene.engine.given_to(workers[0].id), [running.id, low.id]);
        // It has waited for so long that one two levels above it, which comes now, is behind it.
        scene.pass(step * 2 + MS);
        let high = scene.task();
        let in_lane = if stays { low.id } else { high.id };
        assert_eq!(scene.engine.given_to(workers[0].id), [running.id, in_lane]);
        // And one that is above it by more goes first.
        let higher = scene.submit(Options { priority: 1, ..Options::default() });
        assert_eq!(scene.engine.given_to(workers[0].id), [running.id, higher.id]);
        workers[0].answer(0, running.id);
        scene.tick();
        let expected = if stays { [higher.id, low.id, high.id] } else { [higher.id, high.id, low.id] };
        let came = order(&scene, &mut workers[0]);
        assert_eq!(came, expected);
    }
}

#[test]
fn the_first_task_of_a_client_does_not_wait_for_what_lanes_have_of_another() {
    let (mut scene, mut workers) = Scene::ready(Scene::config(1, 1));
    // Short enough for several in a lane, and long enough to be carried.
    learn(&mut scene, &mut workers, Duration::from_micros(50));
    let flood: Vec<_> = (0..20).map(|_| scene.submit(of("flood"))).collect();
    assert!(scene.engine.given_to(workers[0].id).len() > 4, "many of them lie in the lane");
    assert_eq!(workers[0].start(0), Some(flood[0].id));
    let polite = scene.submit(of("polite"));
    workers[0].answer(0, flood[0].id);
    scene.tick();
    let came = order(&scene, &mut workers[0]);
    let at = came.iter().position(|id| *id == polite.id).expect("it is run");
    assert!(at <= 1, "after one of the other at most, not {at}");
    let rest: Vec<_> = came.iter().copied().filter(|id| *id != polite.id).collect();
    assert_eq!(rest, flood[1..].iter().map(|task| task.id).collect::<Vec<_>>());
}

#[test]
fn a_task_whose_deadline_has_passed_is_not_sent_though_the_supervisor_has_not_looked() {
    let (mut scene, mut workers) = Scene::ready(Scene::config(1, 1));
    let limit = Duration::from_millis(10);
    let tasks: Vec<_> = (0..2).map(|_| scene.task()).collect();
    let late = scene.submit(Rare { deadline: Some(limit), ..Rare::default() }.into());
    assert_eq!(workers[0].start(0), Some(tasks[0].id));
    // Time passes, and only the answers are looked at.
    scene.now += limit;
    crate::clock::set(scene.now);
    workers[0].answer(0, tasks[0].id);
    scene.engine.catch_up();
    assert!(matches!(
        late.outcome(),
        Some(Outcome::Failed(Failure::TimedOut(Limit::Deadline, Phase::Queued)))
    ));
    assert_eq!((workers[0].start(0), late.attempt()), (Some(tasks[1].id), 0));
    workers[0].answer(0, tasks[1].id);
    scene.tick();
    assert_eq!(workers[0].start(0), None);
    let counters = scene.engine.statistics().expect("this process").counters;
    assert_eq!((counters.completed, counters.timed_out), (2, 1));
}

#[test]
fn the_oldest_waiting_task_is_found_in_lanes_and_in_the_queue() {
    let (mut scene, mut workers) = Scene::ready(Scene::config(1, 1));
    let oldest = |scene: &Scene| scene.engine.statistics().expect("this process").oldest;
    assert_eq!(oldest(&scene), None);
    let tasks: Vec<_> = (0..3)
        .map(|_| {
            scene.pass(MS);
            scene.task()
        })
        .collect();
    assert_eq!(workers[0].start(0), Some(tasks[0].id));
    assert_eq!(oldest(&scene), Some(MS), "the second waits in the lane");
    workers[0].answer(0, tasks[0].id);
    assert_eq!(workers[0].start(0), Some(tasks[1].id));
    scene.pass(MS);
    assert_eq!(oldest(&scene), Some(MS), "the third");
    workers[0].answer(0, tasks[1].id);
    assert_eq!(workers[0].start(0), Some(tasks[2].id));
    scene.tick();
    assert_eq!(oldest(&scene), None);
}
