//! Serves the waiters, in a callback of the loop.

use pyo3::prelude::*;
use ropewalk_messaging::Events;

use super::Watch;
use super::waiters::{Attempt, Side};
use crate::awaited::{future, is_ordinary};
use crate::socket::SocketBase;
use crate::{errors, release};

impl Watch {
    /// Does what can be done now. The remaining waiters have found nothing, or are checked again. `is_signalled` says
    /// that a descriptor was readable.
    pub(super) fn serve(slf: &Bound<'_, Self>, is_signalled: bool) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let (mut received, mut sent) = (0, 0);
        let served = this.serve_all(py, is_signalled, &mut received, &mut sent);
        match served {
            // Each operation may have taken the signal of a waiter that was checked before it: for instance, a request
            // can be sent after an answer. The last waiter was checked last.
            Ok(()) => {
                let state = this.state();
                let others = received + sent > 1
                    || (received > 0 && !state.senders.is_empty())
                    || (sent > 0 && !state.receivers.is_empty());
                drop(state);
                if others { Self::look_again(slf) } else { Ok(()) }
            }
            // A task that was run wants to end the program; the others still wait.
            Err(error) => {
                Self::look_again(slf)?;
                Err(error)
            }
        }
    }

    fn serve_all(
        &self,
        py: Python<'_>,
        is_signalled: bool,
        received: &mut usize,
        sent: &mut usize,
    ) -> PyResult<()> {
        let state = self.state();
        let (sends, watches) = (!state.senders.is_empty(), !state.events.is_empty());
        let what = match state.receivers.is_empty() && !watches {
            // Arrived messages stay where they are while no waiter wants them.
            true => Events::WRITE,
            false => Events::READ | Events::WRITE,
        };
        drop(state);
        // A socket with receivers only is not asked first: it is readable because a message has arrived.
        let found = if sends || watches {
            match self.look(py, what)? {
                Some(found) => found,
                None => return Ok(()),
            }
        } else {
            Events::READ
        };
        if found.has(Events::READ) {
            self.work(py, Side::Receiving, is_signalled && !sends && !watches, received)?;
        }
        if found.has(Events::WRITE) {
            self.work(py, Side::Sending, false, sent)?;
        }
        if self.state().events.is_empty() {
            return Ok(());
        }
        let found = if *received + *sent > 0 || !watches {
            match self.look(py, Events::READ | Events::WRITE)? {
                Some(found) => found,
                None => return Ok(()),
            }
        } else {
            found
        };
        self.tell(py, i32::from(found.bits()))
    }

    /// The possible operations now. If this fails, the socket is closed or its context terminated, and nothing will
    /// ever arrive: all waiters get the error, and the result is empty.
    fn look(&self, py: Python<'_>, what: Events) -> PyResult<Option<Events>> {
        release::collect(py);
        let socket = self.socket.bind(py);
        let looked = SocketBase::open(socket)
            .and_then(|core| core.look(what).map_err(|error| errors::of(socket, &error)));
        let error = match looked {
            Ok(found) => return Ok(Some(found)),
            Err(error) if is_ordinary(py, &error) => error,
            Err(error) => return Err(error),
        };
        for pending in self.take_all(py)? {
            let pending = pending.bind(py);
            if !future::is_done(pending)? {
                future::set_exception(pending, error.clone_ref(py))?;
            }
        }
        self.detach(py)?;
        Ok(None)
    }

    /// Tries the operations of the current waiters: tasks that run meanwhile try by themselves before they wait.
    fn work(&self, py: Python<'_>, side: Side, is_signalled: bool, done: &mut usize) -> PyResult<()> {
        let socket = self.socket.bind(py);
        match side {
            _ if is_signalled => {
                if let Ok(core) = SocketBase::open(socket) {
                    core.presume_readable();
                }
            }
            // The loop has turned because a receive has looked for long enough. Nothing else has come up: it looks on.
            Side::Receiving if self.core(py).is_ok() => {
                self.look_near(socket)?;
            }
            _ => {}
        }
        let waiting = self.state().queue(side).len();
        for _ in 0..waiting {
            // Taken out first: what runs here may be a caller's own function. A task may have closed the socket.
            let taken = self.state().queue(side).pop_front();
            let Some(waiter) = taken else { break };
            let pending = waiter.future.bind(py);
            if future::is_done(pending)? {
                waiter.stop_timer(py)?;
                continue;
            }
            let mut result = Ok(None);
            if is_signalled {
                result = waiter.attempt.make(socket, true);
            }
            if let Ok(None) = result {
                result = waiter.attempt.make(socket, false);
            }
            let result = match result {
                Err(error) if error.is_instance(py, self.again.bind(py)) => None,
                Ok(result) => result,
                Err(error) => {
                    waiter.stop_timer(py)?;
                    if !is_ordinary(py, &error) {
                        future::set_exception(pending, error.clone_ref(py))?;
                        return Err(error);
                    }
                    if !future::is_done(pending)? {
                        future::set_exception(pending, error)?;
                    }
                    continue;
                }
            };
            let Some(result) = result else {
                self.state().queue(side).push_front(waiter);
                break;
            };
            waiter.stop_timer(py)?;
            *done += 1;
            if matches!(waiter.attempt, Attempt::Call(..)) && future::is_done(pending)? {
                continue;
            }
            future::finish(pending, result)?;
        }
        Ok(())
    }

    fn tell(&self, py: Python<'_>, state: i32) -> PyResult<()> {
        let waiting = std::mem::take(&mut self.state().events);
        for (events, pending) in waiting {
            let waits = pending.bind(py);
            if future::is_done(waits)? {
                continue;
            }
            if state & events != 0 {
                future::set_result(waits, (state & events).into_pyobject(py)?.into_any())?;
            } else {
                self.state().events.push((events, pending));
            }
        }
        Ok(())
    }
}
