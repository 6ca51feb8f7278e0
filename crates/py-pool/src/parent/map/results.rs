//! A map's results: waited for, opened, and laid out one by one.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use pyo3::prelude::*;
use pyo3::types::PyList;
use ropewalk_base::Code;
use ropewalk_pool::wire::flags;
use ropewalk_pool::{Engine, Outcome, Task, WaitFor};

use super::feed::Fed;
use super::{CHUNK_NS, Came, Flight, GROWTH, ITEM_NS, LARGEST_CHUNK, MapIterator, State};
use crate::parent::local::LocalValue;
use crate::parent::{decode, errors, future};

/// One `(ok, value or error)` of a batch in which some failed.
fn mixed_item(item: &Bound<'_, PyAny>) -> PyResult<Came> {
    let (ok, value): (bool, Bound<'_, PyAny>) = item.extract()?;
    if ok {
        return Ok(Came::Value(value.unbind()));
    }
    let exception = item.py().import("ropewalk.pool.wire._serialize")?.getattr("revive")?.call1((value,))?;
    Ok(Came::Failed(PyErr::from_value(exception)))
}

/// Whether a batch failed before its function was called: its inputs arrived, and one of them did not unpickle.
fn never_ran(py: Python<'_>, done: &Flight, error: &PyErr) -> PyResult<bool> {
    let raised = match done.task.outcome() {
        Some(Outcome::Replied(reply)) => reply.flags & flags::ERROR != 0,
        Some(Outcome::Local { raised, .. }) => *raised,
        _ => false,
    };
    if !raised {
        return Ok(false); // It was the answer that did not unpickle.
    }
    let class = errors::class(py, Code::DecodeError)?;
    Ok(error.is_instance(py, &class))
}

/// How many inputs of a batch its worker had begun when it died, if the others can go on: at least one, which may be
/// what killed it.
fn died_within(done: &Flight) -> Option<usize> {
    if !matches!(done.task.outcome(), Some(Outcome::Failed(failure)) if failure.took_worker()) {
        return None;
    }
    usize::try_from(done.task.record().reached).ok().filter(|begun| (1..done.items).contains(begun))
}

impl MapIterator {
    /// The outcome of the next input; `None` after the last one. The caller has the turn to take.
    pub(super) fn step(&self, py: Python<'_>, deadline: Option<Instant>) -> PyResult<Option<Came>> {
        loop {
            if let Some(came) = self.laid_out(py)? {
                return Ok(Some(came));
            }
            // C code that consumes the map, `list` for one, runs no code of Python's in which handlers would be run.
            py.check_signals()?;
            let fed = self.refill(py, false)?;
            let Some(done) = self.next_done(py, deadline, fed)? else {
                let error = self.state.with(|state| state.input_error.take());
                return match error {
                    Some(error) => Err(PyErr::from_value(error.into_bound(py))),
                    None => Ok(None),
                };
            };
            if let Some(came) = self.take_up(py, &done)? {
                return Ok(Some(came));
            }
        }
    }

    /// The outcome of a flight's only input, or `None` after a batch was laid out.
    fn take_up(&self, py: Python<'_>, done: &Flight) -> PyResult<Option<Came>> {
        self.learn(done);
        self.refill(py, false)?;
        match self.open(py, done)? {
            Some(Came::Failed(error)) if done.batch => match (&done.inputs, died_within(done)) {
                (Some(inputs), _)
                    if self.results.with(|results| results.is_some()) && never_ran(py, done, &error)? =>
                {
                    self.send_again(inputs.bind(py), true)?;
                }
                (Some(inputs), Some(begun)) if !self.fixed_chunk => {
                    // The caller did not ask for chunks: inputs that the worker had not begun go on elsewhere.
                    self.fail(py, error, begun);
                    self.send_again(&inputs.bind(py).get_slice(begun, done.items), false)?;
                }
                _ => self.fail(py, error, done.items),
            },
            came => return Ok(came),
        }
        Ok(None)
    }

    /// The same, laid out in any case.
    pub(super) fn keep(&self, py: Python<'_>, done: &Flight) -> PyResult<()> {
        match self.take_up(py, done)? {
            // Nothing else is laid out: the caller has the turn, and has checked.
            Some(Came::Value(value)) => drop(self.laid.put(py, vec![value], false)),
            Some(Came::Failed(error)) => self.fail(py, error, 1),
            None => {}
        }
        Ok(())
    }

    /// Lays out one exception for this many inputs.
    fn fail(&self, py: Python<'_>, error: PyErr, items: usize) {
        let failed = (Arc::new(error.into_value(py).into_any()), items);
        let before = self.state.with(move |state| state.failed.replace(failed));
        drop(before);
    }

    pub(super) fn wants_room(&self, fed: Fed) -> bool {
        fed == Fed::NoRoom && !self.pool.engine.refuses_when_full()
    }

    /// `None` if the pool has room by now; else a task that ends when it has, unless it has been given before.
    pub(super) fn room(&self, py: Python<'_>) -> Option<Option<Arc<Task>>> {
        if self.room.with(|room| room.as_ref().is_some_and(|room| !room.is_done())) {
            return Some(None);
        }
        let room = self.pool.engine.call(py, Engine::room)?;
        self.room.with(|slot| slot.replace(Arc::clone(&room)));
        Some(Some(room))
    }

    pub(super) fn forget_room(&self, py: Python<'_>) {
        if let Some(room) = self.room.take() {
            self.pool.engine.call(py, |engine| engine.forget_room(&room));
        }
    }

    /// The next of what a batch has brought.
    pub(super) fn laid_out(&self, py: Python<'_>) -> PyResult<Option<Came>> {
        match self.laid.next(py) {
            Some((value, false)) => return Ok(Some(Came::Value(value))),
            Some((pair, true)) => return mixed_item(pair.bind(py)).map(Some),
            None => {}
        }
        // In one step: threads take results without the turn.
        let failed = self.state.with(|state| {
            let (error, left) = state.failed.take()?;
            if left > 1 {
                state.failed = Some((Arc::clone(&error), left - 1));
            }
            Some(error)
        });
        Ok(failed.map(|error| Came::Failed(PyErr::from_value(error.bind(py).clone()))))
    }

    /// The outcome of one input, as a value or as an `Ok` or `Err`.
    pub(super) fn told(&self, py: Python<'_>, came: Came) -> PyResult<Py<PyAny>> {
        match (if self.as_results { self.results.shared(py) } else { None }, came) {
            (None, Came::Value(value)) => Ok(value),
            (None, Came::Failed(error)) => Err(error),
            (Some((ok, _)), Came::Value(value)) => ok.call1(py, (value,)),
            (Some((_, err)), Came::Failed(error)) => err.call1(py, (error.into_value(py),)),
        }
    }

    /// The next flight that has ended, of those that may be next.
    pub(super) fn take_done(&self, state: &mut State) -> Option<Flight> {
        let at = if self.ordered {
            state.flight.front()?.task.is_done().then_some(0)
        } else {
            state.flight.iter().position(|flight| flight.task.is_done())
        };
        state.flight.remove(at?)
    }

    /// The next flight that has ended, waited for; `None` when there are no more. Meanwhile what has found no room is
    /// sent as there is some.
    fn next_done(&self, py: Python<'_>, deadline: Option<Instant>, mut fed: Fed) -> PyResult<Option<Flight>> {
        loop {
            let wants_room = self.wants_room(fed);
            let (found, what) = self.state.with(|state| {
                let found = self.take_done(state);
                if found.is_some() || (state.flight.is_empty() && !wants_room) {
                    return (found, None);
                }
                let first = if self.ordered { 1 } else { state.flight.len() };
                let mut tasks = state.flight.iter().take(first).map(|flight| Arc::clone(&flight.task));
                let what = match (wants_room, self.ordered) {
                    (true, _) => Some(WaitFor::AnyOrSpace(tasks.collect())),
                    (false, true) => tasks.next().map(WaitFor::Task),
                    (false, false) => Some(WaitFor::Any(tasks.collect())),
                };
                (None, what)
            });
            let Some(what) = what else { return Ok(found) };
            if !future::wait(py, &self.pool, &what, deadline)? {
                return Err(errors::result_timeout());
            }
            if wants_room {
                fed = self.refill(py, false)?;
            }
        }
    }

    fn learn(&self, done: &Flight) {
        // One that failed as a whole says nothing about the time that an input takes.
        let answered = matches!(done.task.outcome(), Some(Outcome::Replied(_) | Outcome::Local { .. }));
        if self.fixed_chunk || !answered {
            return;
        }
        let each = done.task.record().busy_ns / done.items.max(1) as u64 + ITEM_NS;
        let wanted = usize::try_from(CHUNK_NS / each).unwrap_or(LARGEST_CHUNK);
        let items = done.items;
        self.state.with(|state| {
            state.chunk = wanted.clamp(1, (items * GROWTH).max(state.chunk)).min(LARGEST_CHUNK);
        });
    }

    /// The outcome of a task of one item, or `None` after a batch's list was laid out.
    fn open(&self, py: Python<'_>, done: &Flight) -> PyResult<Option<Came>> {
        let came = match done.task.outcome() {
            Some(Outcome::Replied(reply)) if reply.flags & flags::ERROR != 0 => {
                Came::Failed(PyErr::from_value(decode::decode_error(py, reply)?))
            }
            Some(Outcome::Replied(reply)) => {
                match Came::of(py, decode::decode(py, reply).map(Bound::unbind))? {
                    Came::Value(values) if done.batch => {
                        self.lay_out(
                            done,
                            values.bind(py).cast::<PyList>()?,
                            reply.flags & flags::MIXED != 0,
                        )?;
                        return Ok(None);
                    }
                    came => came,
                }
            }
            Some(Outcome::Local { value, raised: false }) => {
                let value = LocalValue::get(py, value);
                if done.batch {
                    // The thread that has decoded it gives pairs.
                    self.lay_out(done, value.bind(py).cast::<PyList>()?, true)?;
                    return Ok(None);
                }
                Came::Value(value)
            }
            Some(Outcome::Local { value, raised: true }) => {
                Came::Failed(PyErr::from_value(LocalValue::get(py, value).into_bound(py)))
            }
            Some(Outcome::Failed(failure)) => Came::Failed(errors::failed(py, failure, Some(&done.task))),
            Some(Outcome::Cancelled) | None => Came::Failed(errors::cancelled(py)),
        };
        Ok(Some(came))
    }

    /// Takes a batch's results in. A worker that met a failure may have left the rest of the batch for another time.
    fn lay_out(&self, done: &Flight, values: &Bound<'_, PyList>, mixed: bool) -> PyResult<()> {
        let count = values.len();
        let fresh = values.iter().map(Bound::unbind).collect();
        drop(self.laid.put(values.py(), fresh, mixed));
        match &done.inputs {
            Some(inputs) if (1..done.items).contains(&count) => {
                let rest = inputs.bind(values.py()).get_slice(count, done.items);
                self.send_again(&rest, false)
            }
            _ => Ok(()),
        }
    }

    /// Cancels what has not started, and ends what runs too, if asked.
    pub(super) fn cancel(&self, py: Python<'_>, flights: &VecDeque<Flight>, running: bool) {
        let tasks: Vec<_> = flights.iter().map(|flight| &flight.task).collect();
        self.pool.engine.call(py, |engine| {
            for task in tasks {
                engine.cancel(task, running);
            }
        });
    }
}
