//! `Core`: the queue, the timers and the descriptors of a loop, and the methods that schedule.
//!
//! `windlass.Loop` is this and asyncio's own loop class, in this order: what is written here goes before what is there.
//! State that asyncio keeps in attributes of the instance and that is needed here (`_debug`, `_closed`, `_stopping`,
//! `_thread_id`) is a descriptor, so that there is one of each.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use pyo3_ffi as ffi;
use windlass_reactor::{Injector, Reactor, Timers};

use super::context::Snapshots;
use super::descriptors::Descriptors;
use super::handle::{self, CANCELLED, Content, Handle, Kind, ONE, SHARED, TIMED};
use super::{State, compat};
use crate::guarded::Guarded;
use crate::heap::{self, content, fast_method, getter, keyword_method, method};
use crate::object::{Object, Raised, fail, raise_os};

/// What is to run: a handle, or something of ours that is ready, told apart by the lowest bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item(usize);

impl Item {
    pub(super) fn of_handle(made: *mut Handle) -> Self {
        Self(made as usize)
    }

    /// A transport or a socket operation whose descriptor is ready.
    pub(super) fn of_ready(object: *mut ffi::PyObject) -> Self {
        Self(object as usize | 1)
    }

    pub(super) fn is_handle(self) -> bool {
        self.0 & 1 == 0
    }

    pub(super) fn object(self) -> *mut ffi::PyObject {
        (self.0 & !1) as *mut ffi::PyObject
    }

    pub(super) fn as_handle(self) -> *mut Handle {
        self.0 as *mut Handle
    }
}

/// What any attached thread may reach. References in it are owned.
#[derive(Default)]
pub(super) struct Inner {
    pub(super) ready: Vec<Item>,
    pub(super) timers: Timers<*mut Handle>,
    pub(super) descriptors: Descriptors,
}

/// What is being run: reached by the thread that runs the loop, and by the collector while that stands still.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) items: Vec<Item>,
    /// The next one.
    pub(super) at: usize,
}

pub(super) struct Core {
    pub(super) state: *mut State,
    /// Until the loop is closed; whoever uses it holds it meanwhile.
    reactor: Guarded<Option<Arc<Reactor>>>,
    /// What other threads have scheduled while this one runs.
    pub(super) injector: Injector<Handle>,
    pub(super) inner: Guarded<Inner>,
    pub(super) batch: UnsafeCell<Batch>,
    /// What transports receive into, in the thread that runs the loop.
    buffer: UnsafeCell<Vec<u8>>,
    snapshots: UnsafeCell<Snapshots>,
    closed: AtomicBool,
    pub(super) stopping: AtomicBool,
    debug: AtomicBool,
    /// The thread that runs the loop; 0 while none does.
    thread: AtomicUsize,
    /// A task factory, or null for asyncio's tasks.
    task_factory: heap::Field,
}

// SAFETY: what is not atomic is guarded, or reached by attached threads by turns (`snapshots`, `batch`: see there).
unsafe impl Send for Core {}
// SAFETY: as above.
unsafe impl Sync for Core {}

pub(super) fn this_thread() -> usize {
    // SAFETY: callable everywhere.
    unsafe { compat::PyThread_get_thread_ident() as usize }
}

impl Core {
    /// The core of a loop.
    ///
    /// # Safety
    ///
    /// `owner` is a live loop, and stays so while the reference is used.
    pub(super) unsafe fn of<'a>(owner: *mut ffi::PyObject) -> &'a Self {
        // SAFETY: the caller's.
        unsafe { content::<Self>(owner) }
    }

