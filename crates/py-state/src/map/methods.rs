//! The methods of a map.

use std::ptr::null_mut;

use pyo3_ffi as ffi;
use ropewalk_capi::entry;
use ropewalk_capi::heap::make;
use ropewalk_capi::object::{Object, Raised};

use super::builder::Builder;
use super::cursor::Cursor;
use super::edit::Edit;
use super::merge::{merge, merge_named};
use super::protocol::{missing, raw};
use super::views::{Part, view};
use crate::builder::Shared;
use crate::node::{Pointer, same};
use crate::types;

/// Raises for a wrong number of arguments.
///
/// # Safety
///
/// The thread is attached.
pub(super) unsafe fn wrong_count(text: &'static std::ffi::CStr) -> Pointer {
    // SAFETY: a live exception class and a C string.
    unsafe { ffi::PyErr_SetString(ffi::PyExc_TypeError, text.as_ptr()) };
    null_mut()
}

#[entry]
pub(super) unsafe extern "C" fn get(
    map: Pointer,
    arguments: *mut Pointer,
    count: ffi::Py_ssize_t,
) -> Pointer {
    // SAFETY: a map, and as many live arguments as the interpreter says.
    unsafe {
        if count != 1 && count != 2 {
            return wrong_count(c"get() takes a key, and what to return if there is none");
        }
        match super::get(map, *arguments) {
            Ok(Some(value)) => same(value),
            Ok(None) if count == 2 => same(*arguments.add(1)),
            Ok(None) => same(ffi::Py_None()),
            Err(Raised) => null_mut(),
        }
    }
}

#[entry]
pub(super) unsafe extern "C" fn set(
    map: Pointer,
    arguments: *mut Pointer,
    count: ffi::Py_ssize_t,
) -> Pointer {
    // SAFETY: a map, and as many live arguments as the interpreter says.
    unsafe {
        if count != 2 {
            return wrong_count(c"set() takes a key and a value");
        }
        raw(super::set(map, *arguments, *arguments.add(1)))
    }
}

#[entry]
pub(super) unsafe extern "C" fn delete(map: Pointer, key: Pointer) -> Pointer {
    // SAFETY: a map and a live key.
    unsafe { raw(super::delete(map, key).and_then(|made| made.ok_or_else(|| missing(key)))) }
}

#[entry]
pub(super) unsafe extern "C" fn discard(map: Pointer, key: Pointer) -> Pointer {
    // SAFETY: a map and a live key.
    unsafe { raw(super::delete(map, key).and_then(|made| made.map_or_else(|| Object::share(map), Ok))) }
}

#[entry]
pub(super) unsafe extern "C" fn update(
    map: Pointer,
    arguments: *const Pointer,
    count: ffi::Py_ssize_t,
    names: Pointer,
) -> Pointer {
    // SAFETY: a map, and as many live arguments as the interpreter says; nothing else has the edit.
    unsafe {
        if count > 1 {
            return wrong_count(c"update() takes one mapping or iterable of pairs, and entries by name");
        }
        let mut edit = Edit::new(map);
        let merged = if count == 1 { merge(&mut edit, *arguments) } else { Ok(()) };
        let merged = merged.and_then(|()| merge_named(&mut edit, names, arguments.add(count as usize)));
        raw(merged.and_then(|()| edit.finish()))
    }
}

#[entry]
pub(super) unsafe extern "C" fn keys(map: Pointer, _: Pointer) -> Pointer {
    // SAFETY: a map.
    unsafe { raw(view(map, Part::Key)) }
}

#[entry]
pub(super) unsafe extern "C" fn values(map: Pointer, _: Pointer) -> Pointer {
    // SAFETY: a map.
    unsafe { raw(view(map, Part::Value)) }
}

#[entry]
pub(super) unsafe extern "C" fn items(map: Pointer, _: Pointer) -> Pointer {
    // SAFETY: a map.
    unsafe { raw(view(map, Part::Item)) }
}

#[entry]
pub(super) unsafe extern "C" fn mutate(map: Pointer, _: Pointer) -> Pointer {
    // SAFETY: a map; the state has the builder's type.
    unsafe {
        let made = types::of(ffi::Py_TYPE(map))
            .and_then(|state| make(state.map_builder.cast(), Builder(Shared::new(Edit::new(map)))));
        raw(made)
    }
}

#[entry]
pub(super) unsafe extern "C" fn itself(map: Pointer, _: Pointer) -> Pointer {
    // SAFETY: a map.
    unsafe { same(map) }
}

/// `__reduce__`: the type, whose name is public, and a dictionary, which no other object is smaller in a pickle.
#[entry]
pub(super) unsafe extern "C" fn reduce(map: Pointer, _: Pointer) -> Pointer {
    // SAFETY: a map, which holds what the cursor yields; the format's arguments are live objects.
    unsafe {
        let made = Object::own(ffi::PyDict_New()).and_then(|entries| {
            let mut cursor = Cursor::new(map);
            while let Some((key, value)) = cursor.next() {
                if ffi::PyDict_SetItem(entries.as_ptr(), key, value) != 0 {
                    return Err(Raised);
                }
            }
            Object::own(ffi::Py_BuildValue(c"(O(O))".as_ptr(), ffi::Py_TYPE(map), entries.as_ptr()))
        });
        raw(made)
    }
}
