//! The owner of result rings and their producers on every schedule that loom finds: no thread sleeps for ever. The word
//! is the real one; the leader and its followers take the engine's steps in their order.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p ropewalk-shm --release --test loom_attention`

#![cfg(loom)]

use ropewalk_shm::channel::attention::{ANY, AWAKE, Attention, HUNGRY, QUIET, SLEEPING, Wake};
use ropewalk_shm::channel::ring::{Consumer, Header, Producer, RingMemory};
use ropewalk_sync::atomic::{AtomicU32, Ordering};
use ropewalk_sync::loom::{self, thread};
use ropewalk_sync::{Arc, Condvar, Mutex, MutexGuard};

fn ring() -> (Producer, Consumer) {
    let memory = RingMemory::model(128);
    (memory.clone().producer(), memory.consumer())
}

fn push(ring: &mut Producer, id: u64) {
    let header = Header { kind: 1, flags: 0, len: 0, id, aux: 0 };
    ring.try_push(header, &[]).expect("there is room");
}

/// Takes all records; returns their number.
fn drain(rings: &mut [Consumer]) -> usize {
    let mut came = 0;
    for ring in rings {
        while ring.peek().expect("the producer is sound").is_some() {
            ring.finish();
            came += 1;
        }
    }
    came
}

/// An event descriptor: level-triggered, one signal is as good as many.
#[derive(Default)]
struct Event {
    signalled: Mutex<bool>,
    changed: Condvar,
}

impl Event {
    fn signal(&self) {
        *self.signalled.lock() = true;
        self.changed.notify_one();
    }

    fn wait(&self) {
        let mut signalled = self.signalled.lock();
        while !*signalled {
            signalled = self.changed.wait(signalled);
        }
        *signalled = false;
    }
}

