//! Coroutines that wait at one end of a queue, and how their loops are woken: once for a burst.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::thread::ThreadId;

use pyo3_ffi as ffi;
use ropewalk_os::process;

use super::queue::{Queue, Side};
use ropewalk_capi::entry;
use ropewalk_capi::heap;
use ropewalk_capi::object::{Object, Raised, text};

/// The coroutines of one loop, by the futures that they wait for.
pub(super) struct Group {
    event_loop: Object,
    /// The thread in which the loop ran when somebody last began to wait.
    thread: ThreadId,
    /// The loop's `call_soon_threadsafe`.
    call_soon: Object,
    /// A `Waker` for this loop.
    waker: Object,
    /// The waker has been scheduled and has not run.
    pending: bool,
    futures: VecDeque<Object>,
    /// The process that the loop belongs to, as a count of forks: a loop does not survive one.
    forks: u64,
}

/// The loops whose coroutines wait at one end.
#[derive(Default)]
pub(super) struct Loops(Vec<Group>);

/// Loops to be woken: what to call, with what, and from where it may perhaps be called at once.
#[derive(Default)]
pub(super) struct Wakers(Vec<(Object, Object, ThreadId)>);

fn current_thread() -> ThreadId {
    std::thread::current().id()
}

/// The event loop that this thread runs, if any.
pub(super) fn running_loop() -> Result<Option<Object>, Raised> {
    // Without asyncio there is no loop, and this is no reason to import it.
    let name = text("asyncio")?;
    // SAFETY: a live string; null without an exception where there is no such module.
    let Ok(asyncio) = (unsafe { Object::own(ffi::PyImport_GetModule(name.as_ptr())) }) else {
        return Ok(None);
    };
    let running = asyncio.attribute(c"_get_running_loop")?.call(&[])?;
    Ok(Some(running).filter(|running| !running.is_none()))
}

impl Loops {
    /// Whether any loop has to be woken when something happens.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.0.iter().any(|group| !group.pending && !group.futures.is_empty())
    }

    /// Whether anybody waits in a loop.
    pub(super) fn is_waited_in(&self) -> bool {
        self.0.iter().any(|group| !group.futures.is_empty())
    }

    /// Marks every loop that has to be woken as pending.
    pub(super) fn mark_pending(&mut self) -> Wakers {
        let mut wakers = Vec::new();
        for group in &mut self.0 {
            if !group.pending && !group.futures.is_empty() && group.forks == process::fork_generation() {
                group.pending = true;
                wakers.push((group.call_soon.clone(), group.waker.clone(), group.thread));
            }
        }
        Wakers(wakers)
    }

    fn find(&mut self, event_loop: *mut ffi::PyObject) -> Option<&mut Group> {
        self.0.iter_mut().find(|group| group.event_loop.as_ptr() == event_loop)
    }

    /// Takes a future away, unless somebody has taken it to wake it.
    fn remove(&mut self, future: *mut ffi::PyObject) -> Option<Object> {
        self.0.iter_mut().find_map(|group| {
            let at = group.futures.iter().position(|known| known.as_ptr() == future)?;
            group.futures.remove(at)
        })
    }

    /// Everything that is referred to, for the garbage collector.
    pub(super) fn objects(&self) -> impl Iterator<Item = &Object> {
        self.0.iter().flat_map(|group| {
            [&group.event_loop, &group.call_soon, &group.waker].into_iter().chain(&group.futures)
        })
    }

    /// Forgets a loop and everybody in it; what was known is dropped without the guard.
    fn forget(&mut self, event_loop: &Object) -> Option<Group> {
        let at = self.0.iter().position(|group| group.event_loop.as_ptr() == event_loop.as_ptr())?;
        Some(self.0.swap_remove(at))
    }

    /// Everything, for whoever has the queue to itself.
    pub(super) fn take(&mut self) -> Vec<Group> {
        std::mem::take(&mut self.0)
    }
}

