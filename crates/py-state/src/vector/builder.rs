//! `VectorBuilder`: many changes to one vector.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;

use pyo3_ffi as ffi;
use ropewalk_capi::entry;
use ropewalk_capi::heap::{self, Type, content, fast_method, method};
use ropewalk_capi::object::{Object, Raised};

use super::edit::Edit;
use super::methods::refuse;
use super::protocol::{extend as extend_with, index_of, out_of_range, raw};
use crate::builder::Shared;
use crate::node::{Pointer, same};

/// A builder's content.
pub(super) struct Builder(pub(super) Shared<Edit>);

/// # Safety
///
/// A live builder.
unsafe fn shared<'a>(builder: Pointer) -> &'a Shared<Edit> {
    // SAFETY: the caller's.
    unsafe { &content::<Builder>(builder).0 }
}

#[entry]
unsafe extern "C" fn subscript(builder: Pointer, index: Pointer) -> Pointer {
    // SAFETY: a builder and a live object; the edit keeps the item until the use ends.
    unsafe {
        let item = shared(builder).read().and_then(|edit| {
            let index = index_of(index, edit.len())?;
            edit.get(index)
                .ok_or_else(|| out_of_range(index.cast_signed(), edit.len()))
                .and_then(|item| Object::share(item))
        });
        raw(item)
    }
}

#[entry]
unsafe extern "C" fn length(builder: Pointer) -> ffi::Py_ssize_t {
    // SAFETY: a builder.
    let edit = unsafe { shared(builder) }.read();
    edit.map_or(-1, |edit| edit.len() as _)
}

/// `b[i] = item`.
#[entry]
unsafe extern "C" fn assign(builder: Pointer, index: Pointer, item: Pointer) -> c_int {
    // SAFETY: a builder and live objects, which the caller holds. What falls out is dropped after the use of the edit.
    unsafe {
        let fallen = shared(builder).change().and_then(|mut edit| {
            if item.is_null() {
                return Err(refuse(
                    ffi::PyExc_TypeError,
                    c"a builder of a vector deletes its last item only: use pop()",
                ));
            }
            let index = index_of(index, edit.len())?;
            edit.put(index, item)
        });
        fallen.map_or(-1, |_| 0)
    }
}

#[entry]
unsafe extern "C" fn append(builder: Pointer, item: Pointer) -> Pointer {
    // SAFETY: a builder and a live object.
    unsafe {
        let appended = shared(builder).change().and_then(|mut edit| edit.append(item));
        appended.map_or(null_mut(), |()| Object::none().into_ptr())
    }
}

#[entry]
unsafe extern "C" fn extend(builder: Pointer, items: Pointer) -> Pointer {
    // SAFETY: a builder and a live object.
    unsafe {
        let appended = shared(builder).change().and_then(|mut edit| extend_with(&mut edit, items));
        appended.map_or(null_mut(), |()| Object::none().into_ptr())
    }
}

#[entry]
unsafe extern "C" fn pop(builder: Pointer, _: Pointer) -> Pointer {
    // SAFETY: a builder. What falls out is dropped after the use of the edit.
    unsafe {
        let popped = shared(builder).change().and_then(|mut edit| {
            let last = edit.len().checked_sub(1).ok_or_else(|| out_of_range(-1, 0))?;
            let item =
                edit.get(last).ok_or_else(|| out_of_range(-1, 0)).and_then(|item| Object::share(item))?;
            Ok((item, edit.truncate(last)?))
        });
        raw(popped.map(|(item, _)| item))
    }
}

#[entry]
unsafe extern "C" fn finish(builder: Pointer, _: Pointer) -> Pointer {
    // SAFETY: a builder.
    unsafe { raw(shared(builder).read().and_then(|mut edit| edit.finish())) }
}

#[entry]
unsafe extern "C" fn enter(builder: Pointer, _: Pointer) -> Pointer {
    // SAFETY: a builder.
    unsafe { same(builder) }
}

#[entry]
unsafe extern "C" fn exit(builder: Pointer, _: *mut Pointer, _: ffi::Py_ssize_t) -> Pointer {
    // SAFETY: a builder.
    unsafe { shared(builder) }.close();
    Object::none().into_ptr()
}

#[entry]
unsafe extern "C" fn traverse(builder: Pointer, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    // SAFETY: a live builder, and the collector's arguments.
    unsafe {
        let answer = shared(builder).visit(visit, arg, Edit::visit);
        if answer != 0 { answer } else { heap::visit_type(builder, visit, arg) }
    }
}

#[entry]
unsafe extern "C" fn clear(builder: Pointer) -> c_int {
    // SAFETY: a live builder that is garbage.
    drop(unsafe { shared(builder) }.take());
    0
}

/// Makes the type.
pub(super) fn make_type(module: &Object) -> Result<Object, Raised> {
    const NONE: c_int = ffi::METH_NOARGS;
    heap::make_type::<Builder>(
        module,
        Type {
            name: c"ropewalk._state.VectorBuilder",
            doc: c"Many changes to one vector: made by `PVector.mutate`.",
            flags: ffi::Py_TPFLAGS_HAVE_GC
                | ffi::Py_TPFLAGS_IMMUTABLETYPE
                | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION,
            methods: vec![
                method(c"append", append, ffi::METH_O, c"append($self, item, /)\n--\n\nAppends an item."),
                method(c"extend", extend, ffi::METH_O, c"extend($self, items, /)\n--\n\nAppends all items."),
                method(c"pop", pop, NONE, c"pop($self, /)\n--\n\nDeletes the last item and returns it."),
                method(c"finish", finish, NONE, FINISH),
                method(c"__enter__", enter, NONE, c"Returns the builder."),
                fast_method(c"__exit__", exit, c"Ends the changes: `finish` alone may follow."),
                method(
                    c"__class_getitem__",
                    ffi::Py_GenericAlias,
                    ffi::METH_O | ffi::METH_CLASS,
                    c"For annotations.",
                ),
            ],
            getters: Vec::new(),
            slots: &[
                (ffi::Py_mp_subscript, subscript as *mut c_void),
                (ffi::Py_mp_ass_subscript, assign as *mut c_void),
                (ffi::Py_mp_length, length as *mut c_void),
                (ffi::Py_tp_traverse, traverse as *mut c_void),
                (ffi::Py_tp_clear, clear as *mut c_void),
                (ffi::Py_tp_dealloc, heap::dealloc::<Builder> as *mut c_void),
            ],
        },
    )
}

const FINISH: &CStr = c"finish($self, /)
--

The vector with the items of now. The builder can go on, and that vector stays as it is.";
