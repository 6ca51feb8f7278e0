//! `__get_pydantic_core_schema__` of maps and vectors. What it does is in the package, which is asked when pydantic
//! asks.

use std::ptr;

use pyo3_ffi as ffi;
use ropewalk_capi::entry;
use ropewalk_capi::heap::method;
use ropewalk_capi::object::{Object, Raised};

use crate::node::Pointer;

/// The method.
pub(crate) fn definition() -> ffi::PyMethodDef {
    method(
        c"__get_pydantic_core_schema__",
        schema,
        ffi::METH_VARARGS | ffi::METH_CLASS,
        c"__get_pydantic_core_schema__($type, source, handler, /)\n--\n\nFor pydantic.",
    )
}

#[entry]
unsafe extern "C" fn schema(_class: Pointer, arguments: Pointer) -> Pointer {
    // SAFETY: the interpreter's tuple of arguments; C strings.
    unsafe {
        let made = (|| {
            let module = Object::own(ffi::PyImport_ImportModule(c"ropewalk.state._pydantic".as_ptr()))?;
            let function = module.attribute(c"core_schema_of")?;
            Object::own(ffi::PyObject_CallObject(function.as_ptr(), arguments))
        })();
        made.map_or_else(|Raised| ptr::null_mut(), Object::into_ptr)
    }
}
