//! A lane's life: take a record, run it, answer.
//!
//! The usual path of a task is in this file. Rare cases (a function that must be loaded, buffers beside the stream, an
//! exception) are handed to `ropewalk.pool.wire._serialize`.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pyo3_ffi as ffi;
use ropewalk_base::Code;
use ropewalk_os::clock::monotonic_nanos;
use ropewalk_pool::codec::Table;
use ropewalk_pool::wire::{flags, kind};
use ropewalk_pool::worker::{FdChannel, Incoming, WorkerEnd};
use ropewalk_pool::{MOST_NOTE, Meter, Running, Tail, Times};

use super::answer::{self, Answer, Body};
use super::batch::Batch;
use super::ending::Nudged;
use super::leases;
use super::sessions::Sessions;
use super::stream::Streamed;
use super::tools::{Tools, functions, imported, of_sessions, serialize};
use crate::current;
use crate::pickle::Pickled;
use ropewalk_capi::errors::{class, raise};
use ropewalk_capi::object::{Object, Raised, detached, take_exception};

thread_local! {
    static LOADING: Cell<bool> = const { Cell::new(false) };
    /// Blocks (segment and offset) that were attached by handle while a task's arguments were decoded.
    static ATTACHED: RefCell<Vec<(u64, u64)>> = const { RefCell::new(Vec::new()) };
}

/// Counts how often a value of the program's was taken over in place of another. Read before each task of a function
/// that was sent with such values: relaxed, for the thread that has changed one reads its own count, and threads that
/// share a worker share its modules too, whatever this says.
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// Functions loaded before this may expect other values.
pub(crate) fn note_changed() {
    CHANGES.fetch_add(1, Ordering::Relaxed);
}

/// A function that the parent has sent.
pub(crate) struct Loaded {
    callable: Object,
    /// Bytes of its pickle.
    bytes: u64,
    /// The function that restores the values of the program's names that were sent with it, if there are any, and the
    /// count of changes at which they last had the expected values.
    state: Option<(Object, u64)>,
    /// Whether it is `_sessions.call_method`, which [`Tools::call_method`] does without a frame.
    calls_method: bool,
}

/// Whether a pickle may refer to anything of this package, by which the state of the program's modules travels.
fn names_us(stream: &[u8]) -> bool {
    const NAME: &[u8] = b"ropewalk";
    stream.windows(NAME.len()).any(|part| part == NAME)
}

/// Looked for at first, then less often: an idle worker costs next to nothing.
const FIRST_REST: Duration = Duration::from_millis(100);
const LONG_REST: Duration = Duration::from_secs(10);

/// Bytes of functions that were forgotten, and that only the collector frees, before it is called.
const MOST_LINGERING: u64 = 32 << 20;
/// The same for an idle worker, which has the time.
const WORTH_A_REST: u64 = 1 << 20;

/// Whether this thread of a worker is loading a function or arguments, and so perhaps importing their modules.
pub(crate) fn is_loading() -> bool {
    LOADING.get()
}

/// Until it is dropped, this thread is loading.
pub(super) struct Loading;

impl Loading {
    pub(super) fn begin() -> Self {
        LOADING.set(true);
        Self
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        LOADING.set(false);
    }
}

/// A handle was resolved in this thread.
pub(crate) fn note_attached(segment: u64, offset: u64) {
    ATTACHED.with_borrow_mut(|attached| attached.push((segment, offset)));
}

/// The outcome of a task.
enum Ended {
    /// A stream was asked to stop, and its generator is closed.
    Stopped,
    One(Object),
    Batch(Batch),
}

/// One thread of a worker.
pub(crate) struct Server<'a> {
    /// Shared with the task that runs, which may make calls.
    pub(crate) end: Rc<RefCell<WorkerEnd>>,
    pub(crate) running: Arc<Running>,
    /// Where the parent is in this process, and cannot kill the worker.
    pub(super) ending: Option<Nudged>,
    pub(crate) max_inline: usize,
    pub(crate) lane: leases::Lane,
    pub(crate) channel: &'a FdChannel,
    pub(crate) tools: Tools,
    pub(crate) functions: HashMap<u64, Result<Loaded, Object>>,
    /// Bytes of functions that this lane has forgotten since it last called the collector, and that something still
    /// refers to.
    pub(crate) lingering: u64,
    pub(crate) forks: u64,
    pub(crate) sessions: Sessions,
    /// After which exceptions the task that runs is run again, if that was said.
    pub(crate) on: Option<Object>,
    pub(crate) meter: Meter,
}

