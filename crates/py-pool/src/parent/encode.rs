//! Encodes calls into bytes.
//!
//! The C pickler goes first. `pool.wire._serialize` is the slow path: what it refuses, what belongs to `__main__`, and
//! whatever lies in a segment.

use std::collections::HashSet;
use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use ropewalk_capi::object::{Object, Raised};
use ropewalk_pool::codec::limits::LARGEST_TASK;
use ropewalk_pool::codec::{Frame, Item, Loans, chunk, loans as lending};
use ropewalk_pool::wire::flags;
use ropewalk_pool::{Beside, Engine, Payload};

use super::decode::serialize;
use super::{errors, local};
use crate::pickle::{self, OPEN_APART, Pickled, Pickler, RawView, has_connection, mentions};

/// The exception that is set, for pyo3's half.
fn fetched<T>(py: Python<'_>, made: Result<T, Raised>) -> PyResult<T> {
    made.map_err(|Raised| PyErr::fetch(py))
}

/// A reference, for the half in the plain C API.
pub(super) fn owned(object: Bound<'_, PyAny>) -> Object {
    // SAFETY: a reference to a live object, which is handed over.
    match unsafe { Object::own(object.into_ptr()) } {
        Ok(object) => object,
        Err(Raised) => unreachable!("a reference is never null"),
    }
}

/// The bytes of a pickle.
fn bytes(stream: &Object) -> &[u8] {
    stream.as_bytes().unwrap_or_default()
}

/// The main interpreter's pickler: `_core` is loaded in no other.
struct OfMain(Pickler);

// SAFETY: it is never changed or dropped, and its objects are used by threads that are attached to their interpreter.
unsafe impl Send for OfMain {}
// SAFETY: as above.
unsafe impl Sync for OfMain {}

fn pickler(py: Python<'_>) -> PyResult<&Pickler> {
    static PICKLER: PyOnceLock<OfMain> = PyOnceLock::new();
    let made = PICKLER.get_or_try_init(py, || -> PyResult<OfMain> {
        let dumps = py.import("_pickle")?.getattr("dumps")?;
        let keep = py.import("ropewalk._load")?.getattr("worker")?.getattr("_keep_buffer")?;
        fetched(py, Pickler::new(owned(dumps), owned(keep))).map(OfMain)
    });
    Ok(&made?.0)
}

/// Whether the slow path must handle it: it may refer to the program's own module, or have a connection in it.
fn needs_care(stream: &[u8]) -> bool {
    mentions(stream, b"__main__") || has_connection(stream)
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
    let (made, loans) = lending::during(|| call.call0());
    loans.lend_for_good();
    Ok((made?, Lent { loans }))
}

/// What a task is sent of its call: arguments by position and by name, and what decides after which exceptions it is
/// run again, if that was said.
pub(crate) fn arguments<'py>(
    py: Python<'py>,
    args: &Bound<'py, PyTuple>,
    kwargs: &Bound<'py, PyDict>,
    on: Option<&Py<PyAny>>,
) -> PyResult<Bound<'py, PyTuple>> {
    match on {
        None => PyTuple::new(py, [args.as_any(), kwargs.as_any()]),
        Some(on) => PyTuple::new(py, [args.as_any(), kwargs.as_any(), on.bind(py)]),
    }
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
    let is_plain = |stream: &[u8]| {
        let care = needs_care(stream);
        careful.fetch_or(care, Ordering::Relaxed);
        !care
    };
    let first = if careful.load(Ordering::Relaxed) {
        None
    } else {
        fetched(py, pickler(py)?.pickle(object.as_ptr(), 0, is_plain))?
    };
    let pickled = match first {
        Some(pickled) => pickled,
        None => slowly(py, c"encode_carefully", object)?,
    };
    let Pickled { stream, buffers, loans } = pickled;
    placed(py, engine, bytes(&stream), &buffers, loans, object)
}

