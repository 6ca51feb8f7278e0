//! The two kinds of result, as Rust types, so that the methods are compiled for each.

use std::ffi::CStr;

/// What tells `Ok` and `Err` apart.
pub(super) trait Kind {
    /// The name of the type, with its module.
    const NAME: &'static CStr;
    /// The field's name.
    const FIELD: &'static CStr;
    const IS_OK: bool;
}

pub(super) struct OkKind;
pub(super) struct ErrKind;

impl Kind for OkKind {
    const NAME: &'static CStr = c"ropewalk.Ok";
    const FIELD: &'static CStr = c"value";
    const IS_OK: bool = true;
}

impl Kind for ErrKind {
    const NAME: &'static CStr = c"ropewalk.Err";
    const FIELD: &'static CStr = c"error";
    const IS_OK: bool = false;
}
