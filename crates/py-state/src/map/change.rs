//! Sets and deletes entries of a trie: by new nodes along one path, or in place where the nodes belong to an edit.
//!
//! The trie is canonical: which nodes it has depends on its entries alone, but for the order of colliding ones. So a
//! subtree with a single entry never hangs below another node, as that entry would be in the node itself.
//!
//! A node of an edit changes at once, between two calls of the interpreter. Comparisons run before that; and what falls
//! out of nodes is kept until the change is complete, because its end may run any code.
//!
//! Source: Steindorfer and Vinju, "Optimizing Hash-Array Mapped Tries for Fast and Lean Immutable JVM Collections",
//! OOPSLA 2015.

use pyo3_ffi as ffi;
use ropewalk_capi::errors::fail;
use ropewalk_capi::object::{Object, Raised};
use ropewalk_state::bits::{self, WIDTH, rank};

use super::entry::{Entry, finished, tracked};
use super::find::BOTTOM;
use super::key::same_hashed;
use super::splice::{Place, pair, splice};
use crate::node::{Node, Pointer, is_collected, same};

/// What a change does besides to the nodes.
#[derive(Default)]
pub(super) struct Effects {
    /// Whether the number of entries has changed: by one.
    pub(super) counted: bool,
    /// What fell out of nodes of an edit. It is dropped when the edit is complete.
    pub(super) dropped: Dropped,
}

/// At most an entry's two objects, and the node that had it: the next node up is the edit's, too, and changes in place.
#[derive(Default)]
pub(super) struct Dropped {
    objects: [Option<Object>; 3],
    count: usize,
}

impl Dropped {
    fn push(&mut self, object: Object) {
        if let Some(place) = self.objects.get_mut(self.count) {
            *place = Some(object);
        } else {
            debug_assert!(false, "a change drops no more than an entry and a node");
        }
        self.count += 1;
    }
}

/// What takes a node's place after an entry was set below it.
pub(super) enum Put {
    /// The node itself, changed by its edit or not at all.
    Same,
    Node(Object),
}

/// What takes a node's place after an entry was deleted below it.
pub(super) enum Cut {
    /// There was no such key.
    Missing,
    /// The node itself, changed by its edit.
    Same,
    Node(Object),
    /// The only entry that is left, borrowed from the node, which is as it was.
    One(Entry),
}

/// Sets an entry below a node.
///
/// # Safety
///
/// A live node at this level of its trie, which nothing but this call changes or drops; a live entry; `owner` is the
/// number of the edit, or 0.
pub(super) unsafe fn put(
    node: *mut Node,
    shift: u32,
    new: Entry,
    owner: u64,
    effects: &mut Effects,
) -> Result<Put, Raised> {
    // SAFETY: the caller's; bitmaps say which children and entries a node has; what `splice` leaves free is written.
    unsafe {
        if shift >= BOTTOM {
            for at in 0..(*node).entries() {
                if same_hashed(*Node::entry(node, at), Node::hash(node, at), new.key, new.hash)? {
                    return put_value(node, at, new, owner, effects);
                }
            }
            effects.counted = true;
            let end = (*node).entries();
            if end == Node::MOST_ENTRIES {
                return Err(fail(c"a map has at most 2^32 - 1 keys of one hash"));
            }
            let grown = splice(node, owner, Place::Kept, Place::Added(end))?;
            return Ok(Put::Node(finished(grown, end, new, node)));
        }
        let bit = bits::bit(new.hash, shift);
        let (datamap, nodemap) = ((*node).datamap, (*node).nodemap);
        let (entry_at, child_at) = (rank(datamap, bit), rank(nodemap, bit));
        if nodemap & bit != 0 {
            let child = (*Node::child(node, child_at)).cast();
            let Put::Node(child) = put(child, shift + WIDTH, new, owner, effects)? else {
                // The edit may have changed the child in place.
                if (*child).is_deep() && (*node).is_of(owner) {
                    Node::track(node);
                }
                return Ok(Put::Same);
            };
            return put_child(node, child_at, child, owner, effects);
        }
        if datamap & bit == 0 {
            effects.counted = true;
            let grown = splice(node, owner, Place::Kept, Place::Added(entry_at))?;
            (*grown).datamap = datamap | bit;
            (*grown).nodemap = nodemap;
            return Ok(Put::Node(finished(grown, entry_at, new, node)));
        }
        let entry = Node::entry(node, entry_at);
        if same_hashed(*entry, Node::hash(node, entry_at), new.key, new.hash)? {
            return put_value(node, entry_at, new, owner, effects);
        }
        effects.counted = true;
        let old = Entry::of(node, entry_at);
        let child = pair(ffi::Py_TYPE(node.cast()), shift + WIDTH, old, new, owner)?;
        let is_tracked = (*node).is_deep() || (*child.as_ptr().cast::<Node>()).is_deep();
        let was_moved = (*node).is_of(owner);
        let deeper = splice(node, owner, Place::Added(child_at), Place::Removed(entry_at))?;
        if was_moved {
            // The pair has references of its own, so these are not the last ones.
            ffi::Py_DECREF(old.key);
            ffi::Py_DECREF(old.value);
        }
        (*deeper).datamap = datamap ^ bit;
        (*deeper).nodemap = nodemap | bit;
        *Node::child(deeper, child_at) = child.into_ptr();
        Ok(Put::Node(tracked(deeper, is_tracked)))
    }
}

