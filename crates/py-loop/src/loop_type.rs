//! The Python type of loops. `ropewalk.Loop` derives from this and from asyncio's own loop class, in this order, so the
//! methods here come first.
//!
//! asyncio keeps some state in attributes of the instance (`_debug`, `_closed`, `_stopping`, `_thread_id`). They are
//! descriptors here, so that each exists once.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::Ordering;

use pyo3_ffi as ffi;
use ropewalk_reactor::Reactor;

use super::clock::{as_seconds, now};
use super::core::{LoopCore, none};
use super::handle;
use super::item::Item;
use super::loop_module::{LoopModule, MODULE};
use super::schedule::{add_callback, call_at, call_later, call_soon, call_soon_threadsafe};
use super::status::this_thread;
use super::stream::opening;
use super::tasks::{create_future, create_task, get_factory, set_factory};
use super::{accepting, operation, run, watch};
use ropewalk_capi::entry;
use ropewalk_capi::errors::{fail, raise_os};
use ropewalk_capi::heap::{self, fast_method, getter, keyword_method, method};
use ropewalk_capi::object::{Object, Raised};
use ropewalk_capi::running_loop;

#[entry]
unsafe extern "C" fn time(_: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the thread is attached.
    unsafe { ffi::PyFloat_FromDouble(as_seconds(now())) }
}

#[entry]
unsafe extern "C" fn get_debug(owner: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a loop.
    unsafe { ffi::PyBool_FromLong(LoopCore::of(owner).is_debug().into()) }
}

#[entry]
unsafe extern "C" fn is_closed(owner: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a loop.
    unsafe { ffi::PyBool_FromLong(LoopCore::of(owner).is_closed().into()) }
}

#[entry]
unsafe extern "C" fn is_running(owner: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a loop.
    unsafe { ffi::PyBool_FromLong((LoopCore::of(owner).thread() != 0).into()) }
}

#[entry]
unsafe extern "C" fn check_closed(owner: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a loop.
    if unsafe { LoopCore::of(owner) }.check_open().is_ok() { none() } else { null_mut() }
}

/// `_write_to_self()`: wakes the loop, from any thread and from a signal handler.
#[entry]
unsafe extern "C" fn write_to_self(owner: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a loop.
    unsafe { LoopCore::of(owner) }.wake();
    none()
}

#[entry]
unsafe extern "C" fn stop(owner: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a loop.
    unsafe { LoopCore::of(owner) }.stopping.store(true, Ordering::Relaxed);
    none()
}

#[entry]
unsafe extern "C" fn discard(owner: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a loop, and the thread is attached. The descriptors are closed with the last reference to the set.
    unsafe {
        let core = LoopCore::of(owner);
        core.drop_all();
        drop(core.take_reactor());
    }
    none()
}

/// `_pending(timers)`: a list of the timers, or of what is to run, as it is now.
#[entry]
unsafe extern "C" fn pending(owner: *mut ffi::PyObject, timers: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a loop, and a live value. References are counted, and nothing else runs, while the guard lives. The batch
    // is read in the thread that runs it, or while none does.
    let found: Vec<Object> = unsafe {
        let core = LoopCore::of(owner);
        core.collect();
        let is_ours = [0, this_thread()].contains(&core.thread());
        let inner = core.inner.lock();
        let share = |object| Object::share(object).ok();
        if timers == ffi::Py_True() {
            inner.timers.iter().filter_map(|made| share(made.cast())).collect()
        } else {
            let batch = &*core.batch.get();
            let rest = if is_ours { batch.items.get(batch.at..).unwrap_or_default() } else { &[] };
            rest.iter().chain(&inner.ready).filter_map(|item| share(item.object())).collect()
        }
    };
    // SAFETY: live objects.
    unsafe {
        let Ok(list) = Object::own(ffi::PyList_New(0)) else { return null_mut() };
        for object in &found {
            if ffi::PyList_Append(list.as_ptr(), object.as_ptr()) != 0 {
                return null_mut();
            }
        }
        list.into_ptr()
    }
}

macro_rules! flag {
    ($get:ident, $set:ident, $field:ident) => {
        #[entry]
        unsafe extern "C" fn $get(owner: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
            // SAFETY: a loop.
            unsafe { ffi::PyBool_FromLong(LoopCore::of(owner).$field.load(Ordering::Relaxed).into()) }
        }

        #[entry]
        unsafe extern "C" fn $set(
            owner: *mut ffi::PyObject,
            value: *mut ffi::PyObject,
            _: *mut c_void,
        ) -> c_int {
            // SAFETY: a loop, and a live value or null where the attribute is deleted.
            unsafe {
                let truth = if value.is_null() { 0 } else { ffi::PyObject_IsTrue(value) };
                if truth >= 0 {
                    LoopCore::of(owner).$field.store(truth != 0, Ordering::Relaxed);
                }
                truth.min(0)
            }
        }
    };
}

