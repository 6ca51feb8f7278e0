//! `Ok` and `Err`: what a call came to, as a value.
//!
//! Two types with one field each and the same methods, so that either can be called whichever it is. They are made by
//! a vectorcall of the type, which leaves out `tp_new` and `tp_init`, and their methods take arguments as arrays: next
//! to nothing is left between Python and what is below.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;

use pyo3_ffi as ffi;

use crate::heap::{self, Field};
use crate::object::{Object, Raised, fail, raise_class};

/// The types, as pointers; null before they are made and after they are gone.
#[repr(C)]
pub(super) struct State {
    ok: *mut ffi::PyObject,
    err: *mut ffi::PyObject,
}

impl State {
    /// Every reference in it, for the garbage collector.
    pub(super) fn objects(&mut self) -> [&mut *mut ffi::PyObject; 2] {
        [&mut self.ok, &mut self.err]
    }
}

/// What a result holds: a value or an error, by its type.
struct Content {
    held: Field,
}

/// The two kinds, as types, so that each has methods of its own.
trait Kind {
    /// The name of the type, with its module, and of the field.
    const NAME: &'static CStr;
    const FIELD: &'static CStr;
    const DOC: &'static CStr;
    const IS_OK: bool;
}

struct OkKind;
struct ErrKind;

impl Kind for OkKind {
    const NAME: &'static CStr = c"windlass.Ok";
    const FIELD: &'static CStr = c"value";
    const DOC: &'static CStr = c"A call that came to a value.";
    const IS_OK: bool = true;
}

impl Kind for ErrKind {
    const NAME: &'static CStr = c"windlass.Err";
    const FIELD: &'static CStr = c"error";
    const DOC: &'static CStr = c"A call that came to an error.";
    const IS_OK: bool = false;
}

type Pointer = *mut ffi::PyObject;

fn finish(result: Result<Object, Raised>) -> Pointer {
    result.map_or(ptr::null_mut(), Object::into_ptr)
}

/// What a result holds, borrowed.
///
/// # Safety
///
/// `result` is an `Ok` or an `Err`, and alive.
#[inline]
unsafe fn held(result: Pointer) -> Pointer {
    // SAFETY: the caller's. The collector empties only what nobody reaches.
    unsafe { heap::content::<Content>(result).held.get() }
}

/// Another result of the same type.
///
/// # Safety
///
/// `like` is an `Ok` or an `Err`.
#[inline]
unsafe fn another(like: Pointer, held: Object) -> Result<Object, Raised> {
    // SAFETY: the caller's.
    unsafe { heap::make(ffi::Py_TYPE(like), Content { held: Field::new(held) }) }
}

/// Calls a function with one argument.
#[inline]
fn call_one(function: Pointer, argument: Pointer) -> Result<Object, Raised> {
    // The place before the argument is the callee's to use, for a method's `self`.
    let places = [ptr::null_mut(), argument];
    // SAFETY: live objects, one argument after a free place.
    unsafe {
        let count = 1 | ffi::PY_VECTORCALL_ARGUMENTS_OFFSET;
        Object::own(ffi::PyObject_Vectorcall(function, places.as_ptr().add(1), count, ptr::null_mut()))
    }
}

/// A new reference to what is there.
#[inline]
fn same(object: Pointer) -> Pointer {
    // SAFETY: a live object.
    unsafe { ffi::Py_INCREF(object) };
    object
}

unsafe extern "C" fn vectorcall<K: Kind>(
    kind: Pointer,
    arguments: *const Pointer,
    count: usize,
    names: Pointer,
) -> Pointer {
    // SAFETY: the interpreter passes our type and as many arguments as it says.
    unsafe {
        if ffi::PyVectorcall_NARGS(count) != 1 || !names.is_null() && ffi::PyTuple_Size(names) != 0 {
            ffi::PyErr_Format(
                ffi::PyExc_TypeError,
                c"%s takes one argument, by position".as_ptr(),
                (*kind.cast::<ffi::PyTypeObject>()).tp_name,
            );
            return ptr::null_mut();
        }
        let content = Object::share(*arguments).map(|held| Content { held: Field::new(held) });
        finish(content.and_then(|content| heap::make(kind.cast(), content)))
    }
}

/// For `object.__new__` and whoever else does not know vectorcalls.
unsafe extern "C" fn new<K: Kind>(
    kind: *mut ffi::PyTypeObject,
    arguments: Pointer,
    names: Pointer,
) -> Pointer {
    // SAFETY: a tuple, and a dictionary or null.
    unsafe {
        if ffi::PyTuple_Size(arguments) != 1 || !names.is_null() && ffi::PyDict_Size(names) != 0 {
            return vectorcall::<K>(kind.cast(), ptr::null(), 0, ptr::null_mut());
        }
        let argument = ffi::PyTuple_GetItem(arguments, 0);
        vectorcall::<K>(kind.cast(), &raw const argument, 1, ptr::null_mut())
    }
}

