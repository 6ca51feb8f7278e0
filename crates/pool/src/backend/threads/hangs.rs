//! Runs in threads that hang: only the layer above can learn where such a thread is, so one of its threads waits here.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Crew, Threads};
use crate::clock;
use crate::events::{self, What};
use crate::outcome::{Failure, Outcome, Record};
use crate::pool::{Hung, Lifecycle, Pool, PoolState};
use crate::task::Task;

impl Crew {
    /// When a run is hung, or when to look again; `None` if no thread runs the task.
    pub(super) fn hangs_at(&mut self, task: &Arc<Task>, limit: Duration, now: Instant) -> Option<Instant> {
        let run = self.running.iter_mut().find(|run| Arc::ptr_eq(&run.task, task))?;
        if task.gets_on(&mut run.pace.0) {
            run.pace.1 = now;
        }
        let beat = task.known_signals().and_then(|signals| signals.last_beat()).and_then(|word| {
            let ago = Duration::from_nanos(clock::nanos().saturating_sub(word));
            clock::now().checked_sub(ago)
        });
        [Some(run.since), Some(run.pace.1), beat].into_iter().flatten().max()?.checked_add(limit)
    }
}

impl Pool<Threads> {
    /// Gives a hung run to the thread that learns where it is.
    pub(super) fn report_hung(&self, state: &mut PoolState<Threads>, task: &Arc<Task>) {
        let Some(run) = state.members.running.iter().find(|run| Arc::ptr_eq(&run.task, task)) else { return };
        let hung = Hung { task: Arc::clone(task), thread: run.thread };
        state.members.hung.push(hung);
        self.backend.hung.notify_all();
    }

    /// See [`Engine::take_hung`](crate::Engine::take_hung).
    pub(super) fn wait_for_hung(&self, timeout: Duration) -> Vec<Hung> {
        let Some(mut state) = self.enter() else { return Vec::new() };
        if state.members.hung.is_empty() && matches!(state.lifecycle, Lifecycle::Open | Lifecycle::Closing) {
            state = state.wait(&self.state, &self.backend.hung, timeout).0;
        }
        std::mem::take(&mut state.members.hung)
    }

    /// See [`Engine::fail_hung`](crate::Engine::fail_hung).
    pub(super) fn end_hung(&self, hung: &Hung, stack: Option<Arc<str>>) {
        let Some(mut state) = self.enter() else { return };
        let task = &hung.task;
        let runs = state.members.running.iter().any(|run| Arc::ptr_eq(&run.task, task));
        if task.is_done() || !runs {
            return;
        }
        let pid = ropewalk_os::process::current_pid();
        state.counters.hung += 1;
        events::tell(&self.config.name, What::Hung { task: task.id, pid });
        let silent = if stack.is_none() { Some("its thread runs no Python code") } else { None };
        let failure = Failure::Hung { pid, stack, silent };
        self.finish(&mut state, task, Outcome::Failed(failure), Record { pid, ..Record::default() });
        self.check_end(&mut state);
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_sync::spin::AdaptiveSpin;

    use super::super::tests::pool;
    use crate::locked::Opaque;
    use crate::pool::{Backend, Finished, Taken};
    use crate::task::{Call, Options, Rare};

    use super::*;

    const LIMIT: Duration = Duration::from_millis(100);

    #[test]
    fn a_hung_run_is_given_to_who_waits_and_fails_with_its_stack() {
        let now = Instant::now();
        clock::set(now);
        let (pool, mut spin) = (pool(1), AdaptiveSpin::new());
        let call = || Call::Local(ropewalk_sync::Mutex::new(Some(Opaque::new(1_u64))));
        let options = Options { retries: 3, ..Rare { hang: Some(LIMIT), ..Rare::default() }.into() };
        let task = pool.submit(call(), 0, options, true).map_err(|refused| refused.1).expect("accepted");
        pool.look_after(now + LIMIT * 9);
        assert!(pool.take_hung(Duration::ZERO).is_empty(), "it waits");
        let Taken::Task(taken, value) = pool.take_local(&mut spin, Duration::ZERO) else {
            panic!("it is there")
        };
        pool.look_after(now + LIMIT - Duration::from_millis(1));
        assert!(pool.take_hung(Duration::ZERO).is_empty());
        // A sign of life, which the clock of this test makes one of this moment.
        clock::set(now + LIMIT / 2);
        task.signals().beat();
        pool.look_after(now + LIMIT / 2);
        assert!(
            Threads::hangs_at(&mut pool.lock().members, &task, LIMIT, now).expect("it runs") > now + LIMIT
        );
        pool.look_after(now + LIMIT * 2);
        let hung = pool.take_hung(Duration::ZERO);
        assert_eq!((hung.len(), hung[0].thread), (1, ropewalk_os::process::thread_ident()));
        assert!(!task.is_done() && pool.take_hung(Duration::ZERO).is_empty(), "once");
        pool.fail_hung(&hung[0], Some("here".into()));
        assert!(matches!(
            task.outcome(),
            Some(Outcome::Failed(Failure::Hung { stack: Some(stack), .. })) if &**stack == "here"
        ));
        let counters = pool.statistics().expect("this process").counters;
        assert_eq!((counters.hung, counters.failed, counters.retried), (1, 1, 0), "the call goes on");
        pool.finish_local(Finished {
            task: taken,
            value,
            raised: false,
            times: crate::times::Times::default(),
            function: None,
            stopped: false,
            again: None,
        });
        pool.fail_hung(&hung[0], None);
        assert_eq!(pool.statistics().expect("this process").counters.hung, 1, "it is too late");
        pool.close(false);
        clock::unset();
    }
}
