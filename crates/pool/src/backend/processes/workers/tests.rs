//! The life of workers and their tasks, in a simulated pool without chance.

use std::collections::VecDeque;

use ropewalk_base::Code;
use ropewalk_os::socket;
use ropewalk_shm::memory::{Arena, ArenaConfig};

use super::*;
use crate::backend::processes::storms::LONGEST_DELAY;
use crate::config::Life;
use crate::simulation::scene::{Actor, Scene};
use crate::task::Options;
use crate::worker::FdChannel;

fn pair() -> (Worker, FdChannel) {
    let (ours, theirs) = socket::seqpacket_pair().expect("a pair");
    let notes = Arc::new(Notes::create(1).expect("a memfd"));
    let tenure = Tenure::new(1, false, &Life::default());
    (Worker::new(1, ours, vec![0], Some(notes), tenure), FdChannel::new(theirs))
}

/// A segment of its own, for one lease.
fn put(arena: &Arc<Arena>) -> Lease {
    arena.put_parts(&[&vec![7; 3 << 20]]).expect("room")
}

#[test]
fn memory_in_a_new_use_is_not_forgotten_with_its_old_one() {
    let arena = Arena::new(ArenaConfig { keep: 64 << 20 });
    let (mut worker, channel) = pair();
    let first = put(&arena);
    let id = first.segment().id();
    assert!(worker.give_segment(first.segment()));
    drop(first);
    let second = put(&arena);
    assert_eq!(second.segment().id(), id, "the memory is used again");
    assert!(worker.give_segment(second.segment()));
    // The first use has ended, the second has not: the worker needs the memory that it has.
    assert_eq!(worker.segments.forget_unused(worker.socket.as_fd()), (false, true));
    drop(second);
    assert_eq!(worker.segments.forget_unused(worker.socket.as_fd()), (true, false));
    // After the message to forget the segment, the worker gets its descriptor again.
    let third = put(&arena);
    assert_eq!(third.segment().id(), id);
    assert!(worker.give_segment(third.segment()));
    assert_eq!(worker.segments.forget_unused(worker.socket.as_fd()), (false, true));
    channel.drain().expect("sound messages");
    let generation = third.segment().generation();
    assert_eq!(channel.segment(id, generation).expect("it is there").id(), id);
    let stale = channel.segment(id, generation - 1).expect_err("an old use");
    assert_eq!(stale.code(), Code::StaleHandle);
}

#[test]
fn a_lease_is_kept_until_every_promise_is_settled() {
    let arena = Arena::new(ArenaConfig { keep: 64 << 20 });
    let (mut one, _one) = pair();
    let (mut other, _other) = pair();
    let lease = Arc::new(put(&arena));
    let id = lease.id();
    // Two attempts on one worker, one on another.
    one.retain(&lease);
    one.retain(&lease);
    other.retain(&lease);
    let weak = Arc::downgrade(&lease);
    drop(lease);
    // The first attempt's view has died: reported after the second attempt's answer, or before it.
    one.release(id, 1);
    assert!(weak.upgrade().is_some());
    // A worker cannot give up what others hold, however much it says.
    other.release(id, u64::MAX);
    other.release(id, 1);
    other.release(id + 1, 1);
    assert!(weak.upgrade().is_some());
    one.release(id, 1);
    assert!(weak.upgrade().is_none());
}

// --- zygotes that are lost ------------------------------------------------------------------------------------------

/// The pool's zygote is gone; gives the workers that it asks the next one for, if it starts one.
fn lose_zygote(scene: &mut Scene) -> Vec<Actor> {
    let (engine, lost) = (Arc::clone(&scene.engine), Arc::clone(&scene.zygote));
    let another = scene.replace_zygote();
    engine.lose_zygote(&lost, "it died", &|_| Ok(Arc::clone(&another)));
    scene.asked().into()
}

fn failure_of(task: &Task) -> Option<Failure> {
    match task.outcome() {
        Some(Outcome::Failed(failure)) => Some(failure.clone()),
        _ => None,
    }
}

fn is_broken(scene: &Scene, text: &str) -> bool {
    matches!(scene.engine.broken(), Some(Failure::Broken(why)) if why.contains(text))
}

