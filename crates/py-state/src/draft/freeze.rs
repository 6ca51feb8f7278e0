//! What is stored: values that nobody can change.
//!
//! A list becomes a vector, a `dict` a map, a `set` a `frozenset`, a `bytearray` bytes, a draft the value that it has
//! now; records, tuples and sets of values that never change stay the objects that they are. Everything else is refused
//! by `kind_of`, which knows what to say. The maps and vectors that were checked carry a mark, so that a value is
//! checked once.

use pyo3_ffi as ffi;
use ropewalk_base::Code;
use ropewalk_capi::errors;
use ropewalk_capi::heap::content;
use ropewalk_capi::object::{Object, Raised};

use super::whole;
use crate::kinds::{self, Kind};
use crate::node::Pointer;
use crate::record::Record;
use crate::types::State;
use crate::{map, vector};

/// Nested deeper than this, values are refused: what walks them uses the stack.
pub(super) const DEEPEST: u32 = 500;

/// The error for values that are nested too deep.
#[cold]
pub(super) fn too_deep() -> Raised {
    let said = format!("a value is nested more than {DEEPEST} levels deep; store a flatter one");
    errors::raise_text(Code::StateError, &said)
}

/// The value to store for a value.
///
/// # Errors
///
/// `NotFrozen`, if a part of it may change; `StateError`, if it is nested too deep.
///
/// # Safety
///
/// `value` is live.
#[inline]
pub(crate) unsafe fn freeze(types: &State, value: Pointer) -> Result<Object, Raised> {
    // SAFETY: the caller's.
    unsafe {
        if kinds::is_atom(ffi::Py_TYPE(value)) { Object::share(value) } else { frozen(types, value, 0) }
    }
}

/// Checks that a key of a map never changes.
///
/// # Safety
///
/// `key` is live.
#[inline]
pub(crate) unsafe fn check_key(types: &State, key: Pointer) -> Result<(), Raised> {
    // SAFETY: the caller's.
    unsafe {
        if kinds::is_atom(ffi::Py_TYPE(key)) {
            return Ok(());
        }
        if frozen(types, key, 0)?.as_ptr() == key {
            return Ok(());
        }
        Err(errors::raise_text(Code::NotFrozen, "a key of a map must be a value that never changes"))
    }
}

/// # Safety
///
/// As [`freeze`].
unsafe fn frozen(types: &State, value: Pointer, depth: u32) -> Result<Object, Raised> {
    // SAFETY: the caller's; what is walked is held, because what is called may run anything.
    unsafe {
        let class = ffi::Py_TYPE(value);
        if kinds::is_atom(class) {
            return Object::share(value);
        }
        if depth > DEEPEST {
            return Err(too_deep());
        }
        let below = depth + 1;
        if types.is_draft(value) {
            return whole::checked(types, value);
        }
        if class == &raw mut ffi::PyTuple_Type {
            return tuple(types, value, below);
        }
        if class == &raw mut ffi::PyDict_Type {
            return map_of(types, value, below);
        }
        if class == &raw mut ffi::PyList_Type {
            return vector_of(types, value, below);
        }
        if class == &raw mut ffi::PySet_Type {
            let copy = Object::own(ffi::PyFrozenSet_New(value))?;
            return set(types, copy, below);
        }
        if class == &raw mut ffi::PyFrozenSet_Type {
            return set(types, Object::share(value)?, below);
        }
        if class == &raw mut ffi::PyByteArray_Type {
            return Object::own(ffi::PyBytes_FromObject(value));
        }
        match kinds::kind_of(types, value)? {
            Kind::Leaf => Object::share(value),
            Kind::Map => checked_map(types, value, below),
            Kind::Vector => checked_vector(types, value, below),
            Kind::Record(info) => record(types, value, &info, below),
        }
    }
}

/// # Safety
///
/// `value` is a tuple, which the caller holds.
unsafe fn tuple(types: &State, value: Pointer, depth: u32) -> Result<Object, Raised> {
    // SAFETY: the caller's; a tuple never changes. A fresh tuple's places are filled once.
    unsafe {
        let size = ffi::PyTuple_Size(value);
        let (mut parts, mut changed) = (Vec::with_capacity(size.unsigned_abs()), false);
        for index in 0..size {
            let part = ffi::PyTuple_GetItem(value, index);
            let new = frozen(types, part, depth)?;
            changed |= new.as_ptr() != part;
            parts.push(new);
        }
        if !changed {
            return Object::share(value);
        }
        let made = Object::own(ffi::PyTuple_New(size))?;
        for (index, part) in (0..).zip(parts) {
            ffi::PyTuple_SetItem(made.as_ptr(), index, part.into_ptr());
        }
        Ok(made)
    }
}

