//! `PoolBase`: submission, and what a pool shares with its futures.

use std::collections::HashMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use pyo3::PyTypeInfo;
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::pyclass::{PyTraverseError, PyVisit};
use pyo3::types::{PyDict, PyString, PyTuple, PyType};
use ropewalk_base::ResultExt;
use ropewalk_pool::{
    Call, Config, Engine, Handed, Health, OnCrash, Opaque, Options, Outcome, Overflow, Payload, Refused,
    Seats, Source, Spawn, Task, WaitFor, ZygoteCommand,
};
use ropewalk_sync::Mutex;

use super::calls::Waits;
use super::encode::Lent;
use super::engine::EngineHandle;
use super::functions::Functions;
use super::future::{self, FutureBase};
use super::handle::PoolHandle;
use super::life::{LifeSettings, life};
use super::local::{self, LocalCall};
use super::placing::{self, Placing};
use super::session::{SessionBase, SessionSettings};
use super::settings::{Chosen, Retries, TaskSettings, limit, options};
use super::slot::Slot;
use super::{encode, errors};
use crate::worker::serve;

/// How deep pools may stand in the workers of others.
const MOST_NESTED: u32 = 4;

/// A task, or a call that a full queue gave back.
pub(crate) type Offered = Result<Arc<Task>, Box<(Call, Refused)>>;

/// The state that a pool and its futures share.
pub(crate) struct PoolInner {
    pub(crate) engine: EngineHandle,
    pub(crate) functions: Functions,
    /// Where threads of this process take their places as workers, if it has such workers.
    pub(crate) seats: Option<Arc<Seats>>,
    /// Which calls another pool runs.
    pub(crate) placing: Option<Placing>,
    future_type: Py<PyType>,
    /// In how many workers, one inside the other, this pool was made; 0 in the program itself.
    depth: u32,
    /// Futures whose end must be reported, kept alive until they are done.
    ///
    /// Not shown to the collector: their tasks are pending, and their callbacks are still to be called.
    pub(super) watched: Slot<HashMap<u64, Py<FutureBase>>>,
    /// Starts the collector's thread; called with a handle, for one that it kept would keep this alive.
    start_collector: Slot<Option<Py<PyAny>>>,
    /// What threads that serve calls of tasks wait for in this pool.
    pub(super) waits: Waits,
}

