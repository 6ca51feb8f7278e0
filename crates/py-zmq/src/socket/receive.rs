//! Receiving: available messages are taken while attached; the interpreter is released only to wait.

use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyList;
use ropewalk_messaging::{Error, Events, Frame, Socket};

use super::{DONTWAIT, SocketBase};
use crate::errors::{self, EAGAIN};
use crate::frame::FrameBase;
use crate::release::{self, View};

/// Makes an attempt; if nothing is available and the flags allow it, waits and makes more. The argument of `take` says
/// whether it may skip asking the kernel: the wait asks it.
#[inline]
fn attempt<T>(
    slf: &Bound<'_, SocketBase>,
    socket: &Socket,
    flags: i32,
    mut take: impl FnMut(bool) -> Result<T, Error>,
) -> PyResult<T> {
    release::collect(slf.py());
    match take(flags & DONTWAIT == 0) {
        Ok(taken) => Ok(taken),
        Err(error) if SocketBase::may_wait(&error, flags) => {
            SocketBase::retry(slf, socket, Events::READ, socket.recv_timeout(), take)
        }
        Err(error) => Err(errors::of(slf, &error)),
    }
}

/// Turns "nothing is available" into `None`.
fn if_any<T>(slf: &Bound<'_, SocketBase>, taken: Result<T, Error>) -> PyResult<Option<T>> {
    match taken {
        Ok(taken) => Ok(Some(taken)),
        Err(error) if error.errno() == EAGAIN => Ok(None),
        Err(error) => Err(errors::of(slf, &error)),
    }
}

/// The part that the core lends, as an object.
///
/// It is made under the socket's lock, where no Python code may run: making `bytes` runs none, neither a finalizer nor
/// the collector, as making a list might.
#[inline]
fn bytes_of(bytes: &[u8]) -> *mut ffi::PyObject {
    let length = ffi::Py_ssize_t::try_from(bytes.len()).unwrap_or(ffi::Py_ssize_t::MAX);
    // SAFETY: every caller is attached; the bytes are copied. A failure gives null.
    unsafe { ffi::PyBytes_FromStringAndSize(bytes.as_ptr().cast(), length) }
}

/// One part as `bytes`.
#[inline]
fn part<'py>(py: Python<'py>, socket: &Socket, hot: bool) -> Result<PyResult<Bound<'py, PyAny>>, Error> {
    let mut object = std::ptr::null_mut();
    socket.try_recv_part(hot, &mut |bytes, _| object = bytes_of(bytes))?;
    // SAFETY: a new reference, or null with an exception set.
    Ok(unsafe { Bound::from_owned_ptr_or_err(py, object) })
}

/// One part as a frame.
fn frame(socket: &Socket, hot: bool) -> Result<Frame, Error> {
    if hot { socket.try_recv_hot() } else { socket.try_recv() }
}

/// `recv`.
#[inline]
pub(super) fn one<'py>(
    slf: &Bound<'py, SocketBase>,
    flags: i32,
    copy: bool,
    track: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let held = SocketBase::open(slf)?;
    let socket = &*held;
    if copy {
        return attempt(slf, socket, flags, |hot| part(slf.py(), socket, hot))?;
    }
    let frame = attempt(slf, socket, flags, |hot| frame(socket, hot))?;
    FrameBase::wrap(&SocketBase::frame_class(slf)?, frame, track)
}

/// `try_recv`; `hot` skips asking the kernel.
pub(crate) fn at_once<'py>(slf: &Bound<'py, SocketBase>, hot: bool) -> PyResult<Option<Bound<'py, PyAny>>> {
    let held = SocketBase::open(slf)?;
    let socket = &*held;
    release::collect(slf.py());
    if_any(slf, part(slf.py(), socket, hot))?.transpose()
}

/// `recv_into`.
pub(super) fn into(
    slf: &Bound<'_, SocketBase>,
    buffer: &Bound<'_, PyAny>,
    nbytes: isize,
    flags: i32,
) -> PyResult<usize> {
    let held = SocketBase::open(slf)?;
    let socket = &*held;
    let wanted = usize::try_from(nbytes)
        .map_err(|_| PyValueError::new_err(format!("nbytes={nbytes} must be non-negative")))?;
    let mut view = View::of(buffer, true)?;
    let (room, size) = view.room();
    if wanted > size {
        return Err(PyValueError::new_err(format!("nbytes={nbytes} is more than the buffer's {size} bytes")));
    }
    let most = if wanted == 0 { size } else { wanted };
    let frame = attempt(slf, socket, flags, |hot| frame(socket, hot))?;
    let bytes = frame.bytes();
    // SAFETY: the view is writable, contiguous, held, and at least `most` bytes long; the frame's bytes are ours alone.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), room, bytes.len().min(most)) };
    Ok(bytes.len())
}