fn bounded(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// The steps of a leader between two checks of the rings, as in `Engine::lead`.
fn sleep_unless_ready(attention: &Attention, rings: &mut [Consumer], there: impl Fn() -> bool) -> usize {
    attention.arm(SLEEPING);
    let came = drain(rings);
    if came == 0 && !there() {
        let _ = attention.sleep(None);
    }
    attention.arm(AWAKE);
    came
}

#[test]
fn a_sleeping_leader_is_woken_for_every_record() {
    bounded(|| {
        let attention = Arc::new(Attention::model());
        let (mut producer, consumer) = ring();
        let armed = Arc::clone(&attention);
        let worker = thread::spawn(move || {
            for id in 1..=2 {
                push(&mut producer, id);
                assert_eq!(armed.after_push(|| true, false), Wake::Nothing, "the event is not armed");
            }
        });
        let mut rings = [consumer];
        let mut came = drain(&mut rings);
        while came < 2 {
            came += sleep_unless_ready(&attention, &mut rings, || false);
            came += drain(&mut rings);
        }
        worker.join().expect("no panic");
    });
}

#[test]
fn two_workers_and_one_sleep_lose_nothing() {
    bounded(|| {
        let attention = Arc::new(Attention::model());
        let mut rings = Vec::new();
        let mut workers = Vec::new();
        for id in 1..=2 {
            let (mut producer, consumer) = ring();
            rings.push(consumer);
            let armed = Arc::clone(&attention);
            workers.push(thread::spawn(move || {
                push(&mut producer, id);
                let _ = armed.after_push(|| true, false);
            }));
        }
        let mut came = drain(&mut rings);
        while came < 2 {
            came += sleep_unless_ready(&attention, &mut rings, || false);
            came += drain(&mut rings);
        }
        for worker in workers {
            worker.join().expect("no panic");
        }
    });
}

#[test]
fn a_leader_is_woken_by_another_thread_of_the_owner() {
    bounded(|| {
        let attention = Arc::new(Attention::model());
        // The state under the engine's lock: something that the leader waits for besides records.
        let there = Arc::new(Mutex::new(false));
        let (other, known) = (Arc::clone(&attention), Arc::clone(&there));
        let canceller = thread::spawn(move || {
            *known.lock() = true;
            other.wake_sleeper(|| false);
        });
        let mut rings: [Consumer; 0] = [];
        let is_there = || *there.lock();
        while !is_there() {
            let _ = sleep_unless_ready(&attention, &mut rings, is_there);
        }
        canceller.join().expect("no panic");
    });
}

/// The supervisor of a resting pool, with `HUNGRY` or `ANY` armed, as in `Engine::rest`.
fn supervised(mode: u32) {
    bounded(move || {
        let attention = Arc::new(Attention::model());
        let event = Arc::new(Event::default());
        let (mut producer, consumer) = ring();
        let (armed, signal) = (Arc::clone(&attention), Arc::clone(&event));
        let worker = thread::spawn(move || {
            for id in 1..=2 {
                push(&mut producer, id);
                // After the second it has nothing left to do.
                if armed.after_push(|| id == 2, false) == Wake::Event {
                    signal.signal();
                }
            }
        });
        let mut rings = [consumer];
        let mut came = 0;
        while came < 2 {
            attention.arm(mode);
            let found = drain(&mut rings);
            came += found;
            if found == 0 {
                event.wait();
            }
        }
        worker.join().expect("no panic");
    });
}

#[test]
fn a_supervisor_is_woken_when_a_worker_runs_dry() {
    supervised(HUNGRY);
}

#[test]
fn a_supervisor_is_woken_for_any_record() {
    supervised(ANY);
}

const DONE: u32 = 1;
const WAITING: u32 = 2;
const NUDGE: u32 = 4;

/// The word of a task that a follower sleeps on, as in `Task`, and the kernel's lock around a futex.
struct Word {
    word: AtomicU32,
    kernel: Mutex<()>,
    sleeper: Condvar,
}

impl Word {
    fn new() -> Self {
        Self { word: AtomicU32::new(0), kernel: Mutex::new(()), sleeper: Condvar::new() }
    }

    fn is_done(&self) -> bool {
        self.word.load(Ordering::Acquire) & DONE != 0
    }

    fn prepare_sleep(&self) -> u32 {
        self.word.fetch_or(WAITING, Ordering::AcqRel) | WAITING
    }

    fn sleep(&self, observed: u32) {
        if observed & DONE != 0 {
            return;
        }
        let kernel = self.kernel.lock();
        if self.word.load(Ordering::Relaxed) == observed {
            drop(self.sleeper.wait(kernel));
        }
    }

    fn wake(&self) {
        let _kernel = self.kernel.lock();
        self.sleeper.notify_all();
    }

    fn finish(&self) {
        if self.word.fetch_or(DONE, Ordering::AcqRel) & WAITING != 0 {
            self.wake();
        }
    }

    fn nudge(&self) {
        self.word.fetch_add(NUDGE, Ordering::AcqRel);
        self.wake();
    }
}

/// The state under the engine's lock.
struct Core {
    results: Consumer,
    leader: bool,
    followers: Vec<usize>,
}

struct Engine {
    attention: Attention,
    core: Mutex<Core>,
    tasks: [Word; 2],
}

/// The steps of `Engine::wait`, `lead`, `follow`, `promote` and `rest`, in their order and without their time limits,
/// so that a waiting thread that is never woken is a deadlock.
impl Engine {
    fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock()
    }

    fn poll(&self, core: &mut Core) -> bool {
        let mut came = false;
        while let Some(header) = core.results.peek().expect("the producer is sound") {
            core.results.finish();
            self.tasks[header.id as usize].finish();
            came = true;
        }
        came
    }

    fn promote(&self, core: &Core) {
        if let Some(first) = core.followers.first() {
            self.tasks[*first].nudge();
        }
    }

    fn wait(&self, task: usize) {
        while !self.tasks[task].is_done() {
            let mut core = self.lock();
            if !core.leader {
                core.leader = true;
                self.attention.arm(AWAKE);
                self.lead(core, task);
                return;
            }
            core.followers.push(task);
            let observed = self.tasks[task].prepare_sleep();
            drop(core);
            self.tasks[task].sleep(observed);
            let mut core = self.lock();
            core.followers.retain(|follower| *follower != task);
            if !core.leader {
                self.promote(&core);
            }
        }
    }

    fn lead<'a>(&'a self, mut core: MutexGuard<'a, Core>, task: usize) {
        loop {
            self.poll(&mut core);
            if self.tasks[task].is_done() {
                core.leader = false;
                self.attention.arm(QUIET);
                self.promote(&core);
                return;
            }
            self.attention.arm(SLEEPING);
            if self.poll(&mut core) || self.tasks[task].is_done() {
                self.attention.arm(AWAKE);
                continue;
            }
            drop(core);
            let _ = self.attention.sleep(None);
            core = self.lock();
            self.attention.arm(AWAKE);
        }
    }
}

#[test]
fn a_leader_that_leaves_makes_a_follower_look() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let (mut producer, results) = ring();
        let engine = Arc::new(Engine {
            attention: Attention::model(),
            core: Mutex::new(Core { results, leader: false, followers: Vec::new() }),
            tasks: [Word::new(), Word::new()],
        });
        let far = Arc::clone(&engine);
        let worker = thread::spawn(move || {
            for id in 0..2 {
                push(&mut producer, id);
                let _ = far.attention.after_push(|| true, false);
            }
        });
        let other = Arc::clone(&engine);
        let second = thread::spawn(move || other.wait(1));
        engine.wait(0);
        worker.join().expect("no panic");
        second.join().expect("no panic");
    });
}
