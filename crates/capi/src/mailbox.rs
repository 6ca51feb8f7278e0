//! A mailbox for each event loop: posts of other threads are delivered in the loop's own thread, with one wake-up for a
//! burst.
//!
//! A thread that has something for a loop gets its mailbox ([`Mailbox::of`]) and posts. The first post after a delivery
//! schedules the mailbox by `call_soon_threadsafe`; posts that arrive before the loop begins to deliver are delivered
//! with it. Pools, subscriptions and sockets share the mailbox, so that a burst from all of them wakes a loop once.
//!
//! The loop holds its mailbox, as an attribute, and the mailbox knows the loop by a weak reference. So a mailbox lives
//! as long as its loop, and posts that a closed loop never took are collected with it. A table from loops to mailboxes
//! would keep both alive, because posts refer to their loop. A loop that accepts no attributes gets a mailbox for each
//! caller.
//!
//! A forked child has none of its parent's mailboxes: nothing posted to one arrives, since a wake-up would write into a
//! descriptor that the parent reads. A loop that the child goes on using gets a new one.

use std::collections::VecDeque;
use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ThreadId;

use pyo3_ffi as ffi;
use ropewalk_os::process::fork_generation;

use crate::entry::entry;
use crate::errors::fail;
use crate::guarded::{Guard, Guarded};
use crate::heap;
use crate::object::{Kept, Object, Raised};
use crate::running_loop;

/// The attribute in which a loop has its mailbox.
const ATTRIBUTE: &CStr = c"_ropewalk_mailbox";
/// The key under which an interpreter has the type.
const TYPE: &CStr = c"ropewalk.Mailbox";

/// An object whose coroutines wait in loops.
pub trait Wakes {
    /// Wakes the coroutines that wait at a place in the loop with this mailbox. Called in the loop's thread.
    fn wake(&self, place: usize, mailbox: *mut ffi::PyObject);

    /// The loop could not be woken for them; the next event posts again.
    fn not_woken(&self, place: usize, mailbox: *mut ffi::PyObject);
}

/// A post to a loop.
pub enum Post {
    /// Resolve a future of the loop with `None`, unless it is done.
    Resolve(Object),
    /// Call an object, with two arguments or none.
    Call(Object, Option<(Object, Object)>),
    /// Wake the coroutines that wait at a place of an object, if that still lives.
    Wake(Weak<dyn Wakes>, usize),
}

/// A reference to a mailbox; see the module.
#[derive(Clone, Debug)]
pub struct Mailbox(Object);

struct Content {
    /// A weak reference to the loop.
    event_loop: Object,
    /// The loop's address, only compared.
    address: *mut ffi::PyObject,
    /// The process that the loop belongs to, as a count of forks.
    forks: u64,
    /// The names of two methods of futures.
    done: Object,
    set_result: Object,
    /// The loop holds the mailbox, so it stays the same.
    is_held: AtomicBool,
    state: Guarded<State>,
}

#[derive(Default)]
struct State {
    posts: VecDeque<Post>,
    /// The loop was woken and has not begun to deliver.
    woken: bool,
    /// The thread in which the loop ran when a coroutine last began to wait there.
    thread: Option<ThreadId>,
}

// SAFETY: what is in it are references into the interpreter, and posts that are made and delivered by attached threads;
// see `Guarded`.
unsafe impl Send for State {}

fn current_thread() -> ThreadId {
    std::thread::current().id()
}

fn is_true(object: &Object) -> Result<bool, Raised> {
    // SAFETY: a live object.
    let truth = unsafe { ffi::PyObject_IsTrue(object.as_ptr()) };
    if truth < 0 { Err(Raised) } else { Ok(truth != 0) }
}

/// An interned string: the interpreter's method cache finds an attribute only by such a name.
fn interned(name: &CStr) -> Result<Object, Raised> {
    // SAFETY: a C string.
    unsafe { Object::own(ffi::PyUnicode_InternFromString(name.as_ptr())) }
}

/// The content of a mailbox.
///
/// # Safety
///
/// `object` is of the type that `kind` gives, and lives while the reference does.
unsafe fn content<'a>(object: *mut ffi::PyObject) -> &'a Content {
    // SAFETY: the caller's.
    unsafe { heap::content(object) }
}

