//! `ropewalk._bus`: publish and subscribe between the threads and event loops of one interpreter.
//!
//! A publisher finds the route of its topic (`route`), which holds all listeners of the topic, and serves them one
//! after another (`deliver`): it calls handlers and fills queues (`queue`). Receivers take from a queue through a
//! `subscription`, blocking or awaiting (`wait`, `waiters`). A `link` leads to another process; a `feed` brings the
//! reports of this one. The `registry` has the listeners and their patterns. Its table and the queues' backlogs are
//! those of `crates/bus`.

mod arguments;
mod bus;
mod bus_type;
mod deliver;
mod feed;
mod link;
mod linked;
mod loops;
mod queue;
mod recent;
mod registry;
mod route;
mod serve;
mod subscription;
mod types;
mod wait;
mod waiters;

use std::ptr;

use pyo3_ffi as ffi;
use ropewalk_bus::Pattern;

use ropewalk_capi::entry;
use ropewalk_capi::errors::fail;
use ropewalk_capi::heap::fast_method;
use ropewalk_capi::module;
use ropewalk_capi::object::{Object, Raised};

use types::{MODULE, ModuleTypes};

/// Makes the module: the return value of its `PyInit_` function.
pub fn init() -> *mut ffi::PyObject {
    MODULE.init()
}

// SAFETY: pointers, for which zeros are null.
unsafe impl module::State for ModuleTypes {
    fn functions() -> Vec<ffi::PyMethodDef> {
        vec![fast_method(
            c"matches",
            matches,
            c"matches(pattern, topic) -> whether a topic matches a pattern",
        )]
    }

    fn references(&mut self) -> impl Iterator<Item = &mut *mut ffi::PyObject> {
        [&mut self.bus, &mut self.subscription, &mut self.waiting, &mut self.route].into_iter()
    }

    fn fill(&mut self, module: &Object) -> Result<(), Raised> {
        self.waiting = wait::make_type(module)?.into_ptr();
        self.route = route::make_type(module)?.into_ptr();
        self.subscription = subscription::make_type(module)?.into_ptr();
        self.bus = bus_type::make_type(module)?.into_ptr();
        // SAFETY: our fresh module, and live types.
        unsafe {
            module::add(module, c"Subscription", self.subscription)?;
            module::add(module, c"Bus", self.bus)
        }
    }
}

/// `matches(pattern, topic)`
#[entry]
unsafe extern "C" fn matches(
    _: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    given: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    if given != 2 {
        let _ = fail(c"matches takes a pattern and a topic");
        return ptr::null_mut();
    }
    // SAFETY: two live arguments.
    let matches = unsafe {
        arguments::characters(*arguments, c"pattern")
            .and_then(|pattern| Pattern::parse(pattern).map_err(|error| arguments::invalid(&error)))
            .and_then(|pattern| Ok(pattern.matches(arguments::characters(*arguments.add(1), c"topic")?)))
    };
    // SAFETY: the thread is attached.
    matches.map_or(ptr::null_mut(), |matches| unsafe { ffi::PyBool_FromLong(matches.into()) })
}
