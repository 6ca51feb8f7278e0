//! `SharedBuffer`: a run of bytes in a segment, by the buffer protocol.
//!
//! The same type serves a writable shared array and the read-only arguments of a task, which also carry the lease that
//! they look into: when the last of those dies after its task, the parent is told.

use std::collections::HashMap;
use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use pyo3_ffi as ffi;
use windlass_base::{Code, Error};
use windlass_shm::segment::Segment;

use crate::lending::{self, Lent};
use crate::object::{Object, Raised, raise};

/// What the object holds beside its head.
struct Content {
    segment: Option<Arc<Segment>>,
    start: *mut u8,
    offset: u64,
    length: usize,
    readonly: bool,
    /// 0 for none.
    lease: u64,
}

#[repr(C)]
struct Layout {
    head: ffi::PyObject,
    content: Content,
}

/// How many buffers of this process look into each lease, and each segment that came by handle.
#[derive(Default)]
struct Watch {
    leases: HashMap<u64, usize>,
    segments: HashMap<u64, usize>,
    /// Leases that outlived their task or its attempts: by the lane that ran the last one, and how often the parent has
    /// been told so. It waits to be told of the end.
    retained: HashMap<u64, (usize, u64)>,
    /// To be told at the next opportunity, with their lanes and counts. It is the task's own lane that tells, after the
    /// task's answer: told by another, it might arrive before the answer that speaks of it.
    released: Vec<(usize, Release)>,
}

/// A lease that nothing here looks into any more, and how many promises to say so this settles.
#[derive(Clone, Copy)]
pub(crate) struct Release {
    pub(crate) lease: u64,
    pub(crate) count: u64,
}

static WATCH: LazyLock<Mutex<Watch>> = LazyLock::new(Mutex::default);
/// Length of `Watch::released`, so that a look at it between two tasks takes no lock. Written under the lock, and a
/// value that is out of date only delays: hence relaxed.
static RELEASED: AtomicUsize = AtomicUsize::new(0);

fn watch() -> MutexGuard<'static, Watch> {
    WATCH.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Marks what outlives a task of this lane; true if anything does.
pub(crate) fn outlives(lane: usize, lease: u64, handles: &[u64]) -> bool {
    let mut watch = watch();
    let mut any = handles.iter().any(|id| watch.segments.contains_key(id));
    if lease != 0 && watch.leases.contains_key(&lease) {
        watch.retain(lane, lease);
        any = true;
    }
    any
}

/// A function that lies in a lease has been loaded: the parent keeps the lease until it is told that no view is left.
pub(crate) fn retain_function(lane: usize, lease: u64) {
    let mut watch = watch();
    if watch.leases.contains_key(&lease) {
        watch.retain(lane, lease);
    } else {
        watch.release(lane, Release { lease, count: 1 });
    }
}

impl Watch {
    fn retain(&mut self, lane: usize, lease: u64) {
        let entry = self.retained.entry(lease).or_insert((lane, 0));
        *entry = (lane, entry.1 + 1);
    }

    fn release(&mut self, lane: usize, release: Release) {
        self.released.push((lane, release));
        RELEASED.store(self.released.len(), Ordering::Relaxed);
    }
}

/// Leases of this lane's tasks whose last buffer has died since the last call.
pub(crate) fn take_released(lane: usize) -> Vec<Release> {
    if RELEASED.load(Ordering::Relaxed) == 0 {
        return Vec::new();
    }
    let mut watch = watch();
    let mut leases = Vec::new();
    watch.released.retain(|&(owner, release)| {
        if owner == lane {
            leases.push(release);
        }
        owner != lane
    });
    RELEASED.store(watch.released.len(), Ordering::Relaxed);
    leases
}

fn count_in(content: &Content) {
    let Some(segment) = &content.segment else { return };
    let mut watch = watch();
    if content.lease != 0 {
        *watch.leases.entry(content.lease).or_default() += 1;
    } else {
        *watch.segments.entry(segment.id()).or_default() += 1;
    }
}

