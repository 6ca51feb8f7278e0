//! The texts of a pool's failures. `ropewalk_capi::errors` makes the exceptions.

use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};
use ropewalk_base::Code;
use ropewalk_capi::errors;
use ropewalk_capi::object::{Object, Raised};
use ropewalk_pool::{Call, Called, Death, Failure, Limit, Phase, Refused, Task};

use super::decode;

/// Characters of an exception's text that another's quotes.
const MOST_SAID: usize = 300;

/// Converts the kit's object to pyo3's.
pub(crate) fn bound(py: Python<'_>, made: Result<Object, Raised>) -> PyResult<Bound<'_, PyAny>> {
    match made {
        // SAFETY: a reference that we own, and the thread is attached.
        Ok(object) => Ok(unsafe { Bound::from_owned_ptr(py, object.into_ptr()) }),
        Err(Raised) => Err(PyErr::fetch(py)),
    }
}

/// An exception with a text that has its own sentence on what to try.
fn exactly<'py>(py: Python<'py>, code: Code, text: &str) -> PyResult<Bound<'py, PyAny>> {
    bound(py, errors::exception(code, text))
}

/// The exception, or what came of making it.
fn raised(made: PyResult<Bound<'_, PyAny>>) -> PyErr {
    made.map_or_else(|failed| failed, PyErr::from_value)
}

/// An exception that says what failed, and what the table has as its remedy.
fn make(py: Python<'_>, code: Code, what: &str) -> PyErr {
    raised(exactly(py, code, &format!("{what}. {}", code.remedy())))
}

/// The exception for an error of the crates below.
pub(crate) fn from_base(py: Python<'_>, error: &ropewalk_base::Error) -> PyErr {
    raised(bound(py, errors::of(error)))
}

/// The exception for an attribute that an object does not have, of which its class knows more.
///
/// Python calls a class's own `__getattr__` only for missing attributes too, but looks up two more names for every
/// attribute of such a class.
pub(crate) fn no_attribute(object: &Bound<'_, PyAny>, name: &Bound<'_, PyString>) -> PyErr {
    let made = object.get_type().getattr(intern!(object.py(), "_no_attribute"));
    raised(made.and_then(|made| made.call1((object, name))))
}

