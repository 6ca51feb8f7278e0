//! Socket options: the Python type for each number.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyString};
use ropewalk_messaging::options::{ValueType, value_type};
use ropewalk_messaging::{Value, option};

fn integer<'a, 'py>(value: &'a Bound<'py, PyAny>) -> PyResult<&'a Bound<'py, PyInt>> {
    match value.cast::<PyInt>() {
        Ok(value) => Ok(value),
        Err(_) => Err(PyTypeError::new_err(format!("the option takes an int, not {}", value.repr()?))),
    }
}

/// Passes an option's value to `set` as the bytes that the core expects.
pub(crate) fn encode<R>(number: i32, value: &Bound<'_, PyAny>, set: impl FnOnce(&[u8]) -> R) -> PyResult<R> {
    // An unknown option counts as the most frequent type; the core refuses it.
    match value_type(number).unwrap_or(ValueType::Int) {
        ValueType::Bytes => match value.cast::<PyBytes>() {
            Ok(bytes) => Ok(set(bytes.as_bytes())),
            Err(_) if value.is_instance_of::<PyString>() => Err(PyTypeError::new_err(
                "the option takes bytes, not str: encode it, or use setsockopt_string",
            )),
            Err(_) => Err(PyTypeError::new_err(format!("the option takes bytes, not {}", value.repr()?))),
        },
        ValueType::Int64 => {
            let value = integer(value)?;
            // AFFINITY is a set of 64 bits: a value that does not fit a signed number fits an unsigned one.
            let bytes = match value.extract::<i64>() {
                Ok(value) => value.to_ne_bytes(),
                Err(_) => value.extract::<u64>()?.to_ne_bytes(),
            };
            Ok(set(&bytes))
        }
        ValueType::Int | ValueType::Descriptor => Ok(set(&integer(value)?.extract::<i32>()?.to_ne_bytes())),
    }
}

/// Makes a Python value of the core's bytes.
pub(crate) fn decode<'py>(py: Python<'py>, number: i32, value: Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Int(value) => value.into_pyobject(py)?.into_any(),
        Value::Int64(value) => value.into_pyobject(py)?.into_any(),
        Value::Uint64(value) => value.into_pyobject(py)?.into_any(),
        Value::Bytes(bytes) => {
            let text = match bytes.as_slice() {
                // The final zero byte of a C string is no part of the text; a routing id may end with any byte.
                [text @ .., 0] if number != option::ROUTING_ID => text,
                bytes => bytes,
            };
            PyBytes::new(py, text).into_any()
        }
    })
}
