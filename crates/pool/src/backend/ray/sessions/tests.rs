//! Scenes of sessions: a test is every lane's thread.

use std::time::Duration;

use super::*;
use crate::config::Config;
use crate::locked::Opaque;
use crate::outcome::Reply;
use crate::pool::{Answer, Attended, News, Refused};
use crate::session::{Mode, SessionSettings};
use crate::task::{Call, Options};
use crate::wire::flags;

const NOW: Duration = Duration::ZERO;

fn pool() -> Arc<Pool<Ray>> {
    let config = Config { name: "far".into(), workers: 2, ..Config::default() };
    Pool::start(config, ()).expect("started")
}

fn session(pool: &Pool<Ray>, mode: Mode) -> Arc<Session> {
    pool.open_session(SessionSettings { name: "s".into(), mode, ..SessionSettings::default() }).expect("open")
}

fn actor(pool: &Pool<Ray>, restarts: u32) -> Arc<Session> {
    let settings = SessionSettings {
        name: "a".into(),
        mode: Mode::Queue,
        restarts: Some(restarts),
        ..SessionSettings::default()
    };
    pool.open_session(settings).expect("open")
}

fn try_submit(pool: &Pool<Ray>, session: Option<&Arc<Session>>) -> Result<Arc<Task>, Refused> {
    let call = Call::Local(ropewalk_sync::Mutex::new(Some(Opaque::new(()))));
    let options = Options { session: session.map(|session| session.id), ..Options::default() };
    pool.submit(call, 0, options, true).map_err(|refused| refused.1)
}

fn submit(pool: &Pool<Ray>, session: Option<&Arc<Session>>) -> Arc<Task> {
    try_submit(pool, session).expect("accepted")
}

fn attend(pool: &Pool<Ray>, lane: usize) -> Attended {
    pool.attend(lane, News::Nothing, NOW)
}

fn ready(pool: &Pool<Ray>, lane: usize, pid: i32) -> Attended {
    pool.attend(lane, News::Ready(pid), NOW)
}

fn answer(pool: &Pool<Ray>, lane: usize) -> Attended {
    let answer = Answer {
        value: Opaque::new(1),
        raised: false,
        again: false,
        stopped: false,
        busy_ns: 5,
        progress: None,
    };
    pool.attend(lane, News::Answered(answer), NOW)
}

fn gone(pool: &Pool<Ray>, lane: usize) -> Attended {
    pool.attend(lane, News::Gone("its node died".into()), NOW)
}

fn is_first(attended: &Attended, wanted: &Arc<Task>) -> bool {
    matches!(attended, Attended::First(task) if Arc::ptr_eq(task, wanted))
}

fn is_next(attended: &Attended, wanted: &Arc<Task>) -> bool {
    matches!(attended, Attended::Task(task) if Arc::ptr_eq(task, wanted))
}

fn is_nothing(attended: &Attended) -> bool {
    matches!(attended, Attended::Nothing)
}

#[test]
fn the_tasks_of_a_pinned_session_go_to_its_lane_in_their_order() {
    let pool = pool();
    assert!(is_nothing(&ready(&pool, 0, 10)) && is_nothing(&ready(&pool, 1, 11)));
    let session = session(&pool, Mode::Queue);
    let tasks: Vec<_> = (0..3).map(|_| submit(&pool, Some(&session))).collect();
    let lane = session.place();
    let other = 1 - lane;
    assert!(is_nothing(&attend(&pool, other)), "no other lane has the state");
    assert!(is_first(&attend(&pool, lane), &tasks[0]), "the state is made");
    assert!(is_next(&answer(&pool, lane), &tasks[1]) && is_next(&answer(&pool, lane), &tasks[2]));
    assert!(is_nothing(&answer(&pool, lane)));
    assert_eq!((session.generation(), tasks[2].generation()), (1, 1));
    // Another task leaves the session's lane alone while there is an idle one.
    let plain = submit(&pool, None);
    assert!(is_nothing(&attend(&pool, lane)));
    assert!(is_next(&attend(&pool, other), &plain));
    let plain = submit(&pool, None);
    assert!(is_next(&attend(&pool, lane), &plain), "there is none");
}

