//! Threads of Python's side that serve workers elsewhere: what they are given of a task, and what they report.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyTuple};
use ropewalk_os::clock::monotonic_nanos;
use ropewalk_pool::wire::flags;
use ropewalk_pool::{
    Answer, Attempt, Attended, Call, Errand, News, Order, Payload, Progress, Reply, Session, Task,
};

use super::engine::EngineHandle;
use super::local;
use super::pool::PoolInner;

/// How long such a thread sleeps in the engine before it comes again.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// How long it waits for the reader of a stream before it looks whether the worker has ended the stream.
const SLICE: Duration = Duration::from_secs(1);

/// A decoded answer: the value or the exception, whether it is an exception, whether the task may be run again after
/// it, whether it was asked to stop and did, the busy nanoseconds, and how far it has said that it is.
pub(super) type Decoded = (Py<PyAny>, bool, bool, bool, u64, Option<Said>);

/// How far a task is: what is done, of how much, and its note.
pub(super) type Said = (f64, Option<f64>, Option<String>);

/// The worker, how many workers of that number were there so far, and what to do: `None` to end it; a task's number, to
/// ask it to stop; or an answer, which is a task's number, the number of its call, whether the function returned, and
/// the pickle.
pub(super) type Ordered<'py> = (usize, u64, Option<Bound<'py, PyAny>>);

/// What such a thread reports of its task.
#[derive(FromPyObject)]
pub(super) enum Report {
    /// The answer.
    Decoded(Decoded),
    /// The exception with which the object of the task's actor could not be made, encoded.
    Unmade(Vec<u8>),
}

/// The items of a stream, for the thread that serves its worker.
#[pyclass(frozen, module = "ropewalk._core")]
pub(crate) struct StreamFeed {
    pool: Arc<PoolInner>,
    task: Arc<Task>,
}

#[pymethods]
impl StreamFeed {
    /// Waits a while until the reader allows items, or the stream is to stop: gives how many items and bytes it allows,
    /// and whether to stop.
    fn credit(&self, py: Python<'_>) -> (u64, u64, bool) {
        let stopped = || self.task.is_asked_to_stop() || self.task.is_done();
        let Some(stream) = self.task.stream() else { return (0, 0, true) };
        if !stream.has_credit() && !stopped() {
            py.detach(|| stream.sleep_unless(|| stream.has_credit() || stopped(), Some(SLICE)));
        }
        let left = stream.credit();
        (left.items, left.bytes, stopped())
    }

    /// Hands an item over, which uses so many bytes of the credit; false if there was none for it.
    fn add(&self, item: Py<PyAny>, cost: u64) -> bool {
        self.pool.engine.item_made(&self.task, local::opaque(item), cost).is_ok()
    }
}

/// Reports that the worker is ready, or its answer, and waits for its next task.
///
/// Gives `None` when the pool has no more tasks, `False` when the worker is to be ended, a list of the numbers of
/// sessions whose states it is to drop, and else a tuple: the function's number, and its pickle, unless `known`
/// contains the number; the arguments; whether the task is a batch, whether its items are spread, and whether it may
/// write to its arguments; where its items go, if it is a stream; its session, if it has one; and the run: the task's
/// number, the attempt, the seconds that are left to it, or `None`, and whether it is asked to stop already. A pickle
/// is `(bytes, is it a table, what it lies in)`.
///
/// A session is its number, and what makes its state, if the worker is to make that: the number of the state, that of
/// the function and its pickle, the arguments, and whether the state is an actor's object.
pub(super) fn next<'py>(
    py: Python<'py>,
    pool: &Arc<PoolInner>,
    lane: usize,
    known: &Bound<'py, PyAny>,
    pid: Option<i32>,
    answer: Option<Report>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let mut news = match (pid, answer) {
        (Some(pid), _) => News::Ready(pid),
        (None, Some(Report::Unmade(bytes))) => {
            News::Unmade(Reply { flags: flags::ERROR, bytes, segments: Vec::new() })
        }
        (None, Some(Report::Decoded((value, raised, again, stopped, busy_ns, said)))) => {
            let (value, progress) = (local::opaque(value), said.map(progress));
            News::Answered(Answer { value, raised, again, stopped, busy_ns, progress })
        }
        (None, None) => News::Nothing,
    };
    loop {
        match pool.engine.call(py, |engine| engine.attend(lane, news, PATIENCE)) {
            Attended::Task(task) => return described(py, pool, task, false, known).map(Some),
            Attended::First(task) => return described(py, pool, task, true, known).map(Some),
            Attended::Drop(sessions) => return Ok(Some(sessions.into_pyobject(py)?.into_any())),
            Attended::Doomed => return Ok(Some(no(py))),
            Attended::Closed => return Ok(None),
            Attended::Nothing => {}
            // Its result ends here, with the interpreter at hand.
            Attended::Last(task) => drop(task),
        }
        news = News::Nothing;
    }
}