impl PoolInner {
    pub(crate) fn kind(&self) -> &'static str {
        self.engine.capabilities().kind
    }

    /// Puts a future on the collector's list; false if its task is done already.
    pub(crate) fn watch(
        self: &Arc<Self>,
        future: &Bound<'_, FutureBase>,
        task: &Arc<Task>,
    ) -> PyResult<bool> {
        let py = future.py();
        if task.is_done() {
            return Ok(false);
        }
        if self.engine.start_collecting() {
            let start = self.start_collector.take();
            if let Some(start) = start
                && let Err(error) = start.bind(py).call1((PoolHandle { inner: Arc::clone(self) },))
            {
                // No thread is left, say: the next one that asks tries again.
                let before = self.start_collector.with(move |slot| slot.replace(start));
                drop(before);
                self.engine.call(py, Engine::stop_collecting);
                return Err(error);
            }
        }
        let (id, watched) = (task.id, future.clone().unbind());
        let before = self.watched.with(move |all| all.insert(id, watched));
        drop(before);
        if task.watch() {
            return Ok(true);
        }
        let removed = self.watched.with(|all| all.remove(&task.id));
        drop(removed);
        Ok(false)
    }

    /// The future of a task.
    pub(crate) fn future<'py>(
        self: &Arc<Self>,
        py: Python<'py>,
        task: Arc<Task>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let future = self.empty_future(py)?;
        future.get().fill(task, Arc::clone(self));
        Ok(future.into_any())
    }

    /// A future that is yet to be filled with its task.
    fn empty_future<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, FutureBase>> {
        let class = self.future_type.bind(py);
        // SAFETY: the class is a subclass of FutureBase, whose tp_new takes any tuple; going through it directly leaves
        // out concurrent.futures.Future.__init__, which makes the condition that we make only on demand.
        let object = unsafe {
            let class = class.as_type_ptr();
            let Some(new) = (*class).tp_new else {
                return Err(PyTypeError::new_err("the future class cannot be made"));
            };
            let empty = PyTuple::empty(py);
            Bound::from_owned_ptr_or_err(py, new(class, empty.as_ptr(), std::ptr::null_mut()))?
        };
        // SAFETY: `PoolBase::new` has checked that the class derives from FutureBase.
        Ok(unsafe { object.cast_into_unchecked::<FutureBase>() })
    }

    /// Submits, and waits for room if the pool is set to.
    pub(crate) fn submit(
        &self,
        py: Python<'_>,
        call: Call,
        task_flags: u16,
        options: Options,
    ) -> PyResult<Arc<Task>> {
        let mut call = call;
        loop {
            let refused = match self.offer(py, call, task_flags, options.clone())? {
                Ok(task) => return Ok(task),
                Err(refused) => refused,
            };
            if !self.engine.waits_for_room() {
                return Err(errors::refused(py, &refused.1));
            }
            call = refused.0;
            future::wait(py, self, &WaitFor::Space, None)?;
        }
    }

    /// Submits without waiting; gives the call back if there is no room.
    pub(crate) fn offer(
        &self,
        py: Python<'_>,
        call: Call,
        task_flags: u16,
        options: Options,
    ) -> PyResult<Offered> {
        self.offered(py, |engine| engine.submit(py, call, task_flags, options))
    }

    /// The same, and no other task is dropped for it.
    pub(crate) fn offer_in_room(
        &self,
        py: Python<'_>,
        call: Call,
        task_flags: u16,
        options: Options,
    ) -> PyResult<Offered> {
        self.offered(py, |engine| engine.submit_in_room(py, call, task_flags, options))
    }

    fn offered(
        &self,
        py: Python<'_>,
        submit: impl FnOnce(&EngineHandle) -> Result<Arc<Task>, Box<(Call, Refused)>>,
    ) -> PyResult<Offered> {
        if self.engine.is_asleep() {
            self.awaken(py)?;
        }
        match submit(&self.engine) {
            Ok(task) => Ok(Ok(task)),
            // Its calls that wait fail in the same way.
            Err(refused) if matches!(refused.1, Refused::Lost(_)) => {
                let Refused::Lost(failure) = refused.1 else { unreachable!("it was looked at") };
                Ok(Ok(Task::ended(Outcome::Failed(failure))))
            }
            Err(refused) if matches!(refused.1, Refused::Full(..) | Refused::MustWait(..)) => {
                Ok(Err(refused))
            }
            Err(refused) => Err(errors::refused(py, &refused.1)),
        }
    }

    /// Starts the workers of a pool inside of a worker, unless that would go on without end.
    fn awaken(&self, py: Python<'_>) -> PyResult<()> {
        if serve::is_loading() {
            return Err(errors::nested(
                py,
                "a worker imports the module that uses this pool, and the pool's workers would import it again, and so \
                 on without end. Move that use under `if __name__ == \"__main__\":`, or into a function.",
            ));
        }
        if self.depth > MOST_NESTED {
            let message = format!(
                "this pool would be the {}th inside of another's workers, which looks like tasks that start pools \
                 without end. Make the pool in the program itself, or use kind=\"thread\" in the tasks.",
                self.depth
            );
            return Err(errors::nested(py, &message));
        }
        self.engine.call(py, Engine::awaken).map_err(|error| errors::from_base(py, &error))
    }

    /// Encodes a call for where this pool runs it, with what decides after which exceptions it is run again.
    pub(crate) fn call(
        &self,
        callable: &Bound<'_, PyAny>,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
        on: Option<&Py<PyAny>>,
    ) -> PyResult<Call> {
        let py = callable.py();
        let kwargs = kwargs.filter(|kwargs| !kwargs.is_empty());
        if !self.engine.capabilities().encodes {
            let call = LocalCall {
                callable: callable.clone().unbind(),
                args: args.clone().unbind(),
                kwargs: kwargs.map(|kwargs| kwargs.clone().unbind()),
                context: local::context(py)?,
                on: on.map(|on| on.clone_ref(py)),
            };
            return Ok(Call::Local(Mutex::new(Some(Opaque::new(call)))));
        }
        let function = self.functions.get(self.engine.for_encoding(), callable)?;
        let payload = if args.is_empty() && kwargs.is_none() && on.is_none() {
            Payload { flags: ropewalk_pool::wire::flags::EMPTY, ..Payload::default() }
        } else {
            let keywords = match kwargs {
                Some(kwargs) => kwargs.clone(),
                None => PyDict::new(py),
            };
            let parts = encode::arguments(py, args, &keywords, on)?;
            encode::payload(py, self.engine.for_encoding(), &parts)?
        };
        Ok(Call::remote(function, payload))
    }
}

