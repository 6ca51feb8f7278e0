//! The awaitables of `subscription.recv_async()`, `async for` and `bus.publish_async()`.
//!
//! An awaitable is its own iterator. While there is something to take it ends at once, through `am_send`, without an
//! exception and without a turn of the loop; now and then it yields to the loop all the same, so that a busy publisher
//! starves no other coroutine. Otherwise it waits for a future of the running loop.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use pyo3_ffi as ffi;
use ropewalk_bus::{Offered, Taken};

use super::queue::{Queue, Side};
use super::{arguments, bus, deliver};
use ropewalk_capi::awaitable::{AM_SEND, itself, next, send as awaitable_send, throw_into};
use ropewalk_capi::entry;
use ropewalk_capi::errors::fail;
use ropewalk_capi::heap::{self, Field};
use ropewalk_capi::object::{Kept, Object, Raised};

/// The most receptions in a row without a turn of the loop.
const LONGEST_STREAK: u32 = 256;

/// What the awaitable waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// One message; at the end `BusClosed`.
    One,
    /// One message; at the end `StopAsyncIteration`.
    Next,
    /// As many messages as there are, up to this number, as a list.
    Many(usize),
    /// Room for the message that waits.
    Put,
}

pub(super) struct Waiting {
    queue: Arc<Queue>,
    /// The subscription, kept alive while the awaitable waits; for `Goal::Put` the bus.
    holder: Field,
    goal: Cell<Goal>,
    /// The message to put.
    message: Field,
    /// The loop's future that the awaitable waits for, and its iterator.
    future: Field,
    inner: Field,
    ended: Cell<bool>,
}

/// The result of a step.
enum Step {
    Yield(Object),
    Return(Object),
}

impl Waiting {
    fn side(&self) -> Side {
        if self.goal.get() == Goal::Put { Side::Publishers } else { Side::Receivers }
    }

    /// Drops the future; `woken` says that the wait for it was completed.
    fn leave(&self, woken: bool) {
        drop(self.inner.take());
        if let Some(future) = self.future.take()
            && !woken
        {
            self.queue.leave_loop(self.side(), future.as_ptr());
        }
    }

    /// Takes what there is, if there is anything.
    fn look(&self) -> Result<Option<Object>, Raised> {
        let queue = &self.queue;
        match self.goal.get() {
            Goal::One | Goal::Next => match queue.take_object() {
                Some(message) => Ok(Some(message)),
                None => self.look_further(),
            },
            Goal::Many(most) => match queue.take_many(most) {
                Ok(messages) => self.queue.list_of(messages).map(Some),
                Err(other) => self.queue.or_raise(other),
            },
            Goal::Put => match self.message.take().map(|message| queue.offer(message)) {
                Some(Offered::Full(message)) => {
                    self.message.set(message);
                    Ok(None)
                }
                // As in `deliver::put`: the subscription has ended; if the bus has, too, the publisher gets an error.
                // SAFETY: the holder of a publisher's awaitable is the bus.
                Some(Offered::Closed(_)) if unsafe { bus::bus(self.holder.get()) }.registry.is_closed() => {
                    Err(bus::closed())
                }
                // The subscription has ended, or the message was put.
                _ => Ok(Some(Object::none())),
            },
        }
    }

    /// What else there is to receive where no object waits.
    fn look_further(&self) -> Result<Option<Object>, Raised> {
        match self.queue.take() {
            Taken::Ended if self.goal.get() == Goal::Next => {
                // SAFETY: a static exception class.
                unsafe { ffi::PyErr_SetNone(ffi::PyExc_StopAsyncIteration) };
                Err(Raised)
            }
            other => self.queue.or_raise(other),
        }
    }

    /// Takes steps until there is something to yield or return.
    fn step(&self, sent: *mut ffi::PyObject) -> Result<Step, Raised> {
        if self.ended.get() {
            return Err(fail(c"cannot await the same reception twice"));
        }
        let result = self.advance(sent);
        if !matches!(result, Ok(Step::Yield(_))) {
            self.ended.set(true);
            // An awaitable that is kept for the next reception must keep nothing alive meanwhile.
            drop(self.holder.take());
        }
        result
    }

