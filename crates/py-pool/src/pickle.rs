//! The C pickler, as both ends of a lane use it: what is left out of the stream, what is lent meanwhile, and the slow
//! path for what it refuses.
//!
//! In the plain C API, which every interpreter may load. What an end adds is its own: `parent::encode` puts calls into
//! records and leases, `worker::answer` results into records and segments. `pool::codec::limits` alone says what stays
//! in a stream, and how many of each a frame may have.

use std::cell::{Cell, RefCell};

use pyo3_ffi as ffi;
use ropewalk_capi::object::{Object, Raised, take_exception};
use ropewalk_pool::codec::chunk::Opener;
use ropewalk_pool::codec::{Loans, loans as lending};

/// The opener of a chunk's items at the receiving end.
pub(crate) const OPEN_APART: Opener =
    Opener { module: "ropewalk.pool.wire._serialize", function: "open_apart" };

thread_local! {
    /// The buffers that the open encoding of this thread has left out of its stream.
    static BUFFERS: RefCell<Vec<Object>> = const { RefCell::new(Vec::new()) };
    /// How many buffers go beside those already.
    static OTHERS: Cell<usize> = const { Cell::new(0) };
}

/// Leaves a buffer out of the stream of the encoding that is open: it goes beside it.
pub(crate) fn leave_out(buffer: Object) {
    BUFFERS.with_borrow_mut(|buffers| buffers.push(buffer));
}

/// How many buffers go in the frame of the encoding that is open, so far.
pub(crate) fn in_frame() -> usize {
    kept() + OTHERS.get()
}

/// How many buffers the encoding that is open has left out so far.
pub(crate) fn kept() -> usize {
    BUFFERS.with_borrow(Vec::len)
}

/// Runs an encoding, beside whose buffers `others` go in the same frame; gives what was lent meanwhile, and the buffers
/// that were left out.
pub(crate) fn encoding<T>(others: usize, pickle: impl FnOnce() -> T) -> (T, Loans, Vec<Object>) {
    // What is pickled may itself pickle, by submitting to a pool: each encoding has buffers of its own.
    let outer = BUFFERS.take();
    let before = OTHERS.replace(others);
    let (made, loans) = lending::during(pickle);
    OTHERS.set(before);
    (made, loans, BUFFERS.replace(outer))
}

/// A pickle, and what goes beside it.
pub(crate) struct Pickled {
    pub(crate) stream: Object,
    pub(crate) buffers: Vec<Object>,
    pub(crate) loans: Loans,
}

impl Pickled {
    /// The pickle's bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        self.stream.as_bytes().unwrap_or_default()
    }
}

/// `_pickle.dumps`, with the arguments that it is called with here.
pub(crate) struct Pickler {
    dumps: Object,
    keep: Object,
    protocol: Object,
    keywords: Object,
}

impl Pickler {
    /// The pickler; `keep` is its `buffer_callback`, `_keep_buffer` of the worker's module: it calls [`leave_out`].
    pub(crate) fn new(dumps: Object, keep: Object) -> Result<Self, Raised> {
        // SAFETY: plain calls of the C API, each result owned.
        unsafe {
            let name = Object::own(ffi::PyUnicode_InternFromString(c"buffer_callback".as_ptr()))?;
            Ok(Self {
                dumps,
                keep,
                protocol: Object::own(ffi::PyLong_FromLong(5))?,
                keywords: Object::own(ffi::PyTuple_Pack(1, name.as_ptr()))?,
            })
        }
    }

    /// The bytes of a live object, as part of the encoding that is open.
    #[inline]
    pub(crate) fn dump(&self, object: *mut ffi::PyObject) -> Result<Object, Raised> {
        let arguments = [object, self.protocol.as_ptr(), self.keep.as_ptr()];
        // SAFETY: live objects; two are positional and the third is the value of the one keyword.
        unsafe {
            Object::own(ffi::PyObject_Vectorcall(
                self.dumps.as_ptr(),
                arguments.as_ptr(),
                2,
                self.keywords.as_ptr(),
            ))
        }
    }

