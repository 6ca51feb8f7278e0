//! The functions that a pool has shipped: by identity first, by their pickle second.
//!
//! Nothing here keeps a function alive. With its last reference in the program its entry is dropped, and with the last
//! task that names it the workers forget it too.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

use pyo3::prelude::*;
use pyo3::pyclass::{PyTraverseError, PyVisit};
use pyo3::types::{PyBytes, PyCFunction, PyList, PyTuple, PyWeakrefMethods, PyWeakrefReference};
use ropewalk_pool::{Engine, Function};
use ropewalk_sync::Mutex;

use super::checks::Checks;
use super::encode;
use ropewalk_pool::codec::Loans;
use ropewalk_pool::codec::loans as lending;

/// Functions that are known by identity at once: each costs its pickle here, and itself in each worker.
const MOST: usize = 1024;
/// Bytes that their pickles may have together; the newest may have more alone.
const MOST_BYTES: usize = 256 << 20;
/// Dead functions are removed from those known by their pickle when there are this many more than were alive.
const SPARE: usize = 256;

/// A function as `ropewalk.pool.wire._functions.encode` gives it: stream, buffers, key, and what its pickle depends on.
type Encoded<'py> = (Bound<'py, PyBytes>, Vec<Py<PyAny>>, Vec<u8>, Option<Bound<'py, PyTuple>>);

struct Known {
    object: Kept,
    function: Arc<Function>,
    /// What the pickle depends on, for functions that were pickled by value; `None` for those shipped by name.
    checks: Option<Py<Checks>>,
    bytes: usize,
    /// Higher is newer.
    age: u64,
}

/// Keeps an entry from being mistaken for that of another object at the same address.
enum Kept {
    Weakly(Py<PyWeakrefReference>),
    /// Methods of built-in classes and the like, which cannot be referred to weakly, and are there for good.
    Always(Py<PyAny>),
}

#[derive(Default)]
struct Table {
    /// By address. Mostly few, which are found without a hash.
    entries: BTreeMap<usize, Arc<Known>>,
    bytes: usize,
    age: u64,
}

impl Table {
    fn remove(&mut self, address: usize) -> Option<Arc<Known>> {
        let known = self.entries.remove(&address)?;
        self.bytes -= known.bytes;
        Some(known)
    }

    /// Adds an entry; gives what had to go.
    fn insert(&mut self, address: usize, mut known: Known) -> Vec<Arc<Known>> {
        let mut gone: Vec<_> = self.remove(address).into_iter().collect();
        while self.entries.len() >= MOST
            || (self.bytes + known.bytes > MOST_BYTES && !self.entries.is_empty())
        {
            let oldest = self.entries.iter().min_by_key(|(_, known)| known.age).map(|(address, _)| *address);
            gone.extend(oldest.and_then(|oldest| self.remove(oldest)));
        }
        self.age += 1;
        known.age = self.age;
        self.bytes += known.bytes;
        self.entries.insert(address, Arc::new(known));
        gone
    }
}

#[derive(Default)]
struct ByPickle {
    entries: HashMap<Vec<u8>, Weak<Function>>,
    /// How many were alive at the last removal.
    alive: usize,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Functions {
    by_identity: Arc<Mutex<Table>>,
    by_pickle: Mutex<ByPickle>,
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
        let known = {
            let table = self.by_identity.lock();
            table.entries.get(&address).map(Arc::clone)
        };
        // Outside of the lock: the checks use objects of the program, and this may drop the entry.
        if let Some(known) = known
            && known.is(callable)
            && known.checks.as_ref().is_none_or(|checks| checks.get().hold(py))
        {
            return Ok(Arc::clone(&known.function));
        }
        let encode = py.import("ropewalk.pool.wire._functions")?.getattr("encode")?;
        let (encoded, handles) = lending::during(|| encode.call1((callable,)));
        let (stream, buffers, key, watched) = encoded?.extract::<Encoded<'_>>()?;
        let function = self.by_pickle(callable, engine, stream.as_bytes(), buffers, key, handles)?;
        if let Some(watched) = watched {
            let by_name = watched.is_empty();
            let checks = if by_name {
                None
            } else {
                let (functions, classes): (Bound<'_, PyList>, Bound<'_, PyList>) = watched.extract()?;
                Some(Py::new(py, Checks::new(&functions, &classes)?)?)
            };
            if let Some(object) = self.keep(callable, address, by_name)? {
                let bytes = function.size();
                let known = Known { object, function: Arc::clone(&function), checks, bytes, age: 0 };
                let mut table = self.by_identity.lock();
                let gone = table.insert(address, known);
                drop(table);
                // Dropping them may run arbitrary code: not under the lock.
                drop(gone);
            }
        }
        Ok(function)
    }

