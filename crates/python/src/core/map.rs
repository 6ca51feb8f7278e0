//! `map` and `map_unordered`: lazy, bounded in flight, with chunks that grow to the size that pays.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator, PyList, PyTuple};
use windlass_pool::wire::flags;
use windlass_pool::{Call, Function, Options, Outcome, Sleeper, Task};

use super::functions::Functions;
use super::local::{self, LocalValue};
use super::pool::{PoolBase, PoolInner};
use super::{encode, errors, future, pool};

/// What a chunk should take a worker: long against the cost of handing it over, short against the whole.
const CHUNK_NS: u64 = 3_000_000;
/// What one input costs beside the call itself: pickled and unpickled on both sides.
const ITEM_NS: u64 = 100;
const LARGEST_CHUNK: usize = 16 * 1024;
/// A chunk's size may grow by so much after each answer.
const GROWTH: usize = 8;
/// Tasks in flight for each lane.
const TASKS_PER_LANE: usize = 3;
const FEWEST_TASKS: usize = 16;

/// Tasks of one item carry it as their argument; the others are batches.
struct Flight {
    task: Arc<Task>,
    /// Whether the event loop is told of its end already.
    told: bool,
    items: usize,
    batch: bool,
    /// A batch's inputs, kept if the failure of one must cost no other.
    inputs: Option<Py<PyList>>,
}

/// What came of one input. What is no input's, an interrupt for instance, is an `Err` around it.
enum Came {
    Value(Py<PyAny>),
    Failed(PyErr),
}

impl Came {
    /// What looking at an answer came to: an exception that is no `Exception` is nothing of the input's.
    fn of(py: Python<'_>, looked: PyResult<Py<PyAny>>) -> PyResult<Self> {
        match looked {
            Ok(value) => Ok(Self::Value(value)),
            Err(error) if is_failure(py, &error) => Ok(Self::Failed(error)),
            Err(interrupt) => Err(interrupt),
        }
    }
}

fn is_failure(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyException>(py)
}

struct Current {
    values: Py<PyList>,
    at: usize,
    mixed: bool,
}

impl Current {
    fn left(&self, py: Python<'_>) -> usize {
        self.values.bind(py).len().saturating_sub(self.at)
    }
}

/// See the module. The iterator goes on after an exception: the next input's result is next.
#[pyclass(subclass, weakref, module = "windlass._core")]
pub(crate) struct MapIterator {
    pool: Arc<PoolInner>,
    callable: Py<PyAny>,
    function: Option<Arc<Function>>,
    source: Option<Py<PyIterator>>,
    star: bool,
    ordered: bool,
    options: Options,
    deadline: Option<Instant>,
    /// Chosen by the caller; else it is learned.
    fixed_chunk: bool,
    chunk: usize,
    lanes: usize,
    /// Tasks in flight at most, if the caller said so.
    buffersize: Option<usize>,
    /// Inputs that are still to come, if that is known.
    remaining: Option<usize>,
    flight: VecDeque<Flight>,
    current: Option<Current>,
    /// A batch that failed as a whole, once for each of its inputs.
    failed: Option<(Py<PyAny>, usize)>,
    /// An exception of the input iterator, kept until the results before it are out.
    input_error: Option<PyErr>,
    started: bool,
    /// `Ok` and `Err`, if what comes of each input is to be told as one of them.
    results: Option<(Py<PyAny>, Py<PyAny>)>,
}

/// Futures whose end an event loop is to be told of, and the seconds for which it waits at most.
type Pending<'py> = (Vec<Bound<'py, PyAny>>, Option<f64>);

/// What `Pool.map` has made of its arguments.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct MapSettings {
    star: bool,
    ordered: bool,
    timeout: Option<f64>,
    chunksize: Option<usize>,
    buffersize: Option<usize>,
    length: Option<usize>,
    lanes: usize,
    task_timeout: Option<f64>,
    retries: u32,
    priority: i32,
    results: Option<(Py<PyAny>, Py<PyAny>)>,
}

