//! Many threads at once: no message is lost, no thread sleeps on, and everything ends. Each wait has a deadline.

use std::collections::HashMap;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use ropewalk_messaging::SocketType::{self, *};
use ropewalk_messaging::{
    Context, Error, Events, Frame, PollItem, PollWoken, Socket, Target, Value, errno, option, poll,
};
use ropewalk_os::poll::{Polled, READ, poll as poll_fds};

const PATIENCE: Duration = Duration::from_secs(30);

fn soon() -> Option<Instant> {
    Some(Instant::now() + PATIENCE)
}

fn bound(context: &Context, kind: SocketType, endpoint: &str) -> (Socket, String) {
    let socket = context.socket(kind).expect("a socket");
    socket.bind(endpoint).expect("bound");
    match socket.get(option::LAST_ENDPOINT) {
        Ok(Value::Bytes(bytes)) => (socket, String::from_utf8(bytes).expect("text")),
        other => panic!("no endpoint: {other:?}"),
    }
}

fn connected(context: &Context, kind: SocketType, endpoint: &str) -> Socket {
    let socket = context.socket(kind).expect("a socket");
    socket.connect(endpoint).expect("connected");
    socket
}

fn message(peer: u32, number: u32) -> Frame {
    let mut bytes = peer.to_le_bytes().to_vec();
    bytes.extend_from_slice(&number.to_le_bytes());
    // Now and then one that does not fit a frame's own room, or a write.
    bytes.resize(if number.is_multiple_of(97) { 20_000 } else { 8 }, 0);
    Frame::copy_of(&bytes)
}

fn parse(frame: &Frame) -> (u32, u32) {
    let word = |at: usize| u32::from_le_bytes(frame.bytes()[at..at + 4].try_into().expect("four bytes"));
    (word(0), word(4))
}

fn push(socket: &Socket, peer: u32, numbers: std::ops::Range<u32>) {
    for number in numbers {
        socket.send(&message(peer, number), false, soon()).expect("sent");
    }
}

/// Counts what comes from each peer, in order.
#[derive(Default)]
struct Ledger {
    next: HashMap<u32, u32>,
    total: u32,
}

impl Ledger {
    fn note(&mut self, frame: &Frame) {
        let (peer, number) = parse(frame);
        let next = self.next.entry(peer).or_default();
        assert_eq!(*next, number, "the order of peer {peer}");
        *next += 1;
        self.total += 1;
    }
}

const ENDPOINTS: [&str; 4] = ["tcp://127.0.0.1:*", "ipc://*", "shm://*", "inproc://stress"];

#[test]
fn nothing_is_lost_while_peers_come_and_go() {
    const STEADY: u32 = 6_000;
    const BRIEF: u32 = 200;
    const GUESTS: u32 = 8;
    for endpoint in ENDPOINTS {
        let context = Context::new();
        let (pull, address) = bound(&context, Pull, endpoint);
        let receiver = thread::spawn(move || {
            let mut ledger = Ledger::default();
            while ledger.total < STEADY + GUESTS * BRIEF {
                ledger.note(&pull.recv(soon()).expect("received"));
            }
            assert_eq!(pull.try_recv().map(drop), Err(Error::again()));
            pull.close(None);
        });
        let host = connected(&context, Push, &address);
        let sender = thread::spawn(move || {
            push(&host, 0, 0..STEADY);
            host.close(None);
        });
        for guest in 1..=GUESTS {
            let socket = connected(&context, Push, &address);
            push(&socket, guest, 0..BRIEF);
            socket.close(None);
        }
        sender.join().expect("sent");
        receiver.join().expect("received");
        assert!(context.term(PATIENCE), "{endpoint}: sockets linger");
    }
}

