//! `sock_recv()`, `sock_recv_into()` and `sock_sendall()` return an awaitable that can be awaited once.
//!
//! An operation first tries the system call. If that would block, the operation waits for an edge of the descriptor,
//! which stays registered between operations, and makes the call again before it wakes the task.

use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::null_mut;

use pyo3_ffi as ffi;
use ropewalk_os::stream as bytes;

use super::core::LoopCore;
use super::descriptors::Waiter;
use super::loop_module::LoopModule;
use super::number;
use ropewalk_capi::awaitable::{self, Step, Steps};
use ropewalk_capi::entry;
use ropewalk_capi::errors::{os_error, raise_os};
use ropewalk_capi::heap::{self, Field, keyword_method};
use ropewalk_capi::object::{Object, Raised};

/// Up to this many bytes are received into the stack, and copied into an object of the right size.
const SMALL: usize = 64 * 1024;

#[derive(Clone, Copy, Debug)]
enum Goal {
    /// Receive at most this many bytes.
    Receive(usize),
    ReceiveInto,
    SendAll,
}

pub(super) struct Operation {
    owner: Field,
    /// The socket, kept alive while the operation waits.
    socket: Field,
    fd: Cell<RawFd>,
    goal: Goal,
    /// The buffer to receive into or to send; held from the first step on.
    data: Field,
    view: Cell<Option<Box<ffi::Py_buffer>>>,
    sent: Cell<usize>,
    /// The future that is waited for.
    future: Field,
}

impl Drop for Operation {
    fn drop(&mut self) {
        self.release_view();
    }
}

/// The result of an attempt.
enum Attempt {
    Done(Object),
    /// Received, and the socket is empty.
    Last(Object),
    WouldBlock,
}

/// The received bytes, of a number that was asked for.
fn received(data: Object, got: usize, asked: usize) -> Attempt {
    if got < asked && got > 0 { Attempt::Last(data) } else { Attempt::Done(data) }
}

impl Operation {
    fn release_view(&self) {
        if let Some(mut view) = self.view.take() {
            // SAFETY: a view that was filled, released once.
            unsafe { ffi::PyBuffer_Release(&raw mut *view) };
        }
    }

    fn waiter(&self) -> Waiter {
        if matches!(self.goal, Goal::SendAll) { Waiter::Sending } else { Waiter::Receiving }
    }

    /// Memory to receive into, or to send.
    fn memory(&self) -> Result<(*mut u8, usize), Raised> {
        let mut view = match self.view.take() {
            Some(view) => view,
            None => {
                let mut view = Box::new(ffi::Py_buffer::new());
                let flags = if matches!(self.goal, Goal::ReceiveInto) {
                    ffi::PyBUF_WRITABLE
                } else {
                    ffi::PyBUF_SIMPLE
                };
                // SAFETY: a live object and room for a view.
                if unsafe { ffi::PyObject_GetBuffer(self.data.get(), &raw mut *view, flags) } != 0 {
                    return Err(Raised);
                }
                view
            }
        };
        let memory = (view.buf.cast::<u8>(), usize::try_from(view.len).unwrap_or(0));
        let _ = &mut view;
        self.view.set(Some(view));
        Ok(memory)
    }

