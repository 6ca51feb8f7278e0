//! The methods of `Ok` and `Err`: each is written once, and is compiled once for either type.

use std::ptr;

use pyo3_ffi as ffi;

use super::holder::{self, Pointer, held, same};
use super::kind::Kind;
use ropewalk_base::Code;
use ropewalk_capi::entry;
use ropewalk_capi::errors::raise_made;
use ropewalk_capi::object::{Object, Raised, take_exception};

/// Calls a function with a result's value.
///
/// # Safety
///
/// `result` is a result that the caller keeps alive, and `function` a live object.
#[inline]
unsafe fn call(function: Pointer, result: Pointer) -> Pointer {
    // The callee may use the place before the argument, for a method's `self`. SAFETY: live objects, one argument after
    // a free place.
    unsafe {
        let places = [ptr::null_mut(), held(result)];
        let count = 1 | ffi::PY_VECTORCALL_ARGUMENTS_OFFSET;
        ffi::PyObject_Vectorcall(function, places.as_ptr().add(1), count, ptr::null_mut())
    }
}

#[entry]
pub(super) unsafe extern "C" fn is_ok<K: Kind>(_: Pointer, _: Pointer) -> Pointer {
    // SAFETY: the thread is attached.
    unsafe { ffi::PyBool_FromLong(K::IS_OK.into()) }
}

#[entry]
pub(super) unsafe extern "C" fn is_err<K: Kind>(_: Pointer, _: Pointer) -> Pointer {
    // SAFETY: the thread is attached.
    unsafe { ffi::PyBool_FromLong((!K::IS_OK).into()) }
}

#[entry]
pub(super) unsafe extern "C" fn ok<K: Kind>(result: Pointer, _: Pointer) -> Pointer {
    // SAFETY: a result; `None` is immortal.
    unsafe { same(if K::IS_OK { held(result) } else { ffi::Py_None() }) }
}

#[entry]
pub(super) unsafe extern "C" fn err<K: Kind>(result: Pointer, _: Pointer) -> Pointer {
    // SAFETY: a result; `None` is immortal.
    unsafe { same(if K::IS_OK { ffi::Py_None() } else { held(result) }) }
}

/// Calls the function to replace the value, if the kind is the wanted one.
///
/// # Safety
///
/// A result, and a live object.
#[inline]
unsafe fn mapped(result: Pointer, function: Pointer, wanted: bool) -> Pointer {
    // SAFETY: the caller guarantees live objects; a result's type is `Ok` or `Err`, and the call returns an owned
    // reference.
    unsafe {
        if !wanted {
            return same(result);
        }
        let made = call(function, result);
        if made.is_null() { made } else { holder::make(ffi::Py_TYPE(result), made) }
    }
}

#[entry]
pub(super) unsafe extern "C" fn map<K: Kind>(result: Pointer, function: Pointer) -> Pointer {
    // SAFETY: a result, and a live argument.
    unsafe { mapped(result, function, K::IS_OK) }
}

#[entry]
pub(super) unsafe extern "C" fn map_err<K: Kind>(result: Pointer, function: Pointer) -> Pointer {
    // SAFETY: a result, and a live argument.
    unsafe { mapped(result, function, !K::IS_OK) }
}

/// Calls the function for the next result, if the kind is the wanted one.
///
/// # Safety
///
/// A result, and a live object.
#[inline]
unsafe fn chained(result: Pointer, function: Pointer, wanted: bool) -> Pointer {
    // SAFETY: the caller guarantees live objects; the call returns an owned reference, which is passed on or released.
    unsafe {
        if !wanted {
            return same(result);
        }
        let next = call(function, result);
        if next.is_null() || ffi::Py_TYPE(next) == ffi::Py_TYPE(result) || holder::is_result(next) {
            return next;
        }
        ffi::PyErr_Format(
            ffi::PyExc_TypeError,
            c"the function must give an Ok or an Err, not %R; `map` wraps what is no result".as_ptr(),
            ffi::Py_TYPE(next),
        );
        ffi::Py_DECREF(next);
        ptr::null_mut()
    }
}

#[entry]
pub(super) unsafe extern "C" fn and_then<K: Kind>(result: Pointer, function: Pointer) -> Pointer {
    // SAFETY: a result, and a live argument.
    unsafe { chained(result, function, K::IS_OK) }
}

