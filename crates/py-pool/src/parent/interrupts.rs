//! Interrupts that come where nothing can be raised: in a finalizer.

use std::ffi::{c_int, c_void};

use pyo3::exceptions::{PyKeyboardInterrupt, PySystemExit};
use pyo3::ffi;
use pyo3::prelude::*;

use ropewalk_capi::entry;

/// Makes the main thread raise this exception before its next step, if a signal's handler may have raised it; any other
/// is reported as unraisable.
///
/// The handler has run. To set the signal again would run it twice.
#[pyfunction]
#[pyo3(signature = (error, /))]
pub(crate) fn raise_later(error: &Bound<'_, PyAny>) {
    let py = error.py();
    if error.is_instance_of::<PyKeyboardInterrupt>() || error.is_instance_of::<PySystemExit>() {
        let kept = error.clone().into_ptr();
        // SAFETY: the function fits, and its argument is a reference of its own.
        if unsafe { ffi::Py_AddPendingCall(Some(raise), kept.cast()) } == 0 {
            return;
        }
        // SAFETY: the reference was not taken over.
        drop(unsafe { Bound::from_owned_ptr(py, kept) });
    }
    PyErr::from_value(error.clone()).write_unraisable(py, None);
}

#[entry]
extern "C" fn raise(error: *mut c_void) -> c_int {
    let error = error.cast::<ffi::PyObject>();
    // SAFETY: the interpreter calls this in a thread that is attached; the reference to an exception is this call's.
    unsafe {
        ffi::PyErr_SetObject(ffi::Py_TYPE(error).cast(), error);
        ffi::Py_DECREF(error);
    }
    -1
}
