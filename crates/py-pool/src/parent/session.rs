//! `SessionBase`: a session of a pool's engine, as the program holds it.

use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use ropewalk_pool::{Mode, Options, Payload, Session};

use super::functions::Functions;
use super::pool::{self, PoolInner};
use super::settings::{Chosen, TaskSettings, limit, options};
use super::{encode, errors};

/// The settings of a session, as the Python class has checked them: its name, its mode, the seconds for which an idle
/// state is kept, and how often an actor may be made again.
pub(crate) type SessionSettings<'py> = (String, String, Option<f64>, Option<u32>);

/// See the module. When the last reference to it is gone the session is closed.
#[pyclass(frozen, weakref, module = "ropewalk._core")]
pub(crate) struct SessionBase {
    session: Arc<Session>,
    pool: Arc<PoolInner>,
    /// Those of its tasks that have no others.
    options: Options,
}

impl SessionBase {
    /// # Errors
    ///
    /// `EncodeError` when `init` or its arguments cannot be sent; `PoolError` in a forked child.
    pub(crate) fn open(
        py: Python<'_>,
        pool: &Arc<PoolInner>,
        (name, mode, ttl, restarts): SessionSettings<'_>,
        init: Option<&Bound<'_, PyAny>>,
        given: &Bound<'_, PyTuple>,
        tasks: TaskSettings,
    ) -> PyResult<Self> {
        let mode = match mode.as_str() {
            "queue" => Mode::Queue,
            "fail" => Mode::Fail,
            _ => Mode::Prefer,
        };
        let ttl: Option<Duration> = limit("ttl", ttl)?;
        let (mut function, mut arguments) = (None, Payload::default());
        if pool.engine.capabilities().encodes {
            let engine = pool.engine.for_encoding();
            function = init.map(|init| Functions::get(&pool.functions, engine, init)).transpose()?;
            arguments = encode::payload(py, engine, given)?;
        }
        let settings = ropewalk_pool::SessionSettings {
            name: name.into(),
            mode,
            ttl,
            restarts,
            init: function,
            arguments,
        };
        let session = pool.engine.call(py, |engine| engine.open_session(settings));
        let session = session.ok_or_else(|| errors::refused(py, &ropewalk_pool::Refused::Forked))?;
        let options = Options { session: Some(session.id), ..options(tasks)?.options };
        Ok(Self { session, pool: Arc::clone(pool), options })
    }
}

#[pymethods]
impl SessionBase {
    /// The number by which tasks name it.
    #[getter]
    fn number(&self) -> u32 {
        self.session.id
    }

    /// Submits a task of the session.
    #[pyo3(signature = (r#fn, /, *args, **kwargs))]
    fn submit<'py>(
        &self,
        r#fn: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        // An actor's calls are not run again, so nothing decides by their exceptions.
        let chosen = Chosen { options: self.options.clone(), on: None };
        pool::submit_with(&self.pool, r#fn, args, kwargs, chosen)
    }

    /// The number of its newest state; 0 before the first.
    #[getter]
    fn generation(&self) -> u32 {
        self.session.generation()
    }

    /// Reports that a thread of this process has made its state; gives the state's number.
    fn made_here(&self, py: Python<'_>) -> u32 {
        self.pool.engine.call(py, |engine| engine.made_here(&self.session))
    }

    /// Whether no worker has its state, and no task of it is pending.
    #[getter]
    fn is_cold(&self) -> bool {
        self.session.is_cold()
    }

    /// The exception of an actor that is gone for good, or `None`.
    fn lost(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let failure = self.session.lost()?;
        Some(errors::failed(py, &failure, None).into_value(py).into_any())
    }

    /// Takes no more tasks; the states are dropped when those that were accepted have ended.
    fn close(&self, py: Python<'_>) {
        self.pool.engine.call(py, |engine| engine.close_session(&self.session));
    }
}

impl Drop for SessionBase {
    fn drop(&mut self) {
        // The lock of an engine is held for moments only, by threads that wait for nothing.
        self.pool.engine.close_session(&self.session);
    }
}
