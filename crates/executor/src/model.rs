//! A pool's protocols without its threads and queues, for the loom models: the ledger, the sleep protocol, a
//! worker's seat and the gate are the real ones; the queue is a number.

use crate::gate::Gate;
use crate::ledger::{Intake, Ledger, Tally};
use crate::seat::Seat;
use crate::sleep::Sleep;
use crate::sync::{AtomicU32, Ordering};

/// A pool whose queue is a count of jobs, kept with Relaxed only: what order there is comes from the
/// protocols.
pub struct Pool {
    queued: AtomicU32,
    ran: AtomicU32,
    sleep: Sleep,
    ledger: Ledger,
    tallies: Vec<Tally>,
    gate: Option<Gate>,
}

impl Pool {
    /// Takes places for so many workers, which are counted as searchers already.
    pub fn new(workers: usize, max_queue: Option<usize>) -> Self {
        let sleep = Sleep::new(1);
        (0..workers).for_each(|_| sleep.add_searcher());
        Self {
            queued: AtomicU32::new(0),
            ran: AtomicU32::new(0),
            sleep,
            ledger: Ledger::new(),
            tallies: (0..workers).map(|_| Tally::default()).collect(),
            gate: max_queue.map(Gate::new),
        }
    }

    /// Hands a job in from outside, as `Core::execute` does; false if it is refused.
    pub fn execute(&self) -> bool {
        if let Some(gate) = &self.gate {
            while !gate.try_enter() {
                gate.room.wait(None, || gate.has_room());
            }
        }
        match self.ledger.accept() {
            Intake::Accepted => self.enqueue(),
            Intake::Closed => return false,
            Intake::ClosedNow => {
                self.sleep.wake_all();
                return false;
            }
        }
        true
    }

    fn enqueue(&self) {
        self.queued.fetch_add(1, Ordering::Relaxed);
        let _ = self.sleep.notify();
    }

    /// Closes the pool, as `Core::shutdown` does.
    pub fn shutdown(&self) {
        self.ledger.close();
        self.sleep.wake_all();
    }

    /// Jobs that ran.
    pub fn ran(&self) -> u32 {
        self.ran.load(Ordering::Relaxed)
    }

    fn settled(&self) -> bool {
        self.ledger.settled(self.tallies.iter())
    }

    fn has_work(&self) -> bool {
        self.queued.load(Ordering::Relaxed) > 0
    }

    fn take(&self) -> bool {
        self.queued.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |queued| queued.checked_sub(1)).is_ok()
    }

    /// The life of a worker, as `Worker::work` lives it: until the pool is closed and everything has run.
    /// Each of the first `nested` jobs that it runs hands in another.
    pub fn work(&self, at: usize, mut nested: u32) {
        let seat = Seat::of_searcher();
        let leave_search = || {
            if seat.leave_search(&self.sleep) && self.has_work() {
                let _ = self.sleep.notify();
            }
        };
        loop {
            while self.take() {
                leave_search();
                if let Some(gate) = &self.gate {
                    gate.leave();
                }
                self.ran.fetch_add(1, Ordering::Relaxed);
                if nested > 0 && !self.ledger.closed() {
                    nested -= 1;
                    self.tallies[at].accept();
                    self.enqueue();
                }
                self.tallies[at].end();
            }
            let _ = seat.sleep(&self.sleep, None, || self.has_work() || self.settled());
            if self.settled() {
                self.sleep.wake_all();
                leave_search();
                return;
            }
        }
    }
}
