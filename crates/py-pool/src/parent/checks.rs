//! Whether the pickle of a function is still valid: its dependencies are compared by identity, without a call into
//! Python.
//!
//! `pool.wire._watch` lists the dependencies. Functions, classes and modules are held weakly, or a function that refers
//! to itself would never be freed; all other objects held here refer to nothing.

use pyo3::ffi;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple, PyWeakrefMethods, PyWeakrefReference};

use super::snapshot::Snapshot;

unsafe extern "C" {
    /// The content of a cell, a new reference, or null: pyo3 does not declare it.
    fn PyCell_Get(cell: *mut ffi::PyObject) -> *mut ffi::PyObject;
    /// Looks up a name in a class and its bases; borrowed, or null. Exported by 3.11 to 3.14.
    fn _PyType_Lookup(class: *mut ffi::PyTypeObject, name: *mut ffi::PyObject) -> *mut ffi::PyObject;
}

/// The recorded identity of a value.
enum Seen {
    /// A name without a value.
    Absent,
    /// An immutable object, kept so that no other object gets its address.
    Itself(Py<PyAny>),
    Weakly(Py<PyWeakrefReference>),
    /// A container, with its whole content.
    Whole(Py<Snapshot>),
}

impl Seen {
    fn from(listed: &Bound<'_, PyAny>) -> PyResult<Self> {
        if listed.is_none() {
            return Ok(Self::Absent);
        }
        let (weak, value): (bool, Bound<'_, PyAny>) = listed.extract()?;
        if let Ok(snapshot) = value.cast::<Snapshot>() {
            return Ok(Self::Whole(snapshot.clone().unbind()));
        }
        if weak { Ok(Self::Weakly(value.cast_into()?.unbind())) } else { Ok(Self::Itself(value.unbind())) }
    }

    fn all(listed: &Bound<'_, PyAny>) -> PyResult<Vec<Self>> {
        listed.cast::<PyList>()?.iter().map(|one| Self::from(&one)).collect()
    }

    fn is(&self, py: Python<'_>, value: *mut ffi::PyObject) -> bool {
        match self {
            Self::Absent => value.is_null(),
            Self::Itself(known) => known.as_ptr() == value,
            Self::Weakly(known) => known.bind(py).upgrade().is_some_and(|known| known.as_ptr() == value),
            Self::Whole(known) => known.get().is(py, value),
        }
    }

    fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self {
            Self::Absent => Ok(()),
            Self::Itself(value) => visit.call(value),
            Self::Weakly(value) => visit.call(value),
            Self::Whole(value) => visit.call(value),
        }
    }
}

type Names = Vec<(Py<PyString>, Seen)>;

fn names(listed: &Bound<'_, PyAny>) -> PyResult<Names> {
    let mut names = Names::new();
    for item in listed.cast::<PyList>()? {
        let (name, seen): (Bound<'_, PyString>, Bound<'_, PyAny>) = item.extract()?;
        names.push((name.unbind(), Seen::from(&seen)?));
    }
    Ok(names)
}

/// The dependencies of one function.
struct Function {
    function: Py<PyWeakrefReference>,
    code: Py<PyAny>,
    defaults: Option<Vec<Seen>>,
    keywords: Option<Names>,
    attributes: Names,
    cells: Vec<Seen>,
    globals: Names,
}

impl Function {
    fn from(listed: &Bound<'_, PyAny>) -> PyResult<Self> {
        let listed = listed.cast::<PyTuple>()?;
        let part = |at| listed.get_item(at);
        let (defaults, keywords) = (part(2)?, part(3)?);
        Ok(Self {
            function: part(0)?.cast_into()?.unbind(),
            code: part(1)?.unbind(),
            defaults: if defaults.is_none() { None } else { Some(Seen::all(&defaults)?) },
            keywords: if keywords.is_none() { None } else { Some(names(&keywords)?) },
            attributes: names(&part(4)?)?,
            cells: Seen::all(&part(5)?)?,
            globals: names(&part(6)?)?,
        })
    }

    fn holds(&self, py: Python<'_>) -> bool {
        let Some(function) = self.function.bind(py).upgrade() else { return false };
        let function = function.as_ptr();
        // SAFETY: `pool.wire._watch` lists functions only, and this one is alive. The calls' results are borrowed from
        // it, and compared before other code runs; on the free-threaded build another thread may replace them
        // meanwhile, so `borrowed` takes its own reference to an examined object.
        unsafe {
            if !ffi::PyFunction_Check(function).is_positive()
                || ffi::PyFunction_GetCode(function) != self.code.as_ptr()
            {
                return false;
            }
            let attributes = (*function.cast::<ffi::PyFunctionObject>()).func_dict;
            has(py, ffi::PyFunction_GetDefaults(function), self.defaults.as_deref())
                && maps(py, ffi::PyFunction_GetKwDefaults(function), self.keywords.as_ref(), true)
                && (if attributes.is_null() {
                    self.attributes.is_empty()
                } else {
                    maps(py, attributes, Some(&self.attributes), true)
                })
                && has_cells(py, ffi::PyFunction_GetClosure(function), &self.cells)
                && maps(py, ffi::PyFunction_GetGlobals(function), Some(&self.globals), false)
        }
    }

    fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.function)?;
        visit.call(&self.code)?;
        for seen in self.defaults.iter().flatten().chain(&self.cells) {
            seen.visit(visit)?;
        }
        for (name, seen) in self.keywords.iter().flatten().chain(&self.attributes).chain(&self.globals) {
            visit.call(name)?;
            seen.visit(visit)?;
        }
        Ok(())
    }
}

