//! Socket objects: what they are, what transports set on them, and new ones for accepted connections.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::ptr::null_mut;

use pyo3_ffi as ffi;
use ropewalk_os::net::{self, Family, NON_BLOCKING};

use super::loop_module::LoopModule;
use super::number;
use ropewalk_capi::errors::raise_os;
use ropewalk_capi::object::{Object, Raised, text};

/// What a socket object was made with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub(super) family: c_int,
    kind: c_int,
    protocol: c_int,
}

unsafe fn member(descriptor: *mut ffi::PyObject, socket: *mut ffi::PyObject) -> Result<c_int, Raised> {
    // SAFETY: the caller's: a descriptor of the class in C, and a live object of that class.
    unsafe {
        let Some(get) = (*ffi::Py_TYPE(descriptor)).tp_descr_get else { return Err(Raised) };
        let value = Object::own(get(descriptor, socket, ffi::Py_TYPE(socket).cast()))?;
        let number = ffi::PyLong_AsLong(value.as_ptr());
        if number == -1 && !ffi::PyErr_Occurred().is_null() {
            return Err(Raised);
        }
        c_int::try_from(number).map_err(|_| Raised)
    }
}

/// The family of a socket, if addresses of that family are known here.
///
/// # Safety
///
/// A live instance of `socket.socket`.
pub(super) unsafe fn family(
    state: &LoopModule,
    socket: *mut ffi::PyObject,
) -> Result<Option<Family>, Raised> {
    // SAFETY: the caller's.
    unsafe { member(state.socket_family, socket) }.map(Family::of)
}

/// What a socket was made with.
///
/// # Safety
///
/// As of [`family`].
pub(super) unsafe fn kind(state: &LoopModule, socket: *mut ffi::PyObject) -> Result<Kind, Raised> {
    // SAFETY: the caller's.
    unsafe {
        Ok(Kind {
            family: member(state.socket_family, socket)?,
            kind: member(state.socket_kind, socket)?,
            protocol: member(state.socket_protocol, socket)?,
        })
    }
}

/// Switches Nagle's algorithm off if the socket speaks TCP, so that a small write does not wait for the acknowledgement
/// of earlier ones. Does nothing for an object that is no socket.
///
/// # Safety
///
/// A live object.
pub(super) unsafe fn send_without_delay(
    state: &LoopModule,
    socket: *mut ffi::PyObject,
) -> Result<(), Raised> {
    // SAFETY: the caller's.
    unsafe {
        if ffi::PyType_IsSubtype(ffi::Py_TYPE(socket), state.raw_socket.cast()) == 0 {
            return Ok(());
        }
        let kind = kind(state, socket)?;
        match number::of(state, socket) {
            Some(fd) if net::is_tcp(kind.family, kind.kind, kind.protocol) => {
                net::set_nodelay(BorrowedFd::borrow_raw(fd), true).map_err(|error| raise_os(&error))
            }
            _ => Ok(()),
        }
    }
}

/// Whether operations of a socket never wait.
///
/// # Safety
///
/// As of [`family`].
pub(super) unsafe fn is_non_blocking(state: &LoopModule, socket: *mut ffi::PyObject) -> Result<bool, Raised> {
    // SAFETY: the caller's.
    unsafe {
        let timeout = Object::own(ffi::PyObject_CallMethodNoArgs(socket, state.names.get_timeout))?;
        Ok(!timeout.is_none() && ffi::PyFloat_AsDouble(timeout.as_ptr()) == 0.0)
    }
}

/// Whether all that Python's class of sockets adds to a fresh object are the two attributes that [`make`] sets.
pub(super) fn are_attributes_known(class: &Object) -> Result<bool, Raised> {
    // SAFETY: live objects.
    unsafe {
        let slots = Object::own(ffi::PySequence_List(class.attribute(c"__slots__")?.as_ptr()))?;
        let expected = Object::own(ffi::PyList_New(0))?;
        for name in ["__weakref__", "_io_refs", "_closed"] {
            if ffi::PyList_Append(expected.as_ptr(), text(name)?.as_ptr()) != 0 {
                return Err(Raised);
            }
        }
        match ffi::PyObject_RichCompareBool(slots.as_ptr(), expected.as_ptr(), ffi::Py_EQ) {
            -1 => Err(Raised),
            equal => Ok(equal == 1),
        }
    }
}

/// A socket object for a connection that does not block, of the kind of its listener.
///
/// # Safety
///
/// The thread is attached, and holds no lock: making a socket calls the hooks of `sys.addaudithook`.
pub(super) unsafe fn make(state: &LoopModule, connection: OwnedFd, kind: Kind) -> Result<Object, Raised> {
    // SAFETY: fresh objects and a live class. The object owns the descriptor once it was made.
    unsafe {
        let number = |number: c_int| Object::own(ffi::PyLong_FromLong(number.into()));
        let family = number(kind.family)?;
        let type_ = number(kind.kind | NON_BLOCKING)?;
        let protocol = number(kind.protocol)?;
        let fd = number(connection.as_raw_fd())?;
        let (class, raw) =
            (state.socket_class.cast::<ffi::PyTypeObject>(), state.raw_socket.cast::<ffi::PyTypeObject>());
        let made = match ((*class).tp_new, (*raw).tp_init) {
            // As the class's initializer, without its Python frame.
            (Some(new), Some(initialize)) if state.socket_attributes_known => {
                let arguments = Object::own(ffi::PyTuple_Pack(
                    4,
                    family.as_ptr(),
                    type_.as_ptr(),
                    protocol.as_ptr(),
                    fd.as_ptr(),
                ))?;
                let made = Object::own(new(class, arguments.as_ptr(), null_mut()))?;
                let zero = number(0)?;
                if initialize(made.as_ptr(), arguments.as_ptr(), null_mut()) != 0 {
                    return Err(Raised);
                }
                let _ = connection.into_raw_fd();
                if ffi::PyObject_SetAttr(made.as_ptr(), state.names.io_refs, zero.as_ptr()) != 0
                    || ffi::PyObject_SetAttr(made.as_ptr(), state.names.closed, ffi::Py_False()) != 0
                {
                    return Err(Raised);
                }
                made
            }
            _ => {
                let arguments = [family.as_ptr(), type_.as_ptr(), protocol.as_ptr(), fd.as_ptr()];
                let made = Object::share(state.socket_class)?.call(&arguments)?;
                let _ = connection.into_raw_fd();
                made
            }
        };
        Ok(made)
    }
}
