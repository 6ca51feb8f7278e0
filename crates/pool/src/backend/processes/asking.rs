//! Asking for workers: how many, how fast, and what to do when they are refused.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ropewalk_base::{Code, Result, ResultExt, error};
use ropewalk_os::{limits, memfd, pidfd, socket};

use super::recycling::Tenure;
use super::seats::Seat;
use super::spawn::Source;
use super::workers::{SIGKILL, Worker};
use super::{Crew, ProcessPool, ProcessPoolState};
use crate::clock;
use crate::lane::Lane;
use crate::leave::Leave;
use crate::notes::Notes;
use crate::outcome::Failure;
use crate::pool::Lifecycle;
use crate::supervisor::Supervisor;
use crate::zygote::{SpawnRequest, Zygote};

const EMFILE: i32 = 24;
/// Workers of a pool that are asked for and not there yet.
const MOST_REQUESTED: usize = 16;
/// How long a pool that was refused a worker does with those that it has.
const REFUSED: Duration = Duration::from_secs(1);
/// How long a pool that has had workers does without any, before it is broken.
const WITHOUT: Duration = Duration::from_secs(30);
/// The pool reports a worker that starts for so long.
const SLOW_START: Duration = Duration::from_secs(5);
/// The least number of workers that is checked against the limits first.
const WORTH_CHECKING: u64 = 64;
/// Descriptors that are to be left when all workers are there.
const SPARE_DESCRIPTORS: u64 = 16;

/// The common part of all spawn requests of a pool.
#[derive(Debug)]
pub(crate) struct Spawning {
    pub(crate) zygote: Arc<Zygote>,
    /// The pool's control page.
    page: Arc<OwnedFd>,
    spec: Arc<OwnedFd>,
    pub(crate) notes: Arc<Notes>,
}

impl ProcessPool {
    pub(crate) fn prepare_spawning(&self, zygote: Arc<Zygote>, page: OwnedFd) -> Result<()> {
        let spawn = &self.backend.spawn;
        let spec =
            memfd::with_contents(c"ropewalk-spec", &spawn.spec).context("could not store a worker's spec")?;
        let notes = Arc::new(Notes::create(self.config.workers + 1)?);
        *self.backend.spawning.lock() =
            Some(Spawning { zygote, page: Arc::new(page), spec: Arc::new(spec), notes });
        Ok(())
    }

    /// Asks the zygote for one more worker, or for a stand-in. Nothing has changed when it fails.
    pub(super) fn add_worker(&self, state: &mut ProcessPoolState, stands_in: bool) -> Result<()> {
        let slot =
            state.members.workers.iter().position(Option::is_none).unwrap_or(state.members.workers.len());
        let (ours, theirs) = socket::seqpacket_pair().context("could not make a worker's socket")?;
        let made = (0..self.config.threads).map(|_| Lane::create(slot)).collect::<Result<(Vec<_>, Vec<_>)>>();
        let (lanes, mut fds) = made?;
        let id = Supervisor::get()?.new_worker_id(self.me.clone());
        let number = state.members.born + 1;
        let (mut notes, mut leave) = (None, None);
        if let Source::Seats(seats) = &self.backend.spawn.source {
            let asked = Arc::new(Leave::default());
            leave = Some(Arc::clone(&asked));
            seats.offer(Seat {
                id,
                number,
                pool: self.me.clone(),
                control: Arc::clone(&self.control),
                leave: asked,
                spec: Arc::clone(&self.backend.spawn.spec),
                ends: fds.pop().map(|lane| (theirs, lane)),
                told: false,
            });
        } else {
            let mut guard = self.backend.spawning.lock();
            let Some(spawning) = guard.as_mut() else { return Ok(()) };
            if !spawning.notes.has(slot)
                && let Ok(more) = Notes::create(2 * (slot + 1))
            {
                // Those that run keep theirs. If no more can be had, this worker dies without last words.
                spawning.notes = Arc::new(more);
            }
            spawning.notes.clear(slot);
            spawning.zygote.spawn(SpawnRequest {
                worker: id,
                socket: theirs,
                control: Arc::clone(&self.control),
                page: Arc::clone(&spawning.page),
                spec: Arc::clone(&spawning.spec),
                notes: Arc::clone(&spawning.notes),
                slot: u32::try_from(slot).unwrap_or(u32::MAX),
                handed: self.backend.spawn.handed.all(),
                number,
                lanes: fds,
            });
            notes = Some(Arc::clone(&spawning.notes));
        }
        state.members.born = number;
        let mut indices = Vec::new();
        for lane in lanes {
            let free =
                state.members.lanes.iter().position(Option::is_none).unwrap_or(state.members.lanes.len());
            if free == state.members.lanes.len() {
                state.members.lanes.push(None);
            }
            state.members.lanes[free] = Some(lane);
            if !stands_in {
                // The warmest lane is taken from the end, so the first worker's lanes go last.
                state.members.idle.insert(0, free);
            }
            indices.push(free);
        }
        state.members.starting += 1;
        let tenure = Tenure::new(number, stands_in, &self.config.life);
        let mut worker = Worker::new(id, ours, indices, notes, tenure);
        worker.leave = leave;
        // What the arguments of the initializer refer to, before the worker reads them.
        for segment in &self.backend.spawn.segments {
            worker.give_segment(segment);
        }
        if slot == state.members.workers.len() {
            state.members.workers.push(Some(worker));
        } else {
            state.members.workers[slot] = Some(worker);
        }
        Ok(())
    }

