//! The tables of the types of maps: the names and docstrings of their methods.

use std::ffi::{CStr, c_void};

use pyo3_ffi as ffi;
use ropewalk_capi::heap::{self, Type, fast_method, keyword_method, method};
use ropewalk_capi::module;
use ropewalk_capi::object::{Object, Raised};

use super::object::Content;
use super::{builder, methods, object, protocol, views};
use crate::schema;
use crate::types::State;

const NONE: std::ffi::c_int = ffi::METH_NOARGS;
const ONE: std::ffi::c_int = ffi::METH_O;

/// Makes the types and the empty map, and adds what is public to the fresh module.
pub(super) fn fill(state: &mut State, module: &Object) -> Result<(), Raised> {
    state.map = make_type(module)?.into_ptr();
    state.map_builder = builder::make_type(module)?.into_ptr();
    views::fill(state, module)?;
    // SAFETY: the types of nodes and maps; our fresh module, and live objects.
    unsafe {
        state.empty_map = object::make_empty(state.node.cast(), state.map.cast())?.into_ptr();
        module::add(module, c"PMap", state.map)?;
        module::add(module, c"MapBuilder", state.map_builder)
    }
}

fn make_type(module: &Object) -> Result<Object, Raised> {
    let kind = heap::make_type::<Content>(
        module,
        Type {
            name: c"ropewalk.state.PMap",
            doc: MAP,
            // The interpreter uses a type's vectorcall directly only if the type is immutable.
            flags: ffi::Py_TPFLAGS_HAVE_GC | ffi::Py_TPFLAGS_IMMUTABLETYPE | ffi::Py_TPFLAGS_MAPPING,
            methods: table(),
            getters: Vec::new(),
            slots: &[
                (ffi::Py_tp_new, protocol::new as *mut c_void),
                (ffi::Py_mp_subscript, protocol::subscript as *mut c_void),
                (ffi::Py_mp_length, protocol::length as *mut c_void),
                (ffi::Py_sq_contains, protocol::contains as *mut c_void),
                (ffi::Py_nb_or, protocol::or as *mut c_void),
                (ffi::Py_tp_iter, protocol::iter as *mut c_void),
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
        fast_method(
            c"get",
            methods::get,
            c"get($self, key, default=None, /)\n--\n\nThe value, or `default`.",
        ),
        fast_method(c"set", methods::set, SET),
        method(c"delete", methods::delete, ONE, DELETE),
        method(c"discard", methods::discard, ONE, DISCARD),
        keyword_method(c"update", methods::update, UPDATE),
        method(c"keys", methods::keys, NONE, c"keys($self, /)\n--\n\nA view of the keys, as a set."),
        method(c"values", methods::values, NONE, c"values($self, /)\n--\n\nA view of the values."),
        method(
            c"items",
            methods::items,
            NONE,
            c"items($self, /)\n--\n\nA view of the entries, as a set of pairs.",
        ),
        method(c"mutate", methods::mutate, NONE, MUTATE),
        method(c"__copy__", methods::itself, NONE, c"__copy__($self, /)\n--\n\nThe map itself."),
        method(c"__reduce__", methods::reduce, NONE, c"__reduce__($self, /)\n--\n\nFor pickle and copy."),
        schema::definition(),
        method(c"__class_getitem__", ffi::Py_GenericAlias, ONE | ffi::METH_CLASS, c"For annotations."),
    ]
}

const MAP: &CStr = c"PMap(source=(), /, **entries)\n--\n
A persistent map: it never changes, and its methods derive other maps that share its nodes.

Made of a mapping or an iterable of pairs, and of entries by name. To derive a map with one entry set takes a time that
grows with the logarithm of the length. It equals every mapping with equal entries. Its order follows the keys' hashes.
";

const SET: &CStr = c"set($self, key, value, /)
--

The map with an entry set: this very map if the value is the same object already.";

const DELETE: &CStr = c"delete($self, key, /)
--

The map without an entry. Raises `KeyError` if there is none.";

const DISCARD: &CStr = c"discard($self, key, /)
--

The map without an entry: this very map if there is none.";

const UPDATE: &CStr =
    c"The map with the entries of a mapping or of an iterable of pairs, and those that are given by name.";

const MUTATE: &CStr = c"mutate($self, /)
--

A builder that begins with the map's entries, for many changes at once. The map stays as it is.";
