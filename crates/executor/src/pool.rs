//! The engine of both pools: queues, workers, timer, submission and shutdown.

pub(crate) mod current;
mod queues;
mod roster;
mod slot;
mod timer;
mod worker;

use std::any::Any;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use ropewalk_base::ResultExt as _;
use ropewalk_os::process;
use ropewalk_sync::Event;
use ropewalk_sync::atomic::Ordering;

use crate::config::{Config, WhenFull};
use crate::delayed::{Delayed, Keeper, Key};
use crate::gate::Gate;
use crate::job::{Job, Priority};
use crate::ledger::{Intake, Ledger, Tally};
use crate::panic::{PanicReport, contain, message_of};
use crate::rejected::{Reason, Rejected};
use crate::report::{RunningJob, ShutdownReport};
use crate::sleep::{Notified, Sleep};
use crate::statistics::Statistics;
use crate::work::Work;
use queues::Queues;
use roster::Roster;
use slot::Slot;
use timer::Timer;
use worker::Worker;

/// The number of workers, and how long idle ones live.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) min: usize,
    pub(crate) max: usize,
    /// A worker beyond `min` ends after it has slept this long.
    pub(crate) keep_alive: Duration,
    /// Whether a worker that joins a job runs others meanwhile.
    pub(crate) helps: bool,
}

/// A pool, shared by its handle and its threads.
pub(crate) struct WorkerPool {
    config: Config,
    size: Size,
    /// The fork generation that the threads belong to.
    generation: u64,
    me: Weak<WorkerPool>,
    queues: Queues,
    slots: Box<[Slot]>,
    sleep: Sleep,
    ledger: Ledger,
    gate: Option<Gate>,
    timer: Timer,
    roster: Roster,
    /// Notified at the last worker's end.
    ended: Event,
    hook_panics: AtomicU64,
}

impl WorkerPool {
    /// Starts the pool with its least number of workers.
    pub(crate) fn start(config: Config, size: Size) -> ropewalk_base::Result<Arc<Self>> {
        let generation = process::fork_generation();
        let search_limit = (size.max.min(ropewalk_sync::spin::usable_cores()) / 2).max(1);
        let core = Arc::new_cyclic(|me| Self {
            size,
            generation,
            me: Weak::clone(me),
            queues: Queues::new(),
            slots: (0..size.max).map(|_| Slot::new()).collect(),
            sleep: Sleep::new(search_limit),
            ledger: Ledger::new(),
            gate: config.max_queue.map(Gate::new),
            timer: Timer::new(),
            roster: Roster::new(),
            ended: Event::new(),
            hook_panics: AtomicU64::new(0),
            config,
        });
        for _ in 0..size.min {
            let added = core.roster.add(&core).context("could not start a worker thread");
            added.inspect_err(|_| core.shutdown())?;
        }
        Ok(core)
    }