impl Server<'_> {
    /// Runs until the parent says to leave, or a signal's handler raises `SystemExit` between two tasks.
    pub(crate) fn run(&mut self) -> Result<(), Raised> {
        let mut looks = 0;
        let _serving = current::serve_lane(&self.end, (self.lane.worker, self.lane.index));
        loop {
            self.tell_released()?;
            let next = self.end.borrow_mut().try_next().map_err(|error| raise(&error))?;
            let Some(record) = next else {
                run_signal_handlers()?;
                if looks == 1 {
                    // One that cannot be mapped is no loss before a task names it.
                    let _ = self.channel.drain();
                    self.collect(WORTH_A_REST);
                }
                let mut end = self.end.borrow_mut();
                let rest = if looks == 0 { FIRST_REST } else { LONG_REST };
                detached(|| end.wait(Some(rest)));
                looks = (looks + 1).min(2);
                continue;
            };
            looks = 0;
            match record.kind {
                kind::TASK => self.task(record)?,
                kind::FUNCTION => self.load_function(record)?,
                kind::LOOK => {
                    self.end.borrow_mut().finish();
                    // A segment that cannot be read is no loss before a task names it, and then the task reports it.
                    let _ = self.channel.drain();
                }
                kind::FORGET_FUNCTION => {
                    self.end.borrow_mut().finish();
                    let forgotten = self.functions.remove(&record.aux);
                    self.lingering = self.lingering.saturating_add(lingering(forgotten.as_ref()));
                    drop(forgotten);
                    self.collect(MOST_LINGERING);
                }
                kind::SESSION => self.announce(record)?,
                kind::ENTER_SESSION => {
                    self.end.borrow_mut().finish();
                    self.sessions.named = record.aux;
                }
                kind::DROP_SESSION => {
                    self.end.borrow_mut().finish();
                    self.drop_session(record.aux);
                }
                kind::EXIT => {
                    self.end.borrow_mut().finish();
                    self.drop_sessions();
                    return Ok(());
                }
                _ => self.end.borrow_mut().finish(),
            }
        }
    }

    /// Calls the collector, once it may free more than `most` bytes of forgotten functions. The collector runs by
    /// itself after a number of objects, regardless of their size, and not in an idle worker.
    fn collect(&mut self, most: u64) {
        if self.lingering > most {
            self.lingering = 0;
            // SAFETY: the thread is attached, and no task runs in it. It does nothing where the program has switched
            // the collector off, and reports what finalizers raise.
            unsafe { ffi::PyGC_Collect() };
        }
    }

    fn load_function(&mut self, record: Incoming) -> Result<(), Raised> {
        let described = record.flags & flags::DESCRIBED != 0;
        let leased = record.flags & flags::LEASED != 0;
        let end = self.end.borrow();
        let table = if described { Table::parse(end.payload()).ok() } else { None };
        let lease = table.as_ref().filter(|_| leased).map_or(0, Table::lease);
        let inline = end.payload().len() as u64;
        let beside = table.iter().flat_map(Table::entries).filter(|entry| entry.segment != 0);
        let bytes = beside.fold(inline, |sum, entry| sum.saturating_add(entry.bytes()));
        let payload = Object::bytes(end.payload())?;
        drop(end);
        self.end.borrow_mut().finish();
        let loading = Loading::begin();
        let function = if described || names_us(payload.as_bytes().unwrap_or_default()) {
            self.load_state(&payload, described, bytes)
        } else {
            self.load_plain(&payload, bytes)
        };
        drop(loading);
        let replaced = self.functions.insert(record.aux, function.map_err(|Raised| take_exception()));
        drop(replaced);
        if lease != 0 {
            leases::retain_function(self.lane, lease);
        }
        Ok(())
    }

    /// A function that is found by its name. It runs none of our Python, whose pages the worker would have to copy.
    fn load_plain(&self, payload: &Object, bytes: u64) -> Result<Loaded, Raised> {
        let callable = self.tools.loads.call(&[payload.as_ptr()]).or_else(|Raised| {
            let error = take_exception();
            functions(c"raise_unloadable")?.call(&[error.as_ptr()])
        })?;
        Ok(Loaded { callable, bytes, state: None, calls_method: false })
    }

    /// A function that may come with values of the program's names.
    fn load_state(&self, payload: &Object, described: bool, bytes: u64) -> Result<Loaded, Raised> {
        functions(c"load").and_then(|load| {
            let pair = load.call(&[payload.as_ptr(), Self::truth(described)])?;
            let changes = CHANGES.load(Ordering::Relaxed);
            // SAFETY: a live object; PyTuple_GetItem checks that it is a pair, whose items are borrowed from it.
            let (callable, state) = unsafe {
                (
                    Object::share(ffi::PyTuple_GetItem(pair.as_ptr(), 0))?,
                    Object::share(ffi::PyTuple_GetItem(pair.as_ptr(), 1))?,
                )
            };
            let state = if state.is_none() { None } else { Some((state.attribute(c"restore")?, changes)) };
            // It is loaded here because its pickle names this package.
            let calls_method = of_sessions(c"call_method")?.as_ptr() == callable.as_ptr();
            Ok(Loaded { callable, bytes, state, calls_method })
        })
    }

    fn truth(value: bool) -> *mut ffi::PyObject {
        // SAFETY: both are always there.
        unsafe { if value { ffi::Py_True() } else { ffi::Py_False() } }
    }

    fn task(&mut self, record: Incoming) -> Result<(), Raised> {
        let mut lease = 0;
        let deadline = record.terms.deadline;
        if deadline != 0 && monotonic_nanos() >= deadline {
            // It waited behind another task, and the parent has not taken it back in time.
            self.end.borrow_mut().finish();
            let nothing = Answer { flags: flags::EMPTY | flags::FINAL, body: Body::Empty };
            return self.send(kind::DONE, record.id, 0, nothing);
        }
        ATTACHED.with_borrow_mut(Vec::clear);
        self.running.start(record.id, record.attempt, record.terms.deadline);
        let loading = Loading::begin();
        let arguments = self.arguments(record, &mut lease);
        drop(loading);
        let mut times = Times::default();
        let mut extra = 0;
        let mut answer = match arguments {
            Err(Raised) => self.undecodable(),
            Ok(arguments) => {
                self.on = retried_on(record, &arguments);
                let outcome = self.call_unless_unwanted(record, &arguments, &mut times);
                drop(arguments);
                match outcome {
                    Ok(outcome) => self.encode(outcome),
                    Err(Raised) => {
                        let error = take_exception();
                        self.tools.note_read_only(record.flags, &error);
                        extra |= self.stopped(record.id, &error);
                        self.encode_error(&error)
                    }
                }
            }
        };
        self.on = None;
        let attached = ATTACHED.take();
        if lease != 0 && leases::outlives(self.lane, lease) {
            extra |= flags::RETAINED;
        }
        if !attached.is_empty() && leases::kept(&attached) {
            extra |= flags::KEPT;
        }
        if self.sessions.unmade {
            self.sessions.unmade = false;
            extra |= flags::ACTOR;
        }
        answer.flags |= extra;
        if answer.flags & flags::ERROR != 0 {
            self.tell_lost()?;
        }
        if let Some(progress) = self.running.end() {
            let mut end = self.end.borrow_mut();
            while !end.try_progress(record.id, &progress).map_err(|error| raise(&error))? {
                detached(|| end.wait_room(MOST_NOTE));
            }
        }
        self.send_with(kind::DONE, record.id, times.aux(), answer, times.tail())
    }

    /// The flag of a task that ended with this exception because it was asked to stop.
    fn stopped(&self, task: u64, error: &Object) -> u16 {
        let stopped = self.running.stopped(task)
            && class(Code::TaskCancelled).is_ok_and(|class| {
                // SAFETY: live objects, and neither is called.
                unsafe { ffi::PyErr_GivenExceptionMatches(error.as_ptr(), class.as_ptr()) != 0 }
            });
        if stopped { flags::STOPPED } else { 0 }
    }

    fn arguments(&mut self, record: Incoming, lease: &mut u64) -> Result<Object, Raised> {
        if record.flags & flags::EMPTY != 0 {
            self.end.borrow_mut().finish();
            return Ok(Object::none());
        }
        let end = self.end.borrow();
        let payload = end.payload();
        let described = record.flags & flags::DESCRIBED != 0;
        if described {
            *lease = Table::parse(payload).map_or(0, |table| table.lease());
        }
        // Copied, for the parent can then use the ring while this is unpickled; a view of it costs more than a
        // short copy.
        let bytes = Object::bytes(payload);
        drop(end);
        self.end.borrow_mut().finish();
        self.decode(&bytes?, described, record.flags & flags::WRITABLE != 0)
    }

    /// Unpickles arguments.
    pub(super) fn decode(&self, bytes: &Object, described: bool, writable: bool) -> Result<Object, Raised> {
        if described {
            let decode = serialize(c"decode_arguments")?;
            return decode.call(&[bytes.as_ptr(), Self::truth(writable)]);
        }
        self.tools.loads.call(&[bytes.as_ptr()]).or_else(|Raised| {
            let error = take_exception();
            serialize(c"reopen")?.call(&[bytes.as_ptr(), error.as_ptr()])
        })
    }

    /// A function that the parent has sent, with the values that it expects.
    pub(super) fn callable(&mut self, function: u64) -> Result<Object, Raised> {
        let fail = |error: &Object| functions(c"raise_load_error")?.call(&[error.as_ptr()]);
        let function = match self.functions.get_mut(&function) {
            Some(Ok(function)) => function,
            Some(Err(error)) => return fail(error),
            None => return fail(&Object::none()),
        };
        if let Some((restore, seen)) = &mut function.state
            && *seen != CHANGES.load(Ordering::Relaxed)
        {
            restore.call(&[])?;
            *seen = CHANGES.load(Ordering::Relaxed);
        }
        // SAFETY: a live callable.
        unsafe { Object::share(function.callable.as_ptr()) }
    }

    /// Calls the function, and raises what ends the call before its end.
    fn call_unless_unwanted(
        &mut self,
        record: Incoming,
        arguments: &Object,
        times: &mut Times,
    ) -> Result<Ended, Raised> {
        if let Some(ending) = &self.ending {
            ending.begin(record.id)?;
        }
        let outcome = self.call(record, arguments, times);
        if let Some(ending) = &self.ending {
            ending.end(record.id);
        }
        outcome
    }

    fn call(&mut self, record: Incoming, arguments: &Object, times: &mut Times) -> Result<Ended, Raised> {
        let _within = if record.flags & flags::OF_SESSION == 0 { None } else { Some(self.enter()?) };
        let function = match self.functions.get_mut(&record.aux) {
            Some(Ok(function)) => function,
            Some(Err(error)) => {
                let fail = functions(c"raise_load_error")?;
                return fail.call(&[error.as_ptr()]).map(Ended::One);
            }
            None => {
                let fail = functions(c"raise_load_error")?;
                return fail.call(&[Object::none().as_ptr()]).map(Ended::One);
            }
        };
        if let Some((restore, seen)) = &mut function.state
            && *seen != CHANGES.load(Ordering::Relaxed)
        {
            restore.call(&[])?;
            *seen = CHANGES.load(Ordering::Relaxed);
        }
        let calls_method = function.calls_method && record.flags & flags::OF_SESSION != 0;
        let function = &function.callable;
        if record.flags & flags::TIMED != 0 {
            self.running.begin(record.terms.timeout);
        }
        let begin = self.meter.begin(record.flags & flags::MEASURED != 0);
        self.end.borrow().begin_at(record.id, begin.at);
        if record.flags & flags::BATCH != 0 {
            let end = &self.end;
            end.borrow().start_batch(record.id);
            let running = &self.running;
            let is_watched = record.flags & flags::WATCHED != 0;
            let ending = &self.ending;
            let reach = |inputs| {
                end.borrow().reach(inputs);
                if is_watched {
                    running.report(record.id, None);
                }
                !ending.as_ref().is_some_and(|ending| ending.is_unwanted(record.id))
            };
            let batch = Batch::run(&self.tools, self.forks, function, arguments, record.flags, reach);
            *times = self.meter.end(begin);
            return batch.map(Ended::Batch);
        }
        let result = if calls_method && !arguments.is_none() {
            self.tools.call_method(arguments)
        } else if arguments.is_none() {
            // SAFETY: a live callable.
            unsafe { Object::own(ffi::PyObject_CallNoArgs(function.as_ptr())) }
        } else {
            // SAFETY: the parent pickled a pair (tuple, dict); PyTuple_GetItem checks that it is a pair, and
            // PyObject_Call that its parts are what they must be.
            unsafe {
                let positional = ffi::PyTuple_GetItem(arguments.as_ptr(), 0);
                let keywords = if positional.is_null() {
                    positional
                } else {
                    ffi::PyTuple_GetItem(arguments.as_ptr(), 1)
                };
                if keywords.is_null() {
                    return Err(Raised);
                }
                Object::own(ffi::PyObject_Call(function.as_ptr(), positional, keywords))
            }
        };
        let result = if record.flags & flags::STREAM == 0 {
            result.map(Ended::One)
        } else {
            result.and_then(|returned| self.stream(&record, returned)).map(|ended| match ended {
                Streamed::Returned(value) => Ended::One(value),
                Streamed::Stopped => Ended::Stopped,
            })
        };
        *times = self.meter.end(begin);
        leave_if_forked(self.forks, &result);
        if record.flags & flags::WATCHED != 0 {
            // The result is yet to be pickled.
            self.running.report(record.id, None);
        }
        result
    }

    fn encode(&mut self, outcome: Ended) -> Answer {
        let answer = match outcome {
            Ended::Stopped => {
                Ok(Answer { flags: flags::EMPTY | flags::ERROR | flags::STOPPED, body: Body::Empty })
            }
            Ended::One(value) if value.is_none() => Ok(Answer { flags: flags::EMPTY, body: Body::Empty }),
            Ended::One(value) => self.tools.pickle(&value, 0).and_then(|pickled| {
                let Pickled { stream, buffers, loans } = pickled;
                answer::place(stream, &buffers, &loans, self.max_inline, self.channel)
            }),
            Ended::Batch(batch) => batch.encode(&self.tools, self.max_inline, self.channel),
        };
        answer.unwrap_or_else(|Raised| self.encode_error(&take_exception()))
    }

    fn undecodable(&mut self) -> Answer {
        let error = take_exception();
        let made = serialize(c"undecodable_arguments").and_then(|make| make.call(&[error.as_ptr()]));
        let error = made.unwrap_or_else(|Raised| take_exception());
        self.encode_error(&error)
    }

    fn encode_error(&self, error: &Object) -> Answer {
        let last = if self.is_retried(error) { 0 } else { flags::FINAL };
        let stream = self.tools.pickle_error(error).and_then(|pickled| {
            answer::place(pickled.stream, &[], &pickled.loans, self.max_inline, self.channel)
        });
        match stream {
            Ok(answer) => Answer { flags: answer.flags | flags::ERROR | last, body: answer.body },
            Err(Raised) => {
                drop(take_exception());
                // Not even the error could be sent: the parent makes one of an empty reply.
                Answer { flags: flags::ERROR | flags::EMPTY | last, body: Body::Empty }
            }
        }
    }

    /// Whether the task is run again after this exception, if it has runs left.
    fn is_retried(&self, error: &Object) -> bool {
        let Some(on) = &self.on else { return true };
        let asked = imported(c"ropewalk._retried")
            .and_then(|module| module.attribute(c"is_retried"))
            .and_then(|ask| ask.call(&[on.as_ptr(), error.as_ptr()]));
        match asked {
            // SAFETY: `True` is always there.
            Ok(answer) => answer.as_ptr() == unsafe { ffi::Py_True() },
            Err(Raised) => {
                drop(take_exception());
                false
            }
        }
    }

    fn send(&mut self, kind: u16, id: u64, aux: u64, answer: Answer) -> Result<(), Raised> {
        self.send_with(kind, id, aux, answer, None)
    }

    /// The same, with times of the call behind the payload; without them if they do not fit.
    fn send_with(
        &mut self,
        kind: u16,
        id: u64,
        aux: u64,
        answer: Answer,
        tail: Option<Tail>,
    ) -> Result<(), Raised> {
        let bytes: &[u8] = match &answer.body {
            Body::Empty => &[],
            Body::Stream(stream) => stream.as_bytes().unwrap_or_default(),
            Body::Frame(bytes) => bytes,
        };
        let mut end = self.end.borrow_mut();
        let tail = tail.as_ref().filter(|tail| bytes.len() + tail.len() <= end.max_inline());
        let bits = answer.flags | if tail.is_some() { flags::TIMED } else { 0 };
        let tail = tail.map_or(&[][..], |tail| &tail[..]);
        while !end.try_reply(kind, bits, id, aux, &[bytes, tail]).map_err(|error| raise(&error))? {
            detached(|| end.wait_room(bytes.len() + tail.len()));
        }
        Ok(())
    }

    fn tell_released(&mut self) -> Result<(), Raised> {
        let nothing = || Answer { flags: flags::EMPTY, body: Body::Empty };
        for release in leases::take_released(self.lane) {
            self.send(kind::RELEASE, release.count, release.lease, nothing())?;
        }
        Ok(())
    }

    /// Reports the segments that did not fit into this process, before the answer that fails for it, so that the next
    /// task gets them again.
    fn tell_lost(&mut self) -> Result<(), Raised> {
        for segment in self.channel.take_lost() {
            let nothing = Answer { flags: flags::EMPTY, body: Body::Empty };
            self.send(kind::LOST, 0, segment, nothing)?;
        }
        Ok(())
    }
}

