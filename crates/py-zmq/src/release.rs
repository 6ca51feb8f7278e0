//! Python buffers that messages share, and their release.
//!
//! The thread that sends the last byte of a message drops it, perhaps under a socket's lock, so the drop must not
//! attach to the interpreter: it pushes the buffer onto a lock-free stack. The next attached thread that calls into
//! this module takes the buffers off. So that no buffer is kept for long when no thread calls, a watcher thread checks,
//! too: at once if a tracker waits for a buffer, else after some milliseconds, and only if no other thread has, because
//! it takes the interpreter from a running thread. It starts with the first shared buffer and ends before the
//! interpreter does.

use std::cell::Cell;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit, ffi};
use ropewalk_sync::{Mutex, Parker, PerProcess};

/// Released buffers: a stack of [`Node`]s. Any thread pushes; an attached one takes all of them.
static RETURNED: AtomicPtr<Node> = AtomicPtr::new(ptr::null_mut());
/// Buffers that are shared and not yet released. Written by attached threads only. Together with `ALERT` it decides
/// whether the watcher must be woken, so both are sequentially consistent.
static SHARED: AtomicUsize = AtomicUsize::new(0);
/// Whether the watcher checks by itself. Only the watcher writes it.
static ALERT: AtomicBool = AtomicBool::new(false);
/// How often the stack was taken. Attached threads count; the watcher compares, and nothing else depends on it.
static ROUNDS: AtomicUsize = AtomicUsize::new(0);
/// Whether a tracked buffer was pushed that no thread is about to take. Any thread sets it after the push; only the
/// watcher clears it.
static URGENT: AtomicBool = AtomicBool::new(false);
/// Tells the watcher to end; set once, before the interpreter is finalized.
static ENDING: AtomicBool = AtomicBool::new(false);
/// The watcher. Locked by attached threads only.
static WATCHER: PerProcess<Mutex<Option<Watcher>>> = PerProcess::new();

thread_local! {
    /// Whether this thread takes released buffers as soon as its call is done.
    static COLLECTS: Cell<bool> = const { Cell::new(false) };
}

const SHORTEST_NAP: Duration = Duration::from_millis(10);
const LONGEST_NAP: Duration = Duration::from_millis(320);
/// Naps with nothing shared before the thread sleeps until it is woken.
const IDLE_NAPS: u32 = 8;

struct Watcher {
    thread: JoinHandle<()>,
    /// Where the thread sleeps.
    parker: Arc<Parker>,
}

struct Node {
    view: View,
    /// A `threading.Event` of a tracker, owned; or null.
    event: *mut ffi::PyObject,
    /// Where the thread sleeps that is woken at once, if there is an event.
    watcher: Arc<Parker>,
    next: *mut Node,
}

/// A contiguous buffer of a Python object. A drop while attached releases it at once.
pub(crate) struct View(Box<ffi::Py_buffer>);

impl View {
    /// Asks an object for its bytes.
    pub(crate) fn of(object: &Bound<'_, PyAny>, writable: bool) -> PyResult<Self> {
        let mut view = Box::new(ffi::Py_buffer::new());
        let flags = ffi::PyBUF_ANY_CONTIGUOUS | if writable { ffi::PyBUF_WRITABLE } else { 0 };
        // SAFETY: a live object, and room for its view.
        if unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &raw mut *view, flags) } != 0 {
            return Err(PyErr::fetch(object.py()));
        }
        Ok(Self(view))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match usize::try_from(self.0.len) {
            // SAFETY: the buffer is that long, and held for as long as `self` is borrowed. Its owner may write
            // meanwhile, as with any message that shares memory; only the bytes that are sent depend on it.
            Ok(length) if length > 0 && !self.0.buf.is_null() => unsafe {
                std::slice::from_raw_parts(self.0.buf.cast(), length)
            },
            _ => &[],
        }
    }

    /// The memory of a writable view.
    pub(crate) fn room(&mut self) -> (*mut u8, usize) {
        (self.0.buf.cast(), usize::try_from(self.0.len).unwrap_or(0))
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: views are made and dropped by attached threads only; each is released once.
        unsafe { ffi::PyBuffer_Release(&raw mut *self.0) };
    }
}