/// See the module; the Python class `ropewalk.Pool` derives from it.
///
/// Its class calls itself by the name that programs know, which stands in the errors of `submit`'s arguments.
#[pyclass(frozen, subclass, weakref, name = "Pool", module = "ropewalk._core")]
pub(crate) struct PoolBase {
    /// Empty until `Pool.__init__` has checked the settings: a subclass may give that method others than its own.
    started: OnceLock<Started>,
}

struct Started {
    inner: Arc<PoolInner>,
    defaults: Options,
    /// After which exceptions tasks are run again, if that was said.
    on: Slot<Option<Py<PyAny>>>,
}

/// The settings of a pool, as the Python class has checked them.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Settings<'py> {
    name: String,
    workers: usize,
    threads: usize,
    capacity: Option<usize>,
    overflow: String,
    break_on_crash: bool,
    task_timeout: Option<f64>,
    retries: Retries,
    priority: i32,
    writable: bool,
    deadline: Option<f64>,
    client: Option<String>,
    share: u32,
    aging: Option<f64>,
    buffersize: u32,
    hang_timeout: Option<f64>,
    poison_after: Option<u32>,
    max_restarts: Option<(u32, f64)>,
    records: usize,
    cpu_time: bool,
    grace: f64,
    life: LifeSettings,
    depth: u32,
    future: Bound<'py, PyType>,
    start_collector: Py<PyAny>,
    /// `(program, args, env, spec, lent, descriptors)` of a process pool.
    spawn: Option<SpawnSettings>,
    /// Whether threads of Python's side serve its workers, which are actors of a Ray cluster.
    actors: bool,
    /// `(spec, lent)` of a pool of interpreters.
    interpreters: Option<(Vec<u8>, Py<Lent>)>,
    /// Chooses the pool for calls that its workers cannot run.
    fallback: Option<Py<PyAny>>,
}

type SpawnSettings = (String, Vec<String>, Vec<(String, Option<String>)>, Vec<u8>, Py<Lent>, Vec<i32>);

/// Longer than any program runs, and short enough to be added to the time of day.
pub(super) const FOREVER: Duration = Duration::from_secs(1 << 40);

/// A descriptor of its own for one that Python code keeps.
fn duplicate(py: Python<'_>, fd: i32) -> PyResult<OwnedFd> {
    // SAFETY: Python code holds it open during this call; -1, which a BorrowedFd must not be, is refused before.
    let borrowed = (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) });
    let borrowed = borrowed.ok_or_else(|| errors::value_error("a descriptor cannot be negative"))?;
    let copy = borrowed.try_clone_to_owned();
    copy.context("could not duplicate a descriptor for the pool's workers")
        .map_err(|error| errors::from_base(py, &error))
}

#[pymethods]
impl PoolBase {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Self {
        Self { started: OnceLock::new() }
    }

    fn __getattr__(slf: &Bound<'_, Self>, name: &Bound<'_, PyString>) -> PyResult<Py<PyAny>> {
        Err(errors::no_attribute(slf.as_any(), name))
    }

