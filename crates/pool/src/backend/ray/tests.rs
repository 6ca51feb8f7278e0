//! Scenes of lanes: a test is the thread of every lane.

use super::*;
use crate::config::{Config, Health, OnCrash};
use crate::locked::Opaque;
use crate::outcome::{Failure, Outcome};
use crate::outcome::{Limit, Phase};
use crate::pool::Answer;
use crate::pool::{WaitFor, Waited};
use crate::task::{Call, Options, Rare};

const SOON: Duration = Duration::from_secs(60);
const NOW: Duration = Duration::ZERO;

fn pool(on_crash: OnCrash) -> Arc<Pool<Ray>> {
    let config = Config { name: "far".into(), workers: 2, on_crash, ..Config::default() };
    Pool::start(config, ()).expect("started")
}

fn submit(pool: &Pool<Ray>, options: Options) -> Arc<Task> {
    let call = Call::Local(ropewalk_sync::Mutex::new(Some(Opaque::new(()))));
    pool.submit(call, 0, options, true).map_err(|refused| refused.1).expect("accepted")
}

fn ready(pool: &Pool<Ray>, lane: usize, pid: i32) -> Attended {
    pool.attend(lane, News::Ready(pid), NOW)
}

/// The actors that are to be ended.
fn to_end(pool: &Pool<Ray>) -> Option<Vec<(usize, u64)>> {
    let ends = |order: Order| matches!(order.what, Errand::End).then_some((order.worker, order.which));
    Some(pool.orders(NOW)?.into_iter().filter_map(ends).collect())
}

