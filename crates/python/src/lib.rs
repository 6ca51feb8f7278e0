//! The one extension module of the Python package.

use pyo3::prelude::*;

/// The engine, for the main interpreter.
#[pymodule]
fn _core(_module: &Bound<'_, PyModule>) -> PyResult<()> {
    Ok(())
}
