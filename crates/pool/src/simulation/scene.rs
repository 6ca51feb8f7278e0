//! A simulated pool without chance: a test decides what the program, the zygote, the workers and the clock do, and
//! when.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use ropewalk_os::{eventfd::EventFd, poll, socket};
use ropewalk_shm::memory::{Arena, Lease, Segment};

use crate::backend::processes::ProcessPool;
use crate::backend::processes::spawn::{Source, Spawn};
use crate::clock;
use crate::config::{Config, OnCrash, Overflow};
use crate::control::Control;
use crate::function::Function;
use crate::outcome::{Failure, Outcome};
use crate::pace::Credit;
use crate::passing::{self, Passed};
use crate::payload::{Beside, Payload};
use crate::pool::Refused;
use crate::pulse::Progress;
use crate::session::{Session, SessionSettings};
use crate::task::{Call, Options, Task};
use crate::times::Times;
use crate::wire::{flags, kind};
use crate::worker::{Incoming, WorkerEnd};
use crate::zygote::server::{Request, read_request};
use crate::zygote::{Zygote, ZygoteCommand};

/// A worker that the pool has asked for, or that has been forked.
pub(crate) struct Actor {
    pub(crate) id: u64,
    pub(crate) slot: u32,
    socket: OwnedFd,
    lanes: Vec<WorkerEnd>,
}

impl Actor {
    /// The process id that the simulated zygote gives it.
    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.id).expect("few workers") + 1_000_000
    }

    /// All of its lanes say that they are ready.
    pub(crate) fn ready(&mut self) {
        for lane in &mut self.lanes {
            assert!(lane.try_reply(kind::READY, flags::EMPTY, 0, 0, &[]).expect("a sound ring"));
        }
    }

    /// Starts the next task of a lane, and gives its number; `None` if there is none.
    pub(crate) fn start(&mut self, lane: usize) -> Option<u64> {
        std::iter::from_fn(|| self.take(lane))
            .find(|record| record.kind == kind::TASK)
            .map(|record| record.id)
    }

    /// The next record of a lane.
    pub(crate) fn take(&mut self, lane: usize) -> Option<Incoming> {
        let record = self.lanes[lane].try_next().expect("a sound ring")?;
        self.lanes[lane].finish();
        Some(record)
    }

    /// The next message of the worker's socket.
    pub(crate) fn receive(&self) -> Option<Passed> {
        passing::receive(&self.socket, None).expect("a sound message")
    }

    /// Passes a segment to the pool.
    pub(crate) fn pass(&self, segment: &Segment) {
        passing::pass(self.socket.as_fd(), segment, false).expect("room");
    }

    /// Whether one of its lanes has the message to leave, and no record before that.
    pub(crate) fn is_dismissed(&mut self, lane: usize) -> bool {
        while let Some(record) = self.lanes[lane].try_next().expect("a sound ring") {
            self.lanes[lane].finish();
            match record.kind {
                kind::EXIT => return true,
                kind::TASK => return false,
                _ => {}
            }
        }
        false
    }

    /// Says that the call of a task begins.
    pub(crate) fn begin(&self, lane: usize, task: u64) {
        self.lanes[lane].begin(task);
    }

    /// Says that a task is alive.
    pub(crate) fn beat(&self, lane: usize, task: u64) {
        let running = self.lanes[lane].running();
        running.start(task, 1, 0);
        running.report(task, None);
    }

    /// Says that the call of a task begins now.
    pub(crate) fn begin_now(&self, lane: usize, task: u64) {
        self.begin_at(lane, task, clock::nanos());
    }

    /// Says that it began then, in nanoseconds of the monotonic clock.
    pub(crate) fn begin_at(&self, lane: usize, task: u64, nanos: u64) {
        self.lanes[lane].begin_at(task, nanos);
    }

    /// Answers a task whose call took so long and has just ended.
    pub(crate) fn answer_after(&mut self, lane: usize, task: u64, busy: Duration, cpu: Option<Duration>) {
        let cpu_ns = cpu.map(clock::in_nanos);
        let times = Times { busy_ns: clock::in_nanos(busy), ended: clock::nanos(), cpu_ns };
        let tail = times.tail();
        let bits = if tail.is_some() { flags::TIMED } else { 0 };
        let parts = [&b"value"[..], tail.as_ref().map_or(&[], |tail| &tail[..])];
        assert!(
            self.lanes[lane].try_reply(kind::DONE, bits, task, times.aux(), &parts).expect("a sound ring")
        );
    }

    /// Reports that this many inputs of a batch were begun.
    pub(crate) fn reach(&self, lane: usize, task: u64, inputs: u64) {
        self.lanes[lane].start_batch(task);
        self.lanes[lane].reach(inputs);
    }

    /// The running task reports how far it is.
    pub(crate) fn report(&self, lane: usize, task: u64, progress: Progress) {
        let running = self.lanes[lane].running();
        running.start(task, 1, 0);
        running.report(task, Some(progress));
    }

    /// Sends the last progress of a task; false if there is no room.
    pub(crate) fn say_progress(&mut self, lane: usize, task: u64, progress: &Progress) -> bool {
        self.lanes[lane].try_progress(task, progress).expect("a sound ring")
    }

    /// Whether a task of this lane is asked to stop.
    pub(crate) fn is_asked_to_stop(&self, lane: usize, task: u64) -> bool {
        self.lanes[lane].running().stopped(task)
    }

    /// What a task of this lane has been granted since it was sent.
    pub(crate) fn granted(&self, lane: usize, task: u64) -> Option<Credit> {
        self.lanes[lane].running().granted(task)
    }

    /// A task calls the program; the call's number, if there was room.
    pub(crate) fn call(&mut self, lane: usize, task: u64) -> Option<u64> {
        self.lanes[lane].try_call(task, 0, b"call").expect("a sound ring")
    }

    /// The answer to a call of this lane, if it has come.
    pub(crate) fn answer_to(&mut self, lane: usize, number: u64) -> Option<(u16, Vec<u8>)> {
        self.lanes[lane].take_answer(number, |_, _| {}).expect("a sound ring")
    }

    /// Answers a task.
    pub(crate) fn answer(&mut self, lane: usize, task: u64) {
        self.say(lane, kind::DONE, 0, task, 1000);
    }

    pub(crate) fn say(&mut self, lane: usize, kind: u16, flags: u16, id: u64, aux: u64) {
        self.write(lane, kind, flags, id, aux, b"value");
    }

    pub(crate) fn write(&mut self, lane: usize, kind: u16, flags: u16, id: u64, aux: u64, payload: &[u8]) {
        assert!(self.lanes[lane].try_reply(kind, flags, id, aux, &[payload]).expect("a sound ring"));
    }
}

