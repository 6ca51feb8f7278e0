//! The end of a pool: closed, broken, joined.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ropewalk_sync::futex::Wait;

use super::{Backend, Lifecycle, Pool, PoolState, WaitFor, Waited};
use crate::clock;
use crate::events::{self, What};
use crate::outcome::{Failure, Outcome, Record};

impl<B: Backend> Pool<B> {
    /// See [`Engine::close`](crate::Engine::close).
    pub(crate) fn close(&self, cancel: bool) {
        let Some(mut state) = self.enter() else { return };
        if cancel {
            // A worker that is free would have taken one, had it been looked at a moment later: those count as started.
            let taken = B::busy(&state.members);
            let free = (state.size * self.config.threads).saturating_sub(taken);
            self.cancel_waiting(&mut state, Some(free));
        }
        self.closed(&mut state);
    }

    /// See [`Engine::close_within`](crate::Engine::close_within).
    pub(crate) fn close_within(&self, cancel: bool, time: Duration) {
        self.close(cancel);
        let Some(mut state) = self.enter() else { return };
        if matches!(state.lifecycle, Lifecycle::Closing)
            && let Some(at) = clock::now().checked_add(time)
        {
            state.end_at = Some(state.end_at.map_or(at, |before| before.min(at)));
            self.control.kick();
        }
    }

    /// See [`Engine::end`](crate::Engine::end).
    pub(crate) fn end(&self, grace: Duration) {
        let Some(mut state) = self.enter() else { return };
        if matches!(state.lifecycle, Lifecycle::Ended | Lifecycle::Broken(_)) {
            return;
        }
        self.cancel_waiting(&mut state, None);
        state.ending = true;
        match clock::now().checked_add(grace) {
            _ if grace.is_zero() => self.terminate_now(&mut state),
            Some(at) => state.end_at = Some(state.end_at.map_or(at, |before| before.min(at))),
            None => {}
        }
        B::forget_requested(self, &mut state);
        self.closed(&mut state);
    }

    /// See [`Engine::terminate`](crate::Engine::terminate).
    pub(crate) fn terminate(&self) {
        let Some(mut state) = self.enter() else { return };
        if matches!(state.lifecycle, Lifecycle::Ended | Lifecycle::Broken(_)) {
            return;
        }
        self.terminate_now(&mut state);
        self.closed(&mut state);
    }

    /// See [`Engine::signal_workers`](crate::Engine::signal_workers).
    pub(crate) fn signal_workers(&self, signal: i32) {
        let Some(mut state) = self.enter() else { return };
        if matches!(state.lifecycle, Lifecycle::Ended) {
            return;
        }
        self.cancel_waiting(&mut state, None);
        state.ending = true;
        B::signal(&mut state.members, signal);
        self.closed(&mut state);
    }

    /// Ends every task that has not been started. With `spare` the first of each lane counts as started, and as many of
    /// the queue as there are free workers.
    fn cancel_waiting(&self, state: &mut PoolState<B>, spare: Option<usize>) {
        if matches!(state.lifecycle, Lifecycle::Open) {
            state.lifecycle = Lifecycle::Closing;
        }
        B::collect(self, state);
        let mut waiting = state.queue.drain();
        let spared: Vec<_> = waiting.drain(..spare.unwrap_or(0).min(waiting.len())).collect();
        for task in spared.into_iter().rev() {
            state.queue.push_front(task);
        }
        waiting.extend(B::take_back(&mut state.members, spare.is_some()));
        waiting.extend(state.delays.drain());
        B::feed(self, state);
        for task in waiting {
            self.finish(state, &task, Outcome::Cancelled, Record::default());
        }
    }

    /// See [`terminate`](Self::terminate).
    pub(crate) fn terminate_now(&self, state: &mut PoolState<B>) {
        state.end_at = None;
        state.ending = true;
        self.cancel_waiting(state, None);
        for (task, pid) in B::abandon(&mut state.members) {
            let record = Record { pid, ..Record::default() };
            self.finish(state, &task, Outcome::Failed(Failure::Terminated), record);
        }
        B::kill(self, state);
    }

