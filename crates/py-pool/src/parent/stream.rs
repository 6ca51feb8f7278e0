//! `StreamBase`: reads the items of a generator task.
//!
//! What has come is taken with one hold of the stream's lock, and laid out; a `for` loop takes it from there. What is
//! plain (bytes, texts, numbers) becomes an object when it is laid out, a pickle when its turn comes.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use pyo3::exceptions::{PyRuntimeError, PyStopIteration, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pyclass::{PyTraverseError, PyVisit};
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyString, PyTuple};
use ropewalk_capi::object::Kept;
use ropewalk_pool::wire::{flags, form};
use ropewalk_pool::{
    Credit, Failure, Item, Items, MOST_UNREAD_BYTES, Options, Refused, Reply, Task, WaitFor,
};

use super::future::{self, FutureBase};
use super::local::LocalValue;
use super::pool::{self, PoolBase, PoolInner};
use super::settings::{Chosen, TaskSettings};
use super::slot::{Slot, Turn};
use super::{decode, errors, placing, settings};

/// Seconds that a reader waits before it looks whether the stream was closed.
const LOOK: f64 = 0.1;

/// An item that has come, and what it costs.
enum Laid {
    Value(Py<PyAny>),
    Frame(Reply),
    Lost(Failure),
}

/// What a reader finds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Items are laid out; another thread may take them.
    Ready,
    /// There is nothing yet.
    Nothing,
    /// Nothing will come.
    End,
}

#[derive(Default)]
struct Reading {
    laid: VecDeque<(Laid, u64)>,
    /// The memory for what comes next.
    spare: Items,
    /// Read, and the worker does not know.
    unsaid: Credit,
    /// The end has been reported, or the reader has left.
    ended: bool,
    /// The reader has left before the end was reported.
    left: bool,
    /// The end was an exception.
    failed: bool,
}

/// Who asked for the items.
struct Of {
    task: Arc<Task>,
    pool: Arc<PoolInner>,
    future: Py<PyAny>,
}

/// See the module. `ropewalk.Stream` derives from it; only a pool makes one.
#[pyclass(frozen, subclass, weakref, module = "ropewalk._core")]
pub(crate) struct StreamBase {
    of: OnceLock<Of>,
    reading: Slot<Reading>,
    /// For one thread at a time to take what has come, so that the order stays. No thread waits while it has the turn:
    /// the event loop of a coroutine that reads, too, would stand still.
    turn: Turn,
    /// What the iteration returned.
    value: Slot<Option<Py<PyAny>>>,
    /// The future that ends when something comes, for an event loop.
    signal: Slot<Option<Py<PyAny>>>,
}

impl StreamBase {
    fn of(&self) -> PyResult<&Of> {
        self.of.get().ok_or_else(|| PyRuntimeError::new_err("only a pool can make a ropewalk.Stream"))
    }

    /// The next item that is laid out.
    fn pop(&self, py: Python<'_>, of: &Of) -> PyResult<Option<Py<PyAny>>> {
        let worth = of.task.stream().map_or(1, |stream| stream.worth_saying());
        let popped = self.reading.with(|reading| {
            let (item, cost) = reading.laid.pop_front()?;
            let unsaid = &mut reading.unsaid;
            unsaid.items += 1;
            unsaid.bytes = unsaid.bytes.saturating_add(cost);
            let say = unsaid.items >= worth || unsaid.bytes >= MOST_UNREAD_BYTES / 4;
            Some((item, say.then(|| std::mem::take(unsaid))))
        });
        let Some((item, read)) = popped else { return Ok(None) };
        // A forked child shares the memory in which this is said; only the parent's reading counts.
        if let (Some(read), Some(stream)) = (read, of.task.stream())
            && !of.pool.engine.is_forked()
        {
            stream.say_read(of.task.id, read);
        }
        match item {
            Laid::Value(value) => Ok(Some(value)),
            Laid::Frame(reply) => decode::decode(py, &reply).map(|value| Some(value.unbind())),
            Laid::Lost(failure) => Err(errors::failed(py, &failure, None)),
        }
    }

