//! `Route`: the entries of one topic, prepared for its publishers.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use pyo3_ffi as ffi;

use super::queue::Queue;
use super::registry::{Entry, Registry, Target};
use ropewalk_capi::entry;
use ropewalk_capi::heap::{self, Field};
use ropewalk_capi::object::{Object, Raised};

/// How a message is delivered to the entries.
pub(super) enum Way {
    /// There is no listener.
    Nowhere,
    /// One handler without filter, called directly.
    One(Field),
    /// A list of handlers, which a Python function calls: calling from there is cheaper than from here.
    Plain(Field),
    /// One queue without filter.
    Queue(Arc<Queue>),
    /// Entries served one by one, with filters and queues.
    Mixed(Vec<Entry>),
}

pub(super) struct Route {
    pub(super) version: u64,
    pub(super) way: Way,
    /// The number of receivers of a message, if no filter rejects it.
    pub(super) reach: u64,
    registry: Arc<Registry>,
}

impl Drop for Route {
    fn drop(&mut self) {
        if let Way::Plain(list) = &self.way {
            self.registry.unwatch(list.get());
        }
    }
}

fn way(registry: &Registry, entries: Vec<(u64, Entry)>) -> Result<Way, Raised> {
    if let [(_, Entry { target: Target::Queue(queue), filter, .. })] = &entries[..]
        && filter.get().is_null()
        && !queue.topics
    {
        return Ok(Way::Queue(Arc::clone(queue)));
    }
    if entries.iter().any(|(_, entry)| entry.plain().is_none()) {
        return Ok(Way::Mixed(entries.into_iter().map(|(_, entry)| entry).collect()));
    }
    let handlers: Vec<&Field> = entries.iter().filter_map(|(_, entry)| entry.plain()).collect();
    match handlers[..] {
        [] => Ok(Way::Nowhere),
        [handler] => Ok(Way::One(handler.clone())),
        _ => {
            let handlers = handlers.into_iter().filter_map(Field::share).collect();
            let list = super::arguments::list(handlers)?;
            registry.watch(list.as_ptr(), entries.iter().map(|(id, _)| *id).collect());
            Ok(Way::Plain(Field::new(list)))
        }
    }
}

#[entry]
unsafe extern "C" fn traverse(object: *mut ffi::PyObject, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    // SAFETY: an object of the type that this is a slot of, and the collector's own function.
    unsafe {
        let answer = match &heap::content::<Route>(object).way {
            Way::Nowhere | Way::Queue(_) => 0,
            Way::One(field) | Way::Plain(field) => field.visit(visit, arg),
            Way::Mixed(entries) => entries
                .iter()
                .flat_map(Entry::fields)
                .map(|field| field.visit(visit, arg))
                .find(|&at| at != 0)
                .unwrap_or(0),
        };
        if answer != 0 { answer } else { heap::visit_type(object, visit, arg) }
    }
}

/// Makes the route of a topic from the current entries.
///
/// # Safety
///
/// `kind` is the type that `make_type` made.
pub(super) unsafe fn make(
    kind: *mut ffi::PyTypeObject,
    registry: &Arc<Registry>,
    topic: &str,
) -> Result<Object, Raised> {
    let (entries, version) = registry.matching(topic);
    let reach = entries.len() as u64;
    let route = Route { version, reach, way: way(registry, entries)?, registry: Arc::clone(registry) };
    // SAFETY: the caller's.
    unsafe { heap::make(kind, route) }
}

/// Makes the type.
pub(super) fn make_type(module: &Object) -> Result<Object, Raised> {
    heap::make_type::<Route>(
        module,
        heap::Type {
            name: c"ropewalk._bus._Route",
            doc: c"The receivers of one topic's messages.",
            flags: ffi::Py_TPFLAGS_HAVE_GC | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION,
            methods: Vec::new(),
            getters: Vec::new(),
            slots: &[
                (ffi::Py_tp_traverse, traverse as *mut _),
                (ffi::Py_tp_dealloc, heap::dealloc::<Route> as *mut _),
            ],
        },
    )
}
