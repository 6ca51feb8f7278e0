//! The interpreter's protocols: making, comparing, hashing, showing and pickling results.

use std::ffi::c_int;
use std::ptr;

use pyo3_ffi as ffi;

use super::holder::{self, Pointer, held, same};
use super::kind::Kind;
use ropewalk_capi::entry;

/// `Ok(value)`, without `tp_new` and `tp_init`.
#[entry]
pub(super) unsafe extern "C" fn vectorcall(
    kind: Pointer,
    arguments: *const Pointer,
    count: usize,
    names: Pointer,
) -> Pointer {
    // SAFETY: the interpreter passes our type and as many arguments as it says.
    unsafe {
        if ffi::PyVectorcall_NARGS(count) != 1 || !names.is_null() && ffi::PyTuple_Size(names) != 0 {
            return wrong_arguments(kind.cast());
        }
        holder::make(kind.cast(), same(*arguments))
    }
}

/// `tp_new`, for `Ok.__new__` and other callers that do not use vectorcalls.
#[entry]
pub(super) unsafe extern "C" fn new(
    kind: *mut ffi::PyTypeObject,
    arguments: Pointer,
    names: Pointer,
) -> Pointer {
    // SAFETY: our type, which has no subtypes; a tuple, and a dictionary or null.
    unsafe {
        if ffi::PyTuple_Size(arguments) != 1 || !names.is_null() && ffi::PyDict_Size(names) != 0 {
            return wrong_arguments(kind);
        }
        holder::make(kind, same(ffi::PyTuple_GetItem(arguments, 0)))
    }
}

unsafe fn wrong_arguments(kind: *mut ffi::PyTypeObject) -> Pointer {
    // SAFETY: a live exception class; the name of a live type is the format's argument.
    unsafe {
        ffi::PyErr_Format(
            ffi::PyExc_TypeError,
            c"%s takes one argument, by position".as_ptr(),
            (*kind).tp_name,
        )
    }
}

#[entry]
pub(super) unsafe extern "C" fn repr<K: Kind>(result: Pointer) -> Pointer {
    let format = if K::IS_OK { c"Ok(%R)" } else { c"Err(%R)" };
    // SAFETY: a result; the format's argument is a live object. `PyObject_Repr` guards against too deep nests. A result
    // that holds itself does so through a list or another container, whose `repr` detects the recursion.
    unsafe { ffi::PyUnicode_FromFormat(format.as_ptr(), held(result)) }
}

#[entry]
pub(super) unsafe extern "C" fn hash<K: Kind>(result: Pointer) -> ffi::Py_hash_t {
    // SAFETY: a result; every call that is entered is left. Without the guard a deep nest would overflow the stack.
    let inner = unsafe {
        if ffi::Py_EnterRecursiveCall(c" while hashing a result".as_ptr()) != 0 {
            return -1;
        }
        let inner = ffi::PyObject_Hash(held(result));
        ffi::Py_LeaveRecursiveCall();
        inner
    };
    if inner == -1 {
        return -1;
    }
    // Different from the hash of the value, and of the other kind.
    let mixed = inner.rotate_left(7) ^ if K::IS_OK { 0x51ED_270B } else { 0x2D51_36A9 };
    if mixed == -1 { -2 } else { mixed }
}

/// `==` and `!=` of two results, as of two tuples: identical values are equal.
#[entry]
pub(super) unsafe extern "C" fn compare(result: Pointer, other: Pointer, operation: c_int) -> Pointer {
    // SAFETY: a result, and a live object; if it is of the same type, a result too.
    unsafe {
        // An Ok never equals an Err or another type: if both sides return NotImplemented, the interpreter compares
        // identities.
        if !matches!(operation, ffi::Py_EQ | ffi::Py_NE) || ffi::Py_TYPE(result) != ffi::Py_TYPE(other) {
            return same(ffi::Py_NotImplemented());
        }
        match ffi::PyObject_RichCompareBool(held(result), held(other), operation) {
            -1 => ptr::null_mut(),
            answer => ffi::PyBool_FromLong(answer.into()),
        }
    }
}

/// Any truth value of a result would mislead, for an `Err` as much as for an `Ok(0)`, so this raises.
#[entry]
pub(super) unsafe extern "C" fn truth(_: Pointer) -> c_int {
    // SAFETY: a live exception class.
    unsafe {
        ffi::PyErr_SetString(
            ffi::PyExc_TypeError,
            c"a result is neither true nor false: use is_ok(), is_err() or match".as_ptr(),
        );
    }
    -1
}

#[entry]
pub(super) unsafe extern "C" fn reduce(result: Pointer, _: Pointer) -> Pointer {
    // SAFETY: a result; the format's arguments are live objects.
    unsafe { ffi::Py_BuildValue(c"(O(O))".as_ptr(), ffi::Py_TYPE(result), held(result)) }
}