#[test]
fn workers_that_were_never_forked_are_asked_of_the_next_zygote() {
    let mut scene = Scene::new(Scene::config(3, 1));
    let mut first = scene.asked().pop_front().expect("three were asked for");
    scene.fork(&first);
    first.ready();
    scene.tick();
    let task = scene.task();
    let mut asked = lose_zygote(&mut scene);
    assert_eq!(asked.len(), 2, "the one that is there is not asked for again");
    assert_eq!((scene.workers(), scene.engine.lock().members.starting), (3, 2));
    // The one that is there dies with its zygote, and the new ones do its work.
    scene.die(first, 9);
    asked.extend(scene.asked());
    assert_eq!(asked.len(), 3);
    for worker in &mut asked {
        scene.fork(worker);
        worker.ready();
    }
    scene.tick();
    let ran = asked.iter_mut().find_map(|worker| Some((worker.start(0)?, worker)));
    let (id, worker) = ran.expect("it was taken back");
    worker.answer(0, id);
    scene.tick();
    assert!(matches!(task.outcome(), Some(Outcome::Replied(_))) && task.attempt() == 1);
    assert_eq!(scene.engine.statistics().expect("this process").counters.crashed, 1, "it alone was lost");
}

#[test]
fn three_zygotes_may_be_lost_in_a_row_and_no_more() {
    let mut scene = Scene::new(Scene::config(2, 1));
    let task = scene.task();
    assert_eq!(scene.asked().len(), 2);
    for _ in 0..MOST_LOST_ZYGOTES {
        assert_eq!(lose_zygote(&mut scene).len(), 2);
        assert!(scene.engine.broken().is_none() && !task.is_done());
    }
    let (engine, lost) = (Arc::clone(&scene.engine), Arc::clone(&scene.zygote));
    engine.lose_zygote(&lost, "it died", &|_| unreachable!("enough have been started"));
    assert!(is_broken(&scene, "it died"));
    assert!(matches!(task.outcome(), Some(Outcome::Failed(Failure::Broken(_)))));
    assert!(scene.engine.has_ended() && scene.asked().is_empty());
}

#[test]
fn a_zygote_whose_worker_came_to_something_is_not_counted() {
    let mut scene = Scene::new(Scene::config(2, 1));
    let mut asked: Vec<Actor> = scene.asked().into();
    let lose_most = |scene: &mut Scene| {
        let mut asked = Vec::new();
        for _ in 0..MOST_LOST_ZYGOTES {
            asked = lose_zygote(scene);
            assert_eq!(asked.len(), 1, "the other is there");
        }
        asked
    };
    let mut worker = asked.swap_remove(0);
    scene.fork(&worker);
    lose_most(&mut scene);
    // It has become ready, and then it answers: either shows that zygotes can live.
    worker.ready();
    scene.tick();
    lose_most(&mut scene);
    let task = scene.task();
    assert_eq!(worker.start(0), Some(task.id));
    worker.answer(0, task.id);
    scene.tick();
    lose_most(&mut scene);
    assert!(scene.engine.broken().is_none());
    lose_zygote(&mut scene);
    assert!(is_broken(&scene, "it died"));
}

#[test]
fn a_zygote_that_cannot_be_replaced_breaks_the_pool_with_both_reasons() {
    let scene = Scene::new(Scene::config(1, 1));
    scene.engine.lose_zygote(&scene.zygote, "it died", &|_| {
        Err(ropewalk_base::error!(Code::ZygoteFailed, "no other can be had"))
    });
    assert!(is_broken(&scene, "it died, and no other can be had"), "{:?}", scene.engine.broken());
    // And then it is over: no more of them are started.
    scene.engine.lose_zygote(&scene.zygote, "it died", &|_| unreachable!("the pool is broken"));
}

#[test]
fn the_zygote_of_others_is_no_concern_of_a_pool() {
    let mut scene = Scene::new(Scene::config(1, 1));
    assert_eq!(scene.asked().len(), 1);
    let (other, _far) = Zygote::simulated().expect("a socket");
    scene.engine.lose_zygote(&other, "it died", &|_| unreachable!("it is not this pool's"));
    assert!(scene.engine.broken().is_none() && scene.asked().is_empty());
    assert_eq!(scene.workers(), 1);
}

// --- workers that die -----------------------------------------------------------------------------------------------

