//! Executors: a work-stealing pool, one that grows for jobs that block, one without threads, and a queue that
//! keeps order on top of any of them.
//!
//! | executor | for |
//! |---|---|
//! | [`FixedExecutor`] | jobs that compute: N workers |
//! | [`DynamicExecutor`] | jobs that block: a number of workers that grows |
//! | [`InlineExecutor`] | tests: no threads, and a manual clock |
//! | [`Serial`] | jobs that must not overlap: one after another, on any of the above |
//!
//! All share one trait, [`Executor`], and its generic half, [`Submit`]. [`background()`] is the process's own
//! `DynamicExecutor`. This crate's `README.md` has the states, the protocols and their proofs.

#![deny(unsafe_code)]
// The models drive the protocols without the pools, and do not use every function.
#![cfg_attr(loom, allow(dead_code))]

#[cfg(not(loom))]
mod background;
mod config;
mod delayed;
#[cfg(not(loom))]
mod dynamic;
mod error;
mod executor;
#[cfg(not(loom))]
mod fixed;
mod gate;
mod handle;
#[cfg(not(loom))]
mod inline;
mod job;
mod ledger;
#[cfg(loom)]
pub mod model;
#[cfg(not(loom))]
mod of_workers;
mod panic;
#[cfg(not(loom))]
mod pool;
mod rejected;
mod report;
mod seat;
#[cfg(not(loom))]
mod serial;
mod sleep;
mod statistics;
mod task;
mod wait;
mod work;

#[cfg(not(loom))]
pub use background::background;
pub use config::{Config, WhenFull};
pub use delayed::Delayed;
#[cfg(not(loom))]
pub use dynamic::{Bounds, DynamicExecutor};
pub use error::JobError;
pub use executor::{Executor, Submit};
#[cfg(not(loom))]
pub use fixed::FixedExecutor;
pub use handle::JobHandle;
#[cfg(not(loom))]
pub use inline::InlineExecutor;
pub use job::{Job, Priority};
pub use panic::{PanicHook, PanicReport, Payload};
pub use rejected::{Reason, Rejected};
pub use report::{RunningJob, ShutdownReport};
#[cfg(not(loom))]
pub use serial::Serial;
pub use statistics::{Statistics, WorkerStatistics};
