//! Calls into bytes.
//!
//! The C pickler goes first. `pool.wire._serialize` is the slow path: what it refuses, what belongs to `__main__`, and
//! whatever lies in a segment.

use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::buffer::PyBuffer;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyList, PyTuple};
use ropewalk_pool::codec::limits::LARGEST_TASK;
use ropewalk_pool::codec::loans as lending;
use ropewalk_pool::codec::{Frame, Item, Loans, chunk};
use ropewalk_pool::wire::flags;
use ropewalk_pool::{Engine, Payload};

use super::decode::{is_refusal, serialize};
use super::{errors, local};
use crate::OPEN_APART;
use crate::worker::buffer as shared_buffer;
use ropewalk_capi::object::Raised;

thread_local! {
    static BUFFERS: RefCell<Vec<Py<PyAny>>> = const { RefCell::new(Vec::new()) };
}

/// The pickler's `buffer_callback`: keeps the buffer for the frame, or returns true to leave it in the stream.
#[pyfunction]
fn keep_buffer(py: Python<'_>, buffer: Py<PyAny>) -> PyResult<bool> {
    let kept = BUFFERS.with_borrow(Vec::len);
    // SAFETY: a live argument.
    let stays = unsafe { shared_buffer::stays_in_stream(kept, buffer.as_ptr()) };
    let stays = stays.map_err(|Raised| PyErr::fetch(py))?;
    if !stays {
        BUFFERS.with_borrow_mut(|buffers| buffers.push(buffer));
    }
    Ok(stays)
}

struct Pickle {
    dumps: Py<PyAny>,
    keep: Py<PyAny>,
    keywords: Py<PyTuple>,
    protocol: Py<PyAny>,
}

static PICKLE: PyOnceLock<Pickle> = PyOnceLock::new();

fn pickle(py: Python<'_>) -> PyResult<&Pickle> {
    PICKLE.get_or_try_init(py, || {
        let module = py.import("_pickle")?;
        Ok(Pickle {
            dumps: module.getattr("dumps")?.unbind(),
            keep: wrap_pyfunction!(keep_buffer, py)?.into_any().unbind(),
            keywords: PyTuple::new(py, ["buffer_callback"])?.unbind(),
            protocol: 5_i32.into_pyobject(py)?.into_any().unbind(),
        })
    })
}

fn dumps<'py>(py: Python<'py>, object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let pickle = pickle(py)?;
    let arguments = [object.as_ptr(), pickle.protocol.as_ptr(), pickle.keep.as_ptr()];
    // SAFETY: the three pointers are borrowed from live references, the third is the value of the one keyword, and the
    // result is a new reference or null with an exception set.
    unsafe {
        let result =
            ffi::PyObject_Vectorcall(pickle.dumps.as_ptr(), arguments.as_ptr(), 2, pickle.keywords.as_ptr());
        Bound::from_owned_ptr_or_err(py, result)
    }
}

fn mentions(stream: &[u8], name: &[u8]) -> bool {
    memchr::memmem::find(stream, name).is_some()
}

/// Whether the slow path has to look at it: it may refer to the program's own module, or have a connection in it.
fn needs_care(stream: &[u8]) -> bool {
    mentions(stream, b"__main__") || mentions(stream, b"multiprocessing.connection")
}

/// The shared memory that something encoded refers to, kept for as long as this lives.
#[pyclass(frozen, module = "ropewalk._core")]
pub(crate) struct Lent {
    pub(crate) loans: Loans,
}

/// Calls a function whose encodings may refer to shared memory; gives its result, and what it referred to.
#[pyfunction]
#[pyo3(signature = (call, /))]
pub(crate) fn lend_during<'py>(call: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyAny>, Lent)> {
    let open = lending::begin();
    let made = call.call0();
    let loans = lending::take(open);
    loans.lend_for_good();
    Ok((made?, Lent { loans }))
}

/// Encodes an object as a payload for a worker.
///
/// # Errors
///
/// `EncodeError` when neither pickle nor cloudpickle takes it, `OutOfMemory` when its buffers find no place.
pub(crate) fn payload(py: Python<'_>, engine: &Engine, object: &Bound<'_, PyAny>) -> PyResult<Payload> {
    payload_like(py, engine, object, &AtomicBool::new(false))
}

