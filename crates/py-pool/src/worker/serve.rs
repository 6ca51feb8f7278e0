//! A lane's life: take a record, run it, answer.
//!
//! The usual path of a task is in this file. Rare cases (a function that must be loaded, buffers beside the stream, an
//! exception) are handed to `ropewalk.pool.wire._serialize`.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::CStr;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pyo3_ffi as ffi;
use ropewalk_pool::codec::{Table, loans as lending};
use ropewalk_pool::wire::{flags, kind};
use ropewalk_pool::worker::{FdChannel, Incoming, WorkerEnd};

use super::answer::{self, Answer, Body};
use super::batch::Batch;
use super::leases;
use crate::pickle::{self, Pickled, Pickler, has_connection};
use ropewalk_capi::errors::raise;
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
}

/// A module that the zygote has imported; found without the machinery of imports, which would cost a worker pages.
fn imported(name: &CStr) -> Result<Object, Raised> {
    // SAFETY: plain calls of the C API; the second gives null without an exception where there is no such module.
    unsafe {
        let text = Object::own(ffi::PyUnicode_FromString(name.as_ptr()))?;
        let found = ffi::PyImport_GetModule(text.as_ptr());
        if found.is_null() && ffi::PyErr_Occurred().is_null() {
            return Object::own(ffi::PyImport_ImportModule(name.as_ptr()));
        }
        Object::own(found)
    }
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
struct Loading;

impl Loading {
    fn begin() -> Self {
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

/// The Python objects that the loop needs.
pub(crate) struct Tools {
    pickler: Pickler,
    loads: Object,
    serialize: Object,
    functions: Object,
    leave_fork: Object,
}

impl Tools {
    pub(crate) fn load(module: &Object) -> Result<Self, Raised> {
        let pickle = imported(c"_pickle")?;
        Ok(Self {
            pickler: Pickler::new(pickle.attribute(c"dumps")?, module.attribute(c"_keep_buffer")?)?,
            loads: pickle.attribute(c"loads")?,
            serialize: imported(c"ropewalk.pool.wire._serialize")?,
            functions: imported(c"ropewalk.pool.wire._functions")?,
            leave_fork: imported(c"ropewalk.pool.worker._life")?.attribute(c"leave_fork")?,
        })
    }

    /// Adds the cure to an error of a task with these flags that may come of writing to its read-only arguments.
    pub(super) fn note_read_only(&self, task: u16, error: &Object) {
        if task & (flags::DESCRIBED | flags::WRITABLE) == flags::DESCRIBED {
            let noted =
                self.serialize.attribute(c"note_read_only").and_then(|note| note.call(&[error.as_ptr()]));
            if noted.is_err() {
                drop(take_exception());
            }
        }
    }

    /// A pickle with nothing beside it.
    pub(super) fn dump(&self, object: &Object) -> Result<Object, Raised> {
        self.pickler.dump(object.as_ptr())
    }

    /// Pickles a result that goes beside `others` buffers: as an encoding of its own, which lends what it refers to.
    pub(super) fn pickle(&self, value: &Object, others: usize) -> Result<Pickled, Raised> {
        let first = self.pickler.pickle(value.as_ptr(), others, |stream| !has_connection(stream))?;
        match first {
            Some(pickled) => Ok(pickled),
            None => pickle::slowly(&self.serialize.attribute(c"encode_result")?, value.as_ptr()),
        }
    }

    /// Pickles an exception, with its traceback as text.
    pub(super) fn pickle_error(&self, error: &Object) -> Result<Pickled, Raised> {
        let encode = self.serialize.attribute(c"encode_error")?;
        let (stream, loans) = lending::during(|| encode.call(&[error.as_ptr()]));
        Ok(Pickled { stream: stream?, buffers: Vec::new(), loans })
    }
}

/// The outcome of a task.
enum Ended {
    One(Object),
    Batch(Batch),
}

/// One thread of a worker.
pub(crate) struct Server<'a> {
    pub(crate) end: WorkerEnd,
    pub(crate) lane: usize,
    pub(crate) channel: &'a FdChannel,
    pub(crate) tools: Tools,
    pub(crate) functions: HashMap<u64, Result<Loaded, Object>>,
    /// Bytes of functions that this lane has forgotten since it last called the collector, and that something still
    /// refers to.
    pub(crate) lingering: u64,
    pub(crate) forks: u64,
}

impl Server<'_> {
    /// Runs until the parent says to leave, or a signal's handler raises `SystemExit` between two tasks.
    pub(crate) fn run(&mut self) -> Result<(), Raised> {
        let mut looks = 0;
        loop {
            self.tell_released()?;
            let next = self.end.try_next().map_err(|error| raise(&error))?;
            let Some(record) = next else {
                run_signal_handlers()?;
                if looks == 1 {
                    // One that cannot be mapped is no loss before a task names it.
                    let _ = self.channel.drain();
                    self.collect(WORTH_A_REST);
                }
                let end = &mut self.end;
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
                    self.end.finish();
                    // A segment that cannot be read is no loss before a task names it, and then the task reports it.
                    let _ = self.channel.drain();
                }
                kind::FORGET_FUNCTION => {
                    self.end.finish();
                    let forgotten = self.functions.remove(&record.aux);
                    self.lingering = self.lingering.saturating_add(lingering(forgotten.as_ref()));
                    drop(forgotten);
                    self.collect(MOST_LINGERING);
                }
                kind::EXIT => {
                    self.end.finish();
                    return Ok(());
                }
                _ => self.end.finish(),
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
        let table = if described { Table::parse(self.end.payload()).ok() } else { None };
        let lease = table.as_ref().filter(|_| leased).map_or(0, Table::lease);
        let inline = self.end.payload().len() as u64;
        let beside = table.iter().flat_map(Table::entries).filter(|entry| entry.segment != 0);
        let bytes = beside.fold(inline, |sum, entry| sum.saturating_add(entry.bytes()));
        let payload = Object::bytes(self.end.payload())?;
        self.end.finish();
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
            self.tools.functions.attribute(c"raise_unloadable")?.call(&[error.as_ptr()])
        })?;
        Ok(Loaded { callable, bytes, state: None })
    }

    /// A function that may come with values of the program's names.
    fn load_state(&self, payload: &Object, described: bool, bytes: u64) -> Result<Loaded, Raised> {
        self.tools.functions.attribute(c"load").and_then(|load| {
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
            Ok(Loaded { callable, bytes, state })
        })
    }

    fn truth(value: bool) -> *mut ffi::PyObject {
        // SAFETY: both are always there.
        unsafe { if value { ffi::Py_True() } else { ffi::Py_False() } }
    }

    fn task(&mut self, record: Incoming) -> Result<(), Raised> {
        let mut lease = 0;
        ATTACHED.with_borrow_mut(Vec::clear);
        let loading = Loading::begin();
        let arguments = self.arguments(record, &mut lease);
        drop(loading);
        let mut busy = 0;
        let mut extra = 0;
        let mut answer = match arguments {
            Err(Raised) => self.undecodable(),
            Ok(arguments) => {
                let outcome = self.call(record, &arguments, &mut busy);
                drop(arguments);
                match outcome {
                    Ok(outcome) => self.encode(outcome),
                    Err(Raised) => {
                        let error = take_exception();
                        self.tools.note_read_only(record.flags, &error);
                        self.encode_error(&error)
                    }
                }
            }
        };
        let attached = ATTACHED.take();
        if lease != 0 && leases::outlives(self.lane, lease) {
            extra |= flags::RETAINED;
        }
        if !attached.is_empty() && leases::kept(&attached) {
            extra |= flags::KEPT;
        }
        answer.flags |= extra;
        if answer.flags & flags::ERROR != 0 {
            self.tell_lost()?;
        }
        self.send(kind::DONE, record.id, busy, answer)
    }

    fn arguments(&mut self, record: Incoming, lease: &mut u64) -> Result<Object, Raised> {
        if record.flags & flags::EMPTY != 0 {
            self.end.finish();
            return Ok(Object::none());
        }
        let payload = self.end.payload();
        let described = record.flags & flags::DESCRIBED != 0;
        if described {
            *lease = Table::parse(payload).map_or(0, |table| table.lease());
        }
        // Copied, for the parent can then use the ring while this is unpickled; a view of it costs more than a
        // short copy.
        let bytes = Object::bytes(payload);
        self.end.finish();
        let bytes = bytes?;
        if described {
            let decode = self.tools.serialize.attribute(c"decode_arguments")?;
            let writable = Self::truth(record.flags & flags::WRITABLE != 0);
            return decode.call(&[bytes.as_ptr(), writable]);
        }
        self.tools.loads.call(&[bytes.as_ptr()]).or_else(|Raised| {
            let error = take_exception();
            self.tools.serialize.attribute(c"reopen")?.call(&[bytes.as_ptr(), error.as_ptr()])
        })
    }

    fn call(&mut self, record: Incoming, arguments: &Object, busy: &mut u64) -> Result<Ended, Raised> {
        let function = match self.functions.get_mut(&record.aux) {
            Some(Ok(function)) => function,
            Some(Err(error)) => {
                let fail = self.tools.functions.attribute(c"raise_load_error")?;
                return fail.call(&[error.as_ptr()]).map(Ended::One);
            }
            None => {
                let fail = self.tools.functions.attribute(c"raise_load_error")?;
                return fail.call(&[Object::none().as_ptr()]).map(Ended::One);
            }
        };
        if let Some((restore, seen)) = &mut function.state
            && *seen != CHANGES.load(Ordering::Relaxed)
        {
            restore.call(&[])?;
            *seen = CHANGES.load(Ordering::Relaxed);
        }
        let function = &function.callable;
        if record.flags & flags::TIMED != 0 {
            self.end.begin(record.id);
        }
        let start = Instant::now();
        if record.flags & flags::BATCH != 0 {
            let end = &self.end;
            end.start_batch(record.id);
            let reach = |inputs| end.reach(inputs);
            let batch = Batch::run(&self.tools, self.forks, function, arguments, record.flags, reach);
            *busy = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
            return batch.map(Ended::Batch);
        }
        let result = if arguments.is_none() {
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
        *busy = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        leave_if_forked(&self.tools, self.forks, &result);
        result.map(Ended::One)
    }

    fn encode(&mut self, outcome: Ended) -> Answer {
        let answer = match outcome {
            Ended::One(value) if value.is_none() => Ok(Answer { flags: flags::EMPTY, body: Body::Empty }),
            Ended::One(value) => self.tools.pickle(&value, 0).and_then(|pickled| {
                let Pickled { stream, buffers, loans } = pickled;
                answer::place(stream, &buffers, &loans, self.end.max_inline(), self.channel)
            }),
            Ended::Batch(batch) => batch.encode(&self.tools, self.end.max_inline(), self.channel),
        };
        answer.unwrap_or_else(|Raised| self.encode_error(&take_exception()))
    }

    fn undecodable(&mut self) -> Answer {
        let error = take_exception();
        let made = self
            .tools
            .serialize
            .attribute(c"undecodable_arguments")
            .and_then(|make| make.call(&[error.as_ptr()]));
        let error = made.unwrap_or_else(|Raised| take_exception());
        self.encode_error(&error)
    }

    fn encode_error(&self, error: &Object) -> Answer {
        let stream = self.tools.pickle_error(error).and_then(|pickled| {
            answer::place(pickled.stream, &[], &pickled.loans, self.end.max_inline(), self.channel)
        });
        match stream {
            Ok(answer) => Answer { flags: answer.flags | flags::ERROR, body: answer.body },
            Err(Raised) => {
                drop(take_exception());
                // Not even the error could be sent: the parent makes one of an empty reply.
                Answer { flags: flags::ERROR | flags::EMPTY, body: Body::Empty }
            }
        }
    }

    fn send(&mut self, kind: u16, id: u64, aux: u64, answer: Answer) -> Result<(), Raised> {
        let bytes: &[u8] = match &answer.body {
            Body::Empty => &[],
            Body::Stream(stream) => stream.as_bytes().unwrap_or_default(),
            Body::Frame(bytes) => bytes,
        };
        let end = &mut self.end;
        while !end.try_reply(kind, answer.flags, id, aux, &[bytes]).map_err(|error| raise(&error))? {
            detached(|| end.wait_room(bytes.len()));
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
pub(super) fn leave_if_forked(tools: &Tools, forks: u64, result: &Result<Object, Raised>) {
    if ropewalk_os::process::fork_generation() == forks {
        return;
    }
    let error = if result.is_err() { take_exception() } else { Object::none() };
    let _ = tools.leave_fork.call(&[error.as_ptr()]);
    // It has not returned, unless printing failed.
    ropewalk_os::process::exit_now(1);
}
