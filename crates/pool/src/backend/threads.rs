//! Tasks that threads of this process take and run, and the threads that wait for them.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ropewalk_sync::spin::AdaptiveSpin;

use crate::clock;
use crate::engine::{Core, Engine, Running, State, Waited};
use crate::locked::{Guard, Opaque};
use crate::outcome::{Outcome, Record};
use crate::task::{Call, Stage, Task};

thread_local! {
    /// How long it has paid in this thread to look for a local task's end.
    static WAITER: RefCell<AdaptiveSpin> = const { RefCell::new(AdaptiveSpin::new()) };
}

/// What a local thread gets when it asks for a task.
#[derive(Debug)]
pub enum Taken {
    /// A task, and what to call for it.
    Task(Arc<Task>, Opaque),
    /// Nothing yet: ask again.
    Nothing,
    /// The pool has no more tasks.
    Closed,
}

/// A local task that has been run.
#[derive(Debug)]
pub struct Finished {
    /// The task that [`Engine::take_local`] gave.
    pub task: Arc<Task>,
    /// What it returned or raised.
    pub value: Opaque,
    /// Whether it raised.
    pub raised: bool,
    /// How long the call took, in nanoseconds.
    pub busy_ns: u64,
    /// The call, for a retry.
    pub again: Option<Opaque>,
}

impl Engine {
    /// Takes the next task for a thread of this process, blocking up to `timeout`.
    pub fn take_local(&self, spin: &mut AdaptiveSpin, timeout: Duration) -> Taken {
        match self.enter() {
            Some(core) => self.take(core, spin, timeout),
            None => Taken::Closed,
        }
    }

    /// Ends a local task, and takes the next one with the same hold of the lock.
    ///
    /// # Errors
    ///
    /// The task, and nothing is taken, if nobody else refers to it: the layer above knows where its result may be
    /// dropped.
    pub fn finish_and_take_local(
        &self,
        finished: Finished,
        spin: &mut AdaptiveSpin,
        timeout: Duration,
    ) -> Result<Taken, Box<Task>> {
        let Some(mut core) = self.enter() else { return Ok(Taken::Closed) };
        let task = Arc::clone(&finished.task);
        self.end_run(&mut core, finished);
        match Arc::into_inner(task) {
            Some(last) => Err(Box::new(last)),
            None => Ok(self.take(core, spin, timeout)),
        }
    }

    /// Ends a local task, and takes none.
    pub fn finish_local(&self, finished: Finished) {
        if let Some(mut core) = self.enter() {
            self.end_run(&mut core, finished);
        }
    }

    fn end_run(&self, core: &mut Core, finished: Finished) {
        let Finished { task, value, raised, busy_ns, again } = finished;
        core.local.retain(|running| !Arc::ptr_eq(&running.task, &task));
        let pid = ropewalk_os::process::current_pid();
        let record = Record { pid, busy_ns, ..Record::default() };
        let outcome = Outcome::Local { value, raised };
        match (raised, again, &task.call) {
            (true, Some(work), Call::Local(slot)) => {
                *slot.lock() = Some(work);
                self.retry_or_finish(core, &task, outcome, record);
            }
            _ => self.finish(core, &task, outcome, record),
        }
        self.check_end(core);
    }

