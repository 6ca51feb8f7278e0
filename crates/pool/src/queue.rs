//! The pool's central queue: priorities first, then clients in turn, then arrival.
//!
//! With aging a task's place is the time of its submission less so many seconds for each step of its priority, and the
//! least goes first. That order never changes while tasks wait, so nothing is sorted again: a task is overtaken by
//! those of a priority `n` steps higher that are submitted within `n` times the aging after it, and by no later one.

mod fair;
mod level;
mod pinned;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::level::Level;
use self::pinned::Pinned;
use crate::clock;
use crate::session::COMMON;
use crate::task::Task;

/// Tasks that no worker has yet, highest priority first and oldest first within one.
///
/// A task that ends while it waits here (cancelled, timed out) stays until it is met, and is skipped; `len` counts the
/// live ones only, so a thread that ends a queued task calls [`forget_one`](Self::forget_one).
///
/// A task whose session has a place of its own waits there, and [`pop`](Self::pop) does not return it.
#[derive(Debug)]
pub(crate) struct Queue {
    usual: Level,
    others: BTreeMap<Reverse<i32>, Level>,
    live: usize,
    /// How long a task waits until it stands with those of the next higher priority; `None` for ever.
    aging: Option<Duration>,
    /// What the times of submissions are measured from.
    epoch: Instant,
    pub(crate) pinned: Pinned,
}

/// The place where a task of a session waits, if that is not the common queue.
#[inline]
fn place_of(task: &Task) -> Option<usize> {
    let session = task.session()?;
    Some(session.place_of(task.id)).filter(|place| *place != COMMON)
}

impl Default for Queue {
    fn default() -> Self {
        Self::new(None)
    }
}

