//! Socket objects: what they are, what transports set on them, and new ones for accepted connections.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::ptr::null_mut;

use pyo3_ffi as ffi;
use ropewalk_os::net::{self, Family, NON_BLOCKING};

use super::compat::PySys_Audit;
use super::loop_module::LoopModule;
use super::number;
use ropewalk_capi::entry;
use ropewalk_capi::errors::raise_os;
use ropewalk_capi::object::{Object, Raised, text};

/// What a socket object was made with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub(super) family: c_int,
    kind: c_int,
    protocol: c_int,
}

impl Kind {
    pub(super) fn is_tcp(self) -> bool {
        net::is_tcp(self.family, self.kind, self.protocol)
    }

    pub(super) fn is_unix(self) -> bool {
        Family::of(self.family) == Some(Family::Unix)
    }

    /// Whether it is a connection of bytes, without messages.
    pub(super) fn is_stream(self) -> bool {
        net::is_stream(self.kind)
    }
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
/// Returns whether the socket speaks TCP, if that is certain: the kernel has taken the option, or the object was made
/// for a Unix socket.
///
/// # Safety
///
/// A live object.
pub(super) unsafe fn send_without_delay(
    state: &LoopModule,
    socket: *mut ffi::PyObject,
) -> Result<Option<bool>, Raised> {
    // SAFETY: the caller's.
    unsafe {
        if ffi::PyType_IsSubtype(ffi::Py_TYPE(socket), state.raw_socket.cast()) == 0 {
            return Ok(None);
        }
        let kind = kind(state, socket)?;
        match number::of(state, socket) {
            Some(fd) if kind.is_tcp() => match net::set_nodelay(BorrowedFd::borrow_raw(fd), true) {
                Ok(()) => Ok(Some(true)),
                Err(error) => Err(raise_os(&error)),
            },
            _ if kind.is_unix() => Ok(Some(false)),
            _ => Ok(None),
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

/// Whether the class of sockets closes as it did when the module was made: a program may have patched its methods.
pub(super) fn closes_plainly(state: &LoopModule) -> Result<bool, Raised> {
    // SAFETY: a live class and names.
    unsafe {
        let class = state.socket_class;
        let close = Object::own(ffi::PyObject_GetAttr(class, state.names.close))?;
        let real_close = Object::own(ffi::PyObject_GetAttr(class, state.names.real_close))?;
        Ok(close.as_ptr() == state.socket_close && real_close.as_ptr() == state.socket_real_close)
    }
}

/// Closes a file object; a plain socket as its class does, without its Python frames.
///
/// # Safety
///
/// A live object. The thread is attached, and holds no lock.
pub(super) unsafe fn close(state: &LoopModule, file: *mut ffi::PyObject) -> Result<(), Raised> {
    let names = &state.names;
    // SAFETY: the caller's; live objects.
    unsafe {
        if ffi::Py_TYPE(file).cast() == state.socket_class
            && state.socket_attributes_known
            && closes_plainly(state)?
        {
            if ffi::PyObject_SetAttr(file, names.closed, ffi::Py_True()) != 0 {
                return Err(Raised);
            }
            let files = Object::own(ffi::PyObject_GetAttr(file, names.io_refs))?;
            let files = ffi::PyLong_AsLong(files.as_ptr());
            if files == -1 && !ffi::PyErr_Occurred().is_null() {
                return Err(Raised);
            }
            if files > 0 {
                return Ok(());
            }
            let arguments = [file];
            let done = ffi::PyObject_Vectorcall(state.raw_close, arguments.as_ptr(), 1, null_mut());
            return Object::own(done).map(drop);
        }
        Object::own(ffi::PyObject_CallMethodNoArgs(file, names.close)).map(drop)
    }
}

/// A socket object for a connection that does not block, of the kind of its listener.
///
/// # Safety
///
/// As of [`make_of`].
pub(super) unsafe fn make(state: &LoopModule, connection: OwnedFd, kind: Kind) -> Result<Object, Raised> {
    let number = connection.as_raw_fd();
    let give = || {
        let _ = connection.into_raw_fd();
        true
    };
    // SAFETY: the caller's.
    unsafe { make_of(state, number, kind, give) }
}

/// A socket object of a number. `give` is called when the object is there, and gives the descriptor up to it; if it
/// returns false, the object is a closed one. What is called meanwhile may have closed the descriptor.
///
/// # Safety
///
/// The thread is attached, and holds no lock: making a socket calls the hooks of `sys.addaudithook`.
pub(super) unsafe fn make_of(
    state: &LoopModule,
    raw: RawFd,
    kind: Kind,
    give: impl FnOnce() -> bool,
) -> Result<Object, Raised> {
    // SAFETY: fresh objects and a live class. The object owns the descriptor once that was given up.
    unsafe {
        let number = |number: c_int| Object::own(ffi::PyLong_FromLong(number.into()));
        let family = number(kind.family)?;
        let type_ = number(kind.kind | NON_BLOCKING)?;
        let protocol = number(kind.protocol)?;
        let fd = number(raw)?;
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
                let given = give_to(state, &made, give)?;
                let closed = if given { ffi::Py_False() } else { ffi::Py_True() };
                if ffi::PyObject_SetAttr(made.as_ptr(), state.names.io_refs, zero.as_ptr()) != 0
                    || ffi::PyObject_SetAttr(made.as_ptr(), state.names.closed, closed) != 0
                {
                    return Err(Raised);
                }
                made
            }
            _ => {
                let arguments = [family.as_ptr(), type_.as_ptr(), protocol.as_ptr(), fd.as_ptr()];
                let made = Object::share(state.socket_class)?.call(&arguments)?;
                if !give_to(state, &made, give)? {
                    Object::own(ffi::PyObject_CallMethodNoArgs(made.as_ptr(), state.names.close))?;
                }
                made
            }
        };
        Ok(made)
    }
}

/// Gives a descriptor up to the object, or takes the number from the object.
///
/// # Safety
///
/// A live socket; the thread is attached.
unsafe fn give_to(state: &LoopModule, socket: &Object, give: impl FnOnce() -> bool) -> Result<bool, Raised> {
    let given = give();
    if !given {
        // SAFETY: a live class. Its method in C runs no other code.
        unsafe { Object::share(state.raw_socket)? }.attribute(c"detach")?.call(&[socket.as_ptr()])?;
    }
    Ok(given)
}

/// Keeps a closed socket object of this kind, for connections whose object is asked for after their end: there may be
/// no descriptor to make one with then. `fd` is the number of a socket, which stays open.
///
/// # Safety
///
/// As of [`make_of`].
pub(super) unsafe fn keep_closed(state: &LoopModule, fd: RawFd, kind: Kind) -> Result<(), Raised> {
    // SAFETY: live objects.
    unsafe {
        let key = key(kind)?;
        match ffi::PyDict_Contains(state.closed_sockets, key.as_ptr()) {
            0 => {}
            1 => return Ok(()),
            _ => return Err(Raised),
        }
        let made = make_of(state, fd, kind, || false)?;
        match ffi::PyDict_SetItem(state.closed_sockets, key.as_ptr(), made.as_ptr()) {
            0 => Ok(()),
            _ => Err(Raised),
        }
    }
}

/// The closed socket object of a kind for which [`keep_closed`] was called. It is shared, because nothing of a closed
/// socket differs from another one.
///
/// # Safety
///
/// The thread is attached.
pub(super) unsafe fn closed(state: &LoopModule, kind: Kind) -> Result<Object, Raised> {
    // SAFETY: live objects.
    unsafe { Object::own(ffi::PyObject_GetItem(state.closed_sockets, key(kind)?.as_ptr())) }
}

fn key(kind: Kind) -> Result<Object, Raised> {
    let key = (i64::from(kind.family) << 40) | (i64::from(kind.kind) << 20) | i64::from(kind.protocol);
    // SAFETY: the thread is attached.
    unsafe { Object::own(ffi::PyLong_FromLongLong(key)) }
}

/// Whether the program has hooks of `sys.addaudithook`, which hear of every socket object.
pub(super) fn is_audited() -> Result<bool, Raised> {
    /// Called for the argument of an event, which is made if there is a hook.
    #[entry]
    unsafe extern "C" fn note(audited: *mut c_void) -> *mut ffi::PyObject {
        // SAFETY: the address of a live `bool`; `None` is immortal.
        unsafe {
            *audited.cast::<bool>() = true;
            ffi::Py_NewRef(ffi::Py_None())
        }
    }
    let mut audited = false;
    // SAFETY: C strings, and what the format says: a function, and what it is called with.
    let told = unsafe {
        PySys_Audit(
            c"ropewalk.loop.accept".as_ptr(),
            c"O&".as_ptr(),
            note as unsafe extern "C" fn(*mut c_void) -> *mut ffi::PyObject,
            (&raw mut audited).cast::<c_void>(),
        )
    };
    if told < 0 { Err(Raised) } else { Ok(audited) }
}