unsafe extern "C" fn is_ok<K: Kind>(_: Pointer, _: Pointer) -> Pointer {
    // SAFETY: the thread is attached.
    unsafe { ffi::PyBool_FromLong(K::IS_OK.into()) }
}

unsafe extern "C" fn is_err<K: Kind>(_: Pointer, _: Pointer) -> Pointer {
    // SAFETY: the thread is attached.
    unsafe { ffi::PyBool_FromLong((!K::IS_OK).into()) }
}

unsafe extern "C" fn ok<K: Kind>(result: Pointer, _: Pointer) -> Pointer {
    // SAFETY: a result.
    if K::IS_OK { same(unsafe { held(result) }) } else { Object::none().into_ptr() }
}

unsafe extern "C" fn err<K: Kind>(result: Pointer, _: Pointer) -> Pointer {
    // SAFETY: a result.
    if K::IS_OK { Object::none().into_ptr() } else { same(unsafe { held(result) }) }
}

/// The function changes what is held, if the kind is the wanted one.
#[inline]
fn mapped(result: Pointer, function: Pointer, wanted: bool) -> Pointer {
    if !wanted {
        return same(result);
    }
    // SAFETY: a result, and a live argument.
    unsafe { finish(call_one(function, held(result)).and_then(|held| another(result, held))) }
}

unsafe extern "C" fn map<K: Kind>(result: Pointer, function: Pointer) -> Pointer {
    mapped(result, function, K::IS_OK)
}

unsafe extern "C" fn map_err<K: Kind>(result: Pointer, function: Pointer) -> Pointer {
    mapped(result, function, !K::IS_OK)
}

/// The function gives the next result, if the kind is the wanted one.
#[inline]
fn chained(result: Pointer, function: Pointer, wanted: bool) -> Pointer {
    if !wanted {
        return same(result);
    }
    // SAFETY: a result, and a live argument.
    let next = unsafe { call_one(function, held(result)) };
    finish(next.and_then(|next| {
        // SAFETY: a result, whose module has both types; live objects.
        unsafe {
            let kind = ffi::Py_TYPE(next.as_ptr());
            if kind == ffi::Py_TYPE(result) {
                return Ok(next);
            }
            let Some(state) = super::state(super::module_of(ffi::Py_TYPE(result))) else {
                return Err(Raised);
            };
            let state = &state.results;
            if kind.cast() == state.ok || kind.cast() == state.err {
                return Ok(next);
            }
            ffi::PyErr_Format(
                ffi::PyExc_TypeError,
                c"the function must give an Ok or an Err, not %R; `map` wraps what is no result".as_ptr(),
                kind,
            );
            Err(Raised)
        }
    }))
}

unsafe extern "C" fn and_then<K: Kind>(result: Pointer, function: Pointer) -> Pointer {
    chained(result, function, K::IS_OK)
}

unsafe extern "C" fn or_else<K: Kind>(result: Pointer, function: Pointer) -> Pointer {
    chained(result, function, !K::IS_OK)
}

/// Calls the function with what is held, for its effect, if the kind is the wanted one.
fn inspected(result: Pointer, function: Pointer, wanted: bool) -> Pointer {
    // SAFETY: a result, and a live argument.
    if wanted && unsafe { call_one(function, held(result)) }.is_err() {
        return ptr::null_mut();
    }
    same(result)
}

unsafe extern "C" fn inspect<K: Kind>(result: Pointer, function: Pointer) -> Pointer {
    inspected(result, function, K::IS_OK)
}

unsafe extern "C" fn inspect_err<K: Kind>(result: Pointer, function: Pointer) -> Pointer {
    inspected(result, function, !K::IS_OK)
}

/// Raises `UnwrapError`, with the error that was held as its cause if it is one.
fn unwrap_error(message: Object, held: Pointer) -> Raised {
    let _ = raise_class(c"UnwrapError", &[message.as_ptr(), held]);
    // SAFETY: an exception is set, and taken; SetCause takes the reference over; SetObject takes its own.
    unsafe {
        if ffi::PyExceptionInstance_Check(held) != 0 {
            let error = crate::object::take_exception();
            ffi::PyException_SetCause(error.as_ptr(), same(held));
            ffi::PyErr_SetObject(ffi::Py_TYPE(error.as_ptr()).cast(), error.as_ptr());
        }
    }
    Raised
}

