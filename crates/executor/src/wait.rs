//! Waiting for a job: by spinning, by running it, by running others, by sleeping.

use std::time::Instant;

use crate::task::Outcome;

/// The longest time that a thread spins for a result: the worker that computes it may be waiting for this very core.
#[cfg(not(loom))]
const PATIENT_FOR: std::time::Duration = std::time::Duration::from_micros(10);

/// Waits for a task's end, at most until the deadline; returns whether it has ended.
#[cfg(not(loom))]
pub(crate) fn for_task<T>(task: &(impl Outcome<T> + ?Sized), deadline: Option<Instant>) -> bool {
    use std::cell::RefCell;

    use ropewalk_sync::spin::{AdaptiveSpin, has_other_cores};

    use crate::pool::current;

    thread_local!(static PATIENCE: RefCell<AdaptiveSpin> = const { RefCell::new(AdaptiveSpin::up_to(PATIENT_FOR)) });

    if task.is_over() {
        return true;
    }
    if let Some(worker) = current::worker() {
        return worker.wait_for_task(task, deadline);
    }
    let seen = PATIENCE.try_with(|patience| patience.borrow_mut().spin(has_other_cores, || task.is_over()));
    seen == Ok(true) || task.news().wait(deadline, || task.is_over())
}

/// The model's threads are no workers, and do not spin.
#[cfg(loom)]
#[cfg_attr(mutants, mutants::skip)]
pub(crate) fn for_task<T>(task: &(impl Outcome<T> + ?Sized), deadline: Option<Instant>) -> bool {
    task.news().wait(deadline, || task.is_over())
}
