//! Calls that threads of this process run: nothing is encoded.

use std::sync::Arc;
use std::time::Duration;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::pyclass::{PyTraverseError, PyVisit};
use pyo3::types::{PyDict, PyTuple};
use ropewalk_base::Code;
use ropewalk_pool::{Finished, Meter, Opaque, Outcome, Taken, Task};
use ropewalk_sync::spin::AdaptiveSpin;

use super::engine::EngineHandle;
use super::errors;
use super::pump;
use super::records::LastName;
use super::slot::Slot;
use crate::current;

/// A call of a local task.
pub(crate) struct LocalCall {
    pub(crate) callable: Py<PyAny>,
    pub(crate) args: Py<PyTuple>,
    pub(crate) kwargs: Option<Py<PyDict>>,
    /// The context variables of the submitting thread, if any has a value.
    pub(crate) context: Option<Py<PyAny>>,
    /// The classes of exceptions after which it is run again, or a predicate; `None` for all.
    pub(crate) on: Option<Py<PyAny>>,
}

/// A copy of the current context, or `None` if no variable has a value in it: then entering it would change nothing.
pub(crate) fn context(py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
    // SAFETY: the thread is attached; the result is a new reference, or null with an exception set.
    let copy = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyContext_CopyCurrent())? };
    Ok(if copy.len()? == 0 { None } else { Some(copy.unbind()) })
}

/// A context while it is the thread's own.
struct Entered<'a, 'py>(&'a Bound<'py, PyAny>);

impl<'a, 'py> Entered<'a, 'py> {
    fn enter(context: &'a Bound<'py, PyAny>) -> PyResult<Self> {
        // SAFETY: a live context, which is checked to be one.
        if unsafe { ffi::PyContext_Enter(context.as_ptr()) } != 0 {
            return Err(PyErr::fetch(context.py()));
        }
        Ok(Self(context))
    }
}

impl Drop for Entered<'_, '_> {
    fn drop(&mut self) {
        // SAFETY: it was entered in this thread, and nothing that the call entered is left open.
        if unsafe { ffi::PyContext_Exit(self.0.as_ptr()) } != 0 {
            drop(PyErr::take(self.0.py()));
        }
    }
}

impl LocalCall {
    /// Shows the objects of a call that no thread has taken to the collector.
    pub(crate) fn visit(call: &Opaque, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Some(call) = call.downcast_ref::<Self>() else { return Ok(()) };
        visit.call(&call.callable)?;
        visit.call(&call.args)?;
        visit.call(&call.kwargs)?;
        visit.call(&call.context)?;
        visit.call(&call.on)
    }
}

/// A local task's value or exception; empty once the collector has cleared it.
pub(crate) struct LocalValue(Slot<Option<Py<PyAny>>>);

impl LocalValue {
    /// The object inside an opaque value.
    pub(crate) fn get(py: Python<'_>, value: &Opaque) -> Py<PyAny> {
        value.downcast_ref::<Self>().and_then(|value| value.0.shared(py)).unwrap_or_else(|| py.None())
    }

    /// Shows the object inside an opaque value to the collector.
    pub(crate) fn show(value: &Opaque, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let value: Option<&Self> = value.downcast_ref();
        value.map_or(Ok(()), |value| value.0.visit(|object| visit.call(object)))
    }

    fn of(task: &Arc<Task>) -> Option<&Self> {
        // Only a sole owner shows the object: another one may show it too, or hold it for a caller.
        if Arc::strong_count(task) != 1 {
            return None;
        }
        match task.outcome() {
            Some(Outcome::Local { value, .. }) => value.downcast_ref(),
            _ => None,
        }
    }

    /// Shows the objects that only this task holds to the collector.
    pub(crate) fn visit(task: &Arc<Task>, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        Self::of(task).map_or(Ok(()), |value| value.0.visit(|object| visit.call(object)))
    }

    /// Drops what [`visit`](Self::visit) shows.
    pub(crate) fn clear(task: &Arc<Task>) {
        drop(Self::of(task).map(|value| value.0.take()));
    }
}

const PATIENCE: Duration = Duration::from_secs(5);

/// The loop of a worker thread until its pool has no more tasks. From one task to the next it releases the interpreter
/// once.
pub(crate) fn serve(py: Python<'_>, pool: &EngineHandle) {
    let mut spin = AdaptiveSpin::new();
    let mut finished: Option<Finished> = None;
    let mut measures =
        Measures { meter: Meter::default(), always: pool.measures_cpu(), name: LastName::default() };
    loop {
        let taken = pool.call(py, |engine| match finished.take() {
            Some(finished) => engine.finish_and_take_local(finished, &mut spin, PATIENCE),
            None => Ok(engine.take_local(&mut spin, PATIENCE)),
        });
        match taken {
            Ok(Taken::Task(task, call)) => finished = run(py, pool, task, call, &mut measures),
            Ok(Taken::Nothing) => {}
            Ok(Taken::Closed) => return,
            // Its result ends here, with the interpreter at hand.
            Err(task) => drop(task),
        }
    }
}

/// What a thread knows of the calls that it makes.
struct Measures {
    meter: Meter,
    /// Whether the CPU time of short calls is measured, too.
    always: bool,
    name: LastName,
}

fn run(
    py: Python<'_>,
    pool: &EngineHandle,
    task: Arc<Task>,
    work: Opaque,
    measures: &mut Measures,
) -> Option<Finished> {
    let begin = measures.meter.begin(measures.always);
    let call = work.downcast_ref::<LocalCall>()?;
    let context = call.context.as_ref().map(|context| context.bind(py));
    let stream = task.stream().map(|_| Arc::clone(&task));
    let (task, outcome) = current::during(task, begin.at, || {
        context.map(Entered::enter).transpose().and_then(|_entered| {
            let kwargs = call.kwargs.as_ref().map(|kwargs| kwargs.bind(py));
            let returned = call.callable.bind(py).call(call.args.bind(py), kwargs)?;
            match &stream {
                Some(stream) => pump::pump(pool, stream, returned),
                None => Ok(returned),
            }
        })
    });
    drop(stream);
    let stopped = task.is_asked_to_stop() && outcome.as_ref().is_err_and(|error| is_cancellation(py, error));
    let times = measures.meter.end(begin);
    let function = measures.name.of(call.callable.bind(py));
    let (value, raised) = match outcome {
        Ok(value) => (value.unbind(), false),
        Err(error) => (error.into_value(py).into_any(), true),
    };
    let again = if raised && task.attempt() <= task.options.retries && is_retried(py, call, &value) {
        Some(work)
    } else {
        // The arguments die here, before the result is seen: a caller may count on it.
        drop(work);
        None
    };
    Some(Finished { task, value: opaque(value), raised, times, function, stopped, again })
}

/// Whether a call is run again after this exception, if it has runs left.
fn is_retried(py: Python<'_>, call: &LocalCall, error: &Py<PyAny>) -> bool {
    let Some(on) = &call.on else { return true };
    let asked = py.import("ropewalk._retried").and_then(|module| module.getattr("is_retried"));
    asked.and_then(|ask| ask.call1((on, error))?.extract()).unwrap_or(false)
}

/// Whether a task raised this to say that it stops because it was asked to.
fn is_cancellation(py: Python<'_>, error: &PyErr) -> bool {
    errors::class(py, Code::TaskCancelled).is_ok_and(|class| error.matches(py, class).unwrap_or(false))
}

/// Wraps an object as a local task's value.
pub(crate) fn opaque(value: Py<PyAny>) -> Opaque {
    Opaque::new(LocalValue(Slot::new(Some(value))))
}
