//! `Watch`: the waiters for a socket in an event loop, and the two descriptors that the loop watches for them.
//!
//! The socket's epoll set is readable while a connection needs work. Its wake-up descriptor is readable from a change
//! that shows in no other descriptor until the socket is checked. Both are level-triggered, so a waiter need not have
//! asked the kernel: the next turn reports what is there. But any operation on the socket, even one in vain, may
//! consume such a signal, and it is not reported again. So after an operation, waiters for something else are checked
//! again in the loop's next turn.
//!
//! A watch belongs to the thread that runs its loop. The loop keeps the watch, and the watch keeps the blocking socket
//! whose operations it tries, but not the asynchronous socket over it: that one is closed with its last reference.
//! Closing detaches first, before the descriptors' numbers can be reused.

mod serve;
mod waiters;

use std::collections::VecDeque;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple, PyType};
use pyo3::{PyTraverseError, PyVisit, intern};
use ropewalk_messaging::{Events, SocketType};
use ropewalk_sync::{Mutex, MutexGuard};

pub(super) use self::waiters::Attempt;
use self::waiters::{Home, Side, State, Waiter};
use super::future;
use crate::errors;
use crate::held::InUse;
use crate::socket::{DONTWAIT, SocketBase};
use ropewalk_capi::running_loop;

/// After this many operations in a row that were done at once, one lets the loop turn.
const AT_ONCE: u32 = 128;
/// After this many receives in a row that asked the kernel in vain, receives leave it to the loop, except one in this
/// many.
const IN_VAIN: u32 = 4;
const RARELY: u32 = 16;
/// A receive looks at shared memory for so long before it leaves the wait to the loop. A microsecond of that counts as
/// an operation that was done at once.
const LOOK: Duration = Duration::from_micros(50);

/// See the module.
#[pyclass(frozen, weakref, module = "ropewalk._zmq")]
pub(crate) struct Watch {
    /// The socket whose operations are tried.
    socket: Py<SocketBase>,
    /// The class of the error for "try again".
    again: Py<PyType>,
    /// No Python code runs, and no reference is dropped, while it is locked.
    state: Mutex<State>,
}

impl Watch {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Whether a receive may be tried at once.
    pub(super) fn may_receive(&self) -> bool {
        let state = self.state();
        state.receivers.is_empty() && state.left > 0
    }

    /// Whether a send may be tried at once.
    pub(super) fn may_send(&self) -> bool {
        let state = self.state();
        state.senders.is_empty() && state.left > 0
    }

