//! Rust's errors become Python's exceptions here, and nowhere else. Their classes are those of the table of errors
//! (`ropewalk_base::Code`). They are defined in `ropewalk._errors`, in pure Python.
//!
//! Two kinds are not in the table: the standard library's exceptions for its own concepts, such as a cancelled future,
//! and messaging's, whose class the package that made the socket chooses (`py-zmq/src/errors.rs`).

use std::ffi::CStr;

use pyo3_ffi as ffi;
use ropewalk_base::{Code, Error};

use crate::object::{Object, Raised, text};

/// Raises the exception for a Rust error: its message, its causes, and the remedy of its code.
#[cold]
pub fn raise(error: &Error) -> Raised {
    set(of(error))
}

/// Raises an exception for a code whose text names its own remedy.
#[cold]
pub fn raise_text(code: Code, said: &str) -> Raised {
    set(exception(code, said))
}

/// Raises an exception whose class takes other arguments than a text.
#[cold]
pub fn raise_made(code: Code, arguments: &[*mut ffi::PyObject]) -> Raised {
    set(class(code).and_then(|class| class.call(arguments)))
}

/// The exception for a Rust error.
pub fn of(error: &Error) -> Result<Object, Raised> {
    let made = exception(error.code(), &error.report())?;
    if let Some(number) = error.os_error() {
        // SAFETY: a fresh object; a live one and a C string.
        unsafe {
            let number = Object::own(ffi::PyLong_FromLong(number.into()))?;
            if ffi::PyObject_SetAttrString(made.as_ptr(), c"errno".as_ptr(), number.as_ptr()) < 0 {
                return Err(Raised);
            }
        }
    }
    Ok(made)
}

/// The exception for a code with exactly this text.
pub fn exception(code: Code, said: &str) -> Result<Object, Raised> {
    class(code)?.call(&[text(said)?.as_ptr()])
}

/// The class for a code.
pub fn class(code: Code) -> Result<Object, Raised> {
    let entry = code.entry();
    // SAFETY: C strings and live objects; clearing without an exception set is allowed.
    unsafe {
        // A loaded module is found without the import system, which would cost as much as all the rest.
        let name = Object::own(ffi::PyUnicode_FromString(entry.module.as_ptr()))?;
        if let Ok(module) = Object::own(ffi::PyImport_GetModule(name.as_ptr()))
            && let Ok(class) = module.attribute(entry.class)
        {
            return Ok(class);
        }
        // The module is not loaded, or not completely.
        ffi::PyErr_Clear();
        Object::own(ffi::PyImport_Import(name.as_ptr()))?.attribute(entry.class)
    }
}

/// Raises a `RuntimeError`.
pub fn fail(text: &CStr) -> Raised {
    // SAFETY: a live exception class and a C string, which is copied.
    unsafe { ffi::PyErr_SetString(ffi::PyExc_RuntimeError, text.as_ptr()) };
    Raised
}

/// Raises the `OSError`, or its subclass, of a system call.
pub fn raise_os(error: &std::io::Error) -> Raised {
    set(os_error(error))
}

/// The `OSError`, or its subclass, of a system call.
pub fn os_error(error: &std::io::Error) -> Result<Object, Raised> {
    let words = error.to_string();
    // Rust appends the number to the text; Python puts it in front.
    let words = words.split(" (os error").next().unwrap_or_default();
    // SAFETY: a live exception class and fresh objects.
    unsafe {
        let number = Object::own(ffi::PyLong_FromLong(error.raw_os_error().unwrap_or(0).into()))?;
        Object::share(ffi::PyExc_OSError)?.call(&[number.as_ptr(), text(words)?.as_ptr()])
    }
}

/// Sets the exception. If making it failed, that failure's exception is set already.
fn set(made: Result<Object, Raised>) -> Raised {
    if let Ok(error) = made {
        // SAFETY: a live exception; PyErr_SetObject takes its own references.
        unsafe { ffi::PyErr_SetObject(ffi::Py_TYPE(error.as_ptr()).cast(), error.as_ptr()) };
    }
    Raised
}
