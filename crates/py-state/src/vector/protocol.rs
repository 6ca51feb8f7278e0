//! What the interpreter calls on a vector for its own syntax and functions.

use std::ffi::c_int;
use std::ops::ControlFlow;
use std::ptr::null_mut;

use pyo3_ffi as ffi;
use ropewalk_capi::entry;
use ropewalk_capi::object::{Object, Raised};

use super::cursor::Cursor;
use super::edit::Edit;
use super::{equal, object};
use crate::equality;
use crate::iterate::each;
use crate::node::{MOST_SHOWN, Pointer, SHOWN, same};
use crate::types;

/// What the interpreter gets: a new reference, or null with the exception set.
pub(super) fn raw(made: Result<Object, Raised>) -> Pointer {
    made.map_or(null_mut(), Object::into_ptr)
}

/// Raises an `IndexError` that names the index and the length.
#[cold]
pub(crate) fn out_of_range(index: isize, count: usize) -> Raised {
    // SAFETY: a live exception class and a C string, with the numbers that its format asks for.
    unsafe {
        let said = c"the vector has no item %zd: it has %zd items";
        ffi::PyErr_Format(ffi::PyExc_IndexError, said.as_ptr(), index, count.cast_signed());
    }
    Raised
}

/// The index that an object stands for in a vector of this length: a negative one counts from the end.
///
/// # Safety
///
/// A live object. Python code may run.
pub(super) unsafe fn index_of(object: Pointer, count: usize) -> Result<usize, Raised> {
    // SAFETY: the caller's; a live exception class.
    let index = unsafe {
        let index = ffi::PyNumber_AsSsize_t(object, ffi::PyExc_IndexError);
        if index == -1 && !ffi::PyErr_Occurred().is_null() {
            return Err(Raised);
        }
        index
    };
    from_end(index, count).filter(|&index| index < count).ok_or_else(|| out_of_range(index, count))
}

/// An index from the front; a negative one counts from the end.
fn from_end(index: isize, count: usize) -> Option<usize> {
    if index < 0 { count.checked_sub(index.unsigned_abs()) } else { Some(index as usize) }
}

/// `v[i]` by the protocol of sequences, for which the interpreter has added the length to a negative index.
#[entry]
pub(super) unsafe extern "C" fn item(vector: Pointer, index: ffi::Py_ssize_t) -> Pointer {
    // SAFETY: a vector.
    let item = usize::try_from(index).ok().and_then(|index| unsafe { super::get(vector, index) });
    match item {
        // SAFETY: the vector holds the item.
        Some(item) => unsafe { same(item) },
        None => {
            // SAFETY: a vector.
            let Raised = out_of_range(index, unsafe { super::len(vector) });
            null_mut()
        }
    }
}

/// `v[i]` and `v[i:j]`.
#[entry]
pub(super) unsafe extern "C" fn subscript(vector: Pointer, key: Pointer) -> Pointer {
    // SAFETY: a vector and a live object, both held by the caller.
    unsafe {
        if ffi::PySlice_Check(key) != 0 {
            return raw(slice(vector, key));
        }
        if ffi::PyIndex_Check(key) == 0 {
            ffi::PyErr_Format(
                ffi::PyExc_TypeError,
                c"a vector's indices are integers or slices, not %.200s".as_ptr(),
                (*ffi::Py_TYPE(key)).tp_name,
            );
            return null_mut();
        }
        let count = super::len(vector);
        let item = index_of(key, count).and_then(|index| {
            super::get(vector, index).ok_or_else(|| out_of_range(index.cast_signed(), count))
        });
        item.map_or(null_mut(), |item| same(item))
    }
}

/// # Safety
///
/// A live vector and a live slice. Python code may run.
unsafe fn slice(vector: Pointer, slice: Pointer) -> Result<Object, Raised> {
    // SAFETY: the caller's; places for three numbers.
    unsafe {
        let (mut start, mut stop, mut step) = (0, 0, 0);
        if ffi::PySlice_Unpack(slice, &raw mut start, &raw mut stop, &raw mut step) != 0 {
            return Err(Raised);
        }
        let count = super::len(vector);
        let length = ffi::PySlice_AdjustIndices(count as _, &raw mut start, &raw mut stop, step);
        if length == 0 {
            return super::empty(types::of(ffi::Py_TYPE(vector))?);
        }
        if step == 1 {
            return super::slice(vector, start as usize, stop as usize);
        }
        let mut edit = Edit::new(types::of(ffi::Py_TYPE(vector))?.empty_vector)?;
        for number in 0..length {
            let index = start + number * step;
            let item = super::get(vector, index as usize).ok_or_else(|| out_of_range(index, count))?;
            edit.append(item)?;
        }
        edit.finish()
    }
}

#[entry]
pub(super) unsafe extern "C" fn length(vector: Pointer) -> ffi::Py_ssize_t {
    // SAFETY: a vector.
    unsafe { super::len(vector) as _ }
}

#[entry]
pub(super) unsafe extern "C" fn contains(vector: Pointer, wanted: Pointer) -> c_int {
    // SAFETY: a vector and a live object, both held by the caller.
    let found = unsafe { find(vector, wanted, 0, usize::MAX) };
    found.map_or(-1, |index| index.is_some().into())
}

/// The first index of an equal item from `start` on and before `end`.
///
/// # Safety
///
/// A live vector and a live object, which the caller keeps alive. Python code may run.
pub(super) unsafe fn find(
    vector: Pointer,
    wanted: Pointer,
    start: usize,
    end: usize,
) -> Result<Option<usize>, Raised> {
    // SAFETY: the caller's.
    unsafe {
        let mut cursor = Cursor::range(vector, start, end);
        let mut index = start;
        while let Some(item) = cursor.next() {
            if equality::equal(vector, item, wanted)? {
                return Ok(Some(index));
            }
            index += 1;
        }
        Ok(None)
    }
}

