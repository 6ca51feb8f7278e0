//! Threads of this process: the layer above starts them, and they take tasks from the queue themselves.
//!
//! A call and its result are values that only the layer above understands; nothing is encoded. Such a pool needs no
//! supervision: the thread that ends a task takes the next one with the same hold of the lock.

mod hangs;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ropewalk_base::Result;
use ropewalk_os::process::thread_ident;
use ropewalk_sync::Condvar;
use ropewalk_sync::spin::AdaptiveSpin;

use crate::clock::{self, Anchor};
use crate::locked::Guard;
use crate::outcome::{Outcome, Record};
use crate::pool::{Backend, Capabilities, Finished, Hung, Interrupted, Pool, PoolState, Taken};
use crate::session::Session;
use crate::statistics::WorkerStatistics;
use crate::task::{Call, Stage, Task};

/// Workers that are threads of this process.
#[derive(Debug)]
pub(crate) struct Threads {
    /// Where a thread without a task sleeps.
    ready: Condvar,
    /// Where a thread waits for runs that hang.
    hung: Condvar,
    announced: Announcements,
    /// This process's: a forked child has none of the threads.
    pid: i32,
}

/// Changes when a task is announced to the spinning thread; written under the lock. It has its cache lines for
/// itself: the
/// thread that spins reads it all the time, and would take the line of the pool's lock away from those that submit.
#[derive(Debug, Default)]
#[repr(align(128))] // Two cache lines: the processor fetches them in pairs.
struct Announcements(AtomicU32);

/// The threads of a pool.
#[derive(Debug, Default)]
pub(crate) struct Crew {
    /// Tasks that are being run.
    running: Vec<Run>,
    /// Threads that sleep until there is a task.
    idle: usize,
    /// A thread without a task spins, and no task has been announced to it.
    spins: bool,
    /// By how many threads the program has changed the number with which the pool began.
    added: isize,
    /// Threads that are to leave when they come for a task.
    surplus: usize,
    /// Runs that hang, and that no thread has looked at.
    hung: Vec<Hung>,
}

/// A task that is being run.
#[derive(Debug)]
struct Run {
    task: Arc<Task>,
    since: Instant,
    /// The thread, by the system's library's name for it.
    thread: u64,
    /// What a stream's pace of life was when the supervisor looked last, and when it was last seen to get on.
    pace: (u64, Instant),
}

/// The capabilities of the kind.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    kind: "thread",
    encodes: false,
    shares_memory: false,
    starts_workers: false,
    ends_running: false,
    isolates: false,
    keeps_states: true,
};

impl Backend for Threads {
    type Settings = ();
    type Members = Crew;

    const CAPABILITIES: Capabilities = CAPABILITIES;
    const POLLED: bool = false;

    fn new((): ()) -> Self {
        let pid = ropewalk_os::process::current_pid();
        Self { ready: Condvar::new(), hung: Condvar::new(), announced: Announcements::default(), pid }
    }

    fn prepare(_pool: &Pool<Self>, _page: OwnedFd) -> Result<()> {
        Ok(())
    }

    fn start(_pool: &Pool<Self>) -> Result<()> {
        Ok(())
    }

    #[inline]
    fn submitted(pool: &Pool<Self>, state: &mut PoolState<Self>, _task: &Arc<Task>) {
        pool.tell_a_thread(state);
    }

    fn requeued(pool: &Pool<Self>, state: &mut PoolState<Self>) {
        pool.tell_a_thread(state);
    }

    fn bind(_pool: &Pool<Self>, _state: &mut PoolState<Self>, session: &Arc<Session>, task: &Arc<Task>) {
        // Threads share its state, so a session has no thread of its own: its tasks take turns.
        if session.is_pinned() {
            session.take_turn(task.id, place_of(session));
        }
    }

    fn left(pool: &Pool<Self>, state: &mut PoolState<Self>, session: &Arc<Session>, task: &Arc<Task>) {
        if matches!(task.stage(), Stage::Running) {
            task.set_generation(session.generation());
        }
        if session.end_turn(task.id)
            && let Some(next) = state.queue.pinned.pop(place_of(session))
        {
            session.take_turn(next.id, place_of(session));
            state.queue.push_front(next);
            pool.tell_a_thread(state);
        }
    }

    fn busy(members: &Crew) -> usize {
        members.running.len()
    }

    fn waiting(_members: &Crew) -> usize {
        0
    }

    fn has_work(_members: &Crew) -> bool {
        false
    }

    fn is_drained(members: &Crew) -> bool {
        members.runs_nothing()
    }

