//! What a value is to a transaction: a map, a vector, a record, an array, or a leaf that has no parts.

use std::ptr;

use pyo3_ffi as ffi;
use ropewalk_capi::heap::content;
use ropewalk_capi::object::{Object, Raised};

use crate::node::Pointer;
use crate::record::Record;
use crate::types::State;

/// What a value is.
pub(crate) enum Kind {
    Leaf,
    /// An array of NumPy's, whether it can change or not.
    Array,
    Map,
    Vector,
    /// Its `Record`.
    Record(Object),
}

/// What a value is.
///
/// # Errors
///
/// `NotFrozen`, if the value is of a class whose objects may change.
///
/// # Safety
///
/// `value` is live.
#[inline]
pub(crate) unsafe fn kind_of(types: &State, value: Pointer) -> Result<Kind, Raised> {
    // SAFETY: the caller's.
    unsafe {
        let class = ffi::Py_TYPE(value);
        if class == types.map.cast() {
            Ok(Kind::Map)
        } else if class == types.vector.cast() {
            Ok(Kind::Vector)
        } else if is_atom(class) {
            Ok(Kind::Leaf)
        } else if class == types.array.cast() {
            Ok(Kind::Array)
        } else {
            of_class(types, class)
        }
    }
}

/// Whether the class is one of those whose objects are leaves most often.
///
/// # Safety
///
/// The interpreter is initialised.
#[inline]
pub(crate) unsafe fn is_atom(class: *mut ffi::PyTypeObject) -> bool {
    // SAFETY: the addresses of static types, and that of the type of `None`.
    unsafe {
        class == &raw mut ffi::PyLong_Type
            || class == &raw mut ffi::PyUnicode_Type
            || class == &raw mut ffi::PyFloat_Type
            || class == &raw mut ffi::PyBool_Type
            || class == ffi::Py_TYPE(ffi::Py_None())
            || class == &raw mut ffi::PyBytes_Type
    }
}

/// What the objects of a class are.
///
/// # Safety
///
/// `class` is live, and the interpreter's lock or an own reference keeps it so.
pub(crate) unsafe fn of_class(types: &State, class: *mut ffi::PyTypeObject) -> Result<Kind, Raised> {
    // SAFETY: the caller's; the type of what is found is checked before it is read as such.
    unsafe {
        let class = Object::share(class.cast())?;
        match ffi::PyDict_Contains(types.leaves, class.as_ptr()) {
            1 => return Ok(Kind::Leaf),
            0 => {}
            _ => return Err(Raised),
        }
        if let Some(record) = known(types, &class)? {
            return Ok(Kind::Record(record));
        }
        if types.kind_of.is_null() {
            ffi::PyErr_SetString(ffi::PyExc_RuntimeError, c"ropewalk.state was not imported".as_ptr());
            return Err(Raised);
        }
        let found = Object::share(types.kind_of)?.call(&[class.as_ptr()])?;
        if found.is_none() {
            return Ok(Kind::Leaf);
        }
        if found.as_ptr() == ffi::Py_True() {
            // It is the first array: the package has not said yet which class that is.
            return Ok(Kind::Array);
        }
        checked(types, found, &class).map(Kind::Record).ok_or_else(|| {
            ffi::PyErr_SetString(
                ffi::PyExc_TypeError,
                c"kind_of must give the class's Record, or None".as_ptr(),
            );
            Raised
        })
    }
}

/// The `Record` that a class keeps, if it keeps one.
///
/// # Safety
///
/// The state of a module that is complete. Python code may run.
pub(crate) unsafe fn known(types: &State, class: &Object) -> Result<Option<Object>, Raised> {
    // SAFETY: live objects; the type of what is found is checked before it is read as such.
    unsafe {
        match Object::own(ffi::PyObject_GetAttr(class.as_ptr(), types.record_name)) {
            // A subclass finds that of its base.
            Ok(found) => Ok(checked(types, found, class)),
            Err(Raised) if ffi::PyErr_ExceptionMatches(ffi::PyExc_AttributeError) != 0 => {
                ffi::PyErr_Clear();
                Ok(None)
            }
            Err(Raised) => Err(Raised),
        }
    }
}

/// The object, if it is the `Record` of that class.
///
/// # Safety
///
/// `found` is live.
unsafe fn checked(types: &State, found: Object, class: &Object) -> Option<Object> {
    // SAFETY: an object of our type has our content.
    unsafe {
        let ours = ptr::eq(ffi::Py_TYPE(found.as_ptr()), types.record.cast());
        (ours && content::<Record>(found.as_ptr()).is_of(class.as_ptr().cast())).then_some(found)
    }
}
