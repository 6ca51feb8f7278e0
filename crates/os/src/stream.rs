//! Bytes on connected sockets, without waiting and without `SIGPIPE`.
//!
//! Source: recv(2), send(2), sendmsg(2).

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, BorrowedFd};

use bytes::BufMut;

use crate::call::retry;

/// The most pieces that one call of [`send_vectored`] takes; the kernel's own limit is 1,024.
pub const MOST_PIECES: usize = 256;

fn count(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Receives at most `length` bytes; 0 is the end.
///
/// # Errors
///
/// `WouldBlock` if there is nothing; the error that ended the connection.
///
/// # Safety
///
/// `length` bytes at `buffer` may be written.
pub unsafe fn recv(fd: BorrowedFd<'_>, buffer: *mut u8, length: usize) -> io::Result<usize> {
    // SAFETY: the caller keeps this function's contract.
    retry(|| count(unsafe { libc::recv(fd.as_raw_fd(), buffer.cast(), length, libc::MSG_DONTWAIT) }))
}

/// Appends at most `most` bytes to a buffer, and no more than it has room for; 0 is the end, or a buffer without room.
///
/// # Errors
///
/// As [`recv`].
pub fn recv_buf(fd: BorrowedFd<'_>, target: &mut impl BufMut, most: usize) -> io::Result<usize> {
    let room = target.chunk_mut();
    let length = most.min(room.len());
    // SAFETY: the room is at least so long, and may be written.
    let got = unsafe { recv(fd, room.as_mut_ptr(), length)? };
    // SAFETY: so many bytes of the room were written.
    unsafe { target.advance_mut(got) };
    Ok(got)
}

/// Sends some of these bytes.
///
/// # Errors
///
/// `WouldBlock` if there is no room; the error that ended the connection.
pub fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: live bytes with their length.
    retry(|| count(unsafe { libc::send(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) }))
}

/// Sends some of these bytes, in this order; pieces beyond [`MOST_PIECES`] wait for the next call.
///
/// # Errors
///
/// As [`send`].
pub fn send_vectored(fd: BorrowedFd<'_>, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    retry(|| {
        // SAFETY: zeros are an empty header. An `IoSlice` has the layout of an `iovec`, which the call does not write,
        // and its bytes are live.
        count(unsafe {
            let mut header: libc::msghdr = std::mem::zeroed();
            header.msg_iov = pieces.as_ptr().cast_mut().cast();
            header.msg_iovlen = pieces.len().min(MOST_PIECES) as _;
            libc::sendmsg(fd.as_raw_fd(), &raw const header, flags)
        })
    })
}

/// As [`recv`]. Also returns whether the receive has stopped at a border, behind which there may be more: a Unix socket
/// passes on no bytes beyond descriptors that its peer has sent, and, if it asks for credentials, none of the next
/// writer.
///
/// # Errors
///
/// As [`recv`].
///
/// # Safety
///
/// As of [`recv`].
pub unsafe fn recv_to_border(
    fd: BorrowedFd<'_>,
    buffer: *mut u8,
    length: usize,
) -> io::Result<(usize, bool)> {
    let mut place = libc::iovec { iov_base: buffer.cast(), iov_len: length };
    // SAFETY: zeros are an empty header, without room for what comes beside the bytes; the caller keeps the contract of
    // `recv`.
    unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &raw mut place;
        header.msg_iovlen = 1;
        let got = retry(|| count(libc::recvmsg(fd.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT)))?;
        Ok((got, header.msg_flags & libc::MSG_CTRUNC != 0))
    }
}

/// Whether the descriptor is a TCP socket: there, a receive that gets less than it asks for has emptied the buffer,
/// unless the peer has sent urgent data, which the kernel reports by an event of their own.
pub fn is_tcp(fd: BorrowedFd<'_>) -> bool {
    let mut protocol: libc::c_int = 0;
    let mut size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: room for an int, and its size; the kernel checks the number.
    let got = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PROTOCOL,
            (&raw mut protocol).cast(),
            &raw mut size,
        )
    };
    got == 0 && protocol == libc::IPPROTO_TCP
}

/// Ends this side of a connection.
///
/// # Errors
///
/// `NotConnected` if the connection has ended.
pub fn shut_down_sending(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: a number; the kernel checks it.
    crate::call::check(unsafe { libc::shutdown(fd.as_raw_fd(), libc::SHUT_WR) }).map(drop)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn what_is_sent_in_pieces_arrives_in_order_and_nothing_blocks() {
        let (a, b) = UnixStream::pair().expect("a pair");
        let take = || {
            let mut taken = Vec::with_capacity(16);
            recv_buf(b.as_fd(), &mut taken, 16).map(|_| taken)
        };
        assert_eq!(take().expect_err("nothing yet").kind(), io::ErrorKind::WouldBlock);
        assert_eq!(send_vectored(a.as_fd(), &[IoSlice::new(b"he"), IoSlice::new(b"llo")]).expect("sent"), 5);
        assert_eq!(send(a.as_fd(), b"!").expect("sent"), 1);
        assert_eq!(take().expect("received"), b"hello!");
        drop(a);
        assert_eq!(take().expect("the end"), b"");
        assert_eq!(send(b.as_fd(), b"?").expect_err("no peer").kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_receive_that_may_have_stopped_at_a_border_says_so() {
        let (a, b) = UnixStream::pair().expect("a pair");
        let take = || {
            let mut buffer = [0; 16];
            // SAFETY: as much as the buffer has.
            unsafe { recv_to_border(b.as_fd(), buffer.as_mut_ptr(), 16) }
        };
        assert_eq!(take().expect_err("nothing yet").kind(), io::ErrorKind::WouldBlock);
        send(a.as_fd(), b"hello").expect("sent");
        assert_eq!(take().expect("received"), (5, false));
        let on: libc::c_int = 1;
        // SAFETY: a live int, and its size.
        let set = unsafe {
            let size = size_of::<libc::c_int>() as libc::socklen_t;
            libc::setsockopt(b.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PASSCRED, (&raw const on).cast(), size)
        };
        assert_eq!(set, 0);
        send(a.as_fd(), b"hello").expect("sent");
        assert_eq!(take().expect("received"), (5, true));
        assert!(!is_tcp(b.as_fd()));
    }
}
