//! The opening of a socket's transport, and what is undone at its end: its place among the transports of the loop and
//! of its server.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::ptr::null_mut;

use pyo3_ffi as ffi;
use ropewalk_os::net::{self, Address};

use super::super::core::{LoopCore, none, raise_type};
use super::super::loop_module::{LoopModule, MODULE};
use super::super::sockets::{self, Kind};
use super::super::{address, number, transport};
use super::{Stream, bit, stream};
use ropewalk_capi::entry;
use ropewalk_capi::errors::{fail, raise_os};
use ropewalk_capi::heap::{fast_method, keyword_method};
use ropewalk_capi::object::{Object, Raised};

/// What a transport is made of, in the order of `_make_socket_transport`.
#[repr(C)]
struct Parts {
    socket: *mut ffi::PyObject,
    protocol: *mut ffi::PyObject,
    waiter: *mut ffi::PyObject,
    extra: *mut ffi::PyObject,
    server: *mut ffi::PyObject,
}

const COUNT: usize = size_of::<Parts>() / size_of::<*mut ffi::PyObject>();

impl Parts {
    /// Reads the arguments of a call: three by their places or names, the others by their names.
    unsafe fn read(
        arguments: *const *mut ffi::PyObject,
        count: usize,
        names: *mut ffi::PyObject,
    ) -> Result<Self, Raised> {
        // SAFETY: what the interpreter passes: `count` arguments, then those of the names.
        unsafe {
            let mut found = [null_mut(); COUNT];
            if count > 3 {
                return Err(raise_type("_make_socket_transport() takes a socket, a protocol and a waiter"));
            }
            std::ptr::copy_nonoverlapping(arguments, found.as_mut_ptr(), count);
            let named = if names.is_null() { 0 } else { ffi::PyTuple_GET_SIZE(names) };
            let known = [c"sock", c"protocol", c"waiter", c"extra", c"server"];
            for at in 0..named {
                let given = ffi::PyTuple_GET_ITEM(names, at);
                let place = known
                    .iter()
                    .position(|name| ffi::PyUnicode_CompareWithASCIIString(given, name.as_ptr()) == 0);
                match place {
                    Some(place) if found[place].is_null() => {
                        found[place] = *arguments.add(count).offset(at);
                    }
                    _ => return Err(raise_type("_make_socket_transport() got an unexpected argument")),
                }
            }
            if found[0].is_null() || found[1].is_null() {
                return Err(raise_type("_make_socket_transport() needs a socket and a protocol"));
            }
            let [socket, protocol, waiter, extra, server] =
                found.map(|part| if part.is_null() { ffi::Py_None() } else { part });
            Ok(Self { socket, protocol, waiter, extra, server })
        }
    }
}

/// The transports of the loop, by their numbers.
unsafe fn known(state: &LoopModule, owner: *mut ffi::PyObject) -> Result<Object, Raised> {
    // SAFETY: the caller's: a live loop.
    unsafe {
        let transports = Object::own(ffi::PyObject_GetAttr(owner, state.names.transports))?;
        Object::own(ffi::PyObject_GetAttr(transports.as_ptr(), state.names.known))
    }
}

fn number_object(fd: i32) -> Result<Object, Raised> {
    // SAFETY: the thread is attached.
    unsafe { Object::own(ffi::PyLong_FromLong(fd.into())) }
}