flag!(get_debug_flag, set_debug_flag, debug);
flag!(get_closed, set_closed, closed);
flag!(get_stopping, set_stopping, stopping);

#[entry]
unsafe extern "C" fn get_thread(owner: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: a loop.
    match unsafe { LoopCore::of(owner) }.thread() {
        0 => none(),
        // SAFETY: the thread is attached.
        thread => unsafe { ffi::PyLong_FromSize_t(thread) },
    }
}

#[entry]
unsafe extern "C" fn set_thread(
    owner: *mut ffi::PyObject,
    value: *mut ffi::PyObject,
    _: *mut c_void,
) -> c_int {
    // SAFETY: a loop, and a live value or null.
    unsafe {
        let thread = if value.is_null() || value == ffi::Py_None() { 0 } else { ffi::PyLong_AsSize_t(value) };
        if !ffi::PyErr_Occurred().is_null() {
            return -1;
        }
        let core = LoopCore::of(owner);
        core.thread.store(thread, Ordering::SeqCst);
        if thread == this_thread() {
            running_loop::enter(owner, Some(run::is_idle));
        } else {
            running_loop::leave(owner);
        }
        if thread == 0 {
            core.show_kept();
        }
        0
    }
}

/// `_claim()`: makes the calling thread the one that runs the loop. Of several threads that try at once one succeeds.
#[entry]
unsafe extern "C" fn claim(owner: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a loop.
    let core = unsafe { LoopCore::of(owner) };
    if core.thread.compare_exchange(0, this_thread(), Ordering::SeqCst, Ordering::Relaxed).is_err() {
        fail(c"This event loop is already running");
        return null_mut();
    }
    running_loop::enter(owner, Some(run::is_idle));
    none()
}

/// Sets an attribute of an instance, and notes an own `time`.
#[entry]
unsafe extern "C" fn set_attribute(
    owner: *mut ffi::PyObject,
    name: *mut ffi::PyObject,
    value: *mut ffi::PyObject,
) -> c_int {
    // SAFETY: a loop, a live name, and a live value or null where the attribute is deleted.
    unsafe {
        let core = LoopCore::of(owner);
        let set = ffi::PyObject_GenericSetAttr(owner, name, value);
        let time = (*core.module).names.time;
        if set == 0 && (name == time || ffi::PyUnicode_Compare(name, time) == 0) {
            core.clock.set_own(!value.is_null());
        }
        set
    }
}

#[entry]
unsafe extern "C" fn new(
    kind: *mut ffi::PyTypeObject,
    _: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: our type or a subtype, whose module is alive with it.
    unsafe {
        let Some(state) = MODULE.state_of_base(kind) else {
            fail(c"the module of the loop is gone");
            return null_mut();
        };
        let reactor = match Reactor::new() {
            Ok(reactor) => reactor,
            Err(error) => {
                raise_os(&error);
                return null_mut();
            }
        };
        let core = LoopCore::new(state, reactor);
        heap::make(kind, core).map_or(null_mut(), Object::into_ptr)
    }
}

unsafe fn visit_item(item: Item, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    // SAFETY: the queue's reference to a live object; the collector's own function.
    unsafe {
        if !item.is_handle() {
            return visit(item.object(), arg);
        }
        // The collector does not track a handle that only the loop has; the loop shows its references.
        if ffi::Py_REFCNT(item.object()) == 1 && ffi::PyObject_GC_IsTracked(item.object()) == 0 {
            handle::visit_content(&*item.as_handle(), visit, arg)
        } else {
            visit(item.object(), arg)
        }
    }
}

#[entry]
unsafe extern "C" fn traverse(owner: *mut ffi::PyObject, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    // SAFETY: a live loop; nothing else runs while the collector looks.
    unsafe {
        let core = LoopCore::of(owner);
        let inner = &*core.inner.in_collection();
        let batch = &*core.batch.get();
        // Only an attached thread takes what was handed over.
        let handed = core.handed.waiting();
        let handles =
            inner.timers.iter().chain(inner.descriptors.handles()).chain(handed).map(Item::of_handle);
        let rest = batch.items.get(batch.at..).unwrap_or_default();
        for item in rest.iter().chain(&inner.ready).copied().chain(handles) {
            let answer = visit_item(item, visit, arg);
            if answer != 0 {
                return answer;
            }
        }
        for object in inner.descriptors.objects() {
            let answer = visit(object, arg);
            if answer != 0 {
                return answer;
            }
        }
        let answer = core.snapshots.visit(visit, arg);
        if answer != 0 {
            return answer;
        }
        for field in [&core.task_factory, &core.writing] {
            let answer = field.visit(visit, arg);
            if answer != 0 {
                return answer;
            }
        }
        heap::visit_type(owner, visit, arg)
    }
}

#[entry]
unsafe extern "C" fn clear(owner: *mut ffi::PyObject) -> c_int {
    // SAFETY: a live loop that is garbage.
    unsafe {
        let core = LoopCore::of(owner);
        core.drop_all();
        drop((core.task_factory.take(), core.writing.take()));
    }
    0
}

