//! What asks the kernel for the bytes of many connections: epoll, or io_uring in two ways. No ZeroMQ; a server that
//! sends back what it gets, and clients that spin, so that only the server's driver differs. The server pins to one
//! core and sleeps when there is nothing.
//!
//! `drivers drivers driver=epoll|sends|multishot ends=64 count=200000` prints the round trips each second, and the
//! server's processor time for each, in µs.

use std::io::{ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::Instant;

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use ropewalk_messaging_bench::{Outcome, Place, Side, allow_many_files, settle};

/// Bytes of a message: 64, and a frame's header.
const SIZE: usize = 66;
/// Ready connections that one look tells, and submissions that one call makes.
const BATCH: usize = 1024;
/// Provided buffers, and the bytes of each. A client has one message in flight.
const BUFFERS: u16 = 1024;
const BUFFER: usize = 4096;
/// Marks the completion of a send; below it is the buffer that was sent.
const SENT: u64 = 1 << 32;

fn checked(result: libc::c_int) -> Outcome<usize> {
    usize::try_from(result).map_err(|_| std::io::Error::last_os_error().into())
}

/// A set of all these, each with its place as its token.
fn set_of(streams: &[TcpStream]) -> Outcome<libc::c_int> {
    // SAFETY: it has no conditions. The set lives as long as the program.
    let set = checked(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })? as libc::c_int;
    for (place, stream) in streams.iter().enumerate() {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: place as u64 };
        // SAFETY: both descriptors are open, and the event is live.
        checked(unsafe { libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, stream.as_raw_fd(), &raw mut event) })?;
    }
    Ok(set)
}

/// Waits, and gives the places of those that can be read.
fn ready(set: libc::c_int, places: &mut Vec<usize>) -> Outcome<()> {
    let mut events = [const { MaybeUninit::<libc::epoll_event>::uninit() }; BATCH];
    // SAFETY: there is room for as many events as said.
    let got = unsafe { libc::epoll_wait(set, events.as_mut_ptr().cast(), BATCH as libc::c_int, -1) };
    let got = checked(got)?;
    places.clear();
    // SAFETY: the kernel has written so many.
    places.extend(events[..got].iter().map(|event| unsafe { event.assume_init_ref() }.u64 as usize));
    Ok(())
}

/// One wait for all that is ready; then a read and a write for each.
fn epoll(streams: &[TcpStream], mut left: usize) -> Outcome<()> {
    let (set, mut places, mut room) = (set_of(streams)?, Vec::new(), vec![0; BUFFER]);
    while left > 0 {
        ready(set, &mut places)?;
        for &place in &places {
            let mut stream = &streams[place];
            let got = stream.read(&mut room)?;
            stream.write_all(&room[..got])?;
            left -= got;
        }
    }
    Ok(())
}

/// As [`epoll`], but all writes of one look are one submission.
fn sends(streams: &[TcpStream], mut left: usize) -> Outcome<()> {
    let (set, mut places) = (set_of(streams)?, Vec::new());
    let mut rooms = vec![[0_u8; SIZE]; BATCH];
    let mut ring: IoUring = IoUring::builder().setup_coop_taskrun().build(BATCH as u32)?;
    while left > 0 {
        ready(set, &mut places)?;
        for (&place, room) in places.iter().zip(&mut rooms) {
            let mut stream = &streams[place];
            let got = stream.read(room)?;
            let fd = types::Fd(stream.as_raw_fd());
            let send = opcode::Send::new(fd, room.as_ptr(), got as u32).flags(libc::MSG_NOSIGNAL);
            // SAFETY: the room is not touched before the send has ended, which is waited for below.
            unsafe { ring.submission().push(&send.build()) }?;
            left -= got;
        }
        ring.submit_and_wait(places.len())?;
        if ring.completion().any(|ended| ended.result() <= 0) {
            return Err("a send failed, or took a part".into());
        }
    }
    Ok(())
}

/// A ring of buffers from which the kernel takes where a receive finds bytes.
struct Provided {
    entries: *mut types::BufRingEntry,
    /// Never given back: the kernel may write there for as long as there is a ring.
    bytes: *mut u8,
    tail: u16,
}

impl Provided {
    fn register(ring: &IoUring) -> Outcome<Self> {
        let length = usize::from(BUFFERS) * size_of::<types::BufRingEntry>();
        // SAFETY: memory at an address of the system's choice; it is never given back.
        let entries = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0)
        };
        if entries == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error().into());
        }
        // SAFETY: the memory is there for as long as the program.
        unsafe { ring.submitter().register_buf_ring_with_flags(entries as u64, BUFFERS, 0, 0) }?;
        let bytes = vec![0; usize::from(BUFFERS) * BUFFER].leak().as_mut_ptr();
        let mut provided = Self { entries: entries.cast(), bytes, tail: 0 };
        (0..BUFFERS).for_each(|number| provided.give(number));
        Ok(provided)
    }

    fn start(&self, number: u16) -> *const u8 {
        self.bytes.wrapping_add(usize::from(number) * BUFFER)
    }

    /// The kernel may use it again.
    fn give(&mut self, number: u16) {
        let start = self.start(number) as u64;
        // SAFETY: the ring has `BUFFERS` entries, and the kernel reads none beyond the tail, which is an aligned u16 in
        // the first entry.
        unsafe {
            let entry = &mut *self.entries.add(usize::from(self.tail % BUFFERS));
            entry.set_addr(start);
            entry.set_len(BUFFER as u32);
            entry.set_bid(number);
            self.tail = self.tail.wrapping_add(1);
            let tail = &*types::BufRingEntry::tail(self.entries).cast::<AtomicU16>();
            tail.store(self.tail, Ordering::Release);
        }
    }
}

