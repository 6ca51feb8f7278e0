//! The waiters for a socket, and the state of their loop.

use std::collections::VecDeque;
use std::os::fd::RawFd;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::socket::{SocketBase, receive};

/// An operation that is tried without waiting.
pub(in crate::awaited) enum Attempt {
    /// Receives one part.
    Part,
    /// Receives a whole message.
    Whole,
    /// Calls something with these arguments, the blocking socket first; it raises `Again` if it cannot be done yet.
    Call(Py<PyAny>, Py<PyTuple>),
}

impl Attempt {
    /// Tries the operation; `None` if it cannot be done yet (a call raises that). `hot` skips asking the kernel.
    pub(super) fn make<'py>(
        &self,
        socket: &Bound<'py, SocketBase>,
        hot: bool,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self {
            Self::Part => receive::at_once(socket, hot),
            Self::Whole => receive::whole_at_once(socket, hot),
            Self::Call(call, arguments) => {
                call.bind(socket.py()).call1(arguments.bind(socket.py())).map(Some)
            }
        }
    }
}

/// An operation that did not succeed at once.
pub(super) struct Waiter {
    /// The future of its result.
    pub(super) future: Py<PyAny>,
    pub(super) attempt: Attempt,
    /// Ends it after the socket's timeout.
    pub(super) timer: Option<Py<PyAny>>,
}

impl Waiter {
    pub(super) fn stop_timer(&self, py: Python<'_>) -> PyResult<()> {
        match &self.timer {
            Some(timer) => timer.bind(py).call_method0(intern!(py, "cancel")).map(drop),
            None => Ok(()),
        }
    }
}

#[derive(Clone, Copy)]
pub(super) enum Side {
    Receiving,
    Sending,
}

/// The loop that calls the watch, and the descriptors that it watches.
pub(super) struct Home {
    pub(super) event_loop: Py<PyAny>,
    /// Whether the loop is one of ours, which is cheaper to recognize.
    pub(super) is_ours: bool,
    pub(super) descriptors: [RawFd; 2],
}

pub(super) struct State {
    /// Served in their order, as senders are.
    pub(super) receivers: VecDeque<Waiter>,
    pub(super) senders: VecDeque<Waiter>,
    /// Waiters for events: the events, any of which will do, and the future that gets those that came.
    pub(super) events: Vec<(i32, Py<PyAny>)>,
    pub(super) home: Option<Home>,
    /// A call of `_look` is in the loop's queue.
    pub(super) is_scheduled: bool,
    /// A descriptor was readable while there was no waiter.
    pub(super) is_unseen: bool,
    /// How many operations may still succeed at once, until one lets the loop turn.
    pub(super) left: u32,
    /// How many receives in a row found nothing.
    pub(super) vain: u32,
}

impl State {
    pub(super) fn queue(&mut self, side: Side) -> &mut VecDeque<Waiter> {
        match side {
            Side::Receiving => &mut self.receivers,
            Side::Sending => &mut self.senders,
        }
    }

    pub(super) fn is_waited_for(&self) -> bool {
        !(self.receivers.is_empty() && self.senders.is_empty() && self.events.is_empty())
    }
}