    /// Starts the pool with settings that `Pool.__init__` has checked.
    fn _start(&self, py: Python<'_>, settings: Settings<'_>) -> PyResult<()> {
        if self.started.get().is_some() {
            return Err(PyRuntimeError::new_err("Pool.__init__() was called twice"));
        }
        if !settings.future.is_subclass(&FutureBase::type_object(py))? {
            return Err(PyTypeError::new_err("the future class must derive from FutureBase"));
        }
        let spawn = settings.spawn.map(|(program, args, env, spec, lent, handed)| -> PyResult<Spawn> {
            let env = env.into_iter().map(|(name, value)| (name.into(), value.map(Into::into)));
            Ok(Spawn {
                source: Source::Zygote(ZygoteCommand {
                    program: program.into(),
                    args: args.into_iter().map(Into::into).collect(),
                    env: env.collect(),
                }),
                spec: spec.into(),
                segments: lent.get().loans.segments.clone(),
                blocks: lent.get().loans.blocks.clone(),
                handed: Handed::new(handed.into_iter().map(|fd| duplicate(py, fd)).collect::<PyResult<_>>()?),
            })
        });
        let spawn = spawn.transpose()?;
        let seats = settings.interpreters.is_some().then(|| Arc::new(Seats::default()));
        let here = settings.interpreters.zip(seats.clone()).map(|((spec, lent), seats)| Spawn {
            source: Source::Seats(seats),
            spec: spec.into(),
            segments: lent.get().loans.segments.clone(),
            blocks: lent.get().loans.blocks.clone(),
            handed: Arc::default(),
        });
        let config = Config {
            name: settings.name.into(),
            workers: settings.workers,
            threads: settings.threads,
            capacity: settings.capacity,
            overflow: match settings.overflow.as_str() {
                "error" => Overflow::Error,
                "drop_oldest" => Overflow::DropOldest,
                _ => Overflow::Block,
            },
            grace: limit("grace", Some(settings.grace))?.unwrap_or(FOREVER),
            on_crash: if settings.break_on_crash { OnCrash::Break } else { OnCrash::Replace },
            lazy: settings.depth > 0,
            aging: limit("aging", settings.aging)?,
            life: life(settings.life)?,
            health: Health {
                poison_after: settings.poison_after,
                max_restarts: match settings.max_restarts {
                    Some((most, seconds)) => {
                        limit("max_restarts", Some(seconds))?.map(|within| (most, within))
                    }
                    None => None,
                },
            },
            records: settings.records,
            cpu_time: settings.cpu_time,
        };
        let Chosen { options: defaults, on } = options(TaskSettings(
            settings.task_timeout,
            settings.retries,
            settings.priority,
            settings.writable,
            settings.deadline,
            settings.client,
            settings.share,
            settings.buffersize,
            None,
            settings.hang_timeout,
        ))?;
        let start = || match (spawn, here) {
            (Some(spawn), _) => Engine::of_processes(config, spawn),
            (None, Some(here)) => Engine::of_interpreters(config, here),
            (None, None) if settings.actors => Engine::of_ray(config),
            (None, None) => Engine::of_threads(config),
        };
        let engine = py.detach(start).map_err(|error| errors::from_base(py, &error))?;
        let inner = Arc::new(PoolInner {
            engine: EngineHandle::new(engine),
            seats,
            placing: settings.fallback.map(Placing::new),
            functions: Functions::default(),
            future_type: settings.future.unbind(),
            depth: settings.depth,
            watched: Slot::default(),
            start_collector: Slot::new(Some(settings.start_collector)),
            waits: Waits::default(),
        });
        let started = self.started.set(Started { inner, defaults, on: Slot::new(on) });
        started.map_err(|_| PyRuntimeError::new_err("Pool.__init__() was called twice"))
    }