    pub(super) fn is_debug(&self) -> bool {
        self.debug.load(Ordering::Relaxed)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// The thread that runs the loop; 0 while none does.
    pub(super) fn thread(&self) -> usize {
        self.thread.load(Ordering::Relaxed)
    }

    pub(super) fn check_open(&self) -> Result<(), Raised> {
        if self.is_closed() { Err(fail(c"Event loop is closed")) } else { Ok(()) }
    }

    /// The set of descriptors.
    pub(super) fn reactor(&self) -> Result<Arc<Reactor>, Raised> {
        self.reactor_if_any().ok_or_else(|| fail(c"Event loop is closed"))
    }

    /// The same, if the loop is not closed.
    pub(super) fn reactor_if_any(&self) -> Option<Arc<Reactor>> {
        // SAFETY: the thread is attached, and runs nothing while the guard lives.
        unsafe { self.reactor.lock() }.clone()
    }

    /// Wakes the loop if it sleeps.
    fn wake(&self) {
        if let Some(reactor) = self.reactor_if_any() {
            reactor.wake().call();
        }
    }

    /// # Safety
    ///
    /// The thread is attached, and nothing of the interpreter runs while the reference is used: by that, attached
    /// threads take turns. On a free-threaded build they are not used.
    #[allow(clippy::mut_from_ref, reason = "attached threads take turns")]
    pub(super) unsafe fn snapshots(&self) -> &mut Snapshots {
        // SAFETY: the caller's.
        unsafe { &mut *self.snapshots.get() }
    }

    /// Room for `stream::RECEIVE` bytes, for the thread that runs the loop, until it receives again.
    pub(super) fn receive_buffer(&self) -> *mut u8 {
        // SAFETY: only the thread that runs the loop comes here, and keeps no reference.
        let buffer = unsafe { &mut *self.buffer.get() };
        if buffer.capacity() == 0 {
            buffer.reserve_exact(super::stream::RECEIVE);
        }
        buffer.as_mut_ptr()
    }

    /// Whether a transport or a callback waits for that descriptor.
    pub(super) fn is_in_use(&self, fd: std::os::fd::RawFd) -> bool {
        // SAFETY: the thread is attached, and runs nothing while the guard lives.
        unsafe { self.inner.lock() }.descriptors.is_in_use(fd)
    }

    fn capture(&self) -> Result<(*mut ffi::PyObject, u32), Raised> {
        #[cfg(not(Py_GIL_DISABLED))]
        // SAFETY: the thread is attached. A copy of a context may run the collector, which does not come here.
        let (context, shared) = unsafe { self.snapshots() }.capture()?;
        #[cfg(Py_GIL_DISABLED)]
        let (context, shared) = Snapshots::new(false).capture()?;
        Ok((context.into_ptr(), if shared { SHARED } else { 0 }))
    }

    /// Puts something at the end of what is to run.
    pub(super) fn enqueue(&self, item: Item) {
        // SAFETY: the thread is attached, and runs nothing while the guard lives.
        unsafe { self.inner.lock() }.ready.push(item);
    }

    /// One of the timers was cancelled.
    pub(super) fn timer_cancelled(&self) {
        // SAFETY: as of `enqueue`; handles are read, not dropped, while the guard lives.
        let gone = unsafe {
            let mut inner = self.inner.lock();
            if !inner.timers.note_cancelled() {
                return;
            }
            inner.timers.sweep(|made| (*made).has(CANCELLED))
        };
        for made in gone {
            // SAFETY: the reference that the heap had.
            unsafe {
                (*made).unset(TIMED);
                handle::release(made);
            }
        }
    }

    /// Drops everything that was scheduled, and all descriptors.
    pub(super) fn drop_all(&self) {
        // SAFETY: as of `enqueue`. The batch belongs to whoever runs the loop, and nobody does.
        let (ready, timers, descriptors, rest) = unsafe {
            let mut inner = self.inner.lock();
            let batch = &mut *self.batch.get();
            let rest: Vec<Item> = std::mem::take(&mut batch.items).split_off(batch.at);
            batch.at = 0;
            (
                std::mem::take(&mut inner.ready),
                inner.timers.drain().collect::<Vec<_>>(),
                std::mem::take(&mut inner.descriptors),
                rest,
            )
        };
        for item in rest.into_iter().chain(ready) {
            drop_item(item);
        }
        for made in timers.into_iter().chain(self.injector.take().map(NonNull::as_ptr)) {
            // SAFETY: the reference that was held.
            unsafe {
                (*made).unset(TIMED);
                handle::release(made);
            }
        }
        descriptors.drop_all();
        // SAFETY: the thread is attached.
        unsafe { self.snapshots() }.clear();
    }
}

pub(super) fn drop_item(item: Item) {
    // SAFETY: the reference that the queue held.
    unsafe {
        if item.is_handle() { handle::release(item.as_handle()) } else { ffi::Py_DECREF(item.object()) }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.drop_all();
    }
}

/// The callback, its arguments and its context, as they are given to all methods that schedule.
struct Call {
    callback: *mut ffi::PyObject,
    args: *mut ffi::PyObject,
    flags: u32,
    /// Borrowed; null for none.
    context: *mut ffi::PyObject,
}

/// Reads `(leading..., callback, *args, context=None)`.
unsafe fn read_call(
    state: &State,
    name: &str,
    leading: usize,
    arguments: *const *mut ffi::PyObject,
    count: usize,
    names: *mut ffi::PyObject,
) -> Result<Call, Raised> {
    // SAFETY: what the interpreter passes to a function of this kind: `count` arguments, and as many values after them
    // as there are names.
    unsafe {
        let mut context = null_mut();
        if !names.is_null() {
            for at in 0..ffi::PyTuple_GET_SIZE(names) {
                let given = ffi::PyTuple_GET_ITEM(names, at);
                if given != state.names.context && ffi::PyUnicode_Compare(given, state.names.context) != 0 {
                    let text = format!("{name}() got an unexpected keyword argument");
                    return Err(raise_type(&text));
                }
                context = *arguments.add(count).offset(at);
            }
            if context == ffi::Py_None() {
                context = null_mut();
            }
        }
        if count <= leading {
            return Err(raise_type(&format!("{name}() missing a required positional argument: 'callback'")));
        }
        let callback = *arguments.add(leading);
        let (args, flags) = match count - leading - 1 {
            0 => (null_mut(), 0),
            1 => {
                let one = *arguments.add(leading + 1);
                ffi::Py_INCREF(one);
                (one, ONE)
            }
            more => (tuple(arguments.add(leading + 1), more)?, 0),
        };
        ffi::Py_INCREF(callback);
        Ok(Call { callback, args, flags, context })
    }
}

unsafe fn tuple(items: *const *mut ffi::PyObject, count: usize) -> Result<*mut ffi::PyObject, Raised> {
    // SAFETY: the caller's; SET_ITEM takes references over.
    unsafe {
        let made = ffi::PyTuple_New(count as ffi::Py_ssize_t);
        if made.is_null() {
            return Err(Raised);
        }
        for at in 0..count {
            let item = *items.add(at);
            ffi::Py_INCREF(item);
            ffi::PyTuple_SET_ITEM(made, at as ffi::Py_ssize_t, item);
        }
        Ok(made)
    }
}

pub(super) fn raise_type(text: &str) -> Raised {
    let text = std::ffi::CString::new(text).unwrap_or_default();
    // SAFETY: a live class and a C string, which is copied.
    unsafe { ffi::PyErr_SetString(ffi::PyExc_TypeError, text.as_ptr()) };
    Raised
}

/// Makes the handle of a call.
unsafe fn schedule(
    owner: *mut ffi::PyObject,
    core: &Core,
    call: Call,
    kind: Kind,
    when: f64,
) -> Result<*mut Handle, Raised> {
    // SAFETY: live objects throughout; what the call holds goes into the handle or is given back.
    unsafe {
        let (context, shared) = if !call.context.is_null() {
            ffi::Py_INCREF(call.context);
            (call.context, 0)
        } else {
            match core.capture() {
                Ok(captured) => captured,
                Err(Raised) => {
                    ffi::Py_DECREF(call.callback);
                    ffi::Py_XDECREF(call.args);
                    return Err(Raised);
                }
            }
        };
        let content = Content {
            callback: call.callback,
            args: call.args,
            context,
            flags: call.flags | shared | kind.flags(),
            when,
        };
        let made = handle::make(&mut *core.state, owner, content, kind)?;
        if core.is_debug() {
            let noted = note_debug(owner, core, made, kind);
            if let Err(Raised) = noted {
                ffi::Py_DECREF(made.cast());
                return Err(Raised);
            }
        }
        Ok(made)
    }
}

/// In debug mode: checks thread and callback, and notes where it was scheduled.
unsafe fn note_debug(
    owner: *mut ffi::PyObject,
    core: &Core,
    made: *mut Handle,
    kind: Kind,
) -> Result<(), Raised> {
    // SAFETY: live objects.
    unsafe {
        let names = &(*core.state).names;
        let method = match kind {
            Kind::Timer => names.call_at,
            Kind::ThreadSafe => names.call_soon_threadsafe,
            Kind::Plain => names.call_soon,
        };
        let arguments = [owner, (*made).callback, method];
        let traceback = Object::own(ffi::PyObject_VectorcallMethod(
            names.note_scheduled,
            arguments.as_ptr(),
            arguments.len(),
            null_mut(),
        ))?;
        (*made).source_traceback = traceback.into_ptr();
        Ok(())
    }
}

unsafe extern "C" fn call_soon(
    owner: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a loop, and what the interpreter passes.
    unsafe {
        let core = Core::of(owner);
        let made = core
            .check_open()
            .and_then(|()| read_call(&*core.state, "call_soon", 0, arguments, count as usize, names))
            .and_then(|call| schedule(owner, core, call, Kind::Plain, 0.0));
        let Ok(made) = made else { return null_mut() };
        ffi::Py_INCREF(made.cast());
        core.enqueue(Item::of_handle(made));
        made.cast()
    }
}

unsafe extern "C" fn call_soon_threadsafe(
    owner: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a loop, and what the interpreter passes.
    unsafe {
        let core = Core::of(owner);
        let made = core
            .check_open()
            .and_then(|()| {
                read_call(&*core.state, "call_soon_threadsafe", 0, arguments, count as usize, names)
            })
            .and_then(|call| schedule(owner, core, call, Kind::ThreadSafe, 0.0));
        let Ok(made) = made else { return null_mut() };
        ffi::Py_INCREF(made.cast());
        core.hand_over(made);
        made.cast()
    }
}

impl Core {
    /// Moves what other threads have left to the end of what is to run.
    pub(super) fn collect(&self) {
        if !self.injector.is_empty() {
            // SAFETY: the thread is attached, and runs nothing while the guard lives.
            let mut inner = unsafe { self.inner.lock() };
            inner.ready.extend(self.injector.take().map(|made| Item::of_handle(made.as_ptr())));
        }
    }

