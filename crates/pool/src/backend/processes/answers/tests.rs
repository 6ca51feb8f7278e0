//! Which answers are accepted, in a simulated pool without chance.

use std::time::Duration;

use super::*;
use crate::simulation::scene::{Actor, Scene, condemned};
use crate::task::Task;

const MS: Duration = Duration::from_millis(1);

#[test]
fn an_answer_to_another_task_ends_the_worker_and_costs_only_what_ran() {
    let (mut scene, mut workers) = Scene::ready(Scene::config(1, 1));
    let (running, waiting) = (scene.task(), scene.task());
    let worker = &mut workers[0];
    assert_eq!(worker.start(0), Some(running.id));
    worker.say(0, kind::DONE, 0, waiting.id, 0);
    scene.tick();
    assert!(scene.has_killed(&workers[0]) && !running.is_done() && !waiting.is_done());
    scene.die(workers.remove(0), 9);
    assert_eq!(condemned(&running).as_deref(), Some("it answered a task that it was not given"));
    let mut next = scene.asked().pop_front().expect("another worker");
    scene.fork(&next);
    next.ready();
    scene.tick();
    assert_eq!(next.start(0), Some(waiting.id));
}

#[test]
fn records_that_no_worker_sends_end_it() {
    for (kind, why) in [
        (99, "it sent a record of an unknown kind"),
        (kind::INIT_FAILED, "its initializer failed after it was ready"),
    ] {
        let (scene, mut workers) = Scene::ready(Scene::config(1, 1));
        let task = scene.task();
        assert_eq!(workers[0].start(0), Some(task.id));
        workers[0].say(0, kind, 0, 0, 0);
        scene.tick();
        scene.die(workers.remove(0), 9);
        assert_eq!(condemned(&task).as_deref(), Some(why));
        assert!(scene.engine.broken().is_none());
    }
}

