//! A chunk whose items are pickled each on its own, so that no two of them share an object where they arrive.
//!
//! The chunk is one pickle all the same: a list, each item of which is a call of `pool.wire._serialize.open_apart` with
//! the item's own pickle and the buffers beside it. What reads it needs to know nothing of this.
//!
//! Items that are constants through and through need none of this: nobody can tell one constant from a copy of it.

use std::ptr;

use pyo3_ffi as ffi;

/// How deep tuples are looked into.
const DEPTH: u32 = 4;
/// Longer tuples are not looked into: a copy of one costs less than the look at it.
const LONG: isize = 64;

/// One item of a chunk.
pub(crate) struct Item<'a> {
    /// Its pickle.
    pub(crate) stream: &'a [u8],
    /// How many buffers belong to the pickle.
    pub(crate) buffers: usize,
    /// Whether it went well, where that is told of each item: it comes as a pair then.
    pub(crate) went_well: Option<bool>,
}

/// Joins items into the pickle of their list. Their buffers come in the items' order.
pub(crate) fn join(items: &[Item<'_>]) -> Vec<u8> {
    let total: usize = items.iter().map(|item| item.stream.len() + item.buffers + 16).sum();
    let mut out = Vec::with_capacity(total + 64);
    out.extend(b"\x80\x05"); // PROTO 5
    for name in [&b"ropewalk.pool.wire._serialize"[..], b"open_apart"] {
        out.extend(b"\x8c"); // SHORT_BINUNICODE
        out.push(name.len() as u8);
        out.extend(name);
    }
    out.extend(b"\x93\x940"); // STACK_GLOBAL, MEMOIZE as number 0, POP
    out.extend(b"]("); // EMPTY_LIST, MARK
    for item in items {
        match item.went_well {
            Some(true) => out.push(b'\x88'),  // NEWTRUE
            Some(false) => out.push(b'\x89'), // NEWFALSE
            None => {}
        }
        out.extend(b"h\0"); // BINGET number 0
        if item.buffers > 0 {
            out.push(b'('); // MARK
        }
        match u32::try_from(item.stream.len()) {
            Ok(length) => {
                out.push(b'B'); // BINBYTES
                out.extend(length.to_le_bytes());
            }
            Err(_) => {
                out.push(b'\x8e'); // BINBYTES8
                out.extend((item.stream.len() as u64).to_le_bytes());
            }
        }
        out.extend(item.stream);
        if item.buffers > 0 {
            out.resize(out.len() + item.buffers, b'\x97'); // NEXT_BUFFER
            out.push(b't'); // TUPLE
        } else {
            out.push(b'\x85'); // TUPLE1
        }
        out.push(b'R'); // REDUCE
        if item.went_well.is_some() {
            out.push(b'\x86'); // TUPLE2
        }
    }
    out.extend(b"e."); // APPENDS, STOP
    out
}

/// Whether nothing can change an object, nor anything in it, and nothing in it is known by its identity.
///
/// # Safety
///
/// A live object, and the thread is attached to the interpreter. Nothing of it is called.
pub(crate) unsafe fn is_constant(object: *mut ffi::PyObject) -> bool {
    // SAFETY: the caller's.
    unsafe { look(object, DEPTH) }
}

unsafe fn look(object: *mut ffi::PyObject, depth: u32) -> bool {
    // SAFETY: the caller's live object; the types are the interpreter's own, and a tuple's items live as long as it.
    unsafe {
        let kind = ffi::Py_TYPE(object);
        if ptr::eq(kind, &raw const ffi::PyLong_Type)
            || ptr::eq(kind, &raw const ffi::PyFloat_Type)
            || ptr::eq(kind, &raw const ffi::PyUnicode_Type)
            || object == ffi::Py_None()
        {
            return true;
        }
        if ptr::eq(kind, &raw const ffi::PyTuple_Type) {
            let length = ffi::PyTuple_Size(object);
            return depth > 0
                && length <= LONG
                && (0..length).all(|at| look(ffi::PyTuple_GetItem(object, at), depth - 1));
        }
        ptr::eq(kind, &raw const ffi::PyBool_Type)
            || ptr::eq(kind, &raw const ffi::PyBytes_Type)
            || ptr::eq(kind, &raw const ffi::PyComplex_Type)
            || ptr::eq(kind, &raw const ffi::PyRange_Type)
            || (ptr::eq(kind, &raw const ffi::PyFunction_Type) && has_no_state(object))
    }
}

/// Whether a function is its code alone: without a closure, defaults or attributes, which could change.
unsafe fn has_no_state(function: *mut ffi::PyObject) -> bool {
    // SAFETY: the caller's function; the first three are borrowed or null, and the attributes are a new reference.
    unsafe {
        if !ffi::PyFunction_GetClosure(function).is_null()
            || !ffi::PyFunction_GetDefaults(function).is_null()
            || !ffi::PyFunction_GetKwDefaults(function).is_null()
        {
            return false;
        }
        let attributes = ffi::PyObject_GenericGetDict(function, ptr::null_mut());
        if attributes.is_null() {
            ffi::PyErr_Clear();
            return false;
        }
        let size = ffi::PyDict_Size(attributes);
        ffi::Py_DECREF(attributes);
        size == 0
    }
}