fn push(ring: &mut IoUring, entry: &squeue::Entry) -> Outcome<()> {
    // SAFETY: the buffers are those of `Provided`, which are there for as long as the program.
    if unsafe { ring.submission().push(entry) }.is_err() {
        ring.submit()?;
        // SAFETY: as above.
        unsafe { ring.submission().push(entry) }?;
    }
    Ok(())
}

/// A receive for each connection that goes on and on into provided buffers, and sends from them; one call submits
/// what there is and waits for more.
fn multishot(streams: &[TcpStream], mut left: usize) -> Outcome<()> {
    let mut ring: IoUring = IoUring::builder()
        .setup_cqsize(8 * BATCH as u32)
        .setup_single_issuer()
        .setup_defer_taskrun()
        .build(BATCH as u32)?;
    let fds: Vec<_> = streams.iter().map(AsRawFd::as_raw_fd).collect();
    ring.submitter().register_files(&fds)?;
    let mut provided = Provided::register(&ring)?;
    let receive = |place: u64| opcode::RecvMulti::new(types::Fixed(place as u32), 0).build().user_data(place);
    for place in 0..fds.len() as u64 {
        push(&mut ring, &receive(place))?;
    }
    let mut ended = Vec::new();
    while left > 0 {
        ring.submit_and_wait(1)?;
        ended.extend(ring.completion());
        for entry in ended.drain(..) {
            let (token, result, flags) = (entry.user_data(), entry.result(), entry.flags());
            if token >= SENT {
                if result != SIZE as i32 {
                    return Err("a send failed, or took a part".into());
                }
                provided.give((token - SENT) as u16);
                left -= SIZE;
                continue;
            }
            match (cqueue::buffer_select(flags), result) {
                (Some(number), 1..) => {
                    let (fd, length) = (types::Fixed(token as u32), result as u32);
                    let send = opcode::Send::new(fd, provided.start(number), length);
                    push(&mut ring, &send.build().user_data(SENT | u64::from(number)))?;
                }
                (None, error) if error == -libc::ENOBUFS => {}
                _ => return Err("a receive failed".into()),
            }
            if !cqueue::more(flags) {
                push(&mut ring, &receive(token))?;
            }
        }
    }
    Ok(())
}

/// This thread's processor time, in µs.
fn spent() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a time of this frame.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// All clients: each has one message in flight, and they are served in turn. Gives the rate behind the warm-up.
fn clients(streams: &[TcpStream], turns: usize, warm: usize) -> Outcome<f64> {
    let mut room = [7; SIZE];
    for mut stream in streams {
        stream.write_all(&room)?;
    }
    let mut began = Instant::now();
    for turn in 1..=warm + turns {
        for mut stream in streams {
            let mut got = 0;
            while got < SIZE {
                match stream.read(&mut room[got..]) {
                    Ok(0) => return Err("the server is gone".into()),
                    Ok(more) => got += more,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
                    Err(error) => return Err(error.into()),
                }
            }
            if turn < warm + turns {
                stream.write_all(&room)?;
            }
        }
        if turn == warm {
            began = Instant::now();
        }
    }
    Ok((turns * streams.len()) as f64 / began.elapsed().as_secs_f64())
}

fn play() -> Outcome<(f64, f64)> {
    let (mut driver, mut ends, mut count) = (String::from("epoll"), 64_usize, 200_000_usize);
    for argument in std::env::args().skip(2) {
        match argument.split_once('=') {
            Some(("driver", name)) => name.clone_into(&mut driver),
            Some(("ends", number)) => ends = number.parse()?,
            Some(("count", number)) => count = number.parse()?,
            _ => return Err(format!("no such argument: {argument}").into()),
        }
    }
    let serve = match driver.as_str() {
        "epoll" => epoll,
        "sends" => sends,
        "multishot" => multishot,
        _ => return Err(format!("no such driver: {driver}").into()),
    };
    allow_many_files()?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ends {
        let client = TcpStream::connect(listener.local_addr()?)?;
        let (server, _) = listener.accept()?;
        for stream in [&client, &server] {
            stream.set_nodelay(true)?;
        }
        client.set_nonblocking(true)?;
        theirs.push(client);
        ours.push(server);
    }
    let turns = (count / ends).max(1);
    let warm = turns.div_ceil(10);
    let trips = (warm + turns) * ends;
    let server = thread::spawn(move || {
        settle(Place::Two, Side::Server)?;
        let before = spent();
        serve(&ours, trips * SIZE)?;
        Outcome::Ok((spent() - before) / trips as f64)
    });
    settle(Place::Two, Side::Client)?;
    let rate = clients(&theirs, turns, warm);
    let cpu = server.join().map_err(|_| "the server panicked")??;
    Ok((rate?, cpu))
}

fn main() {
    match play() {
        Ok((rate, cpu)) => println!("{{\"rate\": {rate}, \"cpu\": {cpu}}}"),
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(1);
        }
    }
}
