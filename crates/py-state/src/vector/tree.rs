//! Makes and changes the nodes of a vector.

use pyo3_ffi as ffi;
use ropewalk_capi::object::{Object, Raised};
use ropewalk_state::bits::{FANOUT, WIDTH, slot};

use crate::node::{Node, Pointer, is_collected, same};

/// Writes a new reference to an item, or a child, behind the node's last one.
///
/// # Safety
///
/// A node that only the caller has, or its edit, with room for one more; a live item.
#[inline]
pub(super) unsafe fn push(node: *mut Node, item: Pointer) {
    // SAFETY: the caller's.
    unsafe {
        let children = (*node).children();
        *Node::child(node, children) = same(item);
        Node::set_children(node, children + 1);
        track_with(node, item);
    }
}

/// Shows the node to the collector if that may know the item.
///
/// # Safety
///
/// A complete node that only the caller has, or its edit; a live item of it.
#[inline]
unsafe fn track_with(node: *mut Node, item: Pointer) {
    // SAFETY: the caller's. A node that the collector does not know holds nothing that it knows.
    unsafe {
        let is_node = ffi::Py_TYPE(item) == ffi::Py_TYPE(node.cast());
        if if is_node { (*item.cast::<Node>()).is_deep() } else { is_collected(item) } {
            Node::track(node);
        }
    }
}

/// Replaces a child and returns the old one.
///
/// # Safety
///
/// A node that only the caller has, or its edit, with more than `at` children; a live item.
unsafe fn replace(node: *mut Node, at: usize, item: Pointer) -> Result<Object, Raised> {
    // SAFETY: the caller's.
    unsafe {
        let old = std::mem::replace(&mut *Node::child(node, at), same(item));
        track_with(node, item);
        Object::own(old)
    }
}

/// A node with the first children of another one, and room for more.
///
/// # Safety
///
/// A live node with at least `count` children; there is room for them.
unsafe fn copy(node: *mut Node, count: usize, room: usize, owner: u64) -> Result<Object, Raised> {
    // SAFETY: the caller's; children beyond the first ones are not read.
    unsafe {
        let made = Node::make(ffi::Py_TYPE(node.cast()), owner, room, 0)?;
        Node::set_children(made, count);
        std::ptr::copy_nonoverlapping(Node::child(node, 0), Node::child(made, 0), count);
        for &held in Node::held(made) {
            ffi::Py_INCREF(held);
        }
        if (*node).is_deep() {
            Node::track(made);
        }
        Object::own(made.cast())
    }
}

/// A node with the same children and room for one more, unless the edit's node has that already. The references of an
/// edit's node are moved: it is empty afterwards.
///
/// # Safety
///
/// A live node with less than 32 children; `owner` is the number of the caller's edit, or 0; `room` is what an edit
/// wants at least.
pub(super) unsafe fn with_room(node: *mut Node, owner: u64, room: usize) -> Result<Option<Object>, Raised> {
    // SAFETY: the caller's.
    unsafe {
        let children = (*node).children();
        if owner == 0 {
            return copy(node, children, children + 1, owner).map(Some);
        }
        if !(*node).is_of(owner) {
            return copy(node, children, grown(children).max(room), owner).map(Some);
        }
        if children < (*node).capacity() {
            return Ok(None);
        }
        let made = Node::make(ffi::Py_TYPE(node.cast()), owner, grown(children).max(room), 0)?;
        Node::set_children(made, children);
        std::ptr::copy_nonoverlapping(Node::child(node, 0), Node::child(made, 0), children);
        Node::forget(node);
        if (*node).is_deep() {
            Node::track(made);
        }
        Object::own(made.cast()).map(Some)
    }
}

/// The room that an edit gives a node that has become too small.
fn grown(children: usize) -> usize {
    (children + 1).next_power_of_two().clamp(4, FANOUT)
}

/// Nodes above a leaf, each with one child; the top is at this height.
///
/// # Safety
///
/// A leaf; `owner` is the number of the caller's edit, or 0.
pub(super) unsafe fn path(leaf: Object, shift: u32, owner: u64) -> Result<Object, Raised> {
    let mut top = leaf;
    // SAFETY: the caller's; a new node has room for the child.
    unsafe {
        for _ in 0..shift / WIDTH {
            let kind = ffi::Py_TYPE(top.as_ptr());
            let above = Node::make(kind, owner, if owner == 0 { 1 } else { FANOUT }, 0)?;
            Node::set_children(above, 0);
            push(above, top.as_ptr());
            top = Object::own(above.cast())?;
        }
    }
    Ok(top)
}

