//! A switchboard: one hub and many ports, each with a ring up to the hub and one down from it.
//!
//! A process that has the segment takes a port by writing its process id into a free slot: the only word that several
//! processes compete for. From then on each ring has one process at either end, so a process that dies affects only its
//! own port, which the hub clears when it has read the remaining messages.
//!
//! The memory of a port's rings is allocated when the port is taken and freed when it is cleared, so a switchboard
//! costs only the memory of the ports in use. Messages are bytes of any length; long ones are sent in pieces.
//! `README.md` has the protocol.

use ropewalk_sync::atomic::AtomicU32;
use ropewalk_sync::futex::{Shared, SleepFlag};
use ropewalk_sync::{CacheLine, Mutex, MutexGuard};

mod hub;
mod port;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use ropewalk_base::{Code, Result, error};

use super::ring::{Consumer, Corrupt, Header, Producer, PushError, RingMemory};
use crate::memory::Segment;

pub use hub::{HubEvent, Switchboard};
pub use port::{Port, Received};

const MAGIC: u32 = 0x5257_5332;
/// Record kinds: the last piece of a message, and a piece that others follow.
const LAST: u16 = 1;
const MORE: u16 = 2;
/// The longest message that is assembled, so that a peer cannot make this process take all memory.
const LONGEST: usize = 1 << 30;
/// The most pieces that are read in one call, so that a peer cannot keep the reader here.
const PIECES: usize = 1024;
/// A wait for room checks this often whether the peer has died.
const PATIENCE: Duration = Duration::from_millis(100);
/// Memory is allocated and freed by whole pages.
const PAGE: usize = 4096;

#[repr(C)]
struct HubWords {
    /// The shape, written by the hub before any other process has the segment.
    magic: CacheLine<[AtomicU32; 3]>,
    /// The hub sleeps on it; ports wake it.
    sleep: CacheLine<SleepFlag<Shared>>,
    /// 1 once the hub sends nothing any more. Written by the hub (release, after its last record), read by ports
    /// (acquire, before they check their rings).
    closed: CacheLine<AtomicU32>,
}

/// A port's words.
#[repr(C, align(64))]
struct PortWords {
    /// The process that has the port, 0 for none. Set by the port (compare and exchange from 0), cleared by the hub,
    /// once the process has ended or left.
    pid: AtomicU32,
    /// The number that the hub has acknowledged last; the port chooses the numbers. Written by the hub (release), read
    /// by the port.
    acknowledged: AtomicU32,
    /// The port sleeps on it while it waits for an acknowledgement.
    sleep: SleepFlag<Shared>,
    /// 1 once the process sends and reads nothing any more. Written by the port (release, after its last record), read
    /// by the hub (acquire, before it checks the ring).
    left: AtomicU32,
}

/// The layout of the segment: the head and the slots, padded to a page, then the ports' rings, each port's padded to a
/// page.
#[derive(Clone)]
struct Layout {
    segment: Arc<Segment>,
    slots: usize,
    ring: usize,
}

impl Layout {
    /// Bytes before the rings.
    fn front(slots: usize) -> usize {
        (size_of::<HubWords>() + slots * size_of::<PortWords>()).next_multiple_of(PAGE)
    }

    /// Bytes of one port's two rings.
    fn pair(ring: usize) -> usize {
        (2 * RingMemory::required(ring)).next_multiple_of(PAGE)
    }

    fn required(slots: usize, ring: usize) -> usize {
        Self::front(slots) + slots * Self::pair(ring)
    }

    fn head(&self) -> Result<&HubWords> {
        let start = self.segment.data()?;
        // SAFETY: the maker of this layout has checked that the segment is as long as `required` says; its data are
        // page-aligned and live as long as self; HubWords is atomics only.
        Ok(unsafe { &*start.cast::<HubWords>() })
    }

    fn slot(&self, at: usize) -> Result<&PortWords> {
        self.check(at)?;
        let start = self.segment.data()?;
        // SAFETY: as above, with the index checked; PortWords is atomics only, and as aligned as HubWords.
        Ok(unsafe { &*start.add(size_of::<HubWords>() + at * size_of::<PortWords>()).cast::<PortWords>() })
    }

    fn check(&self, at: usize) -> Result<()> {
        if at < self.slots { Ok(()) } else { Err(error!(Code::TooLarge, "a switchboard has no such port")) }
    }

    fn start(&self, at: usize) -> usize {
        Self::front(self.slots) + at * Self::pair(self.ring)
    }

