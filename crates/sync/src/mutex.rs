//! The mutex and the condition variable of all crates.
//!
//! They do not poison. A panic is reported where it happens: as an exception in Python, or as the error of a task.
//! Guarded data is whole at every point where its holder can panic, so a second report to the next thread that locks
//! would only spread the first. The standard library's mutex checks at each lock and unlock whether its thread panics,
//! which is a third of the instructions of an uncontended pair; so these stand on the crate's own futex word.
//!
//! `parking_lot` would not poison either. But it keeps its waiters in one table for the process, under locks that a
//! forked child can find taken for ever by a thread that does not exist in the child. These mutexes have all their
//! state in their own words, so [`PerProcess`](crate::PerProcess) gives a child fresh ones.

#[cfg_attr(not(loom), allow(unreachable_pub, reason = "public for its loom model alone"))]
mod lock_word;
#[cfg(loom)]
mod model;
#[cfg(not(loom))]
mod own;

#[cfg(loom)]
pub use lock_word::LockWord;
#[cfg(loom)]
pub use model::{Condvar, Mutex, MutexGuard};
#[cfg(not(loom))]
pub use own::{Condvar, Mutex, MutexGuard};
