//! The times at which tasks are ended: `deadline` counts from the submission, `timeout` from the beginning of the run.
//!
//! The worker reports the beginning of a run in the lane's memory (`lane::Begun`). The parent reads it at the earliest
//! time at which the run could be overdue, so no thread is woken for it. A task that had not begun by then cannot be
//! overdue for another `timeout`.

use std::collections::BinaryHeap;
use std::sync::{Arc, Weak};
use std::time::Instant;

use super::ending::Why;
use super::{Backend, Pool, PoolState};
use crate::clock;
use crate::outcome::{Failure, Limit, Outcome, Phase, Record};
use crate::task::{Stage, Task};

/// Below this many entries it does not pay to look for those of tasks that have ended.
const FEW: usize = 64;

#[derive(Debug)]
struct Due {
    at: Instant,
    limit: Limit,
    task: Weak<Task>,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}
impl Eq for Due {}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.at.cmp(&self.at)
    }
}

/// Entries of tasks that have ended are dropped as soon as they are half of all: what is kept is bounded by the number
/// of tasks that have not ended.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Due>,
    /// Tasks with a limit that have ended since the heap was last cleared of them.
    ended: usize,
}

impl Timers {
    pub(crate) fn first(&self) -> Option<Instant> {
        self.heap.peek().map(|due| due.at)
    }

    fn pop_due(&mut self, now: Instant) -> Option<Due> {
        if self.first()? > now { None } else { self.heap.pop() }
    }

    /// A task with a limit has ended.
    pub(crate) fn forget_one(&mut self) {
        self.ended += 1;
        if self.ended * 2 > self.heap.len() && self.heap.len() >= FEW {
            self.heap.retain(|due| due.task.upgrade().is_some_and(|task| !task.is_done()));
            self.heap.shrink_to(FEW.max(self.heap.len() * 2));
            self.ended = 0;
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.heap.len()
    }
}

impl<B: Backend> Pool<B> {
    /// A task was accepted: its deadline counts from now.
    pub(crate) fn add_deadline(&self, state: &mut PoolState<B>, task: &Arc<Task>) {
        let at = task.options.deadline().and_then(|deadline| task.submitted.checked_add(deadline));
        if let Some(at) = at {
            self.add_timer(state, task, Limit::Deadline, at);
        }
    }

    /// A task may begin from now on.
    #[inline]
    pub(crate) fn may_begin(&self, state: &mut PoolState<B>, task: &Arc<Task>) {
        if task.options.limits_runs() {
            self.time_run(state, task);
        }
    }

    fn time_run(&self, state: &mut PoolState<B>, task: &Arc<Task>) {
        for limit in [Limit::Timeout, Limit::Hang] {
            if let Some(length) = task.options.of_run(limit)
                && task.arm(limit)
                && let Some(at) = clock::now().checked_add(length)
            {
                self.add_timer(state, task, limit, at);
            }
        }
    }

    fn add_timer(&self, state: &mut PoolState<B>, task: &Arc<Task>, limit: Limit, at: Instant) {
        state.timers.heap.push(Due { at, limit, task: Arc::downgrade(task) });
        self.wake_supervisor_at(state, at);
    }

    /// Ends the tasks whose time is up.
    pub(crate) fn expire(&self, state: &mut PoolState<B>, now: Instant) {
        while let Some(due) = state.timers.pop_due(now) {
            let Some(task) = due.task.upgrade() else { continue };
            if due.limit != Limit::Deadline {
                match Self::run_ends(state, &task, due.limit, now) {
                    Some(at) if at > now => {
                        state.timers.heap.push(Due { at, ..due });
                        continue;
                    }
                    Some(_) => {}
                    None => {
                        task.disarm(due.limit);
                        continue;
                    }
                }
            }
            if due.limit == Limit::Hang {
                task.disarm(due.limit);
                B::hung(self, state, &task, now);
            } else {
                self.end_early(state, &task, true, Why::Late(due.limit));
            }
        }
    }

    /// Ends a task that was taken out of the queue and is not to begin, because its deadline has passed: the supervisor
    /// may be late.
    #[inline]
    pub(crate) fn end_if_late(&self, state: &mut PoolState<B>, task: &Arc<Task>) -> bool {
        let late = task.options.deadline().is_some() && task.is_late();
        if late {
            let outcome = Outcome::Failed(Failure::TimedOut(Limit::Deadline, Phase::Queued));
            self.finish(state, task, outcome, Record::default());
        }
        late
    }

