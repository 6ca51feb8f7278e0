//! `ropewalk._loop`: the event loop's own part, in the plain C API.
//!
//! `ropewalk.Loop` is asyncio's loop class with `Core` before it. What is called for each callback, timer, read or
//! write is here; what is called once for each connection, server or process is asyncio's, or in `ropewalk.loop`.

mod compat;
mod context;
mod core;
mod descriptors;
mod handle;
mod operation;
mod outgoing;
mod reading;
mod run;
mod stream;

use std::ffi::CStr;
use std::ptr::null_mut;

use pyo3_ffi as ffi;
use ropewalk_capi::heap::{fast_method, method};
use ropewalk_capi::module::{self, Module};
use ropewalk_capi::object::{Object, Raised};

/// Words that are looked up again and again.
#[repr(C)]
struct Names {
    future_class: *mut ffi::PyObject,
    task_class: *mut ffi::PyObject,
    buffer: *mut ffi::PyObject,
    cancelled: *mut ffi::PyObject,
    clear: *mut ffi::PyObject,
    eof: *mut ffi::PyObject,
    exception: *mut ffi::PyObject,
    limit: *mut ffi::PyObject,
    loop_field: *mut ffi::PyObject,
    maybe_resume: *mut ffi::PyObject,
    paused: *mut ffi::PyObject,
    pause_reading: *mut ffi::PyObject,
    resume_reading: *mut ffi::PyObject,
    stream_reader: *mut ffi::PyObject,
    transport: *mut ffi::PyObject,
    waiter: *mut ffi::PyObject,
    call_at: *mut ffi::PyObject,
    call_soon: *mut ffi::PyObject,
    call_soon_threadsafe: *mut ffi::PyObject,
    callback_failed: *mut ffi::PyObject,
    cancel: *mut ffi::PyObject,
    context: *mut ffi::PyObject,
    create_future: *mut ffi::PyObject,
    done: *mut ffi::PyObject,
    ensure_no_transport: *mut ffi::PyObject,
    eof_received: *mut ffi::PyObject,
    fatal_error: *mut ffi::PyObject,
    loop_: *mut ffi::PyObject,
    /// A tuple of it, as the names of a call.
    loop_keyword: *mut ffi::PyObject,
    note_scheduled: *mut ffi::PyObject,
    pause_protocol: *mut ffi::PyObject,
    resume_protocol: *mut ffi::PyObject,
    run_in_debug: *mut ffi::PyObject,
    schedule_connection_lost: *mut ffi::PyObject,
    set_exception: *mut ffi::PyObject,
    set_result: *mut ffi::PyObject,
    warn_lost: *mut ffi::PyObject,
}

/// What the module holds, zeroed when it is made.
#[repr(C)]
struct State {
    names: Names,
    handle_type: *mut ffi::PyObject,
    timer_type: *mut ffi::PyObject,
    thread_safe_type: *mut ffi::PyObject,
    core_type: *mut ffi::PyObject,
    stream_type: *mut ffi::PyObject,
    operation_type: *mut ffi::PyObject,
    reading_type: *mut ffi::PyObject,
    /// The class of readers that are fed without their methods, once it is known.
    fast_reader: *mut ffi::PyObject,
    reader_protocol: *mut ffi::PyObject,
    incomplete_read: *mut ffi::PyObject,
    /// `asyncio.futures` and `asyncio.tasks`: programs may put classes of their own there, at any time.
    futures: *mut ffi::PyObject,
    tasks: *mut ffi::PyObject,
    socket_class: *mut ffi::PyObject,
    buffered_protocol: *mut ffi::PyObject,
    /// asyncio's own methods, for what ours leave to them.
    create_task: *mut ffi::PyObject,
    sock_recv: *mut ffi::PyObject,
    sock_recv_into: *mut ffi::PyObject,
    sock_sendall: *mut ffi::PyObject,
    /// Memory of handles; null once the module was cleared.
    spare: *mut handle::Spare,
    /// Whether the places in the interpreter's structures were found to be right.
    places_known: bool,
}

static MODULE: Module<State> = Module::new(c"_loop", c"The event loop's own part.", || {
    vec![
        fast_method(c"_read", reading::read, c"_read(reader, n, exactly) -> awaitable"),
        method(
            c"_set_reader_class",
            reading::set_reader_class,
            ffi::METH_O,
            c"_set_reader_class(class): of readers that are fed without their methods",
        ),
    ]
});

/// Makes the module: what its `PyInit_` function returns.
pub fn init() -> *mut ffi::PyObject {
    MODULE.init()
}

const NAMES: usize = size_of::<Names>() / size_of::<*mut ffi::PyObject>();
const OBJECTS: usize = NAMES + 18;

// SAFETY: pointers, for which zeros are null, and a truth value; the layout is C's, and it begins with so many
// references.
unsafe impl module::State for State {
    fn references(&mut self) -> impl Iterator<Item = &mut *mut ffi::PyObject> {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(std::ptr::from_mut(self).cast(), OBJECTS) }.iter_mut()
    }

    fn fill(&mut self, module: &Object) -> Result<(), Raised> {
        fill(module, self)
    }

    fn free(&mut self) {
        let spare = std::mem::replace(&mut self.spare, null_mut());
        if !spare.is_null() {
            // SAFETY: made in `fill`, and taken once. It goes before the types that its memory was of.
            unsafe { Box::from_raw(spare).free() };
        }
    }
}

