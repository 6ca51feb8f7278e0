//! What all transports have in common: their loop and their file, flow control, pausing, and their end.
//!
//! The content of each kind of transport begins with a [`Transport`], and its [`Behaviour`] says what the kind does in
//! its own way. A transport is registered with epoll once, for edges in both directions, from its start to its end, so
//! that pausing, resuming and waiting for room need no system call. An edge sets a bit; the transport clears the bit
//! when its file has no more, or takes no more.

mod ending;
pub(super) mod kind;
pub(super) mod methods;

use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::null_mut;

use pyo3_ffi as ffi;
use ropewalk_os::epoll::Event;

use super::calling::{is_ending, within};
use super::core::LoopCore;
use super::descriptors::Waiter;
use super::expected::Expected;
use super::item::Item;
use super::loop_module::{LoopModule, MODULE};
use super::number;
use ropewalk_capi::errors::fail;
use ropewalk_capi::heap::Field;
use ropewalk_capi::object::{Object, Raised, take_exception, text};

/// asyncio's default: 64 KiB, and a quarter of it.
const HIGH: usize = 64 * 1024;
/// asyncio warns after this many writes to a lost connection.
const PATIENCE: u32 = 5;

/// The state of a transport, one bit for each property.
pub(super) mod bit {
    /// Reported by an edge and not refused since: the transport may receive.
    pub(crate) const READABLE: u32 = 1;
    /// The file has refused data, and no edge has reported room since: the transport may not send.
    pub(crate) const BLOCKED: u32 = 2;
    /// The peer has ended its side, or the connection is gone: the transport must read to the end.
    pub(crate) const ENDING: u32 = 4;
    /// The transport is in the queue.
    pub(crate) const QUEUED: u32 = 8;
    pub(crate) const PAUSED: u32 = 16;
    pub(crate) const CLOSING: u32 = 32;
    /// The peer's end was reported to the protocol.
    pub(crate) const ENDED: u32 = 64;
    pub(crate) const PROTOCOL_PAUSED: u32 = 128;
    /// More would be sent at once, but the other callbacks of the loop come first: the transport is in the queue.
    pub(crate) const HELD: u32 = 256;
    pub(crate) const STARTED: u32 = 512;
    /// The end has been scheduled or reached.
    pub(crate) const LOST: u32 = 1024;
    /// Urgent data have come, and the transport has not read to the end of what has arrived: a short read may have
    /// stopped before them.
    pub(crate) const URGENT: u32 = 2048;
    /// There is no object of the file: the transport owns the descriptor itself.
    pub(crate) const BARE: u32 = 4096;
    /// The first bit that a kind of transport may use for itself.
    pub(crate) const OWN: u32 = 1 << 16;
}

/// What one kind of transport does in its own way.
///
/// # Safety
///
/// The type is `repr(C)`, and begins with a [`Transport`].
pub(super) unsafe trait Behaviour: AsRef<Transport> + 'static {
    /// The references of this kind, beside those that all have.
    fn own_fields(&self) -> Vec<&Field>;

    /// Bytes that were written and have not left.
    fn size(&self) -> usize;

    /// Whether nothing waits to be sent.
    fn is_empty(&self) -> bool;

    /// Sends what waits, as far as there is room, and continues what waits for that.
    fn flush(&self, object: *mut ffi::PyObject) -> Result<(), Raised>;

    /// Drops what waits to be sent.
    fn discard(&self);

    /// Whether it can do something with what the last edges have reported.
    fn is_ready(&self) -> bool;

    /// Does what can be done at once: sends, and reads.
    fn run(&self, object: *mut ffi::PyObject) -> Result<(), Raised>;

    /// Undoes what its making has done beside the file: the transport is about to drop its references.
    fn leave(&self, _: *mut ffi::PyObject) -> Result<(), Raised> {
        Ok(())
    }

    /// Makes the object of the file if there is none yet.
    fn make_file(&self, _: *mut ffi::PyObject) -> Result<(), Raised> {
        Ok(())
    }

    /// Closes a file of which there is no object.
    fn close_bare(&self, _: *mut ffi::PyObject) {}

    /// Looks up the methods of a new protocol.
    fn adopt(&self, state: &LoopModule, protocol: &Object) -> Result<(), Raised>;
}

