//! `Bus`: its methods and its type.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use pyo3_ffi as ffi;
use ropewalk_bus::Pattern;

use super::bus::{self, Bus};
use super::queue::{Queue, numbered_overflow};
use super::registry::{Entry, Registry, Target};
use super::{arguments, deliver, linked, serve, subscription, wait};
use ropewalk_capi::entry;
use ropewalk_capi::errors::fail;
use ropewalk_capi::heap::{self, Field};
use ropewalk_capi::object::{Object, Raised};

/// `publish(topic, message, timeout=None)`
#[entry]
unsafe extern "C" fn publish(
    object: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    given: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a bus, and the interpreter's arguments for a function of this kind.
    let done = unsafe {
        if given == 2 && names.is_null() {
            deliver::publish_one(object, *arguments, *arguments.add(1), &mut deliver::Patience::Endless, None)
                .map(drop)
        } else {
            let names_of = [c"topic", c"message", c"timeout"];
            arguments::sorted::<3>(c"publish", &names_of, 2, arguments, given, names).and_then(
                |[topic, message, timeout]| {
                    let deadline = if timeout.is_null() { None } else { arguments::deadline(timeout)? };
                    let mut patience = deadline.map_or(deliver::Patience::Endless, deliver::Patience::Until);
                    deliver::publish_one(object, topic, message, &mut patience, None).map(drop)
                },
            )
        }
    };
    if done.is_ok() { Object::none().into_ptr() } else { ptr::null_mut() }
}

/// `publish_many(topic, messages)`: returns their number.
#[entry]
unsafe extern "C" fn publish_many(
    object: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    given: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    if given != 2 {
        // SAFETY: a live exception class.
        unsafe {
            ffi::PyErr_SetString(
                ffi::PyExc_TypeError,
                c"publish_many(topic, messages) takes two arguments".as_ptr(),
            );
        }
        return ptr::null_mut();
    }
    // SAFETY: a bus, and two live arguments.
    let published = unsafe {
        let (topic, messages) = (*arguments, *arguments.add(1));
        Object::own(ffi::PyObject_GetIter(messages)).and_then(|messages| {
            let mut number = 0;
            loop {
                let Ok(message) = Object::own(ffi::PyIter_Next(messages.as_ptr())) else { break };
                deliver::publish_one(object, topic, message.as_ptr(), &mut deliver::Patience::Endless, None)?;
                number += 1;
            }
            if ffi::PyErr_Occurred().is_null() {
                Object::own(ffi::PyLong_FromSsize_t(number))
            } else {
                Err(Raised)
            }
        })
    };
    published.map_or(ptr::null_mut(), Object::into_ptr)
}

/// `_begin(topic, message)`: publishes to all listeners that have room; returns awaitables for the others, and whether
/// any refused.
#[entry]
unsafe extern "C" fn begin(
    object: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    given: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    if given != 2 {
        let _ = fail(c"_begin takes a topic and a message");
        return ptr::null_mut();
    }
    // SAFETY: a bus, and two live arguments.
    let begun = unsafe { wait::publish_later(object, *arguments, *arguments.add(1), None) };
    begun.map_or(ptr::null_mut(), Object::into_ptr)
}

/// Adds an entry for a pattern; returns its number.
///
/// # Safety
///
/// `object` is a bus, the others are live.
unsafe fn add(
    object: *mut ffi::PyObject,
    pattern: Pattern,
    priority: *mut ffi::PyObject,
    filter: *mut ffi::PyObject,
    target: Target,
) -> Result<u64, Raised> {
    // SAFETY: the caller's.
    unsafe {
        let priority = ffi::PyLong_AsLongLong(priority);
        if priority == -1 && !ffi::PyErr_Occurred().is_null() {
            return Err(Raised);
        }
        let bus = bus::bus(object);
        let active = Arc::new(AtomicBool::new(true));
        let entry = Entry { filter: arguments::optional(filter), target, active, link: None };
        if let Some(carrier) = bus.carrier.get()
            && !entry.has_feed()
        {
            carrier.serve_others()?;
        }
        bus.registry.add(pattern, priority, entry).ok_or_else(|| bus::closed(&bus.registry))
    }
}

