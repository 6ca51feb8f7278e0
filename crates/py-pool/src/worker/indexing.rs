//! The base of `SharedArray`: NumPy's array, whose `a[...]` gives shared arrays for views of the memory and plain
//! arrays for copies. Compiled, since an element taken in a loop must cost what it costs in a plain array.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3_ffi as ffi;

use ropewalk_capi::entry;
use ropewalk_capi::errors::fail;
use ropewalk_capi::heap;
use ropewalk_capi::object::{Object, Raised};

/// NumPy's own `a[...]`: one function for all interpreters, for its array is a static type. Written before the type
/// that reads it is there, always with the same value; hence relaxed.
static SUBSCRIPT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

#[entry]
unsafe extern "C" fn subscript(object: *mut ffi::PyObject, key: *mut ffi::PyObject) -> *mut ffi::PyObject {
    let plain = SUBSCRIPT.load(Ordering::Relaxed);
    // SAFETY: it is the `binaryfunc` that `make_type` has read, and the interpreter passes an array and a key. The
    // result is a new reference or null.
    unsafe {
        let plain: ffi::binaryfunc = std::mem::transmute::<*mut c_void, ffi::binaryfunc>(plain);
        let made = plain(object, key);
        if made.is_null() || ffi::Py_TYPE(made) != ffi::Py_TYPE(object) {
            return made;
        }
        let settled = Object::own(made)
            .and_then(|made| made.attribute(c"_settled"))
            .and_then(|settle| settle.call(&[]));
        settled.map_or(ptr::null_mut(), Object::into_ptr)
    }
}

/// Makes the type over NumPy's.
pub(crate) fn make_type(module: &Object, array: *mut ffi::PyObject) -> Result<Object, Raised> {
    // SAFETY: checked to be a type, which outlives the one that is made over it.
    let base = unsafe {
        if ffi::PyType_Check(array) == 0 {
            return Err(fail(c"the base of a shared array is NumPy's array type"));
        }
        let plain = ffi::PyType_GetSlot(array.cast(), ffi::Py_mp_subscript);
        if plain.is_null() {
            return Err(fail(c"the base of a shared array is NumPy's array type"));
        }
        SUBSCRIPT.store(plain, Ordering::Relaxed);
        Object::share(array)?
    };
    let kind = heap::Type {
        name: c"ropewalk._worker.SharedArrayBase",
        doc: c"NumPy's array, whose views of shared memory stay shared.",
        flags: ffi::Py_TPFLAGS_BASETYPE,
        methods: Vec::new(),
        getters: Vec::new(),
        slots: &[(ffi::Py_mp_subscript, subscript as *mut _)],
    };
    // Of the size of its base.
    heap::make_sized_type(module, kind, 0, Some(&base))
}