    /// Shows the collector what the table holds: to be called for one owner of it only.
    pub(crate) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        // No thread holds the lock while the collector runs: no Python code runs under it.
        let Some(table) = self.by_identity.try_lock() else { return Ok(()) };
        table.entries.values().try_for_each(|known| {
            visit.call(&known.checks)?;
            match &known.object {
                Kept::Weakly(weak) => visit.call(weak),
                Kept::Always(object) => visit.call(object),
            }
        })
    }

    /// Forgets every function: the pool is gone.
    pub(crate) fn clear(&self) {
        let table = std::mem::take(&mut *self.by_identity.lock());
        drop(table);
    }

    fn keep(&self, callable: &Bound<'_, PyAny>, address: usize, by_name: bool) -> PyResult<Option<Kept>> {
        let table = Arc::downgrade(&self.by_identity);
        let forget = PyCFunction::new_closure(callable.py(), None, None, move |_args, _kwargs| {
            if let Some(table) = table.upgrade() {
                let gone = table.lock().remove(address);
                drop(gone);
            }
        })?;
        match PyWeakrefReference::new_with(callable, forget) {
            Ok(weak) => Ok(Some(Kept::Weakly(weak.unbind()))),
            Err(_) if by_name => Ok(Some(Kept::Always(callable.clone().unbind()))),
            Err(_) => Ok(None),
        }
    }

    fn by_pickle(
        &self,
        callable: &Bound<'_, PyAny>,
        engine: &Engine,
        stream: &[u8],
        buffers: Vec<Py<PyAny>>,
        key: Vec<u8>,
        handles: Loans,
    ) -> PyResult<Arc<Function>> {
        let found = {
            let known = self.by_pickle.lock();
            known.entries.get(&key).and_then(Weak::upgrade)
        };
        if let Some(function) = found {
            return Ok(function);
        }
        // A worker keeps what its functions refer to for as long as it keeps them.
        handles.lend_for_good();
        let py = callable.py();
        // Read now: a task that kills its worker may have done so by how its function is unpickled.
        let name = py.import("ropewalk.pool.wire._functions")?.getattr("name_of")?.call1((callable,))?;
        let buffers: Vec<_> =
            buffers.into_iter().map(|buffer| encode::owned(buffer.into_bound(py))).collect();
        let payload = encode::place(py, engine, stream, &buffers, handles)?;
        let function = engine.function(name.extract()?, payload);
        let mut known = self.by_pickle.lock();
        if known.entries.len() >= known.alive + SPARE {
            known.entries.retain(|_, function| function.strong_count() > 0);
            known.alive = known.entries.len();
        }
        known.entries.insert(key, Arc::downgrade(&function));
        Ok(function)
    }
}

impl Known {
    fn is(&self, callable: &Bound<'_, PyAny>) -> bool {
        match &self.object {
            Kept::Weakly(weak) => weak.bind(callable.py()).upgrade().is_some_and(|there| there.is(callable)),
            Kept::Always(object) => object.is(callable),
        }
    }
}
