//! The memory of a map: the root of its trie, the number of its entries, and its hash once that is known.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicIsize, Ordering};

use pyo3_ffi as ffi;
use ropewalk_capi::entry;
use ropewalk_capi::heap::{self, Layout};
use ropewalk_capi::object::{Object, Raised};

use crate::nest;
use crate::node::{Node, Pointer};

/// A map. All of it is written when it is made, but for the hash.
#[repr(C)]
struct Map {
    head: ffi::PyObject,
    root: *mut Node,
    count: usize,
    /// The hash, or -1. Any thread may write it; all would write the same, and it guards nothing: relaxed.
    hash: AtomicIsize,
}

/// The content type for `heap::make_type`, beside the object's head.
pub(super) type Content = [usize; 3];

const _: () = assert!(size_of::<Layout<Content>>() == size_of::<Map>());

/// Makes a map.
///
/// # Safety
///
/// `kind` is the module's type of maps; `root` is a complete node at the top of a trie with so many entries, and no
/// edit will change it any more.
#[inline]
pub(super) unsafe fn make(
    kind: *mut ffi::PyTypeObject,
    root: Object,
    count: usize,
) -> Result<Object, Raised> {
    // SAFETY: the type has a collector's head and the size of a map, which is written before it is tracked.
    unsafe {
        let map = ffi::PyObject_GC_New::<Map>(kind);
        if map.is_null() {
            return Err(Raised);
        }
        let root = root.into_ptr().cast::<Node>();
        (*map).root = root;
        (*map).count = count;
        (*map).hash = AtomicIsize::new(-1);
        if (*root).is_known() {
            ffi::PyObject_GC_Track(map.cast());
        }
        Object::own(map.cast())
    }
}

/// The node at the top of a map's trie, borrowed.
///
/// # Safety
///
/// A live map.
#[inline]
pub(super) unsafe fn root(map: Pointer) -> *mut Node {
    // SAFETY: the caller's.
    unsafe { (*map.cast::<Map>()).root }
}

/// How many entries a map has.
///
/// # Safety
///
/// A live map.
#[inline]
pub(super) unsafe fn count(map: Pointer) -> usize {
    // SAFETY: the caller's.
    unsafe { (*map.cast::<Map>()).count }
}

/// Where a map keeps its hash once that is known; it is -1 before.
///
/// # Safety
///
/// A map that lives as long as the reference.
pub(super) unsafe fn kept_hash<'a>(map: Pointer) -> &'a AtomicIsize {
    // SAFETY: the caller's.
    unsafe { &(*map.cast::<Map>()).hash }
}

/// `tp_traverse`. There is no `tp_clear`, as for tuples: a cycle through an immutable object also goes through a
/// mutable one, which can be cleared.
#[entry]
pub(super) unsafe extern "C" fn traverse(map: Pointer, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    // SAFETY: a tracked map, which is complete, and the collector's own function.
    unsafe {
        let answer = visit(root(map).cast(), arg);
        if answer != 0 { answer } else { heap::visit_type(map, visit, arg) }
    }
}

/// `tp_dealloc`.
#[entry]
pub(super) unsafe extern "C" fn dealloc(map: Pointer) {
    // SAFETY: the last reference is gone; an object of a heap type holds its type. The root is dropped last, because
    // that may run any code.
    unsafe {
        let (kind, root) = (ffi::Py_TYPE(map), root(map));
        let is_deep = (*root).is_deep();
        if is_deep {
            ffi::PyObject_GC_UnTrack(map.cast());
        }
        ffi::PyObject_GC_Del(map.cast());
        if is_deep {
            nest::drop(root.cast())
        } else {
            ffi::Py_DECREF(root.cast())
        }
        ffi::Py_DECREF(kind.cast());
    }
}

/// Whether the object is a map, of any interpreter.
///
/// # Safety
///
/// `object` is alive.
#[inline]
pub(super) unsafe fn is_map(object: Pointer) -> bool {
    // SAFETY: the caller's.
    let dealloc_of = unsafe { (*ffi::Py_TYPE(object)).tp_dealloc };
    dealloc_of.is_some_and(|known| std::ptr::fn_addr_eq(known, dealloc as ffi::destructor))
}

/// Makes the map without entries.
///
/// # Safety
///
/// The module's types of nodes and of maps.
pub(super) unsafe fn make_empty(
    node: *mut ffi::PyTypeObject,
    map: *mut ffi::PyTypeObject,
) -> Result<Object, Raised> {
    // SAFETY: the caller's; a node without slots is complete.
    unsafe {
        let root = Object::own(Node::make(node, 0, 0, 0)?.cast())?;
        make(map, root, 0)
    }
}

/// Loads the hash that a map keeps.
pub(super) fn loaded(kept: &AtomicIsize) -> Option<isize> {
    Some(kept.load(Ordering::Relaxed)).filter(|&hash| hash != -1)
}
