//! What the interpreter calls on a map for its own syntax and functions.

use std::ffi::c_int;
use std::ptr::null_mut;

use pyo3_ffi as ffi;
use ropewalk_capi::entry;
use ropewalk_capi::object::{Object, Raised};

use super::cursor::Cursor;
use super::edit::Edit;
use super::merge::{merge, merge_named};
use super::views::{Part, walk};
use super::{equal, object};
use crate::node::{MOST_SHOWN, Pointer, SHOWN, same};
use crate::types;

/// What the interpreter gets: a new reference, or null with the exception set.
pub(super) fn raw(made: Result<Object, Raised>) -> Pointer {
    made.map_or(null_mut(), Object::into_ptr)
}

/// Raises a `KeyError` for a key.
///
/// # Safety
///
/// A live key.
#[cold]
pub(super) unsafe fn missing(key: Pointer) -> Raised {
    // SAFETY: the caller's. The tuple keeps a key that is a tuple itself from being taken for the error's arguments.
    unsafe {
        let arguments = ffi::PyTuple_Pack(1, key);
        if !arguments.is_null() {
            ffi::PyErr_SetObject(ffi::PyExc_KeyError, arguments);
            ffi::Py_DECREF(arguments);
        }
    }
    Raised
}

#[entry]
pub(super) unsafe extern "C" fn subscript(map: Pointer, key: Pointer) -> Pointer {
    // SAFETY: a map and a live key, both held by the caller.
    unsafe {
        match super::get(map, key) {
            Ok(Some(value)) => same(value),
            Ok(None) => {
                let Raised = missing(key);
                null_mut()
            }
            Err(Raised) => null_mut(),
        }
    }
}

#[entry]
pub(super) unsafe extern "C" fn contains(map: Pointer, key: Pointer) -> c_int {
    // SAFETY: a map and a live key, both held by the caller.
    let found = unsafe { super::get(map, key) };
    found.map_or(-1, |value| value.is_some().into())
}

#[entry]
pub(super) unsafe extern "C" fn length(map: Pointer) -> ffi::Py_ssize_t {
    // SAFETY: a map.
    unsafe { object::count(map) as _ }
}

#[entry]
pub(super) unsafe extern "C" fn iter(map: Pointer) -> Pointer {
    // SAFETY: a map.
    unsafe { raw(walk(map, Part::Key)) }
}

/// `PMap(...)`.
#[entry]
pub(super) unsafe extern "C" fn vectorcall(
    kind: Pointer,
    arguments: *const Pointer,
    count: usize,
    names: Pointer,
) -> Pointer {
    // SAFETY: the interpreter passes our type, and as many arguments as it says; nothing else has the edit.
    unsafe {
        let count = ffi::PyVectorcall_NARGS(count);
        if count > 1 {
            ffi::PyErr_SetString(
                ffi::PyExc_TypeError,
                c"PMap takes one mapping or iterable of pairs, and entries by name".as_ptr(),
            );
            return null_mut();
        }
        let made = types::of(kind.cast()).and_then(|state| {
            let mut edit = Edit::new(state.empty_map);
            if count == 1 {
                merge(&mut edit, *arguments)?;
            }
            merge_named(&mut edit, names, arguments.add(count as usize))?;
            edit.finish()
        });
        raw(made)
    }
}

/// `tp_new`, for `PMap.__new__` and other callers that do not use vectorcalls.
#[entry]
pub(super) unsafe extern "C" fn new(
    kind: *mut ffi::PyTypeObject,
    arguments: Pointer,
    names: Pointer,
) -> Pointer {
    // SAFETY: our type, which has no subtypes; a tuple, and a dictionary or null. The type's own vectorcall takes them.
    unsafe { ffi::PyVectorcall_Call(kind.cast(), arguments, names) }
}

