//! Processes by descriptor: unlike a process id, a descriptor is never reused for another process.
//!
//! Source: pidfd_open(2), pidfd_send_signal(2).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

/// Opens a process. The descriptor becomes readable when the process ends.
///
/// # Errors
///
/// When there is no such process.
pub fn open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: a plain call; the result is a fresh descriptor that no other code owns. It is close-on-exec by itself.
    let raw = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    match RawFd::try_from(raw) {
        // SAFETY: as above.
        Ok(raw) if raw >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(raw) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sends a signal.
///
/// # Errors
///
/// `ESRCH` when the process has ended.
pub fn send_signal(fd: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    let no_info = ptr::null::<libc::siginfo_t>();
    // SAFETY: a plain call on a live descriptor; no siginfo is passed.
    let result = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd.as_raw_fd(), signal, no_info, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;
    use std::time::Duration;

    use super::*;
    use crate::process::wait_readable;

    #[test]
    fn a_killed_process_is_seen_to_end() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("a process");
        let fd = open(i32::try_from(child.id()).expect("a pid")).expect("a pidfd");
        assert!(!wait_readable(fd.as_fd(), Duration::ZERO));
        send_signal(fd.as_fd(), libc::SIGKILL).expect("it lives");
        assert!(wait_readable(fd.as_fd(), Duration::from_secs(30)));
        assert_eq!(child.wait().expect("its status").signal(), Some(libc::SIGKILL));
        assert_eq!(send_signal(fd.as_fd(), 0).expect_err("it is gone").raw_os_error(), Some(libc::ESRCH));
        assert!(open(i32::MAX).is_err());
    }
}
