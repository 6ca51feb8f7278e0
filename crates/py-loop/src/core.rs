//! `LoopCore`: the queue, the timers and the descriptors of a loop.

use std::cell::UnsafeCell;
use std::mem::offset_of;
use std::ops::Deref;
use std::sync::Arc;
#[cfg(not(Py_GIL_DISABLED))]
use std::sync::atomic::{AtomicU32, Ordering};

use pyo3_ffi as ffi;
use ropewalk_os::net::datagrams::Receiver;
use ropewalk_reactor::{Glance, Reactor, Timers};

use super::clock::{self, Clock};
use super::context::Snapshots;
use super::descriptors::Descriptors;
use super::handed::Handed;
use super::handle::{self, CANCELLED, Handle, SHARED, TIMED};
use super::item::{Item, drop_item};
use super::loop_module::LoopModule;
use super::status::{Status, this_thread};
use ropewalk_capi::errors::fail;
use ropewalk_capi::guarded::Guarded;
use ropewalk_capi::heap::{Field, content};
use ropewalk_capi::object::{Object, Raised};

/// The most bytes that are received at once: asyncio's own size.
pub(super) const RECEIVE: usize = 256 * 1024;

/// State that any attached thread may reach. References in it are owned.
#[derive(Default)]
pub(super) struct Inner {
    pub(super) ready: Vec<Item>,
    pub(super) timers: Timers<*mut Handle>,
    pub(super) descriptors: Descriptors,
}

/// The batch that runs: reached by the thread that runs the loop, and by the collector while that thread is stopped.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) items: Vec<Item>,
    /// The next one.
    pub(super) at: usize,
    /// Counts the batches.
    pub(super) number: u32,
}

#[repr(C)]
pub(super) struct LoopCore {
    /// First, where `Status::of` finds it.
    status: Status,
    /// Present until the loop is closed; its users hold a reference meanwhile.
    reactor: Guarded<Option<Arc<Reactor>>>,
    /// What other threads have scheduled while this one runs.
    pub(super) handed: Handed,
    /// The calls of other threads, which they count under the interpreter lock; the loop reads it without.
    #[cfg(not(Py_GIL_DISABLED))]
    calls: AtomicU32,
    pub(super) inner: Guarded<Inner>,
    pub(super) batch: UnsafeCell<Batch>,
    /// How the thread that runs the loop sees ready descriptors while it has work.
    glance: Guarded<Glance>,
    /// The buffer that transports receive into, in the thread that runs the loop.
    buffer: UnsafeCell<Vec<u8>>,
    /// The same for datagrams, once there are any.
    datagrams: UnsafeCell<Option<Box<Receiver>>>,
    /// Reached by attached threads by turns; not used on a free-threaded build.
    pub(super) snapshots: Snapshots,
    pub(super) clock: Clock,
    /// A task factory, or null for asyncio's tasks.
    pub(super) task_factory: Field,
    /// A transport that waits for the end of the callback that runs, or null.
    pub(super) writing: Field,
}

const _: () = assert!(
    offset_of!(LoopCore, status) == 0 && align_of::<LoopCore>() == align_of::<Status>(),
    "the content of a loop begins with its status"
);

// SAFETY: what is not atomic is guarded, or reached by attached threads by turns (`snapshots`, `batch`: see there).
unsafe impl Send for LoopCore {}
// SAFETY: as above.
unsafe impl Sync for LoopCore {}

impl Deref for LoopCore {
    type Target = Status;

    #[inline]
    fn deref(&self) -> &Status {
        &self.status
    }
}

impl LoopCore {
    pub(super) fn new(module: &mut LoopModule, reactor: Reactor) -> Self {
        let places_known = module.places_known;
        Self {
            status: Status::new(module),
            reactor: Guarded::new(Some(Arc::new(reactor))),
            handed: Handed::default(),
            #[cfg(not(Py_GIL_DISABLED))]
            calls: AtomicU32::new(0),
            inner: Guarded::new(Inner::default()),
            batch: UnsafeCell::default(),
            glance: Guarded::new(Glance::default()),
            buffer: UnsafeCell::default(),
            datagrams: UnsafeCell::default(),
            snapshots: Snapshots::new(places_known),
            clock: Clock::default(),
            task_factory: Field::empty(),
            writing: Field::empty(),
        }
    }

