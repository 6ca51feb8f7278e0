//! The program, the zygote and the clock of a simulation, and the accounts that are checked at its end.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use ropewalk_os::socket;
use ropewalk_shm::memory::{Arena, Lease};

use super::dice::Dice;
use super::far::{Came, Far, pattern, tag_of};
use crate::backend::processes::ProcessPool;
use crate::backend::processes::spawn::Spawn;
use crate::clock;
use crate::codec::table::{self, Entry, Part};
use crate::config::{Config, OnCrash, Overflow};
use crate::control::Control;
use crate::function::Function;
use crate::outcome::{Failure, Limit, Outcome};
use crate::payload::Payload;
use crate::task::{Call, Options, Task};
use crate::wire::flags;
use crate::zygote::server::{Request, read_request};
use crate::zygote::{Zygote, ZygoteCommand};

/// A worker that the engine has asked for and that does not exist yet.
struct Asked {
    id: u64,
    control: Arc<Control>,
    socket: OwnedFd,
    lanes: Vec<OwnedFd>,
}

/// A task, and what happened to it.
struct Entered {
    task: Arc<Task>,
    tag: u64,
    lease: Weak<Lease>,
    options: Options,
    /// How often a worker started it.
    starts: u32,
    /// A worker that had it died, was killed or lied.
    harmed: bool,
    /// A worker answered it with an exception.
    raised: bool,
    cancelled: bool,
}

pub(super) struct World {
    dice: Dice,
    tells: bool,
    engine: Arc<ProcessPool>,
    /// The zygote's end of its socket.
    zygote: OwnedFd,
    asked: VecDeque<Asked>,
    workers: Vec<Far>,
    /// Workers that are dead, and whose death the engine does not know.
    dead: Vec<(u64, Option<i32>)>,
    functions: Vec<Arc<Function>>,
    tasks: Vec<Entered>,
    now: Instant,
    next_tag: u64,
    /// Workers that have lied, alive or dead: they may answer, with anything, whatever they are given.
    liars: Vec<u64>,
    /// Whether a pool's end dropped what waited.
    dropped: bool,
}

impl World {
    pub(super) fn new(seed: u64, tells: bool) -> Self {
        let mut dice = Dice::new(seed);
        let now = Instant::now();
        clock::set(now);
        let spawn = Spawn {
            handed: std::sync::Arc::default(),
            zygote: ZygoteCommand { program: "simulated".into(), args: Vec::new(), env: Vec::new() },
            spec: Arc::from(&b""[..]),
            segments: Vec::new(),
            blocks: Vec::new(),
        };
        let config = Config {
            name: "simulated".into(),
            workers: 1 + dice.below(3),
            threads: 1 + dice.below(2),
            capacity: dice.one_in(4).then_some(8),
            overflow: Overflow::Error,
            on_crash: OnCrash::Replace,
            lazy: false,
            grace: Duration::from_millis(dice.roll() % 20),
        };
        let (near, zygote) = Zygote::simulated().expect("a socket");
        let engine = ProcessPool::simulated(config, spawn, near).expect("started");
        let functions = (0..2).map(|_| engine.function("f", Payload::default())).collect();
        Self {
            dice,
            tells,
            engine,
            zygote,
            asked: VecDeque::new(),
            workers: Vec::new(),
            dead: Vec::new(),
            functions,
            tasks: Vec::new(),
            now,
            // No two worlds have one in common, for they share the process's arena.
            next_tag: seed << 20,
            liars: Vec::new(),
            dropped: false,
        }
    }

    fn tell(&self, what: impl FnOnce() -> String) {
        if self.tells {
            eprintln!("{}", what());
        }
    }

    pub(super) fn play(mut self) {
        for _ in 0..150 + self.dice.below(350) {
            self.step();
        }
        self.end();
        self.read_the_books();
    }

