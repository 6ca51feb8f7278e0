//! The methods of a bus for its links.

use std::ptr;
use std::sync::Arc;

use pyo3_ffi as ffi;
use ropewalk_bus::{Overflow, Pattern};

use super::queue::{Queue, overflow_number};
use super::registry::Target;
use super::{arguments, bus, deliver, subscription, wait};
use ropewalk_capi::entry;
use ropewalk_capi::errors::fail;
use ropewalk_capi::heap;
use ropewalk_capi::object::{Object, Raised, text};

/// The link behind an argument.
///
/// # Safety
///
/// `object` is a bus, `link` is live for as long as the reference.
unsafe fn link_of<'a>(object: *mut ffi::PyObject, link: *mut ffi::PyObject) -> Result<&'a Queue, Raised> {
    // SAFETY: the caller's objects are live; the argument's type is checked before its content is read.
    unsafe {
        let types = super::types::types(ffi::Py_TYPE(object))?;
        if ffi::PyObject_TypeCheck(link, types.subscription) == 0 {
            return Err(fail(c"a link is a subscription"));
        }
        Ok(heap::content::<subscription::Subscription>(link).queue.as_ref())
    }
}

/// `_receive(link, topic, message)`: publishes a message that came by a link, and waits for room; returns how many
/// listeners could have got it, the link included.
#[entry]
pub(super) unsafe extern "C" fn receive(
    object: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    given: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    if given != 3 {
        let _ = fail(c"_receive takes a link, a topic and a message");
        return ptr::null_mut();
    }
    // SAFETY: a bus and three live arguments, the first of which is checked.
    let reach = unsafe {
        let [link, topic, message] = [0, 1, 2].map(|at| *arguments.add(at));
        link_of(object, link).and_then(|link| {
            let origin = deliver::Origin::Link(link, None);
            let reach =
                deliver::publish_one(object, topic, message, &mut deliver::Patience::Endless, Some(&origin))?;
            Object::own(ffi::PyLong_FromUnsignedLongLong(reach))
        })
    };
    reach.map_or(ptr::null_mut(), Object::into_ptr)
}

/// `_forward(link, topic, message, encoded)`: publishes a message that came by a link to all listeners that have room,
/// other links included; returns as `_begin`.
#[entry]
pub(super) unsafe extern "C" fn forward(
    object: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    given: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    if given != 4 {
        let _ = fail(c"_forward takes a link, a topic, a message and its bytes");
        return ptr::null_mut();
    }
    // SAFETY: a bus and four live arguments, the first of which is checked.
    let begun = unsafe {
        let [link, topic, message, encoded] = [0, 1, 2, 3].map(|at| *arguments.add(at));
        link_of(object, link).and_then(|link| {
            let origin = deliver::Origin::Link(link, Some(Object::share(encoded)?));
            wait::publish_later(object, topic, message, Some(&origin))
        })
    };
    begun.map_or(ptr::null_mut(), Object::into_ptr)
}

/// `_lag(topic, count)`: reports to the topic's listeners with dropping queues, or to those of all topics if it is
/// empty, that `count` messages were dropped on their way here.
#[entry]
pub(super) unsafe extern "C" fn lag(
    object: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    given: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    if given != 2 {
        let _ = fail(c"_lag takes a topic and a number");
        return ptr::null_mut();
    }
    // SAFETY: a bus, and two live arguments.
    let reported = unsafe {
        (|| {
            let count = ffi::PyLong_AsUnsignedLongLong(*arguments.add(1));
            if !ffi::PyErr_Occurred().is_null() {
                return Err(Raised);
            }
            let topic = arguments::characters(*arguments, c"topic")?;
            for listener in bus::bus(object).registry.listeners() {
                if let Target::Queue(queue) = &listener.target.target
                    && listener.target.link.is_none()
                    && matches!(queue.overflow, Overflow::DropOldest | Overflow::DropNewest)
                    && (topic.is_empty() || listener.pattern.matches(topic))
                {
                    queue.lag(count);
                }
            }
            Ok(Object::none())
        })()
    };
    reported.map_or(ptr::null_mut(), Object::into_ptr)
}

/// `_link(capacity, encode, write)`: makes a link to another process, which listens to nothing yet.
#[entry]
pub(super) unsafe extern "C" fn link(
    object: *mut ffi::PyObject,
    arguments: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let [mut encode, mut write] = [ptr::null_mut(); 2];
    let mut capacity: ffi::Py_ssize_t = 0;
    // SAFETY: a bus, and as many places as the format says, of its types.
    let made = unsafe {
        if ffi::PyArg_ParseTuple(
            arguments,
            c"nOO:_link".as_ptr(),
            &raw mut capacity,
            &raw mut encode,
            &raw mut write,
        ) == 0
        {
            return ptr::null_mut();
        }
        (|| {
            let capacity = usize::try_from(capacity).unwrap_or(1).max(1);
            let queue = Arc::new(Queue::of_link(capacity));
            queue.connect(Object::share(encode)?, Object::share(write)?);
            let bus = bus::bus(object);
            if let Some(carrier) = bus.carrier.get() {
                carrier.serve_others()?;
            }
            let registry = Arc::clone(&bus.registry);
            let id = registry.reserve();
            let kind = super::types::types(ffi::Py_TYPE(object))?.subscription;
            subscription::make(kind, queue, registry, id, None, text("")?)
        })()
    };
    made.map_or(ptr::null_mut(), Object::into_ptr)
}

/// `_patterns()`: pairs of a pattern that this process listens to and the number of its overflow.
#[entry]
pub(super) unsafe extern "C" fn patterns(
    object: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a bus; the format's arguments are of its sizes.
    let pairs = unsafe {
        let local = bus::bus(object).registry.local_patterns();
        let pair = |(pattern, overflow): (Pattern, Overflow)| {
            let pattern = text(pattern.as_str())?;
            Object::own(ffi::Py_BuildValue(c"(Oi)".as_ptr(), pattern.as_ptr(), overflow_number(overflow)))
        };
        local.into_iter().map(pair).collect::<Result<Vec<_>, _>>().and_then(arguments::list)
    };
    pairs.map_or(ptr::null_mut(), Object::into_ptr)
}
