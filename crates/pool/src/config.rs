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
    /// Takes the task, and fails the oldest waiting one of the lowest priority instead.
    DropOldest,
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
    /// How long its workers live, and how many there are.
    pub life: Life,
    /// How long a task waits until it stands with those of the next higher priority; `None` for ever.
    pub aging: Option<Duration>,
    /// What it does about workers that die again and again.
    pub health: Health,
    /// How many tasks that have ended it keeps a record of.
    pub records: usize,
    /// Whether the CPU time of each call is measured, however short it is.
    pub cpu_time: bool,
}

impl Config {
    /// How the number of workers follows the load, if it does. A lazy pool begins with one worker.
    pub(crate) fn scale(&self) -> Option<Scale> {
        self.life.scale.or_else(|| self.lazy.then_some(Scale { least: 1, idle: None }))
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name: "pool".into(),
            workers: 1,
            threads: 1,
            capacity: None,
            overflow: Overflow::default(),
            on_crash: OnCrash::default(),
            grace: Duration::from_secs(2),
            lazy: false,
            life: Life::default(),
            aging: None,
            health: Health::default(),
            records: 0,
            cpu_time: false,
        }
    }
}

/// What a pool does about workers that die again and again.
#[derive(Clone, Copy, Debug)]
pub struct Health {
    /// A task that has cost so many workers their life fails, however many retries it has left; `None` for no limit.
    pub poison_after: Option<u32>,
    /// More deaths of workers than so many within such a time break the pool; `None` for no limit.
    pub max_restarts: Option<(u32, Duration)>,
}

impl Default for Health {
    fn default() -> Self {
        Self { poison_after: Some(3), max_restarts: None }
    }
}

/// How long the workers of a pool live, and how many there are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Life {
    /// A worker is given so many tasks and no more, and is replaced.
    pub max_tasks: Option<u64>,
    /// A worker is replaced when it has been ready for so long.
    pub max_age: Option<Duration>,
    /// A worker is replaced when it has so many bytes of memory that no other process shares.
    pub max_memory: Option<u64>,
    /// The part of each limit by which a worker's own may be less, 0 to 1: the workers of a pool, which are as old as
    /// each other, are not due at the same time.
    pub jitter: f64,
    /// How the number of workers follows the load; `None` if it does not.
    pub scale: Option<Scale>,
}

/// How the number of workers follows the load: between `least` and the pool's `workers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// The least number, with which the pool begins; at least 1.
    pub least: usize,
    /// How long a worker has no task before it is sent away; `None` for ever.
    pub idle: Option<Duration>,
}
