//! Workers that are due, in a simulated pool without chance.

use super::*;
use crate::config::{Config, OnCrash};
use crate::lane::send_plain;
use crate::outcome::{Failure, Outcome};
use crate::simulation::scene::{Actor, Scene};
use crate::statistics::{Statistics, WorkerState};
use crate::task::Options;
use crate::wire::{flags, kind};

const MOMENT: Duration = Duration::from_millis(1);
const AGE: Duration = Duration::from_secs(60);

fn statistics(scene: &Scene) -> Statistics {
    scene.engine.statistics().expect("this process")
}

fn recycled(scene: &Scene, cause: Cause) -> u64 {
    statistics(scene).counters.recycled[cause as usize]
}

fn limited(workers: usize, threads: usize, life: Life) -> Config {
    Config { life, ..Scene::config(workers, threads) }
}

/// The stand-in that the pool has asked for.
fn stand_in(scene: &mut Scene) -> Actor {
    scene.tick();
    let mut asked = scene.asked();
    assert_eq!(asked.len(), 1, "one at a time");
    let worker = asked.pop_front().expect("one");
    scene.fork(&worker);
    worker
}

/// Whether the pool has sent a worker away.
fn is_leaving(scene: &Scene, worker: &Actor) -> bool {
    let workers = statistics(scene).workers;
    workers.iter().any(|it| it.pid == worker.pid() && it.state == WorkerState::Leaving)
}

/// Runs the next task of a worker.
fn run(scene: &Scene, worker: &mut Actor) -> Option<u64> {
    let task = worker.start(0)?;
    worker.answer(0, task);
    scene.tick();
    Some(task)
}

#[test]
fn a_worker_that_is_due_works_until_its_replacement_is_ready() {
    let (mut scene, mut workers) = Scene::ready(Scene::config(2, 1));
    let numbers: Vec<_> = statistics(&scene).workers.iter().map(|worker| worker.number).collect();
    assert_eq!(numbers, [1, 2]);
    assert_eq!(scene.engine.recycle(Which::Number(2)), 1);
    let mut other = stand_in(&mut scene);
    let tasks: Vec<_> = (0..4).map(|_| scene.task()).collect();
    let running: Vec<_> = workers.iter_mut().map(|worker| worker.start(0).expect("it works")).collect();
    assert_eq!(other.start(0), None, "it is not ready");
    assert_eq!(statistics(&scene).ready, 2);
    other.ready();
    scene.tick();
    assert_eq!((statistics(&scene).ready, scene.workers()), (2, 3));
    // What the old one had not started is run by the new one.
    assert!(run(&scene, &mut other).is_some());
    for (worker, task) in workers.iter_mut().zip(running) {
        worker.answer(0, task);
    }
    scene.tick();
    assert!(workers[1].is_dismissed(0));
    assert_eq!(recycled(&scene, Cause::Asked), 0, "it is not gone");
    scene.die(workers.remove(1), 0);
    assert_eq!((recycled(&scene, Cause::Asked), statistics(&scene).ready, scene.workers()), (1, 2, 2));
    while run(&scene, &mut workers[0]).is_some() || run(&scene, &mut other).is_some() {}
    assert!(tasks.iter().all(|task| task.is_done() && task.attempt() == 1));
    let counters = statistics(&scene).counters;
    assert_eq!((counters.crashed, counters.restarted), (0, 1));
    assert!(scene.asked().is_empty());
}

#[test]
fn no_more_workers_are_replaced_than_have_gone() {
    let (mut scene, mut workers) = Scene::ready(Scene::config(1, 1));
    let held = scene.task();
    assert_eq!(workers[0].start(0), Some(held.id));
    scene.engine.recycle(Which::All);
    let mut other = stand_in(&mut scene);
    other.ready();
    scene.tick();
    let next = scene.task();
    assert_eq!(other.start(0), Some(next.id));
    scene.engine.recycle(Which::All);
    scene.tick();
    assert!(scene.asked().is_empty(), "two tasks run at once in a pool of one, and no third");
    workers[0].answer(0, held.id);
    scene.tick();
    scene.die(workers.remove(0), 0);
    let _ = stand_in(&mut scene);
}

