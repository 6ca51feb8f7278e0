//! Workers on a Ray cluster: actors, each served by a thread of the layer above, its *lane*.
//!
//! The layer above starts the actors and talks to Ray. The thread of a lane reports what became of its actor or of its
//! task ([`News`]), and is given the next task, one at a time. A call is encoded as for worker processes; its result is
//! a value of this process, because the thread has decoded it.
//!
//! An actor has to be ended for the sake of its task, or of its pool: then its lane is *doomed*. The threads of lanes
//! wait for Ray and not for the engine, so another thread of the layer above takes such [`Order`]s
//! ([`orders`](Backend::orders)) and ends their actors. The lane's thread sees that its actor is gone, and says so.
//! Until then its task stays with it, so that the pool does not end before its actors have.
//!
//! The same thread sends a task that runs what the program has for it. What the task has for the program comes by a
//! third thread; see [`calling`].

mod attending;
mod calling;
mod lanes;
mod recycling;
mod sessions;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ropewalk_base::Result;
use ropewalk_sync::Condvar;

use self::lanes::{Fleet, Lane};
use crate::calls::{Answered, Calling};
use crate::clock::{self, Anchor};
use crate::outcome::Record;
use crate::payload::Payload;
use crate::pool::{
    Attended, Backend, Capabilities, Errand, Interrupted, News, Order, Pool, PoolState, Which,
};
use crate::session::Session;
use crate::statistics::{WorkerState, WorkerStatistics};
use crate::task::{Stage, Task};

/// Workers that are actors of a Ray cluster.
#[derive(Debug)]
pub(crate) struct Ray {
    /// Where the threads of lanes without a task sleep.
    ready: Condvar,
    /// Where the thread sleeps that takes orders.
    ordered: Condvar,
}
/// The capabilities of the kind.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    kind: "ray",
    encodes: true,
    shares_memory: false,
    starts_workers: false,
    ends_running: true,
    isolates: true,
    keeps_states: true,
};

impl Backend for Ray {
    type Settings = ();
    type Members = Fleet;

    const CAPABILITIES: Capabilities = CAPABILITIES;
    const POLLED: bool = false;

    fn new((): ()) -> Self {
        Self { ready: Condvar::new(), ordered: Condvar::new() }
    }

    fn prepare(_pool: &Pool<Self>, _page: OwnedFd) -> Result<()> {
        Ok(())
    }

    fn start(pool: &Pool<Self>) -> Result<()> {
        let mut state = pool.lock();
        let size = state.size;
        // The layer above starts their threads by itself.
        state.members.lanes.resize_with(size, || Lane { open: true, ..Lane::default() });
        Ok(())
    }

    fn submitted(pool: &Pool<Self>, state: &mut PoolState<Self>, _task: &Arc<Task>) {
        pool.wake_a_lane(state);
    }

    fn bind(_pool: &Pool<Self>, state: &mut PoolState<Self>, session: &Arc<Session>, _task: &Arc<Task>) {
        Pool::<Self>::bind_session(state, session);
    }

    fn is_busy(state: &PoolState<Self>, session: &Session) -> bool {
        session.pending() > 0 || state.members.is_busy_for(session)
    }

    fn drop_session(pool: &Pool<Self>, state: &mut PoolState<Self>, session: &Session) {
        pool.drop_states(state, session);
    }

    fn requeued(pool: &Pool<Self>, state: &mut PoolState<Self>) {
        pool.keep_one(state);
        pool.wake_a_lane(state);
    }

    fn busy(members: &Fleet) -> usize {
        members.runs().count()
    }

    fn waiting(_members: &Fleet) -> usize {
        0
    }

    fn has_work(_members: &Fleet) -> bool {
        false
    }

    fn is_drained(members: &Fleet) -> bool {
        members.runs().next().is_none()
    }

    fn is_gone(members: &Fleet) -> bool {
        Self::is_drained(members)
    }

    fn statistics(state: &PoolState<Self>) -> (usize, usize, Vec<WorkerStatistics>) {
        let now = clock::now();
        let of_lane = |lane: &Lane| WorkerStatistics {
            number: lane.number,
            pid: lane.pid,
            state: match (lane.pid, lane.doomed || lane.leaves, &lane.run) {
                (0, _, _) => WorkerState::Starting,
                _ if lane.stands_in => WorkerState::Starting,
                (_, true, _) => WorkerState::Leaving,
                (_, false, Some(_)) => WorkerState::Busy,
                (_, false, None) => WorkerState::Idle,
            },
            completed: lane.completed,
            busy_ns: lane.busy_ns,
            age: (lane.pid != 0).then(|| now.saturating_duration_since(lane.since.unwrap_or(now))),
        };
        let lanes = state.members.lanes.iter().filter(|lane| lane.open);
        (state.members.runs().count(), 0, lanes.map(of_lane).collect())
    }

    fn shortage(members: &Fleet) -> Option<Arc<str>> {
        members.lanes.iter().find_map(|lane| lane.missing.clone())
    }

    fn is_running(_state: &mut PoolState<Self>, task: &Arc<Task>) -> bool {
        task.stage() == Stage::Running
    }

    fn interrupt(
        pool: &Pool<Self>,
        state: &mut PoolState<Self>,
        task: &Arc<Task>,
        force: bool,
        _cancelled: bool,
    ) -> Interrupted {
        let Some(at) = state.members.of(task) else { return Interrupted::Left };
        if !force {
            return Interrupted::Left;
        }
        state.members.doom(at);
        pool.backend.ordered.notify_one();
        Interrupted::Killed(state.members.lanes[at].pid)
    }

