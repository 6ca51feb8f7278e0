//! Workers in this process: each is a thread of the layer above that has taken a seat.
//!
//! Where a pool of processes asks a zygote for a worker, this one offers a seat. A thread of the layer above takes it,
//! serves its lane and gives it up again. Nothing can kill such a thread: it is asked to leave, and does so between two
//! tasks, and to end the call of a task. A task that is ended early keeps its arguments' memory until its thread has
//! answered.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use ropewalk_base::{Code, Result, error};
use ropewalk_sync::Mutex;
use ropewalk_sync::futex::Futex;

use crate::control::Control;
use crate::leave::Leave;
use crate::supervisor::{Employer, WorkerEvent};
use crate::worker::{FdChannel, WorkerEnd};

/// The seats that a pool offers and no thread has taken yet.
#[derive(Debug)]
pub struct Seats {
    offered: Mutex<VecDeque<Seat>>,
    /// The pool has ended: no seat will be offered any more. Set once, and followed by a change of `word`.
    closed: AtomicBool,
    /// Changes with every offer, and at the end; the layer above sleeps on it.
    word: Futex,
}

impl Default for Seats {
    fn default() -> Self {
        Self { offered: Mutex::default(), closed: AtomicBool::new(false), word: Futex::new(0) }
    }
}

impl Seats {
    /// Takes the next seat, waiting up to `timeout` for one.
    pub fn take(&self, timeout: Duration) -> Option<Seat> {
        let observed = self.word.load(Ordering::Acquire);
        if let Some(seat) = self.offered.lock().pop_front() {
            return Some(seat);
        }
        if !self.is_closed() {
            let _ = self.word.wait_while(observed, Some(timeout));
        }
        self.offered.lock().pop_front()
    }

    /// Whether no seat will be offered any more.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Makes a thread in [`take`](Self::take) return.
    pub fn wake(&self) {
        self.word.fetch_add(1, Ordering::Release);
        self.word.wake_all();
    }

    pub(super) fn offer(&self, seat: Seat) {
        self.offered.lock().push_back(seat);
        self.wake();
    }

    /// Withdraws a seat that was not taken; its pool does not want it any more.
    pub(super) fn withdraw(&self, worker: u64) {
        let mut offered = self.offered.lock();
        let at = offered.iter().position(|seat| seat.id == worker);
        let withdrawn = at.and_then(|at| offered.remove(at));
        drop(offered);
        // Its pool's lock is held, and has forgotten the worker.
        if let Some(mut seat) = withdrawn {
            seat.told = true;
        }
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.wake();
    }
}

/// One worker's place in a pool of this process's workers. The pool learns when it is given up.
#[derive(Debug)]
pub struct Seat {
    pub(super) id: u64,
    pub(super) number: u64,
    pub(super) pool: Weak<dyn Employer>,
    pub(super) control: Arc<Control>,
    pub(super) leave: Arc<Leave>,
    pub(super) spec: Arc<[u8]>,
    /// The worker's end of its socket, and its lane; taken by `sit`.
    pub(super) ends: Option<(OwnedFd, OwnedFd)>,
    /// The pool knows that the worker is gone.
    pub(super) told: bool,
}

impl Seat {
    /// The worker's number, unique in this process.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The worker's number in its pool.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The settings that the layer above has given for its workers.
    pub fn spec(&self) -> Arc<[u8]> {
        Arc::clone(&self.spec)
    }

    /// The worker is there: its lane, and the channel for segments.
    ///
    /// # Errors
    ///
    /// When the memory cannot be mapped, or the seat is taken already.
    pub fn sit(&mut self) -> Result<(WorkerEnd, FdChannel)> {
        let (socket, lane) =
            self.ends.take().ok_or_else(|| error!(Code::PoolError, "the seat is taken already"))?;
        let end = WorkerEnd::attach_here(lane, Arc::clone(&self.control), Arc::clone(&self.leave))?;
        Ok((end, FdChannel::new(socket)))
    }

    /// Tells the pool that a thread has taken the seat.
    pub fn taken(&self) {
        if let Some(pool) = self.pool.upgrade() {
            pool.learn(self.id, WorkerEvent::Seated);
        }
    }

