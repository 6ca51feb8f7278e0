//! asyncio's futures: finished ones, and those that this module finishes for a waiting task.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PyTuple, PyType};

use super::is_ordinary;
use ropewalk_capi::mailbox::{Mailbox, Post};
use ropewalk_capi::object::{Object, Raised};
use ropewalk_capi::running_loop;

static FUTURE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static TASK: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// What the kit gives or raises, as pyo3 has it.
fn taken(py: Python<'_>, made: Result<Object, Raised>) -> PyResult<Bound<'_, PyAny>> {
    match made {
        // SAFETY: a reference that we own, and the thread is attached.
        Ok(object) => Ok(unsafe { Bound::from_owned_ptr(py, object.into_ptr()) }),
        Err(Raised) => Err(PyErr::fetch(py)),
    }
}

/// The loop that this thread runs.
pub(super) fn running_loop(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    taken(py, running_loop::required())
}

/// Whether a loop of ours that this thread runs has nothing to do after the current callback.
pub(super) fn is_idle(event_loop: &Bound<'_, PyAny>) -> bool {
    // SAFETY: a live object.
    unsafe { Object::share(event_loop.as_ptr()) }.is_ok_and(|event_loop| running_loop::is_idle(&event_loop))
}

/// Has a loop that this thread runs call something in a later callback.
pub(super) fn call_next(event_loop: &Bound<'_, PyAny>, function: &Bound<'_, PyAny>) -> PyResult<()> {
    // SAFETY: live objects.
    let posted = unsafe { (Object::share(event_loop.as_ptr()), Object::share(function.as_ptr())) };
    let posted = match posted {
        (Ok(event_loop), Ok(function)) => {
            Mailbox::of(&event_loop).map(|mailbox| mailbox.post_here(Post::Call(function, None)))
        }
        _ => Err(Raised),
    };
    posted.map_err(|Raised| PyErr::fetch(event_loop.py()))
}

/// A future of the loop that this thread runs.
pub(super) fn create(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    FUTURE.import(py, "asyncio", "Future")?.call0()
}

/// A future that has failed with an error; one that ends the program is raised.
pub(super) fn failed(py: Python<'_>, error: PyErr) -> PyResult<Bound<'_, PyAny>> {
    if !is_ordinary(py, &error) {
        return Err(error);
    }
    let future = create(py)?;
    set_exception(&future, error)?;
    Ok(future)
}

pub(super) fn is_done(future: &Bound<'_, PyAny>) -> PyResult<bool> {
    future.call_method0(intern!(future.py(), "done"))?.is_truthy()
}

pub(super) fn set_result(future: &Bound<'_, PyAny>, result: Bound<'_, PyAny>) -> PyResult<()> {
    future.call_method1(intern!(future.py(), "set_result"), (result,)).map(drop)
}

pub(super) fn set_exception(future: &Bound<'_, PyAny>, error: PyErr) -> PyResult<()> {
    future.call_method1(intern!(future.py(), "set_exception"), (error,)).map(drop)
}

/// Sets the result and runs the task that awaits it, in a callback of the loop, where no task is running.
///
/// A future calls its callbacks in the loop's next turn, and on asyncio's own loop a turn costs more than a message. So
/// if one task alone waits for the future, this runs the task directly. Other callbacks are called as usual.
pub(super) fn finish(future: &Bound<'_, PyAny>, result: Bound<'_, PyAny>) -> PyResult<()> {
    let py = future.py();
    let Some((wake, context)) = sole_task(future)? else { return set_result(future, result) };
    future.call_method1(intern!(py, "remove_done_callback"), (&wake,))?;
    set_result(future, result)?;
    context.call_method1(intern!(py, "run"), (wake, future)).map(drop)
}

/// The wake-up callback of the only task that waits for a future, and its context.
fn sole_task<'py>(future: &Bound<'py, PyAny>) -> PyResult<Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
    let py = future.py();
    let Some(callbacks) = future.getattr_opt(intern!(py, "_callbacks"))? else { return Ok(None) };
    let Ok(callbacks) = callbacks.cast_exact::<PyList>() else { return Ok(None) };
    if callbacks.len() != 1 {
        return Ok(None);
    }
    let first = callbacks.get_item(0)?;
    let Ok(pair) = first.cast_exact::<PyTuple>() else { return Ok(None) };
    let (wake, context) = pair.extract::<(Bound<'py, PyAny>, Bound<'py, PyAny>)>()?;
    let is_task = match wake.getattr_opt(intern!(py, "__self__"))? {
        Some(task) => task.is_instance(TASK.import(py, "asyncio", "Task")?)?,
        None => false,
    };
    Ok(is_task.then_some((wake, context)))
}
