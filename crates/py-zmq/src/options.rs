//! Socket options: which type of Python's goes with which number.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyString};
use ropewalk_messaging::options::{ValueType, value_type};
use ropewalk_messaging::{Value, option};

fn integer<'a, 'py>(value: &'a Bound<'py, PyAny>) -> PyResult<&'a Bound<'py, PyInt>> {
    match value.cast::<PyInt>() {
        Ok(value) => Ok(value),
        Err(_) => Err(PyTypeError::new_err(format!("expected int, got: {}", value.repr()?))),
    }
}

/// Gives an option's value to `set` in the bytes that the core wants.
pub(crate) fn encode<R>(number: i32, value: &Bound<'_, PyAny>, set: impl FnOnce(&[u8]) -> R) -> PyResult<R> {
    if value.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err(
            "an option takes bytes, not str: encode it, or use setsockopt_string",
        ));
    }
    // What is not known is taken for the most frequent type, and refused by the core.
    match value_type(number).unwrap_or(ValueType::Int) {
        ValueType::Bytes => match value.cast::<PyBytes>() {
            Ok(bytes) => Ok(set(bytes.as_bytes())),
            Err(_) => Err(PyTypeError::new_err(format!("expected bytes, got: {}", value.repr()?))),
        },
        ValueType::Int64 => {
            let value = integer(value)?;
            // AFFINITY is a set of 64 bits: what does not fit with a sign fits without.
            let bytes = match value.extract::<i64>() {
                Ok(value) => value.to_ne_bytes(),
                Err(_) => value.extract::<u64>()?.to_ne_bytes(),
            };
            Ok(set(&bytes))
        }
        ValueType::Int | ValueType::Descriptor => Ok(set(&integer(value)?.extract::<i32>()?.to_ne_bytes())),
    }
}

/// Makes a Python value of what the core gave.
pub(crate) fn decode<'py>(py: Python<'py>, number: i32, value: Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Int(value) => value.into_pyobject(py)?.into_any(),
        Value::Int64(value) => value.into_pyobject(py)?.into_any(),
        Value::Uint64(value) => value.into_pyobject(py)?.into_any(),
        Value::Bytes(bytes) => {
            let text = match bytes.as_slice() {
                // Of text, the final zero of a C string is no part; a routing id may end with any byte.
                [text @ .., 0] if number != option::ROUTING_ID => text,
                bytes => bytes,
            };
            PyBytes::new(py, text).into_any()
        }
    })
}
