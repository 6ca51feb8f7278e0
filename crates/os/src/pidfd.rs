//! Processes by descriptor: unlike a process id, a descriptor is never reused for another process.
//!
//! Source: pidfd_open(2), pidfd_send_signal(2).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

use crate::process::{kill_group as kill_group_of, wait_readable};

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

/// `PIDFD_SIGNAL_PROCESS_GROUP`, of Linux 6.9.
const TO_GROUP: u32 = 1 << 2;

/// Kills what is left of the process group that a process leads, or led: it may have ended, and been collected.
///
/// An older kernel has no such call. There the group is named by `pid`, the process's id, unless another process has
/// got that id since.
pub fn kill_group(fd: BorrowedFd<'_>, pid: i32) {
    let no_info = ptr::null::<libc::siginfo_t>();
    // SAFETY: a plain call on a live descriptor; no siginfo is passed.
    let sent = unsafe {
        libc::syscall(libc::SYS_pidfd_send_signal, fd.as_raw_fd(), libc::SIGKILL, no_info, TO_GROUP)
    };
    let is_unknown = sent != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL);
    // A group keeps its number from being given to a process for as long as it has members.
    if is_unknown && (!wait_readable(fd, Duration::ZERO) || open(pid).is_err()) {
        kill_group_of(pid);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use super::*;

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

    #[test]
    fn a_group_ends_after_its_leader_too() {
        use std::os::unix::process::CommandExt;
        for leader_lives in [true, false] {
            let mut leader = Command::new("sh")
                .args(["-c", "sleep 60 & echo $!; wait"])
                .process_group(0)
                .stdout(std::process::Stdio::piped())
                .spawn()
                .expect("a process");
            let mut line = String::new();
            let out = leader.stdout.take().expect("piped");
            std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).expect("a line");
            let child = open(line.trim().parse().expect("a pid")).expect("a pidfd");
            let pid = i32::try_from(leader.id()).expect("a pid");
            let fd = open(pid).expect("a pidfd");
            if !leader_lives {
                leader.kill().expect("it lives");
                leader.wait().expect("its status");
            }
            assert!(!wait_readable(child.as_fd(), Duration::ZERO));
            kill_group(fd.as_fd(), pid);
            assert!(wait_readable(child.as_fd(), Duration::from_secs(30)));
            assert!(wait_readable(fd.as_fd(), Duration::from_secs(30)));
            let _ = leader.wait();
        }
    }
}
