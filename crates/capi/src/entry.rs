//! What stands between the interpreter and a function that it calls: no panic passes it.
//!
//! A panic that leaves an `extern "C"` function aborts the process. Every function of that kind in this crate carries
//! `#[entry]`, which runs its body here; a law test finds those that do not, and pyo3 does the same for what is written
//! with it. The caller gets `ropewalk.InternalError` with what the panic said. In a destructor, which cannot raise,
//! that goes to `sys.unraisablehook`; the object's memory is not given back, for nobody knows how far it was taken
//! apart. In the garbage collector, where no Python code may run, what was seen so far is the answer: an object whose
//! references the collector does not see is kept.

use std::any::Any;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

use pyo3_ffi as ffi;
use ropewalk_base::Code;
pub use ropewalk_entry::entry;

use crate::errors;
use crate::object::{Kept, Raised};

/// What a function answers that has panicked.
pub trait Answer {
    /// Tells the interpreter of a panic, and gives the answer that says so.
    fn failed(payload: Box<dyn Any + Send>) -> Self;
}

impl<T> Answer for *mut T {
    fn failed(payload: Box<dyn Any + Send>) -> Self {
        raise(payload.as_ref());
        null_mut()
    }
}

impl Answer for c_int {
    fn failed(payload: Box<dyn Any + Send>) -> Self {
        raise(payload.as_ref());
        -1
    }
}

impl Answer for ffi::Py_ssize_t {
    fn failed(payload: Box<dyn Any + Send>) -> Self {
        raise(payload.as_ref());
        -1
    }
}

impl Answer for ffi::PySendResult {
    fn failed(payload: Box<dyn Any + Send>) -> Self {
        raise(payload.as_ref());
        ffi::PySendResult::PYGEN_ERROR
    }
}

/// Of a destructor: it cannot raise.
impl Answer for () {
    fn failed(payload: Box<dyn Any + Send>) -> Self {
        let kept = Kept::take();
        raise(payload.as_ref());
        // SAFETY: an exception is set; without an object, the hook names none.
        unsafe { ffi::PyErr_WriteUnraisable(null_mut()) };
        kept.put_back();
    }
}

/// Runs the body of a function that the interpreter has called.
#[inline]
pub fn run<T: Answer>(body: impl FnOnce() -> T) -> T {
    // What a panic leaves half done is no more than what an exception there would.
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(T::failed)
}

/// Runs the body of a `tp_traverse` or `m_traverse`. What the panic said was printed when it happened.
#[inline]
pub fn run_in_collector(body: impl FnOnce() -> c_int) -> c_int {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(0)
}

#[cold]
fn raise(payload: &(dyn Any + Send)) {
    let said = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let said = said.unwrap_or("a panic that says nothing");
    let message = format!("a defect in ropewalk, please report it with this text: {said}");
    let Raised = errors::raise_text(Code::InternalError, &message);
    // SAFETY: the thread is attached, for a body that lets the interpreter go takes it back when it panics.
    unsafe {
        if ffi::PyErr_Occurred().is_null() {
            ffi::PyErr_SetString(ffi::PyExc_SystemError, c"a defect in ropewalk: it panicked".as_ptr());
        }
    }
}
