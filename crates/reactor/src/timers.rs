//! Timers: a heap with four children to a node, ordered by time and then by age.
//!
//! A cancelled timer stays where it is and is counted; when cancelled timers are most of the heap, it is rebuilt
//! without them. So scheduling and cancelling cost O(1) for timers that are scheduled in order of their time, as
//! timeouts are, and the heap is never more than twice as large as its live part, plus a constant.
//!
//! A hierarchical wheel was not taken: it rounds times, and timers here are exact and fire in their order.

/// Up to this many cancelled timers stay in the heap.
const FEW: usize = 128;
const CHILDREN: usize = 4;

#[derive(Clone, Copy, Debug)]
struct Entry<T> {
    /// Never NaN.
    when: f64,
    /// Counts up, so that equal times keep their order.
    age: u64,
    item: T,
}

impl<T> Entry<T> {
    fn is_before(&self, other: &Self) -> bool {
        self.when < other.when || (self.when == other.when && self.age < other.age)
    }
}

/// Items and their times, in seconds of any clock.
#[derive(Debug)]
pub struct Timers<T> {
    heap: Vec<Entry<T>>,
    next_age: u64,
    cancelled: usize,
}

impl<T: Copy> Timers<T> {
    /// No timers.
    pub fn new() -> Self {
        Self { heap: Vec::new(), next_age: 0, cancelled: 0 }
    }

    /// The number of timers, cancelled ones included.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether there are no timers.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Adds a timer. A time that is not a number counts as long past.
    pub fn push(&mut self, when: f64, item: T) {
        let when = if when.is_nan() { f64::NEG_INFINITY } else { when };
        let entry = Entry { when, age: self.next_age, item };
        self.next_age += 1;
        let at = self.heap.len();
        self.heap.push(entry);
        self.rise(at);
    }

    /// The time of the next timer.
    pub fn next(&self) -> Option<f64> {
        self.heap.first().map(|entry| entry.when)
    }

    /// The next timer's item, cancelled or not.
    pub fn first(&self) -> Option<T> {
        self.heap.first().map(|entry| entry.item)
    }

    /// Takes the next timer out if its time is `now` or before. If it was cancelled, the caller reports that by
    /// [`took_cancelled`](Self::took_cancelled).
    pub fn pop_due(&mut self, now: f64) -> Option<T> {
        if self.next()? > now {
            return None;
        }
        self.pop()
    }

    /// Takes the next timer out.
    pub fn pop(&mut self) -> Option<T> {
        let first = self.heap.first()?.item;
        let last = self.heap.pop()?;
        if !self.heap.is_empty() {
            self.heap[0] = last;
            self.sink(0);
        }
        Some(first)
    }

    /// Counts a cancelled timer; returns whether it is time for [`sweep`](Self::sweep).
    pub fn note_cancelled(&mut self) -> bool {
        self.cancelled += 1;
        self.cancelled > FEW && self.cancelled > self.heap.len() / 2
    }

    /// Reports that a timer that was taken out had been cancelled.
    pub fn took_cancelled(&mut self) {
        self.cancelled = self.cancelled.saturating_sub(1);
    }

    /// Removes all timers for which `is_cancelled`, and returns them.
    pub fn sweep(&mut self, mut is_cancelled: impl FnMut(T) -> bool) -> Vec<T> {
        let mut gone = Vec::with_capacity(self.cancelled);
        self.heap.retain(|entry| {
            let cancelled = is_cancelled(entry.item);
            if cancelled {
                gone.push(entry.item);
            }
            !cancelled
        });
        self.cancelled = 0;
        for at in (0..=self.heap.len() / CHILDREN).rev() {
            self.sink(at);
        }
        gone
    }

    /// All timers, in no order.
    pub fn iter(&self) -> impl Iterator<Item = T> + '_ {
        self.heap.iter().map(|entry| entry.item)
    }

    /// Takes all timers out, in no order.
    pub fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        self.cancelled = 0;
        self.heap.drain(..).map(|entry| entry.item)
    }

    fn rise(&mut self, mut at: usize) {
        let entry = self.heap[at];
        while at > 0 {
            let parent = (at - 1) / CHILDREN;
            if !entry.is_before(&self.heap[parent]) {
                break;
            }
            self.heap[at] = self.heap[parent];
            at = parent;
        }
        self.heap[at] = entry;
    }

    fn sink(&mut self, mut at: usize) {
        let Some(&entry) = self.heap.get(at) else { return };
        loop {
            let first = at * CHILDREN + 1;
            let end = (first + CHILDREN).min(self.heap.len());
            let Some(least) = (first..end).reduce(|least, child| {
                if self.heap[child].is_before(&self.heap[least]) { child } else { least }
            }) else {
                break;
            };
            if !self.heap[least].is_before(&entry) {
                break;
            }
            self.heap[at] = self.heap[least];
            at = least;
        }
        self.heap[at] = entry;
    }
}

impl<T: Copy> Default for Timers<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn equal_times_keep_their_order_and_nothing_is_early() {
        let mut timers = Timers::new();
        for item in 0..100 {
            timers.push(f64::from(item % 3), item);
        }
        timers.push(f64::NAN, 100);
        timers.push(f64::INFINITY, 101);
        assert_eq!(timers.pop_due(-1.0), Some(100));
        assert_eq!(timers.pop_due(-1.0), None);
        let due: Vec<_> = std::iter::from_fn(|| timers.pop_due(0.0)).collect();
        assert_eq!(due, (0..100).step_by(3).collect::<Vec<_>>());
        assert_eq!(timers.len(), 67);
    }

    #[test]
    fn cancelled_ones_do_not_pile_up() {
        let mut timers = Timers::new();
        let mut cancelled = HashSet::new();
        for item in 0_u32..100_000 {
            timers.push(f64::from(item), item);
            cancelled.insert(item);
            if timers.note_cancelled() {
                for gone in timers.sweep(|item| cancelled.contains(&item)) {
                    cancelled.remove(&gone);
                }
            }
            assert!(timers.len() <= 2 * FEW + 2);
        }
    }

    proptest! {
        #[test]
        fn they_come_out_in_order_of_time_and_age(
            times in prop::collection::vec(0_u8..20, 1..300),
            dropped in prop::collection::hash_set(0_usize..300, 0..200),
        ) {
            let mut timers = Timers::new();
            for (item, time) in times.iter().enumerate() {
                timers.push(f64::from(*time), item);
            }
            let gone: HashSet<_> = timers.sweep(|item| dropped.contains(&item)).into_iter().collect();
            let mut expected: Vec<_> = (0..times.len()).filter(|item| !gone.contains(item)).collect();
            expected.sort_by_key(|item| (times[*item], *item));
            let came: Vec<_> = std::iter::from_fn(|| timers.pop_due(100.0)).collect();
            prop_assert_eq!(came, expected);
        }
    }
}
