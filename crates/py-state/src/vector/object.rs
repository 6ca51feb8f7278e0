//! The memory of a vector: the parts of its trie, and its hash once that is known.

use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicIsize;

use pyo3_ffi as ffi;
use ropewalk_capi::entry;
use ropewalk_capi::heap::{self, Layout};
use ropewalk_capi::object::{Object, Raised};

use super::parts::{Parts, View};
use crate::nest;
use crate::node::{Node, Pointer};

/// A vector. All of it is written when it is made, but for the hash.
#[repr(C)]
struct Vector {
    head: ffi::PyObject,
    view: View,
    /// The hash, or -1. Any thread may write it; all would write the same, and it guards nothing: relaxed.
    hash: AtomicIsize,
}

/// The content type for `heap::make_type`, beside the object's head.
pub(super) type Content = [usize; 5];

const _: () = assert!(size_of::<Layout<Content>>() == size_of::<Vector>());

/// Makes a vector.
///
/// # Safety
///
/// `kind` is the module's type of vectors; no edit will change the parts any more.
pub(super) unsafe fn make(kind: *mut ffi::PyTypeObject, parts: Parts) -> Result<Object, Raised> {
    // SAFETY: the type has a collector's head and the size of a vector, which is written before it is tracked.
    unsafe {
        let vector = ffi::PyObject_GC_New::<Vector>(kind);
        if vector.is_null() {
            return Err(Raised);
        }
        let view = parts.view();
        for node in parts.into_nodes() {
            std::mem::forget(node);
        }
        (*vector).view = view;
        (*vector).hash = AtomicIsize::new(-1);
        if is_deep(view) {
            ffi::PyObject_GC_Track(vector.cast());
        }
        Object::own(vector.cast())
    }
}

/// Whether the collector may know something in a vector.
///
/// # Safety
///
/// The parts are alive.
unsafe fn is_deep(view: View) -> bool {
    // SAFETY: the caller's.
    unsafe { (*view.root).is_deep() || (*view.tail).is_deep() }
}

/// The parts of a vector, borrowed.
///
/// # Safety
///
/// A live vector.
#[inline]
pub(super) unsafe fn view(vector: Pointer) -> View {
    // SAFETY: the caller's.
    unsafe { (*vector.cast::<Vector>()).view }
}

/// Where a vector keeps its hash once that is known; it is -1 before.
///
/// # Safety
///
/// A vector that lives as long as the reference.
pub(super) unsafe fn kept_hash<'a>(vector: Pointer) -> &'a AtomicIsize {
    // SAFETY: the caller's.
    unsafe { &(*vector.cast::<Vector>()).hash }
}

/// `tp_traverse`. There is no `tp_clear`, as for tuples: a cycle through an immutable object also goes through a
/// mutable one, which can be cleared.
#[entry]
pub(super) unsafe extern "C" fn traverse(vector: Pointer, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    // SAFETY: a tracked vector, which is complete, and the collector's own function.
    unsafe {
        let view = view(vector);
        for node in [view.root, view.tail] {
            let answer = visit(node.cast(), arg);
            if answer != 0 {
                return answer;
            }
        }
        heap::visit_type(vector, visit, arg)
    }
}

/// `tp_dealloc`.
#[entry]
pub(super) unsafe extern "C" fn dealloc(vector: Pointer) {
    // SAFETY: the last reference is gone; an object of a heap type holds its type. The nodes are dropped last, because
    // that may run any code.
    unsafe {
        let (kind, view) = (ffi::Py_TYPE(vector), view(vector));
        if is_deep(view) {
            ffi::PyObject_GC_UnTrack(vector.cast());
        }
        ffi::PyObject_GC_Del(vector.cast());
        for node in [view.root, view.tail] {
            drop_node(node);
        }
        ffi::Py_DECREF(kind.cast());
    }
}

/// # Safety
///
/// A reference that no other code releases.
unsafe fn drop_node(node: *mut Node) {
    // SAFETY: the caller's.
    unsafe {
        if (*node).is_deep() {
            nest::drop(node.cast());
        } else {
            ffi::Py_DECREF(node.cast());
        }
    }
}

/// Whether the object is a vector, of any interpreter.
///
/// # Safety
///
/// `object` is alive.
#[inline]
pub(super) unsafe fn is_vector(object: Pointer) -> bool {
    // SAFETY: the caller's.
    let dealloc_of = unsafe { (*ffi::Py_TYPE(object)).tp_dealloc };
    dealloc_of.is_some_and(|known| std::ptr::fn_addr_eq(known, dealloc as ffi::destructor))
}