/// The class of a code's exceptions.
pub(crate) fn class(py: Python<'_>, code: Code) -> PyResult<Bound<'_, PyAny>> {
    bound(py, errors::class(code))
}

/// The exception for a task that was not taken.
pub(crate) fn refused(py: Python<'_>, refused: &Refused) -> PyErr {
    match refused {
        Refused::Closed => {
            make(py, Code::PoolClosed, "cannot schedule new futures after shutdown: the pool was shut down")
        }
        Refused::Broken(failure) => broken(py, failure),
        Refused::Full(depth, capacity) | Refused::MustWait(depth, capacity) => {
            full(py, *depth, *capacity).unwrap_or_else(|error| error)
        }
        Refused::Busy => make(py, Code::QueueFull, "the pool's queue is full"),
        Refused::SessionClosed => {
            make(py, Code::SessionClosed, "the session or actor of this task was closed")
        }
        Refused::SessionBusy => make(py, Code::SessionBusy, "the worker of the session is busy"),
        Refused::Lost(failure) => failed(py, failure, None),
        Refused::Forked => make(
            py,
            Code::PoolError,
            "the pool was made before this process was forked, and its workers belong to the parent",
        ),
    }
}

fn full(py: Python<'_>, depth: usize, capacity: usize) -> PyResult<PyErr> {
    let what = format!("the pool's queue is full: {depth} tasks wait, and its capacity is {capacity}");
    of_depth(py, Code::QueueFull, &what, depth, capacity)
}

/// An error of a full queue, with its numbers.
fn of_depth(py: Python<'_>, code: Code, what: &str, depth: usize, capacity: usize) -> PyResult<PyErr> {
    let error = exactly(py, code, &format!("{what}. {}", code.remedy()))?;
    error.setattr("depth", depth)?;
    error.setattr("capacity", capacity)?;
    Ok(PyErr::from_value(error))
}

/// The exception for a task that a broken pool did not take. A crash was another task's: it is the cause.
fn broken(py: Python<'_>, failure: &Failure) -> PyErr {
    let why = failed(py, failure, None);
    let Failure::Crashed { pid, .. } = failure else { return why };
    let error = make(py, Code::PoolBroken, &format!("the pool is broken: its worker {pid} died"));
    error.set_cause(py, Some(why));
    error
}

/// The exception for a map whose inputs were refused: a shut pool's says what became of the map.
pub(crate) fn map_closed(py: Python<'_>, error: PyErr, taken: usize) -> PyErr {
    if !class(py, Code::PoolClosed).is_ok_and(|class| error.get_type(py).is(&class)) {
        return error;
    }
    let text = format!(
        "the pool was shut down before this map had run all its inputs: it had taken {taken}, and takes no more. \
         Consume the map before the pool is shut down, inside of the `with` block, or pass a list, whose length is \
         known: its inputs are all submitted then."
    );
    raised(exactly(py, Code::PoolClosed, &text))
}

fn signal_name(py: Python<'_>, signal: i32) -> String {
    let name = py
        .import("signal")
        .and_then(|m| m.getattr("Signals"))
        .and_then(|signals| signals.call1((signal,)))
        .and_then(|signal| signal.getattr("name")?.extract::<String>());
    name.unwrap_or_else(|_| format!("signal {signal}"))
}

/// The signal that cannot be handled, and with which the kernel ends a process for want of memory.
const SIGKILL: i32 = 9;

fn crashed(
    py: Python<'_>,
    pid: i32,
    status: Option<i32>,
    reason: Option<&str>,
    stack: Option<&str>,
    starting: bool,
    task: Option<&Task>,
) -> PyResult<PyErr> {
    let (signal, exit) = parts_of(status);
    let how = match (signal, exit, reason) {
        (_, _, Some(reason)) => format!("was ended: {reason}"),
        (Some(SIGKILL), _, _) => {
            String::from("was killed by SIGKILL (which the kernel sends when memory runs out)")
        }
        (Some(signal), _, _) => format!("was killed by {}", signal_name(py, signal)),
        (_, Some(code), _) => format!("left with exit status {code}"),
        _ => String::from("has ended"),
    };
    let mut message = format!("A process in the process pool was terminated abruptly: worker {pid} {how}");
    if starting && reason.is_some() {
        message.push_str(". It was not ready for tasks, and this task had not started");
    } else if starting {
        message.push_str(
            " before it was ready for tasks: in the pool's initializer, if it has one. This task had not started. \
             Look at what the initializer calls and imports; if workers are killed for memory, run fewer",
        );
    }
    let mut call = None;
    if let Some(task) = task.filter(|_| !starting) {
        message.push_str(&format!(" while it ran task {} (attempt {})", task.id, task.attempt()));
        call = called(py, task);
        if let Some(call) = &call {
            message.push_str(&format!(", {call}"));
        }
    }
    message.push('.');
    if !starting {
        message.push(' ');
        message.push_str(Code::WorkerCrashed.remedy());
    }
    if let Some(stack) = stack {
        message.push_str(&format!("\nThe worker's last words:\n{stack}"));
    }
    let error = exactly(py, Code::WorkerCrashed, &message)?;
    error.setattr("signal", signal)?;
    error.setattr("exit_code", exit)?;
    error.setattr("call", call)?;
    error.setattr("stack", stack)?;
    blame(&error, pid, task)?;
    Ok(PyErr::from_value(error))
}

/// Which worker it was, and which task.
fn blame(error: &Bound<'_, PyAny>, pid: i32, task: Option<&Task>) -> PyResult<()> {
    error.setattr("pid", pid)?;
    if let Some(task) = task {
        error.setattr("task", task.id)?;
        error.setattr("attempt", task.attempt())?;
    }
    Ok(())
}

/// The exception for the value of a stream that has none.
pub(crate) fn unfinished(py: Python<'_>, left: bool, failed: bool) -> PyErr {
    let why = match (left, failed) {
        (true, _) => "the stream was left before its end, so it has no value",
        (_, true) => "the task of the stream has failed, so the stream has no value",
        _ => "the stream has not been read to its end, so it has no value yet",
    };
    make(py, Code::StreamUnfinished, why)
}

/// A short text of a task's call; `None` if that is too expensive.
fn called(py: Python<'_>, task: &Task) -> Option<String> {
    describe(py, task.called()?, task.flags)
}

/// A short text of a call.
pub(crate) fn describe(py: Python<'_>, call: Called, flags: u16) -> Option<String> {
    let Called { function, arguments, of_actor } = call;
    let describe =
        py.import("ropewalk.pool.wire._serialize").and_then(|module| module.getattr("describe_call")).ok()?;
    let batch = flags & ropewalk_pool::wire::flags::BATCH != 0;
    let arguments = arguments.map(|arguments| PyBytes::new(py, &arguments));
    describe.call1((function.as_deref(), arguments, batch, of_actor)).ok()?.extract().ok()
}

/// The exception for a task that has no result though it raised nothing.
pub(crate) fn failed(py: Python<'_>, failure: &Failure, task: Option<&Task>) -> PyErr {
    match failure {
        Failure::Crashed { pid, status, reason, stack, starting } => {
            let (reason, stack) = (reason.as_deref(), stack.as_deref());
            crashed(py, *pid, *status, reason, stack, *starting, task).unwrap_or_else(|error| error)
        }
        Failure::ActorDied { actor, cause } => {
            let why = match &**cause {
                Failure::Initializer(reply) => decode::decode_error(py, reply).map(PyErr::from_value),
                cause => Ok(failed(py, cause, None)),
            };
            let how = if matches!(&**cause, Failure::Initializer(_)) {
                "could not be made"
            } else {
                "is gone with its worker"
            };
            let Ok(why) = why else {
                return make(py, Code::ActorDied, &format!("the object of the actor {actor} {how}"));
            };
            let what =
                format!("the object of the actor {actor} {how}: {}", said(py, &why).trim_end_matches('.'));
            let error = make(py, Code::ActorDied, &what);
            error.set_cause(py, Some(why));
            error
        }
        Failure::Terminated => make(
            py,
            Code::PoolTerminated,
            "the pool was terminated while this task ran, and what the task has done so far stays done",
        ),
        Failure::TimedOut(limit, phase) => timed_out(py, *limit, *phase, task).unwrap_or_else(|error| error),
        Failure::Neighbour { pid, task: other, cancelled } => {
            neighbour(py, *pid, *other, *cancelled, task).unwrap_or_else(|error| error)
        }
        Failure::Broken(reason) => {
            make(py, Code::PoolBroken, &format!("the pool is broken: {}", reason.trim_end_matches('.')))
        }
        Failure::Dropped { depth, capacity } => {
            let what = format!(
                "the task was dropped: the queue was full with {depth} tasks, its capacity is {capacity}, and this \
                 was the oldest of the lowest priority"
            );
            of_depth(py, Code::TaskDropped, &what, *depth, *capacity).unwrap_or_else(|error| error)
        }
        Failure::Limit { code, reason } => raised(exactly(py, *code, reason)),
        Failure::Hung { pid, stack, silent } => {
            hung(py, *pid, stack.as_deref(), *silent, task).unwrap_or_else(|error| error)
        }
        Failure::Poisoned { deaths, stack } => {
            poisoned(py, deaths, stack.as_deref(), task).unwrap_or_else(|error| error)
        }
        Failure::Unhealthy { most, within, last } => {
            unhealthy(py, *most, *within, last).unwrap_or_else(|error| error)
        }
        Failure::Initializer(reply) => {
            let message = "A process in the process pool was terminated abruptly: an initializer failed, \
                           so the pool cannot run anything";
            let Ok(cause) = decode::decode_error(py, reply) else {
                return make(py, Code::InitializerFailed, message);
            };
            let cause = PyErr::from_value(cause);
            let message = format!("{message}: {}", said(py, &cause));
            let error = raised(exactly(py, Code::InitializerFailed, &message));
            error.set_cause(py, Some(cause));
            error
        }
        _ => make(py, Code::PoolError, "the task failed for an unknown reason"),
    }
}

/// An exception's class and text, as the last line of a traceback has them, shortened.
fn said(py: Python<'_>, error: &PyErr) -> String {
    let class =
        error.get_type(py).name().map_or_else(|_| String::from("an exception"), |name| name.to_string());
    let text = error.value(py).str().map(|text| text.to_string_lossy().into_owned()).unwrap_or_default();
    // What to try is said once, by the error that has this one as its cause.
    let remedy = error.value(py).getattr("remedy").and_then(|remedy| remedy.extract::<String>());
    let text = remedy.ok().and_then(|remedy| text.strip_suffix(&remedy)).unwrap_or(&text).trim_end();
    let short: String = text.chars().take(MOST_SAID).collect();
    if short.is_empty() { class } else { format!("{class}: {short}") }
}

fn timed_out(py: Python<'_>, limit: Limit, phase: Phase, task: Option<&Task>) -> PyResult<PyErr> {
    let options = task.map(|task| task.options.clone()).unwrap_or_default();
    let (name, seconds) = match limit {
        Limit::Timeout => ("task_timeout", options.timeout()),
        Limit::Deadline => ("deadline", options.deadline()),
        Limit::Hang => ("hang_timeout", options.hang()),
    };
    let seconds = seconds.map(|limit| limit.as_secs_f64());
    let phase = if phase == Phase::Queued { "queued" } else { "running" };
    let threads = task.is_some_and(|task| matches!(task.call, Call::Local(_)));
    let after = seconds.unwrap_or_default();
    let mut message = match limit {
        Limit::Timeout => format!(
            "the task ran for longer than its task_timeout of {after} s, which counts the run alone: raise it if \
             the task may take that long."
        ),
        Limit::Hang => format!("the task gave no sign of life for {after} s, its hang_timeout."),
        Limit::Deadline => format!(
            "the task was not done by its deadline, {after} s after it was submitted: it was still {phase}. The \
             deadline counts waiting too: raise it, submit less at once, or use task_timeout to limit the run alone."
        ),
    };
    if threads && phase == "running" {
        message.push_str(" The call goes on: a thread cannot be ended from outside.");
    }
    let error = exactly(py, Code::TaskTimeout, &message)?;
    error.setattr("seconds", seconds)?;
    error.setattr("phase", phase)?;
    error.setattr("limit", name)?;
    Ok(PyErr::from_value(error))
}

fn hung(
    py: Python<'_>,
    pid: i32,
    stack: Option<&str>,
    silent: Option<&str>,
    task: Option<&Task>,
) -> PyResult<PyErr> {
    let seconds = task.and_then(|task| task.options.hang()).map(|limit| limit.as_secs_f64());
    let after = seconds.unwrap_or_default();
    let mut message = format!("the task gave no sign of life for {after} s, its hang_timeout");
    let mut call = None;
    if let Some(task) = task {
        message.push_str(&format!(": task {} (attempt {}) in process {pid}", task.id, task.attempt()));
        call = called(py, task);
        if let Some(call) = &call {
            message.push_str(&format!(", {call}"));
        }
        if matches!(task.call, Call::Local(_)) {
            message.push_str(". The call goes on: a thread cannot be ended from outside");
        }
    }
    message.push_str(&format!(". {}", Code::TaskHung.remedy()));
    match (stack, silent) {
        (Some(stack), _) => message.push_str(&format!("\nIts stack:\n{stack}")),
        (None, Some(silent)) => message.push_str(&format!("\nThere is no stack: {silent}.")),
        (None, None) => {}
    }
    let error = exactly(py, Code::TaskHung, &message)?;
    error.setattr("limit", "hang_timeout")?;
    error.setattr("seconds", seconds)?;
    error.setattr("call", call)?;
    error.setattr("stack", stack)?;
    blame(&error, pid, task)?;
    Ok(PyErr::from_value(error))
}

/// `(signal, exit status)` of a wait status.
fn parts_of(status: Option<i32>) -> (Option<i32>, Option<i32>) {
    match status {
        Some(status) if status & 0x7f != 0 => (Some(status & 0x7f), None),
        Some(status) => (None, Some((status >> 8) & 0xff)),
        None => (None, None),
    }
}

/// The deaths as a tuple of `WorkerDeath`.
pub(crate) fn deaths<'py>(py: Python<'py>, deaths: &[Death]) -> PyResult<Bound<'py, PyTuple>> {
    let class = py.import("ropewalk")?.getattr("WorkerDeath")?;
    let made = deaths.iter().map(|death| {
        let (signal, exit) = parts_of(death.status);
        class.call1((death.pid, signal, exit, death.hung))
    });
    PyTuple::new(py, made.collect::<PyResult<Vec<_>>>()?)
}

