//! `FutureBase`: the part of a future that every task uses.
//!
//! The Python class over it adds the attributes that the standard library's `wait` and `as_completed` use
//! (`_condition`, `_waiters`), and makes them only when they are accessed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::pyclass::{PyTraverseError, PyVisit};
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyFunction, PyList, PyString};
use ropewalk_pool::wire::flags;
use ropewalk_pool::{Ended, Outcome, Refused, Stage, Task, WaitFor, Waited};

use super::local::LocalValue;
use super::pool::PoolInner;
use super::slot::{Share, Slot};
use super::{calls, decode, errors, records};

struct Cell {
    task: Arc<Task>,
    pool: Arc<PoolInner>,
}

/// What a task has reported: `(done, total, note)`.
type Reported = (f64, Option<f64>, Option<String>);

enum Decoded {
    Value(Py<PyAny>),
    Raised(Py<PyAny>),
}

impl Share for Decoded {
    fn share(&self, py: Python<'_>) -> Self {
        match self {
            Self::Value(value) => Self::Value(value.share(py)),
            Self::Raised(exception) => Self::Raised(exception.share(py)),
        }
    }
}

/// See the module. Made by a pool, never by hand.
#[pyclass(frozen, subclass, weakref, module = "ropewalk._core")]
pub(crate) struct FutureBase {
    cell: OnceLock<Cell>,
    decoded: Slot<Option<Decoded>>,
    /// `None` once they have been called.
    callbacks: Slot<Option<Vec<Py<PyAny>>>>,
    /// Whether `wait` or `as_completed` use it: set once by its Python half, read when the task is done. Sequentially
    /// consistent with the task's end, so that either the reader sees the flag or the thread that sets it sees the end.
    looked_at: AtomicBool,
}

/// Turns the standard library's timeout into a point in time.
pub(crate) fn deadline(timeout: Option<f64>) -> Option<Instant> {
    let seconds = timeout?.max(0.0);
    Duration::try_from_secs_f64(seconds).ok().and_then(|wait| Instant::now().checked_add(wait))
}

/// How long a wait goes on before it checks for signals. One that comes while the thread sleeps ends the sleep; one
/// that comes a moment before or after would be seen at the end of the wait.
const LOOK: Duration = Duration::from_millis(100);

/// Waits with the interpreter released, and lets signal handlers run in between; true when it is there.
///
/// # Errors
///
/// What a signal's handler raises, and `PoolError` in a forked child, where the pool is its parent's.
pub(crate) fn wait(
    py: Python<'_>,
    pool: &PoolInner,
    what: &WaitFor,
    deadline: Option<Instant>,
) -> PyResult<bool> {
    let mut stuck = calls::Stuck::default();
    loop {
        let look = Instant::now() + LOOK;
        let until = deadline.map_or(look, |deadline| deadline.min(look));
        match pool.engine.call(py, |engine| engine.wait(what, Some(until))) {
            Waited::Ready => return py.check_signals().map(|()| true),
            Waited::TimedOut if deadline.is_some_and(|deadline| Instant::now() >= deadline) => {
                return Ok(false);
            }
            Waited::TimedOut if stuck.is_so(py, pool, what) => return Err(errors::stuck(py)),
            Waited::TimedOut if pool.engine.is_forked() => return Err(errors::refused(py, &Refused::Forked)),
            Waited::TimedOut | Waited::Interrupted => py.check_signals()?,
        }
    }
}

impl FutureBase {
    pub(crate) fn fill(&self, task: Arc<Task>, pool: Arc<PoolInner>) {
        let _ = self.cell.set(Cell { task, pool });
    }

    fn cell(&self) -> PyResult<&Cell> {
        self.cell
            .get()
            .ok_or_else(|| PyRuntimeError::new_err("a ropewalk.Future is made by a pool, not by hand"))
    }

    pub(crate) fn task(&self) -> PyResult<&Arc<Task>> {
        Ok(&self.cell()?.task)
    }

