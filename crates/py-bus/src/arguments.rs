//! The arguments of this module's methods, and the lists that they return.

use std::ffi::CStr;
use std::ptr;
use std::time::{Duration, Instant};

use pyo3_ffi as ffi;
use ropewalk_base::{Code, Error};
use ropewalk_bus::Pattern;

use ropewalk_capi::errors::raise;
use ropewalk_capi::heap::Field;
use ropewalk_capi::object::{Object, Raised};

/// Sorts arguments that are given by position or by name. They are borrowed; a missing one is null.
///
/// # Safety
///
/// The arguments are those that the interpreter passes to a function with `METH_FASTCALL | METH_KEYWORDS`.
pub(super) unsafe fn sorted<const N: usize>(
    function: &CStr,
    known: &[&CStr; N],
    needed: usize,
    given: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> Result<[*mut ffi::PyObject; N], Raised> {
    let wrong = |what: &CStr| {
        // SAFETY: a live exception class and C strings, as the format needs them.
        unsafe {
            ffi::PyErr_Format(ffi::PyExc_TypeError, c"%s() %s".as_ptr(), function.as_ptr(), what.as_ptr())
        };
        Raised
    };
    let count = usize::try_from(count).unwrap_or(0);
    if count > N {
        return Err(wrong(c"got too many arguments"));
    }
    let mut sorted = [ptr::null_mut(); N];
    // SAFETY: `given` positional arguments, then one for each of the names.
    unsafe {
        for (at, place) in sorted.iter_mut().enumerate().take(count) {
            *place = *given.add(at);
        }
        let named = if names.is_null() { 0 } else { ffi::PyTuple_Size(names).max(0) };
        for at in 0..named {
            let name = ffi::PyTuple_GetItem(names, at);
            let found = known
                .iter()
                .position(|known| ffi::PyUnicode_CompareWithASCIIString(name, known.as_ptr()) == 0);
            let Some(found) = found else {
                return Err(wrong(c"got an argument by a name that it does not know"));
            };
            if !sorted[found].is_null() {
                return Err(wrong(c"got an argument twice"));
            }
            sorted[found] = *given.add(count + usize::try_from(at).unwrap_or(0));
        }
    }
    if sorted[..needed].iter().any(|place| place.is_null()) {
        return Err(missing(function, &known[..needed], &sorted));
    }
    Ok(sorted)
}

/// Raises what Python raises for a function of its own that lacks arguments.
#[cold]
fn missing(function: &CStr, needed: &[&CStr], sorted: &[*mut ffi::PyObject]) -> Raised {
    let lacking: Vec<String> = needed
        .iter()
        .zip(sorted)
        .filter(|(_, place)| place.is_null())
        .map(|(name, _)| format!("'{}'", name.to_string_lossy()))
        .collect();
    let text = format!(
        "{}() missing {} required positional argument{}: {}\0",
        function.to_string_lossy(),
        lacking.len(),
        if lacking.len() == 1 { "" } else { "s" },
        lacking.join(" and "),
    );
    // SAFETY: a live exception class, and a text that ends with a zero.
    unsafe { ffi::PyErr_SetString(ffi::PyExc_TypeError, text.as_ptr().cast()) };
    Raised
}

/// The characters of a string.
///
/// # Safety
///
/// `object` lives while the characters are used.
pub(super) unsafe fn characters<'a>(object: *mut ffi::PyObject, what: &CStr) -> Result<&'a str, Raised> {
    // SAFETY: checked to be a string; its UTF-8 form lives as long as the string.
    unsafe {
        if ffi::PyUnicode_Check(object) == 0 {
            ffi::PyErr_Format(
                ffi::PyExc_TypeError,
                c"a %s is a string, not %R".as_ptr(),
                what.as_ptr(),
                ffi::Py_TYPE(object),
            );
            return Err(Raised);
        }
        let mut length = 0;
        let start = ffi::PyUnicode_AsUTF8AndSize(object, &raw mut length);
        if start.is_null() {
            return Err(Raised);
        }
        let bytes = std::slice::from_raw_parts(start.cast::<u8>(), usize::try_from(length).unwrap_or(0));
        Ok(std::str::from_utf8_unchecked(bytes))
    }
}

#[cold]
pub(super) fn invalid(error: &dyn std::error::Error) -> Raised {
    raise(&Error::new(Code::InvalidTopic, error.to_string()))
}

#[cold]
/// Parses a pattern from a string.
///
/// # Safety
///
/// `pattern` is a live object.
pub(super) unsafe fn pattern(pattern: *mut ffi::PyObject) -> Result<Pattern, Raised> {
    // SAFETY: the caller's.
    let characters = unsafe { characters(pattern, c"pattern")? };
    Pattern::parse(characters).map_err(|error| invalid(&error))
}

/// The object, or empty for `None`.
pub(super) fn optional(object: *mut ffi::PyObject) -> Field {
    // SAFETY: a live object.
    unsafe {
        if object == ffi::Py_None() {
            Field::empty()
        } else {
            Object::share(object).map_or_else(|_| Field::empty(), Field::new)
        }
    }
}

/// The deadline after a timeout in seconds; none for `None`, or if it is too far away to be represented.
pub(super) fn deadline(seconds: *mut ffi::PyObject) -> Result<Option<Instant>, Raised> {
    // SAFETY: a live object.
    unsafe {
        if seconds == ffi::Py_None() {
            return Ok(None);
        }
        let seconds = ffi::PyFloat_AsDouble(seconds);
        if !ffi::PyErr_Occurred().is_null() {
            return Err(Raised);
        }
        if seconds.is_nan() {
            ffi::PyErr_SetString(ffi::PyExc_ValueError, c"a timeout in seconds cannot be NaN".as_ptr());
            return Err(Raised);
        }
        let span = Duration::try_from_secs_f64(seconds.max(0.0)).ok();
        Ok(span.and_then(|span| Instant::now().checked_add(span)))
    }
}

/// A count of messages, at least one.
pub(super) fn positive(number: *mut ffi::PyObject) -> Result<usize, Raised> {
    // SAFETY: a live object.
    unsafe {
        let number = ffi::PyNumber_AsSsize_t(number, ffi::PyExc_OverflowError);
        if number == -1 && !ffi::PyErr_Occurred().is_null() {
            return Err(Raised);
        }
        usize::try_from(number).ok().filter(|&number| number > 0).ok_or_else(|| {
            ffi::PyErr_SetString(
                ffi::PyExc_ValueError,
                c"the number of messages must be at least 1".as_ptr(),
            );
            Raised
        })
    }
}

/// A list of these messages.
pub(super) fn list(messages: Vec<Object>) -> Result<Object, Raised> {
    // SAFETY: a new list of that length, each item of which is set once; SetItem takes the reference over.
    unsafe {
        let list = Object::own(ffi::PyList_New(ffi::Py_ssize_t::try_from(messages.len()).unwrap_or(0)))?;
        for (at, message) in (0..).zip(messages) {
            if ffi::PyList_SetItem(list.as_ptr(), at, message.into_ptr()) != 0 {
                return Err(Raised);
            }
        }
        Ok(list)
    }
}