    fn step(&mut self) {
        match self.dice.below(40) {
            0..10 => self.submit(),
            10 => self.cancel(),
            11 | 12 => self.advance(),
            13 => self.die(),
            14 if self.dice.one_in(3) => self.lie(),
            15 => self.exchange_function(),
            16 | 17 => self.drop_view(),
            18 | 19 => self.fork(),
            20 => self.report_death(),
            _ => self.work(),
        }
        self.read_requests();
        self.blame_liars();
        match self.dice.below(4) {
            0 => self.engine.catch_up(),
            1 => self.tick(),
            _ => {}
        }
        self.bury_the_killed();
        for worker in self.workers.iter().filter(|worker| self.trusts(worker.id)) {
            assert!(
                worker.views.iter().all(super::far::View::shows_its_own),
                "a view that worker {} kept shows other bytes",
                worker.id
            );
        }
    }

    // --- the program ------------------------------------------------------------------------------------------------

    fn submit(&mut self) {
        let tag = self.next_tag;
        self.next_tag += 1;
        let length = 8 * (1 + self.dice.below(40));
        let (payload, lease) = if self.dice.one_in(2) {
            let lease = Arc::new(Arena::global().put_parts(&[&pattern(tag, length * 64)]).expect("room"));
            let (offset, length) = lease.ranges()[0];
            let (segment, generation) = (lease.segment().id(), lease.generation());
            let bytes =
                table::write(lease.id(), &[Part::Placed(Entry { segment, generation, offset, length })], &[]);
            let segments = vec![Arc::clone(lease.segment())];
            let weak = Arc::downgrade(&lease);
            (
                Payload {
                    flags: flags::DESCRIBED | flags::LEASED,
                    bytes,
                    lease: Some(lease),
                    segments,
                    ..Payload::default()
                },
                weak,
            )
        } else {
            (Payload { bytes: pattern(tag, length), ..Payload::default() }, Weak::new())
        };
        let options = Options {
            deadline: self.dice.one_in(5).then(|| Duration::from_millis(1 + self.dice.roll() % 40)),
            timeout: self.dice.one_in(5).then(|| Duration::from_millis(1 + self.dice.roll() % 40)),
            retries: if self.dice.one_in(3) { self.dice.below(3) as u32 } else { 0 },
            priority: if self.dice.one_in(6) { self.dice.below(3) as i32 - 1 } else { 0 },
            writable: false,
        };
        let at = self.dice.below(self.functions.len());
        let call = Call::remote(Arc::clone(&self.functions[at]), payload);
        match self.engine.submit(call, 0, options, true) {
            Ok(task) => {
                self.tell(|| format!("submit task {} tag {tag} {options:?}", task.id));
                self.tasks.push(Entered {
                    task,
                    tag,
                    lease,
                    options,
                    starts: 0,
                    harmed: false,
                    raised: false,
                    cancelled: false,
                });
            }
            Err(refused) => self.tell(|| format!("refused: {:?}", refused.1)),
        }
    }

    fn cancel(&mut self) {
        let at = self.dice.below(self.tasks.len());
        let running = self.dice.one_in(2);
        let Some(entered) = self.tasks.get_mut(at) else { return };
        entered.cancelled |= self.engine.cancel(&entered.task, running);
        let (id, cancelled) = (entered.task.id, entered.cancelled);
        self.tell(|| format!("cancel task {id}, running {running}: {cancelled}"));
    }

    fn exchange_function(&mut self) {
        let at = self.dice.below(self.functions.len());
        self.functions[at] = self.engine.function("f", Payload::default());
    }

    fn advance(&mut self) {
        self.now += Duration::from_micros(1 << self.dice.below(17));
        clock::set(self.now);
    }

    fn tick(&self) {
        let _ = self.engine.look_after(self.now);
    }

    // --- the zygote -------------------------------------------------------------------------------------------------

    fn read_requests(&mut self) {
        loop {
            let Ok(Request::Spawn(id, given)) = read_request(&self.zygote) else { return };
            let control = Control::attach(given.control, given.event).expect("a control page");
            self.asked.push_back(Asked { id, control, socket: given.socket, lanes: given.lanes });
        }
    }

    fn fork(&mut self) {
        let Some(asked) = self.asked.pop_front() else { return };
        self.tell(|| format!("fork worker {}", asked.id));
        let pidfd = Arc::new(self.zygote.try_clone().expect("a descriptor that is no process"));
        self.engine.worker_spawned(asked.id, i32::try_from(asked.id).unwrap_or(1), Some(&pidfd));
        self.workers.push(Far::new(asked.id, asked.socket, &asked.control, asked.lanes));
    }

