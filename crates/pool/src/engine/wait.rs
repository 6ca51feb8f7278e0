//! Waiting for something, and driving the pool meanwhile: the leader, its followers, and the wake-up of a resting pool.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ropewalk_os::futex::{self, Scope};
use ropewalk_shm::attention;
use ropewalk_sync::spin::AdaptiveSpin;

use super::{Core, Engine, Sleeper, State, Waited};
use crate::backend::processes::dispatch::STEAL_AFTER;
use crate::clock;
use crate::control::WATCH;
use crate::locked::Guard;

impl Engine {
    pub(crate) fn is_ready(&self, what: &Sleeper) -> bool {
        match what {
            Sleeper::Task(task) => task.is_done(),
            Sleeper::Completed => !self.completed.lock().is_empty(),
            Sleeper::Space => false,
            Sleeper::Any(tasks) | Sleeper::AnyOrSpace(tasks) => tasks.iter().any(|task| task.is_done()),
        }
    }

    pub(crate) fn has_space(&self, core: &Core) -> bool {
        !matches!(core.state, State::Open) || self.config.max_queue.is_none_or(|max| core.queued() < max)
    }

    /// Blocks until `what` is there, driving the pool meanwhile. Call it with the interpreter released.
    pub fn wait(&self, what: &Sleeper, deadline: Option<Instant>) -> Waited {
        if let (false, Sleeper::Task(task)) = (self.is_remote(), what) {
            return self.wait_local(task, deadline);
        }
        loop {
            if self.is_ready(what) {
                return Waited::Ready;
            }
            let Some(mut core) = self.enter() else { return Waited::TimedOut };
            if what.wants_space() && self.has_space(&core) {
                return Waited::Ready;
            }
            if core.is_over() {
                // Every task has its outcome by now; nobody is left who would wake a sleeper.
                return Waited::Ready;
            }
            if self.is_remote() && !core.leader {
                core.leader = true;
                self.control.arm(attention::AWAKE);
                let spin = std::mem::replace(&mut core.spin, AdaptiveSpin::new());
                return self.lead(core, what, deadline, spin);
            }
            let waited = self.follow(core, what, deadline);
            if waited != Waited::Ready {
                return waited;
            }
        }
    }

    pub(crate) fn follow(
        &self,
        mut core: Guard<'_, Core>,
        what: &Sleeper,
        deadline: Option<Instant>,
    ) -> Waited {
        let timeout = deadline.map(|at| at.saturating_duration_since(clock::now()));
        if timeout == Some(Duration::ZERO) {
            return Waited::TimedOut;
        }
        let token = core.next_follower;
        core.next_follower += 1;
        core.followers.push((token, what.clone()));
        let any_change = what.wants_space() || matches!(what, Sleeper::Any(_));
        if any_change {
            core.change_waiters += 1;
        }
        let interrupted = match what {
            Sleeper::Task(task) => {
                let observed = task.prepare_sleep();
                drop(core);
                task.sleep(observed, timeout)
            }
            Sleeper::Completed => self.sleep_on(core, &self.completed_word, what, timeout),
            Sleeper::Space | Sleeper::Any(_) | Sleeper::AnyOrSpace(_) => {
                self.sleep_on(core, &self.change_word, what, timeout)
            }
        };
        let mut core = self.lock();
        core.followers.retain(|(id, _)| *id != token);
        if any_change {
            core.change_waiters -= 1;
        }
        if !core.leader {
            // The nudge of a leader that left may have come to us, who need it no more.
            self.promote(&mut core);
        }
        if interrupted { Waited::Interrupted } else { Waited::Ready }
    }

    pub(crate) fn sleep_on(
        &self,
        core: Guard<'_, Core>,
        word: &AtomicU32,
        what: &Sleeper,
        timeout: Option<Duration>,
    ) -> bool {
        let observed = word.load(Ordering::Acquire);
        drop(core);
        if self.is_ready(what) {
            return false;
        }
        matches!(futex::wait(word, observed, timeout, Scope::Private), futex::Wait::Interrupted)
    }

