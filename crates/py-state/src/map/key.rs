//! Hashes and equality of keys.

use std::sync::atomic::{AtomicIsize, Ordering};

use pyo3_ffi as ffi;
use ropewalk_capi::object::Raised;

use crate::node::Pointer;

/// Whether it is a `str`, and not of a subclass, which may compare as it likes.
///
/// # Safety
///
/// `object` is alive.
#[inline]
unsafe fn is_text(object: Pointer) -> bool {
    // SAFETY: the caller's.
    unsafe { ffi::Py_TYPE(object) == &raw mut ffi::PyUnicode_Type }
}

/// The hash that a string has cached, or -1.
///
/// # Safety
///
/// `text` is a live `str`.
#[inline]
unsafe fn cached(text: Pointer) -> isize {
    // SAFETY: the caller's. Any thread may write the hash meanwhile, and each writes the same.
    unsafe {
        let hash = &raw mut (*text.cast::<ffi::PyASCIIObject>()).hash;
        AtomicIsize::from_ptr(hash).load(Ordering::Relaxed)
    }
}

/// The hash of a key; an exception is set if it has none.
///
/// # Safety
///
/// `key` is alive. Python code may run.
#[inline]
pub(crate) unsafe fn hash_of(key: Pointer) -> Result<isize, Raised> {
    // SAFETY: the caller's.
    unsafe {
        if is_text(key) {
            let hash = cached(key);
            if hash != -1 {
                return Ok(hash);
            }
        }
        match ffi::PyObject_Hash(key) {
            -1 => Err(Raised),
            hash => Ok(hash),
        }
    }
}

/// What the trie uses of a hash. The hash of an `int` is the number, and programs make numbers of two halves, equal
/// ones often; so each bit of the hash has a part in it. Source: Knuth, "The Art of Computer Programming", volume 3,
/// section 6.4: multiplication by the golden ratio.
#[inline]
pub(super) fn folded(hash: isize) -> u32 {
    let hash = hash as u64;
    ((hash ^ (hash >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32
}

/// Whether two keys are one: the same object, or equal ones, as for a `dict`.
///
/// # Safety
///
/// Live objects, which the caller keeps alive. Python code may run.
#[inline]
pub(crate) unsafe fn same_key(a: Pointer, b: Pointer) -> Result<bool, Raised> {
    // SAFETY: the caller's.
    unsafe {
        if a == b {
            return Ok(true);
        }
        if is_text(a) && is_text(b) {
            return Ok(same_text(a, b));
        }
        equal(a, b)
    }
}

/// Whether a key in a trie and another one are the same, given the folded hashes of both.
///
/// # Safety
///
/// As for [`same_key`]; `hash` is where the hash of the first key lies.
#[inline]
pub(super) unsafe fn same_hashed(
    a: Pointer,
    hash: *const u32,
    b: Pointer,
    wanted: u32,
) -> Result<bool, Raised> {
    // SAFETY: the caller's.
    unsafe {
        if a == b {
            return Ok(true);
        }
        // Strings know their hashes, and are read anyway: their node's hashes would be another line of memory to load.
        if is_text(a) && is_text(b) {
            return Ok(same_text(a, b));
        }
        if *hash != wanted { Ok(false) } else { equal(a, b) }
    }
}

/// Whether two strings have the same characters, which have one representation in memory.
///
/// # Safety
///
/// Live objects of exactly the type `str`.
#[inline]
unsafe fn same_text(a: Pointer, b: Pointer) -> bool {
    // SAFETY: the caller's; a string has as many characters of its kind as it says.
    unsafe {
        let (first, second) = (cached(a), cached(b));
        if first != second && first != -1 && second != -1 {
            return false;
        }
        let length = ffi::PyUnicode_GET_LENGTH(a);
        if length != ffi::PyUnicode_GET_LENGTH(b) {
            return false;
        }
        #[cfg(not(Py_3_12))]
        if ffi::PyUnicode_IS_READY(a) == 0 || ffi::PyUnicode_IS_READY(b) == 0 {
            return ffi::PyUnicode_Compare(a, b) == 0;
        }
        let kind = ffi::PyUnicode_KIND(a);
        if kind != ffi::PyUnicode_KIND(b) {
            return false;
        }
        let bytes = length as usize * kind as usize;
        let (a, b) = (ffi::PyUnicode_DATA(a).cast::<u8>(), ffi::PyUnicode_DATA(b).cast::<u8>());
        std::slice::from_raw_parts(a, bytes) == std::slice::from_raw_parts(b, bytes)
    }
}

/// Whether two different objects are equal.
///
/// # Safety
///
/// As for [`same_key`].
unsafe fn equal(a: Pointer, b: Pointer) -> Result<bool, Raised> {
    // SAFETY: the caller's. A comparison of two integers by their type's own slot returns a new reference to a truth
    // value, and cannot fail.
    unsafe {
        let kind = ffi::Py_TYPE(a);
        if kind == &raw mut ffi::PyLong_Type
            && kind == ffi::Py_TYPE(b)
            && let Some(compare) = (*kind).tp_richcompare
        {
            let answer = compare(a, b, ffi::Py_EQ);
            ffi::Py_DECREF(answer);
            return Ok(answer == ffi::Py_True());
        }
        match ffi::PyObject_RichCompareBool(a, b, ffi::Py_EQ) {
            -1 => Err(Raised),
            answer => Ok(answer != 0),
        }
    }
}
