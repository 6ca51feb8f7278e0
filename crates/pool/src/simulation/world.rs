//! The program, the zygote and the clock of a simulation, and the accounts that are checked at its end.

mod books;

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use ropewalk_os::process::Condition;
use ropewalk_os::socket;
use ropewalk_shm::memory::{Arena, Lease};

use super::dice::Dice;
use super::far::{Came, Far, pattern};
use crate::backend::processes::ProcessPool;
use crate::backend::processes::hangs::simulated as stacks;
use crate::backend::processes::spawn::{Seat, Seats, Source, Spawn};
use crate::backoff::{Backoff, Jitter};
use crate::client::Client;
use crate::clock;
use crate::codec::table::{self, Entry, Part};
use crate::config::{Config, Health, Life, OnCrash, Overflow, Scale};
use crate::control::Control;
use crate::function::Function;
use crate::pace::Credit;
use crate::payload::{Beside, Payload};
use crate::pool::Which;
use crate::session::{Mode, Session, SessionSettings};
use crate::stream::{Item, Items};
use crate::task::{Call, Options, Rare, Task};
use crate::wire::{STACK_SIGNAL, flags};
use crate::zygote::server::{Request, read_request};
use crate::zygote::{Zygote, ZygoteCommand};

/// A worker that the engine has asked for and that does not exist yet.
struct Asked {
    id: u64,
    from: From,
}

/// What it will be.
enum From {
    Fork { control: Arc<Control>, socket: OwnedFd, lanes: Vec<OwnedFd> },
    Seat(Seat),
}

/// A session, and what happened to it.
struct Opened {
    session: Arc<Session>,
    tag: u64,
    lease: Weak<Lease>,
    /// The last of its tasks that was started.
    last: u64,
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
    /// Items that a worker has sent, and that the program has read.
    sent: u64,
    read: u64,
    /// The program has left its stream.
    left: bool,
}

pub(super) struct World {
    dice: Dice,
    tells: bool,
    engine: Arc<ProcessPool>,
    /// The zygote's end of its socket.
    zygote: OwnedFd,
    /// In a world whose workers are threads of the program: what the pool offers them.
    seats: Option<Arc<Seats>>,
    asked: VecDeque<Asked>,
    workers: Vec<Far>,
    /// Workers that are dead, and whose death the engine does not know.
    dead: Vec<(u64, Option<i32>, Option<Seat>)>,
    functions: Vec<Arc<Function>>,
    tasks: Vec<Entered>,
    sessions: Vec<Opened>,
    now: Instant,
    next_tag: u64,
    /// Workers that have lied, alive or dead: they may answer, with anything, whatever they are given.
    liars: Vec<u64>,
    /// Whether a pool's end dropped what waited.
    dropped: bool,
    /// Whether some tasks are named clients'.
    clients: bool,
    /// Workers whose end the engine has heard of.
    ended: u64,
}

