//! The Python functions for shared memory: new blocks, handles, the parts of a frame.

use std::ffi::{c_int, c_ulonglong};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::ptr;
use std::sync::Arc;

use pyo3_ffi as ffi;

use super::buffer::{self, Purpose};
use super::{buffer_type, finish, indexing, link, own, result_type, segment_of, serve};
use ropewalk_base::{Code, error};
use ropewalk_capi::entry;
use ropewalk_capi::errors::{fail, raise, raise_os};
use ropewalk_capi::object::{Object, Raised, detached};
use ropewalk_pool::codec::places;
use ropewalk_shm::memory::{Block, Segment};

/// A buffer over a block of this process's own.
pub(super) fn of_block(
    module: *mut ffi::PyObject,
    block: Arc<Block>,
    length: usize,
) -> Result<Object, Raised> {
    let (segment, offset) = (Arc::clone(block.segment()), block.offset());
    buffer::make(buffer_type(module), segment, offset, length as u64, Purpose::Shared(Some(block)))
}

#[entry]
pub(super) unsafe extern "C" fn shared_new(
    module: *mut ffi::PyObject,
    args: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
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
pub(super) unsafe extern "C" fn shared_from(
    module: *mut ffi::PyObject,
    args: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
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
    let found = match (Segment::lookup(id, generation), link::of_process()) {
        // It may have to be waited for.
        (Ok(None), Some(link)) => detached(|| link.channel.segment(id, generation).map(Some)),
        (found, _) => found,
    };
    match found {
        Ok(Some(segment)) => Ok(segment),
        Ok(None) => {
            Err(raise(&error!(Code::StaleHandle, "a handle names shared memory that no longer exists")))
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
    let block = places::find(start as usize, 0).and_then(|place| place.block);
    buffer::make(buffer_type(module), segment, offset, length, Purpose::Shared(block))
}

#[entry]
pub(super) unsafe extern "C" fn shared_attach(
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

/// `shared_descriptor(buffer)`: a new descriptor of the buffer's segment, which the caller closes, and the segment's
/// id.
#[entry]
pub(super) unsafe extern "C" fn shared_descriptor(
    module: *mut ffi::PyObject,
    object: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    finish(segment_of(module, object).and_then(|segment| {
        let Some(fd) = segment.fd() else { return Err(fail(c"the memory's descriptor was closed")) };
        let fd = fd.try_clone_to_owned().map_err(|error| raise_os(&error))?;
        let number = fd.as_raw_fd();
        // SAFETY: the thread is attached, and the format has an int and an unsigned long long.
        let pair = unsafe {
            Object::own(ffi::Py_BuildValue(c"(iK)".as_ptr(), number, c_ulonglong::from(segment.id())))?
        };
        // It is the caller's now.
        let _ = fd.into_raw_fd();
        Ok(pair)
    }))
}

/// `shared_open(descriptor, segment)`: the whole segment behind a descriptor, which is closed when nobody needs it.
#[entry]
pub(super) unsafe extern "C" fn shared_open(
    module: *mut ffi::PyObject,
    args: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let (mut fd, mut id): (c_int, c_ulonglong) = (-1, 0);
    parse!(args, c"iK:shared_open", fd, id);
    if fd < 0 {
        return finish(Err(fail(c"a descriptor cannot be negative")));
    }
    let segment = Segment::attach_any(own(fd), id).map_err(|error| raise(&error));
    finish(segment.and_then(|segment| {
        let size = segment.size();
        attached(module, segment, 0, size)
    }))
}

#[entry]
pub(super) unsafe extern "C" fn open_frame(
    module: *mut ffi::PyObject,
    args: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let mut payload: *mut ffi::PyObject = ptr::null_mut();
    let mut writable: c_int = 0;
    let mut result: c_int = 0;
    parse!(args, c"Spp:open_frame", payload, writable, result);
    // SAFETY: the format has checked that it is bytes.
    let opened = unsafe { Object::share(payload) }.and_then(|payload| {
        let bytes = payload.as_bytes().ok_or(Raised)?;
        let table = ropewalk_pool::codec::Table::parse(bytes).map_err(|error| raise(&error))?;
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
                    let mut whole = attached(module, segment, entry.offset, entry.bytes())?;
                    if entry.is_sealed() {
                        whole = whole.attribute(c"_seal")?.call(&[])?;
                    }
                    let part = entries.next().ok_or(Raised)?;
                    part_of(&whole, part.offset, part.length)?
                }
                None => {
                    let segment = resolve(entry.segment, entry.generation)?;
                    let purpose = if result != 0 {
                        Purpose::Result(None)
                    } else {
                        Purpose::Argument {
                            lease: table.lease(),
                            worker: link::here(),
                            private: writable != 0,
                        }
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

/// Whether a result's stream may make a buffer read-only that is its receiver's to write. A stream that is not inline
/// is not examined.
fn may_narrow(table: &ropewalk_pool::codec::Table<'_>, stream: &ropewalk_pool::codec::Entry) -> bool {
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
/// lie in one that can be written to and an encoding is open; else `None`.
#[entry]
pub(super) unsafe extern "C" fn shared_lend(
    _: *mut ffi::PyObject,
    args: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let (mut address, mut length): (c_ulonglong, ffi::Py_ssize_t) = (0, 0);
    parse!(args, c"Kn:shared_lend", address, length);
    let (address, length) = (usize::try_from(address).unwrap_or(0), usize::try_from(length).unwrap_or(0));
    if places::find(address, length).is_some_and(|place| place.is_sealed) {
        return Object::none().into_ptr();
    }
    match buffer::lend_bytes(address, length) {
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
pub(super) unsafe extern "C" fn is_shared(
    _: *mut ffi::PyObject,
    args: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let (mut address, mut length): (c_ulonglong, ffi::Py_ssize_t) = (0, 0);
    parse!(args, c"Kn:is_shared", address, length);
    let length = usize::try_from(length).unwrap_or(0);
    let found = usize::try_from(address).is_ok_and(|address| places::find(address, length).is_some());
    // SAFETY: the thread is attached.
    unsafe { ffi::PyBool_FromLong(found.into()) }
}

/// `stays_in_stream(kept, buffer)`: for an encoding in Python; as the compiled one does it.
#[entry]
pub(super) unsafe extern "C" fn stays_in_stream(
    _: *mut ffi::PyObject,
    args: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
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
pub(super) unsafe extern "C" fn shared_array_base(
    module: *mut ffi::PyObject,
    array: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter passes the module that the function belongs to.
    let module = unsafe { Object::share(module) };
    finish(module.and_then(|module| indexing::make_type(&module, array)))
}
