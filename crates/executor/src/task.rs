//! A job with a result: which thread runs it, ends it, and gets the result.
//!
//! ```text
//!              claim                       settle                  take
//!   WAITING ───────────▶ RUNNING ──────────────────────▶ OVER ─────────────▶ TAKEN
//!            (to run, to cancel, to give up)    (result, panic, cancelled, dropped)
//! ```
//!
//! Each arrow but `settle` is a compare-and-swap, so one thread makes it, and that thread owns the cell until the next
//! step. `settle` is the claimant's store. The queue holds its half of the task until a worker comes to it, even if the
//! task was run or cancelled meanwhile.

#![expect(unsafe_code, reason = "argued in README.md")]

use std::any::type_name;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use ropewalk_sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use ropewalk_sync::{Event, TurnCell};

use crate::error::JobError;
use crate::work::{Context, Label, Ran, Runnable};

const WAITING: u32 = 0;
const RUNNING: u32 = 1;
const OVER: u32 = 2;
const TAKEN: u32 = 3;

/// Home of a task that no joiner may run: it is not due, its order matters, or it is in no queue.
const NOWHERE: usize = 0;

pub(crate) struct Task<F, T> {
    /// See above. Release with `settle`, Acquire with `take`: the result is written before it is seen.
    state: AtomicU32,
    /// The pool whose workers may run the task when they join it, by its address; or `NOWHERE`. Written by the thread
    /// that queues it. Only compared, so Relaxed.
    home: AtomicUsize,
    /// Notified at the task's end, and when a joiner may run it.
    news: Event,
    /// Owned by the thread that made the last step of the state.
    stage: TurnCell<Stage<F, T>>,
}

enum Stage<F, T> {
    Unrun(F),
    Over(Result<T, JobError>),
    Empty,
}

/// The queue's half: if it is dropped without running, the handle reports that.
pub(crate) struct Tracked<F, T>(pub(crate) Arc<Task<F, T>>);

/// The handle's half.
pub(crate) trait Outcome<T>: Send + Sync {
    fn is_over(&self) -> bool;
    /// Whether a worker of the pool `home` that joins the task may run it.
    fn may_run_at(&self, home: usize) -> bool;
    /// Runs the task here, if no thread has begun to.
    fn run(&self, context: &dyn Context) -> Ran;
    fn label(&self) -> &'static Label;
    fn news(&self) -> &Event;
    /// Cancels the task; false if it has started.
    fn cancel(&self) -> bool;
    /// The result, once, when the task has ended.
    fn take(&self) -> Option<Result<T, JobError>>;
}

impl<F, T> Task<F, T> {
    pub(crate) fn new(run: F) -> Self {
        Self {
            state: AtomicU32::new(WAITING),
            home: AtomicUsize::new(NOWHERE),
            news: Event::new(),
            stage: TurnCell::new(Stage::Unrun(run)),
        }
    }

    fn step(&self, from: u32, to: u32) -> bool {
        self.state.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn claim(&self) -> Option<F> {
        if !self.step(WAITING, RUNNING) {
            return None;
        }
        // SAFETY: this thread made the only step out of WAITING; before that only the maker touched the cell, and the
        // maker has handed the task over since.
        match unsafe { self.stage.with(|stage| std::mem::replace(stage, Stage::Empty)) } {
            Stage::Unrun(run) => Some(run),
            Stage::Over(_) | Stage::Empty => None,
        }
    }

    /// Only after `claim`.
    fn settle(&self, result: Result<T, JobError>) {
        // SAFETY: this thread has claimed the task and not settled it; others touch the cell after OVER only.
        unsafe { self.stage.with(|stage| *stage = Stage::Over(result)) };
        self.state.store(OVER, Ordering::Release);
        self.news.notify();
    }

    fn give_up(&self, why: JobError) -> bool {
        let Some(run) = self.claim() else { return false };
        self.settle(Err(why));
        // Last: the closure's captures may panic when they are dropped.
        drop(run);
        true
    }
}

impl<F, T> Runnable for Tracked<F, T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    fn run(self, context: &dyn Context) -> Ran {
        self.0.run(context)
    }

    fn name() -> &'static str {
        type_name::<F>()
    }

    fn bind(&self, home: usize) {
        // Only a delayed task can have a thread that waits for this; a new task's handle is not given out yet.
        self.0.home.store(home, Ordering::Relaxed);
        self.0.news.notify();
    }
}

impl<F, T> Drop for Tracked<F, T> {
    fn drop(&mut self) {
        if self.0.state.load(Ordering::Relaxed) == WAITING {
            self.0.give_up(JobError::Dropped);
        }
    }
}

impl<F, T> Outcome<T> for Task<F, T>
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    fn is_over(&self) -> bool {
        self.state.load(Ordering::Acquire) >= OVER
    }

    fn may_run_at(&self, home: usize) -> bool {
        self.home.load(Ordering::Relaxed) == home && self.state.load(Ordering::Relaxed) == WAITING
    }

    fn run(&self, context: &dyn Context) -> Ran {
        let Some(run) = self.claim() else { return Ran::Skipped };
        let (result, ran) = match catch_unwind(AssertUnwindSafe(run)) {
            Ok(value) => (Ok(value), Ran::Done),
            Err(payload) => {
                context.panicked(type_name::<F>(), &*payload);
                (Err(JobError::Panicked(payload)), Ran::Panicked)
            }
        };
        self.settle(result);
        ran
    }

    fn label(&self) -> &'static Label {
        const { &(type_name::<F> as Label) }
    }

    fn news(&self) -> &Event {
        &self.news
    }

    fn cancel(&self) -> bool {
        self.give_up(JobError::Cancelled)
    }

    fn take(&self) -> Option<Result<T, JobError>> {
        if !self.step(OVER, TAKEN) {
            return None;
        }
        // SAFETY: this thread made the only step out of OVER; the claimant's last turn happens before it, by
        // Release and Acquire on the state.
        match unsafe { self.stage.with(|stage| std::mem::replace(stage, Stage::Empty)) } {
            Stage::Over(result) => Some(result),
            Stage::Unrun(_) | Stage::Empty => None,
        }
    }
}