    /// The zygote has forked a worker.
    pub(crate) fn worker_spawned(&self, id: u64, pid: i32, fd: Option<&Arc<OwnedFd>>) {
        let mut state = self.lock();
        let worker = state.members.find(id).and_then(|index| state.members.workers.get_mut(index)?.as_mut());
        let Some(worker) = worker else {
            if let Some(fd) = fd {
                let _ = pidfd::send_signal(fd.as_fd(), SIGKILL);
            }
            return;
        };
        worker.pid = pid;
        worker.pidfd = fd.map(Arc::clone);
        if let Some(fd) = fd
            && let Some(signal) = if worker.killed { Some(SIGKILL) } else { worker.signalled }
        {
            let _ = pidfd::send_signal(fd.as_fd(), signal);
        }
        if fd.is_some() {
            Supervisor::watch_socket(id, worker.socket.as_fd());
        }
        if fd.is_none() {
            // It could be neither ended nor watched, so it runs its tasks and leaves; the zygote reports its end.
            let stands_in = worker.tenure.stands_in;
            let index = state.members.find(id);
            state.members.dismiss(index);
            if stands_in {
                self.lack_stand_in(&mut state, &no_descriptors());
            } else {
                self.fall_short(&mut state, &no_descriptors());
            }
        }
        self.fill_or_fall_short(&mut state);
    }

    /// A thread of this process has taken a worker's seat.
    pub(crate) fn worker_seated(&self, id: u64) {
        let mut state = self.lock();
        let worker = state.members.find(id).and_then(|index| state.members.workers.get_mut(index)?.as_mut());
        if let Some(worker) = worker {
            worker.pid = ropewalk_os::process::current_pid();
        }
        self.fill_or_fall_short(&mut state);
    }

    /// The zygote could not fork a worker, or is gone.
    pub(crate) fn worker_failed(&self, id: u64, reason: &str) {
        let mut state = self.lock();
        if let Some(index) = state.members.find(id) {
            if let Some(worker) = state.members.workers.get_mut(index).and_then(Option::as_mut) {
                worker.killed = true;
                if worker.tenure.stands_in {
                    self.remove_worker(&mut state, index);
                    self.lack_stand_in(&mut state, reason);
                    return;
                }
            }
            state.members.refused_until = Some(clock::now() + REFUSED);
            self.remove_worker(&mut state, index);
            self.fall_short(&mut state, reason);
        }
    }