fn task(attended: Attended) -> Arc<Task> {
    match attended {
        Attended::Task(task) => task,
        other => panic!("no task: {other:?}"),
    }
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

#[test]
fn a_task_that_is_ended_dooms_its_lane_and_no_other() {
    let pool = pool(OnCrash::Replace);
    let (first, second) = (submit(&pool, Options::default()), submit(&pool, Options::default()));
    assert!(Arc::ptr_eq(&task(ready(&pool, 0, 10)), &first));
    assert!(Arc::ptr_eq(&task(ready(&pool, 1, 11)), &second));
    assert!(!pool.cancel(&first, false), "it runs");
    assert!(pool.cancel(&first, true) && !pool.cancel(&first, true));
    assert!(matches!(first.outcome(), Some(Outcome::Cancelled)));
    assert_eq!((first.record().pid, to_end(&pool)), (10, Some(vec![(0, 1)])));
    assert_eq!(to_end(&pool), Some(vec![]), "each order is given once");
    // Its answer may have been on the way.
    assert!(matches!(answer(&pool, 0), Attended::Doomed));
    assert!(matches!(gone(&pool, 0), Attended::Nothing));
    assert!(matches!(answer(&pool, 1), Attended::Nothing));
    let counters = pool.statistics().expect("this process").counters;
    assert_eq!((counters.crashed, counters.cancelled, counters.completed), (0, 1, 1));
    assert!(matches!(ready(&pool, 0, 12), Attended::Nothing));
    assert_eq!(pool.statistics().expect("this process").counters.restarted, 1);
    pool.close(false);
    assert!(pool.has_ended() && pool.orders(NOW).is_none());
}

#[test]
fn an_order_names_the_actor_that_it_is_for() {
    let pool = pool(OnCrash::Replace);
    for started in 1..4 {
        let running = submit(&pool, Options::default());
        task(ready(&pool, 0, 10));
        assert!(pool.cancel(&running, true));
        if started == 2 {
            assert!(matches!(gone(&pool, 0), Attended::Nothing));
            assert_eq!(to_end(&pool), Some(vec![]), "it is gone already");
            continue;
        }
        assert_eq!(to_end(&pool), Some(vec![(0, started)]));
        assert!(matches!(gone(&pool, 0), Attended::Nothing));
    }
}

#[test]
fn a_lost_actor_costs_its_task_alone_and_that_may_be_run_again() {
    let pool = pool(OnCrash::Replace);
    let (lost, kept) =
        (submit(&pool, Options::default()), submit(&pool, Options { retries: 1, ..Options::default() }));
    task(ready(&pool, 0, 10));
    task(ready(&pool, 1, 11));
    for lane in 0..2 {
        assert!(matches!(gone(&pool, lane), Attended::Nothing));
    }
    match lost.outcome() {
        Some(Outcome::Failed(Failure::Crashed { pid: 10, reason: Some(why), .. })) => {
            assert_eq!(&**why, "its node died");
        }
        other => panic!("{other:?}"),
    }
    assert!(!kept.is_done());
    assert!(Arc::ptr_eq(&task(ready(&pool, 0, 12)), &kept));
    assert!(matches!(answer(&pool, 0), Attended::Nothing));
    assert_eq!((kept.attempt(), kept.record().pid), (2, 12));
    let statistics = pool.statistics().expect("this process");
    assert_eq!((statistics.counters.crashed, statistics.counters.retried), (2, 1));
    let of = |at: usize| (statistics.workers[at].state, statistics.workers[at].completed);
    assert_eq!((of(0), of(1)), ((WorkerState::Idle, 1), (WorkerState::Starting, 0)));
}

#[test]
fn a_task_that_costs_actor_after_actor_is_quarantined() {
    let pool = pool(OnCrash::Replace);
    let poison = submit(&pool, Options { retries: 9, ..Options::default() });
    for pid in [10, 11, 12] {
        assert!(!poison.is_done());
        task(ready(&pool, 0, pid));
        assert!(matches!(gone(&pool, 0), Attended::Nothing));
    }
    match poison.outcome() {
        Some(Outcome::Failed(Failure::Poisoned { deaths, .. })) => {
            assert_eq!(deaths.iter().map(|death| death.pid).collect::<Vec<_>>(), [10, 11, 12]);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(pool.statistics().expect("this process").counters.poisoned, 1);
}

#[test]
fn a_pool_that_loses_too_many_actors_is_unhealthy() {
    let health = Health { poison_after: None, max_restarts: Some((1, SOON)) };
    let config = Config { name: "far".into(), workers: 2, health, ..Config::default() };
    let pool = Pool::<Ray>::start(config, ()).expect("started");
    let lost = submit(&pool, Options { retries: 9, ..Options::default() });
    task(ready(&pool, 0, 10));
    // An actor that the pool ends itself does not count.
    assert!(matches!(ready(&pool, 1, 11), Attended::Nothing));
    let cancelled = submit(&pool, Options::default());
    task(pool.attend(1, News::Nothing, NOW));
    assert!(pool.cancel(&cancelled, true));
    assert!(matches!(gone(&pool, 1), Attended::Nothing));
    assert!(matches!(gone(&pool, 0), Attended::Nothing));
    task(ready(&pool, 0, 12));
    assert!(matches!(gone(&pool, 0), Attended::Closed));
    assert!(matches!(pool.broken(), Some(Failure::Unhealthy { most: 1, .. })));
    assert!(matches!(lost.outcome(), Some(Outcome::Failed(Failure::Unhealthy { .. }))));
    assert!(pool.has_ended());
}

#[test]
fn a_lost_actor_breaks_a_pool_that_is_set_to() {
    let pool = pool(OnCrash::Break);
    let tasks = [submit(&pool, Options::default()), submit(&pool, Options::default())];
    task(ready(&pool, 0, 10));
    assert!(matches!(gone(&pool, 0), Attended::Closed));
    for task in &tasks {
        assert!(matches!(task.outcome(), Some(Outcome::Failed(Failure::Crashed { pid: 10, .. }))));
    }
    assert!(pool.has_ended());
}

#[test]
fn a_run_that_is_too_long_is_ended() {
    let pool = pool(OnCrash::Replace);
    let options =
        Options { retries: 3, ..Rare { timeout: Some(Duration::from_millis(1)), ..Rare::default() }.into() };
    let late = submit(&pool, options);
    task(ready(&pool, 0, 10));
    while pool.wait(&WaitFor::Task(Arc::clone(&late)), Some(Instant::now() + SOON)) == Waited::Interrupted {}
    assert!(matches!(
        late.outcome(),
        Some(Outcome::Failed(Failure::TimedOut(Limit::Timeout, Phase::Running)))
    ));
    assert_eq!(to_end(&pool), Some(vec![(0, 1)]));
}

#[test]
fn a_terminated_pool_ends_when_its_actors_are_gone() {
    let pool = pool(OnCrash::Replace);
    let running = submit(&pool, Options { retries: 9, ..Options::default() });
    task(ready(&pool, 0, 10));
    assert!(matches!(ready(&pool, 1, 11), Attended::Nothing));
    pool.terminate();
    assert!(matches!(running.outcome(), Some(Outcome::Failed(Failure::Terminated))));
    assert!(!pool.has_ended());
    let mut doomed = to_end(&pool).expect("both");
    doomed.sort_unstable();
    assert_eq!(doomed, [(0, 1), (1, 1)]);
    assert!(matches!(pool.attend(1, News::Nothing, NOW), Attended::Doomed));
    assert!(matches!(gone(&pool, 1), Attended::Closed));
    assert!(!pool.has_ended());
    assert!(matches!(gone(&pool, 0), Attended::Closed));
    assert!(pool.has_ended());
}

#[test]
fn a_signal_ends_the_actors_and_fails_what_they_ran() {
    let pool = pool(OnCrash::Replace);
    let running = submit(&pool, Options { retries: 9, ..Options::default() });
    task(ready(&pool, 0, 10));
    pool.signal_workers(15);
    assert!(!running.is_done() && to_end(&pool) == Some(vec![(0, 1)]));
    assert!(matches!(gone(&pool, 0), Attended::Closed));
    assert!(matches!(running.outcome(), Some(Outcome::Failed(Failure::Terminated))));
    assert!(pool.has_ended());
}

#[test]
fn a_missing_actor_is_a_shortage_until_it_comes() {
    let pool = pool(OnCrash::Replace);
    assert!(matches!(pool.attend(0, News::Missing("no CPU is free".into()), NOW), Attended::Nothing));
    assert_eq!(pool.shortage().as_deref(), Some("no CPU is free"));
    assert!(matches!(ready(&pool, 0, 10), Attended::Nothing));
    assert_eq!(pool.shortage(), None);
    pool.close(false);
    assert!(matches!(pool.attend(1, News::Missing("no CPU is free".into()), NOW), Attended::Closed));
}

#[test]
fn a_task_that_comes_while_lanes_sleep_is_taken() {
    let pool = pool(OnCrash::Replace);
    std::thread::scope(|scope| {
        let lane = scope.spawn(|| {
            let mut attended = ready(&pool, 0, 10);
            while matches!(attended, Attended::Nothing) {
                attended = pool.attend(0, News::Nothing, SOON);
            }
            task(attended).id
        });
        let given = submit(&pool, Options::default());
        assert_eq!(lane.join().ok(), Some(given.id));
    });
}
