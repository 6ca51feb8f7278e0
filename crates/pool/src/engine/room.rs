//! Room in a queue with a limit, for those who cannot block until there is some: an event loop's tasks, for one.
//!
//! A thread sleeps until there is room ([`Sleeper::Space`]). A loop is given a task that nobody runs and that ends when
//! there is room, and watches it as it watches the tasks whose results it waits for. The room itself is nobody's:
//! whoever is told submits, may find that another was faster, and asks again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ropewalk_sync::Mutex;

use super::{Core, Engine, Sleeper};
use crate::config::OnFull;
use crate::events::{self, What};
use crate::outcome::{Outcome, Record};
use crate::task::{Call, Options, Task};

impl Sleeper {
    pub(crate) fn wants_space(&self) -> bool {
        matches!(self, Self::Space | Self::AnyOrSpace(_))
    }
}

impl Engine {
    /// Whether a submission waits for room in a full queue, and is not refused.
    pub fn waits_for_room(&self) -> bool {
        self.config.max_queue.is_some() && self.config.on_full == OnFull::Block
    }

    /// A task that ends, as cancelled, when a submission need not wait for room any more; `None` if it need not now.
    /// One that is not wanted any more is given back to [`forget_room`](Self::forget_room).
    pub fn room(&self) -> Option<Arc<Task>> {
        let mut core = self.enter()?;
        if !self.waits_for_room() || self.has_space(&core) {
            return None;
        }
        events::tell(&self.config.name, What::Saturated { queued: core.queued() });
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let room = Arc::new(Task::new(id, Call::Local(Mutex::new(None)), 0, Options::default(), 0));
        core.rooms.push(Arc::clone(&room));
        // The tasks that make room are to be seen ending, whoever else waits.
        if self.is_remote() {
            self.set_watch(&mut core);
        }
        Some(room)
    }

    /// Ends a task that [`room`](Self::room) has given: nobody waits for it.
    pub fn forget_room(&self, room: &Arc<Task>) {
        let Some(mut core) = self.enter() else { return };
        let Some(at) = core.rooms.iter().position(|known| Arc::ptr_eq(known, room)) else { return };
        let room = core.rooms.swap_remove(at);
        self.end_rooms(vec![room]);
        self.wake_collector(&core);
    }

    /// Tells those who wait for room, if there is some.
    pub(crate) fn tell_room(&self, core: &mut Core) {
        if !core.rooms.is_empty() && self.has_space(core) {
            let rooms = std::mem::take(&mut core.rooms);
            self.end_rooms(rooms);
            self.wake_collector(core);
        }
    }

    fn end_rooms(&self, rooms: Vec<Arc<Task>>) {
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
    fn wake_collector(&self, core: &Core) {
        if core.leader {
            self.control.wake_sleeper();
        }
    }
}
