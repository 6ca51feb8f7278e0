//! Delivers a message from its publisher to every listener on a route.

use std::cell::Cell;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use pyo3_ffi as ffi;
use ropewalk_bus::{Offered, Overflow};

use super::bus::{self, Bus};
use super::link::Outgoing;
use super::queue::{Queue, Side};
use super::registry::{Entry, Target};
use super::route::{Route, Way};
use ropewalk_base::{Code, error};
use ropewalk_capi::errors::{raise, raise_text};
use ropewalk_capi::heap;
use ropewalk_capi::object::{Kept, Object, Raised, detached};
use ropewalk_capi::running_loop;
use ropewalk_capi::signals;

/// What a publisher does when a queue has no room.
pub(super) enum Patience {
    /// Waits.
    Endless,
    /// Waits until this time.
    Until(Instant),
    /// Records the full queues, and whether any listener refused.
    Later { full: Vec<(Arc<Queue>, Object)>, refused: bool },
}

/// The origin of a message that no publisher of this process published.
pub(super) enum Origin<'a> {
    /// A link, which does not get the message back, and the message as it arrived, for the other links.
    Link(&'a Queue, Option<Object>),
    /// A report of this process: the queues that have a feed have got it already.
    Report,
}

thread_local! {
    /// The depth of this thread in handlers that publish.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Counts one more nested handler.
struct Deeper;

impl Deeper {
    #[inline]
    fn go(most: u32) -> Result<Self, Raised> {
        DEPTH.with(|depth| {
            if depth.get() >= most {
                return Err(too_deep(most));
            }
            depth.set(depth.get() + 1);
            Ok(Self)
        })
    }
}

impl Drop for Deeper {
    #[inline]
    fn drop(&mut self) {
        DEPTH.with(|depth| depth.set(depth.get() - 1));
    }
}

#[cold]
fn too_deep(most: u32) -> Raised {
    raise(&error!(Code::PublishTooDeep, "handlers publish to handlers more than {} deep", most))
}

/// Calls a handler, and reports the errors that it raises.
///
/// # Safety
///
/// `object` is a bus, `arguments` are live objects, and so are the others.
#[inline]
unsafe fn call(
    object: *mut ffi::PyObject,
    handler: *mut ffi::PyObject,
    topic: *mut ffi::PyObject,
    arguments: &[*mut ffi::PyObject],
) -> Result<(), Raised> {
    // The callee may use the place before the first argument, for a method's `self`.
    let mut places = [ptr::null_mut(); 3];
    let [_, rest @ ..] = &mut places;
    for (place, argument) in rest.iter_mut().zip(arguments) {
        *place = *argument;
    }
    // SAFETY: the caller's objects are live; the arguments with their number, after a free place.
    unsafe {
        let count = arguments.len() | ffi::PY_VECTORCALL_ARGUMENTS_OFFSET;
        let result = ffi::PyObject_Vectorcall(handler, places.as_ptr().add(1), count, ptr::null_mut());
        if result.is_null() {
            return bus::report_raised(object, handler, topic);
        }
        ffi::Py_DECREF(result);
    }
    Ok(())
}

/// Gives a message to every listener on a route. Errors of handlers are reported; an error returned here is for the
/// publisher: there is no room, or the bus was closed while it waited. All listeners that can be served are served
/// first.
///
/// # Safety
///
/// `object` is a bus, the route one of its own; the others are live.
#[inline]
pub(super) unsafe fn deliver(
    object: *mut ffi::PyObject,
    route: &Route,
    topic: *mut ffi::PyObject,
    message: *mut ffi::PyObject,
    patience: &mut Patience,
    origin: Option<&Origin<'_>>,
) -> Result<(), Raised> {
    // SAFETY: the caller's.
    unsafe {
        let bus = bus::bus(object);
        match &route.way {
            Way::Nowhere => Ok(()),
            Way::One(handler) => {
                let _deeper = Deeper::go(bus.depth)?;
                call(object, handler.get(), topic, &[message])
            }
            Way::Plain(handlers) => {
                let _deeper = Deeper::go(bus.depth)?;
                let arguments = [handlers.get(), message, object, topic];
                let count = arguments.len();
                Object::own(ffi::PyObject_Vectorcall(
                    bus.dispatch.get(),
                    arguments.as_ptr(),
                    count,
                    ptr::null_mut(),
                ))
                .map(drop)
            }
            Way::Queue(queue) if matches!(origin, Some(Origin::Report)) => {
                if queue.feed.is_none() {
                    queue.offer_report(Object::share(message)?);
                }
                Ok(())
            }
            Way::Queue(queue) => match queue.offer(Object::share(message)?) {
                Offered::Taken | Offered::Dropped(_) | Offered::Closed(_) => Ok(()),
                Offered::Refused(_) => refuse(bus, queue, patience),
                Offered::Full(item) => wait_for_room(bus, vec![(Arc::clone(queue), item)], patience),
            },
            Way::Mixed(entries) => mixed(object, bus, entries, topic, message, patience, origin),
        }
    }
}

/// # Safety
///
/// As `deliver`.
unsafe fn mixed<'entries>(
    object: *mut ffi::PyObject,
    bus: &Bus,
    entries: &'entries [Entry],
    topic: *mut ffi::PyObject,
    message: *mut ffi::PyObject,
    patience: &mut Patience,
    origin: Option<&Origin<'_>>,
) -> Result<(), Raised> {
    let mut pair = None;
    let is_report = matches!(origin, Some(Origin::Report));
    let encoded = match origin {
        Some(Origin::Link(_, encoded)) => encoded.clone(),
        _ => None,
    };
    let mut outgoing = Outgoing::new(topic, encoded);
    let mut refusal = None;
    let mut waiting = Vec::new();
    let mut give = |entry: &'entries Entry| {
        // SAFETY: the caller's; an entry's objects live as long as the route.
        unsafe {
            if !entry.filter.get().is_null() && !passes(object, bus, entry, topic, message)? {
                return Ok(());
            }
            match &entry.target {
                Target::Handler(handler, topics) => {
                    let _deeper = Deeper::go(bus.depth)?;
                    let both = [topic, message];
                    call(object, handler.get(), topic, if *topics { &both } else { &both[1..] })?;
                }
                Target::Queue(queue) if queue.is_link => {
                    if matches!(origin, Some(Origin::Link(link, _)) if ptr::eq(*link, &raw const **queue)) {
                        return Ok(());
                    }
                    let overflow = match entry.link.unwrap_or(queue.overflow) {
                        Overflow::Block if is_report => Overflow::Error,
                        overflow => overflow,
                    };
                    match outgoing.go(queue, message, overflow)? {
                        Some(Offered::Full(item)) => waiting.push((Arc::clone(queue), item)),
                        Some(Offered::Refused(_)) => refusal = Some(queue),
                        _ => {}
                    }
                }
                Target::Queue(queue) if is_report && queue.feed.is_some() => {}
                Target::Queue(queue) => {
                    let item = if queue.topics {
                        if pair.is_none() {
                            pair = Some(Object::own(ffi::PyTuple_Pack(2, topic, message))?);
                        }
                        pair.clone().ok_or(Raised)?
                    } else {
                        Object::share(message)?
                    };
                    if is_report {
                        queue.offer_report(item);
                        return Ok(());
                    }
                    match queue.offer(item) {
                        Offered::Taken | Offered::Dropped(_) | Offered::Closed(_) => {}
                        Offered::Refused(_) => refusal = Some(queue),
                        Offered::Full(item) => waiting.push((Arc::clone(queue), item)),
                    }
                }
            }
        }
        Ok(())
    };
    for entry in entries {
        if !entry.active.load(Ordering::Relaxed) {
            continue;
        }
        if let Err(raised) = give(entry) {
            if !is_report {
                return Err(raised);
            }
            // An event of a pool has no publisher who could get the error, and the others get the event.
            let handler = match &entry.target {
                Target::Handler(handler, _) => handler.get(),
                // SAFETY: the interpreter's own object.
                Target::Queue(_) => unsafe { ffi::Py_None() },
            };
            // SAFETY: the caller's; the topic is text, and an exception is set.
            unsafe { bus::report_or_print(object, handler, topic) };
        }
    }
    wait_for_room(bus, waiting, patience)?;
    refusal.map_or(Ok(()), |queue| refuse(bus, queue, patience))
}