fn count_out(content: &Content) {
    let Some(segment) = &content.segment else { return };
    let mut watch = watch();
    let (map, key) = if content.lease != 0 {
        (&mut watch.leases, content.lease)
    } else {
        (&mut watch.segments, segment.id())
    };
    let Some(count) = map.get_mut(&key) else { return };
    *count -= 1;
    if *count > 0 {
        return;
    }
    map.remove(&key);
    if content.lease != 0
        && let Some((lane, count)) = watch.retained.remove(&content.lease)
    {
        watch.release(lane, Release { lease: content.lease, count });
    }
}

/// Makes a buffer over part of a segment.
pub(crate) fn make(
    kind: *mut ffi::PyTypeObject,
    segment: Arc<Segment>,
    offset: u64,
    length: u64,
    readonly: bool,
    lease: u64,
) -> Result<Object, Raised> {
    let checked = segment.check_range(offset, length).and_then(|()| segment.data());
    let data = checked.map_err(|error| raise(&error))?;
    // SAFETY: the range was checked to lie inside the mapped data.
    let start = unsafe { data.add(offset as usize) };
    let content = Content { segment: Some(segment), start, offset, length: length as usize, readonly, lease };
    count_in(&content);
    // SAFETY: tp_alloc gives zeroed memory of the type's basic size, which is that of Layout; the content is written
    // before anybody sees the object.
    unsafe {
        let Some(alloc) = (*kind).tp_alloc else { return Err(Raised) };
        let object = alloc(kind, 0);
        if object.is_null() {
            count_out(&content);
            return Err(Raised);
        }
        ptr::write(&raw mut (*object.cast::<Layout>()).content, content);
        Object::own(object)
    }
}

/// The content of an object of our type.
///
/// # Safety
///
/// `object` is one, and lives while the reference does.
unsafe fn content<'a>(object: *mut ffi::PyObject) -> &'a Content {
    // SAFETY: the caller's.
    unsafe { &(*object.cast::<Layout>()).content }
}

/// The segment that an object of our type lies in.
///
/// # Safety
///
/// `object` is a `SharedBuffer`.
pub(crate) unsafe fn segment(object: *mut ffi::PyObject) -> Option<Arc<Segment>> {
    // SAFETY: the caller's.
    unsafe { content(object) }.segment.clone()
}

unsafe extern "C" fn dealloc(object: *mut ffi::PyObject) {
    // SAFETY: the interpreter calls this once, with the last reference gone; a heap type's object holds its type.
    unsafe {
        let kind = ffi::Py_TYPE(object);
        let content = ptr::read(&raw const (*object.cast::<Layout>()).content);
        count_out(&content);
        drop(content);
        if let Some(free) = (*kind).tp_free {
            free(object.cast());
        }
        ffi::Py_DECREF(kind.cast());
    }
}