/// Reports, and says whether the pool has anything for a worker of this number.
pub(super) fn is_wanted(py: Python<'_>, engine: &EngineHandle, lane: usize, news: News) -> bool {
    !matches!(engine.call(py, |engine| engine.attend(lane, news, Duration::ZERO)), Attended::Closed)
}

pub(super) fn attempt((task, number): (u64, u32)) -> Attempt {
    Attempt { task, number }
}

pub(super) fn progress((done, total, note): Said) -> Progress {
    Progress::new(done, total, note.as_deref())
}

/// See [`Ordered`].
pub(super) fn orders<'py>(py: Python<'py>, pool: &PoolInner) -> PyResult<Option<Vec<Ordered<'py>>>> {
    let Some(orders) = pool.engine.call(py, |engine| engine.orders(PATIENCE)) else { return Ok(None) };
    let described = |Order { worker, which, what }| {
        let what = match what {
            Errand::Begin { stands_in } => Some((stands_in,).into_pyobject(py)?.into_any()),
            Errand::End => None,
            Errand::Stop(task) => Some(task.into_pyobject(py)?.into_any()),
            Errand::Answer(task, number, payload) => {
                let returned = payload.flags & flags::ERROR == 0;
                let pickle = pickle_of(py, &payload)?;
                Some((task, number, returned, pickle).into_pyobject(py)?.into_any())
            }
        };
        Ok((worker, which, what))
    };
    orders.into_iter().map(described).collect::<PyResult<_>>().map(Some)
}

fn no(py: Python<'_>) -> Bound<'_, PyAny> {
    pyo3::types::PyBool::new(py, false).to_owned().into_any()
}

fn described<'py>(
    py: Python<'py>,
    pool: &Arc<PoolInner>,
    task: Arc<Task>,
    opens: bool,
    known: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let Call::Remote(call) = &task.call else { return Ok(no(py)) };
    let function = call.lock().function.clone();
    // It was cancelled meanwhile, and its worker is to be ended.
    let Some(function) = function else { return Ok(no(py)) };
    let number = function.id();
    let pickle = if known.contains(number)? { None } else { Some(pickle_of(py, function.payload())?) };
    let arguments = {
        let payload = &call.lock().payload;
        if payload.flags & flags::EMPTY != 0 { None } else { Some(parts(payload)) }
    };
    let arguments = arguments.map(|parts| as_tuple(py, parts)).transpose()?;
    let has = |flag| task.flags & flag != 0;
    let (batch, star, writable) = (has(flags::BATCH), has(flags::STAR), task.options.writable);
    let session = match task.session() {
        None => None,
        Some(session) if opens => match opening(py, session, task.generation(), known)? {
            None => return Ok(no(py)),
            opening => Some((session.id, opening)),
        },
        Some(session) => Some((session.id, None)),
    };
    let left = task.ends(monotonic_nanos()).map(|end| end.saturating_duration_since(Instant::now()));
    let left = left.map(|left| left.as_secs_f64());
    let run = (task.id, task.attempt(), left, task.is_asked_to_stop());
    let feed = if task.stream().is_some() {
        Some(Py::new(py, StreamFeed { pool: Arc::clone(pool), task })?)
    } else {
        None
    };
    let whole = (number, pickle, arguments, batch, star, writable, feed, session, run).into_pyobject(py)?;
    Ok(whole.into_any())
}

type Opening<'py> = (u32, Option<(u32, Option<Bound<'py, PyTuple>>)>, Bound<'py, PyTuple>, bool);

/// What makes a session's state; `None` if the session has been closed, and its task cancelled.
fn opening<'py>(
    py: Python<'py>,
    session: &Session,
    generation: u32,
    known: &Bound<'py, PyAny>,
) -> PyResult<Option<Opening<'py>>> {
    let copied = session.look_at_opening(|init, given| (init.cloned(), parts(given)));
    let Some((init, given)) = copied else { return Ok(None) };
    let init = match init {
        None => None,
        Some(init) if known.contains(init.id())? => Some((init.id(), None)),
        Some(init) => Some((init.id(), Some(pickle_of(py, init.payload())?))),
    };
    Ok(Some((generation, init, as_tuple(py, given)?, session.is_actor)))
}

type Lease = Arc<ropewalk_shm::memory::Lease>;

fn pickle_of<'py>(py: Python<'py>, payload: &Payload) -> PyResult<Bound<'py, PyTuple>> {
    as_tuple(py, parts(payload))
}

fn parts(payload: &Payload) -> (Vec<u8>, bool, Option<Lease>) {
    (payload.bytes.clone(), payload.flags & flags::DESCRIBED != 0, payload.lease().cloned())
}

fn as_tuple<'py>(
    py: Python<'py>,
    (bytes, described, lease): (Vec<u8>, bool, Option<Lease>),
) -> PyResult<Bound<'py, PyTuple>> {
    // The memory is used again when the task has ended, and it may be ended while its arguments are on their way.
    let lease = lease.map(|lease| PyCapsule::new(py, lease, None)).transpose()?;
    (PyBytes::new(py, &bytes), described, lease).into_pyobject(py)
}