    fn wait_done(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<&Cell> {
        let cell = self.cell()?;
        if cell.task.is_done() {
            return Ok(cell);
        }
        let done = wait(py, &cell.pool, &WaitFor::Task(Arc::clone(&cell.task)), deadline(timeout))?;
        if done { Ok(cell) } else { Err(errors::result_timeout()) }
    }

    /// # Errors
    ///
    /// Errors that are not the task's: an interrupt that came while its result was unpickled, or a lack of memory.
    fn decode(&self, py: Python<'_>, cell: &Cell) -> PyResult<Decoded> {
        let raised = |error: PyErr| Decoded::Raised(error.into_value(py).into_any());
        Ok(match cell.task.outcome() {
            Some(Outcome::Replied(reply)) if reply.flags & flags::ERROR != 0 => {
                Decoded::Raised(decode::decode_error(py, reply)?.unbind())
            }
            Some(Outcome::Replied(reply)) => match decode::decode(py, reply) {
                Ok(value) => Decoded::Value(value.unbind()),
                Err(error) if !decode::is_refusal(py, &error) => return Err(error),
                Err(error) => raised(error),
            },
            Some(Outcome::Local { value, raised }) => match (LocalValue::get(py, value), raised) {
                (value, false) => Decoded::Value(value),
                (value, true) => Decoded::Raised(value),
            },
            Some(Outcome::Failed(failure)) => raised(errors::failed(py, failure, Some(&cell.task))),
            Some(Outcome::Cancelled) | None => raised(errors::cancelled(py)),
        })
    }

    /// The value, or the exception: decoded once.
    fn decoded(&self, py: Python<'_>, cell: &Cell) -> PyResult<Decoded> {
        if let Some(decoded) = self.decoded.shared(py) {
            return Ok(decoded);
        }
        // Should two threads do it, the first one counts.
        let fresh = self.decode(py, cell)?;
        let ours = fresh.share(py);
        let spare =
            self.decoded.with(move |slot| if slot.is_none() { slot.replace(fresh) } else { Some(fresh) });
        drop(spare);
        Ok(self.decoded.shared(py).unwrap_or(ours))
    }

    pub(crate) fn is_cancelled(cell_task: &Task) -> bool {
        matches!(cell_task.outcome(), Some(Outcome::Cancelled))
    }

    /// Notifies `wait` and `as_completed`, if they use it, that the task is done.
    ///
    /// A thread that begins to use it after this has read the flag finds the task done, and publishes it itself.
    pub(crate) fn publish(slf: &Bound<'_, Self>) -> PyResult<()> {
        if slf.get().looked_at.load(Ordering::SeqCst) {
            slf.call_method0("_publish")?;
        }
        Ok(())
    }

    /// Runs the callbacks; called by the collector, or by the thread that finds the future done.
    pub(crate) fn run_callbacks(slf: &Bound<'_, Self>) {
        let callbacks = slf.get().callbacks.take();
        for callback in callbacks.unwrap_or_default() {
            call_back(slf, callback.bind(slf.py()));
        }
    }
}

fn call_back(future: &Bound<'_, FutureBase>, callback: &Bound<'_, PyAny>) {
    let py = future.py();
    let Err(error) = callback.call1((future,)) else { return };
    if !error.is_instance_of::<pyo3::exceptions::PyException>(py) {
        error.write_unraisable(py, Some(callback));
        return;
    }
    let logged =
        py.import("ropewalk.pool.parent._future").and_then(|m| m.getattr("log_callback")).and_then(|log| {
            // Before Python 3.12 the value has its traceback only when it is taken out of the error.
            log.call1((future, error.clone_ref(py).into_value(py)))?;
            Ok(())
        });
    if logged.is_err() {
        error.write_unraisable(py, Some(callback));
    }
}

#[pymethods]
impl FutureBase {
    fn __getattr__(slf: &Bound<'_, Self>, name: &Bound<'_, PyString>) -> PyResult<Py<PyAny>> {
        Err(errors::no_attribute(slf.as_any(), name))
    }

    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyAny>, _kwargs: Option<&Bound<'_, PyAny>>) -> Self {
        Self {
            cell: OnceLock::new(),
            decoded: Slot::default(),
            callbacks: Slot::new(Some(Vec::new())),
            looked_at: AtomicBool::new(false),
        }
    }

    /// The value that the call returned.
    #[pyo3(signature = (timeout = None))]
    fn result(slf: &Bound<'_, Self>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let this = slf.get();
        let cell = this.wait_done(py, timeout)?;
        Self::publish(slf)?;
        match this.decoded(py, cell)? {
            Decoded::Value(value) => Ok(value),
            Decoded::Raised(exception) => Err(PyErr::from_value(exception.into_bound(py))),
        }
    }

    /// The exception that the call raised, or `None`.
    #[pyo3(signature = (timeout = None))]
    fn exception(slf: &Bound<'_, Self>, timeout: Option<f64>) -> PyResult<Option<Py<PyAny>>> {
        let py = slf.py();
        let this = slf.get();
        let cell = this.wait_done(py, timeout)?;
        Self::publish(slf)?;
        if Self::is_cancelled(&cell.task) {
            return Err(errors::cancelled(py));
        }
        Ok(match this.decoded(py, cell)? {
            Decoded::Value(_) => None,
            Decoded::Raised(exception) => Some(exception),
        })
    }

    /// Whether the task has ended: returned, raised, failed or cancelled.
    fn done(slf: &Bound<'_, Self>) -> PyResult<bool> {
        let done = slf.get()._is_done()?;
        if done {
            Self::publish(slf)?;
        }
        Ok(done)
    }

    /// Whether the task was cancelled.
    fn cancelled(&self) -> PyResult<bool> {
        Ok(Self::is_cancelled(&self.cell()?.task))
    }