    fn take<'a>(&'a self, mut core: Guard<'a, Core>, spin: &mut AdaptiveSpin, timeout: Duration) -> Taken {
        let mut patient = true;
        loop {
            while let Some(task) = core.queue.pop() {
                let Call::Local(call) = &task.call else { continue };
                let Some(work) = call.lock().take() else { continue };
                task.count_attempt();
                task.set_stage(Stage::Running);
                core.local.push(Running { task: Arc::clone(&task), since: clock::now() });
                self.may_begin(&mut core, &task);
                if core.change_waiters > 0 {
                    Self::bump(&self.change_word);
                }
                self.tell_room(&mut core);
                return Taken::Task(task, work);
            }
            if !matches!(core.state, State::Open) {
                return Taken::Closed;
            }
            self.publish_local_load(&core);
            if patient && !core.local_spins {
                patient = false;
                core = self.spin_for_task(core, spin);
                continue;
            }
            core.local_idle += 1;
            let (again, late) = core.wait(&self.core, &self.local_ready, timeout);
            core = again;
            core.local_idle -= 1;
            if late && core.queue.is_empty() {
                return Taken::Nothing;
            }
        }
    }

    /// Looks for a task without the lock. One thread of a pool does so at a time, for the next task needs one.
    fn spin_for_task<'a>(&'a self, mut core: Guard<'a, Core>, spin: &mut AdaptiveSpin) -> Guard<'a, Core> {
        core.local_spins = true;
        let before = self.local_told.load(Ordering::Relaxed);
        drop(core);
        // Whoever submits needs a core as well.
        spin.spin(|| self.control.may_spin_beside(1), || self.local_told.load(Ordering::Acquire) != before);
        let mut core = self.lock();
        if self.local_told.load(Ordering::Relaxed) == before {
            core.local_spins = false;
        }
        core
    }

    /// Sees to it that somebody takes the task that has just been queued.
    pub(crate) fn local_changed(&self, core: &mut Core) {
        self.publish_local_load(core);
        if core.local_spins {
            // It looks into the queue once more before it sleeps, so it cannot miss this task.
            core.local_spins = false;
            self.local_told.fetch_add(1, Ordering::Release);
        } else if core.local_idle > 0 {
            self.local_ready.notify_one();
        }
    }

    /// Says how many of the pool's threads have something to do, for those who consider to spin.
    fn publish_local_load(&self, core: &Core) {
        let busy = (core.local.len() + core.queue.len()).min(self.config.workers);
        self.control.set_load(u32::try_from(busy).unwrap_or(u32::MAX));
    }

    /// Blocks until a local task has ended. Nobody drives a pool of threads, so nobody has to know who waits.
    pub(crate) fn wait_local(&self, task: &Arc<Task>, deadline: Option<Instant>) -> Waited {
        if task.is_done() {
            return Waited::Ready;
        }
        // Its threads are not in a forked child.
        if self.is_forked() || deadline.is_some_and(|at| at <= clock::now()) {
            return Waited::TimedOut;
        }
        let look = || task.is_done();
        if WAITER.with_borrow_mut(|spin| spin.spin(|| self.control.may_spin_beside(0), look)) {
            return Waited::Ready;
        }
        loop {
            let observed = task.prepare_sleep();
            let timeout = deadline.map(|at| at.saturating_duration_since(clock::now()));
            let interrupted = timeout != Some(Duration::ZERO) && task.sleep(observed, timeout);
            if task.is_done() {
                return Waited::Ready;
            }
            if interrupted {
                return Waited::Interrupted;
            }
            if deadline.is_some_and(|at| at <= clock::now()) {
                return Waited::TimedOut;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::config::{Config, OnCrash, OnFull};
    use crate::engine::Sleeper;
    use crate::task::Options;

    const SOON: Duration = Duration::from_secs(60);

    fn pool(workers: usize) -> Arc<Engine> {
        let config = Config {
            name: "local".into(),
            workers,
            threads: 1,
            max_queue: None,
            on_full: OnFull::Reject,
            on_crash: OnCrash::Replace,
            grace: Duration::ZERO,
            lazy: false,
            spawn: None,
        };
        Engine::start(config).expect("started")
    }

    fn submit(engine: &Engine, number: u64) -> Arc<Task> {
        let call = Call::Local(ropewalk_sync::Mutex::new(Some(Opaque::new(number))));
        engine.submit(call, 0, Options::default(), true).map_err(|refused| refused.1).expect("accepted")
    }

    /// Answers each number with its successor, until the pool is closed; the tasks of which it was the last owner.
    fn serve(engine: &Engine) -> usize {
        let mut spin = AdaptiveSpin::new();
        let (mut finished, mut last) = (None, 0);
        loop {
            let taken = match finished.take() {
                Some(finished) => engine.finish_and_take_local(finished, &mut spin, SOON),
                None => Ok(engine.take_local(&mut spin, SOON)),
            };
            match taken {
                Ok(Taken::Task(task, call)) => {
                    let value = Opaque::new(call.downcast_ref::<u64>().expect("a number") + 1);
                    finished = Some(Finished { task, value, raised: false, busy_ns: 0, again: None });
                }
                Ok(Taken::Nothing) => {}
                Ok(Taken::Closed) => return last,
                Err(_) => last += 1,
            }
        }
    }

    fn answer(engine: &Engine, task: &Arc<Task>) -> u64 {
        let deadline = Instant::now() + SOON;
        while engine.wait(&Sleeper::Task(Arc::clone(task)), Some(deadline)) == Waited::Interrupted {}
        match task.outcome() {
            Some(Outcome::Local { value, .. }) => *value.downcast_ref().expect("a number"),
            other => panic!("no answer: {other:?}"),
        }
    }

    #[test]
    fn no_wake_up_is_lost_whoever_spins() {
        let engine = pool(3);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| serve(&engine));
            }
            let submitters: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        for number in 0..2_000 {
                            let task = submit(&engine, number);
                            assert_eq!(answer(&engine, &task), number + 1);
                            if number % 500 == 0 {
                                // Long enough for everybody to give up spinning.
                                thread::sleep(Duration::from_millis(1));
                            }
                        }
                        let tasks: Vec<_> = (0..200).map(|number| submit(&engine, number)).collect();
                        for (number, task) in (1..).zip(&tasks) {
                            assert_eq!(answer(&engine, task), number);
                        }
                    })
                })
                .collect();
            let failed = submitters.into_iter().filter_map(|submitter| submitter.join().err()).count();
            engine.close(false);
            assert_eq!(failed, 0);
        });
    }

    #[test]
    fn the_last_owner_of_a_task_gets_it_back() {
        let engine = pool(1);
        for number in 0..3 {
            drop(submit(&engine, number));
        }
        engine.close(false);
        assert_eq!(serve(&engine), 3);
    }

    #[test]
    fn a_wait_has_its_deadline() {
        let engine = pool(1);
        let task = submit(&engine, 1);
        let soon = Instant::now() + Duration::from_millis(2);
        let mut waited = engine.wait(&Sleeper::Task(Arc::clone(&task)), Some(soon));
        while waited == Waited::Interrupted {
            waited = engine.wait(&Sleeper::Task(Arc::clone(&task)), Some(soon));
        }
        assert_eq!(waited, Waited::TimedOut);
        engine.close(true);
    }

    #[test]
    fn nobody_spins_while_every_core_has_a_task() {
        let cores = ropewalk_os::cpu::usable_cores();
        let (engine, mut spin) = (pool(cores), AdaptiveSpin::new());
        assert!(engine.control.may_spin());
        let tasks: Vec<_> = (1..).map(|number| submit(&engine, number)).take(cores).collect();
        assert!(!engine.control.may_spin());
        for _ in &tasks {
            let Taken::Task(task, value) = engine.take_local(&mut spin, Duration::ZERO) else {
                panic!("each is there");
            };
            engine.finish_local(Finished { task, value, raised: false, busy_ns: 0, again: None });
        }
        assert!(matches!(engine.take_local(&mut spin, Duration::ZERO), Taken::Nothing));
        assert!(engine.control.may_spin());
        engine.close(false);
    }
}
