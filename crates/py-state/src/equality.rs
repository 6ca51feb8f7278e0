//! Whether two values of a collection are equal: as Python says, but for arrays, which are compared whole.
//!
//! NumPy's own answer for two arrays is an array, which has no truth value.

use std::ffi::CStr;

use pyo3_ffi as ffi;
use ropewalk_capi::object::{Object, Raised};

use crate::kinds::is_atom;
use crate::node::Pointer;
use crate::types::{self, State};

/// Whether two values are equal, or the same.
///
/// # Safety
///
/// A live map or vector, whose state says which class arrays have, and live objects, which the caller keeps alive.
/// Python code may run.
#[inline]
pub(crate) unsafe fn equal(collection: Pointer, a: Pointer, b: Pointer) -> Result<bool, Raised> {
    // SAFETY: the caller's.
    unsafe {
        if a == b {
            return Ok(true);
        }
        if !is_atom(ffi::Py_TYPE(a)) || !is_atom(ffi::Py_TYPE(b)) {
            let state = types::of(ffi::Py_TYPE(collection))?;
            match (is_array(state, a), is_array(state, b)) {
                (true, true) => return arrays(state, a, b),
                (true, false) | (false, true) => return Ok(false),
                (false, false) => {}
            }
        }
        match ffi::PyObject_RichCompareBool(a, b, ffi::Py_EQ) {
            -1 => Err(Raised),
            answer => Ok(answer != 0),
        }
    }
}

/// # Safety
///
/// `value` is live.
unsafe fn is_array(state: &State, value: Pointer) -> bool {
    // SAFETY: the caller's; the name of a live type.
    unsafe {
        let class = ffi::Py_TYPE(value);
        if state.array.is_null() || state.array == ffi::Py_None() {
            // No array has entered a state yet. A class made in Python has a name without its module.
            return CStr::from_ptr((*class).tp_name) == c"numpy.ndarray";
        }
        class == state.array.cast()
    }
}

/// # Safety
///
/// As for [`equal`].
unsafe fn arrays(state: &State, a: Pointer, b: Pointer) -> Result<bool, Raised> {
    if state.arrays.is_null() {
        // SAFETY: the thread is attached.
        unsafe { ffi::PyErr_SetString(ffi::PyExc_RuntimeError, c"ropewalk.state was not imported".as_ptr()) };
        return Err(Raised);
    }
    // SAFETY: the caller's.
    unsafe {
        let answer = Object::share(state.arrays)?.attribute(c"equal")?.call(&[a, b])?;
        match ffi::PyObject_IsTrue(answer.as_ptr()) {
            -1 => Err(Raised),
            answer => Ok(answer != 0),
        }
    }
}