    /// Gives the seat up; `failed` says why no worker could be made for it.
    pub fn give_up(mut self, failed: Option<String>) {
        self.tell(failed.map_or(WorkerEvent::Gone(Some(0)), WorkerEvent::Failed));
    }

    fn tell(&mut self, event: WorkerEvent) {
        self.told = true;
        if let Some(pool) = self.pool.upgrade() {
            pool.learn(self.id, event);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if !self.told {
            self.tell(WorkerEvent::Gone(Some(1)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::Engine;
    use crate::backend::processes::spawn::{Source, Spawn};
    use crate::config::Config;
    use crate::outcome::{Failure, Outcome};
    use crate::payload::Payload;
    use crate::task::{Call, Options, Task};
    use crate::wire::{flags, kind};

    const SOON: Duration = Duration::from_secs(20);

    fn pool(workers: usize) -> (Engine, Arc<Seats>) {
        let seats = Arc::new(Seats::default());
        let config = Config { name: "seats".into(), workers, threads: 1, ..Config::default() };
        let spawn = Spawn {
            source: Source::Seats(Arc::clone(&seats)),
            spec: Arc::from(&b"what each reads"[..]),
            segments: Vec::new(),
            blocks: Vec::new(),
            handed: Arc::default(),
        };
        (Engine::of_interpreters(config, spawn).expect("started"), seats)
    }

    fn submit(engine: &Engine) -> Arc<Task> {
        let call = Call::remote(engine.function("f", Payload::default()), Payload::default());
        engine.submit(call, 0, Options::default(), true).map_err(|refused| refused.1).expect("accepted")
    }

    fn until(what: &str, mut condition: impl FnMut() -> bool) {
        let deadline = Instant::now() + SOON;
        while !condition() {
            assert!(Instant::now() < deadline, "not so in time: {what}");
            std::thread::yield_now();
        }
    }

    fn next(end: &mut WorkerEnd, wanted: u16) -> u64 {
        let mut found = None;
        until("the record comes", || {
            while let Some(record) = end.try_next().expect("sound") {
                end.finish();
                if record.kind == wanted {
                    found = Some(record.id);
                    return true;
                }
            }
            false
        });
        found.expect("it has come")
    }

    #[test]
    fn a_seat_is_taken_served_and_given_up() {
        let (engine, seats) = pool(2);
        let mut taken: Vec<_> = (0..2).map(|_| seats.take(SOON).expect("offered")).collect();
        assert!(seats.take(Duration::ZERO).is_none());
        assert_eq!(taken.iter().map(Seat::number).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(&*taken[0].spec(), b"what each reads");
        let mut ends: Vec<_> = taken.iter_mut().map(|seat| seat.sit().expect("a lane").0).collect();
        assert!(taken[0].sit().is_err(), "once");
        for (seat, end) in taken.iter().zip(&mut ends) {
            seat.taken();
            end.ready().expect("said");
        }
        let task = submit(&engine);
        let mut started = None;
        until("one of them starts it", || {
            started = ends.iter_mut().position(|end| {
                std::iter::from_fn(|| {
                    let record = end.try_next().expect("sound")?;
                    end.finish();
                    Some(record)
                })
                .any(|record| record.kind == kind::TASK)
            });
            started.is_some()
        });
        let end = &mut ends[started.expect("one")];
        assert!(end.try_reply(kind::DONE, flags::EMPTY, task.id, 1, &[]).expect("sound"));
        until("it is answered", || {
            engine.catch_up();
            task.is_done()
        });
        engine.close(false);
        for (seat, end) in taken.into_iter().zip(&mut ends) {
            next(end, kind::EXIT);
            assert!(!seats.is_closed() && !engine.has_ended());
            seat.give_up(None);
        }
        until("it ends", || engine.has_ended() && seats.is_closed());
        assert!(seats.take(SOON).is_none());
    }

    #[test]
    fn a_worker_that_cannot_be_made_breaks_the_pool_and_one_that_is_lost_is_replaced() {
        let (engine, seats) = pool(1);
        drop(seats.take(SOON).expect("offered"));
        let seat = seats.take(SOON).expect("offered again");
        assert_eq!(engine.statistics().expect("here").counters.crashed, 1);
        let task = submit(&engine);
        seat.give_up(Some("there is no luck".into()));
        until("it is broken", || engine.broken().is_some());
        let broken = |failure: &Failure| matches!(failure, Failure::Broken(why) if why.contains("no luck"));
        assert!(engine.broken().is_some_and(|failure| broken(&failure)));
        assert!(matches!(task.outcome(), Some(Outcome::Failed(failure)) if broken(failure)));
        until("no seat is offered any more", || seats.is_closed());
    }

    #[test]
    fn whoever_is_asked_to_leave_sees_that_before_any_other_record() {
        let (engine, seats) = pool(1);
        let mut seat = seats.take(SOON).expect("offered");
        let (mut end, _channel) = seat.sit().expect("a lane");
        seat.taken();
        end.ready().expect("said");
        let (running, waiting) = (submit(&engine), submit(&engine));
        assert_eq!(next(&mut end, kind::TASK), running.id);
        engine.terminate();
        assert!(matches!(running.outcome(), Some(Outcome::Failed(Failure::Terminated))));
        assert!(matches!(waiting.outcome(), Some(Outcome::Cancelled)));
        assert!(!engine.has_ended(), "its worker is still there");
        // It wakes, and goes; its answer interests nobody, also when the ring has no room for it.
        end.wait(Some(SOON));
        let large = vec![0; end.max_inline()];
        for _ in 0..4 {
            assert!(end.try_reply(kind::DONE, 0, running.id, 1, &[&large]).expect("sound"));
        }
        assert_eq!(end.try_next().expect("sound").map(|record| record.kind), Some(kind::EXIT));
        seat.give_up(None);
        until("it ends", || engine.has_ended());
    }

    #[test]
    fn a_seat_that_nobody_took_is_withdrawn_with_its_pool() {
        let (engine, seats) = pool(3);
        engine.terminate();
        until("it ends", || engine.has_ended() && seats.is_closed());
        assert!(seats.take(SOON).is_none());
    }

    #[derive(Debug, Default)]
    struct Nudges(std::sync::atomic::AtomicUsize);

    impl crate::Nudge for Nudges {
        fn nudge(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::AcqRel);
        }
    }

    #[test]
    fn a_task_that_runs_is_ended_by_a_nudge_and_keeps_what_it_reads_until_it_is_answered() {
        let (engine, seats) = pool(1);
        let mut seat = seats.take(SOON).expect("offered");
        let (mut end, _channel) = seat.sit().expect("a lane");
        seat.taken();
        end.ready().expect("said");
        let leave = Arc::clone(end.leave().expect("it is here"));
        let nudges = Arc::new(Nudges::default());
        leave.nudge_by(Some(Arc::clone(&nudges) as Arc<dyn crate::Nudge>));
        let count = || nudges.0.load(Ordering::Acquire);
        let (first, second) = (submit(&engine), submit(&engine));
        assert_eq!(next(&mut end, kind::TASK), first.id);
        // One that has not started is taken back, and costs the other nothing.
        assert!(engine.cancel(&second, true));
        assert_eq!((count(), leave.is_unwanted(first.id), leave.is_unwanted(second.id)), (0, false, false));
        assert!(!engine.cancel(&first, false) && engine.cancel(&first, true));
        assert!(matches!(first.outcome(), Some(Outcome::Cancelled)));
        assert_eq!((count(), leave.is_unwanted(first.id)), (1, true));
        // It is answered, and the next task is not meant.
        assert!(end.try_reply(kind::DONE, flags::EMPTY, first.id, 1, &[]).expect("sound"));
        let third = submit(&engine);
        assert_eq!(next(&mut end, kind::TASK), third.id);
        assert!(!leave.is_unwanted(third.id));
        // The end of the pool ends it too, and nobody is nudged who serves no more.
        leave.nudge_by(None);
        engine.terminate();
        assert_eq!((count(), leave.is_unwanted(third.id)), (1, true));
        seat.give_up(None);
        until("it ends", || engine.has_ended());
    }
}
