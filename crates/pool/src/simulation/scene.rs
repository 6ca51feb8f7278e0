//! A simulated pool without chance: a test decides what the program, the zygote, the workers and the clock do, and
//! when.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use ropewalk_os::{eventfd::EventFd, poll, socket};
use ropewalk_shm::memory::{Arena, Lease, Segment};

use crate::backend::processes::ProcessPool;
use crate::backend::processes::spawn::Spawn;
use crate::clock;
use crate::config::{Config, OnCrash, Overflow};
use crate::control::Control;
use crate::function::Function;
use crate::passing::{self, Passed};
use crate::payload::Payload;
use crate::task::{Call, Options, Task};
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

    /// Reports that this many inputs of a batch were begun.
    pub(crate) fn reach(&self, lane: usize, task: u64, inputs: u64) {
        self.lanes[lane].start_batch(task);
        self.lanes[lane].reach(inputs);
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
            lazy: false,
            grace: Duration::from_secs(1),
        }
    }

    pub(crate) fn spawn() -> Spawn {
        Spawn {
            handed: Arc::default(),
            zygote: ZygoteCommand { program: "scene".into(), args: Vec::new(), env: Vec::new() },
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

    /// A task that names a segment of its own.
    pub(crate) fn with_segment(&self) -> (Arc<Task>, Arc<Segment>) {
        let segment = Segment::create(64, true).expect("a segment").publish(None);
        let segments = vec![Arc::clone(&segment)];
        let payload = Payload { bytes: b"arguments".to_vec(), segments, ..Payload::default() };
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
        let payload = Payload { bytes: b"arguments".to_vec(), lease: Some(lease), ..Payload::default() };
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
