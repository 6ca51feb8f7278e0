//! `Subscription`: the receiving end of a queue.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pyo3_ffi as ffi;
use ropewalk_bus::{Overflow, Pattern, Taken};

use super::arguments;
use super::queue::{Queue, Side, numbered_overflow};
use super::registry::Registry;
use super::wait::{self, Goal};
use ropewalk_base::{Code, error};
use ropewalk_capi::entry;
use ropewalk_capi::errors::{fail, raise};
use ropewalk_capi::heap::{self, Field};
use ropewalk_capi::object::{Kept, Object, Raised, detached, text};
use ropewalk_capi::signals;

pub(super) struct Subscription {
    pub(super) queue: Arc<Queue>,
    registry: Arc<Registry>,
    id: u64,
    /// The bus, which a subscription keeps alive; empty for a link, which does not.
    bus: Field,
    pattern: Field,
    /// The awaitable of the last reception, reused once there is no other reference to it: most receptions find a
    /// message and end at once, and would spend most of their time on making it.
    spare: Field,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        // The last reference may be dropped while an exception propagates, and the end wakes coroutines.
        let raised = Kept::take();
        self.end();
        raised.put_back();
    }
}

impl Subscription {
    fn end(&self) {
        self.queue.close();
        self.registry.remove(self.id);
        if self.queue.is_link {
            self.queue.disconnect();
        }
    }

    /// Waits until there is something to receive.
    fn wait(&self, deadline: Option<Instant>) -> Result<(), Raised> {
        let Some(number) = self.queue.prepare(Side::Receivers) else { return Ok(()) };
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return Err(raise(&error!(Code::BusEmpty, "no message arrived within the timeout")));
        }
        let sleep = [left, signals::slice()].into_iter().flatten().min();
        let _ = detached(|| self.queue.sleep(Side::Receivers, number, sleep));
        // SAFETY: the thread is attached again.
        if unsafe { ffi::PyErr_CheckSignals() } != 0 { Err(Raised) } else { Ok(()) }
    }

    #[inline]
    fn receive(&self, deadline: Option<Instant>) -> Result<Object, Raised> {
        match self.queue.take_object() {
            Some(message) => Ok(message),
            None => self.receive_later(deadline),
        }
    }

    /// Continues a reception that found no message.
    fn receive_later(&self, deadline: Option<Instant>) -> Result<Object, Raised> {
        loop {
            if let Some(message) = self.queue.or_raise(self.queue.take())? {
                return Ok(message);
            }
            self.wait(deadline)?;
        }
    }

    fn receive_many(&self, most: usize, deadline: Option<Instant>) -> Result<Object, Raised> {
        loop {
            match self.queue.take_many(most) {
                Ok(messages) => return self.queue.list_of(messages),
                Err(taken) => self.queue.or_raise(taken)?,
            };
            self.wait(deadline)?;
        }
    }
}

fn empty() -> Raised {
    raise(&error!(Code::BusEmpty, "the subscription has no message"))
}

fn finish(result: Result<Object, Raised>) -> *mut ffi::PyObject {
    result.map_or(ptr::null_mut(), Object::into_ptr)
}

/// The subscription behind a method's first argument.
///
/// # Safety
///
/// `object` is a subscription, and lives while the reference does.
unsafe fn subscription<'a>(object: *mut ffi::PyObject) -> &'a Subscription {
    // SAFETY: the caller's.
    unsafe { heap::content(object) }
}

#[entry]
unsafe extern "C" fn recv(
    object: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    if count == 0 && names.is_null() {
        // SAFETY: a subscription.
        return finish(unsafe { subscription(object) }.receive(None));
    }
    // SAFETY: a subscription, and the interpreter's arguments for a function of this kind.
    finish(unsafe { arguments::sorted::<1>(c"recv", &[c"timeout"], 0, arguments, count, names) }.and_then(
        |[timeout]| {
            let deadline = if timeout.is_null() { None } else { arguments::deadline(timeout)? };
            // SAFETY: as above.
            unsafe { subscription(object) }.receive(deadline)
        },
    ))
}

