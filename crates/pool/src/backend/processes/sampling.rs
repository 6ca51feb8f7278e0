//! The memory of workers, looked at by the supervisor.
//!
//! What counts is private memory: what would be free if the worker were gone, not what it shares with the zygote. A
//! cheap figure, which is never less, is read first; the exact one only if the cheap one is beyond the limit. A worker
//! is due after two exact figures in a row beyond its limit: one may be a task's peak.
//!
//! Nothing is read with the pool's lock held. Time passes in between, so a figure is kept only if the worker is still
//! the same, and the process behind the id still lives.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ropewalk_os::memory::{anonymous_bytes_of, private_bytes_of};

use super::{ProcessPool, ProcessPoolState};
use crate::cause::Cause;

/// The shortest and the longest time between two looks at a worker.
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(1);
/// Looks that are due within so short a time are made together.
const TOGETHER: Duration = Duration::from_millis(5);
/// Looks until a worker that grows as fast as it does would reach its limit.
const LOOKS_AHEAD: u32 = 4;
/// Exact figures in a row beyond the limit that make a worker due.
const ENOUGH: u8 = 2;

/// A worker's memory, as far as it is known.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// The last figure, when it was read, and whether it is exact.
    last: Option<(u64, Instant, bool)>,
    interval: Duration,
    next: Option<Instant>,
    /// Exact figures beyond the limit, in a row.
    beyond: u8,
}

impl Memory {
    /// The last figure, if that is exact.
    pub(super) fn exact(&self) -> Option<u64> {
        self.last.filter(|(_, _, exact)| *exact).map(|(bytes, ..)| bytes)
    }

    /// Takes a figure in; true if the worker is beyond its limit for good.
    pub(super) fn learn(&mut self, bytes: u64, exact: bool, limit: u64, now: Instant) -> bool {
        let grown = self.last.map(|(before, at, _)| {
            (bytes.saturating_sub(before), now.saturating_duration_since(at).as_secs_f64())
        });
        let until_limit = match grown {
            Some((grown, seconds)) if grown > 0 && seconds > 0.0 => {
                let seconds = limit.saturating_sub(bytes) as f64 / (grown as f64 / seconds);
                Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
            }
            _ => Duration::MAX,
        };
        self.beyond = if exact && bytes > limit { self.beyond.saturating_add(1) } else { 0 };
        // The interval grows step by step: growth may begin again.
        let most = (self.interval * 2).clamp(SHORTEST, LONGEST);
        self.interval =
            if self.beyond > 0 { SHORTEST } else { (until_limit / LOOKS_AHEAD).clamp(SHORTEST, most) };
        self.last = Some((bytes, now, exact));
        self.next = now.checked_add(self.interval);
        self.beyond >= ENOUGH
    }
}

/// A worker to look at.
struct Look {
    id: u64,
    pid: i32,
    process: Arc<OwnedFd>,
    /// Beyond it the exact figure is read; 0 if that is wanted anyway.
    limit: u64,
}

impl ProcessPool {
    /// Looks at the memory of the workers whose time it is, and of those that are due; called without the lock.
    pub(crate) fn sample(&self, now: Instant) {
        let looks = self.looks(&mut self.lock(), now);
        for look in looks {
            let process = look.process.as_fd();
            let cheap = anonymous_bytes_of(look.pid, process);
            let figure = match cheap {
                Some(bytes) if bytes <= look.limit => Some((bytes, false)),
                Some(_) => private_bytes_of(look.pid, process).map(|bytes| (bytes, true)),
                None => None,
            };
            if let Some((bytes, exact)) = figure {
                self.learn_memory(&mut self.lock(), look.id, bytes, exact, now);
            }
        }
    }

    fn looks(&self, state: &mut ProcessPoolState, now: Instant) -> Vec<Look> {
        let limited = self.config.life.max_memory.is_some();
        let all = state.members.workers.iter_mut().flatten();
        all.filter_map(|worker| {
            let process = Arc::clone(worker.pidfd.as_ref()?);
            if worker.is_dying() || worker.tenure.ready.is_none() {
                return None;
            }
            let is_due = worker.tenure.due.is_some() && worker.tenure.memory.exact().is_none();
            let memory = &mut worker.tenure.memory;
            let is_time = limited && memory.next.is_none_or(|at| at <= now + TOGETHER);
            if !(is_due || is_time) {
                return None;
            }
            // If the figure cannot be read, this is when it is tried again.
            memory.next = now.checked_add(LONGEST);
            let limit = if is_due { 0 } else { worker.tenure.most_memory()? };
            Some(Look { id: worker.id, pid: worker.pid, process, limit })
        })
        .collect()
    }