/// Finds the behaviour of a live transport of one kind.
type Finder = unsafe fn(*mut ffi::PyObject) -> &'static dyn Behaviour;

/// The beginning of every transport's content.
#[repr(C)]
pub(super) struct Transport {
    behaviour: Finder,
    pub(super) owner: Field,
    /// The socket or pipe object, which the transport closes; null if it is `BARE`.
    pub(super) socket: Field,
    pub(super) fd: Cell<RawFd>,
    /// Its place among those who wait for the descriptor.
    place: Waiter,
    pub(super) protocol: Field,
    /// The context in which it reads: of its making, or of the last `resume_reading`.
    pub(super) context: Field,
    /// The context in which it sends what waits: of the write that was refused first. None while nothing waits.
    pub(super) write_context: Field,
    pub(super) bits: Cell<u32>,
    ignored: Cell<u32>,
    /// Only streams feed readers.
    pub(super) expected: Expected,
    pub(super) high: Cell<usize>,
    pub(super) low: Cell<usize>,
}

/// asyncio's transports with flow control have a slot `_extra`, and four for which our types have properties; our
/// content comes after.
#[repr(C)]
struct Layout<T> {
    head: ffi::PyObject,
    extra: *mut ffi::PyObject,
    unused: [*mut ffi::PyObject; 4],
    content: T,
}

/// The content of a transport.
///
/// # Safety
///
/// A live transport whose content is a `T`, which stays so while the reference is used.
pub(super) unsafe fn content<'a, T: Behaviour>(object: *mut ffi::PyObject) -> &'a T {
    // SAFETY: the caller's.
    unsafe { &(*object.cast::<Layout<T>>()).content }
}

/// The common part of a transport.
///
/// # Safety
///
/// A live transport of any kind, which stays so while the reference is used.
pub(super) unsafe fn transport<'a>(object: *mut ffi::PyObject) -> &'a Transport {
    // SAFETY: the caller's; every content begins with it, and has its alignment (see `Behaviour`).
    unsafe { &(*object.cast::<Layout<Transport>>()).content }
}

/// Sets what its `get_extra_info` looks up.
///
/// # Safety
///
/// As of [`transport`].
pub(super) unsafe fn set_extra(object: *mut ffi::PyObject, extra: Object) {
    // SAFETY: the caller's; asyncio's slot holds a reference, or null.
    unsafe {
        let layout = object.cast::<Layout<Transport>>();
        ffi::Py_XDECREF(std::mem::replace(&mut (*layout).extra, extra.into_ptr()));
    }
}

/// What its `get_extra_info` looks up, if that is known.
///
/// # Safety
///
/// As of [`transport`].
pub(super) unsafe fn extra(object: *mut ffi::PyObject) -> Option<Object> {
    // SAFETY: the caller's; asyncio's slot holds a reference, or null.
    unsafe {
        let extra = (*object.cast::<Layout<Transport>>()).extra;
        if extra.is_null() { None } else { Object::share(extra).ok() }
    }
}

unsafe fn behaviour<'a>(object: *mut ffi::PyObject) -> &'a dyn Behaviour {
    // SAFETY: the caller has a live transport, for which the finder was made.
    unsafe { (transport(object).behaviour)(object) }
}

unsafe fn find<T: Behaviour>(object: *mut ffi::PyObject) -> &'static dyn Behaviour {
    // SAFETY: the caller's; `behaviour` shortens the lifetime.
    unsafe { content::<T>(object) }
}

