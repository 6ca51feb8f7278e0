//! The types of handles, and their methods.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;

use pyo3_ffi as ffi;

use super::core::LoopCore;
use super::handle::{
    CANCELLED, Handle, ONE, PLAIN, SHARED, TIMED, TIMER, WHOLE, clear, dealloc, handle, traverse,
};
use super::loop_module::LoopModule;
use ropewalk_capi::entry;
use ropewalk_capi::heap;
use ropewalk_capi::object::{Object, Raised};

/// A new reference to a field's object, or to None.
fn shared_or_none(
    object: *mut ffi::PyObject,
    field: impl FnOnce(&Handle) -> *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a live handle; what it holds lives while it is locked.
    unsafe {
        handle(object).locked(|made| {
            let value = field(made);
            let value = if value.is_null() { ffi::Py_None() } else { value };
            ffi::Py_INCREF(value);
            value
        })
    }
}

#[entry]
unsafe extern "C" fn get_callback(object: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    shared_or_none(object, |made| made.callback)
}

#[entry]
unsafe extern "C" fn get_loop(object: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    shared_or_none(object, |made| made.owner)
}

#[entry]
unsafe extern "C" fn get_repr(object: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    shared_or_none(object, |made| made.repr)
}

#[entry]
unsafe extern "C" fn get_source(object: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    shared_or_none(object, |made| made.source_traceback)
}

#[entry]
unsafe extern "C" fn get_args(object: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: a live handle; the reference to the argument is taken while it is locked.
    unsafe {
        let made = handle(object);
        let (args, one, gone) = made.locked(|made| {
            ffi::Py_XINCREF(made.args);
            (made.args, made.has(ONE), made.callback.is_null())
        });
        if one && !args.is_null() {
            let tuple = ffi::PyTuple_Pack(1, args);
            ffi::Py_DECREF(args);
            return tuple;
        }
        if !args.is_null() {
            return args;
        }
        if gone {
            ffi::Py_INCREF(ffi::Py_None());
            return ffi::Py_None();
        }
        ffi::PyTuple_New(0)
    }
}

#[entry]
unsafe extern "C" fn get_cancelled(object: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: a live handle.
    unsafe { ffi::PyBool_FromLong(handle(object).has(CANCELLED).into()) }
}

#[entry]
unsafe extern "C" fn get_scheduled(object: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: a live handle.
    unsafe { ffi::PyBool_FromLong(handle(object).has(TIMED).into()) }
}

#[entry]
unsafe extern "C" fn get_when(object: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: a live timer.
    unsafe {
        let timer = handle(object);
        if timer.has(WHOLE) {
            ffi::PyLong_FromDouble(timer.when)
        } else {
            ffi::PyFloat_FromDouble(timer.when)
        }
    }
}

/// The handle's own context. A shared context is copied first.
fn own_context(object: *mut ffi::PyObject) -> Result<Object, Raised> {
    // SAFETY: a live handle. On a free-threaded build no context is shared, so nothing is changed there.
    unsafe {
        let made = handle(object);
        if made.has(SHARED) {
            let running =
                if made.owner.is_null() { None } else { LoopCore::of(made.owner).snapshots.of_running(made) };
            let copy = running.map_or_else(|| Object::own(ffi::PyContext_Copy(made.context)), Ok)?;
            let old = std::mem::replace(&mut made.context, copy.into_ptr());
            made.unset(SHARED);
            ffi::Py_DECREF(old);
        }
        let context = made.locked(|made| {
            ffi::Py_XINCREF(made.context);
            made.context
        });
        if context.is_null() { Ok(Object::none()) } else { Object::own(context) }
    }
}

#[entry]
unsafe extern "C" fn get_context(object: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    own_context(object).map_or(null_mut(), Object::into_ptr)
}

#[entry]
unsafe extern "C" fn context(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    own_context(object).map_or(null_mut(), Object::into_ptr)
}

#[entry]
unsafe extern "C" fn cancelled(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a live handle.
    unsafe {
        handle(object).wait_if_running_elsewhere();
        get_cancelled(object, null_mut())
    }
}

