//! A bus's state: its listeners, the look-up of a topic's route, counters, and reports of errors.

use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use pyo3_ffi as ffi;
use ropewalk_bus::check_topic;

use super::arguments::{characters, invalid};
use super::feed::Carrier;
use super::queue;
use super::registry::Registry;
use super::route::{self, Route};
use ropewalk_base::{Code, error};
use ropewalk_capi::entry;
use ropewalk_capi::errors::raise;
use ropewalk_capi::heap::{self, Field};
use ropewalk_capi::object::{Object, Raised};

/// The most topics whose routes are cached; with more, all are dropped and made again as they are used.
const MOST_ROUTES: ffi::Py_ssize_t = 4096;

pub(super) struct Bus {
    pub(super) registry: Arc<Registry>,
    /// `dispatch(handlers, message, report, topic)`: calls a list of handlers.
    pub(super) dispatch: Field,
    /// `report(error, handler, topic)`: called with an error that a handler or a filter raised.
    pub(super) report: Field,
    /// Set if the bus carries the reports of this process.
    pub(super) carrier: OnceLock<Arc<Carrier>>,
    /// The depth to which handlers may publish into handlers.
    pub(super) depth: u32,
    /// Messages published; deliveries to handlers and queues, without those that a filter rejected; handlers and
    /// filters that raised. Statistics, hence relaxed.
    pub(super) published: AtomicU64,
    pub(super) delivered: AtomicU64,
    pub(super) failed: AtomicU64,
    /// Reports that handlers missed, because the serving thread was too far behind.
    pub(super) missed: AtomicU64,
}

/// Adds to a counter. Where the interpreter lock orders the threads a plain addition is enough.
#[inline]
pub(super) fn count(counter: &AtomicU64, by: u64) {
    if cfg!(Py_GIL_DISABLED) {
        counter.fetch_add(by, Ordering::Relaxed);
    } else {
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
    }
}

/// The bus behind a method's first argument.
///
/// # Safety
///
/// `object` is a bus, and lives while the reference does.
pub(super) unsafe fn bus<'a>(object: *mut ffi::PyObject) -> &'a Bus {
    // SAFETY: the caller's.
    unsafe { heap::content(object) }
}

/// The error for a use of a bus that is closed.
#[cold]
pub(super) fn closed(registry: &Registry) -> Raised {
    if registry.is_orphaned() {
        queue::orphaned()
    } else {
        raise(&error!(Code::BusClosed, "the bus is closed"))
    }
}

/// The route of a topic: the cached one, or a new one.
///
/// # Safety
///
/// `object` is a bus, `topic` a live object.
#[inline]
pub(super) unsafe fn route(object: *mut ffi::PyObject, topic: *mut ffi::PyObject) -> Result<Object, Raised> {
    // SAFETY: the caller's; the dictionary is the bus's own and holds routes only.
    unsafe {
        let registry = &bus(object).registry;
        let recent = registry.recent.recall(topic);
        if !recent.is_null() && heap::content::<Route>(recent).version == registry.version() {
            return Object::share(recent);
        }
        look_up(object, topic)
    }
}

/// # Safety
///
/// As `route`.
unsafe fn look_up(object: *mut ffi::PyObject, topic: *mut ffi::PyObject) -> Result<Object, Raised> {
    // SAFETY: the caller's; the dictionary is the bus's own and holds routes only.
    unsafe {
        let registry = &bus(object).registry;
        let routes = registry.routes();
        if !routes.is_null() {
            let mut found = ptr::null_mut();
            if ffi::compat::PyDict_GetItemRef(routes, topic, &raw mut found) < 0 {
                return Err(Raised);
            }
            if let Ok(found) = Object::own(found)
                && heap::content::<Route>(found.as_ptr()).version == registry.version()
            {
                registry.recent.remember(topic, found.as_ptr());
                return Ok(found);
            }
        }
        make_route(object, topic)
    }
}

/// # Safety
///
/// As `route`.
#[cold]
unsafe fn make_route(object: *mut ffi::PyObject, topic: *mut ffi::PyObject) -> Result<Object, Raised> {
    // SAFETY: the caller's.
    unsafe {
        let bus = bus(object);
        if bus.registry.is_closed() {
            return Err(closed(&bus.registry));
        }
        let name = characters(topic, c"topic")?;
        check_topic(name).map_err(|error| invalid(&error))?;
        let route = route::make(super::types::types(ffi::Py_TYPE(object))?.route, &bus.registry, name)?;
        let routes = bus.registry.routes();
        if !routes.is_null() {
            if ffi::PyDict_Size(routes) >= MOST_ROUTES {
                ffi::PyDict_Clear(routes);
            }
            if ffi::PyDict_SetItem(routes, topic, route.as_ptr()) != 0 {
                return Err(Raised);
            }
        }
        Ok(route)
    }
}

/// `_report(error, handler, topic)`: counts the error, and calls the report function.
#[entry]
pub(super) unsafe extern "C" fn report(
    object: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    given: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: a bus, and live arguments with their number.
    unsafe {
        let bus = bus(object);
        count(&bus.failed, 1);
        let arguments = std::slice::from_raw_parts(arguments, usize::try_from(given).unwrap_or(0));
        if let Some(Err(Raised)) = bus.report.share().map(|report| report.call(arguments)) {
            ffi::PyErr_WriteUnraisable(bus.report.get());
        }
    }
    Object::none().into_ptr()
}

/// Reports the exception that is set, if a handler may raise it; others propagate to the publisher.
///
/// # Safety
///
/// `object` is a bus, the others are live, and an exception is set.
#[cold]
pub(super) unsafe fn report_raised(
    object: *mut ffi::PyObject,
    handler: *mut ffi::PyObject,
    topic: *mut ffi::PyObject,
) -> Result<(), Raised> {
    // SAFETY: the caller's.
    unsafe {
        if ffi::PyErr_ExceptionMatches(ffi::PyExc_Exception) == 0 {
            return Err(Raised);
        }
        let error = ropewalk_capi::object::take_exception();
        let mut arguments = [error.as_ptr(), handler, topic];
        drop(Object::own(report(object, arguments.as_mut_ptr(), 3)));
        Ok(())
    }
}

/// As [`report_raised`], where nothing can be raised: prints what that returns.
///
/// # Safety
///
/// As there.
#[cold]
pub(super) unsafe fn report_or_print(
    object: *mut ffi::PyObject,
    handler: *mut ffi::PyObject,
    topic: *mut ffi::PyObject,
) {
    // SAFETY: the caller's.
    unsafe {
        if report_raised(object, handler, topic).is_err() {
            ffi::PyErr_WriteUnraisable(object);
        }
    }
}
