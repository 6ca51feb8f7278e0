//! Whether a list, a dict or another container is unchanged, with its whole content: compared by identity, without a
//! call into Python.
//!
//! A snapshot is possible where containers hold nothing but containers and values that cannot change. Of the values it
//! keeps the objects, so that nothing else gets their addresses. Of the containers it keeps the addresses only, for a
//! container that it kept alive might come to hold the function that the snapshot is for. If another one takes its
//! place in memory, and has the same values in the same places, the pickle is the same.
//!
//! Containers are listed parents first. One that is as it was holds those after it that it held, so they are alive when
//! their turn comes, and nothing runs in between.

use std::collections::HashSet;
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::pyclass::{PyTraverseError, PyVisit};

/// Objects in one snapshot: each costs a pointer or two, and a comparison at each look.
const MOST: usize = 4 << 20;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    List,
    Tuple,
    Dict,
    Set,
}

struct Container {
    kind: Kind,
    address: usize,
    /// Addresses of what it holds, keys and values in turn; a set's in the order of its table.
    items: Box<[usize]>,
    /// The version of a dict when it was last seen to be as it was; 0 where there are none. Each change of any dict has
    /// a version of its own.
    version: AtomicU64,
}

/// See the module.
#[pyclass(frozen, module = "ropewalk._core")]
pub(crate) struct Snapshot {
    containers: Vec<Container>,
    values: Vec<Py<PyAny>>,
}

#[pymethods]
impl Snapshot {
    /// A snapshot of a container; `None` if something in it might change unseen.
    #[staticmethod]
    fn of(container: &Bound<'_, PyAny>) -> Option<Self> {
        // Without a global lock another thread may change a container while it is examined.
        if cfg!(Py_GIL_DISABLED) || kind_of(container.as_ptr()).is_none() {
            return None;
        }
        let py = container.py();
        let mut taken = Self { containers: Vec::new(), values: Vec::new() };
        let mut met = HashSet::from([container.as_ptr() as usize]);
        let mut todo = vec![container.as_ptr()];
        let mut count = 0;
        while let Some(object) = todo.pop() {
            let kind = kind_of(object)?;
            // SAFETY: a live object of this kind: each one is in a container that was live a moment ago, and nothing
            // has run since, for what is done here calls no Python and makes no object.
            let (items, version) = unsafe { (items_of(object, kind), version_of(object, kind)) };
            count += items.len();
            if count > MOST {
                return None;
            }
            for item in &items {
                let item = *item as *mut ffi::PyObject;
                if is_value(item) {
                    // SAFETY: as above.
                    taken.values.push(unsafe { Bound::from_borrowed_ptr(py, item) }.unbind());
                } else if kind == Kind::Set || kind_of(item).is_none() {
                    return None;
                } else if met.insert(item as usize) {
                    todo.push(item);
                }
            }
            let version = AtomicU64::new(version);
            taken.containers.push(Container { kind, address: object as usize, items, version });
        }
        Some(taken)
    }

    /// Whether this object is as it was.
    fn holds(&self, container: &Bound<'_, PyAny>) -> bool {
        let is_first =
            self.containers.first().is_some_and(|first| first.address == container.as_ptr() as usize);
        // SAFETY: the first is alive, and the module says why the others are.
        is_first && self.containers.iter().all(|container| unsafe { container.holds() })
    }

    fn __len__(&self) -> usize {
        self.values.len()
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // Nothing that these values could refer to is tracked; they are shown all the same.
        self.values.iter().try_for_each(|value| visit.call(value))
    }
}

impl Snapshot {
    pub(crate) fn is(&self, py: Python<'_>, value: *mut ffi::PyObject) -> bool {
        // SAFETY: a live object, or null, which the caller borrows.
        let value = unsafe { Bound::from_borrowed_ptr_or_opt(py, value) };
        value.is_some_and(|value| self.holds(&value))
    }
}

impl Container {
    /// Whether it has what it had.
    ///
    /// # Safety
    ///
    /// There is a live object at its address, and the thread has the interpreter's lock.
    unsafe fn holds(&self) -> bool {
        let object = self.address as *mut ffi::PyObject;
        if kind_of(object) != Some(self.kind) {
            return false;
        }
        // SAFETY: the caller's live object, which is of this kind.
        unsafe {
            match self.kind {
                Kind::List | Kind::Tuple => row(object, self.kind) == &*self.items,
                Kind::Dict => {
                    let version = version_of(object, self.kind);
                    if version != 0 && version == self.version.load(Ordering::Relaxed) {
                        return true;
                    }
                    let mut known = self.items.iter();
                    let same = ffi::PyDict_Size(object) as usize * 2 == self.items.len()
                        && each_of_dict(object, |item| known.next() == Some(&item));
                    if same {
                        self.version.store(version, Ordering::Relaxed);
                    }
                    same
                }
                Kind::Set => {
                    let mut known = self.items.iter();
                    ffi::PySet_Size(object) as usize == self.items.len()
                        && each_of_set(object, |item| known.next() == Some(&item))
                }
            }
        }
    }
}

