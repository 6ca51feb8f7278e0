//! `ropewalk._worker`: the compiled part of a worker, and of shared memory in every process.
//!
//! Plain C API, multi-phase initialisation, state in the module and no static types: it can be loaded into every
//! interpreter of a process.

mod answer;
mod batch;
pub(crate) mod buffer;
mod calling;
mod ending;
mod indexing;
pub(crate) mod leases;
mod link;
mod running;
pub(crate) mod serve;
mod sessions;
mod stream;
mod switchboard;
mod tools;

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{c_int, c_long, c_ulonglong};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;

use pyo3_ffi as ffi;
use ropewalk_os::{memfd, process};
use ropewalk_pool::wire::{STACK_SIGNAL, flags};
use ropewalk_pool::worker::{FdChannel, WorkerEnd};
use ropewalk_pool::zygote::server;
use ropewalk_pool::{Control, Meter};

use crate::pickle;
use ropewalk_capi::entry;
use ropewalk_capi::errors::{fail, raise, raise_os};
use ropewalk_capi::heap::method;
use ropewalk_capi::module::{self, Module};
use ropewalk_capi::object::{Object, Raised, take_exception};
use ropewalk_shm::memory::{Block, Segment};

#[repr(C)]
struct State {
    buffer_type: *mut ffi::PyObject,
    result_type: *mut ffi::PyObject,
    hub_type: *mut ffi::PyObject,
    port_type: *mut ffi::PyObject,
    running_type: *mut ffi::PyObject,
}

static MODULE: Module<State> =
    Module::new(c"_worker", c"What a worker, and shared memory anywhere, need of the core.");

/// Makes the module: what its `PyInit_` function returns.
pub fn init() -> *mut ffi::PyObject {
    MODULE.init()
}

// SAFETY: pointers, for which zeros are null.
unsafe impl module::State for State {
    fn functions() -> Vec<ffi::PyMethodDef> {
        functions()
    }

    fn references(&mut self) -> impl Iterator<Item = &mut *mut ffi::PyObject> {
        let [buffers, results] = [&mut self.buffer_type, &mut self.result_type];
        [buffers, results, &mut self.hub_type, &mut self.port_type, &mut self.running_type].into_iter()
    }

    fn fill(&mut self, module: &Object) -> Result<(), Raised> {
        let (hub, port) = switchboard::make_types(module)?;
        (self.hub_type, self.port_type) = (hub.into_ptr(), port.into_ptr());
        self.buffer_type = buffer::make_type(module)?.into_ptr();
        self.result_type = buffer::make_result_type(module)?.into_ptr();
        self.running_type = running::make_type(module)?.into_ptr();
        // SAFETY: our fresh module, and live types.
        unsafe {
            module::add(module, c"SharedBuffer", self.buffer_type)?;
            module::add(module, c"Switchboard", self.hub_type)?;
            module::add(module, c"Port", self.port_type)?;
            module::add(module, c"RunningTask", self.running_type)
        }
    }
}

fn finish(result: Result<Object, Raised>) -> *mut ffi::PyObject {
    result.map_or(ptr::null_mut(), Object::into_ptr)
}

/// Takes over a descriptor that Python code has released.
fn own(fd: c_int) -> OwnedFd {
    // SAFETY: callers hand over numbers that `zygote_serve` gave them, each once.
    unsafe { OwnedFd::from_raw_fd(fd as RawFd) }
}

macro_rules! parse {
    ($args:expr, $format:expr, $($slot:expr),+) => {
        // SAFETY: the format names as many arguments as there are slots, each of the slot's type.
        if unsafe { ffi::PyArg_ParseTuple($args, $format.as_ptr(), $(&raw mut $slot),+) } == 0 {
            return ptr::null_mut();
        }
    };
}

// Behind the macro, which it uses.
mod memory;
use self::memory::{
    is_shared, of_block, open_frame, shared_array_base, shared_attach, shared_descriptor, shared_from,
    shared_lend, shared_new, shared_open, stays_in_stream,
};

