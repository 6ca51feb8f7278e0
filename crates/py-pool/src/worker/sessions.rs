//! The states of sessions in one lane of a worker: made before the first task, kept for the next ones, dropped on
//! request.
//!
//! A state belongs to the thread of its lane. `ropewalk.pool.wire._sessions` makes and closes it.

use std::cell::Cell;
use std::collections::HashMap;
use std::ptr;

use pyo3_ffi as ffi;
use ropewalk_capi::object::{Object, Raised, take_exception};
use ropewalk_pool::codec::Table;
use ropewalk_pool::wire::flags;
use ropewalk_pool::worker::Incoming;

use super::leases;
use super::serve::{Loading, Server};
use super::tools::of_sessions;

thread_local! {
    /// The session of the task that this thread runs, borrowed from its lane's `Sessions`; null while it runs none.
    static CURRENT: Cell<*mut ffi::PyObject> = const { Cell::new(ptr::null_mut()) };
}

/// The session of the task that this thread runs, or `None`.
pub(super) fn current() -> Result<Object, Raised> {
    let current = CURRENT.get();
    if current.is_null() {
        return Ok(Object::none());
    }
    // SAFETY: a `Within` of this thread lives, and its lane keeps the object for as long.
    unsafe { Object::share(current) }
}

/// Until it is dropped, this thread runs a task of a session.
pub(super) struct Within;

impl Drop for Within {
    fn drop(&mut self) {
        CURRENT.set(ptr::null_mut());
    }
}

/// What a lane knows of a session.
enum Known {
    /// Its state is to be made.
    Announced(Announced),
    /// The Python object with its state.
    Made(Object),
    /// The actor's object could not be made: the exception.
    Failed(Object),
}

struct Announced {
    /// The function that makes the state, or 0.
    function: u64,
    generation: u64,
    flags: u16,
    arguments: Object,
    /// The lease that the arguments lie in, or 0.
    lease: u64,
}

/// The sessions of one lane.
#[derive(Default)]
pub(crate) struct Sessions {
    known: HashMap<u64, Known>,
    /// The session of the tasks `OF_SESSION` that follow.
    pub(super) named: u64,
    /// Whether the running task could not be run because its actor's object could not be made.
    pub(super) unmade: bool,
}

/// The number of a session, and of its state.
fn parts(id: u64) -> (u64, u64) {
    (id & u64::from(u32::MAX), id >> 32)
}

impl Server<'_> {
    /// The parent is about to send tasks of a session.
    pub(super) fn announce(&mut self, record: Incoming) -> Result<(), Raised> {
        let end = self.end.borrow();
        let payload = end.payload();
        let leased = record.flags & flags::LEASED != 0;
        let lease = if leased { Table::parse(payload).map_or(0, |table| table.lease()) } else { 0 };
        let arguments = Object::bytes(payload);
        drop(end);
        self.end.borrow_mut().finish();
        let (session, generation) = parts(record.id);
        let announced =
            Announced { function: record.aux, generation, flags: record.flags, arguments: arguments?, lease };
        let before = self.sessions.known.insert(session, Known::Announced(announced));
        self.sessions.named = session;
        self.let_go(before);
        Ok(())
    }

    /// The parent needs a state no more.
    pub(super) fn drop_session(&mut self, session: u64) {
        let known = self.sessions.known.remove(&session);
        self.let_go(known);
    }

    /// The lane ends.
    pub(super) fn drop_sessions(&mut self) {
        for (_, known) in std::mem::take(&mut self.sessions.known) {
            self.let_go(Some(known));
        }
    }

    fn let_go(&mut self, known: Option<Known>) {
        match known {
            Some(Known::Made(session)) => {
                let closed = of_sessions(c"close").and_then(|close| close.call(&[session.as_ptr()]));
                if closed.is_err() {
                    // SAFETY: the thread is attached, an exception is set, and the object lives.
                    unsafe { ffi::PyErr_WriteUnraisable(session.as_ptr()) };
                }
            }
            Some(Known::Announced(announced)) => self.release(announced.lease),
            Some(Known::Failed(_)) | None => {}
        }
    }

    /// The parent may release a lease once no view into it is left.
    fn release(&self, lease: u64) {
        if lease != 0 {
            leases::retain_function(self.lane, lease);
        }
    }

    /// A task of a session begins: makes the state if that has not been done.
    pub(super) fn enter(&mut self) -> Result<Within, Raised> {
        let session = self.sessions.named;
        self.sessions.unmade = false;
        let (function, generation, bits, arguments, lease) = match self.sessions.known.get(&session) {
            Some(Known::Made(made)) => {
                CURRENT.set(made.as_ptr());
                return Ok(Within);
            }
            Some(Known::Failed(error)) => {
                self.sessions.unmade = true;
                let fail = of_sessions(c"fail_again")?;
                return fail.call(&[error.as_ptr()]).map(|_| Within);
            }
            Some(Known::Announced(announced)) => {
                // SAFETY: a live object.
                let arguments = unsafe { Object::share(announced.arguments.as_ptr())? };
                (announced.function, announced.generation, announced.flags, arguments, announced.lease)
            }
            None => {
                let fail = of_sessions(c"fail_unannounced")?;
                return fail.call(&[]).map(|_| Within);
            }
        };
        match self.make(function, generation, bits, &arguments) {
            Ok(made) => {
                CURRENT.set(made.as_ptr());
                let within = Within;
                let before = self.sessions.known.insert(session, Known::Made(made));
                drop((before, arguments));
                self.release(lease);
                Ok(within)
            }
            Err(Raised) if bits & flags::ACTOR != 0 => {
                // Its constructor may have had effects, so it is not called twice.
                self.sessions.unmade = true;
                let error = take_exception();
                // SAFETY: a live object.
                let kept = unsafe { Object::share(error.as_ptr())? };
                let before = self.sessions.known.insert(session, Known::Failed(kept));
                drop((before, arguments));
                self.release(lease);
                of_sessions(c"fail_again")?.call(&[error.as_ptr()]).map(|_| Within)
            }
            Err(Raised) => Err(Raised),
        }
    }

    fn make(
        &mut self,
        function: u64,
        generation: u64,
        bits: u16,
        arguments: &Object,
    ) -> Result<Object, Raised> {
        let init = if function == 0 { Object::none() } else { self.callable(function)? };
        let loading = Loading::begin();
        let described = bits & flags::DESCRIBED != 0;
        // Its views are its own to write to: no other state has them.
        let given = self.decode(arguments, described, true);
        drop(loading);
        let given = match given {
            Ok(given) => given,
            Err(Raised) => {
                let error = take_exception();
                let fail = of_sessions(c"fail_undecodable")?;
                return fail.call(&[error.as_ptr()]);
            }
        };
        // SAFETY: the thread is attached; a new reference, or null with an exception set.
        let number = unsafe { Object::own(ffi::PyLong_FromUnsignedLongLong(generation))? };
        let make = of_sessions(c"make")?;
        make.call(&[init.as_ptr(), given.as_ptr(), number.as_ptr()])
    }
}
