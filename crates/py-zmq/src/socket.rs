//! `Socket`: the methods of pyzmq's compiled backends, and methods for many messages in one call.

pub(crate) mod receive;
pub(crate) mod send;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};
use pyo3::{PyTraverseError, PyVisit};
use ropewalk_capi::signals;
use ropewalk_messaging::{Error, Events, Slices, Socket, SocketType, Woken};
use ropewalk_os::process::fork_generation;
use ropewalk_sync::Mutex;

use super::context::ContextBase;
use super::errors::{self, EAGAIN, EINTR, EINVAL, ENOTSOCK, Truth};
use super::frame::copy_threshold_of;
use super::held::{Held, InUse};
use super::registry::SOCKETS;
use super::{options, release};

/// Do not wait.
pub(crate) const DONTWAIT: i32 = 1;
/// More parts of the message follow.
pub(crate) const SNDMORE: i32 = 2;

/// The most bytes of an ipc endpoint's path: a socket's address, without the zero byte.
pub(crate) const IPC_PATH_MAX_LEN: usize = 107;

const ENOENT: i32 = 2;
const ENAMETOOLONG: i32 = 36;
/// The version of the monitor's messages that pyzmq reads.
const MONITOR_VERSION: i32 = 1;
const EVERY_EVENT: u64 = 0xFFFF;

struct Inner {
    socket: Held,
    /// The fork generation in which it was made.
    forks: u64,
    /// Whether this object made the socket: then its drop closes it.
    owned: bool,
}

/// See the module.
#[pyclass(frozen, subclass, weakref, name = "Socket", module = "ropewalk._zmq")]
#[derive(Default)]
pub(crate) struct SocketBase {
    inner: OnceLock<Inner>,
    context: Mutex<Option<Py<PyAny>>>,
    copy_threshold: AtomicUsize,
    /// The value of Python's attribute; this module itself uses `Inner::owned`.
    shadow: AtomicBool,
}

impl SocketBase {
    /// The core's socket, unless it is closed or belongs to another process.
    #[inline]
    pub(crate) fn open<'a>(slf: &'a Bound<'_, Self>) -> PyResult<InUse<'a>> {
        let inner = slf.get().inner.get();
        if let Some(inner) = inner
            && inner.forks == fork_generation()
            && let Some(socket) = inner.socket.enter()
        {
            return Ok(socket);
        }
        Err(Self::not_open(slf, inner))
    }

    /// Whether this object can make no calls, by its own knowledge.
    fn is_done(&self) -> bool {
        self.inner.get().is_none_or(|inner| inner.socket.is_closed())
    }

    /// Lets the socket go, without closing it: another object has closed it.
    pub(crate) fn let_go(&self) {
        if let Some(inner) = self.inner.get()
            && inner.forks == fork_generation()
        {
            drop(inner.socket.close());
        }
    }

    #[cold]
    fn not_open(slf: &Bound<'_, Self>, inner: Option<&Inner>) -> PyErr {
        match inner {
            None => errors::new(slf, ENOTSOCK, "the socket was not made: its __init__ was not called"),
            Some(inner) if inner.forks != fork_generation() => errors::forked(slf, "socket"),
            Some(_) => errors::new(slf, ENOTSOCK, &ropewalk_messaging::strerror(ENOTSOCK)),
        }
    }

    /// Whether `error` says to try again later, and the caller may wait.
    #[inline]
    fn may_wait(error: &Error, flags: i32) -> bool {
        error.errno() == EAGAIN && flags & DONTWAIT == 0
    }

    /// As `may_wait`, for a send. SERVER, PEER and STREAM send to the peer that the message names, and report at once
    /// if that one has no room.
    fn may_wait_to_send(socket: &Socket, error: &Error, flags: i32) -> bool {
        let refuses = matches!(socket.kind(), SocketType::Server | SocketType::Peer | SocketType::Stream);
        !refuses && Self::may_wait(error, flags)
    }