#[test]
fn a_crash_names_its_worker_and_costs_what_ran_in_it() {
    let (mut scene, mut workers) = Scene::ready(Scene::config(1, 1));
    let (victim, waiting) = (scene.task(), scene.task());
    let mut worker = workers.pop().expect("one");
    assert_eq!(worker.start(0), Some(victim.id));
    let (pid, slot) = (worker.pid(), worker.slot);
    scene.die(worker, 11);
    match victim.outcome() {
        Some(Outcome::Failed(Failure::Crashed { pid: named, status, reason: None, starting, .. })) => {
            assert_eq!((*named, *status, *starting), (pid, Some(11), false));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!((victim.record().pid, victim.attempt()), (pid, 1));
    let mut next = scene.asked();
    assert_eq!(next.len(), 1);
    let mut next = next.pop_front().expect("another worker");
    assert_eq!(next.slot, slot, "its place is free");
    scene.fork(&next);
    next.ready();
    scene.tick();
    assert_eq!(next.start(0), Some(waiting.id));
    next.answer(0, waiting.id);
    scene.tick();
    assert_eq!((waiting.record().pid, waiting.attempt()), (next.pid(), 1));
    let state = scene.engine.lock();
    assert_eq!(
        (state.members.lanes.len(), state.members.workers.len(), state.members.starting),
        (1, 1, 0),
        "places are used again"
    );
    assert_eq!((state.counters.crashed, state.counters.restarted, state.counters.retried), (1, 1, 0));
}

#[test]
fn a_crash_says_how_many_inputs_of_its_batch_were_begun() {
    for begun in [None, Some(3)] {
        let (scene, mut workers) = Scene::ready(Scene::config(1, 1));
        let task = scene.task();
        let mut worker = workers.pop().expect("one");
        assert_eq!(worker.start(0), Some(task.id));
        // What it said of another task is not taken for this one's.
        worker.reach(0, task.id + 1, 7);
        if let Some(inputs) = begun {
            worker.reach(0, task.id, inputs);
        }
        scene.die(worker, 9);
        assert!(task.is_done());
        assert_eq!(task.record().reached, begun.unwrap_or(0));
    }
}

#[test]
fn what_a_dying_worker_has_answered_counts() {
    let (scene, mut workers) = Scene::ready(Scene::config(1, 1));
    let task = scene.task();
    let mut worker = workers.pop().expect("one");
    assert_eq!(worker.start(0), Some(task.id));
    worker.answer(0, task.id);
    scene.die(worker, 9);
    assert!(matches!(task.outcome(), Some(Outcome::Replied(_))));
}

#[test]
fn starts_that_fail_in_a_row_break_the_pool_and_a_few_do_not() {
    fn fail(scene: &mut Scene, asked: &mut VecDeque<Actor>, times: u32) {
        for _ in 0..times {
            assert!(scene.engine.broken().is_none());
            let worker = asked.pop_front().expect("it is replaced");
            scene.fork(&worker);
            scene.die(worker, 9);
            scene.pass(LONGEST_DELAY);
            asked.extend(scene.asked());
        }
    }
    for (workers, most) in [(1, LEAST_FAILED_STARTS), (4, 4 * FAILED_STARTS_PER_WORKER)] {
        let mut scene = Scene::new(Scene::config(workers, 1));
        let mut asked = scene.asked();
        fail(&mut scene, &mut asked, most - 1);
        let starting = scene.engine.lock().members.starting;
        assert_eq!((starting, scene.workers()), (workers, workers));
        // One that is ready takes the others' failures away.
        let mut worker = asked.pop_front().expect("it is replaced");
        scene.fork(&worker);
        worker.ready();
        scene.tick();
        scene.die(worker, 9);
        asked.extend(scene.asked());
        let task = scene.task();
        fail(&mut scene, &mut asked, most - 1);
        assert!(scene.engine.broken().is_none() && !task.is_done());
        fail(&mut scene, &mut asked, 1);
        for failure in [scene.engine.broken(), failure_of(&task)] {
            assert!(matches!(failure, Some(Failure::Crashed { starting: true, .. })), "{failure:?}");
        }
    }
}

#[test]
fn the_status_of_a_dead_worker_is_waited_for_and_not_for_ever() {
    let crash = |task: &Task| match task.outcome() {
        Some(Outcome::Failed(Failure::Crashed { status, .. })) => *status,
        other => panic!("{other:?}"),
    };
    for comes in [true, false] {
        let (mut scene, mut workers) = Scene::ready(Scene::config(1, 1));
        let task = scene.task();
        assert_eq!(workers[0].start(0), Some(task.id));
        scene.kicked();
        scene.engine.worker_gone(workers[0].id, None);
        assert!(scene.kicked());
        let death = scene.now + STATUS_PATIENCE;
        assert!(scene.tick().is_some_and(|next| next <= death));
        assert_eq!(scene.engine.lock().members.next_death(), Some(death));
        let moment = Duration::from_millis(1);
        scene.pass(STATUS_PATIENCE - moment);
        assert!(!task.is_done());
        if comes {
            scene.engine.worker_gone(workers[0].id, Some(11));
        } else {
            scene.pass(moment);
        }
        assert_eq!(crash(&task), comes.then_some(11));
    }
}

#[test]
fn a_worker_that_does_not_listen_and_does_not_end_is_ended() {
    let (mut scene, mut workers) = Scene::ready(Scene::config(2, 1));
    let tasks = [scene.task(), scene.task()];
    for worker in &mut workers {
        assert!(worker.start(0).is_some());
    }
    let moment = Duration::from_millis(1);
    scene.kicked();
    scene.engine.worker_hung_up(workers[0].id);
    assert!(scene.kicked());
    assert!(scene.tick().is_some_and(|next| next <= scene.now + END_PATIENCE));
    scene.pass(END_PATIENCE - moment);
    assert!(!scene.has_killed(&workers[0]));
    scene.pass(moment);
    assert!(scene.has_killed(&workers[0]) && !scene.has_killed(&workers[1]));
    let pid = workers[0].pid();
    scene.die(workers.remove(0), 9);
    let ended: Vec<_> = tasks.iter().filter(|task| task.is_done()).collect();
    match ended[..] {
        [task] => match task.outcome() {
            Some(Outcome::Failed(Failure::Crashed { pid: named, reason: Some(reason), .. })) => {
                assert!(*named == pid && &**reason == HUNG_UP);
            }
            other => panic!("{other:?}"),
        },
        _ => panic!("{ended:?}"),
    }
    assert_eq!(scene.engine.lock().counters.crashed, 1, "it is not as if it had been asked to");
    // One that ends in time, as all do that end, is not blamed for it.
    let last = workers.remove(0);
    scene.engine.worker_hung_up(last.id);
    scene.die(last, 0);
    scene.pass(END_PATIENCE);
    assert!(tasks.iter().all(|task| task.is_done()));
}

#[test]
fn what_is_run_again_keeps_its_own_count() {
    let (mut scene, mut workers) = Scene::ready(Scene::config(1, 1));
    let task = scene.submit(Options { retries: 1, ..Options::default() });
    for attempt in 1..=2 {
        let mut worker = workers.pop().expect("one");
        assert_eq!(worker.start(0), Some(task.id), "attempt {attempt}");
        scene.die(worker, 9);
        assert_eq!((task.attempt(), task.is_done()), (attempt, attempt == 2));
        workers.extend(scene.asked());
        let worker = workers.last_mut().expect("it is replaced");
        scene.fork(worker);
        worker.ready();
        scene.tick();
    }
    assert_eq!(scene.engine.lock().counters.retried, 1);
}

#[test]
fn the_statistics_say_what_each_worker_does() {
    use crate::statistics::WorkerState::{Busy, Idle, Leaving, Starting};
    let states = |scene: &Scene| {
        let statistics = scene.engine.statistics().expect("this process");
        statistics.workers.iter().map(|worker| worker.state).collect::<Vec<_>>()
    };
    let mut scene = Scene::new(Scene::config(1, 2));
    let mut worker = scene.asked().pop_front().expect("one");
    assert_eq!(states(&scene), [Starting]);
    scene.fork(&worker);
    worker.ready();
    assert_eq!(states(&scene), [Idle]);
    let tasks = [scene.task(), scene.task()];
    assert_eq!(states(&scene), [Idle], "it has not started any");
    let started = worker.start(0).expect("each lane has one");
    assert_eq!(states(&scene), [Busy]);
    // It is ended for one of its tasks, while the other runs; and then it is killed.
    let other = worker.start(1).expect("each lane has one");
    let first = tasks.iter().find(|task| task.id == started).expect("one of them");
    assert!(scene.engine.cancel(first, true));
    assert_eq!(states(&scene), [Leaving, Starting]);
    worker.answer(1, other);
    assert_eq!(states(&scene), [Leaving, Starting]);
    assert!(scene.has_killed(&worker));
    // One that the parent told to leave, and one whose process is gone.
    let (scene, mut workers) = Scene::ready(Scene::config(2, 1));
    scene.engine.worker_gone(workers[0].id, None);
    assert_eq!(states(&scene), [Leaving, Idle]);
    scene.engine.close(false);
    assert_eq!(states(&scene), [Leaving, Leaving]);
    assert!(workers[1].is_dismissed(0));
}