#[entry]
unsafe extern "C" fn when(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a live timer.
    unsafe { get_when(object, null_mut()) }
}

#[entry]
unsafe extern "C" fn cancel(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a live handle; its loop lives as long as it does. The content is taken out under the lock and dropped
    // after, when dropping may run anything.
    unsafe {
        let made = handle(object);
        made.wait_if_running_elsewhere();
        if !made.has(CANCELLED) {
            made.set(CANCELLED);
            let core = if made.owner.is_null() { None } else { Some(LoopCore::of(made.owner)) };
            if core.is_some_and(|core| core.is_debug()) {
                // The description of the handle for messages about it.
                let Ok(repr) = Object::own(ffi::PyObject_Repr(object)) else { return null_mut() };
                let old = made.locked(|made| std::mem::replace(&mut made.repr, repr.into_ptr()));
                ffi::Py_XDECREF(old);
            }
            let (callback, args, _) = made.take();
            ffi::Py_XDECREF(callback);
            ffi::Py_XDECREF(args);
            if made.has(TIMED)
                && let Some(core) = core
            {
                core.timer_cancelled();
            }
        }
        ffi::Py_INCREF(ffi::Py_None());
        ffi::Py_None()
    }
}

/// Whether an instance attribute of a class has the expected offset.
fn stands_at(class: &Object, name: &CStr, place: usize) -> Result<bool, Raised> {
    #[repr(C)]
    struct Descriptor {
        head: ffi::PyObject,
        kind: *mut c_void,
        name: *mut c_void,
        qualified: *mut c_void,
        member: *const ffi::PyMemberDef,
    }
    let descriptor = class.attribute(name)?;
    // SAFETY: live objects; only a member descriptor, whose layout this is, is looked into.
    unsafe {
        let is_member = ffi::Py_TYPE(descriptor.as_ptr()) == &raw mut ffi::PyMemberDescr_Type;
        Ok(is_member
            && usize::try_from((*(*descriptor.as_ptr().cast::<Descriptor>()).member).offset) == Ok(place))
    }
}

/// The size of a class's instances, in bytes.
fn size_of_class(class: &Object) -> Result<usize, Raised> {
    let size = class.attribute(c"__basicsize__")?;
    // SAFETY: a live int.
    Ok(usize::try_from(unsafe { ffi::PyLong_AsSsize_t(size.as_ptr()) }).unwrap_or(0))
}

fn unknown_layout() -> Raised {
    // SAFETY: a live class and a C string.
    unsafe {
        ffi::PyErr_SetString(
            ffi::PyExc_ImportError,
            c"asyncio.Handle has a layout that this ropewalk does not know; try a newer ropewalk".as_ptr(),
        );
    }
    Raised
}