    /// Tries again whenever the socket may be ready, until the result is not `EAGAIN`, or the time is up.
    ///
    /// The thread is detached only while it sleeps. The argument of `attempt` says whether the wait has found
    /// something: then the kernel need not be asked again.
    #[cold]
    fn retry<T>(
        slf: &Bound<'_, Self>,
        socket: &Socket,
        what: Events,
        timeout: Option<Duration>,
        mut attempt: impl FnMut(bool) -> Result<T, Error>,
    ) -> PyResult<T> {
        let py = slf.py();
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut in_vain = 0;
        let mut slices = Slices::of(signals::slice());
        loop {
            release::collect(py);
            let mut ready = false;
            match py.detach(|| socket.wait(what, deadline, &mut slices)) {
                Ok(Woken::Ready) => ready = true,
                Ok(Woken::Interrupted | Woken::TimedOut) => py.check_signals()?,
                Err(error) if error.errno() == EINTR => py.check_signals()?,
                Err(error) => return Err(errors::of(slf, &error)),
            }
            match attempt(ready) {
                Ok(done) => return Ok(done),
                Err(error) if error.errno() != EAGAIN => return Err(errors::of(slf, &error)),
                Err(error) => {
                    if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                        return Err(errors::of(slf, &error));
                    }
                    in_vain += u32::from(ready);
                }
            }
            // A ROUTER has room for some peer, but not for the one that this message names. Its readiness does not show
            // that, so it is checked from time to time.
            if in_vain > 3 && !what.has(Events::READ) {
                py.detach(|| std::thread::sleep(Duration::from_millis(1)));
            }
        }
    }

    fn kind_of(number: i32) -> Option<SocketType> {
        SocketType::ALL.into_iter().find(|kind| *kind as i32 == number)
    }

    fn threshold(&self) -> usize {
        self.copy_threshold.load(Ordering::Relaxed)
    }

    /// Calls a function of the core that takes an endpoint or a group.
    fn named(
        slf: &Bound<'_, Self>,
        name: &Bound<'_, PyAny>,
        act: impl Fn(&Socket, &str) -> Result<(), Error> + Send + Sync,
    ) -> PyResult<()> {
        let name = errors::text(name, "an address or a group")?;
        let socket = Self::open(slf)?;
        let socket = &*socket;
        loop {
            match slf.py().detach(|| act(socket, &name)) {
                Err(error) if error.errno() == EINTR => slf.py().check_signals()?,
                Err(error) => return Err(Self::explain(slf, &name, &error)),
                Ok(()) => return Ok(()),
            }
        }
    }

    fn explain(slf: &Bound<'_, Self>, name: &str, error: &Error) -> PyErr {
        let of_host = name.split_once("://").filter(|(transport, _)| matches!(*transport, "ipc" | "shm"));
        let message = match (of_host, error.errno()) {
            (Some((transport, path)), ENAMETOOLONG) => format!(
                "{transport} path {path:?} is longer than {IPC_PATH_MAX_LEN} bytes, which is all that a socket's \
                 address holds"
            ),
            (Some((transport, path)), ENOENT) => {
                format!("No such file or directory for {transport} path {path:?}")
            }
            _ => error.to_string(),
        };
        errors::new(slf, error.errno(), &message)
    }
}

#[pymethods]
impl SocketBase {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Self {
        Self::default()
    }