    /// Allocates the memory of a port's rings and makes the rings over it: up, then down. Each side does this before it
    /// touches them, because neither knows whether the other has done it.
    fn open(&self, at: usize) -> Result<(RingMemory, RingMemory)> {
        self.check(at)?;
        let start = self.start(at);
        self.segment.set_range_aside(start as u64, Self::pair(self.ring) as u64)?;
        let ring = |offset| RingMemory::in_segment(Arc::clone(&self.segment), offset, self.ring);
        Ok((ring(start)?, ring(start + RingMemory::required(self.ring))?))
    }

    /// Frees the memory of a port's rings, which are empty when they are opened again.
    fn close(&self, at: usize) -> Result<()> {
        self.check(at)?;
        self.segment.give_range_back(self.start(at) as u64, Self::pair(self.ring) as u64)
    }
}

/// Assembles messages from their pieces.
struct Receiver {
    ring: Consumer,
    parts: Vec<u8>,
}

impl Receiver {
    fn new(ring: Consumer) -> Self {
        Self { ring, parts: Vec::new() }
    }

    /// The next message, if all of it has arrived. There may be more to read even if there is none yet.
    fn next(&mut self) -> Result<Option<Vec<u8>>, Corrupt> {
        for _ in 0..PIECES {
            let Some(header) = self.ring.peek()? else { return Ok(None) };
            if !self.ring.start() {
                continue;
            }
            // A piece that others follow must not be empty: otherwise pieces could come for ever.
            let empty = header.kind == MORE && header.len == 0;
            if empty || self.parts.len() + header.len as usize > LONGEST {
                return Err(Corrupt);
            }
            self.ring.copy_payload(&mut self.parts);
            self.ring.finish();
            match header.kind {
                LAST => return Ok(Some(std::mem::take(&mut self.parts))),
                MORE => {}
                _ => return Err(Corrupt),
            }
        }
        Ok(None)
    }
}

/// The pieces of a message, each with its kind.
fn pieces<'a>(ring: &Producer, message: &'a [u8]) -> Result<impl Iterator<Item = (u16, &'a [u8])> + use<'a>> {
    if message.len() > LONGEST {
        return Err(error!(Code::TooLarge, "a message between processes is longer than 1 GiB"));
    }
    let most = ring.max_record();
    let count = message.len().div_ceil(most).max(1);
    let pieces = message.chunks(most).chain(message.is_empty().then_some(&[][..]));
    Ok((1..).zip(pieces).map(move |(number, piece)| (if number == count { LAST } else { MORE }, piece)))
}

fn push(ring: &mut Producer, kind: u16, piece: &[u8]) -> Result<bool> {
    match ring.try_push(Header { kind, ..Header::default() }, &[piece]) {
        Ok(_) => Ok(true),
        Err(PushError::Full) => Ok(false),
        Err(PushError::TooLarge) => Err(error!(Code::TooLarge, "a message does not fit into its ring")),
        Err(PushError::Corrupt) => Err(Corrupt.into()),
    }
}

/// Sends a message if there is room for all of it.
fn offer(ring: &mut Producer, message: &[u8]) -> Result<bool> {
    match ring.has_room_for(pieces(ring, message)?.map(|(_, piece)| piece.len())) {
        Ok(true) => {}
        Ok(false) => return Ok(false),
        Err(_) => return Err(Corrupt.into()),
    }
    for (kind, piece) in pieces(ring, message)? {
        if !push(ring, kind, piece)? {
            // There was room, and no other thread takes any.
            return Err(Corrupt.into());
        }
    }
    Ok(true)
}

/// Sends a message in as many pieces as it needs. `goes_on` is called while there is no room.
fn send(
    ring: &mut Producer,
    message: &[u8],
    mut pushed: impl FnMut(&Producer),
    mut goes_on: impl FnMut() -> bool,
) -> Result<bool> {
    for (kind, piece) in pieces(ring, message)? {
        while !push(ring, kind, piece)? {
            if !ring.wait_space(piece.len(), Some(PATIENCE)) && !goes_on() {
                return Ok(false);
            }
        }
        pushed(ring);
    }
    Ok(true)
}

/// Locks unless another thread holds the lock for longer than a moment: that thread waits for room.
fn lock_soon<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    for _ in 0..64 {
        if let Some(guard) = mutex.try_lock() {
            return Some(guard);
        }
        std::thread::yield_now();
    }
    None
}
