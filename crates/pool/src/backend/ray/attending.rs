//! What the threads of lanes report, and the tasks that they are given.

use std::sync::Arc;
use std::time::Duration;

use super::Ray;
use super::lanes::Run;
use crate::cause::Cause;
use crate::clock;
use crate::events::{self, What};
use crate::locked::Guard;
use crate::outcome::{Failure, Outcome, Record, Reply};
use crate::pool::{Answer, Attended, Lifecycle, Pool, PoolState};
use crate::task::{Stage, Task};

impl Pool<Ray> {
    pub(super) fn is_ready_in(&self, state: &mut PoolState<Ray>, at: usize, pid: i32) {
        state.members.made += 1;
        let number = state.members.made;
        let lane = state.members.lane(at);
        lane.number = number;
        (lane.completed, lane.busy_ns) = (0, 0);
        lane.pid = pid;
        lane.since = Some(clock::now());
        lane.missing = None;
        lane.doomed = false;
        lane.left = false;
        lane.open = true;
        lane.started += 1;
        if lane.started > 1 {
            state.counters.restarted += 1;
        }
        events::tell(&self.config.name, What::WorkerStarted { pid });
        self.begins_life(state, at);
        self.bind_waiting(state);
        if state.members.lanes[at].is_in_service() {
            self.take_over_sessions(state, at);
        }
    }

    /// The actor of a lane is no more. Its task was lost with it, unless that has ended before.
    pub(super) fn has_gone(&self, state: &mut PoolState<Ray>, at: usize, why: &Arc<str>) {
        let lane = state.members.lane(at);
        let (pid, doomed) = (std::mem::take(&mut lane.pid), std::mem::take(&mut lane.doomed));
        lane.call = None;
        // A new one is as good as a replacement.
        lane.due = None;
        lane.asked = Some(clock::now());
        let (run, number, tasks) = (lane.run.take(), lane.number, lane.completed);
        let mut unhealthy = None;
        state.members.orders.retain(|order| order.worker != at);
        let reason = Some(Arc::clone(why));
        let failure = Failure::Crashed { pid, status: None, reason, stack: None, starting: false };
        self.leave_lane(state, at, run.as_ref().map(|run| &run.task), (pid, doomed, &failure));
        if pid != 0 && doomed && !state.ending {
            let (cause, memory) = (Cause::Task, None);
            state.counters.recycled[cause as usize] += 1;
            events::tell(&self.config.name, What::WorkerRecycled { pid, number, cause, memory, tasks });
        } else if pid != 0 && !doomed {
            state.counters.crashed += 1;
            let reason = Some(Arc::clone(why));
            unhealthy = self.too_many(&mut state.members.deaths, &failure, clock::now());
            events::tell(&self.config.name, What::WorkerCrashed { pid, status: None, reason });
        }
        if let Some(run) = run {
            let busy_ns = clock::in_nanos(clock::now().saturating_duration_since(run.since));
            let record = Record { busy_ns, ..run.record(pid, number) };
            let task = run.task;
            if state.ending {
                self.finish(state, &task, Outcome::Failed(Failure::Terminated), record);
            } else {
                if doomed {
                    // Its task has ended; or the pool is broken.
                    self.finish(state, &task, Outcome::Failed(failure), record);
                } else {
                    if self.breaks_on_crash() && !task.is_done() {
                        self.break_now(state, &failure);
                    }
                    self.blame(state, &task, failure, record);
                }
            }
        }
        if let Some(unhealthy) = unhealthy {
            self.break_now(state, &unhealthy);
        }
        self.bind_waiting(state);
        self.replace_due(state);
        self.check_end(state);
    }

