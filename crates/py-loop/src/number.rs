//! The descriptor's number that a file object has now.
//!
//! A program may close a socket on which a transport or an operation waits. The next file that the process opens gets
//! the number. So whatever keeps a number asks the file object for it before it uses the number. Of a socket the number
//! is read where the object keeps it: a call of `fileno` in every read and write would cost more than the rest of the
//! code around the system call.

use std::io;
use std::mem::offset_of;
use std::os::fd::RawFd;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, Ordering};

use pyo3_ffi as ffi;

use super::loop_module::LoopModule;
use ropewalk_capi::object::{Object, Raised};

/// How an object of `_socket.socket` begins.
#[repr(C)]
struct Socket {
    head: ffi::PyObject,
    /// -1 once the socket is closed or detached. On a free-threaded build other threads may write it.
    number: AtomicI32,
    family: AtomicI32,
}

/// `EBADF`.
const BAD_DESCRIPTOR: i32 = 9;

/// The error of an operation whose file has lost its number.
pub(super) fn lost() -> io::Error {
    io::Error::from_raw_os_error(BAD_DESCRIPTOR)
}

/// Whether sockets of this interpreter begin as [`Socket`] does: tried with one that was never opened.
pub(super) fn is_place_known(class: *mut ffi::PyObject) -> Result<bool, Raised> {
    // SAFETY: a live class whose objects are larger than `Socket`; an unopened one holds -1, and zeros from the
    // allocator where it was not initialized.
    unsafe {
        let kind = class.cast::<ffi::PyTypeObject>();
        let size = usize::try_from((*kind).tp_basicsize).unwrap_or(0);
        let Some(new) = (*kind).tp_new else { return Ok(false) };
        if size < size_of::<Socket>() || offset_of!(Socket, number) != size_of::<ffi::PyObject>() {
            return Ok(false);
        }
        let nothing = Object::own(ffi::PyTuple_New(0))?;
        let unopened = Object::own(new(kind, nothing.as_ptr(), null_mut()))?;
        let place = &*unopened.as_ptr().cast::<Socket>();
        Ok(place.number.load(Ordering::Relaxed) == -1 && place.family.load(Ordering::Relaxed) == 0)
    }
}

/// The number of a file object; none if the object is closed or detached.
///
/// # Safety
///
/// A live object. The thread is attached, and holds no lock: an object that is no socket has a method that is called.
#[inline]
pub(super) unsafe fn of(state: &LoopModule, file: *mut ffi::PyObject) -> Option<RawFd> {
    // SAFETY: the caller's; a socket begins as `Socket` does, as `is_place_known` has found.
    let number = unsafe {
        let kind = ffi::Py_TYPE(file);
        if state.socket_place_known
            && (kind.cast() == state.socket_class
                || ffi::PyType_IsSubtype(kind, state.raw_socket.cast()) != 0)
        {
            (*file.cast::<Socket>()).number.load(Ordering::Relaxed)
        } else {
            let number = ffi::PyObject_AsFileDescriptor(file);
            if number < 0 {
                ffi::PyErr_Clear();
            }
            number
        }
    };
    (number >= 0).then_some(number)
}
