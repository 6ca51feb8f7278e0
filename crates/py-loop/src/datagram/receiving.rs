//! What an endpoint receives.

use std::io;

use pyo3_ffi as ffi;
use ropewalk_os::net::Family;

use super::super::address;
use super::super::core::RECEIVE;
use super::{Datagram, bit};
use ropewalk_capi::errors::raise_os;
use ropewalk_capi::object::{Object, Raised};

/// The longest datagram of IP; those within this host may be as long as asyncio's buffer.
const LONGEST: usize = 65_536;

impl Datagram {
    /// Receives what has come, once, and passes it to the protocol.
    pub(super) fn receive(&self, object: *mut ffi::PyObject) -> Result<(), Raised> {
        let passed = self.take_in(object).and_then(|()| self.pass_on(object));
        // There is more: after all other items of the queue, or when the loop runs again.
        let more = self.may_read() || self.may_pass_on();
        if more && !self.is_detached() && !self.has(bit::LOST) {
            self.enqueue(object)?;
        }
        passed
    }

    fn take_in(&self, object: *mut ffi::PyObject) -> Result<(), Raised> {
        if !self.may_read() || self.has_incoming() {
            return Ok(());
        }
        let received =
            if self.has(bit::BY_OBJECT) { self.receive_by_object(object) } else { self.receive_batch() };
        received
            .or_else(|Raised| self.report_error(object, "Fatal read error on datagram transport"))
            .or_else(|Raised| self.raised(object, "error_received"))
    }

    pub(super) fn may_pass_on(&self) -> bool {
        !self.has(bit::PAUSED | bit::CLOSING) && self.has_incoming()
    }

    fn has_incoming(&self) -> bool {
        // SAFETY: the thread is attached, and runs nothing while the guard lives.
        !unsafe { self.incoming.lock() }.is_empty()
    }

    fn receive_batch(&self) -> Result<(), Raised> {
        let longest = if self.family.get() == Some(Family::Unix) { RECEIVE } else { LONGEST };
        // SAFETY: only the thread that runs the loop receives, and no code that could receive again runs while the
        // batch is used.
        let batch = unsafe { self.core()?.datagrams() };
        let got = match self.file().and_then(|file| batch.receive(file, longest)) {
            Ok((got, more)) => {
                // After an error, a short batch does not mean that there is no more.
                if self.has(bit::ENDING) {
                    self.unset(bit::ENDING);
                } else if !more {
                    self.unset(bit::READABLE);
                }
                got
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.unset(bit::READABLE);
                return Ok(());
            }
            Err(error) => return Err(raise_os(&error)),
        };
        for at in 0..got {
            let (bytes, name) = batch.datagram(at);
            let bytes = Object::bytes(bytes)?;
            // SAFETY: the thread is attached, and runs nothing while the guard lives.
            let known = unsafe { self.names.lock() }.object(&name);
            let sender = match known {
                Some(sender) => sender,
                None => {
                    let found = name.address().map_err(|error| raise_os(&error))?;
                    let sender = address::to_object(found.as_ref())?;
                    // SAFETY: as above; what had the place is dropped after.
                    let old = unsafe { self.names.lock() }.keep(name, sender.clone());
                    drop(old);
                    sender
                }
            };
            // SAFETY: as above.
            unsafe { self.incoming.lock() }.push_back((bytes, sender));
        }
        Ok(())
    }

    fn receive_by_object(&self, object: *mut ffi::PyObject) -> Result<(), Raised> {
        let name = self.state()?.names.receive_by_object;
        // SAFETY: a live transport; the method returns a tuple of two, or None.
        unsafe {
            let got = Object::own(ffi::PyObject_CallMethodNoArgs(object, name))?;
            if got.is_none() {
                self.unset(bit::READABLE);
                return Ok(());
            }
            let part = |at| Object::share(ffi::PyTuple_GetItem(got.as_ptr(), at));
            let pair = (part(0)?, part(1)?);
            self.incoming.lock().push_back(pair);
        }
        Ok(())
    }

    /// Gives the protocol what was received, until it pauses or closes.
    fn pass_on(&self, object: *mut ffi::PyObject) -> Result<(), Raised> {
        while self.may_pass_on() {
            // SAFETY: the thread is attached, and runs nothing while the guard lives.
            let first = unsafe { self.incoming.lock() }.pop_front();
            let Some((bytes, sender)) = first else { return Ok(()) };
            let passed = match self.method(&self.received, c"datagram_received") {
                Ok(Some(received)) => received.call(&[bytes.as_ptr(), sender.as_ptr()]).map(drop),
                Ok(None) => return Ok(()),
                Err(Raised) => Err(Raised),
            };
            if passed.is_err() {
                self.raised(object, "datagram_received")?;
            }
        }
        Ok(())
    }
}
