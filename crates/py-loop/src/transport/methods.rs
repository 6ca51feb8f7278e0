//! The methods that all transports have.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use pyo3_ffi as ffi;

use super::super::core::{none, raise_type};
use super::{behaviour, bit, transport};
use ropewalk_capi::entry;
use ropewalk_capi::errors::fail;
use ropewalk_capi::object::{Object, Raised};

/// `_start_reading()`: registers the file with the loop. The kernel reports at once whether there is room for what
/// waits.
#[entry]
pub(super) unsafe extern "C" fn start_reading(
    object: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a live transport.
    unsafe {
        let this = transport(object);
        if this.watch(object).is_ok() { none() } else { null_mut() }
    }
}

#[entry]
pub(super) unsafe extern "C" fn set_protocol(
    object: *mut ffi::PyObject,
    protocol: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: live objects.
    unsafe {
        let this = transport(object);
        let set = this
            .check_thread()
            .and_then(|()| Object::share(protocol))
            .and_then(|protocol| this.adopt(object, protocol));
        if set.is_ok() { none() } else { null_mut() }
    }
}

#[entry]
pub(super) unsafe extern "C" fn buffer_size(
    object: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a live transport.
    unsafe { ffi::PyLong_FromSize_t(behaviour(object).size()) }
}

#[entry]
pub(super) unsafe extern "C" fn close(
    object: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a live transport.
    let this = unsafe { transport(object) };
    if this.check_thread().and_then(|()| this.close(object)).is_ok() { none() } else { null_mut() }
}

/// `_force_close(exception)`: ends at once, without waiting for room for the rest.
#[entry]
pub(super) unsafe extern "C" fn force_close(
    object: *mut ffi::PyObject,
    error: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a live transport and argument.
    unsafe {
        let this = transport(object);
        let done = this.check_thread().and_then(|()| {
            this.send_gathered(object)?;
            this.lose(object, &Object::share(error)?)
        });
        if done.is_ok() { none() } else { null_mut() }
    }
}

#[entry]
pub(super) unsafe extern "C" fn abort(
    object: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a live transport.
    unsafe { force_close(object, ffi::Py_None()) }
}

#[entry]
pub(super) unsafe extern "C" fn pause_reading(
    object: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a live transport.
    let this = unsafe { transport(object) };
    if !this.has(bit::CLOSING) {
        this.set(bit::PAUSED);
    }
    none()
}

#[entry]
pub(super) unsafe extern "C" fn resume_reading(
    object: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a live transport.
    if unsafe { transport(object) }.resume_reading(object).is_ok() { none() } else { null_mut() }
}

#[entry]
pub(super) unsafe extern "C" fn is_closing(
    object: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a live transport.
    unsafe { ffi::PyBool_FromLong(transport(object).has(bit::CLOSING).into()) }
}

#[entry]
pub(super) unsafe extern "C" fn is_reading(
    object: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a live transport.
    unsafe { ffi::PyBool_FromLong((!transport(object).has(bit::CLOSING | bit::PAUSED)).into()) }
}

#[entry]
pub(super) unsafe extern "C" fn get_protocol(
    object: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a live transport.
    unsafe { transport(object) }.protocol.share().unwrap_or_else(Object::none).into_ptr()
}

/// `_set_limits(high, low)`, in bytes.
#[entry]
pub(super) unsafe extern "C" fn set_limits(
    object: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: a live transport, and what the interpreter passes.
    unsafe {
        if count != 2 {
            raise_type("_set_limits() takes two sizes");
            return null_mut();
        }
        let (high, low) = (ffi::PyLong_AsSize_t(*arguments), ffi::PyLong_AsSize_t(*arguments.add(1)));
        if !ffi::PyErr_Occurred().is_null() {
            return null_mut();
        }
        let this = transport(object);
        this.high.set(high);
        this.low.set(low);
        if this.check_thread().and_then(|()| this.pause_if_full(object, behaviour(object).size())).is_ok() {
            none()
        } else {
            null_mut()
        }
    }
}

#[entry]
pub(super) unsafe extern "C" fn limits(
    object: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a live transport, and fresh objects.
    unsafe {
        let this = transport(object);
        let low = Object::own(ffi::PyLong_FromSize_t(this.low.get()));
        let high = Object::own(ffi::PyLong_FromSize_t(this.high.get()));
        match (low, high) {
            (Ok(low), Ok(high)) => ffi::PyTuple_Pack(2, low.as_ptr(), high.as_ptr()),
            _ => null_mut(),
        }
    }
}

macro_rules! field {
    ($get:ident, $field:ident) => {
        #[entry]
        pub(super) unsafe extern "C" fn $get(
            object: *mut ffi::PyObject,
            _: *mut c_void,
        ) -> *mut ffi::PyObject {
            // SAFETY: a live transport.
            unsafe { transport(object) }.$field.share().unwrap_or_else(Object::none).into_ptr()
        }
    };
}

field!(get_loop, owner);
field!(get_protocol_field, protocol);

#[entry]
pub(super) unsafe extern "C" fn get_socket(object: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: a live transport.
    unsafe {
        let this = transport(object);
        if this.has(bit::BARE) && behaviour(object).make_file(object).is_err() {
            return null_mut();
        }
        this.socket.share().unwrap_or_else(Object::none).into_ptr()
    }
}

/// Programs put an object of theirs in the place of the socket, as they do with asyncio's transports. The transport
/// asks it for its number, and closes it.
#[entry]
pub(super) unsafe extern "C" fn set_socket(
    object: *mut ffi::PyObject,
    value: *mut ffi::PyObject,
    _: *mut c_void,
) -> c_int {
    // SAFETY: a live transport, and a live value or null.
    match unsafe { Object::share(value) } {
        Ok(value) => {
            // SAFETY: as above.
            let this = unsafe { transport(object) };
            // SAFETY: as above.
            if this.has(bit::BARE) && unsafe { behaviour(object) }.make_file(object).is_err() {
                return -1;
            }
            this.socket.set(value);
            0
        }
        Err(Raised) => {
            fail(c"the socket of a transport cannot be deleted");
            -1
        }
    }
}

#[entry]
pub(super) unsafe extern "C" fn get_paused(object: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: a live transport.
    unsafe { ffi::PyBool_FromLong(transport(object).has(bit::PROTOCOL_PAUSED).into()) }
}

#[entry]
pub(super) unsafe extern "C" fn get_fd(object: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: a live transport.
    unsafe { ffi::PyLong_FromLong(transport(object).fd.get().into()) }
}