#[entry]
unsafe extern "C" fn zygote_hello(_: *mut ffi::PyObject, args: *mut ffi::PyObject) -> *mut ffi::PyObject {
    let mut fd: c_int = -1;
    let mut failed: *mut ffi::PyObject = ptr::null_mut();
    parse!(args, c"iO:zygote_hello", fd, failed);
    let mut texts = Vec::new();
    // SAFETY: checked to be a list, whose items are borrowed while it lives; the text is copied.
    unsafe {
        for at in 0..ffi::PyList_Size(failed).max(0) {
            let mut length = 0;
            let text = ffi::PyUnicode_AsUTF8AndSize(ffi::PyList_GetItem(failed, at), &raw mut length);
            if text.is_null() {
                return ptr::null_mut();
            }
            let bytes = std::slice::from_raw_parts(text.cast::<u8>(), usize::try_from(length).unwrap_or(0));
            texts.push(String::from_utf8_lossy(bytes).into_owned());
        }
    }
    let fd = std::mem::ManuallyDrop::new(own(fd));
    finish(server::hello(&fd, &texts).map(|()| Object::none()).map_err(|error| raise_os(&error)))
}

/// The settings for the workers that a zygote forks. The zygote applies them itself, once for workers with the same
/// spec.
struct Specs {
    /// Called with a spec; borrowed from the caller of `zygote_serve`.
    prepare: *mut ffi::PyObject,
    /// The spec that this process is prepared for.
    last: Option<Object>,
}

impl Specs {
    fn prepare(&mut self, spec: BorrowedFd<'_>) -> io::Result<()> {
        let spec = memfd::read_all(spec)?;
        if self.last.as_ref().and_then(Object::as_bytes) == Some(&spec) {
            return Ok(());
        }
        self.last = None;
        let out_of_memory = |Raised| {
            drop(take_exception());
            io::Error::from(io::ErrorKind::OutOfMemory)
        };
        let spec = Object::bytes(&spec).map_err(out_of_memory)?;
        // SAFETY: the caller of `zygote_serve` holds its argument for as long as that runs.
        let prepare = unsafe { Object::share(self.prepare) }.map_err(out_of_memory)?;
        if prepare.call(&[spec.as_ptr()]).is_err() {
            // The worker then applies them itself, and reports failures.
            drop(take_exception());
        }
        self.last = Some(spec);
        Ok(())
    }
}

#[entry]
unsafe extern "C" fn zygote_serve(_: *mut ffi::PyObject, args: *mut ffi::PyObject) -> *mut ffi::PyObject {
    let mut fd: c_int = -1;
    let mut prepare: *mut ffi::PyObject = ptr::null_mut();
    parse!(args, c"iO:zygote_serve", fd, prepare);
    let mut specs = Specs { prepare, last: None };
    let mut fork = |given: &server::Spawned| {
        specs.prepare(given.spec.as_fd())?;
        // SAFETY: the interpreter's own order around a fork; the zygote has one thread.
        unsafe {
            ffi::PyOS_BeforeFork();
            let pid = process::fork();
            if matches!(pid, Ok(0)) {
                ffi::PyOS_AfterFork_Child();
            } else {
                ffi::PyOS_AfterFork_Parent();
            }
            pid
        }
    };
    let spawned = match server::serve(own(fd), &mut fork) {
        Ok(Some(spawned)) => spawned,
        Ok(None) => return Object::none().into_ptr(),
        Err(error) => {
            let _ = raise_os(&error);
            return ptr::null_mut();
        }
    };
    let spec = specs.last.take().ok_or_else(|| fail(c"a worker without a spec"));
    let made = spec.and_then(|spec| {
        let control = Control::attach(spawned.control, spawned.event).map_err(|error| raise(&error))?;
        let lanes =
            spawned.lanes.into_iter().map(|lane| WorkerEnd::attach(lane, Arc::clone(&control)).map(Some));
        let lanes = lanes.collect::<Result<Vec<_>, _>>().map_err(|error| raise(&error))?;
        let count = lanes.len();
        link::open(FdChannel::new(spawned.socket), lanes)?;
        let handed = handed_down(spawned.notes, spawned.handed)?;
        // SAFETY: the format's arguments are of the sizes it says; "O" takes its own reference.
        unsafe {
            Object::own(ffi::Py_BuildValue(
                c"(nOIKO)".as_ptr(),
                count as ffi::Py_ssize_t,
                spec.as_ptr(),
                spawned.slot,
                spawned.number,
                handed.as_ptr(),
            ))
        }
    });
    finish(made)
}

/// The numbers of descriptors that Python code owns from now on.
fn handed_down(notes: OwnedFd, handed: Vec<OwnedFd>) -> Result<Object, Raised> {
    let all: Vec<OwnedFd> = std::iter::once(notes).chain(handed).collect();
    // SAFETY: a fresh tuple of that many places, each filled once with a new reference.
    unsafe {
        let numbers = Object::own(ffi::PyTuple_New(all.len() as ffi::Py_ssize_t))?;
        for (at, fd) in all.into_iter().enumerate() {
            let number = Object::own(ffi::PyLong_FromLong(c_long::from(fd.into_raw_fd())))?;
            ffi::PyTuple_SetItem(numbers.as_ptr(), at as ffi::Py_ssize_t, number.into_ptr());
        }
        Ok(numbers)
    }
}