    /// When a task's run is over by this limit, or when to look again; `None` if no worker has it.
    fn run_ends(state: &mut PoolState<B>, task: &Arc<Task>, limit: Limit, now: Instant) -> Option<Instant> {
        let length = task.options.of_run(limit)?;
        match task.stage() {
            Stage::Done | Stage::Queued | Stage::Delayed => None,
            Stage::Sent | Stage::Running if limit == Limit::Hang => {
                B::hangs_at(&mut state.members, task, length, now)
            }
            Stage::Sent | Stage::Running => B::run_ends(&mut state.members, task, length, now),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ropewalk_sync::Mutex;

    use super::*;
    use crate::backend::processes::{MOST_LATE, PREPARATION};
    use crate::simulation::scene::{Actor, Scene};
    use crate::task::{Call, Options, Rare};

    const MS: Duration = Duration::from_millis(1);
    const LIMIT: Duration = Duration::from_millis(100);

    fn out_of_time(task: &Task) -> Option<(Limit, Phase)> {
        match task.outcome() {
            Some(Outcome::Failed(Failure::TimedOut(limit, phase))) => Some((*limit, *phase)),
            _ => None,
        }
    }

    fn with_timeout() -> (Scene, Actor, Arc<Task>) {
        let (scene, mut workers) = Scene::ready(Scene::config(1, 1));
        let task = scene.submit(Rare { timeout: Some(LIMIT), ..Rare::default() }.into());
        (scene, workers.pop().expect("one"), task)
    }

    #[test]
    fn a_run_has_its_timeout_from_when_the_call_began() {
        let (mut scene, mut worker, task) = with_timeout();
        assert!(scene.tick().is_some_and(|next| next <= scene.now + LIMIT), "it may begin at once");
        scene.pass(LIMIT / 2);
        // The parent does not check before the first time at which the run could be overdue, and its arguments have
        // taken this long.
        assert_eq!(worker.start(0), Some(task.id));
        scene.pass(LIMIT * 3);
        assert!(!task.is_done());
        worker.begin(0, task.id);
        scene.pass(LIMIT - MS);
        assert!(!task.is_done());
        scene.pass(LIMIT);
        assert_eq!(out_of_time(&task), Some((Limit::Timeout, Phase::Running)));
        assert!(scene.has_killed(&worker) && task.attempt() == 1 && task.record().pid == worker.pid());
        let counters = scene.engine.statistics().expect("this process").counters;
        assert_eq!((counters.timed_out, counters.failed, counters.crashed), (1, 1, 0));
    }

    #[test]
    fn a_worker_that_never_says_that_it_has_begun_is_not_believed_for_ever() {
        let (mut scene, mut worker, task) = with_timeout();
        scene.pass(PREPARATION * 2);
        assert!(!task.is_done(), "no worker has taken it");
        assert_eq!(worker.start(0), Some(task.id));
        // It is seen to be taken at one of the looks, which are far between by now.
        scene.pass(MOST_LATE);
        for _ in 0..9 {
            scene.pass(PREPARATION / 10);
            assert!(!task.is_done());
        }
        for _ in 0..9 {
            scene.pass(PREPARATION / 10);
        }
        assert_eq!(out_of_time(&task), Some((Limit::Timeout, Phase::Running)));
    }

    #[test]
    fn what_waits_has_no_run_that_could_be_over() {
        let (mut scene, mut workers) = Scene::ready(Scene::config(1, 1));
        let limited: Options = Rare { timeout: Some(LIMIT), ..Rare::default() }.into();
        let (first, second, third) = (scene.task(), scene.submit(limited.clone()), scene.submit(limited));
        assert_eq!(workers[0].start(0), Some(first.id));
        scene.pass(LIMIT * 10);
        assert!(!second.is_done() && !third.is_done());
        workers[0].answer(0, first.id);
        scene.tick();
        for task in [&second, &third] {
            assert_eq!(workers[0].start(0), Some(task.id));
            workers[0].begin(0, task.id);
            scene.pass(LIMIT / 2);
            workers[0].answer(0, task.id);
            scene.tick();
            assert!(matches!(task.outcome(), Some(Outcome::Replied(_))));
        }
    }

    #[test]
    fn each_attempt_has_the_whole_timeout() {
        let (mut scene, mut workers) = Scene::ready(Scene::config(1, 1));
        let worker = &mut workers[0];
        let task =
            scene.submit(Options { retries: 5, ..Rare { timeout: Some(LIMIT), ..Rare::default() }.into() });
        for _ in 0..3 {
            assert_eq!(worker.start(0), Some(task.id));
            scene.pass(MS);
            worker.begin(0, task.id);
            scene.pass(LIMIT / 2);
            worker.say(0, crate::wire::kind::DONE, crate::wire::flags::ERROR, task.id, 0);
            scene.tick();
            assert!(!task.is_done());
        }
        assert_eq!(worker.start(0), Some(task.id));
        scene.pass(MS);
        worker.begin(0, task.id);
        for _ in 0..3 {
            scene.pass(LIMIT);
        }
        assert_eq!(out_of_time(&task), Some((Limit::Timeout, Phase::Running)));
        assert_eq!(task.attempt(), 4, "and what is out of time is not run again");
    }

    #[test]
    fn a_deadline_is_kept_to_the_moment_wherever_the_task_is() {
        let (mut scene, mut workers) = Scene::ready(Scene::config(1, 1));
        let limited = |times| Rare { deadline: Some(LIMIT * times), ..Rare::default() }.into();
        let (queued, running) = (scene.submit(limited(4)), scene.submit(limited(2)));
        let id = workers[0].start(0).expect("one of them");
        let (running, queued) = if id == running.id { (running, queued) } else { (queued, running) };
        let sooner = scene.submit(limited(1));
        assert!(scene.tick().is_some_and(|next| next <= scene.now + LIMIT));
        scene.pass(LIMIT - MS);
        assert!(!sooner.is_done());
        scene.pass(MS);
        assert_eq!(out_of_time(&sooner), Some((Limit::Deadline, Phase::Queued)));
        assert_eq!((sooner.attempt(), sooner.record().pid), (0, 0), "it never ran");
        scene.pass(LIMIT);
        assert_eq!(out_of_time(&queued), Some((Limit::Deadline, Phase::Queued)));
        assert!(!scene.has_killed(&workers[0]));
        scene.pass(LIMIT * 2);
        assert_eq!(out_of_time(&running), Some((Limit::Deadline, Phase::Running)));
        assert!(scene.has_killed(&workers[0]));
    }

    #[test]
    fn what_is_kept_is_bounded_by_the_tasks_that_have_not_ended() {
        let mut timers = Timers::default();
        let hour = Duration::from_secs(3600);
        let make = |id| {
            let options = Rare { deadline: Some(hour), ..Rare::default() }.into();
            Arc::new(Task::new(id, Call::Local(Mutex::new(None)), 0, options, 0))
        };
        let held: Vec<_> = (0..100).map(make).collect();
        let add = |timers: &mut Timers, task: &Arc<Task>| {
            let at = Instant::now() + hour;
            timers.heap.push(Due { at, limit: Limit::Deadline, task: Arc::downgrade(task) });
        };
        for task in &held {
            add(&mut timers, task);
        }
        for id in 100..100_000 {
            let task = make(id);
            add(&mut timers, &task);
            task.finish(Outcome::Cancelled, Record::default());
            timers.forget_one();
            assert!(timers.len() <= 2 * held.len() + FEW + 1);
        }
        for task in &held {
            assert!(timers.heap.iter().any(|due| due.task.ptr_eq(&Arc::downgrade(task))));
        }
    }

    #[test]
    fn the_earliest_comes_first_and_none_before_its_time() {
        let (mut timers, now) = (Timers::default(), Instant::now());
        let second = Duration::from_secs(1);
        assert!(timers.first().is_none() && timers.pop_due(now).is_none());
        for after in [3, 1, 2] {
            timers.heap.push(Due { at: now + second * after, limit: Limit::Deadline, task: Weak::new() });
        }
        assert_eq!(timers.first(), Some(now + second));
        assert!(timers.pop_due(now + second - Duration::from_nanos(1)).is_none());
        let mut due = |at| timers.pop_due(at).map(|due| due.at);
        assert_eq!(due(now + second), Some(now + second));
        assert_eq!(due(now + second), None);
        assert_eq!(due(now + second * 9), Some(now + second * 2));
        assert_eq!(due(now + second * 9), Some(now + second * 3));
        assert_eq!(due(now + second * 9), None);
    }
}
