//! The tables of the two types: the names and docstrings of their methods.

use std::ffi::CStr;

use pyo3_ffi as ffi;

use super::holder::{self, Content, OFFSET};
use super::kind::{ErrKind, Kind, OkKind};
use super::{methods, protocol};
use ropewalk_capi::heap::{self, method};
use ropewalk_capi::object::{Object, Raised};

const NONE: std::ffi::c_int = ffi::METH_NOARGS;
const ONE: std::ffi::c_int = ffi::METH_O;

/// Makes `Ok` and `Err`.
pub(super) fn make_types(module: &Object) -> Result<(Object, Object), Raised> {
    Ok((make_type::<OkKind>(module, OK)?, make_type::<ErrKind>(module, ERR)?))
}

fn make_type<K: Kind>(module: &Object, doc: &'static CStr) -> Result<Object, Raised> {
    // Unlike a property, the interpreter reads a member itself once the code that reads it is warm. It copies the
    // table.
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
            doc,
            // The interpreter uses a type's vectorcall directly only if the type is immutable.
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
    // SAFETY: a new heap type that no other code has seen, so the immutable type can still be completed; a pair of a
    // name and a tuple goes into its dictionary, and its caches are dropped.
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

/// The name, the function, its calling convention, and the docstring, with the signature for `inspect`.
fn table<K: Kind>() -> Vec<ffi::PyMethodDef> {
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
        method(c"unwrap", methods::unwrap::<K>, NONE, UNWRAP),
        method(c"unwrap_err", methods::unwrap_err::<K>, NONE, UNWRAP_ERR),
        method(c"unwrap_or", methods::unwrap_or::<K>, ONE, UNWRAP_OR),
        method(c"unwrap_or_else", methods::unwrap_or_else::<K>, ONE, UNWRAP_OR_ELSE),
        method(c"expect", methods::expect::<K>, ONE, EXPECT),
        method(c"__reduce__", protocol::reduce, NONE, c"__reduce__($self, /)\n--\n\nFor pickle and copy."),
        method(c"__class_getitem__", ffi::Py_GenericAlias, ONE | ffi::METH_CLASS, c"For annotations."),
    ]
}

const OK: &CStr = c"Ok(value, /)
--

A call that came to a value.

>>> import ropewalk
>>> ropewalk.Ok(3).value
3
";

const ERR: &CStr = c"Err(error, /)
--

A call that came to an error: an exception, or anything that says what was wrong.

>>> import ropewalk
>>> ropewalk.Err('too late').error
'too late'
";

const MAP: &CStr = c"map($self, function, /)
--

``Ok(function(value))``; an `Err` stays as it is.

>>> from ropewalk import Err, Ok
>>> Ok('7').map(int), Err('none').map(int)
(Ok(7), Err('none'))
";

const MAP_ERR: &CStr = c"map_err($self, function, /)
--

``Err(function(error))``; an `Ok` stays as it is.

>>> from ropewalk import Err, Ok
>>> Ok(7).map_err(str.upper), Err('none').map_err(str.upper)
(Ok(7), Err('NONE'))
";

const AND_THEN: &CStr = c"and_then($self, function, /)
--

``function(value)``, which gives a result; an `Err` stays as it is.

>>> from ropewalk import Err, Ok
>>> def half(number):
...     return Err(f'{number} is odd') if number % 2 else Ok(number // 2)
>>> Ok(12).and_then(half), Ok(3).and_then(half).and_then(half)
(Ok(6), Err('3 is odd'))
";

const OR_ELSE: &CStr = c"or_else($self, function, /)
--

``function(error)``, which gives a result; an `Ok` stays as it is.

>>> from ropewalk import Err, Ok
>>> Err('none').or_else(lambda error: Ok(0)), Ok(7).or_else(Err)
(Ok(0), Ok(7))
";

const INSPECT: &CStr = c"inspect($self, function, /)
--

Calls ``function(value)`` for an `Ok`, whatever it returns; gives the result itself.

>>> from ropewalk import Err, Ok
>>> Ok(7).inspect(print)
7
Ok(7)
";

const INSPECT_ERR: &CStr = c"inspect_err($self, function, /)
--

Calls ``function(error)`` for an `Err`, whatever it returns; gives the result itself.

>>> from ropewalk import Err, Ok
>>> Err('none').inspect_err(print)
none
Err('none')
";

const UNWRAP: &CStr = c"unwrap($self, /)
--

The value. An `Err` raises: its error if that is an exception, with the traceback it has, else `UnwrapError`.

>>> from ropewalk import Err, Ok
>>> Ok(7).unwrap()
7
>>> Err(KeyError('port')).unwrap()
Traceback (most recent call last):
KeyError: 'port'
";

const UNWRAP_ERR: &CStr = c"unwrap_err($self, /)
--

The error. An `Ok` raises `UnwrapError`.

>>> from ropewalk import Err
>>> Err('none').unwrap_err()
'none'
";

const UNWRAP_OR: &CStr = c"unwrap_or($self, default, /)
--

The value, or `default` for an `Err`.

>>> from ropewalk import Err, Ok
>>> Ok(7).unwrap_or(0), Err('none').unwrap_or(0)
(7, 0)
";

const UNWRAP_OR_ELSE: &CStr = c"unwrap_or_else($self, function, /)
--

The value, or ``function(error)`` for an `Err`.

>>> from ropewalk import Err, Ok
>>> Ok(7).unwrap_or_else(len), Err('none').unwrap_or_else(len)
(7, 4)
";

const EXPECT: &CStr = c"expect($self, message, /)
--

The value. An `Err` raises `UnwrapError` with the message; its error is the cause if it is an exception.

>>> from ropewalk import Err, Ok
>>> Ok(7).expect('a port')
7
>>> Err('none').expect('a port')
Traceback (most recent call last):
ropewalk._errors.UnwrapError: a port: 'none'
";
