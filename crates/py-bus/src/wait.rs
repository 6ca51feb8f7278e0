//! The awaitables of `subscription.recv_async()`, `async for` and `bus.publish_async()`.
//!
//! An awaitable is its own iterator. While there is something to take it ends at once, through `am_send`, without an
//! exception and without a turn of the loop; now and then it yields to the loop all the same, so that a busy publisher
//! starves no other coroutine. Otherwise it waits for a future of the running loop.

use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use pyo3_ffi as ffi;
use ropewalk_bus::{Offered, Taken};

use super::queue::{Queue, Side};
use super::{arguments, bus, deliver};
use ropewalk_capi::awaitable::{self, Step, Steps};
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
    /// Where the holder keeps a reception that has ended, for the next one; it lives as long as the holder.
    spare: Option<NonNull<Field>>,
    goal: Cell<Goal>,
    /// The message to put.
    message: Field,
    /// The loop's future that the awaitable waits for.
    future: Field,
}

impl Waiting {
    fn side(&self) -> Side {
        if self.goal.get() == Goal::Put { Side::Publishers } else { Side::Receivers }
    }

    /// Forgets the future, if there is one: it is not waited for any more.
    fn leave(&self) {
        if let Some(future) = self.future.take() {
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
                    // SAFETY: as above.
                    Err(bus::closed(&unsafe { bus::bus(self.holder.get()) }.registry))
                }
                // The subscription has ended, or the message was put.
                _ => Ok(Some(Object::none())),
            },
        }
    }

    /// What else there is to receive where no object waits.
    fn look_further(&self) -> Result<Option<Object>, Raised> {
        match self.queue.take() {
            Taken::Ended if self.goal.get() == Goal::Next && !self.queue.is_orphaned() => {
                // SAFETY: a static exception class.
                unsafe { ffi::PyErr_SetNone(ffi::PyExc_StopAsyncIteration) };
                Err(Raised)
            }
            other => self.queue.or_raise(other),
        }
    }
}

// SAFETY: it shows its three fields; what the queue holds is the subscription's to show.
unsafe impl Steps for Waiting {
    const REUSED: &'static CStr = c"cannot await the same reception twice";

    #[inline]
    fn step(&self, _: *mut ffi::PyObject) -> Result<Step, Raised> {
        loop {
            if self.goal.get() != Goal::Put && self.queue.is_streak_over(LONGEST_STREAK) {
                return Ok(Step::Turn);
            }
            if let Some(value) = self.look()? {
                return Ok(Step::Done(value));
            }
            if let Some(feed) = &self.queue.feed
                && self.goal.get() != Goal::Put
            {
                feed.carrier.start_thread()?;
            }
            if let Some(future) = self.queue.wait_in_loop(self.side())? {
                self.future.set(future.clone());
                return Ok(Step::Wait(future));
            }
        }
    }

    fn woken(&self, _: *mut ffi::PyObject, _: Object) -> Option<Object> {
        drop(self.future.take());
        None
    }

    fn leave(&self, _: *mut ffi::PyObject) {
        self.leave();
    }

    fn name(&self) -> Option<&'static CStr> {
        match self.goal.get() {
            Goal::One => Some(c"Subscription.recv_async"),
            Goal::Next => Some(c"Subscription.__anext__"),
            Goal::Many(_) => Some(c"Subscription.recv_many_async"),
            // A part of `Bus.publish_async`, which has made it and may give it up.
            Goal::Put => None,
        }
    }

    /// What is kept for the next reception is to keep nothing alive meanwhile.
    #[inline]
    fn end(&self, object: *mut ffi::PyObject) {
        let Some(_holder) = self.holder.take() else { return };
        let Some(spare) = self.spare else { return };
        // SAFETY: the holder lives, and with it the place; `object` is live.
        unsafe {
            if let Ok(ended) = Object::share(object) {
                spare.as_ref().set(ended);
            }
        }
    }

    unsafe fn visit(&self, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
        // SAFETY: the caller's.
        unsafe { heap::visit_fields(&[&self.holder, &self.message, &self.future], visit, arg) }
    }

    fn clear(&self) {
        drop((self.future.take(), self.message.take(), self.holder.take()));
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // An abandoned awaitable: the loop was closed, or the coroutine dropped.
        if self.future.get().is_null() {
            return;
        }
        let raised = Kept::take();
        self.leave();
        raised.put_back();
    }
}

/// `wait()`: waits for room in this thread, and puts what is to be put.
#[entry]
unsafe extern "C" fn wait(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: an object of the type that this is a method of.
    let waiting = unsafe { awaitable::steps::<Waiting>(object) };
    let done = match (waiting.goal.get(), waiting.message.take(), waiting.holder.share()) {
        (Goal::Put, Some(message), Some(holder)) => {
            // SAFETY: as above; what holds a publisher's awaitable is the bus, and it lives meanwhile.
            let bus = unsafe {
                awaitable::end::<Waiting>(object);
                bus::bus(holder.as_ptr())
            };
            deliver::put(bus, &waiting.queue, message, None)
        }
        _ => Err(fail(c"only a message that is to be put is waited for")),
    };
    done.map_or(ptr::null_mut(), |()| Object::none().into_ptr())
}

/// An awaitable at a queue; `holder` is what must not end meanwhile, `spare` its place for one that has ended.
///
/// # Safety
///
/// `kind` is the type that `make_type` made. The place is a part of the holder.
pub(super) unsafe fn make(
    kind: *mut ffi::PyTypeObject,
    queue: Arc<Queue>,
    goal: Goal,
    (holder, spare): (Object, Option<&Field>),
    message: Option<Object>,
) -> Result<Object, Raised> {
    let waiting = Waiting {
        queue,
        holder: Field::new(holder),
        spare: spare.map(NonNull::from),
        goal: Cell::new(goal),
        message: message.map_or_else(Field::empty, Field::new),
        future: Field::empty(),
    };
    // SAFETY: the caller's.
    unsafe { awaitable::make(kind, waiting) }
}

/// Makes an awaitable wait again that has ended and has no other references.
///
/// # Safety
///
/// `waiting` is an awaitable that `make` made.
#[cfg(not(Py_GIL_DISABLED))]
pub(super) unsafe fn renew(waiting: &Object, goal: Goal, holder: Object) {
    let object = waiting.as_ptr();
    // SAFETY: the caller's.
    let waiting = unsafe { awaitable::steps::<Waiting>(object) };
    waiting.holder.set(holder);
    waiting.goal.set(goal);
    // SAFETY: as above.
    unsafe { awaitable::renew::<Waiting>(object) };
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
            make(kind, queue, Goal::Put, (Object::share(object)?, None), Some(message))
        });
        let waiting = arguments::list(waiting.collect::<Result<_, _>>()?)?;
        let refused = ffi::PyBool_FromLong(refused.into());
        Object::own(ffi::Py_BuildValue(c"(ON)".as_ptr(), waiting.as_ptr(), refused))
    }
}

/// Makes the type of these awaitables.
pub(super) fn make_type(module: &Object) -> Result<Object, Raised> {
    awaitable::make_type::<Waiting>(
        module,
        c"ropewalk._bus._Waiting",
        c"What the asynchronous methods of a subscription return: an awaitable, which can be awaited once.",
        vec![heap::method(c"wait", wait, ffi::METH_NOARGS, c"Waits for room without a loop.")],
    )
}
