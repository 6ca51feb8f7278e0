//! Walks over the entries below a node.

use std::ptr::null_mut;

use super::entry::Entry;
use super::object;
use crate::node::{Node, Pointer};

/// The most nodes from the top of a trie to its bottom: one for each part of a hash, and one of collisions.
const HEIGHT: usize = 8;

/// A place among the entries of a map. Each node's own entries come before those of its children.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor {
    /// The nodes from the top to the current one, and which child of each comes next.
    path: [(*mut Node, u16); HEIGHT],
    depth: usize,
    /// The current node's next entry.
    entry: u32,
}

impl Cursor {
    /// A cursor before the first entry of a map.
    ///
    /// # Safety
    ///
    /// A map that lives for as long as the cursor is used.
    #[inline]
    pub(crate) unsafe fn new(map: Pointer) -> Self {
        // SAFETY: the caller's.
        unsafe { Self::below(object::root(map)) }
    }

    /// A cursor before the first entry below a node.
    ///
    /// # Safety
    ///
    /// A live node, which stays as it is and alive for as long as the cursor is used.
    #[inline]
    pub(super) unsafe fn below(node: *mut Node) -> Self {
        let mut path = [(null_mut(), 0); HEIGHT];
        path[0] = (node, 0);
        Self { path, depth: 0, entry: 0 }
    }

    /// The next entry with its hash, borrowed.
    ///
    /// # Safety
    ///
    /// As for [`below`](Self::below).
    #[inline]
    pub(super) unsafe fn next_entry(&mut self) -> Option<Entry> {
        // SAFETY: the caller's; a node has as many children and entries as it says.
        unsafe {
            loop {
                let (node, child) = &mut self.path[self.depth];
                let node = *node;
                if (self.entry as usize) < (*node).entries() {
                    self.entry += 1;
                    return Some(Entry::of(node, self.entry as usize - 1));
                }
                if usize::from(*child) < (*node).children() {
                    let next = *Node::child(node, usize::from(*child));
                    *child += 1;
                    self.depth += 1;
                    self.path[self.depth] = (next.cast(), 0);
                    self.entry = 0;
                } else if self.depth > 0 {
                    self.depth -= 1;
                    // The entries of this node came before its children.
                    self.entry = u32::MAX;
                } else {
                    return None;
                }
            }
        }
    }

    /// The next key and its value, borrowed from the map.
    ///
    /// # Safety
    ///
    /// The map that the cursor was made for is alive.
    #[inline]
    pub(crate) unsafe fn next(&mut self) -> Option<(Pointer, Pointer)> {
        // SAFETY: the caller's.
        unsafe { self.next_entry() }.map(|entry| (entry.key, entry.value))
    }
}
