//! A forked child has none of its parent's threads, and a background pool of its own.
//!
//! One test in this binary: no other thread of the harness may hold a lock that the child needs.

#![cfg(not(any(loom, miri)))] // Miri knows no fork.

use std::time::Duration;

use ropewalk_executor::{Config, Executor, FixedExecutor, Job, Reason, Submit, background};

/// Runs `child` in a forked child; its result says whether all was well.
fn in_child(child: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child uses no lock that another thread of this process may hold: the pools' threads are
    // idle or blocked in a job when it is made. It leaves by _exit, even when `child` panics.
    let pid = unsafe { ropewalk_os::process::fork() }.expect("a process");
    if pid == 0 {
        let fine = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).unwrap_or(false);
        ropewalk_os::process::exit_now(i32::from(!fine));
    }
    let mut status = -1;
    // SAFETY: the status is a live integer.
    while unsafe { libc::waitpid(pid, &raw mut status, 0) } < 0 {}
    status == 0
}

#[test]
fn a_child_has_its_own_background_and_refuses_its_parents_pools() {
    let parents = background().expect("threads");
    assert_eq!(parents.submit(|| 1).expect("open").join().expect("ran"), 1);
    let pool = FixedExecutor::new(1, Config::named("parents")).expect("threads");
    let _late = pool.submit_after(Duration::from_secs(3600), || 7).expect("open");

    let fine = in_child(|| {
        let mine = background().expect("threads");
        let fresh = !std::ptr::eq(mine, parents);
        let works = mine.submit(|| 2).expect("open").join().expect("ran") == 2;
        let same = std::ptr::eq(background().expect("made"), mine);
        let refused = [
            parents.execute(Job::new(|| {})).expect_err("forked").reason,
            pool.execute(Job::new(|| {})).expect_err("forked").reason,
            pool.execute_after(Duration::ZERO, Job::new(|| {})).expect_err("forked").reason,
        ];
        // The child may shut the pool down, read its counters, and drop it; none of these waits.
        let left = pool.join(None);
        let shown = left.delayed == 1 && pool.statistics().delayed == 1;
        drop(pool);
        fresh && works && same && shown && refused.iter().all(|it| *it == Reason::Forked)
    });
    assert!(fine);
    assert!(std::ptr::eq(background().expect("made"), parents));
    assert_eq!(parents.submit(|| 3).expect("open").join().expect("ran"), 3);
}
