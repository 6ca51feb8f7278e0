//! `map` and `map_unordered`: lazy, bounded in flight, with chunks that grow to the size that pays.

mod feed;
mod laid;
mod leaving;
mod results;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use pyo3::exceptions::{PyException, PyKeyboardInterrupt, PyRuntimeError, PyStopIteration, PyValueError};
use pyo3::prelude::*;
use pyo3::pyclass::{PyTraverseError, PyVisit};
use pyo3::types::{PyIterator, PyList};
use ropewalk_capi::object::Kept;
use ropewalk_pool::{Call, Function, Options, Task};

use self::feed::Held;
use self::laid::Laid;
use super::functions::Functions;
use super::local::{LocalCall, LocalValue};
use super::pool::{PoolBase, PoolInner};
use super::settings::{Chosen, Retries, TaskSettings};
use super::slot::{Slot, Turn};
use super::{future, interrupts, placing, settings};

/// The target time of a chunk in a worker: long against the cost of handing it over, short against the whole.
const CHUNK_NS: u64 = 3_000_000;
/// The cost of one input beside the call itself, for pickling and unpickling on both sides.
const ITEM_NS: u64 = 100;
const LARGEST_CHUNK: usize = 16 * 1024;
/// A chunk's size may grow by so much after each answer.
const GROWTH: usize = 8;
/// Tasks of one item carry it as their argument; the others are batches.
struct Flight {
    task: Arc<Task>,
    /// Whether its end has been reported to the event loop.
    told: bool,
    items: usize,
    batch: bool,
    /// A batch's inputs, kept for those that have to be sent again.
    inputs: Option<Py<PyList>>,
}

/// The outcome of one input. An error that belongs to no input, such as an interrupt, is an `Err` around it.
enum Came {
    Value(Py<PyAny>),
    Failed(PyErr),
}

impl Came {
    /// The outcome of opening an answer: an exception that is no `Exception` does not belong to the input.
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

/// The state of a map that is iterated. Its code runs with nothing of this locked; see `Slot`.
#[derive(Default)]
struct State {
    /// `None` when it is exhausted, and while a thread runs its code.
    source: Option<Py<PyIterator>>,
    chunk: usize,
    /// Inputs that are still to come, if that is known.
    remaining: Option<usize>,
    /// Inputs that have been taken.
    taken: usize,
    held: VecDeque<Held>,
    flight: VecDeque<Flight>,
    /// A batch that failed as a whole, once for each of its inputs.
    failed: Option<(Arc<Py<PyAny>>, usize)>,
    /// An exception of the input iterator, kept until the results before it are out.
    input_error: Option<Py<PyAny>>,
    closed: bool,
}

/// See the module. The iterator goes on after an exception: the next input's result is next.
///
/// Threads may share it. One thread at a time takes a result; one at a time, perhaps another, feeds inputs.
#[pyclass(frozen, subclass, weakref, module = "ropewalk._core")]
pub(crate) struct MapIterator {
    pool: Arc<PoolInner>,
    callable: Slot<Option<Py<PyAny>>>,
    function: Option<Arc<Function>>,
    star: bool,
    ordered: bool,
    options: Options,
    /// After which exceptions inputs are run again, if that was said.
    on: Slot<Option<Py<PyAny>>>,
    deadline: Option<Instant>,
    /// Chosen by the caller; else it is learned.
    fixed_chunk: bool,
    lanes: usize,
    /// Tasks in flight at most, if the caller said so.
    buffersize: Option<usize>,
    /// Whether the number of inputs is known.
    sized: bool,
    started: AtomicBool,
    /// Whether a coroutine gave up the last wait for a result, and no result was requested since.
    deserted: AtomicBool,
    /// Whether the inputs before were not for plain pickle.
    careful: AtomicBool,
    /// `Ok` and `Err`, if the outcome of each input is reported as one of them.
    results: Slot<Option<(Py<PyAny>, Py<PyAny>)>>,
    /// Whether there are such.
    as_results: bool,
    /// The pool's list of maps that were dropped before any result was taken: their inputs are run all the same.
    unread: Slot<Option<Py<PyList>>>,
    /// Ends when the pool has room, for an event loop that waits for it.
    room: Slot<Option<Arc<Task>>>,
    state: Slot<State>,
    laid: Laid,
    taking: Turn,
    feeding: Turn,
}

/// Futures whose end is reported to an event loop, and the seconds for which it waits at most.
type Pending<'py> = (Vec<Bound<'py, PyAny>>, Option<f64>);

