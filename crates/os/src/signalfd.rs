//! A signal as a descriptor.
//!
//! Source: signalfd(2).

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use crate::call::check;

fn set_of(signal: i32) -> libc::sigset_t {
    // SAFETY: the set is initialised by sigemptyset before a signal is added.
    unsafe {
        let mut set = zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal);
        set
    }
}

/// Blocks a signal in this thread and gives a non-blocking descriptor that it is read from.
///
/// # Errors
///
/// When the process is out of descriptors.
pub fn block_and_open(signal: i32) -> io::Result<OwnedFd> {
    let set = set_of(signal);
    // SAFETY: the set is initialised; the result is a fresh descriptor that no other code owns.
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut());
        let raw = check(libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK))?;
        Ok(OwnedFd::from_raw_fd(raw))
    }
}

/// Lets a signal through to this thread again.
///
/// # Errors
///
/// For a number that is no signal.
pub fn unblock(signal: i32) -> io::Result<()> {
    let set = set_of(signal);
    // SAFETY: the set is initialised.
    match unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Reads everything that is there.
pub fn drain(fd: BorrowedFd<'_>) {
    let mut info = [0_u8; size_of::<libc::signalfd_siginfo>()];
    // SAFETY: the buffer is as large as one record.
    while unsafe { libc::read(fd.as_raw_fd(), info.as_mut_ptr().cast(), info.len()) } > 0 {}
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::time::Duration;

    use super::*;
    use crate::process::wait_readable;

    #[test]
    fn a_blocked_signal_is_read_and_not_delivered() {
        let fd = block_and_open(libc::SIGUSR2).expect("a descriptor");
        // SAFETY: the signal is blocked in this thread, to which raise sends it.
        unsafe { libc::raise(libc::SIGUSR2) };
        assert!(wait_readable(fd.as_fd(), Duration::ZERO));
        drain(fd.as_fd());
        assert!(!wait_readable(fd.as_fd(), Duration::ZERO));
        unblock(libc::SIGUSR2).expect("a signal");
    }
}
