//! `SharedBuffer`: a run of bytes in a segment, by the buffer protocol.
//!
//! The same type serves a writable shared array and the read-only arguments of a task, which also carry the lease that
//! they use: when the last of those dies after its task, the worker tells the parent.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3_ffi as ffi;
use ropewalk_base::Code;
use ropewalk_os::mmap::Mapping;
use ropewalk_pool::codec::limits::{self, MOST_SHARED};
use ropewalk_pool::codec::{Lent, Place, loans, places};

use super::leases::{self, Looked};
use ropewalk_capi::entry;
use ropewalk_capi::errors::{raise, raise_text};
use ropewalk_capi::heap;
use ropewalk_capi::object::{Object, Raised};
use ropewalk_shm::memory::{Arena, Block, Segment};

/// The purpose of a buffer.
pub(crate) enum Purpose {
    /// To be read and written in place by every process that has it; the block is there if this process owns it.
    Shared(Option<Arc<Block>>),
    /// An argument of a task: its lease, the worker that runs the task, and whether that may write to its own copy.
    Argument { lease: u64, worker: u64, private: bool },
    /// A result, which is its receiver's alone; the block is there if this process has copied it.
    Result(#[expect(dead_code, reason = "it keeps the memory")] Option<Arc<Block>>),
}

/// The object's content beside its head.
struct Content {
    /// Taken out only by the thread that has set `uses` to `RELEASED`; read by views and calls that are counted there.
    held: UnsafeCell<Option<Held>>,
    /// The number of views and calls that use the memory now, or `RELEASED`.
    uses: AtomicUsize,
}

/// `Content::uses` of a buffer that has been released.
const RELEASED: usize = usize::MAX;

struct Held {
    segment: Arc<Segment>,
    purpose: Purpose,
    start: *mut u8,
    offset: u64,
    length: usize,
    readonly: bool,
    /// No process writes to it any more: see [`seal`].
    sealed: bool,
    /// A copy of its own of part of the segment.
    _private: Option<Mapping>,
}

impl Held {
    fn looked_into(&self) -> Looked {
        match self.purpose {
            Purpose::Argument { lease, worker, .. } if lease != 0 => Looked::Lease(worker, lease),
            _ => Looked::Block(self.segment.id(), self.offset),
        }
    }
}

fn count_in(held: &Held) {
    leases::enter(held.looked_into());
    if let Purpose::Shared(block) = &held.purpose {
        places::enter(&place(held, block.as_ref()));
    }
}

fn place(held: &Held, block: Option<&Arc<Block>>) -> Place {
    Place {
        segment: Arc::clone(&held.segment),
        block: block.cloned(),
        address: held.start as usize,
        offset: held.offset,
        length: held.length as u64,
        is_sealed: held.sealed,
    }
}

impl Drop for Held {
    /// Counts it out.
    fn drop(&mut self) {
        if let Purpose::Shared(_) = self.purpose {
            places::leave(self.start as usize);
        }
        leases::leave(self.looked_into());
    }
}

/// Makes a buffer over part of a segment.
pub(crate) fn make(
    kind: *mut ffi::PyTypeObject,
    segment: Arc<Segment>,
    offset: u64,
    length: u64,
    purpose: Purpose,
) -> Result<Object, Raised> {
    segment.check_range(offset, length).map_err(|error| raise(&error))?;
    let private = match purpose {
        Purpose::Argument { private: true, .. } => {
            Some(segment.private_copy(offset, length).map_err(|error| raise(&error))?)
        }
        _ => None,
    };
    let start = match &private {
        Some((_, start)) => *start,
        // SAFETY: the range was checked to lie inside the mapped data.
        None => unsafe { segment.data().map_err(|error| raise(&error))?.add(offset as usize) },
    };
    let readonly = matches!(purpose, Purpose::Argument { private: false, .. });
    let private = private.map(|(map, _)| map);
    let length = length as usize;
    let held = Held { segment, purpose, start, offset, length, readonly, sealed: false, _private: private };
    count_in(&held);
    // SAFETY: one of the two types made below.
    unsafe { heap::make(kind, Content { held: UnsafeCell::new(Some(held)), uses: AtomicUsize::new(0) }) }
}

/// Counted access to a buffer's content, which cannot be released meanwhile.
struct Look<'a>(&'a Content);

