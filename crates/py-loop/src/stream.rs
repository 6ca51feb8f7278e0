//! `Stream`: the part of a socket's transport that runs for each message.
//!
//! `sending` is about writes, `opening` about what runs once for each connection. `StreamTransport` in `ropewalk.loop`
//! adds what is rare.

pub(super) mod bare;
mod files;
mod gather;
pub(super) mod kind;
mod methods;
pub(super) mod opening;
mod sending;

use std::cell::Cell;
use std::io;
use std::ops::Deref;
use std::os::fd::BorrowedFd;
use std::ptr::null_mut;

use pyo3_ffi as ffi;
use ropewalk_os::stream as bytes;

use super::calling::invoke;
use super::clock::now;
use super::core::{LoopCore, RECEIVE, none};
use super::loop_module::LoopModule;
use super::outgoing::Outgoing;
use super::reading::{self, Fed};
use super::received::new_bytes;
use super::transport::{self, Behaviour, Transport, method_or_none};
use bare::Bare;
use gather::Gather;
use ropewalk_capi::errors::{fail, raise_os};
use ropewalk_capi::guarded::Guarded;
use ropewalk_capi::heap::Field;
use ropewalk_capi::object::{Kept, Object, Raised};

/// The most bytes that are received at once for a `StreamReader`: its usual limit. With more, its buffer and the pieces
/// that it returns would be so large that malloc gives their pages back each time.
const FOR_READERS: usize = 64 * 1024;
/// From so many bytes on it pays to receive into the memory of the object that a read returns.
const MUCH: usize = FOR_READERS / 2;
const FEEDING: &str = "Fatal error: protocol.data_received() call failed.";

/// The bits of a stream's own state; those of every transport are among them.
mod bit {
    pub(super) use super::super::transport::bit::*;

    /// `write_eof` was called.
    pub(super) const EOF: u32 = OWN;
    /// Its protocol is a `BufferedProtocol`.
    pub(super) const BUFFERED: u32 = OWN << 1;
    /// Its protocol is asyncio's for streams, and no subclass of it.
    pub(super) const STREAM_READER: u32 = OWN << 2;
    /// The program cannot see when the transport sends: a server has accepted the connection, and nobody has asked for
    /// the number of its descriptor. So the transport may gather what a callback writes.
    pub(super) const MAY_GATHER: u32 = OWN << 3;
    /// Whether the socket speaks TCP was asked for, and it does not.
    pub(super) const KIND_KNOWN: u32 = OWN << 4;
    pub(super) const NOT_TCP: u32 = OWN << 5;
}

#[repr(C)]
pub(super) struct Stream {
    base: Transport,
    /// `data_received`, or `buffer_updated`.
    received: Field,
    get_buffer: Field,
    server: Field,
    /// The connection of a server until a program asks for its socket.
    bare: Cell<Option<Bare>>,
    /// A future of `sendfile`, which waits until all data are sent.
    emptied: Field,
    outgoing: Guarded<Outgoing>,
    gather: Gather,
    /// The last receive for a reader got much, and so will the next.
    much: Cell<bool>,
}

impl Deref for Stream {
    type Target = Transport;

    fn deref(&self) -> &Transport {
        &self.base
    }
}

impl AsRef<Transport> for Stream {
    fn as_ref(&self) -> &Transport {
        &self.base
    }
}

/// The content of a socket's transport.
///
/// # Safety
///
/// A live transport of this kind, which stays so while the reference is used.
pub(super) unsafe fn stream<'a>(object: *mut ffi::PyObject) -> &'a Stream {
    // SAFETY: the caller's.
    unsafe { transport::content(object) }
}

// SAFETY: `repr(C)`, with the common part first.
unsafe impl Behaviour for Stream {
    fn own_fields(&self) -> Vec<&Field> {
        vec![&self.received, &self.get_buffer, &self.server, &self.emptied]
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
        self.send(object)
    }

    fn discard(&self) {
        // SAFETY: as above; what was taken is dropped after.
        let left = unsafe { self.outgoing.lock() }.take();
        drop(left);
    }

    fn is_ready(&self) -> bool {
        self.may_read() || (!self.has(bit::BLOCKED) && !self.is_empty())
    }

