//! Which event loop a thread runs, for code that waits in it, posts to it or takes a shortcut.
//!
//! asyncio knows this ([`running`], [`required`]). A loop of ours also stores itself in a thread-local word when it
//! begins to run, so [`is_here`] costs one load of that word.

use std::cell::Cell;
use std::ptr;

use pyo3_ffi as ffi;

use crate::object::{Object, Raised, text};

/// Whether a loop that this thread runs has nothing to do after the current callback.
///
/// # Safety
///
/// The object is the loop that came with the function, it lives, and this thread runs it.
pub type IsIdle = unsafe fn(*mut ffi::PyObject) -> bool;

thread_local! {
    /// Only compared, unless the caller holds the object: it may be gone.
    static RUNNING: Cell<*mut ffi::PyObject> = const { Cell::new(ptr::null_mut()) };
    static IS_IDLE: Cell<Option<IsIdle>> = const { Cell::new(None) };
}

/// Records that this thread runs the loop from now on.
pub fn enter(event_loop: *mut ffi::PyObject, is_idle: Option<IsIdle>) {
    RUNNING.set(event_loop);
    IS_IDLE.set(is_idle);
}

/// Whether the loop, if it is the one of ours that this thread runs, has nothing to do after the current callback.
pub fn is_idle(event_loop: &Object) -> bool {
    match IS_IDLE.get() {
        // SAFETY: the caller holds it, and this thread runs it.
        Some(is_idle) if is_here(event_loop.as_ptr()) => unsafe { is_idle(event_loop.as_ptr()) },
        _ => false,
    }
}

/// Records that this thread does not run the loop any more, if it did.
pub fn leave(event_loop: *mut ffi::PyObject) {
    if is_here(event_loop) {
        RUNNING.set(ptr::null_mut());
    }
}

/// Whether the object is the loop of ours that this thread runs.
#[inline]
#[must_use]
pub fn is_here(event_loop: *mut ffi::PyObject) -> bool {
    ptr::eq(RUNNING.get(), event_loop)
}

/// asyncio, if the program has imported it.
fn asyncio() -> Result<Option<Object>, Raised> {
    let name = text("asyncio")?;
    // SAFETY: a live string; null without an exception where there is no such module.
    Ok(unsafe { Object::own(ffi::PyImport_GetModule(name.as_ptr())) }.ok())
}

/// The event loop that this thread runs, if any.
///
/// # Errors
///
/// An exception is set.
pub fn running() -> Result<Option<Object>, Raised> {
    // Without asyncio there is no loop, and this is no reason to import it.
    let Some(asyncio) = asyncio()? else { return Ok(None) };
    let Ok(function) = asyncio.attribute(c"_get_running_loop") else {
        // Another thread is about to import it.
        // SAFETY: the thread is attached.
        unsafe { ffi::PyErr_Clear() };
        return Ok(None);
    };
    Ok(Some(function.call(&[])?).filter(|running| !running.is_none()))
}

/// The event loop that this thread runs.
///
/// # Errors
///
/// A `RuntimeError` is set if it runs none.
pub fn required() -> Result<Object, Raised> {
    match running()? {
        Some(running) => Ok(running),
        // SAFETY: a C string. asyncio says it in its own words.
        None => unsafe { Object::own(ffi::PyImport_ImportModule(c"asyncio".as_ptr()))? }
            .attribute(c"get_running_loop")?
            .call(&[]),
    }
}