    /// The core of a loop.
    ///
    /// # Safety
    ///
    /// `owner` is a live loop, and stays so while the reference is used.
    pub(super) unsafe fn of<'a>(owner: *mut ffi::PyObject) -> &'a Self {
        // SAFETY: the caller's.
        unsafe { content::<Self>(owner) }
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

    /// Removes the set of descriptors, which closes them with its last reference.
    pub(super) fn take_reactor(&self) -> Option<Arc<Reactor>> {
        drop(self.swap_glance(Glance::default()));
        // SAFETY: as above.
        unsafe { self.reactor.lock() }.take()
    }

    /// Puts a glance into the place of the one that is kept between two runs.
    pub(super) fn swap_glance(&self, glance: Glance) -> Glance {
        // SAFETY: as above.
        std::mem::replace(&mut *unsafe { self.glance.lock() }, glance)
    }

    /// How many calls other threads have made.
    #[cfg(not(Py_GIL_DISABLED))]
    #[inline]
    pub(super) fn calls(&self) -> u32 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Counts a call of another thread.
    #[cfg(not(Py_GIL_DISABLED))]
    #[inline]
    pub(super) fn count_call(&self) {
        self.calls.store(self.calls().wrapping_add(1), Ordering::Relaxed);
    }

    /// Wakes the loop if it sleeps.
    pub(super) fn wake(&self) {
        #[cfg(Py_GIL_DISABLED)]
        if let Some(reactor) = self.reactor_if_any() {
            reactor.wake().call();
        }
        // SAFETY: the thread is attached, and a write to an eventfd runs nothing of the interpreter. The interpreter
        // lock, which the loop holds when it announces a sleep, orders the two.
        #[cfg(not(Py_GIL_DISABLED))]
        if let Some(reactor) = unsafe { self.reactor.lock() }.as_ref() {
            reactor.wake().call_in_order();
        }
    }

    /// A buffer of `RECEIVE` bytes for the thread that runs the loop, valid until it receives again.
    pub(super) fn receive_buffer(&self) -> *mut u8 {
        // SAFETY: only the thread that runs the loop comes here, and keeps no reference.
        let buffer = unsafe { &mut *self.buffer.get() };
        if buffer.capacity() == 0 {
            buffer.reserve_exact(RECEIVE);
        }
        buffer.as_mut_ptr()
    }

    /// The memory that datagrams are received into.
    ///
    /// # Safety
    ///
    /// The thread that runs the loop calls this, and keeps no other reference to it.
    #[allow(clippy::mut_from_ref, reason = "one thread uses it, one receive at a time")]
    pub(super) unsafe fn datagrams(&self) -> &mut Receiver {
        // SAFETY: the caller's.
        unsafe { &mut *self.datagrams.get() }.get_or_insert_with(Receiver::new)
    }

    /// Whether a transport or a callback waits for that descriptor.
    pub(super) fn is_in_use(&self, fd: std::os::fd::RawFd) -> bool {
        // SAFETY: the thread is attached, and runs nothing while the guard lives.
        unsafe { self.inner.lock() }.descriptors.is_in_use(fd)
    }

    /// The loop's time in seconds; `nanos` is that of the system's clock.
    ///
    /// # Safety
    ///
    /// `owner` is this loop, live, and no guard lives: the program may have a clock of its own.
    #[inline]
    pub(super) unsafe fn seconds(&self, owner: *mut ffi::PyObject, nanos: u64) -> Result<f64, Raised> {
        // SAFETY: the caller's; the module lives as long as the loop.
        unsafe { self.clock.seconds(owner, &*self.module, nanos) }
    }

    /// The loop's time now, in seconds.
    ///
    /// # Safety
    ///
    /// As of [`seconds`](Self::seconds).
    #[inline]
    pub(super) unsafe fn time(&self, owner: *mut ffi::PyObject) -> Result<f64, Raised> {
        // SAFETY: the caller's.
        unsafe { self.seconds(owner, clock::now()) }
    }

    pub(super) fn capture(&self) -> Result<(*mut ffi::PyObject, u32), Raised> {
        #[cfg(not(Py_GIL_DISABLED))]
        let (context, shared) = self.snapshots.capture()?;
        #[cfg(Py_GIL_DISABLED)]
        let (context, shared) = Snapshots::new(false).capture()?;
        Ok((context.into_ptr(), if shared { SHARED } else { 0 }))
    }

    /// A number for the callback that runs; none if this thread runs none.
    pub(super) fn callback(&self) -> Option<u64> {
        if self.thread() != this_thread() {
            return None;
        }
        // SAFETY: this thread runs the loop, so the batch is its own.
        let batch = unsafe { &*self.batch.get() };
        (batch.at != 0).then_some(u64::from(batch.number) << 32 | batch.at as u64)
    }

    /// Puts an item at the end of the queue; returns how many wait there for the next turn.
    pub(super) fn enqueue(&self, item: Item) -> usize {
        // SAFETY: the thread is attached, and runs nothing while the guard lives.
        let mut inner = unsafe { self.inner.lock() };
        inner.ready.push(item);
        inner.ready.len()
    }

    /// Counts a cancelled timer.
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

    /// Tracks the handles that other code keeps, because the loop may never run again. While it runs they need no
    /// tracking: the loop is no garbage, and releases them itself.
    pub(super) fn show_kept(&self) {
        // SAFETY: as of `enqueue`; tracking runs nothing. Only attached threads take what was handed over, and the
        // batch belongs to the thread that runs the loop, and none does.
        unsafe {
            let inner = self.inner.lock();
            let batch = &*self.batch.get();
            let rest = batch.items.get(batch.at..).unwrap_or_default();
            let queued =
                rest.iter().chain(&inner.ready).filter(|item| item.is_handle()).map(|item| item.as_handle());
            let others = inner.timers.iter().chain(inner.descriptors.handles());
            for made in queued.chain(others).chain(self.handed.waiting()) {
                handle::show_if_kept(made);
            }
        }
    }

    /// Drops everything that was scheduled, and all descriptors.
    pub(super) fn drop_all(&self) {
        // SAFETY: as of `enqueue`. The batch belongs to the thread that runs the loop, and none does.
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
        for made in timers.into_iter().chain(self.handed.take()) {
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

impl Drop for LoopCore {
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

/// Whether this method of a loop is the compiled one: a subclass or a program may have put another in its place.
///
/// # Safety
///
/// A live loop and name.
pub(super) unsafe fn has_our_method(
    owner: *mut ffi::PyObject,
    name: *mut ffi::PyObject,
) -> Result<bool, Raised> {
    // SAFETY: the caller's.
    unsafe {
        let method = Object::own(ffi::PyObject_GetAttr(owner, name))?;
        Ok(ffi::PyCFunction_Check(method.as_ptr()) != 0 && ffi::PyCFunction_GetSelf(method.as_ptr()) == owner)
    }
}

pub(super) fn none() -> *mut ffi::PyObject {
    Object::none().into_ptr()
}