    fn run(&self, object: *mut ffi::PyObject) -> Result<(), Raised> {
        if !self.has(bit::BLOCKED) && !self.is_empty() {
            self.to_write(|| self.flush(object))?;
        }
        if self.may_read() {
            match self.expected.reading()? {
                Some(reading) => self.read_for(object, &reading)?,
                None => self.to_read(|| self.read(object))?,
            }
            // There is more: after all other items of the queue.
            if self.may_read() && !self.is_detached() {
                self.enqueue(object)?;
            }
        }
        Ok(())
    }

    fn leave(&self, object: *mut ffi::PyObject) -> Result<(), Raised> {
        self.leave_all(object)
    }

    fn make_file(&self, object: *mut ffi::PyObject) -> Result<(), Raised> {
        self.make_socket(object)
    }

    fn close_bare(&self, object: *mut ffi::PyObject) {
        self.close_connection(object);
    }

    fn adopt(&self, state: &LoopModule, protocol: &Object) -> Result<(), Raised> {
        // SAFETY: live objects.
        let derived = unsafe { ffi::PyObject_IsInstance(protocol.as_ptr(), state.buffered_protocol) };
        if derived < 0 {
            return Err(Raised);
        }
        self.unset(bit::STREAM_READER);
        self.expected.clear();
        // SAFETY: a live object.
        if unsafe { ffi::Py_TYPE(protocol.as_ptr()) }.cast() == state.reader_protocol {
            self.set(bit::STREAM_READER);
        }
        let received =
            if derived == 0 { method_or_none(protocol, c"data_received")? } else { Object::none() };
        // A class that only looks like a `BufferedProtocol` fails on asyncio with its first bytes; uvloop takes it.
        let get_buffer =
            if received.is_none() { method_or_none(protocol, c"get_buffer")? } else { Object::none() };
        if derived == 0 && get_buffer.is_none() {
            self.unset(bit::BUFFERED);
            self.received.set(received);
            drop(self.get_buffer.take());
        } else {
            self.set(bit::BUFFERED);
            self.get_buffer.set(get_buffer);
            self.received.set(method_or_none(protocol, c"buffer_updated")?);
        }
        Ok(())
    }
}

impl Stream {
    /// Reads once, and passes the bytes to the protocol.
    fn read(&self, object: *mut ffi::PyObject) -> Result<(), Raised> {
        if self.has(bit::BUFFERED) {
            return self.read_into_buffer(object);
        }
        let core = self.core()?;
        let buffer = core.receive_buffer();
        let most = if self.has(bit::STREAM_READER) { FOR_READERS } else { RECEIVE };
        // SAFETY: the running thread's buffer, which is not smaller; nothing runs between the two calls.
        let data = match self.file().and_then(|file| unsafe { self.recv(file, buffer, most) }) {
            Ok(0) => return self.at_end(object),
            Ok(got) => {
                // SAFETY: the kernel has written so many. They are copied before this thread receives again.
                unsafe { std::slice::from_raw_parts(buffer, got) }
            }
            Err(error) => return self.not_read(object, &error),
        };
        self.much.set(data.len() >= MUCH);
        self.give(object, data)
    }

    /// Passes received bytes to the protocol.
    fn give(&self, object: *mut ffi::PyObject, data: &[u8]) -> Result<(), Raised> {
        if self.has(bit::STREAM_READER)
            && let Some(protocol) = self.protocol.share()
        {
            match self.state().and_then(|state| reading::feed(state, &protocol, data)) {
                Ok(Fed::Reader(reader)) => {
                    self.expected.set_reader(reader);
                    return Ok(());
                }
                Ok(Fed::Nobody) => return Ok(()),
                Ok(Fed::Other) => self.expected.set_reader(null_mut()),
                Err(Raised) => return self.fatal(object, FEEDING),
            }
        }
        let data = Object::bytes(data)?;
        let result = self.deliver(&data);
        drop(data);
        self.received_or_fatal(object, result, FEEDING)
    }

