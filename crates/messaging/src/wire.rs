//! The wire of a connection that leaves the process: a stream socket, or pipes in shared memory.

use std::io;
use std::io::IoSlice;
use std::os::fd::BorrowedFd;

use bytes::BufMut;
use ropewalk_os::stream;

use crate::shm_link::ShmLink;

/// A connection's bytes go in and out here. It never waits.
pub(crate) enum Wire<'a> {
    /// tcp and ipc.
    Stream(BorrowedFd<'a>),
    /// shm.
    Shm(&'a mut ShmLink),
}

impl Wire<'_> {
    /// Sends some of these bytes.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is no room; the error that ended the connection.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Stream(fd) => stream::send(*fd, bytes),
            Self::Shm(link) => link.send(bytes),
        }
    }

    /// As [`send`](Self::send), of pieces in this order.
    pub(crate) fn send_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Stream(fd) => stream::send_vectored(*fd, pieces),
            Self::Shm(link) => link.send_vectored(pieces),
        }
    }

    /// Appends at most `most` bytes to a buffer, and no more than it has room for; 0 is the end, or a buffer without
    /// room.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is nothing; the error that ended the connection.
    pub(crate) fn recv(&mut self, target: &mut impl BufMut, most: usize) -> io::Result<usize> {
        match self {
            Self::Stream(fd) => stream::recv_buf(*fd, target, most),
            Self::Shm(link) => link.recv(target, most),
        }
    }

    /// Wakes a sleeping peer for the sent bytes. Called when no more is sent for now.
    pub(crate) fn finish(&mut self) {
        if let Self::Shm(link) = self {
            link.finish();
        }
    }
}