unsafe extern "C" fn unwrap<K: Kind>(result: Pointer, _: Pointer) -> Pointer {
    // SAFETY: a result; the format's argument is of its size.
    unsafe {
        let held = held(result);
        if K::IS_OK {
            return same(held);
        }
        if ffi::PyExceptionInstance_Check(held) != 0 {
            ffi::PyErr_SetObject(ffi::Py_TYPE(held).cast(), held);
        } else if let Ok(message) =
            Object::own(ffi::PyUnicode_FromFormat(c"unwrap() of Err(%R)".as_ptr(), held))
        {
            let _ = unwrap_error(message, held);
        }
        ptr::null_mut()
    }
}

unsafe extern "C" fn unwrap_err<K: Kind>(result: Pointer, _: Pointer) -> Pointer {
    // SAFETY: a result; the format's argument is of its size.
    unsafe {
        let held = held(result);
        if !K::IS_OK {
            return same(held);
        }
        if let Ok(message) = Object::own(ffi::PyUnicode_FromFormat(c"unwrap_err() of Ok(%R)".as_ptr(), held))
        {
            let _ = raise_class(c"UnwrapError", &[message.as_ptr(), held]);
        }
        ptr::null_mut()
    }
}

unsafe extern "C" fn expect<K: Kind>(result: Pointer, message: Pointer) -> Pointer {
    // SAFETY: a result, a live argument; the format's arguments are of their sizes.
    unsafe {
        let held = held(result);
        if K::IS_OK {
            return same(held);
        }
        if let Ok(message) = Object::own(ffi::PyUnicode_FromFormat(c"%S: %R".as_ptr(), message, held)) {
            let _ = unwrap_error(message, held);
        }
        ptr::null_mut()
    }
}

unsafe extern "C" fn unwrap_or<K: Kind>(result: Pointer, default: Pointer) -> Pointer {
    // SAFETY: a result, and a live argument.
    if K::IS_OK { same(unsafe { held(result) }) } else { same(default) }
}

unsafe extern "C" fn unwrap_or_else<K: Kind>(result: Pointer, function: Pointer) -> Pointer {
    // SAFETY: a result, and a live argument.
    unsafe { if K::IS_OK { same(held(result)) } else { finish(call_one(function, held(result))) } }
}

unsafe extern "C" fn get(result: Pointer, _: *mut c_void) -> Pointer {
    // SAFETY: a result.
    same(unsafe { held(result) })
}

unsafe extern "C" fn reduce(result: Pointer, _: Pointer) -> Pointer {
    // SAFETY: a result; the format's arguments are live objects.
    unsafe { ffi::Py_BuildValue(c"(O(O))".as_ptr(), ffi::Py_TYPE(result), held(result)) }
}

unsafe extern "C" fn repr<K: Kind>(result: Pointer) -> Pointer {
    let name = if K::IS_OK { c"Ok(%R)" } else { c"Err(%R)" };
    // A result may hold itself, by way of a list.
    // SAFETY: a result; the format's argument is of its size.
    unsafe {
        match ffi::Py_ReprEnter(result) {
            0 => {
                let text = ffi::PyUnicode_FromFormat(name.as_ptr(), held(result));
                ffi::Py_ReprLeave(result);
                text
            }
            1 => ffi::PyUnicode_FromString(c"...".as_ptr()),
            _ => ptr::null_mut(),
        }
    }
}

unsafe extern "C" fn hash<K: Kind>(result: Pointer) -> ffi::Py_hash_t {
    // SAFETY: a result.
    let inner = unsafe { ffi::PyObject_Hash(held(result)) };
    if inner == -1 {
        return -1;
    }
    // Different from that of what is held, and of the other kind.
    let mixed = inner.rotate_left(7) ^ if K::IS_OK { 0x51ED_270B } else { 0x2D51_36A9 };
    if mixed == -1 { -2 } else { mixed }
}

unsafe extern "C" fn compare(result: Pointer, other: Pointer, operation: c_int) -> Pointer {
    // SAFETY: a result, and a live object.
    unsafe {
        if operation != ffi::Py_EQ && operation != ffi::Py_NE {
            return same(ffi::Py_NotImplemented());
        }
        if ffi::Py_TYPE(result) == ffi::Py_TYPE(other) {
            return ffi::PyObject_RichCompare(held(result), held(other), operation);
        }
        let Some(state) = super::state(super::module_of(ffi::Py_TYPE(result))) else {
            return ptr::null_mut();
        };
        let kind: Pointer = ffi::Py_TYPE(other).cast();
        if kind == state.results.ok || kind == state.results.err {
            return ffi::PyBool_FromLong((operation == ffi::Py_NE).into());
        }
        same(ffi::Py_NotImplemented())
    }
}

