//! `windlass._worker`: what a worker, and shared memory anywhere, need of the core.
//!
//! Plain C API, multi-phase initialisation, state in the module and no static types: it can be loaded into every
//! interpreter of a process.

pub(crate) mod buffer;
mod indexing;
pub(crate) mod serve;
mod switchboard;

use std::collections::HashMap;
use std::ffi::{c_int, c_long, c_ulonglong, c_void};
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use pyo3_ffi as ffi;
use windlass_os::{memfd, process};
use windlass_pool::Control;
use windlass_pool::wire::flags;
use windlass_pool::worker::{FdChannel, WorkerEnd};
use windlass_pool::zygote::server;
use windlass_shm::block::Block;
use windlass_shm::segment::Segment;

use self::buffer::Purpose;
use crate::door::{Definition, Door, drop_all, visit_all};
use crate::entry::entry;
use crate::object::{Object, Raised, detached, fail, raise, raise_os};
use crate::shared;

/// What a worker process has of its parent; one for each process.
struct Link {
    channel: FdChannel,
    lanes: Mutex<Vec<Option<WorkerEnd>>>,
}

static LINK: OnceLock<Link> = OnceLock::new();

#[repr(C)]
struct State {
    buffer_type: *mut ffi::PyObject,
    result_type: *mut ffi::PyObject,
    hub_type: *mut ffi::PyObject,
    port_type: *mut ffi::PyObject,
}

impl State {
    /// Every reference in it, for the garbage collector.
    fn objects(&mut self) -> [&mut *mut ffi::PyObject; 4] {
        [&mut self.buffer_type, &mut self.result_type, &mut self.hub_type, &mut self.port_type]
    }
}

/// The state of a module that `PyInit__worker` made; none before it has room for it.
///
/// # Safety
///
/// `module` is such a module, and alive for as long as the state is used.
unsafe fn state<'a>(module: *mut ffi::PyObject) -> Option<&'a mut State> {
    // SAFETY: the interpreter made room for a `State`, zeroed, which is valid.
    unsafe { ffi::PyModule_GetState(module).cast::<State>().as_mut() }
}

fn finish(result: Result<Object, Raised>) -> *mut ffi::PyObject {
    result.map_or(ptr::null_mut(), Object::into_ptr)
}

fn link() -> Result<&'static Link, Raised> {
    LINK.get().ok_or_else(|| fail(c"this process is not a worker"))
}

/// Takes over a descriptor that Python code has let go of.
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

