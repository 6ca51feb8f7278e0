//! Waiting for something, and driving the pool meanwhile: the leader, its followers, and the wake-up of a resting pool.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ropewalk_shm::channel::attention;
use ropewalk_sync::futex::{Futex, Wait};
use ropewalk_sync::spin::AdaptiveSpin;

use super::{Backend, Lifecycle, Pool, PoolState, WaitFor, Waited};
use crate::clock;
use crate::locked::Guard;
use crate::stream::Stream;
use crate::task::Task;

/// The longest time that a thread spins which may not sleep. It saves the wake-ups of two threads, and the worker may
/// have to be woken before it answers.
const SPIN: Duration = Duration::from_micros(200);

thread_local! {
    /// How long it has paid in this thread to spin for the end of a task in a pool without a driver.
    static WAITER: RefCell<AdaptiveSpin> = const { RefCell::new(AdaptiveSpin::new()) };
    /// The same for `spin_for`.
    static ALONE: RefCell<AdaptiveSpin> = const { RefCell::new(AdaptiveSpin::up_to(SPIN)) };
}

impl<B: Backend> Pool<B> {
    pub(crate) fn is_ready(&self, what: &WaitFor) -> bool {
        match what {
            WaitFor::Task(task) => task.is_done(),
            WaitFor::Completed => !self.completed.lock().is_empty(),
            WaitFor::Space => false,
            WaitFor::Stream(task) => task.is_done() || task.stream().is_none_or(|stream| stream.has_unread()),
            WaitFor::Any(tasks) | WaitFor::AnyOrSpace(tasks) => tasks.iter().any(|task| task.is_done()),
        }
    }

    pub(crate) fn has_space(&self, state: &PoolState<B>) -> bool {
        !matches!(state.lifecycle, Lifecycle::Open)
            || self.config.capacity.is_none_or(|max| state.queued() < max)
    }

    /// See [`Engine::wait`](crate::Engine::wait).
    pub(crate) fn wait(&self, what: &WaitFor, deadline: Option<Instant>) -> Waited {
        if let (false, WaitFor::Task(task)) = (B::POLLED, what) {
            return self.wait_alone(task, deadline);
        }
        if let (false, WaitFor::Stream(task)) = (B::POLLED, what) {
            return self.read_alone(task, what, deadline);
        }
        loop {
            if self.is_ready(what) {
                return Waited::Ready;
            }
            let Some(mut state) = self.enter() else { return Waited::TimedOut };
            if what.wants_space() && self.has_space(&state) {
                return Waited::Ready;
            }
            if state.is_over() {
                // Every task has its outcome by now, and no thread is left that would wake this one.
                return Waited::Ready;
            }
            if B::POLLED && !state.leader {
                state.leader = true;
                self.control.arm(attention::AWAKE);
                let mut spin = std::mem::replace(&mut state.spin, AdaptiveSpin::new());
                return self.lead(state, what, deadline, &mut spin, true);
            }
            let waited = self.follow(state, what, deadline);
            if waited != Waited::Ready {
                return waited;
            }
        }
    }

    /// See [`Engine::spin_for`](crate::Engine::spin_for).
    pub(crate) fn spin_for(&self, task: &Arc<Task>) -> bool {
        if task.is_done() {
            return true;
        }
        if !B::POLLED {
            return false;
        }
        let Some(mut state) = self.enter() else { return false };
        if state.leader || state.is_over() {
            return false;
        }
        state.leader = true;
        self.control.arm(attention::AWAKE);
        let what = WaitFor::Task(Arc::clone(task));
        // Answers to others may come one after the other, and each is worth another spin.
        let end = clock::now() + SPIN;
        let _ = ALONE.with_borrow_mut(|spin| self.lead(state, &what, Some(end), spin, false));
        task.is_done()
    }