impl Wakers {
    /// Wakes the loops. The thread is attached and holds no guard.
    pub(super) fn wake(self) {
        for (call_soon, object, thread) in self.0 {
            // SAFETY: a waker, which lives meanwhile.
            let waker = unsafe { heap::content::<Waker>(object.as_ptr()) };
            if thread == current_thread() && waker.is_here() {
                waker.wake();
            } else if call_soon.call(&[object.as_ptr()]).is_err() {
                waker.failed(&call_soon, &object);
            }
        }
    }
}

/// What a loop calls to wake the coroutines that wait at one end of a queue.
struct Waker {
    /// Weak, because the queue refers to the waker.
    queue: Weak<Queue>,
    side: Side,
    /// Compared only: the queue holds the loop for as long as it knows the waker.
    event_loop: *mut ffi::PyObject,
}

impl Waker {
    /// Whether this thread runs the loop now. That it did when somebody began to wait there says nothing: a loop may
    /// be run by one thread after another, and must be woken from the others.
    fn is_here(&self) -> bool {
        match running_loop() {
            Ok(running) => running.is_some_and(|running| running.as_ptr() == self.event_loop),
            Err(Raised) => {
                // SAFETY: the thread is attached.
                unsafe { ffi::PyErr_Clear() };
                false
            }
        }
    }

    /// Wakes the coroutines. Called in the loop's thread.
    fn wake(&self) {
        if let Some(queue) = self.queue.upgrade() {
            queue.wake_loop(self.side, self.event_loop);
        }
    }

    /// Deals with what `call_soon_threadsafe` raised.
    #[cold]
    fn failed(&self, call_soon: &Object, waker: &Object) {
        // SAFETY: an exception is set; the objects are live.
        unsafe {
            if ffi::PyErr_ExceptionMatches(ffi::PyExc_RuntimeError) != 0 {
                // The loop is closed: nobody waits there any more. It stays marked, so that it is not tried again.
                ffi::PyErr_Clear();
                return;
            }
            let interrupted = ffi::PyErr_ExceptionMatches(ffi::PyExc_KeyboardInterrupt) != 0;
            if interrupted {
                // It is a function of Python's, in which an interrupt may come. The loop is told all the same.
                ffi::PyErr_Clear();
                if call_soon.call(&[waker.as_ptr()]).is_ok() {
                    ffi::PyErr_SetInterrupt(); // Comes again, where the publisher goes on.
                    return;
                }
            }
            ffi::PyErr_WriteUnraisable(call_soon.as_ptr());
            if interrupted {
                ffi::PyErr_SetInterrupt();
            }
        }
        // The next message tries again.
        if let Some(queue) = self.queue.upgrade()
            && let Some(group) = queue.lock().loops(self.side).find(self.event_loop)
        {
            group.pending = false;
        }
    }
}

#[entry]
unsafe extern "C" fn call(
    waker: *mut ffi::PyObject,
    _arguments: *mut ffi::PyObject,
    _names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: an object of the type that this is a slot of.
    unsafe { heap::content::<Waker>(waker) }.wake();
    Object::none().into_ptr()
}

#[entry]
unsafe extern "C" fn traverse(
    waker: *mut ffi::PyObject,
    visit: ffi::visitproc,
    arg: *mut std::ffi::c_void,
) -> std::ffi::c_int {
    // SAFETY: an object of a heap type.
    unsafe { heap::visit_type(waker, visit, arg) }
}

/// Makes the type of wakers.
pub(super) fn make_type(module: &Object) -> Result<Object, Raised> {
    heap::make_type::<Waker>(
        module,
        heap::Type {
            name: c"ropewalk._bus._Waker",
            doc: c"Wakes the coroutines of one loop that wait for a subscription.",
            flags: ffi::Py_TPFLAGS_HAVE_GC | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION,
            methods: Vec::new(),
            getters: Vec::new(),
            slots: &[
                (ffi::Py_tp_call, call as *mut _),
                (ffi::Py_tp_traverse, traverse as *mut _),
                (ffi::Py_tp_dealloc, heap::dealloc::<Waker> as *mut _),
            ],
        },
    )
}

/// `future.set_result(None)`, unless it is done; true if this woke somebody.
fn resolve(future: &Object) -> Result<bool, Raised> {
    let done = future.attribute(c"done")?.call(&[])?;
    // SAFETY: a live object.
    if unsafe { ffi::PyObject_IsTrue(done.as_ptr()) } != 0 {
        return Ok(false);
    }
    future.attribute(c"set_result")?.call(&[Object::none().as_ptr()])?;
    Ok(true)
}

