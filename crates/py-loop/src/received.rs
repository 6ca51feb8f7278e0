//! `bytes` objects of what a system call receives.

use std::io;
use std::mem::MaybeUninit;

use pyo3_ffi as ffi;

use ropewalk_capi::object::{Object, Raised};

/// Up to this many bytes are received into the stack, and copied into an object of the right size.
const SMALL: usize = 64 * 1024;

/// A `bytes` object of what is received, with what else the call returns. `receive` gets memory of `most` bytes, and
/// says how much of it was written.
pub(super) fn bytes_of<T>(
    most: usize,
    receive: impl FnOnce(*mut u8) -> io::Result<(usize, T)>,
) -> Result<Result<(Object, usize, T), io::Error>, Raised> {
    if most <= SMALL {
        let mut buffer = [const { MaybeUninit::<u8>::uninit() }; SMALL];
        let start = buffer.as_mut_ptr().cast::<u8>();
        return match receive(start) {
            // SAFETY: the kernel has written so many.
            Ok((got, more)) => Object::bytes(unsafe { std::slice::from_raw_parts(start, got) })
                .map(|data| Ok((data, got, more))),
            Err(error) => Ok(Err(error)),
        };
    }
    new_bytes(most, receive)
}

/// The same, received into the object itself.
pub(super) fn new_bytes<T>(
    most: usize,
    receive: impl FnOnce(*mut u8) -> io::Result<(usize, T)>,
) -> Result<Result<(Object, usize, T), io::Error>, Raised> {
    // SAFETY: a new `bytes` object of that size, which no other code sees, cut to the received bytes.
    unsafe {
        let size = ffi::Py_ssize_t::try_from(most).unwrap_or(ffi::Py_ssize_t::MAX);
        let mut made = ffi::PyBytes_FromStringAndSize(std::ptr::null(), size);
        if made.is_null() {
            return Err(Raised);
        }
        match receive(ffi::PyBytes_AsString(made).cast()) {
            Ok((got, more)) => {
                ffi::_PyBytes_Resize(&raw mut made, got as ffi::Py_ssize_t);
                Object::own(made).map(|data| Ok((data, got, more)))
            }
            Err(error) => {
                ffi::Py_DECREF(made);
                Ok(Err(error))
            }
        }
    }
}
