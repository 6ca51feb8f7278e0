//! `create_task` and `create_future`: they make instances of asyncio's classes without asyncio's Python methods.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use pyo3_ffi as ffi;

use super::core::LoopCore;
use ropewalk_capi::entry;
use ropewalk_capi::errors::fail;
use ropewalk_capi::object::{Object, Raised};

/// A class by its name in a module, as it is now.
unsafe fn class_of(module: *mut ffi::PyObject, name: *mut ffi::PyObject) -> Result<Object, Raised> {
    // SAFETY: a live module and a name; the borrowed class gets a reference of ours at once.
    unsafe {
        let class = ffi::PyDict_GetItemWithError(ffi::PyModule_GetDict(module), name);
        if class.is_null() && ffi::PyErr_Occurred().is_null() {
            return Err(fail(c"asyncio has lost its class of tasks or of futures"));
        }
        Object::share(class)
    }
}

#[entry]
pub(super) unsafe extern "C" fn create_future(
    owner: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a loop, whose module has the class and the names.
    unsafe {
        let state = &*LoopCore::of(owner).module;
        let arguments = [owner];
        let Ok(class) = class_of(state.futures, state.names.future_class) else { return null_mut() };
        ffi::PyObject_Vectorcall(class.as_ptr(), arguments.as_ptr(), 0, state.names.loop_keyword)
    }
}

/// `create_task(coro, *, name=None, context=None, ...)`: does what asyncio does without a task factory; with one it
/// calls asyncio's own method.
#[entry]
pub(super) unsafe extern "C" fn create_task(
    owner: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a loop, and what the interpreter passes.
    unsafe {
        let core = LoopCore::of(owner);
        let state = &*core.module;
        if core.check_open().is_err() {
            return null_mut();
        }
        let given = if names.is_null() { 0 } else { ffi::PyTuple_GET_SIZE(names) };
        if core.is_debug() || !core.task_factory.get().is_null() || count != 1 || given > 2 {
            // Calls asyncio's method with the same arguments.
            let all = (count + given) as usize;
            let mut with_owner = Vec::with_capacity(all + 1);
            with_owner.push(owner);
            with_owner.extend((0..all).map(|at| *arguments.add(at)));
            let count = count as usize + 1;
            return ffi::PyObject_Vectorcall(state.create_task, with_owner.as_ptr(), count, names);
        }
        let Ok(class) = class_of(state.tasks, state.names.task_class) else { return null_mut() };
        let mut values = [*arguments, owner, null_mut(), null_mut()];
        if given == 0 {
            return ffi::PyObject_Vectorcall(class.as_ptr(), values.as_ptr(), 1, state.names.loop_keyword);
        }
        let all = ffi::PyTuple_New(given + 1);
        if all.is_null() {
            return null_mut();
        }
        ffi::Py_INCREF(state.names.loop_);
        ffi::PyTuple_SET_ITEM(all, 0, state.names.loop_);
        for at in 0..given {
            let name = ffi::PyTuple_GET_ITEM(names, at);
            ffi::Py_INCREF(name);
            ffi::PyTuple_SET_ITEM(all, at + 1, name);
            values[2 + at as usize] = *arguments.offset(1 + at);
        }
        let task = ffi::PyObject_Vectorcall(class.as_ptr(), values.as_ptr(), 1, all);
        ffi::Py_DECREF(all);
        task
    }
}

#[entry]
pub(super) unsafe extern "C" fn get_factory(owner: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: a loop.
    unsafe { LoopCore::of(owner) }.task_factory.share().unwrap_or_else(Object::none).into_ptr()
}

#[entry]
pub(super) unsafe extern "C" fn set_factory(
    owner: *mut ffi::PyObject,
    value: *mut ffi::PyObject,
    _: *mut c_void,
) -> c_int {
    // SAFETY: a loop, and a live value or null.
    unsafe {
        let core = LoopCore::of(owner);
        drop(core.task_factory.take());
        if !value.is_null()
            && value != ffi::Py_None()
            && let Ok(value) = Object::share(value)
        {
            core.task_factory.set(value);
        }
        0
    }
}
