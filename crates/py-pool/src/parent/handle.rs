//! `PoolHandle`: a pool's threads on this side, its end and its counters.

use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use ropewalk_pool::{Engine, Refused, WaitFor, Waited};

use super::future::{self, FutureBase};
use super::pool::{FOREVER, PoolInner, limit};
use super::{errors, local};

/// A pool's engine without the pool: what its threads and its end hold on to, so that the pool itself can be collected.
#[pyclass(frozen, module = "ropewalk._core")]
pub(crate) struct PoolHandle {
    pub(crate) inner: Arc<PoolInner>,
}

#[pymethods]
impl PoolHandle {
    /// Runs the tasks of a thread pool, until there are no more.
    fn serve(&self, py: Python<'_>) {
        local::serve(py, &self.inner.engine);
    }

    /// Publishes watched futures as they end; returns when the pool has ended and nothing is left to publish.
    fn collect(&self, py: Python<'_>) -> PyResult<()> {
        let inner = &self.inner;
        loop {
            // Released once for both, for it may take long to get the interpreter back.
            let deadline = std::time::Instant::now() + Duration::from_secs(1);
            let done = inner.engine.call(py, |engine| {
                let done = engine.take_completed();
                if !done.is_empty() || engine.has_ended() {
                    return done;
                }
                let _ = engine.wait(&WaitFor::Completed, Some(deadline));
                engine.take_completed()
            });
            let futures: Vec<Py<FutureBase>> = inner
                .watched
                .with(|watched| done.iter().filter_map(|task| watched.remove(&task.id)).collect());
            for future in &futures {
                let future = future.bind(py);
                if let Err(error) = FutureBase::publish(future) {
                    error.write_unraisable(py, Some(future));
                }
                FutureBase::run_callbacks(future);
            }
            drop(futures);
            if !done.is_empty() {
                continue;
            }
            if inner.engine.call(py, Engine::has_ended) {
                if inner.watched.with(|watched| watched.is_empty()) {
                    return Ok(());
                }
                // Another thread is about to put one in, or to take it out.
                inner.engine.call(py, |engine| {
                    let _ = engine.wait(&WaitFor::Completed, Some(deadline));
                });
            }
        }
    }

    /// Takes no more tasks; with `cancel`, drops those that have not started.
    fn close(&self, py: Python<'_>, cancel: bool) {
        self.inner.engine.call(py, |engine| engine.close(cancel));
    }

    /// Takes no more tasks, cancels those that have not started, and ends those that run after `grace` seconds.
    fn end(&self, py: Python<'_>, grace: f64) -> PyResult<()> {
        let wait = limit("grace", Some(grace))?.unwrap_or(FOREVER);
        self.inner.engine.call(py, |engine| engine.end(wait));
        Ok(())
    }

    /// Ends everything now: tasks that wait are cancelled, those that run fail with `PoolTerminated`.
    fn terminate(&self, py: Python<'_>) {
        self.inner.engine.call(py, Engine::terminate);
    }

    /// Takes no more tasks, cancels those that have not started, and sends every worker process a signal.
    fn signal_workers(&self, py: Python<'_>, signum: i32) {
        self.inner.engine.call(py, |engine| engine.signal_workers(signum));
    }

    /// Ends every worker at once.
    fn break_down(&self, py: Python<'_>, reason: String) {
        let failure = ropewalk_pool::Failure::Broken(reason.into());
        self.inner.engine.call(py, |engine| engine.break_down(&failure));
    }

    /// Waits for the end, a signal's handler running in between; false when the time is up.
    #[pyo3(signature = (timeout = None))]
    fn join(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let deadline = future::deadline(timeout);
        loop {
            // In slices, for a signal that comes right before the sleep, or to another thread, interrupts none.
            let slice = std::time::Instant::now() + Duration::from_millis(50);
            let until = deadline.map_or(slice, |deadline| deadline.min(slice));
            match self.inner.engine.call(py, |engine| engine.join(Some(until))) {
                Waited::Ready => return Ok(true),
                Waited::TimedOut if Some(until) == deadline => return Ok(false),
                Waited::TimedOut | Waited::Interrupted => py.check_signals()?,
            }
        }
    }

    /// Whether workers are processes of their own, which can be ended and take signals.
    #[getter]
    fn isolates(&self) -> bool {
        self.inner.engine.capabilities().isolates
    }

    /// Whether the pool takes no tasks any more.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        self.inner.engine.call(py, Engine::is_closed)
    }

    /// Whether every worker is gone.
    #[getter]
    fn ended(&self, py: Python<'_>) -> bool {
        self.inner.engine.call(py, Engine::has_ended)
    }

    /// The counters: a dict, and a list of `(pid, state, completed, busy ns)`.
    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyDict>, Bound<'py, PyList>)> {
        let statistics = self.inner.engine.call(py, Engine::statistics);
        let statistics = statistics.ok_or_else(|| errors::refused(py, &Refused::Forked))?;
        let counters = statistics.counters;
        let totals = PyDict::new(py);
        let integers = [
            ("submitted", counters.submitted),
            ("completed", counters.completed),
            ("failed", counters.failed),
            ("cancelled", counters.cancelled),
            ("timed_out", counters.timed_out),
            ("retried", counters.retried),
            ("crashed", counters.crashed),
            ("restarted", counters.restarted),
            ("busy_ns", counters.busy_ns),
            ("queued", statistics.queued as u64),
            ("running", statistics.running as u64),
        ];
        for (name, value) in integers {
            totals.set_item(name, value)?;
        }
        let workers = statistics
            .workers
            .iter()
            .map(|w| (w.pid, format!("{:?}", w.state).to_lowercase(), w.completed, w.busy_ns));
        Ok((totals, PyList::new(py, workers.collect::<Vec<_>>())?))
    }

    /// Why there are fewer workers than there should be, as long as that is so.
    fn shortage(&self, py: Python<'_>) -> Option<String> {
        self.inner.engine.call(py, Engine::shortage)
    }

    /// The zygote's reports of failed preloads.
    fn complaints(&self, py: Python<'_>) -> Vec<String> {
        self.inner.engine.call(py, Engine::complaints)
    }

    /// The exception of a broken pool, or `None`.
    fn failure(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let failure = self.inner.engine.call(py, Engine::broken)?;
        Some(errors::failed(py, &failure, None).into_value(py).into_any())
    }
}
