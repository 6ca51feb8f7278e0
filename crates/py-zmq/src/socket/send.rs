//! Sending: at once while attached; the interpreter is released only when there is no room.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};
use ropewalk_messaging::{Error, Events, Frame, Socket, Unsent};

use super::{SNDMORE, SocketBase};
use crate::errors::{self, EAGAIN};
use crate::frame::{self, FrameBase};
use crate::release::{self, Collecting, View};

/// Above this many bytes a copy lets other threads run meanwhile.
const LONG_COPY: usize = 1 << 18;

/// The frame for the core, and the tracker for Python.
struct Outgoing<'py> {
    frame: Frame,
    tracker: Option<Bound<'py, PyAny>>,
    /// Takes a shared buffer that is released during the call.
    _collecting: Option<Collecting<'py>>,
}

impl Outgoing<'_> {
    const fn plain(frame: Frame) -> Self {
        Self { frame, tracker: None, _collecting: None }
    }
}

fn copy_of(py: Python<'_>, bytes: &[u8]) -> Frame {
    if bytes.len() < LONG_COPY { Frame::copy_of(bytes) } else { py.detach(|| Frame::copy_of(bytes)) }
}

/// The bytes to copy, if a plain copy is enough.
#[inline]
fn plain<'a>(data: &'a Bound<'_, PyAny>, copy: bool) -> Option<&'a [u8]> {
    if !copy {
        return None;
    }
    let bytes = data.cast_exact::<PyBytes>().ok()?.as_bytes();
    (bytes.len() <= frame::COPY_THRESHOLD).then_some(bytes)
}

/// Makes a frame of the Python object to send.
#[inline]
fn prepare<'py>(
    slf: &Bound<'py, SocketBase>,
    data: &Bound<'py, PyAny>,
    copy: bool,
    track: bool,
) -> PyResult<Outgoing<'py>> {
    match plain(data, copy) {
        Some(bytes) => Ok(Outgoing::plain(Frame::copy_of(bytes))),
        None => prepare_any(slf, data, copy, track),
    }
}

fn prepare_any<'py>(
    slf: &Bound<'py, SocketBase>,
    data: &Bound<'py, PyAny>,
    copy: bool,
    track: bool,
) -> PyResult<Outgoing<'py>> {
    let py = slf.py();
    if let Ok(frame) = data.cast::<FrameBase>() {
        let tracker = frame.get().tracker_of(py).map(|tracker| tracker.into_bound(py));
        if track && tracker.is_none() {
            return Err(PyValueError::new_err("the frame is not tracked: make it with track=True"));
        }
        return Ok(Outgoing { frame: FrameBase::share(frame)?, tracker, _collecting: None });
    }
    if data.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err("a message is bytes, not str: encode it, or use send_string"));
    }
    if copy && data.is_exact_instance_of::<PyBytes>() {
        // It is immutable, so sharing it is as good as a copy.
        return Ok(Outgoing::plain(frame::lend(py, View::of(data, false)?, false)?.0));
    }
    let view = View::of(data, false)?;
    if copy {
        return Ok(Outgoing::plain(copy_of(py, view.bytes())));
    }
    let user = slf.get_type();
    if view.bytes().len() < slf.get().threshold() {
        let tracker = Some(errors::tracker(py, &user, None)?);
        return Ok(Outgoing { frame: Frame::copy_of(view.bytes()), tracker, _collecting: None });
    }
    let (frame, event) = frame::lend(py, view, track)?;
    let tracker = if track { Some(errors::tracker(py, &user, event.as_ref())?) } else { None };
    Ok(Outgoing { frame, tracker, _collecting: Some(Collecting::new(py)) })
}

/// Hands a frame to the core, waiting for room if the flags allow it.
#[inline]
fn transmit(slf: &Bound<'_, SocketBase>, socket: &Socket, frame: Frame, flags: i32) -> PyResult<()> {
    match socket.try_send(frame, flags & SNDMORE != 0) {
        Ok(()) => Ok(()),
        Err(unsent) => transmit_later(slf, socket, unsent, flags),
    }
}

#[cold]
fn transmit_later(slf: &Bound<'_, SocketBase>, socket: &Socket, unsent: Unsent, flags: i32) -> PyResult<()> {
    let Unsent { error, frame } = unsent;
    if !SocketBase::may_wait_to_send(socket, &error, flags) {
        return Err(errors::of(slf, &error));
    }
    let mut waiting = Some(frame);
    SocketBase::retry(slf, socket, Events::WRITE, socket.send_timeout(), |_| {
        let Some(frame) = waiting.take() else { return Ok(()) };
        socket.try_send(frame, flags & SNDMORE != 0).map_err(|unsent| {
            waiting = Some(unsent.frame);
            unsent.error
        })
    })
}