impl std::ops::Deref for Look<'_> {
    type Target = Held;

    fn deref(&self) -> &Held {
        // SAFETY: this access is counted in `uses`, so the memory is not taken out; it was there when it was counted.
        match unsafe { &*self.0.held.get() } {
            Some(held) => held,
            None => unreachable!("released while it is looked at"),
        }
    }
}

impl Drop for Look<'_> {
    fn drop(&mut self) {
        self.0.uses.fetch_sub(1, Ordering::Release);
    }
}

impl Content {
    fn count_use(&self) -> bool {
        let more = |uses| if uses == RELEASED { None } else { Some(uses + 1) };
        self.uses.fetch_update(Ordering::Acquire, Ordering::Relaxed, more).is_ok()
    }

    fn look(&self) -> Option<Look<'_>> {
        self.count_use().then(|| Look(self))
    }

    fn look_or_raise(&self) -> Result<Look<'_>, Raised> {
        self.look().ok_or_else(|| {
            // SAFETY: a live exception class and a C string.
            unsafe { ffi::PyErr_SetString(ffi::PyExc_ValueError, RELEASED_TEXT.as_ptr()) };
            Raised
        })
    }
}

const RELEASED_TEXT: &CStr = c"this shared memory has been released";

/// The content of an object of our type.
///
/// # Safety
///
/// `object` is one, and lives while the reference does.
unsafe fn content<'a>(object: *mut ffi::PyObject) -> &'a Content {
    // SAFETY: the caller's.
    unsafe { heap::content(object) }
}

/// The segment that an object of our type lies in, if it fills it from the start.
///
/// # Safety
///
/// `object` is a `SharedBuffer`.
pub(crate) unsafe fn segment(object: *mut ffi::PyObject) -> Option<Arc<Segment>> {
    // SAFETY: the caller's.
    let held = unsafe { content(object) }.look()?;
    (held.offset == 0).then(|| Arc::clone(&held.segment))
}

