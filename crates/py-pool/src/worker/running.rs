//! `RunningTask`: the task that a thread runs, for the task's own code. `ropewalk.CurrentTask` is its public face.

use std::ffi::{c_int, c_void};
use std::ptr;

use pyo3_ffi as ffi;
use ropewalk_pool::Progress;

use crate::current::{self, CurrentTask};
use ropewalk_capi::entry;
use ropewalk_capi::heap;
use ropewalk_capi::object::{Object, Raised};

fn finish(result: Result<Object, Raised>) -> *mut ffi::PyObject {
    result.map_or(ptr::null_mut(), Object::into_ptr)
}

fn truth(value: bool) -> *mut ffi::PyObject {
    // SAFETY: the thread is attached.
    finish(unsafe { Object::own(ffi::PyBool_FromLong(value.into())) })
}

fn number(value: u64) -> *mut ffi::PyObject {
    // SAFETY: the thread is attached.
    finish(unsafe { Object::own(ffi::PyLong_FromUnsignedLongLong(value)) })
}

/// The object for the calling thread's task; `None` if it runs none.
pub(super) fn of_this_thread(kind: *mut ffi::PyTypeObject) -> Result<Object, Raised> {
    match current::current() {
        // SAFETY: the type of running tasks.
        Some(task) => unsafe { heap::make(kind, task) },
        None => Ok(Object::none()),
    }
}

/// The content of a method's object.
fn task<'a>(object: *mut ffi::PyObject) -> &'a CurrentTask {
    // SAFETY: the interpreter calls the methods of the type with its objects, which outlive the calls.
    unsafe { heap::content::<CurrentTask>(object) }
}

#[entry]
unsafe extern "C" fn id(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    number(task(object).id())
}

#[entry]
unsafe extern "C" fn attempt(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    number(task(object).attempt())
}

#[entry]
unsafe extern "C" fn left(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    match task(object).left() {
        // SAFETY: the thread is attached.
        Some(left) => finish(unsafe { Object::own(ffi::PyFloat_FromDouble(left.as_secs_f64())) }),
        None => Object::none().into_ptr(),
    }
}

#[entry]
unsafe extern "C" fn asked_to_stop(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    truth(task(object).is_asked_to_stop())
}

#[entry]
unsafe extern "C" fn ended(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    truth(task(object).has_ended())
}

#[entry]
unsafe extern "C" fn local_here(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    truth(task(object).is_local_here())
}

#[entry]
unsafe extern "C" fn beat(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    task(object).report(None);
    Object::none().into_ptr()
}

/// `report(done, total, note)`: `total` is not a number if there is none.
#[entry]
unsafe extern "C" fn report(object: *mut ffi::PyObject, arguments: *mut ffi::PyObject) -> *mut ffi::PyObject {
    let (mut done, mut total, mut note): (f64, f64, *mut ffi::PyObject) = (0.0, 0.0, ptr::null_mut());
    // SAFETY: places of the format's types; the text is UTF-8, and lives as long as the arguments.
    let note = unsafe {
        let format = c"ddO:report".as_ptr();
        if ffi::PyArg_ParseTuple(arguments, format, &raw mut done, &raw mut total, &raw mut note) == 0 {
            return ptr::null_mut();
        }
        if note == ffi::Py_None() {
            None
        } else {
            let mut length = 0;
            let text = ffi::PyUnicode_AsUTF8AndSize(note, &raw mut length);
            if text.is_null() {
                return ptr::null_mut();
            }
            Some(std::slice::from_raw_parts(text.cast::<u8>(), usize::try_from(length).unwrap_or(0)))
        }
    };
    let note = note.map(String::from_utf8_lossy);
    let total = Some(total).filter(|total: &f64| total.is_finite());
    task(object).report(Some(Progress::new(done, total, note.as_deref())));
    Object::none().into_ptr()
}

/// `call((name, args, kwargs))`
#[entry]
unsafe extern "C" fn call(object: *mut ffi::PyObject, call: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a live argument.
    finish(unsafe { Object::share(call) }.and_then(|call| super::calling::call(task(object), &call)))
}

#[entry]
unsafe extern "C" fn traverse(object: *mut ffi::PyObject, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    // SAFETY: an object of a heap type, which refers to nothing else.
    unsafe { heap::visit_type(object, visit, arg) }
}

/// Makes the type.
pub(super) fn make_type(module: &Object) -> Result<Object, Raised> {
    heap::make_type::<CurrentTask>(
        module,
        heap::Type {
            name: c"ropewalk._worker.RunningTask",
            doc: c"The task that a thread runs.",
            flags: ffi::Py_TPFLAGS_HAVE_GC | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION,
            methods: vec![
                heap::method(c"id", id, ffi::METH_NOARGS, c"id() -> int"),
                heap::method(c"attempt", attempt, ffi::METH_NOARGS, c"attempt() -> int, from 1"),
                heap::method(c"left", left, ffi::METH_NOARGS, c"left() -> seconds, or None"),
                heap::method(c"asked_to_stop", asked_to_stop, ffi::METH_NOARGS, c"asked_to_stop() -> bool"),
                heap::method(c"ended", ended, ffi::METH_NOARGS, c"ended() -> bool"),
                heap::method(c"local_here", local_here, ffi::METH_NOARGS, c"local_here() -> bool"),
                heap::method(c"beat", beat, ffi::METH_NOARGS, c"beat(): the task is alive"),
                heap::method(c"call", call, ffi::METH_O, c"call((name, args, kwargs)) -> what it returned"),
                heap::method(c"report", report, ffi::METH_VARARGS, c"report(done, total, note)"),
            ],
            getters: Vec::new(),
            slots: &[
                (ffi::Py_tp_traverse, traverse as *mut _),
                (ffi::Py_tp_dealloc, heap::dealloc::<CurrentTask> as *mut _),
            ],
        },
    )
}
