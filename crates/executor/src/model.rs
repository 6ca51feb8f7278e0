//! A pool's protocols without its threads and queues, for the loom models: the ledger, the sleep protocol, a
//! worker's seat and the gate are the real ones; the queue is a number.

use ropewalk_sync::Event;
use ropewalk_sync::atomic::{AtomicU32, Ordering};

use crate::gate::Gate;
use crate::ledger::{Intake, Ledger, Tally};
use crate::seat::Seat;
use crate::sleep::Sleep;

/// What the jobs of a model do.
#[derive(Clone, Copy, Debug)]
pub enum Jobs {
    /// Nothing.
    Plain,
    /// The first job that each worker runs hands in another.
    HandIn,
    /// Each job waits until two have started, so it needs a second worker. A worker ends with its job, so that the
    /// model needs no shutdown, which would wake all.
    Meet,
}

/// A pool whose queue is a count of jobs, kept with Relaxed only: all order comes from the protocols.
pub struct Pool {
    queued: AtomicU32,
    ran: AtomicU32,
    sleep: Sleep,
    ledger: Ledger,
    tallies: Vec<Tally>,
    gate: Option<Gate>,
    met: Event,
}

impl Pool {
    /// A pool with places for this many workers, which count as searchers already.
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
            met: Event::new(),
        }
    }

    /// Hands a job in from outside, as `WorkerPool::execute` does; false if it is refused.
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

    /// Closes the pool, as `WorkerPool::shutdown` does.
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

    /// A worker's loop, like `Worker::work`: until the pool is closed and everything has run.
    pub fn work(&self, at: usize, jobs: Jobs) {
        let mut first = true;
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
                match jobs {
                    Jobs::Plain => {}
                    Jobs::HandIn if !first || self.ledger.closed() => {}
                    Jobs::HandIn => {
                        self.tallies[at].accept();
                        self.enqueue();
                    }
                    Jobs::Meet => {
                        self.met.notify();
                        self.met.wait(None, || self.ran() >= 2);
                        return;
                    }
                }
                first = false;
                self.tallies[at].end();
            }
            // A real searcher checks again before it sleeps; here the next check is the one in `sleep`.
            let _ = seat.search(&self.sleep);
            let _ = seat.sleep(&self.sleep, None, || self.has_work() || self.settled());
            if self.settled() {
                // Read by a read-modify-write, which sees the latest value: a settled pool has nothing queued.
                assert_eq!(self.queued.fetch_add(0, Ordering::Relaxed), 0, "settled too early");
                self.sleep.wake_all();
                leave_search();
                return;
            }
        }
    }
}