    /// The socket, which must still have its number: the program may have closed it while the operation waited, and
    /// the number may be another connection's by now.
    fn file(&self) -> Result<BorrowedFd<'_>, Raised> {
        // SAFETY: a live loop with its module, and a live socket, whose number the kernel checks.
        unsafe {
            let state = &*LoopCore::of(self.owner.get()).module;
            if number::of(state, self.socket.get()) != Some(self.fd.get()) {
                return Err(raise_os(&number::lost()));
            }
            Ok(BorrowedFd::borrow_raw(self.fd.get()))
        }
    }

    fn attempt(&self) -> Result<Attempt, Raised> {
        let would_block = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
        match self.goal {
            // The kernel would still wait for data.
            Goal::Receive(0) => Object::bytes(&[]).map(Attempt::Done),
            Goal::Receive(most) if most <= SMALL => {
                let fd = self.file()?;
                let mut buffer = [const { MaybeUninit::<u8>::uninit() }; SMALL];
                let start = buffer.as_mut_ptr().cast::<u8>();
                // SAFETY: at most the size of the buffer.
                match unsafe { bytes::recv(fd, start, most) } {
                    // SAFETY: the kernel has written so many.
                    Ok(got) => Object::bytes(unsafe { std::slice::from_raw_parts(start, got) })
                        .map(|data| received(data, got, most)),
                    Err(error) if would_block(&error) => Ok(Attempt::WouldBlock),
                    Err(error) => Err(raise_os(&error)),
                }
            }
            Goal::Receive(most) => {
                let fd = self.file()?;
                // SAFETY: a new `bytes` object of that size, which no other code sees, cut to the received bytes.
                unsafe {
                    let size = ffi::Py_ssize_t::try_from(most).unwrap_or(ffi::Py_ssize_t::MAX);
                    let mut made = ffi::PyBytes_FromStringAndSize(std::ptr::null(), size);
                    if made.is_null() {
                        return Err(Raised);
                    }
                    match bytes::recv(fd, ffi::PyBytes_AsString(made).cast(), most) {
                        Ok(got) => {
                            ffi::_PyBytes_Resize(&raw mut made, got as ffi::Py_ssize_t);
                            Object::own(made).map(|data| received(data, got, most))
                        }
                        Err(error) => {
                            ffi::Py_DECREF(made);
                            if would_block(&error) { Ok(Attempt::WouldBlock) } else { Err(raise_os(&error)) }
                        }
                    }
                }
            }
            Goal::ReceiveInto => {
                let (start, length) = self.memory()?;
                let fd = self.file()?;
                // SAFETY: a writable view of that length. As above if it is empty.
                match if length == 0 { Ok(0) } else { unsafe { bytes::recv(fd, start, length) } } {
                    Ok(got) => {
                        self.release_view();
                        // SAFETY: the thread is attached.
                        unsafe { Object::own(ffi::PyLong_FromSize_t(got)) }
                            .map(|count| received(count, got, length))
                    }
                    Err(error) if would_block(&error) => Ok(Attempt::WouldBlock),
                    Err(error) => Err(raise_os(&error)),
                }
            }
            Goal::SendAll => {
                let (start, length) = self.memory()?;
                let fd = self.file()?;
                loop {
                    let sent = self.sent.get();
                    let rest: &[u8] = if length == sent {
                        &[]
                    } else {
                        // SAFETY: the rest of a view, whose exporter must not move it while it is held.
                        unsafe { std::slice::from_raw_parts(start.add(sent), length - sent) }
                    };
                    match bytes::send(fd, rest) {
                        Ok(more) if sent + more < length => self.sent.set(sent + more),
                        Ok(_) => {
                            self.release_view();
                            return Ok(Attempt::Done(Object::none()));
                        }
                        Err(error) if would_block(&error) => return Ok(Attempt::WouldBlock),
                        Err(error) => return Err(raise_os(&error)),
                    }
                }
            }
        }
    }

    /// The first step.
    fn start(&self, object: *mut ffi::PyObject) -> Result<Step, Raised> {
        // SAFETY: a live socket and its loop.
        let (core, fd) = unsafe {
            let core = LoopCore::of(self.owner.get());
            let Some(fd) = number::of(&*core.module, self.socket.get()) else {
                return Err(raise_os(&number::lost()));
            };
            (core, fd)
        };
        self.fd.set(fd);
        let receives = self.waiter() == Waiter::Receiving;
        if !(receives && core.is_drained(fd, self.socket.get())) {
            match self.attempt()? {
                Attempt::Done(result) => return Ok(Step::Done(result)),
                Attempt::Last(result) => {
                    core.note_drained(fd, self.socket.get());
                    return Ok(Step::Done(result));
                }
                Attempt::WouldBlock => {}
            }
        }
        // SAFETY: live objects.
        unsafe {
            if core.is_in_use(fd) {
                let name = (*core.module).names.ensure_no_transport;
                let arguments = [self.owner.get(), self.socket.get()];
                Object::own(ffi::PyObject_VectorcallMethod(name, arguments.as_ptr(), 2, null_mut()))?;
            }
            let name = (*core.module).names.create_future;
            let future = Object::own(ffi::PyObject_CallMethodNoArgs(self.owner.get(), name))?;
            core.watch_socket(fd, self.waiter(), &Object::share(object)?, self.socket.get())?;
            self.future.set(future.clone());
            Ok(Step::Wait(future))
        }
    }

    fn stop_waiting(&self, object: *mut ffi::PyObject) {
        if let Some(future) = self.future.take() {
            // SAFETY: a live loop.
            unsafe { LoopCore::of(self.owner.get()) }.leave(self.fd.get(), self.waiter(), object);
            drop(future);
        }
        self.release_view();
    }
}

