//! A pool as a server in this process uses it, without the interpreter: its engine, and its functions by number.

use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use ropewalk_pool::{Engine, Function, Reply};

use super::pool::{PoolBase, PoolInner};
use super::{decode, errors};

/// See the module.
pub struct Served(Arc<PoolInner>);

impl Served {
    /// The pool of this object, with its workers on their way.
    ///
    /// # Errors
    ///
    /// When it is no pool, its workers are threads of this process, or they cannot be started.
    pub fn of(pool: &Bound<'_, PyAny>) -> PyResult<Self> {
        let Ok(base) = pool.cast::<PoolBase>() else {
            return Err(PyTypeError::new_err("a server runs tools on a ropewalk.Pool"));
        };
        let inner = base.get().inner()?;
        if !inner.engine.capabilities().encodes {
            let text =
                "a server's tools run in worker processes or interpreters: make its pools of such a kind";
            return Err(PyTypeError::new_err(text));
        }
        inner.engine.call(pool.py(), Engine::awaken).map_err(|error| errors::from_base(pool.py(), &error))?;
        Ok(Self(Arc::clone(inner)))
    }

    /// The pool's engine.
    pub fn engine(&self) -> Engine {
        self.0.engine.for_encoding().clone()
    }

    /// The shipped form of a callable.
    ///
    /// # Errors
    ///
    /// `EncodeError` when it can be shipped neither by name nor by value.
    pub fn ship(&self, callable: &Bound<'_, PyAny>) -> PyResult<Arc<Function>> {
        self.0.functions.get(self.0.engine.for_encoding(), callable)
    }
}

/// The exception of a reply that is one.
///
/// # Errors
///
/// When it cannot be decoded.
pub fn exception<'py>(py: Python<'py>, reply: &Reply) -> PyResult<Bound<'py, PyAny>> {
    decode::decode_error(py, reply)
}
