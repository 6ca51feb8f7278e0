//! The pool's central queue: priorities first, then arrival.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::task::Task;

/// Tasks that no worker has yet, highest priority first and oldest first within one.
///
/// A task that ends while it waits here (cancelled, timed out) stays until it is met, and is skipped; `len` counts the
/// live ones only, so a thread that ends a queued task calls [`forget_one`](Self::forget_one).
#[derive(Debug, Default)]
pub(crate) struct Queue {
    usual: VecDeque<Arc<Task>>,
    others: BTreeMap<Reverse<i32>, VecDeque<Arc<Task>>>,
    live: usize,
}

impl Queue {
    pub(crate) fn len(&self) -> usize {
        self.live
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.live == 0
    }

    fn level(&mut self, priority: i32) -> &mut VecDeque<Arc<Task>> {
        if priority == 0 { &mut self.usual } else { self.others.entry(Reverse(priority)).or_default() }
    }

    pub(crate) fn push(&mut self, task: Arc<Task>) {
        self.live += 1;
        self.level(task.options.priority).push_back(task);
    }

    /// Puts a task that a worker gave back before those that came after it.
    pub(crate) fn push_front(&mut self, task: Arc<Task>) {
        self.live += 1;
        self.level(task.options.priority).push_front(task);
    }

    /// A queued task has ended.
    pub(crate) fn forget_one(&mut self) {
        self.live = self.live.saturating_sub(1);
        if self.live == 0 {
            self.usual.clear();
            self.others.clear();
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Arc<Task>> {
        while self.live > 0 {
            let above = self.others.first_key_value().is_some_and(|(key, _)| key.0 > 0);
            let task = if above || self.usual.is_empty() {
                let mut first = self.others.first_entry()?;
                let task = first.get_mut().pop_front();
                if first.get().is_empty() {
                    first.remove();
                }
                task
            } else {
                self.usual.pop_front()
            };
            if let Some(task) = task
                && !task.is_done()
            {
                self.live -= 1;
                return Some(task);
            }
        }
        None
    }

    /// Takes everything out.
    pub(crate) fn drain(&mut self) -> Vec<Arc<Task>> {
        std::iter::from_fn(|| self.pop()).collect()
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_sync::Mutex;

    use super::*;
    use crate::outcome::{Outcome, Record};
    use crate::task::{Call, Options};

    fn task(id: u64, priority: i32) -> Arc<Task> {
        let options = Options { priority, ..Options::default() };
        Arc::new(Task::new(id, Call::Local(Mutex::new(None)), 0, options, 0))
    }

    #[test]
    fn priority_then_arrival() {
        let mut queue = Queue::default();
        for (id, priority) in [(1, 0), (2, -1), (3, 5), (4, 0), (5, 5), (6, 1)] {
            queue.push(task(id, priority));
        }
        let order: Vec<u64> = queue.drain().iter().map(|t| t.id).collect();
        assert_eq!(order, [3, 5, 6, 1, 4, 2]);
    }

    #[test]
    fn what_is_given_back_goes_before_its_equals() {
        let mut queue = Queue::default();
        assert!(queue.is_empty() && queue.pop().is_none());
        for (id, priority) in [(1, 0), (2, 3), (3, -2)] {
            queue.push(task(id, priority));
        }
        for (id, priority) in [(4, 0), (5, 3), (6, -2)] {
            queue.push_front(task(id, priority));
        }
        assert_eq!(queue.len(), 6);
        assert_eq!(queue.pop().map(|task| task.id), Some(5));
        assert_eq!((queue.len(), queue.is_empty()), (5, false));
        let rest: Vec<u64> = queue.drain().iter().map(|task| task.id).collect();
        assert_eq!(rest, [2, 4, 1, 6, 3]);
        assert!(queue.is_empty() && queue.others.is_empty(), "no level is left behind");
    }

    #[test]
    fn the_last_that_ends_empties_the_queue() {
        let mut queue = Queue::default();
        let ends = [task(1, 0), task(2, 4)];
        for task in &ends {
            queue.push(Arc::clone(task));
        }
        for task in &ends {
            task.finish(Outcome::Cancelled, Record::default());
            queue.forget_one();
        }
        assert!(queue.usual.is_empty() && queue.others.is_empty(), "they keep nothing alive");
        queue.forget_one();
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn ended_tasks_are_skipped_and_not_counted() {
        let mut queue = Queue::default();
        let first = task(1, 0);
        queue.push(Arc::clone(&first));
        queue.push(task(2, 0));
        first.finish(Outcome::Cancelled, Record::default());
        queue.forget_one();
        assert_eq!(queue.len(), 1);
        assert_eq!(queue.pop().map(|t| t.id), Some(2));
        assert!(queue.pop().is_none() && queue.is_empty());
    }
}
