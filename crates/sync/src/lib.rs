//! How threads wait for each other. Each primitive exists once, here, and every crate above uses it.
//!
//! | primitive | what it is |
//! |---|---|
//! | [`atomic`], [`Arc`], [`TurnCell`] | the seam: the standard library's, and loom's under `--cfg loom` |
//! | [`CacheLine`] | a value with a cache line to itself |
//! | [`AtomicRef`] | a reference to a static, or none |
//! | [`Mutex`], [`Condvar`] | the one mutex; it does not poison |
//! | [`barrier`] | the asymmetric barrier: readers pay nothing, writers a system call |
//! | [`futex::Futex`], [`futex::SleepFlag`] | a word that threads sleep on, of one process or of several |
//! | [`Parker`], [`Event`] | one thread's sleep; the threads that wait for one condition |
//! | [`spin::AdaptiveSpin`], [`spin::SpinScore`] | how long, and whether, to spin before sleeping |
//! | [`PerProcess`] | a static that a forked child makes anew |
//!
//! A crate that has a loom model takes its atomics, locks and cells from here, and names `loom` itself as
//! `ropewalk_sync::loom`. `clippy.toml` refuses the standard library's ways to wait elsewhere.

pub mod atomic;
pub mod barrier;
mod cell;
mod event;
pub mod futex;
mod mutex;
mod parker;
mod per_process;
pub mod spin;

#[cfg(loom)]
pub use loom;

#[cfg(loom)]
pub use loom::sync::Arc;
#[cfg(not(loom))]
pub use std::sync::Arc;

pub use cell::{AtomicRef, CacheLine, TurnCell};
pub use event::Event;
#[cfg(loom)]
pub use mutex::LockWord;
pub use mutex::{Condvar, Mutex, MutexGuard};
pub use parker::Parker;
pub use per_process::PerProcess;
