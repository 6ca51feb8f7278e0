//! Which pool runs a call: a pool whose workers cannot load every function may have another pool behind it.
//!
//! Python's side decides (`pool.parent._fallback`): once for each function, and for arguments that are not plain. Here
//! is what keeps it off the way of calls that are known to be at home.

use std::collections::HashSet;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::pyclass::{PyTraverseError, PyVisit};
use pyo3::types::{PyBytes, PyDict, PyIterator, PyList, PyTuple};
use ropewalk_pool::Options;
use ropewalk_sync::Mutex;

use super::functions::Functions;
use super::pool::{PoolBase, PoolInner};
use super::slot::Slot;
use crate::constants;

/// Functions that are known to be at home; beyond so many they are asked about again.
const MOST: usize = 4096;

/// See the module.
pub(crate) struct Placing {
    /// Called with a function, its number, arguments that are not plain, and whether the call stays here; gives the
    /// pool to run the call, or `None` for this one.
    choose: Slot<Option<Py<PyAny>>>,
    /// The numbers of functions that this pool's workers can load.
    at_home: Mutex<HashSet<u32>>,
}

impl Placing {
    pub(crate) fn new(choose: Py<PyAny>) -> Self {
        Self { choose: Slot::new(Some(choose)), at_home: Mutex::default() }
    }

    /// Shows the collector what it holds: to be called for one owner of it only.
    pub(crate) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.choose.visit(|choose| visit.call(choose))
    }

    /// Places every call at home from now on.
    pub(crate) fn clear(&self) {
        drop(self.choose.take());
    }
}

/// Items of a container that are looked at here, and containers within each other; the rest is Python's to look at.
const MOST_ITEMS: usize = 16;
const DEEPEST: u32 = 3;

/// Whether a value is one of the language's own, as far as is looked.
fn is_plain(value: &Bound<'_, PyAny>, deepest: u32) -> bool {
    // SAFETY: a live object, and an attached thread.
    if unsafe { constants::is_constant(value.as_ptr()) } || value.is_exact_instance_of::<PyBytes>() {
        return true;
    }
    let Some(deeper) = deepest.checked_sub(1) else { return false };
    let all = |length: usize, item: &dyn Fn(usize) -> PyResult<bool>| {
        // Another thread may have made it shorter.
        (0..length.min(MOST_ITEMS)).all(|at| item(at).unwrap_or(true))
    };
    if let Ok(list) = value.cast_exact::<PyList>() {
        return all(list.len(), &|at| Ok(is_plain(&list.get_item(at)?, deeper)));
    }
    if let Ok(tuple) = value.cast_exact::<PyTuple>() {
        return all(tuple.len(), &|at| Ok(is_plain(&tuple.get_item(at)?, deeper)));
    }
    match value.cast_exact::<PyDict>() {
        Ok(dict) if dict.len() <= MOST_ITEMS => {
            is_plain(dict.values().as_any(), deepest) && is_plain(dict.keys().as_any(), deepest)
        }
        _ => false,
    }
}

/// The arguments of a call that Python has to look at.
fn other<'py>(args: &Bound<'py, PyTuple>, kwargs: Option<&Bound<'py, PyDict>>) -> Vec<Bound<'py, PyAny>> {
    let named = kwargs.map(|kwargs| kwargs.values());
    let all = args.iter().chain(named.iter().flatten());
    all.filter(|value| !is_plain(value, DEEPEST)).collect()
}

/// The pool that runs a call in place of this one, if another does; without arguments, one that can load the function.
///
/// # Errors
///
/// What the start of the other pool raises; and `FunctionLoadError`, if the call needs the state of a session and this
/// pool's workers cannot load the rest.
pub(crate) fn place<'py>(
    inner: &Arc<PoolInner>,
    callable: &Bound<'py, PyAny>,
    arguments: Option<(&Bound<'py, PyTuple>, Option<&Bound<'py, PyDict>>)>,
    options: &Options,
) -> PyResult<Option<Arc<PoolInner>>> {
    let Some(placing) = &inner.placing else { return Ok(None) };
    // Its state is here.
    let stays = options.session.is_some();
    let py = callable.py();
    let Some(choose) = placing.choose.shared(py) else { return Ok(None) };
    // What cannot be sent fails where it is submitted.
    let Ok(function) = Functions::get(&inner.functions, inner.engine.for_encoding(), callable) else {
        return Ok(None);
    };
    let number = function.id();
    let values = arguments.map_or_else(Vec::new, |(args, kwargs)| other(args, kwargs));
    if values.is_empty() && placing.at_home.lock().contains(&number) {
        return Ok(None);
    }
    let chosen = choose.bind(py).call1((callable, number, PyList::new(py, values)?, stays))?;
    if chosen.is_none() {
        let mut at_home = placing.at_home.lock();
        if at_home.len() >= MOST {
            at_home.clear();
        }
        at_home.insert(number);
        return Ok(None);
    }
    Ok(Some(Arc::clone(chosen.cast::<PoolBase>()?.get().inner()?)))
}

/// The same for a map, by its first input; gives back the inputs.
///
/// # Errors
///
/// As [`place`], and what the first input raises.
pub(crate) fn place_map<'py>(
    inner: &Arc<PoolInner>,
    callable: &Bound<'py, PyAny>,
    mut source: Bound<'py, PyIterator>,
    star: bool,
    options: &Options,
) -> PyResult<(Option<Arc<PoolInner>>, Bound<'py, PyIterator>)> {
    if inner.placing.is_none() {
        return Ok((None, source));
    }
    let py = callable.py();
    let Some(first) = source.next() else { return Ok((place(inner, callable, None, options)?, source)) };
    let first = first?;
    let args = match first.cast_exact::<PyTuple>() {
        Ok(args) if star => args.clone(),
        _ => PyTuple::new(py, [&first])?,
    };
    let placed = place(inner, callable, Some((&args, None)), options)?;
    let chain = py.import("itertools")?.getattr("chain")?;
    let whole = chain.call1((PyTuple::new(py, [first])?, source))?;
    Ok((placed, whole.cast_into::<PyIterator>()?))
}
