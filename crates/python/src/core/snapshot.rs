//! Whether a list, a dict or the like is as it was, with all that is in it: compared by identity, without a call into
//! Python.
//!
//! A snapshot is possible where containers hold nothing but containers and values that cannot change. Of the values it
//! keeps the objects, so that nothing else gets their addresses. Of the containers it keeps the addresses only, for a
//! container that it kept alive might come to hold the function that the snapshot is for. If another one takes its
//! place in memory, and has the same values in the same places, the pickle is the same.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::pyclass::{PyTraverseError, PyVisit};

/// Objects in one snapshot: each costs a pointer, and a comparison at each look.
const MOST: usize = 4 << 20;
/// How deep containers may stand in one another.
const DEPTH: u32 = 64;

/// One object, in the order in which they are met.
enum Node {
    Value(Py<PyAny>),
    /// A container, by its address, and how many items it has; what it holds comes next.
    Container(usize, usize),
    /// A container that was met before.
    Again(usize),
}

/// See the module.
#[pyclass(frozen, module = "windlass._core")]
pub(crate) struct Snapshot {
    nodes: Vec<Node>,
}

#[pymethods]
impl Snapshot {
    /// A snapshot of a container; `None` if something in it might change unseen.
    #[staticmethod]
    fn of(container: &Bound<'_, PyAny>) -> Option<Self> {
        let mut taken = Taking::default();
        walk(container, DEPTH, &mut taken)?;
        Some(Self { nodes: taken.nodes })
    }

    /// Whether this object is as it was.
    fn holds(&self, container: &Bound<'_, PyAny>) -> bool {
        let mut compared = Comparing { nodes: &self.nodes, at: 0 };
        walk(container, DEPTH, &mut compared).is_some() && compared.at == self.nodes.len()
    }

    fn __len__(&self) -> usize {
        self.nodes.len()
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // Nothing that these values could refer to is tracked; they are shown all the same.
        self.nodes.iter().try_for_each(|node| match node {
            Node::Value(value) => visit.call(value),
            Node::Container(..) | Node::Again(_) => Ok(()),
        })
    }
}

impl Snapshot {
    pub(crate) fn is(&self, py: Python<'_>, value: *mut ffi::PyObject) -> bool {
        // SAFETY: a live object, or null, which the caller borrows.
        let value = unsafe { Bound::from_borrowed_ptr_or_opt(py, value) };
        value.is_some_and(|value| self.holds(&value))
    }
}

/// What is done with each object that a walk meets; `None` ends it.
trait Visitor {
    fn value(&mut self, value: &Bound<'_, PyAny>) -> Option<()>;
    /// Says whether to look into it.
    fn container(&mut self, address: usize, length: usize) -> Option<bool>;
}

#[derive(Default)]
struct Taking {
    nodes: Vec<Node>,
    met: std::collections::HashSet<usize>,
}

impl Taking {
    fn push(&mut self, node: Node) -> Option<()> {
        if self.nodes.len() >= MOST {
            return None;
        }
        self.nodes.push(node);
        Some(())
    }
}

impl Visitor for Taking {
    fn value(&mut self, value: &Bound<'_, PyAny>) -> Option<()> {
        self.push(Node::Value(value.clone().unbind()))
    }

    fn container(&mut self, address: usize, length: usize) -> Option<bool> {
        let fresh = self.met.insert(address);
        self.push(if fresh { Node::Container(address, length) } else { Node::Again(address) })?;
        Some(fresh)
    }
}

struct Comparing<'a> {
    nodes: &'a [Node],
    at: usize,
}

impl Comparing<'_> {
    fn next(&mut self) -> Option<&Node> {
        let node = self.nodes.get(self.at);
        self.at += 1;
        node
    }
}

impl Visitor for Comparing<'_> {
    fn value(&mut self, value: &Bound<'_, PyAny>) -> Option<()> {
        matches!(self.next()?, Node::Value(known) if known.as_ptr() == value.as_ptr()).then_some(())
    }

    fn container(&mut self, address: usize, length: usize) -> Option<bool> {
        match *self.next()? {
            Node::Container(known, count) => (known == address && count == length).then_some(true),
            Node::Again(known) => (known == address).then_some(false),
            Node::Value(_) => None,
        }
    }
}

/// Whether nothing can change in objects of this type.
fn is_value(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: a live object; the types and singletons are the interpreter's own.
    unsafe {
        let kind = ffi::Py_TYPE(object.as_ptr());
        let values = [
            &raw mut ffi::PyUnicode_Type,
            &raw mut ffi::PyLong_Type,
            &raw mut ffi::PyFloat_Type,
            &raw mut ffi::PyBytes_Type,
            &raw mut ffi::PyBool_Type,
            &raw mut ffi::PyComplex_Type,
        ];
        values.contains(&kind)
            || [ffi::Py_None(), ffi::Py_Ellipsis(), ffi::Py_NotImplemented()].contains(&object.as_ptr())
    }
}

/// Shows an object, and what is in it, to the visitor. `None` if it ends the walk, or something may change unseen.
///
/// Without a global lock another thread may change a container meanwhile: there nothing is looked into.
fn walk(object: &Bound<'_, PyAny>, depth: u32, visitor: &mut impl Visitor) -> Option<()> {
    use pyo3::types::{PyDict, PyFrozenSet, PyList, PySet, PyTuple};

    if is_value(object) {
        return visitor.value(object);
    }
    if depth == 0 || cfg!(Py_GIL_DISABLED) {
        return None;
    }
    let address = object.as_ptr() as usize;
    if let Ok(list) = object.cast_exact::<PyList>() {
        if visitor.container(address, list.len())? {
            list.iter().try_for_each(|item| walk(&item, depth - 1, visitor))?;
        }
    } else if let Ok(tuple) = object.cast_exact::<PyTuple>() {
        if visitor.container(address, tuple.len())? {
            tuple.iter().try_for_each(|item| walk(&item, depth - 1, visitor))?;
        }
    } else if let Ok(dict) = object.cast_exact::<PyDict>() {
        let length = dict.len();
        if visitor.container(address, length)? {
            let (mut at, mut count) = (0, 0);
            loop {
                let (mut key, mut value) = (std::ptr::null_mut(), std::ptr::null_mut());
                // SAFETY: a live dict, which may even change between two calls: each looks at what is there then. Key
                // and value are borrowed from it, and get references of our own before anything else happens.
                let (key, value) = unsafe {
                    if ffi::PyDict_Next(dict.as_ptr(), &raw mut at, &raw mut key, &raw mut value) == 0 {
                        break;
                    }
                    let py = dict.py();
                    (Bound::from_borrowed_ptr(py, key), Bound::from_borrowed_ptr(py, value))
                };
                count += 1;
                walk(&key, depth - 1, visitor)?;
                walk(&value, depth - 1, visitor)?;
            }
            return (count == length).then_some(());
        }
    } else if object.cast_exact::<PySet>().is_ok() || object.cast_exact::<PyFrozenSet>().is_ok() {
        if visitor.container(address, object.len().ok()?)? {
            for item in object.try_iter().ok()? {
                walk(&item.ok()?, depth - 1, visitor)?;
            }
        }
    } else {
        return None;
    }
    Some(())
}
