//! The wrapper of every function that the interpreter calls: no panic passes it.
//!
//! A panic that leaves an `extern "C"` function aborts the process. Every function of that kind in this crate carries
//! `#[entry]`, which runs its body here; a law test finds those that do not, and pyo3 wraps its own functions in the
//! same way. The caller gets `ropewalk.InternalError` with the panic's message. A destructor cannot raise, so its error
//! goes to `sys.unraisablehook`, and the object's memory is leaked, because it may be half destroyed. In the garbage
//! collector no Python code may run, so the function returns what it has visited so far: an object whose references the
//! collector does not see is kept.

use std::any::Any;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

use pyo3_ffi as ffi;
use ropewalk_base::Code;
pub use ropewalk_entry::entry;

use crate::errors;
use crate::object::{Kept, Raised};

/// The return value of a function that has panicked.
pub trait Answer {
    /// Reports a panic to the interpreter, and returns the value that signals an error.
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

/// For destructors, which cannot raise.
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
    // A panic leaves no more half done than an exception at the same place would.
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(T::failed)
}

/// Runs the body of a `tp_traverse` or `m_traverse`. A panic's message was printed when it happened.
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
    // SAFETY: the thread is attached: a body that releases the interpreter takes it back when it panics.
    unsafe {
        if ffi::PyErr_Occurred().is_null() {
            ffi::PyErr_SetString(ffi::PyExc_SystemError, c"a defect in ropewalk: it panicked".as_ptr());
        }
    }
}
