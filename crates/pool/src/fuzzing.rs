//! The fuzz targets' access to private parts of this crate.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ropewalk_os::mmap::{Mapping, Protection};
use ropewalk_os::{memfd, socket};
use ropewalk_shm::memory::{Arena, Words};

use crate::backend::processes::ProcessPool;
use crate::backend::processes::spawn::{Source, Spawn};
use crate::clock;
use crate::codec::table::{self, Entry, Part};
use crate::config::{Config, OnCrash, Overflow};
use crate::control::{self, Control};
use crate::function::Function;
use crate::lane::LaneLayout;
use crate::pace::Credit;
use crate::passing;
use crate::payload::{Beside, Payload};
use crate::stream::Items;
use crate::task::{Call, Options, Task};
use crate::wire::{flags, kind};
use crate::worker::WorkerEnd;
use crate::zygote::server::{Request, read_request};
use crate::zygote::{Message, Zygote, ZygoteCommand};

/// A packet from a zygote.
pub fn zygote_message(bytes: &[u8]) {
    let _ = Message::parse(bytes, &mut Vec::new());
}

/// A packet from a worker's own socket: the first byte says how many descriptors come with the others.
pub fn passed(input: &[u8]) {
    let Some((&count, bytes)) = input.split_first() else { return };
    let (ours, theirs) = socket::seqpacket_pair().expect("a socket");
    let memory = memfd::create(c"ropewalk-fuzz", 4096, true).expect("a memfd");
    let fds = vec![memory.as_fd(); usize::from(count % 3)];
    if socket::send(theirs.as_fd(), &[bytes], &fds, false).is_ok() {
        let _ = passing::receive(&ours, Some(Arena::global()));
    }
}

/// A worker whose memory the input owns.
struct Hostile {
    id: u64,
    end: Option<WorkerEnd>,
    lane: Arc<Mapping>,
    page: Arc<Mapping>,
    socket: OwnedFd,
    started: u64,
}

/// An engine and one worker at a time, which does what the input says: sound steps, records of any kind, numbers in any
/// shared word, packets in its socket. Whatever it does, the engine neither panics nor waits, and in the end every task
/// has ended. Each step of the program is three bytes.
pub fn lane(program: &[u8]) {
    let mut now = Instant::now();
    clock::set(now);
    let (near, zygote) = Zygote::simulated().expect("a socket");
    let spawn = Spawn {
        source: Source::Zygote(ZygoteCommand {
            program: "simulated".into(),
            args: Vec::new(),
            env: Vec::new(),
        }),
        spec: Arc::from(&b""[..]),
        segments: Vec::new(),
        blocks: Vec::new(),
        handed: std::sync::Arc::default(),
    };
    let config = Config {
        name: "fuzzed".into(),
        workers: 1,
        threads: 1,
        capacity: None,
        overflow: Overflow::Error,
        on_crash: OnCrash::Replace,
        grace: Duration::from_millis(20),
        ..Config::default()
    };
    let engine = ProcessPool::simulated(config, spawn, near).expect("started");
    let function = engine.function("f", Payload::default());
    engine.serve_calls();
    let mut worker = None;
    let mut tasks: Vec<Arc<Task>> = Vec::new();
    for step in program.chunks_exact(3).take(200) {
        if worker.is_none() {
            worker = fork(&engine, &zygote);
        }
        let (what, a, b) = (step[0] % 14, step[1], step[2]);
        match (what, worker.as_mut()) {
            (0 | 1, _) => tasks.extend(submit(&engine, &function, what == 1, a)),
            (2, _) => {
                if let Some(task) = tasks.get(usize::from(a)) {
                    engine.cancel(task, b % 2 == 1);
                }
            }
            (3, _) => {
                now += Duration::from_millis(u64::from(a));
                clock::set(now);
                let _ = engine.look_after(now);
            }
            (4, _) => {
                engine.catch_up();
                if let Some(call) = engine.next_call(now) {
                    let _ = engine.answer_call(&call, &Payload::refusal());
                }
            }
            (12, _) => {
                if let Some(task) = tasks.get(usize::from(a) % tasks.len().max(1)) {
                    read(task);
                }
            }
            (13, _) => {
                if let Some(task) = tasks.get(usize::from(a) % tasks.len().max(1)) {
                    drop(if b % 2 == 0 { engine.leave_stream(task) } else { Items::default() });
                    engine.ask_to_stop(task);
                    let _ = engine.progress(task);
                }
            }
            (5, Some(_)) => end(&engine, &mut worker, i32::from(a)),
            (_, Some(worker)) => worker.step(what, a, b),
            (_, None) => {}
        }
        if worker.as_ref().is_some_and(|worker| engine.killed_workers().contains(&worker.id)) {
            end(&engine, &mut worker, 9);
        }
    }
    engine.close(true);
    // Workers that die as soon as they are there end the pool, one way or the other.
    for _ in 0..64 {
        end(&engine, &mut worker, 9);
        worker = fork(&engine, &zygote);
        now += Duration::from_secs(1);
        clock::set(now);
        let _ = engine.look_after(now);
    }
    assert!(engine.has_ended() || engine.broken().is_some(), "the pool does not end");
    assert!(tasks.iter().all(|task| task.is_done()), "a task has no end");
    clock::unset();
}