    fn is_gone(members: &Crew) -> bool {
        members.runs_nothing()
    }

    fn statistics(state: &PoolState<Self>) -> (usize, usize, Vec<WorkerStatistics>) {
        (state.members.running.len(), 0, Vec::new())
    }

    fn is_running(_state: &mut PoolState<Self>, task: &Arc<Task>) -> bool {
        task.stage() == Stage::Running
    }

    fn interrupt(
        _pool: &Pool<Self>,
        _state: &mut PoolState<Self>,
        _task: &Arc<Task>,
        _force: bool,
        _cancelled: bool,
    ) -> Interrupted {
        Interrupted::Unstoppable
    }

    fn describe_run(members: &Crew, task: &Arc<Task>, record: &mut Record, _monotonic: &Anchor) {
        let run = members.running.iter().find(|run| Arc::ptr_eq(&run.task, task));
        record.begun_ns = run.map(|run| clock::in_nanos(run.since.saturating_duration_since(task.submitted)));
    }

    fn run_ends(members: &mut Crew, task: &Arc<Task>, timeout: Duration, _now: Instant) -> Option<Instant> {
        let run = members.running.iter().find(|run| Arc::ptr_eq(&run.task, task))?;
        run.since.checked_add(timeout)
    }

    fn hangs_at(members: &mut Crew, task: &Arc<Task>, limit: Duration, now: Instant) -> Option<Instant> {
        members.hangs_at(task, limit, now)
    }

    fn hung(pool: &Pool<Self>, state: &mut PoolState<Self>, task: &Arc<Task>, _now: Instant) {
        pool.report_hung(state, task);
    }

    fn take_hung(pool: &Pool<Self>, timeout: Duration) -> Vec<Hung> {
        pool.wait_for_hung(timeout)
    }

    fn fail_hung(pool: &Pool<Self>, hung: &Hung, stack: Option<Arc<str>>) {
        pool.end_hung(hung, stack);
    }

    fn abandon(members: &mut Crew) -> Vec<(Arc<Task>, i32)> {
        members.running.iter().map(|run| (Arc::clone(&run.task), 0)).collect()
    }

    fn resized(pool: &Pool<Self>, state: &mut PoolState<Self>) -> usize {
        let staying = pool.config.workers.saturating_add_signed(state.members.added);
        let (size, members) = (state.size, &mut state.members);
        members.added = size as isize - pool.config.workers as isize;
        // Those that were to leave and have not yet may stay.
        let kept = members.surplus.min(size.saturating_sub(staying));
        members.surplus = members.surplus - kept + staying.saturating_sub(size);
        if members.surplus > 0 {
            Self::wake_all(pool);
        }
        size.saturating_sub(staying) - kept
    }

    fn wake_all(pool: &Pool<Self>) {
        pool.backend.ready.notify_all();
        pool.backend.hung.notify_all();
    }

    fn take_local(pool: &Pool<Self>, spin: &mut AdaptiveSpin, timeout: Duration) -> Taken {
        match pool.enter() {
            Some(state) => pool.next_task(state, spin, timeout),
            None => Taken::Closed,
        }
    }

    fn finish_and_take_local(
        pool: &Pool<Self>,
        finished: Finished,
        spin: &mut AdaptiveSpin,
        timeout: Duration,
    ) -> Result<Taken, Box<Task>> {
        let Some(mut state) = pool.enter() else { return Ok(Taken::Closed) };
        let task = Arc::clone(&finished.task);
        pool.end_run(&mut state, finished);
        match Arc::into_inner(task) {
            Some(last) => Err(Box::new(last)),
            None => Ok(pool.next_task(state, spin, timeout)),
        }
    }

    fn finish_local(pool: &Pool<Self>, finished: Finished) {
        if let Some(mut state) = pool.enter() {
            pool.end_run(&mut state, finished);
        }
    }

    fn dismiss(_pool: &Pool<Self>, state: &mut PoolState<Self>) -> bool {
        // They see that the pool is closed, and leave; what they run goes on.
        state.members.runs_nothing()
    }

    fn given_up(members: &Crew) -> Vec<u64> {
        members.running.iter().filter(|run| run.task.is_done()).map(|run| run.thread).collect()
    }
}

impl Crew {
    /// Whether no thread runs a task. A task that was given up has an outcome though its call goes on, and nobody waits
    /// for that.
    fn runs_nothing(&self) -> bool {
        self.running.iter().all(|run| run.task.is_done())
    }
}

/// The place where tasks of a session wait for their turn.
fn place_of(session: &Session) -> usize {
    usize::try_from(session.id).unwrap_or(0)
}

