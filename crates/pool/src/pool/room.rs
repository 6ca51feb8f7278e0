//! Room in a queue with a limit, for callers that cannot block until there is some, such as an event loop's tasks.
//!
//! A thread sleeps until there is room ([`WaitFor::Space`]). A loop is given a task that nobody runs and that ends when
//! there is room, and watches it as it watches the tasks whose results it waits for. No waiter owns the room:
//! one that is woken submits, may find that another was faster, and asks again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ropewalk_sync::Mutex;

use super::{Backend, Pool, PoolState, WaitFor};
use crate::config::Overflow;
use crate::events::{self, What};
use crate::outcome::{Outcome, Record};
use crate::task::{Call, Options, Task};

impl WaitFor {
    pub(crate) fn wants_space(&self) -> bool {
        matches!(self, Self::Space | Self::AnyOrSpace(_))
    }
}

impl<B: Backend> Pool<B> {
    /// See [`Engine::waits_for_room`](crate::Engine::waits_for_room).
    pub(crate) fn waits_for_room(&self) -> bool {
        self.config.capacity.is_some() && self.config.overflow == Overflow::Block
    }

    /// See [`Engine::refuses_when_full`](crate::Engine::refuses_when_full).
    pub(crate) fn refuses_when_full(&self) -> bool {
        self.config.overflow == Overflow::Error
    }

    /// See [`Engine::room`](crate::Engine::room).
    pub(crate) fn room(&self) -> Option<Arc<Task>> {
        let mut state = self.enter()?;
        if self.refuses_when_full() || self.has_space(&state) {
            return None;
        }
        events::tell(&self.config.name, What::Saturated { queued: state.queued() });
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let room = Arc::new(Task::new(id, Call::Local(Mutex::new(None)), 0, Options::default(), 0));
        state.rooms.push(Arc::clone(&room));
        // The ends of tasks that make room must be noticed, whichever thread waits.
        if B::POLLED {
            self.set_watch(&mut state);
        }
        Some(room)
    }

    /// See [`Engine::forget_room`](crate::Engine::forget_room).
    pub(crate) fn forget_room(&self, room: &Arc<Task>) {
        let Some(mut state) = self.enter() else { return };
        let Some(at) = state.rooms.iter().position(|known| Arc::ptr_eq(known, room)) else { return };
        let room = state.rooms.swap_remove(at);
        self.end_rooms(vec![room]);
        self.wake_collector(&state);
    }

    /// Notifies the callers that wait for room, if there is some.
    pub(crate) fn tell_room(&self, state: &mut PoolState<B>) {
        if !state.rooms.is_empty() && self.has_space(state) {
            let rooms = std::mem::take(&mut state.rooms);
            self.end_rooms(rooms);
            self.wake_collector(state);
        }
    }

    pub(super) fn end_rooms(&self, rooms: Vec<Arc<Task>>) {
        let mut told = false;
        for room in rooms {
            if room.finish(Outcome::Cancelled, Record::default()) {
                told = true;
                self.completed.lock().push(room);
            }
        }
        if told {
            Self::bump(&self.completed_word);
        }
    }

    /// The collector may be the leader, and asleep for what the rings bring.
    pub(super) fn wake_collector(&self, state: &PoolState<B>) {
        if state.leader {
            self.control.wake_sleeper();
        }
    }
}
