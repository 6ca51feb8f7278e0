//! The loop's methods that schedule: they read their arguments, make a handle, and put it into the queue.

use std::ffi::CStr;
use std::ptr::null_mut;

use pyo3_ffi as ffi;

use super::clock::seconds;
use super::core::{LoopCore, none, raise_type};
use super::handle::{self, CANCELLED, Content, Handle, Kind, ONE, WHOLE};
use super::item::Item;
use super::loop_module::LoopModule;
use super::status::this_thread;
#[cfg(not(Py_GIL_DISABLED))]
use super::yielding;
use ropewalk_capi::entry;
use ropewalk_capi::object::{Object, Raised};

/// If more calls wait for a loop that runs, those of other threads are held back. Without that, threads that call
/// without a pause would have the interpreter lock most of the time, and each turn would take longer than the last.
#[cfg(not(Py_GIL_DISABLED))]
const MOST_WAITING: usize = 65_536;

/// The callback, its arguments and its context, as all scheduling methods take them.
struct Call {
    /// The first parameter, borrowed: the time of a timer.
    first: *mut ffi::PyObject,
    callback: *mut ffi::PyObject,
    args: *mut ffi::PyObject,
    flags: u32,
    /// Borrowed; null for none.
    context: *mut ffi::PyObject,
}

/// The parameters of a method before `*args`, by their names; the last one is the callback.
type Parameters = &'static [&'static CStr];

/// Reads the `parameters`, by place or by name, `*args`, and `context=None`.
unsafe fn read_call(
    state: &LoopModule,
    name: &str,
    parameters: Parameters,
    arguments: *const *mut ffi::PyObject,
    count: usize,
    names: *mut ffi::PyObject,
) -> Result<Call, Raised> {
    // SAFETY: what the interpreter passes to a function of this kind: `count` arguments, and as many values after them
    // as there are names.
    unsafe {
        let mut context = null_mut();
        let mut known = [null_mut(); 2];
        for (at, place) in known.iter_mut().enumerate().take(parameters.len().min(count)) {
            *place = *arguments.add(at);
        }
        if !names.is_null() {
            for at in 0..ffi::PyTuple_GET_SIZE(names) {
                let given = ffi::PyTuple_GET_ITEM(names, at);
                let value = *arguments.add(count).offset(at);
                if given == state.names.context || ffi::PyUnicode_Compare(given, state.names.context) == 0 {
                    context = if value == ffi::Py_None() { null_mut() } else { value };
                    continue;
                }
                let place = parameters
                    .iter()
                    .position(|name| ffi::PyUnicode_CompareWithASCIIString(given, name.as_ptr()) == 0);
                match place {
                    Some(place) if known[place].is_null() => known[place] = value,
                    Some(place) => {
                        let what = parameters[place].to_string_lossy();
                        return Err(raise_type(&format!(
                            "{name}() got multiple values for argument '{what}'"
                        )));
                    }
                    None => {
                        return Err(raise_type(&format!("{name}() got an unexpected keyword argument")));
                    }
                }
            }
        }
        if let Some(missing) = known.iter().take(parameters.len()).position(|value| value.is_null()) {
            let what = parameters[missing].to_string_lossy();
            return Err(raise_type(&format!("{name}() missing a required argument: '{what}'")));
        }
        let leading = parameters.len() - 1;
        let callback = known[leading];
        let count = count.max(parameters.len());
        let (args, flags) = match count - leading - 1 {
            0 => (null_mut(), 0),
            1 => {
                let one = *arguments.add(leading + 1);
                ffi::Py_INCREF(one);
                (one, ONE)
            }
            more => (tuple(arguments.add(leading + 1), more)?, 0),
        };
        ffi::Py_INCREF(callback);
        Ok(Call { first: known[0], callback, args, flags, context })
    }
}

unsafe fn tuple(items: *const *mut ffi::PyObject, count: usize) -> Result<*mut ffi::PyObject, Raised> {
    // SAFETY: the caller's; SET_ITEM takes references over.
    unsafe {
        let made = ffi::PyTuple_New(count as ffi::Py_ssize_t);
        if made.is_null() {
            return Err(Raised);
        }
        for at in 0..count {
            let item = *items.add(at);
            ffi::Py_INCREF(item);
            ffi::PyTuple_SET_ITEM(made, at as ffi::Py_ssize_t, item);
        }
        Ok(made)
    }
}