impl Mailbox {
    /// The mailbox of a loop.
    ///
    /// # Errors
    ///
    /// An exception is set.
    pub fn of(event_loop: &Object) -> Result<Self, Raised> {
        let (kind, name) = (kind()?, interned(ATTRIBUTE)?);
        // SAFETY: live objects.
        let known = unsafe { Object::own(ffi::PyObject_GetAttr(event_loop.as_ptr(), name.as_ptr())) };
        if let Ok(known) = known {
            // SAFETY: live objects. There is no subtype, so what has the type is a mailbox.
            if unsafe { ffi::Py_TYPE(known.as_ptr()) }.cast() == kind.as_ptr() {
                let known = Self(known);
                if known.content().address == event_loop.as_ptr() && known.is_ours() {
                    return Ok(known);
                }
            }
        } else {
            // SAFETY: the thread is attached.
            unsafe { ffi::PyErr_Clear() };
        }
        // SAFETY: a live object, no callback; the type of such contents.
        let made = unsafe {
            let content = Content {
                event_loop: Object::own(ffi::PyWeakref_NewRef(event_loop.as_ptr(), null_mut()))?,
                address: event_loop.as_ptr(),
                forks: fork_generation(),
                done: interned(c"done")?,
                set_result: interned(c"set_result")?,
                is_held: AtomicBool::new(false),
                state: Guarded::new(State::default()),
            };
            heap::make(kind.as_ptr().cast(), content)?
        };
        let made = Self(made);
        // SAFETY: live objects.
        unsafe {
            let mut is_held = ffi::PyObject_SetAttr(event_loop.as_ptr(), name.as_ptr(), made.0.as_ptr()) == 0;
            if is_held {
                // A loop may accept an attribute without keeping it.
                let kept = Object::own(ffi::PyObject_GetAttr(event_loop.as_ptr(), name.as_ptr()));
                is_held = kept.is_ok_and(|kept| kept.as_ptr() == made.0.as_ptr());
            }
            ffi::PyErr_Clear();
            // Relaxed: it is a hint, and orders nothing.
            made.content().is_held.store(is_held, Ordering::Relaxed);
        }
        Ok(made)
    }

    /// The mailbox that the interpreter passes to a function of its type.
    ///
    /// # Safety
    ///
    /// `object` is a live mailbox.
    unsafe fn share(object: *mut ffi::PyObject) -> Result<Self, Raised> {
        // SAFETY: the caller's.
        unsafe { Object::share(object) }.map(Self)
    }

    /// The Python object.
    #[inline]
    #[must_use]
    pub fn object(&self) -> &Object {
        &self.0
    }

    /// The Python object, owned.
    #[must_use]
    pub fn into_object(self) -> Object {
        self.0
    }

    fn content(&self) -> &Content {
        // SAFETY: a mailbox, which this refers to.
        unsafe { content(self.0.as_ptr()) }
    }

    /// Records that this thread runs the loop, for [`is_here`](Self::is_here).
    pub fn enter(&self) {
        self.content().lock().thread = Some(current_thread());
    }

    /// Whether this thread runs the loop now. The recorded thread is not proof: one thread after another may run a
    /// loop, and it must be woken from the others.
    #[must_use]
    pub fn is_here(&self) -> bool {
        // Checked first, because it is cheap: nearly always another thread posts.
        if self.content().lock().thread != Some(current_thread()) {
            return false;
        }
        match running_loop::running() {
            Ok(running) => running.is_some_and(|running| running.as_ptr() == self.content().address),
            Err(Raised) => {
                // SAFETY: the thread is attached.
                unsafe { ffi::PyErr_Clear() };
                false
            }
        }
    }