    /// Asks for the workers that are wanting, a few at a time: each that is there makes room for the next. What is
    /// asked for and not there yet costs descriptors here, and a zygote forks one after the other anyway.
    pub(crate) fn fill(&self, state: &mut ProcessPoolState) -> Result<()> {
        if matches!(state.lifecycle, Lifecycle::Ended | Lifecycle::Broken(_)) {
            return Ok(());
        }
        self.bring_in(state);
        if state.members.refused_until.is_some() || state.members.storms.delayed_until().is_some() {
            return Ok(());
        }
        while state.members.alive() < self.wanted(state)
            && state.members.requested() < MOST_REQUESTED
            && self.has_place(state)
        {
            self.add_worker(state, false)?;
        }
        self.ask_for_stand_in(state);
        Ok(())
    }

    pub(crate) fn fill_or_fall_short(&self, state: &mut ProcessPoolState) {
        if let Err(error) = self.fill(state) {
            self.fall_short(state, &error.report());
        }
    }

    /// No worker more can be had now. The pool goes on with those that it has and asks again after a while. Without any
    /// it is broken: at once if it never had one, else after [`WITHOUT`], because a shortage may pass.
    fn fall_short(&self, state: &mut ProcessPoolState, reason: &str) {
        self.bring_in(state);
        state.members.refused_until = Some(clock::now() + REFUSED);
        let told = format!("the pool has {} of {} workers: {reason}", state.members.alive(), state.size);
        state.members.shortage = Some(told.into());
        if state.members.alive() == 0 {
            let now = clock::now();
            let since = *state.members.without_since.get_or_insert(now);
            if !state.members.starts.has_seen_any() || now.saturating_duration_since(since) >= WITHOUT {
                self.break_now(state, &Failure::Broken(reason.into()));
                self.check_end(state);
            }
        }
        self.control.kick();
    }

    /// Asks again for workers that were refused, if it is time.
    pub(crate) fn ask_again(&self, state: &mut ProcessPoolState, now: Instant) {
        if state.members.refused_until.is_some_and(|at| at <= now) {
            state.members.refused_until = None;
            state.members.shortage = None;
            self.fill_or_fall_short(state);
        }
    }

    /// Whether this many workers fit into the limits of this process and its cgroup, before any of them is requested.
    ///
    /// # Errors
    ///
    /// `Code::OutOfDescriptors` or `Code::OutOfProcesses`, naming the limit.
    pub(crate) fn check_limits(&self) -> Result<()> {
        let workers = self.config.workers as u64;
        // Smaller ones find out by themselves: a count of what is open costs more than they do.
        if workers < WORTH_CHECKING {
            return Ok(());
        }
        if let (Some(limit), Some(open)) = (limits::open_files(), limits::open_now()) {
            check_descriptors(workers, self.config.threads as u64, open, limit)?;
        }
        match limits::pids_cgroup() {
            Some((most, now)) => check_processes(workers, now, most),
            None => Ok(()),
        }
    }
}

/// Whether this many workers with this many threads each fit beside `open` descriptors.
fn check_descriptors(workers: u64, threads: u64, open: u64, limit: u64) -> Result<()> {
    // Of each, its socket and its pidfd; of those under way, what the zygote is to be sent.
    let under_way = workers.min(MOST_REQUESTED as u64) * (1 + threads);
    let needed = 2 * workers + under_way + SPARE_DESCRIPTORS;
    if open + needed <= limit {
        return Ok(());
    }
    Err(error!(
        Code::OutOfDescriptors,
        "a pool of {} workers needs {} file descriptors, and this process has {} open of at most {} \
         (RLIMIT_NOFILE)",
        workers,
        needed,
        open,
        limit
    ))
}

/// Whether this many workers fit beside `now` processes of the cgroup.
fn check_processes(workers: u64, now: u64, most: u64) -> Result<()> {
    if now + workers <= most {
        return Ok(());
    }
    Err(error!(
        Code::OutOfProcesses,
        "a pool of {} workers does not fit into the cgroup's limit of processes (pids.max): it is {}, and {} \
         are taken",
        workers,
        most,
        now
    ))
}

