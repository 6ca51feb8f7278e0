//! The parts that all our awaitables share: each is its own iterator, takes its steps in `am_send`, and has a
//! coroutine's methods.

use std::ffi::c_int;
use std::ptr::null_mut;

use pyo3_ffi as ffi;

use crate::entry::entry;
use crate::errors::fail;
use crate::object::{Object, Raised};

/// The slot number of `am_send`, which pyo3's headers lack.
pub const AM_SEND: c_int = 81;

/// `__iter__` and `am_await`.
///
/// # Safety
///
/// Called by the interpreter, with a live object.
#[entry]
pub unsafe extern "C" fn itself(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the caller's.
    unsafe { ffi::Py_INCREF(object) };
    object
}

/// `__await__`.
///
/// # Safety
///
/// As [`itself`].
#[entry]
pub unsafe extern "C" fn await_method(
    object: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the caller's.
    unsafe { itself(object) }
}

/// `__next__`.
///
/// # Safety
///
/// Called by the interpreter, with a live object whose type has an `am_send`.
#[entry]
pub unsafe extern "C" fn next(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the caller's.
    unsafe { send(object, ffi::Py_None()) }
}

/// `send(value)`: a step for callers that only know iterators: the end is a `StopIteration` with the value.
///
/// # Safety
///
/// As [`next`].
#[entry]
pub unsafe extern "C" fn send(object: *mut ffi::PyObject, sent: *mut ffi::PyObject) -> *mut ffi::PyObject {
    let mut result = null_mut();
    // SAFETY: the caller's; the reference to a value that is returned is given back.
    unsafe {
        match ffi::PyIter_Send(object, sent, &raw mut result) {
            ffi::PySendResult::PYGEN_NEXT => result,
            ffi::PySendResult::PYGEN_RETURN => {
                // An instance, because the interpreter would take a tuple for the exception's arguments.
                if let Ok(stop) =
                    Object::share(ffi::PyExc_StopIteration).and_then(|class| class.call(&[result]))
                {
                    ffi::PyErr_SetObject(ffi::PyExc_StopIteration, stop.as_ptr());
                }
                ffi::Py_DECREF(result);
                null_mut()
            }
            ffi::PySendResult::PYGEN_ERROR => null_mut(),
        }
    }
}

/// Delivers a cancellation: throws into the awaited iterator, or raises if there is none, in all forms of
/// `throw(type_or_exception[, value[, traceback]])`.
///
/// # Safety
///
/// The arguments are those that the interpreter passes to a method `throw`.
pub unsafe fn throw_into(
    inner: Option<&Object>,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
) -> Result<Object, Raised> {
    // SAFETY: the caller's.
    let arguments = unsafe { std::slice::from_raw_parts(arguments, usize::try_from(count).unwrap_or(0)) };
    let Some(&first) = arguments.first() else { return Err(fail(c"throw() takes an exception")) };
    if let Some(inner) = inner {
        return inner.attribute(c"throw").and_then(|throw| throw.call(arguments));
    }
    // SAFETY: live objects; SetObject takes its own references, and makes an instance of a class.
    unsafe {
        if ffi::PyExceptionInstance_Check(first) != 0 {
            ffi::PyErr_SetObject(ffi::Py_TYPE(first).cast(), first);
        } else {
            ffi::PyErr_SetObject(first, arguments.get(1).copied().unwrap_or(null_mut()));
        }
    }
    Err(Raised)
}