/// # Safety
///
/// `value` is a `frozenset`.
unsafe fn set(types: &State, value: Object, depth: u32) -> Result<Object, Raised> {
    // SAFETY: the caller's.
    unsafe {
        let parts = Object::own(ffi::PySequence_Tuple(value.as_ptr()))?;
        for index in 0..ffi::PyTuple_Size(parts.as_ptr()) {
            let part = ffi::PyTuple_GetItem(parts.as_ptr(), index);
            if frozen(types, part, depth)?.as_ptr() != part {
                let said = "an element of a set must be a value that never changes";
                return Err(errors::raise_text(Code::NotFrozen, said));
            }
        }
        Ok(value)
    }
}

/// # Safety
///
/// `value` is a `dict`.
unsafe fn map_of(types: &State, value: Pointer, depth: u32) -> Result<Object, Raised> {
    // SAFETY: the caller's; a copy is walked, because another thread may change the original.
    unsafe {
        let items = Object::own(ffi::PyDict_Items(value))?;
        let empty = map::empty(types)?;
        let mut edit = map::Edit::new(empty.as_ptr());
        for index in 0..ffi::PyList_Size(items.as_ptr()) {
            let pair = ffi::PyList_GetItem(items.as_ptr(), index);
            let key = ffi::PyTuple_GetItem(pair, 0);
            check_key(types, key)?;
            let new = frozen(types, ffi::PyTuple_GetItem(pair, 1), depth)?;
            edit.set(key, new.as_ptr())?;
        }
        let made = edit.finish()?;
        map::set_frozen(made.as_ptr());
        Ok(made)
    }
}

/// # Safety
///
/// `value` is a list.
unsafe fn vector_of(types: &State, value: Pointer, depth: u32) -> Result<Object, Raised> {
    // SAFETY: the caller's; a copy is walked, because another thread may change the original.
    unsafe {
        let items = Object::own(ffi::PyList_AsTuple(value))?;
        let empty = vector::empty(types)?;
        let mut edit = vector::Edit::new(empty.as_ptr())?;
        for index in 0..ffi::PyTuple_Size(items.as_ptr()) {
            let new = frozen(types, ffi::PyTuple_GetItem(items.as_ptr(), index), depth)?;
            edit.append(new.as_ptr())?;
        }
        let made = edit.finish()?;
        vector::set_frozen(made.as_ptr());
        Ok(made)
    }
}

/// # Safety
///
/// `value` is a map, which the caller holds.
unsafe fn checked_map(types: &State, value: Pointer, depth: u32) -> Result<Object, Raised> {
    // SAFETY: the caller's.
    unsafe {
        if map::is_frozen(value) {
            return Object::share(value);
        }
        let mut edit = None;
        let mut cursor = map::Cursor::new(value);
        while let Some((key, part)) = cursor.next() {
            check_key(types, key)?;
            let new = frozen(types, part, depth)?;
            if new.as_ptr() != part {
                if edit.is_none() {
                    edit = Some(map::Edit::new(value));
                }
                if let Some(edit) = &mut edit {
                    edit.set(key, new.as_ptr())?;
                }
            }
        }
        let made = match edit {
            None => Object::share(value)?,
            Some(mut edit) => edit.finish()?,
        };
        map::set_frozen(made.as_ptr());
        Ok(made)
    }
}

/// # Safety
///
/// `value` is a vector, which the caller holds.
unsafe fn checked_vector(types: &State, value: Pointer, depth: u32) -> Result<Object, Raised> {
    // SAFETY: the caller's.
    unsafe {
        if vector::is_frozen(value) {
            return Object::share(value);
        }
        let mut edit = None;
        for index in 0..vector::len(value) {
            let Some(part) = vector::get(value, index) else { break };
            let new = frozen(types, part, depth)?;
            if new.as_ptr() != part {
                if edit.is_none() {
                    edit = Some(vector::Edit::new(value)?);
                }
                if let Some(edit) = &mut edit {
                    edit.set(index, new.as_ptr())?;
                }
            }
        }
        let made = match edit {
            None => Object::share(value)?,
            Some(mut edit) => edit.finish()?,
        };
        vector::set_frozen(made.as_ptr());
        Ok(made)
    }
}

/// # Safety
///
/// `value` is of the class that `info` describes, and the caller holds it.
unsafe fn record(types: &State, value: Pointer, info: &Object, depth: u32) -> Result<Object, Raised> {
    // SAFETY: the caller's.
    unsafe {
        let record = content::<Record>(info.as_ptr());
        let (mut new, mut changed) = (Vec::with_capacity(record.count()), false);
        for index in 0..record.count() {
            let part = record.read(value, index)?;
            let stored = frozen(types, part.as_ptr(), depth)?;
            let is_other = stored.as_ptr() != part.as_ptr();
            changed |= is_other;
            new.push(is_other.then_some(stored));
        }
        if !changed {
            return Object::share(value);
        }
        record.copy(value, &new)
    }
}