impl Queue {
    pub(crate) fn new(aging: Option<Duration>) -> Self {
        Self {
            usual: Level::default(),
            others: BTreeMap::new(),
            live: 0,
            aging,
            epoch: clock::now(),
            pinned: Pinned::default(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.live + self.pinned.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether there is a task that any worker may run.
    pub(crate) fn has_common(&self) -> bool {
        self.live > 0
    }

    fn level(&mut self, priority: i32) -> &mut Level {
        if priority == 0 { &mut self.usual } else { self.others.entry(Reverse(priority)).or_default() }
    }

    pub(crate) fn push(&mut self, task: Arc<Task>) {
        if let Some(place) = place_of(&task) {
            return self.pinned.insert(place, task);
        }
        self.live += 1;
        self.level(task.options.priority).push(task);
    }

    /// Puts a task that a worker gave back, and did not run, before those that came after it.
    pub(crate) fn push_front(&mut self, task: Arc<Task>) {
        if let Some(place) = place_of(&task) {
            return self.pinned.insert(place, task);
        }
        self.live += 1;
        self.level(task.options.priority).push_front(task, false);
    }

    /// Puts a task that is to be run once more before its equals.
    pub(crate) fn push_again(&mut self, task: Arc<Task>) {
        if let Some(place) = place_of(&task) {
            return self.pinned.insert(place, task);
        }
        self.live += 1;
        self.level(task.options.priority).push_front(task, true);
    }

    /// A queued task has ended, or is about to.
    pub(crate) fn forget_one(&mut self, task: &Task) {
        if let Some(place) = place_of(task) {
            return self.pinned.remove(place, task);
        }
        self.live = self.live.saturating_sub(1);
        if self.live == 0 {
            self.usual = Level::default();
            self.others.clear();
            return;
        }
        let priority = task.options.priority;
        if priority == 0 {
            self.usual.forget_one(task);
        } else if let Some(level) = self.others.get_mut(&Reverse(priority)) {
            level.forget_one(task);
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Arc<Task>> {
        if self.live == 0 {
            return None;
        }
        let task = if self.others.is_empty() { self.usual.pop() } else { self.pop_mixed() }?;
        self.live -= 1;
        if self.live == 0 {
            // What is left has ended.
            self.others.clear();
        }
        Some(task)
    }

    /// The next task, if more than the usual priority waits.
    fn pop_mixed(&mut self) -> Option<Arc<Task>> {
        let next = match self.aging {
            None => self.highest(),
            Some(step) => self.first_in_time(step),
        };
        let Some(priority) = next else { return self.usual.pop() };
        let level = self.others.get_mut(&priority)?;
        let task = level.pop();
        if level.is_spent() {
            self.others.remove(&priority);
        }
        task
    }

    /// The priority that goes first; `None` for the usual one.
    fn highest(&mut self) -> Option<Reverse<i32>> {
        loop {
            let mut first = self.others.first_entry()?;
            let priority = *first.key();
            if priority.0 < 0 && !self.usual.is_spent() {
                return None;
            }
            if !first.get_mut().is_spent() {
                return Some(priority);
            }
            first.remove();
        }
    }

    /// The same with aging: the cost is that of a look at each priority that waits.
    fn first_in_time(&mut self, step: Duration) -> Option<Reverse<i32>> {
        let usual = self.usual.oldest(|task| task.submitted).map(|at| self.place(0, at, step));
        let others = self.others.iter().filter_map(|(priority, level)| {
            let at = level.oldest(|task| task.submitted)?;
            Some((self.place(priority.0, at, step), *priority))
        });
        // Of equals the one of the higher priority: `others` has those in front.
        let above = others.min_by_key(|(place, _)| *place);
        match (usual, above) {
            (Some(usual), Some((other, priority))) => {
                let before = other < usual || (other == usual && priority.0 > 0);
                before.then_some(priority)
            }
            (_, above) => above.map(|(_, priority)| priority),
        }
    }

    /// The place of a task in the order of an aging queue, in nanoseconds.
    fn place(&self, priority: i32, submitted: Instant, step: Duration) -> i128 {
        let nanos = |time: Duration| i128::try_from(time.as_nanos()).unwrap_or(i128::MAX >> 32);
        nanos(submitted.saturating_duration_since(self.epoch))
            - i128::from(priority).saturating_mul(nanos(step))
    }

    /// Whether a task that waits goes before another, newer one of another priority.
    pub(crate) fn goes_before(&self, waiting: &Task, newer: &Task) -> bool {
        let (ours, theirs) = (waiting.options.priority, newer.options.priority);
        match self.aging {
            None => ours >= theirs,
            Some(step) => {
                let place = |task: &Task| {
                    let priority = task.options.priority;
                    (self.place(priority, task.submitted, step), Reverse(priority))
                };
                place(waiting) <= place(newer)
            }
        }
    }

    /// Whether this task, which waits here, is the only one of its client, and others have some.
    pub(crate) fn is_first_of_its_client(&self, task: &Task) -> bool {
        let priority = task.options.priority;
        let level = if priority == 0 { Some(&self.usual) } else { self.others.get(&Reverse(priority)) };
        match level.and_then(Level::fair) {
            Some(fair) => fair.waiting_beside(task) <= 1,
            None => self.live <= 1,
        }
    }

    /// The lowest priority that waits here, and the client that has the most tasks of it for its share.
    pub(crate) fn least(&mut self) -> Option<(i32, Option<Arc<str>>)> {
        let common = self.least_common();
        match (&common, self.pinned.lowest()) {
            (Some((priority, _)), Some(pinned)) if *priority <= pinned => common,
            (_, Some(pinned)) => Some((pinned, None)),
            (_, None) => common,
        }
    }

    fn least_common(&mut self) -> Option<(i32, Option<Arc<str>>)> {
        while let Some(mut last) = self.others.last_entry() {
            let priority = last.key().0;
            if priority > 0 && !self.usual.is_spent() {
                break;
            }
            if !last.get_mut().is_spent() {
                return Some((priority, last.get().largest()));
            }
            last.remove();
        }
        (!self.usual.is_spent()).then(|| (0, self.usual.largest()))
    }

    /// Takes the oldest task of a client and a priority out of its turn.
    pub(crate) fn pop_of(&mut self, priority: i32, client: Option<&str>) -> Option<Arc<Task>> {
        let level =
            if priority == 0 { Some(&mut self.usual) } else { self.others.get_mut(&Reverse(priority)) };
        let task = level.and_then(|level| level.pop_of(client));
        let Some(task) = task else { return self.pinned.pop_of(priority) };
        let level = if priority == 0 { &mut self.usual } else { self.others.get_mut(&Reverse(priority))? };
        let spent = level.is_spent();
        if spent {
            self.others.remove(&Reverse(priority));
        }
        self.live -= 1;
        if self.live == 0 {
            // What is left has ended.
            self.others.clear();
        }
        Some(task)
    }

    /// Since when the task waits that has waited longest. It looks at the first task of each client and each priority.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        let levels = std::iter::once(&self.usual).chain(self.others.values()).filter(|_| self.live > 0);
        let common = levels.filter_map(|level| level.oldest(Task::waits_since));
        common.chain(self.pinned.tasks().map(|task| task.waits_since())).min()
    }

    /// The clients with a name that have tasks here, and how many.
    pub(crate) fn depths(&self) -> BTreeMap<Arc<str>, usize> {
        let mut depths = BTreeMap::new();
        let levels = std::iter::once(&self.usual).chain(self.others.values());
        for (name, depth) in levels.filter_map(Level::fair).flat_map(fair::Fair::depths) {
            *depths.entry(Arc::clone(name)).or_default() += depth;
        }
        for client in self.pinned.tasks().filter_map(|task| task.options.client()) {
            *depths.entry(Arc::clone(&client.name)).or_default() += 1;
        }
        depths
    }

    /// Takes everything out.
    pub(crate) fn drain(&mut self) -> Vec<Arc<Task>> {
        let pinned = self.pinned.drain();
        std::iter::from_fn(|| self.pop()).chain(pinned).collect()
    }
}

#[cfg(test)]
mod tests;
