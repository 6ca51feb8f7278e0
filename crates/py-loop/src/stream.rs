//! `Stream`: the part of a socket's transport that runs for each message.
//!
//! `StreamTransport` in `ropewalk.loop` adds what runs once for each connection. A transport is registered with epoll
//! once, for edges in both directions, from its start to its end, so that pausing, resuming and waiting for room need
//! no system call. An edge sets a bit; the transport clears the bit when the socket has no more. The transport sends
//! what was written in one piece: after the callback of a read returns, or at the end of the turn.

pub(super) mod kind;
mod methods;

use std::cell::Cell;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::null_mut;

use pyo3_ffi as ffi;
use ropewalk_os::epoll::Event;
use ropewalk_os::stream as bytes;

use super::calling::{in_context, invoke, is_ending};
use super::core::{LoopCore, RECEIVE, none};
use super::descriptors::Waiter;
use super::item::Item;
use super::loop_module::LoopModule;
use super::number;
use super::outgoing::{Outgoing, Sent};
use super::reading;
use ropewalk_capi::errors::{fail, raise_os};
use ropewalk_capi::guarded::Guarded;
use ropewalk_capi::heap::Field;
use ropewalk_capi::object::{Kept, Object, Raised, take_exception};

/// asyncio's default: 64 KiB, and a quarter of it.
const HIGH: usize = 64 * 1024;
/// asyncio warns after this many writes to a lost connection.
const PATIENCE: u32 = 5;

/// The state of a transport, one bit for each property.
mod bit {
    /// Reported by an edge and not refused since: the transport may receive, or send.
    pub(super) const READABLE: u32 = 1;
    pub(super) const WRITABLE: u32 = 2;
    /// The peer has ended its side, or the connection is gone: the transport must read to the end.
    pub(super) const ENDING: u32 = 4;
    /// The transport is in the queue.
    pub(super) const QUEUED: u32 = 8;
    pub(super) const PAUSED: u32 = 16;
    pub(super) const CLOSING: u32 = 32;
    /// `write_eof` was called.
    pub(super) const EOF: u32 = 64;
    /// The peer's end was reported to the protocol.
    pub(super) const ENDED: u32 = 128;
    pub(super) const PROTOCOL_PAUSED: u32 = 256;
    /// Its protocol is a `BufferedProtocol`.
    pub(super) const BUFFERED: u32 = 512;
    /// A callback of a read runs; the transport sends what it has written afterwards.
    pub(super) const READING: u32 = 1024;
    pub(super) const STARTED: u32 = 2048;
    /// Its protocol is asyncio's for streams, and no subclass of it.
    pub(super) const STREAM_READER: u32 = 8192;
    /// The end has been scheduled or reached.
    pub(super) const LOST: u32 = 4096;
}

pub(super) struct Stream {
    owner: Field,
    socket: Field,
    fd: Cell<RawFd>,
    protocol: Field,
    /// `data_received`, or `buffer_updated`.
    received: Field,
    get_buffer: Field,
    /// The context of its callbacks.
    context: Field,
    server: Field,
    /// A future of `sendfile`, which waits until all data are sent.
    emptied: Field,
    bits: Cell<u32>,
    ignored: Cell<u32>,
    outgoing: Guarded<Outgoing>,
    high: Cell<usize>,
    low: Cell<usize>,
}

/// asyncio's transports with flow control have a slot `_extra`, and four for which this type has properties; our
/// content comes after.
#[repr(C)]
struct Layout {
    head: ffi::PyObject,
    extra: *mut ffi::PyObject,
    unused: [*mut ffi::PyObject; 4],
    content: Stream,
}

unsafe fn stream<'a>(object: *mut ffi::PyObject) -> &'a Stream {
    // SAFETY: the caller has a live transport.
    unsafe { &(*object.cast::<Layout>()).content }
}

impl Stream {
    fn has(&self, bits: u32) -> bool {
        self.bits.get() & bits != 0
    }

    fn set(&self, bits: u32) {
        self.bits.set(self.bits.get() | bits);
    }

    fn unset(&self, bits: u32) {
        self.bits.set(self.bits.get() & !bits);
    }

    fn core(&self) -> Result<&LoopCore, Raised> {
        let owner = self.owner.get();
        if owner.is_null() {
            return Err(fail(c"the transport is closed"));
        }
        // SAFETY: a live loop, which the transport holds.
        Ok(unsafe { LoopCore::of(owner) })
    }

    fn state(&self) -> Result<&LoopModule, Raised> {
        // SAFETY: the module's state lives as long as the loop.
        self.core().map(|core| unsafe { &*core.module })
    }

