//! The floor: blocking sockets, a length before each message, no ZeroMQ.
//!
//! A pipeline collects 64 KiB for each write and reads as much at once. `ROPEWALK_BENCH_SPIN=1` asks the
//! socket again and again instead of sleeping.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use ropewalk_messaging_bench::{End, Kind, Link, Outcome, Peer, Transport, block, give_way};

/// How much is written and read at once.
const SLAB: usize = 64 << 10;
/// The bytes of a length.
const HEAD: usize = 4;

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

struct Raw;

struct RawEnd {
    stream: Box<dyn Stream>,
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
        let gathers = kind == Kind::Push;
        Ok(RawEnd { stream, outgoing: Vec::new(), gathers, incoming: vec![0; 2 * SLAB], start: 0, end: 0 })
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
