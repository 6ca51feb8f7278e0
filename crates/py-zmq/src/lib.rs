//! `ropewalk._zmq`: sockets, contexts and frames with the interface of pyzmq's compiled backends, and a few additions.
//!
//! It is written with pyo3 and serves the main interpreter. This crate is the interface only; `ropewalk-messaging`
//! implements sockets. Three rules hold everywhere:
//!
//! - An attached thread tries first, and releases the interpreter only to wait.
//! - No lock of the core is held while Python code may run; under one, at most `bytes` objects are made.
//! - The core's threads never attach to the interpreter: buffers that they release come back through `release`.

mod awaited;
mod context;
mod errors;
mod frame;
mod held;
mod options;
mod poll;
mod registry;
mod release;
mod socket;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use ropewalk_capi::module::check_main_interpreter;
use ropewalk_capi::object::Raised;

/// Registers the function that makes exceptions: `make(errno, message)`.
#[pyfunction]
#[pyo3(signature = (make, /))]
fn set_errors(make: &Bound<'_, PyAny>) -> PyResult<()> {
    errors::MAKE_ERROR.set(make)
}

/// Registers the function that makes trackers: `make(event)`, or `make(None)` for one that is done.
#[pyfunction]
#[pyo3(signature = (make, /))]
fn set_trackers(make: &Bound<'_, PyAny>) -> PyResult<()> {
    errors::MAKE_TRACKER.set(make)
}

/// This thread's latest error number.
#[pyfunction]
fn zmq_errno() -> i32 {
    errors::latest()
}

/// The text of an error number.
#[pyfunction]
fn strerror(errno: i32) -> String {
    ropewalk_messaging::strerror(errno)
}

/// Whether a transport or mechanism is supported.
#[pyfunction]
fn has(capability: &str) -> bool {
    ropewalk_messaging::has(capability)
}

/// The version of libzmq that this behaves as.
#[pyfunction]
fn zmq_version_info() -> (i32, i32, i32) {
    ropewalk_messaging::version()
}

/// A new public and secret key, as Z85.
#[pyfunction]
fn curve_keypair(py: Python<'_>) -> (Bound<'_, PyBytes>, Bound<'_, PyBytes>) {
    let (public, secret) = ropewalk_messaging::curve_keypair();
    (PyBytes::new(py, public.as_bytes()), PyBytes::new(py, secret.as_bytes()))
}

/// The public key of a secret one.
#[pyfunction]
fn curve_public<'py>(py: Python<'py>, secret_key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let secret = errors::text(secret_key, "a key")?;
    if secret.len() != 40 {
        return Err(PyValueError::new_err("a secret key has 40 characters of Z85"));
    }
    match ropewalk_messaging::curve_public(&secret) {
        Ok(public) => Ok(PyBytes::new(py, public.as_bytes())),
        Err(error) => Err(errors::make(py, None, error.errno(), &error.to_string())),
    }
}

/// Fills `ropewalk._zmq`; see `ropewalk/_zmq.pyi`.
///
/// # Errors
///
/// Outside of the main interpreter, whose types pyo3 would share with others.
pub fn fill(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let instead = c"ropewalk._zmq cannot be loaded in a subinterpreter: use sockets in the main interpreter";
    check_main_interpreter(instead).map_err(|Raised| PyErr::fetch(m.py()))?;
    m.add_class::<context::ContextBase>()?;
    m.add_class::<socket::SocketBase>()?;
    m.add_class::<awaited::AsyncSocketBase>()?;
    m.add_class::<awaited::Watch>()?;
    m.add_class::<frame::FrameBase>()?;
    m.add("Message", m.py().get_type::<frame::FrameBase>())?;
    m.add_function(wrap_pyfunction!(set_errors, m)?)?;
    m.add_function(wrap_pyfunction!(set_trackers, m)?)?;
    m.add_function(wrap_pyfunction!(zmq_errno, m)?)?;
    m.add_function(wrap_pyfunction!(strerror, m)?)?;
    m.add_function(wrap_pyfunction!(has, m)?)?;
    m.add_function(wrap_pyfunction!(zmq_version_info, m)?)?;
    m.add_function(wrap_pyfunction!(curve_keypair, m)?)?;
    m.add_function(wrap_pyfunction!(curve_public, m)?)?;
    m.add_function(wrap_pyfunction!(poll::zmq_poll, m)?)?;
    m.add_function(wrap_pyfunction!(poll::proxy, m)?)?;
    m.add_function(wrap_pyfunction!(poll::proxy_steerable, m)?)?;
    m.add_function(wrap_pyfunction!(poll::device, m)?)?;
    release::at_exit(m)?;
    m.add("IPC_PATH_MAX_LEN", socket::IPC_PATH_MAX_LEN)?;
    m.add("PYZMQ_DRAFT_API", true)?;
    Ok(())
}