    /// Whether the task has ended, been cancelled included.
    fn _is_done(&self) -> PyResult<bool> {
        let cell = self.cell()?;
        if !cell.task.is_done() {
            cell.pool.engine.catch_up();
        }
        Ok(cell.task.is_done())
    }

    fn _is_cancelled(&self) -> PyResult<bool> {
        Ok(Self::is_cancelled(&self.cell()?.task))
    }

    fn _is_running(&self, py: Python<'_>) -> PyResult<bool> {
        let cell = self.cell()?;
        Ok(match cell.task.stage() {
            Stage::Sent | Stage::Running => cell.pool.engine.call(py, |engine| engine.is_running(&cell.task)),
            Stage::Queued | Stage::Delayed | Stage::Done => false,
        })
    }

    /// Cancels; see the Python class.
    fn _cancel(&self, py: Python<'_>, running: bool) -> PyResult<bool> {
        let cell = self.cell()?;
        Ok(cell.pool.engine.call(py, |engine| engine.cancel(&cell.task, running)))
    }

    /// Asks the task to stop; see the Python class.
    fn _ask_to_stop(&self, py: Python<'_>) -> PyResult<bool> {
        let cell = self.cell()?;
        Ok(cell.pool.engine.call(py, |engine| engine.ask_to_stop(&cell.task)))
    }

    /// `(done, total, note)` as the task has last reported them, if it has.
    fn _progress(&self, py: Python<'_>) -> PyResult<Option<Reported>> {
        let cell = self.cell()?;
        let progress = cell.pool.engine.call(py, |engine| engine.progress(&cell.task));
        Ok(progress.map(|progress| (progress.done, progress.total, progress.note.map(String::from))))
    }

    /// Waits for the end; false when the time is up.
    #[pyo3(signature = (timeout = None))]
    fn _wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let cell = self.cell()?;
        wait(py, &cell.pool, &WaitFor::Task(Arc::clone(&cell.task)), deadline(timeout))
    }

    /// Asks the collector to publish this future when it is done; false if it is done already.
    fn _watch(slf: &Bound<'_, Self>) -> PyResult<bool> {
        let cell = slf.get().cell()?;
        slf.get().looked_at.store(true, Ordering::SeqCst);
        cell.pool.watch(slf, &cell.task)
    }

    /// Calls `fn(future)` when the future is done: in the collector's thread, or at once if it is done already.
    fn add_done_callback(slf: &Bound<'_, Self>, r#fn: Bound<'_, PyAny>) -> PyResult<()> {
        static BY_MAILBOX: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let this = slf.get();
        let cell = this.cell()?;
        let r#fn = if r#fn.is_exact_instance_of::<PyFunction>() && !cell.task.is_done() {
            BY_MAILBOX.import(slf.py(), "ropewalk.pool.parent._future", "by_mailbox")?.call1((r#fn,))?
        } else {
            r#fn
        };
        let mut callback = Some(r#fn.clone().unbind());
        let kept = this.callbacks.with(|callbacks| match callbacks {
            Some(waiting) if !cell.task.is_done() => {
                waiting.extend(callback.take());
                true
            }
            _ => false,
        });
        if kept {
            if !cell.pool.watch(slf, &cell.task)? {
                Self::run_callbacks(slf);
            }
            return Ok(());
        }
        // Those that came earlier go first.
        Self::run_callbacks(slf);
        call_back(slf, &r#fn);
        Ok(())
    }

    /// What `TaskRecord` is made of, once the task has ended.
    fn _record(&self) -> PyResult<Option<records::Fields>> {
        let task = &self.cell()?.task;
        Ok(task.outcome().map(|outcome| records::fields(&Ended::of(task, outcome, task.record()))))
    }

    /// The task's number in its pool.
    #[getter]
    fn _id(&self) -> PyResult<u64> {
        Ok(self.cell()?.task.id)
    }

    #[getter]
    fn _pool_kind(&self) -> PyResult<&'static str> {
        Ok(self.cell()?.pool.kind())
    }

    #[getter]
    fn _done_callbacks(&self, py: Python<'_>) -> PyResult<Py<PyList>> {
        Ok(PyList::new(py, self.callbacks.shared(py).unwrap_or_default())?.unbind())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.decoded.visit(|decoded| match decoded {
            Some(Decoded::Value(object) | Decoded::Raised(object)) => visit.call(object),
            None => Ok(()),
        })?;
        self.callbacks.visit(|callbacks| callbacks.iter().flatten().try_for_each(|one| visit.call(one)))?;
        // What the pool holds is the pool's to show.
        self.cell.get().map_or(Ok(()), |cell| LocalValue::visit(&cell.task, &visit))
    }

    fn __clear__(&self) {
        drop((self.decoded.take(), self.callbacks.take()));
        if let Some(cell) = self.cell.get() {
            LocalValue::clear(&cell.task);
        }
    }
}