#[entry]
pub(super) unsafe extern "C" fn or_else<K: Kind>(result: Pointer, function: Pointer) -> Pointer {
    // SAFETY: a result, and a live argument.
    unsafe { chained(result, function, !K::IS_OK) }
}

/// Calls the function for its effect, if the kind is the wanted one.
///
/// # Safety
///
/// A result, and a live object.
unsafe fn inspected(result: Pointer, function: Pointer, wanted: bool) -> Pointer {
    // SAFETY: the caller guarantees live objects; the call's result is released.
    unsafe {
        if wanted {
            let ignored = call(function, result);
            if ignored.is_null() {
                return ignored;
            }
            ffi::Py_DECREF(ignored);
        }
        same(result)
    }
}

#[entry]
pub(super) unsafe extern "C" fn inspect<K: Kind>(result: Pointer, function: Pointer) -> Pointer {
    // SAFETY: a result, and a live argument.
    unsafe { inspected(result, function, K::IS_OK) }
}

#[entry]
pub(super) unsafe extern "C" fn inspect_err<K: Kind>(result: Pointer, function: Pointer) -> Pointer {
    // SAFETY: a result, and a live argument.
    unsafe { inspected(result, function, !K::IS_OK) }
}

/// Raises `UnwrapError`, with the value as its cause if that is an exception.
///
/// # Safety
///
/// `held` is a live object; the message is null with an exception set, or a reference that is released here.
unsafe fn raise_unwrap_error(message: Pointer, held: Pointer) -> Pointer {
    // SAFETY: the caller's objects are live; an exception is set, and taken; SetCause takes a reference over, SetObject
    // its own.
    unsafe {
        let Ok(message) = Object::own(message) else { return ptr::null_mut() };
        let Raised = raise_made(Code::UnwrapError, &[message.as_ptr(), held]);
        if ffi::PyExceptionInstance_Check(held) != 0 {
            let error = take_exception();
            ffi::PyException_SetCause(error.as_ptr(), same(held));
            ffi::PyErr_SetObject(ffi::Py_TYPE(error.as_ptr()).cast(), error.as_ptr());
        }
    }
    ptr::null_mut()
}

#[entry]
pub(super) unsafe extern "C" fn unwrap<K: Kind>(result: Pointer, _: Pointer) -> Pointer {
    // SAFETY: a result; the format's argument is a live object. SetObject keeps the traceback that the exception has.
    unsafe {
        let held = held(result);
        if K::IS_OK {
            return same(held);
        }
        if ffi::PyExceptionInstance_Check(held) == 0 {
            return raise_unwrap_error(
                ffi::PyUnicode_FromFormat(c"unwrap() of Err(%R)".as_ptr(), held),
                held,
            );
        }
        ffi::PyErr_SetObject(ffi::Py_TYPE(held).cast(), held);
        ptr::null_mut()
    }
}

#[entry]
pub(super) unsafe extern "C" fn unwrap_err<K: Kind>(result: Pointer, _: Pointer) -> Pointer {
    // SAFETY: a result; the format's argument is a live object.
    unsafe {
        let held = held(result);
        if K::IS_OK {
            let message = ffi::PyUnicode_FromFormat(c"unwrap_err() of Ok(%R)".as_ptr(), held);
            return raise_unwrap_error(message, held);
        }
        same(held)
    }
}

#[entry]
pub(super) unsafe extern "C" fn expect<K: Kind>(result: Pointer, message: Pointer) -> Pointer {
    // SAFETY: a result, a live argument; the format's arguments are live objects.
    unsafe {
        let held = held(result);
        if K::IS_OK {
            return same(held);
        }
        raise_unwrap_error(ffi::PyUnicode_FromFormat(c"%S: %R".as_ptr(), message, held), held)
    }
}

#[entry]
pub(super) unsafe extern "C" fn unwrap_or<K: Kind>(result: Pointer, default: Pointer) -> Pointer {
    // SAFETY: a result, and a live argument.
    unsafe { same(if K::IS_OK { held(result) } else { default }) }
}

#[entry]
pub(super) unsafe extern "C" fn unwrap_or_else<K: Kind>(result: Pointer, function: Pointer) -> Pointer {
    // SAFETY: a result, and a live argument.
    unsafe { if K::IS_OK { same(held(result)) } else { call(function, result) } }
}
