//! The thread that serves the listeners that need Python for each report: see `feed`.

use std::collections::HashSet;
use std::ptr;
use std::sync::Arc;

use pyo3_ffi as ffi;
use ropewalk_bus::Taken;

use super::feed::Carrier;
use super::queue::{Side, lagged};
use super::registry::{Registry, Target};
use super::{bus, deliver};
use ropewalk_capi::entry;
use ropewalk_capi::errors::fail;
use ropewalk_capi::object::{Kept, Object, Raised, detached, text};

/// Wakes the loops whose coroutines wait for a report that has arrived.
fn wake_loops(registry: &Registry) {
    for listener in registry.listeners() {
        if let Target::Queue(queue) = &listener.target.target
            && let Some(feed) = &queue.feed
            && queue.lock().receivers.is_waited_in()
            && !feed.mailbox.watch()
        {
            let wake = queue.lock().wake(Side::Receivers);
            queue.perform(wake);
        }
    }
}

/// Reports the exception that is set as an error of a handler.
///
/// # Safety
///
/// `object` is a bus, `handler` is live, and an exception is set.
unsafe fn report_failure(object: *mut ffi::PyObject, handler: *mut ffi::PyObject, topic: &str) {
    let raised = Kept::take();
    let Ok(topic) = text(topic) else { return raised.put_back() };
    raised.put_back();
    // SAFETY: the caller's.
    unsafe { bus::report_or_print(object, handler, topic.as_ptr()) };
}

/// Reports to all listeners without a feed that reports were lost on their way to this thread: to a subscription by a
/// gap, for a handler as its error, and for a worker as both, since only a subscription that may lose messages gets the
/// gap there. The topics of what was lost are not known.
///
/// # Safety
///
/// `object` is a bus.
unsafe fn report_loss(object: *mut ffi::PyObject, count: u64) {
    // SAFETY: the caller's.
    let bus = unsafe { bus::bus(object) };
    // A link is listed once for each of its patterns.
    let mut links = HashSet::new();
    for listener in bus.registry.listeners() {
        match &listener.target.target {
            Target::Queue(queue) if queue.is_link => {
                if links.insert(listener.id) {
                    queue.lose_some(String::new(), count);
                    let _ = lagged(count);
                    // SAFETY: a bus, a live object, and an exception was set.
                    unsafe { report_failure(object, ffi::Py_None(), listener.pattern.as_str()) };
                }
            }
            Target::Queue(queue) if queue.feed.is_none() => queue.lag(count),
            Target::Queue(_) => {}
            Target::Handler(handler, _) => {
                bus::count(&bus.missed, count);
                let _ = lagged(count);
                // SAFETY: a bus, a live handler, and an exception was set.
                unsafe { report_failure(object, handler.get(), listener.pattern.as_str()) };
            }
        }
    }
}

/// `_carry(make, start)`: makes the bus carry the reports of this process.
#[entry]
pub(super) unsafe extern "C" fn carry(
    object: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    given: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    if given != 2 {
        let _ = fail(c"_carry takes two functions");
        return ptr::null_mut();
    }
    // SAFETY: a bus, and two live arguments.
    let made = unsafe {
        Object::share(*arguments)
            .and_then(|make| Ok(Carrier::new(make, Object::share(*arguments.add(1))?)))
            .map(|carrier| bus::bus(object).carrier.set(Arc::new(carrier)))
    };
    match made {
        Ok(Ok(())) => Object::none().into_ptr(),
        Ok(Err(_)) => {
            let _ = fail(c"the bus carries reports already");
            ptr::null_mut()
        }
        Err(Raised) => ptr::null_mut(),
    }
}

/// `_serve()`: runs the thread, until `_stop` was called and all reports that arrived before are delivered.
#[entry]
pub(super) unsafe extern "C" fn serve(
    object: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a bus.
    let bus = unsafe { bus::bus(object) };
    let Some(carrier) = bus.carrier.get() else { return Object::none().into_ptr() };
    loop {
        // Read before checking: a later report changes the number.
        let number = carrier.watcher.number();
        wake_loops(&bus.registry);
        match carrier.mailbox.take() {
            Taken::Message(report) => {
                let served = carrier.make(&report).and_then(|message| {
                    let topic = text(report.topic())?;
                    // SAFETY: a bus, and live objects.
                    unsafe { deliver::report(object, topic.as_ptr(), message.as_ptr()) }
                });
                if served.is_err() && !bus.registry.is_closed() {
                    // `BusFull`, or an exception that a handler may not raise: the thread goes on. SAFETY: a bus, live
                    // objects, and an exception is set.
                    unsafe { report_failure(object, ffi::Py_None(), report.topic()) };
                }
                // SAFETY: the thread is attached.
                unsafe { ffi::PyErr_Clear() };
            }
            // SAFETY: a bus.
            Taken::Lagged(count) => unsafe { report_loss(object, count) },
            Taken::Ended => return Object::none().into_ptr(),
            Taken::Empty => {
                if carrier.mailbox.watch() {
                    detached(|| carrier.watcher.sleep(number));
                }
            }
        }
    }
}

/// `_stop()`: ends the reports; the thread ends once it has delivered those that have arrived.
#[entry]
pub(super) unsafe extern "C" fn stop(
    object: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a bus.
    if let Some(carrier) = unsafe { bus::bus(object) }.carrier.get() {
        carrier.close();
    }
    Object::none().into_ptr()
}

/// `_restart()`: starts the thread anew in a forked child, which has no thread of its parent.
#[entry]
pub(super) unsafe extern "C" fn restart(
    object: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a bus.
    let carrier = unsafe { bus::bus(object) }.carrier.get();
    let started = carrier.map_or(Ok(()), |carrier| carrier.restart());
    started.map_or(ptr::null_mut(), |()| Object::none().into_ptr())
}