    fn advance(&self, sent: *mut ffi::PyObject) -> Result<Step, Raised> {
        if let Some(inner) = self.inner.share() {
            match send(&inner, sent) {
                Ok(Step::Yield(value)) => return Ok(Step::Yield(value)),
                Ok(Step::Return(_)) => self.leave(true),
                Err(Raised) => {
                    let raised = Kept::take();
                    self.leave(false);
                    raised.put_back();
                    return Err(Raised);
                }
            }
        }
        loop {
            if self.goal.get() != Goal::Put && self.queue.is_streak_over(LONGEST_STREAK) {
                return Ok(Step::Yield(Object::none()));
            }
            if let Some(value) = self.look()? {
                return Ok(Step::Return(value));
            }
            if let Some(feed) = &self.queue.feed
                && self.goal.get() != Goal::Put
            {
                feed.carrier.start_thread()?;
            }
            let Some(future) = self.queue.wait_in_loop(self.side())? else { continue };
            // SAFETY: a live object.
            let inner = unsafe { Object::own(ffi::PyObject_GetIter(future.as_ptr())) };
            self.future.set(future);
            let inner = inner.inspect_err(|_| {
                let raised = Kept::take();
                self.leave(false);
                raised.put_back();
            })?;
            let sent = Object::none();
            match send(&inner, sent.as_ptr())? {
                Step::Yield(value) => {
                    self.inner.set(inner);
                    return Ok(Step::Yield(value));
                }
                Step::Return(_) => self.leave(true),
            }
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // An abandoned awaitable: the loop was closed, or the coroutine dropped.
        if self.future.get().is_null() {
            return;
        }
        let raised = Kept::take();
        self.leave(false);
        raised.put_back();
    }
}

/// Sends a value into an iterator.
fn send(inner: &Object, value: *mut ffi::PyObject) -> Result<Step, Raised> {
    let mut result = ptr::null_mut();
    // SAFETY: two live objects; the result is a new reference unless the call failed.
    unsafe {
        match ffi::PyIter_Send(inner.as_ptr(), value, &raw mut result) {
            ffi::PySendResult::PYGEN_NEXT => Object::own(result).map(Step::Yield),
            ffi::PySendResult::PYGEN_RETURN => Object::own(result).map(Step::Return),
            ffi::PySendResult::PYGEN_ERROR => Err(Raised),
        }
    }
}

#[entry]
unsafe extern "C" fn am_send(
    object: *mut ffi::PyObject,
    value: *mut ffi::PyObject,
    result: *mut *mut ffi::PyObject,
) -> ffi::PySendResult {
    // SAFETY: an object of the type that this is a slot of.
    let waiting = unsafe { heap::content::<Waiting>(object) };
    let (answer, value) = match waiting.step(value) {
        Ok(Step::Yield(value)) => (ffi::PySendResult::PYGEN_NEXT, value.into_ptr()),
        Ok(Step::Return(value)) => (ffi::PySendResult::PYGEN_RETURN, value.into_ptr()),
        Err(Raised) => (ffi::PySendResult::PYGEN_ERROR, ptr::null_mut()),
    };
    // SAFETY: the interpreter's pointer for the result.
    unsafe { *result = value };
    answer
}

/// `throw(type_or_exception[, value[, traceback]])`: delivers a cancellation.
#[entry]
unsafe extern "C" fn throw(
    object: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: an object of the type that this is a method of, and its arguments with their number.
    let waiting = unsafe { heap::content::<Waiting>(object) };
    // SAFETY: as above.
    match unsafe { throw_into(waiting.inner.share().as_ref(), arguments, count) } {
        Ok(value) => value.into_ptr(),
        Err(Raised) => {
            let raised = Kept::take();
            waiting.leave(false);
            raised.put_back();
            waiting.ended.set(true);
            ptr::null_mut()
        }
    }
}

#[entry]
unsafe extern "C" fn close(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: an object of the type that this is a method of.
    let waiting = unsafe { heap::content::<Waiting>(object) };
    waiting.ended.set(true);
    waiting.leave(false);
    Object::none().into_ptr()
}

/// `wait()`: waits for room in this thread, and puts the message.
#[entry]
unsafe extern "C" fn wait(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: an object of the type that this is a method of.
    let waiting = unsafe { heap::content::<Waiting>(object) };
    let done = match (waiting.goal.get(), waiting.message.take(), waiting.holder.share()) {
        (Goal::Put, Some(message), Some(holder)) => {
            waiting.ended.set(true);
            // SAFETY: the holder of a publisher's awaitable is the bus, and it lives meanwhile.
            let bus = unsafe { bus::bus(holder.as_ptr()) };
            deliver::put(bus, &waiting.queue, message, None)
        }
        _ => Err(fail(c"only a message that is to be put is waited for")),
    };
    done.map_or(ptr::null_mut(), |()| Object::none().into_ptr())
}

#[entry]
unsafe extern "C" fn traverse(object: *mut ffi::PyObject, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    // SAFETY: an object of the type that this is a slot of, and the collector's own function.
    unsafe {
        let waiting = heap::content::<Waiting>(object);
        for field in [&waiting.holder, &waiting.message, &waiting.future, &waiting.inner] {
            let answer = field.visit(visit, arg);
            if answer != 0 {
                return answer;
            }
        }
        heap::visit_type(object, visit, arg)
    }
}

#[entry]
unsafe extern "C" fn clear(object: *mut ffi::PyObject) -> c_int {
    // SAFETY: an object of the type that this is a slot of.
    let waiting = unsafe { heap::content::<Waiting>(object) };
    drop((waiting.inner.take(), waiting.future.take(), waiting.message.take(), waiting.holder.take()));
    0
}

/// Makes an awaitable at a queue; `holder` is kept alive meanwhile.
///
/// # Safety
///
/// `kind` is the type that `make_type` made.
pub(super) unsafe fn make(
    kind: *mut ffi::PyTypeObject,
    queue: Arc<Queue>,
    goal: Goal,
    holder: Option<Object>,
    message: Option<Object>,
) -> Result<Object, Raised> {
    let field = |object: Option<Object>| object.map_or_else(Field::empty, Field::new);
    let waiting = Waiting {
        queue,
        holder: field(holder),
        goal: Cell::new(goal),
        message: field(message),
        future: Field::empty(),
        inner: Field::empty(),
        ended: Cell::new(false),
    };
    // SAFETY: the caller's.
    unsafe { heap::make(kind, waiting) }
}

/// Makes an awaitable wait again that has ended and has no other references.
///
/// # Safety
///
/// `waiting` is an awaitable that `make` made.
#[cfg(not(Py_GIL_DISABLED))]
pub(super) unsafe fn renew(waiting: &Object, goal: Goal, holder: Object) {
    // SAFETY: the caller's.
    let waiting = unsafe { heap::content::<Waiting>(waiting.as_ptr()) };
    waiting.holder.set(holder);
    waiting.goal.set(goal);
    waiting.ended.set(false);
}

/// Whether an awaitable has ended.
///
/// # Safety
///
/// `waiting` is an awaitable that `make` made.
#[cfg(not(Py_GIL_DISABLED))]
pub(super) unsafe fn has_ended(waiting: *mut ffi::PyObject) -> bool {
    // SAFETY: the caller's.
    unsafe { heap::content::<Waiting>(waiting) }.ended.get()
}

/// Publishes to all listeners that have room; returns awaitables for the others, and whether any refused.
///
/// # Safety
///
/// `object` is a bus, the others are live.
pub(super) unsafe fn publish_later(
    object: *mut ffi::PyObject,
    topic: *mut ffi::PyObject,
    message: *mut ffi::PyObject,
    origin: Option<&deliver::Origin<'_>>,
) -> Result<Object, Raised> {
    // SAFETY: the caller's.
    unsafe {
        let mut patience = deliver::Patience::Later { full: Vec::new(), refused: false };
        deliver::publish_one(object, topic, message, &mut patience, origin)?;
        let deliver::Patience::Later { full, refused } = patience else { return Err(Raised) };
        let kind = super::types::types(ffi::Py_TYPE(object))?.waiting;
        let waiting = full.into_iter().map(|(queue, message)| {
            make(kind, queue, Goal::Put, Some(Object::share(object)?), Some(message))
        });
        let waiting = arguments::list(waiting.collect::<Result<_, _>>()?)?;
        let refused = ffi::PyBool_FromLong(refused.into());
        Object::own(ffi::Py_BuildValue(c"(ON)".as_ptr(), waiting.as_ptr(), refused))
    }
}

/// Makes the type of these awaitables.
pub(super) fn make_type(module: &Object) -> Result<Object, Raised> {
    heap::make_type::<Waiting>(
        module,
        heap::Type {
            name: c"ropewalk._bus._Waiting",
            doc: c"An awaitable of a subscription's asynchronous methods; it can be awaited once.",
            flags: ffi::Py_TPFLAGS_HAVE_GC | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION,
            methods: vec![
                heap::method(c"send", awaitable_send, ffi::METH_O, c"As a coroutine's."),
                heap::fast_method(c"throw", throw, c"As a coroutine's."),
                heap::method(c"close", close, ffi::METH_NOARGS, c"As a coroutine's."),
                heap::method(c"wait", wait, ffi::METH_NOARGS, c"Waits for room without a loop."),
            ],
            getters: Vec::new(),
            slots: &[
                (ffi::Py_am_await, itself as *mut _),
                (AM_SEND, am_send as *mut _),
                (ffi::Py_tp_iter, itself as *mut _),
                (ffi::Py_tp_iternext, next as *mut _),
                (ffi::Py_tp_traverse, traverse as *mut _),
                (ffi::Py_tp_clear, clear as *mut _),
                (ffi::Py_tp_dealloc, heap::dealloc::<Waiting> as *mut _),
            ],
        },
    )
}