#[test]
fn a_task_goes_to_the_idle_lane_that_has_the_state_and_elsewhere_when_it_is_busy() {
    let pool = pool();
    assert!(is_nothing(&ready(&pool, 0, 10)) && is_nothing(&ready(&pool, 1, 11)));
    let session = session(&pool, Mode::Prefer);
    let tasks: Vec<_> = (0..3).map(|_| submit(&pool, Some(&session))).collect();
    assert!(is_first(&attend(&pool, 0), &tasks[0]));
    assert!(is_first(&attend(&pool, 1), &tasks[1]), "its lane is busy");
    assert!(is_next(&answer(&pool, 0), &tasks[2]));
    assert!(is_nothing(&answer(&pool, 0)) && is_nothing(&answer(&pool, 1)));
    assert_eq!((session.generation(), tasks[1].generation(), tasks[2].generation()), (2, 2, 1));
    assert!(is_nothing(&gone(&pool, 0)) && is_nothing(&ready(&pool, 0, 12)));
    let next = submit(&pool, Some(&session));
    assert!(is_nothing(&attend(&pool, 0)), "it hands the task on");
    assert!(pool.cancel(&next, false) || is_next(&attend(&pool, 1), &next));
}

#[test]
fn a_session_that_fails_refuses_what_would_wait() {
    let pool = pool();
    assert!(is_nothing(&ready(&pool, 0, 10)));
    let session = session(&pool, Mode::Fail);
    let first = submit(&pool, Some(&session));
    assert!(matches!(try_submit(&pool, Some(&session)), Err(Refused::SessionBusy)));
    assert!(is_first(&attend(&pool, 0), &first) && is_nothing(&answer(&pool, 0)));
    let plain = submit(&pool, None);
    assert!(is_next(&attend(&pool, 0), &plain));
    assert!(matches!(try_submit(&pool, Some(&session)), Err(Refused::SessionBusy)), "its worker is busy");
    assert!(is_nothing(&answer(&pool, 0)));
    let second = submit(&pool, Some(&session));
    assert!(is_next(&attend(&pool, 0), &second));
}

#[test]
fn a_lost_state_is_made_again_and_the_tasks_that_waited_keep_their_order() {
    let pool = pool();
    assert!(is_nothing(&ready(&pool, 0, 10)));
    let session = session(&pool, Mode::Queue);
    let tasks: Vec<_> = (0..3).map(|_| submit(&pool, Some(&session))).collect();
    assert!(is_first(&attend(&pool, 0), &tasks[0]));
    assert!(is_nothing(&gone(&pool, 0)));
    assert!(matches!(tasks[0].outcome(), Some(Outcome::Failed(Failure::Crashed { pid: 10, .. }))));
    assert_eq!(session.place(), UNBOUND);
    assert!(is_first(&ready(&pool, 1, 11), &tasks[1]), "the first actor that is there takes them");
    assert!(is_next(&answer(&pool, 1), &tasks[2]) && is_nothing(&answer(&pool, 1)));
    assert_eq!((session.generation(), tasks[2].generation()), (2, 2));
}

#[test]
fn an_actor_that_lost_its_worker_is_made_again_as_often_as_it_may_be() {
    let pool = pool();
    let actor = actor(&pool, 1);
    let calls: Vec<_> = (0..4).map(|_| submit(&pool, Some(&actor))).collect();
    assert!(is_first(&ready(&pool, 0, 10), &calls[0]) && is_next(&answer(&pool, 0), &calls[1]));
    assert!(is_nothing(&gone(&pool, 0)));
    assert!(is_first(&ready(&pool, 0, 11), &calls[2]), "its object is made once more");
    assert!(is_nothing(&gone(&pool, 0)));
    for lost in &calls[1..3] {
        assert!(matches!(lost.outcome(), Some(Outcome::Failed(Failure::Crashed { .. }))));
    }
    assert!(matches!(calls[3].outcome(), Some(Outcome::Failed(Failure::ActorDied { .. }))));
    assert!(matches!(try_submit(&pool, Some(&actor)), Err(Refused::Lost(Failure::ActorDied { .. }))));
}