    /// An identity of this pool among all live pools.
    fn home(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn forked(&self) -> bool {
        process::fork_generation() != self.generation
    }

    /// The slots that have been used; the others are empty.
    fn used(&self) -> &[Slot] {
        &self.slots[..self.roster.used()]
    }

    fn tallies(&self) -> impl Iterator<Item = &Tally> + Clone {
        self.used().iter().map(|slot| &slot.tally)
    }

    fn settled(&self) -> bool {
        self.ledger.settled(self.tallies())
    }

    fn has_work(&self) -> bool {
        self.queues.any() || self.used().iter().any(Slot::has_work)
    }

    /// Whether there is work outside of this slot's deque, which its worker checks more cheaply itself.
    fn has_work_beside(&self, at: usize) -> bool {
        self.queues.any()
            || self.used().iter().enumerate().any(|(other, slot)| other != at && slot.has_work())
    }

    pub(crate) fn execute(&self, job: Job) -> Result<(), Rejected> {
        current::with(self, |worker| {
            let Job { priority, work } = job;
            match self.admit(worker) {
                Ok(()) => {
                    self.enqueue(worker, priority, work);
                    Ok(())
                }
                Err(reason) => Err(Rejected { reason, job: Job { priority, work } }),
            }
        })
    }

    /// Checks that a job may be accepted, and counts it.
    fn admit(&self, worker: Option<&Worker>) -> Result<(), Reason> {
        if self.forked() {
            return Err(Reason::Forked);
        }
        if let Some(gate) = &self.gate
            && !gate.try_enter()
        {
            self.wait_for_room(gate, worker)?;
        }
        let intake = match worker {
            // The worker does not end before its job, and the job not before it has handed this one in: so the pool
            // cannot settle between the check and the count.
            Some(_) if self.ledger.closed() => Intake::Closed,
            Some(worker) => {
                worker.slot().tally.accept();
                Intake::Accepted
            }
            None => self.ledger.accept(),
        };
        if intake == Intake::Accepted {
            return Ok(());
        }
        if let Some(gate) = &self.gate {
            gate.leave();
        }
        if intake == Intake::ClosedNow {
            self.sleep.wake_all();
        }
        Err(Reason::Closed)
    }

    #[cold]
    fn wait_for_room(&self, gate: &Gate, worker: Option<&Worker>) -> Result<(), Reason> {
        loop {
            if self.ledger.closed() {
                return Err(Reason::Closed);
            }
            if gate.try_enter() {
                return Ok(());
            }
            if self.config.when_full == WhenFull::Reject {
                return Err(Reason::Full);
            }
            let ready = || gate.has_room() || self.ledger.closed();
            match worker {
                Some(worker) => worker.help_until(&gate.room, None, &ready),
                None => gate.room.wait(None, ready),
            };
        }
    }

    /// Puts an admitted job where a worker finds it.
    fn enqueue(&self, worker: Option<&Worker>, priority: Priority, work: Work) {
        work.bind(self.home());
        match (priority, worker) {
            (Priority::Normal, Some(worker)) => worker.push(work),
            _ => self.queues.push(priority, work),
        }
        self.notify();
    }

    fn notify(&self) {
        if self.sleep.notify() == Notified::AllBusy {
            self.grow();
        }
    }

    /// Adds a worker, if the pool may have one more. A failed start is only counted: other workers run the job later.
    fn grow(&self) {
        if self.roster.live() < self.size.max
            && let Some(me) = self.me.upgrade()
        {
            let _ = self.roster.add(&me);
        }
    }

    pub(crate) fn execute_after(&self, delay: Duration, job: Job) -> Result<Delayed, Rejected> {
        let due = crate::delayed::due(Instant::now(), delay);
        let admitted = current::with(self, |worker| {
            let me = self.me.upgrade().ok_or(Reason::Closed)?;
            if self.forked() {
                return Err(Reason::Forked);
            }
            self.timer.start(&me).map_err(|_| Reason::NoThread)?;
            self.admit(worker).map(|()| me)
        });
        match admitted {
            Ok(me) => {
                let keeper: Arc<dyn Keeper> = me;
                Ok(Delayed::new(Arc::downgrade(&keeper), self.timer.add(due, job)))
            }
            Err(reason) => Err(Rejected { reason, job }),
        }
    }

    pub(crate) fn shutdown(&self) {
        // A forked child has no threads to notify, and its locks may be taken for ever.
        if self.forked() || self.ledger.closed() {
            return;
        }
        self.ledger.close();
        self.sleep.wake_all();
        if let Some(gate) = &self.gate {
            gate.room.notify();
        }
        self.timer.poke();
    }

    pub(crate) fn join(&self, deadline: Option<Instant>) -> ShutdownReport {
        self.shutdown();
        if !self.forked()
            && !self.is_current()
            && current::wait_for(&self.ended, deadline, &|| self.settled() && self.roster.live() == 0)
        {
            self.roster.join_threads();
            self.timer.join_thread();
        }
        self.report()
    }

    /// Accounts for a worker that has ended.
    fn bury(&self) {
        self.ended.notify();
        self.timer.poke();
    }

    fn report(&self) -> ShutdownReport {
        let running: Vec<_> = self
            .used()
            .iter()
            .enumerate()
            .filter_map(|(at, slot)| {
                slot.running().map(|job| RunningJob { worker: format!("{}-{at}", self.config.name), job })
            })
            .collect();
        let delayed = self.timer.len();
        // The gate's count is exact; the ledger's sums are taken one after another, and jobs move meanwhile.
        let waiting = self.gate.as_ref().map_or_else(
            || {
                usize::try_from(self.ledger.open(self.tallies()))
                    .unwrap_or(usize::MAX)
                    .saturating_sub(running.len())
            },
            Gate::taken,
        );
        ShutdownReport { queued: waiting.saturating_sub(delayed), running, delayed }
    }

    pub(crate) fn statistics(&self) -> Statistics {
        let report = self.report();
        Statistics {
            workers: self.used().iter().map(Slot::statistics).collect(),
            live: self.roster.live(),
            sleeping: self.sleep.sleeping(),
            running: report.running.len(),
            queued: report.queued,
            delayed: report.delayed,
            hook_panics: self.hook_panics.load(Ordering::Relaxed),
            failed_starts: self.roster.failed_starts(),
        }
    }

    pub(crate) fn is_current(&self) -> bool {
        current::with(self, |worker| worker.is_some())
    }

    fn report_panic(&self, job: &'static str, payload: &(dyn Any + Send)) {
        let Some(hook) = &self.config.on_panic else { return };
        let report = PanicReport { executor: &self.config.name, job, message: message_of(payload) };
        if !contain(|| hook(&report)) {
            self.hook_panics.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Keeper for WorkerPool {
    fn withdraw(&self, key: Key) -> Option<Job> {
        if self.forked() {
            return None;
        }
        let job = self.timer.remove(key)?;
        if let Some(gate) = &self.gate {
            gate.leave();
        }
        self.ledger.withdraw();
        if self.ledger.closed() {
            // It may have been the last job that the workers waited for.
            self.sleep.wake_all();
            self.timer.poke();
        }
        Some(job)
    }
}