    /// Tries a receive at once. The kernel is asked only if that has paid off: a caller that waits for the answer to a
    /// message it has just sent finds nothing, and the loop is about to ask.
    pub(super) fn try_receive<'py>(
        &self,
        socket: &Bound<'py, SocketBase>,
        attempt: &Attempt,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let has_looked = self.look_near(socket)?;
        let known = attempt.make(socket, true)?;
        if known.is_some() {
            return Ok(known);
        }
        if has_looked {
            // The attempt has asked the kernel, too; and the loop turns before the caller goes on.
            self.state().left = AT_ONCE;
            return Ok(None);
        }
        let mut state = self.state();
        state.vain = state.vain.wrapping_add(1);
        let asks = state.vain <= IN_VAIN || state.vain.is_multiple_of(RARELY);
        drop(state);
        if !asks {
            return Ok(None);
        }
        let found = attempt.make(socket, false)?;
        if found.is_some() {
            self.state().vain = 0;
        }
        Ok(found)
    }

    /// Looks at shared memory for a moment, if a message may come from there and nobody else needs the loop; returns
    /// whether it did.
    pub(super) fn look_near(&self, socket: &Bound<'_, SocketBase>) -> PyResult<bool> {
        let py = socket.py();
        if !self.core(py)?.may_come_near() || !self.is_idle(py)? {
            return Ok(false);
        }
        let Some(look) = self.core(py)?.near_look() else { return Ok(false) };
        if !look.has_come() {
            let took = py.detach(|| look.wait(LOOK));
            let micros = u32::try_from(took.as_micros()).unwrap_or(u32::MAX);
            let mut state = self.state();
            state.left = state.left.saturating_sub(micros);
        }
        Ok(true)
    }

    /// Whether no waiter but one receive waits here, and the loop has nothing to do after the current callback, as far
    /// as it tells.
    fn is_idle(&self, py: Python<'_>) -> PyResult<bool> {
        let state = self.state();
        let is_alone = state.receivers.len() <= 1 && state.senders.is_empty() && state.events.is_empty();
        let Some(home) = state.home.as_ref().filter(|_| is_alone) else { return Ok(false) };
        let (event_loop, is_ours) = (home.event_loop.bind(py).clone(), home.is_ours);
        drop(state);
        if is_ours {
            return Ok(future::is_idle(&event_loop));
        }
        match event_loop.getattr_opt(intern!(py, "_ready"))? {
            Some(ready) => Ok(ready.len().is_ok_and(|length| length == 0)),
            None => Ok(false),
        }
    }

    /// A receive was done at once.
    pub(super) fn did_receive(&self, slf: &Bound<'_, Self>) -> PyResult<()> {
        let mut state = self.state();
        state.left = state.left.saturating_sub(1);
        let others = !(state.senders.is_empty() && state.events.is_empty());
        drop(state);
        if others { Self::look_again(slf) } else { Ok(()) }
    }

    /// A send was done at once.
    pub(super) fn did_send(&self, slf: &Bound<'_, Self>) -> PyResult<()> {
        let mut state = self.state();
        state.left = state.left.saturating_sub(1);
        let others = !(state.receivers.is_empty() && state.events.is_empty());
        drop(state);
        if others { Self::look_again(slf) } else { Ok(()) }
    }

    pub(super) fn wait_to_receive<'py>(
        &self,
        slf: &Bound<'py, Self>,
        attempt: Attempt,
    ) -> PyResult<Bound<'py, PyAny>> {
        let timeout = self.core(slf.py())?.recv_timeout();
        Self::add(slf, Side::Receiving, timeout, attempt)
    }

    fn wait_to_send<'py>(slf: &Bound<'py, Self>, attempt: Attempt) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        let socket = this.core(py)?;
        // These types have a peer for each message, and report if that peer has no room: waiting for another peer's
        // room would be pointless.
        if matches!(socket.kind(), SocketType::Server | SocketType::Peer | SocketType::Stream) {
            return future::failed(py, PyErr::from_value(this.again.bind(py).call0()?));
        }
        Self::add(slf, Side::Sending, socket.send_timeout(), attempt)
    }

    fn core<'a>(&'a self, py: Python<'a>) -> PyResult<InUse<'a>> {
        SocketBase::open(self.socket.bind(py))
    }

    /// `recv` or `recv_multipart` with special options.
    pub(super) fn receive_as<'py>(
        slf: &Bound<'py, Self>,
        name: &Bound<'py, PyString>,
        flags: i32,
        copy: bool,
        track: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let call = slf.get().socket.bind(slf.py()).get_type().getattr(name)?;
        Self::receive(slf, &call, flags, &(copy, track).into_pyobject(slf.py())?)
    }

    /// `send` with special options, or one that must wait.
    #[expect(clippy::type_complexity, reason = "the parameters of `send`, in their order")]
    pub(super) fn send_as<'py>(
        slf: &Bound<'py, Self>,
        parameters: (
            &Bound<'py, PyAny>,
            i32,
            bool,
            bool,
            Option<&Bound<'py, PyAny>>,
            Option<&Bound<'py, PyAny>>,
        ),
    ) -> PyResult<Bound<'py, PyAny>> {
        let (data, flags, copy, track, routing_id, group) = parameters;
        let py = slf.py();
        let socket = slf.get().socket.bind(py);
        let call = socket.get_type().getattr(intern!(py, "send"))?;
        let arguments = (socket, data, flags | DONTWAIT, copy, track, routing_id, group);
        Self::send_call(slf, &call, flags, arguments.into_pyobject(py)?)
    }

    fn send_call<'py>(
        slf: &Bound<'py, Self>,
        call: &Bound<'py, PyAny>,
        flags: i32,
        arguments: Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        let now = flags & DONTWAIT != 0;
        if now || this.state().senders.is_empty() {
            match call.call1(&arguments) {
                Ok(result) => {
                    this.did_send(slf)?;
                    let mut state = this.state();
                    if state.left > 0 {
                        drop(state);
                        return this.done(result);
                    }
                    state.left = AT_ONCE;
                    drop(state);
                    return Self::done_later(py, result);
                }
                Err(error) if now || !error.is_instance(py, this.again.bind(py)) => {
                    Self::look_again(slf)?;
                    return future::failed(py, error);
                }
                Err(_) => {}
            }
        }
        Self::wait_to_send(slf, Attempt::Call(call.clone().unbind(), arguments.unbind()))
    }

    /// Sets a finished operation's result in the loop's next turn, so that a coroutine that only sends lets others run.
    fn done_later<'py>(py: Python<'py>, result: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let event_loop = future::running_loop(py)?;
        let made = event_loop.call_method0(intern!(py, "create_future"))?;
        let set = wrap_pyfunction!(set_if_waiting, py)?;
        event_loop.call_method1(intern!(py, "call_soon"), (set, &made, result))?;
        Ok(made)
    }

    /// A future for an attempt's result. It fails with `Again` after the timeout.
    fn add<'py>(
        slf: &Bound<'py, Self>,
        side: Side,
        timeout: Option<Duration>,
        attempt: Attempt,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        let event_loop = Self::at_home(slf)?;
        this.drop_cancelled(py, side)?;
        let made = event_loop.call_method0(intern!(py, "create_future"))?;
        let timer = match timeout {
            Some(timeout) => {
                let expire = slf.getattr(intern!(py, "_expire"))?;
                let arguments = (timeout.as_secs_f64(), expire, &made);
                Some(event_loop.call_method1(intern!(py, "call_later"), arguments)?.unbind())
            }
            None => None,
        };
        let waiter = Waiter { future: made.clone().unbind(), attempt, timer };
        let mut state = this.state();
        state.queue(side).push_back(waiter);
        let others = !state.events.is_empty()
            || match side {
                Side::Receiving => !state.senders.is_empty(),
                Side::Sending => !state.receivers.is_empty(),
            };
        drop(state);
        if others {
            // A failed attempt may have taken another waiter's signal: a receive may find a first peer, to which a
            // waiting send could go.
            Self::look_again(slf)?;
        }
        Ok(made)
    }

    /// Drops cancelled waiters at both ends: a loop that receives with a deadline would pile them up.
    fn drop_cancelled(&self, py: Python<'_>, side: Side) -> PyResult<()> {
        for is_front in [true, false] {
            loop {
                let mut state = self.state();
                let queue = state.queue(side);
                let Some(waiter) = (if is_front { queue.pop_front() } else { queue.pop_back() }) else {
                    return Ok(());
                };
                drop(state);
                let is_done = future::is_done(waiter.future.bind(py));
                if let Ok(true) = is_done {
                    waiter.stop_timer(py)?;
                    continue;
                }
                let mut state = self.state();
                let queue = state.queue(side);
                if is_front {
                    queue.push_front(waiter)
                } else {
                    queue.push_back(waiter)
                }
                is_done?;
                break;
            }
        }
        Ok(())
    }

    /// The loop, if it is one of ours that this thread runs: asking asyncio for it costs a system call in some
    /// versions.
    fn our_loop<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let state = self.state();
        let home = state.home.as_ref().filter(|home| home.is_ours)?;
        running_loop::is_here(home.event_loop.as_ptr()).then(|| home.event_loop.bind(py).clone())
    }

    /// A future that has its result.
    pub(super) fn done<'py>(&self, result: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = result.py();
        let made = match self.our_loop(py) {
            Some(ours) => ours.call_method0(intern!(py, "create_future"))?,
            None => future::create(py)?,
        };
        future::set_result(&made, result)?;
        Ok(made)
    }

    /// The running loop, which calls the watch from now on.
    fn at_home<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        if let Some(ours) = this.our_loop(py) {
            return Ok(ours);
        }
        let running = future::running_loop(py)?;
        let known = this.state().home.as_ref().map(|home| home.event_loop.is(&running));
        match known {
            Some(true) => return Ok(running),
            // No loop will run another loop's waiters any more.
            Some(false) => Self::close(slf)?,
            None => {}
        }
        let socket = this.socket.bind(py);
        let descriptors =
            SocketBase::open(socket)?.descriptors().map_err(|error| errors::of(socket, &error))?;
        let readable = slf.getattr(intern!(py, "_readable"))?;
        let name = intern!(py, "add_reader");
        for (at, descriptor) in descriptors.iter().enumerate() {
            if let Err(error) = running.call_method1(name, (*descriptor, &readable)) {
                if at > 0 {
                    running.call_method1(intern!(py, "remove_reader"), (descriptors[0],))?;
                }
                return Err(error);
            }
        }
        let is_ours = running_loop::is_here(running.as_ptr());
        this.state().home = Some(Home { event_loop: running.clone().unbind(), is_ours, descriptors });
        Ok(running)
    }

    /// Leaves the loop; the next waiter attaches again.
    fn detach(&self, py: Python<'_>) -> PyResult<()> {
        let mut state = self.state();
        let home = state.home.take();
        (state.is_scheduled, state.is_unseen) = (false, false);
        drop(state);
        let Some(home) = home else { return Ok(()) };
        let event_loop = home.event_loop.bind(py);
        if is_closed(event_loop)? {
            return Ok(());
        }
        for descriptor in home.descriptors {
            event_loop.call_method1(intern!(py, "remove_reader"), (descriptor,))?;
        }
        Ok(())
    }

    /// Takes all waiters out: their futures.
    fn take_all(&self, py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
        let mut state = self.state();
        let mut waiters: Vec<Waiter> = state.receivers.drain(..).collect();
        waiters.extend(state.senders.drain(..));
        let events = std::mem::take(&mut state.events);
        drop(state);
        for waiter in &waiters {
            waiter.stop_timer(py)?;
        }
        let futures = waiters.into_iter().map(|waiter| waiter.future);
        Ok(futures.chain(events.into_iter().map(|(_, pending)| pending)).collect())
    }
}

