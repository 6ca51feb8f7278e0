use pyo3_ffi as ffi;

use crate::object::Raised;

/// What the module holds of this; null where there is nothing.
#[repr(C)]
pub(super) struct State {
    example: *mut ffi::PyObject,
}

impl State {
    /// Every reference in it, for the garbage collector.
    pub(super) fn objects(&mut self) -> [&mut *mut ffi::PyObject; 1] {
        [&mut self.example]
    }
}

/// Adds what is public to a fresh module.
pub(super) fn add(_module: *mut ffi::PyObject, _state: &mut State) -> Result<(), Raised> {
    Ok(())
}