    /// Whether the loop accepted the mailbox as an attribute. One that did not gets another from each
    /// [`of`](Self::of).
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.content().is_held.load(Ordering::Relaxed)
    }

    /// Whether the loop belongs to this process.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.content().forks == fork_generation()
    }

    /// Whether no coroutine will ever wait in the loop again: it is gone, closed, or another process's.
    ///
    /// # Errors
    ///
    /// An exception is set.
    pub fn is_dead(&self) -> Result<bool, Raised> {
        match self.content().event_loop()? {
            Some(event_loop) if self.is_ours() => is_true(&event_loop.attribute(c"is_closed")?.call(&[])?),
            _ => Ok(true),
        }
    }

    /// Posts from any thread.
    pub fn post(&self, post: Post) {
        self.put(post, c"call_soon_threadsafe");
    }

    /// Posts in the thread that runs the loop, for a later callback.
    pub fn post_here(&self, post: Post) {
        self.put(post, c"call_soon");
    }

    fn put(&self, post: Post, schedule: &CStr) {
        if !self.is_ours() {
            return; // The post is dropped here.
        }
        let mut state = self.content().lock();
        state.posts.push_back(post);
        let wakes = !std::mem::replace(&mut state.woken, true);
        drop(state);
        if wakes {
            self.schedule(schedule);
        }
    }

    /// Schedules a delivery; the state records it already.
    fn schedule(&self, schedule: &CStr) {
        let mut interrupted = false;
        let again = loop {
            let scheduled = match self.content().event_loop() {
                Ok(Some(event_loop)) => event_loop
                    .attribute(schedule)
                    .and_then(|function| function.call(&[self.0.as_ptr()]))
                    .map(drop),
                Ok(None) => return self.discard(),
                Err(Raised) => Err(Raised),
            };
            // SAFETY: the thread is attached; an exception is set where it is asked about.
            unsafe {
                match scheduled {
                    Ok(()) => break false,
                    Err(Raised) if ffi::PyErr_ExceptionMatches(ffi::PyExc_RuntimeError) != 0 => {
                        // The loop is closed: no coroutine waits there any more.
                        ffi::PyErr_Clear();
                        return self.discard();
                    }
                    // It is a Python function, in which an interrupt may come. The loop is woken all the same.
                    Err(Raised)
                        if !interrupted && ffi::PyErr_ExceptionMatches(ffi::PyExc_KeyboardInterrupt) != 0 =>
                    {
                        ffi::PyErr_Clear();
                        interrupted = true;
                    }
                    Err(Raised) => {
                        ffi::PyErr_WriteUnraisable(self.0.as_ptr());
                        break true;
                    }
                }
            }
        };
        if again {
            self.put_off();
        }
        if interrupted {
            // SAFETY: the thread is attached. It comes again, where the caller goes on.
            unsafe { ffi::PyErr_SetInterrupt() };
        }
    }

    /// Drops the posts of a loop that no coroutine waits in any more.
    #[cold]
    fn discard(&self) {
        let mut state = self.content().lock();
        state.woken = false;
        let posts = std::mem::take(&mut state.posts);
        drop(state);
        drop(posts);
    }

    /// The loop was not woken: the next post tries again.
    #[cold]
    fn put_off(&self) {
        let mut state = self.content().lock();
        state.woken = false;
        let (wakes, kept): (VecDeque<_>, _) =
            std::mem::take(&mut state.posts).into_iter().partition(|post| matches!(post, Post::Wake(..)));
        state.posts = kept;
        drop(state);
        for post in wakes {
            if let Post::Wake(whom, place) = post
                && let Some(whom) = whom.upgrade()
            {
                whom.not_woken(place, self.0.as_ptr());
            }
        }
    }

    /// `future.set_result(None)`, unless it is done; returns whether this woke a coroutine. Called in the loop's
    /// thread.
    ///
    /// # Errors
    ///
    /// An exception is set.
    pub fn resolve(&self, future: &Object) -> Result<bool, Raised> {
        let content = self.content();
        // SAFETY: live objects.
        unsafe {
            let done = Object::own(ffi::PyObject_CallMethodNoArgs(future.as_ptr(), content.done.as_ptr()))?;
            if is_true(&done)? {
                return Ok(false);
            }
            let arguments = [future.as_ptr(), ffi::Py_None()];
            let name = content.set_result.as_ptr();
            Object::own(ffi::PyObject_VectorcallMethod(name, arguments.as_ptr(), 2, null_mut()))?;
        }
        Ok(true)
    }

    /// Delivers the posts so far. Called by the loop.
    fn deliver(&self) -> Result<(), Raised> {
        let mut state = self.content().lock();
        // First of all: a thread that still finds it set has posted before the count below.
        state.woken = false;
        let count = state.posts.len();
        drop(state);
        for _ in 0..count {
            let post = self.content().lock().posts.pop_front();
            let Some(post) = post else { break };
            if let Err(Raised) = self.perform(post) {
                // For instance Ctrl-C, which ends this call but not the remaining posts.
                let raised = Kept::take();
                let mut state = self.content().lock();
                let wakes = !state.posts.is_empty() && !std::mem::replace(&mut state.woken, true);
                drop(state);
                if wakes {
                    self.schedule(c"call_soon");
                }
                raised.put_back();
                return Err(Raised);
            }
        }
        Ok(())
    }

    fn perform(&self, post: Post) -> Result<(), Raised> {
        match post {
            Post::Resolve(future) => self.resolve(&future).map(drop),
            Post::Call(function, None) => function.call(&[]).map(drop),
            Post::Call(function, Some((first, second))) => {
                function.call(&[first.as_ptr(), second.as_ptr()]).map(drop)
            }
            Post::Wake(whom, place) => {
                if let Some(whom) = whom.upgrade() {
                    whom.wake(place, self.0.as_ptr());
                }
                Ok(())
            }
        }
    }
}

impl Content {
    fn lock(&self) -> Guard<'_, State> {
        // SAFETY: every caller in this module is attached, runs nothing of the interpreter while the guard lives, and
        // drops what it takes out afterwards.
        unsafe { self.state.lock() }
    }

    /// The loop, while it lives.
    fn event_loop(&self) -> Result<Option<Object>, Raised> {
        Ok(Some(self.event_loop.call(&[])?).filter(|event_loop| !event_loop.is_none()))
    }
}