fn with_lane<T>(index: c_int, work: impl FnOnce(&mut WorkerEnd) -> Result<T, Raised>) -> Result<T, Raised> {
    link::get()?.with_lane(usize::try_from(index).unwrap_or(usize::MAX), work)
}

#[entry]
unsafe extern "C" fn sit(_: *mut ffi::PyObject, args: *mut ffi::PyObject) -> *mut ffi::PyObject {
    let mut seat: c_ulonglong = 0;
    parse!(args, c"K:sit", seat);
    finish(link::sit(seat).and_then(|(spec, number)| {
        let spec = Object::bytes(&spec)?;
        // SAFETY: the format's arguments are of the kinds it says; "O" takes its own reference.
        unsafe { Object::own(ffi::Py_BuildValue(c"(OK)".as_ptr(), spec.as_ptr(), c_ulonglong::from(number))) }
    }))
}

/// The signal on which a worker is to write the stacks of its threads into its notes.
#[entry]
unsafe extern "C" fn stack_signal(_: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the thread is attached.
    unsafe { ffi::PyLong_FromLong(STACK_SIGNAL.into()) }
}

#[entry]
unsafe extern "C" fn ready(_: *mut ffi::PyObject, args: *mut ffi::PyObject) -> *mut ffi::PyObject {
    let mut index: c_int = 0;
    parse!(args, c"i:ready", index);
    let said = with_lane(index, |lane| lane.ready().map_err(|error| raise(&error)));
    finish(said.map(|()| Object::none()))
}

#[entry]
unsafe extern "C" fn note_changed(_: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    serve::note_changed();
    Object::none().into_ptr()
}

#[entry]
unsafe extern "C" fn init_failed(_: *mut ffi::PyObject, args: *mut ffi::PyObject) -> *mut ffi::PyObject {
    let mut stream: *mut ffi::PyObject = ptr::null_mut();
    parse!(args, c"S:init_failed", stream);
    // SAFETY: the format has checked that it is bytes.
    let said = unsafe { Object::share(stream) }.and_then(|stream| {
        let bytes = stream.as_bytes().ok_or(Raised)?;
        with_lane(0, |lane| {
            let kind = ropewalk_pool::wire::kind::INIT_FAILED;
            lane.reply(kind, flags::ERROR, 0, 0, &[bytes]).map_err(|error| raise(&error))
        })
    });
    finish(said.map(|()| Object::none()))
}

#[entry]
unsafe extern "C" fn unfit(_: *mut ffi::PyObject, args: *mut ffi::PyObject) -> *mut ffi::PyObject {
    let mut why: *mut ffi::PyObject = ptr::null_mut();
    parse!(args, c"S:unfit", why);
    // SAFETY: the format has checked that it is bytes.
    let said = unsafe { Object::share(why) }.and_then(|why| {
        let bytes = why.as_bytes().ok_or(Raised)?;
        with_lane(0, |lane| {
            let kind = ropewalk_pool::wire::kind::UNFIT;
            lane.reply(kind, 0, 0, 0, &[bytes]).map_err(|error| raise(&error))
        })
    });
    finish(said.map(|()| Object::none()))
}

#[entry]
unsafe extern "C" fn set_title(_: *mut ffi::PyObject, args: *mut ffi::PyObject) -> *mut ffi::PyObject {
    let (mut title, mut name): (*mut ffi::PyObject, *mut ffi::PyObject) = (ptr::null_mut(), ptr::null_mut());
    parse!(args, c"SS:set_title", title, name);
    let text = |of: *mut ffi::PyObject| {
        // SAFETY: the format has checked that it is bytes.
        let of = unsafe { Object::share(of)? };
        of.as_bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).ok_or(Raised)
    };
    let set = text(title).and_then(|title| text(name).map(|name| (title, name))).map(|(title, name)| {
        // Without either the process is as useful, and only harder to find.
        ropewalk_os::title::set_title(&title);
        let _ = ropewalk_os::title::set_name(&name);
    });
    finish(set.map(|()| Object::none()))
}

