//! How tasks are handed out, and which answers are accepted, in a simulated pool without chance.

use ropewalk_shm::memory::{Arena, ArenaConfig};

use super::*;
use crate::payload::{Beside, Payload};
use crate::simulation::scene::{Actor, Scene};
use crate::task::{Call, Options, Rare};

mod order;

#[test]
fn a_lane_holds_as_much_as_outlasts_a_look() {
    let limit = |average_ns| TaskLengths { average_ns }.lane_limit();
    assert_eq!(limit(0), 2, "before the first answer");
    assert_eq!(limit(1), MOST_IN_LANE);
    assert_eq!(limit(COVER_NS / 31), MOST_IN_LANE);
    assert_eq!(limit(COVER_NS / 10), 11);
    assert_eq!(limit(COVER_NS), 2);
    assert_eq!(limit(COVER_NS * 1000), 2);
}

#[test]
fn the_average_follows_the_answers() {
    let mut load = TaskLengths::default();
    load.learn(0);
    assert_eq!(load.average_ns, 1, "there has been an answer");
    let mut load = TaskLengths::default();
    load.learn(800);
    assert_eq!(load.average_ns, 800);
    load.learn(1600);
    assert_eq!(load.average_ns, 900);
    load.learn(u64::MAX);
    assert_eq!(load.average_ns, u64::MAX / 8, "no overflow");
}

#[test]
fn only_tasks_that_take_a_while_are_carried() {
    let worth = |average_ns| TaskLengths { average_ns }.worth_stealing();
    assert!(worth(0) && worth(STEAL_ABOVE_NS + 1));
    assert!(!worth(1) && !worth(STEAL_ABOVE_NS));
}

// --- handing out ----------------------------------------------------------------------------------------------------

const MS: Duration = Duration::from_millis(1);

fn is_replied(task: &Task) -> bool {
    matches!(task.outcome(), Some(Outcome::Replied(_)))
}

/// Runs one task in each worker that takes so long, so that the pool knows how long tasks take.
fn learn(scene: &mut Scene, workers: &mut [Actor], takes: Duration) {
    let tasks: Vec<_> = workers.iter().map(|_| scene.task()).collect();
    let started: Vec<_> = workers.iter_mut().map(|worker| worker.start(0).expect("each has one")).collect();
    scene.pass(takes);
    for (worker, task) in workers.iter_mut().zip(started) {
        worker.say(0, kind::DONE, 0, task, u64::try_from(takes.as_nanos()).expect("short"));
    }
    scene.tick();
    assert!(tasks.iter().all(|task| is_replied(task)));
}

#[test]
fn every_lane_is_given_as_much_as_it_may_hold() {
    let (mut scene, mut workers) = Scene::ready(Scene::config(3, 1));
    let tasks: Vec<_> = (0..7).map(|_| scene.task()).collect();
    let held = |scene: &Scene| {
        let state = scene.engine.lock();
        let mut held: Vec<_> =
            state.members.lanes.iter().flatten().map(|lane| lane.outstanding.len()).collect();
        held.sort_unstable();
        (held, state.queue.len())
    };
    assert_eq!(held(&scene), (vec![2, 2, 2], 1), "nothing is known of tasks yet");
    while !tasks.iter().all(|task| task.is_done()) {
        for worker in &mut workers {
            if let Some(task) = worker.start(0) {
                worker.answer(0, task);
            }
        }
        scene.tick();
    }
    // Ten that take 40 µs cover the time to the next look, and the one that runs.
    for _ in 0..50 {
        learn(&mut scene, &mut workers, Duration::from_micros(40));
    }
    let _tasks: Vec<_> = (0..40).map(|_| scene.task()).collect();
    assert_eq!(held(&scene), (vec![11, 11, 11], 7));
}