impl Pool<Threads> {
    fn end_run(&self, state: &mut PoolState<Threads>, finished: Finished) {
        let Finished { task, value, raised, times, function, stopped, again } = finished;
        let run = state.members.running.iter().position(|run| Arc::ptr_eq(&run.task, &task));
        let since = run.map(|at| state.members.running.swap_remove(at).since);
        let record = Record {
            pid: self.backend.pid,
            busy_ns: times.busy_ns,
            cpu_ns: times.cpu_ns,
            begun_ns: since.map(|at| clock::in_nanos(at.saturating_duration_since(task.submitted))),
            ..Record::default()
        };
        let stopped = stopped && task.is_asked_to_stop();
        let outcome = if stopped { Outcome::Cancelled } else { Outcome::Local { value, raised } };
        match (raised, again, &task.call) {
            (true, Some(work), Call::Local(slot)) => {
                *slot.lock() = Some(work);
                function.into_iter().for_each(|name| task.set_name(name));
                self.retry_or_finish(state, &task, outcome, record);
            }
            _ => self.finish_named(state, &task, outcome, record, function),
        }
        self.check_end(state);
    }

    fn next_task<'a>(
        &'a self,
        mut state: Guard<'a, PoolState<Threads>>,
        spin: &mut AdaptiveSpin,
        timeout: Duration,
    ) -> Taken {
        let mut patient = true;
        loop {
            if state.members.surplus > 0 {
                // Whoever sleeps was woken when there became too many, and so no task is left to a thread that leaves.
                state.members.surplus -= 1;
                return Taken::Closed;
            }
            while let Some(task) = state.queue.pop() {
                if self.end_if_late(&mut state, &task) {
                    continue;
                }
                let Call::Local(call) = &task.call else { continue };
                let Some(work) = call.lock().take() else { continue };
                task.count_attempt();
                task.set_stage(Stage::Running);
                let since = clock::now();
                let (thread, pace) = (thread_ident(), (0, since));
                state.members.running.push(Run { task: Arc::clone(&task), since, thread, pace });
                self.may_begin(&mut state, &task);
                if state.change_waiters > 0 {
                    Self::bump(&self.change_word);
                }
                self.tell_room(&mut state);
                return Taken::Task(task, work);
            }
            if !state.may_get_tasks() {
                return Taken::Closed;
            }
            self.publish_load(&state);
            if patient && !state.members.spins {
                patient = false;
                state = self.spin_for_task(state, spin);
                continue;
            }
            state.members.idle += 1;
            let (again, late) = state.wait(&self.state, &self.backend.ready, timeout);
            state = again;
            state.members.idle -= 1;
            if late && !state.queue.has_common() {
                return Taken::Nothing;
            }
        }
    }

    /// Looks for a task without the lock. One thread of a pool does so at a time, for the next task needs one.
    fn spin_for_task<'a>(
        &'a self,
        mut state: Guard<'a, PoolState<Threads>>,
        spin: &mut AdaptiveSpin,
    ) -> Guard<'a, PoolState<Threads>> {
        state.members.spins = true;
        let before = self.backend.announced.0.load(Ordering::Relaxed);
        drop(state);
        // The submitting thread needs a core as well.
        spin.spin(
            || self.control.may_spin_beside(1),
            || self.backend.announced.0.load(Ordering::Acquire) != before,
        );
        let mut state = self.lock();
        if self.backend.announced.0.load(Ordering::Relaxed) == before {
            state.members.spins = false;
        }
        state
    }

    /// Makes sure that a thread takes the task that was just queued.
    fn tell_a_thread(&self, state: &mut PoolState<Threads>) {
        self.publish_load(state);
        if state.members.spins {
            // It checks the queue once more before it sleeps, so it cannot miss this task.
            state.members.spins = false;
            self.backend.announced.0.fetch_add(1, Ordering::Release);
        } else if state.members.idle > 0 {
            self.backend.ready.notify_one();
        }
    }

    /// Returns how many of the pool's threads are busy, for threads that consider spinning.
    fn publish_load(&self, state: &PoolState<Threads>) {
        let busy = (state.members.running.len() + state.queue.len()).min(self.config.workers);
        self.control.set_load(u32::try_from(busy).unwrap_or(u32::MAX));
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::config::{Config, OnCrash, Overflow};
    use crate::locked::Opaque;
    use crate::pool::{WaitFor, Waited};
    use crate::task::Options;
    use crate::times::Times;

    const SOON: Duration = Duration::from_secs(60);

    pub(super) fn pool(workers: usize) -> Arc<Pool<Threads>> {
        let config = Config {
            name: "local".into(),
            workers,
            threads: 1,
            capacity: None,
            overflow: Overflow::Error,
            on_crash: OnCrash::Replace,
            grace: Duration::ZERO,
            ..Config::default()
        };
        Pool::start(config, ()).expect("started")
    }

    fn submit(pool: &Pool<Threads>, number: u64) -> Arc<Task> {
        let call = Call::Local(ropewalk_sync::Mutex::new(Some(Opaque::new(number))));
        pool.submit(call, 0, Options::default(), true).map_err(|refused| refused.1).expect("accepted")
    }

    /// Answers each number with its successor, until the pool is closed; the tasks of which it was the last owner.
    fn serve(pool: &Pool<Threads>) -> usize {
        let mut spin = AdaptiveSpin::new();
        let (mut finished, mut last) = (None, 0);
        loop {
            let taken = match finished.take() {
                Some(finished) => pool.finish_and_take_local(finished, &mut spin, SOON),
                None => Ok(pool.take_local(&mut spin, SOON)),
            };
            match taken {
                Ok(Taken::Task(task, call)) => {
                    let value = Opaque::new(call.downcast_ref::<u64>().expect("a number") + 1);
                    finished = Some(Finished {
                        task,
                        value,
                        raised: false,
                        times: Times::default(),
                        function: None,
                        stopped: false,
                        again: None,
                    });
                }
                Ok(Taken::Nothing) => {}
                Ok(Taken::Closed) => return last,
                Err(_) => last += 1,
            }
        }
    }

    fn answer(pool: &Pool<Threads>, task: &Arc<Task>) -> u64 {
        let deadline = Instant::now() + SOON;
        while pool.wait(&WaitFor::Task(Arc::clone(task)), Some(deadline)) == Waited::Interrupted {}
        match task.outcome() {
            Some(Outcome::Local { value, .. }) => *value.downcast_ref().expect("a number"),
            other => panic!("no answer: {other:?}"),
        }
    }

    #[test]
    fn no_wake_up_is_lost_whoever_spins() {
        let pool = pool(3);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| serve(&pool));
            }
            let submitters: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        for number in 0..2_000 {
                            let task = submit(&pool, number);
                            assert_eq!(answer(&pool, &task), number + 1);
                            if number % 500 == 0 {
                                // Long enough for all threads to give up spinning.
                                thread::sleep(Duration::from_millis(1));
                            }
                        }
                        let tasks: Vec<_> = (0..200).map(|number| submit(&pool, number)).collect();
                        for (number, task) in (1..).zip(&tasks) {
                            assert_eq!(answer(&pool, task), number);
                        }
                    })
                })
                .collect();
            let failed = submitters.into_iter().filter_map(|submitter| submitter.join().err()).count();
            pool.close(false);
            assert_eq!(failed, 0);
        });
    }

    #[test]
    fn the_last_owner_of_a_task_gets_it_back() {
        let pool = pool(1);
        for number in 0..3 {
            drop(submit(&pool, number));
        }
        pool.close(false);
        assert_eq!(serve(&pool), 3);
    }

    #[test]
    fn a_wait_has_its_deadline() {
        let pool = pool(1);
        let task = submit(&pool, 1);
        let soon = Instant::now() + Duration::from_millis(2);
        let mut waited = pool.wait(&WaitFor::Task(Arc::clone(&task)), Some(soon));
        while waited == Waited::Interrupted {
            waited = pool.wait(&WaitFor::Task(Arc::clone(&task)), Some(soon));
        }
        assert_eq!(waited, Waited::TimedOut);
        pool.close(true);
    }

    #[test]
    fn nobody_spins_while_every_core_has_a_task() {
        let cores = ropewalk_os::cpu::usable_cores();
        let (pool, mut spin) = (pool(cores), AdaptiveSpin::new());
        let may_spin = || pool.control.may_spin();
        assert!(may_spin());
        let tasks: Vec<_> = (1..).map(|number| submit(&pool, number)).take(cores).collect();
        assert!(!may_spin());
        for _ in &tasks {
            let Taken::Task(task, value) = pool.take_local(&mut spin, Duration::ZERO) else {
                panic!("each is there");
            };
            pool.finish_local(Finished {
                task,
                value,
                raised: false,
                times: Times::default(),
                function: None,
                stopped: false,
                again: None,
            });
        }
        assert!(matches!(pool.take_local(&mut spin, Duration::ZERO), Taken::Nothing));
        assert!(may_spin());
        pool.close(false);
    }
}
