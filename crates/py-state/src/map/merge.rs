//! Puts what a constructor or `update` takes into an edit: a mapping, or pairs, and entries by name.

use std::ops::ControlFlow;
use std::ptr::null_mut;

use pyo3_ffi as ffi;
use ropewalk_capi::object::{Object, Raised};

use super::cursor::Cursor;
use super::edit::Edit;
use super::object;
use crate::iterate::each;
use crate::node::Pointer;

/// Sets the entries of a mapping, or of an iterable of pairs.
///
/// # Safety
///
/// A live object, which the caller keeps alive. Python code may run, which cannot reach the edit.
pub(super) unsafe fn merge(edit: &mut Edit, source: Pointer) -> Result<(), Raised> {
    // SAFETY: the caller's.
    unsafe {
        if object::is_map(source) {
            return merge_map(edit, source);
        }
        if ffi::PyDict_CheckExact(source) != 0 {
            return merge_dict(edit, source);
        }
        if Object::own(ffi::PyObject_GetAttrString(source, c"keys".as_ptr())).is_ok() {
            return merge_mapping(edit, source);
        }
        if ffi::PyErr_ExceptionMatches(ffi::PyExc_AttributeError) == 0 {
            return Err(Raised);
        }
        ffi::PyErr_Clear();
        merge_pairs(edit, source)
    }
}

/// # Safety
///
/// As for [`merge`]: a map.
unsafe fn merge_map(edit: &mut Edit, source: Pointer) -> Result<(), Raised> {
    // SAFETY: the caller's.
    unsafe {
        if edit.len() == 0 && ffi::Py_TYPE(source) == edit.kind() {
            *edit = Edit::new(source);
            return Ok(());
        }
        let mut cursor = Cursor::new(source);
        while let Some((key, value)) = cursor.next() {
            edit.set(key, value)?;
        }
        Ok(())
    }
}

/// # Safety
///
/// As for [`merge`]: a dictionary.
unsafe fn merge_dict(edit: &mut Edit, source: Pointer) -> Result<(), Raised> {
    // SAFETY: the caller's. A copy, because code that runs in a comparison may change the dictionary; nothing else has
    // the copy, which holds its keys and values.
    unsafe {
        let copy = Object::own(ffi::PyDict_Copy(source))?;
        let (mut at, mut key, mut value) = (0, null_mut(), null_mut());
        while ffi::PyDict_Next(copy.as_ptr(), &raw mut at, &raw mut key, &raw mut value) != 0 {
            edit.set(key, value)?;
        }
        Ok(())
    }
}

/// # Safety
///
/// As for [`merge`]: an object with the method `keys`.
unsafe fn merge_mapping(edit: &mut Edit, source: Pointer) -> Result<(), Raised> {
    // SAFETY: the caller's; live objects.
    unsafe {
        let keys = Object::own(ffi::PyMapping_Keys(source))?;
        each(keys.as_ptr(), |_, key| {
            let value = Object::own(ffi::PyObject_GetItem(source, key.as_ptr()))?;
            edit.set(key.as_ptr(), value.as_ptr()).map(ControlFlow::Continue)
        })
    }
}

/// # Safety
///
/// As for [`merge`]: any object.
unsafe fn merge_pairs(edit: &mut Edit, source: Pointer) -> Result<(), Raised> {
    // SAFETY: the caller's; the sequence holds its items and is not changed by any other code, but if it is a list; so
    // the items are held here, too.
    unsafe {
        each(source, |at, pair| {
            let text = c"an entry of a map is a pair of a key and a value".as_ptr();
            let pair = Object::own(ffi::PySequence_Tuple(pair.as_ptr())).map_err(|Raised| {
                if ffi::PyErr_ExceptionMatches(ffi::PyExc_TypeError) != 0 {
                    ffi::PyErr_SetString(ffi::PyExc_TypeError, text);
                }
                Raised
            })?;
            let length = ffi::PyTuple_Size(pair.as_ptr());
            if length != 2 {
                let text =
                    c"an entry of a map is a pair of a key and a value: entry %zd has %zd parts".as_ptr();
                ffi::PyErr_Format(ffi::PyExc_ValueError, text, at, length);
                return Err(Raised);
            }
            let part = |at| ffi::PyTuple_GetItem(pair.as_ptr(), at);
            edit.set(part(0), part(1)).map(ControlFlow::Continue)
        })
    }
}

/// Sets the entries that a call has by name.
///
/// # Safety
///
/// A tuple of names or null, and as many values.
pub(super) unsafe fn merge_named(
    edit: &mut Edit,
    names: Pointer,
    values: *const Pointer,
) -> Result<(), Raised> {
    if names.is_null() {
        return Ok(());
    }
    // SAFETY: the caller's.
    unsafe {
        for at in 0..ffi::PyTuple_Size(names) {
            edit.set(ffi::PyTuple_GetItem(names, at), *values.add(at as usize))?;
        }
    }
    Ok(())
}