/// Notes an address of a socket that is not noted yet; `None` if the kernel knows none.
///
/// # Safety
///
/// Live objects, of which `extra` is a dictionary.
unsafe fn note(
    state: &LoopModule,
    socket: *mut ffi::PyObject,
    extra: &Object,
    name: *mut ffi::PyObject,
    ask: fn(BorrowedFd<'_>) -> io::Result<Address>,
    method: *mut ffi::PyObject,
) -> Result<(), Raised> {
    // SAFETY: the caller's; the number is the socket's at this moment.
    unsafe {
        match ffi::PyDict_Contains(extra.as_ptr(), name) {
            0 => {}
            1 => return Ok(()),
            _ => return Err(Raised),
        }
        let is_known =
            ffi::Py_TYPE(socket).cast() == state.socket_class && sockets::family(state, socket)?.is_some();
        let found = match number::of(state, socket) {
            Some(fd) if is_known => match ask(BorrowedFd::borrow_raw(fd)) {
                Ok(found) => address::to_object(Some(&found))?,
                Err(_) => Object::none(),
            },
            _ => match Object::own(ffi::PyObject_CallMethodNoArgs(socket, method)) {
                Ok(found) => found,
                Err(Raised) if ffi::PyErr_ExceptionMatches(ffi::PyExc_OSError) != 0 => {
                    ffi::PyErr_Clear();
                    Object::none()
                }
                Err(Raised) => return Err(Raised),
            },
        };
        if ffi::PyDict_SetItem(extra.as_ptr(), name, found.as_ptr()) != 0 {
            return Err(Raised);
        }
    }
    Ok(())
}

/// Gives the protocol of asyncio's streams a reader that is fed without calls.
unsafe fn speed_up(state: &LoopModule, protocol: *mut ffi::PyObject) -> Result<(), Raised> {
    // SAFETY: the caller's: a live object.
    unsafe {
        if ffi::Py_TYPE(protocol).cast() != state.reader_protocol || state.fast_reader.is_null() {
            return Ok(());
        }
        let reader = Object::own(ffi::PyObject_GetAttr(protocol, state.names.own_reader))?;
        if ffi::Py_TYPE(reader.as_ptr()).cast() == state.reader_class
            && ffi::PyObject_SetAttr(reader.as_ptr(), state.names.class, state.fast_reader) != 0
        {
            return Err(Raised);
        }
    }
    Ok(())
}

/// Tells a server of a connection that begins or ends.
unsafe fn tell_server(
    state: &LoopModule,
    server: *mut ffi::PyObject,
    name: *mut ffi::PyObject,
    object: *mut ffi::PyObject,
) -> Result<(), Raised> {
    let arguments = [server, object];
    let count = if state.servers_know_transports { 2 } else { 1 };
    // SAFETY: the caller's: live objects.
    unsafe { Object::own(ffi::PyObject_VectorcallMethod(name, arguments.as_ptr(), count, null_mut())) }
        .map(drop)
}

/// A fresh transport without content.
unsafe fn allocate(state: &LoopModule) -> Result<Object, Raised> {
    // SAFETY: the caller's: the class is one of ours, if it is known.
    unsafe {
        let class = state.transport_class.cast::<ffi::PyTypeObject>();
        let Some(new) = class.as_ref().and_then(|class| class.tp_new) else {
            return Err(fail(c"the class of transports is not known"));
        };
        let nothing = Object::own(ffi::PyTuple_New(0))?;
        Object::own(new(class, nothing.as_ptr(), null_mut()))
    }
}

/// Makes the transport of a socket, which calls its protocol in the next turn.
unsafe fn open(owner: *mut ffi::PyObject, parts: &Parts) -> Result<Object, Raised> {
    // SAFETY: the caller's: a live loop and live objects.
    unsafe {
        let state = &*LoopCore::of(owner).module;
        let names = &state.names;
        let made = allocate(state)?;
        let (object, this) = (made.as_ptr(), stream(made.as_ptr()));
        let extra = if parts.extra == ffi::Py_None() {
            Object::own(ffi::PyDict_New())?
        } else {
            Object::share(parts.extra)?
        };
        if ffi::PyDict_SetItem(extra.as_ptr(), names.socket, parts.socket) != 0 {
            return Err(Raised);
        }
        // Now, because the kernel forgets the peer of a connection that was reset. Accepted ones bring their peer.
        note(state, parts.socket, &extra, names.sockname, net::local_address, names.get_own_name)?;
        note(state, parts.socket, &extra, names.peername, net::peer_address, names.get_peer_name)?;
        transport::set_extra(object, extra);
        this.attach(object, owner, parts.socket, parts.protocol)?;
        match sockets::send_without_delay(state, parts.socket)? {
            Some(true) => this.set(bit::KIND_KNOWN),
            Some(false) => this.set(bit::KIND_KNOWN | bit::NOT_TCP),
            None => {}
        }
        start(owner, &made, parts.protocol, parts.server, parts.waiter)?;
        Ok(made)
    }
}

/// Makes the transport of a connection that a server has accepted, for which there is no socket object.
///
/// # Safety
///
/// A live loop and live objects. The number of the connection belongs to no other transport of the loop.
pub(in super::super) unsafe fn open_accepted(
    owner: *mut ffi::PyObject,
    accepted: net::Accepted,
    kind: Kind,
    protocol: *mut ffi::PyObject,
    server: *mut ffi::PyObject,
) -> Result<Object, Raised> {
    // SAFETY: the caller's.
    unsafe {
        let state = &*LoopCore::of(owner).module;
        let made = allocate(state)?;
        let (object, this) = (made.as_ptr(), stream(made.as_ptr()));
        let connection = accepted.connection;
        let fd = connection.as_raw_fd();
        sockets::keep_closed(state, fd, kind)?;
        if kind.is_tcp() {
            net::set_nodelay(connection.as_fd(), true).map_err(|error| raise_os(&error))?;
            this.set(bit::KIND_KNOWN);
        } else if kind.is_unix() {
            this.set(bit::KIND_KNOWN | bit::NOT_TCP);
        }
        this.own_connection(connection, kind, accepted.peer);
        this.attach_to(object, owner, fd, protocol)?;
        start(owner, &made, protocol, server, ffi::Py_None())?;
        Ok(made)
    }
}

/// Whether a transport of the loop has this number, which may be out of date.
///
/// # Safety
///
/// A live loop.
pub(in super::super) unsafe fn is_known(owner: *mut ffi::PyObject, fd: RawFd) -> Result<bool, Raised> {
    // SAFETY: the caller's.
    unsafe {
        let known = known(&*LoopCore::of(owner).module, owner)?;
        match ffi::PyDict_Contains(known.as_ptr(), number_object(fd)?.as_ptr()) {
            -1 => Err(Raised),
            known => Ok(known != 0),
        }
    }
}

/// Takes a transport among those of its loop and its server, and calls its protocol in the next turn.
unsafe fn start(
    owner: *mut ffi::PyObject,
    made: &Object,
    protocol: *mut ffi::PyObject,
    server: *mut ffi::PyObject,
    waiter: *mut ffi::PyObject,
) -> Result<(), Raised> {
    // SAFETY: the caller's: a live loop and live objects.
    unsafe {
        let core = LoopCore::of(owner);
        let state = &*core.module;
        let (object, this) = (made.as_ptr(), stream(made.as_ptr()));
        if !core.is_debug() {
            speed_up(state, protocol)?;
        }
        if server != ffi::Py_None() {
            this.set(bit::MAY_GATHER);
            // A closed server refuses; then nothing reports the end to it either.
            tell_server(state, server, state.names.attach, object)?;
            this.server.set(Object::share(server)?);
        }
        let weak = Object::own(ffi::PyWeakref_NewRef(object, null_mut()))?;
        let number = number_object(this.fd.get())?;
        if ffi::PyDict_SetItem(known(state, owner)?.as_ptr(), number.as_ptr(), weak.as_ptr()) != 0 {
            return Err(Raised);
        }
        this.begin(object, waiter)
    }
}

impl Stream {
    /// Takes the transport from the loop's and from its server's, and ends the wait of `sendfile`.
    pub(super) fn leave_all(&self, object: *mut ffi::PyObject) -> Result<(), Raised> {
        let Some(owner) = self.owner.share() else { return Ok(()) };
        // SAFETY: live objects; the module's state lives as long as the loop.
        unsafe {
            let state = &*LoopCore::of(owner.as_ptr()).module;
            let known = known(state, owner.as_ptr())?;
            let number = number_object(self.fd.get())?;
            let mut weak = null_mut();
            if ffi::compat::PyDict_GetItemRef(known.as_ptr(), number.as_ptr(), &raw mut weak) < 0 {
                return Err(Raised);
            }
            if let Ok(weak) = Object::own(weak) {
                // The number may belong to another transport by now.
                let found = weak.call(&[])?;
                if (found.is_none() || found.as_ptr() == object)
                    && ffi::PyDict_DelItem(known.as_ptr(), number.as_ptr()) != 0
                {
                    return Err(Raised);
                }
            }
            if let Some(server) = self.server.share() {
                tell_server(state, server.as_ptr(), state.names.detach, object)?;
            }
        }
        self.abandon_file()
    }
}

/// `_make_socket_transport(sock, protocol, waiter=None, *, extra=None, server=None)`.
#[entry]
unsafe extern "C" fn make_socket_transport(
    owner: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a loop, and what the interpreter passes.
    unsafe {
        let made = Parts::read(arguments, count.unsigned_abs(), names).and_then(|parts| {
            let state = &*LoopCore::of(owner).module;
            if ffi::Py_TYPE(parts.socket).cast() == state.socket_class
                && let Some(fd) = number::of(state, parts.socket)
                && !is_known(owner, fd)?
            {
                return open(owner, &parts);
            }
            let Parts { socket, protocol, waiter, extra, server } = parts;
            let all = [owner, socket, protocol, waiter, extra, server];
            let name = state.names.make_checked_transport;
            Object::own(ffi::PyObject_VectorcallMethod(name, all.as_ptr(), all.len(), null_mut()))
        });
        made.map_or(null_mut(), Object::into_ptr)
    }
}

/// `_open_stream(sock, protocol, waiter, extra, server)`: the transport, without looking at the socket.
#[entry]
unsafe extern "C" fn open_stream(
    owner: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    if count.unsigned_abs() != COUNT {
        raise_type("_open_stream() takes a socket, a protocol, a waiter, a dictionary and a server");
        return null_mut();
    }
    // SAFETY: a loop, and as many arguments as `Parts` has.
    unsafe { open(owner, &*arguments.cast::<Parts>()) }.map_or(null_mut(), Object::into_ptr)
}

/// `_set_transport_class(class)`: the class of the transports of connected sockets.
#[entry]
pub(in super::super) unsafe extern "C" fn set_transport_class(
    module: *mut ffi::PyObject,
    class: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: our module and a live class.
    unsafe {
        let Some(state) = MODULE.state(module) else { return none() };
        let ours = state.stream_type.cast::<ffi::PyTypeObject>();
        if ffi::PyType_Check(class) == 0 || ffi::PyType_IsSubtype(class.cast(), ours) == 0 {
            raise_type("_set_transport_class() takes a class of Stream's");
            return null_mut();
        }
        ffi::Py_INCREF(class);
        ffi::Py_XDECREF(std::mem::replace(&mut state.transport_class, class));
    }
    none()
}

pub(in super::super) fn methods() -> Vec<ffi::PyMethodDef> {
    vec![
        keyword_method(
            c"_make_socket_transport",
            make_socket_transport,
            c"_make_socket_transport($self, /, sock, protocol, waiter=None, *, extra=None, server=None)\n--\n\n\
            The transport of a connected socket.",
        ),
        fast_method(
            c"_open_stream",
            open_stream,
            c"_open_stream(sock, protocol, waiter, extra, server): the same, whatever the socket.",
        ),
    ]
}