fn no_descriptors() -> String {
    limits::explain_fork(&std::io::Error::from_raw_os_error(EMFILE))
}

impl Crew {
    /// A worker that has been starting for long, in words.
    pub(super) fn slow_start(&self) -> Option<Arc<str>> {
        let now = clock::now();
        let (worker, seconds) = self.workers.iter().flatten().find_map(|worker| {
            let age = now.saturating_duration_since(worker.tenure.asked());
            let slow = worker.tenure.ready.is_none() && !worker.is_dying() && age >= SLOW_START;
            slow.then_some((worker, age.as_secs()))
        })?;
        let (number, pid) = (worker.tenure.number, worker.known_pid());
        let told = format!(
            "worker {number} (process {pid}) has been starting for {seconds} s; look at what its initializer, warmup \
             and probe do"
        );
        Some(told.into())
    }

    /// Workers that were requested and that the zygote has not reported yet.
    fn requested(&self) -> usize {
        self.workers.iter().flatten().filter(|worker| worker.pid == 0).count()
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;
    use crate::outcome::Outcome;
    use crate::simulation::scene::{Actor, Scene};

    const MOMENT: Duration = Duration::from_millis(1);

    fn is_broken(scene: &Scene, text: &str) -> bool {
        matches!(scene.engine.broken(), Some(Failure::Broken(why)) if why.contains(text))
    }

    #[test]
    fn a_pool_that_is_refused_a_worker_asks_again_after_a_while() {
        let mut scene = Scene::new(Scene::config(2, 1));
        let mut asked = scene.asked();
        let mut first = asked.pop_front().expect("two");
        scene.fork(&first);
        first.ready();
        scene.tick();
        for round in 0..2 {
            scene.kicked();
            let refused = asked.pop_front().expect("it was asked for");
            scene.engine.worker_failed(refused.id, "there are too many");
            assert!(scene.kicked(), "the supervisor is to look when it is time");
            let told = "the pool has 1 of 2 workers: there are too many";
            assert_eq!(scene.engine.shortage().as_deref(), Some(told), "round {round}");
            let next = scene.tick().expect("a time to look again");
            assert!(next <= scene.now + REFUSED && next > scene.now);
            scene.pass(REFUSED - MOMENT);
            assert!(scene.asked().is_empty() && scene.engine.shortage().is_some());
            // What there is works on meanwhile.
            let task = scene.task();
            assert_eq!(first.start(0), Some(task.id));
            first.answer(0, task.id);
            scene.pass(MOMENT);
            assert!(task.is_done() && scene.engine.shortage().is_none());
            asked.extend(scene.asked());
            assert_eq!((asked.len(), scene.workers()), (1, 2));
        }
        assert_eq!(scene.engine.statistics().expect("this process").counters.crashed, 0);
    }

    #[test]
    fn a_pool_that_has_had_workers_outlasts_a_shortage() {
        for lasts in [WITHOUT / 2, WITHOUT + REFUSED] {
            let (mut scene, mut workers) = Scene::ready(Scene::config(1, 1));
            scene.die(workers.remove(0), 9);
            let mut task = None;
            let mut gone = Duration::ZERO;
            while gone < lasts {
                for asked in scene.asked() {
                    scene.engine.worker_failed(asked.id, "there are too many");
                }
                task.get_or_insert_with(|| scene.task());
                scene.pass(REFUSED);
                gone += REFUSED;
            }
            let task = task.expect("one was submitted");
            if lasts > WITHOUT {
                assert!(is_broken(&scene, "there are too many") && task.is_done());
                continue;
            }
            assert!(scene.engine.broken().is_none());
            let mut worker = scene.asked().pop_front().expect("it goes on asking");
            scene.fork(&worker);
            worker.ready();
            scene.tick();
            let started = worker.start(0).expect("the task has waited");
            worker.answer(0, started);
            scene.tick();
            assert!(task.is_done() && scene.engine.shortage().is_none());
        }
    }

    #[test]
    fn a_worker_that_starts_for_long_is_told_of() {
        let mut scene = Scene::new(Scene::config(1, 1));
        let mut worker = scene.asked().pop_front().expect("one");
        scene.fork(&worker);
        scene.pass(SLOW_START - MOMENT);
        assert_eq!(scene.engine.shortage(), None);
        scene.pass(MOMENT);
        let told = scene.engine.shortage().expect("it is slow");
        assert!(told.starts_with("worker 1 ") && told.contains("starting for 5 s"), "{told}");
        worker.ready();
        scene.tick();
        assert_eq!(scene.engine.shortage(), None);
    }

    #[test]
    fn a_pool_that_is_refused_its_only_worker_is_broken_and_says_why() {
        let mut scene = Scene::new(Scene::config(2, 1));
        let task = scene.task();
        let mut asked = scene.asked();
        let refused = asked.pop_front().expect("two");
        scene.engine.worker_failed(refused.id, "there are too many");
        assert!(scene.engine.broken().is_none(), "the other may come");
        let refused = asked.pop_front().expect("two");
        scene.engine.worker_failed(refused.id, "there are far too many");
        assert!(is_broken(&scene, "there are far too many"));
        assert!(matches!(task.outcome(), Some(Outcome::Failed(Failure::Broken(_)))));
        assert!(scene.engine.has_ended());
        scene.pass(REFUSED);
        assert!(scene.asked().is_empty(), "nothing is asked for any more");
    }

    #[test]
    fn a_large_pool_is_asked_for_a_few_at_a_time() {
        let mut scene = Scene::new(Scene::config(40, 1));
        let (mut requested, mut slots) = (scene.asked(), Vec::new());
        let mut born = 0;
        while let Some(worker) = requested.pop_front() {
            assert_eq!(requested.len() + 1, MOST_REQUESTED.min(40 - born), "with {born} there");
            slots.push(worker.slot);
            scene.fork(&worker);
            born += 1;
            requested.extend(scene.asked());
        }
        assert_eq!((born, scene.workers(), scene.engine.lock().members.starting), (40, 40, 40));
        slots.sort_unstable();
        assert_eq!(slots, (0..40).collect::<Vec<_>>(), "each has a place of its own");
    }

    #[test]
    fn every_thread_of_a_worker_has_a_lane_and_the_places_are_used_again() {
        let (mut scene, mut workers) = Scene::ready(Scene::config(2, 3));
        for _ in 0..3 {
            let tasks: Vec<_> = (0..6).map(|_| scene.task()).collect();
            for worker in &mut workers {
                for lane in 0..3 {
                    let task = worker.start(lane).expect("each lane has one");
                    worker.answer(lane, task);
                }
            }
            scene.tick();
            assert!(tasks.iter().all(|task| task.is_done()));
            let slot = workers[0].slot;
            scene.die(workers.remove(0), 9);
            let mut next = scene.asked().pop_front().expect("another one");
            assert_eq!(next.slot, slot);
            scene.fork(&next);
            next.ready();
            scene.tick();
            workers.push(next);
            let state = scene.engine.lock();
            assert_eq!(
                (state.members.lanes.len(), state.members.idle.len(), state.members.starting),
                (6, 6, 0)
            );
        }
    }

    #[test]
    fn a_worker_that_cannot_be_watched_runs_what_it_has_and_leaves() {
        let mut scene = Scene::new(Scene::config(2, 1));
        let mut workers: Vec<Actor> = scene.asked().into();
        for worker in &mut workers {
            worker.ready();
        }
        scene.fork(&workers[0]);
        scene.tick();
        let _tasks = [scene.task(), scene.task()];
        scene.engine.worker_spawned(workers[1].id, workers[1].pid(), None);
        let told = scene.engine.shortage().expect("it is one short");
        assert!(told.starts_with("the pool has 1 of 2 workers") && told.contains("RLIMIT_NOFILE"), "{told}");
        for (worker, leaves) in workers.iter_mut().zip([false, true]) {
            let task = worker.start(0).expect("each has one");
            worker.answer(0, task);
            assert_eq!(worker.is_dismissed(0), leaves);
        }
    }

    /// A process that ends only by a signal, and a descriptor of it.
    fn process() -> (Child, Arc<OwnedFd>) {
        let child = Command::new("sleep").arg("60").spawn().expect("started");
        let pid = i32::try_from(child.id()).expect("a process id");
        (child, Arc::new(pidfd::open(pid).expect("a pidfd")))
    }

    fn ended_by(mut child: Child) -> Option<i32> {
        use std::os::unix::process::ExitStatusExt;
        child.wait().expect("collected").signal()
    }

    #[test]
    fn a_worker_that_nobody_waits_for_any_more_is_killed_when_it_is_forked() {
        let mut scene = Scene::new(Scene::config(1, 1));
        let worker = scene.asked().pop_front().expect("one");
        scene.engine.terminate();
        assert!(scene.engine.has_ended(), "it does not wait for a zygote that may be importing");
        let (child, fd) = process();
        scene.engine.worker_spawned(worker.id, worker.pid(), Some(&fd));
        assert_eq!(ended_by(child), Some(SIGKILL));
    }

    #[test]
    fn a_worker_gets_the_signal_that_was_sent_before_the_zygote_told_of_it() {
        for (by_signal, signal) in [(false, SIGKILL), (true, 15)] {
            let mut scene = Scene::new(Scene::config(1, 1));
            let mut worker = scene.asked().pop_front().expect("one");
            // It has been forked and speaks, and the zygote's message is still under way.
            worker.ready();
            scene.tick();
            let task = scene.task();
            assert_eq!(worker.start(0), Some(task.id));
            if by_signal {
                scene.engine.signal_workers(signal);
            } else {
                scene.engine.terminate();
            }
            assert!(!scene.engine.has_ended());
            let (child, fd) = process();
            scene.engine.worker_spawned(worker.id, worker.pid(), Some(&fd));
            assert_eq!(ended_by(child), Some(signal));
            scene.die(worker, signal);
            assert!(matches!(task.outcome(), Some(Outcome::Failed(Failure::Terminated))));
            assert!(scene.engine.has_ended());
        }
    }

    #[test]
    fn a_sound_worker_is_sent_no_signal_when_it_is_forked() {
        let mut scene = Scene::new(Scene::config(1, 1));
        let worker = scene.asked().pop_front().expect("one");
        let (mut child, fd) = process();
        scene.engine.worker_spawned(worker.id, worker.pid(), Some(&fd));
        assert!(child.try_wait().expect("asked").is_none());
        // And it is killed by its descriptor when it is to be.
        scene.engine.terminate();
        assert_eq!(ended_by(child), Some(SIGKILL));
    }

    #[test]
    fn descriptors_are_counted_for_each_worker_and_for_those_under_way() {
        // 100 workers: 200, and for 16 of them a socket and four lanes, and 16 to spare.
        let needed = 200 + 16 * 5 + 16;
        assert!(check_descriptors(100, 4, 50, 50 + needed).is_ok());
        let error = check_descriptors(100, 4, 50, 49 + needed).expect_err("one too few");
        assert_eq!(error.code(), Code::OutOfDescriptors);
        let text = error.to_string();
        assert!(text.contains(&format!("needs {needed} file")) && text.contains("RLIMIT_NOFILE"), "{text}");
        // Of ten all may be under way.
        assert!(check_descriptors(10, 1, 0, 20 + 20 + 16).is_ok());
        assert!(check_descriptors(10, 1, 0, 20 + 20 + 15).is_err());
    }

    #[test]
    fn processes_are_counted_against_those_of_the_cgroup() {
        assert!(check_processes(100, 20, 120).is_ok());
        let error = check_processes(100, 21, 120).expect_err("one too many");
        assert_eq!(error.code(), Code::OutOfProcesses);
        assert!(error.to_string().contains("pids.max"), "{error}");
    }
}