    /// Blocks until a task of a pool that is not polled has ended. No thread drives such a pool, so no thread needs the
    /// list of waiters.
    fn wait_alone(&self, task: &Arc<Task>, deadline: Option<Instant>) -> Waited {
        if task.is_done() {
            return Waited::Ready;
        }
        // Its workers are not in a forked child.
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

    pub(crate) fn follow(
        &self,
        mut state: Guard<'_, PoolState<B>>,
        what: &WaitFor,
        deadline: Option<Instant>,
    ) -> Waited {
        let timeout = deadline.map(|at| at.saturating_duration_since(clock::now()));
        if timeout == Some(Duration::ZERO) {
            return Waited::TimedOut;
        }
        let token = state.next_follower;
        state.next_follower += 1;
        state.followers.push((token, what.clone()));
        let any_change = what.wants_space() || matches!(what, WaitFor::Any(_));
        if any_change {
            state.change_waiters += 1;
        }
        let interrupted = match what {
            WaitFor::Task(task) => {
                let observed = task.prepare_sleep();
                drop(state);
                task.sleep(observed, timeout)
            }
            WaitFor::Completed => self.sleep_on(state, &self.completed_word, what, timeout),
            WaitFor::Stream(task) => {
                drop(state);
                let ready = || self.is_ready(what);
                task.stream().is_some_and(|stream| stream.sleep_unless(ready, timeout))
            }
            WaitFor::Space | WaitFor::Any(_) | WaitFor::AnyOrSpace(_) => {
                self.sleep_on(state, &self.change_word, what, timeout)
            }
        };
        let mut state = self.lock();
        state.followers.retain(|(id, _)| *id != token);
        if any_change {
            state.change_waiters -= 1;
        }
        if !state.leader {
            // The nudge of a leader that left may have come to this thread, which does not need it any more.
            self.promote(&mut state);
        }
        if interrupted { Waited::Interrupted } else { Waited::Ready }
    }

    pub(crate) fn sleep_on(
        &self,
        state: Guard<'_, PoolState<B>>,
        word: &Futex,
        what: &WaitFor,
        timeout: Option<Duration>,
    ) -> bool {
        let observed = word.load(Ordering::Acquire);
        drop(state);
        if self.is_ready(what) {
            return false;
        }
        word.wait_while(observed, timeout) == Wait::Interrupted
    }

    pub(crate) fn lead<'a>(
        &'a self,
        mut state: Guard<'a, PoolState<B>>,
        what: &WaitFor,
        mut deadline: Option<Instant>,
        spin: &mut AdaptiveSpin,
        may_sleep: bool,
    ) -> Waited {
        let mut interrupted = false;
        loop {
            B::poll(self, &mut state);
            let ready = self.is_there(&state, what);
            let late = deadline.is_some_and(|at| clock::now() >= at);
            if ready || late || interrupted {
                if may_sleep {
                    state.spin = std::mem::take(spin);
                }
                state.leader = false;
                B::rest(self, &mut state);
                self.promote(&mut state);
                return match (ready, interrupted) {
                    (true, _) => Waited::Ready,
                    (false, true) => Waited::Interrupted,
                    (false, false) => Waited::TimedOut,
                };
            }
            drop(state);
            let spun = spin.spin(|| self.control.may_spin(), || self.glance() || self.is_ready(what));
            state = self.lock();
            if spun {
                continue;
            }
            if !may_sleep {
                // One more look, and it leaves.
                deadline = Some(clock::now());
                continue;
            }
            self.control.arm(attention::SLEEPING);
            if B::poll(self, &mut state) || self.is_there(&state, what) {
                self.control.arm(attention::AWAKE);
                continue;
            }
            let look = B::patience(&state);
            drop(state);
            let left = deadline.map(|at| at.saturating_duration_since(clock::now()));
            let timeout = match (left, look) {
                (Some(left), Some(look)) => Some(left.min(look)),
                (left, look) => left.or(look),
            };
            interrupted = self.control.sleep(timeout);
            state = self.lock();
            self.control.arm(attention::AWAKE);
        }
    }

    pub(crate) fn is_there(&self, state: &PoolState<B>, what: &WaitFor) -> bool {
        self.is_ready(what) || (what.wants_space() && self.has_space(state)) || state.is_over()
    }

    /// Whether a check of the rings would find something; only a hint.
    pub(crate) fn glance(&self) -> bool {
        let Some(state) = self.state.try_lock() else { return false };
        B::has_answers(&state.members)
    }

    /// Makes another waiting thread look, because the leader leaves.
    pub(crate) fn promote(&self, state: &mut PoolState<B>) {
        match state.followers.first() {
            None => {}
            Some((_, WaitFor::Task(task))) => task.nudge(),
            Some((_, WaitFor::Completed)) => Self::bump(&self.completed_word),
            Some((_, WaitFor::Stream(task))) => task.stream().into_iter().for_each(Stream::wake),
            Some((_, WaitFor::Space | WaitFor::Any(_) | WaitFor::AnyOrSpace(_))) => {
                Self::bump(&self.change_word);
            }
        }
    }

    pub(crate) fn bump(word: &Futex) {
        word.fetch_add(1, Ordering::AcqRel);
        word.wake_all();
    }

