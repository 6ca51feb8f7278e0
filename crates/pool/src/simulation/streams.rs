//! Streams in a simulated pool without chance: what a worker may send, who hears of it, and what ends it.

use std::sync::Arc;

use super::scene::{Actor, Scene};
use crate::outcome::{Failure, Outcome};
use crate::pace::Credit;
use crate::pool::WaitFor;
use crate::stream::{Item, Items, MOST_UNREAD_BYTES};
use crate::task::{Options, Task};
use crate::wire::{flags, form, kind};

/// A pool with one worker, and a stream that it has started.
fn started(options: Options) -> (Scene, Actor, Arc<Task>) {
    let (scene, mut workers) = Scene::ready(Scene::config(1, 1));
    let task = scene.submit(options);
    let mut worker = workers.remove(0);
    assert_eq!(worker.start(0), Some(task.id));
    (scene, worker, task)
}

fn of(stream: u32) -> Options {
    Options { stream, ..Options::default() }
}

fn item(worker: &mut Actor, task: &Task) {
    worker.write(0, kind::ITEM, 0, task.id, form::BYTES.into(), b"item");
}

/// Reads what is there; how many it was.
fn read(task: &Task) -> u64 {
    let (mut items, mut read) = (Items::default(), Credit::default());
    let stream = task.stream().expect("a stream");
    while stream.take(&mut items) {
        while let Some((item, cost)) = items.take_next() {
            assert!(matches!(item, Item::Record(form::BYTES, 0, b"item", _)));
            (read.items, read.bytes) = (read.items + 1, read.bytes + cost);
        }
    }
    stream.say_read(task.id, read);
    read.items
}

#[test]
fn a_worker_knows_what_it_may_send_and_hears_of_more() {
    let (scene, mut workers) = Scene::ready(Scene::config(1, 1));
    let task = scene.submit(of(4));
    let worker = &mut workers[0];
    let record = std::iter::from_fn(|| worker.take(0)).find(|record| record.kind == kind::TASK);
    let record = record.expect("the task");
    assert_ne!(record.flags & flags::STREAM, 0);
    assert_eq!(record.terms.credit, Credit { items: 4, bytes: MOST_UNREAD_BYTES });
    assert_eq!(worker.granted(0, task.id), None);
    for _ in 0..3 {
        item(worker, &task);
    }
    scene.engine.catch_up();
    assert!(scene.engine.is_ready(&WaitFor::Stream(Arc::clone(&task))));
    assert_eq!(read(&task), 3);
    assert_eq!(worker.granted(0, task.id), Some(Credit { items: 7, bytes: MOST_UNREAD_BYTES + 12 }));
    assert!(!scene.engine.is_ready(&WaitFor::Stream(Arc::clone(&task))));
}

#[test]
fn items_that_came_before_the_end_are_there_after_it() {
    for dies in [false, true] {
        let (scene, mut worker, task) = started(Options { retries: 3, ..of(4) });
        item(&mut worker, &task);
        item(&mut worker, &task);
        if dies {
            scene.die(worker, 9);
            assert!(
                matches!(task.outcome(), Some(Outcome::Failed(Failure::Crashed { .. }))),
                "no second run"
            );
        } else {
            worker.answer(0, task.id);
            scene.tick();
            assert!(matches!(task.outcome(), Some(Outcome::Replied(_))));
        }
        assert_eq!(read(&task), 2);
    }
}

#[test]
fn a_stream_that_has_delivered_nothing_may_be_run_again() {
    let (mut scene, worker, task) = started(Options { retries: 1, ..of(4) });
    scene.die(worker, 9);
    assert!(!task.is_done());
    let mut worker = scene.asked().pop_front().expect("another worker");
    scene.fork(&worker);
    worker.ready();
    scene.tick();
    assert_eq!(worker.start(0), Some(task.id));
    item(&mut worker, &task);
    worker.say(0, kind::DONE, flags::ERROR, task.id, 1);
    scene.tick();
    assert!(task.is_done() && read(&task) == 1);
}