#[test]
fn many_short_conversations_end() {
    for endpoint in ENDPOINTS {
        let context = Context::new();
        let (rep, address) = bound(&context, Rep, endpoint);
        const ROUNDS: u32 = 1_500;
        const ASKERS: u32 = 2;
        let server = thread::spawn(move || {
            for _ in 0..ROUNDS * ASKERS {
                let request = rep.recv(soon()).expect("asked");
                rep.send(&request, false, soon()).expect("answered");
            }
            rep.close(None);
        });
        let askers: Vec<_> = (0..ASKERS)
            .map(|asker| {
                let (context, address) = (context.clone(), address.clone());
                thread::spawn(move || {
                    let mut req = connected(&context, Req, &address);
                    for number in 0..ROUNDS {
                        if number % 500 == 499 {
                            req.close(None);
                            req = connected(&context, Req, &address);
                        }
                        req.send(&message(asker, number), false, soon()).expect("asked");
                        assert_eq!(parse(&req.recv(soon()).expect("answered")), (asker, number));
                    }
                    req.close(None);
                })
            })
            .collect();
        for asker in askers {
            asker.join().expect("asked");
        }
        server.join().expect("answered");
        assert!(context.term(PATIENCE), "{endpoint}: sockets linger");
    }
}

/// On one core nobody spins, and whoever is woken waits for the other's time slice.
#[test]
fn many_short_conversations_end_on_one_core() {
    let status = std::fs::read_to_string("/proc/self/status").expect("a process has a status");
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or("0");
    let first: String = allowed.trim().chars().take_while(char::is_ascii_digit).collect();
    let again = std::env::current_exe().expect("a test has a program");
    let ran = Command::new("taskset")
        .args(["-c", &first])
        .arg(again)
        .args(["--exact", "many_short_conversations_end"])
        .output();
    // Where there is no taskset, the test above is all there is.
    if let Ok(ran) = ran {
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
    }
}

#[test]
fn a_poller_hears_of_each_of_its_sockets() {
    const EACH: u32 = 2_000;
    let context = Context::new();
    let (mut pulls, mut senders) = (Vec::new(), Vec::new());
    for (peer, endpoint) in (0..).zip([ENDPOINTS[0], ENDPOINTS[1], ENDPOINTS[2], "inproc://more"]) {
        let (pull, address) = bound(&context, Pull, endpoint);
        pulls.push(pull);
        let socket = connected(&context, Push, &address);
        senders.push(thread::spawn(move || {
            for number in 0..EACH {
                push(&socket, peer, number..number + 1);
                // The poller is to fall asleep now and then.
                if number.is_multiple_of(64) {
                    thread::yield_now();
                }
            }
            socket.close(None);
        }));
    }
    let mut ledger = Ledger::default();
    while ledger.total < EACH * 4 {
        let mut items: Vec<_> = pulls
            .iter()
            .map(|pull| PollItem {
                target: Target::Socket(pull),
                events: Events::READ,
                revents: Events::NONE,
            })
            .collect();
        let PollWoken::Ready(_) = poll(&mut items, soon()).expect("polled") else {
            panic!("{} of {} have come", ledger.total, EACH * 4);
        };
        let ready: Vec<_> = items.iter().map(|item| item.revents.has(Events::READ)).collect();
        for (pull, _) in pulls.iter().zip(ready).filter(|(_, is_ready)| *is_ready) {
            // One each: what is left must be heard of again.
            ledger.note(&pull.try_recv().expect("it was ready"));
        }
    }
    for sender in senders {
        sender.join().expect("sent");
    }
    for pull in pulls {
        pull.close(None);
    }
    assert!(context.term(PATIENCE));
}