impl Transport {
    /// The common part of a transport whose content is a `T`.
    pub(super) fn new<T: Behaviour>(place: Waiter) -> Self {
        const { assert!(align_of::<T>() == align_of::<Self>(), "the common part has one place in all kinds") };
        Self {
            behaviour: find::<T>,
            owner: Field::empty(),
            socket: Field::empty(),
            fd: Cell::new(-1),
            place,
            protocol: Field::empty(),
            context: Field::empty(),
            write_context: Field::empty(),
            bits: Cell::new(0),
            ignored: Cell::new(0),
            expected: Expected::new(),
            high: Cell::new(HIGH),
            low: Cell::new(HIGH / 4),
        }
    }

    /// Gives a fresh transport its loop, its file and its protocol.
    ///
    /// # Safety
    ///
    /// Live objects; `object` is this transport, and `owner` a loop.
    pub(super) unsafe fn attach(
        &self,
        object: *mut ffi::PyObject,
        owner: *mut ffi::PyObject,
        file: *mut ffi::PyObject,
        protocol: *mut ffi::PyObject,
    ) -> Result<(), Raised> {
        // SAFETY: the caller's.
        unsafe {
            let fd = match number::of(&*LoopCore::of(owner).module, file) {
                Some(fd) => fd,
                // The error.
                None => ffi::PyObject_AsFileDescriptor(file),
            };
            if fd < 0 {
                return Err(Raised);
            }
            self.socket.set(Object::share(file)?);
            self.attach_to(object, owner, fd, protocol)
        }
    }

    /// Gives a fresh transport its loop, the number of its file, and its protocol.
    ///
    /// # Safety
    ///
    /// As of [`attach`](Self::attach).
    pub(super) unsafe fn attach_to(
        &self,
        object: *mut ffi::PyObject,
        owner: *mut ffi::PyObject,
        fd: RawFd,
        protocol: *mut ffi::PyObject,
    ) -> Result<(), Raised> {
        // SAFETY: the caller's.
        unsafe {
            self.fd.set(fd);
            self.context.set(Object::own(ffi::PyContext_CopyCurrent())?);
            self.owner.set(Object::share(owner)?);
            self.adopt(object, Object::share(protocol)?)
        }
    }

    /// Gives it another protocol. Also after the end: asyncio's sendfile restores the protocol that it found.
    fn adopt(&self, object: *mut ffi::PyObject, protocol: Object) -> Result<(), Raised> {
        // SAFETY: a live transport.
        unsafe {
            let Some(state) = MODULE.state_of_base(ffi::Py_TYPE(object)) else {
                return Err(fail(c"no module"));
            };
            behaviour(object).adopt(state, &protocol)?;
        }
        self.protocol.set(protocol);
        Ok(())
    }

    pub(super) fn has(&self, bits: u32) -> bool {
        self.bits.get() & bits != 0
    }

    pub(super) fn set(&self, bits: u32) {
        self.bits.set(self.bits.get() | bits);
    }

    pub(super) fn unset(&self, bits: u32) {
        self.bits.set(self.bits.get() & !bits);
    }

    /// Whether it has ended, and has no loop any more.
    pub(super) fn is_detached(&self) -> bool {
        self.owner.get().is_null()
    }

    pub(super) fn core(&self) -> Result<&LoopCore, Raised> {
        let owner = self.owner.get();
        if owner.is_null() {
            return Err(fail(c"the transport is closed"));
        }
        // SAFETY: a live loop, which the transport holds.
        Ok(unsafe { LoopCore::of(owner) })
    }

    pub(super) fn state(&self) -> Result<&LoopModule, Raised> {
        // SAFETY: the module's state lives as long as the loop.
        self.core().map(|core| unsafe { &*core.module })
    }

