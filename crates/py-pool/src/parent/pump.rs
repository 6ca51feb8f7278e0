//! A stream of a thread pool: the thread iterates over what the function returned, and hands each element over.

use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use ropewalk_base::Code;
use ropewalk_capi::errors as kit;
use ropewalk_pool::{Stream, Task};

use super::engine::EngineHandle;
use super::{errors, local};

/// How long a thread that waits for its reader sleeps before it looks whether its task has ended, and says that the
/// task is alive.
const SLICE: Duration = Duration::from_millis(100);

/// Iterates over what the function of a stream returned; gives what the iteration returned.
///
/// # Errors
///
/// What the iteration raises, and `TaskCancelled` if it was closed because the reader has left, or the task has ended.
pub(super) fn pump<'py>(
    engine: &EngineHandle,
    task: &Arc<Task>,
    returned: Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = returned.py();
    let Some(stream) = task.stream() else { return Ok(returned) };
    // SAFETY: a live object.
    let items = if unsafe { ffi::PyIter_Check(returned.as_ptr()) } != 0 {
        returned
    } else {
        py.import("ropewalk.pool.wire._streams")?.getattr("iterate")?.call1((returned,))?
    };
    let stopped = || task.is_asked_to_stop() || task.is_done();
    loop {
        if task.options.hang().is_some() {
            task.signals().beat();
        }
        if stopped() {
            close(&items)?;
            let text = "the reader of this stream has left";
            return Err(PyErr::from_value(errors::bound(py, kit::exception(Code::TaskCancelled, text))?));
        }
        if !stream.has_credit() {
            py.detach(|| wait_for_reader(stream, stopped));
            continue;
        }
        let mut item = std::ptr::null_mut();
        // SAFETY: a live iterator, and a place for its element, its result or nothing, which is ours then.
        let came = unsafe {
            let came = ffi::PyIter_Send(items.as_ptr(), ffi::Py_None(), &raw mut item);
            (came, Bound::from_owned_ptr_or_opt(py, item))
        };
        match came {
            (ffi::PySendResult::PYGEN_NEXT, Some(item)) => {
                // There is credit for it.
                let _ = engine.item_made(task, local::opaque(item.unbind()), 0);
            }
            (ffi::PySendResult::PYGEN_RETURN, Some(value)) => return Ok(value),
            _ => {
                let raised = PyErr::take(py);
                return Err(
                    raised.unwrap_or_else(|| PyRuntimeError::new_err("an iterator ended without a word"))
                );
            }
        }
    }
}

fn wait_for_reader(stream: &Stream, stopped: impl Fn() -> bool) {
    stream.sleep_unless(|| stream.has_credit() || stopped(), Some(SLICE));
}

/// Closes a generator; another iterator has nothing to close.
fn close(items: &Bound<'_, PyAny>) -> PyResult<()> {
    if items.hasattr("throw")? { items.call_method0("close").map(drop) } else { Ok(()) }
}
