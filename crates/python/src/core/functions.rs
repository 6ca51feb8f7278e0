//! The functions that a pool has shipped: by identity first, by their pickle second.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use pyo3::prelude::*;
use pyo3::pyclass::{PyTraverseError, PyVisit};
use pyo3::types::PyBytes;
use windlass_pool::{Engine, Function};

use super::encode;
use crate::lending::{self, Loans};

/// Beyond this many entries the table starts afresh: it keeps every function in it alive.
const MOST: usize = 1024;

struct Known {
    /// Keeps the address from being used again.
    _object: Py<PyAny>,
    function: Arc<Function>,
    /// What the pickle depended on, for functions that were pickled by value; `None` for those shipped by name.
    fingerprint: Option<Py<PyAny>>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Functions {
    by_identity: Mutex<HashMap<usize, Known>>,
    by_pickle: Mutex<HashMap<Vec<u8>, Weak<Function>>>,
}

impl Functions {
    /// The shipped form of a callable.
    ///
    /// # Errors
    ///
    /// `EncodeError` when it can be shipped neither by name nor by value.
    pub(crate) fn get(&self, engine: &Engine, callable: &Bound<'_, PyAny>) -> PyResult<Arc<Function>> {
        let py = callable.py();
        let address = callable.as_ptr() as usize;
        let mut stale = None;
        {
            let known = self.by_identity.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(known) = known.get(&address) {
                match &known.fingerprint {
                    None => return Ok(Arc::clone(&known.function)),
                    Some(print) => stale = Some((print.clone_ref(py), Arc::clone(&known.function))),
                }
            }
        }
        let serialize = py.import("windlass._serialize")?;
        if let Some((print, function)) = stale
            && serialize.getattr("still_valid")?.call1((callable, print))?.is_truthy()?
        {
            return Ok(function);
        }
        lending::begin();
        let encoded = serialize.getattr("encode_function")?.call1((callable,));
        let handles = lending::take();
        let encoded = encoded?;
        let (stream, reusable, print): (Bound<'_, PyAny>, bool, Option<Py<PyAny>>) = encoded.extract()?;
        let stream = stream.cast::<PyBytes>()?.as_bytes();
        let function = self.by_stream(py, engine, stream, handles)?;
        if reusable {
            let mut known = self.by_identity.lock().unwrap_or_else(PoisonError::into_inner);
            let dropped = if known.len() >= MOST { std::mem::take(&mut *known) } else { HashMap::new() };
            let entry = Known {
                _object: callable.clone().unbind(),
                function: Arc::clone(&function),
                fingerprint: print,
            };
            let replaced = known.insert(address, entry);
            drop(known);
            // Dropping them may run arbitrary code: not under the lock.
            drop((dropped, replaced));
        }
        Ok(function)
    }

    /// Shows the collector what the table holds: to be called for one owner of it only.
    pub(crate) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        // Locked by no thread while the collector runs: nothing of the interpreter happens under the lock.
        let Ok(known) = self.by_identity.try_lock() else { return Ok(()) };
        known.values().try_for_each(|known| {
            visit.call(&known._object)?;
            visit.call(&known.fingerprint)
        })
    }

    /// Forgets every function: the pool is gone.
    pub(crate) fn clear(&self) {
        let known = std::mem::take(&mut *self.by_identity.lock().unwrap_or_else(PoisonError::into_inner));
        drop(known);
    }

    fn by_stream(
        &self,
        py: Python<'_>,
        engine: &Engine,
        stream: &[u8],
        handles: Loans,
    ) -> PyResult<Arc<Function>> {
        if let Some(function) =
            self.by_pickle.lock().unwrap_or_else(PoisonError::into_inner).get(stream).and_then(Weak::upgrade)
        {
            return Ok(function);
        }
        // A worker keeps what its functions refer to for as long as it keeps them.
        handles.lend_for_good();
        let function = engine.function(encode::place(py, engine, stream, &[], handles)?);
        let mut known = self.by_pickle.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.retain(|_, function| function.strong_count() > 0);
        }
        known.insert(stream.to_vec(), Arc::downgrade(&function));
        Ok(function)
    }
}
