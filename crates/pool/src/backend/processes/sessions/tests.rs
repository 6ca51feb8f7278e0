//! Scenes of sessions: a test decides which worker does what, and when.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::config::Config;
use crate::pool::{Refused, Which};
use crate::session::{Mode, SessionSettings};
use crate::simulation::scene::{Actor, Scene};
use crate::task::{Options, Task};
use crate::worker::Incoming;

const TTL: Duration = Duration::from_secs(10);
const MOMENT: Duration = Duration::from_millis(1);

fn settings(mode: Mode) -> SessionSettings {
    SessionSettings { name: "session".into(), mode, ..SessionSettings::default() }
}

fn actor(restarts: u32) -> SessionSettings {
    SessionSettings { restarts: Some(restarts), ..settings(Mode::Queue) }
}

/// The number of a session and of its state, of a `SESSION` record.
fn opened(record: Incoming) -> Option<(u32, u32)> {
    let low = |number: u64| u32::try_from(number & u64::from(u32::MAX)).expect("32 bits");
    (record.kind == kind::SESSION).then(|| (low(record.id), low(record.id >> 32)))
}

/// What a lane has been sent: the kinds and the tasks' sessions.
fn all(worker: &mut Actor) -> Vec<Incoming> {
    std::iter::from_fn(|| worker.take(0)).collect()
}

/// The worker that starts a task, among several; the others start nothing.
fn starter(workers: &mut [Actor], task: &Task) -> usize {
    let mut started = workers.iter_mut().map(|worker| worker.start(0) == Some(task.id));
    started.position(|is_it| is_it).expect("it was sent to one")
}

fn died(task: &Task) -> Option<Failure> {
    match task.outcome() {
        Some(Outcome::Failed(Failure::ActorDied { cause, .. })) => Some((**cause).clone()),
        _ => None,
    }
}

/// The next worker comes up.
fn next_worker(scene: &mut Scene) -> Actor {
    let mut worker = scene.asked().pop_front().expect("another worker");
    scene.fork(&worker);
    worker.ready();
    scene.tick();
    worker
}

#[test]
fn a_state_is_announced_once_before_the_first_task_of_its_session() {
    let (scene, mut workers) = Scene::ready(Scene::config(1, 1));
    let session = scene.session(settings(Mode::Queue));
    assert_eq!((session.generation(), session.is_cold()), (0, true));
    for round in 0..3 {
        let task = scene.task_of(&session);
        let records = all(&mut workers[0]);
        let announced: Vec<_> = records.iter().copied().filter_map(opened).collect();
        let expected = if round == 0 { vec![(session.id, 1)] } else { Vec::new() };
        assert_eq!(announced, expected);
        let last = records.last().expect("the task");
        assert_eq!((last.kind, last.id, last.flags & flags::OF_SESSION != 0), (kind::TASK, task.id, true));
        assert_eq!(task.generation(), 1);
        workers[0].answer(0, task.id);
        scene.tick();
        assert!(task.is_done());
    }
    assert_eq!((session.generation(), session.is_cold()), (1, false));
    let plain = scene.task();
    assert_eq!(all(&mut workers[0]).last().map(|record| record.flags & flags::OF_SESSION), Some(0));
    assert_eq!(plain.generation(), 0);
}

#[test]
fn a_session_is_named_again_only_when_it_changes() {
    let (scene, mut workers) = Scene::ready(Scene::config(1, 1));
    let sessions = [0, 1].map(|_| scene.session(settings(Mode::Queue)));
    for (at, named) in [(0, 0), (1, 0), (1, 0), (0, 1), (0, 0), (1, 1)] {
        let task = scene.task_of(&sessions[at]);
        let names: Vec<_> =
            all(&mut workers[0]).iter().filter(|r| r.kind == kind::ENTER_SESSION).map(|r| r.aux).collect();
        assert_eq!(names, vec![u64::from(sessions[at].id); named]);
        workers[0].answer(0, task.id);
        scene.tick();
    }
}

