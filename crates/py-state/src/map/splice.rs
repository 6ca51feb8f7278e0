//! Makes a node of another one, with one child or one entry more or less.

use pyo3_ffi as ffi;
use ropewalk_capi::object::{Object, Raised};
use ropewalk_state::bits::{self, WIDTH};

use super::entry::{Entry, tracked};
use super::find::BOTTOM;
use crate::node::{Node, Pointer, same};

/// What becomes of a node's children, or of its entries.
#[derive(Clone, Copy)]
pub(super) enum Place {
    /// All are kept.
    Kept,
    /// One more gets room here, which the caller fills.
    Added(usize),
    /// The one here is left out.
    Removed(usize),
}

impl Place {
    fn count(self, before: usize) -> usize {
        match self {
            Self::Kept => before,
            Self::Added(_) => before + 1,
            Self::Removed(_) => before - 1,
        }
    }

    /// Copies what is kept by `copy(from, to, count)`, `width` things for each place.
    ///
    /// # Safety
    ///
    /// There are `count` places to be read, and as many to be written as there are afterwards.
    #[inline]
    unsafe fn copy<T>(
        self,
        from: *const T,
        to: *mut T,
        count: usize,
        width: usize,
        copy: unsafe fn(*const T, *mut T, usize),
    ) {
        // SAFETY: the caller's.
        unsafe {
            let (at, skipped, left_free) = match self {
                Self::Kept => (count, 0, 0),
                Self::Added(at) => (at, 0, 1),
                Self::Removed(at) => (at, 1, 0),
            };
            copy(from, to, at * width);
            let rest = count - at - skipped;
            let (from, to) = (from.add((at + skipped) * width), to.add((at + left_free) * width));
            copy(from, to, rest * width);
        }
    }
}

/// Moves things.
///
/// # Safety
///
/// So many things can be read, and so many be written elsewhere.
#[inline]
unsafe fn moved<T>(from: *const T, to: *mut T, count: usize) {
    // SAFETY: the caller's.
    unsafe { std::ptr::copy_nonoverlapping(from, to, count) }
}

/// Copies references.
///
/// # Safety
///
/// So many live objects can be read, and so many references be written elsewhere.
#[inline]
unsafe fn shared(from: *const Pointer, to: *mut Pointer, count: usize) {
    for at in 0..count {
        // SAFETY: the caller's.
        unsafe { *to.add(at) = same(*from.add(at)) };
    }
}

/// Makes a node of another one: it has the bitmaps of the old one, and the places that were added are not written. If
/// the old node belongs to the edit, its references are moved: it is empty afterwards, and those of a removed child or
/// entry are the caller's. Else they are copied.
///
/// # Safety
///
/// A live node, which has the places that are to be removed. The caller completes the new one before any other code of
/// the interpreter runs.
pub(super) unsafe fn splice(
    node: *mut Node,
    owner: u64,
    child: Place,
    entry: Place,
) -> Result<*mut Node, Raised> {
    // SAFETY: the caller's.
    unsafe {
        let (children, entries) = ((*node).children(), (*node).entries());
        let made = Node::make(ffi::Py_TYPE(node.cast()), owner, child.count(children), entry.count(entries))?;
        (*made).datamap = (*node).datamap;
        (*made).nodemap = (*node).nodemap;
        let is_moved = (*node).is_of(owner);
        let copy = if is_moved { moved::<Pointer> } else { shared };
        child.copy(Node::child(node, 0), Node::child(made, 0), children, 1, copy);
        entry.copy(Node::entry(node, 0), Node::entry(made, 0), entries, 2, copy);
        entry.copy(Node::hash(node, 0), Node::hash(made, 0), entries, 1, moved);
        if is_moved {
            Node::forget(node);
        }
        Ok(made)
    }
}

/// A node with two entries whose keys differ.
///
/// # Safety
///
/// The module's type of nodes, live entries, the number of the edit or 0.
pub(super) unsafe fn pair(
    kind: *mut ffi::PyTypeObject,
    shift: u32,
    a: Entry,
    b: Entry,
    owner: u64,
) -> Result<Object, Raised> {
    // SAFETY: the caller's; all slots of each node are written.
    unsafe {
        let (first, second) = (bits::bit(a.hash, shift.min(31)), bits::bit(b.hash, shift.min(31)));
        if shift < BOTTOM && first == second {
            let child = pair(kind, shift + WIDTH, a, b, owner)?;
            let is_tracked = (*child.as_ptr().cast::<Node>()).is_deep();
            let node = Node::make(kind, owner, 1, 0)?;
            (*node).nodemap = first;
            *Node::child(node, 0) = child.into_ptr();
            return Ok(tracked(node, is_tracked));
        }
        let node = Node::make(kind, owner, 0, 2)?;
        let is_swapped = shift < BOTTOM && second < first;
        a.write(node, usize::from(is_swapped));
        b.write(node, usize::from(!is_swapped));
        if shift < BOTTOM {
            (*node).datamap = first | second;
        }
        Ok(tracked(node, a.is_collected() || b.is_collected()))
    }
}
