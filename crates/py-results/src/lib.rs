//! `ropewalk._results`: `Ok` and `Err`, what a call came to, as a value.
//!
//! Two final types with one field each and the same `methods`, so that either can be called whichever it is. Next to
//! nothing is left between Python and what is here: a result is made by a vectorcall of its type (`protocol`) in memory
//! of its own shape (`holder`), its field is read by the interpreter itself, and methods get their argument bare. What
//! they are called and what they say of themselves stands in the `table`.

mod holder;
mod methods;
mod nest;
mod protocol;
mod table;

use std::ffi::CStr;

use pyo3_ffi as ffi;

use ropewalk_capi::module::{self, Module};
use ropewalk_capi::object::{Object, Raised};
use ropewalk_capi::panics;

type Pointer = *mut ffi::PyObject;

/// The types, null before they are made and after they are gone.
#[repr(C)]
struct State {
    ok: Pointer,
    err: Pointer,
}

static MODULE: Module<State> = Module::new(c"_results", c"What a call came to, as a value.");

/// Makes the module: what its `PyInit_` function returns.
pub fn init() -> *mut ffi::PyObject {
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

/// The two kinds, as types, so that each has methods of its own.
trait Kind {
    /// The name of the type, with its module.
    const NAME: &'static CStr;
    /// What the field is called.
    const FIELD: &'static CStr;
    const DOC: &'static CStr;
    const IS_OK: bool;
}

struct OkKind;
struct ErrKind;

impl Kind for OkKind {
    const NAME: &'static CStr = c"ropewalk.Ok";
    const FIELD: &'static CStr = c"value";
    const DOC: &'static CStr = table::OK;
    const IS_OK: bool = true;
}

impl Kind for ErrKind {
    const NAME: &'static CStr = c"ropewalk.Err";
    const FIELD: &'static CStr = c"error";
    const DOC: &'static CStr = table::ERR;
    const IS_OK: bool = false;
}

/// A new reference to what is there.
///
/// # Safety
///
/// `object` is alive.
#[inline]
unsafe fn same(object: Pointer) -> Pointer {
    // SAFETY: the caller's.
    unsafe { ffi::Py_INCREF(object) };
    object
}
