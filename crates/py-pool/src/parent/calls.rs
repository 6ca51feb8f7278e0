//! Calls of tasks to functions of the program, for the threads that serve them.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use ropewalk_pool::codec::{Loans, limits};
use ropewalk_pool::wire::flags;
use ropewalk_pool::{Answered, Calling, Engine, Payload, Stage, Task, WaitFor};
use ropewalk_sync::Mutex;

use super::pool::PoolInner;
use super::{decode, encode};

/// How long a thread waits for a call before it looks whether its pool has ended.
const SLICE: Duration = Duration::from_millis(500);
/// How long it waits for room for an answer before it tries again.
const ROOM: Duration = Duration::from_millis(2);

/// A call that a task has made; it is answered once, at the latest when this is dropped.
#[pyclass(frozen, module = "ropewalk._core")]
pub(crate) struct TaskCall {
    pool: Arc<PoolInner>,
    call: Calling,
    answered: AtomicBool,
}

thread_local! {
    /// The pool whose tasks' calls this thread serves.
    static SERVES: RefCell<Option<Arc<PoolInner>>> = const { RefCell::new(None) };
}

/// What the threads that serve calls of a pool's tasks wait for in this pool.
#[derive(Default)]
pub(super) struct Waits(Mutex<Vec<(u64, WaitFor)>>);

/// The number of the next wait, in any pool.
static NEXT_WAIT: AtomicU64 = AtomicU64::new(1);

impl Waits {
    fn add(&self, what: &WaitFor) -> u64 {
        let number = NEXT_WAIT.fetch_add(1, Ordering::Relaxed);
        self.0.lock().push((number, what.clone()));
        number
    }

    fn remove(&self, number: u64) {
        let mut waits = self.0.lock();
        let at = waits.iter().position(|(known, _)| *known == number);
        let removed = at.map(|at| waits.swap_remove(at));
        drop(waits);
        // Without the lock: it may be the last owner of a task.
        drop(removed);
    }

    /// How many wait for tasks of which none has ended.
    fn count(&self) -> usize {
        self.0.lock().iter().filter(|(_, what)| is_pending(what)).count()
    }
}

/// A thread's place among those that serve calls and wait for a task of the same pool.
#[derive(Default)]
pub(super) struct Stuck(Option<(Arc<PoolInner>, u64)>);

impl Stuck {
    /// Whether the wait of this thread cannot end: every lane that may run tasks waits for the answer to a call, and as
    /// many threads as there are such lanes wait for tasks of this pool. So each of these calls is served by a thread
    /// that waits, for a task that has not started or for one whose own call is among these. A thread of the former
    /// kind gets the error: its task is the last one of a chain.
    pub(super) fn is_so(&mut self, py: Python<'_>, pool: &PoolInner, what: &WaitFor) -> bool {
        if self.0.is_none() {
            let served = SERVES.with_borrow(|serves| {
                serves.as_ref().filter(|known| std::ptr::eq(&raw const ***known, pool)).cloned()
            });
            let Some(served) = served else { return false };
            let number = served.waits.add(what);
            self.0 = Some((served, number));
        }
        // In this order: a task whose lane another one has taken is seen to have ended.
        let lanes = pool.engine.call(py, Engine::all_call);
        lanes.is_some_and(|lanes| lanes > 0 && is_unstarted(what) && pool.waits.count() >= lanes)
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        if let Some((pool, number)) = self.0.take() {
            pool.waits.remove(number);
        }
    }
}

/// Whether a wait is for tasks of which none has started.
fn is_unstarted(what: &WaitFor) -> bool {
    all_tasks(what, |task| matches!(task.stage(), Stage::Queued | Stage::Delayed))
}

/// Whether a wait is for tasks of which none has ended.
fn is_pending(what: &WaitFor) -> bool {
    all_tasks(what, |task| !task.is_done())
}

fn all_tasks(what: &WaitFor, is_so: impl Fn(&Arc<Task>) -> bool) -> bool {
    match what {
        WaitFor::Task(task) => is_so(task),
        // A stream's items come while its task runs.
        WaitFor::Stream(task) => task.stage() == Stage::Queued && is_so(task),
        WaitFor::Any(tasks) | WaitFor::AnyOrSpace(tasks) => tasks.iter().all(is_so),
        WaitFor::Completed | WaitFor::Space => false,
    }
}

/// Waits for the next call; `None` when the pool has ended.
pub(super) fn next(py: Python<'_>, pool: &Arc<PoolInner>) -> Option<TaskCall> {
    loop {
        let (call, ended) = pool.engine.call(py, |engine| {
            let call = engine.next_call(Instant::now() + SLICE);
            let ended = call.is_none() && engine.has_ended();
            (call, ended)
        });
        if let Some(call) = call {
            return Some(TaskCall { pool: Arc::clone(pool), call, answered: AtomicBool::new(false) });
        }
        if ended {
            return None;
        }
    }
}

impl TaskCall {
    /// Sends the answer, as soon as there is room.
    fn send(&self, py: Python<'_>, payload: &Payload) {
        if self.answered.swap(true, Ordering::Relaxed) {
            return;
        }
        self.pool.engine.call(py, |engine| {
            while engine.answer_call(&self.call, payload) == Answered::Full {
                std::thread::sleep(ROOM);
            }
        });
    }

    fn send_stream(&self, py: Python<'_>, stream: &[u8], bits: u16) -> PyResult<()> {
        let engine = self.pool.engine.for_encoding();
        let mut payload =
            encode::place_within(py, engine, stream, &[], Loans::default(), limits::LARGEST_ANSWER)?;
        payload.flags |= bits;
        self.send(py, &payload);
        Ok(())
    }
}

#[pymethods]
impl TaskCall {
    /// `(name, args, kwargs)`
    fn open<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        decode::decode(py, &self.call.frame)
    }

    /// Answers with what the function returned.
    fn answer(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let stream = decode::serialize(py)?.getattr("encode_object")?.call1((value, py.None()))?;
        self.send_stream(py, stream.cast::<PyBytes>()?.as_bytes(), 0)
    }

    /// Answers with an exception.
    fn fail(&self, py: Python<'_>, error: &Bound<'_, PyAny>) -> PyResult<()> {
        let stream = decode::serialize(py)?.getattr("encode_error")?.call1((error,))?;
        self.send_stream(py, stream.cast::<PyBytes>()?.as_bytes(), flags::ERROR)
    }

    /// From now until `leave` this thread serves the call.
    fn enter(&self) {
        let before = SERVES.replace(Some(Arc::clone(&self.pool)));
        drop(before);
    }

    /// This thread serves no call any more.
    fn leave(&self) {
        drop(SERVES.take());
    }
}

impl Drop for TaskCall {
    fn drop(&mut self) {
        if !self.answered.load(Ordering::Relaxed) {
            Python::try_attach(|py| self.send(py, &Payload::refusal()));
        }
    }
}
