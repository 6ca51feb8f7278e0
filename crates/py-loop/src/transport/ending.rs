//! The beginning and the end of transports: what runs once for each.

use std::ptr::null_mut;

use pyo3_ffi as ffi;

use super::super::core::{none, raise_type};
use super::super::sockets;
use super::{Transport, behaviour, bit, transport};
use ropewalk_capi::entry;
use ropewalk_capi::heap::Field;
use ropewalk_capi::object::{Kept, Object, Raised};

impl Transport {
    /// Calls the loop's `call_soon`, which a subclass of the loop may have replaced.
    fn call_soon(&self, callback: &Object, arguments: &[*mut ffi::PyObject]) -> Result<(), Raised> {
        let name = self.state()?.names.call_soon;
        let Some(owner) = self.owner.share() else { return Ok(()) };
        let mut all = vec![owner.as_ptr(), callback.as_ptr()];
        all.extend_from_slice(arguments);
        // SAFETY: live objects.
        unsafe { Object::own(ffi::PyObject_VectorcallMethod(name, all.as_ptr(), all.len(), null_mut())) }
            .map(drop)
    }

    /// Calls the protocol's `connection_made` in the next turn, reads after that, and wakes what waits for it.
    pub(in super::super) fn begin(
        &self,
        object: *mut ffi::PyObject,
        waiter: *mut ffi::PyObject,
    ) -> Result<(), Raised> {
        let state = self.state()?;
        let names = &state.names;
        let Some(protocol) = self.protocol.share() else { return Ok(()) };
        // SAFETY: live objects throughout.
        unsafe {
            let made = Object::own(ffi::PyObject_GetAttr(protocol.as_ptr(), names.connection_made))?;
            self.call_soon(&made, &[object])?;
            // Reading starts only after that: `connection_made` is called before any other method of the protocol.
            let start = Object::own(ffi::PyObject_GetAttr(object, names.start_reading))?;
            self.call_soon(&start, &[])?;
            if waiter != ffi::Py_None() {
                let name = names.set_result_unless_cancelled;
                let wake = Object::own(ffi::PyObject_GetAttr(state.futures, name))?;
                self.call_soon(&wake, &[waiter, ffi::Py_None()])?;
            }
        }
        Ok(())
    }

    /// Calls `connection_lost` in the next turn.
    pub(super) fn schedule_end(&self, object: *mut ffi::PyObject, error: &Object) -> Result<(), Raised> {
        let name = self.state()?.names.call_connection_lost;
        // SAFETY: a live transport.
        let end = unsafe { Object::own(ffi::PyObject_GetAttr(object, name))? };
        self.call_soon(&end, &[error.as_ptr()])
    }

    fn tell_end(&self, error: *mut ffi::PyObject) -> Result<(), Raised> {
        let name = self.state()?.names.connection_lost;
        let Some(protocol) = self.protocol.share().filter(|protocol| !protocol.is_none()) else {
            return Ok(());
        };
        let arguments = [protocol.as_ptr(), error];
        // SAFETY: live objects.
        unsafe { Object::own(ffi::PyObject_VectorcallMethod(name, arguments.as_ptr(), 2, null_mut())) }
            .map(drop)
    }

    /// Drops every reference but that of the context, and closes the file.
    fn leave(&self, object: *mut ffi::PyObject) -> Result<(), Raised> {
        let Some(owner) = self.owner.share() else { return Ok(()) };
        let state = self.state()?;
        // SAFETY: a live transport.
        let behaviour = unsafe { behaviour(object) };
        if self.has(bit::BARE) && !sockets::closes_plainly(state)? && behaviour.make_file(object).is_err() {
            // SAFETY: an exception is set; a live transport.
            unsafe { ffi::PyErr_WriteUnraisable(object) };
        }
        let left = behaviour.leave(object);
        let kept = left.is_err().then(Kept::take);
        self.core()?.leave(self.fd.get(), self.place, object);
        self.set(bit::LOST | bit::CLOSING);
        // What the fields held is dropped once the file is closed: a protocol's finalizer may use the transport, and
        // ask for its socket. asyncio has this order, too.
        let fields: Vec<_> = behaviour.own_fields().into_iter().map(Field::take).collect();
        let (protocol, file) = (self.protocol.take(), self.socket.take());
        drop(self.owner.take());
        let closed = match file {
            // SAFETY: a live object; the loop, which keeps the module's state, is held until here.
            Some(file) => unsafe { sockets::close(state, file.as_ptr()) },
            None => {
                behaviour.close_bare(object);
                Ok(())
            }
        };
        drop((fields, protocol, owner));
        match kept {
            Some(kept) if closed.is_err() => kept.discard(),
            Some(kept) => kept.put_back(),
            None => {}
        }
        left.and(closed)
    }
}

/// `_begin(waiter)`: after `_attach`.
#[entry]
pub(super) unsafe extern "C" fn begin(
    object: *mut ffi::PyObject,
    waiter: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a live transport and argument.
    if unsafe { transport(object) }.begin(object, waiter).is_ok() { none() } else { null_mut() }
}

/// `_call_connection_lost(error)`: the end of a transport.
#[entry]
pub(super) unsafe extern "C" fn call_connection_lost(
    object: *mut ffi::PyObject,
    error: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a live transport.
    let this = unsafe { transport(object) };
    if this.is_detached() {
        return none();
    }
    let told = this.tell_end(error);
    let kept = told.is_err().then(Kept::take);
    let left = this.leave(object);
    match kept {
        Some(kept) if left.is_err() => kept.discard(),
        Some(kept) => kept.put_back(),
        None => {}
    }
    if told.and(left).is_ok() { none() } else { null_mut() }
}

/// `_leave()`: drops every reference, and closes the file.
#[entry]
pub(super) unsafe extern "C" fn leave(
    object: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a live transport.
    if unsafe { transport(object) }.leave(object).is_ok() { none() } else { null_mut() }
}

/// A transport that nothing refers to any more has ended, or warns.
#[entry]
pub(super) unsafe extern "C" fn finalize(object: *mut ffi::PyObject) {
    // SAFETY: a transport that is not freed yet.
    unsafe {
        let this = transport(object);
        if this.is_detached() {
            return;
        }
        let kept = Kept::take();
        let Ok(state) = this.state() else { return };
        let warned = Object::own(ffi::PyObject_CallMethodNoArgs(object, state.names.unclosed));
        if warned.is_err() {
            ffi::PyErr_WriteUnraisable(object);
        }
        kept.put_back();
    }
}

/// `_attach(loop, file, protocol)`: called before any other method.
#[entry]
pub(super) unsafe extern "C" fn attach(
    object: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: a fresh transport, and what the interpreter passes: the caller is ours.
    unsafe {
        if count != 3 {
            raise_type("_attach() takes a loop, a socket or pipe, and a protocol");
            return null_mut();
        }
        let (owner, file, protocol) = (*arguments, *arguments.add(1), *arguments.add(2));
        if transport(object).attach(object, owner, file, protocol).is_ok() { none() } else { null_mut() }
    }
}
