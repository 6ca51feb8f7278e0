//! A value that is replaced as a whole while others read it.

use std::fmt;
use std::sync::Arc;

use ropewalk_sync::Mutex;

/// See the module. The lock is held for the copy of a reference.
pub(crate) struct Swap<T>(Mutex<Arc<T>>);

impl<T> Swap<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Mutex::new(Arc::new(value)))
    }

    /// What it is now; it stays as it is for as long as it is held.
    pub(crate) fn get(&self) -> Arc<T> {
        Arc::clone(&self.0.lock())
    }

    /// Replaces it, and gives what was there.
    pub(crate) fn replace(&self, value: T) -> Arc<T> {
        let value = Arc::new(value);
        std::mem::replace(&mut *self.0.lock(), value)
    }
}

impl<T: fmt::Debug> fmt::Debug for Swap<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Swap").field(&self.get()).finish()
    }
}
