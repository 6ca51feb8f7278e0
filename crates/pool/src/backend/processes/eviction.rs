//! Ending a worker for one of its tasks, and the fate of its other tasks.
//!
//! A task that runs in a worker can be ended only with the worker. Tasks that have not started are taken back first. If
//! other tasks run in its other threads, the worker gets no more tasks, another is started in its place, and the
//! running tasks get a grace to finish. A task that has not finished by then fails with an error that names the cause,
//! or is run again if it has retries: the attempt is not counted, because the task is not at fault.

use std::sync::Arc;
use std::time::Instant;

use ropewalk_shm::channel::ring::Retract;

use super::workers::Worker;
use super::{Crew, ProcessPool, ProcessPoolState};
use crate::clock;
use crate::events::{self, What};
use crate::outcome::{Failure, Outcome, Record};
use crate::task::{Stage, Task};

/// Why a worker is being ended though nothing is wrong with it.
#[derive(Clone, Debug)]
pub(crate) struct Eviction {
    /// When those that still run in it are given up.
    at: Instant,
    /// The task that it is ended for, and how that one ends.
    task: u64,
    cancelled: bool,
}

impl Eviction {
    pub(super) fn reason(&self) -> String {
        format!("task {} {}", self.task, if self.cancelled { "was cancelled" } else { "overran its time" })
    }

    pub(crate) fn failure(&self, pid: i32) -> Failure {
        Failure::Neighbour { pid, task: self.task, cancelled: self.cancelled }
    }
}

impl ProcessPool {
    /// Ends the worker that runs `task`, and gives its process id. The caller ends the task itself.
    pub(crate) fn end_worker_of(
        &self,
        state: &mut ProcessPoolState,
        task: &Arc<Task>,
        cancelled: bool,
    ) -> i32 {
        let Some((index, first)) = self.evict(state, task, cancelled) else { return 0 };
        let worker = state.members.workers.get(index).and_then(Option::as_ref);
        let pid = worker.map_or(0, Worker::known_pid);
        state.members.leave_arguments(task);
        if self.end_if_alone(state, index, Some(task)) || !first {
            return pid;
        }
        // The pool goes on with as many threads as before, while this worker's last ones finish.
        self.replace(state);
        self.control.kick();
        pid
    }

    /// Begins to end the worker that runs `task`: takes back what it has not started, and gives it nothing more.
    /// Returns which it is, and whether it was not being ended before.
    pub(super) fn evict(
        &self,
        state: &mut ProcessPoolState,
        task: &Arc<Task>,
        cancelled: bool,
    ) -> Option<(usize, bool)> {
        let index = task.lane().and_then(|lane| state.members.lanes.get(lane)?.as_ref())?.worker;
        let lanes = state.members.workers.get(index)?.as_ref()?.lanes.clone();
        self.take_back_from(state, &lanes);
        let worker = state.members.workers.get_mut(index)?.as_mut()?;
        let first = worker.eviction.is_none();
        let at = clock::now() + self.config.grace;
        worker.eviction.get_or_insert(Eviction { at, task: task.id, cancelled });
        state.members.evictions += usize::from(first);
        Some((index, first))
    }

    /// Takes what has not started out of these lanes, and gives them nothing more.
    pub(super) fn take_back_from(&self, state: &mut ProcessPoolState, lanes: &[usize]) {
        let mut back = Vec::new();
        for index in lanes {
            let Some(lane) = state.members.lanes.get_mut(*index).and_then(Option::as_mut) else { continue };
            lane.closed = true;
            let before = lane.outstanding.len();
            let mut at = 0;
            while let Some(sent) = lane.outstanding.get(at) {
                if matches!(lane.tasks.retract(sent.position), Retract::Taken) {
                    back.extend(lane.outstanding.remove(at).map(|sent| sent.task));
                } else {
                    at += 1;
                }
            }
            let removed = before - lane.outstanding.len();
            state.members.lane_shrank(*index, removed);
        }
        for index in lanes {
            self.leave_closed(state, *index);
        }
        back.retain(|task| !task.is_done());
        back.sort_by_key(|task| std::cmp::Reverse(task.id));
        for task in back {
            task.set_stage(Stage::Queued);
            state.queue.push_front(task);
        }
    }

    /// Kills a worker that is to be ended, if nothing but `except` still runs in it; true if it was killed.
    pub(crate) fn end_if_alone(
        &self,
        state: &mut ProcessPoolState,
        index: usize,
        except: Option<&Arc<Task>>,
    ) -> bool {
        let Some(worker) = state.members.workers.get(index).and_then(Option::as_ref) else { return false };
        if worker.eviction.is_none() || worker.is_asked_for_stacks() {
            return false;
        }
        let lanes = worker.lanes.iter().filter_map(|lane| state.members.lanes.get(*lane)?.as_ref());
        let mut running = lanes.flat_map(|lane| &lane.outstanding).filter(|sent| {
            let is_left = except.is_some_and(|except| Arc::ptr_eq(except, &sent.task));
            !sent.task.is_done() && !is_left && !worker.has_hung(&sent.task)
        });
        let alone = running.next().is_none() || self.config.grace.is_zero();
        if alone && let Some(worker) = state.members.workers.get_mut(index).and_then(Option::as_mut) {
            worker.kill();
        }
        alone
    }