    /// Receives for a read that waits. Its bytes go from the kernel to it, past the protocol and the reader's buffer.
    /// So the context is entered only where the protocol has a part in it.
    fn read_for(&self, object: *mut ffi::PyObject, reading: &Object) -> Result<(), Raised> {
        let core = self.core()?;
        // SAFETY: only a read is expected.
        let wish = unsafe { reading::wish(reading, FOR_READERS) };
        if self.much.get() && wish >= MUCH {
            return self.read_much_for(object, reading, wish);
        }
        let buffer = core.receive_buffer();
        // SAFETY: the running thread's buffer, which is not smaller; nothing runs between the two calls.
        let got = match self.file().and_then(|file| unsafe { self.recv(file, buffer, FOR_READERS) }) {
            Ok(got) => got,
            Err(error) => return self.to_read(|| self.not_read(object, &error)),
        };
        if got == 0 {
            return self.to_read(|| self.at_end(object));
        }
        // SAFETY: the kernel has written so many. They are copied before this thread receives again.
        let data = unsafe { std::slice::from_raw_parts(buffer, got) };
        let most = wish.min(got);
        let rest = match self.hand_over(reading, got, || Object::bytes(&data[..most])) {
            Ok(true) => &data[most..],
            Ok(false) => data,
            Err(Raised) => return self.to_read(|| self.fatal(object, FEEDING)),
        };
        self.much.set(got >= MUCH);
        if rest.is_empty() { Ok(()) } else { self.to_read(|| self.give(object, rest)) }
    }

    /// The same, into the memory of a new `bytes` object of this size.
    fn read_much_for(&self, object: *mut ffi::PyObject, reading: &Object, size: usize) -> Result<(), Raised> {
        let received = new_bytes(size, |start| {
            // SAFETY: memory of that size.
            self.file().and_then(|file| unsafe { self.recv(file, start, size) }).map(|got| (got, ()))
        })?;
        let (data, got) = match received {
            Ok((_, 0, ())) => return self.to_read(|| self.at_end(object)),
            Ok((data, got, ())) => (data, got),
            Err(error) => return self.to_read(|| self.not_read(object, &error)),
        };
        self.much.set(got >= MUCH);
        match self.hand_over(reading, got, || Ok(data.clone())) {
            Ok(true) => Ok(()),
            Ok(false) => self.to_read(|| self.give(object, data.as_bytes().unwrap_or_default())),
            Err(Raised) => self.to_read(|| self.fatal(object, FEEDING)),
        }
    }

    /// Ends the wait of a read with its part of so many received bytes; returns whether it has taken it.
    fn hand_over(
        &self,
        reading: &Object,
        got: usize,
        part: impl FnOnce() -> Result<Object, Raised>,
    ) -> Result<bool, Raised> {
        self.expected.withdraw(reading.as_ptr());
        // SAFETY: only a read is expected.
        unsafe { reading::hand_over(self.state()?, reading, got, part) }
    }

    /// Receives, and notes whether that has emptied the socket: so it is after a short read, unless there may be a
    /// border in what has arrived.
    ///
    /// # Safety
    ///
    /// As of [`bytes::recv`].
    unsafe fn recv(&self, file: BorrowedFd<'_>, buffer: *mut u8, most: usize) -> io::Result<usize> {
        if !self.has(bit::KIND_KNOWN) {
            self.set(if bytes::is_tcp(file) { bit::KIND_KNOWN } else { bit::KIND_KNOWN | bit::NOT_TCP });
        }
        // SAFETY: the caller's.
        let (got, border) = unsafe {
            if self.has(bit::NOT_TCP) {
                bytes::recv_to_border(file, buffer, most)?
            } else {
                (bytes::recv(file, buffer, most)?, false)
            }
        };
        if got < most && !border && !self.has(bit::ENDING | bit::URGENT) {
            self.unset(bit::READABLE);
        }
        Ok(got)
    }

    fn deliver(&self, data: &Object) -> *mut ffi::PyObject {
        let name = if self.has(bit::BUFFERED) { c"buffer_updated" } else { c"data_received" };
        let received = match self.method(&self.received, name) {
            Ok(Some(received)) => received,
            Ok(None) => return none(),
            Err(Raised) => return null_mut(),
        };
        // SAFETY: live objects, one argument.
        unsafe { invoke(received.as_ptr(), data.as_ptr(), true) }
    }