#[test]
fn all_are_replaced_one_after_the_other() {
    let (mut scene, mut workers) = Scene::ready(Scene::config(3, 2));
    assert_eq!(scene.engine.recycle(Which::All), 3);
    for left in (0..3).rev() {
        let mut other = stand_in(&mut scene);
        other.ready();
        scene.tick();
        assert_eq!(statistics(&scene).ready, 3);
        let leaves = workers.iter_mut().position(|worker| worker.is_dismissed(0)).expect("one");
        let gone = workers.remove(leaves);
        scene.die(gone, 0);
        assert_eq!(workers.len(), left);
    }
    scene.tick();
    assert!(scene.asked().is_empty());
    assert_eq!((recycled(&scene, Cause::Asked), scene.workers()), (3, 3));
    assert_eq!(scene.engine.recycle(Which::Number(1)), 0, "it is gone");
    let pid = statistics(&scene).workers[0].pid;
    assert_eq!(scene.engine.recycle(Which::Process(pid)), 1);
}

#[test]
fn a_worker_is_due_by_its_age() {
    let life = Life { max_age: Some(AGE), ..Life::default() };
    let (mut scene, workers) = Scene::ready(limited(1, 1, life));
    let next = scene.tick().expect("a time");
    assert!(next <= scene.now + AGE);
    scene.pass(AGE - MOMENT);
    assert!(scene.asked().is_empty());
    scene.pass(MOMENT);
    let mut other = stand_in(&mut scene);
    other.ready();
    scene.tick();
    for old in workers {
        scene.die(old, 0);
    }
    assert_eq!(recycled(&scene, Cause::MaxAge), 1);
    // The age of the new one counts from the moment at which it was ready.
    scene.pass(AGE - MOMENT);
    assert!(scene.asked().is_empty());
    scene.pass(MOMENT);
    assert_eq!(scene.asked().len(), 1);
}

#[test]
fn a_worker_is_never_given_more_tasks_than_its_limit() {
    for limit in 1..6 {
        let life = Life { max_tasks: Some(limit), ..Life::default() };
        let (mut scene, mut workers) = Scene::ready(limited(1, 1, life));
        let tasks: Vec<_> = (0..20).map(|_| scene.task()).collect();
        let mut ran = 0;
        while tasks.iter().any(|task| !task.is_done()) {
            let Some(worker) = workers.first_mut() else { panic!("no worker is left") };
            let mut own = 0;
            while run(&scene, worker).is_some() {
                own += 1;
            }
            ran += own;
            assert!(own <= limit, "{own} of {limit}");
            scene.tick();
            let mut asked = scene.asked();
            for other in &mut asked {
                scene.fork(other);
                other.ready();
            }
            scene.tick();
            workers.extend(asked);
            assert!(is_leaving(&scene, &workers[0]) || own < limit, "it is spent after {own} of {limit}");
            if own == limit {
                scene.die(workers.remove(0), 0);
            }
        }
        assert_eq!(ran, 20);
        assert_eq!(recycled(&scene, Cause::MaxTasks), 20 / limit);
        assert_eq!(statistics(&scene).counters.crashed, 0);
    }
}

#[test]
fn a_limit_of_one_task_makes_no_worker_for_each_task_that_waits() {
    for (workers, threads) in [(1, 1), (3, 1), (2, 2)] {
        let life = Life { max_tasks: Some(1), ..Life::default() };
        let mut scene = Scene::new(limited(workers, threads, life));
        let tasks: Vec<_> = (0..20).map(|_| scene.task()).collect();
        let mut there: Vec<Actor> = Vec::new();
        for _ in 0..100 {
            scene.tick();
            for mut worker in scene.asked() {
                scene.fork(&worker);
                worker.ready();
                there.push(worker);
            }
            scene.tick();
            assert!(there.len() <= 2 * workers, "{} workers in a pool of {workers}", there.len());
            let mut at = 0;
            // One of them ends its task and leaves.
            while at < there.len() {
                if let Some(task) = there[at].start(0) {
                    there[at].answer(0, task);
                    scene.tick();
                    scene.die(there.remove(at), 0);
                    break;
                }
                at += 1;
            }
        }
        assert!(tasks.iter().all(|task| task.is_done()), "{workers} workers");
    }
}

