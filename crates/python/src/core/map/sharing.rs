//! Whether inputs of a chunk have mutable objects in common.
//!
//! A chunk is pickled as one object, in which what two inputs have in common arrives as one. A task that changes its
//! input would then change another's.

use std::collections::HashMap;
#[cfg(not(Py_GIL_DISABLED))]
use std::ptr;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyList;

/// How deep inputs are looked into: what `zip` and `repeat` make, and the containers in that.
const DEPTH: u32 = 3;
/// Objects of one input that are looked at; an input of more is taken to share something.
const MOST: usize = 256;

/// Whether some object that can be changed is part of two inputs, as far as containers and attributes show it.
pub(super) fn inputs_share(items: &Bound<'_, PyList>) -> bool {
    if are_constants(items) {
        return false;
    }
    let mut owners = HashMap::new();
    for (number, item) in items.iter().enumerate() {
        let mut looked = 0;
        // SAFETY: a live object, which `item` holds.
        if unsafe { look(item.as_ptr(), number, DEPTH, &mut owners, &mut looked) } {
            return true;
        }
    }
    false
}

/// Whether all inputs are numbers, or strings: what most long maps are about, seen at a glance.
fn are_constants(items: &Bound<'_, PyList>) -> bool {
    let Some(first) = items.iter().next() else { return true };
    let kind = first.get_type();
    let plain = [&raw mut ffi::PyLong_Type, &raw mut ffi::PyFloat_Type, &raw mut ffi::PyUnicode_Type];
    // SAFETY: nobody else has the list, so it keeps its length and its items; each is a live object.
    plain.contains(&kind.as_type_ptr())
        && (0..items.len()).all(|at| unsafe {
            let item = ffi::PyList_GET_ITEM(items.as_ptr(), at.cast_signed());
            ffi::Py_TYPE(item) == kind.as_type_ptr()
        })
}

/// Types whose objects nothing can change.
unsafe fn is_constant(object: *mut ffi::PyObject) -> bool {
    // SAFETY: the caller's live object; the types are the interpreter's own.
    unsafe {
        let kind = ffi::Py_TYPE(object);
        let constants = [
            &raw mut ffi::PyLong_Type,
            &raw mut ffi::PyFloat_Type,
            &raw mut ffi::PyUnicode_Type,
            &raw mut ffi::PyBytes_Type,
            &raw mut ffi::PyBool_Type,
            &raw mut ffi::PyComplex_Type,
            &raw mut ffi::PyFunction_Type,
            &raw mut ffi::PyCFunction_Type,
            &raw mut ffi::PyModule_Type,
            &raw mut ffi::PyRange_Type,
        ];
        constants.contains(&kind) || object == ffi::Py_None() || ffi::PyType_Check(object) != 0
    }
}

/// Notes what belongs to an input; true if any of it belongs to another.
///
/// # Safety
///
/// A live object. It is looked at, and nothing of it is called.
unsafe fn look(
    object: *mut ffi::PyObject,
    number: usize,
    depth: u32,
    owners: &mut HashMap<usize, usize>,
    looked: &mut usize,
) -> bool {
    // SAFETY: the caller's; borrowed references of containers that live as long as their items are looked at, and no
    // code of Python's runs meanwhile.
    unsafe {
        if is_constant(object) {
            return false;
        }
        *looked += 1;
        if *looked > MOST {
            return true;
        }
        let is_tuple = ffi::PyTuple_CheckExact(object) != 0;
        if !is_tuple {
            let owner = *owners.entry(object as usize).or_insert(number);
            if owner != number {
                return true;
            }
        }
        if depth == 0 {
            return false;
        }
        if is_tuple {
            let length = ffi::PyTuple_GET_SIZE(object);
            return (0..length)
                .any(|at| look(ffi::PyTuple_GET_ITEM(object, at), number, depth - 1, owners, looked));
        }
        // Without a global lock another thread may change a list or a dict meanwhile: there they count as one object.
        #[cfg(not(Py_GIL_DISABLED))]
        {
            if ffi::PyList_CheckExact(object) != 0 {
                let length = ffi::PyList_GET_SIZE(object);
                return (0..length)
                    .any(|at| look(ffi::PyList_GET_ITEM(object, at), number, depth - 1, owners, looked));
            }
            if ffi::PyDict_CheckExact(object) != 0 {
                let (mut at, mut value) = (0, ptr::null_mut());
                while ffi::PyDict_Next(object, &raw mut at, ptr::null_mut(), &raw mut value) != 0 {
                    if look(value, number, depth - 1, owners, looked) {
                        return true;
                    }
                }
            }
        }
        false
    }
}
