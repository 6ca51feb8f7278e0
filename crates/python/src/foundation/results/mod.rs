//! `Ok` and `Err`: what a call came to, as a value.
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

use crate::object::Raised;

type Pointer = *mut ffi::PyObject;

/// The types, null before they are made and after they are gone.
#[repr(C)]
pub(super) struct State {
    ok: Pointer,
    err: Pointer,
}

impl State {
    /// Every reference in it, for the garbage collector.
    pub(super) fn objects(&mut self) -> [&mut Pointer; 2] {
        [&mut self.ok, &mut self.err]
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

/// Adds what is public to a fresh module.
pub(super) fn add(module: Pointer, state: &mut State) -> Result<(), Raised> {
    let (ok, err) = table::make_types(module)?;
    (state.ok, state.err) = (ok.into_ptr(), err.into_ptr());
    for (name, kind) in [(c"Ok", state.ok), (c"Err", state.err)] {
        // SAFETY: a live module and a live type, of which it takes its own reference.
        if unsafe { ffi::PyModule_AddObjectRef(module, name.as_ptr(), kind) } != 0 {
            return Err(Raised);
        }
    }
    Ok(())
}