#[test]
fn a_lone_worker_has_all_of_its_tasks_while_the_stand_in_waits() {
    let life = Life { max_tasks: Some(3), ..Life::default() };
    let (mut scene, mut workers) = Scene::ready(limited(1, 1, life));
    for _ in 0..2 {
        assert!(scene.asked().is_empty());
        let task = scene.task();
        assert_eq!(run(&scene, &mut workers[0]), Some(task.id));
    }
    let mut other = stand_in(&mut scene);
    other.ready();
    scene.tick();
    let states: Vec<_> = statistics(&scene).workers.iter().map(|worker| worker.state).collect();
    assert_eq!(states, [WorkerState::Idle, WorkerState::Standby]);
    let task = scene.task();
    assert_eq!((other.start(0), run(&scene, &mut workers[0])), (None, Some(task.id)));
    assert!(is_leaving(&scene, &workers[0]));
    assert_eq!(statistics(&scene).ready, 1, "the stand-in has its place");
    let task = scene.task();
    assert_eq!(run(&scene, &mut other), Some(task.id));
}

/// A lone worker that is due for its tasks, beside its stand-in.
fn nearly_spent(life: Life) -> (Scene, Actor, Actor) {
    let (mut scene, mut workers) = Scene::ready(limited(1, 1, Life { max_tasks: Some(3), ..life }));
    for _ in 0..2 {
        scene.task();
        assert!(run(&scene, &mut workers[0]).is_some());
    }
    let mut other = stand_in(&mut scene);
    other.ready();
    scene.tick();
    let worker = workers.remove(0);
    assert!(!is_leaving(&scene, &worker));
    (scene, worker, other)
}

#[test]
fn a_worker_that_is_due_for_its_tasks_is_replaced_when_its_age_or_the_program_asks() {
    let (mut scene, worker, _other) = nearly_spent(Life { max_age: Some(AGE), ..Life::default() });
    scene.pass(AGE);
    assert!(is_leaving(&scene, &worker));
    scene.die(worker, 0);
    assert_eq!((recycled(&scene, Cause::MaxAge), statistics(&scene).ready), (1, 1));

    let (scene, worker, _other) = nearly_spent(Life::default());
    assert_eq!(scene.engine.recycle(Which::Process(worker.pid())), 1);
    scene.tick();
    assert!(is_leaving(&scene, &worker));
    scene.die(worker, 0);
    assert_eq!((recycled(&scene, Cause::Asked), statistics(&scene).ready), (1, 1));
}

#[test]
fn of_several_that_are_due_for_their_tasks_one_is_retired_early() {
    let life = Life { max_tasks: Some(4), ..Life::default() };
    let (mut scene, mut workers) = Scene::ready(limited(2, 1, life));
    for _ in 0..3 {
        assert!(scene.asked().is_empty());
        let tasks = [scene.task(), scene.task()];
        for worker in &mut workers {
            assert!(run(&scene, worker).is_some());
        }
        assert!(tasks.iter().all(|task| task.is_done()));
    }
    let mut other = stand_in(&mut scene);
    other.ready();
    scene.tick();
    let leaving = workers.iter().filter(|worker| is_leaving(&scene, worker)).count();
    assert_eq!((leaving, statistics(&scene).ready), (1, 2));
}

#[test]
fn a_pool_at_rest_replaces_no_worker_for_its_tasks() {
    for limit in 1..4 {
        let life = Life { max_tasks: Some(limit), ..Life::default() };
        let (mut scene, _workers) = Scene::ready(limited(3, 1, life));
        for round in 0..5 {
            for mut other in scene.asked() {
                assert_eq!((round, limit), (0, 1), "one is there ahead");
                scene.fork(&other);
                other.ready();
            }
            scene.pass(PATIENCE);
        }
        let states = statistics(&scene).workers.into_iter().map(|worker| worker.state);
        assert!(states.clone().all(|state| matches!(state, WorkerState::Idle | WorkerState::Standby)));
        assert_eq!(states.len(), if limit == 1 { 4 } else { 3 });
    }
}

