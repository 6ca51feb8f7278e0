//! Entries of nodes, and the end of making a node.

use ropewalk_capi::object::{Object, Raised};

use crate::node::{Node, Pointer, is_collected, same};

/// An entry, borrowed.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) hash: u32,
    pub(super) key: Pointer,
    pub(super) value: Pointer,
}

impl Entry {
    /// An entry of a node.
    ///
    /// # Safety
    ///
    /// `node` is a live node with more than `at` entries.
    pub(super) unsafe fn of(node: *mut Node, at: usize) -> Self {
        // SAFETY: the caller's.
        unsafe {
            let entry = Node::entry(node, at);
            Self { hash: *Node::hash(node, at), key: *entry, value: *entry.add(1) }
        }
    }

    /// Whether the collector may know one of its objects.
    ///
    /// # Safety
    ///
    /// The entry is alive.
    pub(super) unsafe fn is_collected(&self) -> bool {
        // SAFETY: the caller's.
        unsafe { is_collected(self.key) || is_collected(self.value) }
    }

    /// Writes it into free places of a node, with new references.
    ///
    /// # Safety
    ///
    /// `node` is a node with more than `at` entries, of which this one is not written yet; the entry is alive.
    pub(super) unsafe fn write(&self, node: *mut Node, at: usize) {
        // SAFETY: the caller's.
        unsafe {
            let entry = Node::entry(node, at);
            *entry = same(self.key);
            *entry.add(1) = same(self.value);
            *Node::hash(node, at) = self.hash;
        }
    }
}

/// Completes a node that was made of another one with room for an entry.
///
/// # Safety
///
/// A new node whose other slots are written, and the one that it was made of; a live entry.
pub(super) unsafe fn finished(made: *mut Node, at: usize, new: Entry, of: *mut Node) -> Object {
    // SAFETY: the caller's.
    unsafe {
        new.write(made, at);
        tracked(made, (*of).is_deep() || new.is_collected())
    }
}

/// The complete node, shown to the collector if that may know its content.
///
/// # Safety
///
/// A new and complete node.
pub(super) unsafe fn tracked(node: *mut Node, is_tracked: bool) -> Object {
    // SAFETY: the caller's: a new reference, and not null.
    unsafe {
        if is_tracked {
            Node::track(node);
        }
        match Object::own(node.cast()) {
            Ok(node) => node,
            Err(Raised) => unreachable!("a new node is not null"),
        }
    }
}