    /// On a free-threaded build only the loop's thread may use a transport; other threads get an error.
    pub(super) fn check_thread(&self) -> Result<(), Raised> {
        #[cfg(Py_GIL_DISABLED)]
        if !self.is_detached() {
            let thread = self.core()?.thread();
            if thread != 0 && thread != super::status::this_thread() {
                return Err(fail(
                    c"a transport may only be used in the thread that runs its loop. Try loop.call_soon_threadsafe().",
                ));
            }
        }
        Ok(())
    }

    /// The file, which must still have its number: if other code has closed it, the number may be another file's by
    /// now.
    pub(super) fn file(&self) -> io::Result<BorrowedFd<'_>> {
        let Ok(state) = self.state() else {
            // SAFETY: the thread is attached, and the exception is the one of `state`.
            unsafe { ffi::PyErr_Clear() };
            return Err(number::lost());
        };
        // SAFETY: an attached transport holds its file; the thread holds no lock of its own here, and the kernel
        // checks the number.
        unsafe {
            if !self.has(bit::BARE) {
                let socket = self.socket.get();
                if socket.is_null() || number::of(state, socket) != Some(self.fd.get()) {
                    return Err(number::lost());
                }
            }
            Ok(BorrowedFd::borrow_raw(self.fd.get()))
        }
    }

    /// Puts the transport into the queue, once.
    pub(super) fn enqueue(&self, object: *mut ffi::PyObject) -> Result<(), Raised> {
        if !self.has(bit::QUEUED) {
            self.set(bit::QUEUED);
            // SAFETY: a live object.
            self.core()?.enqueue(Item::of_ready(unsafe { Object::share(object)? }.into_ptr()));
        }
        Ok(())
    }

    pub(super) fn may_read(&self) -> bool {
        self.bits.get() & (bit::READABLE | bit::PAUSED | bit::CLOSING | bit::ENDED) == bit::READABLE
    }

    /// Runs what reads, and what follows from it, in the context that asyncio's callback for reading would have.
    pub(super) fn to_read<T>(&self, act: impl FnOnce() -> Result<T, Raised>) -> Result<T, Raised> {
        match self.context.share() {
            // SAFETY: a live context, which is held meanwhile.
            Some(context) => unsafe { within(context.as_ptr(), act) },
            None => act(),
        }
    }

    /// Runs what sends the waiting data, and what follows from it, in the context that asyncio's callback for writing
    /// would have.
    pub(super) fn to_write<T>(&self, act: impl FnOnce() -> Result<T, Raised>) -> Result<T, Raised> {
        match self.write_context.share() {
            // SAFETY: a live context, which is held meanwhile.
            Some(context) => unsafe { within(context.as_ptr(), act) },
            None => act(),
        }
    }

    /// The file has refused data: the transport waits for room on behalf of the code that runs now, unless it has done
    /// so already.
    pub(super) fn block(&self) -> Result<(), Raised> {
        self.set(bit::BLOCKED);
        self.keep_write_context()
    }

    /// The share of this turn was sent: the rest waits for the next turn.
    pub(super) fn hold(&self, object: *mut ffi::PyObject) -> Result<(), Raised> {
        self.set(bit::HELD);
        self.keep_write_context()?;
        self.enqueue(object)
    }

    /// What is written now waits, and is sent later in the context of the code that runs now, unless other data wait
    /// already.
    pub(super) fn keep_write_context(&self) -> Result<(), Raised> {
        if self.write_context.get().is_null() {
            // SAFETY: the thread is attached.
            self.write_context.set(unsafe { Object::own(ffi::PyContext_CopyCurrent())? });
        }
        Ok(())
    }

    /// An exception is set: it ends the transport, unless it ends the loop.
    pub(super) fn fatal(&self, object: *mut ffi::PyObject, words: &str) -> Result<(), Raised> {
        if is_ending() {
            return Err(Raised);
        }
        let error = take_exception();
        if self.is_detached() {
            return Ok(());
        }
        let words = text(words)?;
        let arguments = [object, error.as_ptr(), words.as_ptr()];
        let name = self.state()?.names.fatal_error;
        // SAFETY: live objects.
        unsafe { Object::own(ffi::PyObject_VectorcallMethod(name, arguments.as_ptr(), 3, null_mut())) }
            .map(drop)
    }

    /// A method of the protocol, now that it is to be called: one that was not there is looked up again, and raises
    /// `AttributeError`. Nothing once the transport has ended.
    pub(super) fn method(&self, known: &Field, name: &CStr) -> Result<Option<Object>, Raised> {
        match known.share() {
            Some(known) if known.is_none() => {
                self.protocol.share().map(|protocol| protocol.attribute(name)).transpose()
            }
            known => Ok(known),
        }
    }

    /// A method of the protocol has raised: reports it, and goes on, unless the exception ends the loop.
    pub(super) fn raised(&self, object: *mut ffi::PyObject, method: &str) -> Result<(), Raised> {
        if is_ending() {
            return Err(Raised);
        }
        let error = take_exception();
        if self.is_detached() {
            return Ok(());
        }
        let method = text(method)?;
        let arguments = [object, error.as_ptr(), method.as_ptr()];
        let name = self.state()?.names.callback_raised;
        // SAFETY: live objects.
        unsafe { Object::own(ffi::PyObject_VectorcallMethod(name, arguments.as_ptr(), 3, null_mut())) }
            .map(drop)
    }

    /// Registers its file with the loop, once.
    ///
    /// # Safety
    ///
    /// `object` is this transport.
    pub(super) unsafe fn watch(&self, object: *mut ffi::PyObject) -> Result<(), Raised> {
        if self.has(bit::LOST | bit::STARTED) || self.is_detached() {
            return Ok(());
        }
        // SAFETY: the caller's; a live object.
        self.core()?.watch(self.fd.get(), self.place, &unsafe { Object::share(object)? })?;
        self.set(bit::STARTED);
        Ok(())
    }

    /// Reads again, on behalf of the code that runs now, as asyncio's transports do.
    pub(super) fn resume_reading(&self, object: *mut ffi::PyObject) -> Result<(), Raised> {
        if self.has(bit::CLOSING) || !self.has(bit::PAUSED) {
            return Ok(());
        }
        self.unset(bit::PAUSED);
        self.check_thread()?;
        // SAFETY: the thread is attached.
        self.context.set(unsafe { Object::own(ffi::PyContext_CopyCurrent())? });
        // SAFETY: a live transport.
        if unsafe { behaviour(object) }.is_ready() { self.enqueue(object) } else { Ok(()) }
    }

    /// Ends it after what was written.
    pub(super) fn close(&self, object: *mut ffi::PyObject) -> Result<(), Raised> {
        if self.has(bit::CLOSING) {
            return Ok(());
        }
        self.set(bit::CLOSING);
        self.send_gathered(object)?;
        // SAFETY: a live transport.
        if unsafe { behaviour(object) }.is_empty() { self.lose(object, &Object::none()) } else { Ok(()) }
    }

    /// Sends what the running callback has written so far, unless earlier data wait for room.
    pub(super) fn send_gathered(&self, object: *mut ffi::PyObject) -> Result<(), Raised> {
        // SAFETY: a live transport.
        let behaviour = unsafe { behaviour(object) };
        if self.has(bit::BLOCKED | bit::HELD) || behaviour.is_empty() {
            Ok(())
        } else {
            behaviour.flush(object)
        }
    }

    /// Schedules the end.
    pub(super) fn lose(&self, object: *mut ffi::PyObject, error: &Object) -> Result<(), Raised> {
        if self.has(bit::LOST) || self.is_detached() {
            return Ok(());
        }
        self.set(bit::LOST | bit::CLOSING);
        // SAFETY: a live transport.
        unsafe { behaviour(object) }.discard();
        let core = self.core()?;
        core.leave(self.fd.get(), self.place, object);
        self.schedule_end(object, error)
    }

    /// Counts a write to a transport that has ended, and warns when there are many.
    pub(super) fn ignore_write(&self, object: *mut ffi::PyObject) -> Result<(), Raised> {
        self.ignored.set(self.ignored.get().saturating_add(1));
        if self.ignored.get() > PATIENCE {
            // A transport that has ended no longer knows its loop, which knows the names.
            let name = text("_warn_lost")?;
            // SAFETY: a live transport, and the name of its method.
            unsafe { Object::own(ffi::PyObject_CallMethodNoArgs(object, name.as_ptr()))? };
        }
        Ok(())
    }

    /// Calls the protocol's `pause_writing` if more waits to be sent than it wants.
    pub(super) fn pause_if_full(&self, object: *mut ffi::PyObject, size: usize) -> Result<(), Raised> {
        if size <= self.high.get() || self.has(bit::PROTOCOL_PAUSED) || self.is_detached() {
            return Ok(());
        }
        self.set(bit::PROTOCOL_PAUSED);
        let name = self.state()?.names.pause_protocol;
        // SAFETY: a live transport.
        unsafe { Object::own(ffi::PyObject_CallMethodNoArgs(object, name))? };
        Ok(())
    }

    /// Calls the protocol's `resume_writing` if it was paused and so little waits that it may write again.
    pub(super) fn resume_if_drained(&self, object: *mut ffi::PyObject, size: usize) -> Result<(), Raised> {
        if !self.has(bit::PROTOCOL_PAUSED) || size > self.low.get() || self.is_detached() {
            return Ok(());
        }
        self.unset(bit::PROTOCOL_PAUSED);
        let name = self.state()?.names.resume_protocol;
        // SAFETY: a live transport.
        unsafe { Object::own(ffi::PyObject_CallMethodNoArgs(object, name))? };
        Ok(())
    }
}

