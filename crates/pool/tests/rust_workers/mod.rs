//! Worker processes in pure Rust: the test binary is its own zygote.
//!
//! A worker runs the function named by its task's payload: `echo` the rest, `kill` itself by a signal, `nap` for some
//! milliseconds, `exit` with a status; or it misbehaves, which `hostile.rs` is about: see [`Hostile`].

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ropewalk_os::mmap::{Mapping, Protection};
use ropewalk_os::socket;
use ropewalk_pool::wire::kind;
use ropewalk_pool::worker::WorkerEnd;
use ropewalk_pool::zygote::server;
use ropewalk_pool::{
    Call, Config, Control, Engine, Function, LaneLayout, OnCrash, Options, Outcome, Overflow, Payload,
    Refused, Source, Spawn, Task, WaitFor, Waited, ZygoteCommand, control,
};
use ropewalk_shm::memory::Words;

const ZYGOTE: &str = "ROPEWALK_TEST_ZYGOTE";

/// The main function of a zygote; the test binary calls it from a test named `zygote_main`.
pub(crate) fn zygote_main() {
    let Ok(forks) = std::env::var(ZYGOTE) else { return };
    let mut left: usize = forks.parse().expect("a number");
    // SAFETY: the engine made the socket our descriptor 0, which nothing else here uses.
    let socket = unsafe { OwnedFd::from_raw_fd(0) };
    server::hello(&socket, &[]).expect("the parent is there");
    // SAFETY: the child goes on in this thread alone and needs nothing of the harness's others.
    let mut fork = |_: &server::Spawned| unsafe {
        if left == 0 {
            return Err(std::io::Error::from_raw_os_error(11));
        }
        left -= 1;
        ropewalk_os::process::fork()
    };
    // The parent is gone if it fails.
    match server::serve(socket, &mut fork).unwrap_or(None) {
        None => ropewalk_os::process::exit_now(0),
        Some(spawned) => {
            ropewalk_os::process::set_parent_death_signal(9).expect("asked");
            let lane = spawned.lanes.into_iter().next().expect("a lane");
            let hostile = Hostile {
                lane: map(&lane, LaneLayout::DEFAULT.size()),
                control: map(&spawned.control, control::SIZE),
                socket: spawned.socket,
            };
            let control = Control::attach(spawned.control, spawned.event).expect("a control page");
            work(WorkerEnd::attach(lane, control).expect("a lane"), &hostile);
            ropewalk_os::process::exit_now(0);
        }
    }
}

fn map(fd: &OwnedFd, size: usize) -> Arc<Mapping> {
    Arc::new(Mapping::map(fd.as_fd(), size, Protection::ReadWrite).expect("mapped"))
}

/// What a worker can write to beside its answers.
pub(crate) struct Hostile {
    lane: Arc<Mapping>,
    control: Arc<Mapping>,
    socket: OwnedFd,
}

impl Hostile {
    /// `poke PAGE OFFSET VALUE`: writes a word into the lane or the control page.
    fn poke(&self, rest: &str) {
        let mut words = rest.split(' ');
        let page = if words.next() == Some("control") { &self.control } else { &self.lane };
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok()).expect("a number");
        let (offset, value) = (number() as usize, number());
        let word = Words::<AtomicU64>::new(page, offset).expect("a word of the page");
        word.store(value, Ordering::SeqCst);
    }

    /// `post HEX COUNT`: sends these bytes over the worker's socket, with this many descriptors, of no segment.
    fn post(&self, rest: &str) {
        let (hex, count) = rest.split_once(' ').expect("bytes and a number");
        let fds = vec![self.socket.as_fd(); count.parse().expect("a number")];
        let _ = socket::send(self.socket.as_fd(), &[&unhex(hex)], &fds, false);
    }
}

/// Bytes from hexadecimal digits; `-` is none.
pub(crate) fn unhex(hex: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(hex.get(at..at + 2).unwrap_or("0"), 16).unwrap_or(0);
    if hex == "-" { Vec::new() } else { (0..hex.len()).step_by(2).map(digit).collect() }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    if bytes.is_empty() { "-".into() } else { bytes.iter().map(|byte| format!("{byte:02x}")).collect() }
}

