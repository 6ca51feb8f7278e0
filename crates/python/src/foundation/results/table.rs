//! The tables of the two types: the names of their methods, and what `help` says of them.

use std::ffi::CStr;
use std::ptr;

use pyo3_ffi as ffi;

use super::holder::{self, Content, OFFSET};
use super::{ErrKind, Kind, OkKind, Pointer, methods, protocol};
use crate::heap::{self, method};
use crate::object::{Object, Raised};

const NONE: std::ffi::c_int = ffi::METH_NOARGS;
const ONE: std::ffi::c_int = ffi::METH_O;

/// Makes `Ok` and `Err`.
pub(super) fn make_types(module: Pointer) -> Result<(Object, Object), Raised> {
    Ok((make_type::<OkKind>(module)?, make_type::<ErrKind>(module)?))
}

fn make_type<K: Kind>(module: Pointer) -> Result<Object, Raised> {
    // Unlike a property, a member is read by the interpreter itself once the code that reads it is warm. The
    // interpreter copies the table.
    let members = [
        ffi::PyMemberDef {
            name: K::FIELD.as_ptr(),
            type_code: ffi::Py_T_OBJECT_EX,
            offset: OFFSET as ffi::Py_ssize_t,
            flags: ffi::Py_READONLY,
            doc: c"What it holds.".as_ptr(),
        },
        ffi::PyMemberDef::default(),
    ];
    let kind = heap::make_type::<Content>(
        module,
        heap::Type {
            name: K::NAME,
            doc: K::DOC,
            // The interpreter calls only a type that cannot change straight through its vectorcall.
            flags: ffi::Py_TPFLAGS_HAVE_GC | ffi::Py_TPFLAGS_IMMUTABLETYPE,
            methods: table::<K>(),
            getters: Vec::new(),
            slots: &[
                (ffi::Py_tp_members, members.as_ptr().cast_mut().cast()),
                (ffi::Py_tp_new, protocol::new as *mut _),
                (ffi::Py_tp_repr, protocol::repr::<K> as *mut _),
                (ffi::Py_tp_hash, protocol::hash::<K> as *mut _),
                (ffi::Py_tp_richcompare, protocol::compare as *mut _),
                (ffi::Py_nb_bool, protocol::truth as *mut _),
                (ffi::Py_tp_traverse, holder::traverse as *mut _),
                (ffi::Py_tp_dealloc, holder::dealloc as *mut _),
            ],
        },
    )?;
    // SAFETY: a fresh heap type that nobody else has seen, so that what is immutable to all others can be completed; a
    // pair of a name and a tuple goes into its dictionary, and whatever was cached of it is dropped.
    unsafe {
        let raw = kind.as_ptr().cast::<ffi::PyTypeObject>();
        (*raw).tp_vectorcall = Some(protocol::vectorcall);
        let names = Object::own(ffi::Py_BuildValue(c"(s)".as_ptr(), K::FIELD.as_ptr()))?;
        if ffi::PyDict_SetItemString((*raw).tp_dict, c"__match_args__".as_ptr(), names.as_ptr()) != 0 {
            return Err(Raised);
        }
        ffi::PyType_Modified(raw);
    }
    Ok(kind)
}

/// What is said of a type, or of one of its methods, with the signature that `inspect` reads.
type Doc = &'static CStr;

fn table<K: Kind>() -> Vec<ffi::PyMethodDef> {
    let [to_value, to_error] = [unwrap_doc(K::IS_OK), unwrap_err_doc(K::IS_OK)];
    vec![
        method(c"is_ok", methods::is_ok::<K>, NONE, c"is_ok($self, /)\n--\n\nWhether it is an `Ok`."),
        method(c"is_err", methods::is_err::<K>, NONE, c"is_err($self, /)\n--\n\nWhether it is an `Err`."),
        method(c"ok", methods::ok::<K>, NONE, c"ok($self, /)\n--\n\nThe value, or `None` for an `Err`."),
        method(c"err", methods::err::<K>, NONE, c"err($self, /)\n--\n\nThe error, or `None` for an `Ok`."),
        method(c"map", methods::map::<K>, ONE, MAP),
        method(c"map_err", methods::map_err::<K>, ONE, MAP_ERR),
        method(c"and_then", methods::and_then::<K>, ONE, AND_THEN),
        method(c"or_else", methods::or_else::<K>, ONE, OR_ELSE),
        method(c"inspect", methods::inspect::<K>, ONE, INSPECT),
        method(c"inspect_err", methods::inspect_err::<K>, ONE, INSPECT_ERR),
        method(c"unwrap", methods::unwrap::<K>, NONE, to_value),
        method(c"unwrap_err", methods::unwrap_err::<K>, NONE, to_error),
        method(c"unwrap_or", methods::unwrap_or::<K>, ONE, UNWRAP_OR),
        method(c"unwrap_or_else", methods::unwrap_or_else::<K>, ONE, UNWRAP_OR_ELSE),
        method(c"expect", methods::expect::<K>, ONE, EXPECT),
        method(c"__reduce__", protocol::reduce, NONE, c"For pickle and copy."),
        method(c"__class_getitem__", ffi::Py_GenericAlias, ONE | ffi::METH_CLASS, c"For annotations."),
    ]
}
