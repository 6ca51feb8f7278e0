use crate::types::State;
use pyo3_ffi as ffi;
use ropewalk_capi::object::{Object, Raised};
pub(super) fn fill(state: &mut State, module: &Object) -> Result<(), Raised> {
    Ok(())
}
