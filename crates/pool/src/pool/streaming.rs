//! Streams as a pool sees them: their readers, and their end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ropewalk_base::Result;
use ropewalk_sync::Mutex;

use super::{Backend, Pool, PoolState, WaitFor, Waited};
use crate::clock;
use crate::locked::Opaque;
use crate::stream::{Arrived, Items};
use crate::task::{Call, Options, Task};

impl<B: Backend> Pool<B> {
    /// See [`Engine::leave_stream`](crate::Engine::leave_stream).
    pub(crate) fn leave_stream(&self, task: &Arc<Task>) -> Items {
        let Some(stream) = task.stream() else { return Items::default() };
        let Some(mut state) = self.enter() else { return Items::default() };
        let unread = stream.leave();
        self.stop(&mut state, task);
        self.after_outside_change(&mut state);
        unread
    }

    /// See [`Engine::stream_signal`](crate::Engine::stream_signal).
    pub(crate) fn stream_signal(&self, task: &Arc<Task>) -> Option<Arc<Task>> {
        let mut state = self.enter()?;
        self.look(&mut state);
        let stream = task.stream()?;
        let at = state.streams.iter().position(|(known, _)| Arc::ptr_eq(known, task))?;
        if !stream.want_signal() {
            return None;
        }
        let known = state.streams.get(at).and_then(|(_, signal)| signal.clone());
        let signal = known.unwrap_or_else(|| {
            let id = self.next_id.fetch_add(1, Ordering::Relaxed);
            Arc::new(Task::new(id, Call::Local(Mutex::new(None)), 0, Options::default(), 0))
        });
        if let Some((_, place)) = state.streams.get_mut(at) {
            *place = Some(Arc::clone(&signal));
        }
        // Items must be noticed, whichever thread waits.
        if B::POLLED {
            self.set_watch(&mut state);
        }
        Some(signal)
    }

    /// See [`Engine::item_made`](crate::Engine::item_made).
    pub(crate) fn item_made(&self, task: &Arc<Task>, item: Opaque, cost: u64) -> Result<()> {
        let Some(stream) = task.stream() else { return Ok(()) };
        if stream.arrive_local(item, cost)? == Arrived::Awaited
            && let Some(mut state) = self.enter()
        {
            self.signal_reader(&mut state, task);
        }
        Ok(())
    }

    /// Something of a stream has come for which a reader waits.
    pub(crate) fn signal_reader(&self, state: &mut PoolState<B>, task: &Arc<Task>) {
        let known = state.streams.iter_mut().find(|(known, _)| Arc::ptr_eq(known, task));
        if let Some(signal) = known.and_then(|(_, signal)| signal.take()) {
            self.end_rooms(vec![signal]);
            self.wake_collector(state);
        }
    }

    /// A stream has ended.
    pub(crate) fn stream_ended(&self, state: &mut PoolState<B>, task: &Arc<Task>) {
        self.signal_reader(state, task);
        state.streams.retain(|(known, _)| !Arc::ptr_eq(known, task));
    }

    /// The pool takes no more tasks: its streams stop, because nothing may come back to read them, and they would
    /// never end then.
    pub(crate) fn stop_streams(&self, state: &mut PoolState<B>) {
        let streams: Vec<_> = state.streams.iter().map(|(task, _)| Arc::clone(task)).collect();
        for task in streams {
            self.stop(state, &task);
        }
    }

    /// Blocks until there is something to read of a stream whose pool no thread drives.
    pub(crate) fn read_alone(&self, task: &Arc<Task>, what: &WaitFor, deadline: Option<Instant>) -> Waited {
        let ready = || self.is_ready(what);
        loop {
            if ready() {
                return Waited::Ready;
            }
            let timeout = deadline.map(|at| at.saturating_duration_since(clock::now()));
            if self.is_forked() || timeout == Some(Duration::ZERO) {
                return Waited::TimedOut;
            }
            let interrupted = task.stream().is_some_and(|stream| stream.sleep_unless(ready, timeout));
            if interrupted && !ready() {
                return Waited::Interrupted;
            }
        }
    }
}