// SAFETY: the view stays where it is while another thread only reads through it.
unsafe impl Sync for View {}

/// A buffer that a message shares with Python.
pub(crate) struct Shared(NonNull<Node>);

// SAFETY: the node is this value's own; the bytes may be read anywhere, and the drop only pushes the node.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the node lives until the drop, and holds the view.
        unsafe { self.0.as_ref() }.view.bytes()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let node = self.0.as_ptr();
        // SAFETY: the node is ours until the push; its watcher and event are read before it.
        let wake = unsafe { (!(*node).event.is_null()).then(|| Arc::clone(&(*node).watcher)) };
        let mut head = RETURNED.load(Ordering::Relaxed);
        loop {
            // SAFETY: still ours.
            unsafe { (*node).next = head };
            // Release: a thread that takes the stack sees the node's fields.
            match RETURNED.compare_exchange_weak(head, node, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
        if let Some(watcher) = wake
            && !COLLECTS.try_with(Cell::get).unwrap_or(false)
        {
            URGENT.store(true, Ordering::Release);
            watcher.unpark();
        }
    }
}

/// A shared buffer that a Python frame holds together with everything made of the frame, such as messages.
#[derive(Clone)]
pub(crate) struct Joint(Arc<Shared>);

impl Joint {
    pub(crate) fn new(shared: Shared) -> Self {
        Self(Arc::new(shared))
    }

    /// Shows the buffer's owner to the collector, if only the caller holds the buffer. Another holder may be a message
    /// that is being sent: the collector does not know it, and its bytes must stay. The event is not shown: it is set
    /// when the buffer is released, which is after the collector would have cleared it.
    ///
    /// During a collection no thread can begin to share the buffer, since that takes a frame and an interpreter; others
    /// may release it. The collector treats an object that only a later pass shows as one that is kept.
    pub(crate) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        if Arc::strong_count(&self.0) > 1 {
            return Ok(());
        }
        // SAFETY: the node lives until the drop, and no thread writes its view before that.
        let field = unsafe { &raw const self.0.0.as_ref().view.0.obj };
        // A memoryview must not be cleared by the collector while it is exported: its destructor would read freed
        // memory. Other objects survive that, since memoryviews show them in the same way. SAFETY: null, or an object
        // that the view keeps; only its type is looked at.
        if unsafe { !(*field).is_null() && ffi::PyMemoryView_Check(*field) != 0 } {
            return Ok(());
        }
        // SAFETY: `Py` is a pointer that is not null, and nothing else; `None` is the null pointer. The view owns the
        // reference.
        visit.call(unsafe { &*field.cast::<Option<Py<PyAny>>>() })
    }
}

impl AsRef<[u8]> for Joint {
    fn as_ref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

/// Shares a view with a message; `event` is set once the message has released it. Without a result the view comes back:
/// the interpreter is about to end, and no thread would release it any more.
pub(crate) fn share(view: View, event: Option<&Bound<'_, PyAny>>) -> PyResult<Result<Shared, View>> {
    let Some(watcher) = watcher()? else { return Ok(Err(view)) };
    let event = event.map_or(ptr::null_mut(), |event| event.clone().into_ptr());
    let node = Box::new(Node { view, event, watcher: Arc::clone(&watcher), next: ptr::null_mut() });
    SHARED.fetch_add(1, Ordering::SeqCst);
    if !ALERT.load(Ordering::SeqCst) {
        watcher.unpark();
    }
    Ok(Ok(Shared(NonNull::from(Box::leak(node)))))
}

/// While this lives, only this thread takes the buffers that it releases; it does so at the end.
pub(crate) struct Collecting<'py>(Python<'py>);

impl<'py> Collecting<'py> {
    pub(crate) fn new(py: Python<'py>) -> Self {
        COLLECTS.set(true);
        Self(py)
    }
}