/// Parts taken under the socket's lock.
struct Parts<'py> {
    py: Python<'py>,
    /// In order, each with whether its message goes on. Null stands for a failed allocation.
    parts: Vec<(*mut ffi::PyObject, bool)>,
}

impl<'py> Parts<'py> {
    fn new(py: Python<'py>, room: usize) -> Self {
        Self { py, parts: Vec::with_capacity(room) }
    }

    /// Takes up to this many whole messages.
    fn take(&mut self, socket: &Socket, messages: usize, hot: bool) -> Result<usize, Error> {
        let mut sink = |bytes: &[u8], more: bool| self.parts.push((bytes_of(bytes), more));
        if hot {
            socket.try_recv_with_hot(messages, &mut sink)
        } else {
            socket.try_recv_with(messages, &mut sink)
        }
    }

    fn check(&self) -> PyResult<()> {
        if self.parts.iter().any(|(part, _)| part.is_null()) {
            drop(PyErr::take(self.py));
            return Err(PyMemoryError::new_err("no room for a message that was received"));
        }
        Ok(())
    }

    /// Takes the parts in a range out, as objects.
    fn objects(&mut self, from: usize, to: usize) -> impl ExactSizeIterator<Item = Bound<'py, PyAny>> {
        let py = self.py;
        self.parts[from..to].iter_mut().map(move |(part, _)| {
            let part = std::mem::replace(part, std::ptr::null_mut());
            // SAFETY: `check` has found all of them, and each is taken once.
            unsafe { Bound::from_owned_ptr(py, part) }
        })
    }
}

impl Drop for Parts<'_> {
    fn drop(&mut self) {
        for (part, _) in &self.parts {
            // SAFETY: attached; an owned reference that was not taken, or null.
            unsafe { ffi::Py_XDECREF(*part) };
        }
    }
}

/// A whole message in a list.
fn message<'py>(mut parts: Parts<'py>) -> PyResult<Bound<'py, PyAny>> {
    parts.check()?;
    let all = parts.parts.len();
    let py = parts.py;
    Ok(PyList::new(py, parts.objects(0, all))?.into_any())
}

/// `recv_multipart`.
pub(super) fn whole<'py>(
    slf: &Bound<'py, SocketBase>,
    flags: i32,
    copy: bool,
    track: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let py = slf.py();
    let held = SocketBase::open(slf)?;
    let socket = &*held;
    if copy {
        let mut parts = Parts::new(py, 4);
        attempt(slf, socket, flags, |hot| parts.take(socket, 1, hot))?;
        return message(parts);
    }
    let frames = attempt(slf, socket, flags, |hot| socket.try_recv_all(hot))?;
    let class = SocketBase::frame_class(slf)?;
    let list = PyList::empty(py);
    for frame in frames {
        list.append(FrameBase::wrap(&class, frame, track)?)?;
    }
    Ok(list.into_any())
}

/// `try_recv_multipart`; `hot` as in `at_once`.
pub(crate) fn whole_at_once<'py>(
    slf: &Bound<'py, SocketBase>,
    hot: bool,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let held = SocketBase::open(slf)?;
    let socket = &*held;
    release::collect(slf.py());
    let mut parts = Parts::new(slf.py(), 4);
    let taken = parts.take(socket, 1, hot);
    if_any(slf, taken)?.map(|_| message(parts)).transpose()
}

/// `recv_many`: the available messages, up to `n`; waits for the first one only.
pub(super) fn many<'py>(slf: &Bound<'py, SocketBase>, n: usize, flags: i32) -> PyResult<Bound<'py, PyAny>> {
    let py = slf.py();
    let held = SocketBase::open(slf)?;
    let socket = &*held;
    if n == 0 {
        return Ok(PyList::empty(py).into_any());
    }
    let mut parts = Parts::new(py, n.min(256));
    let messages = attempt(slf, socket, flags, |hot| parts.take(socket, n, hot))?;
    parts.check()?;
    let all = parts.parts.len();
    if messages == all {
        return Ok(PyList::new(py, parts.objects(0, all))?.into_any());
    }
    let list = PyList::empty(py);
    let mut from = 0;
    while from < all {
        let mut to = from + 1;
        while to < all && parts.parts[to - 1].1 {
            to += 1;
        }
        if to - from == 1 {
            for single in parts.objects(from, to) {
                list.append(single)?;
            }
        } else {
            list.append(PyList::new(py, parts.objects(from, to))?)?;
        }
        from = to;
    }
    Ok(list.into_any())
}