#[test]
fn an_initializer_that_fails_breaks_the_pool_with_its_exception() {
    let mut scene = Scene::new(Scene::config(1, 1));
    let task = scene.task();
    let mut worker = scene.asked().pop_front().expect("one");
    scene.fork(&worker);
    worker.say(0, kind::INIT_FAILED, 0, 0, 0);
    scene.tick();
    for failure in [
        scene.engine.broken().as_ref(),
        task.outcome().and_then(|outcome| match outcome {
            Outcome::Failed(failure) => Some(failure),
            _ => None,
        }),
    ] {
        match failure {
            Some(Failure::Initializer(reply)) => {
                assert_eq!((&*reply.bytes, reply.flags & flags::ERROR), (&b"value"[..], flags::ERROR));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_worker_is_believed_no_longer_than_the_task_was_here() {
    let (mut scene, mut workers) = Scene::ready(Scene::config(1, 1));
    for (says, counts) in [(3_000_000, 3_000_000), (u64::MAX, 5_000_000)] {
        let task = scene.task();
        assert_eq!(workers[0].start(0), Some(task.id));
        scene.pass(MS * 5);
        workers[0].say(0, kind::DONE, 0, task.id, says);
        scene.tick();
        let record = task.record();
        assert_eq!((record.busy_ns, record.total_ns, record.pid), (counts, 5_000_000, workers[0].pid()));
    }
    let statistics = scene.engine.statistics().expect("this process");
    assert_eq!((statistics.workers[0].completed, statistics.workers[0].busy_ns), (2, 8_000_000));
    assert_eq!(statistics.counters.busy_ns, 8_000_000);
}

/// An answer of these parts, each in a segment of its own, which the worker passes first.
fn answer_in_segments(scene: &Scene, worker: &mut Actor, parts: &[Vec<u8>]) -> Arc<Task> {
    let task = scene.task();
    assert_eq!(worker.start(0), Some(task.id));
    let segments: Vec<_> = parts
        .iter()
        .map(|part| {
            let segment = Segment::create(part.len(), true).expect("a segment");
            segment.copy_in(0, part).expect("it fits");
            worker.pass(&segment);
            segment
        })
        .collect();
    let places: Vec<_> = segments
        .iter()
        .zip(parts)
        .map(|(segment, part)| {
            let (generation, length) = (segment.generation(), part.len() as u64);
            Part::Placed(Entry { segment: segment.id(), generation, offset: 0, length })
        })
        .collect();
    worker.write(0, kind::DONE, flags::DESCRIBED, task.id, 0, &table::write(0, &places, &[]));
    scene.tick();
    task
}

#[test]
fn small_parts_of_an_answer_are_copied_out_of_their_segments() {
    let (scene, mut workers) = Scene::ready(Scene::config(1, 1));
    for parts in [vec![vec![1; 100]], vec![vec![1; 100], vec![2; 7], vec![3; 1000]]] {
        let task = answer_in_segments(&scene, &mut workers[0], &parts);
        let Some(Outcome::Replied(reply)) = task.outcome() else { panic!("{:?}", task.outcome()) };
        let table = Table::parse(&reply.bytes).expect("a frame");
        let found: Vec<_> = table.entries().filter_map(|entry| table.inline(&entry)).collect();
        assert_eq!(found, parts);
        assert!(reply.segments.is_empty(), "it costs no descriptor");
    }
}

#[test]
fn large_parts_of_an_answer_stay_in_their_segments() {
    let (scene, mut workers) = Scene::ready(Scene::config(1, 1));
    let most = usize::try_from(MOST_COPIED).expect("small");
    for (large, kept) in [(most - 100, 0), (most - 99, 2)] {
        let task = answer_in_segments(&scene, &mut workers[0], &[vec![1; 100], vec![2; large]]);
        let Some(Outcome::Replied(reply)) = task.outcome() else { panic!("{:?}", task.outcome()) };
        assert_eq!(reply.segments.len(), kept, "{large}");
        if let [first, second] = &reply.segments[..] {
            assert_eq!(first.copy_out(0, 100).expect("inside"), [1; 100]);
            assert_eq!(second.copy_out(0, 3).expect("inside"), [2; 3]);
        }
    }
}

#[test]
fn a_result_that_could_not_be_taken_in_costs_nothing_else() {
    let (scene, mut workers) = Scene::ready(Scene::config(1, 1));
    let task = scene.task();
    assert_eq!(workers[0].start(0), Some(task.id));
    // It came, and this process had no descriptor left for it.
    let lost = error!(Code::OutOfDescriptors, "there are too many open files");
    let mut state = scene.engine.lock();
    state.members.workers[0].as_mut().expect("there is one").received.push((1 << 50, Err(lost)));
    drop(state);
    let place = Part::Placed(Entry { segment: 1 << 50, generation: 1, offset: 0, length: 8 });
    let answer = table::write(0, &[place], &[]);
    workers[0].write(0, kind::DONE, flags::DESCRIBED, task.id, 0, &answer);
    scene.tick();
    match task.outcome() {
        Some(Outcome::Failed(Failure::Limit { code: Code::OutOfDescriptors, reason })) => {
            assert!(reason.contains("too many open files"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    assert!(!scene.has_killed(&workers[0]));
    let next = scene.task();
    assert_eq!(workers[0].start(0), Some(next.id));
}

#[test]
fn a_segment_that_was_not_passed_ends_the_worker() {
    let (mut scene, mut workers) = Scene::ready(Scene::config(1, 1));
    let task = scene.task();
    assert_eq!(workers[0].start(0), Some(task.id));
    scene.pass(MS * 5);
    let place = Part::Placed(Entry { segment: 1 << 50, generation: 1, offset: 0, length: 8 });
    let answer = table::write(0, &[place], &[]);
    workers[0].write(0, kind::DONE, flags::DESCRIBED, task.id, 3_000_000, &answer);
    scene.tick();
    assert!(scene.has_killed(&workers[0]));
    let record = task.record();
    assert_eq!((record.pid, record.busy_ns), (workers[0].pid(), 3_000_000));
    assert!(condemned(&task).is_some_and(|why| why.contains("a segment that it did not pass")));
}