#[entry]
unsafe extern "C" fn recv_nowait(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a subscription.
    let queue = &unsafe { subscription(object) }.queue;
    finish(match queue.take_object() {
        Some(message) => Ok(message),
        None => queue.or_raise(queue.take()).and_then(|message| message.ok_or_else(empty)),
    })
}

/// `recv_many_nowait(n)`
#[entry]
unsafe extern "C" fn recv_many_nowait(
    object: *mut ffi::PyObject,
    most: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a subscription.
    let queue = &unsafe { subscription(object) }.queue;
    finish(arguments::positive(most).and_then(|most| match queue.take_many(most) {
        Ok(messages) => queue.list_of(messages),
        Err(taken) => queue.or_raise(taken).and_then(|message| message.ok_or_else(empty)),
    }))
}

#[entry]
unsafe extern "C" fn recv_many(
    object: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    given: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a subscription, and the interpreter's arguments for a function of this kind.
    finish(
        unsafe { arguments::sorted::<2>(c"recv_many", &[c"n", c"timeout"], 1, arguments, given, names) }
            .and_then(|[most, timeout]| {
                let most = arguments::positive(most)?;
                let deadline = if timeout.is_null() { None } else { arguments::deadline(timeout)? };
                // SAFETY: as above.
                unsafe { subscription(object) }.receive_many(most, deadline)
            }),
    )
}

fn waiting(object: *mut ffi::PyObject, goal: Goal) -> Result<Object, Raised> {
    // SAFETY: a subscription, whose type is ours; its spare field holds one of its awaitables that has ended.
    unsafe {
        let subscription = subscription(object);
        #[cfg(not(Py_GIL_DISABLED))]
        {
            if let Some(spare) = subscription.spare.take()
                && ffi::Py_REFCNT(spare.as_ptr()) == 1
            {
                wait::renew(&spare, goal, Object::share(object)?);
                return Ok(spare);
            }
        }
        let kind = super::types::types(ffi::Py_TYPE(object))?.waiting;
        // A free-threaded build cannot tell that nobody else has it.
        let spare = if cfg!(Py_GIL_DISABLED) { None } else { Some(&subscription.spare) };
        let holder = (Object::share(object)?, spare);
        wait::make(kind, Arc::clone(&subscription.queue), goal, holder, None)
    }
}

#[entry]
unsafe extern "C" fn recv_async(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    finish(waiting(object, Goal::One))
}

#[entry]
unsafe extern "C" fn recv_many_async(
    object: *mut ffi::PyObject,
    most: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    finish(arguments::positive(most).and_then(|most| waiting(object, Goal::Many(most))))
}

#[entry]
unsafe extern "C" fn anext(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    finish(waiting(object, Goal::Next))
}

#[entry]
unsafe extern "C" fn next(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a subscription.
    let subscription = unsafe { subscription(object) };
    loop {
        if let Some(message) = subscription.queue.take_object() {
            return message.into_ptr();
        }
        let taken = subscription.queue.take();
        if matches!(taken, Taken::Ended) && !subscription.queue.is_orphaned() {
            return ptr::null_mut(); // Without an exception: the end of the iteration.
        }
        match subscription.queue.or_raise(taken) {
            Ok(Some(message)) => return message.into_ptr(),
            Ok(None) if subscription.wait(None).is_ok() => {}
            _ => return ptr::null_mut(),
        }
    }
}

#[entry]
unsafe extern "C" fn itself(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a live object, to which this takes a new reference.
    unsafe { ffi::Py_INCREF(object) };
    object
}

#[entry]
unsafe extern "C" fn enter(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a live object.
    unsafe { itself(object) }
}

#[entry]
unsafe extern "C" fn close(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a subscription.
    unsafe { subscription(object) }.end();
    Object::none().into_ptr()
}

#[entry]
unsafe extern "C" fn exit(
    object: *mut ffi::PyObject,
    _: *mut *mut ffi::PyObject,
    _: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: a subscription.
    unsafe { close(object, ptr::null_mut()) }
}

