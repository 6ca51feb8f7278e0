//! The waiting tasks of one priority.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use super::fair::Fair;
use crate::task::Task;

/// One priority's tasks; see [`Queue`](super::Queue).
#[derive(Debug)]
pub(super) enum Level {
    /// No client with a name has any: in the order of their arrival.
    Plain(VecDeque<Arc<Task>>),
    /// In turns of the clients.
    Fair(Box<Fair>),
}

impl Default for Level {
    fn default() -> Self {
        Self::Plain(VecDeque::new())
    }
}

/// The first task that has not ended.
pub(super) fn pop_live(tasks: &mut VecDeque<Arc<Task>>) -> Option<Arc<Task>> {
    loop {
        let task = tasks.pop_front()?;
        if !task.is_done() {
            return Some(task);
        }
    }
}

/// The least of a measure that grows from a task to the next, except for those that came back: they stand first.
pub(super) fn oldest_of(tasks: &VecDeque<Arc<Task>>, measure: impl Fn(&Task) -> Instant) -> Option<Instant> {
    let mut oldest = None;
    for task in tasks.iter().filter(|task| !task.is_done()) {
        oldest = oldest.into_iter().chain([measure(task)]).min();
        if task.attempt() == 0 {
            break;
        }
    }
    oldest
}

impl Level {
    pub(super) fn push(&mut self, task: Arc<Task>) {
        match self {
            Self::Plain(tasks) if task.options.client().is_none() => tasks.push_back(task),
            Self::Plain(_) => self.shared().push(task),
            Self::Fair(fair) => fair.push(task),
        }
    }

    pub(super) fn push_front(&mut self, task: Arc<Task>, was_run: bool) {
        match self {
            Self::Plain(tasks) if task.options.client().is_none() => tasks.push_front(task),
            Self::Plain(_) => self.shared().push_front(task, was_run),
            Self::Fair(fair) => fair.push_front(task, was_run),
        }
    }

    /// From now on in turns.
    fn shared(&mut self) -> &mut Fair {
        if let Self::Plain(tasks) = self {
            let tasks = std::mem::take(tasks);
            *self = Self::Fair(Box::new(Fair::new(tasks)));
        }
        match self {
            Self::Fair(fair) => fair,
            Self::Plain(_) => unreachable!("it has just been made fair"),
        }
    }

    /// In one queue again, if no client with a name is left.
    fn settle(&mut self) {
        if self.fair().is_some_and(Fair::is_plain)
            && let Self::Fair(fair) = std::mem::take(self)
        {
            *self = Self::Plain(fair.into_plain());
        }
    }

    /// The next task that has not ended.
    pub(super) fn pop(&mut self) -> Option<Arc<Task>> {
        match self {
            Self::Plain(tasks) => pop_live(tasks),
            Self::Fair(fair) => {
                let task = fair.pop();
                self.settle();
                task
            }
        }
    }

    /// The oldest task of a client; without one, of those without a client.
    pub(super) fn pop_of(&mut self, client: Option<&str>) -> Option<Arc<Task>> {
        match self {
            Self::Plain(tasks) => client.is_none().then(|| pop_live(tasks)).flatten(),
            Self::Fair(fair) => {
                let task = fair.pop_of(client);
                self.settle();
                task
            }
        }
    }

    /// A task that waits here has ended.
    pub(super) fn forget_one(&mut self, task: &Task) {
        if let Self::Fair(fair) = self {
            fair.forget_one(task);
            self.settle();
        }
    }

    /// Drops the tasks in front that have ended; whether that were all.
    pub(super) fn is_spent(&mut self) -> bool {
        match self {
            Self::Plain(tasks) => {
                while tasks.front().is_some_and(|task| task.is_done()) {
                    tasks.pop_front();
                }
                tasks.is_empty()
            }
            // It forgets each client with its last live task.
            Self::Fair(_) => false,
        }
    }

    /// The client that has the most tasks here for its share.
    pub(super) fn largest(&self) -> Option<Arc<str>> {
        match self {
            Self::Plain(_) => None,
            Self::Fair(fair) => fair.largest().flatten().cloned(),
        }
    }

    pub(super) fn oldest(&self, measure: impl Fn(&Task) -> Instant) -> Option<Instant> {
        match self {
            Self::Plain(tasks) => oldest_of(tasks, measure),
            Self::Fair(fair) => fair.oldest(measure),
        }
    }

    /// The clients, if there are any with a name.
    pub(super) fn fair(&self) -> Option<&Fair> {
        match self {
            Self::Plain(_) => None,
            Self::Fair(fair) => Some(fair),
        }
    }
}
