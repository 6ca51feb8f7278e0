//! `ropewalk._foundation`: results and the event bus, in the plain C API.
//!
//! Multi-phase initialisation, state in the module and no static types: it can be loaded into every interpreter of a
//! process. What is called for each message or each value is a C function with the fastest calling convention there
//! is, which is why it is not written with pyo3.

mod panics;
mod results;
mod signals;

use std::ffi::{c_int, c_void};

use pyo3_ffi as ffi;

use crate::door::{Definition, Door, drop_all, visit_all};
use crate::entry::entry;
use crate::object::Raised;

/// What the module holds, zeroed when it is made.
#[repr(C)]
struct State {
    results: results::State,
    signals: signals::State,
}

static DEFINITION: Definition = Definition::new();

/// The module that a type of it, or a subtype of one, belongs to, borrowed.
///
/// # Safety
///
/// `kind` is a live heap type.
unsafe fn module_of(kind: *mut ffi::PyTypeObject) -> *mut ffi::PyObject {
    // SAFETY: the caller's.
    unsafe { DEFINITION.module_of(kind) }
}

impl State {
    /// Every reference in it.
    fn objects(&mut self) -> impl Iterator<Item = &mut *mut ffi::PyObject> {
        self.results.objects().into_iter().chain(self.signals.objects())
    }
}

/// The state of a module that `PyInit__foundation` made.
///
/// # Safety
///
/// `module` is such a module, and alive for as long as the state is used.
unsafe fn state<'a>(module: *mut ffi::PyObject) -> Option<&'a mut State> {
    // SAFETY: the interpreter made room for a `State`, zeroed, which is valid; null before that.
    unsafe { ffi::PyModule_GetState(module).cast::<State>().as_mut() }
}

#[entry]
unsafe extern "C" fn exec(module: *mut ffi::PyObject) -> c_int {
    // SAFETY: our fresh module, which nobody else sees yet.
    let Some(state) = (unsafe { state(module) }) else { return -1 };
    let added = results::add(module, &mut state.results)
        .and_then(|()| signals::add(module, &mut state.signals))
        .and_then(|()| panics::add(module));
    if matches!(added, Err(Raised)) { -1 } else { 0 }
}

#[entry]
unsafe extern "C" fn traverse(module: *mut ffi::PyObject, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    // SAFETY: our module; its state may not be there yet.
    let Some(state) = (unsafe { state(module) }) else { return 0 };
    // SAFETY: references that the state holds, and the collector's own function.
    unsafe { visit_all(state.objects(), visit, arg) }
}

#[entry]
unsafe extern "C" fn clear(module: *mut ffi::PyObject) -> c_int {
    // SAFETY: our module; each reference is dropped once.
    unsafe {
        if let Some(state) = state(module) {
            drop_all(state.objects());
        }
    }
    0
}

#[entry]
unsafe extern "C" fn free(module: *mut c_void) {
    // SAFETY: as `clear`.
    unsafe { clear(module.cast()) };
}

struct Methods([ffi::PyMethodDef; 2]);
// SAFETY: a constant table of constant pointers.
unsafe impl Sync for Methods {}
static METHODS: Methods = Methods([
    ffi::PyMethodDef {
        ml_name: c"matches".as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunctionFast: signals::matches },
        ml_flags: ffi::METH_FASTCALL,
        ml_doc: c"matches(pattern, topic) -> whether a topic matches a pattern".as_ptr(),
    },
    // SAFETY: a table ends with zeros.
    unsafe { std::mem::zeroed() },
]);

/// The module's third door; see the crate.
///
/// # Safety
///
/// Called by the import system.
#[expect(unreachable_pub, reason = "the import system reaches it by its symbol")]
#[unsafe(no_mangle)]
#[entry]
pub unsafe extern "C" fn PyInit__foundation() -> *mut ffi::PyObject {
    DEFINITION.init(Door {
        name: c"_foundation",
        doc: c"Results and the event bus.",
        state: size_of::<State>(),
        methods: &METHODS.0,
        exec,
        traverse,
        clear,
        free,
    })
}
