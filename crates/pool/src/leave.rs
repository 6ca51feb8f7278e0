//! What the parent asks of a worker that cannot be killed: to leave, which it reads between two records, and to end the
//! task that it runs.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use ropewalk_shm::channel::ring::RingMemory;
use ropewalk_sync::Mutex;

/// Makes the thread of a worker check [`Leave::is_unwanted`] between two steps of the code that it runs.
pub trait Nudge: Debug + Send + Sync {
    /// Called with the pool locked: it waits for no user's code, and runs none.
    fn nudge(self: Arc<Self>);
}

/// The requests to one worker of this process.
#[derive(Debug, Default)]
pub struct Leave {
    /// Whether to leave, whatever waits in its lane. Written once by the parent; the worker reads it between two
    /// records.
    asked: AtomicBool,
    /// The worker's task ring, once it is there, to wake it by.
    ring: OnceLock<RingMemory>,
    /// The task whose call is to end; 0 for none. Written by the parent, under the pool's lock, before the nudge. One
    /// place is enough: the worker has taken no task that it asks about while an earlier one still runs.
    unwanted: AtomicU64,
    /// While the worker serves its lane. The lock is held during a nudge, so that what this refers to stays.
    nudge: Mutex<Option<Arc<dyn Nudge>>>,
}

impl Leave {
    pub(crate) fn ask(&self) {
        self.asked.store(true, Ordering::Release);
        if let Some(ring) = self.ring.get() {
            ring.wake_consumer();
        }
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    pub(crate) fn wake_by(&self, ring: RingMemory) {
        let _ = self.ring.set(ring);
    }

    /// Parent: asks for the end of a task that the worker has taken.
    pub(crate) fn end(&self, task: u64) {
        self.unwanted.store(task, Ordering::Release);
        if let Some(nudge) = &*self.nudge.lock() {
            Arc::clone(nudge).nudge();
        }
    }

    /// Worker: whether the parent wants this task ended.
    pub fn is_unwanted(&self, task: u64) -> bool {
        self.unwanted.load(Ordering::Acquire) == task
    }

    /// Worker: nudges arrive here from now on; with `None` nowhere, and none is under way when this returns.
    pub fn nudge_by(&self, nudge: Option<Arc<dyn Nudge>>) {
        let before = std::mem::replace(&mut *self.nudge.lock(), nudge);
        drop(before);
    }
}
