//! `Datagram`: the part of a datagram endpoint that runs for each message.
//!
//! `DatagramTransport` in `ropewalk.loop` adds what runs once for each endpoint. One system call receives all datagrams
//! that have come, and the protocol gets them one by one. A datagram is sent at once if none waits before it; those
//! that had to wait leave together. Sockets of other families than those of [`Address`], and addresses that have to be
//! resolved, are left to the socket object's own methods.
//!
//! [`Address`]: ropewalk_os::net::Address

pub(super) mod kind;
mod names;
mod queue;
mod receiving;
mod sending;

use std::cell::Cell;
use std::ops::Deref;

use pyo3_ffi as ffi;
use ropewalk_os::net::Family;

use super::loop_module::LoopModule;
use super::transport::{self, Behaviour, Transport, method_or_none};
use names::Names;
use queue::{Incoming, Queue};
use ropewalk_capi::guarded::Guarded;
use ropewalk_capi::heap::Field;
use ropewalk_capi::object::{Object, Raised};

/// The bits of its own state; those of every transport are among them.
mod bit {
    pub(super) use super::super::transport::bit::*;

    /// The socket has a peer.
    pub(super) const CONNECTED: u32 = OWN;
    /// The socket object's own methods receive and send.
    pub(super) const BY_OBJECT: u32 = OWN << 1;
    /// A timer will try again to send.
    pub(super) const RETRYING: u32 = OWN << 2;
}

#[repr(C)]
pub(super) struct Datagram {
    base: Transport,
    /// `datagram_received` and `error_received`.
    received: Field,
    failed: Field,
    /// The address that the endpoint was made for, if any.
    remote: Field,
    family: Cell<Option<Family>>,
    /// Received, and not passed on yet. They hold no reference that could be part of a cycle.
    incoming: Guarded<Incoming>,
    outgoing: Guarded<Queue>,
    names: Guarded<Names>,
}

impl Deref for Datagram {
    type Target = Transport;

    fn deref(&self) -> &Transport {
        &self.base
    }
}

impl AsRef<Transport> for Datagram {
    fn as_ref(&self) -> &Transport {
        &self.base
    }
}

unsafe fn datagram<'a>(object: *mut ffi::PyObject) -> &'a Datagram {
    // SAFETY: the caller has a live transport of this kind.
    unsafe { transport::content(object) }
}

// SAFETY: `repr(C)`, with the common part first.
unsafe impl Behaviour for Datagram {
    fn own_fields(&self) -> Vec<&Field> {
        vec![&self.received, &self.failed, &self.remote]
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
        self.send_waiting(object)
    }

    fn discard(&self) {
        // SAFETY: as above; what was taken is dropped after.
        let (left, received) = unsafe {
            let left = std::mem::take(&mut *self.outgoing.lock());
            (left, std::mem::take(&mut *self.incoming.lock()))
        };
        drop((left, received));
    }

    fn is_ready(&self) -> bool {
        self.may_read() || self.may_pass_on() || !(self.has(bit::BLOCKED) || self.is_empty())
    }

    fn run(&self, object: *mut ffi::PyObject) -> Result<(), Raised> {
        self.to_write(|| self.send_gathered(object))?;
        if self.is_detached() || self.has(bit::LOST) {
            return Ok(());
        }
        self.to_read(|| self.receive(object))
    }

    fn adopt(&self, _: &LoopModule, protocol: &Object) -> Result<(), Raised> {
        self.received.set(method_or_none(protocol, c"datagram_received")?);
        self.failed.set(method_or_none(protocol, c"error_received")?);
        Ok(())
    }
}

impl Datagram {
    /// Passes an error of the system, which is set, to the protocol; another exception ends the endpoint.
    fn report_error(&self, object: *mut ffi::PyObject, words: &str) -> Result<(), Raised> {
        // SAFETY: an exception is set, and the class is live.
        if unsafe { ffi::PyErr_ExceptionMatches(ffi::PyExc_OSError) } == 0 {
            return self.fatal(object, words);
        }
        let error = ropewalk_capi::object::take_exception();
        let Some(failed) = self.method(&self.failed, c"error_received")? else { return Ok(()) };
        failed.call(&[error.as_ptr()]).map(drop)
    }
}
