//! Rust's failures become Python's exceptions here, and nowhere else.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use ropewalk_pool::{Call, Called, Failure, Limit, Phase, Refused, Task};

use super::encode;

/// Characters of an exception's text that another's quotes.
const MOST_SAID: usize = 300;

fn module(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    py.import("ropewalk._errors")
}

fn make<'py>(py: Python<'py>, class: &str, message: &str, fields: Option<&Bound<'py, PyDict>>) -> PyErr {
    let made = module(py).and_then(|m| m.getattr(class)).and_then(|class| class.call((message,), fields));
    match made {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

/// The exception for an error of the crates below.
pub(crate) fn from_base(py: Python<'_>, error: &ropewalk_base::Error) -> PyErr {
    of_code(py, error.code().as_str(), &error.report(), error.os_error())
}

fn of_code(py: Python<'_>, code: &str, text: &str, os_error: Option<i32>) -> PyErr {
    let made = module(py).and_then(|errors| errors.getattr("of_code")?.call1((code, text, os_error)));
    made.map_or_else(|failed| failed, PyErr::from_value)
}

/// The exception for a task that was not taken.
pub(crate) fn refused(py: Python<'_>, refused: &Refused) -> PyErr {
    match refused {
        Refused::Closed => make(
            py,
            "PoolClosed",
            "cannot schedule new futures after shutdown: the pool was shut down. Make a new pool.",
            None,
        ),
        Refused::Broken(failure) => failed(py, failure, None),
        Refused::Full | Refused::Wait | Refused::Busy => make(
            py,
            "QueueFull",
            "the pool's queue is full. Try again later, raise max_queue, or use on_full=\"block\".",
            None,
        ),
        Refused::Forked => make(
            py,
            "PoolError",
            "the pool was made before this process was forked, and its workers belong to the parent. \
             Make a new pool in the child.",
            None,
        ),
    }
}

/// The exception for a map whose inputs were refused: a shut pool's says what became of the map.
pub(crate) fn map_closed(py: Python<'_>, error: PyErr, taken: usize) -> PyErr {
    let closed = module(py).and_then(|errors| errors.getattr("PoolClosed"));
    if !closed.is_ok_and(|class| error.get_type(py).is(&class)) {
        return error;
    }
    let message = format!(
        "the pool was shut down before this map had run all its inputs: it had taken {taken}, and takes no more. \
         Consume the map before the pool is shut down, inside of the `with` block, or pass a list, whose length is \
         known: its inputs are all submitted then."
    );
    make(py, "PoolClosed", &message, None)
}

fn signal_name(py: Python<'_>, signal: i32) -> String {
    let name = py
        .import("signal")
        .and_then(|m| m.getattr("Signals"))
        .and_then(|signals| signals.call1((signal,)))
        .and_then(|signal| signal.getattr("name")?.extract::<String>());
    name.unwrap_or_else(|_| format!("signal {signal}"))
}

fn crashed(
    py: Python<'_>,
    pid: i32,
    status: Option<i32>,
    reason: Option<&str>,
    stack: Option<&str>,
    starting: bool,
    task: Option<&Task>,
) -> PyResult<PyErr> {
    let fields = PyDict::new(py);
    let (signal, exit) = match status {
        Some(status) if status & 0x7f != 0 => (Some(status & 0x7f), None),
        Some(status) => (None, Some((status >> 8) & 0xff)),
        None => (None, None),
    };
    fields.set_item("signal", signal)?;
    fields.set_item("exit_code", exit)?;
    fields.set_item("pid", pid)?;
    let how = match (signal, exit, reason) {
        (_, _, Some(reason)) => format!("was ended: {reason}"),
        (Some(signal), _, _) => format!("was killed by {}", signal_name(py, signal)),
        (_, Some(code), _) => format!("left with exit status {code}"),
        _ => String::from("is gone"),
    };
    let mut message = format!("A process in the process pool was terminated abruptly: worker {pid} {how}");
    if starting {
        message.push_str(
            " before it was ready for tasks: in the pool's initializer, if it has one. This task had not started. \
             Look at what the initializer calls and imports; if workers are killed for memory, run fewer",
        );
    }
    if let Some(task) = task {
        fields.set_item("task", task.id)?;
        fields.set_item("attempt", task.attempt())?;
    }
    if let Some(task) = task.filter(|_| !starting) {
        message.push_str(&format!(" while it ran task {} (attempt {})", task.id, task.attempt()));
        if let Some(call) = called(py, task) {
            message.push_str(&format!(", {call}"));
            fields.set_item("call", call)?;
        }
    }
    message.push_str(if starting {
        "."
    } else {
        ". If the task may be run twice, give it retries; if it was killed for memory, run fewer workers."
    });
    if let Some(stack) = stack {
        message.push_str(&format!("\nThe worker's last words:\n{stack}"));
        fields.set_item("stack", stack)?;
    }
    Ok(make(py, "WorkerCrashed", &message, Some(&fields)))
}

/// What a task called, in a few words: `None` if that cannot be had cheaply.
fn called(py: Python<'_>, task: &Task) -> Option<String> {
    let Called { function, arguments } = task.called()?;
    let describe =
        py.import("ropewalk.pool.wire._serialize").and_then(|module| module.getattr("describe_call")).ok()?;
    let batch = task.flags & ropewalk_pool::wire::flags::BATCH != 0;
    let arguments = arguments.map(|arguments| PyBytes::new(py, &arguments));
    describe.call1((function.as_deref(), arguments, batch)).ok()?.extract().ok()
}

/// The exception for a task that has no result though it raised nothing.
pub(crate) fn failed(py: Python<'_>, failure: &Failure, task: Option<&Task>) -> PyErr {
    match failure {
        Failure::Crashed { pid, status, reason, stack, starting } => {
            let (reason, stack) = (reason.as_deref(), stack.as_deref());
            crashed(py, *pid, *status, reason, stack, *starting, task).unwrap_or_else(|error| error)
        }
        Failure::Terminated => make(
            py,
            "PoolTerminated",
            "the pool was terminated while this task ran. What the task has done so far stays done; submit it to \
             another pool to run it again.",
            None,
        ),
        Failure::TimedOut(limit, phase) => timed_out(py, *limit, *phase, task).unwrap_or_else(|error| error),
        Failure::Neighbour { pid, task: other, cancelled } => {
            neighbour(py, *pid, *other, *cancelled, task).unwrap_or_else(|error| error)
        }
        Failure::Broken(reason) => {
            make(py, "PoolBroken", &format!("the pool is broken: {reason}. Make a new pool."), None)
        }
        Failure::Limit { code, reason } => of_code(py, code.as_str(), reason, None),
        Failure::Initializer(reply) => {
            let message = "A process in the process pool was terminated abruptly: an initializer failed, \
                           so the pool cannot run anything";
            let Ok(cause) = encode::decode_error(py, reply) else {
                return make(py, "InitializerFailed", message, None);
            };
            let cause = PyErr::from_value(cause);
            let error = make(py, "InitializerFailed", &format!("{message}: {}", said(py, &cause)), None);
            error.set_cause(py, Some(cause));
            error
        }
        _ => make(py, "PoolError", "the task failed for an unknown reason", None),
    }
}

/// An exception's class and text, as the last line of a traceback has them, shortened.
fn said(py: Python<'_>, error: &PyErr) -> String {
    let class =
        error.get_type(py).name().map_or_else(|_| String::from("an exception"), |name| name.to_string());
    let text = error.value(py).str().map(|text| text.to_string_lossy().into_owned()).unwrap_or_default();
    let short: String = text.chars().take(MOST_SAID).collect();
    if short.is_empty() { class } else { format!("{class}: {short}") }
}

fn timed_out(py: Python<'_>, limit: Limit, phase: Phase, task: Option<&Task>) -> PyResult<PyErr> {
    let fields = PyDict::new(py);
    let options = task.map(|task| task.options).unwrap_or_default();
    let (name, seconds) = match limit {
        Limit::Timeout => ("timeout", options.timeout),
        Limit::Deadline => ("deadline", options.deadline),
    };
    let seconds = seconds.map(|limit| limit.as_secs_f64());
    let phase = if phase == Phase::Queued { "queued" } else { "running" };
    fields.set_item("seconds", seconds)?;
    fields.set_item("phase", phase)?;
    fields.set_item("limit", name)?;
    let seconds = seconds.unwrap_or_default();
    let threads = task.is_some_and(|task| matches!(task.call, Call::Local(_)));
    let mut message = match limit {
        Limit::Timeout => format!(
            "the task ran for longer than its timeout of {seconds} s. The timeout counts the run alone: raise it if \
             the task may take that long."
        ),
        Limit::Deadline => format!(
            "the task was not done by its deadline, {seconds} s after it was submitted: it was still {phase}. The \
             deadline counts waiting too: raise it, submit less at once, or use timeout to limit the run alone."
        ),
    };
    if threads && phase == "running" {
        message.push_str(" The call goes on: a thread cannot be ended from outside.");
    }
    Ok(make(py, "TaskTimeout", &message, Some(&fields)))
}

fn neighbour(py: Python<'_>, pid: i32, other: u64, cancelled: bool, task: Option<&Task>) -> PyResult<PyErr> {
    let fields = PyDict::new(py);
    fields.set_item("pid", pid)?;
    if let Some(task) = task {
        fields.set_item("task", task.id)?;
        fields.set_item("attempt", task.attempt())?;
    }
    let why = if cancelled { "was cancelled" } else { "overran its time" };
    let message = format!(
        "worker {pid} was ended because task {other}, which ran in another of its threads, {why}; this task ran beside \
         it and did not finish within the pool's grace. If it may be run twice, give it retries, and it is run again; \
         threads=1 gives each task a process of its own."
    );
    Ok(make(py, "WorkerCrashed", &message, Some(&fields)))
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

/// Pools in the workers of pools, without end.
pub(crate) fn nested(py: Python<'_>, message: &str) -> PyErr {
    make(py, "PoolNested", message, None)
}

/// A bad argument.
pub(crate) fn value_error(message: &str) -> PyErr {
    PyValueError::new_err(message.to_owned())
}
