//! Stops a thread that the interpreter ends inside our frames.
//!
//! Before Python 3.14 a thread that asks for an interpreter which is being taken apart is ended with `pthread_exit`,
//! wherever it is: at the return from a wait, or at any bytecode of a callback that we have called. The C library
//! unwinds its stack for that. Rust's frames do not survive such an unwinding: a `catch_unwind`, of which pyo3 has one
//! around every function, aborts the process, and a destructor would touch an interpreter that the thread is not
//! attached to.
//!
//! No measure taken beforehand is enough. A thread cannot check whether the interpreter is finalizing, because
//! finalization may begin while the thread waits for its turn. And threads cannot be counted around the calls that may
//! end them, because those are all calls into Python, down to the drop of a reference.
//!
//! So this module hooks the one place that every such unwinding passes. Before the unwinder runs a destructor or a
//! `catch_unwind` of a frame, it calls the frame's *personality routine*. The compiler names the same routine for every
//! Rust frame of a shared object, through a pointer whose symbol is `DW.ref.rust_eh_personality`; the `build.rs` of
//! `crates/python` makes the linker use the pointer below in its place. Our routine stops a thread that is forced to
//! unwind, for good, and passes everything else, which is a panic, to Rust's own routine. At that point the thread
//! holds neither the interpreter nor a lock of the unwinder, its stack stays whole, and references that other threads
//! have into that stack stay valid. Python itself does this with such threads from 3.14 on. No entry point can forget
//! this, because none takes part in it, and it costs nothing until it is needed.
//!
//! A frame that needs no work when it is unwound has no personality; the unwinder passes over it, as over C's frames.
//!
//! This has a consequence for all crates above: a stopped thread never releases what it holds, so no thread may hold a
//! lock across a call into Python, or be waited for without a limit.

use std::ffi::{CStr, c_int, c_void};
use std::time::Duration;

use pyo3_ffi as ffi;

use crate::object::Raised;

/// `_UA_FORCE_UNWIND` of the Itanium C++ ABI, which unwinders follow: the unwinder ends the frames, and does not search
/// for a handler.
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

    /// The pointer that this object's frames refer to, as the linker has resolved it.
    #[link_name = "DW.ref.rust_eh_personality"]
    static IN_USE: Routine;
}

/// The pointer that the `build.rs` of `crates/python` passes to the linker.
#[used]
#[unsafe(no_mangle)]
static ROPEWALK_PERSONALITY: Routine = personality;

/// Called by the unwinder for each frame that needs work.
///
/// # Safety
///
/// Called by the unwinder, with the arguments that the ABI defines.
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
    // SAFETY: the arguments come from the unwinder.
    unsafe { rust_eh_personality(version, actions, class, exception, context) }
}

/// Waits for the end of the process, without using the heap or thread-locals.
fn stay() -> ! {
    loop {
        std::thread::sleep(Duration::MAX);
    }
}

/// The error message of a module that finds another routine in use.
const NOT_IN_PLACE: &CStr = c"this build of ropewalk is unsafe: the linker has ignored \
    --defsym=DW.ref.rust_eh_personality. Build it again with GNU ld or LLVM's lld.";

/// Whether the linker has used our routine.
fn is_in_place() -> bool {
    // SAFETY: a constant of this object, written by the loader.
    unsafe { IN_USE as usize == personality as *const () as usize }
}

/// Refuses to load a module if the linker has not used our routine: such a build would abort programs at their end.
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