#[test]
fn the_worker_that_worked_last_is_given_the_next() {
    let (mut scene, mut workers) = Scene::ready(Scene::config(3, 1));
    learn(&mut scene, &mut workers, MS);
    for last in [1, 0, 2, 2, 0] {
        let tasks: Vec<_> = (0..3).map(|_| scene.task()).collect();
        let started: Vec<_> = workers.iter_mut().map(|worker| worker.start(0).expect("busy")).collect();
        for at in (0..3).filter(|at| *at != last).chain([last]) {
            workers[at].answer(0, started[at]);
            scene.tick();
        }
        assert!(tasks.iter().all(|task| is_replied(task)));
        let next = scene.task();
        assert_eq!(workers[last].start(0), Some(next.id));
        workers[last].answer(0, next.id);
        scene.tick();
    }
}

#[test]
fn what_waits_behind_a_long_task_is_carried_over() {
    for (takes, at_once) in [(MS, true), (Duration::from_micros(10), false)] {
        let (mut scene, mut workers) = Scene::ready(Scene::config(2, 1));
        learn(&mut scene, &mut workers, takes);
        let tasks: Vec<_> = (0..4).map(|_| scene.task()).collect();
        let first = workers[0].start(0).expect("busy");
        for _ in 0..2 {
            let id = workers[1].start(0).expect("two in each");
            workers[1].answer(0, id);
        }
        scene.tick();
        let next = workers[1].start(0);
        assert_eq!(next.is_some(), at_once, "tasks take {takes:?}");
        scene.pass(STEAL_AFTER + MS);
        let next = next.or_else(|| workers[1].start(0)).expect("it has waited for long enough");
        let next = tasks.iter().find(|task| task.id == next).expect("one of them");
        assert!(next.id != first && !next.is_done());
        workers[1].answer(0, next.id);
        scene.tick();
        assert!(is_replied(next) && next.attempt() == 1);
        // The one that has started stays where it is.
        assert_eq!((workers[0].start(0), workers[1].start(0)), (None, None));
        workers[0].answer(0, first);
        scene.tick();
        assert!(tasks.iter().all(|task| is_replied(task)));
    }
}

/// Carries nothing else than what waits in the lane of this worker.
fn carries_from(scene: &Scene, from: &Actor, to: &mut Actor) {
    let last = scene.engine.given_to(from.id).last().copied().expect("something waits");
    for id in std::iter::from_fn(|| to.start(0)).collect::<Vec<_>>() {
        to.answer(0, id);
    }
    scene.tick();
    assert_eq!(to.start(0), Some(last));
    assert!(!scene.engine.given_to(from.id).contains(&last));
}

#[test]
fn a_worker_that_is_still_starting_keeps_no_task_from_one_that_rests() {
    let mut scene = Scene::new(Scene::config(2, 1));
    let mut workers: Vec<Actor> = scene.asked().into();
    for worker in &workers {
        scene.fork(worker);
    }
    workers[0].ready();
    scene.tick();
    for _ in 0..3 {
        // There are two of each, so one is given ahead to the worker that is not ready.
        let tasks = [scene.task(), scene.task()];
        for _ in 0..2 {
            let task = workers[0].start(0).expect("one after the other");
            workers[0].answer(0, task);
            scene.tick();
        }
        assert!(tasks.iter().all(|task| is_replied(task)));
    }
    workers[1].ready();
    scene.tick();
    let tasks = [scene.task(), scene.task()];
    for worker in &mut workers {
        let task = worker.start(0).expect("each has one");
        worker.answer(0, task);
    }
    scene.tick();
    assert!(tasks.iter().all(|task| is_replied(task)));
}

#[test]
fn short_tasks_are_carried_from_the_lane_that_is_stuck_and_not_from_the_longest() {
    let (mut scene, mut workers) = Scene::ready(Scene::config(3, 1));
    learn(&mut scene, &mut workers, Duration::from_micros(10));
    let _tasks: Vec<_> = (0..15).map(|_| scene.task()).collect();
    let [stuck, moves, free] = &mut workers[..] else { unreachable!("three") };
    for _ in 0..2 {
        let id = stuck.start(0).expect("five in each");
        stuck.answer(0, id);
    }
    assert!(stuck.start(0).is_some());
    scene.tick();
    scene.pass(STEAL_AFTER + MS);
    let id = moves.start(0).expect("five in each");
    moves.answer(0, id);
    assert!(moves.start(0).is_some());
    carries_from(&scene, stuck, free);
    let held = [&*stuck, moves, free].map(|worker| scene.engine.given_to(worker.id).len());
    assert_eq!(held, [2, 4, 1], "one at a time");
}