#[test]
fn a_watcher_of_the_descriptor_misses_nothing() {
    const ALL: u32 = 8_000;
    for endpoint in ENDPOINTS {
        let context = Context::new();
        let (pull, address) = bound(&context, Pull, endpoint);
        let socket = connected(&context, Push, &address);
        let sender = thread::spawn(move || {
            for number in 0..ALL {
                push(&socket, 0, number..number + 1);
                if number % 7 == 0 {
                    thread::yield_now();
                }
            }
            socket.close(None);
        });
        let fd = pull.fd().expect("a descriptor");
        let mut ledger = Ledger::default();
        while ledger.total < ALL {
            let woken = poll_fds(&mut [Polled::new(fd, READ)], Some(PATIENCE)).expect("polled");
            assert_eq!(woken, 1, "{endpoint}: {} of {ALL} have come", ledger.total);
            while pull.events().expect("open").has(Events::READ) {
                ledger.note(&pull.try_recv_hot().expect("it was there"));
            }
        }
        sender.join().expect("sent");
        pull.close(None);
        assert!(context.term(PATIENCE));
    }
}

/// A batch is read by one thread, and is for all of them.
#[test]
fn threads_that_share_a_socket_leave_nothing_to_each_other() {
    const ALL: u32 = 6_000;
    const THREADS: u32 = 3;
    for endpoint in ENDPOINTS {
        let context = Context::new();
        let (gather, address) = bound(&context, Gather, endpoint);
        let receivers: Vec<_> = (0..THREADS)
            .map(|_| {
                let gather = gather.clone();
                thread::spawn(move || {
                    let mut count = 0;
                    while parse(&gather.recv(soon()).expect("received")).0 == 0 {
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        let scatter = connected(&context, Scatter, &address);
        // In bursts, each of which one read may take whole.
        for number in 0..ALL {
            push(&scatter, 0, number..number + 1);
            if number.is_multiple_of(50) {
                thread::sleep(Duration::from_micros(200));
            }
        }
        push(&scatter, 1, 0..THREADS);
        let counts: Vec<u32> =
            receivers.into_iter().map(|receiver| receiver.join().expect("received")).collect();
        assert_eq!(counts.iter().sum::<u32>(), ALL, "{endpoint}");
        scatter.close(None);
        gather.close(None);
        assert!(context.term(PATIENCE));
    }
}

#[test]
fn a_close_or_the_end_of_the_context_ends_every_call() {
    for round in 0..12 {
        let context = Context::new();
        let (gather, address) = bound(&context, Gather, ENDPOINTS[round % 3]);
        let (pull, other) =
            bound(&context, Pull, if round % 2 == 0 { ENDPOINTS[0] } else { "inproc://other" });
        let scatter = connected(&context, Scatter, &address);
        let pusher = connected(&context, Push, &other);
        let ends =
            |error: Error| assert!([errno::ETERM, errno::ENOTSOCK].contains(&error.errno()), "{error}");
        let mut threads = Vec::new();
        for _ in 0..2 {
            let socket = gather.clone();
            threads.push(thread::spawn(move || {
                loop {
                    if let Err(error) = socket.recv(soon()) {
                        return ends(error);
                    }
                }
            }));
        }
        for socket in [scatter.clone(), pusher.clone()] {
            threads.push(thread::spawn(move || {
                loop {
                    if let Err(error) = socket.send(&message(0, 1), false, soon()) {
                        return ends(error);
                    }
                }
            }));
        }
        let polled = [pull.clone(), gather.clone()];
        threads.push(thread::spawn(move || {
            loop {
                let mut items = polled.each_ref().map(|socket| PollItem {
                    target: Target::Socket(socket),
                    events: Events::READ,
                    revents: Events::NONE,
                });
                match poll(&mut items, soon()) {
                    Ok(woken) => assert_ne!(woken, PollWoken::TimedOut),
                    Err(error) => return ends(error),
                }
                let _ = polled[0].try_recv();
            }
        }));
        thread::sleep(Duration::from_millis(5));
        if round % 4 < 2 {
            context.shutdown();
        }
        for socket in [&gather, &pull, &scatter, &pusher] {
            socket.close(Some(0));
        }
        for thread in threads {
            thread.join().expect("it ended");
        }
        assert!(context.term(PATIENCE), "sockets linger");
    }
}