/// The same for one of many objects that are much alike; `careful` says that the one before needed the slow path.
///
/// # Errors
///
/// See [`payload`].
pub(crate) fn payload_like(
    py: Python<'_>,
    engine: &Engine,
    object: &Bound<'_, PyAny>,
    careful: &AtomicBool,
) -> PyResult<Payload> {
    let first = if careful.load(Ordering::Relaxed) { None } else { Some(encoding(|| dumps(py, object))) };
    let (stream, loans, buffers) = match first {
        Some((Err(error), ..)) if !is_refusal(py, &error) => return Err(error),
        Some((Ok(stream), loans, buffers)) if !needs_care(stream.cast::<PyBytes>()?.as_bytes()) => {
            (stream, loans, buffers)
        }
        first => {
            careful.fetch_or(matches!(first, Some((Ok(_), ..))), Ordering::Relaxed);
            drop(first);
            slowly(py, "encode_carefully", object)?
        }
    };
    placed(py, engine, stream.cast::<PyBytes>()?.as_bytes(), &buffers, loans, object)
}

/// Encodes the items of a list, of which no two share an object where they arrive; nothing if two of them look into the
/// same memory, for a task may be given such memory once only.
///
/// # Errors
///
/// See [`payload`].
pub(crate) fn payload_apart(
    py: Python<'_>,
    engine: &Engine,
    items: &Bound<'_, PyList>,
    careful: &AtomicBool,
) -> PyResult<Option<Payload>> {
    let mut streams: Vec<(Bound<'_, PyBytes>, usize)> = Vec::new();
    let (plain, mut loans, mut buffers) = encoding(|| -> PyResult<bool> {
        let mut kept = 0;
        for item in items.iter() {
            if careful.load(Ordering::Relaxed) {
                return Ok(false);
            }
            let stream = dumps(py, &item)?.cast_into::<PyBytes>()?;
            careful.fetch_or(needs_care(stream.as_bytes()), Ordering::Relaxed);
            let now = BUFFERS.with_borrow(Vec::len);
            streams.push((stream, now - kept));
            kept = now;
        }
        Ok(!careful.load(Ordering::Relaxed))
    });
    if let Err(error) = plain.as_ref()
        && !is_refusal(py, error)
    {
        return Err(error.clone_ref(py));
    }
    let slow;
    let joined;
    let stream = if matches!(plain, Ok(true)) {
        let items: Vec<_> = streams
            .iter()
            .map(|(stream, buffers)| Item { stream: stream.as_bytes(), buffers: *buffers, went_well: None })
            .collect();
        joined = chunk::join(OPEN_APART, &items);
        &joined[..]
    } else {
        drop((streams, loans, buffers));
        (slow, loans, buffers) = slowly(py, "encode_apart", items.as_any())?;
        slow.cast::<PyBytes>()?.as_bytes()
    };
    if meet(py, &buffers)? {
        return Ok(None);
    }
    placed(py, engine, stream, &buffers, loans, items.as_any()).map(Some)
}

/// Joins pickles into that of a list of what is in them; `counts` says how many buffers belong to each.
#[pyfunction]
#[pyo3(signature = (streams, counts, /))]
pub(crate) fn join_apart<'py>(
    py: Python<'py>,
    streams: Vec<Bound<'py, PyBytes>>,
    counts: Vec<usize>,
) -> Bound<'py, PyBytes> {
    let items: Vec<_> = streams
        .iter()
        .zip(counts)
        .map(|(stream, buffers)| Item { stream: stream.as_bytes(), buffers, went_well: None })
        .collect();
    PyBytes::new(py, &chunk::join(OPEN_APART, &items))
}

/// Pickles something; gives what was lent meanwhile, and the buffers that were left out.
fn encoding<T>(pickle: impl FnOnce() -> T) -> (T, Loans, Vec<Py<PyAny>>) {
    // What is pickled may itself pickle, by submitting to a pool: each encoding has buffers of its own.
    let outer = BUFFERS.take();
    let open = lending::begin();
    let made = pickle();
    let loans = lending::take(open);
    (made, loans, BUFFERS.replace(outer))
}