#[test]
fn long_tasks_are_carried_from_the_longest_lane_and_not_from_the_one_that_is_stuck() {
    let (mut scene, mut workers) = Scene::ready(Scene::config(3, 1));
    learn(&mut scene, &mut workers, MS);
    let first = scene.task();
    workers.sort_by_key(|worker| scene.engine.given_to(worker.id).is_empty());
    let [stuck, long, free] = &mut workers[..] else { unreachable!("three") };
    assert_eq!(stuck.start(0), Some(first.id));
    scene.pass(STEAL_AFTER + MS);
    let tasks: Vec<_> = (0..5).map(|_| scene.task()).collect();
    // Nothing waits behind the one that is stuck.
    let behind = tasks.iter().find(|task| task.lane() == first.lane()).expect("two in each");
    assert!(scene.engine.cancel(behind, false));
    assert!(long.start(0).is_some());
    carries_from(&scene, long, free);
    assert_eq!(scene.engine.given_to(stuck.id), [first.id]);
}

#[test]
fn what_was_started_unnoticed_is_not_carried() {
    let (mut scene, mut workers) = Scene::ready(Scene::config(3, 1));
    learn(&mut scene, &mut workers, Duration::from_micros(10));
    let mut tasks: Vec<_> = (0..6).map(|_| scene.task()).collect();
    let [runs, others @ ..] = &mut workers[..] else { unreachable!("three") };
    for other in &mut *others {
        for _ in 0..2 {
            let id = other.start(0).expect("two in each");
            other.answer(0, id);
        }
    }
    scene.tick();
    // The worker has answered its first task and started its last, and no thread has polled.
    let first = runs.start(0).expect("two in each");
    runs.answer(0, first);
    let last = runs.start(0).expect("two in each");
    scene.now += STEAL_AFTER + MS;
    clock::set(scene.now);
    tasks.push(scene.task());
    let mut started: Vec<_> = others.iter_mut().filter_map(|other| other.start(0)).collect();
    assert_eq!(started, [tasks[6].id]);
    scene.tick();
    started.extend(others.iter_mut().filter_map(|other| other.start(0)));
    assert_eq!(started.len(), 1, "nothing runs twice");
    runs.answer(0, last);
    scene.tick();
    assert!(tasks[..6].iter().all(|task| is_replied(task) && task.attempt() == 1));
}

#[test]
fn what_waits_in_a_lane_lets_a_task_of_higher_priority_go_first() {
    for (priorities, expected) in [
        // Also one of the usual priority, when that is the higher one.
        (&[0, 0, 5, -1, -1, 0][..], &[2, 0, 1, 5, 3, 4][..]),
        (&[-1, -1, 5], &[2, 0, 1]),
        (&[-1, 0], &[1, 0]),
    ] {
        let (scene, mut workers) = Scene::ready(Scene::config(1, 1));
        let submit = |priority: &i32| scene.submit(Options { priority: *priority, ..Options::default() });
        let tasks: Vec<_> = priorities.iter().map(submit).collect();
        let mut order = Vec::new();
        while let Some(id) = workers[0].start(0) {
            order.extend(tasks.iter().position(|task| task.id == id));
            workers[0].answer(0, id);
            scene.tick();
        }
        assert_eq!(order, expected);
    }
}