#[entry]
pub(super) unsafe extern "C" fn repr(map: Pointer) -> Pointer {
    // SAFETY: a map. Every repr that is entered is left.
    unsafe {
        match ffi::Py_ReprEnter(map) {
            0 => {}
            1.. => return ffi::PyUnicode_FromString(c"PMap({...})".as_ptr()),
            _ => return null_mut(),
        }
        let text = spelled(map);
        ffi::Py_ReprLeave(map);
        raw(text)
    }
}

/// # Safety
///
/// A live map. Python code may run.
unsafe fn spelled(map: Pointer) -> Result<Object, Raised> {
    // SAFETY: the caller's; the map holds what the cursor yields.
    unsafe {
        let parts = Object::own(ffi::PyList_New(0))?;
        let mut cursor = Cursor::new(map);
        let count = object::count(map);
        let most = if count > MOST_SHOWN { SHOWN } else { count };
        let mut shown = 0;
        while shown < most
            && let Some((key, value)) = cursor.next()
        {
            let part = Object::own(ffi::PyUnicode_FromFormat(c"%R: %R".as_ptr(), key, value))?;
            if ffi::PyList_Append(parts.as_ptr(), part.as_ptr()) != 0 {
                return Err(Raised);
            }
            shown += 1;
        }
        if most < count {
            let rest = (count - most).cast_signed();
            let part = Object::own(ffi::PyUnicode_FromFormat(c"... and %zd more".as_ptr(), rest))?;
            if ffi::PyList_Append(parts.as_ptr(), part.as_ptr()) != 0 {
                return Err(Raised);
            }
        }
        let comma = Object::own(ffi::PyUnicode_FromString(c", ".as_ptr()))?;
        let joined = Object::own(ffi::PyUnicode_Join(comma.as_ptr(), parts.as_ptr()))?;
        Object::own(ffi::PyUnicode_FromFormat(c"PMap({%U})".as_ptr(), joined.as_ptr()))
    }
}

#[entry]
pub(super) unsafe extern "C" fn hash(map: Pointer) -> ffi::Py_hash_t {
    // SAFETY: a map.
    unsafe { equal::hash(map) }.unwrap_or(-1)
}

/// `==` and `!=` of a map with a map, or with any other mapping.
#[entry]
pub(super) unsafe extern "C" fn compare(map: Pointer, other: Pointer, operation: c_int) -> Pointer {
    // SAFETY: a map and a live object, both held by the caller.
    unsafe {
        if !matches!(operation, ffi::Py_EQ | ffi::Py_NE) {
            return same(ffi::Py_NotImplemented());
        }
        let answer = if object::is_map(other) {
            equal::maps(map, other).map(Some)
        } else {
            equal::with_mapping(map, other)
        };
        match answer {
            Ok(Some(answer)) => ffi::PyBool_FromLong((answer == (operation == ffi::Py_EQ)).into()),
            Ok(None) => same(ffi::Py_NotImplemented()),
            Err(Raised) => null_mut(),
        }
    }
}

/// `a | b`, where one is a map and the other any mapping: the entries of both, and those of `b` where both have one.
#[entry]
pub(super) unsafe extern "C" fn or(a: Pointer, b: Pointer) -> Pointer {
    // SAFETY: live objects, one of which is a map; nothing else has the edit.
    unsafe {
        if !is_operand(a) || !is_operand(b) {
            return same(ffi::Py_NotImplemented());
        }
        let map = if object::is_map(a) { a } else { b };
        let made = types::of(ffi::Py_TYPE(map)).and_then(|state| {
            let mut edit = Edit::new(state.empty_map);
            merge(&mut edit, a)?;
            merge(&mut edit, b)?;
            edit.finish()
        });
        raw(made)
    }
}

/// Whether an object can be united with a map.
///
/// # Safety
///
/// A live object. Python code may run.
unsafe fn is_operand(object: Pointer) -> bool {
    // SAFETY: the caller's.
    unsafe {
        object::is_map(object)
            || ffi::PyDict_Check(object) != 0
            || (ffi::PyMapping_Check(object) != 0
                && ffi::PyObject_HasAttrString(object, c"keys".as_ptr()) != 0)
    }
}