// SAFETY: it shows its fields, and what its view holds.
unsafe impl Steps for Operation {
    const REUSED: &'static CStr = c"cannot reuse already awaited coroutine";

    fn name(&self) -> Option<&'static CStr> {
        Some(match self.goal {
            Goal::Receive(_) => c"Loop.sock_recv",
            Goal::ReceiveInto => c"Loop.sock_recv_into",
            Goal::SendAll => c"Loop.sock_sendall",
        })
    }

    fn step(&self, object: *mut ffi::PyObject) -> Result<Step, Raised> {
        self.start(object).inspect_err(|_| self.release_view())
    }

    fn woken(&self, object: *mut ffi::PyObject, value: Object) -> Option<Object> {
        self.stop_waiting(object);
        Some(value)
    }

    fn leave(&self, object: *mut ffi::PyObject) {
        self.stop_waiting(object);
    }

    unsafe fn visit(&self, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
        let fields = [&self.owner, &self.socket, &self.data, &self.future];
        // SAFETY: the caller's. The view holds a reference of its own to the object that it is of. The cell is read
        // where it is: nothing else runs while the collector looks.
        unsafe {
            let answer = heap::visit_fields(&fields, visit, arg);
            match &*self.view.as_ptr() {
                Some(view) if answer == 0 && !view.obj.is_null() => visit(view.obj, arg),
                _ => answer,
            }
        }
    }

    fn clear(&self) {
        self.release_view();
        drop((self.future.take(), self.data.take(), self.socket.take(), self.owner.take()));
    }
}

unsafe fn operation<'a>(object: *mut ffi::PyObject) -> &'a Operation {
    // SAFETY: the caller has a live operation.
    unsafe { awaitable::steps(object) }
}

/// The descriptor is ready: does the work, and wakes the waiting task.
///
/// # Safety
///
/// A live operation, in the thread that runs the loop.
pub(super) unsafe fn resume(object: *mut ffi::PyObject) -> Result<(), Raised> {
    // SAFETY: the caller's; live objects throughout.
    unsafe {
        let this = operation(object);
        let Some(future) = this.future.share() else { return Ok(()) };
        let core = LoopCore::of(this.owner.get());
        let names = &(*core.module).names;
        let done = Object::own(ffi::PyObject_CallMethodNoArgs(future.as_ptr(), names.done))?;
        if done.as_ptr() == ffi::Py_True() {
            return Ok(());
        }
        let (name, value) = match this.attempt() {
            Ok(Attempt::WouldBlock) => return Ok(()),
            Ok(Attempt::Done(result)) => (names.set_result, result),
            Ok(Attempt::Last(result)) => {
                core.note_drained(this.fd.get(), this.socket.get());
                (names.set_result, result)
            }
            Err(Raised) => (names.set_exception, ropewalk_capi::object::take_exception()),
        };
        core.leave(this.fd.get(), this.waiter(), object);
        let arguments = [future.as_ptr(), value.as_ptr()];
        Object::own(ffi::PyObject_VectorcallMethod(name, arguments.as_ptr(), 2, null_mut())).map(drop)
    }
}

/// Whether the socket of an operation has lost the number under which the operation waits.
///
/// # Safety
///
/// As of [`give_up`].
pub(super) unsafe fn has_lost_number(object: *mut ffi::PyObject) -> bool {
    // SAFETY: the caller's; an operation that waits has a loop and a socket.
    unsafe {
        let this = operation(object);
        let (owner, socket) = (this.owner.get(), this.socket.get());
        !owner.is_null()
            && !socket.is_null()
            && number::of(&*LoopCore::of(owner).module, socket) != Some(this.fd.get())
    }
}

/// Ends the wait of an operation whose number belongs to another file, with the error that a system call on the closed
/// socket has.
///
/// # Safety
///
/// A live operation; the thread is attached, and holds no lock.
pub(super) unsafe fn give_up(object: *mut ffi::PyObject) -> Result<(), Raised> {
    // SAFETY: the caller's; live objects throughout.
    unsafe {
        let this = operation(object);
        let Some(future) = this.future.share() else { return Ok(()) };
        let names = &(*LoopCore::of(this.owner.get()).module).names;
        let done = Object::own(ffi::PyObject_CallMethodNoArgs(future.as_ptr(), names.done))?;
        if done.as_ptr() == ffi::Py_True() {
            return Ok(());
        }
        let error = os_error(&number::lost())?;
        let arguments = [future.as_ptr(), error.as_ptr()];
        Object::own(ffi::PyObject_VectorcallMethod(names.set_exception, arguments.as_ptr(), 2, null_mut()))
            .map(drop)
    }
}