/// The type of mailboxes in this interpreter, made when one of its modules first needs it.
///
/// # Errors
///
/// An exception is set.
pub fn kind() -> Result<Object, Raised> {
    // SAFETY: the interpreter that this thread is attached to, its dictionary and what is in there for as long as it
    // lives; null without an exception where there is none.
    unsafe {
        let known = ffi::PyInterpreterState_GetDict(ffi::PyInterpreterState_Get());
        if known.is_null() {
            return Err(fail(c"the interpreter is ending"));
        }
        let kind = ffi::PyDict_GetItemString(known, TYPE.as_ptr());
        if !kind.is_null() {
            return Object::share(kind);
        }
        let made = make_type()?;
        if ffi::PyDict_SetItemString(known, TYPE.as_ptr(), made.as_ptr()) != 0 {
            return Err(Raised);
        }
        Ok(made)
    }
}

fn make_type() -> Result<Object, Raised> {
    heap::make_type_apart::<Content>(heap::Type {
        name: c"ropewalk._core.Mailbox",
        doc: c"What other threads have for an event loop: delivered there, for one wake-up a burst.",
        flags: ffi::Py_TPFLAGS_HAVE_GC | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION,
        methods: vec![heap::fast_method(
            c"post",
            post,
            c"post($self, waiter, tell, subject, /)\n--\n\n\
            Has the loop call `tell(waiter, subject)`, or resolve `waiter`, a future, if `tell` is None.",
        )],
        getters: Vec::new(),
        slots: &[
            (ffi::Py_tp_call, call as *mut c_void),
            (ffi::Py_sq_length, length as *mut c_void),
            (ffi::Py_nb_bool, truth as *mut c_void),
            (ffi::Py_tp_traverse, traverse as *mut c_void),
            (ffi::Py_tp_clear, clear as *mut c_void),
            (ffi::Py_tp_dealloc, heap::dealloc::<Content> as *mut c_void),
        ],
    })
}

#[entry]
unsafe extern "C" fn post(
    object: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    if count != 3 {
        fail(c"post() takes a waiter, what tells it, and its subject");
        return null_mut();
    }
    // SAFETY: a mailbox, and as many live arguments as said.
    unsafe {
        let posted = || {
            let waiter = Object::share(*arguments)?;
            let tell = Object::share(*arguments.add(1))?;
            let post = if tell.is_none() {
                Post::Resolve(waiter)
            } else {
                Post::Call(tell, Some((waiter, Object::share(*arguments.add(2))?)))
            };
            Mailbox::share(object)?.post(post);
            Ok::<_, Raised>(Object::none())
        };
        posted().map_or(null_mut(), Object::into_ptr)
    }
}

/// The function that the loop calls.
#[entry]
unsafe extern "C" fn call(
    object: *mut ffi::PyObject,
    _arguments: *mut ffi::PyObject,
    _names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a mailbox, which lives meanwhile.
    let delivered = unsafe { Mailbox::share(object).and_then(|mailbox| mailbox.deliver()) };
    delivered.map_or(null_mut(), |()| Object::none().into_ptr())
}

/// The number of waiting posts.
#[entry]
unsafe extern "C" fn length(object: *mut ffi::PyObject) -> ffi::Py_ssize_t {
    // SAFETY: a mailbox.
    let length = unsafe { content(object) }.lock().posts.len();
    ffi::Py_ssize_t::try_from(length).unwrap_or(ffi::Py_ssize_t::MAX)
}

/// A mailbox is always true, even while it is empty.
#[entry]
unsafe extern "C" fn truth(_: *mut ffi::PyObject) -> c_int {
    1
}

#[entry]
unsafe extern "C" fn traverse(object: *mut ffi::PyObject, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    // SAFETY: a mailbox and the collector's own function; every other thread stands still.
    unsafe {
        let content = content(object);
        let mut answer = visit(content.event_loop.as_ptr(), arg);
        for post in &(*content.state.in_collection()).posts {
            let held: [Option<&Object>; 3] = match post {
                Post::Resolve(future) => [Some(future), None, None],
                Post::Call(function, None) => [Some(function), None, None],
                Post::Call(function, Some((first, second))) => [Some(function), Some(first), Some(second)],
                Post::Wake(..) => [None, None, None],
            };
            for object in held.into_iter().flatten() {
                if answer != 0 {
                    return answer;
                }
                answer = visit(object.as_ptr(), arg);
            }
        }
        if answer != 0 { answer } else { heap::visit_type(object, visit, arg) }
    }
}

#[entry]
unsafe extern "C" fn clear(object: *mut ffi::PyObject) -> c_int {
    // SAFETY: a mailbox.
    let posts = std::mem::take(&mut unsafe { content(object) }.lock().posts);
    drop(posts);
    0
}