/// The state of the module that a type was made for.
///
/// # Safety
///
/// `kind` is one of the module's own types.
#[cfg(not(Py_GIL_DISABLED))]
unsafe fn state_of<'a>(kind: *mut ffi::PyTypeObject) -> Option<&'a mut State> {
    // SAFETY: the caller's; once the module was cleared, it has no memory for handles.
    unsafe { MODULE.state_of(kind) }.filter(|state| !state.spare.is_null())
}

fn fill_names(names: &mut Names) -> Result<(), Raised> {
    let intern = |text: &CStr| {
        // SAFETY: a C string.
        unsafe { Object::own(ffi::PyUnicode_InternFromString(text.as_ptr())) }.map(Object::into_ptr)
    };
    names.future_class = intern(c"Future")?;
    names.task_class = intern(c"Task")?;
    names.buffer = intern(c"_buffer")?;
    names.cancelled = intern(c"cancelled")?;
    names.clear = intern(c"clear")?;
    names.eof = intern(c"_eof")?;
    names.exception = intern(c"_exception")?;
    names.limit = intern(c"_limit")?;
    names.loop_field = intern(c"_loop")?;
    names.maybe_resume = intern(c"_maybe_resume_transport")?;
    names.paused = intern(c"_paused")?;
    names.pause_reading = intern(c"pause_reading")?;
    names.resume_reading = intern(c"resume_reading")?;
    names.stream_reader = intern(c"_stream_reader_wr")?;
    names.transport = intern(c"_transport")?;
    names.waiter = intern(c"_waiter")?;
    names.call_at = intern(c"call_at")?;
    names.call_soon = intern(c"call_soon")?;
    names.call_soon_threadsafe = intern(c"call_soon_threadsafe")?;
    names.callback_failed = intern(c"_callback_failed")?;
    names.cancel = intern(c"cancel")?;
    names.context = intern(c"context")?;
    names.create_future = intern(c"create_future")?;
    names.done = intern(c"done")?;
    names.ensure_no_transport = intern(c"_ensure_fd_no_transport")?;
    names.eof_received = intern(c"eof_received")?;
    names.fatal_error = intern(c"_fatal_error")?;
    names.loop_ = intern(c"loop")?;
    // SAFETY: a live string.
    names.loop_keyword = unsafe { Object::own(ffi::PyTuple_Pack(1, names.loop_))? }.into_ptr();
    names.note_scheduled = intern(c"_note_scheduled")?;
    names.pause_protocol = intern(c"_pause_protocol")?;
    names.resume_protocol = intern(c"_resume_protocol")?;
    names.run_in_debug = intern(c"_run_in_debug")?;
    names.schedule_connection_lost = intern(c"_schedule_connection_lost")?;
    names.set_exception = intern(c"set_exception")?;
    names.set_result = intern(c"set_result")?;
    names.warn_lost = intern(c"_warn_lost")?;
    Ok(())
}

/// Finds what belongs to asyncio and to the socket module.
fn find_classes(state: &mut State) -> Result<(), Raised> {
    let import = |name: &CStr| {
        // SAFETY: a C string.
        unsafe { Object::own(ffi::PyImport_ImportModule(name.as_ptr())) }
    };
    state.futures = import(c"asyncio.futures")?.into_ptr();
    state.tasks = import(c"asyncio.tasks")?.into_ptr();
    state.socket_class = import(c"socket")?.attribute(c"socket")?.into_ptr();
    state.buffered_protocol = import(c"asyncio.protocols")?.attribute(c"BufferedProtocol")?.into_ptr();
    state.reader_protocol = import(c"asyncio.streams")?.attribute(c"StreamReaderProtocol")?.into_ptr();
    state.incomplete_read = import(c"asyncio.exceptions")?.attribute(c"IncompleteReadError")?.into_ptr();
    let base = import(c"asyncio.selector_events")?.attribute(c"BaseSelectorEventLoop")?;
    state.create_task = base.attribute(c"create_task")?.into_ptr();
    state.sock_recv = base.attribute(c"sock_recv")?.into_ptr();
    state.sock_recv_into = base.attribute(c"sock_recv_into")?.into_ptr();
    state.sock_sendall = base.attribute(c"sock_sendall")?.into_ptr();
    Ok(())
}

fn fill(module: &Object, state: &mut State) -> Result<(), Raised> {
    state.spare = Box::into_raw(Box::default());
    fill_names(&mut state.names)?;
    find_classes(state)?;
    state.places_known = context::are_places_known()?;
    handle::add(module, state)?;
    operation::add(module, state)?;
    reading::add(module, state)?;
    stream::add(module, state)?;
    core::add(module, state)?;
    for (name, object) in [
        (c"Handle", state.handle_type),
        (c"TimerHandle", state.timer_type),
        (c"ThreadSafeHandle", state.thread_safe_type),
        (c"Core", state.core_type),
        (c"Stream", state.stream_type),
        (c"Operation", state.operation_type),
        (c"Reading", state.reading_type),
    ] {
        // SAFETY: our fresh module and a live object.
        unsafe { module::add(module, name, object)? };
    }
    Ok(())
}
