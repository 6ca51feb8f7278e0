//! `_Panics`: an object that panics at a chosen place, so that tests can check that no panic ends the process.
//!
//! It has one function of each kind that the interpreter calls. It is part of the module so that the tests hold for the
//! extension that is shipped, and not for another build.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;

use pyo3_ffi as ffi;

use crate::awaitable::AM_SEND;
use crate::entry::entry;
use crate::errors::fail;
use crate::heap::{self, Field, Type, content, fast_method, getter, make, method};
use crate::module;
use crate::object::{Object, Raised, detached};

struct Panics {
    place: String,
    /// Any object, to make cycles with.
    held: Field,
}

impl Panics {
    fn at(&self, place: &str) {
        assert!(self.place != place, "asked to panic in {place}");
    }
}

impl Drop for Panics {
    fn drop(&mut self) {
        self.at("dealloc");
    }
}

/// Panics if `place` is the chosen one.
///
/// # Safety
///
/// `object` is a live `_Panics`.
unsafe fn at(object: *mut ffi::PyObject, place: &str) {
    // SAFETY: the caller's.
    unsafe { content::<Panics>(object) }.at(place);
}

fn none() -> *mut ffi::PyObject {
    Object::none().into_ptr()
}

/// `_Panics(place, held)`.
#[entry]
unsafe extern "C" fn new(
    kind: *mut ffi::PyTypeObject,
    args: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let (mut place, mut held) = (null_mut(), null_mut());
    // SAFETY: pointers for two borrowed references; a type of ours.
    let made = unsafe {
        if ffi::PyArg_UnpackTuple(args, c"_Panics".as_ptr(), 2, 2, &raw mut place, &raw mut held) == 0 {
            return null_mut();
        }
        Object::share(place).and_then(|place| {
            let bytes = Object::own(ffi::PyUnicode_AsUTF8String(place.as_ptr()))?;
            let place = String::from_utf8_lossy(bytes.as_bytes().unwrap_or_default()).into_owned();
            assert!(place != "new", "asked to panic in new");
            make(kind, Panics { place, held: Field::new(Object::share(held)?) })
        })
    };
    made.map_or(null_mut(), Object::into_ptr)
}

/// Functions that return an object and take one, or more that do not matter here.
macro_rules! gives_an_object {
    ($name:ident, $place:literal $(, $more:ty)*) => {
        #[entry]
        unsafe extern "C" fn $name(object: *mut ffi::PyObject $(, _: $more)*) -> *mut ffi::PyObject {
            // SAFETY: a live object of ours.
            unsafe { at(object, $place) };
            none()
        }
    };
}

/// Functions that return a number and take an object, or more that do not matter here.
macro_rules! gives_a_number {
    ($name:ident, $place:literal, $number:ty $(, $more:ty)*) => {
        #[entry]
        unsafe extern "C" fn $name(object: *mut ffi::PyObject $(, _: $more)*) -> $number {
            // SAFETY: a live object of ours.
            unsafe { at(object, $place) };
            0
        }
    };
}

gives_an_object!(a_method, "method", *mut ffi::PyObject);
gives_an_object!(a_fast_method, "fast_method", *mut *mut ffi::PyObject, ffi::Py_ssize_t);
gives_an_object!(get, "get", *mut c_void);
gives_an_object!(repr, "repr");
gives_an_object!(compare, "compare", *mut ffi::PyObject, c_int);
gives_an_object!(call, "call", *mut ffi::PyObject, *mut ffi::PyObject);
gives_an_object!(iter, "iter");
gives_an_object!(next, "next");
gives_a_number!(set, "set", c_int, *mut ffi::PyObject, *mut c_void);
gives_a_number!(hash, "hash", ffi::Py_hash_t);
gives_a_number!(length, "length", ffi::Py_ssize_t);
gives_a_number!(truth, "truth", c_int);

#[entry]
unsafe extern "C" fn get_buffer(object: *mut ffi::PyObject, view: *mut ffi::Py_buffer, _: c_int) -> c_int {
    // SAFETY: a live object of ours, and a view marked as empty.
    unsafe {
        (*view).obj = null_mut();
        at(object, "buffer");
    }
    let Raised = fail(c"it has no bytes");
    -1
}

#[entry]
unsafe extern "C" fn send(
    object: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
    result: *mut *mut ffi::PyObject,
) -> ffi::PySendResult {
    // SAFETY: a live object of ours, and room for the result.
    unsafe {
        at(object, "send");
        *result = none();
    }
    ffi::PySendResult::PYGEN_RETURN
}

/// Panics while the interpreter is released.
#[entry]
unsafe extern "C" fn away(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a live object of ours.
    let panics = unsafe { content::<Panics>(object) };
    detached(|| panics.at("away"));
    none()
}

#[entry]
unsafe extern "C" fn traverse(object: *mut ffi::PyObject, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    // SAFETY: a live object of ours, and the collector's arguments.
    unsafe {
        at(object, "traverse");
        let answer = content::<Panics>(object).held.visit(visit, arg);
        if answer != 0 { answer } else { heap::visit_type(object, visit, arg) }
    }
}

#[entry]
unsafe extern "C" fn clear(object: *mut ffi::PyObject) -> c_int {
    // SAFETY: a live object of ours that is garbage.
    unsafe {
        at(object, "clear");
        drop(content::<Panics>(object).held.take());
    }
    0
}

/// Adds the type to a fresh module, under its full name in it.
///
/// # Errors
///
/// An exception is set.
pub fn add(module: &Object, name: &'static CStr) -> Result<(), Raised> {
    let mut attribute = getter(c"attribute", get, c"Panics in get or set.");
    attribute.set = Some(set);
    let kind = heap::make_type::<Panics>(
        module,
        Type {
            name,
            doc: c"_Panics(place, held): panics in one of its functions. For tests.",
            flags: ffi::Py_TPFLAGS_HAVE_GC,
            methods: vec![
                method(c"method", a_method, ffi::METH_O, c"Panics in method."),
                method(c"away", away, ffi::METH_NOARGS, c"Panics in away, with the interpreter let go."),
                fast_method(c"fast_method", a_fast_method, c"Panics in fast_method."),
            ],
            getters: vec![attribute],
            slots: &[
                (ffi::Py_tp_new, new as *mut c_void),
                (ffi::Py_tp_dealloc, heap::dealloc::<Panics> as *mut c_void),
                (ffi::Py_tp_traverse, traverse as *mut c_void),
                (ffi::Py_tp_clear, clear as *mut c_void),
                (ffi::Py_tp_repr, repr as *mut c_void),
                (ffi::Py_tp_hash, hash as *mut c_void),
                (ffi::Py_tp_richcompare, compare as *mut c_void),
                (ffi::Py_tp_call, call as *mut c_void),
                (ffi::Py_tp_iter, iter as *mut c_void),
                (ffi::Py_tp_iternext, next as *mut c_void),
                (ffi::Py_sq_length, length as *mut c_void),
                (ffi::Py_nb_bool, truth as *mut c_void),
                (ffi::Py_bf_getbuffer, get_buffer as *mut c_void),
                (AM_SEND, send as *mut c_void),
            ],
        },
    )?;
    // SAFETY: our fresh module, and a live type.
    unsafe { module::add(module, c"_Panics", kind.as_ptr()) }
}
