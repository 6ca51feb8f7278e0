//! `PoolHandle`: a pool's threads on this side, its end and its counters.

use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use ropewalk_pool::wire::flags;
use ropewalk_pool::{Cause, Engine, Failure, News, Refused, Reply, WaitFor, Waited, Which};

use super::future::{self, FutureBase};
use super::pool::{FOREVER, PoolInner};
use super::settings::limit;
use super::{calls, errors, lanes, local, records};
use crate::seats;
use crate::worker::leases;

/// How long a thread waits for a seat before it looks for signals.
const PATIENCE: Duration = Duration::from_secs(5);

/// A quarantined task, for Python.
type Quarantine<'py> = (u64, u32, Option<String>, Option<String>, Bound<'py, PyTuple>);

/// A pool's engine without the pool: what its threads and its end hold on to, so that the pool itself can be collected.
#[pyclass(frozen, module = "ropewalk._core")]
pub(crate) struct PoolHandle {
    pub(crate) inner: Arc<PoolInner>,
}

#[pymethods]
impl PoolHandle {
    /// Runs the tasks of a thread pool, until there are no more.
    fn serve(&self, py: Python<'_>) {
        local::serve(py, &self.inner.engine);
    }

    /// Takes the next place of a worker in this process: its number, or `None` once there will be no more.
    fn take_seat(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        let Some(seats) = &self.inner.seats else { return Ok(None) };
        loop {
            if let Some(seat) = py.detach(|| seats.take(PATIENCE)) {
                py.detach(|| seat.taken());
                return Ok(Some(seats::put(seat)));
            }
            if seats.is_closed() {
                return Ok(None);
            }
            py.check_signals()?;
        }
    }

    /// Gives such a place up, when nothing of its worker is left; `failed` says why there never was one.
    #[pyo3(signature = (number, failed = None))]
    fn give_up_seat(&self, py: Python<'_>, number: u64, failed: Option<String>) {
        py.detach(|| {
            leases::forget_worker(number);
            if let Some(seat) = seats::remove(number) {
                seat.give_up(failed);
            }
        });
    }

    /// Publishes watched futures as they end; returns when the pool has ended and nothing is left to publish.
    fn collect(&self, py: Python<'_>) -> PyResult<()> {
        let inner = &self.inner;
        loop {
            // Released once for both, for it may take long to get the interpreter back.
            let deadline = std::time::Instant::now() + Duration::from_secs(1);
            let done = inner.engine.call(py, |engine| {
                let done = engine.take_completed();
                if !done.is_empty() || engine.has_ended() {
                    return done;
                }
                let _ = engine.wait(&WaitFor::Completed, Some(deadline));
                engine.take_completed()
            });
            let futures: Vec<Py<FutureBase>> = inner
                .watched
                .with(|watched| done.iter().filter_map(|task| watched.remove(&task.id)).collect());
            for future in &futures {
                let future = future.bind(py);
                if let Err(error) = FutureBase::publish(future) {
                    error.write_unraisable(py, Some(future));
                }
                FutureBase::run_callbacks(future);
            }
            drop(futures);
            if !done.is_empty() {
                continue;
            }
            if inner.engine.call(py, Engine::has_ended) {
                if inner.watched.with(|watched| watched.is_empty()) {
                    return Ok(());
                }
                // Another thread is about to put one in, or to take it out.
                inner.engine.call(py, |engine| {
                    let _ = engine.wait(&WaitFor::Completed, Some(deadline));
                });
            }
        }
    }

    /// Whether threads are to take the calls of tasks, from now on: a task that has this interpreter's objects calls
    /// by itself.
    fn serve_calls(&self, py: Python<'_>) -> bool {
        let encodes = self.inner.engine.capabilities().encodes;
        if encodes {
            self.inner.engine.call(py, Engine::serve_calls);
        }
        encodes
    }

    /// Waits for the next call of a task; `None` when the pool has ended.
    fn next_call(&self, py: Python<'_>) -> Option<calls::TaskCall> {
        calls::next(py, &self.inner)
    }