#[test]
fn a_worker_that_sends_what_it_may_not_is_given_up_and_the_pool_goes_on() {
    type Lie = fn(&Scene, &mut Actor, &Arc<Task>);
    let lies: [(u32, Lie); 6] = [
        // An item of a task that is no stream.
        (0, |_, worker, task| item(worker, task)),
        // Of a task that it does not run.
        (4, |scene, worker, _| {
            let other = scene.submit(of(4));
            item(worker, &other);
        }),
        // After its end.
        (4, |_, worker, task| {
            worker.answer(0, task.id);
            item(worker, task);
        }),
        // More than its credit.
        (2, |_, worker, task| (0..3).for_each(|_| item(worker, task))),
        // A frame that names a segment which it has not passed.
        (4, |_, worker, task| {
            let entry = crate::codec::table::Entry { segment: 1 << 61, generation: 1, offset: 0, length: 8 };
            let table = crate::codec::table::write(0, &[crate::codec::Part::Placed(entry)], &[]);
            worker.write(0, kind::ITEM, flags::DESCRIBED, task.id, form::FRAME.into(), &table);
        }),
        // Bytes that are no table.
        (4, |_, worker, task| {
            worker.write(0, kind::ITEM, flags::DESCRIBED, task.id, form::FRAME.into(), b"no table");
        }),
    ];
    for (at, (window, lie)) in lies.into_iter().enumerate() {
        let (mut scene, mut worker, task) = started(of(window));
        lie(&scene, &mut worker, &task);
        scene.tick();
        assert!(scene.has_killed(&worker), "{at}");
        scene.die(worker, 9);
        assert!(task.is_done(), "{at}");
        let mut worker = scene.asked().pop_front().expect("another worker");
        scene.fork(&worker);
        worker.ready();
        let task = scene.task();
        scene.tick();
        let first = worker.start(0).expect("a task");
        if first != task.id {
            worker.answer(0, first);
            assert_eq!(worker.start(0), Some(task.id), "{at}");
        }
    }
}

#[test]
fn a_reader_that_leaves_stops_the_task() {
    let (scene, mut worker, task) = started(of(4));
    item(&mut worker, &task);
    scene.tick();
    assert!(scene.engine.leave_stream(&task).take_next().is_some(), "what it had not read");
    assert!(worker.is_asked_to_stop(0, task.id) && !task.is_done());
    item(&mut worker, &task);
    worker.say(0, kind::DONE, flags::ERROR | flags::STOPPED, task.id, 1);
    scene.tick();
    assert!(matches!(task.outcome(), Some(Outcome::Cancelled)) && !scene.has_killed(&worker));
    assert_eq!(read(&task), 0);
}

#[test]
fn the_end_of_a_pool_stops_its_streams() {
    let (scene, worker, task) = started(of(4));
    let waiting = scene.submit(of(4));
    scene.engine.close(false);
    assert!(worker.is_asked_to_stop(0, task.id));
    assert!(matches!(waiting.outcome(), Some(Outcome::Cancelled)));
}

#[test]
fn a_signal_ends_when_an_item_comes_and_when_the_stream_ends() {
    let (scene, mut worker, task) = started(of(4));
    let signal = scene.engine.stream_signal(&task).expect("nothing is there");
    let same = scene.engine.stream_signal(&task).expect("nothing is there");
    assert!(Arc::ptr_eq(&signal, &same) && !signal.is_done());
    item(&mut worker, &task);
    scene.engine.catch_up();
    assert!(signal.is_done() && scene.engine.stream_signal(&task).is_none());
    assert_eq!(read(&task), 1);
    let signal = scene.engine.stream_signal(&task).expect("nothing is there");
    worker.answer(0, task.id);
    scene.engine.catch_up();
    assert!(signal.is_done() && scene.engine.stream_signal(&task).is_none());
}