/// `_on(pattern, handler, where, priority, topics)`: returns the entry's number.
#[entry]
unsafe extern "C" fn on(object: *mut ffi::PyObject, arguments: *mut ffi::PyObject) -> *mut ffi::PyObject {
    let [mut pattern, mut handler, mut filter, mut priority] = [ptr::null_mut(); 4];
    let mut topics: c_int = 0;
    // SAFETY: a bus, and as many places as the format says, of its types.
    let added = unsafe {
        if ffi::PyArg_ParseTuple(
            arguments,
            c"OOOOp:_on".as_ptr(),
            &raw mut pattern,
            &raw mut handler,
            &raw mut filter,
            &raw mut priority,
            &raw mut topics,
        ) == 0
        {
            return ptr::null_mut();
        }
        Object::share(handler)
            .and_then(|handler| {
                let target = Target::Handler(Field::new(handler), topics != 0);
                add(object, arguments::pattern(pattern)?, priority, filter, target)
            })
            .and_then(|id| Object::own(ffi::PyLong_FromUnsignedLongLong(id)))
    };
    added.map_or(ptr::null_mut(), Object::into_ptr)
}

/// `_subscribe(pattern, capacity, overflow, where, priority, topics)`
#[entry]
unsafe extern "C" fn subscribe(
    object: *mut ffi::PyObject,
    arguments: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let [mut pattern, mut filter, mut priority] = [ptr::null_mut(); 3];
    let mut capacity: ffi::Py_ssize_t = 0;
    let (mut overflow, mut in_pairs): (c_int, c_int) = (0, 0);
    // SAFETY: a bus, and as many places as the format says, of its types.
    let made = unsafe {
        if ffi::PyArg_ParseTuple(
            arguments,
            c"OniOOp:_subscribe".as_ptr(),
            &raw mut pattern,
            &raw mut capacity,
            &raw mut overflow,
            &raw mut filter,
            &raw mut priority,
            &raw mut in_pairs,
        ) == 0
        {
            return ptr::null_mut();
        }
        (|| {
            let (topics, overflow) = (arguments::pattern(pattern)?, numbered_overflow(overflow));
            let capacity = usize::try_from(capacity).unwrap_or(1);
            // Only Python can call a filter, so the serving thread delivers the reports of a subscription that has one.
            let feed = match bus::bus(object).carrier.get() {
                Some(carrier) if filter == ffi::Py_None() => Some(carrier.feed(&topics, capacity, overflow)?),
                _ => None,
            };
            let queue = Arc::new(Queue::new(capacity, overflow, in_pairs != 0, feed));
            let id = add(object, topics, priority, filter, Target::Queue(Arc::clone(&queue)))?;
            let registry = Arc::clone(&bus::bus(object).registry);
            let (bus, pattern) = (Object::share(object)?, Object::share(pattern)?);
            subscription::make(
                super::types::types(ffi::Py_TYPE(object))?.subscription,
                queue,
                registry,
                id,
                Some(bus),
                pattern,
            )
        })()
    };
    made.map_or(ptr::null_mut(), Object::into_ptr)
}

/// `_off(number)`: returns whether there was such an entry.
#[entry]
unsafe extern "C" fn off(object: *mut ffi::PyObject, number: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a bus, and a live argument.
    unsafe {
        let id = ffi::PyLong_AsUnsignedLongLong(number);
        if !ffi::PyErr_Occurred().is_null() {
            return ptr::null_mut();
        }
        ffi::PyBool_FromLong(bus::bus(object).registry.remove(id).into())
    }
}

/// `_handlers()`: pairs of a number and a handler.
#[entry]
unsafe extern "C" fn handlers(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a bus; the format's arguments are of its sizes.
    let found = unsafe {
        let listeners = bus::bus(object).registry.listeners();
        let pairs = listeners.iter().filter_map(|listener| match &listener.target.target {
            Target::Handler(handler, _) => {
                let pair = ffi::Py_BuildValue(c"(KO)".as_ptr(), listener.id, handler.get());
                Some(Object::own(pair))
            }
            Target::Queue(_) => None,
        });
        pairs.collect::<Result<Vec<_>, _>>().and_then(arguments::list)
    };
    found.map_or(ptr::null_mut(), Object::into_ptr)
}