impl Queue {
    /// Wakes as many coroutines of a loop as may find something. Called in the loop's thread.
    fn wake_loop(&self, side: Side, event_loop: *mut ffi::PyObject) {
        match self.lock().loops(side).find(event_loop) {
            Some(group) => group.pending = false,
            None => return,
        }
        // After the mark is taken away: what comes later has the loop woken again.
        let mut left = self.worth_waking(side);
        while left > 0 {
            let future = self.lock().loops(side).find(event_loop).and_then(|group| group.futures.pop_front());
            let Some(future) = future else { return };
            match resolve(&future) {
                Ok(true) => left -= 1,
                Ok(false) => {}
                Err(Raised) => {
                    // SAFETY: an exception is set, the object is live.
                    unsafe { ffi::PyErr_WriteUnraisable(future.as_ptr()) };
                }
            }
        }
    }

    /// Has a coroutine of the running loop wait at one end: its future, or `None` if it need not wait.
    pub(super) fn wait_in_loop(
        self: &Arc<Self>,
        side: Side,
        waker_type: *mut ffi::PyTypeObject,
    ) -> Result<Option<Object>, Raised> {
        // SAFETY: plain calls of the C API.
        let asyncio = unsafe { Object::own(ffi::PyImport_ImportModule(c"asyncio".as_ptr()))? };
        let event_loop = asyncio.attribute(c"get_running_loop")?.call(&[])?;
        let future = event_loop.attribute(c"create_future")?.call(&[])?;
        let known = self.lock().loops(side).find(event_loop.as_ptr()).is_some();
        let mut fresh = None;
        if !known {
            self.forget_closed_loops(side)?;
            let waker = Waker { queue: Arc::downgrade(self), side, event_loop: event_loop.as_ptr() };
            fresh = Some(Group {
                thread: current_thread(),
                call_soon: event_loop.attribute(c"call_soon_threadsafe")?,
                // SAFETY: the type of wakers.
                waker: unsafe { heap::make(waker_type, waker)? },
                event_loop: event_loop.clone(),
                pending: false,
                futures: VecDeque::new(),
                forks: process::fork_generation(),
            });
        }
        let mut state = self.lock();
        let loops = state.loops(side);
        if loops.find(event_loop.as_ptr()).is_none() {
            loops.0.extend(fresh.take());
        }
        if let Some(group) = loops.find(event_loop.as_ptr()) {
            group.thread = current_thread();
            group.futures.push_back(future.clone());
        }
        drop(state);
        // After it is known there: who publishes from here on wakes it. For a report that is the feed's thread.
        let feed = self.feed.as_ref().filter(|_| side == Side::Receivers);
        let has_report = feed.is_some_and(|feed| !feed.mailbox.watch());
        if has_report || self.is_open(side) {
            let removed = self.lock().loops(side).remove(future.as_ptr());
            if removed.is_some() {
                return Ok(None); // What was made goes here, without the guard.
            }
        }
        Ok(Some(future))
    }

    /// Forgets loops that were closed: one `asyncio.run` after another would leave one each.
    fn forget_closed_loops(&self, side: Side) -> Result<(), Raised> {
        let known: Vec<Object> =
            self.lock().loops(side).0.iter().map(|group| group.event_loop.clone()).collect();
        for event_loop in known {
            let closed = event_loop.attribute(c"is_closed")?.call(&[])?;
            // SAFETY: a live object.
            if unsafe { ffi::PyObject_IsTrue(closed.as_ptr()) } == 1 {
                let gone = self.lock().loops(side).forget(&event_loop);
                drop(gone);
            }
        }
        Ok(())
    }

    /// Forgets a coroutine that waits no more. If it was woken already, another is woken in its place.
    pub(super) fn leave_loop(&self, side: Side, future: *mut ffi::PyObject) {
        let removed = self.lock().loops(side).remove(future);
        if removed.is_none() {
            self.pass_on(side);
        }
    }
}