    /// The memory of a worker was read.
    pub(super) fn learn_memory(
        &self,
        state: &mut ProcessPoolState,
        id: u64,
        bytes: u64,
        exact: bool,
        now: Instant,
    ) {
        let Some(index) = state.members.find(id) else { return };
        let Some(worker) = state.members.workers.get_mut(index).and_then(Option::as_mut) else { return };
        let limit = worker.tenure.most_memory().unwrap_or(u64::MAX);
        // A worker that is too large before its first task would be replaced by one that is as large.
        if worker.tenure.memory.learn(bytes, exact, limit, now) && worker.completed > 0 {
            worker.tenure.make_due(Cause::MaxMemory);
        }
    }

    /// When the memory of a worker is to be looked at next.
    pub(super) fn next_sample(&self, state: &ProcessPoolState, now: Instant) -> Option<Instant> {
        self.config.life.max_memory?;
        let all = state.members.workers.iter().flatten();
        let looked = all.filter(|worker| worker.tenure.ready.is_some() && !worker.is_dying());
        looked.map(|worker| worker.tenure.memory.next.unwrap_or(now)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Life};
    use crate::simulation::scene::Scene;

    const MIB: u64 = 1 << 20;

    #[test]
    fn looks_come_closer_as_the_limit_does_and_further_apart_when_nothing_grows() {
        let mut memory = Memory::default();
        let mut now = Instant::now();
        let mut intervals = Vec::new();
        for _ in 0..9 {
            assert!(!memory.learn(10 * MIB, false, 100 * MIB, now));
            intervals.push(memory.interval.as_millis());
            now = memory.next.expect("a time");
        }
        assert_eq!(intervals, [10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
        // In a second it has grown by 45 MiB: at this speed 45 more take a second.
        assert!(!memory.learn(55 * MIB, false, 100 * MIB, now));
        assert_eq!(memory.interval, Duration::from_millis(250));
        now += memory.interval;
        assert!(!memory.learn(99 * MIB, false, 100 * MIB, now));
        assert_eq!(memory.interval, SHORTEST);
    }

    #[test]
    fn a_worker_is_due_after_two_exact_figures_in_a_row() {
        let life = Life { max_memory: Some(100 * MIB), ..Life::default() };
        let (mut scene, mut workers) = Scene::ready(Config { life, ..Scene::config(2, 1) });
        // The first task goes to the warmest worker.
        let task = scene.task();
        let used = workers.iter_mut().position(|worker| worker.start(0) == Some(task.id)).expect("one");
        workers[used].answer(0, task.id);
        scene.tick();
        let (used, fresh) = (workers[used].id, workers[1 - used].id);
        let learn_of = |scene: &Scene, id, bytes, exact| {
            let now = scene.now;
            scene.engine.learn_memory(&mut scene.engine.lock(), id, bytes, exact, now);
            scene.tick();
        };
        for _ in 0..5 {
            learn_of(&scene, fresh, 300 * MIB, true);
        }
        assert!(scene.asked().is_empty(), "another would be as large");
        let learn = |scene: &Scene, bytes, exact| {
            learn_of(scene, used, bytes, exact);
        };
        for (bytes, exact) in [(101, true), (99, true), (101, true), (300, false), (101, true), (100, true)] {
            learn(&scene, bytes * MIB, exact);
            assert!(scene.asked().is_empty(), "{bytes} MiB, exact: {exact}");
        }
        for _ in 0..2 {
            learn(&scene, 101 * MIB, true);
        }
        assert_eq!(scene.asked().len(), 1, "a stand-in");
    }

    #[test]
    fn only_a_pool_with_a_limit_is_looked_at() {
        let (scene, _workers) = Scene::ready(Scene::config(1, 1));
        let (now, mut state) = (scene.now, scene.engine.lock());
        assert!(scene.engine.looks(&mut state, now).is_empty());
        assert_eq!(scene.engine.next_sample(&state, now), None);
        drop(state);
        let life = Life { max_memory: Some(MIB), ..Life::default() };
        let (scene, _workers) = Scene::ready(Config { life, ..Scene::config(2, 1) });
        let (now, mut state) = (scene.now, scene.engine.lock());
        assert_eq!(scene.engine.next_sample(&state, now), Some(now));
        assert_eq!(scene.engine.looks(&mut state, now).len(), 2);
        assert!(scene.engine.looks(&mut state, now).is_empty(), "not twice");
        assert_eq!(scene.engine.next_sample(&state, now), Some(now + LONGEST));
    }
}