#[pymethods]
impl MapIterator {
    #[new]
    fn new(
        py: Python<'_>,
        pool: &Bound<'_, PoolBase>,
        callable: &Bound<'_, PyAny>,
        source: Bound<'_, PyIterator>,
        settings: MapSettings,
    ) -> PyResult<Self> {
        let inner = Arc::clone(&pool.get().inner);
        let options = pool::options(settings.task_timeout, settings.retries, settings.priority)?;
        let remote = inner.engine.is_remote();
        let mut failure = None;
        let function = if remote {
            match Functions::get(&inner.functions, &inner.engine, callable) {
                Ok(function) => Some(function),
                Err(error) => {
                    failure = Some(error);
                    None
                }
            }
        } else {
            None
        };
        // A budget, a retry and a place in a bounded buffer are each input's own: no batches unless asked for.
        let single =
            !remote || options.timeout.is_some() || options.retries > 0 || settings.buffersize.is_some();
        let mut iterator = Self {
            pool: inner,
            callable: callable.clone().unbind(),
            function,
            source: Some(source.unbind()),
            star: settings.star,
            ordered: settings.ordered,
            options,
            deadline: future::deadline(settings.timeout),
            fixed_chunk: settings.chunksize.is_some() || single,
            chunk: if remote { settings.chunksize.unwrap_or(1) } else { 1 },
            lanes: settings.lanes.max(1),
            buffersize: settings.buffersize,
            remaining: settings.length,
            flight: VecDeque::new(),
            current: None,
            failed: None,
            input_error: None,
            started: false,
            results: settings.results,
        };
        if let Some(error) = failure {
            iterator.source = None;
            iterator.input_error = Some(error);
            return Ok(iterator);
        }
        iterator.refill(py, false)?;
        match iterator.input_error.take() {
            Some(error) => Err(error),
            None => Ok(iterator),
        }
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.started = true;
        loop {
            if let Some(current) = &mut self.current {
                let values = current.values.bind(py);
                if current.at < values.len() {
                    let item = values.get_item(current.at)?;
                    current.at += 1;
                    let came = if current.mixed { mixed_item(&item)? } else { Came::Value(item.unbind()) };
                    return self.told(py, came).map(Some);
                }
                self.current = None;
            }
            if let Some((exception, left)) = self.failed.take() {
                let error = PyErr::from_value(exception.bind(py).clone());
                if left > 1 {
                    self.failed = Some((exception, left - 1));
                }
                return self.told(py, Came::Failed(error)).map(Some);
            }
            self.refill(py, false)?;
            if self.flight.is_empty() {
                return match self.input_error.take() {
                    Some(error) => Err(error),
                    None => Ok(None),
                };
            }
            let done = self.next_done(py)?;
            self.learn(&done);
            self.refill(py, false)?;
            match self.open(py, &done)? {
                Some(Came::Failed(error)) if done.batch => match &done.inputs {
                    Some(inputs) if never_ran(py, &done, &error)? => self.send_again(inputs.bind(py))?,
                    _ => self.failed = Some((error.into_value(py).into_any(), done.items)),
                },
                Some(came) => return self.told(py, came).map(Some),
                None => {}
            }
        }
    }

    /// Cancels what has not started and ends the iteration, as a generator's `close` does.
    fn close(&mut self) {
        self.source = None;
        self.current = None;
        self.failed = None;
        self.input_error = None;
        for flight in self.flight.drain(..) {
            self.pool.engine.cancel(&flight.task, false);
        }
    }

    /// How many results are still to come; `None` if the inputs do not know their length.
    fn _left(&self, py: Python<'_>) -> Option<usize> {
        let queued = self.remaining?;
        let current = self.current.as_ref().map_or(0, |current| current.left(py));
        let failed = self.failed.as_ref().map_or(0, |(_, left)| *left);
        let flying: usize = self.flight.iter().map(|flight| flight.items).sum();
        let waiting = if self.source.is_some() { queued } else { 0 };
        Some(waiting + current + failed + flying)
    }

    /// For an event loop: `None` if the next result can be had without waiting, else the futures whose end is news,
    /// each of them once, and the seconds for which to wait at most.
    fn _pending<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Pending<'py>>> {
        self.started = true;
        if self.current.as_ref().is_some_and(|current| current.left(py) > 0) || self.failed.is_some() {
            return Ok(None);
        }
        self.refill(py, false)?;
        let first = if self.ordered { 1 } else { self.flight.len() };
        let mut news = Vec::new();
        for flight in self.flight.iter_mut().take(first) {
            if flight.task.is_done() {
                return Ok(None);
            }
            if !flight.told {
                news.push(self.pool.future(py, Arc::clone(&flight.task))?);
                flight.told = true;
            }
        }
        let left = self.deadline.map(|at| at.saturating_duration_since(Instant::now()).as_secs_f64());
        if self.flight.is_empty() || left.is_some_and(|left| left <= 0.0) {
            return Ok(None);
        }
        Ok(Some((news, left)))
    }

    /// Submits everything that is left, whatever is in flight: the pool is about to close.
    fn _submit_all(&mut self, py: Python<'_>) -> PyResult<()> {
        if self.remaining.is_some() && self.buffersize.is_none() { self.refill(py, true) } else { Ok(()) }
    }
}