/// `_counters()`: published, delivered, failed, handlers, subscriptions, waiting, dropped, refused.
#[entry]
unsafe extern "C" fn counters(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a bus; the format has one argument of its size for each of its letters.
    unsafe {
        let bus = bus::bus(object);
        let (mut handlers, mut queues, mut waiting, mut dropped, mut refused) =
            (0_u64, 0_u64, 0_u64, 0_u64, 0_u64);
        // A link to other processes does not count as a listener.
        for listener in bus.registry.listeners().iter().filter(|known| known.target.link.is_none()) {
            match &listener.target.target {
                Target::Handler(..) => handlers += 1,
                Target::Queue(queue) => {
                    queues += 1;
                    waiting += queue.len() as u64;
                    let counters = queue.counters();
                    dropped += counters.dropped;
                    refused += counters.refused;
                }
            }
        }
        let (reported, fed) = bus.carrier.get().map_or((0, 0), |carrier| carrier.counts());
        ffi::Py_BuildValue(
            c"(KKKKKKKK)".as_ptr(),
            bus.published.load(Ordering::Relaxed) + reported,
            bus.delivered.load(Ordering::Relaxed) + fed,
            bus.failed.load(Ordering::Relaxed),
            handlers,
            queues,
            waiting,
            dropped + bus.missed.load(Ordering::Relaxed),
            refused,
        )
    }
}

#[entry]
unsafe extern "C" fn close(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a bus.
    unsafe { bus::bus(object) }.registry.close();
    Object::none().into_ptr()
}

/// `_orphan()`: gives the bus up in a forked child, because other processes share it. The bus that carries the reports
/// of this process stays: those of the child have their listeners there.
#[entry]
unsafe extern "C" fn orphan(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a bus.
    let bus = unsafe { bus::bus(object) };
    if bus.carrier.get().is_none() {
        bus.registry.orphan();
    }
    Object::none().into_ptr()
}

/// `_check_open()`: raises what a use of the bus raises if it is closed.
#[entry]
unsafe extern "C" fn check_open(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a bus.
    let registry = unsafe { &bus::bus(object).registry };
    if registry.is_closed() {
        let _ = bus::closed(registry);
        return ptr::null_mut();
    }
    Object::none().into_ptr()
}

#[entry]
unsafe extern "C" fn is_orphaned(object: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: a bus.
    unsafe { ffi::PyBool_FromLong(bus::bus(object).registry.is_orphaned().into()) }
}

#[entry]
unsafe extern "C" fn is_closed(object: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: a bus.
    unsafe { ffi::PyBool_FromLong(bus::bus(object).registry.is_closed().into()) }
}

#[entry]
unsafe extern "C" fn new(
    kind: *mut ffi::PyTypeObject,
    arguments: *mut ffi::PyObject,
    _names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let [mut dispatch, mut nothing, mut report] = [ptr::null_mut(); 3];
    let mut depth: c_int = 0;
    // SAFETY: as many places as the format says, of its types; the objects are live.
    let made = unsafe {
        if ffi::PyArg_ParseTuple(
            arguments,
            c"OOOi:Bus".as_ptr(),
            &raw mut dispatch,
            &raw mut nothing,
            &raw mut report,
            &raw mut depth,
        ) == 0
        {
            return ptr::null_mut();
        }
        (|| {
            let registry = Registry::new(Object::share(nothing)?, Object::own(ffi::PyDict_New())?);
            let content = Bus {
                registry: Arc::new(registry),
                carrier: OnceLock::new(),
                dispatch: Field::new(Object::share(dispatch)?),
                report: arguments::optional(report),
                depth: u32::try_from(depth).unwrap_or(1),
                published: AtomicU64::new(0),
                delivered: AtomicU64::new(0),
                failed: AtomicU64::new(0),
                missed: AtomicU64::new(0),
            };
            heap::make(kind, content)
        })()
    };
    made.map_or(ptr::null_mut(), Object::into_ptr)
}