fn poisoned(py: Python<'_>, died: &[Death], stack: Option<&str>, task: Option<&Task>) -> PyResult<PyErr> {
    let how = |death: &Death| match parts_of(death.status) {
        _ if death.hung => format!("{} (it hung)", death.pid),
        (Some(signal), _) => format!("{} ({})", death.pid, signal_name(py, signal)),
        (None, Some(exit)) => format!("{} (exit status {exit})", death.pid),
        (None, None) => death.pid.to_string(),
    };
    let (call, function) = match task {
        Some(task) => (called(py, task), task.called().and_then(|called| called.function)),
        None => (None, None),
    };
    let what = call.as_deref().unwrap_or("a task");
    let all: Vec<_> = died.iter().map(how).collect();
    let message = format!(
        "{what} has cost {} worker{} their life and is not run again: {}. {}{}",
        died.len(),
        if died.len() == 1 { "" } else { "s" },
        all.join(", "),
        Code::PoisonTask.remedy(),
        stack.map(|stack| format!("\nThe last worker's last words:\n{stack}")).unwrap_or_default()
    );
    let error = exactly(py, Code::PoisonTask, &message)?;
    let last = died.last();
    let (signal, exit) = parts_of(last.and_then(|death| death.status));
    error.setattr("signal", signal)?;
    error.setattr("exit_code", exit)?;
    error.setattr("call", call)?;
    error.setattr("function", function.as_deref())?;
    error.setattr("stack", stack)?;
    error.setattr("crashes", deaths(py, died)?)?;
    blame(&error, last.map_or(0, |death| death.pid), task)?;
    Ok(PyErr::from_value(error))
}