fn property(name: &'static CStr, get: ffi::getter, set: ffi::setter, doc: &'static CStr) -> ffi::PyGetSetDef {
    ffi::PyGetSetDef { set: Some(set), ..getter(name, get, doc) }
}

/// Makes the type.
pub(super) fn add(module: &Object, state: &mut LoopModule) -> Result<(), Raised> {
    let mut methods = vec![
        keyword_method(
            c"call_soon",
            call_soon,
            c"call_soon($self, /, callback, *args, context=None)\n--\n\n\
        Calls `callback` in the next turn; returns a handle.",
        ),
        keyword_method(
            c"call_soon_threadsafe",
            call_soon_threadsafe,
            c"call_soon_threadsafe($self, /, callback, *args, context=None)\n--\n\n\
            As `call_soon`, from any thread.",
        ),
        keyword_method(
            c"call_later",
            call_later,
            c"call_later($self, /, delay, callback, *args, context=None)\n--\n\n\
            Calls `callback` after `delay` seconds; returns a handle.",
        ),
        keyword_method(
            c"call_at",
            call_at,
            c"call_at($self, /, when, callback, *args, context=None)\n--\n\n\
            Calls `callback` at a time of the loop's clock; returns a handle.",
        ),
        fast_method(c"_add_callback", add_callback, c"_add_callback(handle): schedules a handle."),
        method(
            c"time",
            time,
            ffi::METH_NOARGS,
            c"time($self, /)\n--\n\nSeconds of the loop's clock, as `time.monotonic`.",
        ),
        method(
            c"get_debug",
            get_debug,
            ffi::METH_NOARGS,
            c"get_debug($self, /)\n--\n\nWhether debug mode is on.",
        ),
        method(
            c"is_closed",
            is_closed,
            ffi::METH_NOARGS,
            c"is_closed($self, /)\n--\n\nWhether it was closed.",
        ),
        method(c"is_running", is_running, ffi::METH_NOARGS, c"is_running($self, /)\n--\n\nWhether it runs."),
        method(
            c"_claim",
            claim,
            ffi::METH_NOARGS,
            c"_claim(): makes the calling thread the one that runs it.",
        ),
        method(c"_check_closed", check_closed, ffi::METH_NOARGS, c"Raises RuntimeError if it was closed."),
        method(
            c"_pending",
            pending,
            ffi::METH_O,
            c"_pending(timers): the timers, or what is to run, as a list of this moment.",
        ),
        method(c"_write_to_self", write_to_self, ffi::METH_NOARGS, c"Wakes it, from any thread."),
        method(c"stop", stop, ffi::METH_NOARGS, c"stop($self, /)\n--\n\nEnds `run_forever` after this turn."),
        method(
            c"_discard",
            discard,
            ffi::METH_NOARGS,
            c"Drops everything that was scheduled, and closes the loop's descriptors.",
        ),
        method(
            c"create_future",
            create_future,
            ffi::METH_NOARGS,
            c"create_future($self, /)\n--\n\n\
        An `asyncio.Future` of this loop.",
        ),
        keyword_method(
            c"create_task",
            create_task,
            c"create_task($self, /, coro, *, name=None, context=None, **kwargs)\n--\n\n\
            An `asyncio.Task` of this loop, which runs the coroutine.",
        ),
    ];
    methods.extend(run::methods());
    methods.extend(watch::methods());
    methods.extend(operation::methods());
    methods.extend(accepting::methods());
    methods.extend(opening::methods());
    let kind = heap::Type {
        name: c"ropewalk._loop.LoopCore",
        doc: c"The queue, the timers and the descriptors of a loop.",
        flags: ffi::Py_TPFLAGS_HAVE_GC | ffi::Py_TPFLAGS_BASETYPE,
        methods,
        getters: vec![
            property(c"_debug", get_debug_flag, set_debug_flag, c"Whether debug mode is on."),
            property(c"_closed", get_closed, set_closed, c"Whether it was closed."),
            property(c"_stopping", get_stopping, set_stopping, c"Whether stop() was called."),
            property(c"_thread_id", get_thread, set_thread, c"The thread that runs it, or None."),
            property(c"_task_factory", get_factory, set_factory, c"What makes tasks, or None."),
        ],
        slots: &[
            (ffi::Py_tp_new, new as *mut c_void),
            (ffi::Py_tp_setattro, set_attribute as *mut c_void),
            (ffi::Py_tp_dealloc, heap::dealloc::<LoopCore> as *mut c_void),
            (ffi::Py_tp_traverse, traverse as *mut c_void),
            (ffi::Py_tp_clear, clear as *mut c_void),
        ],
    };
    let made = heap::make_type::<LoopCore>(module, kind)?;
    state.time = made.attribute(c"time")?.into_ptr();
    state.core_type = made.into_ptr();
    Ok(())
}