#[test]
fn a_limit_of_tasks_counts_those_of_all_threads() {
    let life = Life { max_tasks: Some(3), ..Life::default() };
    let (scene, mut workers) = Scene::ready(limited(1, 2, life));
    let tasks: Vec<_> = (0..5).map(|_| scene.task()).collect();
    let mut started = Vec::new();
    for lane in [0, 1, 0, 1] {
        if let Some(task) = workers[0].start(lane) {
            workers[0].answer(lane, task);
            scene.tick();
            started.push(task);
        }
    }
    assert_eq!(started.len(), 3);
    assert!(is_leaving(&scene, &workers[0]));
    assert_eq!(tasks.iter().filter(|task| task.is_done()).count(), 3);
}

#[test]
fn a_stand_in_that_dies_costs_nothing_and_another_is_asked_for_after_a_while() {
    let (mut scene, mut workers) = Scene::ready(Scene::config(1, 1));
    scene.engine.recycle(Which::All);
    for round in 0..20 {
        let other = stand_in(&mut scene);
        scene.die(other, 9);
        scene.tick();
        assert!(scene.asked().is_empty(), "not at once");
        let told = scene.engine.shortage().expect("a reason");
        assert!(told.contains("goes on") && told.contains("it died"), "{told}");
        let task = scene.task();
        assert_eq!(run(&scene, &mut workers[0]), Some(task.id), "the old one goes on, in round {round}");
        scene.pass(PATIENCE);
    }
    assert!(scene.engine.broken().is_none());
    let mut other = stand_in(&mut scene);
    other.ready();
    scene.tick();
    assert!(scene.engine.shortage().is_none() && workers[0].is_dismissed(0));
}

#[test]
fn a_stand_in_that_cannot_be_had_or_is_not_fit_is_told_of() {
    let (mut scene, mut workers) = Scene::ready(Scene::config(1, 1));
    scene.engine.recycle(Which::All);
    scene.tick();
    let refused = scene.asked().pop_front().expect("one");
    scene.engine.worker_failed(refused.id, "there are too many");
    assert!(scene.engine.shortage().is_some_and(|told| told.contains("there are too many")));
    scene.pass(PATIENCE);
    let mut unfit = stand_in(&mut scene);
    unfit.write(0, kind::UNFIT, 0, 0, 0, b"its probe failed: it has no model");
    scene.tick();
    assert!(scene.has_killed(&unfit));
    scene.die(unfit, 9);
    let told = scene.engine.shortage().expect("told");
    assert!(told.contains("its probe failed: it has no model"), "{told}");
    scene.pass(PATIENCE);
    let mut uninitialized = stand_in(&mut scene);
    uninitialized.write(0, kind::INIT_FAILED, flags::ERROR, 0, 0, b"error");
    scene.tick();
    scene.die(uninitialized, 1);
    assert!(scene.engine.broken().is_none(), "the others are sound");
    let task = scene.task();
    assert_eq!(run(&scene, &mut workers[0]), Some(task.id));
}

#[test]
fn a_worker_that_is_not_fit_counts_as_one_that_did_not_start() {
    let mut scene = Scene::new(Scene::config(1, 1));
    let mut rounds = 0;
    while scene.engine.broken().is_none() {
        rounds += 1;
        assert!(rounds < 100, "it gives up some time");
        let Some(mut worker) = scene.asked().pop_front() else {
            scene.pass(PATIENCE);
            continue;
        };
        scene.fork(&worker);
        worker.write(0, kind::UNFIT, 0, 0, 0, b"its warmup raised ValueError: no");
        scene.tick();
        scene.die(worker, 1);
    }
    let broken = scene.engine.broken();
    assert!(matches!(
        broken,
        Some(Failure::Crashed { starting: true, reason: Some(why), .. }) if why.contains("ValueError: no")
    ));
}

#[test]
fn a_worker_that_is_due_and_dies_is_replaced_by_the_one_under_way() {
    for ready in [false, true] {
        let life = Life { max_tasks: Some(2), ..Life::default() };
        let (mut scene, mut workers) = Scene::ready(limited(1, 1, life));
        let lost = scene.task();
        let mut other = stand_in(&mut scene);
        if ready {
            other.ready();
            scene.tick();
        }
        assert_eq!(workers[0].start(0), Some(lost.id));
        scene.die(workers.remove(0), 9);
        scene.tick();
        assert!(scene.asked().is_empty(), "there is one");
        if !ready {
            other.ready();
            scene.tick();
        }
        assert!(matches!(lost.outcome(), Some(Outcome::Failed(Failure::Crashed { .. }))));
        let task = scene.task();
        assert_eq!(run(&scene, &mut other), Some(task.id));
        let counters = statistics(&scene).counters;
        assert_eq!((counters.crashed, counters.recycled), (1, [0; Cause::ALL.len()]));
    }
}

