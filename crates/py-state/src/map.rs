//! Persistent maps: hash-array mapped tries in the compressed form that Steindorfer and Vinju call CHAMP.
//!
//! `object` has the memory of a map, `find`, `change` and `edit` read and derive maps, `cursor` walks over them, and
//! `diff` compares two by the nodes that they do not share. The rest is the face to Python.
//!
//! A map and its nodes never change, so readers need no lock. What they return is borrowed from the map, which the
//! caller keeps alive.

mod builder;
mod change;
mod cursor;
mod diff;
mod edit;
mod entry;
mod equal;
mod find;
mod functions;
mod key;
mod merge;
mod methods;
mod object;
mod protocol;
mod splice;
mod table;
mod views;

use pyo3_ffi as ffi;
use ropewalk_capi::object::{Object, Raised};

use self::change::{Cut, Effects, Put};
pub(crate) use self::cursor::Cursor;
pub(crate) use self::diff::Each;
pub(crate) use self::edit::Edit;
use self::entry::Entry;
pub(crate) use self::functions::table as functions;
pub(crate) use self::key::{hash_of, same_key};
use crate::node::Pointer;
use crate::types::State;

/// Whether the object is a map.
///
/// # Safety
///
/// `object` is alive.
#[inline]
pub(crate) unsafe fn is_map(object: Pointer) -> bool {
    // SAFETY: the caller's.
    unsafe { object::is_map(object) }
}

/// How many entries a map has.
///
/// # Safety
///
/// A live map.
#[inline]
pub(crate) unsafe fn len(map: Pointer) -> usize {
    // SAFETY: the caller's.
    unsafe { object::count(map) }
}

/// The map without entries.
///
/// # Safety
///
/// The state of a module that is complete.
pub(crate) unsafe fn empty(state: &State) -> Result<Object, Raised> {
    // SAFETY: the caller's.
    unsafe { Object::share(state.empty_map) }
}

/// The node at the top of a map's trie, borrowed. Maps with the same node are the same.
///
/// # Safety
///
/// A live map.
#[inline]
pub(crate) unsafe fn root(map: Pointer) -> Pointer {
    // SAFETY: the caller's.
    unsafe { object::root(map).cast() }
}

/// The value of a key, borrowed from the map.
///
/// # Safety
///
/// A live map and a live key, which the caller keeps alive. Python code may run.
#[inline]
pub(crate) unsafe fn get(map: Pointer, key: Pointer) -> Result<Option<Pointer>, Raised> {
    // SAFETY: the caller's.
    unsafe { find::find(object::root(map), key, key::folded(hash_of(key)?)) }
}

/// As [`get`], of a key whose hash is known.
///
/// # Safety
///
/// As there.
#[inline]
pub(crate) unsafe fn get_hashed(map: Pointer, key: Pointer, hash: isize) -> Result<Option<Pointer>, Raised> {
    // SAFETY: the caller's.
    unsafe { find::find(object::root(map), key, key::folded(hash)) }
}

/// The map with an entry set: the same map if its value is this very object already.
///
/// # Safety
///
/// Live objects, which the caller keeps alive. Python code may run.
pub(crate) unsafe fn set(map: Pointer, key: Pointer, value: Pointer) -> Result<Object, Raised> {
    // SAFETY: the caller's. Nodes that belong to no edit are not changed.
    unsafe {
        let new = Entry { hash: key::folded(hash_of(key)?), key, value };
        let mut effects = Effects::default();
        match change::put(object::root(map), 0, new, 0, &mut effects)? {
            Put::Same => Object::share(map),
            Put::Node(root) => {
                object::make(ffi::Py_TYPE(map), root, object::count(map) + usize::from(effects.counted))
            }
        }
    }
}

/// The map without an entry; `None` if there is none.
///
/// # Safety
///
/// Live objects, which the caller keeps alive. Python code may run.
pub(crate) unsafe fn delete(map: Pointer, key: Pointer) -> Result<Option<Object>, Raised> {
    // SAFETY: the caller's. Nodes that belong to no edit are not changed.
    unsafe {
        let mut effects = Effects::default();
        let hash = key::folded(hash_of(key)?);
        match change::cut(object::root(map), 0, key, hash, 0, &mut effects)? {
            Cut::Missing => Ok(None),
            Cut::Node(root) => object::make(ffi::Py_TYPE(map), root, object::count(map) - 1).map(Some),
            Cut::Same | Cut::One(_) => {
                unreachable!("a node of no edit is replaced, and the top keeps an entry")
            }
        }
    }
}

/// Calls the function for each key whose value is not the same object in both maps, with the old and the new value,
/// `None` where there is none. It costs what has changed, and not what the maps hold.
///
/// # Safety
///
/// Live maps, which the caller keeps alive. Python code may run.
pub(crate) unsafe fn diff(old: Pointer, new: Pointer, each: &mut Each<'_>) -> Result<(), Raised> {
    // SAFETY: the caller's.
    unsafe { diff::nodes(object::root(old), object::root(new), 0, each) }
}

/// Makes the types of maps, and adds what is public to the fresh module.
pub(crate) fn fill(state: &mut State, module: &Object) -> Result<(), Raised> {
    table::fill(state, module)
}

/// Whether all keys and values were found to be values that never change.
///
/// # Safety
///
/// `map` is a live map.
pub(crate) unsafe fn is_frozen(map: Pointer) -> bool {
    // SAFETY: the caller's; the root is a node.
    unsafe { (*root(map).cast::<crate::node::Node>()).is_frozen() }
}

/// Notes that all keys and values never change.
///
/// # Safety
///
/// `map` is a live map.
pub(crate) unsafe fn set_frozen(map: Pointer) {
    // SAFETY: as above.
    unsafe { (*root(map).cast::<crate::node::Node>()).set_frozen() }
}
