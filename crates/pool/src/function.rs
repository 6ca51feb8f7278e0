//! Functions, which are shipped to each worker once and named by number from then on.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ropewalk_sync::Mutex;

use crate::control::Control;
use crate::payload::Payload;

/// A function as it is shipped to workers, once to each.
pub struct Function {
    pub(crate) id: u32,
    /// The function's name in errors.
    pub(crate) name: Arc<str>,
    pub(crate) payload: Payload,
    pub(crate) dropped: Arc<DroppedFunctions>,
}

/// Functions that no task can name any more, and that workers may still have.
#[derive(Debug)]
pub(crate) struct DroppedFunctions {
    ids: Mutex<Vec<u32>>,
    /// Whether there are any, so that a look between two tasks takes no lock. Set and cleared under the lock; a value
    /// that is out of date only delays, hence relaxed.
    any: AtomicBool,
    /// The supervisor looks when the first one comes: the pool may be idle from then on.
    control: Arc<Control>,
}

impl DroppedFunctions {
    pub(crate) fn new(control: Arc<Control>) -> Self {
        Self { ids: Mutex::default(), any: AtomicBool::new(false), control }
    }

    fn push(&self, id: u32) {
        let mut ids = self.ids.lock();
        ids.push(id);
        let first = !self.any.swap(true, Ordering::Relaxed);
        drop(ids);
        if first {
            self.control.kick();
        }
    }

    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    pub(crate) fn take(&self) -> Vec<u32> {
        let mut ids = self.ids.lock();
        self.any.store(false, Ordering::Relaxed);
        std::mem::take(&mut *ids)
    }
}

impl Function {
    /// The number that tasks name it by.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Its name in errors.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Its pickle.
    pub fn payload(&self) -> &Payload {
        &self.payload
    }

    /// Bytes that it takes in the record and in shared memory.
    pub fn size(&self) -> usize {
        let leased = self.payload.lease().map_or(0, |lease| lease.size());
        self.payload.bytes.len().saturating_add(usize::try_from(leased).unwrap_or(usize::MAX))
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        self.dropped.push(self.id);
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Function").field("id", &self.id).finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn function(bytes: Vec<u8>, flags: u16) -> Arc<Function> {
        let (control, _fd) = Control::create(1).expect("a control page");
        let payload = Payload { bytes, flags, ..Payload::default() };
        Arc::new(Function {
            id: 3,
            name: "f".into(),
            payload,
            dropped: Arc::new(DroppedFunctions::new(control)),
        })
    }

    #[test]
    fn a_function_that_goes_is_noted_once() {
        let made = function(vec![2; 10], 0);
        assert_eq!((made.id(), made.size()), (3, 10));
        let dropped = Arc::clone(&made.dropped);
        assert!(!dropped.any() && dropped.take().is_empty());
        drop(made);
        assert!(dropped.any());
        assert_eq!(dropped.take(), [3]);
        assert!(!dropped.any() && dropped.take().is_empty());
    }

    #[test]
    fn a_function_s_size_has_what_lies_in_shared_memory() {
        use ropewalk_shm::memory::{Arena, ArenaConfig};

        use crate::payload::Beside;
        let arena = Arena::new(ArenaConfig { keep: 0 });
        let mut lease = arena.put_parts(&[&[1; 100], &[2; 23]]).expect("room");
        // What is large lies by itself, and other leases may share it.
        let large = vec![3; 2 << 20];
        lease.keep_with_it(vec![arena.put_once(&large).expect("room")]);
        let (control, _fd) = Control::create(1).expect("a control page");
        let payload = Payload {
            bytes: vec![0; 10],
            ..Beside { lease: Some(Arc::new(lease)), ..Beside::default() }.into()
        };
        let made =
            Function { id: 3, name: "f".into(), payload, dropped: Arc::new(DroppedFunctions::new(control)) };
        assert_eq!(made.size(), 133 + large.len());
    }
}