    /// Ends a lane's task; returns it if that was its last reference, because only the layer above may drop its value.
    pub(super) fn has_answered(
        &self,
        state: &mut PoolState<Ray>,
        at: usize,
        answer: Answer,
    ) -> Option<Box<Task>> {
        let Answer { value, raised, again, stopped, busy_ns, progress } = answer;
        let lane = state.members.lane(at);
        let (pid, number) = (lane.pid, lane.number);
        lane.completed += 1;
        lane.busy_ns = lane.busy_ns.saturating_add(busy_ns);
        lane.call = None;
        let run = lane.run.take()?;
        let record = Record { busy_ns, ..run.record(pid, number) };
        let task = run.task;
        if let Some(progress) = progress {
            task.signals().report(progress);
        }
        if let Some(session) = task.session() {
            lane.answered(session);
        }
        let stopped = stopped && task.is_asked_to_stop();
        let outcome = if stopped { Outcome::Cancelled } else { Outcome::Local { value, raised } };
        if raised && again && !stopped {
            self.retry_or_finish(state, &task, outcome, record);
        } else {
            self.finish(state, &task, outcome, record);
        }
        self.check_end(state);
        Arc::into_inner(task).map(Box::new)
    }

    /// A lane's actor could not make the object of an actor of the pool, whose task it has.
    pub(super) fn has_not_made(&self, state: &mut PoolState<Ray>, at: usize, reply: Reply) {
        let lane = state.members.lane(at);
        let (pid, number) = (lane.pid, lane.number);
        lane.completed += 1;
        lane.call = None;
        let Some(run) = lane.run.take() else { return };
        let outcome = self.unmade(&run.task, reply);
        self.finish(state, &run.task, outcome, run.record(pid, number));
        self.check_end(state);
    }

    /// The next task that a lane may run, or hand to another.
    fn pop_for(state: &mut PoolState<Ray>, at: usize) -> Option<Arc<Task>> {
        let Some(common) = state.queue.pop() else { return state.queue.pinned.pop(at) };
        let Some(pinned) = state.queue.pinned.pop_before(at, &common) else { return Some(common) };
        state.queue.push_front(common);
        Some(pinned)
    }

    /// A lane's thread is to hand this task to its actor.
    fn give(&self, state: &mut PoolState<Ray>, at: usize, task: Arc<Task>) {
        task.count_attempt();
        task.set_stage(Stage::Running);
        let opens = self.open_state(state, at, &task);
        let run = Run { task: Arc::clone(&task), since: clock::now(), opens, taken: false };
        state.members.lane(at).run = Some(run);
        self.count_given(state, at);
        self.may_begin(state, &task);
        if state.change_waiters > 0 {
            Self::bump(&self.change_word);
        }
        self.tell_room(state);
    }

    pub(super) fn next_for<'a>(
        &'a self,
        mut state: Guard<'a, PoolState<Ray>>,
        at: usize,
        timeout: Duration,
    ) -> Attended {
        let mut late = false;
        loop {
            let lane = state.members.lane(at);
            if lane.doomed {
                return Attended::Doomed;
            }
            if lane.leaves && lane.run.is_none() {
                lane.left = true;
                self.move_sessions(&mut state, at);
                return Attended::Closed;
            }
            if !matches!(state.lifecycle, Lifecycle::Open | Lifecycle::Closing) {
                state.members.lane(at).left = true;
                return Attended::Closed;
            }
            let lane = state.members.lane(at);
            let next = lane.expire_states(at);
            if !lane.dropped.is_empty() {
                return Attended::Drop(std::mem::take(&mut lane.dropped));
            }
            if let Some(run) = &mut lane.run {
                return run.take();
            }
            let stands_in = lane.stands_in;
            while let Some(task) = (!stands_in).then(|| Self::pop_for(&mut state, at)).flatten() {
                if self.end_if_late(&mut state, &task) {
                    continue;
                }
                if let Some(failure) = task.session().and_then(|session| session.lost()) {
                    self.finish(&mut state, &task, Outcome::Failed(failure), Record::default());
                    continue;
                }
                let chosen = state.members.lane_for(at, &task);
                self.give(&mut state, chosen, task);
                if chosen == at {
                    break;
                }
                self.backend.ready.notify_all();
            }
            let is_given = state.members.lane(at).run.is_some();
            if is_given {
                continue;
            }
            if !state.may_get_tasks() {
                state.members.lane(at).left = true;
                return Attended::Closed;
            }
            if late {
                return Attended::Nothing;
            }
            let wait = next.map_or(timeout, |next| timeout.min(next.saturating_duration_since(clock::now())));
            state.members.idle += 1;
            (state, late) = state.wait(&self.state, &self.backend.ready, wait);
            state.members.idle -= 1;
        }
    }
}
