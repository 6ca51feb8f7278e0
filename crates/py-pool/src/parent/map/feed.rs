//! A map's inputs: taken, encoded, held until the pool has room, and sent.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator, PyList, PyTuple};
use ropewalk_pool::wire::flags;
use ropewalk_pool::{Call, Outcome, Task, WaitFor};

use super::laid::Laid;
use super::{Flight, MapIterator, is_failure};
use crate::constants;
use crate::parent::slot::{Slot, Turn};
use crate::parent::{encode, errors, future, local};

/// Tasks in flight for each lane.
const TASKS_PER_LANE: usize = 3;
const FEWEST_TASKS: usize = 16;

/// Inputs that have been taken and encoded, and that the pool has not taken yet.
pub(super) struct Held {
    /// The call, or a task that has ended because there is none.
    pub(super) what: Result<Call, Arc<Task>>,
    flags: u16,
    items: usize,
    batch: bool,
    pub(super) inputs: Option<Py<PyList>>,
}

impl Held {
    pub(super) fn items(&self) -> usize {
        self.items
    }

    fn flight(self, task: Arc<Task>) -> Flight {
        Flight { task, told: false, items: self.items, batch: self.batch, inputs: self.inputs }
    }
}

/// The result of feeding a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fed {
    /// Enough is in flight, or there are no more inputs.
    Enough,
    /// The pool has no room for the next.
    NoRoom,
    /// This very thread is feeding already.
    Elsewhere,
}

impl MapIterator {
    fn most_tasks(&self, chunk: usize) -> usize {
        match self.buffersize {
            Some(size) => size,
            None if chunk == 1 => (self.lanes * TASKS_PER_LANE).max(FEWEST_TASKS),
            None => self.lanes * TASKS_PER_LANE,
        }
    }

    fn next_chunk(&self, chunk: usize, remaining: Option<usize>) -> usize {
        match remaining {
            // Towards the end smaller chunks, so that all lanes finish together.
            Some(left) if !self.fixed_chunk => chunk.min(left / (self.lanes * 2)).max(1),
            _ => chunk,
        }
    }

    /// Sends inputs until enough are in flight, the pool has no room, or there are no more; with `all`, until there are
    /// no more, and only then it waits for room. The first look of a thread that is inside of this already, in the code
    /// of the inputs, does nothing.
    pub(super) fn refill(&self, py: Python<'_>, all: bool) -> PyResult<Fed> {
        let Some(_turn) = self.feeding.take(py)? else { return Ok(Fed::Elsewhere) };
        loop {
            if all {
                py.check_signals()?; // Inputs without end may run no code of Python's, `itertools.count` for one.
            }
            match self.send_held(py, all) {
                Ok(true) => {}
                Ok(false) => return Ok(Fed::NoRoom),
                Err(error) => return self.stop(py, error),
            }
            let next = self.state.with(|state| {
                let wanted = all || state.flight.len() < self.most_tasks(state.chunk);
                let source = if wanted { state.source.take() } else { None };
                source.map(|source| (source, self.next_chunk(state.chunk, state.remaining)))
            });
            let Some((source, chunk)) = next else { return Ok(Fed::Enough) };
            // The source is out of the state while its code runs; a `close` that comes meanwhile is seen afterwards.
            let items = PyList::empty(py);
            let (goes_on, error) = take_inputs(source.bind(py), &items, chunk)?;
            let taken = items.len();
            // An interrupt that came while the inputs' code ran is not the inputs' own: it waits for no results.
            let (error, interrupt) = match error {
                Some(error) if !is_failure(py, &error) => (None, Some(error)),
                error => (error.map(|error| error.into_value(py).into_any()), None),
            };
            let (back, failed) = self.state.with(move |state| {
                let back = if goes_on && !state.closed { state.source.replace(source) } else { Some(source) };
                state.taken += taken;
                if let Some(left) = &mut state.remaining {
                    *left = if goes_on { left.saturating_sub(taken) } else { 0 };
                }
                (
                    back,
                    if state.closed { error } else { error.and_then(|new| state.input_error.replace(new)) },
                )
            });
            drop((back, failed));
            if let Some(interrupt) = interrupt {
                return self.stop(py, interrupt);
            }
            if taken == 0 {
                return Ok(Fed::Enough);
            }
            match self.encode(&items) {
                Ok(held) => self.state.with(move |state| state.held.extend(held)),
                Err(error) => return self.stop(py, error),
            }
        }
    }