/// `send`.
#[inline]
pub(super) fn one<'py>(
    slf: &Bound<'py, SocketBase>,
    data: &Bound<'py, PyAny>,
    flags: i32,
    copy: bool,
    track: bool,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let held = SocketBase::open(slf)?;
    let socket = &*held;
    release::collect(slf.py());
    if let Some(bytes) = plain(data, copy) {
        let more = flags & SNDMORE != 0;
        // A woken thread would find the interpreter taken, and go to sleep once more.
        let sent = if socket.would_wake() {
            slf.py().detach(|| socket.try_send_bytes(bytes, more))
        } else {
            socket.try_send_bytes(bytes, more)
        };
        if let Err(error) = sent {
            transmit_later(slf, socket, Unsent { error, frame: Frame::copy_of(bytes) }, flags)?;
        }
        return Ok(None);
    }
    let outgoing = prepare_any(slf, data, copy, track)?;
    transmit(slf, socket, outgoing.frame, flags)?;
    Ok(outgoing.tracker)
}

/// `send` to a peer or a group.
pub(super) fn addressed<'py>(
    slf: &Bound<'py, SocketBase>,
    data: &Bound<'py, PyAny>,
    flags: i32,
    copy: bool,
    track: bool,
    routing_id: Option<u32>,
    group: Option<&str>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let held = SocketBase::open(slf)?;
    let socket = &*held;
    let mut outgoing = prepare(slf, data, copy, track)?;
    if let Some(routing_id) = routing_id {
        outgoing.frame.set_routing_id(routing_id);
    }
    if let Some(group) = group {
        outgoing.frame.set_group(group).map_err(|error| errors::of(slf, &error))?;
    }
    transmit(slf, socket, outgoing.frame, flags)?;
    release::collect(slf.py());
    Ok(outgoing.tracker)
}

/// `try_send`.
pub(crate) fn at_once(slf: &Bound<'_, SocketBase>, data: &Bound<'_, PyAny>, flags: i32) -> PyResult<bool> {
    let held = SocketBase::open(slf)?;
    let socket = &*held;
    release::collect(slf.py());
    let more = flags & SNDMORE != 0;
    let sent = match plain(data, true) {
        Some(bytes) => socket.try_send_bytes(bytes, more),
        None => {
            let outgoing = prepare_any(slf, data, true, false)?;
            socket.try_send(outgoing.frame, more).map_err(|unsent| unsent.error)
        }
    };
    match sent {
        Ok(()) => Ok(true),
        Err(error) if error.errno() == EAGAIN => Ok(false),
        Err(error) => Err(errors::of(slf, &error)),
    }
}

/// Adds the part's index to an error.
#[cold]
fn which(py: Python<'_>, error: PyErr, index: usize) -> PyErr {
    if error.is_instance_of::<PyTypeError>(py) {
        PyTypeError::new_err(format!("part {index} of the message: {}", error.value(py)))
    } else {
        error
    }
}

/// Every part of a message as a frame, and the tracker of the last, as pyzmq gives it.
fn parts<'py>(
    slf: &Bound<'py, SocketBase>,
    message: &Bound<'py, PyAny>,
    copy: bool,
    track: bool,
) -> PyResult<(Vec<Frame>, Option<Bound<'py, PyAny>>)> {
    let mut frames = Vec::with_capacity(message.len().unwrap_or(2));
    let mut tracker = None;
    let mut add = |part: &Bound<'py, PyAny>| -> PyResult<()> {
        let outgoing =
            prepare(slf, part, copy, track).map_err(|error| which(slf.py(), error, frames.len()))?;
        frames.push(outgoing.frame);
        tracker = outgoing.tracker;
        Ok(())
    };
    if let Ok(list) = message.cast_exact::<PyList>() {
        list.iter().try_for_each(|part| add(&part))?;
    } else if let Ok(tuple) = message.cast_exact::<PyTuple>() {
        tuple.iter_borrowed().try_for_each(|part| add(&part))?;
    } else {
        for part in message.try_iter()? {
            add(&part?)?;
        }
    }
    Ok((frames, tracker))
}

