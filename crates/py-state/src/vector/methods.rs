//! The methods of a vector.

use std::ffi::CStr;
use std::ptr::null_mut;

use pyo3_ffi as ffi;
use ropewalk_capi::entry;
use ropewalk_capi::heap::make;
use ropewalk_capi::object::{Object, Raised};

use super::builder::Builder;
use super::cursor::Cursor;
use super::edit::Edit;
use super::protocol::{extend as extend_with, find, index_of, out_of_range, raw};
use crate::builder::Shared;
use crate::equality;
use crate::node::{Pointer, same};
use crate::types;

/// Raises a `TypeError`, or another one, with a text.
///
/// # Safety
///
/// A live exception class.
pub(super) unsafe fn refuse(class: Pointer, text: &'static CStr) -> Raised {
    // SAFETY: the caller's.
    unsafe { ffi::PyErr_SetString(class, text.as_ptr()) };
    Raised
}

#[entry]
pub(super) unsafe extern "C" fn append(vector: Pointer, item: Pointer) -> Pointer {
    // SAFETY: a vector and a live object.
    unsafe { raw(super::append(vector, item)) }
}

#[entry]
pub(super) unsafe extern "C" fn extend(vector: Pointer, items: Pointer) -> Pointer {
    // SAFETY: a vector and a live object; nothing else has the edit.
    unsafe {
        let made = Edit::new(vector).and_then(|mut edit| {
            extend_with(&mut edit, items)?;
            edit.finish()
        });
        raw(made)
    }
}

#[entry]
pub(super) unsafe extern "C" fn set(
    vector: Pointer,
    arguments: *mut Pointer,
    count: ffi::Py_ssize_t,
) -> Pointer {
    // SAFETY: a vector, and as many live arguments as the interpreter says.
    unsafe {
        if count != 2 {
            let Raised = refuse(ffi::PyExc_TypeError, c"set() takes an index and an item");
            return null_mut();
        }
        raw(index_of(*arguments, super::len(vector))
            .and_then(|index| super::set(vector, index, *arguments.add(1))))
    }
}

#[entry]
pub(super) unsafe extern "C" fn pop(vector: Pointer, _: Pointer) -> Pointer {
    // SAFETY: a vector.
    unsafe {
        raw(match super::len(vector).checked_sub(1) {
            None => Err(out_of_range(-1, 0)),
            Some(0) => types::of(ffi::Py_TYPE(vector)).and_then(|state| super::empty(state)),
            Some(count) => super::slice(vector, 0, count),
        })
    }
}

/// The vector with the items from `from` on moved to behind other ones: those before `index`, and one more if given.
///
/// # Safety
///
/// A live vector with at least as many items, and a live object.
unsafe fn spliced(
    vector: Pointer,
    index: usize,
    added: Option<Pointer>,
    from: usize,
) -> Result<Object, Raised> {
    // SAFETY: the caller's; nothing else has the edit.
    unsafe {
        let mut edit = Edit::new(vector)?;
        drop(edit.truncate(index)?);
        if let Some(item) = added {
            edit.append(item)?;
        }
        let mut cursor = Cursor::range(vector, from, usize::MAX);
        while let Some(item) = cursor.next() {
            edit.append(item)?;
        }
        edit.finish()
    }
}

#[entry]
pub(super) unsafe extern "C" fn delete(vector: Pointer, index: Pointer) -> Pointer {
    // SAFETY: a vector and a live object.
    unsafe {
        raw(index_of(index, super::len(vector)).and_then(|index| spliced(vector, index, None, index + 1)))
    }
}

#[entry]
pub(super) unsafe extern "C" fn insert(
    vector: Pointer,
    arguments: *mut Pointer,
    count: ffi::Py_ssize_t,
) -> Pointer {
    // SAFETY: a vector, and as many live arguments as the interpreter says.
    unsafe {
        if count != 2 {
            let Raised = refuse(ffi::PyExc_TypeError, c"insert() takes an index and an item");
            return null_mut();
        }
        let made = bound(*arguments, super::len(vector))
            .and_then(|index| spliced(vector, index, Some(*arguments.add(1)), index));
        raw(made)
    }
}

/// The place that an index stands for: one beyond an end is that end.
///
/// # Safety
///
/// A live object. Python code may run.
unsafe fn bound(index: Pointer, count: usize) -> Result<usize, Raised> {
    // SAFETY: the caller's; without a class for errors a large number is the largest one.
    unsafe {
        let index = ffi::PyNumber_AsSsize_t(index, null_mut());
        if index == -1 && !ffi::PyErr_Occurred().is_null() {
            return Err(Raised);
        }
        let from_front = if index < 0 { index.saturating_add(count as isize) } else { index };
        Ok(usize::try_from(from_front).unwrap_or(0).min(count))
    }
}

#[entry]
pub(super) unsafe extern "C" fn index(
    vector: Pointer,
    arguments: *mut Pointer,
    count: ffi::Py_ssize_t,
) -> Pointer {
    // SAFETY: a vector, and as many live arguments as the interpreter says.
    unsafe {
        if !(1..=3).contains(&count) {
            let Raised =
                refuse(ffi::PyExc_TypeError, c"index() takes an item, and where to begin and to stop");
            return null_mut();
        }
        let length = super::len(vector);
        let place = |at: ffi::Py_ssize_t, otherwise| {
            if at < count { bound(*arguments.add(at as usize), length) } else { Ok(otherwise) }
        };
        let found =
            place(1, 0).and_then(|start| find(vector, *arguments, start, place(2, length)?)).and_then(
                |found| found.ok_or_else(|| refuse(ffi::PyExc_ValueError, c"the vector has no such item")),
            );
        found.map_or(null_mut(), |index| ffi::PyLong_FromSize_t(index))
    }
}

#[entry]
pub(super) unsafe extern "C" fn count(vector: Pointer, wanted: Pointer) -> Pointer {
    // SAFETY: a vector and a live object, both held by the caller.
    unsafe {
        let (mut cursor, mut count) = (Cursor::new(vector), 0);
        while let Some(item) = cursor.next() {
            match equality::equal(vector, item, wanted) {
                Err(Raised) => return null_mut(),
                Ok(answer) => count += usize::from(answer),
            }
        }
        ffi::PyLong_FromSize_t(count)
    }
}

#[entry]
pub(super) unsafe extern "C" fn mutate(vector: Pointer, _: Pointer) -> Pointer {
    // SAFETY: a vector; the state has the builder's type.
    unsafe {
        let made = types::of(ffi::Py_TYPE(vector))
            .and_then(|state| make(state.vector_builder.cast(), Builder(Shared::new(Edit::new(vector)?))));
        raw(made)
    }
}

#[entry]
pub(super) unsafe extern "C" fn itself(vector: Pointer, _: Pointer) -> Pointer {
    // SAFETY: a vector.
    unsafe { same(vector) }
}

/// `__reduce__`: the type, whose name is public, and a tuple of the items.
#[entry]
pub(super) unsafe extern "C" fn reduce(vector: Pointer, _: Pointer) -> Pointer {
    // SAFETY: a vector; the format's arguments are live objects.
    unsafe {
        let made = Object::own(ffi::PySequence_Tuple(vector)).and_then(|items| {
            Object::own(ffi::Py_BuildValue(c"(O(O))".as_ptr(), ffi::Py_TYPE(vector), items.as_ptr()))
        });
        raw(made)
    }
}
