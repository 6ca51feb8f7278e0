//! Bytes through pipes, terminals and other files that can be waited for, in non-blocking mode.
//!
//! A process that writes to a pipe without readers gets `SIGPIPE`, unless it ignores that signal, as Python does.
//!
//! Source: pipe(7), read(2), writev(2), fcntl(2).

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::call::{check, retry};
use crate::stream::MOST_PIECES;

fn count(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Reads at most `length` bytes; 0 is the end.
///
/// # Errors
///
/// `WouldBlock` if there is nothing.
///
/// # Safety
///
/// `length` bytes at `buffer` may be written.
pub unsafe fn read(fd: BorrowedFd<'_>, buffer: *mut u8, length: usize) -> io::Result<usize> {
    // SAFETY: the caller keeps this function's contract.
    retry(|| count(unsafe { libc::read(fd.as_raw_fd(), buffer.cast(), length) }))
}

/// Writes some of these bytes.
///
/// # Errors
///
/// `WouldBlock` if there is no room; `BrokenPipe` if nobody reads any more.
pub fn write(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: live bytes with their length.
    retry(|| count(unsafe { libc::write(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) }))
}

/// Writes some of these bytes, in this order; pieces beyond [`MOST_PIECES`] wait for the next call.
///
/// # Errors
///
/// As [`write()`].
pub fn write_vectored(fd: BorrowedFd<'_>, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
    let most = pieces.len().min(MOST_PIECES) as libc::c_int;
    // SAFETY: an `IoSlice` has the layout of an `iovec`, and its bytes are live.
    retry(|| count(unsafe { libc::writev(fd.as_raw_fd(), pieces.as_ptr().cast(), most) }))
}

/// The most bytes that can be in a pipe.
///
/// # Errors
///
/// If the descriptor is no pipe.
pub fn capacity(fd: BorrowedFd<'_>) -> io::Result<usize> {
    // SAFETY: a number and a command.
    let bytes = check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETPIPE_SZ) })?;
    Ok(usize::try_from(bytes).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, FromRawFd, OwnedFd};
    use std::os::unix::net::UnixStream;

    use super::*;

    fn pipe() -> (OwnedFd, OwnedFd) {
        let mut ends = [0; 2];
        // SAFETY: room for two numbers, which are fresh and owned by no other code.
        unsafe {
            check(libc::pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK | libc::O_CLOEXEC)).expect("a pipe");
            (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
        }
    }

    fn take(fd: &OwnedFd) -> io::Result<Vec<u8>> {
        let mut buffer = [0; 16];
        // SAFETY: as much as the buffer has.
        unsafe { read(fd.as_fd(), buffer.as_mut_ptr(), 16) }.map(|got| buffer[..got].to_vec())
    }

    #[test]
    fn what_is_written_in_pieces_arrives_in_order_and_nothing_blocks() {
        let (reader, writer) = pipe();
        assert_eq!(take(&reader).expect_err("nothing yet").kind(), io::ErrorKind::WouldBlock);
        assert!(capacity(reader.as_fd()).expect("a pipe") >= 4096);
        let pieces = [IoSlice::new(b"he"), IoSlice::new(b"llo")];
        assert_eq!(write_vectored(writer.as_fd(), &pieces).expect("written"), 5);
        assert_eq!(write(writer.as_fd(), b"!").expect("written"), 1);
        assert_eq!(take(&reader).expect("read"), b"hello!");
        let full = loop {
            if let Err(error) = write(writer.as_fd(), &[0; 4096]) {
                break error;
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        let (socket, _) = UnixStream::pair().expect("a pair");
        assert!(capacity(socket.as_fd()).is_err());
        drop(writer);
        while !take(&reader).expect("read").is_empty() {}
    }
}