#[test]
fn sessions_are_spread_and_their_tasks_wait_for_their_own_worker() {
    let (mut scene, mut workers) = Scene::ready(Scene::config(3, 1));
    let sessions: Vec<_> = (0..6).map(|_| scene.session(settings(Mode::Queue))).collect();
    let first: Vec<_> = sessions.iter().map(|session| scene.task_of(session)).collect();
    let counts: Vec<_> =
        scene.engine.lock().members.lanes.iter().flatten().map(|l| l.sessions.len()).collect();
    assert_eq!(counts, [2, 2, 2]);
    for worker in &mut workers {
        while let Some(id) = worker.start(0) {
            worker.answer(0, id);
            scene.tick();
        }
    }
    assert!(first.iter().all(|task| task.is_done()));
    // One worker gets all of its own, and the idle ones none of them, however long they wait.
    let mine: Vec<_> = (0..5).map(|_| scene.task_of(&sessions[0])).collect();
    let at = starter(&mut workers, &mine[0]);
    scene.pass(Duration::from_secs(1));
    assert_eq!(scene.engine.statistics().expect("this process").queued, 4);
    assert!(!scene.engine.lock().steal_pending(), "nothing is to be carried");
    workers[at].answer(0, mine[0].id);
    for task in &mine[1..] {
        scene.tick();
        assert_eq!(starter(&mut workers, task), at);
        workers[at].answer(0, task.id);
    }
    scene.tick();
    assert!(mine.iter().all(|task| task.is_done() && task.generation() == 1));
}

#[test]
fn others_are_carried_away_from_behind_a_session_s_tasks() {
    let (mut scene, mut workers) = Scene::ready(Scene::config(2, 1));
    let session = scene.session(settings(Mode::Queue));
    let held = scene.task_of(&session);
    let at = starter(&mut workers, &held);
    let running = scene.task();
    assert_eq!(workers[1 - at].start(0), Some(running.id));
    let waiting = (scene.task_of(&session), scene.task(), scene.task_of(&session), scene.task());
    workers[1 - at].answer(0, running.id);
    scene.pass(Duration::from_millis(5));
    let mut carried = Vec::new();
    while let Some(id) = workers[1 - at].start(0) {
        carried.push(id);
        workers[1 - at].answer(0, id);
        scene.pass(Duration::from_millis(5));
    }
    carried.sort_unstable();
    assert_eq!(carried, [waiting.1.id, waiting.3.id]);
    workers[at].answer(0, held.id);
    for task in [waiting.0, waiting.2] {
        scene.tick();
        assert_eq!(workers[at].start(0), Some(task.id));
        workers[at].answer(0, task.id);
    }
}

#[test]
fn a_session_that_prefers_its_worker_goes_elsewhere_while_that_is_busy() {
    let (scene, mut workers) = Scene::ready(Scene::config(2, 1));
    let session = scene.session(settings(Mode::Prefer));
    let mut at = 0;
    for round in 0..4 {
        let task = scene.task_of(&session);
        let home = starter(&mut workers, &task);
        assert!(round == 0 || home == at, "it is warm there");
        at = home;
        workers[at].answer(0, task.id);
        scene.tick();
    }
    assert_eq!(session.generation(), 1);
    let first = scene.task_of(&session);
    assert_eq!(starter(&mut workers, &first), at);
    let second = scene.task_of(&session);
    let records = all(&mut workers[1 - at]);
    assert_eq!(records.iter().copied().find_map(opened), Some((session.id, 2)));
    assert_eq!((first.generation(), second.generation(), session.homes().len()), (1, 2, 2));
    // Both have it now, and the busy one is not waited for.
    workers[1 - at].answer(0, second.id);
    scene.tick();
    let third = scene.task_of(&session);
    assert_eq!(starter(&mut workers, &third), 1 - at);
    assert_eq!((third.generation(), session.generation()), (2, 2));
}

#[test]
fn a_session_that_fails_refuses_a_task_while_its_worker_is_busy() {
    let (scene, mut workers) = Scene::ready(Scene::config(1, 1));
    let session = scene.session(settings(Mode::Fail));
    let first = scene.task_of(&session);
    assert!(matches!(scene.refusal(&session), Refused::SessionBusy), "its own task");
    workers[0].start(0);
    workers[0].answer(0, first.id);
    scene.tick();
    let other = scene.task();
    assert!(matches!(scene.refusal(&session), Refused::SessionBusy), "another task");
    workers[0].start(0);
    workers[0].answer(0, other.id);
    scene.tick();
    let _ = scene.task_of(&session);
}

