//! Waiting for descriptors: `add_reader` and its kin, transports, socket operations, and the events that epoll reports.

use std::ffi::CStr;
use std::os::fd::RawFd;
use std::ptr::null_mut;

use pyo3_ffi as ffi;
use ropewalk_os::epoll::Event;
use ropewalk_reactor::Reactor;

use super::core::{LoopCore, raise_type};
use super::descriptors::{Departed, Side, Waiter};
use super::handle::{self, Content, Handle, Kind, LASTING, ONE};
use super::item::Item;
use super::{number, operation};
use ropewalk_capi::entry;
use ropewalk_capi::errors::{os_error, raise_os};
use ropewalk_capi::heap::{fast_method, method};
use ropewalk_capi::object::{Object, Raised};

impl LoopCore {
    /// Waits for a descriptor on behalf of an object of ours, which replaces the one before, until
    /// [`leave`](Self::leave).
    pub(super) fn watch(&self, fd: RawFd, who: Waiter, object: &Object) -> Result<(), Raised> {
        let reactor = self.reactor()?;
        let kept = object.clone().into_ptr();
        // SAFETY: the thread is attached, and runs nothing while the guard lives.
        let (result, replaced, refused, departed) = unsafe {
            let mut inner = self.inner.lock();
            let slot = inner.descriptors.make_slot(fd);
            let replaced = std::mem::replace(slot.place(who), kept);
            let (result, departed) = slot.update(&reactor, fd, Some(Side::Waiter(who)));
            let refused =
                if result.is_err() { std::mem::replace(slot.place(who), null_mut()) } else { null_mut() };
            (result, replaced, refused, departed)
        };
        // SAFETY: the reference that was taken out.
        unsafe { ffi::Py_XDECREF(refused) };
        self.replaced(replaced);
        self.departed(departed);
        result.map_err(|error| raise_os(&error))
    }

    /// Drops the waiter that another one has replaced. If its socket has lost the number, nothing else would end it: an
    /// operation of the same socket may come instead of another one, but a transport only after the old one's end.
    fn replaced(&self, waiter: *mut ffi::PyObject) {
        if waiter.is_null() {
            return;
        }
        // SAFETY: the reference that the table held, to an operation or a transport.
        unsafe {
            if !self.is_operation(waiter) {
                report(self.fail_transport(waiter), waiter);
            } else if operation::has_lost_number(waiter) {
                report(operation::give_up(waiter), waiter);
            }
            ffi::Py_DECREF(waiter);
        }
    }

    /// Ends the waits for a file that has lost its number to another one.
    fn departed(&self, departed: Departed) {
        // SAFETY: the references that the table held.
        unsafe {
            for made in departed.handles {
                report(cancel(made).map(drop), null_mut());
            }
            for waiter in departed.waiters.into_iter().filter(|waiter| !waiter.is_null()) {
                let told = if self.is_operation(waiter) {
                    operation::give_up(waiter)
                } else {
                    self.fail_transport(waiter)
                };
                report(told, waiter);
                ffi::Py_DECREF(waiter);
            }
            ffi::Py_XDECREF(departed.socket);
        }
    }

    fn is_operation(&self, waiter: *mut ffi::PyObject) -> bool {
        // SAFETY: a live object, and the live module.
        unsafe { ffi::Py_TYPE(waiter).cast() == (*self.module).operation_type }
    }

    /// Ends a transport whose socket was closed by other code.
    fn fail_transport(&self, transport: *mut ffi::PyObject) -> Result<(), Raised> {
        let error = os_error(&number::lost())?;
        // SAFETY: live objects.
        unsafe {
            let arguments = [transport, error.as_ptr()];
            let name = (*self.module).names.fatal_error;
            Object::own(ffi::PyObject_VectorcallMethod(name, arguments.as_ptr(), 2, null_mut())).map(drop)
        }
    }

