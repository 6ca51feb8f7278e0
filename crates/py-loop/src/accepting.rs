//! Accepting: what a server does for each connection. asyncio's `Server` does the rest.
//!
//! The callback of a listener takes the connections that wait, at most as many as its queue may hold, and makes socket,
//! protocol and transport of each, in a context of its own. asyncio starts a task for each connection, whose only work
//! is to wait until the transport has started; here nothing waits.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use pyo3_ffi as ffi;
use ropewalk_os::{limits, net};

use super::address;
use super::calling::{is_ending, within};
use super::core::{LoopCore, has_our_method, none};
use super::loop_module::LoopModule;
use super::number;
use super::sockets::{self, Kind};
use super::stream::{self, bare, opening::is_known};
use ropewalk_capi::entry;
use ropewalk_capi::errors::raise_os;
use ropewalk_capi::heap::keyword_method;
use ropewalk_capi::object::{Object, Raised, take_exception, text};

/// The arguments of `_accept_connection`, which asyncio gives the callback of a listener by their places.
const ARGUMENTS: usize = 7;

/// A listener that is ready, borrowed while its callback runs.
struct Listener<'a> {
    owner: *mut ffi::PyObject,
    core: &'a LoopCore,
    /// `protocol_factory, sock, sslcontext, server, backlog, ssl_handshake_timeout, ssl_shutdown_timeout`.
    arguments: &'a [*mut ffi::PyObject; ARGUMENTS],
}

