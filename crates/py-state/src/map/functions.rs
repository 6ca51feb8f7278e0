//! The functions of the module about maps.

use std::ptr::null_mut;

use pyo3_ffi as ffi;
use ropewalk_capi::entry;
use ropewalk_capi::heap::fast_method;
use ropewalk_capi::object::{Object, Raised};

use super::object;
use super::protocol::raw;
use crate::node::Pointer;
use crate::types;

/// `diff_maps(old, new)`.
#[entry]
unsafe extern "C" fn diff_maps(module: Pointer, arguments: *mut Pointer, count: ffi::Py_ssize_t) -> Pointer {
    // SAFETY: the module, and as many live arguments as the interpreter says, which the caller holds.
    unsafe {
        let is_right = count == 2 && object::is_map(*arguments) && object::is_map(*arguments.add(1));
        if !is_right {
            ffi::PyErr_SetString(ffi::PyExc_TypeError, c"diff_maps() takes two maps, old and new".as_ptr());
            return null_mut();
        }
        let made = types::of_module(module).and_then(|state| {
            let list = Object::own(ffi::PyList_New(0))?;
            super::diff(*arguments, *arguments.add(1), &mut |key, old, new| {
                let (old, new) = (old.unwrap_or(state.missing), new.unwrap_or(state.missing));
                let change = Object::own(ffi::PyTuple_Pack(3, key, old, new))?;
                match ffi::PyList_Append(list.as_ptr(), change.as_ptr()) {
                    0 => Ok(()),
                    _ => Err(Raised),
                }
            })?;
            Ok(list)
        });
        raw(made)
    }
}

/// The functions.
pub(crate) fn table() -> Vec<ffi::PyMethodDef> {
    vec![fast_method(
        c"diff_maps",
        diff_maps,
        c"diff_maps(old, new, /)\n--\n\nThe entries that differ, as `(key, old, new)`; `MISSING` stands for none.",
    )]
}
