//! Memory of handles, which the loop reuses. That saves work of the allocator and, above all, of the garbage collector,
//! which counts allocations.
//!
//! On a free-threaded build nothing is kept: the lists would need a lock.

#[cfg(not(Py_GIL_DISABLED))]
use pyo3_ffi as ffi;

/// Memory of handles that are gone, to be used again. One list for each type.
#[derive(Default)]
pub(crate) struct Spare {
    #[cfg(not(Py_GIL_DISABLED))]
    lists: [Vec<*mut ffi::PyObject>; 3],
}

impl Spare {
    /// Memory that an object of this type had.
    #[cfg(not(Py_GIL_DISABLED))]
    #[inline]
    pub(crate) fn pop(&mut self, list: usize) -> Option<*mut ffi::PyObject> {
        self.lists[list].pop()
    }

    /// Keeps the memory of an object of this type if there is room for it; returns whether there was.
    #[cfg(not(Py_GIL_DISABLED))]
    #[inline]
    pub(crate) fn keep(&mut self, list: usize, object: *mut ffi::PyObject) -> bool {
        let list = &mut self.lists[list];
        if list.len() >= MOST_SPARE {
            return false;
        }
        list.push(object);
        true
    }

    /// Frees part of the memory that a burst has left, before a sleep.
    pub(crate) fn trim(&mut self) {
        #[cfg(not(Py_GIL_DISABLED))]
        for list in &mut self.lists {
            let excess = list.len().saturating_sub(IDLE_SPARE);
            for object in list.drain(list.len() - excess.div_ceil(16).min(MOST_FREED)..) {
                // SAFETY: unused memory from the collector's allocator.
                unsafe { ffi::PyObject_GC_Del(object.cast()) };
            }
        }
    }

    /// Frees the memory, when no object can come any more.
    ///
    /// # Safety
    ///
    /// The types of the objects are still there: their size is read from them.
    pub(crate) unsafe fn free(self) {
        #[cfg(not(Py_GIL_DISABLED))]
        for object in self.lists.into_iter().flatten() {
            // SAFETY: unused memory from the collector's allocator.
            unsafe { ffi::PyObject_GC_Del(object.cast()) };
        }
    }
}

/// The most of each kind that are kept while the loop is busy: some 8 MB after a burst.
#[cfg(not(Py_GIL_DISABLED))]
const MOST_SPARE: usize = 65_536;
/// The most of each kind that are freed before one sleep: other threads wait for the interpreter meanwhile.
#[cfg(not(Py_GIL_DISABLED))]
const MOST_FREED: usize = 256;
/// The most of each kind that a sleeping loop keeps.
#[cfg(not(Py_GIL_DISABLED))]
const IDLE_SPARE: usize = 1_024;
