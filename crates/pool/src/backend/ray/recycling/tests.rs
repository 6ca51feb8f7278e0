//! Scenes of actors that are replaced: a test is the thread of every lane, and the one that carries out orders.

use super::*;
use crate::config::{Config, Life};
use crate::locked::Opaque;
use crate::outcome::Outcome;
use crate::pool::{Answer, Attended, News, Order};
use crate::statistics::WorkerState;
use crate::task::{Call, Options, Task};

const NOW: Duration = Duration::ZERO;

fn pool(workers: usize, life: Life) -> Arc<Pool<Ray>> {
    let config = Config { name: "far".into(), workers, life, ..Config::default() };
    Pool::start(config, ()).expect("started")
}

fn submit(pool: &Pool<Ray>, retries: u32) -> Arc<Task> {
    let call = Call::Local(ropewalk_sync::Mutex::new(Some(Opaque::new(()))));
    let options = Options { retries, ..Options::default() };
    pool.submit(call, 0, options, true).map_err(|refused| refused.1).expect("accepted")
}

fn attend(pool: &Pool<Ray>, lane: usize) -> Attended {
    pool.attend(lane, News::Nothing, NOW)
}

fn ready(pool: &Pool<Ray>, lane: usize, pid: i32) -> Attended {
    pool.attend(lane, News::Ready(pid), NOW)
}

fn answer(pool: &Pool<Ray>, lane: usize, raised: bool) -> Attended {
    let answer =
        Answer { value: Opaque::new(1), raised, again: true, stopped: false, busy_ns: 5, progress: None };
    pool.attend(lane, News::Answered(answer), NOW)
}

fn is_missing(pool: &Pool<Ray>, lane: usize, why: &str) -> Attended {
    pool.attend(lane, News::Missing(why.into()), NOW)
}

fn gone(pool: &Pool<Ray>, lane: usize) -> Attended {
    pool.attend(lane, News::Gone("its node died".into()), NOW)
}

fn left(pool: &Pool<Ray>, lane: usize) {
    assert!(matches!(pool.attend(lane, News::Left, NOW), Attended::Closed));
}

/// Each lane that is to begin, with whether it stands in.
fn begun(pool: &Pool<Ray>) -> Vec<(usize, bool)> {
    let begins = |order: Order| match order.what {
        Errand::Begin { stands_in } => Some((order.worker, stands_in)),
        _ => None,
    };
    pool.orders(NOW).expect("the pool goes on").into_iter().filter_map(begins).collect()
}

fn recycled(pool: &Pool<Ray>) -> [u64; 6] {
    pool.statistics().expect("this process").counters.recycled
}

fn states(pool: &Pool<Ray>) -> Vec<WorkerState> {
    pool.statistics().expect("this process").workers.iter().map(|worker| worker.state).collect()
}

fn is_it(attended: &Attended, wanted: &Arc<Task>) -> bool {
    matches!(attended, Attended::Task(task) if Arc::ptr_eq(task, wanted))
}

fn counted(cause: Cause) -> [u64; 6] {
    let mut all = [0; 6];
    all[cause as usize] = 1;
    all
}

#[test]
fn an_actor_goes_on_until_its_replacement_is_ready_and_finishes_its_task() {
    let pool = pool(1, Life::default());
    let running = submit(&pool, 0);
    assert!(is_it(&ready(&pool, 0, 10), &running));
    assert_eq!((pool.recycle(Which::Number(9)), pool.recycle(Which::Process(10))), (0, 1));
    assert_eq!(begun(&pool), [(1, true)]);
    assert_eq!(pool.recycle(Which::All), 1);
    assert_eq!(begun(&pool), [], "one stands in already");
    assert!(matches!(answer(&pool, 0, false), Attended::Nothing));
    let next = submit(&pool, 0);
    assert!(is_it(&attend(&pool, 0), &next), "it is in service");
    let waiting = submit(&pool, 0);
    assert!(is_it(&ready(&pool, 1, 11), &waiting));
    assert_eq!(states(&pool), [WorkerState::Leaving, WorkerState::Busy]);
    assert_eq!(recycled(&pool), [0; 6], "it is not gone");
    assert!(matches!(answer(&pool, 0, false), Attended::Closed));
    left(&pool, 0);
    assert_eq!(recycled(&pool), counted(Cause::Asked));
    assert_eq!(next.attempt(), 1);
    let statistics = pool.statistics().expect("this process");
    assert_eq!((statistics.counters.restarted, statistics.counters.crashed), (1, 0));
    assert_eq!(states(&pool), [WorkerState::Busy]);
    // The place is used again.
    pool.resize(2);
    assert_eq!(begun(&pool), [(0, false)]);
}