/// Publishes a message; returns how many listeners could get it.
///
/// # Safety
///
/// `object` is a bus, the others are live.
#[inline]
pub(super) unsafe fn publish_one(
    object: *mut ffi::PyObject,
    topic: *mut ffi::PyObject,
    message: *mut ffi::PyObject,
    patience: &mut Patience,
    origin: Option<&Origin<'_>>,
) -> Result<u64, Raised> {
    // SAFETY: the caller's.
    unsafe {
        let bus = bus::bus(object);
        let holder = bus::route(object, topic)?;
        let route = heap::content::<Route>(holder.as_ptr());
        bus::count(&bus.published, 1);
        bus::count(&bus.delivered, route.reach);
        deliver(object, route, topic, message, patience, origin)?;
        Ok(route.reach)
    }
}

/// Delivers a report to the listeners that have no feed of their own. It waits for none: a queue drops what it has no
/// room for, and a link that may drop nothing refuses, which is the error returned here.
///
/// # Safety
///
/// `object` is a bus, the others are live.
pub(super) unsafe fn report(
    object: *mut ffi::PyObject,
    topic: *mut ffi::PyObject,
    message: *mut ffi::PyObject,
) -> Result<(), Raised> {
    // SAFETY: the caller's.
    unsafe {
        let holder = bus::route(object, topic)?;
        let route = heap::content::<Route>(holder.as_ptr());
        let fed = match &route.way {
            Way::Queue(queue) => u64::from(queue.feed.is_some()),
            Way::Mixed(entries) => entries.iter().map(|entry| u64::from(entry.has_feed())).sum(),
            Way::Nowhere | Way::One(_) | Way::Plain(_) => 0,
        };
        bus::count(&bus::bus(object).delivered, route.reach.saturating_sub(fed));
        deliver(object, route, topic, message, &mut Patience::Endless, Some(&Origin::Report))
    }
}

