//! Scenes of tasks that talk: a test is the thread of every lane, and those that listen and carry out orders.

use std::time::{Duration, Instant};

use super::*;
use crate::config::Config;
use crate::locked::Opaque;
use crate::pool::{Answer, Attended, News, Order};
use crate::task::{Call, Options};
use crate::wire::flags;

const NOW: Duration = Duration::ZERO;

fn pool(workers: usize) -> Arc<Pool<Ray>> {
    let config = Config { name: "far".into(), workers, ..Config::default() };
    Pool::start(config, ()).expect("started")
}

fn submit(pool: &Pool<Ray>, retries: u32) -> Arc<Task> {
    let call = Call::Local(ropewalk_sync::Mutex::new(Some(Opaque::new(()))));
    let options = Options { retries, ..Options::default() };
    pool.submit(call, 0, options, true).map_err(|refused| refused.1).expect("accepted")
}

/// A new actor of a lane takes this task.
fn takes(pool: &Pool<Ray>, lane: usize, wanted: &Arc<Task>) -> Attempt {
    match pool.attend(lane, News::Ready(10), NOW) {
        Attended::Task(task) if Arc::ptr_eq(&task, wanted) => {
            Attempt { task: task.id, number: task.attempt() }
        }
        other => panic!("{other:?}"),
    }
}

fn gone(pool: &Pool<Ray>, lane: usize) {
    assert!(matches!(pool.attend(lane, News::Gone("its node died".into()), NOW), Attended::Nothing));
}

fn say(pool: &Pool<Ray>, lane: usize, attempt: Attempt, done: f64) {
    let news = News::Said(attempt, Progress::new(done, None, None));
    assert!(matches!(pool.attend(lane, news, NOW), Attended::Nothing));
}

fn call(pool: &Pool<Ray>, lane: usize, attempt: Attempt, number: u64) {
    let frame = Reply { flags: 0, bytes: b"call".to_vec(), segments: Vec::new() };
    assert!(matches!(pool.attend(lane, News::Called(attempt, number, frame), NOW), Attended::Nothing));
}

fn done(pool: &Pool<Ray>, task: &Arc<Task>) -> Option<f64> {
    pool.progress(task).map(|progress| progress.done)
}

fn ordered(pool: &Pool<Ray>) -> Vec<String> {
    let name = |Order { worker, which, what }| match what {
        Errand::Begin { .. } => format!("{worker} begin"),
        Errand::End => format!("{worker}.{which} end"),
        Errand::Stop(task) => format!("{worker}.{which} stop {task}"),
        Errand::Answer(task, number, payload) => {
            let text = String::from_utf8_lossy(&payload.bytes);
            let failed = payload.flags & flags::ERROR != 0;
            format!("{worker}.{which} {task} {number} {text}{}", if failed { "failed" } else { "" })
        }
    };
    pool.orders(NOW).expect("the pool goes on").into_iter().map(name).collect()
}

fn answer(text: &str) -> Payload {
    Payload { bytes: text.into(), ..Payload::default() }
}

#[test]
fn the_progress_of_a_task_is_that_of_its_attempt() {
    let pool = pool(1);
    let task = submit(&pool, 1);
    let first = takes(&pool, 0, &task);
    assert_eq!(done(&pool, &task), None);
    say(&pool, 0, first, 1.0);
    assert_eq!(done(&pool, &task), Some(1.0));
    gone(&pool, 0);
    say(&pool, 0, first, 2.0);
    let second = takes(&pool, 0, &task);
    say(&pool, 0, first, 3.0);
    say(&pool, 7, second, 4.0);
    assert_eq!(done(&pool, &task), Some(1.0), "they are late, or from nowhere");
    say(&pool, 0, second, 5.0);
    let progress = Some(Progress::new(6.0, None, None));
    let answer =
        Answer { value: Opaque::new(1), raised: false, again: false, stopped: false, busy_ns: 5, progress };
    assert!(matches!(pool.attend(0, News::Answered(answer), NOW), Attended::Nothing));
    say(&pool, 0, second, 7.0);
    assert_eq!((done(&pool, &task), task.is_done()), (Some(6.0), true));
}

