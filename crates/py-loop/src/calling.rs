//! Calls of Python functions.

use std::ffi::c_int;
use std::ptr::null_mut;

use pyo3_ffi as ffi;

use ropewalk_capi::object::{Kept, Raised};

/// Up to this many arguments are copied to the stack, with a free place before them.
const FEW: usize = 6;

/// Calls with no arguments, one, or a tuple of them.
///
/// # Safety
///
/// Live objects.
pub(super) unsafe fn invoke(
    callback: *mut ffi::PyObject,
    args: *mut ffi::PyObject,
    one: bool,
) -> *mut ffi::PyObject {
    // A bound method may put its object into the place before the arguments.
    let mut places = [null_mut(); FEW + 1];
    // SAFETY: the caller's; as many arguments as said, behind a place that may be written.
    unsafe {
        let count = if args.is_null() {
            0
        } else if one {
            places[1] = args;
            1
        } else {
            let count = ffi::PyTuple_GET_SIZE(args) as usize;
            if count > FEW {
                return ffi::PyObject_Call(callback, args, null_mut());
            }
            for (at, place) in places.iter_mut().skip(1).take(count).enumerate() {
                *place = ffi::PyTuple_GET_ITEM(args, at as ffi::Py_ssize_t);
            }
            count
        };
        ffi::PyObject_Vectorcall(
            callback,
            places.as_ptr().add(1),
            count | ffi::PY_VECTORCALL_ARGUMENTS_OFFSET,
            null_mut(),
        )
    }
}

/// Whether the exception that is set ends the loop.
pub(super) fn is_ending() -> bool {
    // SAFETY: an exception is set; the classes are always there.
    unsafe {
        let matches = |class| -> c_int { ffi::PyErr_ExceptionMatches(class) };
        matches(ffi::PyExc_SystemExit) != 0 || matches(ffi::PyExc_KeyboardInterrupt) != 0
    }
}

/// Runs something in a context.
///
/// # Errors
///
/// Those of `act`, which are kept while the context is left; and if the context is entered already.
///
/// # Safety
///
/// A live context, which stays so meanwhile.
#[inline]
pub(super) unsafe fn within<T>(
    context: *mut ffi::PyObject,
    act: impl FnOnce() -> Result<T, Raised>,
) -> Result<T, Raised> {
    // SAFETY: the caller's; what `act` enters it leaves.
    unsafe {
        if ffi::PyContext_Enter(context) != 0 {
            return Err(Raised);
        }
        let result = act();
        let kept = if result.is_err() { Some(Kept::take()) } else { None };
        let left = ffi::PyContext_Exit(context);
        match kept {
            Some(kept) if left == 0 => kept.put_back(),
            Some(kept) => kept.discard(),
            None if left != 0 => return Err(Raised),
            None => {}
        }
        result
    }
}