#[entry]
unsafe extern "C" fn zygote_serve(_: *mut ffi::PyObject, args: *mut ffi::PyObject) -> *mut ffi::PyObject {
    let mut fd: c_int = -1;
    parse!(args, c"i:zygote_serve", fd);
    let mut fork = || {
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
    let spec = memfd::read_all(std::os::fd::AsFd::as_fd(&spawned.spec)).map_err(|error| raise_os(&error));
    let made = spec.and_then(|spec| {
        let control = Control::attach(spawned.control, spawned.event).map_err(|error| raise(&error))?;
        let lanes =
            spawned.lanes.into_iter().map(|lane| WorkerEnd::attach(lane, Arc::clone(&control)).map(Some));
        let lanes = lanes.collect::<Result<Vec<_>, _>>().map_err(|error| raise(&error))?;
        let count = lanes.len();
        let link = Link { channel: FdChannel::new(spawned.socket), lanes: Mutex::new(lanes) };
        if LINK.set(link).is_err() {
            return Err(fail(c"this process is a worker already"));
        }
        let spec = Object::bytes(&spec)?;
        let handed = handed_down(spawned.notes, spawned.handed)?;
        // SAFETY: the format's arguments are of the sizes it says; "O" takes its own reference.
        unsafe {
            Object::own(ffi::Py_BuildValue(
                c"(nOIO)".as_ptr(),
                count as ffi::Py_ssize_t,
                spec.as_ptr(),
                spawned.slot,
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
    let mut lanes = link()?.lanes.lock().unwrap_or_else(PoisonError::into_inner);
    let lane = usize::try_from(index).ok().and_then(|index| lanes.get_mut(index)?.as_mut());
    work(lane.ok_or_else(|| fail(c"there is no such lane, or it is being served"))?)
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
            let kind = windlass_pool::wire::kind::INIT_FAILED;
            lane.reply(kind, flags::ERROR, 0, 0, &[bytes]).map_err(|error| raise(&error))
        })
    });
    finish(said.map(|()| Object::none()))
}

#[entry]
unsafe extern "C" fn serve_lane(module: *mut ffi::PyObject, args: *mut ffi::PyObject) -> *mut ffi::PyObject {
    let mut index: c_int = 0;
    parse!(args, c"i:serve", index);
    let served = link().and_then(|link| {
        let end = {
            let mut lanes = link.lanes.lock().unwrap_or_else(PoisonError::into_inner);
            usize::try_from(index).ok().and_then(|index| lanes.get_mut(index)?.take())
        };
        let end = end.ok_or_else(|| fail(c"there is no such lane, or it is being served"))?;
        // SAFETY: the interpreter passes the module that the function belongs to.
        let module = unsafe { Object::share(module)? };
        let mut server = serve::Server {
            end,
            lane: usize::try_from(index).unwrap_or(0),
            channel: &link.channel,
            tools: serve::Tools::load(&module)?,
            functions: HashMap::new(),
            forks: process::fork_generation(),
        };
        server.run()
    });
    finish(served.map(|()| Object::none()))
}

#[entry]
unsafe extern "C" fn keep_buffer(_: *mut ffi::PyObject, buffer: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a live argument.
    let stays = unsafe { Object::share(buffer) }.and_then(serve::keep_buffer);
    finish(stays.and_then(|stays| {
        // SAFETY: the thread is attached.
        unsafe { Object::own(ffi::PyBool_FromLong(stays.into())) }
    }))
}

fn buffer_type(module: *mut ffi::PyObject) -> *mut ffi::PyTypeObject {
    // SAFETY: our module, whose state holds the type from its first moment on.
    unsafe { state(module) }.map_or(ptr::null_mut(), |state| state.buffer_type.cast())
}

fn result_type(module: *mut ffi::PyObject) -> *mut ffi::PyTypeObject {
    // SAFETY: as above.
    unsafe { state(module) }.map_or(ptr::null_mut(), |state| state.result_type.cast())
}

/// The segment of a `SharedBuffer`, whole.
fn segment_of(module: *mut ffi::PyObject, object: *mut ffi::PyObject) -> Result<Arc<Segment>, Raised> {
    // SAFETY: a live object; checked to be of our type before it is looked into.
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
    let kind = unsafe { state(module) }.map_or(ptr::null_mut(), |state| state.hub_type.cast());
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
    let kind = unsafe { state(module) }.map_or(ptr::null_mut(), |state| state.port_type.cast());
    finish(segment_of(module, memory).and_then(|segment| switchboard::make_port(kind, segment, patience)))
}

/// A buffer over a block of this process's own.
fn of_block(module: *mut ffi::PyObject, block: Arc<Block>, length: usize) -> Result<Object, Raised> {
    let (segment, offset) = (Arc::clone(block.segment()), block.offset());
    buffer::make(buffer_type(module), segment, offset, length as u64, Purpose::Shared(Some(block)))
}

#[entry]
unsafe extern "C" fn shared_new(module: *mut ffi::PyObject, args: *mut ffi::PyObject) -> *mut ffi::PyObject {
    let mut size: ffi::Py_ssize_t = 0;
    let mut alone: c_int = 0;
    parse!(args, c"n|p:shared_new", size, alone);
    let Ok(bytes) = usize::try_from(size) else {
        // SAFETY: a live exception class and a C string.
        unsafe { ffi::PyErr_SetString(ffi::PyExc_ValueError, c"a size cannot be negative".as_ptr()) };
        return ptr::null_mut();
    };
    let make = || if alone != 0 { Block::alone(bytes) } else { Block::zeroed(bytes) };
    let block = detached(make).map_err(|error| raise(&error));
    finish(block.and_then(|block| of_block(module, block, bytes)))
}

#[entry]
unsafe extern "C" fn shared_from(module: *mut ffi::PyObject, args: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: zeros are an empty view, which the format fills.
    let mut view: ffi::Py_buffer = unsafe { std::mem::zeroed() };
    parse!(args, c"y*:shared_from", view);
    let length = usize::try_from(view.len).unwrap_or(0);
    let source = view.buf as usize;
    let put = detached(|| {
        let bytes: &[u8] = if length == 0 {
            &[]
        } else {
            // SAFETY: a contiguous view of that length, exported until it is released below.
            unsafe { std::slice::from_raw_parts(source as *const u8, length) }
        };
        Block::copied(bytes)
    });
    // SAFETY: filled by the format, released once.
    unsafe { ffi::PyBuffer_Release(&raw mut view) };
    let block = put.map_err(|error| raise(&error));
    finish(block.and_then(|block| of_block(module, block, length)))
}

/// The segment behind a handle: known to this process, or on its way from the parent.
fn resolve(id: u64, generation: u64) -> Result<Arc<Segment>, Raised> {
    let found = match (Segment::lookup(id, generation), LINK.get()) {
        // It may have to be waited for.
        (Ok(None), Some(link)) => detached(|| link.channel.segment(id, generation).map(Some)),
        (found, _) => found,
    };
    match found {
        Ok(Some(segment)) => Ok(segment),
        Ok(None) => {
            let code = windlass_base::Code::ShmStale;
            Err(raise(&windlass_base::Error::new(code, "a handle names shared memory that is gone")))
        }
        Err(error) => Err(raise(&error)),
    }
}

/// A buffer over memory that came by handle. If it is this process's own, one of its buffers has the block.
fn attached(
    module: *mut ffi::PyObject,
    segment: Arc<Segment>,
    offset: u64,
    length: u64,
) -> Result<Object, Raised> {
    serve::note_attached(segment.id(), offset);
    segment.check_range(offset, length).map_err(|error| raise(&error))?;
    // SAFETY: the range was checked to lie inside the mapped data.
    let start = unsafe { segment.data().map_err(|error| raise(&error))?.add(offset as usize) };
    let block = shared::find(start as usize, 0).and_then(|place| place.block);
    buffer::make(buffer_type(module), segment, offset, length, Purpose::Shared(block))
}

#[entry]
unsafe extern "C" fn shared_attach(
    module: *mut ffi::PyObject,
    args: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let (mut id, mut generation, mut offset, mut length): (
        c_ulonglong,
        c_ulonglong,
        c_ulonglong,
        c_ulonglong,
    ) = (0, 0, 0, 0);
    parse!(args, c"KKKK:shared_attach", id, generation, offset, length);
    finish(resolve(id, generation).and_then(|segment| attached(module, segment, offset, length)))
}

#[entry]
unsafe extern "C" fn open_frame(module: *mut ffi::PyObject, args: *mut ffi::PyObject) -> *mut ffi::PyObject {
    let mut payload: *mut ffi::PyObject = ptr::null_mut();
    let mut writable: c_int = 0;
    let mut result: c_int = 0;
    parse!(args, c"Spp:open_frame", payload, writable, result);
    // SAFETY: the format has checked that it is bytes.
    let opened = unsafe { Object::share(payload) }.and_then(|payload| {
        let bytes = payload.as_bytes().ok_or(Raised)?;
        let table = windlass_pool::frame::Table::parse(bytes).map_err(|error| raise(&error))?;
        let stream = table.entry(0).ok_or(Raised)?;
        let narrowed = result != 0 && may_narrow(&table, &stream);
        // SAFETY: a fresh list.
        let parts = unsafe { Object::own(ffi::PyList_New(0))? };
        let mut entries = std::iter::once(stream).chain(table.buffers());
        while let Some(entry) = entries.next() {
            let part = match table.inline(&entry) {
                Some(inline) if narrowed && !parts_empty(&parts) => {
                    let block = Block::copied(inline).map_err(|error| raise(&error))?;
                    let (segment, offset) = (Arc::clone(block.segment()), block.offset());
                    let purpose = Purpose::Result(Some(block));
                    buffer::make(result_type(module), segment, offset, inline.len() as u64, purpose)?
                }
                // Arrays over bytes are read-only, over a bytearray writable: what the direction wants.
                Some(inline) if writable != 0 => {
                    let length = ffi::Py_ssize_t::try_from(inline.len()).map_err(|_| Raised)?;
                    // SAFETY: the bytes are copied.
                    unsafe {
                        Object::own(ffi::PyByteArray_FromStringAndSize(inline.as_ptr().cast(), length))?
                    }
                }
                Some(inline) => Object::bytes(inline)?,
                None if entry.is_shared() => {
                    let segment = resolve(entry.segment, entry.generation)?;
                    let whole = attached(module, segment, entry.offset, entry.bytes())?;
                    let part = entries.next().ok_or(Raised)?;
                    part_of(&whole, part.offset, part.length)?
                }
                None => {
                    let segment = resolve(entry.segment, entry.generation)?;
                    let purpose = if result != 0 {
                        Purpose::Result(None)
                    } else {
                        Purpose::Argument { lease: table.lease(), private: writable != 0 }
                    };
                    let kind = if narrowed { result_type(module) } else { buffer_type(module) };
                    buffer::make(kind, segment, entry.offset, entry.length, purpose)?
                }
            };
            // SAFETY: two live objects; the list takes its own reference.
            if unsafe { ffi::PyList_Append(parts.as_ptr(), part.as_ptr()) } != 0 {
                return Err(Raised);
            }
        }
        Ok(parts)
    });
    finish(opened)
}

/// The opcode of pickle that makes the buffer before it read-only.
const READONLY_BUFFER: u8 = 0x98;

/// Whether a result's stream may make a buffer read-only that is its receiver's to write. One that is not inline is
/// not looked at.
fn may_narrow(table: &windlass_pool::frame::Table<'_>, stream: &windlass_pool::frame::Entry) -> bool {
    table.inline(stream).is_none_or(|bytes| memchr::memchr(READONLY_BUFFER, bytes).is_some())
}

fn parts_empty(parts: &Object) -> bool {
    // SAFETY: a list.
    unsafe { ffi::PyList_Size(parts.as_ptr()) == 0 }
}

/// A memoryview of part of a buffer.
fn part_of(whole: &Object, start: u64, length: u64) -> Result<Object, Raised> {
    // SAFETY: a live object with the buffer protocol; slices are clipped to it, and each result is owned.
    unsafe {
        let view = Object::own(ffi::PyMemoryView_FromObject(whole.as_ptr()))?;
        let number = |value: u64| Object::own(ffi::PyLong_FromUnsignedLongLong(value));
        let (start, end) = (number(start)?, number(start.saturating_add(length))?);
        let slice = Object::own(ffi::PySlice_New(start.as_ptr(), end.as_ptr(), ptr::null_mut()))?;
        Object::own(ffi::PyObject_GetItem(view.as_ptr(), slice.as_ptr()))
    }
}

/// `shared_lend(address, nbytes)`: the handle of the block that these bytes lie in, and where in it they start, if they
/// lie in one and an encoding is open; else `None`.
#[entry]
unsafe extern "C" fn shared_lend(_: *mut ffi::PyObject, args: *mut ffi::PyObject) -> *mut ffi::PyObject {
    let (mut address, mut length): (c_ulonglong, ffi::Py_ssize_t) = (0, 0);
    parse!(args, c"Kn:shared_lend", address, length);
    let address = usize::try_from(address).unwrap_or(0);
    match buffer::lend_bytes(address, usize::try_from(length).unwrap_or(0)) {
        // SAFETY: five integers of the sizes that the format says.
        Ok(Some(place)) => unsafe {
            ffi::Py_BuildValue(
                c"(KKKK)n".as_ptr(),
                place.segment.id(),
                place.segment.generation(),
                place.offset,
                place.length,
                (address - place.address) as ffi::Py_ssize_t,
            )
        },
        Ok(None) => Object::none().into_ptr(),
        Err(Raised) => ptr::null_mut(),
    }
}

/// `is_shared(address, nbytes)`: whether these bytes lie in shared memory.
#[entry]
unsafe extern "C" fn is_shared(_: *mut ffi::PyObject, args: *mut ffi::PyObject) -> *mut ffi::PyObject {
    let (mut address, mut length): (c_ulonglong, ffi::Py_ssize_t) = (0, 0);
    parse!(args, c"Kn:is_shared", address, length);
    let length = usize::try_from(length).unwrap_or(0);
    let found = usize::try_from(address).is_ok_and(|address| shared::find(address, length).is_some());
    // SAFETY: the thread is attached.
    unsafe { ffi::PyBool_FromLong(found.into()) }
}

/// `stays_in_stream(kept, buffer)`: for an encoding in Python; as the compiled one does it.
#[entry]
unsafe extern "C" fn stays_in_stream(_: *mut ffi::PyObject, args: *mut ffi::PyObject) -> *mut ffi::PyObject {
    let mut kept: ffi::Py_ssize_t = 0;
    let mut object: *mut ffi::PyObject = ptr::null_mut();
    parse!(args, c"nO:stays_in_stream", kept, object);
    // SAFETY: a live argument.
    match unsafe { buffer::stays_in_stream(usize::try_from(kept).unwrap_or(0), object) } {
        // SAFETY: the thread is attached.
        Ok(stays) => unsafe { ffi::PyBool_FromLong(stays.into()) },
        Err(Raised) => ptr::null_mut(),
    }
}

#[entry]
unsafe extern "C" fn die_with_parent(_: *mut ffi::PyObject, args: *mut ffi::PyObject) -> *mut ffi::PyObject {
    let mut parent: c_long = 0;
    parse!(args, c"l:die_with_parent", parent);
    let asked = process::set_parent_death_signal(9).map_err(|error| raise_os(&error));
    if asked.is_ok() && i64::from(process::parent_pid()) != parent {
        // It died before we asked.
        process::exit_now(1);
    }
    finish(asked.map(|()| Object::none()))
}

#[entry]
unsafe extern "C" fn shared_array_base(
    module: *mut ffi::PyObject,
    array: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    finish(indexing::make_type(module, array))
}

const fn method(
    name: &'static std::ffi::CStr,
    function: unsafe extern "C" fn(*mut ffi::PyObject, *mut ffi::PyObject) -> *mut ffi::PyObject,
    kind: c_int,
    doc: &'static std::ffi::CStr,
) -> ffi::PyMethodDef {
    ffi::PyMethodDef {
        ml_name: name.as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunction: function },
        ml_flags: kind,
        ml_doc: doc.as_ptr(),
    }
}

struct Methods([ffi::PyMethodDef; 19]);
// SAFETY: a constant table of constant pointers.
unsafe impl Sync for Methods {}

static METHODS: Methods = Methods([
    method(c"zygote_hello", zygote_hello, ffi::METH_VARARGS, c"zygote_hello(fd, failed_preloads)"),
    method(
        c"zygote_serve",
        zygote_serve,
        ffi::METH_VARARGS,
        c"zygote_serve(fd) -> (lanes, spec, slot, descriptors) in a child, else None",
    ),
    method(c"ready", ready, ffi::METH_VARARGS, c"ready(lane)"),
    method(
        c"note_changed",
        note_changed,
        ffi::METH_NOARGS,
        c"note_changed()\n\nSays that a value of the program's was taken over in place of another.",
    ),
    method(c"init_failed", init_failed, ffi::METH_VARARGS, c"init_failed(stream)"),
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
    method(c"die_with_parent", die_with_parent, ffi::METH_VARARGS, c"die_with_parent(parent_pid)"),
    // SAFETY: a table ends with zeros.
    unsafe { std::mem::zeroed() },
]);

#[entry]
unsafe extern "C" fn exec(module: *mut ffi::PyObject) -> c_int {
    // SAFETY: our fresh module, which nobody else sees yet.
    let Some(state) = (unsafe { state(module) }) else { return -1 };
    let Ok((hub, port)) = switchboard::make_types(module) else { return -1 };
    let Ok(buffer) = buffer::make_type(module) else { return -1 };
    let Ok(result) = buffer::make_result_type(module) else { return -1 };
    state.buffer_type = buffer.into_ptr();
    state.result_type = result.into_ptr();
    state.hub_type = hub.into_ptr();
    state.port_type = port.into_ptr();
    for (name, kind) in
        [(c"SharedBuffer", state.buffer_type), (c"Switchboard", state.hub_type), (c"Port", state.port_type)]
    {
        // SAFETY: a live module and a live type, of which it takes its own reference.
        if unsafe { ffi::PyModule_AddObjectRef(module, name.as_ptr(), kind) } != 0 {
            return -1;
        }
    }
    0
}

#[entry]
unsafe extern "C" fn traverse(module: *mut ffi::PyObject, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    // SAFETY: our module; its state may not be there yet.
    let Some(state) = (unsafe { state(module) }) else { return 0 };
    // SAFETY: references that the state holds, and the collector's own function.
    unsafe { visit_all(state.objects(), visit, arg) }
}

#[entry]
unsafe extern "C" fn clear(module: *mut ffi::PyObject) -> c_int {
    // SAFETY: our module; each reference is dropped once.
    unsafe {
        if let Some(state) = state(module) {
            drop_all(state.objects());
        }
    }
    0
}

#[entry]
unsafe extern "C" fn free(module: *mut c_void) {
    // SAFETY: as `clear`.
    unsafe { clear(module.cast()) };
}

/// The module's second door; see the crate.
///
/// # Safety
///
/// Called by the import system.
#[expect(unreachable_pub, reason = "the import system reaches it by its symbol")]
#[unsafe(no_mangle)]
#[entry]
pub unsafe extern "C" fn PyInit__worker() -> *mut ffi::PyObject {
    static DEFINITION: Definition = Definition::new();
    DEFINITION.init(Door {
        name: c"_worker",
        doc: c"What a worker, and shared memory anywhere, need of the core.",
        state: size_of::<State>(),
        methods: &METHODS.0,
        exec,
        traverse,
        clear,
        free,
    })
}