#[test]
fn a_request_to_stop_is_an_order() {
    let pool = pool(2);
    let (running, waiting) = (submit(&pool, 0), submit(&pool, 0));
    takes(&pool, 0, &running);
    assert!(pool.ask_to_stop(&waiting) && waiting.is_done(), "it has not begun");
    assert_eq!(ordered(&pool), Vec::<String>::new());
    assert!(pool.ask_to_stop(&running) && !running.is_done());
    assert_eq!(ordered(&pool), [format!("0.1 stop {}", running.id)]);
    let answer = Answer {
        value: Opaque::new(1),
        raised: true,
        again: true,
        stopped: true,
        busy_ns: 5,
        progress: None,
    };
    assert!(matches!(pool.attend(0, News::Answered(answer), NOW), Attended::Nothing));
    assert!(matches!(running.outcome(), Some(crate::Outcome::Cancelled)));
}

#[test]
fn an_order_for_an_actor_that_is_gone_is_forgotten() {
    let pool = pool(1);
    let task = submit(&pool, 1);
    takes(&pool, 0, &task);
    pool.ask_to_stop(&task);
    gone(&pool, 0);
    assert_eq!(ordered(&pool), Vec::<String>::new());
}

#[test]
fn a_call_is_taken_and_answered_once() {
    let pool = pool(1);
    pool.serve_calls();
    let task = submit(&pool, 0);
    let attempt = takes(&pool, 0, &task);
    call(&pool, 0, attempt, 5);
    let taken = pool.next_call(Instant::now()).expect("a call");
    assert_eq!((&taken.frame.bytes[..], taken.task.id), (&b"call"[..], task.id));
    assert!(pool.next_call(Instant::now()).is_none());
    assert_eq!(pool.answer_call(&taken, &answer("so")), Answered::Yes);
    assert_eq!(ordered(&pool), [format!("0.1 {} 5 so", task.id)]);
    assert_eq!(pool.answer_call(&taken, &answer("again")), Answered::Gone);
    assert_eq!(ordered(&pool), Vec::<String>::new());
}

#[test]
fn a_pool_that_serves_no_calls_refuses_them() {
    let pool = pool(1);
    let task = submit(&pool, 0);
    let attempt = takes(&pool, 0, &task);
    call(&pool, 0, attempt, 1);
    assert_eq!(ordered(&pool), [format!("0.1 {} 1 failed", task.id)]);
    assert!(pool.next_call(Instant::now()).is_none());
}

#[test]
fn an_answer_does_not_reach_the_next_attempt() {
    let pool = pool(1);
    pool.serve_calls();
    let task = submit(&pool, 1);
    let first = takes(&pool, 0, &task);
    call(&pool, 0, first, 1);
    let late = pool.next_call(Instant::now()).expect("a call");
    gone(&pool, 0);
    assert_eq!(pool.answer_call(&late, &answer("late")), Answered::Gone);
    let second = takes(&pool, 0, &task);
    // A new actor counts from the beginning.
    call(&pool, 0, second, 1);
    call(&pool, 0, first, 1);
    let taken = pool.next_call(Instant::now()).expect("a call");
    assert_eq!(pool.answer_call(&late, &answer("late")), Answered::Gone);
    assert_eq!(pool.answer_call(&taken, &answer("so")), Answered::Yes);
    assert_eq!(ordered(&pool), [format!("0.2 {} 1 so", task.id)]);
}

#[test]
fn all_lanes_call_when_each_waits_for_an_answer() {
    let pool = pool(2);
    pool.serve_calls();
    let (one, two) = (submit(&pool, 0), submit(&pool, 0));
    let first = takes(&pool, 0, &one);
    call(&pool, 0, first, 1);
    assert_eq!(pool.all_call(), None, "the other actor is not there yet");
    let second = takes(&pool, 1, &two);
    assert_eq!(pool.all_call(), None);
    call(&pool, 1, second, 1);
    assert_eq!(pool.all_call(), Some(2));
    let taken = pool.next_call(Instant::now()).expect("a call");
    assert_eq!(pool.answer_call(&taken, &answer("so")), Answered::Yes);
    assert_eq!(pool.all_call(), None);
}