/// Bytes of a function that may stay when this lane drops it: those of one that refers to itself. The free-threaded
/// build leaves every function to the collector that is defined in no other, and each large block of memory too, until
/// the collector, or ten more of them, show that no thread uses it.
fn lingering(forgotten: Option<&Result<Loaded, Object>>) -> u64 {
    let counted = |loaded: &Loaded| {
        // SAFETY: a live object.
        cfg!(Py_GIL_DISABLED) || unsafe { ffi::Py_REFCNT(loaded.callable.as_ptr()) } > 1
    };
    match forgotten {
        Some(Ok(loaded)) if counted(loaded) => loaded.bytes,
        _ => 0,
    }
}

/// What decides after which exceptions a task is run again: the third of its arguments, if the parent has sent three.
fn retried_on(record: Incoming, arguments: &Object) -> Option<Object> {
    if arguments.is_none() || record.flags & flags::BATCH != 0 {
        return None;
    }
    // SAFETY: a live object; both functions check that it is a tuple, and the item is borrowed from it.
    unsafe {
        if ffi::PyTuple_Size(arguments.as_ptr()) != 3 {
            ffi::PyErr_Clear();
            return None;
        }
        Object::share(ffi::PyTuple_GetItem(arguments.as_ptr(), 2)).ok()
    }
}