impl World {
    pub(super) fn new(seed: u64, tells: bool) -> Self {
        let mut dice = Dice::new(seed);
        let now = Instant::now();
        clock::set(now);
        let seats = dice.one_in(3).then(Arc::default);
        let zygote = ZygoteCommand { program: "simulated".into(), args: Vec::new(), env: Vec::new() };
        let spawn = Spawn {
            handed: std::sync::Arc::default(),
            source: seats.clone().map_or(Source::Zygote(zygote), Source::Seats),
            spec: Arc::from(&b""[..]),
            segments: Vec::new(),
            blocks: Vec::new(),
        };
        let config = Config {
            name: "simulated".into(),
            workers: 1 + dice.below(3),
            threads: if seats.is_some() { 1 } else { 1 + dice.below(2) },
            capacity: dice.one_in(4).then_some(8),
            overflow: if dice.one_in(2) { Overflow::Error } else { Overflow::DropOldest },
            on_crash: OnCrash::Replace,
            aging: dice.one_in(3).then(|| Duration::from_millis(1 + dice.roll() % 20)),
            grace: Duration::from_millis(dice.roll() % 20),
            life: Life {
                max_tasks: dice.one_in(3).then(|| 1 + dice.roll() % 8),
                max_age: dice.one_in(4).then(|| Duration::from_millis(1 + dice.roll() % 60)),
                scale: dice
                    .one_in(4)
                    .then(|| Scale { least: 1, idle: Some(Duration::from_millis(1 + dice.roll() % 30)) }),
                ..Life::default()
            },
            health: Health {
                poison_after: dice.one_in(2).then(|| 1 + dice.below(3) as u32),
                max_restarts: dice.one_in(6).then(|| (1 + dice.below(4) as u32, Duration::from_millis(50))),
            },
            ..Config::default()
        };
        // Those of half of the worlds may be asked for their stacks, which none of them writes.
        let listens = Condition { stopped: false, caught: 1 << (STACK_SIGNAL - 1) };
        stacks::set(dice.one_in(2).then_some(listens));
        let (near, zygote) = Zygote::simulated().expect("a socket");
        let clients = dice.one_in(2);
        let engine = ProcessPool::simulated(config, spawn, near).expect("started");
        engine.serve_calls();
        let functions = (0..2).map(|_| engine.function("f", Payload::default())).collect();
        Self {
            dice,
            tells,
            engine,
            zygote,
            seats,
            asked: VecDeque::new(),
            workers: Vec::new(),
            dead: Vec::new(),
            functions,
            tasks: Vec::new(),
            sessions: Vec::new(),
            now,
            // No two worlds have one in common, for they share the process's arena.
            next_tag: seed << 20,
            liars: Vec::new(),
            dropped: false,
            clients,
            ended: 0,
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
            // A worker of the program's own process is trusted.
            14 if self.dice.one_in(3) && self.seats.is_none() => self.lie(),
            15 => self.exchange_function(),
            16 | 17 => self.drop_view(),
            18 | 19 => self.fork(),
            20 => self.report_death(),
            21 if self.dice.one_in(2) => self.recycle(),
            21 if self.dice.one_in(2) => self.resize(),
            22 | 23 => self.read_stream(),
            24 if self.dice.one_in(3) => self.leave_or_stop(),
            25 => self.open_session(),
            26 if self.dice.one_in(3) => self.close_session(),
            27 | 28 => {
                let _ = self.answer_call();
            }
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

    fn open_session(&mut self) {
        let (tag, arguments, lease) = self.arguments();
        let is_actor = self.dice.one_in(3);
        let mode =
            if is_actor { Mode::Queue } else { [Mode::Prefer, Mode::Queue, Mode::Fail][self.dice.below(3)] };
        let settings = SessionSettings {
            name: "session".into(),
            mode,
            ttl: (!is_actor && self.dice.one_in(3)).then(|| Duration::from_millis(1 + self.dice.roll() % 40)),
            restarts: is_actor.then(|| self.dice.below(3) as u32),
            init: self.dice.one_in(2).then(|| self.engine.function("init", Payload::default())),
            arguments,
        };
        let session = self.engine.open_session(settings).expect("this process");
        self.tell(|| format!("open session {} tag {tag} {mode:?}, an actor: {is_actor}", session.id));
        self.sessions.push(Opened { session, tag, lease, last: 0 });
    }

    fn close_session(&mut self) {
        let at = self.dice.below(self.sessions.len());
        let Some(opened) = self.sessions.get(at) else { return };
        self.tell(|| format!("close session {}", opened.session.id));
        self.engine.close_session(&opened.session);
    }

    /// Arguments with a tag of their own, in a lease or not.
    fn arguments(&mut self) -> (u64, Payload, Weak<Lease>) {
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
                    ..Beside { lease: Some(lease), segments, ..Beside::default() }.into()
                },
                weak,
            )
        } else {
            (Payload { bytes: pattern(tag, length), ..Payload::default() }, Weak::new())
        };
        (tag, payload, lease)
    }

    fn submit(&mut self) {
        let (tag, payload, lease) = self.arguments();
        let at = self.dice.below(2 * self.sessions.len());
        let session = self.sessions.get(at).map(|opened| Arc::clone(&opened.session));
        let is_actor = session.as_ref().is_some_and(|session| session.is_actor);
        let deadline = self.dice.one_in(5).then(|| Duration::from_millis(1 + self.dice.roll() % 40));
        let timeout = self.dice.one_in(5).then(|| Duration::from_millis(1 + self.dice.roll() % 40));
        let retries = if !is_actor && self.dice.one_in(3) { self.dice.below(3) as u32 } else { 0 };
        let priority = if !is_actor && self.dice.one_in(6) { self.dice.below(3) as i32 - 1 } else { 0 };
        let backoff = self.dice.one_in(3).then(|| {
            let jitter = [Jitter::None, Jitter::Full, Jitter::Equal, Jitter::Decorrelated];
            Backoff {
                first: Duration::from_micros(self.dice.roll() % 5000),
                most: Duration::from_millis(self.dice.roll() % 10),
                jitter: jitter[self.dice.below(4)],
                budget: self.dice.one_in(3).then(|| Duration::from_millis(self.dice.roll() % 50)),
                crashes: self.dice.one_in(2),
            }
        });
        let client = (self.clients && self.dice.one_in(2)).then(|| {
            let name = ["a", "b", "c"][self.dice.below(3)];
            Client { name: name.into(), share: 1 + self.dice.below(3) as u32 }
        });
        let stream = if self.dice.one_in(3) { 1 + self.dice.below(4) as u32 } else { 0 };
        let hang = self.dice.one_in(6).then(|| Duration::from_millis(1 + self.dice.roll() % 40));
        let rare = Rare { timeout, deadline, hang, backoff, client };
        let session = session.map(|session| session.id);
        let options = Options { retries, priority, stream, session, ..rare.into() };
        let at = self.dice.below(self.functions.len());
        let call = Call::remote(Arc::clone(&self.functions[at]), payload);
        match self.engine.submit(call, 0, options.clone(), true) {
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
                    sent: 0,
                    read: 0,
                    left: false,
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

    /// Reads some of what a stream has, and says so at once or later.
    fn read_stream(&mut self) {
        let at = self.dice.below(self.tasks.len());
        let says = !self.dice.one_in(4);
        let Some(entered) = self.tasks.get_mut(at) else { return };
        let read = entered.read_what_is_there();
        if says && let Some(stream) = entered.task.stream() {
            stream.say_read(entered.task.id, read);
        }
        let id = entered.task.id;
        self.tell(|| format!("read {} items of task {id}", read.items));
    }

    /// The program does not want a stream any more, or asks any task to stop.
    fn leave_or_stop(&mut self) {
        let at = self.dice.below(self.tasks.len());
        let leaves = self.dice.one_in(2);
        let Some(entered) = self.tasks.get_mut(at) else { return };
        if leaves && entered.options.stream > 0 {
            entered.left = true;
            entered.cancelled = true;
            drop(self.engine.leave_stream(&entered.task));
        } else {
            entered.cancelled |= self.engine.ask_to_stop(&entered.task);
        }
        let id = entered.task.id;
        self.tell(|| format!("stop task {id}, leaving its stream: {leaves}"));
    }

    /// A thread of the program takes a call, and answers it with what was in it; or it takes so long that nobody waits.
    fn answer_call(&mut self) -> bool {
        let Some(call) = self.engine.next_call(self.now) else { return false };
        let answer = Payload { bytes: call.frame.bytes.clone(), ..Payload::default() };
        let answered = self.engine.answer_call(&call, &answer);
        self.tell(|| format!("answer a call of task {}: {answered:?}", call.task.id));
        true
    }

    fn exchange_function(&mut self) {
        let at = self.dice.below(self.functions.len());
        self.functions[at] = self.engine.function("f", Payload::default());
    }

    fn recycle(&mut self) {
        let which = match self.dice.below(3) {
            0 => Which::All,
            _ => Which::Number(1 + self.dice.roll() % 8),
        };
        let marked = self.engine.recycle(which);
        self.tell(|| format!("recycle {which:?}: {marked}"));
    }

    fn resize(&mut self) {
        let workers = 1 + self.dice.below(4);
        self.tell(|| format!("resize to {workers}"));
        self.engine.resize(workers);
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
        while let Some(seat) = self.seats.as_ref().and_then(|seats| seats.take(Duration::ZERO)) {
            self.asked.push_back(Asked { id: seat.id(), from: From::Seat(seat) });
        }
        loop {
            let Ok(Request::Spawn(id, given)) = read_request(&self.zygote) else { return };
            let control = Control::attach(given.control, given.event).expect("a control page");
            let from = From::Fork { control, socket: given.socket, lanes: given.lanes };
            self.asked.push_back(Asked { id, from });
        }
    }

    fn fork(&mut self) {
        let Some(asked) = self.asked.pop_front() else { return };
        self.tell(|| format!("fork worker {}", asked.id));
        self.workers.push(match asked.from {
            From::Fork { control, socket, lanes } => {
                let pidfd = Arc::new(self.zygote.try_clone().expect("a descriptor that is no process"));
                self.engine.worker_spawned(asked.id, i32::try_from(asked.id).unwrap_or(1), Some(&pidfd));
                Far::new(asked.id, socket, &control, lanes)
            }
            From::Seat(seat) => {
                seat.taken();
                Far::seated(seat)
            }
        });
    }

    /// A worker's process ends, and what it had started is lost.
    fn end_worker(&mut self, at: usize, status: Option<i32>) {
        let mut worker = self.workers.swap_remove(at);
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
        self.dead.push((worker.id, status, worker.seat.take()));
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
            let (id, status, seat) = self.dead.swap_remove(at);
            self.tell(|| format!("the engine hears of the death of worker {id}"));
            self.ended += 1;
            match seat {
                // To drop it says so, too.
                Some(seat) if status == Some(0) => seat.give_up(None),
                Some(_) => {}
                None => self.engine.worker_gone(id, status),
            }
        }
    }

    fn bury_the_killed(&mut self) {
        if self.seats.is_some() {
            return; // They see by themselves that they are to leave.
        }
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
        let killed = || self.seats.is_none() && self.engine.killed_workers().contains(&worker);
        !self.liars.contains(&worker) && !killed()
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
            Came::Announced { id: session, tag } => {
                self.tell(|| format!("worker {id}/{lane} learns of session {session}"));
                let trusted = self.trusts(id);
                let opened = self.sessions.iter().find(|opened| opened.session.id == session);
                let own = opened.is_some_and(|opened| opened.tag == tag);
                assert!(!trusted || own, "session {session} was announced with the arguments of {tag}");
                // No time passes between it and what is behind it; the release of its arguments may come first.
                self.work_in(at, lane);
                if self.workers.get(at).is_some_and(|worker| worker.id == id) {
                    self.work_in(at, lane);
                }
            }
            Came::Started { id: task, tag, session } => {
                self.tell(|| format!("worker {id}/{lane} starts task {task} with tag {tag}"));
                let trusted = self.trusts(id);
                let (starts, most) = (self.workers[at].starts, self.engine.config.life.max_tasks);
                assert!(
                    !trusted || most.is_none_or(|most| starts <= most),
                    "worker {id} was given {starts} tasks of {most:?}"
                );
                if trusted {
                    self.check_session(id, lane, task, session);
                }
                let entered = self.entered(task);
                entered.starts += 1;
                assert!(
                    entered.harmed && entered.read == 0
                        || entered.starts == 1
                        || !entered.task.has_delivered(),
                    "stream {task} was started again after it had delivered something"
                );
                assert!(
                    !trusted || entered.tag == tag,
                    "task {task} was started with the arguments of {tag}"
                );
            }
            Came::Heard { id: task, own } => {
                self.tell(|| format!("worker {id}/{lane} hears an answer for task {task}"));
                assert!(own || !self.trusts(id), "task {task} heard the answer to another's call");
            }
            Came::Sent { id: task } => self.entered(task).sent += 1,
            Came::Answered { id: task, raised } => {
                self.tell(|| format!("worker {id}/{lane} answers task {task}, raised {raised}"));
                self.entered(task).raised |= raised;
            }
            // One of this process leaves when the pool ends it, whatever it was about to run.
            Came::Left => self.end_worker(at, Some(0)),
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
}

impl Entered {
    /// Reads what has come of a stream: it must be the task's own, in order.
    fn read_what_is_there(&mut self) -> Credit {
        let (mut read, mut items) = (Credit::default(), Items::default());
        while let Some(stream) = self.task.stream()
            && stream.take(&mut items)
        {
            while let Some((item, cost)) = items.take_next() {
                let Item::Record(_, _, bytes, _) = item else { panic!("an item was lost") };
                let own = [self.tag.to_le_bytes(), self.read.to_le_bytes()].concat();
                assert!(self.harmed || bytes == own, "task {} has an item of another", self.task.id);
                self.read += 1;
                (read.items, read.bytes) = (read.items + 1, read.bytes + cost);
            }
        }
        read
    }
}

impl Drop for World {
    fn drop(&mut self) {
        clock::unset();
        stacks::set(None);
        let _ = socket::send(self.zygote.as_fd(), &[b"end"], &[], false);
    }
}
