//! `ropewalk._state`: persistent maps and vectors, drafts of them, and transactions.

use ropewalk_capi::module::{self, Module};
use ropewalk_capi::object::{Object, Raised};
use ropewalk_capi::panics;

/// An object of the interpreter.
pub(crate) type Pointer = *mut pyo3_ffi::PyObject;

/// The types, null before they are made and after they are gone.
#[repr(C)]
struct State {
    map: Pointer,
}

static MODULE: Module<State> =
    Module::new(c"_state", c"Persistent maps and vectors, drafts of them, and transactions.");

/// Makes the module: what its `PyInit_` function returns.
pub fn init() -> Pointer {
    MODULE.init()
}

// SAFETY: pointers, for which zeros are null.
unsafe impl module::State for State {
    fn references(&mut self) -> impl Iterator<Item = &mut Pointer> {
        [&mut self.map].into_iter()
    }

    fn fill(&mut self, module: &Object) -> Result<(), Raised> {
        panics::add(module, c"ropewalk._state._Panics")
    }
}