/// The arguments of `Pool.map`, as checked settings.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct MapSettings {
    star: bool,
    ordered: bool,
    timeout: Option<f64>,
    chunksize: Option<usize>,
    buffersize: Option<usize>,
    length: Option<usize>,
    unread: Py<PyList>,
    lanes: usize,
    task_timeout: Option<f64>,
    retries: Retries,
    priority: i32,
    writable: bool,
    deadline: Option<f64>,
    client: Option<String>,
    share: u32,
    session: Option<u32>,
    hang_timeout: Option<f64>,
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
        let inner = pool.get().inner()?;
        let Chosen { options, on } = settings::options(TaskSettings(
            settings.task_timeout,
            settings.retries,
            settings.priority,
            settings.writable,
            settings.deadline,
            settings.client,
            settings.share,
            0,
            settings.session,
            settings.hang_timeout,
        ))?;
        let (placed, source) = placing::place_map(inner, callable, source, settings.star, &options)?;
        let inner = placed.unwrap_or_else(|| Arc::clone(inner));
        let encodes = inner.engine.capabilities().encodes;
        let mut failure = None;
        let function = if encodes {
            match Functions::get(&inner.functions, inner.engine.for_encoding(), callable) {
                Ok(function) => Some(function),
                Err(error) if !is_failure(py, &error) => return Err(error),
                Err(error) => {
                    failure = Some(error.into_value(py).into_any());
                    None
                }
            }
        } else {
            None
        };
        // A budget, a retry and a place in a bounded buffer are each input's own: no batches unless asked for.
        let single = !encodes
            || options.timeout().is_some()
            || options.deadline().is_some()
            || options.retries > 0
            || settings.buffersize.is_some();
        let failed = failure.is_some();
        let iterator = Self {
            pool: inner,
            callable: Slot::new(Some(callable.clone().unbind())),
            function,
            star: settings.star,
            ordered: settings.ordered,
            options,
            on: Slot::new(on),
            deadline: future::deadline(settings.timeout),
            fixed_chunk: settings.chunksize.is_some() || single,
            lanes: settings.lanes.max(1),
            buffersize: settings.buffersize,
            sized: settings.length.is_some(),
            started: AtomicBool::new(false),
            deserted: AtomicBool::new(false),
            careful: AtomicBool::new(false),
            as_results: settings.results.is_some(),
            results: Slot::new(settings.results),
            unread: Slot::new(Some(settings.unread)),
            room: Slot::default(),
            state: Slot::new(State {
                source: if failed { None } else { Some(source.unbind()) },
                chunk: if encodes { settings.chunksize.unwrap_or(1) } else { 1 },
                remaining: settings.length,
                taken: 0,
                held: VecDeque::new(),
                flight: VecDeque::new(),
                failed: None,
                input_error: failure,
                closed: false,
            }),
            laid: Laid::default(),
            taking: Turn::default(),
            feeding: Turn::default(),
        };
        if failed {
            return Ok(iterator);
        }
        // Inputs that fail before there is any are an error of this call.
        let begun = iterator.refill(py, false);
        let nothing = iterator.state.with(|state| {
            if state.flight.is_empty() && state.held.is_empty() { state.input_error.take() } else { None }
        });
        match (begun, nothing) {
            (Ok(_), None) => Ok(iterator),
            (Err(error), _) => {
                // No result will be taken.
                iterator.started.store(true, Ordering::Relaxed);
                Err(error)
            }
            (Ok(_), Some(error)) => Err(PyErr::from_value(error.into_bound(py))),
        }
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.deserted.store(false, Ordering::Relaxed);
        match self.next(py) {
            Ok(value) => Ok(value),
            Err(error) => Err(self.raised(py, error)),
        }
    }

    /// Cancels what has not started and ends the iteration, as a generator's `close` does. Running tasks are ended if
    /// no result was requested again after a given-up wait, or if an interrupt or a cancellation is being handled.
    fn close(&self, py: Python<'_>) {
        let running = self.deserted.load(Ordering::Relaxed) || leaving::handled(py);
        let flights = self.shut(py);
        self.forget_room(py);
        self.cancel(py, &flights, running);
    }

    /// A coroutine has given up its wait for a result. Unless a result is requested again, running tasks end with the
    /// iterator.
    fn _desert(&self) {
        self.deserted.store(true, Ordering::Relaxed);
    }

    /// How many results are still to come; `None` if the inputs do not know their length.
    fn _left(&self, py: Python<'_>) -> Option<usize> {
        let laid = self.laid.len(py);
        self.state.with(|state| {
            let queued = state.remaining?;
            let failed = state.failed.as_ref().map_or(0, |(_, left)| *left);
            let flying: usize = state.flight.iter().map(|flight| flight.items).sum();
            let held: usize = state.held.iter().map(Held::items).sum();
            let waiting = if state.closed { 0 } else { queued };
            Some(waiting + held + laid + failed + flying)
        })
    }

    /// What the tasks in flight have reported as done, each as a part of one input; for a progress bar.
    fn _under_way(&self, py: Python<'_>) -> f64 {
        let tasks: Vec<_> =
            self.state.with(|state| state.flight.iter().map(|flight| Arc::clone(&flight.task)).collect());
        self.pool.engine.call(py, |engine| {
            let told = tasks.iter().filter_map(|task| engine.progress(task));
            told.filter_map(|progress| progress.total.map(|total| progress.done / total))
                .filter(|part| part.is_finite())
                .map(|part| part.clamp(0.0, 1.0))
                .sum()
        })
    }

    /// For an event loop: `None` if the next result can be had without waiting, else the futures whose end is news,
    /// each of them once, and the seconds for which to wait at most.
    fn _pending<'py>(&self, py: Python<'py>) -> PyResult<Option<Pending<'py>>> {
        let Some(_turn) = self.taking.take(py)? else { return Ok(None) };
        self.started.store(true, Ordering::Relaxed);
        self.deserted.store(false, Ordering::Relaxed);
        let fresh = loop {
            if self.laid.len(py) > 0 || self.state.with(|state| state.failed.is_some()) {
                return Ok(None);
            }
            let fed = self.refill(py, false)?;
            let wants_room = self.wants_room(fed);
            if let Some(done) = self.state.with(|state| self.take_done(state)) {
                self.keep(py, &done)?;
                continue;
            }
            if !wants_room && self.state.with(|state| state.flight.is_empty()) {
                return Ok(None);
            }
            let room = match if wants_room { self.room(py) } else { Some(None) } {
                Some(room) => room,
                None => continue,
            };
            break self.state.with(|state| {
                let first = if self.ordered { 1 } else { state.flight.len() };
                let fresh = state.flight.iter_mut().take(first).filter(|flight| !flight.told);
                let fresh = fresh.map(|flight| (flight.told = true, Arc::clone(&flight.task)).1);
                fresh.chain(room).collect::<Vec<_>>()
            });
        };
        let news: Vec<_> =
            fresh.into_iter().map(|task| self.pool.future(py, task)).collect::<PyResult<_>>()?;
        let left = self.deadline.map(|at| at.saturating_duration_since(Instant::now()).as_secs_f64());
        if left.is_some_and(|left| left <= 0.0) {
            return Ok(None);
        }
        Ok(Some((news, left)))
    }

    /// Submits everything that is left, whatever is in flight: the pool is about to close. Inputs of unknown length are
    /// taken only if no result was taken yet, and none with a `buffersize`. Returns how many inputs were taken if there
    /// may be more.
    fn _submit_all(&self, py: Python<'_>) -> PyResult<Option<usize>> {
        if self.buffersize.is_none() && (self.sized || !self.started.load(Ordering::Relaxed)) {
            self.refill(py, true)?;
        }
        Ok(self.state.with(|state| state.source.is_some().then_some(state.taken)))
    }

    /// Runs the remaining inputs, and drops the results as they arrive.
    fn _run_out(&self, py: Python<'_>) -> PyResult<()> {
        let Some(_turn) = self.taking.take(py)? else { return Ok(()) };
        self.started.store(true, Ordering::Relaxed);
        while self.step(py, None)?.is_some() {}
        Ok(())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.callable.visit(|callable| visit.call(callable))?;
        self.on.visit(|on| visit.call(on))?;
        self.unread.visit(|unread| visit.call(unread))?;
        self.results.visit(|results| match results {
            Some((ok, err)) => visit.call(ok).and_then(|()| visit.call(err)),
            None => Ok(()),
        })?;
        self.laid.visit(&visit)?;
        self.state.visit(|state| {
            visit.call(&state.source)?;
            visit.call(&state.input_error)?;
            visit.call(state.failed.as_ref().map(|(error, _)| &**error))?;
            for held in &state.held {
                visit.call(&held.inputs)?;
                match &held.what {
                    Ok(Call::Local(call)) => {
                        // Only this iterator has it yet.
                        let Some(call) = call.try_lock() else { continue };
                        call.as_ref().map_or(Ok(()), |call| LocalCall::visit(call, &visit))?;
                    }
                    Ok(Call::Remote(_)) => {}
                    Err(task) => LocalValue::visit(task, &visit)?,
                }
            }
            state.flight.iter().try_for_each(|flight| {
                visit.call(&flight.inputs)?;
                LocalValue::visit(&flight.task, &visit)
            })
        })
    }

    fn __clear__(&self, py: Python<'_>) {
        drop((self.laid.put(py, Vec::new(), false), self.on.take()));
        let (callable, results, unread) = (self.callable.take(), self.results.take(), self.unread.take());
        let rest = self.state.with(|state| {
            // What still runs stays, to be cancelled when this is dropped.
            let (done, pending): (VecDeque<_>, VecDeque<_>) =
                std::mem::take(&mut state.flight).into_iter().partition(|flight| flight.task.is_done());
            state.flight = pending;
            let inputs: Vec<_> = state.flight.iter_mut().map(|flight| flight.inputs.take()).collect();
            (
                (state.source.take(), std::mem::take(&mut state.held)),
                (state.failed.take(), state.input_error.take(), inputs, done),
            )
        });
        drop((callable, results, unread, rest));
    }
}

