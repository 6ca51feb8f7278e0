//! Decodes replies into objects.

use pyo3::exceptions::{PyException, PyKeyboardInterrupt, PyMemoryError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyBytes;
use ropewalk_pool::Reply;
use ropewalk_pool::wire::flags;

pub(super) fn serialize(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module =
        MODULE.get_or_try_init(py, || py.import("ropewalk.pool.wire._serialize").map(Bound::unbind))?;
    Ok(module.bind(py).clone())
}

/// Whether an exception says that something cannot be pickled or unpickled in this way, so that another may be tried.
/// An interrupt, an exit, a cancelled coroutine's end and a lack of memory say nothing of the kind: they leave the
/// call.
pub(crate) fn is_refusal(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyException>(py) && !error.is_instance_of::<PyMemoryError>(py)
}

fn loads<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    static LOADS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let loads =
        LOADS.get_or_try_init(py, || Ok::<_, PyErr>(py.import("_pickle")?.getattr("loads")?.unbind()))?;
    loads.bind(py).call1((PyBytes::new(py, bytes),))
}

/// Decodes a reply that is not an error.
pub(crate) fn decode<'py>(py: Python<'py>, reply: &Reply) -> PyResult<Bound<'py, PyAny>> {
    if reply.flags & flags::EMPTY != 0 {
        return Ok(py.None().into_bound(py));
    }
    if reply.flags & flags::DESCRIBED != 0 {
        return serialize(py)?.getattr("decode_described")?.call1((PyBytes::new(py, &reply.bytes),));
    }
    match loads(py, &reply.bytes) {
        Ok(value) => Ok(value),
        Err(error)
            if error.is_instance_of::<PyKeyboardInterrupt>(py)
                || error.is_instance_of::<PyMemoryError>(py) =>
        {
            Err(error)
        }
        // This includes an exit that the result's own code raises: a result must not end the program.
        Err(error) => {
            serialize(py)?.getattr("reopen_result")?.call1((PyBytes::new(py, &reply.bytes), error.value(py)))
        }
    }
}

/// Decodes the exception of a reply.
pub(crate) fn decode_error<'py>(py: Python<'py>, reply: &Reply) -> PyResult<Bound<'py, PyAny>> {
    let described = reply.flags & flags::DESCRIBED != 0;
    serialize(py)?.getattr("decode_error")?.call1((PyBytes::new(py, &reply.bytes), described))
}
