//! A worker: how it chooses and runs its next job, and what it does when there is none.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_deque::Worker as Deque;
use ropewalk_sync::Event;
use ropewalk_sync::spin::{AdaptiveSpin, has_other_cores};

use super::queues::steal;
use super::slot::Slot;
use super::{WorkerPool, current};
use crate::panic::contain;
use crate::seat::Seat;
use crate::sleep::Slept;
use crate::task::Outcome;
use crate::work::{Context, Label, Ran, Work};

/// After this many jobs of other priorities a worker checks the low ones first.
const LOW_AFTER: u32 = 60;
/// Once in this many searches a worker fetches from outside before it checks its own deque. A prime, so that it does
/// not fall into step with jobs that come in rounds.
const FETCH_EVERY: u32 = 61;

/// The longest time that a worker spins for its next job before it sleeps. In this time a caller that has got one
/// result may hand in its next job.
const PATIENT_FOR: Duration = Duration::from_micros(50);

/// The nested joins in which a worker runs other jobs. Beyond that it blocks, because each takes its part of the stack.
const HELP_DEPTH: u32 = 64;
/// Once in this many checks a searcher checks other workers' deques, too.
const ROB_EVERY: u32 = 8;

pub(crate) struct Worker {
    core: Arc<WorkerPool>,
    at: usize,
    deque: Deque<Work>,
    seat: Seat,
    looks: Cell<u32>,
    since_low: Cell<u32>,
    /// The slot that the worker stole from last.
    victim: Cell<usize>,
    patience: RefCell<AdaptiveSpin>,
    /// Nested joins.
    depth: Cell<u32>,
}

enum Rest {
    Found(Work),
    LookAgain,
    Retired,
    PoolEnded,
}

impl Worker {
    /// A worker's life. The thread that starts it has counted it as a searcher.
    pub(super) fn main(core: Arc<WorkerPool>, at: usize) {
        let deque = core.slots[at].move_in();
        let worker = Rc::new(Self {
            core,
            at,
            deque,
            seat: Seat::of_searcher(),
            looks: Cell::new(0),
            since_low: Cell::new(0),
            victim: Cell::new(at),
            patience: RefCell::new(AdaptiveSpin::up_to(PATIENT_FOR)),
            depth: Cell::new(0),
        });
        let mut retired = false;
        current::be(&worker, || retired = worker.work());
        worker.leave_search();
        // There is no other reference: those that `current` gives out end with the jobs.
        let Some(Self { core, deque, .. }) = Rc::into_inner(worker) else { return };
        core.slots[at].move_out(deque);
        if retired {
            core.roster.vacate(at);
            // A job that came since the worker retired may have found no slot for the worker that it needs.
            if core.has_work() {
                core.notify();
            }
        } else {
            core.roster.end();
            core.bury();
        }
    }

    /// Works until there is no more to do; returns whether it retired before its pool ended.
    fn work(&self) -> bool {
        loop {
            while let Some(work) = self.next() {
                self.run(work);
            }
            match self.rest() {
                Rest::Found(work) => self.run(work),
                Rest::LookAgain => {}
                Rest::Retired => return true,
                Rest::PoolEnded => return false,
            }
        }
    }

    pub(super) fn is_of(&self, core: &WorkerPool) -> bool {
        std::ptr::eq(&raw const *self.core, core)
    }

    pub(super) fn slot(&self) -> &Slot {
        &self.core.slots[self.at]
    }

    pub(super) fn push(&self, work: Work) {
        self.deque.push(work);
    }

    /// The next job, by the order that `Executor` documents.
    fn next(&self) -> Option<Work> {
        let queues = &self.core.queues;
        if self.since_low.get() >= LOW_AFTER
            && let Some(work) = queues.low()
        {
            self.since_low.set(0);
            return Some(work);
        }
        let found = queues.high().or_else(|| self.next_normal());
        if found.is_some() {
            self.since_low.set(self.since_low.get().saturating_add(1));
            return found;
        }
        let work = queues.low()?;
        self.since_low.set(0);
        Some(work)
    }

    fn next_normal(&self) -> Option<Work> {
        let looks = self.looks.get().wrapping_add(1);
        self.looks.set(looks);
        if looks.is_multiple_of(FETCH_EVERY) {
            self.core.queues.fetch(&self.deque);
        }
        self.deque.pop().or_else(|| self.core.queues.normal(&self.deque)).or_else(|| self.rob())
    }

    /// Steals half of another worker's deque, beginning with the last victim.
    fn rob(&self) -> Option<Work> {
        let slots = self.core.used();
        let from = self.victim.get();
        for step in 0..slots.len() {
            let at = (from + step) % slots.len();
            if at == self.at {
                continue;
            }
            let Some(stealer) = slots[at].stealer() else { continue };
            if !stealer.is_empty()
                && let Some(work) = steal(|| stealer.steal_batch_and_pop(&self.deque))
            {
                self.victim.set(at);
                self.slot().stolen.add(1 + self.deque.len() as u64);
                return Some(work);
            }
        }
        None
    }

