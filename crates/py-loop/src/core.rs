//! `Core`: the queue, the timers and the descriptors of a loop, and the methods that schedule.
//!
//! `ropewalk.Loop` is this and asyncio's own loop class, in this order: what is written here goes before what is there.
//! State that asyncio keeps in attributes of the instance and that is needed here (`_debug`, `_closed`, `_stopping`,
//! `_thread_id`) is a descriptor, so that there is one of each.

mod schedule;
mod tasks;

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use pyo3_ffi as ffi;
use ropewalk_reactor::{Injector, Reactor, Timers};

use super::context::Snapshots;
use super::descriptors::Descriptors;
use super::handle::{self, CANCELLED, Handle, SHARED, TIMED};
use super::{State, compat};
use ropewalk_capi::entry;
use ropewalk_capi::errors::{fail, raise_os};
use ropewalk_capi::guarded::Guarded;
use ropewalk_capi::heap::{self, content, fast_method, getter, keyword_method, method};
use ropewalk_capi::object::{Object, Raised};
use ropewalk_capi::running_loop;
use schedule::{add_callback, call_at, call_later, call_soon, call_soon_threadsafe};
pub(super) use schedule::{as_seconds, now};
use tasks::{create_future, create_task, get_factory, set_factory};

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
    /// Reached by attached threads by turns; not used on a free-threaded build.
    pub(super) snapshots: Snapshots,
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
        let (context, shared) = self.snapshots.capture()?;
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

    /// Makes the handles that somebody keeps known to the collector, for nobody may ever run the loop again. While it
    /// runs they need not be: it is no garbage, and lets go of them by itself.
    fn show_kept(&self) {
        // SAFETY: as of `enqueue`; tracking runs nothing. Only attached threads take from the injector, and the batch
        // belongs to whoever runs the loop, and nobody does.
        unsafe {
            let inner = self.inner.lock();
            let batch = &*self.batch.get();
            let rest = batch.items.get(batch.at..).unwrap_or_default();
            let queued =
                rest.iter().chain(&inner.ready).filter(|item| item.is_handle()).map(|item| item.as_handle());
            let others = inner.timers.iter().chain(inner.descriptors.handles());
            for made in queued.chain(others).chain(self.injector.nodes().map(NonNull::as_ptr)) {
                handle::show_if_kept(made);
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
        self.snapshots.clear();
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

pub(super) fn raise_type(text: &str) -> Raised {
    let text = std::ffi::CString::new(text).unwrap_or_default();
    // SAFETY: a live class and a C string, which is copied.
    unsafe { ffi::PyErr_SetString(ffi::PyExc_TypeError, text.as_ptr()) };
    Raised
}

pub(super) fn none() -> *mut ffi::PyObject {
    Object::none().into_ptr()
}

#[entry]
unsafe extern "C" fn time(_: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the thread is attached.
    unsafe { ffi::PyFloat_FromDouble(as_seconds(now())) }
}

#[entry]
unsafe extern "C" fn get_debug(owner: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a loop.
    unsafe { ffi::PyBool_FromLong(Core::of(owner).is_debug().into()) }
}

#[entry]
unsafe extern "C" fn is_closed(owner: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a loop.
    unsafe { ffi::PyBool_FromLong(Core::of(owner).is_closed().into()) }
}

#[entry]
unsafe extern "C" fn is_running(owner: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a loop.
    unsafe { ffi::PyBool_FromLong((Core::of(owner).thread() != 0).into()) }
}

#[entry]
unsafe extern "C" fn check_closed(owner: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a loop.
    if unsafe { Core::of(owner) }.check_open().is_ok() { none() } else { null_mut() }
}

/// `_write_to_self()`: wakes the loop, from any thread and from a signal handler.
#[entry]
unsafe extern "C" fn write_to_self(owner: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a loop.
    unsafe { Core::of(owner) }.wake();
    none()
}

#[entry]
unsafe extern "C" fn stop(owner: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a loop.
    unsafe { Core::of(owner) }.stopping.store(true, Ordering::Relaxed);
    none()
}

#[entry]
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

macro_rules! flag {
    ($get:ident, $set:ident, $field:ident) => {
        #[entry]
        unsafe extern "C" fn $get(owner: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
            // SAFETY: a loop.
            unsafe { ffi::PyBool_FromLong(Core::of(owner).$field.load(Ordering::Relaxed).into()) }
        }

        #[entry]
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

#[entry]
unsafe extern "C" fn get_thread(owner: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: a loop.
    match unsafe { Core::of(owner) }.thread() {
        0 => none(),
        // SAFETY: the thread is attached.
        thread => unsafe { ffi::PyLong_FromSize_t(thread) },
    }
}

#[entry]
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
        let core = Core::of(owner);
        core.thread.store(thread, Ordering::SeqCst);
        if thread == this_thread() {
            running_loop::enter(owner);
        } else {
            running_loop::leave(owner);
        }
        if thread == 0 {
            core.show_kept();
        }
        0
    }
}

#[entry]
unsafe extern "C" fn new(
    kind: *mut ffi::PyTypeObject,
    _: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: our type or a subtype, whose module is alive with it.
    unsafe {
        let Some(state) = super::MODULE.state_of_base(kind) else {
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
            snapshots: Snapshots::new(state.places_known),
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

#[entry]
unsafe extern "C" fn traverse(owner: *mut ffi::PyObject, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    // SAFETY: a live loop; nothing else runs while the collector looks.
    unsafe {
        let core = Core::of(owner);
        let inner = &*core.inner.in_collection();
        let batch = &*core.batch.get();
        // Only an attached thread takes from the injector.
        let injected = core.injector.nodes().map(NonNull::as_ptr);
        let handles =
            inner.timers.iter().chain(inner.descriptors.handles()).chain(injected).map(Item::of_handle);
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
        let answer = core.snapshots.visit(visit, arg);
        if answer != 0 {
            return answer;
        }
        let answer = core.task_factory.visit(visit, arg);
        if answer != 0 {
            return answer;
        }
        heap::visit_type(owner, visit, arg)
    }
}

#[entry]
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
pub(super) fn add(module: &Object, state: &mut State) -> Result<(), Raised> {
    let mut methods = vec![
        keyword_method(
            c"call_soon",
            call_soon,
            c"call_soon($self, /, callback, *args, context=None)\n--\n\n\
        Calls it in the next turn; its handle.",
        ),
        keyword_method(
            c"call_soon_threadsafe",
            call_soon_threadsafe,
            c"call_soon_threadsafe($self, /, callback, *args, context=None)\n--\n\n\
            As `call_soon`, from any thread.",
        ),
        keyword_method(
            c"call_later",
            call_later,
            c"call_later($self, /, delay, callback, *args, context=None)\n--\n\n\
            Calls it after so many seconds; its handle.",
        ),
        keyword_method(
            c"call_at",
            call_at,
            c"call_at($self, /, when, callback, *args, context=None)\n--\n\n\
            Calls it at a time of the loop's clock; its handle.",
        ),
        fast_method(c"_add_callback", add_callback, c"_add_callback(handle): schedules a handle."),
        method(
            c"time",
            time,
            ffi::METH_NOARGS,
            c"time($self, /)\n--\n\nSeconds of the loop's clock, as `time.monotonic`.",
        ),
        method(
            c"get_debug",
            get_debug,
            ffi::METH_NOARGS,
            c"get_debug($self, /)\n--\n\nWhether debug mode is on.",
        ),
        method(
            c"is_closed",
            is_closed,
            ffi::METH_NOARGS,
            c"is_closed($self, /)\n--\n\nWhether it was closed.",
        ),
        method(c"is_running", is_running, ffi::METH_NOARGS, c"is_running($self, /)\n--\n\nWhether it runs."),
        method(c"_check_closed", check_closed, ffi::METH_NOARGS, c"Raises RuntimeError if it was closed."),
        method(c"_write_to_self", write_to_self, ffi::METH_NOARGS, c"Wakes it, from any thread."),
        method(c"stop", stop, ffi::METH_NOARGS, c"stop($self, /)\n--\n\nEnds `run_forever` after this turn."),
        method(
            c"_discard",
            discard,
            ffi::METH_NOARGS,
            c"Drops all that was scheduled, and closes its descriptors.",
        ),
        method(
            c"create_future",
            create_future,
            ffi::METH_NOARGS,
            c"create_future($self, /)\n--\n\n\
        An `asyncio.Future` of this loop.",
        ),
        keyword_method(
            c"create_task",
            create_task,
            c"create_task($self, /, coro, *, name=None, context=None, **kwargs)\n--\n\n\
            An `asyncio.Task` of this loop, which runs the coroutine.",
        ),
    ];
    methods.extend(super::run::methods());
    methods.extend(super::descriptors::methods());
    methods.extend(super::operation::methods());
    let kind = heap::Type {
        name: c"ropewalk._loop.Core",
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