#[entry]
unsafe extern "C" fn counters(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a subscription; the format has one argument of its size for each of its letters.
    unsafe {
        let queue = &subscription(object).queue;
        let (waiting, counters) = (queue.len(), queue.counters());
        ffi::Py_BuildValue(
            c"(nnKKKK)".as_ptr(),
            ffi::Py_ssize_t::try_from(waiting).unwrap_or(0),
            ffi::Py_ssize_t::try_from(counters.peak).unwrap_or(0),
            counters.accepted,
            counters.received,
            counters.dropped,
            counters.refused,
        )
    }
}

/// `_set_patterns(pairs)`: makes a link listen to these patterns instead of its last ones, after all other listeners;
/// each pattern comes with the number of an overflow. The first that matches a topic counts.
#[entry]
unsafe extern "C" fn set_patterns(
    object: *mut ffi::PyObject,
    pairs: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a subscription, and a live argument; the items are borrowed from a live sequence.
    let parsed = unsafe {
        Object::own(ffi::PySequence_Tuple(pairs)).and_then(|pairs| {
            let parse = |at| {
                let (mut name, mut overflow): (*mut ffi::PyObject, c_int) = (ptr::null_mut(), 0);
                let pair = ffi::PyTuple_GetItem(pairs.as_ptr(), at);
                if ffi::PyTuple_Check(pair) == 0 {
                    return Err(fail(c"a pattern of a link comes with its overflow"));
                }
                let format = c"Oi:_set_patterns".as_ptr();
                if ffi::PyArg_ParseTuple(pair, format, &raw mut name, &raw mut overflow) == 0 {
                    return Err(Raised);
                }
                let pattern = Pattern::parse(arguments::characters(name, c"pattern")?);
                Ok((pattern.map_err(|error| arguments::invalid(&error))?, numbered_overflow(overflow)))
            };
            (0..ffi::PyTuple_Size(pairs.as_ptr())).map(parse).collect::<Result<Vec<_>, _>>()
        })
    };
    finish(parsed.map(|patterns| {
        // SAFETY: a subscription.
        let subscription = unsafe { subscription(object) };
        subscription.registry.set_patterns(subscription.id, &subscription.queue, patterns);
        Object::none()
    }))
}

/// `_hold()`: waits for the next pair of a link, past which nothing is written until `_release`; returns `None` once
/// the link is closed and empty.
#[entry]
unsafe extern "C" fn hold(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a subscription.
    let subscription = unsafe { subscription(object) };
    loop {
        match subscription.queue.hold() {
            Taken::Message(message) => return message.into_ptr(),
            Taken::Ended => return Object::none().into_ptr(),
            Taken::Lagged(_) => {}
            Taken::Empty => {
                if subscription.wait(None).is_err() {
                    return ptr::null_mut();
                }
            }
        }
    }
}

/// `_release()`: reports that the pair of `_hold` was written.
#[entry]
unsafe extern "C" fn release(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a subscription.
    unsafe { subscription(object) }.queue.release();
    Object::none().into_ptr()
}

/// `_lost()`: returns how many messages of each topic a link has dropped since the last call.
#[entry]
unsafe extern "C" fn lost(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a subscription; a new dictionary, and live objects, to which it takes its own references.
    finish(unsafe {
        (|| {
            let counts = Object::own(ffi::PyDict_New())?;
            for (topic, count) in subscription(object).queue.take_lost() {
                let topic = text(&topic)?;
                let count = Object::own(ffi::PyLong_FromUnsignedLongLong(count))?;
                if ffi::PyDict_SetItem(counts.as_ptr(), topic.as_ptr(), count.as_ptr()) != 0 {
                    return Err(Raised);
                }
            }
            Ok(counts)
        })()
    })
}

/// The record is a Python class.
#[entry]
unsafe extern "C" fn statistics(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a live object, and a module of ours.
    finish(unsafe {
        Object::own(ffi::PyImport_ImportModule(c"ropewalk.bus._bus".as_ptr()))
            .and_then(|module| module.attribute(c"subscription_statistics"))
            .and_then(|record| record.call(&[object]))
    })
}