    /// Waits on behalf of an operation on a socket object, whose file may be registered from the last operation.
    pub(super) fn watch_socket(
        &self,
        fd: RawFd,
        who: Waiter,
        object: &Object,
        socket: *mut ffi::PyObject,
    ) -> Result<(), Raised> {
        // SAFETY: the thread is attached, and runs nothing while the guard lives.
        let known = unsafe {
            let mut inner = self.inner.lock();
            let slot = inner.descriptors.make_slot(fd);
            if slot.knows(socket) {
                Some(std::mem::replace(slot.place(who), object.clone().into_ptr()))
            } else {
                None
            }
        };
        if let Some(old) = known {
            self.replaced(old);
            return Ok(());
        }
        // SAFETY: a live socket, which has weak references.
        let weak = unsafe { Object::own(ffi::PyWeakref_NewRef(socket, null_mut()))? };
        self.watch(fd, who, object)?;
        // SAFETY: as above; the number is an open socket's.
        let old = unsafe {
            let tcp = ropewalk_os::stream::is_tcp(std::os::fd::BorrowedFd::borrow_raw(fd));
            let mut inner = self.inner.lock();
            let slot = inner.descriptors.make_slot(fd);
            (slot.drained, slot.uncertain, slot.tcp) = (false, false, tcp);
            std::mem::replace(&mut slot.socket, weak.into_ptr())
        };
        // SAFETY: the reference that was taken out.
        unsafe { ffi::Py_XDECREF(old) };
        Ok(())
    }

    /// Whether it is certain that there is nothing to receive, so that no attempt is needed.
    pub(super) fn is_drained(&self, fd: RawFd, socket: *mut ffi::PyObject) -> bool {
        // SAFETY: the thread is attached, and runs nothing while the guard lives.
        let mut inner = unsafe { self.inner.lock() };
        inner.descriptors.slot(fd).is_some_and(|slot| slot.drained && slot.knows(socket))
    }

    /// Records that a receive got less than it asked for.
    pub(super) fn note_drained(&self, fd: RawFd, socket: *mut ffi::PyObject) {
        // SAFETY: as above.
        let mut inner = unsafe { self.inner.lock() };
        if let Some(slot) = inner.descriptors.slot(fd)
            && slot.tcp
            && !slot.uncertain
            && slot.knows(socket)
        {
            slot.drained = true;
        }
    }

    /// Ends the wait on behalf of that object. The registration of an operation that has ended stays: the next
    /// operation comes soon.
    pub(super) fn leave(&self, fd: RawFd, who: Waiter, object: *mut ffi::PyObject) {
        // SAFETY: the thread is attached, and runs nothing while the guard lives.
        let (old, departed) = unsafe {
            let mut inner = self.inner.lock();
            let Some(slot) = inner.descriptors.slot(fd) else { return };
            let place = slot.place(who);
            if *place != object {
                return;
            }
            let old = std::mem::replace(place, null_mut());
            let lasts =
                !matches!(who, Waiter::Stream | Waiter::Sink) && slot.asked.is_some_and(|asked| asked.edge);
            let mut departed = Departed::default();
            if !lasts && let Some(reactor) = self.reactor_if_any() {
                departed = slot.update(&reactor, fd, None).1;
            }
            (old, departed)
        };
        // SAFETY: the reference that the table held.
        unsafe { ffi::Py_DECREF(old) };
        self.departed(departed);
    }

    /// Puts the waiters of ready descriptors into the queue. `note` records an event of a transport, and returns
    /// whether the transport must be put into the queue.
    #[inline]
    pub(super) fn note_events(&self, events: &[Event], note: impl Fn(*mut ffi::PyObject, Event) -> bool) {
        // SAFETY: the thread is attached, and runs nothing while the guard lives; new references are taken.
        unsafe {
            let mut inner = self.inner.lock();
            let inner = &mut *inner;
            for &event in events {
                let Some(token) = Reactor::token(event) else { continue };
                let Some(slot) = inner.descriptors.slot(token.fd) else { continue };
                if slot.generation != token.generation {
                    continue;
                }
                let (readable, writable) = (event.is_readable(), event.is_writable());
                if readable {
                    slot.drained = false;
                }
                slot.uncertain |= event.is_at_end() || event.is_urgent();
                for transport in [slot.stream, slot.sink] {
                    if !transport.is_null() && note(transport, event) {
                        ffi::Py_INCREF(transport);
                        inner.ready.push(Item::of_ready(transport));
                    }
                }
                for (ready, operation) in [(readable, slot.receiving), (writable, slot.sending)] {
                    if ready && !operation.is_null() {
                        ffi::Py_INCREF(operation);
                        inner.ready.push(Item::of_ready(operation));
                    }
                }
                for (ready, made) in [(readable, slot.reader), (writable, slot.writer)] {
                    if ready && !made.is_null() {
                        ffi::Py_INCREF(made.cast());
                        inner.ready.push(Item::of_handle(made));
                    }
                }
            }
        }
    }

