//! The transport that reads from a pipe.

use std::io;
use std::ops::Deref;

use pyo3_ffi as ffi;
use ropewalk_os::pipe;

use super::super::calling::invoke;
use super::super::core::RECEIVE;
use super::super::loop_module::LoopModule;
use super::super::transport::{Behaviour, Transport, bit, method_or_none};
use ropewalk_capi::errors::raise_os;
use ropewalk_capi::heap::Field;
use ropewalk_capi::object::{Object, Raised};

#[repr(C)]
pub(super) struct ReadPipe {
    pub(super) base: Transport,
    /// `data_received`.
    pub(super) received: Field,
}

impl Deref for ReadPipe {
    type Target = Transport;

    fn deref(&self) -> &Transport {
        &self.base
    }
}

impl AsRef<Transport> for ReadPipe {
    fn as_ref(&self) -> &Transport {
        &self.base
    }
}

// SAFETY: `repr(C)`, with the common part first.
unsafe impl Behaviour for ReadPipe {
    fn own_fields(&self) -> Vec<&Field> {
        vec![&self.received]
    }

    fn size(&self) -> usize {
        0
    }

    fn is_empty(&self) -> bool {
        true
    }

    fn flush(&self, _: *mut ffi::PyObject) -> Result<(), Raised> {
        Ok(())
    }

    fn discard(&self) {}

    fn is_ready(&self) -> bool {
        self.may_read()
    }

    fn run(&self, object: *mut ffi::PyObject) -> Result<(), Raised> {
        // Edges tell nothing of what is left. A pipe may keep borders and a terminal gives a line at a time, so only a
        // second read shows that there is no more.
        for _ in 0..2 {
            if self.may_read() && !self.is_detached() {
                self.to_read(|| self.read(object))?;
            }
        }
        // There is more: after all other items of the queue.
        if self.may_read() && !self.is_detached() { self.enqueue(object) } else { Ok(()) }
    }

    fn adopt(&self, _: &LoopModule, protocol: &Object) -> Result<(), Raised> {
        self.received.set(method_or_none(protocol, c"data_received")?);
        Ok(())
    }
}

impl ReadPipe {
    /// Reads once, and passes the bytes to the protocol. Returns how many.
    fn read(&self, object: *mut ffi::PyObject) -> Result<usize, Raised> {
        let buffer = self.core()?.receive_buffer();
        // SAFETY: the running thread's buffer, of that size; nothing runs between the two calls.
        let (data, got) = match self.file().and_then(|file| unsafe { pipe::read(file, buffer, RECEIVE) }) {
            Ok(0) => return self.at_end(object).map(|()| 0),
            Ok(got) => {
                // SAFETY: the kernel has written so many.
                (Object::bytes(unsafe { std::slice::from_raw_parts(buffer, got) })?, got)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.unset(bit::READABLE);
                return Ok(0);
            }
            Err(error) => {
                raise_os(&error);
                return self.fatal(object, "Fatal read error on pipe transport").map(|()| 0);
            }
        };
        let result = match self.method(&self.received, c"data_received") {
            // SAFETY: live objects, one argument; a new reference, or null with an exception set.
            Ok(Some(received)) => unsafe { Object::own(invoke(received.as_ptr(), data.as_ptr(), true)) },
            Ok(None) => return Ok(got),
            Err(Raised) => Err(Raised),
        };
        drop(data);
        match result {
            Ok(result) => drop(result),
            Err(Raised) => self.raised(object, "data_received")?,
        }
        Ok(got)
    }

    /// Nobody writes any more.
    fn at_end(&self, object: *mut ffi::PyObject) -> Result<(), Raised> {
        self.set(bit::ENDED | bit::CLOSING);
        self.unset(bit::READABLE);
        let name = self.state()?.names.at_end;
        // SAFETY: a live transport.
        unsafe { Object::own(ffi::PyObject_CallMethodNoArgs(object, name))? };
        self.lose(object, &Object::none())
    }

    /// Reads what is in the pipe now, as far as its protocol accepts it.
    pub(super) fn read_rest(&self, object: *mut ffi::PyObject) -> Result<(), Raised> {
        if !self.has(bit::STARTED) || self.has(bit::LOST) {
            return Ok(());
        }
        // More than the pipe holds was written since.
        let mut left = self.file().and_then(pipe::capacity).unwrap_or(RECEIVE);
        self.set(bit::READABLE);
        while left > 0 && self.may_read() && !self.is_detached() {
            let got = self.to_read(|| self.read(object))?;
            if got == 0 {
                break;
            }
            left = left.saturating_sub(got);
        }
        Ok(())
    }
}