fn unhealthy(py: Python<'_>, most: u32, within: Duration, last: &Failure) -> PyResult<PyErr> {
    let seconds = within.as_secs_f64();
    let cause = failed(py, last, None);
    let message = format!(
        "the pool is broken: more than {most} of its workers died within {seconds} s, which max_restarts does not \
         allow. The last one {}. {}",
        last.of_worker(),
        Code::PoolUnhealthy.remedy()
    );
    let error = exactly(py, Code::PoolUnhealthy, &message)?;
    error.setattr("limit", most)?;
    error.setattr("seconds", seconds)?;
    let error = PyErr::from_value(error);
    error.set_cause(py, Some(cause));
    Ok(error)
}

fn neighbour(py: Python<'_>, pid: i32, other: u64, cancelled: bool, task: Option<&Task>) -> PyResult<PyErr> {
    let why = if cancelled { "was cancelled" } else { "overran its time" };
    let message = format!(
        "worker {pid} was ended because task {other}, which ran in another of its threads, {why}; this task ran beside \
         it and did not finish within the pool's grace. If it may be run twice, give it retries, and it is run again; \
         threads=1 gives each task a process of its own."
    );
    let error = exactly(py, Code::WorkerCrashed, &message)?;
    blame(&error, pid, task)?;
    Ok(PyErr::from_value(error))
}

