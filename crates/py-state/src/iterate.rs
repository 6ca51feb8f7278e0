//! Runs over what any iterable yields.

use std::ops::ControlFlow;

use pyo3_ffi as ffi;
use ropewalk_capi::object::{Object, Raised};

use crate::node::Pointer;

/// Calls the function for each item of an iterable, with its number, until it breaks off.
///
/// # Safety
///
/// A live object, which the caller keeps alive. Python code may run.
pub(crate) unsafe fn each(
    iterable: Pointer,
    mut function: impl FnMut(ffi::Py_ssize_t, Object) -> Result<ControlFlow<()>, Raised>,
) -> Result<(), Raised> {
    // SAFETY: the caller's; an iterator returns new references, and null with or without an exception at its end.
    unsafe {
        let iterator = Object::own(ffi::PyObject_GetIter(iterable))?;
        for number in 0.. {
            let Ok(item) = Object::own(ffi::PyIter_Next(iterator.as_ptr())) else { break };
            if function(number, item)?.is_break() {
                return Ok(());
            }
        }
        if ffi::PyErr_Occurred().is_null() { Ok(()) } else { Err(Raised) }
    }
}