fn kind_of(object: *mut ffi::PyObject) -> Option<Kind> {
    // SAFETY: a live object, says every caller; the types are the interpreter's own.
    unsafe {
        let kind = ffi::Py_TYPE(object);
        if kind == &raw mut ffi::PyList_Type {
            Some(Kind::List)
        } else if kind == &raw mut ffi::PyTuple_Type {
            Some(Kind::Tuple)
        } else if kind == &raw mut ffi::PyDict_Type {
            Some(Kind::Dict)
        } else if kind == &raw mut ffi::PySet_Type || kind == &raw mut ffi::PyFrozenSet_Type {
            Some(Kind::Set)
        } else {
            None
        }
    }
}

/// Whether nothing can change in this object.
fn is_value(object: *mut ffi::PyObject) -> bool {
    // SAFETY: a live object, says the caller; the types and singletons are the interpreter's own.
    unsafe {
        let kind = ffi::Py_TYPE(object);
        let values = [
            &raw mut ffi::PyUnicode_Type,
            &raw mut ffi::PyLong_Type,
            &raw mut ffi::PyFloat_Type,
            &raw mut ffi::PyBytes_Type,
            &raw mut ffi::PyBool_Type,
            &raw mut ffi::PyComplex_Type,
        ];
        values.contains(&kind)
            || [ffi::Py_None(), ffi::Py_Ellipsis(), ffi::Py_NotImplemented()].contains(&object)
    }
}

/// The addresses of what is in a container.
///
/// # Safety
///
/// A live object of this kind, and the interpreter's lock.
unsafe fn items_of(object: *mut ffi::PyObject, kind: Kind) -> Box<[usize]> {
    let mut items = Vec::new();
    let mut add = |item| {
        items.push(item);
        true
    };
    // SAFETY: the caller's.
    unsafe {
        match kind {
            Kind::List | Kind::Tuple => return row(object, kind).into(),
            Kind::Dict => each_of_dict(object, &mut add),
            Kind::Set => each_of_set(object, &mut add),
        };
    }
    items.into()
}

/// The items of a list or a tuple, valid while no other code runs.
///
/// # Safety
///
/// A live object of this kind, and the interpreter's lock.
unsafe fn row<'a>(object: *mut ffi::PyObject, kind: Kind) -> &'a [usize] {
    // SAFETY: a list has as many pointers at `ob_item` as its size says, a tuple has them in itself.
    unsafe {
        let length = usize::try_from(ffi::Py_SIZE(object)).unwrap_or(0);
        let first: *const *mut ffi::PyObject = if kind == Kind::List {
            (*object.cast::<ffi::PyListObject>()).ob_item
        } else {
            (&raw const (*object.cast::<ffi::PyTupleObject>()).ob_item).cast()
        };
        // A list without items has no place for them.
        if length == 0 { &[] } else { slice::from_raw_parts(first.cast(), length) }
    }
}

/// Calls with each key and each value of a dict until it says no; whether it never did.
///
/// # Safety
///
/// A live dict, and the interpreter's lock.
unsafe fn each_of_dict(dict: *mut ffi::PyObject, mut call: impl FnMut(usize) -> bool) -> bool {
    let (mut at, mut key, mut value) = (0, std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: the caller's.
    while unsafe { ffi::PyDict_Next(dict, &raw mut at, &raw mut key, &raw mut value) } != 0 {
        if !call(key as usize) || !call(value as usize) {
            return false;
        }
    }
    true
}

/// The same for a set's items.
///
/// # Safety
///
/// A live set or frozenset, and the interpreter's lock.
unsafe fn each_of_set(set: *mut ffi::PyObject, mut call: impl FnMut(usize) -> bool) -> bool {
    // SAFETY: every Python that we know has these fields in a set, and entries of a key and its hash: an entry without
    // an item has no key, and one that has lost its item has the hash -1, which no object has.
    unsafe {
        let set = set.cast::<ffi::PySetObject>();
        let entries = slice::from_raw_parts((*set).table, usize::try_from((*set).mask).unwrap_or(0) + 1);
        entries
            .iter()
            .filter(|entry| !entry.key.is_null() && entry.hash != -1)
            .all(|entry| call(entry.key as usize))
    }
}

/// The version of a dict; 0 for other kinds, and where dicts have none that can be relied on.
///
/// Up to 3.13 every change of a dict gives it a version, but for one kind of change: CPython 3.13 assigns an attribute
/// of an object to the values that the object's dict shares with it, and the dict keeps its version.
///
/// # Safety
///
/// A live object of this kind.
#[cfg_attr(Py_3_14, allow(unused_variables))]
unsafe fn version_of(object: *mut ffi::PyObject, kind: Kind) -> u64 {
    #[cfg(not(Py_3_14))]
    if kind == Kind::Dict {
        #[allow(deprecated)]
        // SAFETY: the caller's live dict.
        return unsafe {
            let dict = object.cast::<ffi::PyDictObject>();
            if (*dict).ma_values.is_null() { (*dict).ma_version_tag } else { 0 }
        };
    }
    0
}
