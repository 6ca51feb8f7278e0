//! Sleeping on a word, and waking the threads that sleep there.
//!
//! Source: futex(2).

use std::io;
use std::ptr;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// The threads that may sleep on a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Threads of this process.
    Private,
    /// Threads of every process that maps the word.
    Shared,
}

/// Why a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Wait {
    /// Another thread woke the sleeper, or it woke spuriously, which the kernel permits.
    Woken,
    /// The word did not have the expected value.
    Changed,
    /// The time is up.
    TimedOut,
    /// A signal came.
    Interrupted,
}

fn operation(base: libc::c_int, scope: Scope) -> libc::c_int {
    if scope == Scope::Private { base | libc::FUTEX_PRIVATE_FLAG } else { base }
}

/// Sleeps while the word is `expected`.
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>, scope: Scope) -> Wait {
    let limit = timeout.map(|timeout| libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(i32::try_from(timeout.subsec_nanos()).unwrap_or(0)),
    });
    let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the word is a live atomic, the timeout null or a live timespec; the kernel reads both only.
    let result = unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), operation(libc::FUTEX_WAIT, scope), expected, limit)
    };
    if result == 0 {
        return Wait::Woken;
    }
    match io::Error::last_os_error().raw_os_error() {
        Some(libc::EAGAIN) => Wait::Changed,
        Some(libc::ETIMEDOUT) => Wait::TimedOut,
        Some(libc::EINTR) => Wait::Interrupted,
        // EINVAL and EFAULT cannot come from a live, aligned word; a caller that looks again is right in any
        // case.
        _ => Wait::Woken,
    }
}

/// Wakes up to `count` waiting threads; returns how many it woke.
pub fn wake(word: &AtomicU32, count: u32, scope: Scope) -> usize {
    let count = i32::try_from(count).unwrap_or(i32::MAX);
    // SAFETY: the word is a live atomic; the kernel only uses its address.
    let woken =
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation(libc::FUTEX_WAKE, scope), count) };
    usize::try_from(woken).unwrap_or(0)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "crates above use the futex word of ropewalk-sync")]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn a_changed_word_does_not_sleep() {
        let word = AtomicU32::new(1);
        assert_eq!(wait(&word, 0, None, Scope::Private), Wait::Changed);
        assert_eq!(wait(&word, 1, Some(Duration::from_millis(1)), Scope::Private), Wait::TimedOut);
    }

    #[test]
    fn a_sleeper_is_woken() {
        let word = AtomicU32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while word.load(Ordering::Acquire) == 0 {
                    let _ = wait(&word, 0, None, Scope::Private);
                }
            });
            word.store(1, Ordering::Release);
            wake(&word, 1, Scope::Private);
        });
    }
}