    /// Lays out what has come, and waits for nothing.
    fn refill(&self, py: Python<'_>, of: &Of) -> PyResult<Next> {
        let Some(_turn) = self.turn.take(py)? else {
            return Err(PyValueError::new_err("the stream is being iterated by this very thread already"));
        };
        let Some(stream) = of.task.stream() else { return Ok(Next::End) };
        loop {
            let (ready, ended) = self.reading.with(|reading| (!reading.laid.is_empty(), reading.ended));
            if ready || ended {
                return Ok(if ready { Next::Ready } else { Next::End });
            }
            // The stream's lock may have been another thread's at the fork.
            if of.pool.engine.is_forked() {
                return Err(errors::refused(py, &Refused::Forked));
            }
            // Looked at first: every item has come before the end.
            let done = of.task.is_done();
            let mut items = self.reading.with(|reading| std::mem::take(&mut reading.spare));
            if stream.take(&mut items) {
                let laid = lay_out(py, &mut items);
                let left = self.reading.with(move |reading| {
                    reading.spare = items;
                    // A reader that has left meanwhile wants none of it.
                    if reading.ended {
                        return Some(laid);
                    }
                    reading.laid = laid;
                    None
                });
                drop(left);
                continue;
            }
            self.reading.with(move |reading| reading.spare = items);
            return Ok(if done { Next::End } else { Next::Nothing });
        }
    }

    /// The end: what the iteration returned, or what it raised, once.
    fn end(&self, py: Python<'_>, of: &Of) -> PyResult<Option<Py<PyAny>>> {
        if self.reading.with(|reading| std::mem::replace(&mut reading.ended, true)) {
            return Ok(None);
        }
        match of.future.bind(py).call_method0("result") {
            Ok(value) => {
                let ours = value.clone().unbind();
                let before = self.value.with(move |slot| slot.replace(ours));
                drop(before);
                if value.is_none() { Ok(None) } else { Err(PyStopIteration::new_err((value.unbind(),))) }
            }
            Err(error) => Err(self.failed(py, error)),
        }
    }

    /// The iteration has ended with an exception.
    fn failed(&self, py: Python<'_>, error: PyErr) -> PyErr {
        self.reading.with(|reading| reading.failed = true);
        if !error.is_instance_of::<PyStopIteration>(py) {
            return error;
        }
        // Unchanged it would end the loop silently (PEP 479).
        let told = PyRuntimeError::new_err("the task of the stream raised StopIteration");
        told.set_cause(py, Some(error));
        told
    }

    /// The reader leaves.
    fn leave(&self, py: Python<'_>) {
        let Some(of) = self.of.get() else { return };
        let laid = self.reading.with(|reading| {
            reading.left |= !reading.ended;
            reading.ended = true;
            std::mem::take(&mut reading.laid)
        });
        let unread = of.pool.engine.call(py, |engine| engine.leave_stream(&of.task));
        drop((laid, unread));
    }
}

fn lay_out(py: Python<'_>, items: &mut Items) -> VecDeque<(Laid, u64)> {
    let mut laid = VecDeque::new();
    while let Some((item, cost)) = items.take_next() {
        laid.push_back((lay(py, item), cost));
    }
    laid
}

fn lay(py: Python<'_>, item: Item<'_>) -> Laid {
    let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
    let value = match item {
        Item::Local(value) => return Laid::Value(LocalValue::get(py, &value)),
        Item::Lost(failure) => return Laid::Lost(failure),
        Item::Record(kind, bits, bytes, segments) => match kind {
            form::BYTES => PyBytes::new(py, bytes).into_any(),
            // A worker's word: what is no text is a text with marks where it is none.
            form::TEXT => PyString::new(py, &String::from_utf8_lossy(bytes)).into_any(),
            form::INT => PyInt::new(py, number(bytes).cast_signed()).into_any(),
            form::FLOAT => PyFloat::new(py, f64::from_bits(number(bytes))).into_any(),
            form::NONE => py.None().into_bound(py),
            form::TRUE | form::FALSE => PyBool::new(py, kind == form::TRUE).to_owned().into_any(),
            _ => {
                let reply = Reply { flags: bits & flags::DESCRIBED, bytes: bytes.to_vec(), segments };
                return Laid::Frame(reply);
            }
        },
    };
    Laid::Value(value.unbind())
}