/// Reports to the publisher that a listener refused, now or later.
fn refuse(bus: &Bus, queue: &Arc<Queue>, patience: &mut Patience) -> Result<(), Raised> {
    match patience {
        Patience::Later { refused, .. } => {
            *refused = true;
            Ok(())
        }
        _ => Err(refused(bus, queue)),
    }
}

/// Handles the queues that have no room, as the publisher wants it.
#[inline]
fn wait_for_room(
    bus: &Bus,
    mut waiting: Vec<(Arc<Queue>, Object)>,
    patience: &mut Patience,
) -> Result<(), Raised> {
    let deadline = match patience {
        Patience::Later { full, .. } => {
            full.append(&mut waiting);
            return Ok(());
        }
        Patience::Endless => None,
        Patience::Until(end) => Some(*end),
    };
    let mut outcome = Ok(());
    for (queue, item) in waiting {
        if outcome.is_ok() {
            outcome = put(bus, &queue, item, deadline);
            continue;
        }
        // Even if the publisher waits no more, the queues that have room by now get the message.
        let raised = Kept::take();
        if matches!(queue.offer(item), Offered::Full(_)) {
            queue.refuse();
        }
        raised.put_back();
    }
    outcome
}

#[cold]
fn refused(bus: &Bus, queue: &Arc<Queue>) -> Raised {
    let listeners = bus.registry.listeners();
    let known = listeners.iter().find(
        |listener| matches!(&listener.target.target, Target::Queue(known) if Arc::ptr_eq(known, queue)),
    );
    raise(&match known {
        _ if queue.is_link => error!(
            Code::BusFull,
            "a worker process does not receive: there is no more room for what it listens to"
        ),
        Some(listener) => error!(
            Code::BusFull,
            "the subscription to '{}' has no room, and its overflow is \"error\"",
            listener.pattern.as_str()
        ),
        None => error!(Code::BusFull, "a subscription has no room, and its overflow is \"error\""),
    })
}

/// Whether a filter accepts a message; a filter that raises rejects it, and the error is reported.
///
/// # Safety
///
/// As `deliver`.
unsafe fn passes(
    object: *mut ffi::PyObject,
    bus: &Bus,
    entry: &Entry,
    topic: *mut ffi::PyObject,
    message: *mut ffi::PyObject,
) -> Result<bool, Raised> {
    // SAFETY: the caller's.
    unsafe {
        let _deeper = Deeper::go(bus.depth)?;
        let filter = entry.filter.get();
        let answer = Object::own(ffi::PyObject_Vectorcall(filter, &raw const message, 1, ptr::null_mut()));
        match answer.map(|answer| ffi::PyObject_IsTrue(answer.as_ptr())) {
            Ok(truth) if truth >= 0 => Ok(truth > 0),
            _ => bus::report_raised(object, filter, topic).map(|()| false),
        }
    }
}

/// Puts a message into a queue that had no room a moment ago.
#[cold]
pub(super) fn put(
    bus: &Bus,
    queue: &Queue,
    mut item: Object,
    deadline: Option<Instant>,
) -> Result<(), Raised> {
    let mut waited = false;
    loop {
        item = match queue.offer(item) {
            Offered::Full(item) => item,
            // The subscription has ended; if the bus has, too, the publisher gets an error.
            Offered::Closed(_) if bus.registry.is_closed() => return Err(bus::closed(&bus.registry)),
            _ => return Ok(()),
        };
        // A loop must not block on a change that perhaps only it can make.
        if running_loop::running()?.is_some() {
            queue.refuse();
            return Err(raise_text(
                Code::BusFull,
                "a subscription has no room, and waiting for room would stop the event loop of this thread. Use `await \
                 bus.publish_async(...)`, raise `capacity`, or choose another `overflow`.",
            ));
        }
        let Some(number) = queue.prepare(Side::Publishers) else { continue };
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            queue.refuse();
            return Err(raise(&if waited {
                error!(Code::BusFull, "a subscription had no room within the publisher's timeout")
            } else {
                error!(
                    Code::BusFull,
                    "a subscription has no room, and this call does not wait: `publish` waits, `publish_nowait` and a \
                     timeout of 0 do not"
                )
            }));
        }
        waited = true;
        let sleep = [left, signals::slice()].into_iter().flatten().min();
        let _ = detached(|| queue.sleep(Side::Publishers, number, sleep));
        // SAFETY: the thread is attached again.
        if unsafe { ffi::PyErr_CheckSignals() } != 0 {
            return Err(Raised);
        }
    }
}