#[test]
fn a_worker_that_dies_while_it_leaves_has_crashed_with_what_it_ran() {
    let (mut scene, mut workers) = Scene::ready(Scene::config(1, 1));
    let tasks = [scene.task(), scene.submit(Options { retries: 1, ..Options::default() })];
    assert_eq!(workers[0].start(0), Some(tasks[0].id));
    scene.engine.recycle(Which::All);
    let mut other = stand_in(&mut scene);
    other.ready();
    scene.tick();
    scene.die(workers.remove(0), 11);
    assert!(matches!(tasks[0].outcome(), Some(Outcome::Failed(Failure::Crashed { .. }))));
    assert_eq!(run(&scene, &mut other), Some(tasks[1].id));
    assert_eq!((statistics(&scene).counters.crashed, recycled(&scene, Cause::Asked)), (1, 1));
}

#[test]
fn a_task_that_is_cancelled_in_a_worker_that_leaves_ends_with_it() {
    let (mut scene, mut workers) = Scene::ready(Scene::config(1, 1));
    let task = scene.task();
    assert_eq!(workers[0].start(0), Some(task.id));
    scene.engine.recycle(Which::All);
    let mut other = stand_in(&mut scene);
    other.ready();
    scene.tick();
    assert!(scene.engine.cancel(&task, true) && scene.has_killed(&workers[0]));
    scene.die(workers.remove(0), 9);
    let counters = statistics(&scene).counters;
    assert_eq!((counters.crashed, counters.recycled.iter().sum::<u64>()), (0, 1), "once");
    assert!(scene.asked().is_empty());
}

#[test]
fn the_message_to_leave_waits_for_room() {
    let (mut scene, mut workers) = Scene::ready(Scene::config(1, 1));
    scene.engine.recycle(Which::All);
    let mut other = stand_in(&mut scene);
    let fill = || {
        let mut state = scene.engine.lock();
        let lane = state.members.lanes.iter_mut().flatten().next().expect("the first worker's");
        while send_plain(&mut lane.tasks, kind::LOOK, 0) {}
    };
    fill();
    other.ready();
    scene.tick();
    assert!(is_leaving(&scene, &workers[0]));
    while let Some(record) = workers[0].take(0) {
        assert_eq!(record.kind, kind::LOOK);
    }
    scene.tick();
    assert!(workers[0].is_dismissed(0), "there was room by then");
}

#[test]
fn stand_ins_that_do_not_start_never_break_a_pool() {
    let config = Config { on_crash: OnCrash::Break, ..Scene::config(1, 1) };
    let (mut scene, _workers) = Scene::ready(config);
    scene.engine.recycle(Which::All);
    for _ in 0..30 {
        let other = stand_in(&mut scene);
        scene.die(other, 9);
        scene.pass(PATIENCE);
    }
    assert!(scene.engine.broken().is_none());
    assert_eq!(scene.engine.lock().members.failed_starts, 0);
}

#[test]
fn a_stand_in_that_is_not_needed_any_more_leaves() {
    let (mut scene, workers) = Scene::ready(Scene::config(2, 1));
    scene.engine.recycle(Which::Number(1));
    let mut other = stand_in(&mut scene);
    // The smaller pool does without the one that is due.
    scene.engine.resize(1);
    other.ready();
    scene.tick();
    assert!(other.is_dismissed(0));
    scene.die(other, 0);
    for (worker, number) in workers.into_iter().zip([1, 2]) {
        if number == 1 {
            scene.die(worker, 0);
        }
    }
    assert_eq!((scene.workers(), statistics(&scene).ready), (1, 1));
    assert_eq!(recycled(&scene, Cause::Shrunk), 1);
}