#[test]
fn a_session_whose_worker_died_is_made_again_and_keeps_the_order() {
    let (mut scene, mut workers) = Scene::ready(Scene::config(2, 1));
    let session = scene.session(settings(Mode::Queue));
    let tasks: Vec<_> = (0..4).map(|_| scene.task_of(&session)).collect();
    let at = starter(&mut workers, &tasks[0]);
    scene.die(workers.remove(at), 9);
    scene.tick();
    assert!(matches!(tasks[0].outcome(), Some(Outcome::Failed(Failure::Crashed { .. }))));
    let (mut order, mut announced) = (Vec::new(), Vec::new());
    for _ in 0..tasks.len() {
        for record in all(&mut workers[0]) {
            announced.extend(opened(record));
            if record.kind == kind::TASK {
                order.push(record.id);
                workers[0].answer(0, record.id);
            }
        }
        scene.tick();
    }
    assert_eq!(announced, [(session.id, 2)]);
    assert_eq!(order, tasks[1..].iter().map(|task| task.id).collect::<Vec<_>>());
    assert!(tasks[1..].iter().all(|task| task.generation() == 2));
    assert_eq!(scene.asked().len(), 1);
}

#[test]
fn a_state_that_no_task_had_begun_with_does_not_count() {
    let (mut scene, mut workers) = Scene::ready(Scene::config(1, 1));
    let session = scene.session(actor(0));
    let task = scene.task_of(&session);
    scene.die(workers.remove(0), 9);
    let mut worker = next_worker(&mut scene);
    assert_eq!(worker.start(0), Some(task.id));
    assert_eq!((task.generation(), session.generation()), (1, 1));
    assert!(session.lost().is_none());
}

#[test]
fn an_actor_dies_with_its_worker_and_its_calls_say_why() {
    let (scene, mut workers) = Scene::ready(Scene::config(2, 1));
    let session = scene.session(actor(0));
    let calls: Vec<_> = (0..3).map(|_| scene.task_of(&session)).collect();
    let at = starter(&mut workers, &calls[0]);
    let pid = workers[at].pid();
    scene.die(workers.remove(at), 9);
    scene.tick();
    assert!(matches!(calls[0].outcome(), Some(Outcome::Failed(Failure::Crashed { .. }))));
    for call in &calls[1..] {
        let cause = died(call).expect("it died");
        assert!(matches!(cause, Failure::Crashed { pid: of, .. } if of == pid));
        assert_eq!(call.attempt(), 0);
    }
    assert!(matches!(scene.refusal(&session), Refused::Lost(Failure::ActorDied { .. })));
    let statistics = scene.engine.statistics().expect("this process");
    assert_eq!((statistics.queued, statistics.counters.failed), (0, 3));
}

#[test]
fn an_actor_is_made_again_as_often_as_it_may_be() {
    let (mut scene, workers) = Scene::ready(Scene::config(1, 1));
    let session = scene.session(actor(2));
    let mut worker = workers.into_iter().next().expect("one");
    for generation in 1..=3 {
        let call = scene.task_of(&session);
        assert_eq!(worker.start(0), Some(call.id));
        assert_eq!((call.generation(), session.generation()), (generation, generation));
        scene.die(worker, 9);
        worker = next_worker(&mut scene);
        assert!(call.is_done());
    }
    assert!(session.lost().is_some());
    let other = scene.task();
    assert_eq!(worker.start(0), Some(other.id), "the pool goes on");
}

#[test]
fn an_actor_that_could_not_be_made_fails_its_calls_with_the_exception() {
    let (scene, mut workers) = Scene::ready(Scene::config(1, 1));
    for (settings, fails) in [(actor(5), true), (settings(Mode::Queue), false)] {
        let session = scene.session(settings);
        let call = scene.task_of(&session);
        let records = all(&mut workers[0]);
        let announced = records.iter().find(|record| record.kind == kind::SESSION).expect("sent");
        assert_eq!(announced.flags & flags::ACTOR != 0, fails);
        workers[0].say(0, kind::DONE, flags::ERROR | flags::ACTOR, call.id, 1000);
        scene.tick();
        assert_eq!(matches!(died(&call), Some(Failure::Initializer(_))), fails);
        assert_eq!(session.lost().is_some(), fails);
        if !fails {
            assert!(matches!(call.outcome(), Some(Outcome::Replied(_))), "a worker's word for no actor");
        }
    }
}

