//! Many changes to one vector, in nodes that the edit makes once and then changes in place.

use std::ffi::{c_int, c_void};

use pyo3_ffi as ffi;
use ropewalk_capi::object::{Object, Raised};

use super::object;
use super::parts::{Fallen, Parts};
use crate::node::{Node, Pointer, new_owner};

/// An edit of a vector. An owner that Python code can reach checks that only one call at a time uses it.
#[derive(Debug)]
pub(crate) struct Edit {
    /// The vector that the edit began with, or that it has made last. It holds every node that the edit does not own.
    base: Object,
    parts: Parts,
    owner: u64,
}

impl Edit {
    /// Begins with the items of a vector.
    ///
    /// # Safety
    ///
    /// A live vector.
    pub(crate) unsafe fn new(vector: Pointer) -> Result<Self, Raised> {
        // SAFETY: the caller's.
        unsafe {
            let parts = Parts::share(object::view(vector))?;
            Ok(Self { base: Object::share(vector)?, parts, owner: new_owner() })
        }
    }

    /// How many items it has now.
    pub(crate) fn len(&self) -> usize {
        self.parts.view().count
    }

    /// An item, borrowed until the edit's next change.
    pub(crate) fn get(&self, index: usize) -> Option<Pointer> {
        // SAFETY: the edit holds its parts.
        unsafe { self.parts.view().get(index) }
    }

    /// Appends an item.
    ///
    /// # Safety
    ///
    /// A live item, which the caller keeps alive.
    pub(crate) unsafe fn append(&mut self, item: Pointer) -> Result<(), Raised> {
        // SAFETY: the caller's.
        unsafe { self.parts.append(item, self.owner) }
    }

    /// Replaces an item; there is one at the index.
    ///
    /// # Safety
    ///
    /// A live item, which the caller keeps alive. Python code may run.
    pub(crate) unsafe fn set(&mut self, index: usize, item: Pointer) -> Result<(), Raised> {
        // SAFETY: the caller's; what falls out is dropped here, with the edit complete.
        unsafe { self.put(index, item).map(drop) }
    }

    /// Replaces an item, and returns what fell out of the nodes: to drop it may run any code.
    ///
    /// # Safety
    ///
    /// As for [`set`](Self::set).
    pub(super) unsafe fn put(&mut self, index: usize, item: Pointer) -> Result<Fallen, Raised> {
        assert!(index < self.len(), "an edit of a vector sets no item beyond its end");
        // SAFETY: the caller's; there is an item.
        unsafe { self.parts.set(index, item, self.owner) }.map(|(_, fallen)| fallen)
    }

    /// Drops the last item; returns whether there was one.
    ///
    /// # Safety
    ///
    /// The thread is attached. Python code may run.
    pub(crate) unsafe fn pop(&mut self) -> Result<bool, Raised> {
        let Some(count) = self.len().checked_sub(1) else { return Ok(false) };
        // SAFETY: the caller's; what falls out is dropped here, with the edit complete.
        unsafe { self.truncate(count).map(|_| true) }
    }

    /// Keeps the first items, and returns what fell out of the nodes: to drop it may run any code.
    ///
    /// # Safety
    ///
    /// The thread is attached.
    pub(super) unsafe fn truncate(&mut self, count: usize) -> Result<Fallen, Raised> {
        if count >= self.len() {
            return Ok(Fallen::default());
        }
        // SAFETY: the caller's; there are more items.
        unsafe { self.parts.truncate(count, self.owner) }
    }

    /// The vector with the items of now. The edit can go on.
    pub(crate) fn finish(&mut self) -> Result<Object, Raised> {
        // SAFETY: a live vector, whose type is the module's; with a new number the edit changes none of its nodes.
        unsafe {
            let (view, base) = (self.parts.view(), object::view(self.base.as_ptr()));
            if (view.root, view.tail, view.count) != (base.root, base.tail, base.count) {
                self.base = object::make(ffi::Py_TYPE(self.base.as_ptr()), self.parts.clone())?;
                self.owner = new_owner();
            }
        }
        Ok(self.base.clone())
    }

    /// As [`finish`](Self::finish), of items that were all found to be immutable: the vector is marked so.
    pub(crate) fn finish_frozen(&mut self) -> Result<Object, Raised> {
        let view = self.parts.view();
        for node in [view.root, view.tail] {
            // SAFETY: the edit holds its parts, whose nodes it changes no more.
            unsafe {
                Node::hide(node, self.owner);
                (*node).set_frozen();
            }
        }
        self.finish()
    }

    /// Shows what the edit holds to the collector.
    ///
    /// # Safety
    ///
    /// Called from `tp_traverse` of the edit's owner with its arguments.
    pub(crate) unsafe fn visit(&self, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
        let [root, tail] = self.parts.nodes();
        for held in [&self.base, root, tail] {
            // SAFETY: the caller's; live objects.
            let answer = unsafe { visit(held.as_ptr(), arg) };
            if answer != 0 {
                return answer;
            }
        }
        0
    }
}
