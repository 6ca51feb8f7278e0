//! What an endpoint sends.

use std::io;
use std::ptr::null_mut;

use pyo3_ffi as ffi;
use ropewalk_os::net::datagrams::{self, Name};

use super::super::address;
use super::super::outgoing::Data;
use super::super::transport::Behaviour;
use super::queue::Target;
use super::{Datagram, bit};
use ropewalk_capi::errors::raise_os;
use ropewalk_capi::object::{Object, Raised};
use ropewalk_os::net::Family;

const WORDS: &str = "Fatal write error on datagram transport";

impl Datagram {
    /// Sends a datagram to an address, or to that for which the endpoint was made if the address is `None`.
    pub(super) fn send_to(
        &self,
        object: *mut ffi::PyObject,
        data: Data,
        to: *mut ffi::PyObject,
    ) -> Result<(), Raised> {
        let to = self.checked(to)?;
        if self.has(bit::LOST) {
            return self.ignore_write(object);
        }
        let target = self.target(to);
        if self.has(bit::BLOCKED) || !self.is_empty() {
            return self.keep(object, data, target);
        }
        let name = match &target {
            Target::Peer => None,
            Target::Name(name) => Some(name),
            Target::Object(to) => {
                let data = data.into_bytes()?;
                if self.send_by_object(object, &data, to)? {
                    return Ok(());
                }
                self.wait_for_room(object)?;
                return self.keep(object, Data::of(data.as_ptr())?, target);
            }
        };
        match self.file().and_then(|file| datagrams::send(file, data.bytes(), name)) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.wait_for_room(object)?;
                self.keep(object, data, target)
            }
            Err(error) => {
                raise_os(&error);
                self.report_error(object, WORDS)
            }
        }
    }

    /// The address to send to. An endpoint with an address of its own takes no other.
    fn checked(&self, to: *mut ffi::PyObject) -> Result<*mut ffi::PyObject, Raised> {
        let remote = self.remote.get();
        // SAFETY: live objects.
        unsafe {
            if remote.is_null() || to == remote {
                return Ok(to);
            }
            if to != ffi::Py_None() {
                match ffi::PyObject_RichCompareBool(to, remote, ffi::Py_EQ) {
                    0 => {
                        let shown = Object::own(ffi::PyObject_Str(remote))?;
                        ffi::PyErr_Format(
                            ffi::PyExc_ValueError,
                            c"Invalid address: must be None or %U".as_ptr(),
                            shown.as_ptr(),
                        );
                        return Err(Raised);
                    }
                    equal if equal < 0 => return Err(Raised),
                    _ => {}
                }
            }
        }
        Ok(remote)
    }

    fn target(&self, to: *mut ffi::PyObject) -> Target {
        // SAFETY: a live object; the thread is attached, and runs nothing while the guard lives.
        unsafe {
            if !self.has(bit::BY_OBJECT) {
                if self.has(bit::CONNECTED) {
                    return Target::Peer;
                }
                let known = self.names.lock().name(to).copied();
                if let Some(name) = known {
                    return Target::Name(name);
                }
                if let Some(name) = self.family.get().and_then(|family| name_of(family, to)) {
                    if let Ok(to) = Object::share(to) {
                        let old = self.names.lock().keep_receiver(name, to);
                        drop(old);
                    }
                    return Target::Name(name);
                }
            }
            Target::Object(Object::share(to).unwrap_or_else(|Raised| Object::none()))
        }
    }

    fn keep(&self, object: *mut ffi::PyObject, data: Data, to: Target) -> Result<(), Raised> {
        let data = data.into_bytes()?;
        // SAFETY: as of `size`.
        unsafe { self.outgoing.lock() }.push(data, to);
        self.pause_if_full(object, self.size())
    }

    /// The kernel has refused a datagram.
    fn wait_for_room(&self, object: *mut ffi::PyObject) -> Result<(), Raised> {
        self.block()?;
        let silent = self.family.get() == Some(Family::Unix) && !self.has(bit::CONNECTED);
        if !silent || self.has(bit::RETRYING) {
            return Ok(());
        }
        // The queue of a receiver within this host is full, and the kernel tells only a socket that is connected to it
        // of room there.
        self.set(bit::RETRYING);
        let name = self.state()?.names.retry_later;
        // SAFETY: a live transport.
        unsafe { Object::own(ffi::PyObject_CallMethodNoArgs(object, name)) }.map(drop)
    }

    /// The time to try again has come.
    pub(super) fn retry(&self, object: *mut ffi::PyObject) -> Result<(), Raised> {
        self.unset(bit::RETRYING | bit::BLOCKED);
        if self.is_detached() || self.has(bit::LOST) { Ok(()) } else { self.send_gathered(object) }
    }

    /// Sends by the socket object; returns whether there was room.
    fn send_by_object(&self, object: *mut ffi::PyObject, data: &Object, to: &Object) -> Result<bool, Raised> {
        let name = self.state()?.names.send_by_object;
        let arguments = [object, data.as_ptr(), to.as_ptr()];
        // SAFETY: live objects.
        let sent =
            unsafe { Object::own(ffi::PyObject_VectorcallMethod(name, arguments.as_ptr(), 3, null_mut())) };
        match sent {
            // SAFETY: the truth values are always there.
            Ok(sent) => Ok(sent.as_ptr() == unsafe { ffi::Py_True() }),
            Err(Raised) => self.report_error(object, WORDS).map(|()| true),
        }
    }

    /// Sends what waits, as far as there is room.
    pub(super) fn send_waiting(&self, object: *mut ffi::PyObject) -> Result<(), Raised> {
        while !self.is_empty() && !self.has(bit::LOST) {
            // SAFETY: as of `size`; what has left is dropped after.
            let sent = self.file().and_then(|file| unsafe { self.outgoing.lock() }.send(file));
            match sent {
                Ok(sent) if sent.is_empty() => {
                    if !self.send_first_by_object(object)? {
                        break;
                    }
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait_for_room(object)?;
                    break;
                }
                Err(error) => {
                    // The first one cannot be sent; the others may.
                    // SAFETY: as of `size`; the datagram is dropped after.
                    let refused = unsafe { self.outgoing.lock() }.pop();
                    drop(refused);
                    raise_os(&error);
                    if let Err(Raised) = self.report_error(object, WORDS) {
                        self.raised(object, "error_received")?;
                    }
                }
            }
        }
        if self.is_detached() {
            return Ok(());
        }
        if self.is_empty() {
            drop(self.write_context.take());
        }
        self.resume_if_drained(object, self.size())?;
        if self.is_empty() && self.has(bit::CLOSING) {
            return self.lose(object, &Object::none());
        }
        Ok(())
    }

    fn send_first_by_object(&self, object: *mut ffi::PyObject) -> Result<bool, Raised> {
        // SAFETY: as of `size`.
        let Some((data, target)) = unsafe { self.outgoing.lock() }.pop() else { return Ok(true) };
        if let Target::Object(to) = &target
            && self.send_by_object(object, &data, to)?
        {
            return Ok(true);
        }
        // SAFETY: as of `size`.
        unsafe { self.outgoing.lock() }.push_front(data, target);
        self.wait_for_room(object)?;
        Ok(false)
    }
}

/// # Safety
///
/// A live object.
unsafe fn name_of(family: Family, to: *mut ffi::PyObject) -> Option<Name> {
    // SAFETY: the caller's.
    let address = unsafe { address::from_object(family, to)? };
    Name::of(&address).ok()
}
