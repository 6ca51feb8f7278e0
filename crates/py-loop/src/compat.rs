//! Declarations that the interpreter's headers have and the bindings lack.

use std::ffi::{c_char, c_int, c_ulong};

use pyo3_ffi as ffi;

/// Only this crate makes objects of the type.
pub(super) const DISALLOW_INSTANTIATION: c_ulong = 1 << 7;

unsafe extern "C" {
    pub(super) fn PyThread_get_thread_ident() -> c_ulong;
    pub(super) fn PySys_Audit(event: *const c_char, format: *const c_char, ...) -> c_int;
    fn _PyObject_GC_New(kind: *mut ffi::PyTypeObject) -> *mut ffi::PyObject;
}

/// Memory for an object that the garbage collector can track but does not track yet; only its head is written.
///
/// # Safety
///
/// A live type whose objects the collector can know.
pub(super) unsafe fn new_untracked(kind: *mut ffi::PyTypeObject) -> *mut ffi::PyObject {
    // SAFETY: the caller's.
    unsafe { _PyObject_GC_New(kind) }
}
