//! Values without parts: constants, and most numbers.

use pyo3_ffi as ffi;

use crate::node::Pointer;

/// The word that JSON has for a constant.
///
/// # Safety
///
/// The interpreter is initialised.
#[inline]
pub(super) unsafe fn word(value: Pointer) -> Option<&'static [u8]> {
    // SAFETY: the addresses of immortal objects.
    unsafe {
        if value == ffi::Py_None() {
            Some(b"null")
        } else if value == ffi::Py_True() {
            Some(b"true")
        } else if value == ffi::Py_False() {
            Some(b"false")
        } else {
            None
        }
    }
}

/// The number of an `int` that has at most one digit of 30 bits, as most have.
///
/// # Safety
///
/// A live `int`.
#[inline]
pub(super) unsafe fn digit(number: Pointer) -> Option<i64> {
    /// An `int` of the interpreter's, up to its first digit.
    #[repr(C)]
    struct Long {
        head: ffi::PyObject,
        /// The number of digits, with the sign of the number; since 3.12 shifted by 3 bits, with one less than the sign
        /// reversed in the lowest two.
        size: isize,
        digit: u32,
    }
    if cfg!(any(Py_3_15, Py_LIMITED_API)) {
        return None;
    }
    // SAFETY: the caller's; these versions have it so, and there is room for a digit, also in 0.
    unsafe {
        let long = number.cast::<Long>();
        let (size, digit) = ((*long).size, i64::from((*long).digit));
        if cfg!(Py_3_12) {
            (size < 16).then(|| (1 - (size as i64 & 3)) * digit)
        } else {
            (size.unsigned_abs() < 2).then(|| size as i64 * digit)
        }
    }
}