/// Makes the handle of a call.
unsafe fn schedule(
    owner: *mut ffi::PyObject,
    core: &LoopCore,
    call: Call,
    kind: Kind,
    when: f64,
) -> Result<*mut Handle, Raised> {
    // SAFETY: live objects throughout; what the call holds goes into the handle or is given back.
    unsafe {
        let (context, shared) = if !call.context.is_null() {
            ffi::Py_INCREF(call.context);
            (call.context, 0)
        } else {
            match core.capture() {
                Ok(captured) => captured,
                Err(Raised) => {
                    ffi::Py_DECREF(call.callback);
                    ffi::Py_XDECREF(call.args);
                    return Err(Raised);
                }
            }
        };
        let content = Content {
            callback: call.callback,
            args: call.args,
            context,
            flags: call.flags | shared | kind.flags(),
            when,
        };
        let made = handle::make(&mut *core.module, owner, content, kind)?;
        if core.is_debug() {
            let noted = note_debug(owner, core, made, kind);
            if let Err(Raised) = noted {
                ffi::Py_DECREF(made.cast());
                return Err(Raised);
            }
        }
        Ok(made)
    }
}

/// In debug mode: checks thread and callback, and notes where it was scheduled.
unsafe fn note_debug(
    owner: *mut ffi::PyObject,
    core: &LoopCore,
    made: *mut Handle,
    kind: Kind,
) -> Result<(), Raised> {
    // SAFETY: live objects.
    unsafe {
        let names = &(*core.module).names;
        let method = match kind {
            Kind::Timer => names.call_at,
            Kind::ThreadSafe => names.call_soon_threadsafe,
            Kind::Plain => names.call_soon,
        };
        let arguments = [owner, (*made).callback, method];
        let traceback = Object::own(ffi::PyObject_VectorcallMethod(
            names.note_scheduled,
            arguments.as_ptr(),
            arguments.len(),
            null_mut(),
        ))?;
        (*made).source_traceback = traceback.into_ptr();
        Ok(())
    }
}

#[entry]
pub(super) unsafe extern "C" fn call_soon(
    owner: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a loop, and what the interpreter passes.
    unsafe {
        let core = LoopCore::of(owner);
        let made = core
            .check_open()
            .and_then(|()| {
                read_call(&*core.module, "call_soon", &[c"callback"], arguments, count as usize, names)
            })
            .and_then(|call| schedule(owner, core, call, Kind::Plain, 0.0));
        let Ok(made) = made else { return null_mut() };
        ffi::Py_INCREF(made.cast());
        core.enqueue(Item::of_handle(made));
        made.cast()
    }
}

#[entry]
pub(super) unsafe extern "C" fn call_soon_threadsafe(
    owner: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a loop, and what the interpreter passes.
    unsafe {
        let core = LoopCore::of(owner);
        let made = core
            .check_open()
            .and_then(|()| {
                read_call(
                    &*core.module,
                    "call_soon_threadsafe",
                    &[c"callback"],
                    arguments,
                    count as usize,
                    names,
                )
            })
            .and_then(|call| schedule(owner, core, call, Kind::ThreadSafe, 0.0));
        let Ok(made) = made else { return null_mut() };
        ffi::Py_INCREF(made.cast());
        core.hand_over(made);
        made.cast()
    }
}

impl LoopCore {
    /// Moves the handles that other threads have handed over to the end of the queue.
    #[inline]
    pub(crate) fn collect(&self) {
        #[cfg(Py_GIL_DISABLED)]
        if !self.handed.is_empty() {
            // SAFETY: the thread is attached, and runs nothing while the guard lives.
            let mut inner = unsafe { self.inner.lock() };
            inner.ready.extend(self.handed.take().map(Item::of_handle));
        }
    }

    /// Puts a handle at the end of the queue, from any thread, and wakes the loop.
    #[cfg(not(Py_GIL_DISABLED))]
    pub(crate) fn hand_over(&self, made: *mut Handle) {
        let waiting = self.enqueue(Item::of_handle(made));
        let thread = self.thread();
        if thread != this_thread() {
            self.count_call();
            self.wake();
            if waiting > MOST_WAITING && thread != 0 {
                yielding::hold_back();
            }
        }
    }