    #[pyo3(signature = (context = None, socket_type = -1, shadow = 0, copy_threshold = None))]
    fn __init__(
        slf: &Bound<'_, Self>,
        context: Option<&Bound<'_, PyAny>>,
        socket_type: i32,
        shadow: u64,
        copy_threshold: Option<usize>,
    ) -> PyResult<()> {
        let (this, forks) = (slf.get(), fork_generation());
        let threshold = match copy_threshold {
            Some(bytes) => bytes,
            None => copy_threshold_of(&slf.get_type())?,
        };
        let (socket, owned) = if shadow == 0 {
            let context = context.ok_or_else(|| PyTypeError::new_err("context must be specified"))?;
            if socket_type < 0 {
                return Err(PyTypeError::new_err("socket_type must be specified"));
            }
            let context = ContextBase::open(context.cast::<ContextBase>()?)?;
            let Some(kind) = Self::kind_of(socket_type) else {
                return Err(errors::new(slf, EINVAL, &format!("there is no socket type {socket_type}")));
            };
            (context.socket(kind).map_err(|error| errors::of(slf, &error))?, true)
        } else {
            match SOCKETS.find(shadow, forks) {
                Some(socket) => (socket, false),
                None => return Err(errors::new(slf, ENOTSOCK, "there is no open socket of that number")),
            }
        };
        this.copy_threshold.store(threshold, Ordering::Relaxed);
        this.shadow.store(!owned, Ordering::Relaxed);
        this.set_context(context.map(|context| context.clone().unbind()));
        if owned {
            SOCKETS.add(socket.id(), forks, &socket);
        }
        let inner = Inner { socket: Held::new(socket), forks, owned };
        this.inner.set(inner).map_err(|_| errors::made_already())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // Never waits: the collector may have stopped the thread that holds the lock.
        self.context.try_lock().map_or(Ok(()), |context| visit.call(&*context))
    }

    fn __clear__(&self) {
        self.set_context(None);
    }

    #[getter]
    fn context(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let context = self.context.lock();
        context.as_ref().map(|context| context.clone_ref(py))
    }

    #[setter]
    fn set_context(&self, context: Option<Py<PyAny>>) {
        let old = std::mem::replace(&mut *self.context.lock(), context);
        drop(old);
    }

    #[getter]
    fn copy_threshold(&self) -> usize {
        self.threshold()
    }

    #[setter]
    fn set_copy_threshold(&self, bytes: usize) {
        self.copy_threshold.store(bytes, Ordering::Relaxed);
    }

    #[getter]
    fn closed(&self) -> bool {
        let Some(inner) = self.inner.get().filter(|inner| inner.forks == fork_generation()) else {
            return true;
        };
        let closed = inner.socket.enter().is_none_or(|socket| socket.is_closed());
        if closed {
            self.let_go();
        }
        closed
    }

    #[getter]
    fn _closed(&self) -> bool {
        self.is_done()
    }

    #[getter]
    fn _shadow(&self) -> bool {
        self.shadow.load(Ordering::Relaxed)
    }

    #[setter(_shadow)]
    fn set_shadow(&self, shadow: Truth) {
        self.shadow.store(shadow.0, Ordering::Relaxed);
    }

    #[getter]
    fn underlying(&self) -> u64 {
        if self.is_done() {
            return 0;
        }
        self.inner.get().map_or(0, |inner| inner.socket.id)
    }

    #[pyo3(signature = (linger = None))]
    fn close(&self, py: Python<'_>, linger: Option<i32>) {
        if let Some(inner) = self.inner.get()
            && inner.forks == fork_generation()
            && let Some(socket) = inner.socket.close()
        {
            let core = &*socket;
            py.detach(|| core.close(linger));
            SOCKETS.remove(inner.socket.id);
            drop(socket);
            release::collect(py);
        }
    }

    /// Sets an option.
    fn set(slf: &Bound<'_, Self>, option: i32, optval: &Bound<'_, PyAny>) -> PyResult<()> {
        let socket = Self::open(slf)?;
        options::encode(option, optval, |value| socket.set(option, value))?
            .map_err(|error| errors::of(slf, &error))
    }

