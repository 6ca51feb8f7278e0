//! Queued tasks that one worker alone may run, by the place where they wait.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::task::Task;

/// See the module. Each place is in the order in which its tasks are to run: highest priority first, and oldest first
/// within one, whichever of them were given back by a worker.
#[derive(Debug, Default)]
pub(crate) struct Pinned {
    places: BTreeMap<usize, VecDeque<Arc<Task>>>,
    len: usize,
}

type Rank = (Reverse<i32>, u64);

fn rank(task: &Task) -> Rank {
    (Reverse(task.options.priority), task.id)
}

impl Pinned {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn insert(&mut self, place: usize, task: Arc<Task>) {
        let tasks = self.places.entry(place).or_default();
        let at = match tasks.back() {
            Some(last) if rank(last) > rank(&task) => {
                tasks.partition_point(|known| rank(known) < rank(&task))
            }
            _ => tasks.len(),
        };
        tasks.insert(at, task);
        self.len += 1;
    }

    /// Takes out a task that waits at a place.
    pub(crate) fn remove(&mut self, place: usize, task: &Task) {
        let Some(tasks) = self.places.get_mut(&place) else { return };
        if let Ok(at) = tasks.binary_search_by_key(&rank(task), |known| rank(known)) {
            tasks.remove(at);
            self.removed(place, 1);
        }
    }

    /// The first task of a place.
    pub(crate) fn pop(&mut self, place: usize) -> Option<Arc<Task>> {
        let task = self.places.get_mut(&place)?.pop_front()?;
        self.removed(place, 1);
        Some(task)
    }

    /// The first task of a place, if it is to run before this one.
    pub(crate) fn pop_before(&mut self, place: usize, other: &Task) -> Option<Arc<Task>> {
        let first = self.places.get(&place)?.front()?;
        if rank(first) < rank(other) { self.pop(place) } else { None }
    }

    /// Takes out the tasks of a session that wait at a place, in their order.
    pub(crate) fn take_session(&mut self, place: usize, session: u32) -> Vec<Arc<Task>> {
        let Some(tasks) = self.places.get_mut(&place) else { return Vec::new() };
        let is_its = |task: &Arc<Task>| task.session().is_some_and(|known| known.id == session);
        let taken: Vec<_> = tasks.iter().filter(|task| is_its(task)).cloned().collect();
        if !taken.is_empty() {
            tasks.retain(|task| !is_its(task));
            self.removed(place, taken.len());
        }
        taken
    }

    /// Takes out everything that waits at a place.
    pub(crate) fn take_place(&mut self, place: usize) -> Vec<Arc<Task>> {
        let taken: Vec<_> = self.places.remove(&place).into_iter().flatten().collect();
        self.len -= taken.len();
        taken
    }

    /// The lowest priority that waits here.
    pub(crate) fn lowest(&self) -> Option<i32> {
        self.places.values().filter_map(|tasks| tasks.back()).map(|task| task.options.priority).min()
    }

    /// Takes out the oldest task of a priority.
    pub(crate) fn pop_of(&mut self, priority: i32) -> Option<Arc<Task>> {
        let first = |tasks: &VecDeque<Arc<Task>>| {
            tasks.iter().find(|task| task.options.priority == priority).map(|task| task.id)
        };
        let (id, place) = self.places.iter().filter_map(|(place, all)| Some((first(all)?, *place))).min()?;
        let tasks = self.places.get_mut(&place)?;
        let task = tasks.iter().position(|task| task.id == id).and_then(|at| tasks.remove(at));
        self.removed(place, 1);
        task
    }

    /// All tasks, in no order.
    pub(crate) fn tasks(&self) -> impl Iterator<Item = &Arc<Task>> {
        self.places.values().flatten()
    }

    pub(crate) fn has(&self, place: usize) -> bool {
        self.places.contains_key(&place)
    }

    /// The places where tasks wait.
    pub(crate) fn places(&self) -> Vec<usize> {
        self.places.keys().copied().collect()
    }

    pub(crate) fn drain(&mut self) -> Vec<Arc<Task>> {
        self.len = 0;
        let mut all: Vec<_> = std::mem::take(&mut self.places).into_values().flatten().collect();
        all.sort_by_key(|task| rank(task));
        all
    }

    fn removed(&mut self, place: usize, count: usize) {
        self.len -= count;
        if self.places.get(&place).is_some_and(VecDeque::is_empty) {
            self.places.remove(&place);
        }
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_sync::Mutex;

    use super::*;
    use crate::session::{Session, SessionSettings};
    use crate::task::{Call, Options};

    fn task(id: u64, priority: i32) -> Arc<Task> {
        let options = Options { priority, ..Options::default() };
        Arc::new(Task::new(id, Call::Local(Mutex::new(None)), 0, options, 0))
    }

    fn ids(tasks: &[Arc<Task>]) -> Vec<u64> {
        tasks.iter().map(|task| task.id).collect()
    }

    #[test]
    fn each_place_keeps_the_order_of_submission_whoever_comes_back() {
        let mut pinned = Pinned::default();
        for (place, id, priority) in [(1, 4, 0), (1, 6, 0), (2, 1, 0), (1, 5, 0), (1, 3, 0), (1, 9, 2)] {
            pinned.insert(place, task(id, priority));
        }
        assert_eq!((pinned.len(), pinned.has(2), pinned.has(3)), (6, true, false));
        assert_eq!((pinned.lowest(), pinned.tasks().count()), (Some(0), 6));
        assert_eq!(pinned.pop(1).map(|task| task.id), Some(9));
        assert!(pinned.pop_before(1, &task(2, 0)).is_none());
        assert_eq!(pinned.pop_before(1, &task(7, 0)).map(|task| task.id), Some(3));
        pinned.remove(1, &task(5, 0));
        pinned.remove(1, &task(5, 0));
        assert_eq!(pinned.len(), 3);
        assert_eq!(ids(&pinned.take_place(1)), [4, 6]);
        assert_eq!((pinned.len(), pinned.places()), (1, vec![2]));
        assert_eq!(ids(&pinned.drain()), [1]);
        assert_eq!((pinned.len(), pinned.pop(2).is_none()), (0, true));
        for (place, id, priority) in [(1, 4, 0), (1, 6, 1), (2, 3, 0), (2, 5, -1)] {
            pinned.insert(place, task(id, priority));
        }
        assert_eq!(pinned.lowest(), Some(-1));
        let ids = [-1, -1, 0, 0, 0].map(|priority| pinned.pop_of(priority).map(|task| task.id));
        assert_eq!(ids, [Some(5), None, Some(3), Some(4), None]);
        assert_eq!((pinned.lowest(), pinned.len(), pinned.places()), (Some(1), 1, vec![1]));
    }

    #[test]
    fn a_session_s_tasks_are_taken_out_and_others_stay() {
        let mut pinned = Pinned::default();
        let sessions = [1, 2].map(|id| Arc::new(Session::new(id, SessionSettings::default())));
        for id in 1..=4 {
            let task = Task::new(id, Call::Local(Mutex::new(None)), 0, Options::default(), 0);
            let session = Arc::clone(&sessions[usize::from(id % 2 == 0)]);
            pinned.insert(7, Arc::new(task.of_session(Some(session))));
        }
        assert_eq!(ids(&pinned.take_session(7, 2)), [2, 4]);
        assert!(pinned.take_session(7, 2).is_empty() && pinned.take_session(8, 1).is_empty());
        assert_eq!((pinned.len(), ids(&pinned.take_session(7, 1))), (2, vec![1, 3]));
        assert!(!pinned.has(7));
    }
}
