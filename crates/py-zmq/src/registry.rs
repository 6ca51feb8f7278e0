//! Contexts and sockets by number, so that one object can be another name for a socket that a second one made.

use std::collections::BTreeMap;

use ropewalk_messaging::{Context, Socket};
use ropewalk_sync::Mutex;

/// The open ones, each with the fork generation in which it was made.
pub(crate) struct Registry<T>(Mutex<BTreeMap<u64, (u64, T)>>);

pub(crate) static CONTEXTS: Registry<Context> = Registry::new();
pub(crate) static SOCKETS: Registry<Socket> = Registry::new();

impl<T: Clone> Registry<T> {
    const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    fn with<R>(&self, act: impl FnOnce(&mut BTreeMap<u64, (u64, T)>) -> R) -> R {
        act(&mut self.0.lock())
    }

    pub(crate) fn add(&self, id: u64, forks: u64, thing: &T) {
        // The earlier value with this number was the parent's; a copy of it must not be dropped.
        std::mem::forget(self.with(|known| known.insert(id, (forks, thing.clone()))));
    }

    /// The value with this number, if it was made in this process.
    pub(crate) fn find(&self, id: u64, forks: u64) -> Option<T> {
        self.with(|known| known.get(&id).filter(|(made, _)| *made == forks).map(|(_, thing)| thing.clone()))
    }

    pub(crate) fn remove(&self, id: u64) {
        // Dropped outside of the lock.
        drop(self.with(|known| known.remove(&id)));
    }
}
