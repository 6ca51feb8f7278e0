//! The core's errors become exceptions here; the Python package chooses their class.
//!
//! Two packages may use this module in one process, `ropewalk.zmq` and pyzmq by its backend, each with classes of its
//! own. So the function that makes an exception is looked up on the type that was used, and only then among the
//! registered ones.

use std::cell::Cell;

use pyo3::exceptions::{PyOSError, PyRuntimeError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyType;
use ropewalk_messaging::Error;
use ropewalk_sync::Mutex;

pub(crate) use ropewalk_messaging::errno::{EAGAIN, EFAULT, EINTR, EINVAL, ENOTSOCK};

thread_local! {
    /// This thread's latest error, for `zmq_errno`.
    static LATEST: Cell<i32> = const { Cell::new(0) };
}

/// A function of the Python package, registered when it is imported.
pub(crate) struct Hook(Mutex<Option<Py<PyAny>>>);

impl Hook {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(None))
    }

    pub(crate) fn set(&self, function: &Bound<'_, PyAny>) -> PyResult<()> {
        if !function.is_callable() {
            return Err(PyTypeError::new_err("expected a callable"));
        }
        let new = Some(function.clone().unbind());
        let old = std::mem::replace(&mut *self.0.lock(), new);
        // Outside of the lock: a finalizer may run.
        drop(old);
        Ok(())
    }

    /// The type's function, else the registered one.
    pub(crate) fn find<'py>(
        &self,
        py: Python<'py>,
        user: Option<&Bound<'py, PyType>>,
        name: &Bound<'py, pyo3::types::PyString>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        if let Some(user) = user
            && let Some(own) = user.getattr_opt(name)?
        {
            return Ok(Some(own));
        }
        let registered = self.0.lock();
        Ok(registered.as_ref().map(|function| function.bind(py).clone()))
    }
}

pub(crate) static MAKE_ERROR: Hook = Hook::new();
pub(crate) static MAKE_TRACKER: Hook = Hook::new();

/// The number of this thread's latest error.
pub(crate) fn latest() -> i32 {
    LATEST.get()
}

/// The exception for an error number, of the class that goes with `user`.
#[cold]
pub(crate) fn make<'py>(
    py: Python<'py>,
    user: Option<&Bound<'py, PyType>>,
    errno: i32,
    message: &str,
) -> PyErr {
    LATEST.set(errno);
    let made = MAKE_ERROR.find(py, user, intern!(py, "_make_error")).and_then(|make| match make {
        Some(make) => make.call1((errno, message)).map(PyErr::from_value),
        None => Ok(PyOSError::new_err((errno, message.to_owned()))),
    });
    made.unwrap_or_else(|error| error)
}

/// The exception for an error of the core, raised by a method of `object`.
#[cold]
pub(crate) fn of<T>(object: &Bound<'_, T>, error: &Error) -> PyErr {
    make(object.py(), Some(&object.as_any().get_type()), error.errno(), &error.to_string())
}

/// The exception for an error number that this module finds by itself.
#[cold]
pub(crate) fn new<T>(object: &Bound<'_, T>, errno: i32, message: &str) -> PyErr {
    make(object.py(), Some(&object.as_any().get_type()), errno, message)
}

/// The exception for an object that was made in another process.
#[cold]
pub(crate) fn forked<T>(object: &Bound<'_, T>, what: &str) -> PyErr {
    let message = format!("the {what} was made before this process was forked. Make a new one in the child.");
    new(object, ENOTSOCK, &message)
}

/// The exception for a second `__init__`.
#[cold]
pub(crate) fn made_already() -> PyErr {
    PyRuntimeError::new_err("__init__ was called already: it can be called once")
}

/// Makes a tracker that is done once the event is set, or at once without an event.
pub(crate) fn tracker<'py>(
    py: Python<'py>,
    user: &Bound<'py, PyType>,
    event: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    match MAKE_TRACKER.find(py, Some(user), intern!(py, "_make_tracker"))? {
        Some(make) => make.call1((event,)),
        None => Ok(event.cloned().unwrap_or_else(|| py.None().into_bound(py))),
    }
}

/// Text that Python gave as `str` or as UTF-8.
pub(crate) fn text(value: &Bound<'_, PyAny>, what: &str) -> PyResult<String> {
    if let Ok(text) = value.extract::<String>() {
        return Ok(text);
    }
    let bytes = value.extract::<&[u8]>().ok().and_then(|bytes| std::str::from_utf8(bytes).ok());
    match bytes {
        Some(text) => Ok(text.to_owned()),
        None => Err(PyTypeError::new_err(format!("expected {what} to be str, got {}", value.repr()?))),
    }
}

/// A truth value as C has it: anything that is not false.
pub(crate) struct Truth(pub(crate) bool);

impl<'a, 'py> FromPyObject<'a, 'py> for Truth {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        // SAFETY: a live object.
        match unsafe { pyo3::ffi::PyObject_IsTrue(object.as_ptr()) } {
            -1 => Err(PyErr::fetch(object.py())),
            truth => Ok(Self(truth == 1)),
        }
    }
}
