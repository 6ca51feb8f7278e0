//! Socket options: which type of Python's goes with which number.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyString};
use ropewalk_messaging::Value;

/// The one option of bytes whose last zero is part of it.
const ROUTING_ID: i32 = 5;

/// What an option's value is on its way to the core.
enum Kind {
    Bytes,
    Int64,
    Int,
}

const fn kind(option: i32) -> Kind {
    match option {
        // ROUTING_ID, SUBSCRIBE, UNSUBSCRIBE, LAST_ENDPOINT, TCP_ACCEPT_FILTER
        5 | 6 | 7 | 32 | 38
        // PLAIN_USERNAME, PLAIN_PASSWORD, CURVE_PUBLICKEY, CURVE_SECRETKEY, CURVE_SERVERKEY, ZAP_DOMAIN
        | 45 | 46 | 48 | 49 | 50 | 55
        // CONNECT_ROUTING_ID, GSSAPI_PRINCIPAL, GSSAPI_SERVICE_PRINCIPAL, SOCKS_PROXY, XPUB_WELCOME_MSG
        | 61 | 63 | 64 | 68 | 72
        // BINDTODEVICE, METADATA, SOCKS_USERNAME, SOCKS_PASSWORD, WSS_*, HELLO_MSG, DISCONNECT_MSG, HICCUP_MSG
        | 92 | 95 | 99 | 100 | 103..=106 | 110 | 111 | 114 => Kind::Bytes,
        // AFFINITY, MAXMSGSIZE, VMCI_BUFFER_*, and our SNDHWM_BYTES and RCVHWM_BYTES
        4 | 22 | 85..=87 | 0x57_0001 | 0x57_0002 => Kind::Int64,
        // What is not known is taken for the most frequent kind, and refused by the core.
        _ => Kind::Int,
    }
}

fn integer<'a, 'py>(value: &'a Bound<'py, PyAny>) -> PyResult<&'a Bound<'py, PyInt>> {
    match value.cast::<PyInt>() {
        Ok(value) => Ok(value),
        Err(_) => Err(PyTypeError::new_err(format!("expected int, got: {}", value.repr()?))),
    }
}

/// Gives an option's value to `set` in the bytes that the core wants.
pub(crate) fn encode<R>(option: i32, value: &Bound<'_, PyAny>, set: impl FnOnce(&[u8]) -> R) -> PyResult<R> {
    if value.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err(
            "an option takes bytes, not str: encode it, or use setsockopt_string",
        ));
    }
    match kind(option) {
        Kind::Bytes => match value.cast::<PyBytes>() {
            Ok(bytes) => Ok(set(bytes.as_bytes())),
            Err(_) => Err(PyTypeError::new_err(format!("expected bytes, got: {}", value.repr()?))),
        },
        Kind::Int64 => {
            let value = integer(value)?;
            // AFFINITY is a set of 64 bits: what does not fit with a sign fits without.
            let bytes = match value.extract::<i64>() {
                Ok(value) => value.to_ne_bytes(),
                Err(_) => value.extract::<u64>()?.to_ne_bytes(),
            };
            Ok(set(&bytes))
        }
        Kind::Int => Ok(set(&integer(value)?.extract::<i32>()?.to_ne_bytes())),
    }
}

/// Makes a Python value of what the core gave.
pub(crate) fn decode<'py>(py: Python<'py>, option: i32, value: Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Int(value) => value.into_pyobject(py)?.into_any(),
        Value::Int64(value) => value.into_pyobject(py)?.into_any(),
        Value::Uint64(value) => value.into_pyobject(py)?.into_any(),
        Value::Bytes(bytes) => {
            let text = match bytes.as_slice() {
                [text @ .., 0] if option != ROUTING_ID => text,
                bytes => bytes,
            };
            PyBytes::new(py, text).into_any()
        }
    })
}