/// One `(ok, value or error)` of a batch in which some failed.
fn mixed_item(item: &Bound<'_, PyAny>) -> PyResult<Came> {
    let (ok, value): (bool, Bound<'_, PyAny>) = item.extract()?;
    if ok {
        return Ok(Came::Value(value.unbind()));
    }
    let exception = item.py().import("windlass._serialize")?.getattr("revive")?.call1((value,))?;
    Ok(Came::Failed(PyErr::from_value(exception)))
}

/// Whether a batch failed before its function was called: its inputs arrived, and one of them did not unpickle.
fn never_ran(py: Python<'_>, done: &Flight, error: &PyErr) -> PyResult<bool> {
    let Some(Outcome::Replied(reply)) = done.task.outcome() else { return Ok(false) };
    if reply.flags & flags::ERROR == 0 {
        return Ok(false); // It was the answer that did not unpickle.
    }
    let class = py.import("windlass._errors")?.getattr("DecodeError")?;
    Ok(error.is_instance(py, &class))
}

impl MapIterator {
    /// What came of one input, as it is or as a result.
    fn told(&self, py: Python<'_>, came: Came) -> PyResult<Py<PyAny>> {
        match (&self.results, came) {
            (None, Came::Value(value)) => Ok(value),
            (None, Came::Failed(error)) => Err(error),
            (Some((ok, _)), Came::Value(value)) => ok.call1(py, (value,)),
            (Some((_, err)), Came::Failed(error)) => err.call1(py, (error.into_value(py),)),
        }
    }

    fn most_tasks(&self) -> usize {
        match self.buffersize {
            Some(size) => size,
            None if self.chunk == 1 => (self.lanes * TASKS_PER_LANE).max(FEWEST_TASKS),
            None => self.lanes * TASKS_PER_LANE,
        }
    }

    fn next_chunk(&self) -> usize {
        match self.remaining {
            // Towards the end smaller chunks, so that all lanes finish together.
            Some(left) if !self.fixed_chunk => self.chunk.min(left / (self.lanes * 2)).max(1),
            _ => self.chunk,
        }
    }

    fn refill(&mut self, py: Python<'_>, all: bool) -> PyResult<()> {
        while self.source.is_some() && (all || self.flight.len() < self.most_tasks()) {
            let items = self.take_inputs(py, self.next_chunk())?;
            if items.is_empty() {
                return Ok(());
            }
            if let Some(left) = &mut self.remaining {
                *left = left.saturating_sub(items.len());
            }
            if let Err(error) = self.send(&items) {
                // Nothing after these inputs may come out as if it were theirs.
                self.source = None;
                if self.flight.is_empty() || !is_failure(py, &error) {
                    return Err(error);
                }
                self.input_error = Some(error);
            }
        }
        Ok(())
    }

    fn take_inputs<'py>(&mut self, py: Python<'py>, most: usize) -> PyResult<Bound<'py, PyList>> {
        let items = PyList::empty(py);
        let Some(source) = &self.source else { return Ok(items) };
        let mut source = source.bind(py).clone();
        while items.len() < most {
            match source.next() {
                Some(Ok(item)) => items.append(item)?,
                Some(Err(error)) => {
                    self.input_error = Some(error);
                    self.source = None;
                    break;
                }
                None => {
                    self.source = None;
                    break;
                }
            }
        }
        Ok(items)
    }

    fn send(&mut self, items: &Bound<'_, PyList>) -> PyResult<()> {
        let py = items.py();
        if items.len() > 1
            && let Some(function) = &self.function
        {
            match encode::payload(py, &self.pool.engine, items) {
                Ok(payload) => {
                    let call = Call::Remote { function: Arc::clone(function), payload: Mutex::new(payload) };
                    let star = if self.star { flags::STAR } else { 0 };
                    let task = self.pool.submit(py, call, flags::BATCH | star, self.options)?;
                    let inputs = self.results.is_some().then(|| items.clone().unbind());
                    self.flight.push_back(Flight {
                        task,
                        told: false,
                        items: items.len(),
                        batch: true,
                        inputs,
                    });
                    return Ok(());
                }
                Err(error) if is_failure(py, &error) => {}
                Err(interrupt) => return Err(interrupt),
            }
        }
        // One by one, so that an input that cannot be sent fails alone.
        for item in items {
            let flight = self.send_one(&item)?;
            self.flight.push_back(flight);
        }
        Ok(())
    }

    fn send_one(&self, item: &Bound<'_, PyAny>) -> PyResult<Flight> {
        let py = item.py();
        let args = if self.star { item.cast::<PyTuple>()?.clone() } else { PyTuple::new(py, [item])? };
        let task = match self.single(py, &args) {
            Ok(call) => self.pool.submit(py, call, 0, self.options)?,
            Err(error) if is_failure(py, &error) => failed_task(py, error),
            Err(interrupt) => return Err(interrupt),
        };
        Ok(Flight { task, told: false, items: 1, batch: false, inputs: None })
    }

    /// Sends the inputs of a batch that never ran once more, one by one, in the batch's place.
    fn send_again(&mut self, inputs: &Bound<'_, PyList>) -> PyResult<()> {
        let py = inputs.py();
        let mut again = VecDeque::new();
        for item in inputs {
            again.push_back(match self.send_one(&item) {
                Ok(flight) => flight,
                // The pool was shut down meanwhile, say: these inputs were taken, and each gets an answer.
                Err(error) if is_failure(py, &error) => {
                    Flight { task: failed_task(py, error), told: false, items: 1, batch: false, inputs: None }
                }
                Err(interrupt) => return Err(interrupt),
            });
        }
        again.append(&mut self.flight);
        self.flight = again;
        Ok(())
    }

    fn single(&self, py: Python<'_>, args: &Bound<'_, PyTuple>) -> PyResult<Call> {
        match &self.function {
            None => self.pool.call(self.callable.bind(py), args, None),
            Some(function) => {
                let pair = PyTuple::new(py, [args.as_any(), PyDict::new(py).as_any()])?;
                let payload = encode::payload(py, &self.pool.engine, &pair)?;
                Ok(Call::Remote { function: Arc::clone(function), payload: Mutex::new(payload) })
            }
        }
    }

    fn next_done(&mut self, py: Python<'_>) -> PyResult<Flight> {
        let at = if self.ordered {
            let Some(first) = self.flight.front() else { return Err(errors::result_timeout()) };
            if !first.task.is_done() {
                self.wait(py, &Sleeper::Task(Arc::clone(&first.task)))?;
            }
            0
        } else {
            loop {
                if let Some(at) = self.flight.iter().position(|flight| flight.task.is_done()) {
                    break at;
                }
                let tasks = self.flight.iter().map(|flight| Arc::clone(&flight.task)).collect();
                self.wait(py, &Sleeper::Any(tasks))?;
            }
        };
        self.flight.remove(at).ok_or_else(errors::result_timeout)
    }

    fn wait(&self, py: Python<'_>, what: &Sleeper) -> PyResult<()> {
        if future::wait(py, &self.pool, what, self.deadline)? {
            Ok(())
        } else {
            Err(errors::result_timeout())
        }
    }

    fn learn(&mut self, done: &Flight) {
        if self.fixed_chunk {
            return;
        }
        let each = done.task.record().busy_ns / done.items.max(1) as u64 + ITEM_NS;
        let wanted = usize::try_from(CHUNK_NS / each).unwrap_or(LARGEST_CHUNK);
        self.chunk = wanted.clamp(1, (done.items * GROWTH).max(self.chunk)).min(LARGEST_CHUNK);
    }

    /// What came of a task of one item, or `None` after a batch's list has been laid out.
    fn open(&mut self, py: Python<'_>, done: &Flight) -> PyResult<Option<Came>> {
        let came = match done.task.outcome() {
            Some(Outcome::Replied(reply)) if reply.flags & flags::ERROR != 0 => {
                Came::Failed(PyErr::from_value(encode::decode_error(py, reply)?))
            }
            Some(Outcome::Replied(reply)) => {
                match Came::of(py, encode::decode(py, reply).map(Bound::unbind))? {
                    Came::Value(values) if done.batch => {
                        let values = values.bind(py).cast::<PyList>()?.clone().unbind();
                        let mixed = reply.flags & flags::MIXED != 0;
                        self.current = Some(Current { values, at: 0, mixed });
                        return Ok(None);
                    }
                    came => came,
                }
            }
            Some(Outcome::Local { value, raised: false }) => Came::Value(LocalValue::get(py, value)),
            Some(Outcome::Local { value, raised: true }) => {
                Came::Failed(PyErr::from_value(LocalValue::get(py, value).into_bound(py)))
            }
            Some(Outcome::Failed(failure)) => Came::Failed(errors::failed(py, failure, Some(&done.task))),
            Some(Outcome::Cancelled) | None => Came::Failed(errors::cancelled(py)),
        };
        Ok(Some(came))
    }
}

/// A task that has ended with this exception, and was never sent.
fn failed_task(py: Python<'_>, error: PyErr) -> Arc<Task> {
    let value = local::opaque(error.into_value(py).into_any());
    Task::ended(Outcome::Local { value, raised: true })
}

impl Drop for MapIterator {
    fn drop(&mut self) {
        if self.started {
            for flight in self.flight.drain(..) {
                self.pool.engine.cancel(&flight.task, false);
            }
        } else if self.remaining.is_some() && self.buffersize.is_none() {
            // One that was never looked at is how people say "run all these": as in the standard library.
            Python::try_attach(|py| {
                if let Err(error) = self.refill(py, true) {
                    error.write_unraisable(py, None);
                }
            });
        }
    }
}