    /// Takes no more tasks; with `cancel`, drops those that have not started.
    fn close(&self, py: Python<'_>, cancel: bool) {
        self.inner.engine.call(py, |engine| engine.close(cancel));
    }

    /// The same; what is left after so many seconds is ended as `terminate` does.
    fn close_within(&self, py: Python<'_>, cancel: bool, seconds: f64) -> PyResult<()> {
        let time = limit("timeout", Some(seconds))?.unwrap_or(FOREVER);
        self.inner.engine.call(py, |engine| engine.close_within(cancel, time));
        Ok(())
    }

    /// Takes no more tasks, cancels those that have not started, and ends those that run after `grace` seconds.
    fn end(&self, py: Python<'_>, grace: f64) -> PyResult<()> {
        let wait = limit("grace", Some(grace))?.unwrap_or(FOREVER);
        self.inner.engine.call(py, |engine| engine.end(wait));
        Ok(())
    }

    /// Ends everything now: tasks that wait are cancelled, those that run fail with `PoolTerminated`.
    fn terminate(&self, py: Python<'_>) {
        self.inner.engine.call(py, Engine::terminate);
    }

    /// Takes no more tasks, cancels those that have not started, and sends every worker process a signal.
    fn signal_workers(&self, py: Python<'_>, signum: i32) {
        self.inner.engine.call(py, |engine| engine.signal_workers(signum));
    }

    /// Ends every worker at once.
    fn break_down(&self, py: Python<'_>, reason: String) {
        let failure = ropewalk_pool::Failure::Broken(reason.into());
        self.inner.engine.call(py, |engine| engine.break_down(&failure));
    }

    /// Waits for the end, a signal's handler running in between; false when the time is up.
    #[pyo3(signature = (timeout = None))]
    fn join(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let deadline = future::deadline(timeout);
        loop {
            // In slices, for a signal that comes right before the sleep, or to another thread, interrupts none.
            let slice = std::time::Instant::now() + Duration::from_millis(50);
            let until = deadline.map_or(slice, |deadline| deadline.min(slice));
            match self.inner.engine.call(py, |engine| engine.join(Some(until))) {
                Waited::Ready => return Ok(true),
                Waited::TimedOut if Some(until) == deadline => return Ok(false),
                Waited::TimedOut | Waited::Interrupted => py.check_signals()?,
            }
        }
    }

    /// Breaks the pool because its initializer has failed with this exception, encoded.
    fn initializer_failed(&self, py: Python<'_>, error: Vec<u8>) {
        let reply = Reply { flags: flags::ERROR, bytes: error, segments: Vec::new() };
        let failure = Failure::Initializer(Arc::new(reply));
        self.inner.engine.call(py, |engine| engine.break_down(&failure));
    }

