//! The configuration of a pool.

use std::sync::Arc;
use std::time::Duration;

/// What `submit` does when the queue is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// Waits for room.
    #[default]
    Block,
    /// Refuses the task, which is an error where it was submitted.
    Error,
}

/// What a crash of a worker does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnCrash {
    /// Fails the task that ran, and replaces the worker.
    #[default]
    Replace,
    /// Breaks the whole pool, as the standard library does.
    Break,
}

/// A pool's configuration, checked by its maker.
#[derive(Clone, Debug)]
pub struct Config {
    /// The pool's name in its events.
    pub name: Arc<str>,
    /// Worker processes, at least 1.
    pub workers: usize,
    /// Lanes of each: threads that run tasks.
    pub threads: usize,
    /// Tasks that may wait in the queue; `None` for no limit.
    pub capacity: Option<usize>,
    /// What to do with a task beyond that.
    pub overflow: Overflow,
    /// What a crash does.
    pub on_crash: OnCrash,
    /// How long tasks that run in a worker are given to finish when it has to be ended for another of its tasks.
    pub grace: Duration,
    /// Whether workers are started as they are needed, from the first task on: for pools inside of a worker.
    pub lazy: bool,
}
