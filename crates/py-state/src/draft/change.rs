//! The list of changes of a commit: what the journal says, and what a worker sends back.

use pyo3_ffi as ffi;
use ropewalk_capi::object::{Object, Raised};

use super::path;
use crate::node::Pointer;

/// What a change does: the numbers of `ropewalk.state._replay.Change`.
#[derive(Clone, Copy)]
pub(super) enum Change {
    Set,
    Delete,
    Append,
    Add,
    Drop,
    Patch,
}

/// Adds a change at the end of this way to a list of changes.
///
/// # Safety
///
/// `changes` is a list, and `value` is live.
pub(super) unsafe fn note(
    changes: &Object,
    change: Change,
    way: &[Object],
    value: Pointer,
) -> Result<(), Raised> {
    // SAFETY: the caller's.
    unsafe {
        let way = path::tuple(way)?;
        let number = Object::own(ffi::PyLong_FromLong(change as _))?;
        let noted = path::tuple(&[number, way, Object::share(value)?])?;
        if ffi::PyList_Append(changes.as_ptr(), noted.as_ptr()) < 0 { Err(Raised) } else { Ok(()) }
    }
}
