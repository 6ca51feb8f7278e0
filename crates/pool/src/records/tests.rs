use std::time::Duration;

use super::*;
use crate::codec::table::{self, Entry, Part};
use crate::config::Config;
use crate::simulation::scene::{Actor, Scene};
use crate::task::{Options, Rare};

const MS: Duration = Duration::from_millis(1);
const MS_NS: u64 = 1_000_000;

fn keeping(records: usize) -> (Scene, Actor) {
    let (scene, mut workers) = Scene::ready(Config { records, ..Scene::config(1, 1) });
    (scene, workers.pop().expect("one"))
}

fn ids(scene: &Scene) -> Vec<u64> {
    scene.engine.records().expect("this process").iter().map(|ended| ended.id).collect()
}

fn last(scene: &Scene) -> Ended {
    scene.engine.records().expect("this process").pop().expect("one")
}

#[test]
fn the_last_are_kept_the_newest_at_the_end() {
    for (records, kept) in [(0, 0), (1, 1), (3, 3), (100, 5)] {
        let (scene, mut worker) = keeping(records);
        let tasks: Vec<_> = (0..5).map(|_| scene.task()).collect();
        for task in &tasks {
            assert_eq!(worker.start(0), Some(task.id));
            worker.answer(0, task.id);
            scene.tick();
        }
        let expected: Vec<_> = tasks[5 - kept..].iter().map(|task| task.id).collect();
        assert_eq!(ids(&scene), expected);
        let histograms = scene.engine.statistics().expect("this process").histograms;
        assert_eq!((histograms.total.count(), histograms.running.count()), (5, 5), "with records or without");
    }
}

#[test]
fn long_texts_take_the_place_of_other_records() {
    let ended = |id, length: usize| Line {
        id,
        attempt: 1,
        record: Kept::default(),
        function: Some("f".repeat(length).into()),
        outcome: "returned",
        beside: None,
    };
    let mut ring = Ring { most: 10, bytes: 0, ended: VecDeque::new() };
    for id in 0..10 {
        ring.push(ended(id, 1));
    }
    assert_eq!((ring.ended.len(), ring.bytes), (10, 10));
    for id in 10..14 {
        ring.push(ended(id, 10 * BYTES_EACH / 2));
    }
    let ids: Vec<_> = ring.ended.iter().map(|ended| ended.id).collect();
    assert!(ids.len() < 4 && ids.last() == Some(&13), "{ids:?}");
    assert_eq!(ring.bytes, ring.ended.iter().map(Line::texts).sum::<usize>());
    for id in 20..30 {
        ring.push(ended(id, 0));
    }
    assert_eq!((ring.ended.len(), ring.bytes), (10, 0));
}

#[test]
fn texts_are_cut_where_a_character_ends() {
    let long = "ä".repeat(MOST_TEXT);
    let short = shortened(&long);
    assert!(short.len() <= MOST_TEXT + 3 && short.ends_with('…'), "{}", short.len());
    let odd = format!("a{long}");
    assert!(shortened(&odd).starts_with("aää"));
}

#[test]
fn the_record_tells_when_what_took_how_long() {
    let (mut scene, mut worker) = keeping(10);
    let day = clock::in_nanos(std::time::SystemTime::UNIX_EPOCH.elapsed().expect("after 1970"));
    let task = scene.task();
    scene.pass(MS * 2);
    assert_eq!(worker.start(0), Some(task.id));
    scene.pass(MS * 3);
    worker.answer_after(0, task.id, MS * 3, Some(MS));
    // The parent does not look at once.
    scene.now += MS * 4;
    clock::set(scene.now);
    scene.tick();
    let ended = last(&scene);
    let record = ended.record;
    assert_eq!((ended.id, ended.attempt, ended.outcome, ended.cause), (task.id, 1, "returned", None));
    assert_eq!((&*ended.function.expect("a name"), record.pid), ("f", worker.pid()));
    assert_eq!((record.busy_ns, record.cpu_ns, record.total_ns), (3 * MS_NS, Some(MS_NS), 9 * MS_NS));
    assert!(record.begun_ns.is_some_and(|begun| begun.abs_diff(2 * MS_NS) < 2048), "{record:?}");
    assert_eq!((record.sent, record.received), (9, 5), "arguments and value, and not the times");
    assert!(record.queued_at.abs_diff(day) < 3600 * 1_000_000_000, "the time of day");
    assert!(record.worker > 0);
    let same = task.record();
    assert_eq!(
        (same.begun_ns, same.queued_at, task.name().map(|name| &**name)),
        (record.begun_ns, record.queued_at, Some("f"))
    );
    let histograms = scene.engine.statistics().expect("this process").histograms;
    let only = |histogram: &Histogram, nanos: u64| {
        let bucket = histogram.buckets().next().expect("one");
        assert!(
            histogram.count() == 1 && bucket.above < nanos + 2048 && bucket.upto + 2048 >= nanos,
            "{bucket:?}"
        );
    };
    only(&histograms.queueing, 2 * MS_NS);
    only(&histograms.running, 3 * MS_NS);
    only(&histograms.total, 9 * MS_NS);
}

