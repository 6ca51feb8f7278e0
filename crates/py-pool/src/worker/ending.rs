//! Ends the call of a task in a worker of this process, by an exception that is raised between two of its steps.
//!
//! The thread that ends it belongs to another interpreter, and `PyThreadState_SetAsyncExc` reaches the threads of the
//! caller's own only. To attach to the worker's interpreter would need its GIL, which a call in C may keep for good. So
//! the interpreter gets a *pending call*, which needs no GIL: one of its threads runs it between two bytecodes. CPython
//! exports the function for that to its own extension modules; it is looked for by its name, and without it a
//! task runs on.
//!
//! **The exception hits no other task.** [`Ending::current`] is the task whose call runs. It changes under a lock, and
//! the pending call raises while it holds that lock, or in the thread of the task itself, where no task ends meanwhile.
//! What another thread of the task has raised and the task's thread has not seen is withdrawn with the task.

use std::ffi::{c_int, c_long, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use pyo3_ffi as ffi;
use ropewalk_capi::entry;
use ropewalk_capi::object::Raised;
use ropewalk_os::process::thread_ident;
use ropewalk_os::symbol;
use ropewalk_pool::{Leave, Nudge};
use ropewalk_sync::Mutex;

type Call = extern "C" fn(*mut c_void) -> c_int;
/// `_PyEval_AddPendingCall` of Python 3.13 and later; 0 when the interpreter has taken the call.
type AddPendingCall = unsafe extern "C" fn(*mut ffi::PyInterpreterState, Call, *mut c_void, c_int) -> c_int;

fn add_pending_call() -> Option<AddPendingCall> {
    static FOUND: OnceLock<Option<AddPendingCall>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        if !cfg!(Py_3_13) {
            return None;
        }
        // SAFETY: the function of that name has this type in these versions.
        symbol::find(c"_PyEval_AddPendingCall")
            .map(|found| unsafe { std::mem::transmute::<*mut c_void, AddPendingCall>(found.as_ptr()) })
    })
}

/// See the module. One for each worker of this process, for as long as it serves its lane.
#[derive(Debug)]
pub(super) struct Ending {
    leave: Arc<Leave>,
    /// The worker's interpreter. It outlives [`Nudged`], by which alone nudges come.
    interpreter: *mut ffi::PyInterpreterState,
    /// The worker's thread, as Python numbers threads.
    thread: u64,
    /// The task whose call runs; 0 for none. No Python code runs while this is locked.
    current: Mutex<u64>,
    /// Whether a pending call is on its way. A nudge that finds one does nothing: the call reads what is unwanted after
    /// it has taken this back.
    posted: AtomicBool,
}

// SAFETY: the interpreter's address is only passed on, and CPython takes it in every thread.
unsafe impl Send for Ending {}
// SAFETY: as above; the rest is shared by its own locks.
unsafe impl Sync for Ending {}

impl Nudge for Ending {
    fn nudge(self: Arc<Self>) {
        let Some(add) = add_pending_call() else { return };
        if self.posted.swap(true, Ordering::AcqRel) {
            return;
        }
        let interpreter = self.interpreter;
        let this = Arc::into_raw(self);
        // SAFETY: the interpreter lives, for `Nudged` does. The call takes over the reference, and runs at the latest
        // when the interpreter ends.
        let refused = unsafe { add(interpreter, raise, this.cast_mut().cast(), 0) != 0 };
        if refused {
            // Too many of others wait.
            // SAFETY: the reference was not taken over.
            unsafe { Arc::from_raw(this) }.posted.store(false, Ordering::Release);
        }
    }
}

/// The pending call.
#[entry]
extern "C" fn raise(this: *mut c_void) -> c_int {
    // SAFETY: the reference of `nudge`, which is given to one call.
    let this = unsafe { Arc::from_raw(this.cast::<Ending>().cast_const()) };
    this.posted.swap(false, Ordering::AcqRel);
    let current = this.current.lock();
    if *current == 0 || !this.leave.is_unwanted(*current) {
        return 0;
    }
    // SAFETY: the interpreter calls this in a thread of its own that is attached. Neither function runs Python code,
    // because the exception is one of the language's own.
    unsafe {
        let interrupt = ffi::PyExc_KeyboardInterrupt;
        if thread_ident() == this.thread {
            drop(current);
            ffi::PyErr_SetString(interrupt, c"the pool has ended this task".as_ptr());
            return -1;
        }
        ffi::PyThreadState_SetAsyncExc(this.thread as c_long, interrupt);
    }
    0
}

impl Ending {
    /// For the thread that begins to serve its lane, if its parent is in this process.
    pub(super) fn here(leave: Option<&Arc<Leave>>) -> Option<Nudged> {
        let leave = Arc::clone(leave?);
        // SAFETY: the thread is attached.
        let interpreter = unsafe { ffi::PyInterpreterState_Get() };
        let (current, posted) = (Mutex::new(0), AtomicBool::new(false));
        let ending = Arc::new(Self { leave, interpreter, thread: thread_ident(), current, posted });
        ending.leave.nudge_by(Some(Arc::clone(&ending) as Arc<dyn Nudge>));
        Some(Nudged(ending))
    }

    /// The call of this task begins, which may be interrupted from now on.
    pub(super) fn begin(&self, task: u64) -> Result<(), Raised> {
        *self.current.lock() = task;
        if self.is_unwanted(task) {
            self.end(task);
            // SAFETY: the thread is attached.
            unsafe { ffi::PyErr_SetNone(ffi::PyExc_KeyboardInterrupt) };
            return Err(Raised);
        }
        Ok(())
    }

    /// The call has ended, and is interrupted no more.
    pub(super) fn end(&self, task: u64) {
        let mut current = self.current.lock();
        *current = 0;
        if self.is_unwanted(task) {
            // SAFETY: the thread is attached. No Python code runs: what is dropped is a class of the language's own.
            unsafe { ffi::PyThreadState_SetAsyncExc(self.thread as c_long, ptr::null_mut()) };
        }
    }

    /// Whether the parent wants this task ended.
    pub(super) fn is_unwanted(&self, task: u64) -> bool {
        self.leave.is_unwanted(task)
    }
}

/// Until this is dropped, the worker's calls can be ended.
pub(super) struct Nudged(Arc<Ending>);

impl std::ops::Deref for Nudged {
    type Target = Ending;

    fn deref(&self) -> &Ending {
        &self.0
    }
}

impl Drop for Nudged {
    fn drop(&mut self) {
        self.0.leave.nudge_by(None);
    }
}
