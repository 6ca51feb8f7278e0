//! What becomes of a thread that the interpreter ends inside our frames: it stays where it is.
//!
//! Before Python 3.14 a thread that asks for an interpreter which is being taken apart is ended with `pthread_exit`,
//! wherever it is: coming back from a wait, or at any bytecode of a callback that we have called. The C library unwinds
//! its stack for that. Rust's frames do not survive such an unwinding: a `catch_unwind`, of which pyo3 has one around
//! every function, aborts the process, and a destructor would touch an interpreter that the thread does not have.
//!
//! Nothing that we could do beforehand is enough. A thread cannot look whether the interpreter is leaving, for it may
//! begin to while the thread waits for its turn; and threads cannot be counted around what may end them, for that is
//! every call into Python, down to the drop of a reference.
//!
//! So this stands at the one place that every such unwinding passes. Before the unwinder runs a destructor or a
//! `catch_unwind` of a frame, it calls the frame's *personality routine*. The compiler names the same routine for
//! every Rust frame of a shared object, through a pointer whose symbol is `DW.ref.rust_eh_personality`; the linker is
//! told (in the `build.rs` of `crates/python`) to take the pointer below in its place. Our routine stops a thread that
//! is forced to unwind, for good, and hands everything else, which is a panic, to Rust's own. The thread holds neither
//! the interpreter nor a lock of the unwinder's then, its stack stays whole, and whatever others have borrowed from
//! that stack stays valid: it is what Python does with such threads from 3.14 on. No entry point can forget this, for
//! none has a part in it, and it costs nothing until it is needed.
//!
//! A frame in which nothing has to be done when it is unwound has no personality; it is passed over, as C's are.
//!
//! What follows for everything that stands on this: a thread that was stopped never lets go of what it has, so no lock
//! may be held, and nothing waited for without an end, across a call into Python.

use std::ffi::{CStr, c_int, c_void};
use std::time::Duration;

use pyo3_ffi as ffi;

use crate::object::Raised;

/// `_UA_FORCE_UNWIND` of the Itanium C++ ABI, which unwinders follow: the frames are ended, not searched for a handler.
const FORCED: c_int = 8;

type Routine = unsafe extern "C" fn(c_int, c_int, u64, *mut c_void, *mut c_void) -> c_int;

unsafe extern "C" {
    /// Rust's own routine.
    fn rust_eh_personality(
        version: c_int,
        actions: c_int,
        class: u64,
        exception: *mut c_void,
        context: *mut c_void,
    ) -> c_int;

    /// The pointer that the frames of this object are described with, as the linker has resolved it.
    #[link_name = "DW.ref.rust_eh_personality"]
    static IN_USE: Routine;
}

/// The pointer that the `build.rs` of `crates/python` names to the linker.
#[used]
#[unsafe(no_mangle)]
static ROPEWALK_PERSONALITY: Routine = personality;

/// The unwinder's call, for each frame that has something to be done.
///
/// # Safety
///
/// Called by the unwinder, with what the ABI says.
unsafe extern "C" fn personality(
    version: c_int,
    actions: c_int,
    class: u64,
    exception: *mut c_void,
    context: *mut c_void,
) -> c_int {
    if actions & FORCED != 0 {
        stay();
    }
    // SAFETY: what the unwinder has given.
    unsafe { rust_eh_personality(version, actions, class, exception, context) }
}

/// Waits for the end of the process, without anything that may need memory or the thread's own data.
fn stay() -> ! {
    loop {
        std::thread::sleep(Duration::MAX);
    }
}

/// What a module says that finds another routine in use.
const NOT_IN_PLACE: &CStr = c"this build of ropewalk is unsafe: the linker has ignored \
    --defsym=DW.ref.rust_eh_personality. Build it again with GNU ld or LLVM's lld.";

/// Whether the linker has taken our routine.
fn is_in_place() -> bool {
    // SAFETY: a constant of this object, written by the loader.
    unsafe { IN_USE as usize == personality as *const () as usize }
}

/// Refuses to load a module where the linker has not taken our routine: such a build would abort programs at their end.
///
/// # Errors
///
/// An `ImportError` is set.
pub fn check() -> Result<(), Raised> {
    if is_in_place() {
        return Ok(());
    }
    // SAFETY: the thread is attached; a live exception class and a C string, which is copied.
    unsafe { ffi::PyErr_SetString(ffi::PyExc_ImportError, NOT_IN_PLACE.as_ptr()) };
    Err(Raised)
}