    /// Puts a handle at the end of the queue, from any thread, and wakes the loop.
    #[cfg(Py_GIL_DISABLED)]
    pub(crate) fn hand_over(&self, made: *mut Handle) {
        let thread = self.thread();
        if thread == this_thread() {
            self.enqueue(Item::of_handle(made));
            return;
        }
        if thread == 0 {
            // No thread runs the loop. Handles that were left when it stopped go first, so that each thread's calls
            // keep their order. SAFETY: as of `collect`; taking and adding are one step for other threads that do this.
            let mut inner = unsafe { self.inner.lock() };
            inner.ready.extend(self.handed.take().map(Item::of_handle));
            inner.ready.push(Item::of_handle(made));
        } else if let Some(made) = std::ptr::NonNull::new(made) {
            // SAFETY: a fresh handle, which the loop holds from here on.
            unsafe { self.handed.push(made) };
        }
        self.wake();
    }
}

unsafe fn timer(
    owner: *mut ffi::PyObject,
    relative: bool,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> Result<*mut ffi::PyObject, Raised> {
    // SAFETY: a loop, and what the interpreter passes.
    unsafe {
        let core = LoopCore::of(owner);
        let (name, parameters): (_, Parameters) = if relative {
            ("call_later", &[c"delay", c"callback"])
        } else {
            ("call_at", &[c"when", c"callback"])
        };
        if count > 0 && *arguments == ffi::Py_None() {
            return Err(raise_type(&format!("{} must not be None", parameters[0].to_string_lossy())));
        }
        core.check_open()?;
        let mut call = read_call(&*core.module, name, parameters, arguments, count as usize, names)?;
        if !relative && ffi::PyLong_CheckExact(call.first) != 0 {
            call.flags |= WHOLE;
        }
        let when = seconds(call.first)
            .and_then(|given| if relative { core.time(owner).map(|time| time + given) } else { Ok(given) })
            .inspect_err(|_| {
                ffi::Py_DECREF(call.callback);
                ffi::Py_XDECREF(call.args);
            })?;
        let made = schedule(owner, core, call, Kind::Timer, when)?;
        ffi::Py_INCREF(made.cast());
        core.inner.lock().timers.push(when, made);
        Ok(made.cast())
    }
}

#[entry]
pub(super) unsafe extern "C" fn call_later(
    owner: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: what the interpreter passes.
    unsafe { timer(owner, true, arguments, count, names) }.unwrap_or(null_mut())
}

#[entry]
pub(super) unsafe extern "C" fn call_at(
    owner: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: what the interpreter passes.
    unsafe { timer(owner, false, arguments, count, names) }.unwrap_or(null_mut())
}

/// `_add_callback(handle)`: asyncio's own way to schedule a handle, of whatever class.
#[entry]
pub(super) unsafe extern "C" fn add_callback(
    owner: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    count: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: a loop, and what the interpreter passes. A foreign handle runs by its own `_run`.
    unsafe {
        if count != 1 {
            raise_type("_add_callback() takes one handle");
            return null_mut();
        }
        let core = LoopCore::of(owner);
        let given = *arguments;
        let kind: *mut ffi::PyObject = ffi::Py_TYPE(given).cast();
        let state = &*core.module;
        if [state.handle_type, state.timer_type, state.thread_safe_type].contains(&kind) {
            if !handle::handle(given).has(CANCELLED) {
                ffi::Py_INCREF(given);
                core.hand_over(given.cast());
            }
        } else {
            let run = ffi::PyObject_GetAttrString(given, c"_run".as_ptr());
            if run.is_null() {
                return null_mut();
            }
            // It enters its own context, and reports its errors outside of any, as every handle of asyncio does.
            let kind = Kind::ThreadSafe;
            let content = Content {
                callback: run,
                args: null_mut(),
                context: null_mut(),
                flags: kind.flags(),
                when: 0.0,
            };
            match handle::make(&mut *core.module, owner, content, kind) {
                Ok(made) => core.hand_over(made),
                Err(Raised) => return null_mut(),
            }
        }
        none()
    }
}
