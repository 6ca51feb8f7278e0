//! Persistent vectors: 32-way tries with a tail, as Clojure has them.
//!
//! `parts` has the form of a vector and `tree` its nodes, `object` its memory, `edit` many changes at once; `cursor`
//! walks over the items, and `diff` compares two vectors by the nodes that they do not share. The rest is the face to
//! Python.
//!
//! A vector and its nodes never change, so readers need no lock. What they return is borrowed from the vector, which
//! the caller keeps alive.

mod builder;
mod cursor;
mod diff;
mod edit;
mod equal;
mod functions;
mod methods;
mod object;
mod parts;
mod protocol;
mod table;
mod tree;
mod walk;

use pyo3_ffi as ffi;
use ropewalk_capi::object::{Object, Raised};

pub(crate) use self::cursor::Cursor;
pub(crate) use self::diff::Each;
pub(crate) use self::edit::Edit;
pub(crate) use self::functions::table as functions;
use self::parts::Parts;
use crate::node::Pointer;
use crate::types::State;

/// Whether the object is a vector.
///
/// # Safety
///
/// `object` is alive.
#[inline]
pub(crate) unsafe fn is_vector(object: Pointer) -> bool {
    // SAFETY: the caller's.
    unsafe { object::is_vector(object) }
}

/// How many items a vector has.
///
/// # Safety
///
/// A live vector.
#[inline]
pub(crate) unsafe fn len(vector: Pointer) -> usize {
    // SAFETY: the caller's.
    unsafe { object::view(vector).count }
}

/// The vector without items.
///
/// # Safety
///
/// The state of a module that is complete.
pub(crate) unsafe fn empty(state: &State) -> Result<Object, Raised> {
    // SAFETY: the caller's.
    unsafe { Object::share(state.empty_vector) }
}

/// A vector of these items.
///
/// # Safety
///
/// The state of a module that is complete, and live items.
#[allow(dead_code, reason = "a decoder makes vectors of what it has read")]
pub(crate) unsafe fn from_slice(state: &State, items: &[Pointer]) -> Result<Object, Raised> {
    // SAFETY: the caller's.
    unsafe {
        let mut edit = Edit::new(state.empty_vector)?;
        for &item in items {
            edit.append(item)?;
        }
        edit.finish()
    }
}

/// The node at the top of a vector's trie, which has all items but those of the tail; borrowed.
///
/// # Safety
///
/// A live vector.
#[inline]
pub(crate) unsafe fn root(vector: Pointer) -> Pointer {
    // SAFETY: the caller's.
    unsafe { object::view(vector).root.cast() }
}

/// The node with a vector's last items, borrowed.
///
/// # Safety
///
/// A live vector.
#[inline]
pub(crate) unsafe fn tail(vector: Pointer) -> Pointer {
    // SAFETY: the caller's.
    unsafe { object::view(vector).tail.cast() }
}

/// How many nodes lie above each leaf of a vector's trie, the root included.
///
/// # Safety
///
/// A live vector.
#[inline]
pub(crate) unsafe fn height(vector: Pointer) -> u32 {
    // SAFETY: the caller's.
    unsafe { object::view(vector).shift / ropewalk_state::bits::WIDTH }
}

/// An item, borrowed from the vector.
///
/// # Safety
///
/// A live vector.
#[inline]
pub(crate) unsafe fn get(vector: Pointer, index: usize) -> Option<Pointer> {
    // SAFETY: the caller's.
    unsafe { object::view(vector).get(index) }
}

/// The vector with an item replaced: the same vector if the item is this very object already.
///
/// # Safety
///
/// A live vector with an item at the index, and a live item.
pub(crate) unsafe fn set(vector: Pointer, index: usize, item: Pointer) -> Result<Object, Raised> {
    // SAFETY: the caller's. Nodes that belong to no edit are not changed.
    unsafe {
        assert!(index < len(vector), "no item of a vector is set beyond its end");
        let mut parts = Parts::share(object::view(vector))?;
        let (is_changed, _) = parts.set(index, item, 0)?;
        if is_changed { object::make(ffi::Py_TYPE(vector), parts) } else { Object::share(vector) }
    }
}

/// The vector with one item more.
///
/// # Safety
///
/// A live vector and a live item.
pub(crate) unsafe fn append(vector: Pointer, item: Pointer) -> Result<Object, Raised> {
    // SAFETY: the caller's. Nodes that belong to no edit are not changed.
    unsafe {
        let mut parts = Parts::share(object::view(vector))?;
        parts.append(item, 0)?;
        object::make(ffi::Py_TYPE(vector), parts)
    }
}

/// The items from `start` on and before `end`, which is at most the length. Items from the first one on keep their
/// nodes.
///
/// # Safety
///
/// A live vector.
pub(crate) unsafe fn slice(vector: Pointer, start: usize, end: usize) -> Result<Object, Raised> {
    // SAFETY: the caller's. Nodes that belong to no edit are not changed.
    unsafe {
        if start > 0 || end < len(vector) {
            let kind = ffi::Py_TYPE(vector);
            let mut parts = Parts::share(object::view(vector))?;
            if start == 0 {
                parts.truncate(end, 0)?;
                return object::make(kind, parts);
            }
            let node = ffi::Py_TYPE(root(vector));
            let mut edit = Edit::new(object::make(kind, Parts::empty(node)?)?.as_ptr())?;
            let mut cursor = Cursor::range(vector, start, end);
            while let Some(item) = cursor.next() {
                edit.append(item)?;
            }
            return edit.finish();
        }
        Object::share(vector)
    }
}

/// Calls the function for each index whose item is not the same object in both vectors, with the old and the new item,
/// `None` where there is none. It costs what has changed, and not what the vectors hold.
///
/// # Safety
///
/// Live vectors, which the caller keeps alive. Python code may run.
pub(crate) unsafe fn diff(old: Pointer, new: Pointer, each: &mut Each<'_>) -> Result<(), Raised> {
    // SAFETY: the caller's.
    unsafe { diff::parts(object::view(old), object::view(new), each) }
}

/// Makes the types of vectors, and adds what is public to the fresh module.
pub(crate) fn fill(state: &mut State, module: &Object) -> Result<(), Raised> {
    table::fill(state, module)
}

/// Whether all items were found to be values that never change.
///
/// # Safety
///
/// `vector` is a live vector.
pub(crate) unsafe fn is_frozen(vector: Pointer) -> bool {
    // SAFETY: the caller's; the root and the tail are nodes.
    unsafe { [root(vector), tail(vector)].iter().all(|node| (*node.cast::<crate::node::Node>()).is_frozen()) }
}

/// Notes that all items never change.
///
/// # Safety
///
/// `vector` is a live vector.
pub(crate) unsafe fn set_frozen(vector: Pointer) {
    // SAFETY: as above.
    unsafe {
        for node in [root(vector), tail(vector)] {
            (*node.cast::<crate::node::Node>()).set_frozen();
        }
    }
}