#[test]
fn a_worker_whose_socket_is_full_is_asked_once_to_look() {
    let (scene, mut workers) = Scene::ready(Scene::config(1, 1));
    let worker = &mut workers[0];
    let filling = Segment::create(64, true).expect("a segment");
    let mut segments = Vec::new();
    for _ in 0..2 {
        let state = scene.engine.lock();
        let ours = state.members.workers[0].as_ref().expect("there is one").socket.as_fd();
        while passing::try_lend(ours, &filling) == passing::Sent::Yes {}
        drop(state);
        let (task, segment) = scene.with_segment();
        segments.push(segment);
        let told: Vec<_> = std::iter::from_fn(|| worker.take(0)).map(|record| record.kind).collect();
        assert_eq!(told, [kind::LOOK]);
        scene.tick();
        assert!(worker.take(0).is_none(), "it has been asked");
        while worker.receive().is_some() {}
        scene.tick();
        assert_eq!(worker.start(0), Some(task.id));
        worker.answer(0, task.id);
        scene.tick();
        assert!(is_replied(&task));
    }
}

#[test]
fn what_does_not_fit_into_a_ring_fails_alone_and_what_does_waits_for_room() {
    let (scene, mut workers) = Scene::ready(Scene::config(1, 1));
    let large = scene.of_size(1 << 20);
    match large.outcome() {
        Some(Outcome::Failed(Failure::Limit { code: Code::TooLarge, reason })) => {
            assert_eq!(&**reason, TOO_LARGE)
        }
        other => panic!("{other:?}"),
    }
    let tasks: Vec<_> = (0..20).map(|_| scene.of_size(30 << 10)).collect();
    let mut order = Vec::new();
    while order.len() < 20 {
        let id = workers[0].start(0).expect("room comes with each answer");
        workers[0].answer(0, id);
        scene.tick();
        order.push(id);
    }
    assert!(order.is_sorted() && tasks.iter().all(|task| is_replied(task)));
}

// --- answers --------------------------------------------------------------------------------------------------------

#[test]
fn what_raises_is_run_again_as_often_as_it_may_be() {
    let (scene, mut workers) = Scene::ready(Scene::config(1, 1));
    for retries in [0, 2] {
        let task = scene.submit(Options { retries, ..Options::default() });
        for attempt in 1..=retries + 1 {
            assert!(!task.is_done());
            assert_eq!(workers[0].start(0), Some(task.id));
            workers[0].say(0, kind::DONE, flags::ERROR, task.id, 0);
            scene.tick();
            assert_eq!(task.attempt(), attempt);
        }
        assert!(matches!(task.outcome(), Some(Outcome::Replied(reply)) if reply.flags == flags::ERROR));
    }
    let counters = scene.engine.statistics().expect("this process").counters;
    assert_eq!((counters.failed, counters.completed, counters.retried, counters.crashed), (2, 0, 2, 0));
}

#[test]
fn arguments_stay_while_a_worker_looks_into_them() {
    let (mut scene, mut workers) = Scene::ready(Scene::config(1, 1));
    let (task, lease) = scene.leased();
    let id = lease.upgrade().expect("it is there").id();
    assert_eq!(workers[0].start(0), Some(task.id));
    workers[0].say(0, kind::DONE, flags::RETAINED, task.id, 0);
    scene.tick();
    assert!(is_replied(&task) && lease.upgrade().is_some());
    workers[0].say(0, kind::RELEASE, flags::EMPTY, 1, id + 1);
    scene.engine.statistics();
    assert!(lease.upgrade().is_some(), "that was another one");
    workers[0].say(0, kind::RELEASE, 0, 1, id);
    // It is read with the next answer.
    let next = scene.task();
    assert_eq!(workers[0].start(0), Some(next.id));
    workers[0].answer(0, next.id);
    scene.pass(MS);
    assert!(lease.upgrade().is_none());
    // Without the flag they go with the task.
    let (task, lease) = scene.leased();
    assert_eq!(workers[0].start(0), Some(task.id));
    workers[0].answer(0, task.id);
    scene.tick();
    assert!(lease.upgrade().is_none());
}