/// Appends the items of an iterable.
///
/// # Safety
///
/// A live object, which the caller keeps alive. Python code may run, which cannot reach the edit.
pub(super) unsafe fn extend(edit: &mut Edit, source: Pointer) -> Result<(), Raised> {
    // SAFETY: the caller's; a vector holds its items.
    unsafe {
        if object::is_vector(source) {
            let mut cursor = Cursor::new(source);
            while let Some(item) = cursor.next() {
                edit.append(item)?;
            }
            return Ok(());
        }
        each(source, |_, item| edit.append(item.as_ptr()).map(ControlFlow::Continue))
    }
}

/// `PVector(...)`.
#[entry]
pub(super) unsafe extern "C" fn vectorcall(
    kind: Pointer,
    arguments: *const Pointer,
    count: usize,
    names: Pointer,
) -> Pointer {
    // SAFETY: the interpreter passes our type, and as many arguments as it says; nothing else has the edit.
    unsafe {
        let count = ffi::PyVectorcall_NARGS(count);
        if count > 1 || !names.is_null() && ffi::PyTuple_Size(names) != 0 {
            ffi::PyErr_SetString(ffi::PyExc_TypeError, c"PVector takes one iterable, by position".as_ptr());
            return null_mut();
        }
        let made = types::of(kind.cast()).and_then(|state| {
            if count == 0 {
                return super::empty(state);
            }
            if ffi::Py_TYPE(*arguments) == kind.cast() {
                return Object::share(*arguments);
            }
            let mut edit = Edit::new(state.empty_vector)?;
            extend(&mut edit, *arguments)?;
            edit.finish()
        });
        raw(made)
    }
}

/// `tp_new`, for `PVector.__new__` and other callers that do not use vectorcalls.
#[entry]
pub(super) unsafe extern "C" fn new(
    kind: *mut ffi::PyTypeObject,
    arguments: Pointer,
    names: Pointer,
) -> Pointer {
    // SAFETY: our type, which has no subtypes; a tuple, and a dictionary or null. The type's own vectorcall takes them.
    unsafe { ffi::PyVectorcall_Call(kind.cast(), arguments, names) }
}

#[entry]
pub(super) unsafe extern "C" fn repr(vector: Pointer) -> Pointer {
    // SAFETY: a vector. Every repr that is entered is left.
    unsafe {
        match ffi::Py_ReprEnter(vector) {
            0 => {}
            1.. => return ffi::PyUnicode_FromString(c"PVector([...])".as_ptr()),
            _ => return null_mut(),
        }
        let text = spelled(vector);
        ffi::Py_ReprLeave(vector);
        raw(text)
    }
}

/// # Safety
///
/// A live vector. Python code may run.
unsafe fn spelled(vector: Pointer) -> Result<Object, Raised> {
    // SAFETY: the caller's; formats with the arguments that they ask for.
    unsafe {
        let count = super::len(vector);
        if count <= MOST_SHOWN {
            let list = Object::own(ffi::PySequence_List(vector))?;
            return Object::own(ffi::PyUnicode_FromFormat(c"PVector(%R)".as_ptr(), list.as_ptr()));
        }
        let list = Object::own(ffi::PySequence_List(super::slice(vector, 0, SHOWN)?.as_ptr()))?;
        let list = Object::own(ffi::PyObject_Repr(list.as_ptr()))?;
        let items = ffi::PyUnicode_GetLength(list.as_ptr()) - 1;
        let items = Object::own(ffi::PyUnicode_Substring(list.as_ptr(), 0, items))?;
        let said = c"PVector(%U, ... and %zd more])";
        Object::own(ffi::PyUnicode_FromFormat(said.as_ptr(), items.as_ptr(), (count - SHOWN).cast_signed()))
    }
}

#[entry]
pub(super) unsafe extern "C" fn hash(vector: Pointer) -> ffi::Py_hash_t {
    // SAFETY: a vector.
    unsafe { equal::hash(vector) }.unwrap_or(-1)
}

/// `==` and `!=` of two vectors. A vector equals no list and no tuple, whose hashes are others.
#[entry]
pub(super) unsafe extern "C" fn compare(vector: Pointer, other: Pointer, operation: c_int) -> Pointer {
    // SAFETY: a vector and a live object, both held by the caller.
    unsafe {
        if !matches!(operation, ffi::Py_EQ | ffi::Py_NE) || !object::is_vector(other) {
            return same(ffi::Py_NotImplemented());
        }
        match equal::vectors(vector, other) {
            Ok(answer) => ffi::PyBool_FromLong((answer == (operation == ffi::Py_EQ)).into()),
            Err(Raised) => null_mut(),
        }
    }
}

/// `a + b`, of two vectors.
#[entry]
pub(super) unsafe extern "C" fn concat(vector: Pointer, other: Pointer) -> Pointer {
    // SAFETY: a vector and a live object, both held by the caller; nothing else has the edit.
    unsafe {
        if !object::is_vector(other) {
            ffi::PyErr_Format(
                ffi::PyExc_TypeError,
                c"a vector is joined with a vector, not with %.200s; `extend` takes any iterable".as_ptr(),
                (*ffi::Py_TYPE(other)).tp_name,
            );
            return null_mut();
        }
        let made = Edit::new(vector).and_then(|mut edit| {
            extend(&mut edit, other)?;
            edit.finish()
        });
        raw(made)
    }
}
