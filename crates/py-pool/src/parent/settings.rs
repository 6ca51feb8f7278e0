//! The settings of tasks, as Python's side has checked them.

use std::time::Duration;

use pyo3::prelude::*;
use ropewalk_pool::{Backoff, Client, Jitter, Options, Rare};

use super::errors;

/// A limit in seconds; one beyond all times is none.
pub(super) fn limit(name: &str, seconds: Option<f64>) -> PyResult<Option<Duration>> {
    let Some(seconds) = seconds else { return Ok(None) };
    match Duration::try_from_secs_f64(seconds) {
        Ok(limit) => Ok(Some(limit)),
        Err(_) if seconds > 0.0 => Ok(None),
        Err(_) => Err(errors::value_error(&format!("{name} must be a number of seconds, 0 or more"))),
    }
}

/// How often a task may be run again, and after which exceptions: a number, or a `ropewalk.Retry`.
pub(crate) struct Retries {
    count: u32,
    backoff: Option<Backoff>,
    /// The classes of exceptions after which it is run again, or a predicate; `None` for all.
    on: Option<Py<PyAny>>,
}

/// `Retry._plan`: runs beyond the first, first and longest delay, jitter, budget, whether crashes count, and `on`.
type Plan = (u32, f64, f64, String, Option<f64>, bool, Py<PyAny>);

impl<'py> FromPyObject<'_, 'py> for Retries {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(count) = object.extract() {
            return Ok(Self { count, backoff: None, on: None });
        }
        let plan: Plan = object.getattr("_plan")?.extract()?;
        let (count, first, most, jitter, budget, crashes, on) = plan;
        let seconds = |name, seconds| limit(name, Some(seconds)).map(|limit| limit.unwrap_or(Duration::MAX));
        let backoff = Backoff {
            first: seconds("backoff", first)?,
            most: seconds("max_delay", most)?,
            jitter: match jitter.as_str() {
                "none" => Jitter::None,
                "equal" => Jitter::Equal,
                "decorrelated" => Jitter::Decorrelated,
                _ => Jitter::Full,
            },
            budget: limit("deadline", budget)?,
            crashes,
        };
        Ok(Self { count, backoff: Some(backoff), on: Some(on) })
    }
}

/// The settings, in the order that Python's side has them.
#[derive(FromPyObject)]
pub(crate) struct TaskSettings(
    /// `task_timeout`
    pub(crate) Option<f64>,
    /// `retries`
    pub(crate) Retries,
    /// `priority`
    pub(crate) i32,
    /// `writable`
    pub(crate) bool,
    /// `deadline`
    pub(crate) Option<f64>,
    /// `client`
    pub(crate) Option<String>,
    /// `share`
    pub(crate) u32,
    /// `buffersize`, for streams
    pub(crate) u32,
    /// The number of a session.
    pub(crate) Option<u32>,
    /// `hang_timeout`
    pub(crate) Option<f64>,
);

/// The engine's half of the settings, and what its workers decide by.
pub(crate) struct Chosen {
    pub(crate) options: Options,
    /// See [`Retries`].
    pub(crate) on: Option<Py<PyAny>>,
}

pub(crate) fn options(settings: TaskSettings) -> PyResult<Chosen> {
    let TaskSettings(
        timeout,
        retries,
        priority,
        writable,
        deadline,
        client,
        share,
        _buffersize,
        session,
        hang,
    ) = settings;
    let hang = limit("hang_timeout", hang)?;
    let Retries { count: retries, backoff, on } = retries;
    let (timeout, deadline) = (limit("task_timeout", timeout)?, limit("deadline", deadline)?);
    let client = client.map(|name| Client { name: name.into(), share });
    let options = Options {
        retries,
        priority,
        writable,
        session,
        ..Rare { timeout, deadline, hang, backoff, client }.into()
    };
    Ok(Chosen { options, on })
}
