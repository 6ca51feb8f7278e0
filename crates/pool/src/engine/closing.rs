//! The end of a pool: closed, broken, joined.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ropewalk_os::futex::{self, Scope};

use super::{Core, Engine, Sleeper, State, Waited};
use crate::backend::processes::workers::Worker;
use crate::clock;
use crate::events::{self, What};
use crate::outcome::{Failure, Outcome, Record};

impl Engine {
    /// Takes no more tasks; with `cancel`, drops those that have not started. The workers leave when all is done.
    pub fn close(&self, cancel: bool) {
        let Some(mut core) = self.enter() else { return };
        if cancel {
            // A worker that is free would have taken one, had it been looked at a moment later: those count as started.
            let taken = if self.is_remote() { core.busy.len() } else { core.local.len() };
            let free = (self.config.workers * self.config.threads).saturating_sub(taken);
            self.cancel_waiting(&mut core, Some(free));
        }
        self.closed(&mut core);
    }

    /// Takes no more tasks, cancels those that have not started, and ends those that still run after `grace`, as
    /// [`terminate`](Self::terminate) does.
    pub fn end(&self, grace: Duration) {
        let Some(mut core) = self.enter() else { return };
        if matches!(core.state, State::Ended | State::Broken(_)) {
            return;
        }
        self.cancel_waiting(&mut core, None);
        core.ending = true;
        match clock::now().checked_add(grace) {
            _ if grace.is_zero() => self.terminate_core(&mut core),
            Some(at) => core.end_at = Some(core.end_at.map_or(at, |before| before.min(at))),
            None => {}
        }
        self.forget_unborn(&mut core);
        self.closed(&mut core);
    }

    /// Ends everything now: tasks that wait are cancelled, those that run fail with [`Failure::Terminated`], and the
    /// worker processes are killed. A call that runs in a thread of this process goes on, and its pool ends after it.
    pub fn terminate(&self) {
        let Some(mut core) = self.enter() else { return };
        if matches!(core.state, State::Ended | State::Broken(_)) {
            return;
        }
        self.terminate_core(&mut core);
        self.closed(&mut core);
    }

    /// Takes no more tasks, cancels those that have not started, and sends every worker process a signal. A task whose
    /// worker dies of it fails with [`Failure::Terminated`]; no worker is replaced.
    pub fn signal_workers(&self, signal: i32) {
        let Some(mut core) = self.enter() else { return };
        if matches!(core.state, State::Ended) {
            return;
        }
        self.cancel_waiting(&mut core, None);
        core.ending = true;
        for worker in core.workers.iter_mut().flatten() {
            worker.signal(signal);
        }
        self.closed(&mut core);
    }

    /// Ends every task that has not been started. With `spare` the first of each lane counts as started, and so many of
    /// the queue, which go to free workers.
    fn cancel_waiting(&self, core: &mut Core, spare: Option<usize>) {
        if matches!(core.state, State::Open) {
            core.state = State::Closing;
        }
        if self.is_remote() {
            self.drain_lanes(core);
        }
        let mut waiting = core.queue.drain();
        let spared: Vec<_> = waiting.drain(..spare.unwrap_or(0).min(waiting.len())).collect();
        for task in spared.into_iter().rev() {
            core.queue.push_front(task);
        }
        if self.is_remote() {
            waiting.extend(core.take_back_waiting(spare.is_some()));
            self.dispatch(core);
        }
        for task in waiting {
            self.finish(core, &task, Outcome::Cancelled, Record::default());
        }
    }

    /// See [`terminate`](Self::terminate).
    pub(crate) fn terminate_core(&self, core: &mut Core) {
        core.end_at = None;
        core.ending = true;
        self.cancel_waiting(core, None);
        let lanes = core.lanes.iter().flatten();
        let mut running: Vec<_> =
            lanes.flat_map(|lane| lane.outstanding.iter().map(|sent| Arc::clone(&sent.task))).collect();
        running.extend(core.local.iter().map(|running| Arc::clone(&running.task)));
        for task in running {
            let pid = task.lane().and_then(|lane| core.lanes.get(lane)?.as_ref()).map(|lane| lane.worker);
            let pid = pid.and_then(|worker| core.workers.get(worker)?.as_ref()).map_or(0, Worker::known_pid);
            let record = Record { pid, ..Record::default() };
            core.leave_arguments(&task);
            self.finish(core, &task, Outcome::Failed(Failure::Terminated), record);
        }
        for worker in core.workers.iter_mut().flatten() {
            worker.kill();
        }
        self.forget_unborn(core);
    }

    /// After the state has changed for good.
    fn closed(&self, core: &mut Core) {
        if matches!(core.state, State::Open) {
            core.state = State::Closing;
        }
        self.local_ready.notify_all();
        Self::bump(&self.change_word);
        self.tell_room(core);
        self.check_end(core);
        if core.leader {
            self.control.wake_sleeper();
        } else {
            self.rest(core);
        }
        // The supervisor has to learn when to look.
        self.control.kick();
    }

