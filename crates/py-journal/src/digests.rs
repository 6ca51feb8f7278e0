//! A name for a value that another process gives to an equal one: the key of a call in a journal.
//!
//! Pickles are no such names. Equal values have different ones, because pickle refers back to objects that it has seen
//! before, and writes sets in an order that changes from one process to the next. Here every value is written in full:
//! a byte for its type, its size, its parts; the elements of a set in the order of their digests, and the items of a
//! dictionary in its own order, which a function can see: with one name for both orders a call would get the result of
//! another one. What is written for a value never changes, because finished calls are found by it.
//!
//! Values of other types are written as the plain values that a function of the caller's makes of them. The name is the
//! first half of the BLAKE3 hash of these bytes, so no two inputs have one name, also if somebody wants them to.

use pyo3::PyTypeInfo;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyFloat, PyFrozenSet, PyInt, PyList, PySet, PyString, PyTuple};

/// The size of a digest in bytes.
pub(crate) const SIZE: usize = 16;
/// A name of a value.
pub(crate) type Digest = [u8; SIZE];

/// A value nested deeper has no digest; nor has one that contains itself.
const DEEPEST: usize = 200;

/// The digest of a value that stands behind another one, for instance of arguments behind their function.
pub(crate) fn of(
    value: &Bound<'_, PyAny>,
    behind: Option<Digest>,
    parts: &Bound<'_, PyAny>,
) -> PyResult<Digest> {
    let mut bytes = behind.map_or_else(Vec::new, Vec::from);
    let mut written = Written { bytes: &mut bytes, hasher: None, parts };
    written.value(value, 0)?;
    Ok(written.digest())
}

/// The digest of a call of this function with an input of a map: with `star` the tuple of its arguments, else the only
/// one. `bytes` is used again from one input to the next.
pub(crate) fn of_input(
    input: &Bound<'_, PyAny>,
    star: bool,
    function: Digest,
    parts: &Bound<'_, PyAny>,
    bytes: &mut Vec<u8>,
) -> PyResult<Digest> {
    bytes.clear();
    bytes.extend(function);
    let mut written = Written { bytes, hasher: None, parts };
    if star {
        written.value(input, 0)?;
    } else {
        // As the tuple of it is written.
        written.head(b't', 1);
        written.value(input, 1)?;
    }
    Ok(written.digest())
}

/// The digest of the call that is the same as `number` ones before it.
pub(crate) fn again(digest: Digest, number: u32) -> Digest {
    if number == 0 {
        return digest;
    }
    let mut bytes = Vec::from(digest);
    bytes.extend(number.to_le_bytes());
    half(blake3::hash(&bytes))
}

fn half(hash: blake3::Hash) -> Digest {
    let mut digest = [0; SIZE];
    digest.copy_from_slice(&hash.as_bytes()[..SIZE]);
    digest
}

/// The bytes of a value, as far as they are not hashed.
struct Written<'a, 'py> {
    bytes: &'a mut Vec<u8>,
    /// Made when the bytes become many.
    hasher: Option<Box<blake3::Hasher>>,
    parts: &'a Bound<'py, PyAny>,
}

impl Written<'_, '_> {
    fn digest(self) -> Digest {
        match self.hasher {
            None => half(blake3::hash(self.bytes)),
            Some(mut hasher) => half(hasher.update(self.bytes).finalize()),
        }
    }

    /// A type's byte and a size.
    fn head(&mut self, tag: u8, size: usize) {
        self.bytes.push(tag);
        self.bytes.extend((size as u64).to_le_bytes());
    }

    fn text(&mut self, tag: u8, bytes: &[u8]) {
        self.head(tag, bytes.len());
        if bytes.len() < 1 << 12 {
            self.bytes.extend(bytes);
            return;
        }
        let hasher = self.hasher.get_or_insert_with(|| Box::new(blake3::Hasher::new()));
        hasher.update(self.bytes).update(bytes);
        self.bytes.clear();
    }

