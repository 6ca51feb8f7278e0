//! Deaths of workers that nobody asked for: the task that is to blame, and how many of them a pool stands.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Backend, Pool, PoolState};
use crate::events::{self, What};
use crate::outcome::{Death, Failure, Outcome, Record};
use crate::quarantine::Quarantined;
use crate::task::Task;

/// The deaths that `max_restarts` counts, oldest first: no more than it allows.
#[derive(Debug, Default)]
pub(crate) struct Deaths(VecDeque<Instant>);

impl Deaths {
    /// Whether one more death is more than `most` within such a time.
    fn is_too_much(&mut self, most: u32, within: Duration, now: Instant) -> bool {
        self.0.retain(|at| now.duration_since(*at) <= within);
        self.0.push_back(now);
        self.0.len() > most as usize
    }
}

impl<B: Backend> Pool<B> {
    /// One more worker has died without being asked to; gives the reason for the pool's end, if this was one too many.
    pub(crate) fn too_many(&self, deaths: &mut Deaths, last: &Failure, now: Instant) -> Option<Failure> {
        let (most, within) = self.config.health.max_restarts?;
        if !deaths.is_too_much(most, within, now) {
            return None;
        }
        let unhealthy = Failure::Unhealthy { most, within, last: Arc::new(last.clone()) };
        let reason = format!(
            "more than {most} workers died within {} s; the last one {}",
            within.as_secs_f64(),
            last.of_worker()
        );
        events::tell(&self.config.name, What::Unhealthy { reason: reason.into() });
        Some(unhealthy)
    }

    /// A task has cost a worker its life: it is run again, or fails.
    pub(crate) fn blame(&self, state: &mut PoolState<B>, task: &Arc<Task>, failure: Failure, record: Record) {
        if task.is_done() {
            return;
        }
        let Some(most) = self.config.health.poison_after else {
            return self.retry_or_finish(state, task, Outcome::Failed(failure), record);
        };
        let deaths = task.add_death(failure.as_death());
        if deaths.len() < most as usize {
            return self.retry_or_finish(state, task, Outcome::Failed(failure), record);
        }
        let deaths: Arc<[Death]> = deaths.into();
        let quarantined = Quarantined::new(task, &deaths);
        let function = quarantined.call.as_ref().and_then(|call| call.function.clone());
        events::tell(&self.config.name, What::Poisoned { task: task.id, pid: record.pid, function });
        state.quarantine.add(quarantined);
        let stack = failure.into_stack();
        self.finish(state, task, Outcome::Failed(Failure::Poisoned { deaths, stack }), record);
    }
}
