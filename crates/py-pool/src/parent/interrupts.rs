//! Interrupts that come where nothing can be raised: in a finalizer.

use std::ffi::{c_int, c_void};

use pyo3::exceptions::{PyKeyboardInterrupt, PySystemExit};
use pyo3::ffi;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use ropewalk_capi::entry;
use ropewalk_os::process::is_first_thread;

use super::slot::Slot;

unsafe extern "C" {
    /// A method that is bound to an object; pyo3 does not declare it.
    fn PyMethod_New(function: *mut ffi::PyObject, object: *mut ffi::PyObject) -> *mut ffi::PyObject;
}

/// Calls of a finalizer: the first, and one after each of that many interrupts.
const MOST_CALLS: u32 = 4;

/// Makes the main thread raise this exception before its next step, if a signal's handler may have raised it: that runs
/// in the main thread. Any other is reported as unraisable.
///
/// The handler has run. To set the signal again would run it twice.
#[pyfunction]
#[pyo3(signature = (error, /))]
pub(crate) fn raise_later(error: &Bound<'_, PyAny>) {
    let py = error.py();
    if is_interrupt(error) && is_first_thread() {
        let kept = error.clone().into_ptr();
        // SAFETY: the function fits, and its argument is a reference of its own.
        if unsafe { ffi::Py_AddPendingCall(Some(raise), kept.cast()) } == 0 {
            return;
        }
        // SAFETY: the reference was not taken over.
        drop(unsafe { Bound::from_owned_ptr(py, kept) });
    }
    PyErr::from_value(error.clone()).write_unraisable(py, None);
}

/// Whether a signal's handler may have raised this exception.
fn is_interrupt(error: &Bound<'_, PyAny>) -> bool {
    error.is_instance_of::<PyKeyboardInterrupt>() || error.is_instance_of::<PySystemExit>()
}

/// A method `__del__`, or a weak reference's callback. The interpreter looks for signals at the first step of every
/// Python function, and would print an interrupt that is raised there and forget it. This one calls the function again,
/// and makes the main thread raise the interrupt afterwards.
#[pyclass(module = "ropewalk._core", frozen)]
pub(crate) struct Finalizer {
    function: Slot<Option<Py<PyAny>>>,
}

#[pymethods]
impl Finalizer {
    #[new]
    #[pyo3(signature = (function, /))]
    fn new(function: Py<PyAny>) -> Self {
        Self { function: Slot::new(Some(function)) }
    }

    #[pyo3(signature = (*args))]
    fn __call__(&self, args: &Bound<'_, PyTuple>) -> PyResult<()> {
        let py = args.py();
        let Some(function) = self.function.shared(py) else { return Ok(()) };
        let mut interrupt: Option<PyErr> = None;
        let mut called = Ok(());
        for _ in 0..MOST_CALLS {
            called = function.call1(py, args).map(drop);
            match called {
                Err(error) if is_interrupt(error.value(py).as_any()) => {
                    // The first is the one that the user waits for.
                    interrupt.get_or_insert(error);
                    called = Ok(());
                }
                _ => break,
            }
        }
        let Some(interrupt) = interrupt else { return called };
        if let Err(error) = called {
            // Before the interrupt is due, which the report's own Python code would raise and lose.
            error.write_unraisable(py, Some(function.bind(py)));
        }
        raise_later(interrupt.value(py).as_any());
        Ok(())
    }

    fn __get__<'py>(
        slf: &Bound<'py, Self>,
        instance: Option<&Bound<'py, PyAny>>,
        kind: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = kind;
        let Some(instance) = instance else { return Ok(slf.clone().into_any()) };
        // SAFETY: live objects of an attached thread; the result is a new reference or null with an exception set.
        unsafe { Bound::from_owned_ptr_or_err(slf.py(), PyMethod_New(slf.as_ptr(), instance.as_ptr())) }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.function.visit(|function| function.as_ref().map_or(Ok(()), |function| visit.call(function)))
    }

    fn __clear__(&self) {
        drop(self.function.take());
    }
}

#[entry]
extern "C" fn raise(error: *mut c_void) -> c_int {
    let error = error.cast::<ffi::PyObject>();
    // SAFETY: the interpreter calls this in a thread that is attached; the reference to an exception is this call's.
    unsafe {
        ffi::PyErr_SetObject(ffi::Py_TYPE(error).cast(), error);
        ffi::Py_DECREF(error);
    }
    -1
}