    /// Submits a call, and returns the future of its result at once.
    ///
    /// The function and its arguments are pickled now: what changes afterwards does not reach the task. What cannot be
    /// sent fails the future with `EncodeError`. If the pool was made with a ``capacity``, a full queue makes the call
    /// wait for room, or raise `QueueFull`, as ``overflow`` says. `submit_nowait` never waits, and `submit_async`
    /// is awaited.
    ///
    /// Args:
    ///     fn: what to call; any callable, a lambda or a closure too.
    ///     args: its arguments by position.
    ///     kwargs: its arguments by name.
    ///
    /// Raises:
    ///     PoolClosed: after `shutdown`.
    ///     PoolBroken: if the pool can run nothing any more.
    ///     QueueFull: if the queue is full and the pool was made with ``overflow="error"``.
    ///
    /// Examples:
    ///     >>> import ropewalk
    ///     >>> with ropewalk.Pool(2) as pool:
    ///     ...     pool.submit(pow, 2, 10).result()
    ///     1024
    #[pyo3(signature = (r#fn, /, *args, **kwargs))]
    fn submit<'py>(
        &self,
        r#fn: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let started = self.started()?;
        let options = started.defaults.clone();
        let on = if options.backoff().is_some() { started.on.shared(r#fn.py()) } else { None };
        submit_with(&started.inner, r#fn, args, kwargs, Chosen { options, on })
    }

    /// Submits a call with options other than the pool's.
    fn _submit<'py>(
        &self,
        r#fn: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
        settings: TaskSettings,
    ) -> PyResult<Bound<'py, PyAny>> {
        submit_with(self.inner()?, r#fn, args, kwargs, options(settings)?)
    }

    /// As `_submit`, without waiting for room: `None` if there is none.
    fn _try_submit<'py>(
        &self,
        r#fn: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
        settings: TaskSettings,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(try_submit_with(self.inner()?, r#fn, args, kwargs, options(settings)?, PoolInner::offer)?.ok())
    }

    /// As `_try_submit`, but no task is dropped for this one.
    fn _submit_in_room<'py>(
        &self,
        r#fn: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
        settings: TaskSettings,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let offer = PoolInner::offer_in_room;
        Ok(try_submit_with(self.inner()?, r#fn, args, kwargs, options(settings)?, offer)?.ok())
    }

    /// As `_try_submit`, but a full queue is an error.
    fn _submit_nowait<'py>(
        &self,
        r#fn: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
        settings: TaskSettings,
    ) -> PyResult<Bound<'py, PyAny>> {
        let made = try_submit_with(self.inner()?, r#fn, args, kwargs, options(settings)?, PoolInner::offer)?;
        made.map_err(|refused| errors::refused(r#fn.py(), &refused))
    }

    /// Whether a submission waits for room in a full queue.
    #[getter]
    fn _waits_for_room(&self) -> PyResult<bool> {
        Ok(self.inner()?.engine.waits_for_room())
    }

    /// A future that ends when a submission need not wait for room any more; `None` if it need not now.
    fn _room<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let inner = self.inner()?;
        inner.engine.call(py, Engine::room).map(|room| inner.future(py, room)).transpose()
    }

    /// Ends a future of `_room` that is not waited for any more.
    fn _forget_room(&self, py: Python<'_>, room: &Bound<'_, FutureBase>) -> PyResult<()> {
        let task = room.get().task()?;
        self.inner()?.engine.call(py, |engine| engine.forget_room(task));
        Ok(())
    }

    /// Opens a session; `given` has the arguments of `init`, and the session's key; `tasks` are the settings of its
    /// tasks.
    fn _open_session(
        &self,
        py: Python<'_>,
        settings: SessionSettings<'_>,
        init: Option<&Bound<'_, PyAny>>,
        given: &Bound<'_, PyTuple>,
        tasks: TaskSettings,
    ) -> PyResult<SessionBase> {
        SessionBase::open(py, self.inner()?, settings, init, given, tasks)
    }

    /// The part of the pool that outlives the Python object, for its threads.
    fn _handle(&self) -> PyResult<PoolHandle> {
        Ok(PoolHandle { inner: Arc::clone(self.inner()?) })
    }

    /// Shuts the pool down and waits until every task is done.
    ///
    /// If an exception leaves the block, or one is raised while this waits (by Ctrl-C, say), the tasks that have not
    /// started are cancelled, and those that still run after the pool's ``grace`` are ended.
    #[pyo3(signature = (kind, value, traceback, /))]
    fn __exit__(
        slf: &Bound<'_, Self>,
        kind: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let _ = (value, traceback);
        // Not in Python, where an interrupt may be raised before the first step: the pool would stay open.
        let Err(error) = slf.call_method1("_leave", (!kind.is_none(),)) else { return Ok(()) };
        match slf.call_method0("_cut_short") {
            Ok(_) => Err(error),
            Err(second) => {
                slf.call_method1("terminate", (false,))?;
                Err(second)
            }
        }
    }

    // Of all that share the inner part, this object alone shows what is in it, for there is one such object.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Some(Started { inner, on, .. }) = self.started.get() else { return Ok(()) };
        on.visit(|on| visit.call(on))?;
        inner.functions.visit(&visit)?;
        if let Some(placing) = &inner.placing {
            placing.visit(&visit)?;
        }
        inner.start_collector.visit(|start| visit.call(start))
    }

    fn __clear__(&self) {
        self.forget_functions();
        drop(self.started.get().map(|started| started.on.take()));
    }
}

/// Otherwise a function that holds a future of this pool would keep itself alive when it can no longer be submitted.
impl Drop for PoolBase {
    fn drop(&mut self) {
        self.forget_functions();
    }
}

impl PoolBase {
    #[inline]
    fn started(&self) -> PyResult<&Started> {
        self.started.get().ok_or_else(|| PyRuntimeError::new_err("Pool.__init__() was not called"))
    }

    #[inline]
    pub(crate) fn inner(&self) -> PyResult<&Arc<PoolInner>> {
        Ok(&self.started()?.inner)
    }

    fn forget_functions(&self) {
        if let Some(started) = self.started.get() {
            started.inner.functions.clear();
            if let Some(placing) = &started.inner.placing {
                placing.clear();
            }
        }
    }
}

pub(super) fn submit_with<'py>(
    inner: &Arc<PoolInner>,
    callable: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
    Chosen { options, on }: Chosen,
) -> PyResult<Bound<'py, PyAny>> {
    let placed = placing::place(inner, callable, Some((args, kwargs)), &options)?;
    let inner = placed.as_ref().unwrap_or(inner);
    let submit = |py: Python<'_>, call| inner.submit(py, call, 0, options).map(Ok);
    let made = submit_by(inner, callable, args, kwargs, on.as_ref(), submit)?;
    made.map_err(|refused| errors::refused(callable.py(), &refused))
}