/// See the module.
pub(crate) struct Scene {
    pub(crate) engine: Arc<ProcessPool>,
    pub(crate) zygote: Arc<Zygote>,
    far: OwnedFd,
    pub(crate) now: Instant,
    function: Arc<Function>,
}

impl Scene {
    pub(crate) fn config(workers: usize, threads: usize) -> Config {
        Config {
            name: "scene".into(),
            workers,
            threads,
            capacity: None,
            overflow: Overflow::Error,
            on_crash: OnCrash::Replace,
            grace: Duration::from_secs(1),
            ..Config::default()
        }
    }

    pub(crate) fn spawn() -> Spawn {
        Spawn {
            handed: Arc::default(),
            source: Source::Zygote(ZygoteCommand {
                program: "scene".into(),
                args: Vec::new(),
                env: Vec::new(),
            }),
            spec: Arc::from(&b""[..]),
            segments: Vec::new(),
            blocks: Vec::new(),
        }
    }

    pub(crate) fn new(config: Config) -> Self {
        Self::with(config, Self::spawn())
    }

    pub(crate) fn with(config: Config, spawn: Spawn) -> Self {
        let now = Instant::now();
        clock::set(now);
        let (zygote, far) = Zygote::simulated().expect("a socket");
        let engine = ProcessPool::simulated(config, spawn, Arc::clone(&zygote)).expect("started");
        let function = engine.function("f", Payload::default());
        Self { engine, zygote, far, now, function }
    }

    /// A pool whose workers are all ready, and its workers.
    pub(crate) fn ready(config: Config) -> (Self, Vec<Actor>) {
        Self::ready_with(config, Self::spawn())
    }

    pub(crate) fn ready_with(config: Config, spawn: Spawn) -> (Self, Vec<Actor>) {
        let mut scene = Self::with(config, spawn);
        let mut actors: Vec<_> = scene.asked().into();
        for actor in &mut actors {
            scene.fork(actor);
            actor.ready();
        }
        scene.tick();
        (scene, actors)
    }

    /// The workers that the pool has asked the zygote for since the last call.
    pub(crate) fn asked(&mut self) -> VecDeque<Actor> {
        let mut asked = VecDeque::new();
        self.zygote.send_waiting();
        while let Ok(Request::Spawn(id, given)) = read_request(&self.far) {
            let control = Control::attach(given.control, given.event).expect("a control page");
            let attach = |fd| WorkerEnd::attach(fd, Arc::clone(&control)).expect("a lane");
            let lanes = given.lanes.into_iter().map(attach).collect();
            asked.push_back(Actor { id, slot: given.slot, socket: given.socket, lanes });
            self.zygote.send_waiting();
        }
        asked
    }

    /// The zygote has forked this worker.
    pub(crate) fn fork(&self, actor: &Actor) {
        let no_process = Arc::new(actor.socket.try_clone().expect("a descriptor"));
        self.engine.worker_spawned(actor.id, actor.pid(), Some(&no_process));
    }

    /// The pool has another zygote from now on.
    pub(crate) fn replace_zygote(&mut self) -> Arc<Zygote> {
        let (zygote, far) = Zygote::simulated().expect("a socket");
        (self.zygote, self.far) = (Arc::clone(&zygote), far);
        zygote
    }