    pub(crate) fn lead<'a>(
        &'a self,
        mut core: Guard<'a, Core>,
        what: &Sleeper,
        deadline: Option<Instant>,
        mut spin: AdaptiveSpin,
    ) -> Waited {
        let mut interrupted = false;
        loop {
            self.poll(&mut core);
            let ready = self.is_there(&core, what);
            let late = deadline.is_some_and(|at| clock::now() >= at);
            if ready || late || interrupted {
                core.spin = spin;
                core.leader = false;
                self.rest(&mut core);
                self.promote(&mut core);
                return match (ready, interrupted) {
                    (true, _) => Waited::Ready,
                    (false, true) => Waited::Interrupted,
                    (false, false) => Waited::TimedOut,
                };
            }
            drop(core);
            let spun = spin.spin(|| self.control.may_spin(), || self.glance() || self.is_ready(what));
            core = self.lock();
            if spun {
                continue;
            }
            self.control.arm(attention::SLEEPING);
            if self.poll(&mut core) || self.is_there(&core, what) {
                self.control.arm(attention::AWAKE);
                continue;
            }
            let look = if core.steal_pending() {
                Some(STEAL_AFTER)
            } else {
                // Without tasks nothing comes, and the first one that does sets the supervisor to watch.
                core.has_work().then_some(WATCH)
            };
            drop(core);
            let left = deadline.map(|at| at.saturating_duration_since(clock::now()));
            let timeout = match (left, look) {
                (Some(left), Some(look)) => Some(left.min(look)),
                (left, look) => left.or(look),
            };
            interrupted = self.control.sleep(timeout);
            core = self.lock();
            self.control.arm(attention::AWAKE);
        }
    }

    pub(crate) fn is_there(&self, core: &Core, what: &Sleeper) -> bool {
        self.is_ready(what) || (what.wants_space() && self.has_space(core)) || core.is_over()
    }

    /// Whether a look at the rings would find something; no more than a hint.
    pub(crate) fn glance(&self) -> bool {
        let Some(core) = self.core.try_lock() else { return false };
        core.any_ready()
    }

    /// Makes another waiting thread look, because the leader leaves.
    pub(crate) fn promote(&self, core: &mut Core) {
        match core.followers.first() {
            None => {}
            Some((_, Sleeper::Task(task))) => task.nudge(),
            Some((_, Sleeper::Completed)) => Self::bump(&self.completed_word),
            Some((_, Sleeper::Space | Sleeper::Any(_) | Sleeper::AnyOrSpace(_))) => {
                Self::bump(&self.change_word);
            }
        }
    }

    pub(crate) fn bump(word: &AtomicU32) {
        word.fetch_add(1, Ordering::AcqRel);
        futex::wake(word, u32::MAX >> 1, Scope::Private);
    }

    /// Arms the wake-up for a time in which nobody looks at the rings.
    pub(crate) fn rest(&self, core: &mut Core) {
        if !self.is_remote() {
            return;
        }
        if core.steal_pending() {
            // Nobody rings for a lane that is stuck behind a long task: the supervisor looks by itself.
            let at = clock::now() + STEAL_AFTER;
            if core.supervisor_wakes.is_none_or(|wakes| at < wakes) {
                core.supervisor_wakes = Some(at);
                self.control.kick();
            }
        }
        for _ in 0..3 {
            let mode = if core.starting > 0 || core.doomed > 0 || !matches!(core.state, State::Open) {
                attention::ANY
            } else if !core.queue.is_empty() || core.outstanding > core.busy.len() {
                attention::HUNGRY
            } else {
                attention::QUIET
            };
            if self.control.mode() == mode {
                return;
            }
            self.control.arm(mode);
            // What came while no wake-up was armed has woken nobody: look once more.
            let missed = match mode {
                attention::ANY => core.any_ready(),
                attention::HUNGRY => core.any_ready() && core.somebody_hungry(),
                _ => false,
            };
            if !missed || !self.poll(core) {
                return;
            }
        }
    }

    /// Reads the results that are there, if nobody waits for them: for those who ask again and again and never wait.
    pub fn catch_up(&self) {
        // Whoever has the lock is looking, or is about to be done; and in a forked child it may be held for ever.
        if self.is_remote()
            && !self.is_forked()
            && let Some(mut core) = self.core.try_lock()
        {
            self.look(&mut core);
        }
    }

    pub(crate) fn look(&self, core: &mut Core) {
        if self.is_remote() && !core.leader {
            self.poll(core);
            self.rest(core);
        }
    }

    /// Reads the result rings and feeds the task rings; true if anything came.
    pub(crate) fn poll(&self, core: &mut Core) -> bool {
        let came = self.drain_lanes(core);
        if came || !core.queue.is_empty() || !core.idle.is_empty() {
            self.dispatch(core);
        }
        came
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::Config;
    use crate::outcome::Outcome;
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
        // Nobody was woken by that: what is there already is read now.
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
        // The pool believes that both are busy, and nobody was woken.
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
        let mut core = scene.engine.lock();
        scene.engine.control.arm(attention::AWAKE);
        worker.ready();
        scene.engine.rest(&mut core);
        assert_eq!(core.starting, 0);
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
        assert!(!scene.kicked(), "it has been told");
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

    /// What a thread returns; `None` if it never does.
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
            let (engine, what) = (Arc::clone(&scene.engine), Sleeper::Task(Arc::clone(&task)));
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
    fn room_that_comes_before_the_leader_sleeps_is_not_slept_through() {
        let config = Config { max_queue: Some(1), ..Scene::config(1, 1) };
        let (scene, mut workers) = Scene::ready(config);
        for round in 0..100 {
            // One that may start, and one that fills the queue.
            let tasks = [scene.task(), scene.task()];
            scene.engine.lock().spin = AdaptiveSpin::new();
            let engine = Arc::clone(&scene.engine);
            let leader = std::thread::spawn(move || engine.wait(&Sleeper::Space, None));
            // The leader lets go of the lock to spin. The room that it waits for is no sight that ends the spin.
            let mut core = loop {
                match scene.engine.core.try_lock() {
                    Some(core) if core.leader => break core,
                    _ => std::hint::spin_loop(),
                }
            };
            for task in &tasks {
                assert!(scene.engine.end_early(&mut core, task, false, |_| Outcome::Cancelled));
            }
            scene.engine.after_outside_change(&mut core);
            drop(core);
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
        // It is woken by the answer, and nobody else.
        assert!(!scene.wakes(|| workers[0].answer(0, task.id)));
        assert_eq!(scene.engine.control.mode(), attention::AWAKE);
        scene.engine.lock().leader = false;
    }
}