#[test]
fn a_state_that_is_idle_for_its_time_is_dropped_and_made_again() {
    for mode in [Mode::Queue, Mode::Prefer] {
        let (mut scene, mut workers) = Scene::ready(Scene::config(1, 1));
        let session = scene.session(SessionSettings { ttl: Some(TTL), ..settings(mode) });
        for generation in 1..=2 {
            let task = scene.task_of(&session);
            assert_eq!(workers[0].start(0), Some(task.id));
            assert_eq!(task.generation(), generation);
            scene.pass(TTL * 3);
            workers[0].answer(0, task.id);
            assert!(scene.tick().is_some_and(|next| next <= scene.now + TTL));
            scene.pass(TTL - MOMENT);
            // Another task in between puts it off.
            let other = scene.task_of(&session);
            assert_eq!(workers[0].start(0), Some(other.id));
            workers[0].answer(0, other.id);
            scene.tick();
            scene.pass(TTL - MOMENT);
            assert!(all(&mut workers[0]).is_empty() && !session.is_cold());
            scene.pass(MOMENT);
            let dropped = all(&mut workers[0]);
            let told: Vec<_> = dropped.iter().map(|record| (record.kind, record.aux)).collect();
            assert_eq!(told, [(kind::DROP_SESSION, u64::from(session.id))]);
            assert!(session.is_cold());
        }
        assert_eq!(scene.engine.lock().members.bound, 0);
    }
}

#[test]
fn a_closed_session_runs_what_it_had_accepted_and_is_dropped() {
    let (scene, mut workers) = Scene::ready(Scene::config(1, 1));
    let session = scene.session(settings(Mode::Queue));
    let tasks = [scene.task_of(&session), scene.task_of(&session)];
    scene.engine.close_session(&session);
    scene.engine.close_session(&session);
    assert!(matches!(scene.refusal(&session), Refused::SessionClosed));
    assert_eq!(scene.engine.statistics().expect("this process").sessions, 1);
    for task in &tasks {
        assert_eq!(workers[0].start(0), Some(task.id));
        workers[0].answer(0, task.id);
        scene.tick();
    }
    let told: Vec<_> = all(&mut workers[0]).iter().map(|record| (record.kind, record.aux)).collect();
    assert_eq!(told, [(kind::DROP_SESSION, u64::from(session.id))]);
    assert_eq!(scene.engine.statistics().expect("this process").sessions, 0);
    assert!(session.opening.lock().is_none() && scene.engine.lock().members.bound == 0);
}

#[test]
fn a_drop_waits_for_room_in_the_ring() {
    let (mut scene, mut workers) = Scene::ready(Scene::config(1, 1));
    let session = scene.session(settings(Mode::Prefer));
    let task = scene.task_of(&session);
    assert_eq!(workers[0].start(0), Some(task.id));
    workers[0].answer(0, task.id);
    scene.tick();
    {
        let mut state = scene.engine.lock();
        let lane = state.members.lanes[0].as_mut().expect("a lane");
        while send_plain(&mut lane.tasks, kind::LOOK, 0) {}
    }
    scene.engine.close_session(&session);
    let all_of_it = all(&mut workers[0]);
    assert!(all_of_it.iter().all(|record| record.kind == kind::LOOK));
    scene.pass(SWEEP);
    assert!(all(&mut workers[0]).iter().any(|record| record.kind == kind::DROP_SESSION));
}

#[test]
fn a_cancelled_call_waits_no_more_and_the_others_keep_their_order() {
    let (scene, mut workers) = Scene::ready(Scene::config(1, 1));
    let session = scene.session(actor(0));
    let calls: Vec<_> = (0..6).map(|_| scene.task_of(&session)).collect();
    assert_eq!(workers[0].start(0), Some(calls[0].id));
    for at in [1, 4] {
        assert!(scene.engine.cancel(&calls[at], false));
    }
    assert_eq!(scene.engine.statistics().expect("this process").queued, 3);
    let mut running = calls[0].id;
    for at in [2, 3, 5] {
        workers[0].answer(0, running);
        scene.tick();
        running = calls[at].id;
        assert_eq!(workers[0].start(0), Some(running));
    }
}

#[test]
fn a_session_leaves_a_worker_that_is_being_ended_and_an_actor_stays() {
    for is_actor in [false, true] {
        let config = Config { grace: Duration::from_secs(1), ..Scene::config(1, 2) };
        let (mut scene, mut workers) = Scene::ready(config);
        let mut worker = workers.remove(0);
        let session = scene.session(if is_actor { actor(0) } else { settings(Mode::Queue) });
        let held = scene.task_of(&session);
        let lane = (0..2).find(|lane| worker.start(*lane) == Some(held.id)).expect("started");
        let other = scene.task();
        assert_eq!(worker.start(1 - lane), Some(other.id));
        let waiting = scene.task_of(&session);
        assert!(scene.engine.cancel(&other, true));
        let mut next = next_worker(&mut scene);
        assert!((0..2).all(|lane| next.start(lane).is_none()), "the one before it runs elsewhere");
        worker.answer(lane, held.id);
        scene.tick();
        assert!(scene.has_killed(&worker));
        scene.die(worker, 9);
        scene.tick();
        let started = (0..2).any(|lane| next.start(lane) == Some(waiting.id));
        assert_eq!((started, died(&waiting).is_some()), (!is_actor, is_actor));
    }
}

