//! `sock_recv()` and the loop's other operations on sockets return an awaitable that can be awaited once.
//!
//! An operation first tries the system call. If that would block, the operation waits for an edge of the descriptor,
//! which stays registered between operations. Then it makes the call again: before it wakes the task where it sends,
//! and in the task where it receives or accepts, so that a task that is cancelled meanwhile takes nothing from the
//! socket.

mod attempt;
mod file_methods;
mod files;
mod methods;

use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};
use std::os::fd::RawFd;
use std::ptr::null_mut;

use pyo3_ffi as ffi;

use super::core::LoopCore;
use super::descriptors::Waiter;
use super::item::Item;
use super::loop_module::LoopModule;
use super::number;
use ropewalk_capi::awaitable::{self, Step, Steps};
use ropewalk_capi::errors::{os_error, raise_os};
use ropewalk_capi::heap::{self, Field};
use ropewalk_capi::object::{Object, Raised};

use attempt::{Attempt, Goal};

/// The loop's methods that make operations.
pub(super) fn methods() -> Vec<ffi::PyMethodDef> {
    let mut all = methods::methods();
    all.extend(file_methods::methods());
    all
}

pub(super) struct Operation {
    owner: Field,
    /// The socket, kept alive while the operation waits.
    socket: Field,
    fd: Cell<RawFd>,
    goal: Goal,
    /// The buffer to receive into or to send, held from the first step on; or the file to send.
    data: Field,
    /// The address to connect or to send to, as it was given; or the transport over which a file is sent.
    address: Field,
    view: Cell<Option<Box<ffi::Py_buffer>>>,
    sent: Cell<usize>,
    /// A connect was asked for.
    began: Cell<bool>,
    /// The future that is waited for.
    future: Field,
}

impl Drop for Operation {
    fn drop(&mut self) {
        self.release_view();
    }
}

impl Operation {
    /// A step: the first one, or another one after a wait.
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
        let receives = self.goal.waiter() == Waiter::Receiving;
        let mut later = false;
        if !(receives && core.is_drained(fd, self.socket.get())) {
            let first = !self.began.get();
            if first {
                self.audit()?;
            }
            match self.attempt()? {
                // A connect within this host succeeds or fails while the kernel has not told the caller yet.
                Attempt::WouldBlock if first && self.began.get() => return Ok(Step::Turn),
                Attempt::Done(result) => return Ok(Step::Done(result)),
                Attempt::Last(result) => {
                    core.note_drained(fd, self.socket.get());
                    return Ok(Step::Done(result));
                }
                Attempt::WouldBlock | Attempt::Refused => {}
                Attempt::Later => later = true,
            }
        }
        self.ensure_no_transport(core)?;
        self.wait(core, object, later)
    }

    /// Raises if a transport uses the socket.
    fn ensure_no_transport(&self, core: &LoopCore) -> Result<(), Raised> {
        if !core.is_in_use(self.fd.get()) {
            return Ok(());
        }
        let arguments = [self.owner.get(), self.socket.get()];
        // SAFETY: live objects.
        unsafe {
            let name = (*core.module).names.ensure_no_transport;
            Object::own(ffi::PyObject_VectorcallMethod(name, arguments.as_ptr(), 2, null_mut())).map(drop)
        }
    }

    /// Waits for an edge; with `later` until the next turn at most.
    fn wait(&self, core: &LoopCore, object: *mut ffi::PyObject, later: bool) -> Result<Step, Raised> {
        // SAFETY: live objects.
        unsafe {
            let name = (*core.module).names.create_future;
            let future = Object::own(ffi::PyObject_CallMethodNoArgs(self.owner.get(), name))?;
            let waiter = self.goal.waiter();
            core.watch_socket(self.fd.get(), waiter, &Object::share(object)?, self.socket.get())?;
            self.future.set(future.clone());
            if let Goal::SendFile(sending) = &self.goal {
                self.hold_transport(sending, &future);
            }
            if later {
                core.enqueue(Item::of_ready(Object::share(object)?.into_ptr()));
            }
            Ok(Step::Wait(future))
        }
    }

    fn stop_waiting(&self, object: *mut ffi::PyObject) {
        if let Some(future) = self.future.take() {
            // SAFETY: a live loop.
            unsafe { LoopCore::of(self.owner.get()) }.leave(self.fd.get(), self.goal.waiter(), object);
            drop(future);
        }
        self.release_view();
    }
}

