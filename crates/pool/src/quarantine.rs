//! Tasks that have cost too many workers their life: a bounded list of the last of them.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::outcome::Death;
use crate::task::{Called, Task};

/// The most that are kept: the oldest are forgotten first. Each has a few KiB of arguments at most.
const MOST: usize = 64;

/// A task that is not run again, because it has cost too many workers their life.
#[derive(Clone, Debug)]
pub struct Quarantined {
    /// The task's number in its pool.
    pub task: u64,
    /// Bits of `wire::flags`.
    pub flags: u16,
    /// How often it was started.
    pub attempt: u32,
    /// What it calls.
    pub call: Option<Called>,
    /// The deaths of the workers, in order.
    pub deaths: Arc<[Death]>,
}

impl Quarantined {
    pub(crate) fn new(task: &Task, deaths: &Arc<[Death]>) -> Self {
        Self {
            task: task.id,
            flags: task.flags,
            attempt: task.attempt(),
            call: task.called(),
            deaths: Arc::clone(deaths),
        }
    }
}

/// The last tasks that were quarantined.
#[derive(Debug, Default)]
pub(crate) struct Quarantine(VecDeque<Quarantined>);

impl Quarantine {
    pub(crate) fn add(&mut self, quarantined: Quarantined) {
        if self.0.len() >= MOST {
            self.0.pop_front();
        }
        self.0.push_back(quarantined);
    }

    /// All of them, oldest first.
    pub(crate) fn all(&self) -> Vec<Quarantined> {
        self.0.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_sync::Mutex;

    use super::*;
    use crate::task::{Call, Options};

    #[test]
    fn the_last_ones_are_kept() {
        let mut quarantine = Quarantine::default();
        let deaths: Arc<[Death]> = [Death { pid: 1, status: Some(9), hung: false }].into();
        for id in 0..MOST as u64 + 3 {
            let task = Task::new(id, Call::Local(Mutex::new(None)), 0, Options::default(), 3);
            quarantine.add(Quarantined::new(&task, &deaths));
        }
        let all = quarantine.all();
        assert_eq!((all.len(), all[0].task, all[MOST - 1].task), (MOST, 3, MOST as u64 + 2));
        assert_eq!((all[0].attempt, all[0].deaths[0].pid), (3, 1));
    }
}
