//! Calls that threads of this process make: nothing is encoded.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use windlass_pool::{Opaque, Task};

use super::pool::PoolInner;

/// A call of a local task.
pub(crate) struct LocalCall {
    pub(crate) callable: Py<PyAny>,
    pub(crate) args: Py<PyTuple>,
    pub(crate) kwargs: Option<Py<PyDict>>,
}

/// A local task's value or exception.
pub(crate) struct LocalValue(Py<PyAny>);

impl LocalValue {
    /// The object inside an opaque value.
    pub(crate) fn get(py: Python<'_>, value: &Opaque) -> Py<PyAny> {
        value.downcast_ref::<Self>().map_or_else(|| py.None(), |value| value.0.clone_ref(py))
    }
}

const PATIENCE: Duration = Duration::from_secs(5);

/// What a worker thread runs until its pool has no more tasks.
pub(crate) fn serve(py: Python<'_>, pool: &Arc<PoolInner>) {
    loop {
        match py.detach(|| pool.engine.take_local(PATIENCE)) {
            Ok(Some((task, call))) => run(py, pool, &task, call),
            Ok(None) => {}
            Err(_) => return,
        }
    }
}

fn run(py: Python<'_>, pool: &Arc<PoolInner>, task: &Arc<Task>, work: Opaque) {
    let started = Instant::now();
    let Some(call) = work.downcast_ref::<LocalCall>() else { return };
    let outcome =
        call.callable.bind(py).call(call.args.bind(py), call.kwargs.as_ref().map(|kwargs| kwargs.bind(py)));
    let busy = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let (value, raised) = match outcome {
        Ok(value) => (value.unbind(), false),
        Err(error) => (error.into_value(py).into_any(), true),
    };
    let again = if raised && task.attempt() <= task.options.retries {
        Some(work)
    } else {
        // The arguments die here, before the result is seen: a caller may count on it.
        drop(work);
        None
    };
    let value = opaque(value);
    py.detach(|| pool.engine.finish_local(task, value, raised, busy, again));
}

/// Wraps an object as a local task's value.
pub(crate) fn opaque(value: Py<PyAny>) -> Opaque {
    Opaque::new(LocalValue(value))
}