#[pymethods]
impl StreamBase {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyAny>, _kwargs: Option<&Bound<'_, PyAny>>) -> Self {
        Self {
            of: OnceLock::new(),
            reading: Slot::default(),
            turn: Turn::default(),
            value: Slot::default(),
            signal: Slot::default(),
        }
    }

    /// Submits the call whose items this reads; false if that would wait for room in the queue, and `wait` is not set.
    fn _start(
        &self,
        pool: &Bound<'_, PoolBase>,
        r#fn: &Bound<'_, PyAny>,
        args: &Bound<'_, PyTuple>,
        kwargs: &Bound<'_, PyDict>,
        settings: TaskSettings,
        wait: bool,
    ) -> PyResult<bool> {
        let py = pool.py();
        let inner = pool.get().inner()?;
        let window = settings.7;
        let Chosen { options, on } = settings::options(settings)?;
        let options = Options { stream: window, ..options };
        let placed = placing::place(inner, r#fn, Some((args, Some(kwargs))), &options)?;
        let inner = placed.as_ref().unwrap_or(inner);
        let submit = |py: Python<'_>, call| {
            if wait {
                return inner.submit(py, call, 0, options).map(Ok);
            }
            Ok(inner.offer(py, call, 0, options)?.map_err(|refused| refused.1))
        };
        let future = match pool::submit_by(inner, r#fn, args, Some(kwargs), on.as_ref(), submit)? {
            Ok(future) => future,
            Err(_) if !wait => return Ok(false),
            Err(refused) => return Err(errors::refused(py, &refused)),
        };
        let task = Arc::clone(future.cast::<FutureBase>()?.get().task()?);
        let of = Of { task, pool: Arc::clone(inner), future: future.unbind() };
        self.of.set(of).map_err(|_| PyTypeError::new_err("a stream is started once"))?;
        Ok(true)
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Waits for the next item.
    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let of = self.of()?;
        loop {
            if let Some(item) = self.pop(py, of)? {
                return Ok(Some(item));
            }
            match self.refill(py, of)? {
                Next::Ready => {}
                Next::End => return self.end(py, of),
                Next::Nothing => {
                    let what = WaitFor::Stream(Arc::clone(&of.task));
                    // Bounded, because another thread may close the stream of a task that does not end for that.
                    future::wait(py, &of.pool, &what, future::deadline(Some(LOOK)))?;
                }
            }
        }
    }

    /// The next item in a tuple, or `None` if there is none yet; raises `StopIteration` at the end.
    fn _next_nowait(&self, py: Python<'_>) -> PyResult<Option<(Py<PyAny>,)>> {
        let of = self.of()?;
        loop {
            if let Some(item) = self.pop(py, of)? {
                return Ok(Some((item,)));
            }
            match self.refill(py, of)? {
                Next::Ready => {}
                Next::Nothing => return Ok(None),
                Next::End => {
                    return match self.end(py, of)? {
                        Some(item) => Ok(Some((item,))),
                        None => Err(PyStopIteration::new_err(())),
                    };
                }
            }
        }
    }

    /// Stops the task, and drops what has not been read.
    fn close(&self, py: Python<'_>) {
        self.leave(py);
    }

    /// A future that ends when there is something to read, or the stream has ended; `None` if that is so now.
    fn _signal<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let of = self.of()?;
        let Some(signal) = of.pool.engine.call(py, |engine| engine.stream_signal(&of.task)) else {
            return Ok(None);
        };
        // Another thread may have laid out what came before the signal was asked for.
        if self.refill(py, of)? != Next::Nothing {
            return Ok(None);
        }
        // One future for each signal: the collector knows one for each task.
        if let Some(known) = self.signal.shared(py) {
            let known = known.into_bound(py);
            if known.cast::<FutureBase>()?.get().task().is_ok_and(|task| Arc::ptr_eq(task, &signal)) {
                return Ok(Some(known));
            }
        }
        let future = of.pool.future(py, signal)?;
        let ours = future.clone().unbind();
        let before = self.signal.with(move |slot| slot.replace(ours));
        drop(before);
        Ok(Some(future))
    }

    /// What the generator returned, once the stream has been read to its end.
    #[getter]
    fn value(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        if let Some(value) = self.value.shared(py) {
            return Ok(value);
        }
        let (left, failed) = self.reading.with(|reading| (reading.left, reading.failed));
        Err(errors::unfinished(py, left, failed))
    }

    /// The future of the task, whose result is what the generator returns.
    #[getter]
    fn _future(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(self.of()?.future.clone_ref(py))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.reading.visit(|reading| {
            reading.laid.iter().try_for_each(|(laid, _)| match laid {
                Laid::Value(value) => visit.call(value),
                Laid::Frame(_) | Laid::Lost(_) => Ok(()),
            })
        })?;
        self.value.visit(|value| visit.call(value))?;
        self.signal.visit(|signal| visit.call(signal))?;
        let Some(of) = self.of.get() else { return Ok(()) };
        visit.call(&of.future)?;
        // What has come and was not taken is this reader's, who alone can take it.
        of.task.stream().map_or(Ok(()), |stream| stream.visit(|value| LocalValue::show(value, &visit)))
    }

    fn __clear__(&self) {
        let laid = self.reading.with(|reading| std::mem::take(&mut reading.laid));
        drop((laid, self.value.take(), self.signal.take()));
    }
}

impl Drop for StreamBase {
    fn drop(&mut self) {
        let Some(of) = self.of.get() else { return };
        if of.task.is_done() && !of.task.stream().is_some_and(|stream| stream.has_unread()) {
            return;
        }
        Python::try_attach(|py| {
            // Python's code must not run with the exception set that unwinds the frame which drops this.
            let raised = Kept::take();
            self.leave(py);
            raised.put_back();
        });
    }
}