#[entry]
unsafe extern "C" fn serve_lane(module: *mut ffi::PyObject, args: *mut ffi::PyObject) -> *mut ffi::PyObject {
    let mut index: c_int = 0;
    parse!(args, c"i:serve", index);
    let served = link::get().and_then(|link| {
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        let end = link.take_lane(index)?;
        // SAFETY: the interpreter passes the module that the function belongs to.
        let module = unsafe { Object::share(module)? };
        let (running, max_inline) = (Arc::clone(end.running()), end.max_inline());
        let mut server = serve::Server {
            ending: ending::Ending::here(end.leave()),
            end: Rc::new(RefCell::new(end)),
            running,
            max_inline,
            lane: leases::Lane { worker: link.worker, index },
            channel: &link.channel,
            tools: tools::Tools::load(&module)?,
            functions: HashMap::new(),
            lingering: 0,
            forks: process::fork_generation(),
            sessions: sessions::Sessions::default(),
            on: None,
            meter: Meter::default(),
        };
        server.run()
    });
    finish(served.map(|()| Object::none()))
}

/// The pickler's `buffer_callback`: keeps the buffer for the frame, or returns true to leave it in the stream.
#[entry]
unsafe extern "C" fn keep_buffer(_: *mut ffi::PyObject, of: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a live argument, of which a reference is kept, and an attached thread.
    let stays = unsafe {
        buffer::stays_in_stream(pickle::in_frame(), of).and_then(|stays| {
            if !stays {
                pickle::leave_out(Object::share(of)?);
            }
            Object::own(ffi::PyBool_FromLong(stays.into()))
        })
    };
    finish(stays)
}

#[entry]
unsafe extern "C" fn current_session(_: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    finish(sessions::current())
}

fn buffer_type(module: *mut ffi::PyObject) -> *mut ffi::PyTypeObject {
    // SAFETY: our module, whose state holds the type from its first moment on.
    unsafe { MODULE.state(module) }.map_or(ptr::null_mut(), |state| state.buffer_type.cast())
}

fn result_type(module: *mut ffi::PyObject) -> *mut ffi::PyTypeObject {
    // SAFETY: as above.
    unsafe { MODULE.state(module) }.map_or(ptr::null_mut(), |state| state.result_type.cast())
}

/// The segment of a `SharedBuffer`, whole.
fn segment_of(module: *mut ffi::PyObject, object: *mut ffi::PyObject) -> Result<Arc<Segment>, Raised> {
    // SAFETY: a live object; checked to be of our type before its content is read.
    let segment = unsafe {
        if ffi::PyObject_TypeCheck(object, buffer_type(module)) == 0 {
            return Err(fail(c"a switchboard lies in a SharedBuffer"));
        }
        buffer::segment(object)
    };
    segment.ok_or_else(|| fail(c"a switchboard lies in shared memory"))
}

#[entry]
unsafe extern "C" fn switchboard_new(
    module: *mut ffi::PyObject,
    args: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let (mut slots, mut ring): (ffi::Py_ssize_t, ffi::Py_ssize_t) = (0, 0);
    parse!(args, c"nn:switchboard", slots, ring);
    // SAFETY: our module.
    let kind = unsafe { MODULE.state(module) }.map_or(ptr::null_mut(), |state| state.hub_type.cast());
    let number = |value| usize::try_from(value).unwrap_or(0);
    finish(switchboard::make_hub(kind, number(slots), number(ring)).and_then(|(segment, hub)| {
        let size = usize::try_from(segment.size()).unwrap_or(usize::MAX);
        let memory = of_block(module, Block::whole(segment), size)?;
        // SAFETY: two live objects, of which the tuple takes references of its own.
        unsafe { Object::own(ffi::PyTuple_Pack(2, memory.as_ptr(), hub.as_ptr())) }
    }))
}

#[entry]
unsafe extern "C" fn switchboard_port(
    module: *mut ffi::PyObject,
    args: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let mut memory: *mut ffi::PyObject = ptr::null_mut();
    let mut patience: f64 = 0.0;
    parse!(args, c"Od:switchboard_port", memory, patience);
    // SAFETY: our module.
    let kind = unsafe { MODULE.state(module) }.map_or(ptr::null_mut(), |state| state.port_type.cast());
    finish(segment_of(module, memory).and_then(|segment| switchboard::make_port(kind, segment, patience)))
}

#[entry]
unsafe extern "C" fn running_task(module: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: our module.
    let kind = unsafe { MODULE.state(module) }.map_or(ptr::null_mut(), |state| state.running_type.cast());
    finish(running::of_this_thread(kind))
}

