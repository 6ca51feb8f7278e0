//! State that the attached threads of one interpreter share.
//!
//! Where there is a global interpreter lock, it protects the state: an attached thread holds it, so a guard costs
//! nothing. On a free-threaded build a guard is a mutex. Either way nothing of the interpreter may run, and no
//! reference may be dropped, while a guard lives: both could come back to the same state.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

/// State that attached threads share; see the module.
#[derive(Debug, Default)]
pub struct Guarded<T> {
    #[cfg(Py_GIL_DISABLED)]
    mutex: ropewalk_sync::Mutex<()>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through a guard only, and there is one guard at a time: the interpreter lock ensures
// that, because callers of `lock` are attached, or the mutex does.
unsafe impl<T: Send> Sync for Guarded<T> {}

/// Exclusive access to the value.
pub struct Guard<'a, T> {
    #[cfg(Py_GIL_DISABLED)]
    _mutex: ropewalk_sync::MutexGuard<'a, ()>,
    value: &'a mut T,
}

impl<T> Guarded<T> {
    /// State with this value.
    #[inline]
    pub fn new(value: T) -> Self {
        Self {
            #[cfg(Py_GIL_DISABLED)]
            mutex: ropewalk_sync::Mutex::new(()),
            value: UnsafeCell::new(value),
        }
    }

    /// Locks the state for as long as the guard lives.
    ///
    /// # Safety
    ///
    /// The thread is attached, and until the guard is dropped it runs nothing of the interpreter, drops no reference,
    /// and takes no other guard of the same state.
    #[inline]
    pub unsafe fn lock(&self) -> Guard<'_, T> {
        Guard {
            #[cfg(Py_GIL_DISABLED)]
            _mutex: self.mutex.lock(),
            // SAFETY: there is one guard at a time; see the implementation of `Sync`.
            value: unsafe { &mut *self.value.get() },
        }
    }

    /// The value for the garbage collector, which runs while every other thread is stopped outside of guards:
    /// `tp_traverse` and `tp_clear` may dereference the pointer.
    #[inline]
    pub fn in_collection(&self) -> *mut T {
        self.value.get()
    }
}

/// Makes every guard end at its drop, even on builds in which the drop does nothing.
impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {}
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.value
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.value
    }
}
