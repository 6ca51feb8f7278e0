//! `ropewalk._state`: persistent maps and vectors, drafts of them, and transactions.

mod builder;
mod iterate;
#[allow(dead_code, unused_imports, reason = "drafts and transactions use the rest")]
mod map;
mod nest;
#[allow(dead_code, reason = "drafts and transactions use the rest")]
mod node;
mod types;
#[allow(dead_code, unused_imports, reason = "drafts and transactions use the rest")]
mod vector;

use ropewalk_capi::module::{self, Module};
use ropewalk_capi::object::{Object, Raised};
use ropewalk_capi::panics;

use node::Pointer;
use types::State;

static MODULE: Module<State> =
    Module::new(c"_state", c"Persistent maps and vectors, drafts of them, and transactions.");

/// Makes the module: what its `PyInit_` function returns.
pub fn init() -> Pointer {
    MODULE.init()
}

// SAFETY: pointers, for which zeros are null.
unsafe impl module::State for State {
    fn references(&mut self) -> impl Iterator<Item = &mut Pointer> {
        self.references()
    }

    fn functions() -> Vec<pyo3_ffi::PyMethodDef> {
        map::functions().into_iter().chain(vector::functions()).collect()
    }

    fn fill(&mut self, module: &Object) -> Result<(), Raised> {
        self.node = node::make_type(module)?.into_ptr();
        map::fill(self, module)?;
        vector::fill(self, module)?;
        types::fill(self, module)?;
        panics::add(module, c"ropewalk._state._Panics")
    }
}