#[entry]
unsafe extern "C" fn die_with_parent(_: *mut ffi::PyObject, args: *mut ffi::PyObject) -> *mut ffi::PyObject {
    let mut parent: c_long = 0;
    parse!(args, c"l:die_with_parent", parent);
    let asked = process::set_parent_death_signal(9).map_err(|error| raise_os(&error));
    if asked.is_ok() && i64::from(process::parent_pid()) != parent {
        // The parent died before the check.
        process::exit_now(1);
    }
    finish(asked.map(|()| Object::none()))
}

fn functions() -> Vec<ffi::PyMethodDef> {
    vec![
        method(c"zygote_hello", zygote_hello, ffi::METH_VARARGS, c"zygote_hello(fd, failed_preloads)"),
        method(
            c"zygote_serve",
            zygote_serve,
            ffi::METH_VARARGS,
            c"zygote_serve(fd, prepare) -> (lanes, spec, slot, descriptors) in a child, else None",
        ),
        method(
            c"sit",
            sit,
            ffi::METH_VARARGS,
            c"sit(seat) -> (spec, number): makes this thread the worker of a seat that `_core` has taken",
        ),
        method(c"ready", ready, ffi::METH_VARARGS, c"ready(lane)"),
        method(c"stack_signal", stack_signal, ffi::METH_NOARGS, c"stack_signal() -> int"),
        method(
            c"note_changed",
            note_changed,
            ffi::METH_NOARGS,
            c"note_changed()\n\nSays that a value of the program's was taken over in place of another.",
        ),
        method(c"init_failed", init_failed, ffi::METH_VARARGS, c"init_failed(stream)"),
        method(c"unfit", unfit, ffi::METH_VARARGS, c"unfit(why)"),
        method(c"set_title", set_title, ffi::METH_VARARGS, c"set_title(title, name)"),
        method(
            c"serve",
            serve_lane,
            ffi::METH_VARARGS,
            c"serve(lane): runs tasks until the parent says to leave",
        ),
        method(c"_keep_buffer", keep_buffer, ffi::METH_O, c"the pickler's buffer_callback"),
        method(
            c"shared_new",
            shared_new,
            ffi::METH_VARARGS,
            c"shared_new(nbytes, alone=False) -> SharedBuffer of zeros",
        ),
        method(
            c"shared_from",
            shared_from,
            ffi::METH_VARARGS,
            c"shared_from(buffer) -> SharedBuffer with its bytes",
        ),
        method(c"shared_attach", shared_attach, ffi::METH_VARARGS, c"shared_attach(*handle) -> SharedBuffer"),
        method(
            c"shared_descriptor",
            shared_descriptor,
            ffi::METH_O,
            c"shared_descriptor(buffer) -> (a new descriptor of its segment, the segment's id)",
        ),
        method(
            c"shared_open",
            shared_open,
            ffi::METH_VARARGS,
            c"shared_open(descriptor, segment) -> SharedBuffer over the whole segment",
        ),
        method(
            c"open_frame",
            open_frame,
            ffi::METH_VARARGS,
            c"open_frame(payload, writable, result) -> [stream, *buffers]",
        ),
        method(
            c"shared_lend",
            shared_lend,
            ffi::METH_VARARGS,
            c"shared_lend(address, nbytes) -> (handle, start) if an encoding takes it, else None",
        ),
        method(
            c"shared_array_base",
            shared_array_base,
            ffi::METH_O,
            c"shared_array_base(ndarray) -> the base class of SharedArray",
        ),
        method(c"is_shared", is_shared, ffi::METH_VARARGS, c"is_shared(address, nbytes) -> bool"),
        method(
            c"stays_in_stream",
            stays_in_stream,
            ffi::METH_VARARGS,
            c"stays_in_stream(kept, buffer) -> whether a pickle had better keep the buffer in its stream",
        ),
        method(
            c"switchboard",
            switchboard_new,
            ffi::METH_VARARGS,
            c"switchboard(slots, ring) -> (SharedBuffer, Switchboard over it)",
        ),
        method(
            c"switchboard_port",
            switchboard_port,
            ffi::METH_VARARGS,
            c"switchboard_port(buffer, patience) -> Port of the switchboard in it",
        ),
        method(
            c"running_task",
            running_task,
            ffi::METH_NOARGS,
            c"running_task() -> RunningTask of this thread, or None",
        ),
        method(
            c"current_session",
            current_session,
            ffi::METH_NOARGS,
            c"current_session() -> the session of the task that this thread runs, or None",
        ),
        method(c"die_with_parent", die_with_parent, ffi::METH_VARARGS, c"die_with_parent(parent_pid)"),
    ]
}
