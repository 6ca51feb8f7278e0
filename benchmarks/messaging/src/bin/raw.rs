//! The floor: blocking sockets, a length before each message, no ZeroMQ.
//!
//! A pipeline collects 64 KiB for each write and reads as much at once. `ROPEWALK_BENCH_SPIN=1` asks the
//! socket again and again instead of sleeping; `ROPEWALK_BENCH_EPOLL=1` sleeps in an epoll set, as whoever has several
//! descriptors must.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use ropewalk_messaging_bench::{End, Kind, Link, Outcome, Peer, Transport, block, give_way};

/// How much is written and read at once.
const SLAB: usize = 64 << 10;
/// The bytes of a length.
const HEAD: usize = 4;

trait Stream: Read + Write + AsRawFd {}
impl<T: Read + Write + AsRawFd> Stream for T {}

struct Raw;

struct RawEnd {
    stream: Box<dyn Stream>,
    /// What it sleeps in, if that is not the read.
    set: Option<OwnedFd>,
    /// A pipeline's messages that are not written yet.
    outgoing: Vec<u8>,
    gathers: bool,
    incoming: Vec<u8>,
    start: usize,
    end: usize,
}

/// Asks until somebody is there, and lets the other end run, which may be in this thread.
async fn retried<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 0..1000 {
        if let Ok(stream) = attempt() {
            return Ok(stream);
        }
        give_way().await;
        std::thread::sleep(Duration::from_millis(1));
    }
    attempt()
}

fn spins() -> bool {
    std::env::var_os("ROPEWALK_BENCH_SPIN").is_some()
}

/// An epoll set with the stream in it, if the environment asks for one.
fn set(stream: &dyn Stream) -> io::Result<Option<OwnedFd>> {
    if std::env::var_os("ROPEWALK_BENCH_EPOLL").is_none() {
        return Ok(None);
    }
    // SAFETY: the call has no pointers.
    let set = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    if set < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was just made, and nobody else has it.
    let set = unsafe { OwnedFd::from_raw_fd(set) };
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
    // SAFETY: the event is of this frame, and the call copies it.
    let done =
        unsafe { libc::epoll_ctl(set.as_raw_fd(), libc::EPOLL_CTL_ADD, stream.as_raw_fd(), &mut event) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(Some(set)) }
}

async fn tcp(link: &Link) -> io::Result<TcpStream> {
    let stream = if link.bind {
        let listener = TcpListener::bind(&link.address)?;
        listener.set_nonblocking(true)?;
        retried(|| listener.accept()).await?.0
    } else {
        retried(|| TcpStream::connect(&link.address)).await?
    };
    stream.set_nodelay(true)?;
    stream.set_nonblocking(spins())?;
    Ok(stream)
}

async fn unix(link: &Link) -> io::Result<UnixStream> {
    let stream = if link.bind {
        let listener = UnixListener::bind(&link.address)?;
        listener.set_nonblocking(true)?;
        retried(|| listener.accept()).await?.0
    } else {
        retried(|| UnixStream::connect(&link.address)).await?
    };
    stream.set_nonblocking(spins())?;
    Ok(stream)
}

impl Peer for Raw {
    type Hub = ();
    type End = RawEnd;

    fn hub() {}

    fn drive<T>(work: impl Future<Output = T>) -> T {
        block(work)
    }

    async fn open((): &(), kind: Kind, link: &Link) -> Outcome<RawEnd> {
        let stream: Box<dyn Stream> = match link.transport {
            Transport::Tcp => Box::new(tcp(link).await?),
            Transport::Ipc => Box::new(unix(link).await?),
            other => return Err(format!("no raw sockets over {other:?}").into()),
        };
        let (gathers, set) = (kind == Kind::Push, set(&*stream)?);
        Ok(RawEnd { stream, set, outgoing: Vec::new(), gathers, incoming: vec![0; 2 * SLAB], start: 0, end: 0 })
    }
}

impl RawEnd {
    fn write(&mut self) -> io::Result<()> {
        let mut left = &self.outgoing[..];
        while !left.is_empty() {
            match self.stream.write(left) {
                Ok(written) => left = &left[written..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
                Err(error) => return Err(error),
            }
        }
        self.outgoing.clear();
        Ok(())
    }

    fn read(&mut self) -> io::Result<()> {
        self.incoming.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        if let Some(set) = &self.set {
            let mut event = libc::epoll_event { events: 0, u64: 0 };
            // SAFETY: there is room for the one event that is asked for.
            unsafe { libc::epoll_wait(set.as_raw_fd(), &mut event, 1, -1) };
        }
        loop {
            match self.stream.read(&mut self.incoming[self.end..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    self.end += read;
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
                Err(error) => return Err(error),
            }
        }
    }

    /// The length of the message at the front, if the whole of it is here.
    fn whole(&self) -> Option<usize> {
        let (head, rest) = self.incoming[self.start..self.end].split_first_chunk::<HEAD>()?;
        let length = u32::from_le_bytes(*head) as usize;
        (rest.len() >= length).then_some(length)
    }
}

impl End for RawEnd {
    async fn send(&mut self, body: &'static [u8]) -> Outcome<()> {
        self.outgoing.extend_from_slice(&u32::try_from(body.len())?.to_le_bytes());
        self.outgoing.extend_from_slice(body);
        if !self.gathers || self.outgoing.len() >= SLAB {
            self.write()?;
        }
        Ok(())
    }

    async fn take(&mut self, size: usize, most: usize) -> Outcome<usize> {
        while self.whole().is_none() {
            self.read()?;
        }
        let (mut taken, mut seen) = (0, 0);
        while let Some(length) = self.whole()
            && seen < most
        {
            taken += usize::from(length == size);
            seen += 1;
            self.start += HEAD + length;
        }
        Ok(taken)
    }

    async fn flush(&mut self) -> Outcome<()> {
        Ok(self.write()?)
    }
}

fn main() {
    ropewalk_messaging_bench::main::<Raw>()
}