/// Encodes the items of a list, of which no two share an object where they arrive; nothing if two of them use the same
/// memory, because a task may get such memory only once.
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
    let pickler = pickler(py)?;
    let mut streams: Vec<(Object, usize)> = Vec::new();
    let (plain, mut loans, mut buffers) = pickle::encoding(0, || -> Result<bool, Raised> {
        let mut kept = 0;
        for item in items.iter() {
            if careful.load(Ordering::Relaxed) {
                return Ok(false);
            }
            let stream = pickler.dump(item.as_ptr())?;
            careful.fetch_or(needs_care(bytes(&stream)), Ordering::Relaxed);
            let now = pickle::kept();
            streams.push((stream, now - kept));
            kept = now;
        }
        Ok(!careful.load(Ordering::Relaxed))
    });
    let plain = plain.or_else(|Raised| fetched(py, pickle::drop_refusal()).map(|()| false))?;
    let (slow, joined);
    let stream = if plain {
        let items: Vec<_> = streams
            .iter()
            .map(|(stream, buffers)| Item { stream: bytes(stream), buffers: *buffers, went_well: None })
            .collect();
        joined = chunk::join(OPEN_APART, &items);
        &joined[..]
    } else {
        drop((streams, loans, buffers));
        Pickled { stream: slow, buffers, loans } = slowly(py, c"encode_apart", items.as_any())?;
        bytes(&slow)
    };
    if fetched(py, meet(&buffers))? {
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

/// The slow path by this name.
fn slowly(py: Python<'_>, how: &CStr, object: &Bound<'_, PyAny>) -> PyResult<Pickled> {
    // Before anything is lent: an interrupt may come while the module is imported.
    let serialize = owned(serialize(py)?.into_any());
    fetched(py, serialize.attribute(how).and_then(|encode| pickle::slowly(&encode, object.as_ptr())))
}

/// Whether two of the buffers begin at the same place.
fn meet(buffers: &[Object]) -> Result<bool, Raised> {
    if buffers.len() < 2 {
        return Ok(false);
    }
    let mut starts = HashSet::new();
    for buffer in buffers {
        let view = RawView::of(buffer)?;
        if !view.bytes().is_empty() && !starts.insert(view.bytes().as_ptr()) {
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
    buffers: &[Object],
    loans: Loans,
    object: &Bound<'_, PyAny>,
) -> PyResult<Payload> {
    let mut payload = place(py, engine, stream, buffers, loans)?;
    if mentions(stream, b"multiprocessing.managers") {
        // A manager forgets an object when its last proxy goes, and the pickle of one does not count. Not shown to the
        // collector: the task is pending, and releases it when it ends.
        payload.beside.get_or_insert_default().kept = Some(local::opaque(object.clone().unbind()));
    }
    Ok(payload)
}

/// Puts an encoded function or object where it fits: in the record, or in a lease of the pool's arena.
pub(crate) fn place(
    py: Python<'_>,
    engine: &Engine,
    stream: &[u8],
    buffers: &[Object],
    loans: Loans,
) -> PyResult<Payload> {
    place_within(py, engine, stream, buffers, loans, LARGEST_TASK)
}

/// The same, with at most so many bytes in the record.
pub(crate) fn place_within(
    py: Python<'_>,
    engine: &Engine,
    stream: &[u8],
    buffers: &[Object],
    loans: Loans,
    most: usize,
) -> PyResult<Payload> {
    let lends = !loans.segments.is_empty() || !loans.blocks.is_empty();
    if lends && !engine.capabilities().shares_memory {
        return Err(errors::unsendable(
            py,
            "a shared array or buffer of Ropewalk lies in the memory of this machine, and the workers of this pool may \
             be on others. Send the data itself: a plain array, or bytes.",
        ));
    }
    if buffers.is_empty() && stream.len() <= most {
        let Loans { segments, blocks } = loans;
        let beside = Beside { segments, blocks, ..Beside::default() };
        return Ok(Payload { bytes: stream.to_vec(), ..beside.into() });
    }
    let views: Vec<RawView> = fetched(py, buffers.iter().map(RawView::of).collect())?;
    let frame = Frame::new(stream, views.iter().map(RawView::bytes), &loans);
    let Loans { mut segments, blocks } = loans;
    if let Some(bytes) = frame.inline(&[], most) {
        let beside = Beside { segments, blocks, ..Beside::default() };
        return Ok(Payload { flags: flags::DESCRIBED, bytes, ..beside.into() });
    }
    let put = || frame.lease(engine.arena());
    let leased = if frame.is_long() { py.detach(put) } else { put() };
    let leased = leased.map_err(|error| errors::from_base(py, &error))?;
    segments.extend(leased.segments);
    let (bytes, lease) = (leased.bytes, Some(Arc::new(leased.lease)));
    let beside = Beside { lease, segments, blocks, kept: None };
    Ok(Payload { flags: flags::DESCRIBED | flags::LEASED, bytes, ..beside.into() })
}