/// Sets the value of an entry that the node has.
///
/// # Safety
///
/// As for [`put`].
unsafe fn put_value(
    node: *mut Node,
    at: usize,
    new: Entry,
    owner: u64,
    effects: &mut Effects,
) -> Result<Put, Raised> {
    // SAFETY: the caller's.
    unsafe {
        let place = Node::entry(node, at).add(1);
        if *place == new.value {
            return Ok(Put::Same);
        }
        let is_collected = is_collected(new.value);
        if (*node).is_of(owner) {
            let old = std::mem::replace(&mut *place, same(new.value));
            effects.dropped.push(Object::own(old)?);
            if is_collected {
                Node::track(node);
            }
            return Ok(Put::Same);
        }
        let is_tracked = (*node).is_deep() || is_collected;
        let copy = splice(node, owner, Place::Kept, Place::Kept)?;
        let place = Node::entry(copy, at).add(1);
        // The old node keeps its own reference to the old value.
        ffi::Py_DECREF(*place);
        *place = same(new.value);
        Ok(Put::Node(tracked(copy, is_tracked)))
    }
}

/// Replaces a child of the node.
///
/// # Safety
///
/// As for [`put`].
unsafe fn put_child(
    node: *mut Node,
    at: usize,
    child: Object,
    owner: u64,
    effects: &mut Effects,
) -> Result<Put, Raised> {
    // SAFETY: the caller's.
    unsafe {
        let is_tracked = (*child.as_ptr().cast::<Node>()).is_deep();
        if (*node).is_of(owner) {
            let old = std::mem::replace(&mut *Node::child(node, at), child.into_ptr());
            effects.dropped.push(Object::own(old)?);
            if is_tracked {
                Node::track(node);
            }
            return Ok(Put::Same);
        }
        let is_tracked = is_tracked || (*node).is_deep();
        let copy = splice(node, owner, Place::Kept, Place::Kept)?;
        let place = Node::child(copy, at);
        ffi::Py_DECREF(*place);
        *place = child.into_ptr();
        Ok(Put::Node(tracked(copy, is_tracked)))
    }
}

/// Deletes an entry below a node.
///
/// # Safety
///
/// As for [`put`]; a live key with its folded hash.
pub(super) unsafe fn cut(
    node: *mut Node,
    shift: u32,
    key: Pointer,
    hash: u32,
    owner: u64,
    effects: &mut Effects,
) -> Result<Cut, Raised> {
    // SAFETY: the caller's; bitmaps say which children and entries a node has; what `splice` leaves free is written.
    unsafe {
        let bit = if shift >= BOTTOM { 0 } else { bits::bit(hash, shift) };
        let (datamap, nodemap) = ((*node).datamap, (*node).nodemap);
        if nodemap & bit != 0 {
            let child_at = rank(nodemap, bit);
            let child = (*Node::child(node, child_at)).cast();
            return match cut(child, shift + WIDTH, key, hash, owner, effects)? {
                Cut::Missing => Ok(Cut::Missing),
                Cut::Same => Ok(Cut::Same),
                Cut::Node(child) => Ok(match put_child(node, child_at, child, owner, effects)? {
                    Put::Same => Cut::Same,
                    Put::Node(node) => Cut::Node(node),
                }),
                // Below the top a node without other content gives the entry to the next one up.
                Cut::One(entry) if shift > 0 && (*node).entries() == 0 && (*node).children() == 1 => {
                    Ok(Cut::One(entry))
                }
                Cut::One(entry) => {
                    let entry_at = rank(datamap, bit);
                    let was_moved = (*node).is_of(owner);
                    let flat = splice(node, owner, Place::Removed(child_at), Place::Added(entry_at))?;
                    (*flat).datamap = datamap | bit;
                    (*flat).nodemap = nodemap ^ bit;
                    let flat = finished(flat, entry_at, entry, node);
                    if was_moved {
                        effects.dropped.push(Object::own(child.cast())?);
                    }
                    Ok(Cut::Node(flat))
                }
            };
        }
        let mut at = 0;
        if shift < BOTTOM {
            at = rank(datamap, bit);
            if datamap & bit == 0 || !same_hashed(*Node::entry(node, at), Node::hash(node, at), key, hash)? {
                return Ok(Cut::Missing);
            }
        } else {
            while at < (*node).entries()
                && !same_hashed(*Node::entry(node, at), Node::hash(node, at), key, hash)?
            {
                at += 1;
            }
            if at == (*node).entries() {
                return Ok(Cut::Missing);
            }
        }
        effects.counted = true;
        if shift > 0 && (*node).children() == 0 && (*node).entries() == 2 {
            return Ok(Cut::One(Entry::of(node, 1 - at)));
        }
        let old = Entry::of(node, at);
        let was_moved = (*node).is_of(owner);
        let is_tracked = (*node).is_deep();
        let less = splice(node, owner, Place::Kept, Place::Removed(at))?;
        (*less).datamap = datamap ^ bit;
        (*less).nodemap = nodemap;
        if shift >= BOTTOM {
            (*less).datamap = 0;
        }
        let less = tracked(less, is_tracked && !Node::held(less).is_empty());
        if was_moved {
            effects.dropped.push(Object::own(old.key)?);
            effects.dropped.push(Object::own(old.value)?);
        }
        Ok(Cut::Node(less))
    }
}