#[test]
fn a_stand_in_is_given_nothing() {
    let pool = pool(1, Life { max_tasks: Some(8), ..Life::default() });
    assert!(matches!(ready(&pool, 0, 10), Attended::Nothing));
    for _ in 0..7 {
        let task = submit(&pool, 0);
        assert!(is_it(&attend(&pool, 0), &task));
        assert!(matches!(answer(&pool, 0, false), Attended::Nothing));
    }
    assert_eq!(begun(&pool), [(1, true)], "the last task is near");
    assert!(matches!(ready(&pool, 1, 11), Attended::Nothing));
    assert_eq!(states(&pool), [WorkerState::Idle, WorkerState::Starting]);
    let (last, next) = (submit(&pool, 0), submit(&pool, 0));
    assert!(matches!(attend(&pool, 1), Attended::Nothing));
    assert!(is_it(&attend(&pool, 0), &last));
    assert!(is_it(&attend(&pool, 1), &next), "the other one is spent");
    assert!(matches!(answer(&pool, 0, false), Attended::Closed));
    left(&pool, 0);
    assert_eq!(recycled(&pool), counted(Cause::MaxTasks));
    assert_eq!(begun(&pool), []);
}

#[test]
fn an_actor_is_never_given_more_tasks_than_its_limit() {
    let pool = pool(1, Life { max_tasks: Some(1), ..Life::default() });
    let (first, second) = (submit(&pool, 0), submit(&pool, 0));
    assert!(is_it(&ready(&pool, 0, 10), &first));
    assert_eq!(begun(&pool), [(1, false)], "its place is free");
    assert!(matches!(answer(&pool, 0, false), Attended::Closed));
    assert!(is_it(&ready(&pool, 1, 11), &second));
}

#[test]
fn a_task_that_is_run_again_by_a_closed_pool_finds_an_actor() {
    let pool = pool(1, Life { max_tasks: Some(1), ..Life::default() });
    let task = submit(&pool, 1);
    assert!(is_it(&ready(&pool, 0, 10), &task));
    assert_eq!(begun(&pool), [(1, false)]);
    pool.close(false);
    // Nothing waits, so the new one leaves.
    assert!(matches!(is_missing(&pool, 1, ""), Attended::Closed));
    left(&pool, 1);
    assert!(matches!(answer(&pool, 0, true), Attended::Closed));
    assert_eq!(begun(&pool), [(1, false)]);
    assert!(!task.is_done() && !pool.has_ended());
    assert!(is_it(&ready(&pool, 1, 12), &task));
    assert!(matches!(answer(&pool, 1, false), Attended::Closed));
    assert!(pool.has_ended() && matches!(task.outcome(), Some(Outcome::Local { raised: false, .. })));
}

#[test]
fn an_actor_of_some_age_is_due() {
    let now = Instant::now();
    clock::set(now);
    let age = Duration::from_secs(60);
    let pool = pool(1, Life { max_age: Some(age), ..Life::default() });
    assert!(matches!(ready(&pool, 0, 10), Attended::Nothing));
    let before = now + age - Duration::from_secs(1);
    clock::set(before);
    // The supervisor also looks for other reasons.
    assert!(pool.look_after(before).is_some_and(|at| at <= now + age));
    assert_eq!(begun(&pool), []);
    clock::set(now + age);
    pool.look_after(now + age);
    assert_eq!(begun(&pool), [(1, true)]);
    assert!(matches!(ready(&pool, 1, 11), Attended::Nothing));
    assert!(matches!(attend(&pool, 0), Attended::Closed));
    left(&pool, 0);
    assert_eq!(recycled(&pool), counted(Cause::MaxAge));
    pool.look_after(now + age + age - Duration::from_secs(1));
    assert_eq!(begun(&pool), [], "the new one has its own age");
    clock::set(now + age + age);
    pool.look_after(now + age + age);
    assert_eq!(begun(&pool), [(0, true)]);
}

#[test]
fn an_actor_that_is_due_for_its_tasks_is_replaced_when_its_age_or_the_program_asks() {
    let (now, age) = (Instant::now(), Duration::from_secs(60));
    for cause in [Cause::MaxAge, Cause::Asked] {
        clock::set(now);
        let pool = pool(1, Life { max_tasks: Some(2), max_age: Some(age), ..Life::default() });
        assert!(matches!(ready(&pool, 0, 10), Attended::Nothing));
        let task = submit(&pool, 0);
        assert!(is_it(&attend(&pool, 0), &task));
        assert!(matches!(answer(&pool, 0, false), Attended::Nothing));
        assert_eq!(begun(&pool), [(1, true)], "the last task is near");
        assert!(matches!(ready(&pool, 1, 11), Attended::Nothing));
        assert!(matches!(attend(&pool, 0), Attended::Nothing), "it has a task to go");
        if cause == Cause::Asked {
            assert_eq!(pool.recycle(Which::Process(10)), 1);
        } else {
            clock::set(now + age);
            pool.look_after(now + age);
        }
        assert!(matches!(attend(&pool, 0), Attended::Closed));
        left(&pool, 0);
        assert_eq!(recycled(&pool), counted(cause));
    }
}

