//! Waiting for several sockets and descriptors, and passing messages between sockets.

use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyList, PyType};
use ropewalk_capi::signals;
use ropewalk_messaging::{Error, Events, PollItem, PollWoken, Target};

use super::errors::{self, EINTR};
use super::release;
use super::socket::SocketBase;

/// A polled item: a socket or a descriptor.
enum Polled<'py> {
    Socket(Bound<'py, SocketBase>),
    Fd(RawFd),
}

fn polled<'py>(item: &Bound<'py, PyAny>) -> PyResult<(Polled<'py>, Bound<'py, PyAny>, i16)> {
    let (what, wanted): (Bound<'py, PyAny>, i16) = item.extract()?;
    if let Ok(socket) = what.cast::<SocketBase>() {
        return Ok((Polled::Socket(socket.clone()), what, wanted));
    }
    if let Ok(number) = what.cast::<PyInt>() {
        return Ok((Polled::Fd(number.extract()?), what, wanted));
    }
    let Some(fileno) = what.getattr_opt("fileno")? else {
        let shown = what.repr()?;
        return Err(PyTypeError::new_err(format!(
            "expected a socket, a descriptor's number or an object with fileno(), not {shown}"
        )));
    };
    let number = fileno.call0().and_then(|number| number.extract::<RawFd>());
    let number = number.map_err(|_| PyValueError::new_err("fileno() must return a valid integer fd"))?;
    let number_object = number.into_pyobject(what.py())?.into_any();
    Ok((Polled::Fd(number), number_object, wanted))
}

/// Waits until one of the sockets and descriptors is ready; the time is in milliseconds, negative for ever.
#[pyfunction]
#[pyo3(signature = (sockets, timeout = -1), text_signature = "(sockets, timeout=-1)")]
pub(crate) fn zmq_poll<'py>(
    py: Python<'py>,
    sockets: &Bound<'py, PyAny>,
    timeout: i64,
) -> PyResult<Bound<'py, PyList>> {
    release::collect(py);
    let given = sockets.try_iter()?.map(|item| polled(&item?)).collect::<PyResult<Vec<_>>>()?;
    let result = PyList::empty(py);
    if given.is_empty() {
        return Ok(result);
    }
    let mut user: Option<Bound<'py, PyType>> = None;
    let mut sockets = Vec::with_capacity(given.len());
    for (what, ..) in &given {
        sockets.push(match what {
            Polled::Socket(socket) => {
                user.get_or_insert_with(|| socket.get_type());
                Some(SocketBase::open(socket)?)
            }
            Polled::Fd(_) => None,
        });
    }
    let mut items = Vec::with_capacity(given.len());
    for ((what, _, wanted), socket) in given.iter().zip(&sockets) {
        let target = match (what, socket) {
            (Polled::Fd(number), _) => Target::Fd(*number),
            (Polled::Socket(_), Some(socket)) => Target::Socket(socket),
            (Polled::Socket(_), None) => continue,
        };
        items.push(PollItem { target, events: Events::from_bits(*wanted), revents: Events::NONE });
    }
    let raise = |error: &Error| errors::make(py, user.as_ref(), error.errno(), &error.to_string());
    let deadline = u64::try_from(timeout)
        .ok()
        .and_then(|timeout| Instant::now().checked_add(Duration::from_millis(timeout)));
    let slice = signals::slice();
    loop {
        let slice_end = slice.map(|slice| Instant::now() + slice);
        let until = [deadline, slice_end].into_iter().flatten().min();
        match py.detach(|| ropewalk_messaging::poll(&mut items, until)) {
            Ok(PollWoken::Ready(_)) => break,
            Ok(PollWoken::TimedOut) if until == deadline => break,
            Ok(PollWoken::Interrupted | PollWoken::TimedOut) => py.check_signals()?,
            Err(error) if error.errno() == EINTR => py.check_signals()?,
            Err(error) => return Err(raise(&error)),
        }
    }
    for (item, (_, what, _)) in items.iter().zip(&given) {
        let found = item.revents.bits();
        if found != 0 {
            result.append((what, found))?;
        }
    }
    Ok(result)
}

fn socket_of<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, SocketBase>> {
    object.cast::<SocketBase>().cloned().map_err(|_| SocketBase::wanted(object))
}

fn run_proxy(
    frontend: &Bound<'_, PyAny>,
    backend: &Bound<'_, PyAny>,
    capture: Option<&Bound<'_, PyAny>>,
    control: Option<&Bound<'_, PyAny>>,
) -> PyResult<i32> {
    let py = frontend.py();
    let (front, back) = (socket_of(frontend)?, socket_of(backend)?);
    let capture = capture.map(socket_of).transpose()?;
    let control = control.map(socket_of).transpose()?;
    let first = SocketBase::open(&front)?;
    let second = SocketBase::open(&back)?;
    let third = capture.as_ref().map(SocketBase::open).transpose()?;
    let fourth = control.as_ref().map(SocketBase::open).transpose()?;
    let (first, second) = (&*first, &*second);
    let (third, fourth) = (third.as_deref(), fourth.as_deref());
    let mut raised = None;
    let ended = py.detach(|| {
        let mut interrupted = || {
            // Called by this thread between two messages, with no lock held.
            let attached = Python::try_attach(|py| {
                release::collect(py);
                raised = py.check_signals().err();
            });
            attached.is_none() || raised.is_some()
        };
        ropewalk_messaging::proxy(first, second, third, fourth, signals::slice(), &mut interrupted)
    });
    match (raised, ended) {
        (Some(raised), _) => Err(raised),
        (None, Ok(())) => Ok(0),
        (None, Err(error)) => Err(errors::of(&front, &error)),
    }
}

/// Passes messages both ways between two sockets, until the context ends.
#[pyfunction]
#[pyo3(signature = (frontend, backend, capture = None))]
pub(crate) fn proxy(
    frontend: &Bound<'_, PyAny>,
    backend: &Bound<'_, PyAny>,
    capture: Option<&Bound<'_, PyAny>>,
) -> PyResult<i32> {
    run_proxy(frontend, backend, capture, None)
}

/// As `proxy`, controlled by the messages that `control` receives.
#[pyfunction]
#[pyo3(signature = (frontend, backend, capture = None, control = None))]
pub(crate) fn proxy_steerable(
    frontend: &Bound<'_, PyAny>,
    backend: &Bound<'_, PyAny>,
    capture: Option<&Bound<'_, PyAny>>,
    control: Option<&Bound<'_, PyAny>>,
) -> PyResult<i32> {
    run_proxy(frontend, backend, capture, control)
}

/// As `proxy`; the type has no effect.
#[pyfunction]
#[pyo3(signature = (r#type, frontend, backend))]
pub(crate) fn device(r#type: i32, frontend: &Bound<'_, PyAny>, backend: &Bound<'_, PyAny>) -> PyResult<i32> {
    let _ = r#type;
    run_proxy(frontend, backend, None, None)
}