    /// A worker's process ends, and what it had started is lost.
    fn end_worker(&mut self, at: usize, status: Option<i32>) {
        let worker = self.workers.swap_remove(at);
        if worker.lanes.iter().any(|lane| lane.loading) {
            for id in self.engine.given_to(worker.id) {
                self.entered(id).harmed = true;
            }
        }
        for started in worker.lanes.iter().filter_map(|lane| lane.started.as_ref()) {
            if let Some(entered) = self.tasks.iter_mut().find(|entered| entered.task.id == started.id) {
                entered.harmed = true;
            }
        }
        self.tell(|| format!("worker {} dies", worker.id));
        self.dead.push((worker.id, status));
    }

    fn die(&mut self) {
        if !self.workers.is_empty() && self.dice.one_in(3) {
            let at = self.dice.below(self.workers.len());
            let status = if self.dice.one_in(3) { None } else { Some(9) };
            self.end_worker(at, status);
        }
    }

    fn report_death(&mut self) {
        if !self.dead.is_empty() {
            let at = self.dice.below(self.dead.len());
            let (id, status) = self.dead.swap_remove(at);
            self.tell(|| format!("the engine hears of the death of worker {id}"));
            self.engine.worker_gone(id, status);
        }
    }

    fn bury_the_killed(&mut self) {
        let killed = self.engine.killed_workers();
        while let Some(at) = self.workers.iter().position(|worker| killed.contains(&worker.id)) {
            if self.dice.one_in(3) {
                return; // The signal is still on its way.
            }
            self.end_worker(at, Some(9));
        }
    }

    // --- the workers ------------------------------------------------------------------------------------------------

    fn entered(&mut self, id: u64) -> &mut Entered {
        self.tasks.iter_mut().find(|entered| entered.task.id == id).expect("a task that was submitted")
    }

    /// Whether what a worker reads is its own. A liar may have released what it still uses, and the leases of a worker
    /// end with the signal that is on its way there.
    fn trusts(&self, worker: u64) -> bool {
        !self.liars.contains(&worker) && !self.engine.killed_workers().contains(&worker)
    }

    fn work(&mut self) {
        if self.workers.is_empty() {
            return;
        }
        let at = self.dice.below(self.workers.len());
        let lane = self.dice.below(self.workers[at].lanes.len());
        self.work_in(at, lane);
    }

    fn work_in(&mut self, at: usize, lane: usize) {
        let worker = &mut self.workers[at];
        let id = worker.id;
        match worker.step(lane, &mut self.dice) {
            Came::Nothing => {}
            Came::Started { id: task, tag } => {
                self.tell(|| format!("worker {id}/{lane} starts task {task} with tag {tag}"));
                let trusted = self.trusts(id);
                let entered = self.entered(task);
                entered.starts += 1;
                assert!(
                    !trusted || entered.tag == tag,
                    "task {task} was started with the arguments of {tag}"
                );
            }
            Came::Answered { id: task, raised } => {
                self.tell(|| format!("worker {id}/{lane} answers task {task}, raised {raised}"));
                self.entered(task).raised |= raised;
            }
            Came::Left => {
                self.workers.swap_remove(at);
                self.dead.push((id, Some(0)));
            }
            Came::Garbled if !self.trusts(id) => self.end_worker(at, Some(9)),
            Came::Garbled => panic!("worker {id} was given arguments that are no task's"),
            Came::Corrupt => panic!("worker {id} found its ring corrupt"),
        }
    }

    fn lie(&mut self) {
        if self.workers.is_empty() {
            return;
        }
        let at = self.dice.below(self.workers.len());
        let lane = self.dice.below(self.workers[at].lanes.len());
        let id = self.workers[at].id;
        self.tell(|| format!("worker {id}/{lane} lies"));
        self.liars.push(id);
        self.blame_liars();
        let given = self.engine.given_to(id);
        self.workers[at].lie(lane, &given, &mut self.dice);
        if self.dice.one_in(2) {
            self.end_worker(at, Some(9));
        }
    }