#[entry]
unsafe extern "C" fn length(object: *mut ffi::PyObject) -> ffi::Py_ssize_t {
    // SAFETY: a subscription.
    ffi::Py_ssize_t::try_from(unsafe { subscription(object) }.queue.len()).unwrap_or(ffi::Py_ssize_t::MAX)
}

/// A subscription is always true, even while it is empty.
#[entry]
unsafe extern "C" fn truth(_: *mut ffi::PyObject) -> c_int {
    1
}

#[entry]
unsafe extern "C" fn closed(object: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: a subscription.
    unsafe { ffi::PyBool_FromLong(subscription(object).queue.is_closed().into()) }
}

#[entry]
unsafe extern "C" fn capacity(object: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: a subscription.
    unsafe { ffi::PyLong_FromSize_t(subscription(object).queue.capacity) }
}

#[entry]
unsafe extern "C" fn pattern(object: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: a subscription.
    unsafe { subscription(object) }.pattern.share().unwrap_or_else(Object::none).into_ptr()
}

#[entry]
unsafe extern "C" fn overflow(object: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: a subscription.
    let name = match unsafe { subscription(object) }.queue.overflow {
        Overflow::Block => "block",
        Overflow::DropOldest => "drop_oldest",
        Overflow::DropNewest => "drop_newest",
        Overflow::Error => "error",
    };
    finish(text(name))
}

#[entry]
unsafe extern "C" fn repr(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a subscription.
    let subscription = unsafe { subscription(object) };
    let state = if subscription.queue.is_closed() { "closed" } else { "open" };
    // SAFETY: the format has one argument of its size for each of its places.
    unsafe {
        ffi::PyUnicode_FromFormat(
            c"<ropewalk.Subscription %R %s waiting=%zd/%zd>".as_ptr(),
            subscription.pattern.share().unwrap_or_else(Object::none).as_ptr(),
            if state == "closed" { c"closed".as_ptr() } else { c"open".as_ptr() },
            length(object),
            ffi::Py_ssize_t::try_from(subscription.queue.capacity).unwrap_or(ffi::Py_ssize_t::MAX),
        )
    }
}

#[entry]
unsafe extern "C" fn traverse(object: *mut ffi::PyObject, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    // SAFETY: a subscription and the collector's own function; every other thread stands still.
    unsafe {
        let subscription = subscription(object);
        for field in [&subscription.bus, &subscription.pattern, &subscription.spare] {
            let answer = field.visit(visit, arg);
            if answer != 0 {
                return answer;
            }
        }
        let state = &mut *subscription.queue.in_collection();
        let waiting = state.receivers.objects().chain(state.publishers.objects());
        for object in state.messages().chain(waiting) {
            let answer = visit(object.as_ptr(), arg);
            if answer != 0 {
                return answer;
            }
        }
        heap::visit_type(object, visit, arg)
    }
}

#[entry]
unsafe extern "C" fn clear(object: *mut ffi::PyObject) -> c_int {
    // SAFETY: a subscription.
    let subscription = unsafe { subscription(object) };
    subscription.end();
    // Under the guard: on a free-threaded build other threads run while cycles are broken, and publishers may use the
    // queue.
    let mut state = subscription.queue.lock();
    let messages = state.drain();
    let waiting = (state.receivers.take(), state.publishers.take());
    drop(state);
    drop((messages, waiting));
    drop((subscription.bus.take(), subscription.spare.take()));
    0
}

const DOC: &CStr = c"The receiving end of a subscription, made by `Bus.subscribe`.\n\n\
An iterator and an asynchronous iterator over what was published since. Any number of threads and coroutines may \
receive from it; each message goes to one of them. It ends when it, or its bus, is closed and everything in it was \
received. A subscription that nothing refers to any more is closed.";

/// Makes a subscription.
///
/// # Safety
///
/// `kind` is the type that `make_type` made.
pub(super) unsafe fn make(
    kind: *mut ffi::PyTypeObject,
    queue: Arc<Queue>,
    registry: Arc<Registry>,
    id: u64,
    bus: Option<Object>,
    pattern: Object,
) -> Result<Object, Raised> {
    let content = Subscription {
        queue,
        registry,
        id,
        bus: bus.map_or_else(Field::empty, Field::new),
        pattern: Field::new(pattern),
        spare: Field::empty(),
    };
    // SAFETY: the caller's.
    unsafe { heap::make(kind, content) }
}