    /// Runs a job that left a queue.
    fn run(&self, work: Work) {
        self.leave_search();
        if let Some(gate) = &self.core.gate {
            gate.leave();
        }
        let label = work.label();
        self.observed(label, || work.run(self));
        self.slot().tally.end();
    }

    /// Publishes, contains and counts the run of a job.
    fn observed(&self, label: &'static Label, run: impl FnOnce() -> Ran) {
        let slot = self.slot();
        let before = slot.show(Some(label));
        let mut ran = Ran::Done;
        // Jobs contain their own panics; this is for the destructors of captures and of results that nothing takes.
        let whole = contain(|| ran = run());
        slot.show(before);
        if ran != Ran::Skipped {
            slot.executed.add(1);
        }
        if ran == Ran::Panicked || !whole {
            slot.panicked.add(1);
        }
    }

    /// Ceases to be a searcher; the last one takes care of the jobs that producers have left to it.
    fn leave_search(&self) {
        if self.seat.leave_search(&self.core.sleep)
            && (!self.deque.is_empty() || self.core.has_work_beside(self.at))
        {
            self.core.notify();
        }
    }

    /// Spins for a while, then sleeps.
    fn rest(&self) -> Rest {
        let core = &*self.core;
        if !core.ledger.closed()
            && self.seat.search(&core.sleep)
            && let Some(work) = self.look_out(|| false)
        {
            return Rest::Found(work);
        }
        let keep_alive = (core.roster.live() > core.size.min).then_some(core.size.keep_alive);
        let since = Instant::now();
        let slept = self.sleep(keep_alive, || core.has_work() || core.settled());
        if core.settled() {
            core.sleep.wake_all();
            return Rest::PoolEnded;
        }
        let bored = keep_alive.is_some_and(|keep_alive| since.elapsed() >= keep_alive);
        if slept == Slept::ByItself && bored && core.roster.retire(core, self.at) {
            return Rest::Retired;
        }
        Rest::LookAgain
    }

    /// Spins for a job until there is one, or `ready`, or the spin's time ends. Most checks are of the shared queues
    /// only: a check of another worker's deque costs a fence.
    fn look_out(&self, ready: impl Fn() -> bool) -> Option<Work> {
        let (mut found, mut looks) = (None, 0_u32);
        self.patience.borrow_mut().spin(has_other_cores, || {
            looks += 1;
            if looks.is_multiple_of(ROB_EVERY) || self.core.queues.any() {
                found = self.next();
            }
            found.is_some() || ready()
        });
        found
    }

    fn sleep(&self, timeout: Option<Duration>, ready: impl FnOnce() -> bool) -> Slept {
        let slept = self.seat.sleep(&self.core.sleep, timeout, ready);
        if slept != Slept::NotAtAll {
            self.slot().parked.add(1);
        }
        slept
    }

    /// Runs other jobs until `ready`, and sleeps when there are none; false if the deadline passed before. The thread
    /// that makes `ready` true notifies the event.
    pub(crate) fn help_until(
        &self,
        event: &Event,
        deadline: Option<Instant>,
        ready: &dyn Fn() -> bool,
    ) -> bool {
        loop {
            if ready() {
                self.leave_search();
                return true;
            }
            let mut found = self.next();
            if found.is_none() && self.seat.search(&self.core.sleep) {
                found = self.look_out(ready);
            }
            if let Some(work) = found {
                self.run(work);
                continue;
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                self.leave_search();
                return ready();
            }
            event.listen(self.seat.parker());
            let _ = self.sleep(left, || ready() || self.core.has_work());
            event.unlisten(self.seat.parker());
        }
    }

    /// Whether the worker runs other jobs while it waits.
    pub(crate) fn helps(&self) -> bool {
        self.core.size.helps
    }

    /// Waits for a task: runs it if it may, else runs others if it may, else blocks.
    pub(crate) fn wait_for_task<T>(
        &self,
        task: &(impl Outcome<T> + ?Sized),
        deadline: Option<Instant>,
    ) -> bool {
        let home = self.core.home();
        loop {
            if task.may_run_at(home) {
                self.observed(task.label(), || task.run(self));
            }
            let ready = || task.is_over() || task.may_run_at(home);
            let depth = self.depth.get();
            let woken = if self.helps() && depth < HELP_DEPTH {
                self.depth.set(depth + 1);
                let woken = self.help_until(task.news(), deadline, &ready);
                self.depth.set(depth);
                woken
            } else {
                self.patience.borrow_mut().spin(has_other_cores, ready) || task.news().wait(deadline, ready)
            };
            if task.is_over() || !woken {
                return task.is_over();
            }
        }
    }
}

impl Context for Worker {
    fn panicked(&self, job: &'static str, payload: &(dyn Any + Send)) {
        self.core.report_panic(job, payload);
    }
}