    /// A task was started in a worker that was ended for another's sake.
    pub(crate) fn lose_neighbour(
        &self,
        state: &mut ProcessPoolState,
        task: &Arc<Task>,
        failure: Failure,
        pid: i32,
    ) {
        let record = Record { pid, ..Record::default() };
        // It has run in part: only one that may be run twice is run again. Its own attempts are not counted.
        if task.options.retries > 0 && self.may_retry(state) && self.is_repeatable(task) {
            events::tell(&self.config.name, What::TaskRetried { task: task.id, pid, why: failure.name() });
            self.run_again(state, task);
        } else {
            task.count_attempt();
            let stops = task.is_asked_to_stop();
            let outcome = if stops { Outcome::Cancelled } else { Outcome::Failed(failure) };
            self.finish(state, task, outcome, record);
        }
    }
}

impl Crew {
    /// Kills the workers whose grace is over.
    pub(super) fn end_evicted(&mut self, now: Instant) {
        for worker in self.workers.iter_mut().flatten().filter(|worker| !worker.is_asked_for_stacks()) {
            if worker.eviction.as_ref().is_some_and(|eviction| eviction.at <= now) {
                worker.kill();
            }
        }
    }

    /// A started task ends before its worker does: what its arguments lie in stays the worker's.
    pub(crate) fn leave_arguments(&mut self, task: &Task) {
        let lane = task.lane().and_then(|lane| self.lanes.get(lane)?.as_ref());
        let Some(worker) = lane.map(|lane| lane.worker) else { return };
        if let Some(worker) = self.workers.get_mut(worker).and_then(Option::as_mut)
            && let Some(mut call) = task.remote()
        {
            let description = call.payload.description();
            worker.outlived.push((task.id, std::mem::replace(&mut call.payload, description)));
        }
    }