/// A method of a protocol, or `None`: a protocol need not have methods that are never called.
pub(super) fn method_or_none(protocol: &Object, name: &CStr) -> Result<Object, Raised> {
    match protocol.attribute(name) {
        Ok(method) => Ok(method),
        // SAFETY: an exception is set, and the thread is attached.
        Err(Raised) if unsafe { ffi::PyErr_ExceptionMatches(ffi::PyExc_AttributeError) } != 0 => {
            // SAFETY: as above.
            unsafe { ffi::PyErr_Clear() };
            Ok(Object::none())
        }
        Err(Raised) => Err(Raised),
    }
}

/// Raises `RuntimeError`.
pub(super) fn refuse<T>(text: String) -> Result<T, Raised> {
    let text = CString::new(text).unwrap_or_default();
    Err(fail(&text))
}

/// Records an event; returns whether the transport must be put into the queue.
///
/// # Safety
///
/// A live transport; called with the table of descriptors guarded.
pub(super) unsafe fn note(object: *mut ffi::PyObject, event: Event) -> bool {
    // SAFETY: the caller's.
    let this = unsafe { transport(object) };
    if event.is_readable() {
        this.set(bit::READABLE);
    }
    if event.is_writable() {
        this.unset(bit::BLOCKED);
    }
    if event.is_at_end() {
        this.set(bit::ENDING);
    }
    if event.is_urgent() {
        this.set(bit::URGENT);
    }
    // SAFETY: the caller's.
    if this.has(bit::QUEUED) || !unsafe { behaviour(object) }.is_ready() {
        return false;
    }
    this.set(bit::QUEUED);
    true
}

/// Does what can be done at once.
///
/// # Safety
///
/// A live transport, in the thread that runs its loop.
pub(super) unsafe fn run(object: *mut ffi::PyObject) -> Result<(), Raised> {
    // SAFETY: the caller's.
    let this = unsafe { transport(object) };
    this.unset(bit::QUEUED | bit::HELD);
    if this.is_detached() || this.has(bit::LOST) {
        return Ok(());
    }
    // SAFETY: the caller's.
    unsafe { behaviour(object) }.run(object)
}