/// Whether the cells of a closure, or of none, have these contents.
///
/// # Safety
///
/// `closure` is that of a live function: a tuple of cells, or null. It is the function's for good.
unsafe fn has_cells(py: Python<'_>, closure: *mut ffi::PyObject, cells: &[Seen]) -> bool {
    if closure.is_null() {
        return cells.is_empty();
    }
    // SAFETY: a tuple of cells, says the caller.
    unsafe {
        usize::try_from(ffi::PyTuple_Size(closure)).is_ok_and(|size| size == cells.len())
            && cells.iter().zip(0..).all(|(seen, at)| {
                let content = PyCell_Get(ffi::PyTuple_GetItem(closure, at));
                let same = seen.is(py, content);
                ffi::Py_XDECREF(content);
                same
            })
    }
}

/// Whether a tuple, or null, has these items.
///
/// # Safety
///
/// `tuple` is a live tuple or null.
unsafe fn has(py: Python<'_>, tuple: *mut ffi::PyObject, seen: Option<&[Seen]>) -> bool {
    let Some(seen) = seen else { return tuple.is_null() };
    if tuple.is_null() {
        return false;
    }
    // SAFETY: the caller vouches for the tuple; a reference of ours keeps it while its items are compared.
    let tuple = unsafe { Bound::from_borrowed_ptr(py, tuple) };
    let Ok(tuple) = tuple.cast_into::<PyTuple>() else { return false };
    tuple.len() == seen.len() && seen.iter().zip(tuple.iter()).all(|(seen, item)| seen.is(py, item.as_ptr()))
}

/// Whether a dict, or null, has these values by these names; with `alone`, and no others.
///
/// # Safety
///
/// `dict` is a live object or null.
unsafe fn maps(py: Python<'_>, dict: *mut ffi::PyObject, names: Option<&Names>, alone: bool) -> bool {
    let Some(names) = names else { return dict.is_null() };
    if dict.is_null() {
        return false;
    }
    // SAFETY: the caller guarantees the dict; a reference of ours keeps it while it is examined.
    let dict = unsafe { Bound::from_borrowed_ptr(py, dict) };
    // SAFETY: PyDict_GetItemWithError checks what it is given; the names are strings, whose comparison runs no code of
    // the user's, and what it gives is only compared.
    unsafe {
        if alone && usize::try_from(ffi::PyDict_Size(dict.as_ptr())).is_ok_and(|size| size != names.len()) {
            return false;
        }
        names.iter().all(|(name, seen)| {
            let value = ffi::PyDict_GetItemWithError(dict.as_ptr(), name.as_ptr());
            if value.is_null() && !ffi::PyErr_Occurred().is_null() {
                ffi::PyErr_Clear();
                return false;
            }
            seen.is(py, value)
        })
    }
}

/// A class that is sent by value: its version says whether it, or a class that it derives from, has changed.
struct Class {
    class: Py<PyWeakrefReference>,
    version: u32,
}

impl Class {
    fn from(listed: Bound<'_, PyAny>) -> PyResult<Self> {
        let class: Bound<'_, PyWeakrefReference> = listed.cast_into()?;
        let version = version(&class);
        Ok(Self { class: class.unbind(), version })
    }

    fn holds(&self, py: Python<'_>) -> bool {
        self.version != 0 && version(self.class.bind(py)) == self.version
    }
}

/// The version of a class, which its next change takes away for good; 0 if it is gone, or has none.
fn version(class: &Bound<'_, PyWeakrefReference>) -> u32 {
    let Some(class) = class.upgrade() else { return 0 };
    let name = intern!(class.py(), "__reduce_ex__");
    // SAFETY: `pool.wire._watch` lists classes only, and this one is alive. The lookup runs no Python, whatever the
    // metaclass is, and sets no error; what it gives is borrowed, and not looked at. On 3.11 to 3.14 the tag is 0 until
    // the interpreter gives the class a version, after each change of it again; it stays 0 where versions have run out.
    unsafe {
        let class = class.as_ptr().cast::<ffi::PyTypeObject>();
        // A class that has changed gets its next version when something is looked up in its own bases: what the
        // metaclass itself answers, `__module__` for instance, is not.
        _PyType_Lookup(class, name.as_ptr());
        (*class).tp_version_tag
    }
}

/// See the module.
#[pyclass(frozen, module = "ropewalk._core")]
pub(crate) struct Checks {
    functions: Vec<Function>,
    classes: Vec<Class>,
}

#[pymethods]
impl Checks {
    #[new]
    pub(crate) fn new(functions: &Bound<'_, PyList>, classes: &Bound<'_, PyList>) -> PyResult<Self> {
        Ok(Self {
            functions: functions.iter().map(|one| Function::from(&one)).collect::<PyResult<_>>()?,
            classes: classes.iter().map(Class::from).collect::<PyResult<_>>()?,
        })
    }

    /// Whether all listed dependencies are unchanged.
    pub(crate) fn hold(&self, py: Python<'_>) -> bool {
        self.functions.iter().all(|function| function.holds(py))
            && self.classes.iter().all(|class| class.holds(py))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        for function in &self.functions {
            function.visit(&visit)?;
        }
        self.classes.iter().try_for_each(|class| visit.call(&class.class))
    }
}