    fn read_into_buffer(&self, object: *mut ffi::PyObject) -> Result<(), Raised> {
        let get_buffer = match self.method(&self.get_buffer, c"get_buffer") {
            Ok(Some(get_buffer)) => get_buffer,
            Ok(None) => return Ok(()),
            Err(Raised) => return self.fatal(object, "Fatal error: protocol.get_buffer() call failed."),
        };
        // SAFETY: live objects throughout; the view is released before anything can use the memory otherwise.
        unsafe {
            let wish = Object::own(ffi::PyLong_FromLong(-1))?;
            let mut view = ffi::Py_buffer::new();
            let buffer = Object::own(invoke(get_buffer.as_ptr(), wish.as_ptr(), true)).and_then(|buffer| {
                if ffi::PyObject_GetBuffer(buffer.as_ptr(), &raw mut view, ffi::PyBUF_WRITABLE) != 0 {
                    return Err(Raised);
                }
                if view.len == 0 {
                    ffi::PyBuffer_Release(&raw mut view);
                    return Err(fail(c"get_buffer() returned an empty buffer"));
                }
                Ok(buffer)
            });
            let Ok(buffer) = buffer else {
                return self.fatal(object, "Fatal error: protocol.get_buffer() call failed.");
            };
            let room = usize::try_from(view.len).unwrap_or(0);
            let got = self.file().and_then(|file| self.recv(file, view.buf.cast(), room));
            ffi::PyBuffer_Release(&raw mut view);
            drop(buffer);
            let got = match got {
                Ok(0) => return self.at_end(object),
                Ok(got) => got,
                Err(error) => return self.not_read(object, &error),
            };
            let count = Object::own(ffi::PyLong_FromSize_t(got))?;
            let result = self.deliver(&count);
            self.received_or_fatal(object, result, "Fatal error: protocol.buffer_updated() call failed.")
        }
    }

    fn received_or_fatal(
        &self,
        object: *mut ffi::PyObject,
        result: *mut ffi::PyObject,
        words: &str,
    ) -> Result<(), Raised> {
        // SAFETY: a new reference, or null with an exception set.
        match unsafe { Object::own(result) } {
            Ok(result) => {
                drop(result);
                Ok(())
            }
            Err(Raised) => {
                // What was written before goes out, whether the exception ends the connection or the loop.
                let kept = Kept::take();
                if let Err(Raised) = self.send_gathered(object) {
                    kept.discard();
                    return Err(Raised);
                }
                kept.put_back();
                self.fatal(object, words)
            }
        }
    }

    fn not_read(&self, object: *mut ffi::PyObject, error: &io::Error) -> Result<(), Raised> {
        if error.kind() == io::ErrorKind::WouldBlock {
            self.unset(bit::READABLE | bit::URGENT);
            return Ok(());
        }
        raise_os(error);
        self.fatal(object, "Fatal read error on socket transport")
    }

    /// Handles that the peer has ended its side.
    fn at_end(&self, object: *mut ffi::PyObject) -> Result<(), Raised> {
        self.set(bit::ENDED);
        self.unset(bit::READABLE);
        let names = &self.state()?.names;
        let Some(protocol) = self.protocol.share() else { return Ok(()) };
        // SAFETY: live objects.
        let keep = unsafe { ffi::PyObject_CallMethodNoArgs(protocol.as_ptr(), names.eof_received) };
        // SAFETY: a new reference, or null with an exception set.
        let keep = unsafe { Object::own(keep) }.and_then(|keep| {
            // SAFETY: a live object.
            let truth = unsafe { ffi::PyObject_IsTrue(keep.as_ptr()) };
            if truth < 0 { Err(Raised) } else { Ok(truth != 0) }
        });
        match keep {
            Ok(true) => Ok(()),
            Ok(false) => self.close(object),
            Err(Raised) => self.fatal(object, "Fatal error: protocol.eof_received() call failed."),
        }
    }
}

/// The callback has ended for whose end a transport waits. An exception may be set, and is kept.
pub(super) fn callback_ended(core: &LoopCore) -> Result<(), Raised> {
    let Some(object) = core.writing.take() else { return Ok(()) };
    // SAFETY: the thread is attached.
    let kept = unsafe { !ffi::PyErr_Occurred().is_null() }.then(Kept::take);
    // SAFETY: a live transport of this kind, which no other writes there.
    let this = unsafe { stream(object.as_ptr()) };
    this.gather.ended(now());
    let sent =
        if this.is_detached() { Ok(()) } else { this.to_write(|| this.send_gathered(object.as_ptr())) };
    drop(object);
    match kept {
        Some(kept) if sent.is_err() => kept.discard(),
        Some(kept) => kept.put_back(),
        None => {}
    }
    sent
}