/// The standard library's exception for `result(timeout=...)`.
pub(crate) fn result_timeout() -> PyErr {
    pyo3::exceptions::PyTimeoutError::new_err(())
}

/// The standard library's exception for a cancelled future.
pub(crate) fn cancelled(py: Python<'_>) -> PyErr {
    match py.import("concurrent.futures").and_then(|m| m.getattr("CancelledError")).and_then(|c| c.call0()) {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

/// A function that a task has called waits for a task that cannot start.
pub(crate) fn stuck(py: Python<'_>) -> PyErr {
    let text = "every worker of this pool waits for the answer of a function like this one, so the task that this \
                function waits for cannot start. Let the function return without waiting, or use another pool or more \
                workers.";
    raised(exactly(py, Code::PoolError, text))
}

/// Pools in the workers of pools, without end.
pub(crate) fn nested(py: Python<'_>, message: &str) -> PyErr {
    raised(exactly(py, Code::PoolNested, message))
}

/// Something that cannot be sent, and what to send instead.
pub(crate) fn unsendable(py: Python<'_>, text: &str) -> PyErr {
    raised(exactly(py, Code::EncodeError, text))
}

/// A bad argument.
pub(crate) fn value_error(message: &str) -> PyErr {
    PyValueError::new_err(message.to_owned())
}
