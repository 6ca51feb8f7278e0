//! What the engine knows of its lanes: the actor of each, its task, and the states that it has.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::sessions::Kept;
use crate::cause::Cause;
use crate::clock;
use crate::lifespan::Lifespan;
use crate::outcome::Record;
use crate::pool::{Attended, Deaths, Errand, Order};
use crate::task::Task;

/// The lanes of a pool.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    pub(super) lanes: Vec<Lane>,
    /// What no thread has taken to do yet.
    pub(super) orders: Vec<Order>,
    /// Calls of tasks so far: their numbers in the pool.
    pub(super) calls: u64,
    /// Threads of lanes that sleep until there is a task.
    pub(super) idle: usize,
    /// Actors that were ready so far.
    pub(super) made: u64,
    /// Actors that were lost, for `max_restarts`.
    pub(super) deaths: Deaths,
    /// How long the last actor took to begin.
    pub(super) start: Duration,
    /// When another stand-in may be asked for, after one that could not be made.
    pub(super) no_stand_in_until: Option<Instant>,
}

/// One actor, or its place while there is none.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// A thread serves it, or is to: else the place is free.
    pub(super) open: bool,
    /// Its actor is beyond the pool's size, and is given no task: it waits to take the place of one that is due.
    pub(super) stands_in: bool,
    /// Its actor is given no more tasks. It finishes the one that it has, and its thread ends.
    pub(super) leaves: bool,
    /// Why its actor is to be replaced, or leaves.
    pub(super) due: Option<Cause>,
    /// The limits of its actor.
    pub(super) lifespan: Lifespan,
    /// When its thread began to make the actor.
    pub(super) asked: Option<Instant>,
    /// The actor's number in the pool, from 1 on.
    pub(super) number: u64,
    /// The actor's process id on its node; 0 while there is no actor.
    pub(super) pid: i32,
    /// Since when the actor takes tasks.
    pub(super) since: Option<Instant>,
    /// Why there is no actor.
    pub(super) missing: Option<Arc<str>>,
    /// The actor is to be ended, or has been.
    pub(super) doomed: bool,
    /// Actors that this lane has had.
    pub(super) started: u64,
    /// Its thread has left: no task would be run.
    pub(super) left: bool,
    pub(super) run: Option<Run>,
    /// The call whose answer its task waits for: its number in the pool, and as the actor counts.
    pub(super) call: Option<(u64, u64)>,
    /// The sessions whose states its actor has, or is to make, by their numbers.
    pub(super) sessions: BTreeMap<u32, Kept>,
    /// The sessions whose states its actor has and is to drop.
    pub(super) dropped: Vec<u32>,
    pub(super) completed: u64,
    pub(super) busy_ns: u64,
}

/// A task that a lane has.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) task: Arc<Task>,
    pub(super) since: Instant,
    /// Whether the actor is to make the state of its session first.
    pub(super) opens: bool,
    /// Whether the lane's thread has it: another one may have given it to the lane.
    pub(super) taken: bool,
}

impl Fleet {
    pub(super) fn lane(&mut self, lane: usize) -> &mut Lane {
        if lane >= self.lanes.len() {
            self.lanes.resize_with(lane + 1, Lane::default);
        }
        &mut self.lanes[lane]
    }

    pub(super) fn of(&self, task: &Arc<Task>) -> Option<usize> {
        self.lanes.iter().position(|lane| lane.run.as_ref().is_some_and(|run| Arc::ptr_eq(&run.task, task)))
    }

    /// Dooms every lane that has an actor.
    pub(super) fn doom_all(&mut self) {
        for at in 0..self.lanes.len() {
            if self.lanes[at].pid != 0 {
                self.doom(at);
            }
        }
    }

    /// Dooms a lane.
    pub(super) fn doom(&mut self, at: usize) {
        if !std::mem::replace(&mut self.lanes[at].doomed, true) {
            self.order(at, Errand::End);
        }
    }

    /// Another thread than the lane's is to do this.
    pub(super) fn order(&mut self, at: usize, what: Errand) {
        self.orders.push(Order { worker: at, which: self.lanes[at].started, what });
    }

    pub(super) fn runs(&self) -> impl Iterator<Item = (&Run, i32)> {
        self.lanes.iter().filter_map(|lane| Some((lane.run.as_ref()?, lane.pid)))
    }
}

impl Run {
    /// What is known of the run in the actor with this process id and number.
    pub(super) fn record(&self, pid: i32, worker: u64) -> Record {
        let begun = clock::in_nanos(self.since.saturating_duration_since(self.task.submitted));
        Record { pid, worker, begun_ns: Some(begun), ..Record::default() }
    }

    /// The lane's thread takes it.
    pub(super) fn take(&mut self) -> Attended {
        self.taken = true;
        let task = Arc::clone(&self.task);
        if self.opens { Attended::First(task) } else { Attended::Task(task) }
    }
}
