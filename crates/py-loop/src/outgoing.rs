//! The data that a transport has not sent yet: pieces that one system call sends together, once a turn.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;

use pyo3_ffi as ffi;
use ropewalk_os::stream::{self, MOST_PIECES};

use ropewalk_capi::object::{Object, Raised};

/// A piece: a `bytes` object, from an offset on.
struct Piece {
    bytes: Object,
    from: usize,
}

impl Piece {
    fn rest(&self) -> &[u8] {
        &self.bytes.as_bytes().unwrap_or_default()[self.from..]
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct Outgoing {
    pieces: VecDeque<Piece>,
    size: usize,
}

/// How far sending went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    All,
    /// The socket takes no more; an event will report when it does.
    Some,
}

impl Outgoing {
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Bytes.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Adds a `bytes` object that is not empty.
    pub(super) fn push(&mut self, bytes: Object) {
        self.size += bytes.as_bytes().map_or(0, <[u8]>::len);
        self.pieces.push_back(Piece { bytes, from: 0 });
    }

    /// Takes everything, to be dropped where destructors may run.
    pub(super) fn take(&mut self) -> impl Sized + use<> {
        self.size = 0;
        std::mem::take(&mut self.pieces)
    }

    /// Sends until all is sent or the socket takes no more. Pieces that were sent are handed back, to be dropped.
    pub(super) fn send(&mut self, fd: BorrowedFd<'_>, done: &mut Vec<Object>) -> io::Result<Sent> {
        while !self.pieces.is_empty() {
            let sent = if self.pieces.len() == 1 {
                stream::send(fd, self.pieces[0].rest())
            } else {
                let slices: Vec<IoSlice<'_>> =
                    self.pieces.iter().take(MOST_PIECES).map(|piece| IoSlice::new(piece.rest())).collect();
                stream::send_vectored(fd, &slices)
            };
            match sent {
                Ok(sent) => self.advance(sent, done),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Sent::Some),
                Err(error) => return Err(error),
            }
        }
        Ok(Sent::All)
    }

    fn advance(&mut self, mut sent: usize, done: &mut Vec<Object>) {
        self.size -= sent;
        while let Some(first) = self.pieces.front_mut() {
            let rest = first.rest().len();
            if sent < rest {
                first.from += sent;
                return;
            }
            sent -= rest;
            done.extend(self.pieces.pop_front().map(|piece| piece.bytes));
        }
    }
}

/// The current bytes of an object: itself if it is immutable, else a copy.
pub(super) fn frozen(data: *mut ffi::PyObject) -> Result<Object, Raised> {
    // SAFETY: a live object.
    unsafe {
        if ffi::PyBytes_CheckExact(data) != 0 {
            return Object::share(data);
        }
        let is_view = ffi::PyMemoryView_Check(data) != 0;
        if ffi::PyBytes_Check(data) == 0 && ffi::PyByteArray_Check(data) == 0 && !is_view {
            let kind = Object::share(ffi::Py_TYPE(data).cast())?.attribute(c"__name__")?;
            ffi::PyErr_Format(
                ffi::PyExc_TypeError,
                c"data argument must be a bytes-like object, not %R".as_ptr(),
                kind.as_ptr(),
            );
            return Err(Raised);
        }
        Object::own(ffi::PyBytes_FromObject(data))
    }
}