#[test]
fn a_crash_tells_when_the_call_began_and_how_the_worker_died() {
    for (status, cause) in [(9, "killed by signal 9"), (3 << 8, "exit status 3")] {
        let (mut scene, mut worker) = keeping(10);
        let task = scene.task();
        scene.pass(MS);
        assert_eq!(worker.start(0), Some(task.id));
        worker.begin_now(0, task.id);
        scene.pass(MS * 4);
        let pid = worker.pid();
        scene.die(worker, status);
        let ended = last(&scene);
        assert_eq!((ended.id, ended.outcome, ended.record.pid), (task.id, "crashed", pid));
        assert!(ended.cause.as_deref().is_some_and(|why| why.contains(cause)), "{:?}", ended.cause);
        assert_eq!((ended.record.begun_ns, ended.record.total_ns), (Some(MS_NS), 5 * MS_NS));
        assert!(ended.function.as_deref() == Some("f") && ended.record.worker > 0);
        let histograms = scene.engine.statistics().expect("this process").histograms;
        let counts = [&histograms.queueing, &histograms.running, &histograms.total].map(Histogram::count);
        assert_eq!(counts, [1, 0, 1], "it has waited, and its call did not end");
    }
}

#[test]
fn a_worker_cannot_say_that_it_began_before_or_after_its_time() {
    for (ago, believed) in [(MS * 4, true), (MS * 6, false)] {
        let (mut scene, mut worker) = keeping(10);
        scene.pass(MS * 10);
        let task = scene.task();
        scene.pass(MS * 5);
        assert_eq!(worker.start(0), Some(task.id));
        worker.begin_at(0, task.id, clock::nanos() - clock::in_nanos(ago));
        scene.die(worker, 9);
        assert_eq!(last(&scene).record.begun_ns, believed.then_some(MS_NS));
    }
    let (scene, mut worker) = keeping(10);
    let task = scene.task();
    assert_eq!(worker.start(0), Some(task.id));
    worker.begin_at(0, task.id, clock::nanos() + MS_NS);
    scene.die(worker, 9);
    assert_eq!(last(&scene).record.begun_ns, None);
}

#[test]
fn one_that_is_ended_while_it_runs_has_begun() {
    let (mut scene, mut worker) = keeping(10);
    let task = scene.submit(Rare { deadline: Some(MS * 10), ..Rare::default() }.into());
    scene.pass(MS);
    assert_eq!(worker.start(0), Some(task.id));
    worker.begin_now(0, task.id);
    let late = scene.submit(Rare { deadline: Some(MS * 2), ..Rare::default() }.into());
    scene.pass(MS * 5);
    let waited = last(&scene);
    assert_eq!((waited.id, waited.outcome, waited.record.begun_ns), (late.id, "timed out", None));
    assert!(waited.cause.is_some_and(|why| why.contains("deadline") && why.contains("waited")));
    scene.pass(MS * 5);
    let ended = last(&scene);
    assert_eq!((ended.id, ended.outcome, ended.record.begun_ns), (task.id, "timed out", Some(MS_NS)));
    assert!(ended.cause.is_some_and(|why| why.contains("ran")) && ended.record.worker > 0);
}

#[test]
fn the_queueing_time_of_a_second_run_counts_from_when_it_was_queued_again() {
    let (mut scene, mut worker) = keeping(10);
    let task = scene.submit(Options { retries: 1, ..Options::default() });
    assert_eq!(worker.start(0), Some(task.id));
    scene.pass(MS * 50);
    worker.say(0, crate::wire::kind::DONE, flags::ERROR, task.id, 50 * MS_NS);
    scene.tick();
    assert!(!task.is_done() && ids(&scene).is_empty(), "it is not over");
    scene.pass(MS);
    assert_eq!(worker.start(0), Some(task.id));
    worker.answer_after(0, task.id, Duration::ZERO, None);
    scene.tick();
    let ended = last(&scene);
    assert_eq!((ended.attempt, ended.outcome), (2, "returned"));
    assert!(ended.record.begun_ns.is_some_and(|begun| begun >= 50 * MS_NS));
    let queueing = scene.engine.statistics().expect("this process").histograms.queueing;
    let (least, most) = queueing.extremes().expect("one");
    assert!(least == most && least < 2 * MS_NS, "{least}");
}

#[test]
fn what_lies_beside_the_record_is_counted_unless_it_was_there_before() {
    let place = |segment, length| Entry { segment, generation: 1, offset: 0, length };
    let own = [Part::Inline(b"12345"), Part::Placed(place(7, 1000))];
    let bytes = table::write(0, &own, &[]);
    assert_eq!(size(0, &bytes), bytes.len() as u64);
    assert_eq!(size(flags::DESCRIBED, &bytes), bytes.len() as u64 + 1000);
    let shared = Part::Placed(Entry::shared(9, 1, 0, 4096));
    let part = Part::Placed(place(9, 500));
    let bytes = table::write(
        0,
        &[Part::Inline(b"12345"), shared, part, Part::Placed(place(7, 30))],
        &[place(9, 4096)],
    );
    assert_eq!(size(flags::DESCRIBED, &bytes), bytes.len() as u64 + 30);
    assert_eq!(size(flags::DESCRIBED, b"no table"), 8);
}

#[test]
fn every_outcome_has_a_name_and_the_failures_a_cause() {
    let (scene, mut worker) = keeping(10);
    let task = scene.task();
    assert_eq!(worker.start(0), Some(task.id));
    worker.say(0, crate::wire::kind::DONE, flags::ERROR, task.id, 1);
    scene.tick();
    assert_eq!((last(&scene).outcome, last(&scene).cause), ("raised", None));
    let task = scene.task();
    assert!(scene.engine.cancel(&task, false));
    let ended = last(&scene);
    assert_eq!((ended.outcome, ended.cause, ended.record.begun_ns), ("cancelled", None, None));
    assert_eq!(ended.function.as_deref(), Some("f"));
    let task = scene.task();
    assert_eq!(worker.start(0), Some(task.id));
    scene.engine.end(Duration::ZERO);
    scene.tick();
    assert_eq!(
        (last(&scene).outcome, last(&scene).cause.as_deref()),
        ("terminated", Some("the pool was terminated"))
    );
}