    /// Pickles a live object in an encoding of its own; `None` if it is one for the slow path: it was refused, or its
    /// pickle is not plain.
    #[inline]
    pub(crate) fn pickle(
        &self,
        object: *mut ffi::PyObject,
        others: usize,
        is_plain: impl FnOnce(&[u8]) -> bool,
    ) -> Result<Option<Pickled>, Raised> {
        let (first, loans, buffers) = encoding(others, || self.dump(object));
        match first {
            Ok(stream) => {
                let pickled = Pickled { stream, buffers, loans };
                Ok(if is_plain(pickled.bytes()) { Some(pickled) } else { None })
            }
            Err(Raised) => drop_refusal().map(|()| None),
        }
    }
}

/// Drops the exception that is set if it says that something cannot be pickled in this way, so that another may be
/// tried. An interrupt, an exit, a cancelled coroutine's end and a lack of memory say nothing of the kind.
pub(crate) fn drop_refusal() -> Result<(), Raised> {
    // SAFETY: the thread is attached, and an exception is set.
    let refused = unsafe {
        ffi::PyErr_ExceptionMatches(ffi::PyExc_Exception) != 0
            && ffi::PyErr_ExceptionMatches(ffi::PyExc_MemoryError) == 0
    };
    if !refused {
        return Err(Raised);
    }
    drop(take_exception());
    Ok(())
}

/// The slow path: a function of `ropewalk.pool.wire._serialize`, called with the object and a list for the buffers.
pub(crate) fn slowly(encode: &Object, object: *mut ffi::PyObject) -> Result<Pickled, Raised> {
    // SAFETY: a fresh list, whose items are shared below.
    let kept = unsafe { Object::own(ffi::PyList_New(0))? };
    let (stream, loans) = lending::during(|| encode.call(&[object, kept.as_ptr()]));
    let stream = stream?;
    // SAFETY: a list that no other code has; its items are live.
    let buffers = unsafe {
        (0..ffi::PyList_Size(kept.as_ptr()))
            .map(|at| Object::share(ffi::PyList_GetItem(kept.as_ptr(), at)))
            .collect::<Result<_, _>>()?
    };
    Ok(Pickled { stream, buffers, loans })
}

/// Whether a pickle has a name in it.
pub(crate) fn mentions(stream: &[u8], name: &[u8]) -> bool {
    memchr::memmem::find(stream, name).is_some()
}

/// Whether a pickle may have a connection of multiprocessing's in it, which is refused: it is but a number.
pub(crate) fn has_connection(stream: &[u8]) -> bool {
    mentions(stream, b"multiprocessing.connection")
}

/// The raw bytes of a `PickleBuffer`, whatever its element type, or of a copy of what was in one.
pub(crate) struct RawView {
    view: Box<ffi::Py_buffer>,
}

impl RawView {
    pub(crate) fn of(buffer: &Object) -> Result<Self, Raised> {
        let is_copy = buffer.as_bytes().is_some();
        let raw = if is_copy { buffer.clone() } else { buffer.attribute(c"raw")?.call(&[])? };
        // SAFETY: zeros are a valid, empty Py_buffer; GetBuffer fills it, and keeps its own reference to the exporter.
        unsafe {
            let mut view: Box<ffi::Py_buffer> = Box::new(std::mem::zeroed());
            if ffi::PyObject_GetBuffer(raw.as_ptr(), &raw mut *view, ffi::PyBUF_SIMPLE) != 0 {
                return Err(Raised);
            }
            Ok(Self { view })
        }
    }

    /// The bytes. Their owner may write to them meanwhile; then their reader sees a torn array, as with any copy.
    pub(crate) fn bytes(&self) -> &[u8] {
        match usize::try_from(self.view.len) {
            // SAFETY: a simple view is `len` contiguous bytes, exported until it is released.
            Ok(len) if len > 0 => unsafe { std::slice::from_raw_parts(self.view.buf.cast::<u8>(), len) },
            _ => &[],
        }
    }
}

impl Drop for RawView {
    fn drop(&mut self) {
        // SAFETY: filled by GetBuffer, and released once.
        unsafe { ffi::PyBuffer_Release(&raw mut *self.view) };
    }
}
