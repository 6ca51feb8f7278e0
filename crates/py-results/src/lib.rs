//! `ropewalk._results`: `Ok` and `Err`, the outcome of a call as a value.
//!
//! Two final types with one field each and the same `methods`, so that a caller need not know which one it has. There
//! is almost no layer between Python and this code: a vectorcall of the type makes a result (`protocol`) in memory of
//! its own layout (`holder`), the interpreter itself reads its field, and methods get their argument without a tuple.
//! The `table` has the methods' names and docstrings.

mod holder;
mod kind;
mod methods;
mod protocol;
mod table;

use ropewalk_capi::module::{self, Module};
use ropewalk_capi::object::{Object, Raised};
use ropewalk_capi::panics;

use holder::Pointer;

/// The types, null before they are made and after they are gone.
#[repr(C)]
struct State {
    ok: Pointer,
    err: Pointer,
}

static MODULE: Module<State> = Module::new(c"_results", c"What a call came to, as a value.");

/// Makes the module: what its `PyInit_` function returns.
pub fn init() -> Pointer {
    MODULE.init()
}

// SAFETY: pointers, for which zeros are null.
unsafe impl module::State for State {
    fn references(&mut self) -> impl Iterator<Item = &mut Pointer> {
        [&mut self.ok, &mut self.err].into_iter()
    }

    fn fill(&mut self, module: &Object) -> Result<(), Raised> {
        let (ok, err) = table::make_types(module)?;
        (self.ok, self.err) = (ok.into_ptr(), err.into_ptr());
        // SAFETY: our fresh module, and live types.
        unsafe {
            module::add(module, c"Ok", self.ok)?;
            module::add(module, c"Err", self.err)?;
        }
        panics::add(module, c"ropewalk._results._Panics")
    }
}