    /// Sets the callback of one side, or removes it with null. Returns the one before.
    fn set_callback(
        &self,
        fd: RawFd,
        write: bool,
        made: *mut Handle,
        file: *mut ffi::PyObject,
    ) -> Result<*mut Handle, Raised> {
        let reactor = self.reactor()?;
        let side = if write { Side::Writer } else { Side::Reader };
        // SAFETY: the thread is attached, and runs nothing while the guard lives.
        let (result, old, departed) = unsafe {
            let mut inner = self.inner.lock();
            let slot = inner.descriptors.make_slot(fd);
            let place = if write { &mut slot.writer } else { &mut slot.reader };
            let old = std::mem::replace(place, made);
            slot.files[usize::from(write)] = file as usize;
            let (result, mut departed) =
                slot.update(&reactor, fd, if made.is_null() { None } else { Some(side) });
            if result.is_err() {
                // The caller still owns the new handle.
                *if write { &mut slot.writer } else { &mut slot.reader } = null_mut();
                departed.handles[usize::from(write)] = old;
                (result, null_mut(), departed)
            } else {
                (result, old, departed)
            }
        };
        self.departed(departed);
        result.map(|()| old).map_err(|error| raise_os(&error))
    }
}

/// Reports an error of code that runs on behalf of something else than the caller.
fn report(result: Result<(), Raised>, of: *mut ffi::PyObject) {
    if let Err(Raised) = result {
        // SAFETY: an exception is set; a live object or null.
        unsafe { ffi::PyErr_WriteUnraisable(of) };
    }
}

unsafe fn add_callback(
    owner: *mut ffi::PyObject,
    write: bool,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
) -> Result<*mut ffi::PyObject, Raised> {
    // SAFETY: a loop, and what the interpreter passes; what is taken from the arguments gets references of its own.
    unsafe {
        let core = LoopCore::of(owner);
        core.check_open()?;
        if count < 2 {
            return Err(raise_type("a descriptor and a callback are needed"));
        }
        let fd = ffi::PyObject_AsFileDescriptor(*arguments);
        if fd < 0 {
            return Err(Raised);
        }
        let context = Object::own(ffi::PyContext_CopyCurrent())?;
        let callback = Object::share(*arguments.add(1))?;
        let (args, one) = match count - 2 {
            0 => (null_mut(), 0),
            1 => (Object::share(*arguments.add(2))?.into_ptr(), ONE),
            more => {
                let tuple = Object::own(ffi::PyTuple_New(more))?;
                for at in 0..more {
                    let item = Object::share(*arguments.offset(2 + at))?;
                    ffi::PyTuple_SET_ITEM(tuple.as_ptr(), at, item.into_ptr());
                }
                (tuple.into_ptr(), 0)
            }
        };
        let content = Content {
            callback: callback.into_ptr(),
            args,
            context: context.into_ptr(),
            flags: LASTING | one,
            when: 0.0,
        };
        // One reference is the table's, one is returned.
        let made = handle::make(&mut *core.module, owner, content, Kind::Plain)?;
        ffi::Py_INCREF(made.cast());
        match core.set_callback(fd, write, made, *arguments) {
            Ok(old) => {
                cancel(old)?;
                Ok(made.cast())
            }
            Err(Raised) => {
                ffi::Py_DECREF(made.cast());
                ffi::Py_DECREF(made.cast());
                Err(Raised)
            }
        }
    }
}

