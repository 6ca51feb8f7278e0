//! A running task calls a function of the program, and waits for the answer.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use pyo3_ffi as ffi;
use ropewalk_base::Code;
use ropewalk_pool::codec::Table;
use ropewalk_pool::wire::flags;
use ropewalk_pool::worker::{FdChannel, WorkerEnd};

use super::answer::{self, Body};
use super::tools::imported;
use super::{leases, link};
use crate::current::CurrentTask;
use crate::pickle::{self, Pickled};
use ropewalk_capi::errors::{raise, raise_text};
use ropewalk_capi::object::{Object, Raised, detached};

thread_local! {
    /// Whether this thread waits for the answer to a call.
    static WAITS: Cell<bool> = const { Cell::new(false) };
}

/// This thread waits for an answer until this is dropped.
struct Waiting;

impl Waiting {
    /// A signal's handler that runs during the wait makes no call of its own: the program answers one call of a task at
    /// a time, and would leave the first without an answer.
    fn begin() -> Result<Self, Raised> {
        if WAITS.replace(true) {
            let text = "this thread waits for the answer to another call already, and a task makes one call at a time";
            return Err(raise_text(Code::PoolError, text));
        }
        Ok(Self)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        WAITS.set(false);
    }
}

/// How long a task that waits for an answer sleeps before it lets signals' handlers run, and says that it is alive.
const SLICE: Duration = Duration::from_millis(100);

/// Makes a call: a tuple of the function's name, its arguments by position, and those by name.
pub(super) fn call(task: &CurrentTask, call: &Object) -> Result<Object, Raised> {
    let Some((end, (worker, index))) = task.lane() else {
        let text = "only the thread that runs a task can make its calls, and only while the task runs";
        return Err(raise_text(Code::PoolError, text));
    };
    let lane = leases::Lane { worker, index };
    let link = link::get()?;
    let channel = &link.channel;
    let serialize = imported(c"ropewalk.pool.wire._serialize")?;
    let encode = serialize.attribute(c"encode_call")?;
    let Pickled { stream, buffers, loans } = pickle::slowly(&encode, call.as_ptr())?;
    let most = end.borrow().max_inline();
    let sent = answer::place(stream, &buffers, &loans, most, channel)?;
    let bytes: &[u8] = match &sent.body {
        Body::Empty => &[],
        Body::Stream(stream) => stream.as_bytes().unwrap_or_default(),
        Body::Frame(bytes) => bytes,
    };
    let waiting = Waiting::begin()?;
    let number = loop {
        let mut end = end.borrow_mut();
        match end.try_call(task.id(), sent.flags, bytes).map_err(|error| raise(&error))? {
            Some(number) => break number,
            None => detached(|| end.wait_room(bytes.len())),
        }
    };
    let (bits, payload) = wait(task, &end, lane, channel, number)?;
    drop(waiting);
    drop((stream_of(sent.body), buffers));
    let answer = decode(&serialize, bits, &payload);
    promise(lane, bits, &payload);
    answer
}

fn decode(serialize: &Object, bits: u16, payload: &[u8]) -> Result<Object, Raised> {
    let payload = Object::bytes(payload)?;
    let described = bits & flags::DESCRIBED != 0;
    if bits & flags::ERROR == 0 {
        // SAFETY: both are always there.
        let described = unsafe { if described { ffi::Py_True() } else { ffi::Py_False() } };
        return serialize.attribute(c"decode_answer")?.call(&[payload.as_ptr(), described]);
    }
    // SAFETY: as above.
    let described = unsafe { if described { ffi::Py_True() } else { ffi::Py_False() } };
    serialize.attribute(c"raise_answer")?.call(&[payload.as_ptr(), described])
}

/// What keeps the bytes of a call alive until its answer is there.
fn stream_of(body: Body) -> Option<Object> {
    match body {
        Body::Stream(stream) => Some(stream),
        Body::Empty | Body::Frame(_) => None,
    }
}

/// Waits for the answer; gives its flags and its payload.
fn wait(
    task: &CurrentTask,
    end: &RefCell<WorkerEnd>,
    lane: leases::Lane,
    channel: &FdChannel,
    number: u64,
) -> Result<(u16, Vec<u8>), Raised> {
    loop {
        let came = end.borrow_mut().take_answer(number, |bits, payload| promise(lane, bits, payload));
        if let Some((bits, payload)) = came.map_err(|error| raise(&error))? {
            return Ok((bits, payload));
        }
        task.report(None);
        if end.borrow().must_leave() {
            return Err(raise_text(Code::PoolError, "the pool was ended while its program served this call"));
        }
        // What the answer needs may not fit into the socket before the rest is read.
        let _ = channel.drain();
        let mut waiting = end.borrow_mut();
        detached(|| waiting.wait_answer(SLICE));
        drop(waiting);
        // SAFETY: the thread is attached.
        if unsafe { ffi::PyErr_CheckSignals() } != 0 {
            return Err(Raised);
        }
    }
}

/// The parent keeps the lease of an answer, which has been read, until this worker reports that no view of it is left.
fn promise(lane: leases::Lane, bits: u16, payload: &[u8]) {
    if bits & flags::LEASED != 0
        && let Ok(table) = Table::parse(payload)
    {
        leases::retain_function(lane, table.lease());
    }
}
