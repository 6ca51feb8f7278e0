//! `AsyncSocket`: its awaitables, in the plain cases in which programs spend their time. The Python class handles all
//! others, with the same [`Watch`].

mod future;
mod watch;

use std::sync::OnceLock;

use pyo3::exceptions::{PyException, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit, intern};

use self::watch::Attempt;
pub(crate) use self::watch::Watch;
use super::errors::{self, Truth};
use super::socket::{SocketBase, send};

/// See the module.
#[pyclass(frozen, extends = SocketBase, subclass, name = "AsyncSocket", module = "ropewalk._zmq")]
#[derive(Default)]
pub(crate) struct AsyncSocketBase {
    watch: OnceLock<Py<Watch>>,
}

impl AsyncSocketBase {
    fn watch<'a, 'py>(slf: &'a Bound<'py, Self>) -> PyResult<&'a Bound<'py, Watch>> {
        match slf.get().watch.get() {
            Some(watch) => Ok(watch.bind(slf.py())),
            None => Err(PyRuntimeError::new_err("the socket was not made: its __init__ was not called")),
        }
    }

    /// Receives without special options, or waits.
    fn receive_plain<'py>(slf: &Bound<'py, Self>, attempt: Attempt) -> PyResult<Bound<'py, PyAny>> {
        let watch = Self::watch(slf)?;
        match watch.get().try_receive(slf.as_super(), &attempt) {
            Ok(Some(message)) => {
                watch.get().did_receive(watch)?;
                watch.get().done(message)
            }
            Ok(None) => watch.get().wait_to_receive(watch, attempt),
            Err(error) => future::failed(slf.py(), error),
        }
    }
}

#[pymethods]
impl AsyncSocketBase {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(
        _args: &Bound<'_, pyo3::types::PyTuple>,
        _kwargs: Option<&Bound<'_, pyo3::types::PyDict>>,
    ) -> (Self, SocketBase) {
        (Self::default(), SocketBase::default())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(self.watch.get())
    }

    /// The watch with the socket's waiters; set once.
    #[getter]
    fn _watch<'py>(slf: &Bound<'py, Self>) -> Option<Bound<'py, Watch>> {
        slf.get().watch.get().map(|watch| watch.bind(slf.py()).clone())
    }

    #[setter(_watch)]
    fn set_watch(&self, watch: Py<Watch>) -> PyResult<()> {
        self.watch.set(watch).map_err(|_| errors::made_already())
    }

    /// Returns an awaitable that receives one part.
    #[pyo3(
        signature = (flags = 0, copy = Truth(true), track = Truth(false)),
        text_signature = "($self, flags=0, copy=True, track=False)"
    )]
    fn recv<'py>(
        slf: &Bound<'py, Self>,
        flags: i32,
        copy: Truth,
        track: Truth,
    ) -> PyResult<Bound<'py, PyAny>> {
        let watch = Self::watch(slf)?;
        if flags == 0 && copy.0 && !track.0 && watch.get().may_receive() {
            return Self::receive_plain(slf, Attempt::Part);
        }
        Watch::receive_as(watch, intern!(slf.py(), "recv"), flags, copy.0, track.0)
    }

    /// Returns an awaitable that receives a whole message.
    #[pyo3(
        signature = (flags = 0, copy = Truth(true), track = Truth(false)),
        text_signature = "($self, flags=0, copy=True, track=False)"
    )]
    fn recv_multipart<'py>(
        slf: &Bound<'py, Self>,
        flags: i32,
        copy: Truth,
        track: Truth,
    ) -> PyResult<Bound<'py, PyAny>> {
        let watch = Self::watch(slf)?;
        if flags == 0 && copy.0 && !track.0 && watch.get().may_receive() {
            return Self::receive_plain(slf, Attempt::Whole);
        }
        Watch::receive_as(watch, intern!(slf.py(), "recv_multipart"), flags, copy.0, track.0)
    }

    /// Returns an awaitable that sends one part.
    #[pyo3(
        signature = (data, flags = 0, copy = Truth(true), track = Truth(false), routing_id = None, group = None),
        text_signature = "($self, data, flags=0, copy=True, track=False, routing_id=None, group=None)"
    )]
    fn send<'py>(
        slf: &Bound<'py, Self>,
        data: &Bound<'py, PyAny>,
        flags: i32,
        copy: Truth,
        track: Truth,
        routing_id: Option<&Bound<'py, PyAny>>,
        group: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, watch) = (slf.py(), Self::watch(slf)?);
        let is_plain = flags == 0 && copy.0 && !track.0 && routing_id.is_none() && group.is_none();
        if is_plain && watch.get().may_send() {
            match send::at_once(slf.as_super(), data, 0) {
                Ok(true) => {
                    watch.get().did_send(watch)?;
                    return watch.get().done(py.None().into_bound(py));
                }
                Ok(false) => {}
                Err(error) => return future::failed(py, error),
            }
        }
        Watch::send_as(watch, (data, flags, copy.0, track.0, routing_id, group))
    }
}

/// Whether an error belongs to the operation and goes into its future; others end the program.
fn is_ordinary(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyException>(py)
}