    /// The worker's process has ended with this status.
    pub(crate) fn die(&self, actor: Actor, status: i32) {
        self.engine.worker_gone(actor.id, Some(status));
    }

    pub(crate) fn submit(&self, options: Options) -> Arc<Task> {
        self.call(Payload { bytes: b"arguments".to_vec(), ..Payload::default() }, options)
    }

    fn call(&self, payload: Payload, options: Options) -> Arc<Task> {
        self.flagged(payload, 0, options)
    }

    pub(crate) fn flagged(&self, payload: Payload, flags: u16, options: Options) -> Arc<Task> {
        let call = Call::remote(Arc::clone(&self.function), payload);
        self.engine.submit(call, flags, options, true).expect("taken")
    }

    /// A session of this mode.
    pub(crate) fn session(&self, settings: SessionSettings) -> Arc<Session> {
        self.engine.open_session(settings).expect("this process")
    }

    /// A task of a session.
    pub(crate) fn task_of(&self, session: &Session) -> Arc<Task> {
        self.submit(Options { session: Some(session.id), ..Options::default() })
    }

    /// Why a task of a session is refused.
    pub(crate) fn refusal(&self, session: &Session) -> Refused {
        let call = Call::remote(Arc::clone(&self.function), Payload::default());
        let options = Options { session: Some(session.id), ..Options::default() };
        self.engine.submit(call, 0, options, true).expect_err("refused").1
    }

    /// A task that names a segment of its own.
    pub(crate) fn with_segment(&self) -> (Arc<Task>, Arc<Segment>) {
        let segment = Segment::create(64, true).expect("a segment").publish(None);
        let segments = vec![Arc::clone(&segment)];
        let payload =
            Payload { bytes: b"arguments".to_vec(), ..Beside { segments, ..Beside::default() }.into() };
        (self.call(payload, Options::default()), segment)
    }

    /// A task with this many bytes of arguments.
    pub(crate) fn of_size(&self, bytes: usize) -> Arc<Task> {
        self.call(Payload { bytes: vec![7; bytes], ..Payload::default() }, Options::default())
    }

    pub(crate) fn task(&self) -> Arc<Task> {
        self.submit(Options::default())
    }

    /// A task whose arguments lie in a lease.
    pub(crate) fn leased(&self) -> (Arc<Task>, Weak<Lease>) {
        let lease = Arc::new(Arena::global().put_parts(&[&[7; 4096]]).expect("room"));
        let weak = Arc::downgrade(&lease);
        let payload = Payload {
            bytes: b"arguments".to_vec(),
            ..Beside { lease: Some(lease), ..Beside::default() }.into()
        };
        (self.call(payload, Options::default()), weak)
    }

    /// The supervisor looks; gives when it will look again.
    pub(crate) fn tick(&self) -> Option<Instant> {
        self.engine.look_after(self.now)
    }

    /// So much time passes, and the supervisor looks.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.now += time;
        clock::set(self.now);
        self.tick();
    }

    /// Whether a deed of a worker wakes the supervisor.
    pub(crate) fn wakes(&self, deed: impl FnOnce()) -> bool {
        let fd = self.engine.control.event_fd();
        EventFd::from_owned(fd.try_clone_to_owned().expect("a descriptor")).drain();
        deed();
        let mut all = [poll::Polled::new(fd.as_raw_fd(), poll::READ)];
        poll::poll(&mut all, Some(Duration::ZERO)).expect("polled") > 0
    }

    /// Whether the pool has woken its supervisor since the last call.
    pub(crate) fn kicked(&self) -> bool {
        let fd = self.engine.control.own_fd().expect("the parent's end");
        let mut all = [poll::Polled::new(fd.as_raw_fd(), poll::READ)];
        let kicked = poll::poll(&mut all, Some(Duration::ZERO)).expect("polled") > 0;
        self.engine.control.drain();
        kicked
    }

    /// Workers that the pool counts, whether born or not.
    pub(crate) fn workers(&self) -> usize {
        self.engine.lock().members.workers.iter().flatten().count()
    }

    /// A worker writes into its notes.
    pub(crate) fn note(&self, actor: &Actor, text: &str) {
        let guard = self.engine.backend.spawning.lock();
        let notes = &guard.as_ref().expect("prepared").notes;
        let at = crate::notes::PART * u64::from(actor.slot) + notes.written(actor.slot as usize) as u64;
        ropewalk_os::memfd::write_at(notes.fd(), text.as_bytes(), at).expect("room");
    }

    /// Whether the pool has killed this worker.
    pub(crate) fn has_killed(&self, actor: &Actor) -> bool {
        self.engine.killed_workers().contains(&actor.id)
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        clock::unset();
        let _ = socket::send(self.far.as_fd(), &[b"end"], &[], false);
    }
}

/// Why its worker was given up.
pub(crate) fn condemned(task: &Task) -> Option<String> {
    match task.outcome() {
        Some(Outcome::Failed(Failure::Crashed { reason, .. })) => reason.as_deref().map(Into::into),
        _ => None,
    }
}