    /// Inputs could not be sent: nothing after them may come out as if it were theirs. The results before them come
    /// first.
    fn stop(&self, py: Python<'_>, error: PyErr) -> PyResult<Fed> {
        let is_failure = is_failure(py, &error);
        let full = self.state.with(|state| !state.held.is_empty() && state.flight.is_empty());
        if full && is_failure {
            return Err(error); // There may be room later.
        }
        let error = errors::map_closed(py, error, self.state.with(|state| state.taken));
        let error = error.into_value(py).into_any();
        let (unsent, at_once) = self.state.with(move |state| {
            let unsent = (state.source.take(), std::mem::take(&mut state.held));
            if state.flight.is_empty() || !is_failure {
                return (unsent, Some(error));
            }
            // The first error counts.
            state.input_error.get_or_insert(error);
            (unsent, None)
        });
        drop(unsent);
        match at_once {
            Some(error) => Err(PyErr::from_value(error.into_bound(py))),
            None => Ok(Fed::Enough),
        }
    }

    /// Submits what is held; false if the pool has no room for all of it.
    fn send_held(&self, py: Python<'_>, all: bool) -> PyResult<bool> {
        while let Some(mut held) = self.state.with(|state| state.held.pop_front()) {
            let call = match held.what {
                Ok(call) => call,
                Err(task) => {
                    held.what = Err(Arc::clone(&task));
                    self.fly(py, held, task);
                    continue;
                }
            };
            let batch = held.flags;
            held.what = Err(Task::ended(Outcome::Cancelled));
            match self.pool.offer_in_room(py, call, batch, self.options.clone())? {
                Ok(task) => self.fly(py, held, task),
                Err(refused) => {
                    let (call, refused) = *refused;
                    held.what = Ok(call);
                    let alone = self.state.with(move |state| {
                        state.held.push_front(held);
                        state.flight.is_empty()
                    });
                    if all {
                        future::wait(py, &self.pool, &WaitFor::Space, None)?;
                    } else if alone && self.pool.engine.refuses_when_full() {
                        // Other tasks have taken the room, and the pool is set to refuse more.
                        return Err(errors::refused(py, &refused));
                    } else {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }

    fn fly(&self, py: Python<'_>, held: Held, task: Arc<Task>) {
        let flight = held.flight(task);
        let late = self.state.with(move |state| {
            if state.closed {
                return Some(flight);
            }
            state.flight.push_back(flight);
            None
        });
        if let Some(flight) = late {
            self.pool.engine.call(py, |engine| engine.cancel(&flight.task, false));
        }
    }

    fn encode(&self, items: &Bound<'_, PyList>) -> PyResult<VecDeque<Held>> {
        let py = items.py();
        // A chunk that the caller did not ask for must not show: each input has its own copy of what it mutates.
        let is_apart = self.options.writable || !self.fixed_chunk;
        if items.len() > 1
            && let Some(function) = &self.function
        {
            let engine = self.pool.engine.for_encoding();
            // SAFETY: no other code has the list, so it keeps its length and its items; each is a live object.
            let constant = || unsafe {
                (0..items.len()).all(|at| {
                    constants::is_constant(pyo3::ffi::PyList_GET_ITEM(items.as_ptr(), at.cast_signed()))
                })
            };
            let payload = if is_apart && !constant() {
                encode::payload_apart(py, engine, items, &self.careful)
            } else {
                encode::payload_like(py, engine, items, &self.careful).map(Some)
            };
            match payload {
                Ok(Some(payload)) => {
                    let star = if self.star { flags::STAR } else { 0 };
                    return Ok(VecDeque::from([Held {
                        what: Ok(Call::remote(Arc::clone(function), payload)),
                        flags: flags::BATCH | star,
                        items: items.len(),
                        batch: true,
                        inputs: Some(items.clone().unbind()),
                    }]));
                }
                Ok(None) => {}
                Err(error) if is_failure(py, &error) => {}
                Err(interrupt) => return Err(interrupt),
            }
        }
        // One by one, so that an input that cannot be sent fails alone.
        items.iter().map(|item| self.encode_one(&item)).collect()
    }

    fn encode_one(&self, item: &Bound<'_, PyAny>) -> PyResult<Held> {
        let py = item.py();
        let args = if self.star { item.cast::<PyTuple>()?.clone() } else { PyTuple::new(py, [item])? };
        let what = match self.single(py, &args) {
            Ok(call) => Ok(call),
            Err(error) if is_failure(py, &error) => Err(failed_task(py, error)),
            Err(interrupt) => return Err(interrupt),
        };
        Ok(Held { what, flags: 0, items: 1, batch: false, inputs: None })
    }

    fn single(&self, py: Python<'_>, args: &Bound<'_, PyTuple>) -> PyResult<Call> {
        let on = if self.options.backoff().is_some() { self.on.shared(py) } else { None };
        let Some(function) = &self.function else {
            let callable = self.callable.shared(py).unwrap_or_else(|| py.None());
            return self.pool.call(callable.bind(py), args, None, on.as_ref());
        };
        let parts = encode::arguments(py, args, &PyDict::new(py), on.as_ref())?;
        let payload = encode::payload_like(py, self.pool.engine.for_encoding(), &parts, &self.careful)?;
        Ok(Call::remote(Arc::clone(function), payload))
    }

    /// Sends inputs of a batch that have not been run, in the batch's place: one by one, or as a batch again.
    pub(super) fn send_again(&self, inputs: &Bound<'_, PyList>, singly: bool) -> PyResult<()> {
        let py = inputs.py();
        let held = if singly {
            inputs.iter().map(|item| self.encode_one(&item)).collect::<PyResult<VecDeque<_>>>()?
        } else {
            self.encode(inputs)?
        };
        let mut again = VecDeque::new();
        for mut held in held {
            let task = match std::mem::replace(&mut held.what, Err(Task::ended(Outcome::Cancelled))) {
                Err(task) => task,
                // No wait for room: these inputs had their place in the queue, and an event loop may be asking.
                Ok(call) => match self.pool.engine.submit_again(py, call, held.flags, self.options.clone()) {
                    Ok(task) => task,
                    // The pool was shut down meanwhile, say: these inputs were taken, and each gets an answer.
                    Err(refused) => failed_task(py, errors::refused(py, &refused.1)),
                },
            };
            again.push_back(held.flight(task));
        }
        self.state.with(move |state| {
            again.append(&mut state.flight);
            state.flight = again;
        });
        Ok(())
    }
}

impl MapIterator {
    /// Gives inputs of unknown length to the pool if no result was taken; the pool runs them at its shutdown; false if
    /// there are none. They may be without end, and this thread has other things to do.
    pub(super) fn leave_to_pool(&mut self, py: Python<'_>) -> bool {
        let left = !self.sized
            && self.buffersize.is_none()
            && self.callable.with(|callable| callable.is_some())
            && self.state.with(|state| state.source.is_some());
        let Some(unread) = self.unread.take().filter(|_| left) else { return false };
        let rest = Self {
            pool: Arc::clone(&self.pool),
            callable: Slot::new(self.callable.take()),
            function: self.function.take(),
            star: self.star,
            ordered: self.ordered,
            options: self.options.clone(),
            on: Slot::new(self.on.take()),
            deadline: self.deadline,
            fixed_chunk: self.fixed_chunk,
            lanes: self.lanes,
            buffersize: None,
            sized: false,
            as_results: self.as_results,
            started: AtomicBool::new(false),
            deserted: AtomicBool::new(false),
            careful: AtomicBool::new(false),
            results: Slot::new(self.results.take()),
            unread: Slot::new(None),
            room: Slot::default(),
            state: Slot::new(self.state.take()),
            laid: Laid::default(),
            taking: Turn::default(),
            feeding: Turn::default(),
        };
        let kept = Py::new(py, rest).and_then(|rest| unread.bind(py).append(rest));
        if let Err(error) = kept {
            error.write_unraisable(py, None);
        }
        true
    }
}

/// Appends up to `most` inputs to the list. Says whether there may be more, and what the source raised.
fn take_inputs(
    source: &Bound<'_, PyIterator>,
    items: &Bound<'_, PyList>,
    most: usize,
) -> PyResult<(bool, Option<PyErr>)> {
    let mut source = source.clone();
    while items.len() < most {
        match source.next() {
            Some(Ok(item)) => items.append(item)?,
            Some(Err(error)) => return Ok((false, Some(error))),
            None => return Ok((false, None)),
        }
    }
    Ok((true, None))
}

/// A task that has ended with this exception, and was never sent.
pub(super) fn failed_task(py: Python<'_>, error: PyErr) -> Arc<Task> {
    let value = local::opaque(error.into_value(py).into_any());
    Task::ended(Outcome::Local { value, raised: true })
}