    /// After the state has changed for good.
    fn closed(&self, state: &mut PoolState<B>) {
        if matches!(state.lifecycle, Lifecycle::Open) {
            state.lifecycle = Lifecycle::Closing;
        }
        self.stop_streams(state);
        B::wake_all(self);
        Self::bump(&self.change_word);
        self.tell_room(state);
        self.check_end(state);
        if state.leader {
            self.control.wake_sleeper();
        } else {
            B::rest(self, state);
        }
        // The supervisor has to learn when to look.
        self.control.kick();
    }

    /// See [`Engine::break_down`](crate::Engine::break_down).
    pub(crate) fn break_down(&self, failure: &Failure) {
        let Some(mut state) = self.enter() else { return };
        self.break_now(&mut state, failure);
        self.after_outside_change(&mut state);
        self.control.kick();
    }

    pub(crate) fn break_now(&self, state: &mut PoolState<B>, failure: &Failure) {
        if matches!(state.lifecycle, Lifecycle::Ended | Lifecycle::Broken(_)) {
            return;
        }
        state.lifecycle = Lifecycle::Broken(failure.clone());
        let reason = match failure {
            Failure::Broken(reason) => Arc::clone(reason),
            Failure::Crashed { pid, .. } => format!("worker {pid} died").into(),
            Failure::Initializer(_) => "an initializer failed".into(),
            Failure::TimedOut(..) | Failure::Neighbour { .. } => "its time was up".into(),
            Failure::Terminated | Failure::Dropped { .. } => "it was terminated".into(),
            Failure::Limit { reason, .. } => Arc::clone(reason),
            Failure::ActorDied { .. } => "an actor died".into(),
            Failure::Unhealthy { .. } => "too many of its workers have died".into(),
            Failure::Hung { .. } | Failure::Poisoned { .. } => "a task took its workers".into(),
        };
        events::tell(&self.config.name, What::Broken { reason });
        let mut waiting = state.queue.drain();
        waiting.extend(B::give_up(&mut state.members));
        waiting.extend(state.delays.drain());
        for task in waiting {
            self.finish(state, &task, Outcome::Failed(failure.clone()), Record::default());
        }
        B::wake_all(self);
        Self::bump(&self.change_word);
        self.tell_room(state);
    }

    /// Moves to the end if nothing is left to do.
    pub(crate) fn check_end(&self, state: &mut PoolState<B>) {
        let broken = match state.lifecycle {
            Lifecycle::Open | Lifecycle::Ended => return,
            Lifecycle::Closing => false,
            Lifecycle::Broken(_) => true,
        };
        let drained = state.queue.is_empty() && state.delays.is_empty() && B::is_drained(&state.members);
        if (!drained && !broken) || !B::dismiss(self, state) {
            return;
        }
        if !broken {
            state.lifecycle = Lifecycle::Ended;
            events::tell(&self.config.name, What::Ended);
        }
        B::wake_all(self);
        Self::bump(&self.ended_word);
        Self::bump(&self.calls_word);
        self.nudge_all(state);
    }

    pub(crate) fn nudge_all(&self, state: &mut PoolState<B>) {
        for (_, sleeper) in &state.followers {
            if let WaitFor::Task(task) = sleeper {
                task.nudge();
            }
        }
        Self::bump(&self.completed_word);
        Self::bump(&self.change_word);
        self.tell_room(state);
        self.control.wake_sleeper();
    }

    /// See [`Engine::has_ended`](crate::Engine::has_ended).
    pub(crate) fn has_ended(&self) -> bool {
        self.enter().is_none_or(|state| state.is_over())
    }

    /// See [`Engine::join`](crate::Engine::join).
    pub(crate) fn join(&self, deadline: Option<Instant>) -> Waited {
        loop {
            let observed = self.ended_word.load(Ordering::Acquire);
            if self.has_ended() {
                return Waited::Ready;
            }
            let left = deadline.map(|at| at.saturating_duration_since(clock::now()));
            if left == Some(Duration::ZERO) {
                return Waited::TimedOut;
            }
            if self.ended_word.wait_while(observed, left) == Wait::Interrupted {
                return Waited::Interrupted;
            }
        }
    }