    /// Puts a handle at the end of what is to run, from any thread, and wakes the loop.
    pub(super) fn hand_over(&self, made: *mut Handle) {
        let thread = self.thread();
        if thread == this_thread() {
            return self.enqueue(Item::of_handle(made));
        }
        if thread == 0 {
            // Nobody runs it. What was left when it stopped goes first, so that each thread's calls keep their order.
            // SAFETY: as of `collect`; taking and adding are one step for whoever else does this.
            let mut inner = unsafe { self.inner.lock() };
            inner.ready.extend(self.injector.take().map(|made| Item::of_handle(made.as_ptr())));
            inner.ready.push(Item::of_handle(made));
        } else if let Some(made) = NonNull::new(made) {
            // SAFETY: a fresh handle, which the loop holds from here on.
            unsafe { self.injector.push(made) };
        }
        self.wake();
    }
}

unsafe fn seconds(object: *mut ffi::PyObject) -> Result<f64, Raised> {
    // SAFETY: a live object.
    unsafe {
        let seconds = ffi::PyFloat_AsDouble(object);
        if seconds == -1.0 && !ffi::PyErr_Occurred().is_null() { Err(Raised) } else { Ok(seconds) }
    }
}

/// Nanoseconds of the loop's clock.
pub(super) fn now() -> u64 {
    windlass_os::clock::monotonic_nanos()
}

/// The same, as `time.monotonic()` says it.
pub(super) fn as_seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

unsafe fn timer(
    owner: *mut ffi::PyObject,
    relative: bool,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> Result<*mut ffi::PyObject, Raised> {
    // SAFETY: a loop, and what the interpreter passes.
    unsafe {
        let core = Core::of(owner);
        let (name, what) = if relative { ("call_later", "delay") } else { ("call_at", "when") };
        if count > 0 && *arguments == ffi::Py_None() {
            return Err(raise_type(&format!("{what} must not be None")));
        }
        core.check_open()?;
        let call = read_call(&*core.state, name, 1, arguments, count as usize, names)?;
        let when = seconds(*arguments)
            .map(|given| if relative { as_seconds(now()) + given } else { given })
            .inspect_err(|_| {
                ffi::Py_DECREF(call.callback);
                ffi::Py_XDECREF(call.args);
            })?;
        let made = schedule(owner, core, call, Kind::Timer, when)?;
        ffi::Py_INCREF(made.cast());
        core.inner.lock().timers.push(when, made);
        Ok(made.cast())
    }
}

unsafe extern "C" fn call_later(
    owner: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: what the interpreter passes.
    unsafe { timer(owner, true, arguments, count, names) }.unwrap_or(null_mut())
}

unsafe extern "C" fn call_at(
    owner: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: what the interpreter passes.
    unsafe { timer(owner, false, arguments, count, names) }.unwrap_or(null_mut())
}

/// `_add_callback(handle)`: asyncio's own way to schedule a handle, of whatever class.
unsafe extern "C" fn add_callback(
    owner: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: a loop, and what the interpreter passes. A foreign handle goes by its own `_run`.
    unsafe {
        if count != 1 {
            raise_type("_add_callback() takes one handle");
            return null_mut();
        }
        let core = Core::of(owner);
        let given = *arguments;
        let kind: *mut ffi::PyObject = ffi::Py_TYPE(given).cast();
        let state = &*core.state;
        if [state.handle_type, state.timer_type, state.thread_safe_type].contains(&kind) {
            if !handle::handle(given).has(CANCELLED) {
                ffi::Py_INCREF(given);
                core.hand_over(given.cast());
            }
        } else {
            let run = ffi::PyObject_GetAttrString(given, c"_run".as_ptr());
            if run.is_null() {
                return null_mut();
            }
            let call = Call { callback: run, args: null_mut(), flags: 0, context: null_mut() };
            match schedule(owner, core, call, Kind::ThreadSafe, 0.0) {
                Ok(made) => core.hand_over(made),
                Err(Raised) => return null_mut(),
            }
        }
        none()
    }
}

pub(super) fn none() -> *mut ffi::PyObject {
    Object::none().into_ptr()
}

unsafe extern "C" fn time(_: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the thread is attached.
    unsafe { ffi::PyFloat_FromDouble(as_seconds(now())) }
}

unsafe extern "C" fn get_debug(owner: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a loop.
    unsafe { ffi::PyBool_FromLong(Core::of(owner).is_debug().into()) }
}

unsafe extern "C" fn is_closed(owner: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a loop.
    unsafe { ffi::PyBool_FromLong(Core::of(owner).is_closed().into()) }
}

unsafe extern "C" fn is_running(owner: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a loop.
    unsafe { ffi::PyBool_FromLong((Core::of(owner).thread() != 0).into()) }
}

unsafe extern "C" fn check_closed(owner: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a loop.
    if unsafe { Core::of(owner) }.check_open().is_ok() { none() } else { null_mut() }
}

/// `_write_to_self()`: wakes the loop, from any thread and from a signal handler.
unsafe extern "C" fn write_to_self(owner: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a loop.
    unsafe { Core::of(owner) }.wake();
    none()
}

unsafe extern "C" fn stop(owner: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a loop.
    unsafe { Core::of(owner) }.stopping.store(true, Ordering::Relaxed);
    none()
}

unsafe extern "C" fn discard(owner: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a loop, and the thread is attached. The descriptors are closed once nobody holds the set.
    unsafe {
        let core = Core::of(owner);
        core.drop_all();
        let reactor = core.reactor.lock().take();
        drop(reactor);
    }
    none()
}

/// A class by its name in a module, as it is now.
unsafe fn class_of(module: *mut ffi::PyObject, name: *mut ffi::PyObject) -> Result<Object, Raised> {
    // SAFETY: a live module and a name; the borrowed class gets a reference of ours at once.
    unsafe {
        let class = ffi::PyDict_GetItemWithError(ffi::PyModule_GetDict(module), name);
        if class.is_null() && ffi::PyErr_Occurred().is_null() {
            return Err(fail(c"asyncio has lost its class of tasks or of futures"));
        }
        Object::share(class)
    }
}

unsafe extern "C" fn create_future(owner: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a loop, whose module has the class and the names.
    unsafe {
        let state = &*Core::of(owner).state;
        let arguments = [owner];
        let Ok(class) = class_of(state.futures, state.names.future_class) else { return null_mut() };
        ffi::PyObject_Vectorcall(class.as_ptr(), arguments.as_ptr(), 0, state.names.loop_keyword)
    }
}

/// `create_task(coro, *, name=None, context=None, ...)`: what asyncio does where no factory is set, else by its own.
unsafe extern "C" fn create_task(
    owner: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a loop, and what the interpreter passes.
    unsafe {
        let core = Core::of(owner);
        let state = &*core.state;
        if core.check_open().is_err() {
            return null_mut();
        }
        let given = if names.is_null() { 0 } else { ffi::PyTuple_GET_SIZE(names) };
        if core.is_debug() || !core.task_factory.get().is_null() || count != 1 || given > 2 {
            // asyncio's method, given what we were given.
            let all = (count + given) as usize;
            let mut with_owner = Vec::with_capacity(all + 1);
            with_owner.push(owner);
            with_owner.extend((0..all).map(|at| *arguments.add(at)));
            let count = count as usize + 1;
            return ffi::PyObject_Vectorcall(state.create_task, with_owner.as_ptr(), count, names);
        }
        let Ok(class) = class_of(state.tasks, state.names.task_class) else { return null_mut() };
        let mut values = [*arguments, owner, null_mut(), null_mut()];
        if given == 0 {
            return ffi::PyObject_Vectorcall(class.as_ptr(), values.as_ptr(), 1, state.names.loop_keyword);
        }
        let all = ffi::PyTuple_New(given + 1);
        if all.is_null() {
            return null_mut();
        }
        ffi::Py_INCREF(state.names.loop_);
        ffi::PyTuple_SET_ITEM(all, 0, state.names.loop_);
        for at in 0..given {
            let name = ffi::PyTuple_GET_ITEM(names, at);
            ffi::Py_INCREF(name);
            ffi::PyTuple_SET_ITEM(all, at + 1, name);
            values[2 + at as usize] = *arguments.offset(1 + at);
        }
        let task = ffi::PyObject_Vectorcall(class.as_ptr(), values.as_ptr(), 1, all);
        ffi::Py_DECREF(all);
        task
    }
}

macro_rules! flag {
    ($get:ident, $set:ident, $field:ident) => {
        unsafe extern "C" fn $get(owner: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
            // SAFETY: a loop.
            unsafe { ffi::PyBool_FromLong(Core::of(owner).$field.load(Ordering::Relaxed).into()) }
        }

        unsafe extern "C" fn $set(
            owner: *mut ffi::PyObject,
            value: *mut ffi::PyObject,
            _: *mut c_void,
        ) -> c_int {
            // SAFETY: a loop, and a live value or null where the attribute is deleted.
            unsafe {
                let truth = if value.is_null() { 0 } else { ffi::PyObject_IsTrue(value) };
                if truth >= 0 {
                    Core::of(owner).$field.store(truth != 0, Ordering::Relaxed);
                }
                truth.min(0)
            }
        }
    };
}

flag!(get_debug_flag, set_debug_flag, debug);
flag!(get_closed, set_closed, closed);
flag!(get_stopping, set_stopping, stopping);

unsafe extern "C" fn get_thread(owner: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: a loop.
    match unsafe { Core::of(owner) }.thread() {
        0 => none(),
        // SAFETY: the thread is attached.
        thread => unsafe { ffi::PyLong_FromSize_t(thread) },
    }
}

unsafe extern "C" fn set_thread(
    owner: *mut ffi::PyObject,
    value: *mut ffi::PyObject,
    _: *mut c_void,
) -> c_int {
    // SAFETY: a loop, and a live value or null.
    unsafe {
        let thread = if value.is_null() || value == ffi::Py_None() { 0 } else { ffi::PyLong_AsSize_t(value) };
        if !ffi::PyErr_Occurred().is_null() {
            return -1;
        }
        Core::of(owner).thread.store(thread, Ordering::SeqCst);
        0
    }
}

unsafe extern "C" fn get_factory(owner: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: a loop.
    unsafe { Core::of(owner) }.task_factory.share().unwrap_or_else(Object::none).into_ptr()
}

unsafe extern "C" fn set_factory(
    owner: *mut ffi::PyObject,
    value: *mut ffi::PyObject,
    _: *mut c_void,
) -> c_int {
    // SAFETY: a loop, and a live value or null.
    unsafe {
        let core = Core::of(owner);
        drop(core.task_factory.take());
        if !value.is_null()
            && value != ffi::Py_None()
            && let Ok(value) = Object::share(value)
        {
            core.task_factory.set(value);
        }
        0
    }
}

unsafe extern "C" fn new(
    kind: *mut ffi::PyTypeObject,
    _: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: our type or a subtype, whose module is alive with it.
    unsafe {
        let Some(state) = super::state_of_base(kind) else {
            fail(c"the module of the loop is gone");
            return null_mut();
        };
        let reactor = match Reactor::new() {
            Ok(reactor) => reactor,
            Err(error) => {
                raise_os(&error);
                return null_mut();
            }
        };
        let core = Core {
            state: ptr::from_mut(state),
            reactor: Guarded::new(Some(Arc::new(reactor))),
            injector: Injector::new(),
            inner: Guarded::new(Inner::default()),
            batch: UnsafeCell::default(),
            buffer: UnsafeCell::default(),
            snapshots: UnsafeCell::new(Snapshots::new(state.places_known)),
            closed: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            debug: AtomicBool::new(false),
            thread: AtomicUsize::new(0),
            task_factory: heap::Field::empty(),
        };
        heap::make(kind, core).map_or(null_mut(), Object::into_ptr)
    }
}

unsafe fn visit_item(item: Item, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    // SAFETY: the queue's reference to a live object; the collector's own function.
    unsafe {
        if !item.is_handle() {
            return visit(item.object(), arg);
        }
        // A handle that nobody else has is unknown to the collector, and what it holds is the loop's.
        if ffi::Py_REFCNT(item.object()) == 1 && ffi::PyObject_GC_IsTracked(item.object()) == 0 {
            handle::visit_content(&*item.as_handle(), visit, arg)
        } else {
            visit(item.object(), arg)
        }
    }
}

unsafe extern "C" fn traverse(owner: *mut ffi::PyObject, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    // SAFETY: a live loop; nothing else runs while the collector looks.
    unsafe {
        let core = Core::of(owner);
        let inner = &*core.inner.in_collection();
        let batch = &*core.batch.get();
        let handles = inner.timers.iter().chain(inner.descriptors.handles()).map(Item::of_handle);
        let rest = batch.items.get(batch.at..).unwrap_or_default();
        for item in rest.iter().chain(&inner.ready).copied().chain(handles) {
            let answer = visit_item(item, visit, arg);
            if answer != 0 {
                return answer;
            }
        }
        for object in inner.descriptors.objects() {
            let answer = visit(object, arg);
            if answer != 0 {
                return answer;
            }
        }
        let answer = core.task_factory.visit(visit, arg);
        if answer != 0 {
            return answer;
        }
        heap::visit_type(owner, visit, arg)
    }
}

unsafe extern "C" fn clear(owner: *mut ffi::PyObject) -> c_int {
    // SAFETY: a live loop that is garbage.
    unsafe {
        let core = Core::of(owner);
        core.drop_all();
        drop(core.task_factory.take());
    }
    0
}

fn property(
    name: &'static std::ffi::CStr,
    get: ffi::getter,
    set: ffi::setter,
    doc: &'static std::ffi::CStr,
) -> ffi::PyGetSetDef {
    ffi::PyGetSetDef { set: Some(set), ..getter(name, get, doc) }
}

/// Makes the type.
pub(super) fn add(module: *mut ffi::PyObject, state: &mut State) -> Result<(), Raised> {
    let mut methods = vec![
        keyword_method(c"call_soon", call_soon, c"call_soon(callback, *args, context=None) -> Handle"),
        keyword_method(
            c"call_soon_threadsafe",
            call_soon_threadsafe,
            c"call_soon_threadsafe(callback, *args, context=None) -> Handle; from any thread",
        ),
        keyword_method(
            c"call_later",
            call_later,
            c"call_later(delay, callback, *args, context=None) -> TimerHandle; in seconds",
        ),
        keyword_method(
            c"call_at",
            call_at,
            c"call_at(when, callback, *args, context=None) -> TimerHandle; of the loop's clock",
        ),
        fast_method(c"_add_callback", add_callback, c"_add_callback(handle): schedules a handle."),
        method(
            c"time",
            time,
            ffi::METH_NOARGS,
            c"time() -> seconds of the loop's clock, as time.monotonic()",
        ),
        method(c"get_debug", get_debug, ffi::METH_NOARGS, c"get_debug() -> whether debug mode is on"),
        method(c"is_closed", is_closed, ffi::METH_NOARGS, c"is_closed() -> whether it was closed"),
        method(c"is_running", is_running, ffi::METH_NOARGS, c"is_running() -> whether it runs"),
        method(c"_check_closed", check_closed, ffi::METH_NOARGS, c"Raises RuntimeError if it was closed."),
        method(c"_write_to_self", write_to_self, ffi::METH_NOARGS, c"Wakes it, from any thread."),
        method(c"stop", stop, ffi::METH_NOARGS, c"stop(): ends run_forever() after this turn."),
        method(
            c"_discard",
            discard,
            ffi::METH_NOARGS,
            c"Drops all that was scheduled, and closes its descriptors.",
        ),
        method(c"create_future", create_future, ffi::METH_NOARGS, c"create_future() -> asyncio.Future"),
        keyword_method(
            c"create_task",
            create_task,
            c"create_task(coro, *, name=None, context=None, **kwargs) -> asyncio.Task",
        ),
    ];
    methods.extend(super::run::methods());
    methods.extend(super::descriptors::methods());
    methods.extend(super::operation::methods());
    let kind = heap::Type {
        name: c"windlass._loop.Core",
        doc: c"The queue, the timers and the descriptors of a loop.",
        flags: ffi::Py_TPFLAGS_HAVE_GC | ffi::Py_TPFLAGS_BASETYPE,
        methods,
        getters: vec![
            property(c"_debug", get_debug_flag, set_debug_flag, c"Whether debug mode is on."),
            property(c"_closed", get_closed, set_closed, c"Whether it was closed."),
            property(c"_stopping", get_stopping, set_stopping, c"Whether stop() was called."),
            property(c"_thread_id", get_thread, set_thread, c"The thread that runs it, or None."),
            property(c"_task_factory", get_factory, set_factory, c"What makes tasks, or None."),
        ],
        slots: &[
            (ffi::Py_tp_new, new as *mut c_void),
            (ffi::Py_tp_dealloc, heap::dealloc::<Core> as *mut c_void),
            (ffi::Py_tp_traverse, traverse as *mut c_void),
            (ffi::Py_tp_clear, clear as *mut c_void),
        ],
    };
    state.core_type = heap::make_type::<Core>(module, kind)?.into_ptr();
    Ok(())
}