    /// On a free-threaded build only the loop's thread may use a transport; other threads get an error.
    fn check_thread(&self) -> Result<(), Raised> {
        #[cfg(Py_GIL_DISABLED)]
        if !self.owner.get().is_null() {
            let thread = self.core()?.thread();
            if thread != 0 && thread != super::status::this_thread() {
                return Err(fail(
                    c"a transport may only be used in the thread that runs its loop. Try loop.call_soon_threadsafe().",
                ));
            }
        }
        Ok(())
    }

    /// The socket, which must still have its number: if other code has closed it, the number may be another
    /// connection's by now.
    fn file(&self) -> io::Result<BorrowedFd<'_>> {
        let Ok(state) = self.state() else {
            // SAFETY: the thread is attached, and the exception is the one of `state`.
            unsafe { ffi::PyErr_Clear() };
            return Err(number::lost());
        };
        // SAFETY: an attached transport holds its socket; the thread holds no lock of its own here, and the kernel
        // checks the number.
        unsafe {
            if number::of(state, self.socket.get()) != Some(self.fd.get()) {
                return Err(number::lost());
            }
            Ok(BorrowedFd::borrow_raw(self.fd.get()))
        }
    }

    fn is_empty(&self) -> bool {
        // SAFETY: the thread is attached, and runs nothing while the guard lives.
        unsafe { self.outgoing.lock() }.is_empty()
    }

    fn size(&self) -> usize {
        // SAFETY: as above.
        unsafe { self.outgoing.lock() }.size()
    }

    /// Puts the transport into the queue, once.
    fn enqueue(&self, object: *mut ffi::PyObject) -> Result<(), Raised> {
        if !self.has(bit::QUEUED) {
            self.set(bit::QUEUED);
            // SAFETY: a live object.
            self.core()?.enqueue(Item::of_ready(unsafe { Object::share(object)? }.into_ptr()));
        }
        Ok(())
    }

    fn may_read(&self) -> bool {
        self.bits.get() & (bit::READABLE | bit::PAUSED | bit::CLOSING | bit::ENDED) == bit::READABLE
    }

    /// Reads once, and passes the bytes to the protocol.
    fn read(&self, object: *mut ffi::PyObject) -> Result<(), Raised> {
        if self.has(bit::BUFFERED) {
            return self.read_into_buffer(object);
        }
        let core = self.core()?;
        let buffer = core.receive_buffer();
        // SAFETY: the running thread's buffer, of that size; nothing runs between the two calls.
        let data = match self.file().and_then(|file| unsafe { bytes::recv(file, buffer, RECEIVE) }) {
            Ok(0) => return self.at_end(object),
            Ok(got) => {
                if got < RECEIVE && !self.has(bit::ENDING) {
                    self.unset(bit::READABLE);
                }
                // SAFETY: the kernel has written so many.
                Object::bytes(unsafe { std::slice::from_raw_parts(buffer, got) })?
            }
            Err(error) => return self.not_read(object, &error),
        };
        let context = self.context.get();
        self.set(bit::READING);
        // SAFETY: live objects.
        let result = unsafe { in_context(context, || self.deliver(&data)) };
        drop(data);
        self.received_or_fatal(object, result, "Fatal error: protocol.data_received() call failed.")
    }

    fn deliver(&self, data: &Object) -> *mut ffi::PyObject {
        if self.has(bit::STREAM_READER)
            && let Some(protocol) = self.protocol.share()
        {
            match self.state().and_then(|state| reading::feed(state, &protocol, data)) {
                Ok(Some(())) => return none(),
                Ok(None) => {}
                Err(Raised) => return null_mut(),
            }
        }
        let Some(received) = self.received.share() else { return none() };
        // SAFETY: live objects, one argument.
        unsafe { invoke(received.as_ptr(), data.as_ptr(), true) }
    }

    fn read_into_buffer(&self, object: *mut ffi::PyObject) -> Result<(), Raised> {
        let Some(get_buffer) = self.get_buffer.share() else { return Ok(()) };
        // SAFETY: live objects throughout; the view is released before anything can use the memory otherwise.
        unsafe {
            let wish = Object::own(ffi::PyLong_FromLong(-1))?;
            let mut view = ffi::Py_buffer::new();
            let buffer = Object::own(in_context(self.context.get(), || {
                invoke(get_buffer.as_ptr(), wish.as_ptr(), true)
            }))
            .and_then(|buffer| {
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
            let got = self.file().and_then(|file| bytes::recv(file, view.buf.cast(), room));
            ffi::PyBuffer_Release(&raw mut view);
            drop(buffer);
            let got = match got {
                Ok(0) => return self.at_end(object),
                Ok(got) => got,
                Err(error) => return self.not_read(object, &error),
            };
            if got < room && !self.has(bit::ENDING) {
                self.unset(bit::READABLE);
            }
            let count = Object::own(ffi::PyLong_FromSize_t(got))?;
            self.set(bit::READING);
            let result = in_context(self.context.get(), || self.deliver(&count));
            self.received_or_fatal(object, result, "Fatal error: protocol.buffer_updated() call failed.")
        }
    }

    fn received_or_fatal(
        &self,
        object: *mut ffi::PyObject,
        result: *mut ffi::PyObject,
        words: &str,
    ) -> Result<(), Raised> {
        self.unset(bit::READING);
        // SAFETY: a new reference, or null with an exception set.
        match unsafe { Object::own(result) } {
            Ok(result) => {
                drop(result);
                if self.is_empty() { Ok(()) } else { self.flush(object) }
            }
            Err(Raised) => self.fatal(object, words),
        }
    }

    fn not_read(&self, object: *mut ffi::PyObject, error: &io::Error) -> Result<(), Raised> {
        if error.kind() == io::ErrorKind::WouldBlock {
            self.unset(bit::READABLE);
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
        let keep = unsafe {
            in_context(self.context.get(), || {
                ffi::PyObject_CallMethodNoArgs(protocol.as_ptr(), names.eof_received)
            })
        };
        // SAFETY: a new reference, or null with an exception set.
        let keep = unsafe { Object::own(keep) }.and_then(|keep| {
            // SAFETY: a live object.
            let truth = unsafe { ffi::PyObject_IsTrue(keep.as_ptr()) };
            if truth < 0 { Err(Raised) } else { Ok(truth != 0) }
        });
        match keep {
            Ok(true) => {
                if self.is_empty() {
                    Ok(())
                } else {
                    self.flush(object)
                }
            }
            Ok(false) => self.close(object),
            Err(Raised) => self.fatal(object, "Fatal error: protocol.eof_received() call failed."),
        }
    }

    /// An exception is set: it ends the connection, unless it ends the loop.
    fn fatal(&self, object: *mut ffi::PyObject, words: &str) -> Result<(), Raised> {
        if is_ending() {
            return Err(Raised);
        }
        let error = take_exception();
        if self.owner.get().is_null() {
            return Ok(());
        }
        let words = ropewalk_capi::object::text(words)?;
        let arguments = [object, error.as_ptr(), words.as_ptr()];
        let name = self.state()?.names.fatal_error;
        // SAFETY: live objects.
        unsafe { Object::own(ffi::PyObject_VectorcallMethod(name, arguments.as_ptr(), 3, null_mut())) }
            .map(drop)
    }

    /// Sends the waiting data, and continues what waits for that.
    fn flush(&self, object: *mut ffi::PyObject) -> Result<(), Raised> {
        let mut done = Vec::new();
        // SAFETY: the thread is attached, and runs nothing while the guard lives.
        let sent = self.file().and_then(|file| unsafe { self.outgoing.lock() }.send(file, &mut done));
        drop(done);
        match sent {
            Ok(sent) => {
                self.unset(bit::WRITABLE);
                self.after_sending(object, sent)
            }
            Err(error) => {
                // SAFETY: as above.
                drop(unsafe { self.outgoing.lock() }.take());
                raise_os(&error);
                if let Some(waiter) = self.emptied.share() {
                    let kept = Kept::take();
                    kept.put_back();
                    let error = take_exception();
                    self.set_future(&waiter, Some(&error))?;
                    // SAFETY: a live exception.
                    unsafe {
                        ffi::PyErr_SetObject(ffi::Py_TYPE(error.as_ptr()).cast(), error.as_ptr());
                    }
                }
                self.fatal(object, "Fatal write error on socket transport")
            }
        }
    }

    fn after_sending(&self, object: *mut ffi::PyObject, sent: Sent) -> Result<(), Raised> {
        if self.has(bit::PROTOCOL_PAUSED) && self.size() <= self.low.get() {
            self.unset(bit::PROTOCOL_PAUSED);
            let name = self.state()?.names.resume_protocol;
            // SAFETY: a live transport.
            unsafe { Object::own(ffi::PyObject_CallMethodNoArgs(object, name))? };
        }
        if sent == Sent::Some || !self.is_empty() {
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

    fn set_future(&self, future: &Object, error: Option<&Object>) -> Result<(), Raised> {
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

    fn shut_down(&self) -> Result<(), Raised> {
        match self.file().and_then(ropewalk_os::stream::shut_down_sending) {
            Ok(()) => Ok(()),
            // The peer may have gone meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            Err(error) => Err(raise_os(&error)),
        }
    }

    fn close(&self, object: *mut ffi::PyObject) -> Result<(), Raised> {
        if self.has(bit::CLOSING) {
            return Ok(());
        }
        self.set(bit::CLOSING);
        if !self.is_empty() {
            // Data written in this turn is sent now; the rest when there is room.
            self.flush(object)?;
        }
        if self.is_empty() { self.lose(object, &Object::none()) } else { Ok(()) }
    }

    /// Schedules the end.
    fn lose(&self, object: *mut ffi::PyObject, error: &Object) -> Result<(), Raised> {
        if self.has(bit::LOST) || self.owner.get().is_null() {
            return Ok(());
        }
        self.set(bit::LOST | bit::CLOSING);
        // SAFETY: as of `flush`.
        drop(unsafe { self.outgoing.lock() }.take());
        let core = self.core()?;
        core.leave(self.fd.get(), Waiter::Stream, object);
        let name = self.state()?.names.schedule_connection_lost;
        let arguments = [object, error.as_ptr()];
        // SAFETY: live objects.
        unsafe { Object::own(ffi::PyObject_VectorcallMethod(name, arguments.as_ptr(), 2, null_mut())) }
            .map(drop)
    }

    fn write(&self, object: *mut ffi::PyObject, data: Object) -> Result<(), Raised> {
        if data.as_bytes().is_none_or(<[u8]>::is_empty) {
            return Ok(());
        }
        if self.has(bit::LOST) {
            self.ignored.set(self.ignored.get() + 1);
            if self.ignored.get() > PATIENCE {
                // SAFETY: a live transport.
                unsafe {
                    Object::own(ffi::PyObject_CallMethodNoArgs(object, self.state()?.names.warn_lost))?
                };
            }
            return Ok(());
        }
        let size = {
            // SAFETY: as of `flush`.
            let mut outgoing = unsafe { self.outgoing.lock() };
            outgoing.push(data);
            outgoing.size()
        };
        if size <= self.high.get() && self.has(bit::STARTED) {
            // After the callback that writes, or at the end of the turn.
            return if self.has(bit::READING) { Ok(()) } else { self.enqueue(object) };
        }
        self.flush(object)?;
        self.pause_if_full(object)
    }

    fn pause_if_full(&self, object: *mut ffi::PyObject) -> Result<(), Raised> {
        if self.size() <= self.high.get() || self.has(bit::PROTOCOL_PAUSED) || self.owner.get().is_null() {
            return Ok(());
        }
        self.set(bit::PROTOCOL_PAUSED);
        let name = self.state()?.names.pause_protocol;
        // SAFETY: a live transport.
        unsafe { Object::own(ffi::PyObject_CallMethodNoArgs(object, name))? };
        Ok(())
    }

    fn check_writable(&self, what: &str) -> Result<(), Raised> {
        let say = |text: String| {
            let text = std::ffi::CString::new(text).unwrap_or_default();
            Err(fail(&text))
        };
        self.check_thread()?;
        if self.has(bit::EOF) {
            return say(format!("Cannot call {what}() after write_eof()"));
        }
        if !self.emptied.get().is_null() {
            return say(format!("unable to {what}; sendfile is in progress"));
        }
        Ok(())
    }
}

/// Records an event; returns whether the transport must be put into the queue.
///
/// # Safety
///
/// A live transport; called with the table of descriptors guarded.
pub(super) unsafe fn note(object: *mut ffi::PyObject, event: Event) -> bool {
    // SAFETY: the caller's.
    let this = unsafe { stream(object) };
    if event.is_readable() {
        this.set(bit::READABLE);
    }
    if event.is_writable() {
        this.set(bit::WRITABLE);
    }
    if event.is_at_end() {
        this.set(bit::ENDING);
    }
    let ready = this.may_read() || (this.has(bit::WRITABLE) && !this.is_empty());
    if !ready || this.has(bit::QUEUED) {
        return false;
    }
    this.set(bit::QUEUED);
    true
}

/// Sends the waiting data.
///
/// # Safety
///
/// A live transport, in the thread that runs its loop.
pub(super) unsafe fn send(object: *mut ffi::PyObject) -> Result<(), Raised> {
    // SAFETY: the caller's.
    let this = unsafe { stream(object) };
    if this.is_empty() || this.owner.get().is_null() { Ok(()) } else { this.flush(object) }
}

/// Does what can be done at once: sends, and reads.
///
/// # Safety
///
/// A live transport, in the thread that runs its loop.
pub(super) unsafe fn run(core: &LoopCore, object: *mut ffi::PyObject) -> Result<(), Raised> {
    // SAFETY: the caller's.
    let this = unsafe { stream(object) };
    this.unset(bit::QUEUED);
    if this.owner.get().is_null() || this.has(bit::LOST) {
        return Ok(());
    }
    let _ = core;
    if !this.is_empty() {
        this.flush(object)?;
    }
    if this.may_read() {
        this.read(object)?;
        // There is more: after all other items of the queue.
        if this.may_read() && !this.owner.get().is_null() {
            this.enqueue(object)?;
        }
    }
    Ok(())
}