#[test]
fn memory_of_arguments_is_used_again_unless_a_worker_may_look_into_it_for_ever() {
    let (scene, mut workers) = Scene::ready(Scene::config(1, 1));
    for (flags, again) in [(0, true), (flags::RETAINED, true), (flags::KEPT, false)] {
        let arena = Arena::new(ArenaConfig { keep: 64 << 20 });
        let put = || arena.whole(&[1; 2 << 20]).expect("room");
        let segment = put();
        let id = segment.id();
        let payload = Beside { segments: vec![segment], ..Beside::default() }.into();
        let task = scene.flagged(payload, 0, Options::default());
        assert_eq!(workers[0].start(0), Some(task.id));
        workers[0].say(0, kind::DONE, flags, task.id, 0);
        scene.tick();
        assert!(is_replied(&task));
        assert_eq!(put().id() == id, again, "{flags}");
    }
}

#[test]
fn a_worker_is_told_how_a_task_is_meant() {
    let (scene, mut workers) = Scene::ready(Scene::config(1, 1));
    let timeout = Some(Duration::from_secs(60));
    for (payload_flags, task_flags, options, expected) in [
        (0, 0, Options::default(), 0),
        (flags::EMPTY, 0, Options::default(), flags::EMPTY),
        (0, flags::BATCH, Options::default(), flags::BATCH),
        (0, 0, Options { writable: true, ..Options::default() }, flags::WRITABLE),
        (0, 0, Rare { timeout, ..Rare::default() }.into(), flags::TIMED),
        (
            flags::EMPTY,
            flags::BATCH | flags::STAR,
            Options { writable: true, ..Rare { timeout, ..Rare::default() }.into() },
            flags::EMPTY | flags::BATCH | flags::STAR | flags::WRITABLE | flags::TIMED,
        ),
    ] {
        let payload = Payload { flags: payload_flags, ..Payload::default() };
        let task = scene.flagged(payload, task_flags, options);
        let mut records = std::iter::from_fn(|| workers[0].take(0));
        let record = records.find(|record| record.kind == kind::TASK).expect("the task");
        assert_eq!((record.id, record.flags), (task.id, expected));
        workers[0].answer(0, task.id);
        scene.tick();
    }
}

#[test]
fn a_function_is_sent_once_and_forgotten_when_no_task_can_name_it() {
    let (scene, mut workers) = Scene::ready(Scene::config(1, 1));
    let function = scene.engine.function("g", Payload::default());
    let mut kinds = Vec::new();
    for _ in 0..2 {
        let call = Call::remote(Arc::clone(&function), Payload::default());
        let task = scene.engine.submit(call, 0, Options::default(), true).expect("taken");
        while let Some(record) = workers[0].take(0) {
            kinds.push(record.kind);
            assert!(record.aux == u64::from(function.id()));
        }
        workers[0].answer(0, task.id);
        scene.tick();
    }
    assert_eq!(kinds, [kind::FUNCTION, kind::TASK, kind::TASK]);
    let id = u64::from(function.id());
    drop(function);
    scene.tick();
    let last = workers[0].take(0).map(|record| (record.kind, record.aux));
    assert_eq!(last, Some((kind::FORGET_FUNCTION, id)));
}

#[test]
fn a_segment_that_a_worker_lost_is_passed_again() {
    let (scene, mut workers) = Scene::ready(Scene::config(1, 1));
    let worker = &mut workers[0];
    let segment = Segment::create(64, true).expect("a segment").publish(None);
    for (loses, passed) in [(false, 1), (true, 0), (false, 1), (false, 0)] {
        let payload = Beside { segments: vec![Arc::clone(&segment)], ..Beside::default() }.into();
        let task = scene.flagged(payload, 0, Options::default());
        assert_eq!(std::iter::from_fn(|| worker.receive()).count(), passed);
        assert_eq!(worker.start(0), Some(task.id));
        if loses {
            worker.say(0, kind::LOST, flags::EMPTY, 0, segment.id());
        }
        worker.answer(0, task.id);
        scene.tick();
        assert!(is_replied(&task) && !scene.has_killed(worker));
    }
}
