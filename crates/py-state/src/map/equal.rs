//! Equality and hashes of maps.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use pyo3_ffi as ffi;
use ropewalk_capi::object::{Object, Raised};

use super::cursor::Cursor;
use super::entry::Entry;
use super::key::{hash_of, same_hashed};
use super::object;
use crate::equality::equal;
use crate::iterate::each;
use crate::node::{Node, Pointer};

/// Whether two maps have equal entries.
///
/// # Safety
///
/// Live maps, which the caller keeps alive. Python code may run.
pub(super) unsafe fn maps(a: Pointer, b: Pointer) -> Result<bool, Raised> {
    // SAFETY: the caller's.
    unsafe { Ok(object::count(a) == object::count(b) && nodes(a, object::root(a), object::root(b))?) }
}

/// Equal maps have the same nodes, because their form is canonical.
///
/// # Safety
///
/// Nodes at the same place of two maps, one of which is `map`, which the caller keeps alive. Python code may run.
unsafe fn nodes(map: Pointer, a: *mut Node, b: *mut Node) -> Result<bool, Raised> {
    // SAFETY: the caller's, for the children too.
    unsafe {
        if a == b {
            return Ok(true);
        }
        let shape = |node: *mut Node| ((*node).datamap, (*node).nodemap, (*node).entries());
        if shape(a) != shape(b) {
            return Ok(false);
        }
        if (*a).datamap == 0 && (*a).entries() > 0 {
            return collisions(map, a, b);
        }
        for at in 0..(*a).entries() {
            let (a, b) = (Entry::of(a, at), Entry::of(b, at));
            if !same_hashed(a.key, &raw const a.hash, b.key, b.hash)? || !equal(map, a.value, b.value)? {
                return Ok(false);
            }
        }
        for at in 0..(*a).children() {
            if !nodes(map, (*Node::child(a, at)).cast(), (*Node::child(b, at)).cast())? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Two nodes of collisions, which have no order.
///
/// # Safety
///
/// As for [`nodes`].
unsafe fn collisions(map: Pointer, a: *mut Node, b: *mut Node) -> Result<bool, Raised> {
    // SAFETY: the caller's.
    unsafe {
        'entries: for at in 0..(*a).entries() {
            let entry = Entry::of(a, at);
            for at in 0..(*b).entries() {
                let other = Entry::of(b, at);
                if same_hashed(entry.key, &raw const entry.hash, other.key, other.hash)? {
                    if !equal(map, entry.value, other.value)? {
                        return Ok(false);
                    }
                    continue 'entries;
                }
            }
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a map equals another object; `None` if that is no mapping.
///
/// # Safety
///
/// A live map and a live object, which the caller keeps alive. Python code may run.
pub(super) unsafe fn with_mapping(map: Pointer, other: Pointer) -> Result<Option<bool>, Raised> {
    // SAFETY: the caller's; live objects.
    unsafe {
        if ffi::PyDict_Check(other) == 0 {
            // What has no subscripts is no mapping, and most objects of other types come to their answer here.
            if ffi::PyMapping_Check(other) == 0 {
                return Ok(None);
            }
            let module = Object::own(ffi::PyImport_ImportModule(c"collections.abc".as_ptr()))?;
            match ffi::PyObject_IsInstance(other, module.attribute(c"Mapping")?.as_ptr()) {
                -1 => return Err(Raised),
                0 => return Ok(None),
                _ => {}
            }
        }
        match ffi::PyObject_Size(other) {
            -1 => return Err(Raised),
            size if size as usize != object::count(map) => return Ok(Some(false)),
            _ => {}
        }
        let mut is_same = true;
        let keys = Object::own(ffi::PyMapping_Keys(other))?;
        each(keys.as_ptr(), |_, key| {
            is_same = match super::get(map, key.as_ptr())? {
                None => false,
                Some(value) => {
                    let item = Object::own(ffi::PyObject_GetItem(other, key.as_ptr()))?;
                    equal(map, value, item.as_ptr())?
                }
            };
            Ok(if is_same { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        Ok(Some(is_same))
    }
}

/// The hash of a map, whatever the order of its entries.
///
/// # Safety
///
/// A live map, which the caller keeps alive. Python code may run.
pub(super) unsafe fn hash(map: Pointer) -> Result<isize, Raised> {
    // SAFETY: the caller's; every call that is entered is left. Without the guard a deep nest would overflow the stack.
    unsafe {
        let kept = object::kept_hash(map);
        if let Some(hash) = object::loaded(kept) {
            return Ok(hash);
        }
        if ffi::Py_EnterRecursiveCall(c" while hashing a map".as_ptr()) != 0 {
            return Err(Raised);
        }
        let sum = sum(map);
        ffi::Py_LeaveRecursiveCall();
        let hash = mixed(sum?.wrapping_add(object::count(map) as u64)) as isize;
        // No hash is -1, by the interpreter's rule.
        let hash = if hash == -1 { -2 } else { hash };
        kept.store(hash, Ordering::Relaxed);
        Ok(hash)
    }
}

/// # Safety
///
/// As for [`hash`].
unsafe fn sum(map: Pointer) -> Result<u64, Raised> {
    let mut sum = 0u64;
    // SAFETY: the caller's.
    unsafe {
        let mut cursor = Cursor::new(map);
        while let Some((key, value)) = cursor.next() {
            let (key, value) = (hash_of(key)? as u64, hash_of(value)? as u64);
            sum = sum.wrapping_add(mixed(mixed(key).wrapping_add(value)));
        }
    }
    Ok(sum)
}

/// Spreads the bits of a number over all of it. Source: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number
/// Generators" (2014).
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}
