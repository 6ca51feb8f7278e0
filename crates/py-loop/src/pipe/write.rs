//! The transport that writes to a pipe.

use std::io;
use std::ops::Deref;

use pyo3_ffi as ffi;
use ropewalk_os::pipe;

use super::super::loop_module::LoopModule;
use super::super::outgoing::{Data, Outgoing, Sent, Share};
use super::super::transport::{Behaviour, Transport, bit as common};
use ropewalk_capi::errors::raise_os;
use ropewalk_capi::guarded::Guarded;
use ropewalk_capi::heap::Field;
use ropewalk_capi::object::{Object, Raised, take_exception};

/// The bits of its own state; those of every transport are among them.
pub(super) mod bit {
    pub(in super::super) use super::common::*;

    /// The end of its file means that nobody reads any more, and is watched for. The end of a terminal is not.
    pub(in super::super) const HAS_READER: u32 = OWN;
}

#[repr(C)]
pub(super) struct WritePipe {
    pub(super) base: Transport,
    pub(super) outgoing: Guarded<Outgoing>,
}

impl Deref for WritePipe {
    type Target = Transport;

    fn deref(&self) -> &Transport {
        &self.base
    }
}

impl AsRef<Transport> for WritePipe {
    fn as_ref(&self) -> &Transport {
        &self.base
    }
}

// SAFETY: `repr(C)`, with the common part first.
unsafe impl Behaviour for WritePipe {
    fn own_fields(&self) -> Vec<&Field> {
        Vec::new()
    }

    fn size(&self) -> usize {
        // SAFETY: the thread is attached, and runs nothing while the guard lives.
        unsafe { self.outgoing.lock() }.size()
    }

    fn is_empty(&self) -> bool {
        // SAFETY: as above.
        unsafe { self.outgoing.lock() }.is_empty()
    }

    fn flush(&self, object: *mut ffi::PyObject) -> Result<(), Raised> {
        let mut done = Vec::new();
        // SAFETY: as above.
        let sent = self.file().and_then(|file| unsafe { self.outgoing.lock() }.write(file, &mut done));
        drop(done);
        match sent {
            Ok(sent) => {
                match sent {
                    Sent::All => drop(self.write_context.take()),
                    Sent::Some => self.wait_for_room(object)?,
                    Sent::Share => self.hold(object)?,
                }
                self.resume_if_drained(object, self.size())?;
                if self.is_empty() && self.has(bit::CLOSING) {
                    return self.lose(object, &Object::none());
                }
                Ok(())
            }
            Err(error) => self.not_written(object, &error),
        }
    }

    fn discard(&self) {
        // SAFETY: as above; what was taken is dropped after.
        let left = unsafe { self.outgoing.lock() }.take();
        drop(left);
    }

    fn is_ready(&self) -> bool {
        self.has_lost_reader() || !(self.has(bit::BLOCKED) || self.is_empty())
    }

    fn run(&self, object: *mut ffi::PyObject) -> Result<(), Raised> {
        if self.has_lost_reader() {
            return self.to_read(|| self.after_reader(object));
        }
        self.to_write(|| self.send_gathered(object))
    }

    fn adopt(&self, _: &LoopModule, _: &Object) -> Result<(), Raised> {
        Ok(())
    }
}

impl WritePipe {
    fn has_lost_reader(&self) -> bool {
        self.has(bit::ENDING) && self.has(bit::HAS_READER) && !self.has(bit::LOST)
    }

    /// Nobody reads any more.
    fn after_reader(&self, object: *mut ffi::PyObject) -> Result<(), Raised> {
        if self.is_empty() {
            return self.lose(object, &Object::none());
        }
        // SAFETY: a live class.
        unsafe { ffi::PyErr_SetNone(ffi::PyExc_BrokenPipeError) };
        self.lose(object, &take_exception())
    }

    pub(super) fn write(&self, object: *mut ffi::PyObject, data: Data) -> Result<(), Raised> {
        if data.bytes().is_empty() {
            return Ok(());
        }
        if self.has(bit::LOST | bit::CLOSING) {
            return self.ignore_write(object);
        }
        let mut written = 0;
        if !self.has(bit::BLOCKED) && self.is_empty() {
            let share = Share::new();
            match self.file().and_then(|file| pipe::write(file, share.of(data.bytes()))) {
                Ok(all) if all == data.bytes().len() => return Ok(()),
                Ok(some) => written = some,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait_for_room(object)?,
                Err(error) => return self.not_written(object, &error),
            }
        }
        let data = data.into_bytes()?;
        // SAFETY: as of `size`.
        unsafe { self.outgoing.lock() }.push(data, written);
        if !self.has(bit::BLOCKED | bit::HELD) {
            // The pipe took a part: it reports room only once it has refused the rest.
            self.flush(object)?;
        }
        self.pause_if_full(object, self.size())
    }

    /// The kernel has refused data.
    fn wait_for_room(&self, object: *mut ffi::PyObject) -> Result<(), Raised> {
        self.block()?;
        if self.has(bit::STARTED | bit::HAS_READER) {
            return Ok(());
        }
        // A terminal, or another device: only now there is something to wait for.
        // SAFETY: a live transport.
        unsafe { self.watch(object) }
    }

    fn not_written(&self, object: *mut ffi::PyObject, error: &io::Error) -> Result<(), Raised> {
        self.discard();
        raise_os(error);
        self.fatal(object, "Fatal write error on pipe transport")
    }
}
