//! The timer thread: it hands delayed jobs in when they are due, and never before.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

use ropewalk_sync::{Condvar, Mutex};

use super::WorkerPool;
use crate::delayed::Key;
use crate::job::Job;

pub(super) struct Timer {
    state: Mutex<Schedule>,
    /// The first job has changed, or the pool has been closed.
    changed: Condvar,
    /// The number of delayed jobs, readable without the lock: a forked child must not lock.
    len: AtomicUsize,
}

struct Schedule {
    jobs: BTreeMap<Key, Job>,
    next: u64,
    started: bool,
    thread: Option<JoinHandle<()>>,
}

impl Timer {
    pub(super) fn new() -> Self {
        let state = Schedule { jobs: BTreeMap::new(), next: 0, started: false, thread: None };
        Self { state: Mutex::new(state), changed: Condvar::new(), len: AtomicUsize::new(0) }
    }

    /// Starts the thread if it does not run: most pools never need it.
    pub(super) fn start(&self, core: &Arc<WorkerPool>) -> io::Result<()> {
        let mut state = self.state.lock();
        if !state.started {
            let shared = Arc::clone(core);
            let builder = Builder::new().name(format!("{}-timer", core.config.name));
            state.thread = Some(builder.spawn(move || shared.timer.run(&shared))?);
            state.started = true;
        }
        Ok(())
    }

    pub(super) fn add(&self, due: Instant, job: Job) -> Key {
        let mut state = self.state.lock();
        let key = (due, state.next);
        state.next += 1;
        state.jobs.insert(key, job);
        self.len.store(state.jobs.len(), Ordering::Relaxed);
        let is_first = state.jobs.first_key_value().is_some_and(|(first, _)| *first == key);
        drop(state);
        if is_first {
            self.changed.notify_one();
        }
        key
    }

    pub(super) fn remove(&self, key: Key) -> Option<Job> {
        let mut state = self.state.lock();
        let job = state.jobs.remove(&key);
        self.len.store(state.jobs.len(), Ordering::Relaxed);
        job
    }

    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Makes the thread check again.
    pub(super) fn poke(&self) {
        // Under the lock: the thread holds it between its check and its sleep.
        let _state = self.state.lock();
        self.changed.notify_one();
    }

    /// Waits for the thread, which has nothing left to do.
    pub(super) fn join_thread(&self) {
        let thread = self.state.lock().thread.take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }

    fn run(&self, core: &WorkerPool) {
        let mut state = self.state.lock();
        loop {
            let now = Instant::now();
            let due = match state.jobs.first_entry() {
                Some(first) if first.key().0 <= now => first.remove(),
                Some(first) => {
                    let left = first.key().0 - now;
                    state = self.changed.wait_timeout(state, left).0;
                    continue;
                }
                None if core.ledger.closed() && core.settled() => return,
                None => {
                    state = self.changed.wait(state);
                    continue;
                }
            };
            drop(state);
            core.enqueue(None, due.priority, due.work);
            state = self.state.lock();
            self.len.store(state.jobs.len(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::time::Duration;

    use super::*;

    #[test]
    fn jobs_that_are_due_at_the_same_time_are_kept_apart() {
        let (timer, due) = (Timer::new(), Instant::now() + Duration::from_secs(3600));
        let ran = Arc::new(AtomicU32::new(0));
        let keys: Vec<_> = (0..3)
            .map(|bit| {
                let ran = Arc::clone(&ran);
                timer.add(
                    due,
                    Job::new(move || {
                        ran.fetch_or(1 << bit, Ordering::Relaxed);
                    }),
                )
            })
            .collect();
        assert_eq!(timer.len(), 3);
        for (bit, key) in keys.into_iter().enumerate() {
            let job = timer.remove(key).expect("each has its own key");
            job.run();
            assert_eq!((ran.swap(0, Ordering::Relaxed), timer.len()), (1 << bit, 2 - bit));
            assert!(timer.remove(key).is_none());
        }
    }
}
