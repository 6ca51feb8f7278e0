//! The values of a batch, until they are taken: the only per-input work of a map.

use std::vec::IntoIter;

use pyo3::prelude::*;
use pyo3::pyclass::{PyTraverseError, PyVisit};

use ropewalk_capi::guarded::Guarded;

/// See the module. Where there is an interpreter lock, this takes no other.
#[derive(Default)]
pub(super) struct Laid(Guarded<Batch>);

#[derive(Default)]
struct Batch {
    values: IntoIter<Py<PyAny>>,
    /// Whether the values are pairs `(ok, value or error)`.
    mixed: bool,
}

impl Laid {
    /// Takes a batch in; gives what was left of the one before, to be dropped.
    pub(super) fn put(&self, _py: Python<'_>, values: Vec<Py<PyAny>>, mixed: bool) -> IntoIter<Py<PyAny>> {
        let fresh = Batch { values: values.into_iter(), mixed };
        // SAFETY: attached; what was there leaves the guard whole.
        std::mem::replace(&mut *unsafe { self.0.lock() }, fresh).values
    }

    /// The next value, unless it is a pair.
    pub(super) fn plain(&self, _py: Python<'_>) -> Option<Py<PyAny>> {
        // SAFETY: attached, and a reference is moved.
        let mut batch = unsafe { self.0.lock() };
        if batch.mixed { None } else { batch.values.next() }
    }

    /// The next value, and whether it is a pair.
    pub(super) fn next(&self, _py: Python<'_>) -> Option<(Py<PyAny>, bool)> {
        // SAFETY: attached, and a reference is moved.
        let mut batch = unsafe { self.0.lock() };
        let mixed = batch.mixed;
        batch.values.next().map(|value| (value, mixed))
    }

    /// How many values are left.
    pub(super) fn len(&self, _py: Python<'_>) -> usize {
        // SAFETY: attached, and a number is read.
        unsafe { self.0.lock() }.values.len()
    }

    /// Shows what is left to the garbage collector.
    pub(super) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        // SAFETY: the collector's threads alone run; see `in_collection`.
        let batch = unsafe { &*self.0.in_collection() };
        batch.values.as_slice().iter().try_for_each(|value| visit.call(value))
    }
}
