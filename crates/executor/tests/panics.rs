//! Panics of jobs, and of the hook that is called for them.

#![cfg(not(loom))]

mod waiting;

use std::sync::Arc;

use ropewalk_executor::{
    Bounds, Config, DynamicExecutor, Executor, FixedExecutor, InlineExecutor, Job, PanicHook, Serial, Submit,
};
use ropewalk_sync::Mutex;
use waiting::{eventually, soon};

type Reported = Arc<Mutex<Vec<(String, String, Option<String>)>>>;

fn listening() -> (Reported, Config) {
    let reported = Reported::default();
    let hook: PanicHook = {
        let reported = Arc::clone(&reported);
        Arc::new(move |report| {
            reported.lock().push((
                report.executor.to_owned(),
                report.job.to_owned(),
                report.message.map(str::to_owned),
            ));
        })
    };
    (reported, Config { on_panic: Some(hook), ..Config::named("reported") })
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
fn the_hook_is_called_for_every_panic() {
    let (reported, config) = listening();
    for executor in all(&config) {
        reported.lock().clear();
        executor.execute(Job::new(|| panic!("literal"))).expect("open");
        // A second thread may run the next job before the hook was called for this one.
        eventually("the first report", || reported.lock().len() == 1);
        executor.submit(|| panic!("number {}", 5)).expect("open").join().expect_err("it panicked");
        executor.submit(|| std::panic::panic_any(5)).expect("open").join().expect_err("it panicked");
        eventually("three reports", || reported.lock().len() == 3);
        let reported = reported.lock();
        let messages: Vec<_> = reported.iter().map(|(_, _, message)| message.as_deref()).collect();
        assert_eq!(messages, [Some("literal"), Some("number 5"), None]);
        assert!(
            reported.iter().all(|(name, job, _)| name == "reported" && job.contains("the_hook_is_called"))
        );
        assert!(executor.join(soon()).is_complete());
        assert_eq!(executor.statistics().panicked(), 3);
    }
}

#[test]
fn a_hook_that_panics_is_counted_and_ends_nothing() {
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
fn a_payload_whose_drop_panics_ends_nothing() {
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
