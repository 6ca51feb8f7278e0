//! A connection through shared memory: two pipes for the bytes, and the stream socket by which the two ends have
//! connected. The socket carries the memory's descriptor once, and then one byte for each wake-up of a sleeping peer;
//! its end means the peer's end. The `README.md` has the protocol.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bytes::BufMut;
use ropewalk_os::{socket, stream};
use ropewalk_shm::channel::pipe::{Broken, End, Probe};

use crate::conn_ref::ConnRef;

/// The accepting end's message with the memory: a name, a version, the capacity of a pipe.
const OFFER: &[u8; 12] = b"ropewalk\0shm";
const VERSION: u16 = 1;
const OFFER_SIZE: usize = OFFER.len() + 2 + 4;
/// Bytes of each pipe. Less of it is faster only as long as it is in the nearest caches; more holds up the writer less
/// often.
const CAPACITY: usize = 128 * 1024;
/// The byte that wakes the peer.
const WAKE_UP: u8 = b'!';
/// The most wake-ups that are taken at once.
const AT_ONCE: usize = 256;

/// The meaning of the peer's wake-ups.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerSign {
    /// There may be bytes, or room.
    Alive,
    /// The peer is gone. What it has written before is still there.
    Gone,
}

/// See the module.
pub(crate) struct ShmLink {
    fd: OwnedFd,
    end: End,
    /// The peer writes no more.
    is_over: bool,
    /// Bytes were sent, and whether the peer must be woken was not asked yet.
    is_fresh: bool,
    /// It is hot: this end polls its words, and has not armed it.
    pub(crate) is_hot: bool,
}

/// A connection whose peer does not wake us, and where to look.
#[derive(Clone)]
pub(crate) struct Hot {
    pub(crate) conn_ref: ConnRef,
    pub(crate) probe: Probe,
}

/// Whether one of them has bytes to read. Any thread may check, without the socket's lock.
#[inline]
pub(crate) fn has_bytes(hot: &[Hot]) -> bool {
    hot.iter().any(|hot| hot.probe.has_bytes())
}

fn broken(broken: Broken) -> io::Error {
    let kind = match broken {
        Broken::Corrupt => io::ErrorKind::InvalidData,
        Broken::OutOfMemory => io::ErrorKind::OutOfMemory,
    };
    io::Error::new(kind, broken)
}

impl ShmLink {
    /// The accepting end: makes the memory, and gives it to the peer.
    ///
    /// # Errors
    ///
    /// When descriptors or memory have run out; what the connection died of.
    pub(crate) fn offer(fd: OwnedFd) -> io::Result<Self> {
        let (end, memory) = End::create(CAPACITY)?;
        let (version, capacity) = (VERSION.to_le_bytes(), (CAPACITY as u32).to_le_bytes());
        socket::send(fd.as_fd(), &[OFFER, &version, &capacity], &[memory.as_fd()], false)?;
        Ok(Self::new(fd, end))
    }

    /// The connecting end: takes what the peer offers; `None` if it has said nothing yet.
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` if the peer is gone, `InvalidData` if it is no Ropewalk peer; an error when memory has run out.
    pub(crate) fn take_offer(fd: BorrowedFd<'_>) -> io::Result<Option<End>> {
        let mut said = [0; OFFER_SIZE];
        let mut given = Vec::new();
        match socket::recv(fd, &mut said, &mut given, false) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            // A piece that was sent with a descriptor is received in one.
            Ok(OFFER_SIZE) => {}
            Ok(_) => return Err(io::Error::from(io::ErrorKind::InvalidData)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
        let [memory] = &given[..] else { return Err(io::Error::from(io::ErrorKind::InvalidData)) };
        let (name, rest) = said.split_at(OFFER.len());
        let (version, capacity) = rest.split_at(2);
        if name != OFFER || version != VERSION.to_le_bytes() {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        let capacity = capacity.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte));
        End::open(memory.as_fd(), capacity).map(Some)
    }

    pub(crate) fn new(fd: OwnedFd, end: End) -> Self {
        Self { fd, end, is_over: false, is_fresh: false, is_hot: false }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(crate) fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// A probe, for threads that check without the socket's lock.
    pub(crate) fn probe(&self) -> Probe {
        self.end.reader.probe()
    }

    /// Whether the peer has read everything, according to its shared position.
    #[inline]
    pub(crate) fn is_drained(&self) -> bool {
        self.end.writer.is_drained()
    }

    /// Whether there are bytes to be received.
    #[inline]
    pub(crate) fn has_bytes(&self) -> bool {
        self.end.reader.has_bytes()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Asks for a wake-up; true if there are bytes already.
    pub(crate) fn arm(&self) -> bool {
        self.end.reader.arm()
    }

    /// Asks for no wake-up any more: this end looks by itself.
    pub(crate) fn disarm(&self) {
        self.end.reader.disarm();
    }

    /// Wakes the peer. If the socket is full of wake-ups the peer can read it already, and the descriptor reports an
    /// error of the connection.
    #[cold]
    fn wake_peer(&self) {
        let _ = stream::send(self.fd.as_fd(), &[WAKE_UP]);
    }

    /// Takes the wake-ups. A peer that sends anything else counts as gone.
    pub(crate) fn take_wake_ups(&mut self) -> PeerSign {
        let mut said = [0; AT_ONCE];
        match stream::recv_buf(self.fd.as_fd(), &mut &mut said[..], AT_ONCE) {
            Ok(0) => self.is_over = true,
            Ok(got) => self.is_over |= said[..got].iter().any(|byte| *byte != WAKE_UP),
            Err(error) => self.is_over |= error.kind() != io::ErrorKind::WouldBlock,
        }
        if self.is_over { PeerSign::Gone } else { PeerSign::Alive }
    }

    /// As [`Wire::send`](crate::wire::Wire::send).
    #[inline]
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_over {
            return Err(io::Error::from(io::ErrorKind::BrokenPipe));
        }
        loop {
            let sent = self.end.writer.write(bytes).map_err(broken)?;
            if sent > 0 || bytes.is_empty() {
                self.is_fresh = true;
                return Ok(sent);
            }
            if self.end.writer.is_stuck().map_err(broken)? {
                return Err(io::Error::from(io::ErrorKind::WouldBlock));
            }
        }
    }

    pub(crate) fn send_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut sent = 0;
        for piece in pieces {
            match self.send(piece) {
                Ok(count) => {
                    sent += count;
                    if count < piece.len() {
                        break;
                    }
                }
                Err(_) if sent > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(sent)
    }

    /// As [`Wire::finish`](crate::wire::Wire::finish).
    #[inline]
    pub(crate) fn finish(&mut self) {
        if std::mem::take(&mut self.is_fresh) && self.end.writer.must_wake_reader() {
            self.wake_peer();
        }
    }

    /// As [`Wire::recv`](crate::wire::Wire::recv).
    pub(crate) fn recv(&mut self, target: &mut impl BufMut, most: usize) -> io::Result<usize> {
        let got = self.end.reader.read(target, most).map_err(broken)?;
        if got > 0 {
            if self.end.reader.must_wake_writer() {
                self.wake_peer();
            }
            return Ok(got);
        }
        if self.is_over { Ok(0) } else { Err(io::Error::from(io::ErrorKind::WouldBlock)) }
    }
}
