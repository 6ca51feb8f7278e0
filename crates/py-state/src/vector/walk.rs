//! The iterator over a vector.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use pyo3_ffi as ffi;
use ropewalk_capi::entry;
use ropewalk_capi::guarded::Guarded;
use ropewalk_capi::heap::{self, Field, Type, content, make, method};
use ropewalk_capi::object::{Object, Raised};

use super::cursor::Cursor;
use crate::node::{Pointer, same};
use crate::types;

/// An iterator. Its cursor points into the vector that it holds; two threads may use one iterator, and each item is
/// then yielded to one of them.
struct Walk {
    vector: Field,
    cursor: Guarded<Place>,
}

struct Place(Cursor);

// SAFETY: the pointers lead to nodes of the vector that the iterator holds, which never change.
unsafe impl Send for Place {}

/// `iter(vector)`.
#[entry]
pub(super) unsafe extern "C" fn iter(vector: Pointer) -> Pointer {
    // SAFETY: a vector; the iterator holds it for as long as its cursor.
    unsafe {
        let made = types::of(ffi::Py_TYPE(vector)).and_then(|state| {
            let cursor = Guarded::new(Place(Cursor::new(vector)));
            make(state.vector_iterator.cast(), Walk { vector: Field::new(Object::share(vector)?), cursor })
        });
        made.map_or(null_mut(), Object::into_ptr)
    }
}

#[entry]
unsafe extern "C" fn next(iterator: Pointer) -> Pointer {
    // SAFETY: a live iterator, whose vector lives with it; nothing of the interpreter runs under the guard.
    unsafe {
        let item = content::<Walk>(iterator).cursor.lock().0.next();
        item.map_or(null_mut(), |item| same(item))
    }
}

#[entry]
unsafe extern "C" fn length_hint(iterator: Pointer, _: Pointer) -> Pointer {
    // SAFETY: a live iterator; nothing of the interpreter runs under the guard.
    let left = unsafe { content::<Walk>(iterator).cursor.lock() }.0.left();
    // SAFETY: the thread is attached.
    unsafe { ffi::PyLong_FromSize_t(left) }
}

#[entry]
unsafe extern "C" fn itself(object: Pointer) -> Pointer {
    // SAFETY: a live object.
    unsafe { same(object) }
}

#[entry]
unsafe extern "C" fn traverse(object: Pointer, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    // SAFETY: a live iterator, and the collector's arguments.
    unsafe {
        let answer = content::<Walk>(object).vector.visit(visit, arg);
        if answer != 0 { answer } else { heap::visit_type(object, visit, arg) }
    }
}

/// Makes the type.
pub(super) fn make_type(module: &Object) -> Result<Object, Raised> {
    heap::make_type::<Walk>(
        module,
        Type {
            name: c"ropewalk._state._VectorIterator",
            doc: c"An iterator over a vector.",
            flags: ffi::Py_TPFLAGS_HAVE_GC
                | ffi::Py_TPFLAGS_IMMUTABLETYPE
                | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION,
            methods: vec![method(c"__length_hint__", length_hint, ffi::METH_NOARGS, c"How many are left.")],
            getters: Vec::new(),
            slots: &[
                (ffi::Py_tp_iter, itself as *mut c_void),
                (ffi::Py_tp_iternext, next as *mut c_void),
                (ffi::Py_tp_traverse, traverse as *mut c_void),
                (ffi::Py_tp_dealloc, heap::dealloc::<Walk> as *mut c_void),
            ],
        },
    )
}
