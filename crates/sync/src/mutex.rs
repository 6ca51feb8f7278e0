//! The mutex and the condition variable of all crates.
//!
//! They are the standard library's, without poison. A panic is reported where it happens: as an exception in Python, or
//! as the error of a task. Guarded data is whole at every point where its holder can panic, so a second report to the
//! next thread that locks would only spread the first. Poison is dropped here and nowhere else.
//!
//! `parking_lot` would not poison either. But it keeps its waiters in one table for the process, under locks that a
//! forked child can find taken for ever by a thread that does not exist in the child. These mutexes have all their
//! state in their own words, so [`PerProcess`](crate::PerProcess) gives a child fresh ones.

#![allow(clippy::disallowed_types, reason = "the one place that may name the standard library's locks")]

#[cfg(loom)]
use loom::sync as imp;
#[cfg(not(loom))]
use std::sync as imp;

use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

pub use imp::MutexGuard;

/// Mutual exclusion; see the module.
#[derive(Debug, Default)]
pub struct Mutex<T>(imp::Mutex<T>);

impl<T> Mutex<T> {
    /// An unlocked mutex.
    #[cfg(not(loom))]
    pub const fn new(value: T) -> Self {
        Self(imp::Mutex::new(value))
    }

    /// An unlocked mutex.
    #[cfg(loom)]
    pub fn new(value: T) -> Self {
        Self(imp::Mutex::new(value))
    }

    /// Locks; waits while another thread holds the mutex.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks unless another thread holds the mutex.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The content; the exclusive borrow proves that no other thread holds the mutex.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// The content, without the mutex.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the holders of a [`Mutex`] wait for a change of what it guards.
#[derive(Debug, Default)]
pub struct Condvar(imp::Condvar);

impl Condvar {
    /// A condition variable without waiters.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self(imp::Condvar::new())
    }

    /// A condition variable without waiters.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self(imp::Condvar::new())
    }

    /// Unlocks, sleeps until a notification, and locks again. May return early.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`wait`](Self::wait), for at most this long; also returns whether the time was up.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> (MutexGuard<'a, T>, bool) {
        let (guard, result) = self.0.wait_timeout(guard, timeout).unwrap_or_else(PoisonError::into_inner);
        (guard, result.timed_out())
    }

    /// Wakes one waiting thread, if there is one.
    #[inline]
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiting threads.
    #[inline]
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn a_panic_under_the_lock_leaves_it_usable() {
        let mut mutex = Mutex::new(1);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let mut guard = mutex.lock();
            *guard = 2;
            std::panic::resume_unwind(Box::new("under the lock"));
        }));
        assert!(panicked.is_err());
        assert_eq!(*mutex.lock(), 2);
        assert_eq!(mutex.try_lock().as_deref(), Some(&2));
        assert_eq!(*mutex.get_mut(), 2);
        let condition = Condvar::new();
        let (guard, late) = condition.wait_timeout(mutex.lock(), Duration::from_millis(1));
        assert!(late);
        drop(guard);
        assert_eq!(mutex.into_inner(), 2);
    }

    #[test]
    fn one_thread_has_it_and_a_notification_ends_a_wait() {
        let (mutex, condition) = (Mutex::new(0), Condvar::new());
        let guard = mutex.lock();
        std::thread::scope(|scope| {
            assert!(scope.spawn(|| mutex.try_lock().is_none()).join().expect("no panic"));
            let counts = [(); 2].map(|()| {
                scope.spawn(|| {
                    let mut guard = mutex.lock();
                    while *guard == 0 {
                        guard = condition.wait(guard);
                    }
                    *guard += 1;
                    condition.notify_one();
                })
            });
            drop(guard);
            *mutex.lock() = 1;
            condition.notify_all();
            for thread in counts {
                thread.join().expect("no panic");
            }
        });
        assert_eq!(*mutex.lock(), 3);
    }
}
