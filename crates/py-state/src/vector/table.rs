//! The tables of the types of vectors: the names and docstrings of their methods.

use std::ffi::{CStr, c_void};

use pyo3_ffi as ffi;
use ropewalk_capi::heap::{self, Type, fast_method, method};
use ropewalk_capi::module;
use ropewalk_capi::object::{Object, Raised};

use super::object::Content;
use super::parts::Parts;
use super::{builder, methods, object, protocol, walk};
use crate::schema;
use crate::types::State;

const NONE: std::ffi::c_int = ffi::METH_NOARGS;
const ONE: std::ffi::c_int = ffi::METH_O;

/// Makes the types and the empty vector, and adds what is public to the fresh module.
pub(super) fn fill(state: &mut State, module: &Object) -> Result<(), Raised> {
    state.vector = make_type(module)?.into_ptr();
    state.vector_builder = builder::make_type(module)?.into_ptr();
    state.vector_iterator = walk::make_type(module)?.into_ptr();
    // SAFETY: the types of nodes and vectors; our fresh module, and live objects.
    unsafe {
        let empty = Parts::empty(state.node.cast())?;
        state.empty_vector = object::make(state.vector.cast(), empty)?.into_ptr();
        module::add(module, c"PVector", state.vector)?;
        module::add(module, c"VectorBuilder", state.vector_builder)
    }
}

fn make_type(module: &Object) -> Result<Object, Raised> {
    let kind = heap::make_type::<Content>(
        module,
        Type {
            name: c"ropewalk.state.PVector",
            doc: VECTOR,
            // The interpreter uses a type's vectorcall directly only if the type is immutable.
            flags: ffi::Py_TPFLAGS_HAVE_GC | ffi::Py_TPFLAGS_IMMUTABLETYPE | ffi::Py_TPFLAGS_SEQUENCE,
            methods: table(),
            getters: Vec::new(),
            slots: &[
                (ffi::Py_tp_new, protocol::new as *mut c_void),
                (ffi::Py_mp_subscript, protocol::subscript as *mut c_void),
                (ffi::Py_sq_item, protocol::item as *mut c_void),
                (ffi::Py_sq_length, protocol::length as *mut c_void),
                (ffi::Py_sq_contains, protocol::contains as *mut c_void),
                (ffi::Py_sq_concat, protocol::concat as *mut c_void),
                (ffi::Py_tp_iter, walk::iter as *mut c_void),
                (ffi::Py_tp_repr, protocol::repr as *mut c_void),
                (ffi::Py_tp_hash, protocol::hash as *mut c_void),
                (ffi::Py_tp_richcompare, protocol::compare as *mut c_void),
                (ffi::Py_tp_traverse, object::traverse as *mut c_void),
                (ffi::Py_tp_dealloc, object::dealloc as *mut c_void),
            ],
        },
    )?;
    // SAFETY: a new heap type that no other code has seen, so the immutable type can still be completed.
    unsafe { (*kind.as_ptr().cast::<ffi::PyTypeObject>()).tp_vectorcall = Some(protocol::vectorcall) };
    Ok(kind)
}

/// The name, the function, its calling convention, and the docstring, with the signature for `inspect`.
fn table() -> Vec<ffi::PyMethodDef> {
    vec![
        method(c"append", methods::append, ONE, APPEND),
        method(c"extend", methods::extend, ONE, EXTEND),
        fast_method(c"set", methods::set, SET),
        method(c"pop", methods::pop, NONE, POP),
        method(c"delete", methods::delete, ONE, DELETE),
        fast_method(c"insert", methods::insert, INSERT),
        fast_method(c"index", methods::index, INDEX),
        method(
            c"count",
            methods::count,
            ONE,
            c"count($self, item, /)\n--\n\nHow many items are equal to it.",
        ),
        method(c"mutate", methods::mutate, NONE, MUTATE),
        method(c"__copy__", methods::itself, NONE, c"__copy__($self, /)\n--\n\nThe vector itself."),
        method(c"__reduce__", methods::reduce, NONE, c"__reduce__($self, /)\n--\n\nFor pickle and copy."),
        schema::definition(),
        method(c"__class_getitem__", ffi::Py_GenericAlias, ONE | ffi::METH_CLASS, c"For annotations."),
    ]
}

const VECTOR: &CStr = c"PVector(items=(), /)\n--\n
A persistent vector: it never changes, and its methods derive other vectors that share its nodes.

Made of an iterable. To derive a vector with one item set or appended takes a time that grows with the logarithm of the
length. It equals vectors with equal items, and no list or tuple.
";

const APPEND: &CStr = c"append($self, item, /)
--

The vector with one item more.";

const EXTEND: &CStr = c"extend($self, items, /)
--

The vector with the items of an iterable behind its own.";

const SET: &CStr = c"set($self, index, item, /)
--

The vector with an item replaced: this very vector if the item is the same object already. Raises `IndexError`.";

const POP: &CStr = c"pop($self, /)
--

The vector without its last item. Raises `IndexError` if it is empty.";

const DELETE: &CStr = c"delete($self, index, /)
--

The vector without an item; those behind it are copied. Raises `IndexError`.";

const INSERT: &CStr = c"insert($self, index, item, /)
--

The vector with an item more before an index; those behind it are copied.";

const INDEX: &CStr = c"index($self, item, start=0, stop=sys.maxsize, /)
--

The first index of an equal item, from `start` on and before `stop`. Raises `ValueError` if there is none.";

const MUTATE: &CStr = c"mutate($self, /)
--

A builder that begins with the vector's items, for many changes at once. The vector stays as it is.";