    /// An option's value.
    fn get<'py>(slf: &Bound<'py, Self>, option: i32) -> PyResult<Bound<'py, PyAny>> {
        let value = Self::open(slf)?.get(option).map_err(|error| errors::of(slf, &error))?;
        options::decode(slf.py(), option, value)
    }

    /// What could be done now, `POLLIN` and `POLLOUT` together.
    fn poll_state(slf: &Bound<'_, Self>) -> PyResult<i32> {
        release::collect(slf.py());
        let events = Self::open(slf)?.events().map_err(|error| errors::of(slf, &error))?;
        Ok(i32::from(events.bits()))
    }

    /// Accepts connections at an address.
    fn bind(slf: &Bound<'_, Self>, addr: &Bound<'_, PyAny>) -> PyResult<()> {
        Self::named(slf, addr, Socket::bind)
    }

    /// Accepts no more connections at an address.
    fn unbind(slf: &Bound<'_, Self>, addr: &Bound<'_, PyAny>) -> PyResult<()> {
        Self::named(slf, addr, Socket::unbind)
    }

    /// Connects to an address, now or as soon as a peer listens there.
    fn connect(slf: &Bound<'_, Self>, addr: &Bound<'_, PyAny>) -> PyResult<()> {
        Self::named(slf, addr, Socket::connect)
    }

    /// Ends the connection to an address.
    fn disconnect(slf: &Bound<'_, Self>, addr: &Bound<'_, PyAny>) -> PyResult<()> {
        Self::named(slf, addr, Socket::disconnect)
    }

    /// Connects a PEER, and returns the routing id of its new peer.
    fn connect_peer(slf: &Bound<'_, Self>, addr: &Bound<'_, PyAny>) -> PyResult<u32> {
        let name = errors::text(addr, "an address")?;
        let socket = Self::open(slf)?;
        let core = &*socket;
        slf.py().detach(|| core.connect_peer(&name)).map_err(|error| Self::explain(slf, &name, &error))
    }

    /// Receives the messages of a group, too.
    fn join(slf: &Bound<'_, Self>, group: &Bound<'_, PyAny>) -> PyResult<()> {
        Self::named(slf, group, Socket::join)
    }

    /// Receives the messages of a group no more.
    fn leave(slf: &Bound<'_, Self>, group: &Bound<'_, PyAny>) -> PyResult<()> {
        Self::named(slf, group, Socket::leave)
    }

    /// Reports events of connections on a PAIR socket at an ``inproc`` address; `None` ends that.
    #[pyo3(signature = (addr, events = EVERY_EVENT), text_signature = "($self, addr, events=65535)")]
    fn monitor(slf: &Bound<'_, Self>, addr: Option<&Bound<'_, PyAny>>, events: u64) -> PyResult<()> {
        let addr = addr.map(|addr| errors::text(addr, "an address")).transpose()?;
        Self::open(slf)?
            .monitor(addr.as_deref(), events, MONITOR_VERSION, SocketType::Pair)
            .map_err(|error| errors::of(slf, &error))
    }

    /// Sends one part.
    #[pyo3(
        signature = (data, flags = 0, copy = Truth(true), track = Truth(false), routing_id = None, group = None),
        text_signature = "($self, data, flags=0, copy=True, track=False, routing_id=None, group=None)"
    )]
    fn send<'py>(
        slf: &Bound<'py, Self>,
        data: &Bound<'py, PyAny>,
        flags: i32,
        copy: Truth,
        track: Truth,
        routing_id: Option<u32>,
        group: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        if routing_id.is_none() && group.is_none() {
            return send::one(slf, data, flags, copy.0, track.0);
        }
        let group = group.map(|group| errors::text(group, "a group")).transpose()?;
        send::addressed(slf, data, flags, copy.0, track.0, routing_id, group.as_deref())
    }

    /// Sends a message of several parts.
    #[pyo3(
        signature = (msg_parts, flags = 0, copy = Truth(true), track = Truth(false)),
        text_signature = "($self, msg_parts, flags=0, copy=True, track=False)"
    )]
    fn send_multipart<'py>(
        slf: &Bound<'py, Self>,
        msg_parts: &Bound<'py, PyAny>,
        flags: i32,
        copy: Truth,
        track: Truth,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        send::whole(slf, msg_parts, flags, copy.0, track.0)
    }

    /// Sends as many of the messages as have room; returns their number.
    #[pyo3(signature = (messages, flags = 0))]
    fn send_many(slf: &Bound<'_, Self>, messages: &Bound<'_, PyAny>, flags: i32) -> PyResult<usize> {
        send::many(slf, messages, flags)
    }

    /// Sends one part if that can be done at once; returns whether it was sent.
    #[pyo3(signature = (data, flags = 0))]
    fn try_send(slf: &Bound<'_, Self>, data: &Bound<'_, PyAny>, flags: i32) -> PyResult<bool> {
        send::at_once(slf, data, flags)
    }

    /// Receives one part.
    #[pyo3(
        signature = (flags = 0, copy = Truth(true), track = Truth(false)),
        text_signature = "($self, flags=0, copy=True, track=False)"
    )]
    fn recv<'py>(
        slf: &Bound<'py, Self>,
        flags: i32,
        copy: Truth,
        track: Truth,
    ) -> PyResult<Bound<'py, PyAny>> {
        receive::one(slf, flags, copy.0, track.0)
    }

    /// Receives one part into a buffer; returns its number of bytes.
    #[pyo3(signature = (buffer, /, *, nbytes = 0, flags = 0))]
    fn recv_into(
        slf: &Bound<'_, Self>,
        buffer: &Bound<'_, PyAny>,
        nbytes: isize,
        flags: i32,
    ) -> PyResult<usize> {
        receive::into(slf, buffer, nbytes, flags)
    }

    /// Receives a whole message, as the list of its parts.
    #[pyo3(
        signature = (flags = 0, copy = Truth(true), track = Truth(false)),
        text_signature = "($self, flags=0, copy=True, track=False)"
    )]
    fn recv_multipart<'py>(
        slf: &Bound<'py, Self>,
        flags: i32,
        copy: Truth,
        track: Truth,
    ) -> PyResult<Bound<'py, PyAny>> {
        receive::whole(slf, flags, copy.0, track.0)
    }

    /// Up to `n` messages that are there, at least one.
    #[pyo3(signature = (n, flags = 0))]
    fn recv_many<'py>(slf: &Bound<'py, Self>, n: usize, flags: i32) -> PyResult<Bound<'py, PyAny>> {
        receive::many(slf, n, flags)
    }

    /// One part as `bytes`, or `None` if there is none yet.
    fn try_recv<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyAny>>> {
        receive::at_once(slf, false)
    }

    /// A whole message as a list of `bytes`, or `None` if there is none yet.
    fn try_recv_multipart<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyAny>>> {
        receive::whole_at_once(slf, false)
    }
}

impl SocketBase {
    /// The type that its frames are made of: a subclass may name one.
    fn frame_class<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyType>> {
        let py = slf.py();
        match slf.get_type().getattr_opt(pyo3::intern!(py, "_frame_class"))? {
            Some(class) => Ok(class.cast_into::<PyType>()?),
            None => Ok(py.get_type::<super::frame::FrameBase>()),
        }
    }

    /// The `EFAULT` error for an argument that should have been a socket.
    pub(crate) fn wanted(object: &Bound<'_, PyAny>) -> PyErr {
        match object.repr() {
            Ok(shown) => PyTypeError::new_err(format!("expected a socket, not {shown}")),
            Err(error) => error,
        }
    }
}

impl Drop for SocketBase {
    fn drop(&mut self) {
        let Some(inner) = self.inner.take() else { return };
        if inner.forks != fork_generation() {
            // It is the parent's: closing it would write to the parent's peers.
            std::mem::forget(inner);
        } else if inner.owned && !inner.socket.is_closed() {
            let id = inner.socket.id;
            if let Some(socket) = inner.socket.into_inner() {
                socket.close(None);
            }
            SOCKETS.remove(id);
        }
    }
}