#[pymethods]
impl Watch {
    #[new]
    fn new(socket: Py<SocketBase>, again: Py<PyType>) -> Self {
        let state = State {
            receivers: VecDeque::new(),
            senders: VecDeque::new(),
            events: Vec::new(),
            home: None,
            is_scheduled: false,
            is_unseen: false,
            left: AT_ONCE,
            vain: 0,
        };
        Self { socket, again, state: Mutex::new(state) }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.socket)?;
        visit.call(&self.again)?;
        // Never waits: the collector may have stopped the thread that holds the lock.
        let Some(state) = self.state.try_lock() else { return Ok(()) };
        for waiter in state.receivers.iter().chain(&state.senders) {
            visit.call(&waiter.future)?;
            visit.call(&waiter.timer)?;
            if let Attempt::Call(call, arguments) = &waiter.attempt {
                visit.call(call)?;
                visit.call(arguments)?;
            }
        }
        for (_, pending) in &state.events {
            visit.call(pending)?;
        }
        match &state.home {
            Some(home) => visit.call(&home.event_loop),
            None => Ok(()),
        }
    }

    fn __clear__(&self) {
        let mut state = self.state();
        let receivers = std::mem::take(&mut state.receivers);
        let senders = std::mem::take(&mut state.senders);
        let (events, home) = (std::mem::take(&mut state.events), state.home.take());
        drop(state);
        drop((receivers, senders, events, home));
    }

    /// The number of waiting receives.
    #[getter]
    fn receivers(&self) -> usize {
        self.state().receivers.len()
    }

    /// A future for the result of `call(socket, flags, *arguments)`, which receives now or once there is a message.
    fn receive<'py>(
        slf: &Bound<'py, Self>,
        call: &Bound<'py, PyAny>,
        flags: i32,
        arguments: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        let arguments = with_socket(this.socket.bind(py), flags | DONTWAIT, arguments)?;
        let now = flags & DONTWAIT != 0;
        if now || this.may_receive() {
            if !now {
                this.look_near(this.socket.bind(py))?;
            }
            match call.call1(&arguments) {
                Ok(result) => {
                    this.did_receive(slf)?;
                    let overtaken = now && !this.state().receivers.is_empty();
                    if overtaken {
                        Self::look_again(slf)?;
                    }
                    return this.done(result);
                }
                Err(error) if now || !error.is_instance(py, this.again.bind(py)) => {
                    Self::look_again(slf)?;
                    return future::failed(py, error);
                }
                Err(_) => {}
            }
        }
        let made = this.wait_to_receive(slf, Attempt::Call(call.clone().unbind(), arguments.unbind()))?;
        let mut state = this.state();
        if state.left == 0 {
            // The message is taken in the loop's next turn, so that a caller that is cancelled until then loses
            // nothing.
            state.left = AT_ONCE;
            drop(state);
            Self::look_again(slf)?;
        }
        Ok(made)
    }

    /// A future for the result of `call(socket, flags, *arguments)`, which sends now or once there is room.
    fn transmit<'py>(
        slf: &Bound<'py, Self>,
        call: &Bound<'py, PyAny>,
        flags: i32,
        arguments: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let arguments = with_socket(slf.get().socket.bind(slf.py()), flags | DONTWAIT, arguments)?;
        Self::send_call(slf, call, flags, arguments)
    }

    /// A future for those of `events` that come first.
    fn add_event<'py>(slf: &Bound<'py, Self>, events: i32) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        let event_loop = Self::at_home(slf)?;
        let waiting = std::mem::take(&mut this.state().events);
        for (events, pending) in waiting {
            if !future::is_done(pending.bind(py))? {
                this.state().events.push((events, pending));
            }
        }
        let made = event_loop.call_method0(intern!(py, "create_future"))?;
        this.state().events.push((events, made.clone().unbind()));
        Ok(made)
    }

    /// Whether any waiter waits for events.
    fn has_events(&self, py: Python<'_>) -> PyResult<bool> {
        let pending: Vec<_> = self.state().events.iter().map(|(_, pending)| pending.clone_ref(py)).collect();
        for waits in pending {
            if !future::is_done(waits.bind(py))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Checks the waiters in the next turn: an operation may have taken their signal.
    fn look_again(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let mut state = slf.get().state();
        if !state.is_waited_for() || state.is_scheduled {
            return Ok(());
        }
        let Some(home) = &state.home else { return Ok(()) };
        let event_loop = home.event_loop.bind(py).clone();
        state.is_scheduled = true;
        drop(state);
        future::call_next(&event_loop, &slf.getattr(intern!(py, "_look"))?)
    }

    /// Cancels all waiters, and leaves the loop.
    fn close(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        for pending in this.take_all(py)? {
            // A future of a loop that was closed meanwhile cannot schedule its callbacks.
            match pending.bind(py).call_method0(intern!(py, "cancel")) {
                Err(error) if !error.is_instance_of::<pyo3::exceptions::PyRuntimeError>(py) => {
                    return Err(error);
                }
                _ => {}
            }
        }
        this.detach(py)
    }

    /// As `close`, when the socket itself is about to be closed: its descriptors go with it.
    fn leave(slf: &Bound<'_, Self>) -> PyResult<()> {
        let left = Self::close(slf);
        slf.get().socket.bind(slf.py()).get().let_go();
        left
    }

    /// The loop calls this when a descriptor is readable.
    fn _readable(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let mut state = this.state();
        let is_waited_for = state.is_waited_for();
        let was_unheard = std::mem::replace(&mut state.is_unseen, !is_waited_for);
        drop(state);
        if is_waited_for {
            return Self::serve(slf, true);
        }
        if was_unheard {
            // It stays readable although there are no waiters, so it must not make the loop turn.
            return this.detach(py);
        }
        let socket = this.socket.bind(py);
        if let Ok(core) = SocketBase::open(socket) {
            // The next waiter gets the failure.
            let _ = core.look(Events::READ | Events::WRITE);
        }
        Ok(())
    }

    fn _look(slf: &Bound<'_, Self>) -> PyResult<()> {
        let mut state = slf.get().state();
        state.is_scheduled = false;
        let is_waited_for = state.is_waited_for();
        drop(state);
        if is_waited_for { Self::serve(slf, false) } else { Ok(()) }
    }

    /// The time of a waiter is up.
    fn _expire(&self, pending: &Bound<'_, PyAny>) -> PyResult<()> {
        if future::is_done(pending)? {
            return Ok(());
        }
        future::set_exception(pending, PyErr::from_value(self.again.bind(pending.py()).call0()?))
    }
}

/// Sets a result, unless its caller was cancelled meanwhile.
#[pyfunction]
fn set_if_waiting(pending: &Bound<'_, PyAny>, result: Bound<'_, PyAny>) -> PyResult<()> {
    if future::is_done(pending)? { Ok(()) } else { future::set_result(pending, result) }
}

fn is_closed(event_loop: &Bound<'_, PyAny>) -> PyResult<bool> {
    event_loop.call_method0(intern!(event_loop.py(), "is_closed"))?.is_truthy()
}

/// The arguments of a call: the socket and the flags before the others.
fn with_socket<'py>(
    socket: &Bound<'py, SocketBase>,
    flags: i32,
    arguments: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyTuple>> {
    let py = socket.py();
    let mut all = Vec::with_capacity(arguments.len() + 2);
    all.push(socket.clone().into_any());
    all.push(flags.into_pyobject(py)?.into_any());
    all.extend(arguments.iter());
    PyTuple::new(py, all)
}
