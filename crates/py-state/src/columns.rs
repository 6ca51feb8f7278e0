//! Many records of one class as the values of their fields, and back: what pickles of large collections have.

use std::ptr;

use pyo3_ffi as ffi;
use ropewalk_capi::entry;
use ropewalk_capi::heap::{content, fast_method};
use ropewalk_capi::object::{Object, Raised};

use crate::kinds::{self, Kind};
use crate::node::Pointer;
use crate::record::Record;
use crate::types::{self, State};

/// `columns(values)`.
#[entry]
unsafe extern "C" fn columns(module: Pointer, arguments: *mut Pointer, count: isize) -> Pointer {
    // SAFETY: our module, and as many live arguments as `count` says; the type of the first is checked.
    unsafe {
        let made = (|| {
            if count != 1 || ffi::PyList_CheckExact(*arguments) == 0 {
                ffi::PyErr_SetString(ffi::PyExc_TypeError, c"columns takes a list".as_ptr());
                return Err(Raised);
            }
            // Nobody else has the copy, so it keeps its length.
            let values = Object::own(ffi::PyList_GetSlice(*arguments, 0, isize::MAX))?;
            taken_apart(types::of_module(module)?, &values)
        })();
        made.map_or_else(|Raised| ptr::null_mut(), Object::into_ptr)
    }
}

/// # Safety
///
/// A list that no other code has. Python code may run.
unsafe fn taken_apart(types: &State, values: &Object) -> Result<Object, Raised> {
    // SAFETY: the caller's; an index is below the length, and the list holds its items.
    unsafe {
        let count = ffi::PyList_Size(values.as_ptr());
        if count == 0 {
            return Object::share(ffi::Py_None());
        }
        let class = ffi::Py_TYPE(ffi::PyList_GetItem(values.as_ptr(), 0));
        for index in 1..count {
            if ffi::Py_TYPE(ffi::PyList_GetItem(values.as_ptr(), index)) != class {
                return Object::share(ffi::Py_None());
            }
        }
        if kinds::is_atom(class) || class == types.map.cast() || class == types.vector.cast() {
            return Object::share(ffi::Py_None());
        }
        let Kind::Record(info) = kinds::of_class(types, class)? else {
            return Object::share(ffi::Py_None());
        };
        let info = content::<Record>(info.as_ptr());
        if !info.is_its_fields() {
            return Object::share(ffi::Py_None());
        }
        let found = Object::own(ffi::PyList_New(0))?;
        for field in 0..info.count() {
            let column = Object::own(ffi::PyList_New(count))?;
            for index in 0..count {
                let value = info.read(ffi::PyList_GetItem(values.as_ptr(), index), field)?;
                if ffi::PyList_SetItem(column.as_ptr(), index, value.into_ptr()) != 0 {
                    return Err(Raised);
                }
            }
            if ffi::PyList_Append(found.as_ptr(), column.as_ptr()) != 0 {
                return Err(Raised);
            }
        }
        Object::own(ffi::PyTuple_Pack(2, class.cast::<ffi::PyObject>(), found.as_ptr()))
    }
}

/// `rows(class, columns, count)`.
#[entry]
unsafe extern "C" fn rows(module: Pointer, arguments: *mut Pointer, count: isize) -> Pointer {
    // SAFETY: our module, and as many live arguments as `count` says, whose types are checked.
    unsafe {
        let made = (|| {
            if count != 3
                || ffi::PyType_Check(*arguments) == 0
                || ffi::PyList_CheckExact(*arguments.add(1)) == 0
                || ffi::PyLong_Check(*arguments.add(2)) == 0
            {
                return Err(wrong());
            }
            let rows = ffi::PyLong_AsSsize_t(*arguments.add(2));
            if rows < 0 {
                ffi::PyErr_Clear();
                return Err(wrong());
            }
            let Kind::Record(info) = kinds::of_class(types::of_module(module)?, (*arguments).cast())? else {
                return Err(wrong());
            };
            let columns = Object::own(ffi::PyList_GetSlice(*arguments.add(1), 0, isize::MAX))?;
            put_together(content::<Record>(info.as_ptr()), &columns, rows)
        })();
        made.map_or_else(|Raised| ptr::null_mut(), Object::into_ptr)
    }
}

/// # Safety
///
/// A list that no other code has, and a number that is not negative.
unsafe fn put_together(info: &Record, columns: &Object, rows: isize) -> Result<Object, Raised> {
    // SAFETY: the caller's; an index is below the lengths, and the lists hold their items.
    unsafe {
        if !info.is_its_fields() || ffi::PyList_Size(columns.as_ptr()).cast_unsigned() != info.count() {
            return Err(wrong());
        }
        let mut copies = Vec::with_capacity(info.count());
        for index in 0..ffi::PyList_Size(columns.as_ptr()) {
            let column = ffi::PyList_GetItem(columns.as_ptr(), index);
            if ffi::PyList_CheckExact(column) == 0 {
                return Err(wrong());
            }
            let copy = Object::own(ffi::PyList_GetSlice(column, 0, isize::MAX))?;
            if ffi::PyList_Size(copy.as_ptr()) != rows {
                return Err(wrong());
            }
            copies.push(copy);
        }
        let found = Object::own(ffi::PyList_New(0))?;
        for row in 0..rows {
            let made = info.make(|field| Object::share(ffi::PyList_GetItem(copies[field].as_ptr(), row)))?;
            if ffi::PyList_Append(found.as_ptr(), made.as_ptr()) != 0 {
                return Err(Raised);
            }
        }
        Ok(found)
    }
}

fn wrong() -> Raised {
    // SAFETY: a live class and a C string; the thread is attached.
    unsafe {
        ffi::PyErr_SetString(
            ffi::PyExc_TypeError,
            c"rows takes a class whose objects are their fields, a list of as many values for each, and their number"
                .as_ptr(),
        );
    }
    Raised
}

/// The functions.
pub(crate) fn functions() -> Vec<ffi::PyMethodDef> {
    vec![
        fast_method(
            c"columns",
            columns,
            c"columns(values, /)\n--\n\nThe class and the fields of records that are nothing but fields of one class.",
        ),
        fast_method(c"rows", rows, c"rows(class, columns, count, /)\n--\n\nThe records with these fields."),
    ]
}
