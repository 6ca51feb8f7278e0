//! The mutex and the condition variable themselves, on words that threads sleep on.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::lock_word::LockWord;
use crate::futex::Futex;

/// Mutual exclusion; see the module.
#[derive(Default)]
pub struct Mutex<T> {
    word: LockWord,
    value: UnsafeCell<T>,
}

// SAFETY: a reference to the content exists only in a guard, and there is one guard at a time; so a turn may be another
// thread's, which asks that the content may be sent there, and no more.
unsafe impl<T: Send> Sync for Mutex<T> {}

// Guarded data is whole wherever its holder can panic.
impl<T> UnwindSafe for Mutex<T> {}
impl<T> RefUnwindSafe for Mutex<T> {}

impl<T> Mutex<T> {
    /// An unlocked mutex.
    pub const fn new(value: T) -> Self {
        Self { word: LockWord::new(), value: UnsafeCell::new(value) }
    }

    /// Locks; waits while another thread holds the mutex.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.word.lock();
        MutexGuard { mutex: self, stays: PhantomData }
    }

    /// Locks unless another thread holds the mutex.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.word.try_lock().then(|| MutexGuard { mutex: self, stays: PhantomData })
    }

    /// The content; the exclusive borrow proves that no other thread holds the mutex.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// The content, without the mutex.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.try_lock() {
            Some(guard) => f.debug_tuple("Mutex").field(&*guard).finish(),
            None => f.write_str("Mutex(<locked>)"),
        }
    }
}

/// The turn of the thread that has locked a [`Mutex`]; dropping it unlocks.
#[must_use = "the mutex is unlocked when the guard is dropped"]
pub struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    /// A guard stays in its thread: code under a lock may rely on the thread that it runs in.
    stays: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives no more than `&T`.
unsafe impl<T: Sync> Sync for MutexGuard<'_, T> {}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one, and lends the content as it is itself lent.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.mutex.word.unlock();
    }
}

impl<T: fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Where the holders of a [`Mutex`] wait for a change of what it guards.
///
/// The word counts notifications. A waiter reads it under the mutex and sleeps while it is the same, so a notification
/// that comes between the unlock and the sleep ends the sleep.
#[derive(Debug)]
pub struct Condvar(Futex);

impl Condvar {
    /// A condition variable without waiters.
    pub const fn new() -> Self {
        Self(Futex::new(0))
    }

    /// Unlocks, sleeps until a notification, and locks again. May return early.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.sleep(guard, None)
    }

    /// As [`wait`](Self::wait), for at most this long; also returns whether the time was up.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> (MutexGuard<'a, T>, bool) {
        let began = Instant::now();
        let guard = self.sleep(guard, Some(timeout));
        (guard, began.elapsed() >= timeout)
    }

    fn sleep<'a, T>(&self, guard: MutexGuard<'a, T>, timeout: Option<Duration>) -> MutexGuard<'a, T> {
        let mutex = guard.mutex;
        // The mutex orders this load and what the notifier does under it.
        let count = self.0.load(Ordering::Relaxed);
        drop(guard);
        let _ = self.0.wait_while(count, timeout);
        mutex.lock()
    }

    /// Wakes one waiting thread, if there is one.
    #[inline]
    pub fn notify_one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
        self.0.wake_one();
    }

    /// Wakes all waiting threads.
    #[inline]
    pub fn notify_all(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
        self.0.wake_all();
    }
}

impl Default for Condvar {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
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
