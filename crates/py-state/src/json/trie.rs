//! Writes maps and vectors node by node, and keeps the text of nodes.
//!
//! The text of a node is that of the entries or items below it, each with a comma behind it. It says nothing of where
//! the node lies, so that every map or vector that shares the node can use it.
//!
//! Not every node keeps its text. A node of less than `LEAST` bytes is as quickly written again. Of the others, a node
//! keeps its text only if at least half of it is not kept below it: so all texts together are at most twice as long as
//! the whole, whatever nests in what. With 32 children to a node, what is written again after a change is the text of
//! one such node, and the few nodes above it copy those of their other children.
//!
//! Where something has changed, it will change again. So a node that is written again beside others that are copied
//! keeps finer texts below it too, from `FINE` bytes on, by the same rule among themselves. The next change near it
//! costs a few entries.
//!
//! A text is kept only if nothing in it can change: not a `list`, nor what `default` has made.

use ropewalk_capi::object::{Object, Raised};
use ropewalk_state::bits::WIDTH;

use super::encoder::{Encoder, Kept};
use crate::node::{Node, Pointer, fetch};
use crate::{map, vector};

/// The shortest text that a node keeps. A `bytes` object has a head of 33 bytes.
const LEAST: usize = 512;
/// The same where something has changed.
const FINE: usize = 128;

/// Which of the two kinds a text of this length is.
#[inline]
fn kind_of(length: usize) -> usize {
    usize::from(length < LEAST)
}

