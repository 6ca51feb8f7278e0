//! The roster of workers: their threads start, retire and end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::{Builder, JoinHandle};

use ropewalk_sync::Mutex;

use super::WorkerPool;
use super::worker::Worker;

pub(super) struct Roster {
    /// Live workers. Changed under the lock; read without it where an older number will do.
    live: AtomicUsize,
    /// The number of slots that have ever had a worker; they are the first ones. Release after the slot is set up.
    used: AtomicUsize,
    failed_starts: AtomicU64,
    places: Mutex<Places>,
}

struct Places {
    /// Used slots without a worker. The slot of a worker that is retiring is not among them yet.
    free: Vec<usize>,
    /// By slot.
    threads: Vec<Option<JoinHandle<()>>>,
    /// A worker has ended with its pool: all jobs have ended. Without this flag, a producer whose job ran before it
    /// looked for helpers would start a worker needlessly.
    over: bool,
}

impl Places {
    /// A slot for a new worker. None while workers that are retiring still hold the last ones: each of them looks for
    /// jobs after it has left its slot, so that the job that the new worker was for is not left.
    fn take(&mut self, slots: usize) -> Option<usize> {
        self.free.pop().or_else(|| {
            let at = self.threads.len();
            (at < slots).then(|| {
                self.threads.push(None);
                at
            })
        })
    }
}

impl Roster {
    pub(super) fn new() -> Self {
        Self {
            live: AtomicUsize::new(0),
            used: AtomicUsize::new(0),
            failed_starts: AtomicU64::new(0),
            places: Mutex::new(Places { free: Vec::new(), threads: Vec::new(), over: false }),
        }
    }

    pub(super) fn live(&self) -> usize {
        self.live.load(Ordering::Acquire)
    }

    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Acquire)
    }

    pub(super) fn failed_starts(&self) -> u64 {
        self.failed_starts.load(Ordering::Relaxed)
    }

    /// Starts a worker, unless there are enough, one is being started already, or no slot is free.
    pub(super) fn add(&self, core: &Arc<WorkerPool>) -> io::Result<()> {
        let mut places = self.places.lock();
        let live = self.live.load(Ordering::Relaxed);
        if places.over || live >= core.size.max || (live >= core.size.min && core.sleep.searching() > 0) {
            return Ok(());
        }
        let Some(at) = places.take(core.size.max) else { return Ok(()) };
        self.used.fetch_max(at + 1, Ordering::Release);
        // It counts as a searcher before it runs, so that the next job does not start another.
        core.sleep.add_searcher();
        self.live.store(live + 1, Ordering::Release);
        let mut builder = Builder::new().name(format!("{}-{at}", core.config.name));
        if let Some(bytes) = core.config.stack_size {
            builder = builder.stack_size(bytes);
        }
        let shared = Arc::clone(core);
        match builder.spawn(move || Worker::main(shared, at)) {
            Ok(thread) => {
                places.threads[at] = Some(thread);
                Ok(())
            }
            Err(error) => {
                places.free.push(at);
                self.live.store(live, Ordering::Release);
                let _ = core.sleep.end_search();
                self.failed_starts.fetch_add(1, Ordering::Relaxed);
                Err(error)
            }
        }
    }

    /// Retires the worker of a slot if the pool has more than its minimum.
    pub(super) fn retire(&self, core: &WorkerPool, at: usize) -> bool {
        let mut places = self.places.lock();
        let live = self.live.load(Ordering::Relaxed);
        if live <= core.size.min {
            return false;
        }
        self.live.store(live - 1, Ordering::Release);
        places.threads[at] = None;
        true
    }

    /// The worker of a slot has retired and left its deque there. Its thread then looks for jobs that found no slot.
    pub(super) fn vacate(&self, at: usize) {
        self.places.lock().free.push(at);
    }

    /// The worker of a slot ends with its pool.
    pub(super) fn end(&self) {
        let mut places = self.places.lock();
        places.over = true;
        self.live.store(self.live.load(Ordering::Relaxed) - 1, Ordering::Release);
    }

    /// Waits for threads that have nothing left to do.
    pub(super) fn join_threads(&self) {
        let threads: Vec<_> = self.places.lock().threads.iter_mut().filter_map(Option::take).collect();
        for thread in threads {
            // A worker contains every panic; if one came through, its message has been printed.
            let _ = thread.join();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_slot_that_is_being_left_is_not_replaced_by_one_more() {
        let mut places = Places { free: Vec::new(), threads: Vec::new(), over: false };
        assert_eq!([places.take(2), places.take(2)], [Some(0), Some(1)]);
        assert_eq!(places.take(2), None, "both are held, by workers or by one that retires");
        places.free.push(1);
        assert_eq!([places.take(2), places.take(2)], [Some(1), None]);
    }
}
