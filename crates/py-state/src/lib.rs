//! `ropewalk._state`: persistent maps and vectors, drafts of them, and transactions.
//!
//! `map` and `vector` are the collections, whose `node`s they share. `record` and `kinds` know what else a state is
//! made of, `form` what is declared of its places, `rule` what a transaction may do where. `draft` has what a
//! transaction sees and does, `transaction` and `store` how that becomes the next version of the state.

mod builder;
mod columns;
mod draft;
mod equality;
mod form;
mod iterate;
mod json;
mod kinds;
mod map;
mod node;
mod record;
mod rule;
mod schema;
mod store;
mod table;
mod transaction;
mod types;
mod vector;

use ropewalk_capi::module;
use ropewalk_capi::object::{Object, Raised};
use ropewalk_capi::panics;

use node::Pointer;
use types::{MODULE, State};

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
        map::functions()
            .into_iter()
            .chain(vector::functions())
            .chain(table::functions())
            .chain(columns::functions())
            .chain(json::functions())
            .collect()
    }

    fn fill(&mut self, module: &Object) -> Result<(), Raised> {
        self.node = node::make_type(module)?.into_ptr();
        map::fill(self, module)?;
        vector::fill(self, module)?;
        types::fill(self, module)?;
        table::fill(self, module)?;
        panics::add(module, c"ropewalk._state._Panics")
    }
}