impl Encoder<'_> {
    /// Writes a map.
    ///
    /// # Safety
    ///
    /// A live map, which the caller keeps alive. Python code may run.
    pub(super) unsafe fn map(&mut self, map: Pointer) -> Result<(), Raised> {
        self.out.push(b'{')?;
        let start = self.out.len();
        // SAFETY: the caller's; the map holds its root.
        unsafe { self.map_node(map::root(map).cast(), false) }?;
        self.out.close(start, b'}')
    }

    /// `is_near` says whether the node is near a change.
    ///
    /// # Safety
    ///
    /// A complete node of a map, which the caller keeps alive and no edit changes.
    unsafe fn map_node(&mut self, node: *mut Node, is_near: bool) -> Result<(), Raised> {
        // SAFETY: the caller's; a node holds its entries and its children, and never changes.
        unsafe {
            if self.copied(node)? {
                return Ok(());
            }
            let (start, kept) = (self.out.len(), self.kept);
            for at in 0..(*node).entries() {
                let entry = Node::entry(node, at);
                let (key, value) = (*entry, *entry.add(1));
                self.key(key)?;
                if let Err(Raised) = self.value(value) {
                    return Err(self.below_key(key));
                }
                self.out.push(b',')?;
            }
            let count = (*node).children();
            let is_near = is_near || self.is_changed(node);
            for at in 0..count {
                self.fetch_ahead(node, at);
                self.map_node((*Node::child(node, at)).cast(), is_near)?;
            }
            self.keep(node, start, kept, is_near)
        }
    }

    /// Fetches what is written next into the processor's caches, before a child of a map's node is written. The objects
    /// lie in memory in the order in which they were made, so that the encoder would wait for each in turn. An object
    /// is found in one that was fetched before: the entries in a node, and the fields in a record.
    ///
    /// # Safety
    ///
    /// A complete node, which the caller keeps alive, and no edit changes.
    #[inline]
    unsafe fn fetch_ahead(&self, node: *mut Node, at: usize) {
        // SAFETY: the caller's; a node holds its entries and its children, and never changes.
        unsafe {
            let child = |at: usize| (*Node::child(node, at)).cast::<Node>();
            let count = (*node).children();
            if at == 0 {
                for next in 0..count {
                    fetch(*Node::child(node, next));
                }
                for next in 0..count.min(2) {
                    fetch_held(child(next));
                }
                self.fetch_fields(child(0));
            }
            if at + 2 < count {
                fetch_held(child(at + 2));
            }
            if at + 1 < count {
                self.fetch_fields(child(at + 1));
            }
        }
    }

    /// Fetches the fields of a node's records, and what its children hold.
    ///
    /// # Safety
    ///
    /// As for [`fetch_ahead`](Self::fetch_ahead).
    unsafe fn fetch_fields(&self, node: *mut Node) {
        // SAFETY: the caller's.
        unsafe {
            if !(*node).text().is_null() {
                return;
            }
            for at in 0..(*node).entries() {
                self.fetch(*Node::entry(node, at).add(1));
            }
            for at in 0..(*node).children() {
                fetch_held((*Node::child(node, at)).cast());
            }
        }
    }

    /// Writes a vector.
    ///
    /// # Safety
    ///
    /// A live vector, which the caller keeps alive. Python code may run.
    pub(super) unsafe fn vector(&mut self, vector: Pointer) -> Result<(), Raised> {
        self.out.push(b'[')?;
        let start = self.out.len();
        // SAFETY: the caller's; the vector holds its root and its tail, which is a leaf.
        unsafe {
            let tail = vector::tail(vector).cast::<Node>();
            self.vector_node(vector::root(vector).cast(), vector::height(vector), 0, false)?;
            self.vector_node(tail, 0, vector::len(vector) - (*tail).children(), false)?;
        }
        self.out.close(start, b']')
    }

    /// `first` is the index of the node's first item.
    ///
    /// # Safety
    ///
    /// A complete node of a vector with so many nodes above its leaves, which the caller keeps alive and no edit
    /// changes.
    unsafe fn vector_node(
        &mut self,
        node: *mut Node,
        height: u32,
        first: usize,
        is_near: bool,
    ) -> Result<(), Raised> {
        // SAFETY: the caller's; a node holds its items or its children, and never changes.
        unsafe {
            if self.copied(node)? {
                return Ok(());
            }
            let (start, kept) = (self.out.len(), self.kept);
            let is_near = is_near || height > 0 && self.is_changed(node);
            for at in 0..(*node).children() {
                let child = *Node::child(node, at);
                if height > 0 {
                    self.vector_node(child.cast(), height - 1, first + (at << (height * WIDTH)), is_near)?;
                    continue;
                }
                if let Err(Raised) = self.value(child) {
                    return Err(self.below_index(first + at));
                }
                self.out.push(b',')?;
            }
            self.keep(node, start, kept, is_near)
        }
    }

    /// Writes the text that a node keeps; returns whether it keeps one.
    ///
    /// # Safety
    ///
    /// A node that the caller keeps alive.
    #[inline]
    unsafe fn copied(&mut self, node: *mut Node) -> Result<bool, Raised> {
        if !self.is_cached {
            return Ok(false);
        }
        // SAFETY: a node sets its text once, so that a new reference can be made as long as the node lives.
        let Ok(text) = (unsafe {
            let text = (*node).text();
            if text.is_null() { Err(Raised) } else { Object::share(text) }
        }) else {
            return Ok(false);
        };
        let Some(bytes) = text.as_bytes() else { return Ok(false) };
        self.out.extend(bytes)?;
        self.kept[kind_of(bytes.len())] += bytes.len();
        Ok(true)
    }

    /// Lets a node keep the text that was written of it from `start` on, if that is worth it. `before` is how many
    /// bytes were kept before the node.
    ///
    /// # Safety
    ///
    /// A node that the caller keeps alive and no edit changes.
    unsafe fn keep(
        &mut self,
        node: *mut Node,
        start: usize,
        before: Kept,
        is_near: bool,
    ) -> Result<(), Raised> {
        let length = self.out.len() - start;
        let kind = kind_of(length);
        let is_short = length < if is_near { FINE } else { LEAST };
        if !self.is_cached
            || is_short
            || self.changing > start
            || (self.kept[kind] - before[kind]) * 2 > length
        {
            return Ok(());
        }
        let text = Object::bytes(self.out.since(start))?;
        // SAFETY: the caller's.
        unsafe { (*node).set_text(text) };
        self.kept[kind] = before[kind] + length;
        Ok(())
    }

    /// Whether a node without a text is new beside others that have one: a child of it keeps its text.
    ///
    /// # Safety
    ///
    /// A complete node, whose children are nodes.
    unsafe fn is_changed(&self, node: *mut Node) -> bool {
        // SAFETY: the caller's; a node holds its children.
        unsafe {
            let has_text = |at: usize| !(*(*Node::child(node, at)).cast::<Node>()).text().is_null();
            self.is_cached && (0..(*node).children()).any(has_text)
        }
    }
}

/// Fetches what is read of a node's children, keys and values, or its text.
///
/// # Safety
///
/// A complete node, which no edit changes.
#[inline]
unsafe fn fetch_held(node: *mut Node) {
    // SAFETY: the caller's.
    unsafe {
        let text = (*node).text();
        if text.is_null() {
            for &held in Node::held(node) {
                fetch(held);
            }
        } else {
            fetch(text);
        }
    }
}