impl MapIterator {
    /// The next result, or `None` at the end.
    fn next(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        // What has come needs no turn: nothing is waited for, and each value is taken once.
        if !self.as_results
            && let Some(value) = self.laid.plain(py)
        {
            return Ok(Some(value));
        }
        if let Some(came) = self.laid_out(py)? {
            return self.told(py, came).map(Some);
        }
        let Some(_turn) = self.taking.take(py)? else {
            return Err(PyValueError::new_err("the map is being iterated by this very thread already"));
        };
        self.started.store(true, Ordering::Relaxed);
        let came = self.step(py, self.deadline)?;
        came.map(|came| self.told(py, came)).transpose()
    }

    /// Ends the iteration; gives what is in flight.
    fn shut(&self, py: Python<'_>) -> VecDeque<Flight> {
        let (flights, rest) = self.state.with(|state| {
            state.closed = true;
            let rest = (
                state.source.take(),
                std::mem::take(&mut state.held),
                state.failed.take(),
                state.input_error.take(),
            );
            (std::mem::take(&mut state.flight), rest)
        });
        drop((rest, self.laid.put(py, Vec::new(), false)));
        flights
    }

    /// What `__next__` raises for an exception.
    fn raised(&self, py: Python<'_>, error: PyErr) -> PyErr {
        if error.is_instance_of::<PyKeyboardInterrupt>(py) {
            // A caller that interrupts a map needs the workers back, for instance for a notebook's next cell.
            self.forget_room(py);
            let flights = self.shut(py);
            self.cancel(py, &flights, true);
        } else if error.is_instance_of::<PyStopIteration>(py) {
            // Unchanged it would end the loop silently, and the inputs after it would be lost (PEP 479).
            let told = PyRuntimeError::new_err("a task of the map raised StopIteration");
            told.set_cause(py, Some(error));
            return told;
        }
        error
    }
}

impl Drop for MapIterator {
    fn drop(&mut self) {
        Python::try_attach(|py| {
            // Python's code must not run with the exception set that unwinds the frame which drops this.
            let raised = Kept::take();
            self.forget_room(py);
            if self.started.load(Ordering::Relaxed) {
                let flights = self.state.with(|state| std::mem::take(&mut state.flight));
                if !flights.is_empty() {
                    // No code comes back to a loop that an interrupt or a cancellation has left.
                    let running = self.deserted.load(Ordering::Relaxed) || leaving::raised(py, &raised);
                    self.cancel(py, &flights, running);
                }
                return;
            }
            // A map without a taken result means "run all these", as in the standard library.
            let wanted = self.sized && self.buffersize.is_none();
            if wanted
                && self.callable.with(|callable| callable.is_some())
                && let Err(error) = self.refill(py, true)
            {
                // Nothing can be raised here.
                interrupts::raise_later(error.value(py).as_any());
            }
            if self.leave_to_pool(py) {
                return;
            }
            let error = self.state.with(|state| state.input_error.take());
            if let Some(error) = error {
                PyErr::from_value(error.into_bound(py)).write_unraisable(py, None);
            }
        });
    }
}
