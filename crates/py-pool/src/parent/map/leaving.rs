//! Whether a map is left because of Ctrl-C, or because a coroutine was cancelled.

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use ropewalk_capi::object::Kept;

/// The exception that unwinds the frame which drops the map. No code of Python's runs here: the map is being freed.
pub(super) fn raised(py: Python<'_>, raised: &Kept) -> bool {
    // SAFETY: null, or a class that is alive for as long as the exception is kept.
    let class = unsafe { Bound::from_borrowed_ptr_or_opt(py, raised.class()) };
    class.is_some_and(|class| interrupts(&class))
}

/// The exception that an `except` or the end of a `with` block is handling.
pub(super) fn handled(py: Python<'_>) -> bool {
    let mut parts = [std::ptr::null_mut(); 3];
    let [kind, value, traceback] = &mut parts;
    // SAFETY: the thread is attached, and the three places are valid to write to.
    unsafe { ffi::PyErr_GetExcInfo(kind, value, traceback) };
    // SAFETY: each is null or a reference of its own.
    let parts = parts.map(|part| unsafe { Bound::from_owned_ptr_or_opt(py, part) });
    parts[1].as_ref().is_some_and(|error| !error.is_none() && interrupts(error.get_type().as_any()))
}

/// Whether the class is `KeyboardInterrupt`, or the `CancelledError` of asyncio, or one of theirs.
fn interrupts(class: &Bound<'_, PyAny>) -> bool {
    let py = class.py();
    let under = |base: &Bound<'_, PyAny>| {
        // SAFETY: both are objects that are alive; for classes of exceptions only their bases are compared.
        unsafe { ffi::PyErr_GivenExceptionMatches(class.as_ptr(), base.as_ptr()) != 0 }
    };
    under(py.get_type::<PyKeyboardInterrupt>().as_any()) || cancelled(py).is_some_and(|base| under(&base))
}

/// `asyncio.CancelledError`; without the module there is none.
fn cancelled(py: Python<'_>) -> Option<Bound<'_, PyAny>> {
    // SAFETY: the thread is attached; the interpreter lends its dictionary of modules.
    let modules = unsafe { Bound::from_borrowed_ptr_or_opt(py, ffi::PyImport_GetModuleDict()) }?;
    let module = modules.cast::<PyDict>().ok()?.get_item("asyncio.exceptions").ok()??;
    module.getattr("CancelledError").ok()
}