/// Sends all parts or none of them.
fn transmit_whole(
    slf: &Bound<'_, SocketBase>,
    socket: &Socket,
    mut frames: Vec<Frame>,
    flags: i32,
) -> PyResult<()> {
    match socket.try_send_all(&mut frames) {
        Ok(()) => Ok(()),
        Err(error) if SocketBase::may_wait_to_send(socket, &error, flags) => {
            SocketBase::retry(slf, socket, Events::WRITE, socket.send_timeout(), |_| {
                socket.try_send_all(&mut frames)
            })
        }
        Err(error) => Err(errors::of(slf, &error)),
    }
}

/// `send_multipart`.
pub(super) fn whole<'py>(
    slf: &Bound<'py, SocketBase>,
    message: &Bound<'py, PyAny>,
    flags: i32,
    copy: bool,
    track: bool,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let held = SocketBase::open(slf)?;
    let socket = &*held;
    let (frames, tracker) = parts(slf, message, copy, track)?;
    if frames.is_empty() {
        return Err(PyValueError::new_err("a message has at least one part"));
    }
    if flags & SNDMORE == 0 {
        transmit_whole(slf, socket, frames, flags)?;
    } else {
        // The message goes on after these parts, so it cannot be sent as a whole.
        for frame in frames {
            transmit(slf, socket, frame, flags)?;
        }
    }
    release::collect(slf.py());
    Ok(tracker)
}

/// One of several messages.
enum Message {
    Part(Frame),
    Parts(Vec<Frame>),
}

impl Message {
    /// Makes one of a buffer, or of a list or tuple of buffers.
    fn of(slf: &Bound<'_, SocketBase>, object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if !object.is_instance_of::<PyList>() && !object.is_instance_of::<PyTuple>() {
            return Ok(Self::Part(prepare(slf, object, true, false)?.frame));
        }
        let (frames, _) = parts(slf, object, true, false)?;
        if frames.is_empty() {
            return Err(PyValueError::new_err("a message has at least one part"));
        }
        Ok(Self::Parts(frames))
    }

    /// Sends the message whole, or returns it.
    #[expect(
        clippy::result_large_err,
        reason = "the message is given back as it came, without an allocation"
    )]
    fn submit(self, socket: &Socket) -> Result<(), (Error, Self)> {
        match self {
            Self::Part(frame) => {
                socket.try_send(frame, false).map_err(|Unsent { error, frame }| (error, Self::Part(frame)))
            }
            Self::Parts(mut frames) => {
                socket.try_send_all(&mut frames).map_err(|error| (error, Self::Parts(frames)))
            }
        }
    }

    /// Sends the message once there is room.
    fn submit_later(self, slf: &Bound<'_, SocketBase>, socket: &Socket) -> PyResult<()> {
        let mut waiting = Some(self);
        SocketBase::retry(slf, socket, Events::WRITE, socket.send_timeout(), |_| {
            let Some(message) = waiting.take() else { return Ok(()) };
            message.submit(socket).map_err(|(error, message)| {
                waiting = Some(message);
                error
            })
        })
    }
}

/// `send_many`: waits for room for the first message only; returns how many were sent.
pub(super) fn many(slf: &Bound<'_, SocketBase>, messages: &Bound<'_, PyAny>, flags: i32) -> PyResult<usize> {
    let held = SocketBase::open(slf)?;
    let socket = &*held;
    release::collect(slf.py());
    let mut sent = 0;
    // Whether it was sent.
    let mut send = |object: &Bound<'_, PyAny>| -> PyResult<bool> {
        let submitted = match plain(object, true) {
            Some(bytes) => socket
                .try_send_bytes(bytes, false)
                .map_err(|error| (error, Message::Part(Frame::copy_of(bytes)))),
            None => Message::of(slf, object)?.submit(socket),
        };
        match submitted {
            Ok(()) => {}
            Err((error, _)) if sent > 0 && error.errno() == EAGAIN => return Ok(false),
            Err((error, message)) if SocketBase::may_wait_to_send(socket, &error, flags) => {
                message.submit_later(slf, socket)?;
            }
            Err((error, _)) => return Err(errors::of(slf, &error)),
        }
        sent += 1;
        Ok(true)
    };
    if let Ok(list) = messages.cast_exact::<PyList>() {
        for message in list.iter() {
            if !send(&message)? {
                break;
            }
        }
    } else {
        for message in messages.try_iter()? {
            if !send(&message?)? {
                break;
            }
        }
    }
    Ok(sent)
}