#[test]
fn tasks_of_one_worker_are_in_the_order_of_submission_whatever_they_belong_to() {
    let (scene, mut workers) = Scene::ready(Scene::config(1, 1));
    let session = scene.session(settings(Mode::Queue));
    let mut tasks = Vec::new();
    for round in 0..12 {
        tasks.push(if round % 3 == 0 { scene.task_of(&session) } else { scene.task() });
    }
    let urgent = scene.submit(Options { priority: 1, session: Some(session.id), ..Options::default() });
    let mut order = Vec::new();
    while let Some(id) = workers[0].start(0) {
        order.push(id);
        workers[0].answer(0, id);
        scene.tick();
    }
    let mut expected: Vec<_> = tasks.iter().map(|task| task.id).collect();
    // The first was in the ring before the urgent one came, and the worker may have taken it.
    expected.insert(order.iter().position(|id| *id == urgent.id).expect("it ran"), urgent.id);
    assert_eq!(order, expected);
    assert!(order[..2].contains(&urgent.id));
}

#[test]
fn sessions_wait_for_a_worker_when_there_is_none() {
    let (mut scene, mut workers) = Scene::ready(Scene::config(1, 1));
    let session = scene.session(settings(Mode::Queue));
    let first = scene.task_of(&session);
    assert_eq!(workers[0].start(0), Some(first.id));
    let worker = workers.remove(0);
    {
        let mut state = scene.engine.lock();
        let lane = state.members.workers.iter().flatten().next().expect("one").lanes[0];
        scene.engine.condemn_lane(&mut state, lane, "of a test");
    }
    let (second, third) = (scene.task_of(&session), scene.task_of(&session));
    scene.die(worker, 9);
    let mut worker = next_worker(&mut scene);
    for task in [second, third] {
        assert_eq!(worker.start(0), Some(task.id));
        worker.answer(0, task.id);
        scene.tick();
    }
    assert_eq!(Arc::strong_count(&first), 1);
}

#[test]
fn sessions_leave_a_worker_that_is_replaced() {
    for is_actor in [false, true] {
        let (mut scene, mut workers) = Scene::ready(Scene::config(1, 1));
        let session = scene.session(if is_actor { actor(0) } else { settings(Mode::Queue) });
        let mut worker = workers.remove(0);
        let held = scene.task_of(&session);
        assert_eq!(worker.start(0), Some(held.id));
        let waiting = scene.task_of(&session);
        assert_eq!(scene.engine.recycle(Which::All), 1);
        scene.tick();
        let mut next = scene.asked().pop_front().expect("a stand-in");
        scene.fork(&next);
        let fresh = scene.session(settings(Mode::Queue));
        let of_fresh = scene.task_of(&fresh);
        assert!(scene.engine.lock().members.lanes[1].as_ref().is_some_and(|lane| lane.sessions.is_empty()));
        next.ready();
        scene.tick();
        // The one that has no state yet goes at once, the other with its last task.
        assert_eq!(next.start(0), Some(of_fresh.id));
        next.answer(0, of_fresh.id);
        scene.tick();
        assert_eq!(next.start(0), None);
        worker.answer(0, held.id);
        scene.tick();
        assert!(worker.is_dismissed(0) && held.is_done());
        scene.die(worker, 0);
        scene.tick();
        if is_actor {
            let cause = died(&waiting).expect("it died");
            assert!(matches!(cause, Failure::Limit { reason, .. } if reason.contains("(asked)")));
            assert_eq!(next.start(0), None);
        } else {
            assert_eq!(next.start(0), Some(waiting.id));
            assert_eq!((waiting.generation(), session.generation()), (2, 2));
        }
    }
}

#[test]
fn other_tasks_keep_out_of_a_session_s_lane_while_another_is_free() {
    let (scene, mut workers) = Scene::ready(Scene::config(3, 1));
    let session = scene.session(settings(Mode::Queue));
    let first = scene.task_of(&session);
    let home = starter(&mut workers, &first);
    workers[home].answer(0, first.id);
    scene.tick();
    // It is the warmest.
    for round in 0..3 {
        let task = scene.task();
        assert_eq!(starter(&mut workers, &task) == home, round == 2, "with {round} busy");
    }
}