/// Runs the handlers of signals that have come. `SystemExit` is raised; anything else ends nothing but this look.
fn run_signal_handlers() -> Result<(), Raised> {
    // SAFETY: the thread is attached, and an exception is set where it is asked for or reported.
    unsafe {
        if ffi::PyErr_CheckSignals() == 0 {
            return Ok(());
        }
        if ffi::PyErr_ExceptionMatches(ffi::PyExc_SystemExit) != 0 {
            return Err(Raised);
        }
        if ffi::PyErr_ExceptionMatches(ffi::PyExc_KeyboardInterrupt) != 0 {
            // There is no task to interrupt.
            ffi::PyErr_Clear();
        } else {
            ffi::PyErr_WriteUnraisable(ptr::null_mut());
        }
    }
    Ok(())
}

/// Ends this process if the task forked and this is the child that returned from the task: it is no pool's worker.
pub(super) fn leave_if_forked<T>(forks: u64, result: &Result<T, Raised>) {
    if ropewalk_os::process::fork_generation() == forks {
        return;
    }
    let error = if result.is_err() { take_exception() } else { Object::none() };
    let leave = imported(c"ropewalk.pool.worker._life").and_then(|life| life.attribute(c"leave_fork"));
    let _ = leave.and_then(|leave| leave.call(&[error.as_ptr()]));
    // It has not returned, unless printing failed.
    ropewalk_os::process::exit_now(1);
}