#[test]
fn a_stand_in_that_cannot_be_had_is_asked_for_again_after_a_while() {
    let now = Instant::now();
    clock::set(now);
    let pool = pool(1, Life::default());
    assert!(matches!(ready(&pool, 0, 10), Attended::Nothing));
    pool.recycle(Which::All);
    assert_eq!(begun(&pool), [(1, true)]);
    assert!(matches!(is_missing(&pool, 1, "no room"), Attended::Nothing));
    let told = pool.shortage().expect("it is short of one");
    assert!(told.contains("goes on") && told.ends_with("no room"), "{told}");
    left(&pool, 1);
    assert_eq!((begun(&pool), pool.shortage()), (vec![], None));
    let task = submit(&pool, 0);
    assert!(is_it(&attend(&pool, 0), &task), "the old one goes on");
    clock::set(now + PATIENCE);
    pool.look_after(now + PATIENCE);
    assert_eq!(begun(&pool), [(1, true)]);
}

#[test]
fn a_stand_in_that_is_not_needed_any_more_leaves() {
    let pool = pool(1, Life::default());
    assert!(matches!(ready(&pool, 0, 10), Attended::Nothing));
    pool.recycle(Which::All);
    assert_eq!(begun(&pool), [(1, true)]);
    assert!(matches!(gone(&pool, 0), Attended::Nothing));
    assert!(matches!(is_missing(&pool, 1, ""), Attended::Closed));
    left(&pool, 1);
    assert!(matches!(ready(&pool, 0, 12), Attended::Nothing));
    assert_eq!(begun(&pool), []);
    assert_eq!((recycled(&pool), states(&pool)), ([0; 6], vec![WorkerState::Idle]));
}

#[test]
fn a_smaller_pool_does_without_those_that_rest() {
    let pool = pool(3, Life::default());
    let running = submit(&pool, 0);
    assert!(is_it(&ready(&pool, 0, 10), &running));
    assert!(matches!(ready(&pool, 1, 11), Attended::Nothing));
    pool.resize(2);
    assert!(matches!(is_missing(&pool, 2, ""), Attended::Closed), "it is not there yet");
    left(&pool, 2);
    assert_eq!(recycled(&pool), [0; 6]);
    pool.resize(1);
    assert!(matches!(attend(&pool, 1), Attended::Closed));
    left(&pool, 1);
    assert_eq!(recycled(&pool), counted(Cause::Shrunk));
    assert!(matches!(answer(&pool, 0, false), Attended::Nothing));
    assert_eq!(pool.statistics().expect("this process").counters.restarted, 0);
}

#[test]
fn an_actor_that_is_lost_while_it_leaves_is_not_replaced_again() {
    let pool = pool(2, Life::default());
    let task = submit(&pool, 1);
    assert!(is_it(&ready(&pool, 0, 10), &task));
    assert!(matches!(ready(&pool, 1, 11), Attended::Nothing));
    pool.recycle(Which::Process(10));
    pool.resize(1);
    assert!(matches!(gone(&pool, 0), Attended::Closed));
    left(&pool, 0);
    assert_eq!(recycled(&pool), [0; 6]);
    assert_eq!(pool.statistics().expect("this process").counters.crashed, 1);
    assert!(is_it(&attend(&pool, 1), &task));
}

#[test]
fn a_task_is_taken_though_a_stand_in_sleeps() {
    let pool = pool(1, Life { max_tasks: Some(8), ..Life::default() });
    assert!(matches!(ready(&pool, 0, 10), Attended::Nothing));
    for _ in 0..7 {
        let task = submit(&pool, 0);
        assert!(is_it(&attend(&pool, 0), &task));
        assert!(matches!(answer(&pool, 0, false), Attended::Nothing));
    }
    assert!(matches!(ready(&pool, 1, 11), Attended::Nothing));
    std::thread::scope(|scope| {
        let sleeps = |lane| {
            let mut attended = attend(&pool, lane);
            while matches!(attended, Attended::Nothing) {
                attended = pool.attend(lane, News::Nothing, Duration::from_secs(60));
            }
            matches!(attended, Attended::Task(_))
        };
        let lanes = [0, 1].map(|lane| scope.spawn(move || sleeps(lane)));
        // The first is the last that the one may have, so the other takes the second.
        let _tasks = [submit(&pool, 0), submit(&pool, 0)];
        assert!(lanes.into_iter().all(|lane| lane.join().expect("it ends")));
    });
}