fn fork(engine: &Arc<ProcessPool>, zygote: &OwnedFd) -> Option<Hostile> {
    let Ok(Request::Spawn(id, given)) = read_request(zygote) else { return None };
    let (socket, page, event) = (given.socket, given.control, given.event);
    let lane = given.lanes.into_iter().next()?;
    let map =
        |fd: &OwnedFd, size| Arc::new(Mapping::map(fd.as_fd(), size, Protection::ReadWrite).expect("mapped"));
    let (lane_map, page_map) = (map(&lane, LaneLayout::DEFAULT.size()), map(&page, control::SIZE));
    let control = Control::attach(page, event).expect("a control page");
    let end = WorkerEnd::attach(lane, control).ok();
    let pidfd = Arc::new(zygote.try_clone().expect("a descriptor that is no process"));
    engine.worker_spawned(id, 1, Some(&pidfd));
    Some(Hostile { id, end, lane: lane_map, page: page_map, socket, started: 0 })
}

fn end(engine: &Arc<ProcessPool>, worker: &mut Option<Hostile>, status: i32) {
    if let Some(worker) = worker.take() {
        engine.worker_gone(worker.id, Some(status));
    }
}

fn submit(
    engine: &Arc<ProcessPool>,
    function: &Arc<Function>,
    leased: bool,
    length: u8,
) -> Option<Arc<Task>> {
    let bytes = vec![length; 8 + usize::from(length) * 16];
    let payload = if leased {
        let lease = Arc::new(Arena::global().put_parts(&[&bytes]).expect("room"));
        let (offset, length) = *lease.ranges().first()?;
        let (segment, generation) = (lease.segment().id(), lease.generation());
        Payload {
            flags: flags::DESCRIBED | flags::LEASED,
            bytes: table::write(
                lease.id(),
                &[Part::Placed(Entry { segment, generation, offset, length })],
                &[],
            ),
            ..Beside { segments: vec![Arc::clone(lease.segment())], lease: Some(lease), ..Beside::default() }
                .into()
        }
    } else {
        Payload { bytes, ..Payload::default() }
    };
    let call = Call::remote(Arc::clone(function), payload);
    let stream = u32::from(length / 64);
    let options = Options { retries: u32::from(length % 3), stream, ..Options::default() };
    engine.submit(call, 0, options, true).ok()
}

/// Reads what has come of a task's stream, and says so.
fn read(task: &Task) {
    let (mut items, mut read) = (Items::default(), Credit::default());
    let Some(stream) = task.stream() else { return };
    if stream.take(&mut items) {
        while let Some((_, cost)) = items.take_next() {
            (read.items, read.bytes) = (read.items + 1, read.bytes.saturating_add(cost));
        }
    }
    stream.say_read(task.id, read);
}

fn store(map: &Arc<Mapping>, word: usize, value: u64) {
    if let Ok(word) = Words::<AtomicU64>::new(map, word * 8) {
        word.store(value, Ordering::Relaxed);
    }
}

impl Hostile {
    fn step(&mut self, what: u8, a: u8, b: u8) {
        let value = match b % 4 {
            0 => u64::from(b) * 8,
            1 => u64::MAX,
            2 => u64::from(b) << (b / 32 * 8),
            _ => u64::from(b),
        };
        match what {
            // The words of both rings stand at the start of each, a cache line for one.
            6 => store(
                &self.lane,
                usize::from(a % 4) * 8 + usize::from(a / 128) * (LaneLayout::DEFAULT.results_at() / 8),
                value,
            ),
            7 => store(
                &self.lane,
                usize::from(a) + usize::from(b / 128) * (LaneLayout::DEFAULT.results_at() / 8),
                value,
            ),
            8 => store(&self.page, usize::from(a) % 64, value),
            9 => {
                let mut packet = [0; 32];
                packet[0] = a % 5;
                packet[8] = b;
                let fds = if a > 127 { vec![self.socket.as_fd()] } else { Vec::new() };
                let _ = socket::send(self.socket.as_fd(), &[&packet], &fds, false);
            }
            _ => self.say(a, b),
        }
    }

    fn say(&mut self, a: u8, b: u8) {
        let Some(end) = self.end.as_mut() else { return };
        match a % 9 {
            8 => {
                let _ = end.try_call(self.started, u16::from(b) & 2, &[b; 20]);
            }
            6 => {
                let _ = end.try_item(self.started, b % 9, u16::from(b) & 2, &[b; 20]);
            }
            7 => {
                let _ = end.try_reply(kind::PROGRESS, 0, self.started, u64::from(b) << 54, &[&[b; 20]]);
            }
            0 => {
                let _ = end.try_reply(kind::READY, flags::EMPTY, 0, u64::from(b), &[]);
            }
            1 => match end.try_next() {
                Ok(Some(record)) => {
                    self.started = record.id;
                    end.finish();
                }
                Ok(None) => {}
                Err(_) => self.end = None,
            },
            2 => {
                let _ = end.try_reply(kind::DONE, u16::from(b) & 0x4E, self.started, 1, &[&[b; 40]]);
            }
            3 => {
                let entry = Entry {
                    segment: u64::from(b),
                    generation: 1,
                    offset: u64::from(a),
                    length: u64::from(b),
                };
                let table = table::write(0, &[Part::Placed(entry), Part::Inline(&[b; 9])], &[entry]);
                let _ = end.try_reply(kind::DONE, flags::DESCRIBED, self.started, 1, &[&table]);
            }
            4 => {
                let _ = end.try_reply(kind::RELEASE, flags::EMPTY, u64::from(b), u64::from(a), &[]);
            }
            _ => {
                let _ = end.try_reply(u16::from(b), u16::from(a), self.started, u64::from(b), &[&[a; 24]]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The targets with few inputs, so that they hold without a fuzzer too.
    #[test]
    fn few_programs_of_a_hostile_worker_end() {
        let mut state = 1_u64;
        let mut byte = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        for _ in 0..150 {
            let program: Vec<u8> = (0..300).map(|_| byte()).collect();
            lane(&program);
            passed(&program);
            zygote_message(&program);
        }
    }
}