    /// When the next grace is over.
    pub(crate) fn next_eviction(&self) -> Option<Instant> {
        let is_due = |worker: &&Worker| !worker.is_killed() && !worker.is_asked_for_stacks();
        let evictions = self.workers.iter().flatten().filter(is_due);
        evictions.filter_map(|worker| worker.eviction.as_ref().map(|eviction| eviction.at)).min()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::Config;
    use crate::simulation::scene::{Actor, Scene};
    use crate::task::Options;

    const GRACE: Duration = Duration::from_millis(100);
    const MOMENT: Duration = Duration::from_millis(1);

    /// A worker of this many threads, each of which runs a task, in the order of its lanes.
    fn running(threads: usize, grace: Duration, options: Options) -> (Scene, Actor, Vec<Arc<Task>>) {
        let (scene, mut workers) = Scene::ready(Config { grace, ..Scene::config(1, threads) });
        let mut tasks: Vec<_> = (0..threads).map(|_| scene.submit(options.clone())).collect();
        let mut worker = workers.pop().expect("one");
        let started: Vec<_> = (0..threads).map(|lane| worker.start(lane).expect("each has one")).collect();
        tasks.sort_by_key(|task| started.iter().position(|id| *id == task.id));
        (scene, worker, tasks)
    }

    fn is_replied(task: &Task) -> bool {
        matches!(task.outcome(), Some(Outcome::Replied(_)))
    }

    /// Which task it was ended for, by which process, and whether that task was cancelled.
    fn lost_for(task: &Task) -> Option<(i32, u64, bool)> {
        match task.outcome() {
            Some(Outcome::Failed(Failure::Neighbour { pid, task, cancelled })) => {
                Some((*pid, *task, *cancelled))
            }
            _ => None,
        }
    }

    #[test]
    fn those_beside_a_cancelled_task_finish_and_then_the_worker_ends() {
        let (mut scene, mut worker, tasks) = running(3, GRACE, Options::default());
        let waiting = scene.task();
        scene.kicked();
        assert!(scene.engine.cancel(&tasks[0], true));
        assert!(scene.kicked(), "the supervisor is to end it when the grace is over");
        assert_eq!((tasks[0].record().pid, tasks[0].attempt()), (worker.pid(), 1));
        assert!(!scene.has_killed(&worker));
        // Another worker takes what comes now, and what waited in this one.
        let mut other = scene.asked().pop_front().expect("another worker");
        scene.fork(&other);
        other.ready();
        scene.tick();
        let mut started: Vec<_> = (0..3).filter_map(|lane| Some((lane, other.start(lane)?))).collect();
        let (lane, id) = started.pop().expect("the waiting one");
        assert!(id == waiting.id && started.is_empty());
        other.answer(lane, id);
        let newer = scene.task();
        assert!((0..3).any(|lane| other.start(lane) == Some(newer.id)));
        worker.answer(1, tasks[1].id);
        scene.tick();
        assert!(is_replied(&tasks[1]) && is_replied(&waiting) && !scene.has_killed(&worker));
        worker.answer(2, tasks[2].id);
        scene.tick();
        assert!(is_replied(&tasks[2]) && scene.has_killed(&worker));
        scene.die(worker, 9);
        let state = scene.engine.lock();
        assert_eq!((state.members.evictions, state.counters.crashed, state.counters.cancelled), (0, 0, 1));
        assert_eq!(state.members.workers.iter().flatten().count(), 1);
    }

    #[test]
    fn a_neighbour_that_does_not_finish_in_time_is_lost_and_says_why() {
        for cancelled in [true, false] {
            let (mut scene, worker, tasks) = running(2, GRACE, Options::default());
            let pid = worker.pid();
            if cancelled {
                assert!(scene.engine.cancel(&tasks[0], true));
            } else {
                let mut state = scene.engine.lock();
                scene.engine.end_worker_of(&mut state, &tasks[0], false);
            }
            assert!(scene.tick().is_some_and(|next| next <= scene.now + GRACE));
            assert_eq!(scene.engine.lock().members.next_eviction(), Some(scene.now + GRACE));
            scene.pass(GRACE - MOMENT);
            assert!(!scene.has_killed(&worker));
            scene.pass(MOMENT);
            assert!(scene.has_killed(&worker) && !tasks[1].is_done());
            assert_eq!(scene.engine.lock().members.next_eviction(), None, "nothing is left to do");
            scene.die(worker, 9);
            assert_eq!(lost_for(&tasks[1]), Some((pid, tasks[0].id, cancelled)));
            assert_eq!((tasks[1].record().pid, tasks[1].attempt()), (pid, 1));
        }
    }

    #[test]
    fn a_neighbour_that_may_be_run_again_is_and_the_attempt_is_not_its_own() {
        let (mut scene, worker, tasks) = running(2, GRACE, Options { retries: 1, ..Options::default() });
        assert!(scene.engine.cancel(&tasks[0], true));
        scene.pass(GRACE);
        scene.die(worker, 9);
        assert_eq!((tasks[1].is_done(), tasks[1].attempt()), (false, 0));
        let mut other = scene.asked().pop_front().expect("another worker");
        scene.fork(&other);
        other.ready();
        scene.tick();
        let lane = (0..2).find(|lane| other.start(*lane) == Some(tasks[1].id)).expect("it is run again");
        other.answer(lane, tasks[1].id);
        scene.tick();
        assert!(is_replied(&tasks[1]) && tasks[1].attempt() == 1);
    }

    #[test]
    fn a_pool_that_ends_runs_no_neighbour_again() {
        let (mut scene, worker, tasks) = running(2, GRACE, Options { retries: 1, ..Options::default() });
        assert!(scene.engine.cancel(&tasks[0], true));
        scene.engine.end(GRACE * 2);
        scene.pass(GRACE);
        let pid = worker.pid();
        scene.die(worker, 9);
        assert_eq!(lost_for(&tasks[1]), Some((pid, tasks[0].id, true)));
        assert!(scene.engine.has_ended());
    }

    #[test]
    fn without_a_grace_nobody_is_waited_for() {
        let (scene, worker, tasks) = running(2, Duration::ZERO, Options::default());
        assert!(scene.engine.cancel(&tasks[0], true));
        assert!(scene.has_killed(&worker));
        scene.die(worker, 9);
        assert!(lost_for(&tasks[1]).is_some());
    }

    #[test]
    fn a_second_end_makes_the_grace_no_longer() {
        let (mut scene, worker, tasks) = running(3, GRACE, Options::default());
        assert!(scene.engine.cancel(&tasks[0], true));
        scene.pass(GRACE / 2);
        assert!(scene.engine.cancel(&tasks[1], true));
        assert_eq!(scene.engine.lock().members.evictions, 1);
        assert!(!scene.has_killed(&worker));
        assert_eq!(scene.asked().len(), 1, "one worker is replaced by one");
        scene.pass(GRACE / 2);
        assert!(scene.has_killed(&worker));
        let pid = worker.pid();
        scene.die(worker, 9);
        assert_eq!(lost_for(&tasks[2]), Some((pid, tasks[0].id, true)));
        // When the last of all is cancelled, no task is left to wait for.
        let (scene, worker, tasks) = running(2, GRACE, Options::default());
        assert!(scene.engine.cancel(&tasks[0], true) && !scene.has_killed(&worker));
        assert!(scene.engine.cancel(&tasks[1], true) && scene.has_killed(&worker));
    }

    #[test]
    fn the_arguments_of_a_cancelled_task_stay_while_its_worker_may_read_them() {
        let (scene, mut workers) = Scene::ready(Scene::config(1, 1));
        let (task, lease) = scene.leased();
        assert_eq!(workers[0].start(0), Some(task.id));
        assert!(scene.engine.cancel(&task, true));
        assert!(task.is_done() && lease.upgrade().is_some());
        scene.die(workers.remove(0), 9);
        assert!(lease.upgrade().is_none());
        // And those of one that has not started go at once.
        let (_other, (waiting, lease)) = (scene.task(), scene.leased());
        assert!(scene.engine.cancel(&waiting, true) && lease.upgrade().is_none());
    }
}
