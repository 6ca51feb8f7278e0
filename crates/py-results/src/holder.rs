//! The memory of a result: an object's head and one reference, which never changes.
//!
//! A result matters to the garbage collector only if its value does: an `Ok(1)` can be in no cycle, so it is not
//! tracked. That saves the time to link it in and out, and saves every collection the visit.

use std::ffi::{c_int, c_void};

use pyo3_ffi as ffi;

use ropewalk_capi::entry;
use ropewalk_capi::heap;
use ropewalk_capi::nest;

/// A result, or any other object.
pub(super) type Pointer = *mut ffi::PyObject;

/// The layout of `Ok` and `Err`.
#[repr(C)]
struct Holder {
    head: ffi::PyObject,
    held: Pointer,
}

/// The reference's offset, for the type's table of members.
pub(super) const OFFSET: usize = std::mem::offset_of!(Holder, held);

/// The content type of a result for `heap::make_type`, beside its head.
pub(super) type Content = Pointer;

const _: () = assert!(size_of::<heap::Layout<Content>>() == size_of::<Holder>());

/// A result's value, borrowed.
///
/// # Safety
///
/// `result` is an `Ok` or an `Err`, and lives for as long as the reference is used.
#[inline]
pub(super) unsafe fn held(result: Pointer) -> Pointer {
    // SAFETY: the caller guarantees a live result; the reference was written before any other code had the object, and
    // is never changed.
    unsafe { (*result.cast::<Holder>()).held }
}

/// Makes a result, and takes over the reference to its value; null with an exception set if there is no memory.
///
/// # Safety
///
/// `kind` is the type `Ok` or `Err`, and `held` a reference that no other code releases.
#[inline]
pub(super) unsafe fn make(kind: *mut ffi::PyTypeObject, held: Pointer) -> Pointer {
    // SAFETY: the type has a collector's head and the size of a Holder. The object is written before it is tracked, and
    // tracked at most once. An object whose type takes no part in collection never does.
    unsafe {
        let made = ffi::PyObject_GC_New::<Holder>(kind);
        if made.is_null() {
            ffi::Py_DECREF(held);
            return made.cast();
        }
        (*made).held = held;
        if ffi::PyType_IS_GC(ffi::Py_TYPE(held)) != 0 {
            ffi::PyObject_GC_Track(made.cast());
        }
        made.cast()
    }
}

/// `tp_traverse`. There is no `tp_clear`, as for tuples: a cycle through an immutable object also goes through a
/// mutable one, which can be cleared.
#[entry]
pub(super) unsafe extern "C" fn traverse(result: Pointer, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    // SAFETY: a tracked result, which is complete, and the collector's own function.
    unsafe {
        let answer = visit(held(result), arg);
        if answer != 0 { answer } else { heap::visit_type(result, visit, arg) }
    }
}

/// `tp_dealloc`.
#[entry]
pub(super) unsafe extern "C" fn dealloc(result: Pointer) {
    // SAFETY: the last reference is gone; an object of a heap type holds its type. The value is dropped last, because
    // that may run any code.
    unsafe {
        let (kind, held) = (ffi::Py_TYPE(result), held(result));
        ffi::PyObject_GC_UnTrack(result.cast());
        ffi::PyObject_GC_Del(result.cast());
        if is_result(held) {
            nest::drop(held)
        } else {
            ffi::Py_DECREF(held)
        }
        ffi::Py_DECREF(kind.cast());
    }
}

/// Whether the object is a result, of any interpreter.
///
/// # Safety
///
/// `object` is alive.
pub(super) unsafe fn is_result(object: Pointer) -> bool {
    // SAFETY: the caller's.
    let dealloc_of = unsafe { (*ffi::Py_TYPE(object)).tp_dealloc };
    dealloc_of.is_some_and(|known| std::ptr::fn_addr_eq(known, dealloc as ffi::destructor))
}

/// A new reference to the same object.
///
/// # Safety
///
/// `object` is alive.
#[inline]
pub(super) unsafe fn same(object: Pointer) -> Pointer {
    // SAFETY: the caller's.
    unsafe { ffi::Py_INCREF(object) };
    object
}
