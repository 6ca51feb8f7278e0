//! Files as sockets get them: their bytes by `sendfile`, from the page cache and past this process's memory. And files
//! as a journal needs them: with room that is taken ahead, and a lock.
//!
//! A file that is not in the page cache is read from its disk first, and the call waits for that, also where the socket
//! does not wait.
//!
//! Source: sendfile(2), fstat(2), lseek(2), fallocate(2), flock(2), proc_locks(5).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::call::{check, retry};

/// Sends at most `most` bytes of a file, from an offset on, without using the position of the file; 0 is its end.
///
/// The call has no flag like `MSG_NOSIGNAL`: a process that sends to a peer that is gone gets `SIGPIPE`, unless it
/// ignores that signal, as Python does.
///
/// # Errors
///
/// `WouldBlock` if a socket in non-blocking mode has no room; `InvalidInput` for files that it cannot send, pipes among
/// them; the error that ended the connection.
pub fn send(to: BorrowedFd<'_>, file: BorrowedFd<'_>, offset: u64, most: usize) -> io::Result<usize> {
    let mut from = position(offset)?;
    retry(|| {
        // SAFETY: two descriptors, and a number that the call reads and writes.
        let sent = unsafe { libc::sendfile(to.as_raw_fd(), file.as_raw_fd(), &raw mut from, most) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    })
}

/// The size of a file; 0 for one that has none, such as a pipe.
///
/// # Errors
///
/// If the descriptor is not open.
pub fn size(file: BorrowedFd<'_>) -> io::Result<u64> {
    let mut found = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: room for the answer, which is written if the call succeeds.
    let found = unsafe {
        check(libc::fstat(file.as_raw_fd(), found.as_mut_ptr()))?;
        found.assume_init()
    };
    Ok(u64::try_from(found.st_size).unwrap_or(0))
}

/// A duplicate of a descriptor that the program has opened; the original stays the program's.
///
/// # Errors
///
/// The system's error if the number is no open descriptor.
pub fn duplicate(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the kernel checks the number; the result is a fresh descriptor that no other code owns.
    Ok(unsafe { OwnedFd::from_raw_fd(check(libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3))?) })
}

/// Sets the position from which the file is read and written.
///
/// # Errors
///
/// `NotSeekable` for a file that has none.
pub fn seek(file: BorrowedFd<'_>, offset: u64) -> io::Result<()> {
    let offset = position(offset)?;
    // SAFETY: a descriptor and two numbers.
    if unsafe { libc::lseek(file.as_raw_fd(), offset, libc::SEEK_SET) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Takes room on the disk for these bytes of a file, which is as large as they need afterwards. New bytes are zeros.
///
/// # Errors
///
/// `StorageFull` and `QuotaExceeded` if there is no room; `Unsupported` if the file system cannot do it.
pub fn allocate(file: BorrowedFd<'_>, from: u64, count: u64) -> io::Result<()> {
    let (from, count) = (position(from)?, position(count)?);
    // SAFETY: a descriptor and three numbers.
    retry(|| check(unsafe { libc::fallocate(file.as_raw_fd(), 0, from, count) }).map(|_| ()))
}

/// Locks a file for everybody who has this opening of it: copies of the descriptor, also those of forked children.
/// The lock ends with the last of them. `false` if another opening has it.
///
/// # Errors
///
/// If the file system has no locks.
pub fn try_lock(file: BorrowedFd<'_>) -> io::Result<bool> {
    // SAFETY: a descriptor and a number.
    match retry(|| check(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) })) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

/// Takes the lock from everybody who has this opening of the file, though copies of the descriptor live on.
///
/// # Errors
///
/// If the file system has no locks.
pub fn unlock(file: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: a descriptor and a number.
    retry(|| check(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_UN) }).map(|_| ()))
}

/// The process that has locked a file, if `/proc/locks` names it.
pub fn lock_holder(file: BorrowedFd<'_>) -> Option<u32> {
    let mut found = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: room for the answer, which is written if the call succeeds.
    let found = unsafe {
        check(libc::fstat(file.as_raw_fd(), found.as_mut_ptr())).ok()?;
        found.assume_init()
    };
    // The number of the device is left out: some file systems report another one here.
    let end = format!(":{}", found.st_ino);
    std::fs::read_to_string("/proc/locks").ok()?.lines().find_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let is_it = fields.get(1) == Some(&"FLOCK") && fields.get(5)?.ends_with(&end);
        if is_it { fields[4].parse().ok() } else { None }
    })
}

/// An offset as the kernel takes it.
fn position(offset: u64) -> io::Result<libc::off_t> {
    libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Seek, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::memfd;

    fn with(content: &[u8]) -> File {
        let mut file = File::from(memfd::create(c"file", 0, false).expect("a file"));
        file.write_all(content).expect("written");
        file
    }

    #[test]
    fn a_duplicate_outlives_the_original() {
        let file = with(b"0123");
        let own = duplicate(file.as_raw_fd()).expect("a descriptor");
        drop(file);
        assert_eq!(size(own.as_fd()).expect("its size"), 4);
        assert!(duplicate(-1).is_err());
    }

    #[test]
    fn a_part_of_a_file_is_sent_and_its_position_stays() {
        let (mut file, (a, mut b)) = (with(b"0123456789"), UnixStream::pair().expect("a pair"));
        assert_eq!(size(file.as_fd()).expect("its size"), 10);
        assert_eq!(send(a.as_fd(), file.as_fd(), 3, 4).expect("sent"), 4);
        assert_eq!(send(a.as_fd(), file.as_fd(), 8, 100).expect("sent"), 2);
        assert_eq!(send(a.as_fd(), file.as_fd(), 10, 100).expect("the end"), 0);
        drop(a);
        let mut got = Vec::new();
        b.read_to_end(&mut got).expect("received");
        assert_eq!(got, b"345689");
        assert_eq!(file.stream_position().expect("a position"), 10);
        seek(file.as_fd(), 4).expect("moved");
        assert_eq!(file.stream_position().expect("a position"), 4);
    }

    #[test]
    fn a_lock_ends_with_its_unlocking_though_a_copy_of_the_descriptor_lives() {
        let path = std::env::temp_dir().join(format!("ropewalk-unlock-{}", std::process::id()));
        let (one, other) = (File::create(&path).expect("made"), File::open(&path).expect("the same"));
        let copy = one.try_clone().expect("a copy");
        assert!(try_lock(one.as_fd()).expect("locks"));
        assert!(!try_lock(other.as_fd()).expect("locks"));
        unlock(one.as_fd()).expect("unlocked");
        assert!(try_lock(other.as_fd()).expect("locks"));
        drop(copy);
        std::fs::remove_file(&path).expect("the file");
    }

    #[test]
    fn what_cannot_be_sent_is_an_error() {
        let ((a, b), (pipe, _end)) = (UnixStream::pair().expect("a pair"), std::io::pipe().expect("a pipe"));
        assert_eq!(size(pipe.as_fd()).expect("none"), 0);
        assert!(seek(pipe.as_fd(), 0).is_err());
        let error = send(a.as_fd(), a.as_fd(), 0, 1).expect_err("a socket is no file");
        assert_ne!(error.kind(), io::ErrorKind::WouldBlock);
        let file = with(b"x");
        assert!(send(a.as_fd(), file.as_fd(), u64::MAX, 1).is_err());
        a.set_nonblocking(true).expect("set");
        while send(a.as_fd(), file.as_fd(), 0, 1).is_ok() {}
        let error = send(a.as_fd(), file.as_fd(), 0, 1).expect_err("no room");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        drop(b);
    }
}
