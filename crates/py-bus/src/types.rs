//! The state of the module: its types, in the interpreter that has loaded it.

use pyo3_ffi as ffi;
use ropewalk_capi::errors::fail;
use ropewalk_capi::module::Module;
use ropewalk_capi::object::Raised;

/// The types, as pointers for the code that makes objects of them; null before they are made and after they are gone.
#[repr(C)]
pub(crate) struct ModuleTypes {
    pub(crate) bus: *mut ffi::PyObject,
    pub(crate) subscription: *mut ffi::PyObject,
    pub(crate) waiting: *mut ffi::PyObject,
    pub(crate) route: *mut ffi::PyObject,
}

pub(crate) static MODULE: Module<ModuleTypes> =
    Module::new(c"_bus", c"Publish and subscribe in one process.");

/// The types of which this module's methods make objects.
pub(crate) struct Types {
    pub(crate) subscription: *mut ffi::PyTypeObject,
    pub(crate) waiting: *mut ffi::PyTypeObject,
    pub(crate) route: *mut ffi::PyTypeObject,
}

/// The types of the interpreter that one of them, or a subtype of one, belongs to.
///
/// # Safety
///
/// `kind` is such a type.
pub(crate) unsafe fn types(kind: *mut ffi::PyTypeObject) -> Result<Types, Raised> {
    // SAFETY: the module of such a type is ours.
    let state = unsafe { MODULE.state_of_base(kind) }.ok_or(Raised)?;
    if state.waiting.is_null() {
        return Err(fail(c"the interpreter is ending"));
    }
    Ok(Types {
        subscription: state.subscription.cast(),
        waiting: state.waiting.cast(),
        route: state.route.cast(),
    })
}