/// The same without waiting for room.
fn try_submit_with<'py>(
    inner: &Arc<PoolInner>,
    callable: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
    Chosen { options, on }: Chosen,
    offer: impl FnOnce(&PoolInner, Python<'_>, Call, u16, Options) -> PyResult<Offered>,
) -> PyResult<Result<Bound<'py, PyAny>, Refused>> {
    let placed = placing::place(inner, callable, Some((args, kwargs)), &options)?;
    let inner = placed.as_ref().unwrap_or(inner);
    let submit = |py: Python<'_>, call| Ok(offer(inner, py, call, 0, options)?.map_err(|refused| refused.1));
    submit_by(inner, callable, args, kwargs, on.as_ref(), submit)
}

/// Encodes a call and submits it, in this way; or says why that has no task of it.
pub(super) fn submit_by<'py>(
    inner: &Arc<PoolInner>,
    callable: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
    on: Option<&Py<PyAny>>,
    submit: impl FnOnce(Python<'py>, Call) -> PyResult<Result<Arc<Task>, Refused>>,
) -> PyResult<Result<Bound<'py, PyAny>, Refused>> {
    let py = callable.py();
    // Made before the task is there. What this thread does after the submission, a thread that takes the task at once
    // has to wait for, as it needs the interpreter; and to wait for the interpreter costs half a round trip.
    let future = inner.empty_future(py)?;
    let task = match inner.call(callable, args, kwargs, on) {
        Ok(call) => submit(py, call)?,
        // An interrupt while the arguments were pickled, say.
        Err(error) if !error.is_instance_of::<pyo3::exceptions::PyException>(py) => return Err(error),
        Err(error) if inner.engine.call(py, Engine::is_closed) => {
            drop(error);
            return Err(errors::refused(py, &Refused::Closed));
        }
        // Like the standard library's: what cannot be sent fails its future, not the submission.
        Err(error) => {
            let value = local::opaque(error.into_value(py).into_any());
            Ok(Task::ended(Outcome::Local { value, raised: true }))
        }
    };
    Ok(task.map(|task| {
        future.get().fill(task, Arc::clone(inner));
        future.into_any()
    }))
}