#[test]
fn a_pool_that_closes_replaces_none_for_its_age_and_ends() {
    let (mut scene, mut workers) = Scene::ready(Scene::config(1, 1));
    let task = scene.task();
    scene.engine.recycle(Which::All);
    let mut other = stand_in(&mut scene);
    scene.engine.close(false);
    other.ready();
    assert_eq!(run(&scene, &mut workers[0]), Some(task.id));
    assert!(workers[0].is_dismissed(0) && other.is_dismissed(0));
    scene.die(workers.remove(0), 0);
    scene.die(other, 0);
    assert!(scene.engine.has_ended());
    assert_eq!(statistics(&scene).counters.recycled, [0; Cause::ALL.len()]);
}

#[test]
fn a_pool_that_closes_asks_for_no_stand_in() {
    let (mut scene, mut workers) = Scene::ready(Scene::config(1, 1));
    let task = scene.task();
    assert_eq!(workers[0].start(0), Some(task.id));
    scene.engine.recycle(Which::All);
    scene.engine.close(false);
    scene.tick();
    assert!(scene.asked().is_empty());
}

#[test]
fn each_worker_draws_its_own_limits_below_those_of_the_pool() {
    let life = Life {
        max_tasks: Some(1000),
        max_age: Some(AGE),
        max_memory: Some(1 << 30),
        jitter: 0.1,
        ..Life::default()
    };
    let (least, most) = (Lifespan::draw(&life, 1.0), Lifespan::draw(&life, 0.0));
    assert_eq!((least.tasks, most.tasks), (900, 1000));
    assert_eq!((least.age, most.age), (Some(AGE.mul_f64(0.9)), Some(AGE)));
    assert!(least.memory < most.memory && most.memory == Some(1 << 30));
    assert_eq!(Lifespan::draw(&Life { max_tasks: Some(1), jitter: 1.0, ..Life::default() }, 1.0).tasks, 1);
    assert_eq!(Lifespan::draw(&Life::default(), 0.5).tasks, u64::MAX);
    let drawn: Vec<_> = (0..50).map(|number| Tenure::new(number, false, &life).limits.tasks).collect();
    assert!(drawn.iter().all(|tasks| (900..=1000).contains(tasks)));
    assert!(drawn.iter().any(|tasks| tasks != &drawn[0]), "they differ");
}

#[test]
fn the_longer_starts_take_the_earlier_a_stand_in_is_asked_for() {
    let ahead = |start: Duration, workers| {
        let life = Life { max_tasks: Some(1_000_000), ..Life::default() };
        let (scene, _workers) = Scene::ready(limited(workers, 1, life));
        let mut state = scene.engine.lock();
        state.members.starts = StartTimes::default();
        state.members.starts.learn(start);
        state.members.task_lengths = super::super::TaskLengths::default();
        state.members.task_lengths.learn(1_000_000);
        scene.engine.look_ahead(&state)
    };
    assert_eq!(ahead(Duration::from_millis(2), 1), 3 + 2);
    assert_eq!(ahead(Duration::from_millis(20), 1), 30 + 2);
    assert_eq!(ahead(Duration::from_millis(2), 4), 12 + 2);
}

#[test]
fn a_replaced_worker_that_does_not_leave_is_ended() {
    let life = Life { max_tasks: Some(1), ..Life::default() };
    let (mut scene, mut workers) = Scene::ready(limited(1, 1, life));
    let task = scene.submit(Options::default());
    let mut stuck = workers.pop().expect("one");
    let running = stuck.start(0).expect("the first");
    scene.tick();
    assert!(is_leaving(&scene, &stuck));
    // While it runs its task, it has all the time that it wants.
    for _ in 0..3 {
        scene.pass(LEAVE_PATIENCE);
        scene.tick();
    }
    assert!(!scene.has_killed(&stuck));
    stuck.answer(0, running);
    let look = scene.tick().expect("the pool looks again");
    assert!(task.is_done() && look <= clock::now() + LEAVE_PATIENCE);
    scene.pass(LEAVE_PATIENCE);
    scene.tick();
    assert!(scene.has_killed(&stuck), "its exit handlers do not end");
    scene.die(stuck, 9);
    assert_eq!(recycled(&scene, Cause::MaxTasks), 1, "it did not crash");
}