/// Cancels the handle that the table has released; returns whether there was one.
unsafe fn cancel(made: *mut Handle) -> Result<bool, Raised> {
    if made.is_null() {
        return Ok(false);
    }
    // SAFETY: the reference that the table held.
    unsafe {
        let done =
            ffi::PyObject_CallMethodNoArgs(made.cast(), (*LoopCore::of((*made).owner).module).names.cancel);
        handle::release(made);
        Object::own(done).map(|_| true)
    }
}

unsafe fn remove_callback(
    owner: *mut ffi::PyObject,
    write: bool,
    file: *mut ffi::PyObject,
) -> Result<*mut ffi::PyObject, Raised> {
    // SAFETY: a loop and a live argument.
    unsafe {
        let core = LoopCore::of(owner);
        if core.is_closed() {
            return Ok(ffi::PyBool_FromLong(0));
        }
        let mut fd = ffi::PyObject_AsFileDescriptor(file);
        if fd < 0 {
            // It may have been closed since it was added.
            let Some(number) = core.inner.lock().descriptors.number_of(write, file) else {
                return Err(Raised);
            };
            ffi::PyErr_Clear();
            fd = number;
        }
        let known = core.inner.lock().descriptors.slot(fd).is_some();
        let had = known && cancel(core.set_callback(fd, write, null_mut(), null_mut())?)?;
        Ok(ffi::PyBool_FromLong(had.into()))
    }
}

#[entry]
unsafe extern "C" fn add_reader(
    owner: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: what the interpreter passes.
    unsafe { add_callback(owner, false, arguments, count) }.unwrap_or(null_mut())
}

#[entry]
unsafe extern "C" fn add_writer(
    owner: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: what the interpreter passes.
    unsafe { add_callback(owner, true, arguments, count) }.unwrap_or(null_mut())
}

#[entry]
unsafe extern "C" fn remove_reader(
    owner: *mut ffi::PyObject,
    file: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: what the interpreter passes.
    unsafe { remove_callback(owner, false, file) }.unwrap_or(null_mut())
}

#[entry]
unsafe extern "C" fn remove_writer(
    owner: *mut ffi::PyObject,
    file: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: what the interpreter passes.
    unsafe { remove_callback(owner, true, file) }.unwrap_or(null_mut())
}

/// `_is_polled(fd) -> (bool, bool)`: whether there is a callback for reading, and for writing.
#[entry]
unsafe extern "C" fn is_polled(owner: *mut ffi::PyObject, file: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a loop and a live argument.
    unsafe {
        let fd = ffi::PyObject_AsFileDescriptor(file);
        if fd < 0 {
            return null_mut();
        }
        let (read, write) = LoopCore::of(owner)
            .inner
            .lock()
            .descriptors
            .slot(fd)
            .map_or((false, false), |slot| (!slot.reader.is_null(), !slot.writer.is_null()));
        let (read, write) = (ffi::PyBool_FromLong(read.into()), ffi::PyBool_FromLong(write.into()));
        let both = ffi::PyTuple_Pack(2, read, write);
        ffi::Py_DECREF(read);
        ffi::Py_DECREF(write);
        both
    }
}

pub(super) fn methods() -> Vec<ffi::PyMethodDef> {
    const READER: &CStr = c"_add_reader(fd, callback, *args) -> Handle";
    vec![
        fast_method(c"_add_reader", add_reader, READER),
        fast_method(c"_add_writer", add_writer, c"_add_writer(fd, callback, *args) -> Handle"),
        method(c"_remove_reader", remove_reader, ffi::METH_O, c"_remove_reader(fd) -> whether there was one"),
        method(c"_remove_writer", remove_writer, ffi::METH_O, c"_remove_writer(fd) -> whether there was one"),
        method(c"_is_polled", is_polled, ffi::METH_O, c"_is_polled(fd) -> (reading, writing)"),
    ]
}
