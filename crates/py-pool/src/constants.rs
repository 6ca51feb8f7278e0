//! Objects that nothing can change, so that no code can distinguish one from its copy.
//!
//! Inputs and results that are entirely constant share a pickle; others have one each: see `pool::codec::chunk`.

use std::ptr;

use pyo3_ffi as ffi;

/// How deep tuples are examined.
const DEPTH: u32 = 4;
/// Longer tuples are not examined: a copy of one costs less than the check.
const LONG: isize = 64;

/// Whether nothing can change an object, nor anything in it, and nothing in it is known by its identity.
///
/// # Safety
///
/// A live object, and the thread is attached to the interpreter. Nothing of it is called.
pub(crate) unsafe fn is_constant(object: *mut ffi::PyObject) -> bool {
    // SAFETY: the caller's.
    unsafe { look(object, DEPTH) }
}

unsafe fn look(object: *mut ffi::PyObject, depth: u32) -> bool {
    // SAFETY: the caller's live object; the types are the interpreter's own, and a tuple's items live as long as it.
    unsafe {
        let kind = ffi::Py_TYPE(object);
        if ptr::eq(kind, &raw const ffi::PyLong_Type)
            || ptr::eq(kind, &raw const ffi::PyFloat_Type)
            || ptr::eq(kind, &raw const ffi::PyUnicode_Type)
            || object == ffi::Py_None()
        {
            return true;
        }
        if ptr::eq(kind, &raw const ffi::PyTuple_Type) {
            let length = ffi::PyTuple_Size(object);
            return depth > 0
                && length <= LONG
                && (0..length).all(|at| look(ffi::PyTuple_GetItem(object, at), depth - 1));
        }
        ptr::eq(kind, &raw const ffi::PyBool_Type)
            || ptr::eq(kind, &raw const ffi::PyBytes_Type)
            || ptr::eq(kind, &raw const ffi::PyComplex_Type)
            || ptr::eq(kind, &raw const ffi::PyRange_Type)
            || (ptr::eq(kind, &raw const ffi::PyFunction_Type) && has_no_state(object))
    }
}

/// Whether a function is its code alone: without a closure, defaults or attributes, which could change.
unsafe fn has_no_state(function: *mut ffi::PyObject) -> bool {
    // SAFETY: the caller's function; the first three are borrowed or null, and the attributes are a new reference.
    unsafe {
        if !ffi::PyFunction_GetClosure(function).is_null()
            || !ffi::PyFunction_GetDefaults(function).is_null()
            || !ffi::PyFunction_GetKwDefaults(function).is_null()
        {
            return false;
        }
        let attributes = ffi::PyObject_GenericGetDict(function, ptr::null_mut());
        if attributes.is_null() {
            ffi::PyErr_Clear();
            return false;
        }
        let size = ffi::PyDict_Size(attributes);
        ffi::Py_DECREF(attributes);
        size == 0
    }
}
