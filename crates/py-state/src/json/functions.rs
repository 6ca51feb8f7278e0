//! The function of the module that writes JSON.

use std::ptr::null_mut;

use pyo3_ffi as ffi;
use ropewalk_capi::entry;
use ropewalk_capi::heap::fast_method;
use ropewalk_capi::object::{Object, Raised};

use super::encoder::Encoder;
use crate::node::Pointer;
use crate::types;

/// `encode_json(value, default, cache, classify)`.
#[entry]
unsafe extern "C" fn encode_json(
    module: Pointer,
    arguments: *mut Pointer,
    count: ffi::Py_ssize_t,
) -> Pointer {
    // SAFETY: the module, and as many live arguments as the interpreter says, which the caller holds.
    unsafe {
        if count != 4 {
            ffi::PyErr_SetString(
                ffi::PyExc_TypeError,
                c"encode_json takes a value, a default, whether to cache, and a function".as_ptr(),
            );
            return null_mut();
        }
        let [value, default, cache, classify] = [0, 1, 2, 3].map(|at| *arguments.add(at));
        let default = if default == ffi::Py_None() { null_mut() } else { default };
        let is_cached = match ffi::PyObject_IsTrue(cache) {
            -1 => return null_mut(),
            truth => truth == 1,
        };
        types::of_module(module)
            .and_then(|state| Encoder::new(state, default, classify, is_cached)?.encode(value))
            .map_or_else(|Raised| null_mut(), Object::into_ptr)
    }
}

/// The functions.
pub(crate) fn table() -> Vec<ffi::PyMethodDef> {
    vec![fast_method(
        c"encode_json",
        encode_json,
        c"encode_json(value, default, cache, classify, /)\n--\n\nThe value as JSON.",
    )]
}