    /// See [`Engine::is_closed`](crate::Engine::is_closed).
    pub(crate) fn is_closed(&self) -> bool {
        self.enter().is_none_or(|state| !matches!(state.lifecycle, Lifecycle::Open))
    }

    /// See [`Engine::shortage`](crate::Engine::shortage).
    pub(crate) fn shortage(&self) -> Option<String> {
        B::shortage(&self.enter()?.members).map(|why| why.to_string())
    }

    /// See [`Engine::advice`](crate::Engine::advice).
    pub(crate) fn advice(&self) -> Option<String> {
        B::advice(&self.enter()?.members).map(|advice| advice.to_string())
    }

    /// See [`Engine::complaints`](crate::Engine::complaints).
    pub(crate) fn complaints(&self) -> Vec<String> {
        if self.is_forked() {
            return Vec::new();
        }
        B::complaints(self)
    }

    /// See [`Engine::broken`](crate::Engine::broken).
    pub(crate) fn broken(&self) -> Option<Failure> {
        match &self.enter()?.lifecycle {
            Lifecycle::Broken(failure) => Some(failure.clone()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::OwnedFd;

    use super::*;
    use crate::backend::processes::spawn::{Handed, Spawn};
    use crate::simulation::scene::Scene;
    use crate::task::Task;

    const GRACE: Duration = Duration::from_secs(2);

    fn cancelled(tasks: &[Arc<Task>]) -> usize {
        tasks.iter().filter(|task| matches!(task.outcome(), Some(Outcome::Cancelled))).count()
    }

    fn is_terminated(task: &Task) -> bool {
        matches!(task.outcome(), Some(Outcome::Failed(Failure::Terminated)))
    }

    #[test]
    fn a_close_that_cancels_leaves_free_workers_what_they_would_have_taken() {
        // Of workers that start up, each would have had one.
        let scene = Scene::new(Scene::config(2, 2));
        let tasks: Vec<_> = (0..12).map(|_| scene.task()).collect();
        scene.engine.close(true);
        assert_eq!(cancelled(&tasks), 8);
        assert!(tasks[..4].iter().all(|task| !task.is_done()), "the first that came");
        // And of one that was refused, and is asked for again.
        let mut scene = Scene::new(Scene::config(2, 2));
        let refused = scene.asked().pop_back().expect("two");
        scene.engine.worker_failed(refused.id, "there are too many");
        let tasks: Vec<_> = (0..12).map(|_| scene.task()).collect();
        scene.engine.close(true);
        assert_eq!(cancelled(&tasks), 8);
        // One is busy, with one behind it: the running one goes on, and the other worker is not there to take any.
        let (scene, mut workers) = Scene::ready(Scene::config(1, 1));
        let tasks: Vec<_> = (0..5).map(|_| scene.task()).collect();
        assert_eq!(workers[0].start(0), Some(tasks[0].id));
        scene.engine.close(true);
        assert_eq!((cancelled(&tasks), tasks[0].is_done()), (4, false));
        assert!(scene.engine.is_closed() && !scene.engine.has_ended());
        workers[0].answer(0, tasks[0].id);
        scene.tick();
        assert!(workers[0].is_dismissed(0) && !scene.engine.has_ended());
        scene.die(workers.remove(0), 0);
        assert!(scene.engine.has_ended());
    }

    #[test]
    fn the_sooner_of_two_ends_is_kept() {
        for graces in [[GRACE, GRACE * 10], [GRACE * 10, GRACE]] {
            let (mut scene, mut workers) = Scene::ready(Scene::config(1, 1));
            let (running, waiting) = (scene.task(), scene.task());
            assert_eq!(workers[0].start(0), Some(running.id));
            for grace in graces {
                scene.kicked();
                scene.engine.end(grace);
                assert!(scene.kicked(), "the supervisor is to look then");
            }
            assert_eq!(cancelled(&[waiting]), 1);
            assert_eq!(scene.tick(), Some(scene.now + Duration::from_millis(500)), "it watches what runs");
            scene.pass(GRACE - Duration::from_millis(1));
            assert!(!running.is_done());
            assert_eq!(scene.tick(), Some(scene.now + Duration::from_millis(1)));
            scene.pass(Duration::from_millis(1));
            assert!(is_terminated(&running) && running.record().pid == workers[0].pid());
            assert!(scene.has_killed(&workers[0]));
            scene.die(workers.remove(0), 9);
            assert!(scene.engine.has_ended() && scene.asked().is_empty());
        }
    }

    #[test]
    fn an_end_waits_for_no_worker_that_is_not_there() {
        let mut scene = Scene::new(Scene::config(2, 1));
        let tasks = [scene.task(), scene.task()];
        scene.engine.end(GRACE);
        assert_eq!(cancelled(&tasks), 2);
        assert!(scene.engine.has_ended());
        assert_eq!(scene.engine.join(Some(Instant::now())), Waited::Ready);
        scene.pass(GRACE);
        assert_eq!(scene.workers(), 0);
    }

    #[test]
    fn a_pool_that_has_ended_or_is_broken_is_ended_no_more() {
        let scene = Scene::new(Scene::config(1, 1));
        scene.engine.break_down(&Failure::Broken("of a test".into()));
        scene.engine.end(Duration::ZERO);
        scene.engine.terminate();
        scene.engine.close(true);
        assert!(matches!(scene.engine.broken(), Some(Failure::Broken(why)) if &*why == "of a test"));
    }

    #[test]
    fn a_broken_pool_has_ended_when_its_workers_have() {
        let (scene, mut workers) = Scene::ready(Scene::config(2, 1));
        let tasks = [scene.task(), scene.task(), scene.task()];
        let started = workers[0].start(0).expect("each has one");
        scene.engine.break_down(&Failure::Broken("of a test".into()));
        for task in &tasks {
            assert!(matches!(task.outcome(), Some(Outcome::Failed(Failure::Broken(_)))));
            assert_eq!(task.attempt(), u32::from(task.id == started));
        }
        for worker in workers {
            assert!(scene.has_killed(&worker) && !scene.engine.has_ended());
            scene.die(worker, 9);
        }
        assert!(scene.engine.has_ended());
        assert_eq!(scene.engine.statistics().expect("this process").counters.failed, 3);
    }

    #[test]
    fn whoever_reads_the_last_answer_of_a_closing_pool_dismisses_its_workers() {
        let (scene, mut workers) = Scene::ready(Scene::config(2, 1));
        let task = scene.task();
        scene.engine.close(false);
        for worker in &mut workers {
            if let Some(id) = worker.start(0) {
                worker.answer(0, id);
            }
        }
        // The thread that waits: the supervisor has not looked.
        assert_eq!(scene.engine.wait(&WaitFor::Task(task), None), Waited::Ready);
        assert!(workers.iter_mut().all(|worker| worker.is_dismissed(0)));
    }

    #[test]
    fn a_pool_repeats_what_its_zygote_complained_of() {
        let scene = Scene::new(Scene::config(1, 1));
        assert!(scene.engine.complaints().is_empty());
        for text in ["no module", "no package"] {
            scene.zygote.complain(text.into());
        }
        assert_eq!(scene.engine.complaints(), ["no module", "no package"]);
    }

    #[test]
    fn what_was_handed_down_is_closed_with_the_pool() {
        let (mut reads, writes) = std::io::pipe().expect("a pipe");
        let handed = Handed::new(vec![OwnedFd::from(writes)]);
        let config = Scene::config(1, 1);
        let spawn = Spawn { handed, ..Scene::spawn() };
        let (scene, mut workers) = Scene::ready_with(config, spawn);
        scene.engine.close(false);
        scene.die(workers.remove(0), 0);
        assert!(scene.engine.has_ended());
        assert_eq!(reads.read(&mut [0]).expect("the end"), 0);
    }
}
