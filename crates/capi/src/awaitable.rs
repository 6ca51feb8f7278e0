//! What every awaitable of ours has: it is its own iterator, its steps are `am_send`'s, and it looks like a coroutine.

use std::ffi::c_int;
use std::ptr::null_mut;

use pyo3_ffi as ffi;

use crate::entry::entry;
use crate::errors::fail;
use crate::object::{Object, Raised};

/// Not in the headers: the slot of `am_send`.
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

/// `send(value)`: a step, for those who know iterators only: an end is a `StopIteration` with the value.
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
                // An instance, because a tuple that is set would be taken for the arguments of one.
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

/// The way of a cancellation: throws into the iterator that is waited for, or raises where there is none, in all the
/// forms that `throw(type_or_exception[, value[, traceback]])` has.
///
/// # Safety
///
/// What the interpreter passes to a method `throw`.
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