    /// See [`Engine::catch_up`](crate::Engine::catch_up).
    pub(crate) fn catch_up(&self) {
        // The holder of the lock is polling, or is about to finish; and in a forked child it may be held for ever.
        if B::POLLED
            && !self.is_forked()
            && let Some(mut state) = self.state.try_lock()
        {
            self.look(&mut state);
        }
    }

    pub(crate) fn look(&self, state: &mut PoolState<B>) {
        if B::POLLED && !state.leader {
            B::poll(self, state);
            B::rest(self, state);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::backend::processes::Processes;
    use crate::backend::processes::dispatch::STEAL_AFTER;
    use crate::config::Config;
    use crate::control::WATCH;
    use crate::pool::ending::Why;
    use crate::simulation::scene::Scene;

    #[test]
    fn a_worker_that_is_ready_is_heard_of_at_once() {
        let mut scene = Scene::new(Scene::config(1, 1));
        let mut worker = scene.asked().pop_front().expect("it was asked for");
        scene.fork(&worker);
        let task = scene.task();
        assert!(scene.wakes(|| worker.ready()), "the pool starts up");
        scene.tick();
        assert_eq!(worker.start(0), Some(task.id));
    }

    #[test]
    fn an_answer_that_nothing_waits_behind_wakes_nobody() {
        let (scene, mut workers) = Scene::ready(Scene::config(2, 1));
        let tasks = [scene.task(), scene.task()];
        for worker in &mut workers {
            let task = worker.start(0).expect("each has one");
            assert!(!scene.wakes(|| worker.answer(0, task)));
        }
        scene.engine.catch_up();
        assert!(tasks.iter().all(|task| task.is_done()));
    }

    #[test]
    fn a_worker_that_runs_dry_calls_for_what_waits() {
        let (scene, mut workers) = Scene::ready(Scene::config(1, 1));
        let worker = &mut workers[0];
        // Two go to the lane before its first answer, and none stays in the queue.
        let tasks = [scene.task(), scene.task()];
        for (task, wakes) in tasks.iter().zip([false, true]) {
            assert_eq!(worker.start(0), Some(task.id));
            assert_eq!(scene.wakes(|| worker.answer(0, task.id)), wakes);
        }
        scene.tick();
        assert!(tasks.iter().all(|task| task.is_done()));
        // And one more that is only in the queue.
        let tasks: Vec<_> = (0..40).map(|_| scene.task()).collect();
        let mut woken = 0;
        while let Some(id) = worker.start(0) {
            if scene.wakes(|| worker.answer(0, id)) {
                woken += 1;
                scene.tick();
            }
        }
        assert!(tasks.iter().all(|task| task.is_done()) && (1..40).contains(&woken), "{woken}");
    }

    #[test]
    fn every_answer_of_a_pool_that_closes_is_heard_of_at_once() {
        let (scene, mut workers) = Scene::ready(Scene::config(2, 1));
        let tasks = [scene.task(), scene.task()];
        let first = workers[0].start(0).expect("each has one");
        workers[0].answer(0, first);
        // That has woken no thread: answers that are there already are read now.
        scene.engine.close(false);
        assert_eq!(tasks.iter().filter(|task| task.is_done()).count(), 1);
        let second = workers[1].start(0).expect("each has one");
        assert!(scene.wakes(|| workers[1].answer(0, second)));
        scene.tick();
        assert!(tasks.iter().all(|task| task.is_done()));
        assert!(workers.iter_mut().all(|worker| worker.is_dismissed(0)));
    }

    #[test]
    fn the_last_one_beside_a_cancelled_task_is_heard_of_at_once() {
        let (scene, mut workers) = Scene::ready(Scene::config(1, 2));
        let tasks = [scene.task(), scene.task()];
        let ids = [0, 1].map(|lane| workers[0].start(lane).expect("each has one"));
        let cancelled = tasks.iter().find(|task| task.id == ids[0]).expect("one of them");
        assert!(scene.engine.cancel(cancelled, true));
        assert!(scene.wakes(|| workers[0].answer(1, ids[1])), "the worker is to be ended now");
        scene.tick();
        assert!(scene.has_killed(&workers[0]));
    }

    #[test]
    fn what_a_dry_worker_has_answered_is_read_when_more_comes() {
        let (scene, mut workers) = Scene::ready(Scene::config(2, 1));
        let _tasks = [scene.task(), scene.task()];
        let first = workers[0].start(0).expect("each has one");
        workers[0].answer(0, first);
        // The pool regards both as busy, and no thread was woken.
        let more = [scene.task(), scene.task()];
        let started = workers[0].start(0).expect("it has more to do");
        assert!(more.iter().any(|task| task.id == started));
    }

    #[test]
    fn a_thread_that_submits_much_reads_answers_that_nobody_waits_for() {
        let (scene, mut workers) = Scene::ready(Scene::config(1, 1));
        let worker = &mut workers[0];
        let first = scene.task();
        assert_eq!(worker.start(0), Some(first.id));
        worker.answer(0, first.id);
        scene.tick();
        // They are short: many go to the lane, so that it does not run dry.
        let tasks: Vec<_> = (0..20).map(|_| scene.task()).collect();
        assert_eq!(scene.engine.given_to(worker.id).len(), 20);
        assert_eq!(worker.start(0), Some(tasks[0].id));
        worker.answer(0, tasks[0].id);
        scene.engine.lock().leader = true;
        scene.task();
        assert!(!tasks[0].is_done(), "the thread that waits reads it");
        scene.engine.lock().leader = false;
        scene.task();
        assert!(tasks[0].is_done());
    }

    #[test]
    fn what_came_while_nobody_was_to_be_woken_is_read_before_the_pool_rests() {
        let mut scene = Scene::new(Scene::config(1, 1));
        let mut worker = scene.asked().pop_front().expect("it was asked for");
        scene.fork(&worker);
        let mut state = scene.engine.lock();
        scene.engine.control.arm(attention::AWAKE);
        worker.ready();
        Processes::rest(&scene.engine, &mut state);
        assert_eq!(state.members.starting, 0);
        assert_eq!(scene.engine.control.mode(), attention::QUIET, "and nothing more is waited for");
    }

    #[test]
    fn the_supervisor_looks_by_itself_at_a_lane_that_is_stuck() {
        let (mut scene, mut workers) = Scene::ready(Scene::config(2, 1));
        let _short = [scene.task(), scene.task()];
        for worker in &mut workers {
            let task = worker.start(0).expect("each has one");
            worker.answer(0, task);
        }
        scene.tick();
        // Both lanes have one, and a third waits behind one of them, too short to be carried over at once.
        let tasks = [scene.task(), scene.task(), scene.task()];
        let running: Vec<_> = workers.iter_mut().map(|worker| worker.start(0).expect("busy")).collect();
        let waiting = tasks.iter().find(|task| !running.contains(&task.id)).expect("one waits");
        let free =
            usize::from(waiting.lane() == tasks.iter().find(|t| t.id == running[1]).and_then(|t| t.lane()));
        let free = 1 - free;
        workers[free].answer(0, running[free]);
        scene.kicked();
        scene.engine.catch_up();
        assert_eq!(workers[free].start(0), None, "it may be over in a moment");
        let wakes = scene.engine.lock().supervisor_wakes.expect("it is to look");
        assert_eq!(wakes, scene.now + STEAL_AFTER);
        assert!(scene.kicked());
        scene.engine.catch_up();
        assert!(!scene.kicked(), "it has been woken");
        scene.pass(STEAL_AFTER * 2);
        assert_eq!(workers[free].start(0), Some(waiting.id));
    }

    #[test]
    fn a_pool_that_is_not_used_is_left_alone_after_ten_seconds() {
        let (mut scene, mut workers) = Scene::ready(Scene::config(1, 1));
        for _ in 0..2 {
            let task = scene.task();
            assert_eq!(workers[0].start(0), Some(task.id));
            workers[0].answer(0, task.id);
            let begin = scene.now;
            while let Some(next) = scene.tick() {
                assert_eq!(next, scene.now + WATCH);
                scene.now = next;
                clock::set(next);
            }
            assert_eq!(scene.now - begin, Duration::from_secs(10));
            assert!(task.is_done());
        }
    }

    /// A thread's result; `None` if it never ends.
    fn joined<T>(thread: std::thread::JoinHandle<T>) -> Option<T> {
        let begin = Instant::now();
        while !thread.is_finished() {
            if begin.elapsed() > Duration::from_secs(20) {
                return None;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        Some(thread.join().expect("no panic"))
    }

    #[test]
    fn a_leader_returns_when_its_time_is_up_and_not_before() {
        let (scene, mut workers) = Scene::ready(Scene::config(1, 1));
        let task = scene.task();
        assert_eq!(workers[0].start(0), Some(task.id));
        for limit in [Duration::ZERO, Duration::from_millis(20)] {
            let (engine, what) = (Arc::clone(&scene.engine), WaitFor::Task(Arc::clone(&task)));
            // In a thread for which time passes.
            let leader = std::thread::spawn(move || {
                let end = Instant::now() + limit;
                (engine.wait(&what, Some(end)), Instant::now() >= end)
            });
            assert_eq!(joined(leader), Some((Waited::TimedOut, true)));
            assert!(!scene.engine.lock().leader);
        }
    }

    #[test]
    fn a_spin_finds_an_answer_and_leaves_the_pool_without_a_leader() {
        let (scene, mut workers) = Scene::ready(Scene::config(1, 1));
        let task = scene.task();
        assert_eq!(workers[0].start(0), Some(task.id));
        assert!(!scene.engine.spin_for(&task), "it runs");
        assert!(!scene.engine.lock().leader);
        assert_ne!(scene.engine.control.mode(), attention::SLEEPING, "no thread sleeps there");
        workers[0].answer(0, task.id);
        assert!(!task.is_done());
        assert!(scene.engine.spin_for(&task));
        assert!(task.is_done() && !scene.engine.lock().leader);
    }

    #[test]
    fn a_spin_beside_a_leader_leaves_the_pool_to_it() {
        let (scene, mut workers) = Scene::ready(Scene::config(1, 1));
        let task = scene.task();
        assert_eq!(workers[0].start(0), Some(task.id));
        scene.engine.lock().leader = true;
        scene.engine.control.arm(attention::SLEEPING);
        assert!(!scene.engine.spin_for(&task));
        assert_eq!(scene.engine.control.mode(), attention::SLEEPING);
        assert!(scene.engine.lock().leader);
        scene.engine.lock().leader = false;
    }

    #[test]
    fn a_spin_that_leaves_hands_the_pool_to_one_that_waits() {
        let (scene, mut workers) = Scene::ready(Scene::config(2, 1));
        let [first, second] = [scene.task(), scene.task()];
        let ids = [0, 1].map(|worker| workers[worker].start(0).expect("each has one"));
        let (engine, what) = (Arc::clone(&scene.engine), WaitFor::Task(Arc::clone(&second)));
        // It finds a leader, and so it follows.
        scene.engine.lock().leader = true;
        let follower = std::thread::spawn(move || engine.wait(&what, None));
        while scene.engine.lock().followers.is_empty() {
            std::thread::yield_now();
        }
        scene.engine.lock().leader = false;
        assert!(!scene.engine.spin_for(&first));
        let place = ids.iter().position(|id| *id == second.id).expect("one of them");
        workers[place].answer(0, second.id);
        assert_eq!(joined(follower), Some(Waited::Ready));
        assert!(second.is_done());
    }

    #[test]
    fn room_that_comes_before_the_leader_sleeps_is_not_slept_through() {
        let config = Config { capacity: Some(1), ..Scene::config(1, 1) };
        let (scene, mut workers) = Scene::ready(config);
        for round in 0..100 {
            // One that may start, and one that fills the queue.
            let tasks = [scene.task(), scene.task()];
            scene.engine.lock().spin = AdaptiveSpin::new();
            let engine = Arc::clone(&scene.engine);
            let leader = std::thread::spawn(move || engine.wait(&WaitFor::Space, None));
            // The leader releases the lock to spin. The room that it waits for does not end the spin.
            let mut state = loop {
                match scene.engine.state.try_lock() {
                    Some(state) if state.leader => break state,
                    _ => std::hint::spin_loop(),
                }
            };
            for task in &tasks {
                assert!(scene.engine.end_early(&mut state, task, false, Why::Cancelled));
            }
            scene.engine.after_outside_change(&mut state);
            drop(state);
            assert_eq!(joined(leader), Some(Waited::Ready), "round {round}");
            assert_eq!(workers[0].start(0), None);
        }
    }

    #[test]
    fn a_look_from_outside_leaves_a_sleeping_leader_its_wake_up() {
        let (scene, mut workers) = Scene::ready(Scene::config(1, 1));
        let task = scene.task();
        assert_eq!(workers[0].start(0), Some(task.id));
        scene.engine.lock().leader = true;
        scene.engine.control.arm(attention::SLEEPING);
        scene.engine.catch_up();
        assert!(scene.engine.statistics().is_some());
        assert_eq!(scene.engine.control.mode(), attention::SLEEPING);
        // Only the answer wakes it.
        assert!(!scene.wakes(|| workers[0].answer(0, task.id)));
        assert_eq!(scene.engine.control.mode(), attention::AWAKE);
        scene.engine.lock().leader = false;
    }
}