    /// A worker that lies loses its leases.
    fn blame_liars(&mut self) {
        for liar in &self.liars {
            for given in self.engine.given_to(*liar) {
                if let Some(entered) = self.tasks.iter_mut().find(|entered| entered.task.id == given) {
                    entered.harmed = true;
                }
            }
        }
    }

    fn drop_view(&mut self) {
        let with_views: Vec<usize> =
            (0..self.workers.len()).filter(|at| self.workers[*at].has_view()).collect();
        if !with_views.is_empty() {
            let at = with_views[self.dice.below(with_views.len())];
            self.workers[at].drop_view(&mut self.dice);
        }
    }

    // --- the end ----------------------------------------------------------------------------------------------------

    /// Closes the pool, and lets everything that is sound come to its end.
    fn end(&mut self) {
        self.dropped = self.dice.one_in(2);
        self.tell(|| format!("close, dropping what waits: {}", self.dropped));
        self.engine.close(self.dropped);
        for _ in 0..20_000 {
            self.read_requests();
            self.fork();
            for at in (0..self.workers.len()).rev() {
                for lane in (0..self.workers[at].lanes.len()).rev() {
                    if at < self.workers.len() && lane < self.workers[at].lanes.len() {
                        self.work_in(at, lane);
                    }
                }
            }
            self.report_death();
            self.blame_liars();
            self.now += Duration::from_millis(2);
            clock::set(self.now);
            self.tick();
            self.bury_the_killed();
            if self.engine.has_ended() {
                return;
            }
        }
        panic!("the pool does not end: {:?}", self.engine.statistics());
    }

    fn read_the_books(&self) {
        let broken = self.engine.broken().is_some();
        for entered in &self.tasks {
            let (task, id) = (&entered.task, entered.task.id);
            let outcome = task.outcome().unwrap_or_else(|| panic!("task {id} has not ended"));
            let limited = |limit| match limit {
                Limit::Timeout => entered.options.timeout.is_some(),
                Limit::Deadline => entered.options.deadline.is_some(),
            };
            // What ran beside a task that was ended may be started once more for nothing.
            let beside = self.engine.config.threads > 1 && entered.options.retries > 0;
            match outcome {
                Outcome::Replied(reply) if reply.flags & flags::ERROR != 0 => {
                    assert!(entered.raised || entered.harmed, "task {id} failed and nobody raised");
                }
                Outcome::Replied(reply) => {
                    let own = tag_of(&reply.bytes) == Some(entered.tag);
                    assert!(own || entered.harmed, "task {id} got another task's value");
                }
                Outcome::Failed(Failure::TimedOut(limit, _)) => {
                    assert!(limited(*limit), "task {id} had no such limit");
                }
                Outcome::Failed(Failure::Neighbour { .. }) => {
                    assert!(self.engine.config.threads > 1 && entered.options.retries == 0);
                }
                Outcome::Failed(Failure::Broken(_)) => assert!(broken, "the pool is not broken"),
                Outcome::Failed(_) => {
                    assert!(entered.harmed, "task {id} failed in no worker's death: {outcome:?}")
                }
                Outcome::Cancelled => {
                    assert!(entered.cancelled || self.dropped, "task {id} was cancelled by nobody");
                }
                Outcome::Local { .. } => panic!("task {id} ran in a thread"),
            }
            assert!(
                beside || entered.starts <= entered.options.retries + 1,
                "task {id} was started {} times, with {} retries",
                entered.starts,
                entered.options.retries
            );
            assert!(
                entered.harmed || task.attempt() <= entered.starts,
                "task {id} counts {} attempts after {} starts",
                task.attempt(),
                entered.starts
            );
            assert_eq!(entered.lease.strong_count(), 0, "the lease of task {id} is still held");
        }
        let counters = self.engine.statistics().expect("this process").counters;
        assert_eq!(counters.submitted, self.tasks.len() as u64);
        assert_eq!(counters.completed + counters.failed + counters.cancelled, counters.submitted);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        clock::unset();
        let _ = socket::send(self.zygote.as_fd(), &[b"end"], &[], false);
    }
}
