//! How long a call may sleep at once, so that signal handlers run.
//!
//! The C part of Python's handler only sets a flag. A sleep in the kernel that has begun ends with the signal, but one
//! that begins after the flag was set goes on, and so does one that another thread's signal, or
//! `_thread.interrupt_main()`, should end. So the thread that runs handlers sleeps in slices, and looks in between.

use std::time::Duration;

use ropewalk_os::process::is_first_thread;

/// Short enough for a user who waits for Ctrl-C, long enough to cost an idle program nothing that can be measured.
const SLICE: Duration = Duration::from_millis(50);

/// The longest sleep after which this thread has to look for signals; `None` for a thread that runs no handlers.
///
/// Python runs them in its main thread. That is the process's first one, unless the interpreter is embedded in
/// another, whose sleeps a signal ends only if they have begun.
#[inline]
pub fn slice() -> Option<Duration> {
    is_first_thread().then_some(SLICE)
}
