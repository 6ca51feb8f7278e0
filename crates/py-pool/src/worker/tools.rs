//! What a lane calls of Python: pickling, and the functions of `ropewalk.pool.wire`.

use std::ffi::CStr;
use std::ptr;

use pyo3_ffi as ffi;
use ropewalk_capi::object::{Object, Raised, take_exception};
use ropewalk_pool::codec::loans as lending;
use ropewalk_pool::wire::flags;

use super::sessions;
use crate::pickle::{self, Pickled, Pickler, has_connection};

/// A module that the zygote has imported; found without the machinery of imports, which would cost a worker pages.
pub(super) fn imported(name: &CStr) -> Result<Object, Raised> {
    // SAFETY: plain calls of the C API; the second gives null without an exception where there is no such module.
    unsafe {
        let text = Object::own(ffi::PyUnicode_FromString(name.as_ptr()))?;
        let found = ffi::PyImport_GetModule(text.as_ptr());
        if found.is_null() && ffi::PyErr_Occurred().is_null() {
            return Object::own(ffi::PyImport_ImportModule(name.as_ptr()));
        }
        Object::own(found)
    }
}

/// A function of `pool.wire._serialize`. An interpreter imports that when it is first needed, and most tasks do not
/// need it.
pub(super) fn serialize(name: &CStr) -> Result<Object, Raised> {
    imported(c"ropewalk.pool.wire._serialize")?.attribute(name)
}

/// The same for `pool.wire._sessions`.
pub(super) fn of_sessions(name: &CStr) -> Result<Object, Raised> {
    imported(c"ropewalk.pool.wire._sessions")?.attribute(name)
}

/// The same for `pool.wire._functions`.
pub(super) fn functions(name: &CStr) -> Result<Object, Raised> {
    imported(c"ropewalk.pool.wire._functions")?.attribute(name)
}

/// The Python objects that the loop needs.
pub(crate) struct Tools {
    pickler: Pickler,
    pub(super) loads: Object,
    /// The names of attributes of a session.
    state: Object,
}

impl Tools {
    pub(crate) fn load(module: &Object) -> Result<Self, Raised> {
        let pickle = imported(c"_pickle")?;
        Ok(Self {
            pickler: Pickler::new(pickle.attribute(c"dumps")?, module.attribute(c"_keep_buffer")?)?,
            loads: pickle.attribute(c"loads")?,
            // SAFETY: a plain call of the C API, whose result is owned.
            state: unsafe { Object::own(ffi::PyUnicode_InternFromString(c"state".as_ptr()))? },
        })
    }

    /// Adds the cure to an error of a task with these flags that may come of writing to its read-only arguments.
    pub(super) fn note_read_only(&self, task: u16, error: &Object) {
        if task & (flags::DESCRIBED | flags::WRITABLE) == flags::DESCRIBED {
            let noted = serialize(c"note_read_only").and_then(|note| note.call(&[error.as_ptr()]));
            if noted.is_err() {
                drop(take_exception());
            }
        }
    }

    /// Calls a method of the actor whose task this is; `arguments` are those of a task, with the method's name first.
    pub(super) fn call_method(&self, arguments: &Object) -> Result<Object, Raised> {
        /// Arguments that need no vector.
        const FEW: usize = 7;
        let session = sessions::current()?;
        // SAFETY: live objects. The parent pickled a tuple of a tuple, with a name, and a dictionary: PyTuple_GetItem
        // and PyTuple_Size check the first, PyDict_Size and PyObject_Call the second, and a name that is none raises.
        // What is borrowed from the tuples lives as long as they do.
        let result = unsafe {
            let state = Object::own(ffi::PyObject_GetAttr(session.as_ptr(), self.state.as_ptr()))?;
            let positional = ffi::PyTuple_GetItem(arguments.as_ptr(), 0);
            let keywords =
                if positional.is_null() { positional } else { ffi::PyTuple_GetItem(arguments.as_ptr(), 1) };
            if keywords.is_null() {
                return Err(Raised);
            }
            let name = ffi::PyTuple_GetItem(positional, 0);
            let named = ffi::PyDict_Size(keywords);
            if name.is_null() || named < 0 {
                return Err(Raised);
            }
            let count = ffi::PyTuple_Size(positional).cast_unsigned();
            if named == 0 && count <= FEW {
                // The object stands where the name stood.
                let mut values = [ptr::null_mut(); FEW];
                values[0] = state.as_ptr();
                for (at, value) in values.iter_mut().enumerate().take(count).skip(1) {
                    *value = ffi::PyTuple_GetItem(positional, at.cast_signed());
                }
                Object::own(ffi::PyObject_VectorcallMethod(name, values.as_ptr(), count, ptr::null_mut()))?
            } else {
                let method = Object::own(ffi::PyObject_GetAttr(state.as_ptr(), name))?;
                let rest = Object::own(ffi::PyTuple_GetSlice(positional, 1, count.cast_signed()))?;
                Object::own(ffi::PyObject_Call(method.as_ptr(), rest.as_ptr(), keywords))?
            }
        };
        // SAFETY: a live object, whose type is looked at.
        if unsafe { ffi::Py_TYPE(result.as_ptr()) != &raw mut ffi::PyCoro_Type } {
            return Ok(result);
        }
        of_sessions(c"run_method")?.call(&[session.as_ptr(), result.as_ptr()])
    }

    /// A pickle with nothing beside it.
    pub(super) fn dump(&self, object: &Object) -> Result<Object, Raised> {
        self.pickler.dump(object.as_ptr())
    }

    /// Pickles a result that goes beside `others` buffers: as an encoding of its own, which lends what it refers to.
    pub(super) fn pickle(&self, value: &Object, others: usize) -> Result<Pickled, Raised> {
        let first = self.pickler.pickle(value.as_ptr(), others, |stream| !has_connection(stream))?;
        match first {
            Some(pickled) => Ok(pickled),
            None => pickle::slowly(&serialize(c"encode_result")?, value.as_ptr()),
        }
    }

    /// Pickles an exception, with its traceback as text.
    pub(super) fn pickle_error(&self, error: &Object) -> Result<Pickled, Raised> {
        let encode = serialize(c"encode_error")?;
        let (stream, loans) = lending::during(|| encode.call(&[error.as_ptr()]));
        Ok(Pickled { stream: stream?, buffers: Vec::new(), loans })
    }
}