#[test]
fn an_object_that_could_not_be_made_fails_every_call() {
    let pool = pool();
    let actor = actor(&pool, 3);
    let calls = [submit(&pool, Some(&actor)), submit(&pool, Some(&actor))];
    assert!(is_first(&ready(&pool, 0, 10), &calls[0]));
    let reply = Reply { flags: flags::ERROR, bytes: b"error".to_vec(), segments: Vec::new() };
    assert!(is_nothing(&pool.attend(0, News::Unmade(reply), NOW)));
    for call in &calls {
        match call.outcome() {
            Some(Outcome::Failed(Failure::ActorDied { cause, .. })) => {
                assert!(matches!(&**cause, Failure::Initializer(reply) if reply.bytes == b"error"));
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(try_submit(&pool, Some(&actor)), Err(Refused::Lost(_))));
}

#[test]
fn a_state_is_dropped_when_its_session_is_closed_and_when_it_is_idle_for_too_long() {
    let pool = pool();
    assert!(is_nothing(&ready(&pool, 0, 10)));
    let closed = session(&pool, Mode::Queue);
    let task = submit(&pool, Some(&closed));
    assert!(is_first(&attend(&pool, 0), &task));
    pool.close_session(&closed);
    assert!(matches!(answer(&pool, 0), Attended::Drop(ids) if ids == [closed.id]));
    assert!(is_nothing(&attend(&pool, 0)));
    for mode in [Mode::Queue, Mode::Prefer] {
        let ttl = Some(Duration::from_nanos(1));
        let settings = SessionSettings { name: "t".into(), mode, ttl, ..SessionSettings::default() };
        let idle = pool.open_session(settings).expect("open");
        for generation in 1..3 {
            let task = submit(&pool, Some(&idle));
            assert!(is_first(&attend(&pool, 0), &task));
            assert!(matches!(answer(&pool, 0), Attended::Drop(ids) if ids == [idle.id]));
            assert_eq!((idle.generation(), idle.is_cold()), (generation, true));
        }
    }
}

#[test]
fn a_lane_that_comes_later_takes_sessions_over_that_wait() {
    let pool = pool();
    assert!(is_nothing(&ready(&pool, 0, 10)));
    let sessions: Vec<_> = (0..4).map(|_| session(&pool, Mode::Queue)).collect();
    let tasks: Vec<_> = sessions.iter().map(|session| submit(&pool, Some(session))).collect();
    assert!(sessions.iter().all(|session| session.place() == 0));
    assert!(is_first(&attend(&pool, 0), &tasks[0]));
    let taken = ready(&pool, 1, 11);
    let here: Vec<_> = (0..4).filter(|at| sessions[*at].place() == 1).collect();
    assert_eq!((here.len(), here.contains(&0)), (2, false), "one whose state is made stays");
    assert!(is_first(&taken, &tasks[here[0]]));
    assert!(is_first(&answer(&pool, 1), &tasks[here[1]]) && is_nothing(&answer(&pool, 1)));
}

#[test]
fn a_call_that_is_ended_costs_its_object() {
    let pool = pool();
    let actor = actor(&pool, 0);
    let calls = [submit(&pool, Some(&actor)), submit(&pool, Some(&actor))];
    assert!(is_first(&ready(&pool, 0, 10), &calls[0]));
    assert!(pool.cancel(&calls[0], true));
    assert!(matches!(attend(&pool, 0), Attended::Doomed));
    assert!(is_nothing(&gone(&pool, 0)));
    match calls[1].outcome() {
        Some(Outcome::Failed(Failure::ActorDied { cause, .. })) => {
            assert!(matches!(&**cause, Failure::Limit { .. }), "{cause:?}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_tasks_of_sessions_are_run_before_a_pool_that_closes_ends() {
    let pool = pool();
    assert!(is_nothing(&ready(&pool, 0, 10)) && is_nothing(&ready(&pool, 1, 11)));
    let session = session(&pool, Mode::Queue);
    let tasks: Vec<_> = (0..2).map(|_| submit(&pool, Some(&session))).collect();
    let lane = session.place();
    assert!(is_first(&attend(&pool, lane), &tasks[0]));
    pool.close(false);
    assert!(matches!(attend(&pool, 1 - lane), Attended::Closed));
    assert!(is_nothing(&gone(&pool, lane)), "it makes another actor");
    assert!(is_first(&ready(&pool, lane, 12), &tasks[1]), "no lane that has left gets tasks");
    assert!(matches!(answer(&pool, lane), Attended::Closed));
    assert!(pool.has_ended());
}