    /// For a thread that serves a worker: the worker's next task. See `lanes::next`.
    #[pyo3(signature = (lane, /, known, pid = None, answer = None))]
    fn next<'py>(
        &self,
        py: Python<'py>,
        lane: usize,
        known: &Bound<'py, PyAny>,
        pid: Option<i32>,
        answer: Option<lanes::Report>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        lanes::next(py, &self.inner, lane, known, pid, answer)
    }

    /// For such a thread: its worker is gone; whether there is anything left for another one.
    fn gone(&self, py: Python<'_>, lane: usize, why: &str) -> bool {
        lanes::is_wanted(py, &self.inner.engine, lane, News::Gone(why.into()))
    }

    /// For such a thread: it ends, and its worker is gone.
    fn left(&self, py: Python<'_>, lane: usize) {
        let _ = lanes::is_wanted(py, &self.inner.engine, lane, News::Left);
    }

    /// For such a thread: it has no worker yet; whether there is anything for one.
    fn missing(&self, py: Python<'_>, lane: usize, why: &str) -> bool {
        lanes::is_wanted(py, &self.inner.engine, lane, News::Missing(why.into()))
    }

    /// For a thread that hears what the task of a worker has to say: how far this attempt of it is.
    fn said(&self, py: Python<'_>, lane: usize, attempt: (u64, u32), progress: lanes::Said) {
        let news = News::Said(lanes::attempt(attempt), lanes::progress(progress));
        let _ = lanes::is_wanted(py, &self.inner.engine, lane, news);
    }

    /// For such a thread: this attempt makes its call of that number, with this frame.
    fn called(&self, py: Python<'_>, lane: usize, attempt: (u64, u32), number: u64, frame: Vec<u8>) {
        let frame = Reply { flags: 0, bytes: frame, segments: Vec::new() };
        let news = News::Called(lanes::attempt(attempt), number, frame);
        let _ = lanes::is_wanted(py, &self.inner.engine, lane, news);
    }

    /// Waits for what is to be done with workers; `None` when the pool has ended. See `lanes::orders`.
    fn orders<'py>(&self, py: Python<'py>) -> PyResult<Option<Vec<lanes::Ordered<'py>>>> {
        lanes::orders(py, &self.inner)
    }

    /// Functions that no task names any more, since the last call.
    fn take_dropped(&self, py: Python<'_>) -> Vec<u32> {
        self.inner.engine.call(py, Engine::take_dropped)
    }

    /// Whether workers may be on other machines.
    #[getter]
    fn is_remote(&self) -> bool {
        let capabilities = self.inner.engine.capabilities();
        capabilities.isolates && !capabilities.shares_memory
    }

    /// Whether workers are processes of their own, which can be ended and take signals.
    #[getter]
    fn isolates(&self) -> bool {
        self.inner.engine.capabilities().isolates
    }

    /// Whether calls travel as bytes, to workers with objects of their own.
    #[getter]
    fn encodes(&self) -> bool {
        self.inner.engine.capabilities().encodes
    }

    /// Whether tasks of a session find its state.
    #[getter]
    fn keeps_states(&self) -> bool {
        self.inner.engine.capabilities().keeps_states
    }

    /// Whether the stack of a task that hangs can be had: processes of this machine write it, and threads have objects
    /// of this interpreter.
    #[getter]
    fn finds_hung(&self) -> bool {
        let capabilities = self.inner.engine.capabilities();
        !capabilities.encodes || capabilities.isolates && capabilities.shares_memory
    }

    /// Whether the pool takes no tasks any more.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        self.inner.engine.call(py, Engine::is_closed)
    }

    /// Whether every worker is gone.
    #[getter]
    fn ended(&self, py: Python<'_>) -> bool {
        self.inner.engine.call(py, Engine::has_ended)
    }

    /// Replaces all workers, or the one with this number or process id; gives how many that will be.
    fn recycle(&self, py: Python<'_>, number: Option<u64>, pid: Option<i32>) -> usize {
        let which = match (number, pid) {
            (Some(number), _) => Which::Number(number),
            (None, Some(pid)) => Which::Process(pid),
            (None, None) => Which::All,
        };
        self.inner.engine.call(py, |engine| engine.recycle(which))
    }

    /// Sets the number of workers; gives how many threads the caller has to start for that.
    fn resize(&self, py: Python<'_>, workers: usize) -> usize {
        self.inner.engine.call(py, |engine| engine.resize(workers))
    }

    /// The counters: a dict, and a list of `(pid, state, completed, busy ns, number, age in seconds or None)`.
    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyDict>, Bound<'py, PyList>)> {
        let statistics = self.inner.engine.call(py, Engine::statistics);
        let statistics = statistics.ok_or_else(|| errors::refused(py, &Refused::Forked))?;
        let counters = statistics.counters;
        let totals = PyDict::new(py);
        let integers = [
            ("submitted", counters.submitted),
            ("completed", counters.completed),
            ("failed", counters.failed),
            ("cancelled", counters.cancelled),
            ("timed_out", counters.timed_out),
            ("dropped", counters.dropped),
            ("retried", counters.retried),
            ("crashed", counters.crashed),
            ("restarted", counters.restarted),
            ("busy_ns", counters.busy_ns),
            ("hung", counters.hung),
            ("poisoned", counters.poisoned),
            ("queued", statistics.queued as u64),
            ("running", statistics.running as u64),
            ("delayed", statistics.delayed as u64),
            ("workers", statistics.size as u64),
            ("ready", statistics.ready as u64),
            ("sessions", statistics.sessions as u64),
        ];
        for (name, value) in integers {
            totals.set_item(name, value)?;
        }
        totals.set_item("oldest", statistics.oldest.map(|age| age.as_secs_f64()))?;
        let clients: Vec<(&str, usize)> =
            statistics.clients.iter().map(|(name, depth)| (&**name, *depth)).collect();
        totals.set_item("clients", clients)?;
        let recycled = PyDict::new(py);
        for cause in Cause::ALL {
            recycled.set_item(cause.name(), counters.recycled[cause as usize])?;
        }
        totals.set_item("recycled", recycled)?;
        let workers = statistics.workers.iter().map(|w| {
            let age = w.age.map(|age| age.as_secs_f64());
            (w.pid, format!("{:?}", w.state).to_lowercase(), w.completed, w.busy_ns, w.number, age)
        });
        for (name, times) in records::all_times(&statistics.histograms) {
            totals.set_item(name, times)?;
        }
        Ok((totals, PyList::new(py, workers.collect::<Vec<_>>())?))
    }

    /// The quarantined tasks, oldest first: `(task, attempt, function, call, deaths)`.
    fn quarantine<'py>(&self, py: Python<'py>) -> PyResult<Vec<Quarantine<'py>>> {
        let all = self.inner.engine.call(py, Engine::quarantine);
        let made = all.into_iter().map(|one| {
            let function = one.call.as_ref().and_then(|call| call.function.as_deref().map(str::to_owned));
            let call = one.call.and_then(|call| errors::describe(py, call, one.flags));
            Ok((one.task, one.attempt, function, call, errors::deaths(py, &one.deaths)?))
        });
        made.collect()
    }

    /// Waits for runs in threads that hang, and fails each with what `stack` gives for its thread; returns whether the
    /// pool goes on.
    fn watch_hung(&self, py: Python<'_>, stack: &Bound<'_, PyAny>, timeout: f64) -> PyResult<bool> {
        let timeout = limit("timeout", Some(timeout))?.unwrap_or(FOREVER);
        for hung in self.inner.engine.call(py, |engine| engine.take_hung(timeout)) {
            let stack: Option<String> = stack.call1((hung.thread,))?.extract()?;
            self.inner.engine.call(py, |engine| engine.fail_hung(&hung, stack.map(Into::into)));
        }
        Ok(!self.inner.engine.call(py, Engine::has_ended))
    }

    /// The identifiers of the threads whose calls go on though their tasks have ended.
    fn given_up(&self, py: Python<'_>) -> Vec<u64> {
        self.inner.engine.call(py, Engine::given_up)
    }

    /// What `TaskRecord` is made of, for the last tasks that have ended.
    fn records(&self, py: Python<'_>) -> PyResult<Vec<records::Fields>> {
        let ended = self.inner.engine.call(py, Engine::records);
        let ended = ended.ok_or_else(|| errors::refused(py, &Refused::Forked))?;
        Ok(ended.iter().map(records::fields).collect())
    }

    /// Why there are fewer workers than there should be, as long as that is so.
    fn shortage(&self, py: Python<'_>) -> Option<String> {
        self.inner.engine.call(py, Engine::shortage)
    }

    /// What the program should know of its settings, if they were seen not to fit its tasks.
    fn advice(&self, py: Python<'_>) -> Option<String> {
        self.inner.engine.call(py, Engine::advice)
    }

    /// The zygote's reports of failed preloads.
    fn complaints(&self, py: Python<'_>) -> Vec<String> {
        self.inner.engine.call(py, Engine::complaints)
    }

    /// The exception of a broken pool, or `None`.
    fn failure(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let failure = self.inner.engine.call(py, Engine::broken)?;
        Some(errors::failed(py, &failure, None).into_value(py).into_any())
    }
}
