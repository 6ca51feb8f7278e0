//! The methods of a transport.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use pyo3_ffi as ffi;

use super::super::core::{none, raise_type};
use super::super::descriptors::Waiter;
use super::super::outgoing::frozen;
use super::{bit, stream};
use ropewalk_capi::entry;
use ropewalk_capi::errors::fail;
use ropewalk_capi::object::{Object, Raised};

#[entry]
pub(super) unsafe extern "C" fn write(
    object: *mut ffi::PyObject,
    data: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a live transport and argument.
    let this = unsafe { stream(object) };
    let done = frozen(data).and_then(|data| {
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
            for at in 0..ffi::PyList_Size(items.as_ptr()) {
                this.write(object, frozen(ffi::PyList_GetItem(items.as_ptr(), at))?)?;
            }
            Ok(())
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
        if this.is_empty() { this.shut_down() } else { this.flush(object) }
    });
    if done.is_ok() { none() } else { null_mut() }
}

#[entry]
pub(super) unsafe extern "C" fn close(
    object: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a live transport.
    let this = unsafe { stream(object) };
    if this.check_thread().and_then(|()| this.close(object)).is_ok() { none() } else { null_mut() }
}

/// `_force_close(exception)`: ends at once, without sending the rest.
#[entry]
pub(super) unsafe extern "C" fn force_close(
    object: *mut ffi::PyObject,
    error: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a live transport and argument.
    unsafe {
        let this = stream(object);
        let done = this.check_thread().and_then(|()| this.lose(object, &Object::share(error)?));
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
    let this = unsafe { stream(object) };
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
    let this = unsafe { stream(object) };
    if this.has(bit::CLOSING) || !this.has(bit::PAUSED) {
        return none();
    }
    this.unset(bit::PAUSED);
    let ready =
        this.check_thread().and_then(|()| if this.may_read() { this.enqueue(object) } else { Ok(()) });
    if ready.is_ok() { none() } else { null_mut() }
}

/// `_start_reading()`: registers the socket with the loop.
#[entry]
pub(super) unsafe extern "C" fn start_reading(
    object: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a live transport.
    unsafe {
        let this = stream(object);
        if this.has(bit::LOST | bit::STARTED) || this.owner.get().is_null() {
            return none();
        }
        let started = this.core().and_then(|core| {
            core.watch(this.fd.get(), Waiter::Stream, &Object::share(object)?)?;
            this.set(bit::STARTED);
            if this.is_empty() { Ok(()) } else { this.flush(object) }
        });
        if started.is_ok() { none() } else { null_mut() }
    }
}

#[entry]
pub(super) unsafe extern "C" fn buffer_size(
    object: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a live transport.
    unsafe { ffi::PyLong_FromSize_t(stream(object).size()) }
}

#[entry]
pub(super) unsafe extern "C" fn is_closing(
    object: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a live transport.
    unsafe { ffi::PyBool_FromLong(stream(object).has(bit::CLOSING).into()) }
}

#[entry]
pub(super) unsafe extern "C" fn is_reading(
    object: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a live transport.
    unsafe { ffi::PyBool_FromLong((!stream(object).has(bit::CLOSING | bit::PAUSED)).into()) }
}

#[entry]
pub(super) unsafe extern "C" fn get_protocol(
    object: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a live transport.
    unsafe { stream(object) }.protocol.share().unwrap_or_else(Object::none).into_ptr()
}

#[entry]
pub(super) unsafe extern "C" fn set_protocol(
    object: *mut ffi::PyObject,
    protocol: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: live objects.
    unsafe {
        let this = stream(object);
        let set = this.check_thread().and_then(|()| {
            let protocol = Object::share(protocol)?;
            // Also after the end: asyncio's sendfile restores the protocol that it found.
            let Some(state) = super::super::loop_module::MODULE.state_of_base(ffi::Py_TYPE(object)) else {
                return Err(fail(c"no module"));
            };
            let buffered = ffi::PyObject_IsInstance(protocol.as_ptr(), state.buffered_protocol);
            if buffered < 0 {
                return Err(Raised);
            }
            // A protocol need not have methods that are never called.
            let part = |name: &std::ffi::CStr| match protocol.attribute(name) {
                Ok(part) => Ok(part),
                Err(Raised) if ffi::PyErr_ExceptionMatches(ffi::PyExc_AttributeError) != 0 => {
                    ffi::PyErr_Clear();
                    Ok(Object::none())
                }
                Err(Raised) => Err(Raised),
            };
            this.unset(bit::STREAM_READER);
            if ffi::Py_TYPE(protocol.as_ptr()).cast() == state.reader_protocol {
                this.set(bit::STREAM_READER);
            }
            if buffered == 0 {
                this.unset(bit::BUFFERED);
                this.received.set(part(c"data_received")?);
                drop(this.get_buffer.take());
            } else {
                this.set(bit::BUFFERED);
                this.get_buffer.set(part(c"get_buffer")?);
                this.received.set(part(c"buffer_updated")?);
            }
            this.protocol.set(protocol);
            Ok(())
        });
        if set.is_ok() { none() } else { null_mut() }
    }
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
        let this = stream(object);
        this.high.set(high);
        this.low.set(low);
        if this.check_thread().and_then(|()| this.pause_if_full(object)).is_ok() {
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
        let this = stream(object);
        let low = Object::own(ffi::PyLong_FromSize_t(this.low.get()));
        let high = Object::own(ffi::PyLong_FromSize_t(this.high.get()));
        match (low, high) {
            (Ok(low), Ok(high)) => ffi::PyTuple_Pack(2, low.as_ptr(), high.as_ptr()),
            _ => null_mut(),
        }
    }
}

/// `_attach(loop, socket, protocol, server)`: called before any other method.
#[entry]
pub(super) unsafe extern "C" fn attach(
    object: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: a fresh transport, and what the interpreter passes: the caller is ours.
    unsafe {
        if count != 4 {
            raise_type("_attach() takes a loop, a socket, a protocol and a server");
            return null_mut();
        }
        let this = stream(object);
        let (owner, socket) = (*arguments, *arguments.add(1));
        let attached = || {
            let fd = ffi::PyObject_AsFileDescriptor(socket);
            if fd < 0 {
                return Err(Raised);
            }
            this.fd.set(fd);
            this.context.set(Object::own(ffi::PyContext_CopyCurrent())?);
            this.socket.set(Object::share(socket)?);
            this.owner.set(Object::share(owner)?);
            this.server.set(Object::share(*arguments.add(3))?);
            Ok(())
        };
        if attached().is_err() { null_mut() } else { set_protocol(object, *arguments.add(2)) }
    }
}

/// `_detach() -> server`: called after the end; releases everything but the descriptor's number.
#[entry]
pub(super) unsafe extern "C" fn detach(
    object: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a live transport.
    let this = unsafe { stream(object) };
    if let Ok(core) = this.core() {
        core.leave(this.fd.get(), Waiter::Stream, object);
    } else {
        // SAFETY: the thread is attached.
        unsafe { ffi::PyErr_Clear() };
    }
    this.set(bit::LOST | bit::CLOSING);
    let server = this.server.take().unwrap_or_else(Object::none);
    drop((
        this.received.take(),
        this.get_buffer.take(),
        this.protocol.take(),
        this.socket.take(),
        this.owner.take(),
    ));
    server.into_ptr()
}

macro_rules! field {
    ($get:ident, $field:ident) => {
        #[entry]
        pub(super) unsafe extern "C" fn $get(
            object: *mut ffi::PyObject,
            _: *mut c_void,
        ) -> *mut ffi::PyObject {
            // SAFETY: a live transport.
            unsafe { stream(object) }.$field.share().unwrap_or_else(Object::none).into_ptr()
        }
    };
}

field!(get_loop, owner);
field!(get_socket, socket);
field!(get_protocol_field, protocol);
field!(get_server, server);
field!(get_emptied, emptied);

#[entry]
pub(super) unsafe extern "C" fn set_emptied(
    object: *mut ffi::PyObject,
    value: *mut ffi::PyObject,
    _: *mut c_void,
) -> c_int {
    // SAFETY: a live transport, and a live value or null.
    unsafe {
        let this = stream(object);
        drop(this.emptied.take());
        if !value.is_null()
            && value != ffi::Py_None()
            && let Ok(value) = Object::share(value)
        {
            this.emptied.set(value);
        }
        0
    }
}

#[entry]
pub(super) unsafe extern "C" fn get_paused(object: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: a live transport.
    unsafe { ffi::PyBool_FromLong(stream(object).has(bit::PROTOCOL_PAUSED).into()) }
}

#[entry]
pub(super) unsafe extern "C" fn get_fd(object: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: a live transport.
    unsafe { ffi::PyLong_FromLong(stream(object).fd.get().into()) }
}
