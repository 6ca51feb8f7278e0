//! Walks over the items of a vector.

use std::ptr::null_mut;

use ropewalk_state::bits::slot;

use super::object;
use super::parts::View;
use crate::node::{Node, Pointer};

/// A range of a vector's items. It looks for a leaf once for all of its items.
#[derive(Debug)]
pub(crate) struct Cursor {
    view: View,
    leaf: *mut Node,
    index: usize,
    end: usize,
}

impl Cursor {
    /// All items.
    ///
    /// # Safety
    ///
    /// A vector that lives for as long as the cursor is used.
    pub(crate) unsafe fn new(vector: Pointer) -> Self {
        // SAFETY: the caller's.
        unsafe { Self::range(vector, 0, usize::MAX) }
    }

    /// The items from `start` on and before `end`.
    ///
    /// # Safety
    ///
    /// A vector that lives for as long as the cursor is used.
    pub(crate) unsafe fn range(vector: Pointer, start: usize, end: usize) -> Self {
        // SAFETY: the caller's.
        let view = unsafe { object::view(vector) };
        Self { view, leaf: null_mut(), index: start, end: end.min(view.count) }
    }

    /// How many items are left.
    pub(crate) fn left(&self) -> usize {
        self.end.saturating_sub(self.index)
    }

    /// The next item, borrowed from the vector.
    ///
    /// # Safety
    ///
    /// The vector is alive.
    #[inline]
    pub(crate) unsafe fn next(&mut self) -> Option<Pointer> {
        if self.index >= self.end {
            return None;
        }
        let at = slot(self.index, 0);
        // SAFETY: the caller's; the index is one of the vector's.
        unsafe {
            if at == 0 || self.leaf.is_null() {
                self.leaf = self.view.leaf(self.index);
            }
            self.index += 1;
            Some(*Node::child(self.leaf, at))
        }
    }
}
