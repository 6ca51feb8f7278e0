//! A connection before a program has asked for its `socket` object, or for its addresses.
//!
//! Most programs never ask for the object, whose making takes a system call. So a transport that a server has accepted
//! owns the descriptor itself at first. The object is made when the program asks for it, and is then the one that
//! closes the descriptor. Addresses are numbers until somebody wants to read them: that of the peer has come with the
//! connection, because the kernel forgets it with a reset; the connection's own stays until the descriptor is closed,
//! and is asked for then at the latest.
//!
//! Programs ask their transports for these from other threads, too. The interpreter lock orders what the threads do.
//! Without that lock there is an object from the start, and nothing here changes any more.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd};
use std::ptr::null_mut;

use pyo3_ffi as ffi;
use ropewalk_os::net::{self, Address};

use super::super::core::raise_type;
use super::super::loop_module::{LoopModule, MODULE};
use super::super::sockets::{self, Kind};
use super::super::{address, transport};
use super::{Stream, bit, stream};
use ropewalk_capi::entry;
use ropewalk_capi::errors::fail;
use ropewalk_capi::object::{Object, Raised, detached};

/// Whether connections can be without an object.
pub(in super::super) const POSSIBLE: bool = !cfg!(Py_GIL_DISABLED);

/// See the module.
pub(super) struct Bare {
    /// None once it was closed.
    connection: Option<OwnedFd>,
    kind: Kind,
    peer: Option<Address>,
    /// None before the connection was closed, or if the kernel has none.
    own: Option<Address>,
}

impl Bare {
    fn own(&self) -> Option<Address> {
        match &self.connection {
            Some(connection) => net::local_address(connection.as_fd()).ok(),
            None => self.own.clone(),
        }
    }
}

/// Lets a look at what is in a cell.
fn look<T>(cell: &Cell<Option<Bare>>, at: impl FnOnce(&Bare) -> T) -> Option<T> {
    if !POSSIBLE {
        return None;
    }
    let bare = cell.take()?;
    let seen = at(&bare);
    cell.set(Some(bare));
    Some(seen)
}

unsafe fn state_of<'a>(object: *mut ffi::PyObject) -> Result<&'a LoopModule, Raised> {
    // SAFETY: the caller's: a live transport.
    match unsafe { MODULE.state_of_base(ffi::Py_TYPE(object)) } {
        Some(state) => Ok(state),
        None => Err(fail(c"no module")),
    }
}

impl Stream {
    /// Gives a fresh transport a connection.
    pub(super) fn own_connection(&self, connection: OwnedFd, kind: Kind, peer: Option<Address>) {
        self.bare.set(Some(Bare { connection: Some(connection), kind, peer, own: None }));
        self.set(bit::BARE);
    }

    /// What `get_extra_info` looks up, without the socket if there is no object of it.
    fn addresses(&self, object: *mut ffi::PyObject) -> Result<Object, Raised> {
        // SAFETY: a live transport.
        if let Some(known) = unsafe { transport::extra(object) } {
            return Ok(known);
        }
        let found = look(&self.bare, |bare| (bare.peer.clone(), bare.own()));
        // SAFETY: live objects and a fresh one.
        unsafe {
            let extra = Object::own(ffi::PyDict_New())?;
            if let Some((peer, own)) = found {
                let names = &state_of(object)?.names;
                for (name, address) in [(names.peername, peer), (names.sockname, own)] {
                    let address = address::to_object(address.as_ref())?;
                    if ffi::PyDict_SetItem(extra.as_ptr(), name, address.as_ptr()) != 0 {
                        return Err(Raised);
                    }
                }
            }
            // What has run meanwhile may have asked, too.
            if let Some(known) = transport::extra(object) {
                return Ok(known);
            }
            transport::set_extra(object, extra.clone());
            Ok(extra)
        }
    }

    /// Makes the socket object if there is none, a closed one after the end.
    pub(super) fn make_socket(&self, object: *mut ffi::PyObject) -> Result<(), Raised> {
        let extra = self.addresses(object)?;
        let known = look(&self.bare, |bare| (bare.connection.as_ref().map(AsRawFd::as_raw_fd), bare.kind));
        let Some((number, kind)) = known else { return Ok(()) };
        let mut given = false;
        // SAFETY: a live transport and live objects; no lock is held.
        unsafe {
            let state = state_of(object)?;
            let made = match number {
                // Other code may run meanwhile, which asks for the object, too, or ends the connection.
                Some(number) => sockets::make_of(state, number, kind, || {
                    given = self.give_connection();
                    given
                })?,
                None => sockets::closed(state, kind)?,
            };
            drop(self.bare.take());
            if given {
                self.socket.set(made.clone());
                self.unset(bit::BARE);
            }
            let name = state.names.socket;
            match ffi::PyDict_Contains(extra.as_ptr(), name) {
                0 if ffi::PyDict_SetItem(extra.as_ptr(), name, made.as_ptr()) == 0 => Ok(()),
                1 => Ok(()),
                _ => Err(Raised),
            }
        }
    }

    /// Gives the descriptor up to an object. Returns false if that has happened, or if the connection is closed.
    fn give_connection(&self) -> bool {
        let Some(mut bare) = self.bare.take() else { return false };
        let connection = bare.connection.take();
        self.bare.set(Some(bare));
        connection.map(OwnedFd::into_raw_fd).is_some()
    }

    /// Closes a connection of which there is no object, as the object does: other threads run meanwhile.
    pub(super) fn close_connection(&self, object: *mut ffi::PyObject) {
        let Some(mut bare) = self.bare.take() else { return };
        // SAFETY: a live transport.
        if unsafe { transport::extra(object) }.is_none() {
            bare.own = bare.own();
        }
        let connection = bare.connection.take();
        self.bare.set(Some(bare));
        self.unset(bit::BARE);
        detached(|| drop(connection));
    }
}

/// `_info(name, default)`: what `get_extra_info` looks up.
#[entry]
pub(super) unsafe extern "C" fn info(
    object: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    if count != 2 {
        raise_type("_info() takes a name and a default");
        return null_mut();
    }
    // SAFETY: a live transport, and what the interpreter passes.
    unsafe {
        let (name, default) = (*arguments, *arguments.add(1));
        let this = stream(object);
        let found = this.addresses(object).and_then(|extra| {
            if ffi::PyUnicode_Check(name) != 0
                && ffi::PyUnicode_CompareWithASCIIString(name, c"socket".as_ptr()) == 0
            {
                this.make_socket(object)?;
            }
            let mut found = null_mut();
            match ffi::compat::PyDict_GetItemRef(extra.as_ptr(), name, &raw mut found) {
                0 => Object::share(default),
                _ => Object::own(found),
            }
        });
        found.map_or(null_mut(), Object::into_ptr)
    }
}

#[entry]
pub(super) unsafe extern "C" fn get_extra(object: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: a live transport.
    let this = unsafe { stream(object) };
    let extra = this.make_socket(object).and_then(|()| this.addresses(object));
    extra.map_or(null_mut(), Object::into_ptr)
}

#[entry]
pub(super) unsafe extern "C" fn set_extra(
    object: *mut ffi::PyObject,
    value: *mut ffi::PyObject,
    _: *mut c_void,
) -> c_int {
    // SAFETY: a live transport, and a live value or null.
    unsafe {
        let Ok(value) = Object::share(value) else {
            fail(c"the dictionary of a transport cannot be deleted");
            return -1;
        };
        if stream(object).make_socket(object).is_err() {
            return -1;
        }
        transport::set_extra(object, value);
        0
    }
}