/// Adds a leaf behind the last one below a node. Returns the node that takes its place, unless the edit's node has
/// changed.
///
/// # Safety
///
/// A live node at this height, which is not full; `index` is that of the leaf's first item, `owner` the number of the
/// caller's edit, or 0.
pub(super) unsafe fn with_leaf(
    node: *mut Node,
    shift: u32,
    index: usize,
    leaf: &Object,
    owner: u64,
) -> Result<Option<Object>, Raised> {
    // SAFETY: the caller's, for the child too. Where a child was replaced in an edit, the edit has its parent, so
    // nothing fails after a change.
    unsafe {
        let at = slot(index, shift);
        if at < (*node).children() {
            let child = *Node::child(node, at);
            return match with_leaf(child.cast(), shift - WIDTH, index, leaf, owner)? {
                None => {
                    track_with(node, child);
                    Ok(None)
                }
                Some(child) => with_child(node, at, &child, owner).map(|(node, _)| node),
            };
        }
        let child = path(leaf.clone(), shift - WIDTH, owner)?;
        let longer = with_room(node, owner, 0)?;
        push(longer.as_ref().map_or(node, |longer| longer.as_ptr().cast()), child.as_ptr());
        Ok(longer)
    }
}

/// Replaces a child. Returns the node that takes the node's place, unless that is the edit's, and the old child if it
/// has fallen out of the edit.
///
/// # Safety
///
/// A live node with more than `at` children; `owner` is the number of the caller's edit, or 0.
unsafe fn with_child(
    node: *mut Node,
    at: usize,
    child: &Object,
    owner: u64,
) -> Result<(Option<Object>, Option<Object>), Raised> {
    // SAFETY: the caller's.
    unsafe {
        if (*node).is_of(owner) {
            return Ok((None, Some(replace(node, at, child.as_ptr())?)));
        }
        let children = (*node).children();
        let made = copy(node, children, children, owner)?;
        // The old node holds the old child, too.
        drop(replace(made.as_ptr().cast(), at, child.as_ptr())?);
        Ok((Some(made), None))
    }
}

/// Replaces an item below a node. Returns the node that takes its place, unless the edit's node has changed; what falls
/// out of a node of the edit goes to `fallen`.
///
/// # Safety
///
/// A live node at this height with an item at `index`; a live item; `owner` is the number of the caller's edit, or 0.
pub(super) unsafe fn with_item(
    node: *mut Node,
    shift: u32,
    index: usize,
    item: &Object,
    owner: u64,
    fallen: &mut Option<Object>,
) -> Result<Option<Object>, Raised> {
    // SAFETY: the caller's, for the child too.
    unsafe {
        let at = slot(index, shift);
        if shift == 0 {
            let (node, old) = with_child(node, at, item, owner)?;
            *fallen = old;
            return Ok(node);
        }
        let child = *Node::child(node, at);
        match with_item(child.cast(), shift - WIDTH, index, item, owner, fallen)? {
            None => {
                if (*node).is_of(owner) {
                    track_with(node, child);
                }
                Ok(None)
            }
            // A child that is replaced was not the edit's, whose base holds it.
            Some(child) => with_child(node, at, &child, owner).map(|(node, _)| node),
        }
    }
}

/// A node with the first children of another one: that one itself if it has no more.
///
/// # Safety
///
/// A live node with at least `count` children; `owner` is the number of the caller's edit, or 0.
pub(super) unsafe fn first(node: *mut Node, count: usize, owner: u64) -> Result<Object, Raised> {
    // SAFETY: the caller's.
    unsafe {
        if (*node).children() == count { Object::share(node.cast()) } else { copy(node, count, count, owner) }
    }
}

/// A node with the leaves of another one that lie before an index: that one itself if it has no more.
///
/// # Safety
///
/// A live node at this height; a leaf below it ends at `end`; `owner` is the number of the caller's edit, or 0.
pub(super) unsafe fn leaves(node: *mut Node, shift: u32, end: usize, owner: u64) -> Result<Object, Raised> {
    // SAFETY: the caller's, for the child too.
    unsafe {
        if shift == 0 {
            return Object::share(node.cast());
        }
        let last = slot(end - 1, shift);
        let child = *Node::child(node, last);
        let kept = leaves(child.cast(), shift - WIDTH, end, owner)?;
        if kept.as_ptr() == child {
            return first(node, last + 1, owner);
        }
        let made = copy(node, last, last + 1, owner)?;
        push(made.as_ptr().cast(), kept.as_ptr());
        Ok(made)
    }
}
