//! asyncio's futures: finished ones, and those that are finished for a task that waits.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PyTuple, PyType};

use super::is_ordinary;

static FUTURE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static TASK: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static RUNNING: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// The loop that this thread runs.
pub(super) fn running_loop(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    RUNNING.import(py, "asyncio", "get_running_loop")?.call0()
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
/// A future tells its callbacks in the loop's next turn, and on asyncio's own loop a turn costs more than a message.
/// So a task that is alone in waiting is not told by the future, but here. Any other callback is called as ever.
pub(super) fn finish(future: &Bound<'_, PyAny>, result: Bound<'_, PyAny>) -> PyResult<()> {
    let py = future.py();
    let Some((wake, context)) = sole_task(future)? else { return set_result(future, result) };
    future.call_method1(intern!(py, "remove_done_callback"), (&wake,))?;
    set_result(future, result)?;
    context.call_method1(intern!(py, "run"), (wake, future)).map(drop)
}

/// What wakes the task that is the only one to wait for a future, and its context.
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
