//! `MapBuilder`: many changes to one map.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;

use pyo3_ffi as ffi;
use ropewalk_capi::entry;
use ropewalk_capi::heap::{self, Type, content, fast_method, keyword_method, method};
use ropewalk_capi::object::{Object, Raised};

use super::edit::Edit;
use super::merge::{merge, merge_named};
use super::methods::wrong_count;
use super::protocol::{missing, raw};
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

/// The value of a key, with a reference of its own: the next call may change the builder.
///
/// # Safety
///
/// A live builder and a live key, which the caller holds. Python code may run.
unsafe fn found(builder: Pointer, key: Pointer) -> Result<Option<Object>, Raised> {
    // SAFETY: the caller's; the edit keeps the value until the use ends.
    unsafe {
        let edit = shared(builder).read()?;
        edit.get(key)?.map(|value| Object::share(value)).transpose()
    }
}

#[entry]
unsafe extern "C" fn subscript(builder: Pointer, key: Pointer) -> Pointer {
    // SAFETY: a builder and a live key, both held by the caller.
    unsafe { raw(found(builder, key).and_then(|value| value.ok_or_else(|| missing(key)))) }
}

#[entry]
unsafe extern "C" fn get(builder: Pointer, arguments: *mut Pointer, count: ffi::Py_ssize_t) -> Pointer {
    // SAFETY: a builder, and as many live arguments as the interpreter says.
    unsafe {
        if count != 1 && count != 2 {
            return wrong_count(c"get() takes a key, and what to return if there is none");
        }
        match found(builder, *arguments) {
            Ok(Some(value)) => value.into_ptr(),
            Ok(None) if count == 2 => same(*arguments.add(1)),
            Ok(None) => same(ffi::Py_None()),
            Err(Raised) => null_mut(),
        }
    }
}

#[entry]
unsafe extern "C" fn contains(builder: Pointer, key: Pointer) -> c_int {
    // SAFETY: a builder and a live key, both held by the caller.
    let found = unsafe { found(builder, key) };
    found.map_or(-1, |value| value.is_some().into())
}

#[entry]
unsafe extern "C" fn length(builder: Pointer) -> ffi::Py_ssize_t {
    // SAFETY: a builder.
    let edit = unsafe { shared(builder) }.read();
    edit.map_or(-1, |edit| edit.len() as _)
}

/// `b[k] = v` and `del b[k]`.
#[entry]
unsafe extern "C" fn assign(builder: Pointer, key: Pointer, value: Pointer) -> c_int {
    // SAFETY: a builder and live objects, which the caller holds. What falls out is dropped after the use of the edit.
    unsafe {
        let fallen = shared(builder).change().and_then(|mut edit| {
            if value.is_null() { edit.cut(key)?.ok_or_else(|| missing(key)) } else { edit.put(key, value) }
        });
        fallen.map_or(-1, |_| 0)
    }
}

#[entry]
unsafe extern "C" fn discard(builder: Pointer, key: Pointer) -> Pointer {
    // SAFETY: a builder and a live key. What falls out is dropped after the use of the edit.
    unsafe {
        let fallen = shared(builder).change().and_then(|mut edit| edit.cut(key));
        fallen.map_or(null_mut(), |_| Object::none().into_ptr())
    }
}

#[entry]
unsafe extern "C" fn update(
    builder: Pointer,
    arguments: *const Pointer,
    count: ffi::Py_ssize_t,
    names: Pointer,
) -> Pointer {
    // SAFETY: a builder, and as many live arguments as the interpreter says.
    unsafe {
        if count > 1 {
            return wrong_count(c"update() takes one mapping or iterable of pairs, and entries by name");
        }
        let merged = shared(builder).change().and_then(|mut edit| {
            if count == 1 {
                merge(&mut edit, *arguments)?;
            }
            merge_named(&mut edit, names, arguments.add(count as usize))
        });
        merged.map_or(null_mut(), |()| Object::none().into_ptr())
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
    heap::make_type::<Builder>(
        module,
        Type {
            name: c"ropewalk._state.MapBuilder",
            doc: DOC,
            flags: ffi::Py_TPFLAGS_HAVE_GC
                | ffi::Py_TPFLAGS_IMMUTABLETYPE
                | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION,
            methods: vec![
                fast_method(c"get", get, c"get($self, key, default=None, /)\n--\n\nThe value, or `default`."),
                method(
                    c"discard",
                    discard,
                    ffi::METH_O,
                    c"discard($self, key, /)\n--\n\nDeletes an entry if there is one.",
                ),
                keyword_method(c"update", update, UPDATE),
                method(c"finish", finish, ffi::METH_NOARGS, FINISH),
                method(c"__enter__", enter, ffi::METH_NOARGS, c"Returns the builder."),
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
                (ffi::Py_sq_contains, contains as *mut c_void),
                (ffi::Py_tp_traverse, traverse as *mut c_void),
                (ffi::Py_tp_clear, clear as *mut c_void),
                (ffi::Py_tp_dealloc, heap::dealloc::<Builder> as *mut c_void),
            ],
        },
    )
}

const DOC: &CStr = c"Many changes to one map: made by `PMap.mutate`.";

const UPDATE: &CStr =
    c"Sets the entries of a mapping or of an iterable of pairs, and those that are given by name.";

const FINISH: &CStr = c"finish($self, /)
--

The map with the entries of now. The builder can go on, and that map stays as it is.";