    /// Ends every worker at once; whatever has no result fails with `failure`.
    pub fn break_down(&self, failure: &Failure) {
        let Some(mut core) = self.enter() else { return };
        self.break_core(&mut core, failure);
        self.after_outside_change(&mut core);
        self.control.kick();
    }

    pub(crate) fn break_core(&self, core: &mut Core, failure: &Failure) {
        if matches!(core.state, State::Ended | State::Broken(_)) {
            return;
        }
        core.state = State::Broken(failure.clone());
        let reason = match failure {
            Failure::Broken(reason) => Arc::clone(reason),
            Failure::Crashed { pid, .. } => format!("worker {pid} died").into(),
            Failure::Initializer(_) => "an initializer failed".into(),
            Failure::TimedOut(..) | Failure::Neighbour { .. } => "its time was up".into(),
            Failure::Terminated => "it was terminated".into(),
            Failure::Limit { reason, .. } => Arc::clone(reason),
        };
        events::tell(&self.config.name, What::Broken { reason });
        let mut waiting = core.queue.drain();
        waiting.extend(self.kill_everything(core));
        for task in waiting {
            self.finish(core, &task, Outcome::Failed(failure.clone()), Record::default());
        }
        self.local_ready.notify_all();
        Self::bump(&self.change_word);
        self.tell_room(core);
    }

    /// Moves to the end if nothing is left to do.
    pub(crate) fn check_end(&self, core: &mut Core) {
        let broken = match core.state {
            State::Open | State::Ended => return,
            State::Closing => false,
            State::Broken(_) => true,
        };
        let drained = core.queue.is_empty() && core.outstanding == 0 && core.local.is_empty();
        if !drained && !broken {
            return;
        }
        if self.is_remote() && !self.dismiss_workers(core) {
            return;
        }
        if !self.is_remote() && !core.local.is_empty() {
            return;
        }
        if let Some(spawn) = &self.config.spawn {
            spawn.handed.close();
        }
        if !broken {
            core.state = State::Ended;
            events::tell(&self.config.name, What::Ended);
        }
        self.local_ready.notify_all();
        Self::bump(&self.ended_word);
        self.nudge_all(core);
    }

    pub(crate) fn nudge_all(&self, core: &mut Core) {
        for (_, sleeper) in &core.followers {
            if let Sleeper::Task(task) = sleeper {
                task.nudge();
            }
        }
        Self::bump(&self.completed_word);
        Self::bump(&self.change_word);
        self.tell_room(core);
        self.control.wake_sleeper();
    }

    /// Whether every worker is gone and no task is left.
    pub fn has_ended(&self) -> bool {
        self.enter().is_none_or(|core| core.is_over())
    }

    /// Blocks until the pool has ended. A signal's handler may have to run first: then join again.
    pub fn join(&self, deadline: Option<Instant>) -> Waited {
        loop {
            let observed = self.ended_word.load(Ordering::Acquire);
            if self.has_ended() {
                return Waited::Ready;
            }
            let left = deadline.map(|at| at.saturating_duration_since(clock::now()));
            if left == Some(Duration::ZERO) {
                return Waited::TimedOut;
            }
            if matches!(
                futex::wait(&self.ended_word, observed, left, Scope::Private),
                futex::Wait::Interrupted
            ) {
                return Waited::Interrupted;
            }
        }
    }

    /// Whether it takes no tasks any more; those of a forked child's parent do not count.
    pub fn is_closed(&self) -> bool {
        self.enter().is_none_or(|core| !matches!(core.state, State::Open))
    }

    /// Why there are fewer workers than there should be, as long as that is so.
    pub fn shortage(&self) -> Option<String> {
        self.enter()?.shortage.as_ref().map(ToString::to_string)
    }

    /// What the zygote had to say about preloads that failed.
    pub fn complaints(&self) -> Vec<String> {
        if self.is_forked() {
            return Vec::new();
        }
        self.spawning.lock().as_ref().map_or_else(Vec::new, |spawning| spawning.zygote.complaints())
    }

    /// The failure that broke the pool, if one did.
    pub fn broken(&self) -> Option<Failure> {
        match &self.enter()?.state {
            State::Broken(failure) => Some(failure.clone()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::OwnedFd;

    use super::*;
    use crate::config::{Config, Handed, Spawn};
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
        assert_eq!(scene.engine.wait(&Sleeper::Task(task), None), Waited::Ready);
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
        let spawn = config.spawn.map(|spawn| Spawn { handed, ..spawn });
        let (scene, mut workers) = Scene::ready(Config { spawn, ..config });
        scene.engine.close(false);
        scene.die(workers.remove(0), 0);
        assert!(scene.engine.has_ended());
        assert_eq!(reads.read(&mut [0]).expect("the end"), 0);
    }
}