impl Drop for Collecting<'_> {
    fn drop(&mut self) {
        COLLECTS.set(false);
        collect(self.0);
    }
}

/// Takes the released buffers. Cheap if there are none.
#[inline]
pub(crate) fn collect(py: Python<'_>) {
    if !RETURNED.load(Ordering::Relaxed).is_null() {
        collect_all(py);
    }
}

#[cold]
fn collect_all(py: Python<'_>) {
    ROUNDS.fetch_add(1, Ordering::Relaxed);
    // Acquire: pairs with the push.
    let mut head = RETURNED.swap(ptr::null_mut(), Ordering::Acquire);
    while !head.is_null() {
        // SAFETY: it was leaked by `share`, pushed once, and the stack was taken as a whole.
        let Node { view, event, next, .. } = *unsafe { Box::from_raw(head) };
        head = next;
        drop(view);
        SHARED.fetch_sub(1, Ordering::SeqCst);
        // SAFETY: an owned reference, or null.
        if let Some(event) = unsafe { Bound::from_owned_ptr_or_opt(py, event) }
            && let Err(error) = event.call_method0("set")
        {
            error.write_unraisable(py, Some(&event));
        }
    }
}

/// Where the watcher thread sleeps, which is started if it does not run; `None` once the interpreter is ending.
fn watcher() -> PyResult<Option<Arc<Parker>>> {
    if ENDING.load(Ordering::Relaxed) {
        return Ok(None);
    }
    let mut current = WATCHER.get(Mutex::default).lock();
    if let Some(watcher) = &*current {
        return Ok(Some(Arc::clone(&watcher.parker)));
    }
    ALERT.store(false, Ordering::SeqCst);
    let parker = Arc::new(Parker::new());
    let own = Arc::clone(&parker);
    let thread = std::thread::Builder::new().name("ropewalk-release".into()).spawn(move || watch(&own))?;
    *current = Some(Watcher { thread, parker: Arc::clone(&parker) });
    Ok(Some(parker))
}

fn watch(parker: &Parker) {
    let (mut nap, mut idle, mut seen) = (SHORTEST_NAP, 0, ROUNDS.load(Ordering::Relaxed));
    while !ENDING.load(Ordering::SeqCst) {
        let rounds = ROUNDS.load(Ordering::Relaxed);
        let neglected = rounds == seen && !RETURNED.load(Ordering::Relaxed).is_null();
        seen = rounds;
        if URGENT.swap(false, Ordering::Acquire) || neglected {
            Python::attach(collect);
            nap = SHORTEST_NAP;
        } else {
            nap = (nap * 2).min(LONGEST_NAP);
        }
        idle = if SHARED.load(Ordering::SeqCst) == 0 { idle + 1 } else { 0 };
        if idle < IDLE_NAPS {
            ALERT.store(true, Ordering::SeqCst);
            parker.park(Some(nap));
        } else {
            ALERT.store(false, Ordering::SeqCst);
            // Checked again: a thread that shares later sees that the watcher is not alert, and wakes it.
            if SHARED.load(Ordering::SeqCst) == 0 {
                parker.park(None);
            }
            (nap, idle) = (SHORTEST_NAP, 0);
        }
    }
}

/// Runs among the interpreter's exit handlers: ends the watcher while the interpreter is whole, because a thread that
/// attached later would never return.
#[pyfunction]
#[pyo3(name = "_leave")]
fn leave(py: Python<'_>) {
    ENDING.store(true, Ordering::SeqCst);
    if let Some(watcher) = WATCHER.existing().and_then(|watcher| watcher.lock().take()) {
        watcher.parker.unpark();
        // Its panic was printed.
        let _ = py.detach(|| watcher.thread.join());
    }
    collect(py);
}

/// Registers `leave` when the module is made, so that handlers registered later, which may use sockets, run before it.
pub(crate) fn at_exit(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.py().import("atexit")?.call_method1("register", (wrap_pyfunction!(leave, m)?,))?;
    Ok(())
}
