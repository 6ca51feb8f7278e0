//! For tests: no workers at all. A task runs when a thread polls, in that thread.
//!
//! It is the smallest backend, and the third: it shows all that a backend needs from the rest of the crate.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ropewalk_base::Result;

use crate::outcome::{Outcome, Record};
use crate::pool::{Backend, Capabilities, Interrupted, Pool, PoolState};
use crate::statistics::WorkerStatistics;
use crate::task::{Call, Task};

/// See the module.
#[derive(Debug)]
pub(crate) struct Inline;

impl Backend for Inline {
    type Settings = ();
    /// Whether nothing runs for now.
    type Members = bool;

    const CAPABILITIES: Capabilities = Capabilities {
        kind: "inline",
        encodes: false,
        shares_memory: false,
        starts_workers: true,
        ends_running: false,
        isolates: false,
        keeps_states: false,
    };
    const POLLED: bool = true;

    fn new((): ()) -> Self {
        Self
    }

    fn prepare(_pool: &Pool<Self>, _page: OwnedFd) -> Result<()> {
        Ok(())
    }

    fn start(_pool: &Pool<Self>) -> Result<()> {
        Ok(())
    }

    fn submitted(pool: &Pool<Self>, state: &mut PoolState<Self>, _task: &Arc<Task>) {
        pool.set_watch(state);
    }

    fn requeued(_pool: &Pool<Self>, _state: &mut PoolState<Self>) {}

    fn collect(pool: &Pool<Self>, state: &mut PoolState<Self>) -> bool {
        let mut came = false;
        while !state.members
            && let Some(task) = state.queue.pop()
        {
            came = true;
            task.count_attempt();
            let Call::Local(call) = &task.call else { continue };
            let Some(value) = call.lock().take() else { continue };
            // Its value is its own; an `Err` is raised.
            let raised = value.downcast_ref::<&str>().is_some_and(|text| *text == "raise");
            if raised {
                *call.lock() = Some(crate::Opaque::new("raise"));
                pool.retry_or_finish(state, &task, Outcome::Local { value, raised }, Record::default());
            } else {
                pool.finish(state, &task, Outcome::Local { value, raised }, Record::default());
            }
        }
        if came {
            pool.check_end(state);
        }
        came
    }

    fn has_answers(stalled: &bool) -> bool {
        !stalled
    }

    fn patience(_state: &PoolState<Self>) -> Option<Duration> {
        Some(Duration::from_millis(1))
    }

    fn busy(_: &bool) -> usize {
        0
    }

    fn waiting(_: &bool) -> usize {
        0
    }

    fn has_work(_: &bool) -> bool {
        false
    }

    fn is_drained(_: &bool) -> bool {
        true
    }

    fn is_gone(_: &bool) -> bool {
        true
    }

    fn statistics(_state: &PoolState<Self>) -> (usize, usize, Vec<WorkerStatistics>) {
        (0, 0, Vec::new())
    }

    fn is_running(_state: &mut PoolState<Self>, _task: &Arc<Task>) -> bool {
        false
    }

    fn interrupt(
        _pool: &Pool<Self>,
        _state: &mut PoolState<Self>,
        _task: &Arc<Task>,
        _force: bool,
        _cancelled: bool,
    ) -> Interrupted {
        Interrupted::Left
    }

    fn run_ends(_: &mut bool, _task: &Arc<Task>, _timeout: Duration, _now: Instant) -> Option<Instant> {
        None
    }

    fn abandon(_: &mut bool) -> Vec<(Arc<Task>, i32)> {
        Vec::new()
    }

    fn dismiss(_pool: &Pool<Self>, _state: &mut PoolState<Self>) -> bool {
        true
    }
}