unsafe extern "C" fn get_buffer(
    object: *mut ffi::PyObject,
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> c_int {
    // SAFETY: the interpreter passes our object and a view to fill; FillInfo takes a reference to the object.
    unsafe {
        let content = content(object);
        let length = ffi::Py_ssize_t::try_from(content.length).unwrap_or(0);
        ffi::PyBuffer_FillInfo(
            view,
            object,
            content.start.cast(),
            length,
            c_int::from(content.readonly),
            flags,
        )
    }
}

unsafe extern "C" fn length(object: *mut ffi::PyObject) -> ffi::Py_ssize_t {
    // SAFETY: our object.
    ffi::Py_ssize_t::try_from(unsafe { content(object) }.length).unwrap_or(0)
}

/// `_lend()`: the handle `(segment, generation, offset, length)` if an encoding is open and takes it, else `None`.
unsafe extern "C" fn lend(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: our object; Py_BuildValue gets four integers of the sizes that its format says.
    unsafe {
        let content = content(object);
        let Some(segment) = content.segment.as_ref() else { return Object::none().into_ptr() };
        match lending::lend(segment) {
            Lent::Yes => {}
            Lent::Closed => return Object::none().into_ptr(),
            Lent::TooMany => {
                let text = "a call or a result refers to more than 128 pieces of shared memory; put the data into one, \
                            or send several tasks";
                let _ = raise(&Error::new(Code::TooLarge, text));
                return ptr::null_mut();
            }
        }
        ffi::Py_BuildValue(
            c"(KKKK)".as_ptr(),
            segment.id(),
            segment.generation(),
            content.offset,
            content.length as u64,
        )
    }
}

/// `__reduce_ex__(protocol)`: a handle inside an encoding of Windlass, the bytes anywhere else.
unsafe extern "C" fn reduce(object: *mut ffi::PyObject, _protocol: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: our object, and a method of a module of ours.
    let result = unsafe {
        Object::own(ffi::PyImport_ImportModule(c"windlass.shared".as_ptr()))
            .and_then(|module| module.attribute(c"reduce_buffer"))
            .and_then(|reduce| reduce.call(&[object]))
    };
    result.map_or(ptr::null_mut(), Object::into_ptr)
}

unsafe extern "C" fn is_readonly(object: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: our object.
    unsafe { ffi::PyBool_FromLong(content(object).readonly.into()) }
}

unsafe extern "C" fn repr(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: our object; the format's one argument is of its size.
    unsafe { ffi::PyUnicode_FromFormat(c"<windlass.SharedBuffer of %zd bytes>".as_ptr(), length(object)) }
}

const DOC: &CStr = c"A run of bytes in shared memory: the buffer protocol, and nothing else.\n\n\
Made by `windlass.shared.buffer` and `windlass.share`. Sent to a task it arrives as the same memory.";

/// Makes the type, once in each interpreter.
pub(crate) fn make_type(module: *mut ffi::PyObject) -> Result<Object, Raised> {
    // The tables are read while the type is made; the method and getter tables must outlive it, so they are leaked: one
    // small table for each interpreter.
    let methods = Box::leak(Box::new([
        ffi::PyMethodDef {
            ml_name: c"_lend".as_ptr(),
            ml_meth: ffi::PyMethodDefPointer { PyCFunction: lend },
            ml_flags: ffi::METH_NOARGS,
            ml_doc: c"The handle of this memory inside an encoding, else None.".as_ptr(),
        },
        ffi::PyMethodDef {
            ml_name: c"__reduce_ex__".as_ptr(),
            ml_meth: ffi::PyMethodDefPointer { PyCFunction: reduce },
            ml_flags: ffi::METH_O,
            ml_doc: c"A handle inside an encoding, the bytes anywhere else.".as_ptr(),
        },
        // SAFETY: a table ends with zeros.
        unsafe { std::mem::zeroed() },
    ]));
    let getters = Box::leak(Box::new([
        ffi::PyGetSetDef {
            name: c"readonly".as_ptr(),
            get: Some(is_readonly),
            set: None,
            doc: c"Whether it can only be read.".as_ptr(),
            closure: ptr::null_mut(),
        },
        // SAFETY: as above.
        unsafe { std::mem::zeroed() },
    ]));
    let slot = |slot: c_int, pfunc: *mut c_void| ffi::PyType_Slot { slot, pfunc };
    let mut slots = [
        slot(ffi::Py_tp_dealloc, dealloc as *mut c_void),
        slot(ffi::Py_tp_repr, repr as *mut c_void),
        slot(ffi::Py_tp_doc, DOC.as_ptr().cast_mut().cast()),
        slot(ffi::Py_tp_methods, methods.as_mut_ptr().cast()),
        slot(ffi::Py_tp_getset, getters.as_mut_ptr().cast()),
        slot(ffi::Py_sq_length, length as *mut c_void),
        slot(ffi::Py_bf_getbuffer, get_buffer as *mut c_void),
        slot(0, ptr::null_mut()),
    ];
    let mut spec = ffi::PyType_Spec {
        name: c"windlass._worker.SharedBuffer".as_ptr(),
        basicsize: size_of::<Layout>() as c_int,
        itemsize: 0,
        flags: (ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION) as _,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: a complete spec, whose tables outlive the type.
    unsafe { Object::own(ffi::PyType_FromModuleAndSpec(module, &raw mut spec, ptr::null_mut())) }
}