// SAFETY: it shows its fields, and what its view holds.
unsafe impl Steps for Operation {
    const REUSED: &'static CStr = c"cannot reuse already awaited coroutine";

    fn name(&self) -> Option<&'static CStr> {
        Some(self.goal.name())
    }

    fn step(&self, object: *mut ffi::PyObject) -> Result<Step, Raised> {
        match &self.goal {
            Goal::SendFile(sending) => self.start_file(object, sending),
            _ => self.start(object).inspect_err(|_| self.release_view()),
        }
    }

    fn woken(&self, object: *mut ffi::PyObject, value: Object) -> Option<Object> {
        self.stop_waiting(object);
        let is_result = match &self.goal {
            Goal::SendFile(sending) => sending.is_over(),
            goal => goal.waiter() == Waiter::Sending,
        };
        is_result.then_some(value)
    }

    fn leave(&self, object: *mut ffi::PyObject) {
        self.stop_waiting(object);
    }

    fn end(&self, object: *mut ffi::PyObject) {
        if let Goal::SendFile(sending) = &self.goal
            && let Err(Raised) = self.end_file(sending)
        {
            // SAFETY: an exception is set, and a live object.
            unsafe { ffi::PyErr_WriteUnraisable(object) };
        }
    }

    unsafe fn visit(&self, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
        let fields = [&self.owner, &self.socket, &self.data, &self.address, &self.future];
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
        drop((
            self.future.take(),
            self.data.take(),
            self.address.take(),
            self.socket.take(),
            self.owner.take(),
        ));
    }
}

unsafe fn operation<'a>(object: *mut ffi::PyObject) -> &'a Operation {
    // SAFETY: the caller has a live operation.
    unsafe { awaitable::steps(object) }
}

/// The descriptor is ready: sends, and wakes the waiting task, which receives.
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
        let attempt = match this.goal.waiter() {
            Waiter::Sending => this.attempt(),
            _ => Ok(Attempt::Done(Object::none())),
        };
        let (name, value) = match attempt {
            Ok(Attempt::WouldBlock) => return Ok(()),
            Ok(Attempt::Later) => {
                core.enqueue(Item::of_ready(Object::share(object)?.into_ptr()));
                return Ok(());
            }
            Ok(Attempt::Done(result) | Attempt::Last(result)) => (names.set_result, result),
            // The task goes on in another way.
            Ok(Attempt::Refused) => (names.set_result, Object::none()),
            Err(Raised) => (names.set_exception, ropewalk_capi::object::take_exception()),
        };
        core.leave(this.fd.get(), this.goal.waiter(), object);
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
    address: Option<*mut ffi::PyObject>,
) -> Result<Object, Raised> {
    // SAFETY: live objects.
    unsafe {
        let field = |object: Option<*mut ffi::PyObject>| match object {
            Some(object) => Object::share(object).map(Field::new),
            None => Ok(Field::empty()),
        };
        let made = Operation {
            owner: Field::new(Object::share(owner)?),
            socket: Field::new(Object::share(socket)?),
            fd: Cell::new(-1),
            goal,
            data: field(data)?,
            address: field(address)?,
            view: Cell::new(None),
            sent: Cell::new(0),
            began: Cell::new(false),
            future: Field::empty(),
        };
        awaitable::make((*LoopCore::of(owner).module).operation_type.cast(), made)
    }
}

/// Makes the type.
pub(super) fn add(module: &Object, state: &mut LoopModule) -> Result<(), Raised> {
    let doc = c"An operation on a socket: an awaitable that can be awaited once.";
    let made = awaitable::make_type::<Operation>(module, c"ropewalk._loop.Operation", doc, Vec::new())?;
    state.operation_type = made.into_ptr();
    Ok(())
}