/// Makes the types.
pub(crate) fn add(module: &Object, state: &mut LoopModule) -> Result<(), Raised> {
    use std::mem::offset_of;
    // SAFETY: a C string.
    let events = unsafe { Object::own(ffi::PyImport_ImportModule(c"asyncio.events".as_ptr()))? };
    let (plain, timer) = (events.attribute(c"Handle")?, events.attribute(c"TimerHandle")?);
    let mut fits = size_of_class(&plain)? == PLAIN && size_of_class(&timer)? == TIMER;
    for (name, place) in [
        (c"_args", offset_of!(Handle, args)),
        (c"_callback", offset_of!(Handle, callback)),
        (c"_cancelled", offset_of!(Handle, cancelled)),
        (c"_context", offset_of!(Handle, context)),
        (c"_loop", offset_of!(Handle, owner)),
        (c"_repr", offset_of!(Handle, repr)),
        (c"_source_traceback", offset_of!(Handle, source_traceback)),
    ] {
        fits &= stands_at(&plain, name, place)?;
    }
    if !fits {
        return Err(unknown_layout());
    }
    let getters = |timer: bool| {
        let mut getters = vec![
            heap::getter(c"_callback", get_callback, c"What is called; None after."),
            heap::getter(c"_args", get_args, c"Its arguments."),
            heap::getter(c"_context", get_context, c"The context it runs in."),
            heap::getter(c"_loop", get_loop, c"The loop it belongs to."),
            heap::getter(c"_repr", get_repr, c"What it was when it was cancelled, in debug mode."),
            heap::getter(c"_cancelled", get_cancelled, c"Whether it was cancelled."),
            heap::getter(c"_source_traceback", get_source, c"Where it was scheduled, in debug mode."),
        ];
        if timer {
            getters.push(heap::getter(c"_when", get_when, c"Its time, in seconds of the loop's clock."));
            getters.push(heap::getter(c"_scheduled", get_scheduled, c"Whether it waits for its time."));
        }
        getters
    };
    let methods = |timer: bool| {
        let mut methods = vec![
            heap::method(
                c"cancel",
                cancel,
                ffi::METH_NOARGS,
                c"cancel($self, /)\n--\n\nCancels the callback: the loop will not call it.",
            ),
            heap::method(
                c"cancelled",
                cancelled,
                ffi::METH_NOARGS,
                c"cancelled($self, /)\n--\n\nWhether it was cancelled.",
            ),
            heap::method(
                c"get_context",
                context,
                ffi::METH_NOARGS,
                c"get_context($self, /)\n--\n\nThe context that it runs in.",
            ),
        ];
        if timer {
            methods.push(heap::method(
                c"when",
                when,
                ffi::METH_NOARGS,
                c"when($self, /)\n--\n\nIts time, in seconds of the loop's clock.",
            ));
        }
        methods
    };
    let slots: [(c_int, *mut c_void); 3] = [
        (ffi::Py_tp_dealloc, dealloc as *mut c_void),
        (ffi::Py_tp_traverse, traverse as *mut c_void),
        (ffi::Py_tp_clear, clear as *mut c_void),
    ];
    let kind = |name: &'static CStr, doc: &'static CStr, timer: bool| heap::Type {
        name,
        doc,
        flags: ffi::Py_TPFLAGS_HAVE_GC | super::compat::DISALLOW_INSTANTIATION,
        methods: methods(timer),
        getters: getters(timer),
        slots: &slots,
    };
    let size = c_int::try_from(size_of::<Handle>()).unwrap_or(0);
    state.handle_type = heap::make_sized_type(
        module,
        kind(c"ropewalk._loop.Handle", c"A call that was scheduled on a loop: an asyncio.Handle.", false),
        size,
        Some(&plain),
    )?
    .into_ptr();
    // Up to 3.13 there is no such class, and a plain handle serves.
    let safe = match events.attribute(c"_ThreadSafeHandle") {
        Ok(base) => {
            if size_of_class(&base)? != PLAIN + size_of::<*mut c_void>() {
                return Err(unknown_layout());
            }
            let kind = kind(
                c"ropewalk._loop.ThreadSafeHandle",
                c"A call of call_soon_threadsafe(): cancel() waits while another thread runs it.",
                false,
            );
            let made = heap::make_sized_type(module, kind, size, Some(&base))?;
            // asyncio's own method would take a lock that our handles do not need.
            let run = plain.attribute(c"_run")?;
            // SAFETY: live objects and a C string.
            if unsafe { ffi::PyObject_SetAttrString(made.as_ptr(), c"_run".as_ptr(), run.as_ptr()) } != 0 {
                return Err(Raised);
            }
            made
        }
        Err(Raised) => {
            // SAFETY: the exception that was set is the missing attribute's.
            unsafe {
                ffi::PyErr_Clear();
                Object::share(state.handle_type)?
            }
        }
    };
    state.thread_safe_type = safe.into_ptr();
    state.timer_type = heap::make_sized_type(
        module,
        kind(
            c"ropewalk._loop.TimerHandle",
            c"A call that was scheduled for a time: an asyncio.TimerHandle.",
            true,
        ),
        size,
        Some(&timer),
    )?
    .into_ptr();
    Ok(())
}