    fn value(&mut self, value: &Bound<'_, PyAny>, depth: usize) -> PyResult<()> {
        let py = value.py();
        if depth > DEEPEST {
            return Err(PyValueError::new_err(format!(
                "it contains itself, or values that are nested deeper than {DEEPEST} levels"
            )));
        }
        // SAFETY: the object is alive; only the address of its type is used.
        let kind = unsafe { ffi::Py_TYPE(value.as_ptr()) };
        // Only the types themselves: a subclass may be anything.
        if kind == &raw mut ffi::PyUnicode_Type {
            let text = value.cast::<PyString>()?;
            match text.to_str() {
                Ok(text) => self.text(b's', text.as_bytes()),
                // Lone surrogates, which names of files may have.
                Err(_) => {
                    let bytes = text.call_method1("encode", ("utf-8", "surrogatepass"))?;
                    self.text(b'u', bytes.cast::<PyBytes>()?.as_bytes());
                }
            }
        } else if kind == &raw mut ffi::PyLong_Type {
            match value.extract::<i64>() {
                Ok(number) => {
                    self.bytes.push(b'i');
                    self.bytes.extend(number.to_le_bytes());
                }
                Err(_) => {
                    let digits = value.cast::<PyInt>()?.call_method1("__format__", ("x",))?;
                    self.text(b'j', digits.cast::<PyString>()?.to_str()?.as_bytes());
                }
            }
        } else if kind == &raw mut ffi::PyTuple_Type {
            let items = value.cast::<PyTuple>()?;
            self.head(b't', items.len());
            for item in items {
                self.value(&item, depth + 1)?;
            }
        } else if value.is_none() {
            self.bytes.push(b'n');
        } else if kind == &raw mut ffi::PyBool_Type {
            self.bytes.push(if value.is_truthy()? { b'y' } else { b'x' });
        } else if kind == &raw mut ffi::PyFloat_Type {
            self.bytes.push(b'f');
            self.bytes.extend(value.cast::<PyFloat>()?.value().to_bits().to_le_bytes());
        } else if kind == &raw mut ffi::PyBytes_Type {
            self.text(b'b', value.cast::<PyBytes>()?.as_bytes());
        } else if kind == &raw mut ffi::PyList_Type {
            // A copy: code that runs for an item may change the list.
            let items = value.cast::<PyList>()?.to_tuple();
            self.head(b'l', items.len());
            for item in items {
                self.value(&item, depth + 1)?;
            }
        } else if kind == &raw mut ffi::PyDict_Type {
            let items = value.cast::<PyDict>()?.items();
            self.head(b'd', items.len());
            for item in items {
                let (key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item.extract()?;
                self.value(&key, depth + 1)?;
                self.value(&value, depth + 1)?;
            }
        } else if kind == &raw mut ffi::PySet_Type || kind == &raw mut ffi::PyFrozenSet_Type {
            let tag = if value.is_instance_of::<PyFrozenSet>() { b'z' } else { b'S' };
            debug_assert!(tag == b'z' || value.is_instance_of::<PySet>());
            let items = PyList::type_object(py).call1((value,))?;
            let mut digests = Vec::new();
            for item in items.cast::<PyList>()?.to_tuple() {
                let mut bytes = Vec::new();
                let mut written = Written { bytes: &mut bytes, hasher: None, parts: self.parts };
                written.value(&item, depth + 1)?;
                digests.push(written.digest());
            }
            digests.sort_unstable();
            self.head(tag, digests.len());
            self.bytes.extend(digests.iter().flatten());
        } else if kind == &raw mut ffi::PyMemoryView_Type {
            let bytes = PyBuffer::<u8>::get(value)?.to_vec(py)?;
            self.text(b'm', &bytes);
        } else {
            self.bytes.push(b'o');
            self.value(&self.parts.call1((value,))?, depth + 1)?;
        }
        Ok(())
    }
}