#[entry]
unsafe extern "C" fn get_buffer(
    object: *mut ffi::PyObject,
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> c_int {
    // SAFETY: the interpreter passes our object and a view to fill; FillInfo takes a reference to the object, and the
    // view is counted until `release_buffer`.
    unsafe {
        let content = content(object);
        let Ok(held) = content.look_or_raise() else {
            (*view).obj = ptr::null_mut();
            return -1;
        };
        let length = ffi::Py_ssize_t::try_from(held.length).unwrap_or(0);
        let readonly = c_int::from(held.readonly);
        let filled = ffi::PyBuffer_FillInfo(view, object, held.start.cast(), length, readonly, flags);
        if filled == 0 {
            std::mem::forget(held);
        }
        filled
    }
}

/// Writable for callers that ask for that, read-only for others.
///
/// A task may return part of its read-only arguments. The pickle then says that the buffer is read-only, and unpickling
/// would wrap a writable one in a read-only view; one that calls itself read-only it leaves alone. NumPy asks for a
/// writable buffer first, and the memory is the caller's own.
#[entry]
unsafe extern "C" fn result_buffer(
    object: *mut ffi::PyObject,
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> c_int {
    // SAFETY: the interpreter passes our object and a view to fill; FillInfo takes a reference to the object, which is
    // never released early.
    unsafe {
        let Ok(held) = content(object).look_or_raise() else {
            (*view).obj = ptr::null_mut();
            return -1;
        };
        let length = ffi::Py_ssize_t::try_from(held.length).unwrap_or(0);
        let readonly = c_int::from(flags & ffi::PyBUF_WRITABLE == 0);
        ffi::PyBuffer_FillInfo(view, object, held.start.cast(), length, readonly, flags)
    }
}

#[entry]
unsafe extern "C" fn release_buffer(object: *mut ffi::PyObject, _view: *mut ffi::Py_buffer) {
    // SAFETY: our object, and one call for each view that `get_buffer` has counted.
    drop(Look(unsafe { content(object) }));
}

#[entry]
unsafe extern "C" fn length(object: *mut ffi::PyObject) -> ffi::Py_ssize_t {
    // SAFETY: our object.
    match unsafe { content(object) }.look_or_raise() {
        Ok(held) => ffi::Py_ssize_t::try_from(held.length).unwrap_or(0),
        Err(Raised) => -1,
    }
}

/// `release()`: gives the memory up before the object ends.
#[entry]
unsafe extern "C" fn release(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: our object; only the thread that changes `uses` from 0 to RELEASED touches the memory afterwards.
    unsafe {
        let content = content(object);
        if content.look().is_some_and(|held| held.sealed) {
            let text =
                c"this shared memory belongs to arrays that never change, and is freed with the last of them";
            ffi::PyErr_SetString(ffi::PyExc_BufferError, text.as_ptr());
            return ptr::null_mut();
        }
        match taken(content) {
            Ok(held) => drop(held),
            Err(Raised) => return ptr::null_mut(),
        }
        Object::none().into_ptr()
    }
}

/// Takes the memory out of a buffer, which is a released one from here on; nothing if it was released before.
///
/// # Errors
///
/// `BufferError`: it has views.
///
/// # Safety
///
/// `content` is that of a live object.
unsafe fn taken(content: &Content) -> Result<Option<Held>, Raised> {
    match content.uses.compare_exchange(0, RELEASED, Ordering::Acquire, Ordering::Relaxed) {
        // SAFETY: only the thread that changes `uses` from 0 to RELEASED touches the memory afterwards.
        Ok(_) => Ok(unsafe { (*content.held.get()).take() }),
        Err(RELEASED) => Ok(None),
        Err(_) => {
            let text =
                c"this shared memory has views (arrays, memoryviews): delete them before it is released";
            // SAFETY: a live exception class and a C string.
            unsafe { ffi::PyErr_SetString(ffi::PyExc_BufferError, text.as_ptr()) };
            Err(Raised)
        }
    }
}

/// `_seal()`: a buffer of the same memory that can only be read, in place of this one, which is released.
///
/// While a view of the memory exists, nothing is changed and `BufferError` is raised; so it is for an argument of a
/// task, whose owner may write to it. So no view that can write outlives the call in this process, and none is made
/// afterwards: a buffer that is sealed gives views for reading only, and arrives sealed in other processes.
#[entry]
unsafe extern "C" fn seal(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: our object, whose type makes the new one.
    let sealed = unsafe {
        let content = content(object);
        if content.look().is_some_and(|held| held.sealed) {
            // Arrays lie in it that are no views: they keep this object.
            return Object::share(object).map_or(ptr::null_mut(), Object::into_ptr);
        }
        if content.look().is_some_and(|held| !matches!(held.purpose, Purpose::Shared(_))) {
            ffi::PyErr_SetString(ffi::PyExc_BufferError, c"an argument of a task is its owner's".as_ptr());
            return ptr::null_mut();
        }
        taken(content).and_then(|held| {
            let Some(mut held) = held else {
                ffi::PyErr_SetString(ffi::PyExc_ValueError, RELEASED_TEXT.as_ptr());
                return Err(Raised);
            };
            (held.readonly, held.sealed) = (true, true);
            if matches!(held.purpose, Purpose::Shared(Some(_))) {
                // A state's arrays replace each other, so that the memory of one is soon of use to the next.
                Arena::keep_warm();
            }
            places::seal(held.start as usize);
            let content = Content { held: UnsafeCell::new(Some(held)), uses: AtomicUsize::new(0) };
            heap::make(ffi::Py_TYPE(object), content)
        })
    };
    sealed.map_or(ptr::null_mut(), Object::into_ptr)
}

#[entry]
unsafe extern "C" fn is_sealed(object: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: our object; the thread is attached.
    unsafe { ffi::PyBool_FromLong(content(object).look().is_some_and(|held| held.sealed).into()) }
}

#[entry]
unsafe extern "C" fn enter(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: our object, of which the caller gets a reference.
    match unsafe { content(object) }.look_or_raise() {
        // SAFETY: as above.
        Ok(_) => unsafe { Object::share(object) }.map_or(ptr::null_mut(), Object::into_ptr),
        Err(Raised) => ptr::null_mut(),
    }
}

/// Lends a place to the encoding that is open: its handle, or nothing if there is none.
///
/// # Errors
///
/// When the encoding has lent too many segments.
fn lend_place(place: &Place) -> Result<bool, Raised> {
    match loans::lend(&place.segment, place.block.as_ref()) {
        Lent::Yes => {
            if place.block.is_none() {
                leases::pass_on((place.segment.id(), place.offset));
            }
            Ok(true)
        }
        Lent::Closed => Ok(false),
        Lent::TooMany => {
            let text = "a call or a result refers to more than 128 pieces of shared memory. Put the data into one, or \
                        send several tasks.";
            Err(raise_text(Code::TooLarge, text))
        }
    }
}

/// Lends the shared memory that these bytes lie in; nothing if they lie in none, or no encoding is open.
///
/// # Errors
///
/// As [`lend_place`].
pub(crate) fn lend_bytes(address: usize, length: usize) -> Result<Option<Place>, Raised> {
    match places::find(address, length) {
        Some(place) => Ok(lend_place(&place)?.then_some(place)),
        None => Ok(None),
    }
}

/// A buffer's address and length, if it gives a view. If not, the code that takes its bytes will get the same error and
/// report it.
///
/// # Safety
///
/// `buffer` is a live object, and the thread is attached to the interpreter.
unsafe fn extent(buffer: *mut ffi::PyObject) -> Option<(usize, usize)> {
    let mut view = MaybeUninit::<ffi::Py_buffer>::zeroed();
    // SAFETY: GetBuffer fills the view if it returns 0, and then it is released once.
    unsafe {
        if ffi::PyObject_GetBuffer(buffer, view.as_mut_ptr(), ffi::PyBUF_FULL_RO) != 0 {
            ffi::PyErr_Clear();
            return None;
        }
        let of = ((*view.as_ptr()).buf as usize, (*view.as_ptr()).len);
        ffi::PyBuffer_Release(view.as_mut_ptr());
        Some((of.0, usize::try_from(of.1).unwrap_or(0)))
    }
}

/// Whether a buffer that the pickler offers stays in its stream; one that lies in shared memory is lent instead.
///
/// # Errors
///
/// As [`lend_place`], and when there are more views of shared memory than a record can name.
///
/// # Safety
///
/// `buffer` is a live object, and the thread is attached to the interpreter.
pub(crate) unsafe fn stays_in_stream(kept: usize, buffer: *mut ffi::PyObject) -> Result<bool, Raised> {
    // SAFETY: the caller's.
    let Some((address, length)) = (unsafe { extent(buffer) }) else { return Ok(false) };
    let is_shared = || length > 0 && places::find(address, length).is_some();
    if limits::stays_in_stream(kept, length, is_shared) {
        return Ok(true);
    }
    if length > 0 && lend_bytes(address, length)?.is_some() && kept >= MOST_SHARED {
        let text = "a call or a result has more than 512 plain arrays that lie in shared memory. Send the shared array \
                    itself: its slices are not counted.";
        return Err(raise_text(Code::TooLarge, text));
    }
    Ok(false)
}

/// `_lend()`: the handle `(segment, generation, offset, length)` if an encoding is open and takes it, else `None`.
#[entry]
unsafe extern "C" fn lend(object: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: our object.
    let place = match unsafe { content(object) }.look_or_raise() {
        Ok(held) => match &held.purpose {
            Purpose::Shared(block) => place(&held, block.as_ref()),
            Purpose::Argument { .. } | Purpose::Result(_) => return Object::none().into_ptr(),
        },
        Err(Raised) => return ptr::null_mut(),
    };
    match lend_place(&place) {
        // SAFETY: four integers of the sizes that the format says.
        Ok(true) => unsafe {
            ffi::Py_BuildValue(
                c"(KKKK)".as_ptr(),
                place.segment.id(),
                place.segment.generation(),
                place.offset,
                place.length,
            )
        },
        Ok(false) => Object::none().into_ptr(),
        Err(Raised) => ptr::null_mut(),
    }
}

/// `__reduce_ex__(protocol)`: a handle inside an encoding of Ropewalk, the bytes anywhere else.
#[entry]
unsafe extern "C" fn reduce(object: *mut ffi::PyObject, _protocol: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: our object, and a method of a module of ours.
    let result = unsafe {
        Object::own(ffi::PyImport_ImportModule(c"ropewalk.shared".as_ptr()))
            .and_then(|module| module.attribute(c"reduce_buffer"))
            .and_then(|reduce| reduce.call(&[object]))
    };
    result.map_or(ptr::null_mut(), Object::into_ptr)
}

#[entry]
unsafe extern "C" fn is_readonly(object: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: our object.
    match unsafe { content(object) }.look_or_raise() {
        // SAFETY: the thread is attached.
        Ok(held) => unsafe { ffi::PyBool_FromLong(held.readonly.into()) },
        Err(Raised) => ptr::null_mut(),
    }
}

#[entry]
unsafe extern "C" fn repr(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: our object; the format's one argument is of its size.
    unsafe {
        match content(object).look() {
            Some(held) => {
                let length = ffi::Py_ssize_t::try_from(held.length).unwrap_or(0);
                ffi::PyUnicode_FromFormat(c"<ropewalk.SharedBuffer of %zd bytes>".as_ptr(), length)
            }
            None => ffi::PyUnicode_FromString(c"<ropewalk.SharedBuffer, released>".as_ptr()),
        }
    }
}

const DOC: &CStr = c"A run of bytes in shared memory: the buffer protocol, and a way to release it.\n\n\
Made by `ropewalk.shared.buffer` and `ropewalk.share`. Sent to a task it arrives as the same memory.";

/// Makes the type of results that are read-only for callers that do not ask for writing, once in each interpreter.
pub(crate) fn make_result_type(module: &Object) -> Result<Object, Raised> {
    let kind = heap::Type {
        name: c"ropewalk._worker.ResultBuffer",
        doc: c"The memory of a result.",
        flags: ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION,
        methods: vec![
            heap::method(c"__reduce_ex__", reduce, ffi::METH_O, c"Its bytes."),
            heap::method(c"_lend", lend, ffi::METH_NOARGS, c"None."),
        ],
        getters: Vec::new(),
        slots: &[
            (ffi::Py_tp_dealloc, heap::dealloc_untracked::<Content> as *mut _),
            (ffi::Py_sq_length, length as *mut _),
            (ffi::Py_bf_getbuffer, result_buffer as *mut _),
        ],
    };
    heap::make_type::<Content>(module, kind)
}

/// Makes the type, once in each interpreter.
pub(crate) fn make_type(module: &Object) -> Result<Object, Raised> {
    let kind = heap::Type {
        name: c"ropewalk._worker.SharedBuffer",
        doc: DOC,
        flags: ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION,
        methods: vec![
            heap::method(
                c"_lend",
                lend,
                ffi::METH_NOARGS,
                c"The handle of this memory inside an encoding, else None.",
            ),
            heap::method(
                c"release",
                release,
                ffi::METH_NOARGS,
                c"release($self, /)\n--\n\n\
                Give the memory up now; BufferError if arrays or memoryviews still look at it.",
            ),
            heap::method(
                c"_seal",
                seal,
                ffi::METH_NOARGS,
                c"_seal($self, /)\n--\n\nThe same memory, which can only be read from here on.",
            ),
            heap::method(c"__enter__", enter, ffi::METH_NOARGS, c"The buffer itself."),
            heap::method(c"__exit__", release, ffi::METH_VARARGS, c"Releases it."),
            heap::method(
                c"__reduce_ex__",
                reduce,
                ffi::METH_O,
                c"A handle inside an encoding, the bytes anywhere else.",
            ),
        ],
        getters: vec![
            heap::getter(c"readonly", is_readonly, c"Whether it can only be read."),
            heap::getter(c"_sealed", is_sealed, c"Whether nothing can write to the memory any more."),
        ],
        slots: &[
            (ffi::Py_tp_dealloc, heap::dealloc_untracked::<Content> as *mut _),
            (ffi::Py_tp_repr, repr as *mut _),
            (ffi::Py_sq_length, length as *mut _),
            (ffi::Py_bf_getbuffer, get_buffer as *mut _),
            (ffi::Py_bf_releasebuffer, release_buffer as *mut _),
        ],
    };
    heap::make_type::<Content>(module, kind)
}