impl Listener<'_> {
    fn state(&self) -> &LoopModule {
        // SAFETY: the module's state lives as long as the loop.
        unsafe { &*self.core.module }
    }

    fn socket(&self) -> *mut ffi::PyObject {
        self.arguments[1]
    }

    /// The listener's number; none once it is closed.
    fn number(&self) -> Option<RawFd> {
        // SAFETY: a live socket, which the arguments hold.
        unsafe { number::of(self.state(), self.socket()) }
    }

    /// Whether its connections can be accepted here; asyncio accepts the others.
    fn is_known(&self) -> Result<bool, Raised> {
        let state = self.state();
        // SAFETY: live objects; the family and the timeout are asked of a plain socket alone.
        unsafe {
            Ok(ffi::Py_TYPE(self.socket()).cast() == state.socket_class
                && sockets::family(state, self.socket())?.is_some()
                && sockets::is_non_blocking(state, self.socket())?)
        }
    }

    /// Accepts what waits.
    fn accept(&self) -> Result<(), Raised> {
        let state = self.state();
        // SAFETY: live objects.
        let (most, kind) = unsafe {
            let most = ffi::PyLong_AsLong(self.arguments[4]);
            if most == -1 && !ffi::PyErr_Occurred().is_null() {
                return Err(Raised);
            }
            (most.max(0), sockets::kind(state, self.socket())?)
        };
        let bare = self.may_be_bare()?;
        for _ in 0..=most {
            // A protocol's factory may have closed the listener.
            let Some(fd) = self.number() else { return Ok(()) };
            // SAFETY: the number is the socket's at this moment.
            let next = net::accept_from(unsafe { BorrowedFd::borrow_raw(fd) });
            match next {
                Ok(accepted) => {
                    let number = accepted.connection.as_raw_fd();
                    // SAFETY: a live loop.
                    if bare && !unsafe { is_known(self.owner, number) }? {
                        self.open_bare(accepted, kind)?;
                    } else {
                        self.open(accepted, kind)?;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => {
                    return match limits::explain_open(&error) {
                        Some(limit) => self.wait_for_room(&error, &limit),
                        None => Err(raise_os(&error)),
                    };
                }
            }
        }
        Ok(())
    }

    /// Whether connections need no socket object yet: nothing that runs before a program asks for one uses it.
    fn may_be_bare(&self) -> Result<bool, Raised> {
        let state = self.state();
        if !bare::POSSIBLE || self.core.is_debug() || !state.socket_attributes_known {
            return Ok(false);
        }
        // SAFETY: live objects.
        unsafe {
            let tls = ffi::PyObject_IsTrue(self.arguments[2]);
            if tls < 0 {
                return Err(Raised);
            }
            if tls != 0 || sockets::is_audited()? {
                return Ok(false);
            }
            // A subclass or a program may have a method of its own.
            has_our_method(self.owner, state.names.make_socket_transport)
        }
    }

    /// Makes the protocol and the transport of a connection.
    fn open_bare(&self, accepted: net::Accepted, kind: Kind) -> Result<(), Raised> {
        let [factory, _, _, server, ..] = *self.arguments;
        // SAFETY: live objects.
        unsafe {
            let context = Object::own(ffi::PyContext_CopyCurrent())?;
            let opened = within(context.as_ptr(), || {
                let protocol = Object::share(factory)?.call(&[])?;
                if self.number().is_none() {
                    // The factory has closed the server, which takes no connection more.
                    return Ok(());
                }
                stream::opening::open_accepted(self.owner, accepted, kind, protocol.as_ptr(), server)
                    .map(drop)
            });
            match opened {
                Err(Raised) if !is_ending() => {
                    // Only debug mode reports it.
                    drop(take_exception());
                    Ok(())
                }
                opened => opened,
            }
        }
    }

    /// Makes the socket, the protocol and the transport of a connection.
    fn open(&self, accepted: net::Accepted, kind: Kind) -> Result<(), Raised> {
        let state = self.state();
        let peer = address::to_object(accepted.peer.as_ref())?;
        // SAFETY: live objects.
        unsafe {
            let connection = sockets::make(state, accepted.connection, kind)?;
            if self.core.is_debug() {
                self.call(
                    state.names.note_accepted,
                    &[self.arguments[3], peer.as_ptr(), connection.as_ptr()],
                )?;
            }
            let extra = Object::own(ffi::PyDict_New())?;
            if ffi::PyDict_SetItem(extra.as_ptr(), state.names.peername, peer.as_ptr()) != 0 {
                return Err(Raised);
            }
            let context = Object::own(ffi::PyContext_CopyCurrent())?;
            let mut protocol = Object::none();
            let opened = within(context.as_ptr(), || self.transport(&connection, &extra, &mut protocol));
            match opened {
                Ok(_) => Ok(()),
                Err(Raised) => {
                    let ends = is_ending();
                    let error = take_exception();
                    // It is closed already if its transport was made.
                    Object::own(ffi::PyObject_CallMethodNoArgs(connection.as_ptr(), state.names.close))?;
                    if ends {
                        ffi::PyErr_SetObject(ffi::Py_TYPE(error.as_ptr()).cast(), error.as_ptr());
                        return Err(Raised);
                    }
                    if self.core.is_debug() {
                        self.call(state.names.not_opened, &[error.as_ptr(), protocol.as_ptr()])?;
                    }
                    Ok(())
                }
            }
        }
    }

    /// Calls the protocol's factory, and makes the transport, which calls the protocol in the next turn.
    fn transport(
        &self,
        connection: &Object,
        extra: &Object,
        protocol: &mut Object,
    ) -> Result<Object, Raised> {
        let names = &self.state().names;
        let [factory, _, tls, server, _, handshake, shutdown] = *self.arguments;
        // SAFETY: live objects, as many as the names say.
        unsafe {
            *protocol = Object::share(factory)?.call(&[])?;
            let nothing = Object::none();
            if self.number().is_none() {
                // The factory has closed the server, which takes no connection more.
                return Object::own(ffi::PyObject_CallMethodNoArgs(connection.as_ptr(), names.close));
            }
            let with_tls = ffi::PyObject_IsTrue(tls);
            if with_tls < 0 {
                return Err(Raised);
            }
            let (name, arguments, count, keywords) = if with_tls == 0 {
                let arguments = [
                    self.owner,
                    connection.as_ptr(),
                    protocol.as_ptr(),
                    nothing.as_ptr(),
                    extra.as_ptr(),
                    server,
                ];
                (names.make_socket_transport, arguments.to_vec(), 4, names.accepted_keywords)
            } else {
                let arguments = [
                    self.owner,
                    connection.as_ptr(),
                    protocol.as_ptr(),
                    tls,
                    nothing.as_ptr(),
                    ffi::Py_True(),
                    extra.as_ptr(),
                    server,
                    handshake,
                    shutdown,
                ];
                (names.make_tls_transport, arguments.to_vec(), 5, names.tls_keywords)
            };
            Object::own(ffi::PyObject_VectorcallMethod(name, arguments.as_ptr(), count, keywords))
        }
    }

    /// There is no descriptor or no memory for a connection: reports which limit was reached, and accepts again after a
    /// while. The connections stay in the queue.
    #[cold]
    fn wait_for_room(&self, error: &io::Error, limit: &str) -> Result<(), Raised> {
        // SAFETY: live objects and fresh ones.
        unsafe {
            let number = Object::own(ffi::PyLong_FromLong(error.raw_os_error().unwrap_or(0).into()))?;
            let error = Object::share(ffi::PyExc_OSError)?.call(&[number.as_ptr(), text(limit)?.as_ptr()])?;
            let mut arguments = vec![error.as_ptr()];
            arguments.extend_from_slice(self.arguments);
            self.call(self.state().names.accept_failed, &arguments)
        }
    }

    /// Calls a method of the loop.
    unsafe fn call(&self, name: *mut ffi::PyObject, arguments: &[*mut ffi::PyObject]) -> Result<(), Raised> {
        let mut all = vec![self.owner];
        all.extend_from_slice(arguments);
        // SAFETY: the caller's: live objects.
        unsafe {
            Object::own(ffi::PyObject_VectorcallMethod(name, all.as_ptr(), all.len(), std::ptr::null_mut()))
                .map(drop)
        }
    }
}

#[entry]
unsafe extern "C" fn accept_connection(
    owner: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a loop, and what the interpreter passes.
    unsafe {
        let core = LoopCore::of(owner);
        if count == ARGUMENTS as ffi::Py_ssize_t && names.is_null() {
            let listener = Listener { owner, core, arguments: &*arguments.cast() };
            match listener.is_known() {
                Ok(true) => return if listener.accept().is_ok() { none() } else { std::ptr::null_mut() },
                Ok(false) => {}
                Err(Raised) => return std::ptr::null_mut(),
            }
        }
        let mut all = vec![owner];
        let named = if names.is_null() { 0 } else { ffi::PyTuple_GET_SIZE(names) };
        all.extend((0..count + named).map(|at| *arguments.offset(at)));
        let theirs = (*core.module).accept_connection;
        ffi::PyObject_Vectorcall(theirs, all.as_ptr(), count as usize + 1, names)
    }
}

pub(super) fn methods() -> Vec<ffi::PyMethodDef> {
    vec![keyword_method(
        c"_accept_connection",
        accept_connection,
        c"_accept_connection(protocol_factory, sock, sslcontext, server, backlog, ...): a listener is ready.",
    )]
}