fn work(mut end: WorkerEnd, hostile: &Hostile) {
    end.ready().expect("said");
    loop {
        // A worker that has made its own ring senseless leaves.
        let Ok(next) = end.try_next() else { ropewalk_os::process::exit_now(9) };
        let Some(record) = next else {
            end.wait(None);
            continue;
        };
        let text = String::from_utf8_lossy(end.payload()).into_owned();
        end.finish();
        match record.kind {
            kind::TASK => {}
            kind::EXIT => return,
            _ => continue,
        }
        let (verb, rest) = text.split_once(' ').unwrap_or((&text, ""));
        if verb == "prepare" {
            std::thread::sleep(Duration::from_millis(rest.parse().expect("milliseconds")));
        }
        end.begin(record.id);
        let start = Instant::now();
        match verb {
            "nap" => std::thread::sleep(Duration::from_millis(rest.parse().expect("milliseconds"))),
            "exit" => ropewalk_os::process::exit_now(rest.parse().expect("a status")),
            "kill" => std::process::abort(),
            "poke" => hostile.poke(rest),
            // The parent sleeps by then.
            "late" => {
                std::thread::sleep(Duration::from_millis(60));
                hostile.poke(rest);
            }
            // And stays in the task, so that nothing honest is written over it.
            "stay" => {
                hostile.poke(rest);
                std::thread::sleep(Duration::from_secs(20));
            }
            "post" => hostile.post(rest),
            "fds" => {
                let open = ropewalk_os::limits::open_now().expect("/proc is there");
                let text = format!("{open} {}", hostile.socket.as_raw_fd());
                end.reply(kind::DONE, 0, record.id, 0, &[text.as_bytes()]).expect("answered");
                continue;
            }
            // `say KIND FLAGS ID AUX HEX`: a record of the test's making, before the honest answer.
            "say" => {
                let words: Vec<&str> = rest.split(' ').collect();
                let number = |at: usize| words[at].parse::<u64>().expect("a number");
                let id = if words[2] == "own" { record.id } else { number(2) };
                let payload = unhex(words[4]);
                end.reply(number(0) as u16, number(1) as u16, id, number(3), &[&payload]).expect("said");
            }
            _ => {}
        }
        let busy = start.elapsed().as_nanos() as u64;
        end.reply(kind::DONE, 0, record.id, busy, &[rest.as_bytes()]).expect("answered");
    }
}

pub(crate) fn config(workers: usize) -> Config {
    Config {
        name: "engine".into(),
        workers,
        threads: 1,
        capacity: None,
        overflow: Overflow::Block,
        on_crash: OnCrash::Replace,
        grace: Duration::from_secs(1),
        ..Config::default()
    }
}

/// A zygote that can fork so often, and then gets the error that the limit of processes is reached.
fn spawn(forks: usize) -> Spawn {
    let program = std::env::current_exe().expect("this binary");
    let args = ["--exact", "zygote_main", "--nocapture", "--test-threads=1"];
    Spawn {
        handed: Arc::default(),
        source: Source::Zygote(ZygoteCommand {
            program: program.into(),
            args: args.iter().map(Into::into).collect(),
            env: vec![(ZYGOTE.into(), Some(forks.to_string().into()))],
        }),
        spec: Arc::from(&b""[..]),
        segments: Vec::new(),
        blocks: Vec::new(),
    }
}

pub(crate) struct Pool {
    pub(crate) engine: Engine,
    pub(crate) function: Arc<Function>,
}

impl Pool {
    pub(crate) fn new(config: Config) -> Self {
        Self::of_forks(config, usize::MAX)
    }

    /// A pool whose zygote can fork so often.
    pub(crate) fn of_forks(config: Config, forks: usize) -> Self {
        let engine = Engine::of_processes(config, spawn(forks)).expect("started");
        let function = engine.function("f", Payload::default());
        Self { engine, function }
    }

    pub(crate) fn try_submit(&self, text: &str, options: Options) -> Result<Arc<Task>, Refused> {
        let payload = Payload { bytes: text.as_bytes().to_vec(), ..Payload::default() };
        let call = Call::remote(Arc::clone(&self.function), payload);
        self.engine.submit(call, 0, options, true).map_err(|refused| refused.1)
    }

    pub(crate) fn submit(&self, text: &str) -> Arc<Task> {
        self.try_submit(text, Options::default()).expect("taken")
    }

    pub(crate) fn wait(&self, task: &Arc<Task>) {
        let deadline = Some(Instant::now() + Duration::from_secs(20));
        assert_eq!(self.engine.wait(&WaitFor::Task(Arc::clone(task)), deadline), Waited::Ready);
    }

    pub(crate) fn text(&self, task: &Arc<Task>) -> String {
        self.wait(task);
        match task.outcome() {
            Some(Outcome::Replied(reply)) => String::from_utf8_lossy(&reply.bytes).into_owned(),
            other => panic!("not an answer: {other:?}"),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.engine.close(true);
        let deadline = Some(Instant::now() + Duration::from_secs(20));
        assert_eq!(self.engine.join(deadline), Waited::Ready, "the workers have left");
    }
}