/// Makes the type.
pub(super) fn make_type(module: &Object) -> Result<Object, Raised> {
    heap::make_type::<Subscription>(
        module,
        heap::Type {
            name: c"ropewalk.Subscription",
            doc: DOC,
            flags: ffi::Py_TPFLAGS_HAVE_GC | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION,
            methods: vec![
                heap::keyword_method(c"recv", recv, c"recv($self, /, timeout=None)\n--\n\n\
                The next message, waited for at most `timeout` seconds."),
                heap::method(
                    c"recv_nowait",
                    recv_nowait,
                    ffi::METH_NOARGS,
                    c"recv_nowait($self, /)\n--\n\nThe next message if there is one; else it raises `BusEmpty`.",
                ),
                heap::keyword_method(
                    c"recv_many",
                    recv_many,
                    c"recv_many($self, /, n, timeout=None)\n--\n\n\
                    A list of up to n messages; waits for the first.",
                ),
                heap::method(
                    c"recv_many_nowait",
                    recv_many_nowait,
                    ffi::METH_O,
                    c"recv_many_nowait($self, n, /)\n--\n\n\
                    A list of up to n messages that are there; if there is none it raises `BusEmpty`.",
                ),
                heap::method(
                    c"recv_async",
                    recv_async,
                    ffi::METH_NOARGS,
                    c"recv_async($self, /)\n--\n\nThe asynchronous twin of `recv`.",
                ),
                heap::method(
                    c"recv_many_async",
                    recv_many_async,
                    ffi::METH_O,
                    c"recv_many_async($self, n, /)\n--\n\nThe asynchronous twin of `recv_many`.",
                ),
                heap::method(
                    c"close",
                    close,
                    ffi::METH_NOARGS,
                    c"close($self, /)\n--\n\nEnds it; what is there can still be received.",
                ),
                heap::method(c"statistics", statistics, ffi::METH_NOARGS, c"statistics($self, /)\n--\n\n\
                Its counters, as they are now."),
                heap::method(c"_set_patterns", set_patterns, ffi::METH_O, c"Listens to these patterns."),
                heap::method(c"_hold", hold, ffi::METH_NOARGS, c"The next pair of a link."),
                heap::method(c"_release", release, ffi::METH_NOARGS, c"Reports that the held pair was written."),
                heap::method(c"_lost", lost, ffi::METH_NOARGS, c"The messages that a link has dropped, by topic."),
                heap::method(c"_counters", counters, ffi::METH_NOARGS, c"The numbers of `statistics`."),
                heap::method(c"__enter__", enter, ffi::METH_NOARGS, c"Returns the subscription."),
                heap::fast_method(c"__exit__", exit, c"Closes the subscription."),
                heap::method(
                    c"__class_getitem__",
                    ffi::Py_GenericAlias,
                    ffi::METH_O | ffi::METH_CLASS,
                    c"Subscription[T]",
                ),
            ],
            getters: vec![
                heap::getter(c"closed", closed, c"Whether it, or its bus, was closed."),
                heap::getter(c"capacity", capacity, c"How many messages may wait in it."),
                heap::getter(c"overflow", overflow, c"What happens to a message without room."),
                heap::getter(c"pattern", pattern, c"The topics that it listens to."),
            ],
            slots: &[
                (ffi::Py_tp_repr, repr as *mut _),
                (ffi::Py_tp_iter, itself as *mut _),
                (ffi::Py_tp_iternext, next as *mut _),
                (ffi::Py_am_aiter, itself as *mut _),
                (ffi::Py_am_anext, anext as *mut _),
                (ffi::Py_sq_length, length as *mut _),
                (ffi::Py_nb_bool, truth as *mut _),
                (ffi::Py_tp_traverse, traverse as *mut _),
                (ffi::Py_tp_clear, clear as *mut _),
                (ffi::Py_tp_dealloc, heap::dealloc::<Subscription> as *mut _),
            ],
        },
    )
}