    fn ask_to_stop(pool: &Pool<Self>, state: &mut PoolState<Self>, task: &Arc<Task>) {
        let Some(at) = state.members.of(task) else { return };
        state.members.order(at, Errand::Stop(task.id));
        pool.backend.ordered.notify_one();
    }

    fn answer(pool: &Pool<Self>, state: &mut PoolState<Self>, call: &Calling, answer: &Payload) -> Answered {
        pool.send_answer(state, call, answer)
    }

    fn all_call(members: &Fleet) -> Option<usize> {
        members.all_call()
    }

    fn describe_run(members: &Fleet, task: &Arc<Task>, record: &mut Record, _monotonic: &Anchor) {
        let Some(lane) = members.of(task).and_then(|at| members.lanes.get(at)) else { return };
        if let Some(run) = &lane.run {
            let known = run.record(lane.pid, lane.number);
            (record.pid, record.worker, record.begun_ns) = (known.pid, known.worker, known.begun_ns);
        }
    }

    fn run_ends(members: &mut Fleet, task: &Arc<Task>, timeout: Duration, _now: Instant) -> Option<Instant> {
        let (run, _) = members.runs().find(|(run, _)| Arc::ptr_eq(&run.task, task))?;
        run.since.checked_add(timeout)
    }

    fn abandon(members: &mut Fleet) -> Vec<(Arc<Task>, i32)> {
        members.runs().map(|(run, pid)| (Arc::clone(&run.task), pid)).collect()
    }

    fn kill(pool: &Pool<Self>, state: &mut PoolState<Self>) {
        state.members.doom_all();
        pool.backend.ordered.notify_one();
    }

    fn give_up(members: &mut Fleet) -> Vec<Arc<Task>> {
        members.doom_all();
        members.runs().map(|(run, _)| Arc::clone(&run.task)).collect()
    }

    fn signal(members: &mut Fleet, _signal: i32) {
        // No signal reaches another machine: the actors are ended.
        members.doom_all();
    }

    fn wake_all(pool: &Pool<Self>) {
        pool.backend.ready.notify_all();
        pool.backend.ordered.notify_all();
    }

    fn dismiss(_pool: &Pool<Self>, state: &mut PoolState<Self>) -> bool {
        // The threads of lanes see that the pool is closed, and end their actors.
        Self::is_drained(&state.members)
    }

    fn attend(pool: &Pool<Self>, lane: usize, news: News, timeout: Duration) -> Attended {
        let Some(mut state) = pool.enter() else { return Attended::Closed };
        match news {
            News::Nothing => {}
            News::Missing(why) => {
                let wanted = state.is_wanted();
                let lane = state.members.lane(lane);
                lane.asked.get_or_insert_with(clock::now);
                lane.missing = Pool::shortage_of(lane, why);
                return if wanted && !lane.leaves { Attended::Nothing } else { Attended::Closed };
            }
            News::Ready(pid) => pool.is_ready_in(&mut state, lane, pid),
            News::Gone(why) => {
                pool.has_gone(&mut state, lane, &why);
                let leaves = state.members.lane(lane).leaves;
                return if state.is_wanted() && !leaves { Attended::Nothing } else { Attended::Closed };
            }
            News::Left => {
                pool.has_left(&mut state, lane);
                return Attended::Closed;
            }
            News::Answered(answer) => {
                if let Some(task) = pool.has_answered(&mut state, lane, answer) {
                    return Attended::Last(task);
                }
            }
            News::Unmade(reply) => pool.has_not_made(&mut state, lane, reply),
            News::Said(attempt, progress) => {
                state.members.says(lane, attempt, progress);
                return Attended::Nothing;
            }
            News::Called(attempt, number, frame) => {
                pool.receive_call(&mut state, lane, attempt, number, frame);
                return Attended::Nothing;
            }
        }
        pool.next_for(state, lane, timeout)
    }

    fn recycle(pool: &Pool<Self>, state: &mut PoolState<Self>, which: Which) -> usize {
        pool.mark_due(state, which)
    }

    fn resized(pool: &Pool<Self>, state: &mut PoolState<Self>) -> usize {
        pool.change_number(state);
        0
    }

    fn look_after(pool: &Pool<Self>, state: &mut PoolState<Self>, now: Instant) -> Option<Instant> {
        pool.find_aged(state, now);
        None
    }

    fn next_look(state: &PoolState<Self>, _now: Instant) -> Option<Instant> {
        Pool::next_recycling(&state.members)
    }

    fn orders(pool: &Pool<Self>, timeout: Duration) -> Option<Vec<Order>> {
        let mut state = pool.enter()?;
        if state.members.orders.is_empty() && !state.is_over() {
            (state, _) = state.wait(&pool.state, &pool.backend.ordered, timeout);
        }
        let orders = std::mem::take(&mut state.members.orders);
        (!orders.is_empty() || !state.is_over()).then_some(orders)
    }
}

impl PoolState<Ray> {
    /// Whether there is, or may be, anything to run.
    fn is_wanted(&self) -> bool {
        self.may_get_tasks() || (!self.queue.is_empty() && !self.ending)
    }
}

impl Pool<Ray> {
    /// Makes sure that a lane takes the task that was just queued.
    fn wake_a_lane(&self, state: &PoolState<Ray>) {
        if state.queue.pinned.len() > 0 || state.members.lanes.iter().any(|lane| lane.stands_in) {
            // One of them alone may take it, or all but one.
            self.backend.ready.notify_all();
        } else if state.members.idle > 0 {
            self.backend.ready.notify_one();
        }
    }
}

#[cfg(test)]
mod tests;
