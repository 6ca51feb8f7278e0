//! The methods of a stream's transport.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use pyo3_ffi as ffi;

use super::super::core::none;
use super::super::outgoing::{Data, frozen};
use super::super::transport::Behaviour;
use super::{bit, stream};
use ropewalk_capi::entry;
use ropewalk_capi::object::Object;

#[entry]
pub(super) unsafe extern "C" fn write(
    object: *mut ffi::PyObject,
    data: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a live transport and argument.
    let this = unsafe { stream(object) };
    let done = Data::of(data).and_then(|data| {
        this.check_writable("write")?;
        this.write(object, data)
    });
    if done.is_ok() { none() } else { null_mut() }
}

#[entry]
pub(super) unsafe extern "C" fn writelines(
    object: *mut ffi::PyObject,
    list: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a live transport and argument.
    unsafe {
        let this = stream(object);
        let written = this.check_writable("writelines").and_then(|()| {
            let items = Object::own(ffi::PySequence_List(list))?;
            let mut pieces = Vec::with_capacity(ffi::PyList_Size(items.as_ptr()).unsigned_abs());
            for at in 0..ffi::PyList_Size(items.as_ptr()) {
                let piece = frozen(ffi::PyList_GetItem(items.as_ptr(), at))?;
                if piece.as_bytes().is_some_and(|bytes| !bytes.is_empty()) {
                    pieces.push(piece);
                }
            }
            this.write_all(object, pieces)
        });
        if written.is_ok() { none() } else { null_mut() }
    }
}

#[entry]
pub(super) unsafe extern "C" fn write_eof(
    object: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a live transport.
    let this = unsafe { stream(object) };
    let done = this.check_thread().and_then(|()| {
        if this.has(bit::CLOSING | bit::EOF) {
            return Ok(());
        }
        this.set(bit::EOF);
        if this.is_empty() { this.shut_down() } else { this.send_gathered(object) }
    });
    if done.is_ok() { none() } else { null_mut() }
}

/// `_show_descriptor()`: the program uses the socket itself from here on, so that it sees when the transport sends.
#[entry]
pub(super) unsafe extern "C" fn show_descriptor(
    object: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a live transport.
    let this = unsafe { stream(object) };
    this.unset(bit::MAY_GATHER);
    let done = this
        .check_thread()
        .and_then(|()| if this.is_detached() { Ok(()) } else { this.send_gathered(object) });
    if done.is_ok() { none() } else { null_mut() }
}

macro_rules! field {
    ($get:ident, $set:ident, $field:ident, $bit:expr) => {
        #[entry]
        pub(super) unsafe extern "C" fn $get(
            object: *mut ffi::PyObject,
            _: *mut c_void,
        ) -> *mut ffi::PyObject {
            // SAFETY: a live transport.
            unsafe { stream(object) }.$field.share().unwrap_or_else(Object::none).into_ptr()
        }

        #[entry]
        pub(super) unsafe extern "C" fn $set(
            object: *mut ffi::PyObject,
            value: *mut ffi::PyObject,
            _: *mut c_void,
        ) -> c_int {
            // SAFETY: a live transport, and a live value or null.
            unsafe {
                let this = stream(object);
                drop(this.$field.take());
                if !value.is_null()
                    && value != ffi::Py_None()
                    && let Ok(value) = Object::share(value)
                {
                    this.$field.set(value);
                    this.set($bit);
                }
                0
            }
        }
    };
}

field!(get_server, set_server, server, bit::MAY_GATHER);
field!(get_emptied, set_emptied, emptied, 0);
