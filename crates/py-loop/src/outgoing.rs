//! The data that a transport is to send, and those that it could not send yet: pieces that one system call sends
//! together.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;

use pyo3_ffi as ffi;
use ropewalk_os::pipe;
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
    /// The rest waits for the next turn of the loop.
    Share,
}

/// What one sender may send in a turn of the loop. A peer that reads as fast as it is sent to would hold the loop
/// otherwise, for as long as there are data.
pub(super) struct Share {
    calls: u32,
    bytes: usize,
}

impl Share {
    /// As much as the kernel's buffers of a connection take by default.
    const BYTES: usize = 4 << 20;
    const CALLS: u32 = 16;

    pub(super) fn new() -> Self {
        Self { calls: Self::CALLS, bytes: Self::BYTES }
    }

    /// Of these bytes, those that the next system call may send.
    pub(super) fn of<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[..bytes.len().min(self.bytes)]
    }

    /// Of so many bytes, or of any number, how many the next system call may send.
    pub(super) fn at_most(&self, left: Option<u64>) -> usize {
        left.and_then(|left| usize::try_from(left).ok()).map_or(self.bytes, |left| left.min(self.bytes))
    }

    /// Counts a system call that has sent so many bytes; returns whether there may be another one.
    pub(super) fn spend(&mut self, bytes: usize) -> bool {
        self.calls -= 1;
        self.bytes = self.bytes.saturating_sub(bytes);
        self.calls > 0 && self.bytes > 0
    }
}

impl Outgoing {
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Bytes.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Adds a `bytes` object from an offset on that is before its end.
    pub(super) fn push(&mut self, bytes: Object, from: usize) {
        self.size += bytes.as_bytes().map_or(0, |bytes| bytes.len() - from);
        self.pieces.push_back(Piece { bytes, from });
    }

    /// Takes everything, to be dropped where destructors may run.
    pub(super) fn take(&mut self) -> impl Sized + use<> {
        self.size = 0;
        std::mem::take(&mut self.pieces)
    }

    /// Sends until all is sent, the socket takes no more, or the turn's share is used. Pieces that were sent are handed
    /// back, to be dropped.
    pub(super) fn send(&mut self, fd: BorrowedFd<'_>, done: &mut Vec<Object>) -> io::Result<Sent> {
        self.send_by(done, |one| stream::send(fd, one), |many| stream::send_vectored(fd, many))
    }

    /// The same for files that are no sockets.
    pub(super) fn write(&mut self, fd: BorrowedFd<'_>, done: &mut Vec<Object>) -> io::Result<Sent> {
        self.send_by(done, |one| pipe::write(fd, one), |many| pipe::write_vectored(fd, many))
    }

    fn send_by(
        &mut self,
        done: &mut Vec<Object>,
        one: impl Fn(&[u8]) -> io::Result<usize>,
        many: impl Fn(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<Sent> {
        let mut share = Share::new();
        while !self.pieces.is_empty() {
            let sent = if self.pieces.len() == 1 {
                one(share.of(self.pieces[0].rest()))
            } else {
                let mut left = share.bytes;
                let slices: Vec<IoSlice<'_>> = self
                    .pieces
                    .iter()
                    .take(MOST_PIECES)
                    .map_while(|piece| {
                        let bytes = piece.rest();
                        let taken = bytes.len().min(left);
                        left -= taken;
                        (taken > 0).then(|| IoSlice::new(&bytes[..taken]))
                    })
                    .collect();
                many(&slices)
            };
            match sent {
                Ok(sent) => {
                    self.advance(sent, done);
                    if !share.spend(sent) && !self.pieces.is_empty() {
                        return Ok(Sent::Share);
                    }
                }
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

/// What a caller gives to be sent: bytes that never change, or a view of others, which are copied only if they must
/// wait.
pub(super) enum Data {
    Bytes(Object),
    View(ffi::Py_buffer),
}

impl Data {
    pub(super) fn of(data: *mut ffi::PyObject) -> Result<Self, Raised> {
        // SAFETY: a live object.
        unsafe {
            if ffi::PyBytes_CheckExact(data) != 0 {
                return Object::share(data).map(Self::Bytes);
            }
            // Where other threads run meanwhile, they may write to the memory of a view.
            if cfg!(not(Py_GIL_DISABLED)) && is_accepted(data) {
                let mut view = ffi::Py_buffer::new();
                if ffi::PyObject_GetBuffer(data, &raw mut view, ffi::PyBUF_SIMPLE) == 0 {
                    return Ok(Self::View(view));
                }
                // Its bytes do not lie one after the other.
                ffi::PyErr_Clear();
            }
        }
        frozen(data).map(Self::Bytes)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes.as_bytes().unwrap_or_default(),
            Self::View(view) if view.len > 0 => {
                // SAFETY: the memory of a view that has not been released. This thread runs no Python code while it is
                // borrowed, and no other thread does.
                unsafe { std::slice::from_raw_parts(view.buf.cast(), view.len.unsigned_abs()) }
            }
            Self::View(_) => &[],
        }
    }

    /// The same as an object that never changes.
    pub(super) fn into_bytes(self) -> Result<Object, Raised> {
        match &self {
            Self::Bytes(bytes) => Ok(bytes.clone()),
            Self::View(_) => Object::bytes(self.bytes()),
        }
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        if let Self::View(view) = self {
            // SAFETY: a view, which nothing uses after this.
            unsafe { ffi::PyBuffer_Release(view) };
        }
    }
}

/// Whether it is `bytes`, a `bytearray` or a `memoryview`.
unsafe fn is_accepted(data: *mut ffi::PyObject) -> bool {
    // SAFETY: the caller has a live object.
    unsafe {
        ffi::PyBytes_Check(data) != 0
            || ffi::PyByteArray_Check(data) != 0
            || ffi::PyMemoryView_Check(data) != 0
    }
}

/// The current bytes of an object: itself if it is immutable, else a copy.
pub(super) fn frozen(data: *mut ffi::PyObject) -> Result<Object, Raised> {
    // SAFETY: a live object.
    unsafe {
        if ffi::PyBytes_CheckExact(data) != 0 {
            return Object::share(data);
        }
        if !is_accepted(data) {
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
