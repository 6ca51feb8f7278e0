//! Buffers of Python's that messages share, and how they come back.
//!
//! A message is let go by whichever thread has sent its last byte, perhaps under a socket's lock, so its drop must not
//! attach to the interpreter: it pushes the buffer onto a stack without locks. Whoever next calls into this module with
//! the interpreter attached takes them off. So that nothing is kept for long when nobody calls, a thread looks in as
//! well: at once where a tracker waits for it, else after some milliseconds, and then only if nobody else has, for it
//! takes the interpreter away from whoever is running. It starts with the first buffer that is shared and ends before
//! the interpreter does.

use std::cell::Cell;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit, ffi};
use ropewalk_sync::{Mutex, PerProcess};

/// Buffers that were let go: a stack of [`Node`]s. Any thread pushes; one that is attached takes all of them.
static RETURNED: AtomicPtr<Node> = AtomicPtr::new(ptr::null_mut());
/// Buffers that are shared and not yet released. Written by attached threads only. Together with `ALERT` it decides
/// whether the thread has to be woken, so both are sequentially consistent.
static SHARED: AtomicUsize = AtomicUsize::new(0);
/// Whether the thread looks in by itself. Only the thread writes it.
static ALERT: AtomicBool = AtomicBool::new(false);
/// How often the stack was taken. Attached threads count; the thread compares, and nothing else depends on it.
static ROUNDS: AtomicUsize = AtomicUsize::new(0);
/// Whether a tracked buffer was pushed that nobody is about to take. Any thread sets it after the push; only the
/// thread takes it back.
static URGENT: AtomicBool = AtomicBool::new(false);
/// Tells the thread to end; set once, before the interpreter is finalized.
static ENDING: AtomicBool = AtomicBool::new(false);
/// The thread, and the fork generation that it belongs to. Locked by attached threads only.
static WATCHER: PerProcess<Mutex<Option<JoinHandle<()>>>> = PerProcess::new();

thread_local! {
    /// Whether this thread takes what has come back as soon as its call is done.
    static COLLECTS: Cell<bool> = const { Cell::new(false) };
}

const SHORTEST_NAP: Duration = Duration::from_millis(10);
const LONGEST_NAP: Duration = Duration::from_millis(320);
/// Naps with nothing shared before the thread sleeps until it is woken.
const IDLE_NAPS: u32 = 8;

struct Node {
    view: View,
    /// A `threading.Event` of a tracker, owned; or null.
    event: *mut ffi::PyObject,
    /// Who is told at once, if there is an event.
    watcher: Thread,
    next: *mut Node,
}

/// A contiguous buffer of a Python object, held until it is dropped. A drop while attached gives it back there.
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

    /// The room that a writable view gives.
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
        // SAFETY: the node is ours until the push; its watcher and event are read before.
        let wake = unsafe { (!(*node).event.is_null()).then(|| (*node).watcher.clone()) };
        let mut head = RETURNED.load(Ordering::Relaxed);
        loop {
            // SAFETY: still ours.
            unsafe { (*node).next = head };
            // Release: whoever takes the stack sees the node's fields.
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

/// A shared buffer that a frame of Python's holds, and whatever was made of the frame: messages, for one.
#[derive(Clone)]
pub(crate) struct Joint(Arc<Shared>);

impl Joint {
    pub(crate) fn new(shared: Shared) -> Self {
        Self(Arc::new(shared))
    }

    /// Shows the collector whose buffer it is, if nobody but the caller holds the buffer. Another holder may be a
    /// message that is being sent: the collector does not know it, and its bytes must stay. The event is not shown: it
    /// is set when the buffer has come back, which is after the collector would have taken it apart.
    ///
    /// During a collection nobody can come to share it, since that takes a frame and an interpreter; others may let it
    /// go. What one pass was not shown and a later one is, the collector takes for something that is kept.
    pub(crate) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        if Arc::strong_count(&self.0) > 1 {
            return Ok(());
        }
        // SAFETY: the node lives until the drop, and nobody writes its view before that.
        let field = unsafe { &raw const self.0.0.as_ref().view.0.obj };
        // A memoryview does not survive it to be taken apart by the collector while it is exported: its end reads what
        // is gone by then. Other objects do, since memoryviews show them in the same way.
        // SAFETY: null, or an object that the view keeps; only its type is looked at.
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

/// Shares a view with a message; `event` is set once the message has let it go. `None` gives the view back: the
/// interpreter is about to end, and nobody would release it any more.
pub(crate) fn share(view: View, event: Option<&Bound<'_, PyAny>>) -> PyResult<Result<Shared, View>> {
    let Some(watcher) = watcher()? else { return Ok(Err(view)) };
    let event = event.map_or(ptr::null_mut(), |event| event.clone().into_ptr());
    let node = Box::new(Node { view, event, watcher: watcher.clone(), next: ptr::null_mut() });
    SHARED.fetch_add(1, Ordering::SeqCst);
    if !ALERT.load(Ordering::SeqCst) {
        watcher.unpark();
    }
    Ok(Ok(Shared(NonNull::from(Box::leak(node)))))
}

/// While it lives, what this thread lets go is nobody else's to look after: it collects it at the end.
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

/// Releases what has come back. Cheap when nothing has.
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

/// The thread that looks in, started if it is not there; `None` once the interpreter is ending.
fn watcher() -> PyResult<Option<Thread>> {
    if ENDING.load(Ordering::Relaxed) {
        return Ok(None);
    }
    let mut current = WATCHER.get(Mutex::default).lock();
    if let Some(thread) = &*current {
        return Ok(Some(thread.thread().clone()));
    }
    ALERT.store(false, Ordering::SeqCst);
    let thread = std::thread::Builder::new().name("ropewalk-release".into()).spawn(watch)?;
    let handle = thread.thread().clone();
    *current = Some(thread);
    Ok(Some(handle))
}

fn watch() {
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
            std::thread::park_timeout(nap);
        } else {
            ALERT.store(false, Ordering::SeqCst);
            // Looked at again: who shares after this sees that nobody is alert, and wakes us.
            if SHARED.load(Ordering::SeqCst) == 0 {
                std::thread::park();
            }
            (nap, idle) = (SHORTEST_NAP, 0);
        }
    }
}

/// Runs among the interpreter's exit handlers: ends the thread while the interpreter is whole, for one that attached
/// later would never come back.
#[pyfunction]
#[pyo3(name = "_leave")]
fn leave(py: Python<'_>) {
    ENDING.store(true, Ordering::SeqCst);
    if let Some(thread) = WATCHER.existing().and_then(|watcher| watcher.lock().take()) {
        thread.thread().unpark();
        // What it panicked of was printed.
        let _ = py.detach(|| thread.join());
    }
    collect(py);
}

/// Registers `leave` when the module is made, so that handlers registered later, which may use sockets, run before it.
pub(crate) fn at_exit(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.py().import("atexit")?.call_method1("register", (wrap_pyfunction!(leave, m)?,))?;
    Ok(())
}
