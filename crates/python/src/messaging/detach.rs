//! Letting the interpreter go, and coming back to it, or not.
//!
//! Before Python 3.14 a thread that comes back to an interpreter which is being taken apart is ended by unwinding it,
//! which Rust's frames do not survive: a daemon thread in `recv` would abort the process at its exit. To look whether
//! the interpreter is leaving is not enough, for it may begin to while the thread waits for its turn. So the two agree:
//!
//! - A thread that comes back counts itself in `EXPOSED`, and looks at `LEAVING` only then. If that is set it
//!   stays where it is until the process ends; else it attaches, and counts itself out. It does the same around what
//!   this door calls in Python, where the interpreter may be taken from it at any time.
//! - `leave` runs among the exit handlers, before anything is taken apart. It sets `LEAVING`, lets the interpreter go,
//!   and waits until nobody is exposed.
//!
//! Both are sequentially consistent: either the thread sees `LEAVING`, or `leave` sees the thread. `leave` is
//! registered when the door is opened, so that handlers registered later, which may wait for threads that use sockets,
//! run before it.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use pyo3::prelude::*;
use windlass_os::process::fork_generation;

use super::release;

/// Threads with frames of Rust's that wait for the interpreter, or may have to.
static EXPOSED: AtomicUsize = AtomicUsize::new(0);
/// The interpreter is about to be taken apart. Set once, by the thread that does it.
static LEAVING: AtomicBool = AtomicBool::new(false);
/// How long `leave` waits for the exposed: as long as they take to be given the interpreter, and not for ever, for what
/// they do with it is not known.
const LONGEST: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(1);

thread_local! {
    /// Whether this thread takes the interpreter apart: it closes what is left, and comes back each time.
    static IS_LAST: Cell<bool> = const { Cell::new(false) };
}

/// Whether the interpreter is about to be taken apart.
pub(crate) fn is_leaving() -> bool {
    LEAVING.load(Ordering::SeqCst)
}

/// Counts this thread among the exposed, unless it may not come back.
fn expose() -> bool {
    EXPOSED.fetch_add(1, Ordering::SeqCst);
    let stays = is_leaving() && !IS_LAST.get();
    if stays {
        cover();
    }
    !stays
}

fn cover() {
    EXPOSED.fetch_sub(1, Ordering::SeqCst);
}

/// Waits for the end of the process.
fn stay() -> ! {
    loop {
        std::thread::park();
    }
}

/// Lets the interpreter go while `work` runs.
pub(crate) fn let_go<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    let result = py.detach(|| {
        let result = work();
        if !expose() {
            stay();
        }
        result
    });
    cover();
    result
}

/// Runs something that calls Python code.
pub(crate) fn in_python<T>(py: Python<'_>, call: impl FnOnce() -> T) -> T {
    if !expose() {
        py.detach(|| stay());
    }
    let result = call();
    cover();
    result
}

/// Runs among the interpreter's exit handlers.
#[pyfunction]
#[pyo3(name = "_leave")]
fn leave(py: Python<'_>, opened: u64) {
    IS_LAST.set(true);
    release::end(py);
    LEAVING.store(true, Ordering::SeqCst);
    // A forked child has the count of its parent, but none of its threads.
    if opened == fork_generation() {
        let mut left = LONGEST;
        while EXPOSED.load(Ordering::SeqCst) > 0 && !left.is_zero() {
            py.detach(|| std::thread::sleep(STEP));
            left = left.saturating_sub(STEP);
        }
    }
}

/// Registers `leave`.
pub(crate) fn at_exit(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let leave = wrap_pyfunction!(leave, m)?;
    m.py().import("atexit")?.call_method1("register", (leave, fork_generation()))?;
    Ok(())
}
