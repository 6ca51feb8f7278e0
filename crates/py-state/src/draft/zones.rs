//! What a value that replaces another one must leave as it is: what is `Const` in it, what an append-only vector has,
//! and a counter's number.
//!
//! Only values whose rule says that there are such places below are compared, and of two maps only what differs. A part
//! that the new value does not have is deleted, which is allowed, and one that the old value did not have is new. The
//! items of a vector that is replaced whole are new: nothing says which of the old ones they stand for.
//!
//! What a transaction writes below a value that it has put in an old one's place is compared with what it has put
//! there.

use pyo3_ffi as ffi;
use ropewalk_capi::heap::content;
use ropewalk_capi::object::{Object, Raised};

use super::array;
use crate::kinds::{self, Kind};
use crate::node::Pointer;
use crate::record::Record;
use crate::rule::{Below, Rule, Zone};
use crate::types::State;
use crate::{map, vector};

/// The steps to the place that was not left as it is, the last one first; `None` if there is none.
///
/// # Errors
///
/// Those of comparisons, which run code of the program.
///
/// # Safety
///
/// Live objects, which the caller holds; the rule is that of the place of both values.
pub(super) unsafe fn broken(
    types: &State,
    own: Pointer,
    old: Pointer,
    new: Pointer,
) -> Result<Option<Vec<Object>>, Raised> {
    // SAFETY: the caller's.
    unsafe {
        let rule = content::<Rule>(own);
        if old == new || !rule.is_guarded() {
            return Ok(None);
        }
        let has_arrays = !rule.arrays.get().is_null();
        let keeps = match rule.zone {
            Zone::Const | Zone::Counter => is_equal(types, has_arrays, old, new)?,
            Zone::AppendOnly => is_longer(types, has_arrays, old, new)?,
            _ => return below(types, rule, own, old, new),
        };
        Ok((!keeps).then(Vec::new))
    }
}

/// Whether two values at a place are equal. With `has_arrays` arrays may be in them, of which NumPy compares the items
/// and not the wholes, so that `==` of what has them raises: there the parts are compared, of records all fields.
unsafe fn is_equal(types: &State, has_arrays: bool, old: Pointer, new: Pointer) -> Result<bool, Raised> {
    // SAFETY: live objects, which the caller holds; the parts of values of a state are held by these.
    unsafe {
        if old == new {
            return Ok(true);
        }
        let class = ffi::Py_TYPE(old);
        if has_arrays && class == ffi::Py_TYPE(new) {
            if class == types.array.cast() {
                let answer = array::ask(types, c"same", &[old, new])?;
                return Ok(answer.as_ptr() == ffi::Py_True());
            }
            if map::is_map(old) {
                let mut is_equal_so_far = true;
                map::diff(old, new, &mut |_, old, new| {
                    is_equal_so_far = is_equal_so_far
                        && match (old, new) {
                            (Some(old), Some(new)) => is_equal(types, true, old, new)?,
                            _ => false,
                        };
                    Ok(())
                })?;
                return Ok(is_equal_so_far);
            }
            if vector::is_vector(old) {
                return Ok(vector::len(old) == vector::len(new) && is_longer(types, true, old, new)?);
            }
            if let Kind::Record(info) = kinds::kind_of(types, old)? {
                let record = content::<Record>(info.as_ptr());
                for index in 0..record.count() {
                    let (old, new) = (record.read(old, index)?, record.read(new, index)?);
                    if !is_equal(types, true, old.as_ptr(), new.as_ptr())? {
                        return Ok(false);
                    }
                }
                return Ok(true);
            }
        }
        match ffi::PyObject_RichCompareBool(old, new, ffi::Py_EQ) {
            -1 => Err(Raised),
            answer => Ok(answer != 0),
        }
    }
}

/// Whether a vector begins with all items of another one.
unsafe fn is_longer(types: &State, has_arrays: bool, old: Pointer, new: Pointer) -> Result<bool, Raised> {
    // SAFETY: live objects, which the caller holds; vectors never change.
    unsafe {
        if !vector::is_vector(old) || !vector::is_vector(new) {
            return is_equal(types, has_arrays, old, new);
        }
        for index in 0..vector::len(old) {
            let (Some(old), Some(new)) = (vector::get(old, index), vector::get(new, index)) else {
                return Ok(false);
            };
            if !is_equal(types, has_arrays, old, new)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// # Safety
///
/// As [`broken`].
unsafe fn below(
    types: &State,
    rule: &Rule,
    own: Pointer,
    old: Pointer,
    new: Pointer,
) -> Result<Option<Vec<Object>>, Raised> {
    // SAFETY: the caller's; maps and records never change, and hold their parts.
    unsafe {
        let step = |step: Pointer, found: Option<Vec<Object>>| -> Result<Option<Vec<Object>>, Raised> {
            let Some(mut steps) = found else { return Ok(None) };
            steps.push(Object::share(step)?);
            Ok(Some(steps))
        };
        if map::is_map(old) && map::is_map(new) {
            let mut found = None;
            map::diff(old, new, &mut |key, old, new| {
                if let (Some(old), Some(new), None) = (old, new, &found)
                    && let Below::Rule(_, below) = rule.key(own, key)?
                {
                    found = step(key, broken(types, below, old, new)?)?;
                }
                Ok(())
            })?;
            return Ok(found);
        }
        if ffi::Py_TYPE(old) != ffi::Py_TYPE(new) {
            return Ok(None);
        }
        let Kind::Record(info) = kinds::kind_of(types, old)? else { return Ok(None) };
        let record = content::<Record>(info.as_ptr());
        for index in 0..record.count() {
            if let Below::Rule(guarded, below) = rule.field(own, info.as_ptr(), index)
                && guarded.is_guarded()
            {
                let (old, new) = (record.read(old, index)?, record.read(new, index)?);
                let found = broken(types, below, old.as_ptr(), new.as_ptr())?;
                if found.is_some() {
                    return step(record.name(index), found);
                }
            }
        }
        Ok(None)
    }
}
