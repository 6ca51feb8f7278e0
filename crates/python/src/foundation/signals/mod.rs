//! `ropewalk.Bus`: publish and subscribe between the threads and event loops of one interpreter.
//!
//! A publisher finds the route of its topic (`route`), which holds everybody who listens to it, and serves them one
//! after another (`deliver`): handlers are called, queues (`queue`) are filled. Receivers take from a queue by a
//! `subscription`, blocking, or awaiting (`wait`, `waiters`). A `link` leads to another process. The `registry` says
//! who listens to what.

mod bus;
mod deliver;
mod link;
mod linked;
mod queue;
mod recent;
mod registry;
mod route;
mod subscription;
mod wait;
mod waiters;

use std::ffi::CStr;
use std::ptr;

use pyo3_ffi as ffi;
use ropewalk_bus::Pattern;

use crate::entry::entry;
use crate::object::{Raised, fail};

/// The types, as pointers for whoever makes objects of them; null before they are made and after they are gone.
#[repr(C)]
pub(super) struct State {
    bus: *mut ffi::PyObject,
    subscription: *mut ffi::PyObject,
    waiting: *mut ffi::PyObject,
    waker: *mut ffi::PyObject,
    route: *mut ffi::PyObject,
}

/// The types that objects of this room make.
struct Types {
    subscription: *mut ffi::PyTypeObject,
    waiting: *mut ffi::PyTypeObject,
    waker: *mut ffi::PyTypeObject,
    route: *mut ffi::PyTypeObject,
}

impl State {
    /// Every reference in it, for the garbage collector.
    pub(super) fn objects(&mut self) -> [&mut *mut ffi::PyObject; 5] {
        [&mut self.bus, &mut self.subscription, &mut self.waiting, &mut self.waker, &mut self.route]
    }
}

/// The types of the interpreter that one of them, or a subtype of one, belongs to.
///
/// # Safety
///
/// `kind` is such a type.
unsafe fn types(kind: *mut ffi::PyTypeObject) -> Result<Types, Raised> {
    // SAFETY: the module of such a type is ours.
    let state = unsafe {
        let module = super::module_of(kind);
        if module.is_null() {
            return Err(Raised);
        }
        super::state(module)
    };
    let state = state.ok_or(Raised)?;
    let state = &state.signals;
    if state.waker.is_null() {
        return Err(fail(c"the interpreter is ending"));
    }
    Ok(Types {
        subscription: state.subscription.cast(),
        waiting: state.waiting.cast(),
        waker: state.waker.cast(),
        route: state.route.cast(),
    })
}

/// Adds what is public to a fresh module.
pub(super) fn add(module: *mut ffi::PyObject, state: &mut State) -> Result<(), Raised> {
    state.waker = waiters::make_type(module)?.into_ptr();
    state.waiting = wait::make_type(module)?.into_ptr();
    state.route = route::make_type(module)?.into_ptr();
    state.subscription = subscription::make_type(module)?.into_ptr();
    state.bus = bus::make_type(module)?.into_ptr();
    for (name, kind) in [(c"Subscription", state.subscription), (c"Bus", state.bus)] {
        // SAFETY: a live module and a live type, of which it takes its own reference.
        if unsafe { ffi::PyModule_AddObjectRef(module, name.as_ptr(), kind) } != 0 {
            return Err(Raised);
        }
    }
    Ok(())
}

/// Sorts the arguments of a function that takes them by position or by name, each borrowed; null for one not given.
///
/// # Safety
///
/// What the interpreter passes to a function with `METH_FASTCALL | METH_KEYWORDS`.
unsafe fn arguments<const N: usize>(
    function: &CStr,
    known: &[&CStr; N],
    needed: usize,
    given: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> Result<[*mut ffi::PyObject; N], Raised> {
    let wrong = |what: &CStr| {
        // SAFETY: a live exception class and C strings, as many as the format says.
        unsafe {
            ffi::PyErr_Format(ffi::PyExc_TypeError, c"%s() %s".as_ptr(), function.as_ptr(), what.as_ptr())
        };
        Raised
    };
    let count = usize::try_from(count).unwrap_or(0);
    if count > N {
        return Err(wrong(c"got too many arguments"));
    }
    let mut sorted = [ptr::null_mut(); N];
    // SAFETY: as many positional arguments as said, then one for each of the names.
    unsafe {
        for (at, place) in sorted.iter_mut().enumerate().take(count) {
            *place = *given.add(at);
        }
        let named = if names.is_null() { 0 } else { ffi::PyTuple_Size(names).max(0) };
        for at in 0..named {
            let name = ffi::PyTuple_GetItem(names, at);
            let found = known
                .iter()
                .position(|known| ffi::PyUnicode_CompareWithASCIIString(name, known.as_ptr()) == 0);
            let Some(found) = found else {
                return Err(wrong(c"got an argument by a name that it does not know"));
            };
            if !sorted[found].is_null() {
                return Err(wrong(c"got an argument twice"));
            }
            sorted[found] = *given.add(count + usize::try_from(at).unwrap_or(0));
        }
    }
    if sorted[..needed].iter().any(|place| place.is_null()) {
        return Err(wrong(c"misses an argument"));
    }
    Ok(sorted)
}

/// `matches(pattern, topic)`
#[entry]
pub(super) unsafe extern "C" fn matches(
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
        bus::characters(*arguments, c"pattern")
            .and_then(|pattern| Pattern::parse(pattern).map_err(|error| bus::invalid(&error)))
            .and_then(|pattern| Ok(pattern.matches(bus::characters(*arguments.add(1), c"topic")?)))
    };
    // SAFETY: the thread is attached.
    matches.map_or(ptr::null_mut(), |matches| unsafe { ffi::PyBool_FromLong(matches.into()) })
}
