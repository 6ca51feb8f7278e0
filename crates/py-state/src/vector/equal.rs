//! Equality and hashes of vectors.

use std::sync::atomic::Ordering;

use pyo3_ffi as ffi;
use ropewalk_capi::object::Raised;
use ropewalk_state::bits::WIDTH;

use super::cursor::Cursor;
use super::object;
use crate::equality::equal;
use crate::node::{Node, Pointer};

/// Whether two vectors have equal items.
///
/// # Safety
///
/// Live vectors, which the caller keeps alive. Python code may run.
pub(super) unsafe fn vectors(a: Pointer, b: Pointer) -> Result<bool, Raised> {
    // SAFETY: the caller's. Vectors of one length have tries of one shape.
    unsafe {
        let (vector, a, b) = (a, object::view(a), object::view(b));
        Ok(a.count == b.count && nodes(vector, a.root, b.root, a.shift)? && nodes(vector, a.tail, b.tail, 0)?)
    }
}

/// # Safety
///
/// Nodes at the same place of two vectors of one length, one of which is `vector`, which the caller keeps alive. Python
/// code may run.
unsafe fn nodes(vector: Pointer, a: *mut Node, b: *mut Node, shift: u32) -> Result<bool, Raised> {
    // SAFETY: the caller's, for the children too.
    unsafe {
        if a == b {
            return Ok(true);
        }
        for at in 0..(*a).children() {
            let (a, b) = (*Node::child(a, at), *Node::child(b, at));
            let is_equal = if shift > 0 {
                nodes(vector, a.cast(), b.cast(), shift - WIDTH)?
            } else {
                equal(vector, a, b)?
            };
            if !is_equal {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The hash of a vector.
///
/// # Safety
///
/// A live vector, which the caller keeps alive. Python code may run.
pub(super) unsafe fn hash(vector: Pointer) -> Result<isize, Raised> {
    // SAFETY: the caller's; every call that is entered is left. Without the guard a deep nest would overflow the stack.
    unsafe {
        let kept = object::kept_hash(vector);
        let known = kept.load(Ordering::Relaxed);
        if known != -1 {
            return Ok(known);
        }
        if ffi::Py_EnterRecursiveCall(c" while hashing a vector".as_ptr()) != 0 {
            return Err(Raised);
        }
        let hash = chained(vector);
        ffi::Py_LeaveRecursiveCall();
        // No hash is -1, by the interpreter's rule.
        let hash = Some(hash? as isize).filter(|&hash| hash != -1).unwrap_or(-2);
        kept.store(hash, Ordering::Relaxed);
        Ok(hash)
    }
}

/// The hashes of the items in their order. Source: the rounds of xxHash, as CPython's tuples use them.
///
/// # Safety
///
/// As for [`hash`].
unsafe fn chained(vector: Pointer) -> Result<u64, Raised> {
    const PRIMES: [u64; 3] = [0x9E37_79B1_85EB_CA87, 0xC2B2_AE3D_27D4_EB4F, 0x27D4_EB2F_1656_67C5];
    let mut sum = PRIMES[2];
    // SAFETY: the caller's.
    unsafe {
        let mut cursor = Cursor::new(vector);
        let count = cursor.left() as u64;
        while let Some(item) = cursor.next() {
            let hash = ffi::PyObject_Hash(item);
            if hash == -1 {
                return Err(Raised);
            }
            sum = sum.wrapping_add((hash as u64).wrapping_mul(PRIMES[1]));
            sum = sum.rotate_left(31).wrapping_mul(PRIMES[0]);
        }
        Ok(sum.wrapping_add(count ^ PRIMES[2]))
    }
}
