//! Panics of jobs, and of the hook that is told of them.

#![cfg(not(loom))]

mod waiting;

use std::sync::Arc;

use ropewalk_executor::{
    Bounds, Config, DynamicExecutor, Executor, FixedExecutor, InlineExecutor, Job, PanicHook, Serial, Submit,
};
use ropewalk_sync::Mutex;
use waiting::{eventually, soon};

type Told = Arc<Mutex<Vec<(String, String, Option<String>)>>>;

fn listening() -> (Told, Config) {
    let told = Told::default();
    let hook: PanicHook = {
        let told = Arc::clone(&told);
        Arc::new(move |report| {
            told.lock().push((
                report.executor.to_owned(),
                report.job.to_owned(),
                report.message.map(str::to_owned),
            ));
        })
    };
    (told, Config { on_panic: Some(hook), ..Config::named("told") })
}

fn all(config: &Config) -> Vec<Arc<dyn Executor>> {
    let fixed = || Arc::new(FixedExecutor::new(1, config.clone()).expect("threads"));
    let bounds = Bounds { min: 1, max: 2, keep_alive: waiting::LONG };
    vec![
        fixed(),
        Arc::new(DynamicExecutor::new(bounds, config.clone()).expect("threads")),
        Arc::new(InlineExecutor::new(config.clone())),
        Arc::new(Serial::new(fixed())),
    ]
}

#[test]
fn the_hook_is_told_of_every_panic() {
    let (told, config) = listening();
    for executor in all(&config) {
        told.lock().clear();
        executor.execute(Job::new(|| panic!("literal"))).expect("open");
        // A second thread may be at the next job before the hook has heard of this one.
        eventually("the first is told", || told.lock().len() == 1);
        executor.submit(|| panic!("number {}", 5)).expect("open").join().expect_err("it panicked");
        executor.submit(|| std::panic::panic_any(5)).expect("open").join().expect_err("it panicked");
        eventually("three are told", || told.lock().len() == 3);
        let told = told.lock();
        let messages: Vec<_> = told.iter().map(|(_, _, message)| message.as_deref()).collect();
        assert_eq!(messages, [Some("literal"), Some("number 5"), None]);
        assert!(told.iter().all(|(name, job, _)| name == "told" && job.contains("the_hook_is_told")));
        assert!(executor.join(soon()).is_complete());
        assert_eq!(executor.statistics().panicked(), 3);
    }
}

#[test]
fn a_hook_that_panics_harms_nobody() {
    let hook: PanicHook = Arc::new(|_| panic!("the hook, too"));
    let config = Config { on_panic: Some(hook), ..Config::named("faulty hook") };
    let pool = FixedExecutor::new(1, config).expect("threads");
    for _ in 0..3 {
        let error = pool.submit(|| panic!("first")).expect("open").join().expect_err("it panicked");
        assert_eq!(error.message(), Some("first"));
    }
    assert_eq!(pool.submit(|| 1).expect("open").join().expect("ran"), 1);
    assert!(pool.join(soon()).is_complete());
    let statistics = pool.statistics();
    assert_eq!((statistics.panicked(), statistics.hook_panics, statistics.executed()), (3, 3, 4));
}

#[test]
fn a_payload_whose_drop_panics_harms_nobody() {
    struct Grenade;
    impl Drop for Grenade {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }
    let (_, config) = listening();
    for executor in all(&config) {
        executor.execute(Job::new(|| std::panic::panic_any(Grenade))).expect("open");
        assert_eq!(executor.submit(|| 1).expect("open").join().expect("ran"), 1);
        assert!(executor.join(soon()).is_complete());
        assert_eq!(executor.statistics().panicked(), 1);
    }
}