unsafe extern "C" fn truth(_: Pointer) -> c_int {
    // SAFETY: a live exception class.
    unsafe {
        ffi::PyErr_SetString(
            ffi::PyExc_TypeError,
            c"a result is neither true nor false: use is_ok(), is_err() or match".as_ptr(),
        );
    }
    -1
}

unsafe extern "C" fn traverse(result: Pointer, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    // SAFETY: a result, and the collector's own function.
    unsafe {
        let answer = heap::content::<Content>(result).held.visit(visit, arg);
        if answer != 0 { answer } else { heap::visit_type(result, visit, arg) }
    }
}

/// Makes one of the types. It has no `tp_clear`: what it holds never changes, and a cycle through it goes through
/// something that can be cleared.
fn make_type<K: Kind + 'static>(module: Pointer) -> Result<Object, Raised> {
    let none = ffi::METH_NOARGS;
    let one = ffi::METH_O;
    let method = heap::method;
    let kind = heap::make_type::<Content>(
        module,
        heap::Type {
            name: K::NAME,
            doc: K::DOC,
            flags: ffi::Py_TPFLAGS_HAVE_GC,
            methods: vec![
                method(c"is_ok", is_ok::<K>, none, c"Whether it is an Ok."),
                method(c"is_err", is_err::<K>, none, c"Whether it is an Err."),
                method(c"ok", ok::<K>, none, c"The value, or None for an Err."),
                method(c"err", err::<K>, none, c"The error, or None for an Ok."),
                method(c"map", map::<K>, one, c"Ok(function(value)); an Err stays as it is."),
                method(c"map_err", map_err::<K>, one, c"Err(function(error)); an Ok stays as it is."),
                method(c"and_then", and_then::<K>, one, c"function(value), a result; an Err stays as it is."),
                method(c"or_else", or_else::<K>, one, c"function(error), a result; an Ok stays as it is."),
                method(c"inspect", inspect::<K>, one, c"Calls function(value) for an Ok; gives itself."),
                method(
                    c"inspect_err",
                    inspect_err::<K>,
                    one,
                    c"Calls function(error) for an Err; gives itself.",
                ),
                method(c"unwrap", unwrap::<K>, none, c"The value; raises the error of an Err."),
                method(c"unwrap_err", unwrap_err::<K>, none, c"The error; raises for an Ok."),
                method(c"unwrap_or", unwrap_or::<K>, one, c"The value, or what is given for an Err."),
                method(
                    c"unwrap_or_else",
                    unwrap_or_else::<K>,
                    one,
                    c"The value, or function(error) for an Err.",
                ),
                method(
                    c"expect",
                    expect::<K>,
                    one,
                    c"The value; raises UnwrapError with a message for an Err.",
                ),
                method(c"__reduce__", reduce, none, c"For pickle and copy."),
                method(
                    c"__class_getitem__",
                    ffi::Py_GenericAlias,
                    one | ffi::METH_CLASS,
                    c"For annotations.",
                ),
            ],
            getters: vec![heap::getter(K::FIELD, get, c"What it holds.")],
            slots: &[
                (ffi::Py_tp_new, new::<K> as *mut _),
                (ffi::Py_tp_repr, repr::<K> as *mut _),
                (ffi::Py_tp_hash, hash::<K> as *mut _),
                (ffi::Py_tp_richcompare, compare as *mut _),
                (ffi::Py_nb_bool, truth as *mut _),
                (ffi::Py_tp_traverse, traverse as *mut _),
                (ffi::Py_tp_dealloc, heap::dealloc::<Content> as *mut _),
            ],
        },
    )?;
    // SAFETY: a fresh heap type that nobody else has; a pair of a name and a tuple goes into its dictionary.
    unsafe {
        (*kind.as_ptr().cast::<ffi::PyTypeObject>()).tp_vectorcall = Some(vectorcall::<K>);
        let names = Object::own(ffi::Py_BuildValue(c"(s)".as_ptr(), K::FIELD.as_ptr()))?;
        if ffi::PyObject_SetAttrString(kind.as_ptr(), c"__match_args__".as_ptr(), names.as_ptr()) != 0 {
            return Err(Raised);
        }
    }
    Ok(kind)
}

/// Adds what is public to a fresh module.
pub(super) fn add(module: Pointer, state: &mut State) -> Result<(), Raised> {
    state.ok = make_type::<OkKind>(module)?.into_ptr();
    state.err = make_type::<ErrKind>(module)?.into_ptr();
    for (name, kind) in [(c"Ok", state.ok), (c"Err", state.err)] {
        // SAFETY: a live module and a live type, of which it takes its own reference.
        if unsafe { ffi::PyModule_AddObjectRef(module, name.as_ptr(), kind) } != 0 {
            return Err(fail(c"a type could not be added"));
        }
    }
    Ok(())
}