/// The slow path by this name.
fn slowly<'py>(
    py: Python<'py>,
    how: &str,
    object: &Bound<'py, PyAny>,
) -> PyResult<(Bound<'py, PyAny>, Loans, Vec<Py<PyAny>>)> {
    let kept = PyList::empty(py);
    // Before anything is lent: an interrupt may come while the module is imported.
    let encode = serialize(py)?.getattr(how)?;
    let open = lending::begin();
    let stream = encode.call1((object, &kept));
    let loans = lending::take(open);
    Ok((stream?, loans, kept.iter().map(Bound::unbind).collect()))
}

/// Whether two of the buffers begin at the same place.
fn meet(py: Python<'_>, buffers: &[Py<PyAny>]) -> PyResult<bool> {
    if buffers.len() < 2 {
        return Ok(false);
    }
    let mut starts = HashSet::new();
    for buffer in buffers {
        let view = raw_view(buffer.bind(py))?;
        if view.len_bytes() > 0 && !starts.insert(view.buf_ptr() as usize) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Puts the pickle of an object where it fits.
fn placed(
    py: Python<'_>,
    engine: &Engine,
    stream: &[u8],
    buffers: &[Py<PyAny>],
    loans: Loans,
    object: &Bound<'_, PyAny>,
) -> PyResult<Payload> {
    let mut payload = place(py, engine, stream, buffers, loans)?;
    if mentions(stream, b"multiprocessing.managers") {
        // A manager forgets an object when its last proxy goes, and the pickle of one does not count. Not shown to the
        // collector: the task is pending, and lets go of it when it ends.
        payload.kept = Some(local::opaque(object.clone().unbind()));
    }
    Ok(payload)
}

/// Puts an encoded function or object where it fits: in the record, or in a lease of the pool's arena.
pub(crate) fn place(
    py: Python<'_>,
    engine: &Engine,
    stream: &[u8],
    buffers: &[Py<PyAny>],
    loans: Loans,
) -> PyResult<Payload> {
    if buffers.is_empty() && stream.len() <= LARGEST_TASK {
        let Loans { segments, blocks } = loans;
        return Ok(Payload { bytes: stream.to_vec(), segments, blocks, ..Payload::default() });
    }
    let views: Vec<PyBuffer<u8>> =
        buffers.iter().map(|buffer| raw_view(buffer.bind(py))).collect::<PyResult<_>>()?;
    // SAFETY: each view is a C-contiguous run of len_bytes() bytes, and `views` keeps it exported until after the last
    // use of these slices. Its owner may write to it meanwhile; then the worker sees a torn array, as with any copy.
    let slices = views.iter().map(|view| match view.len_bytes() {
        0 => &[][..],
        // SAFETY: as said above.
        len => unsafe { std::slice::from_raw_parts(view.buf_ptr().cast::<u8>(), len) },
    });
    let frame = Frame::new(stream, slices, &loans);
    let Loans { mut segments, blocks } = loans;
    if let Some(bytes) = frame.inline(&[], LARGEST_TASK) {
        return Ok(Payload { flags: flags::DESCRIBED, bytes, segments, blocks, ..Payload::default() });
    }
    let put = || frame.lease(engine.arena());
    let leased = if frame.is_long() { py.detach(put) } else { put() };
    let leased = leased.map_err(|error| errors::from_base(py, &error))?;
    segments.extend(leased.segments);
    let (bytes, lease) = (leased.bytes, Some(Arc::new(leased.lease)));
    Ok(Payload { flags: flags::DESCRIBED | flags::LEASED, bytes, lease, segments, blocks, kept: None })
}

/// The raw bytes of a `PickleBuffer`, whatever its element type.
fn raw_view(buffer: &Bound<'_, PyAny>) -> PyResult<PyBuffer<u8>> {
    PyBuffer::get(&buffer.call_method0("raw")?)
}
