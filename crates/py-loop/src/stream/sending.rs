//! What a transport sends, and its end.
//!
//! A write goes to the kernel at once if nothing waits before it and the transport does not gather (see `gather`). What
//! is gathered leaves with one system call when the callback ends, however it ends. After a refusal the transport asks
//! the kernel no more until an edge has reported room; what is written meanwhile waits.

use std::io;
use std::ptr::null_mut;

use pyo3_ffi as ffi;
use ropewalk_os::stream as bytes;

use super::super::clock::now;
use super::super::outgoing::{Data, Sent, Share};
use super::super::transport::{Behaviour, refuse};
use super::gather::Advice;
use super::{Stream, bit};
use ropewalk_capi::errors::raise_os;
use ropewalk_capi::object::{Object, Raised, take_exception};

impl Stream {
    pub(super) fn write(&self, object: *mut ffi::PyObject, data: Data) -> Result<(), Raised> {
        if data.bytes().is_empty() {
            return Ok(());
        }
        if self.has(bit::LOST) {
            return self.ignore_write(object);
        }
        if self.gathers(object)? || self.has(bit::BLOCKED) || !self.is_empty() {
            self.push(data.into_bytes()?, 0);
            return self.keep_within_marks(object);
        }
        let share = Share::new();
        let sent = match self.file().and_then(|file| bytes::send(file, share.of(data.bytes()))) {
            Ok(sent) if sent == data.bytes().len() => return Ok(()),
            Ok(sent) => sent,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.block()?;
                0
            }
            Err(error) => return self.not_sent(object, &error),
        };
        self.push(data.into_bytes()?, sent);
        if !self.has(bit::BLOCKED) {
            // The kernel took a part. It owes an edge only once it has refused the rest.
            self.flush(object)?;
        }
        self.pause_if_full(object, self.size())
    }

    /// Sends pieces with as few system calls as possible.
    pub(super) fn write_all(&self, object: *mut ffi::PyObject, pieces: Vec<Object>) -> Result<(), Raised> {
        if pieces.is_empty() {
            return Ok(());
        }
        if self.has(bit::LOST) {
            return self.ignore_write(object);
        }
        let waits = self.gathers(object)? || self.has(bit::BLOCKED) || !self.is_empty();
        for piece in pieces {
            self.push(piece, 0);
        }
        if waits {
            return self.keep_within_marks(object);
        }
        self.flush(object)?;
        self.pause_if_full(object, self.size())
    }

    /// Whether what is written now is kept until the callback ends.
    fn gathers(&self, object: *mut ffi::PyObject) -> Result<bool, Raised> {
        if !self.has(bit::MAY_GATHER) {
            return Ok(false);
        }
        let core = self.core()?;
        let Some(callback) = core.callback() else { return Ok(false) };
        let advice = self.gather.note(callback, now);
        // Another transport may wait already for the end of this callback.
        if advice == Advice::Send || !core.writing.get().is_null() {
            return Ok(false);
        }
        // SAFETY: a live transport.
        core.writing.set(unsafe { Object::share(object)? });
        if advice == Advice::Keep {
            self.keep_write_context()?;
        }
        Ok(advice == Advice::Keep)
    }

    fn push(&self, bytes: Object, from: usize) {
        // SAFETY: the thread is attached, and runs nothing while the guard lives.
        unsafe { self.outgoing.lock() }.push(bytes, from);
    }

    /// Data were added that wait. Gathered ones are sent early if they are many.
    fn keep_within_marks(&self, object: *mut ffi::PyObject) -> Result<(), Raised> {
        if self.size() <= self.high.get() {
            return Ok(());
        }
        self.send_gathered(object)?;
        self.pause_if_full(object, self.size())
    }

    /// Sends the waiting data, and continues what waits for that.
    pub(super) fn send(&self, object: *mut ffi::PyObject) -> Result<(), Raised> {
        let mut done = Vec::new();
        // SAFETY: the thread is attached, and runs nothing while the guard lives.
        let sent = self.file().and_then(|file| unsafe { self.outgoing.lock() }.send(file, &mut done));
        drop(done);
        match sent {
            Ok(sent) => {
                match sent {
                    Sent::All => drop(self.write_context.take()),
                    Sent::Some => self.block()?,
                    Sent::Share => self.hold(object)?,
                }
                self.after_sending(object, sent)
            }
            Err(error) => self.not_sent(object, &error),
        }
    }

    /// The kernel reports that nothing can be sent any more.
    fn not_sent(&self, object: *mut ffi::PyObject, error: &io::Error) -> Result<(), Raised> {
        // SAFETY: as above.
        drop(unsafe { self.outgoing.lock() }.take());
        raise_os(error);
        if let Some(waiter) = self.emptied.share() {
            let error = take_exception();
            self.set_future(&waiter, Some(&error))?;
            // SAFETY: a live exception.
            unsafe {
                ffi::PyErr_SetObject(ffi::Py_TYPE(error.as_ptr()).cast(), error.as_ptr());
            }
        }
        self.fatal(object, "Fatal write error on socket transport")
    }

    fn after_sending(&self, object: *mut ffi::PyObject, sent: Sent) -> Result<(), Raised> {
        self.resume_if_drained(object, self.size())?;
        if sent != Sent::All || !self.is_empty() {
            return Ok(());
        }
        if let Some(waiter) = self.emptied.share() {
            self.set_future(&waiter, None)?;
        }
        if self.has(bit::CLOSING) {
            return self.lose(object, &Object::none());
        }
        if self.has(bit::EOF) {
            return self.shut_down();
        }
        Ok(())
    }

    pub(super) fn set_future(&self, future: &Object, error: Option<&Object>) -> Result<(), Raised> {
        let names = &self.state()?.names;
        // SAFETY: live objects.
        unsafe {
            let done = Object::own(ffi::PyObject_CallMethodNoArgs(future.as_ptr(), names.done))?;
            if done.as_ptr() == ffi::Py_True() {
                return Ok(());
            }
            let nothing = Object::none();
            let (name, value) = match error {
                Some(error) => (names.set_exception, error),
                None => (names.set_result, &nothing),
            };
            let arguments = [future.as_ptr(), value.as_ptr()];
            Object::own(ffi::PyObject_VectorcallMethod(name, arguments.as_ptr(), 2, null_mut())).map(drop)
        }
    }

    pub(super) fn shut_down(&self) -> Result<(), Raised> {
        match self.file().and_then(ropewalk_os::stream::shut_down_sending) {
            Ok(()) => Ok(()),
            // The peer may have gone meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            Err(error) => Err(raise_os(&error)),
        }
    }

    pub(super) fn check_writable(&self, what: &str) -> Result<(), Raised> {
        self.check_thread()?;
        if self.has(bit::EOF) {
            return refuse(format!("Cannot call {what}() after write_eof()"));
        }
        if !self.emptied.get().is_null() {
            return refuse(format!("unable to {what}; sendfile is in progress"));
        }
        Ok(())
    }
}