#[entry]
unsafe extern "C" fn traverse(object: *mut ffi::PyObject, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    // SAFETY: a bus, and the collector's own function; every other thread stands still.
    unsafe {
        let bus = bus::bus(object);
        let carried = bus.carrier.get().into_iter().flat_map(|carrier| carrier.fields());
        for field in bus.registry.fields().chain([&bus.dispatch, &bus.report]).chain(carried) {
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
    // SAFETY: a bus.
    unsafe {
        let bus = bus::bus(object);
        bus.registry.clear();
        drop(bus.report.take());
        if let Some(carrier) = bus.carrier.get() {
            carrier.clear();
        }
    }
    0
}

/// Makes the type.
pub(super) fn make_type(module: &Object) -> Result<Object, Raised> {
    heap::make_type::<Bus>(
        module,
        heap::Type {
            name: c"ropewalk._bus.Bus",
            doc: c"The compiled part of `ropewalk.Bus`.",
            flags: ffi::Py_TPFLAGS_HAVE_GC | ffi::Py_TPFLAGS_BASETYPE,
            methods: vec![
                heap::keyword_method(
                    c"publish",
                    publish,
                    c"publish($self, /, topic, message, timeout=None)\n--\n\n\
                    Gives a message to every listener of its topic.",
                ),
                heap::fast_method(
                    c"publish_many",
                    publish_many,
                    c"publish_many($self, topic, messages, /)\n--\n\n\
                    Publishes each of the messages, in order; returns their number.",
                ),
                heap::fast_method(c"_receive", linked::receive, c"Publishes a message that came by a link."),
                heap::fast_method(c"_forward", linked::forward, c"The same, to listeners that have room."),
                heap::fast_method(c"_lag", linked::lag, c"Reports messages that were dropped on their way."),
                heap::method(c"_link", linked::link, ffi::METH_VARARGS, c"Adds a link to another process."),
                heap::method(
                    c"_patterns",
                    linked::patterns,
                    ffi::METH_NOARGS,
                    c"The patterns that this process listens to.",
                ),
                heap::fast_method(c"_carry", serve::carry, c"Carries the reports of this process."),
                heap::method(c"_serve", serve::serve, ffi::METH_NOARGS, c"Runs the reports' thread."),
                heap::method(c"_stop", serve::stop, ffi::METH_NOARGS, c"Ends that thread."),
                heap::method(c"_restart", serve::restart, ffi::METH_NOARGS, c"For a forked child."),
                heap::fast_method(c"_begin", begin, c"Publishes; awaitables, and whether any refused."),
                heap::method(c"_on", on, ffi::METH_VARARGS, c"Adds a handler; returns its number."),
                heap::method(c"_subscribe", subscribe, ffi::METH_VARARGS, c"Adds a subscription."),
                heap::method(c"_off", off, ffi::METH_O, c"Removes an entry by its number."),
                heap::method(c"_handlers", handlers, ffi::METH_NOARGS, c"Numbers and handlers."),
                heap::method(c"_counters", counters, ffi::METH_NOARGS, c"The numbers of `statistics`."),
                heap::method(c"_close", close, ffi::METH_NOARGS, c"Closes the bus."),
                heap::method(c"_orphan", orphan, ffi::METH_NOARGS, c"Gives the bus up in a forked child."),
                heap::method(c"_check_open", check_open, ffi::METH_NOARGS, c"Raises if it is closed."),
                heap::fast_method(c"_report", bus::report, c"Counts and reports a handler's error."),
            ],
            getters: vec![
                heap::getter(c"closed", is_closed, c"Whether it was closed."),
                heap::getter(c"_orphaned", is_orphaned, c"Whether it is a forked child's, and shared."),
            ],
            slots: &[
                (ffi::Py_tp_new, new as *mut _),
                (ffi::Py_tp_traverse, traverse as *mut _),
                (ffi::Py_tp_clear, clear as *mut _),
                (ffi::Py_tp_dealloc, heap::dealloc::<Bus> as *mut _),
            ],
        },
    )
}