/// Makes the awaitable of one operation; nothing happens before it is awaited.
unsafe fn make(
    owner: *mut ffi::PyObject,
    goal: Goal,
    socket: *mut ffi::PyObject,
    data: Option<*mut ffi::PyObject>,
) -> Result<Object, Raised> {
    // SAFETY: live objects.
    unsafe {
        let made = Operation {
            owner: Field::new(Object::share(owner)?),
            socket: Field::new(Object::share(socket)?),
            fd: Cell::new(-1),
            goal,
            data: match data {
                Some(data) => Field::new(Object::share(data)?),
                None => Field::empty(),
            },
            view: Cell::new(None),
            sent: Cell::new(0),
            future: Field::empty(),
        };
        awaitable::make((*LoopCore::of(owner).module).operation_type.cast(), made)
    }
}

/// One of the loop's methods. asyncio's own serves debug mode, and objects that are no plain sockets.
unsafe fn method_of_loop(
    owner: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
    fallback: impl FnOnce(&LoopModule) -> *mut ffi::PyObject,
    goal: impl FnOnce(*mut ffi::PyObject) -> Option<(Goal, bool)>,
) -> *mut ffi::PyObject {
    // SAFETY: a loop, and what the interpreter passes.
    unsafe {
        let core = LoopCore::of(owner);
        let state = &*core.module;
        if count == 2
            && names.is_null()
            && ffi::Py_TYPE(*arguments).cast() == state.socket_class
            && !core.is_debug()
            && let Some((goal, with_data)) = goal(*arguments.add(1))
        {
            let data = if with_data { Some(*arguments.add(1)) } else { None };
            return make(owner, goal, *arguments, data).map_or(null_mut(), Object::into_ptr);
        }
        let mut all = vec![owner];
        let named = if names.is_null() { 0 } else { ffi::PyTuple_GET_SIZE(names) };
        all.extend((0..count + named).map(|at| *arguments.offset(at)));
        ffi::PyObject_Vectorcall(fallback(state), all.as_ptr(), count as usize + 1, names)
    }
}

#[entry]
pub(super) unsafe extern "C" fn sock_recv(
    owner: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: what the interpreter passes.
    unsafe {
        method_of_loop(
            owner,
            arguments,
            count,
            names,
            |state| state.sock_recv,
            |size| {
                let most = ffi::PyLong_AsSize_t(size);
                if !ffi::PyErr_Occurred().is_null() {
                    ffi::PyErr_Clear();
                    return None;
                }
                isize::try_from(most).ok().map(|_| (Goal::Receive(most), false))
            },
        )
    }
}

#[entry]
pub(super) unsafe extern "C" fn sock_recv_into(
    owner: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: what the interpreter passes.
    unsafe {
        method_of_loop(
            owner,
            arguments,
            count,
            names,
            |state| state.sock_recv_into,
            |_| Some((Goal::ReceiveInto, true)),
        )
    }
}

#[entry]
pub(super) unsafe extern "C" fn sock_sendall(
    owner: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: what the interpreter passes.
    unsafe {
        method_of_loop(
            owner,
            arguments,
            count,
            names,
            |state| state.sock_sendall,
            |_| Some((Goal::SendAll, true)),
        )
    }
}

/// Makes the type.
pub(super) fn add(module: &Object, state: &mut LoopModule) -> Result<(), Raised> {
    let doc = c"An operation on a socket: an awaitable that can be awaited once.";
    let made = awaitable::make_type::<Operation>(module, c"ropewalk._loop.Operation", doc, Vec::new())?;
    state.operation_type = made.into_ptr();
    Ok(())
}

pub(super) fn methods() -> Vec<ffi::PyMethodDef> {
    vec![
        keyword_method(c"sock_recv", sock_recv, c"sock_recv($self, /, sock, n)\n--\n\n\
        Returns an awaitable of at most `n` bytes."),
        keyword_method(
            c"sock_recv_into",
            sock_recv_into,
            c"sock_recv_into($self, /, sock, buf)\n--\n\nReturns an awaitable of the number of bytes received.",
        ),
        keyword_method(c"sock_sendall", sock_sendall, c"sock_sendall($self, /, sock, data)\n--\n\n\
        Returns an awaitable that sends all of `data`."),
    ]
}
