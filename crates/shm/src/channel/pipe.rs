//! Two streams of bytes between two processes, one each way, in memory that both map.
//!
//! A pipe has one writer and one reader. Positions count bytes from the beginning and never come back; a position's
//! place is its value modulo the capacity. Nothing sleeps here: a reader that is about to sleep [arms](Reader::arm) the
//! pipe, a writer that finds no room [says so](Writer::is_stuck), and the other side is told to ring, by whatever wakes
//! its peer. `README.md` has the protocol.
//!
//! Neither side trusts the other: each keeps its own position, every number that comes from the shared words is copied
//! once and checked, and bytes are copied out before anybody looks at them.
//!
//! Source: the two-index ring is Lamport's ("Proving the correctness of multiprocess programs", 1977); the cached
//! indices are from FastForward and MCRingBuffer.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use bytes::BufMut;
#[cfg(not(loom))]
use ropewalk_os::memfd;
#[cfg(not(loom))]
use ropewalk_os::mmap::{Mapping, Protection};
use ropewalk_sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(loom)]
use ropewalk_sync::loom::cell::UnsafeCell;

use super::ring::Corrupt;
#[cfg(not(loom))]
use crate::memory::{Atomics, Words};

/// The capacities that a pipe may have; powers of two.
pub const CAPACITIES: std::ops::RangeInclusive<usize> = 4096..=16 << 20;
/// The words of both pipes are in the first page; the bytes follow.
#[cfg(not(loom))]
const PAGE: usize = 4096;

/// A pair of cache lines: processors fetch them together.
#[repr(C, align(128))]
struct LinePair<T>(T);

/// The words of a pipe.
#[repr(C)]
struct PipeWords {
    /// Bytes written; by the writer (release: they are there), read by the reader (acquire).
    tail: LinePair<AtomicU64>,
    /// Bytes read; by the reader (release: it is done with them), read by the writer (acquire).
    head: LinePair<AtomicU64>,
    /// 1: the reader sleeps or is about to, and wants to be rung for. Set by the reader; swapped to 0 by the writer
    /// that rings.
    armed: LinePair<AtomicU64>,
    /// 1: the writer waits for room. Set by the writer; swapped to 0 by the reader that rings.
    stuck: LinePair<AtomicU64>,
}

#[cfg(not(loom))]
// SAFETY: atomic integers, and padding that nobody reads.
unsafe impl Atomics for PipeWords {}

/// What stands for the mapping under the model checker: the words, and a cell for each byte, which is no atomic, so
/// that loom sees an access that the words' orderings would allow.
#[cfg(loom)]
struct Model {
    shared: PipeWords,
    bytes: Vec<UnsafeCell<u8>>,
}

/// One pipe's words and bytes.
#[derive(Clone)]
struct Memory {
    #[cfg(not(loom))]
    words: Words<PipeWords>,
    /// Where the bytes are, from the start of the mapping.
    #[cfg(not(loom))]
    start: usize,
    #[cfg(loom)]
    model: Arc<Model>,
    capacity: usize,
}

#[cfg(loom)]
// SAFETY: the cells are accessed through loom only, which reports every access that another thread's could race with.
unsafe impl Send for Model {}
#[cfg(loom)]
// SAFETY: as above.
unsafe impl Sync for Model {}

#[cfg(not(loom))]
impl Memory {
    #[inline]
    fn shared(&self) -> &PipeWords {
        &self.words
    }

    /// Copies bytes in at a position, of which so many are free.
    #[inline]
    fn put(&self, position: u64, bytes: &[u8]) {
        debug_assert!(bytes.len() <= self.capacity);
        let at = position as usize & (self.capacity - 1);
        let first = bytes.len().min(self.capacity - at);
        // SAFETY: both targets lie inside the pipe's bytes, which are `capacity` long. The reader does not look at them
        // before the tail has passed them; one that does, against the protocol, is another process and reads what it
        // finds.
        unsafe {
            let start = self.words.map().as_ptr().add(self.start);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), start.add(at), first);
            std::ptr::copy_nonoverlapping(bytes.as_ptr().add(first), start, bytes.len() - first);
        }
    }

    /// Copies bytes out.
    ///
    /// # Safety
    ///
    /// `length` bytes at `target` may be written, and no more than the capacity.
    #[inline]
    unsafe fn get(&self, position: u64, target: *mut u8, length: usize) {
        debug_assert!(length <= self.capacity);
        let at = position as usize & (self.capacity - 1);
        let first = length.min(self.capacity - at);
        // SAFETY: both sources lie inside the pipe's bytes; the target is the caller's. A writer that changes them
        // meanwhile, against the protocol, is another process, and garbles the copy; nobody looks at anything but the
        // copy, and that only behind the release of the head, over which no load of it can be moved or repeated.
        unsafe {
            let start = self.words.map().as_ptr().add(self.start);
            std::ptr::copy_nonoverlapping(start.add(at), target, first);
            std::ptr::copy_nonoverlapping(start, target.add(first), length - first);
        }
    }
}

#[cfg(loom)]
#[cfg_attr(mutants, mutants::skip)]
impl Memory {
    fn model(capacity: usize) -> Self {
        let word = || LinePair(AtomicU64::new(0));
        let shared = PipeWords { tail: word(), head: word(), armed: word(), stuck: word() };
        let bytes = (0..capacity).map(|_| UnsafeCell::new(0)).collect();
        Self { model: Arc::new(Model { shared, bytes }), capacity }
    }

    fn shared(&self) -> &PipeWords {
        &self.model.shared
    }

    fn put(&self, position: u64, bytes: &[u8]) {
        for (at, byte) in (position as usize..).zip(bytes) {
            // SAFETY: loom checks that nobody else has the cell.
            self.model.bytes[at & (self.capacity - 1)].with_mut(|cell| unsafe { *cell = *byte });
        }
    }

    unsafe fn get(&self, position: u64, target: *mut u8, length: usize) {
        for at in 0..length {
            let cell = &self.model.bytes[(position as usize + at) & (self.capacity - 1)];
            // SAFETY: loom checks that nobody writes to the cell; the target is the caller's.
            cell.with(|cell| unsafe { *target.add(at) = *cell });
        }
    }
}

/// One process's end of a pair of pipes.
pub struct End {
    /// Of the pipe to the other end.
    pub writer: Writer,
    /// Of the pipe from it.
    pub reader: Reader,
}

fn is_capacity(capacity: usize) -> bool {
    capacity.is_power_of_two() && CAPACITIES.contains(&capacity)
}

impl End {
    /// Makes a pair of pipes of so many bytes each: one end, and the descriptor from which the peer [opens](Self::open)
    /// the other. The memory is set aside, and cannot be taken away by anybody who has the descriptor.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a capacity that is none of [`CAPACITIES`]; when descriptors or memory have run out.
    #[cfg(not(loom))]
    pub fn create(capacity: usize) -> io::Result<(Self, OwnedFd)> {
        use std::os::fd::AsFd;
        if !is_capacity(capacity) {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let fd = memfd::create(c"ropewalk-pipe", (PAGE + 2 * capacity) as u64, true)?;
        Ok((Self::over(fd.as_fd(), capacity, true)?, fd))
    }

    /// The end of whoever was given the descriptor.
    ///
    /// # Errors
    ///
    /// `InvalidData` for a descriptor that is not what [`create`](Self::create) makes; when memory has run out.
    #[cfg(not(loom))]
    pub fn open(fd: BorrowedFd<'_>, capacity: usize) -> io::Result<Self> {
        let is_good = is_capacity(capacity)
            // Only a memfd has that seal. Without it, memory that is taken away would be a SIGBUS.
            && memfd::is_size_sealed(fd)
            && memfd::size(fd)? == (PAGE + 2 * capacity) as u64;
        if !is_good {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        Self::over(fd, capacity, false)
    }

    #[cfg(not(loom))]
    fn over(fd: BorrowedFd<'_>, capacity: usize, is_maker: bool) -> io::Result<Self> {
        let map = Arc::new(Mapping::map(fd, PAGE + 2 * capacity, Protection::ReadWrite)?);
        let pipe = |number: usize| {
            let words = Words::new(&map, number * size_of::<PipeWords>()).map_err(io::Error::other)?;
            io::Result::Ok(Memory { words, start: PAGE + number * capacity, capacity })
        };
        let (out, into) = if is_maker { (pipe(0)?, pipe(1)?) } else { (pipe(1)?, pipe(0)?) };
        Ok(Self { writer: Writer::new(out), reader: Reader::new(into) })
    }

    /// There is no memory to be shared under the model checker: see [`model`].
    ///
    /// # Errors
    ///
    /// `Unsupported`.
    #[cfg(loom)]
    #[cfg_attr(mutants, mutants::skip)]
    pub fn create(_capacity: usize) -> io::Result<(Self, OwnedFd)> {
        Err(io::Error::from(io::ErrorKind::Unsupported))
    }

    /// As [`create`](Self::create).
    ///
    /// # Errors
    ///
    /// `Unsupported`.
    #[cfg(loom)]
    #[cfg_attr(mutants, mutants::skip)]
    pub fn open(_fd: BorrowedFd<'_>, capacity: usize) -> io::Result<Self> {
        let _ = is_capacity(capacity);
        Err(io::Error::from(io::ErrorKind::Unsupported))
    }
}

/// A pipe for the model checker, of a few bytes.
#[cfg(loom)]
#[cfg_attr(mutants, mutants::skip)]
pub fn model(capacity: usize) -> (Writer, Reader) {
    let memory = Memory::model(capacity);
    (Writer::new(memory.clone()), Reader::new(memory))
}

/// The writing side of a pipe.
pub struct Writer {
    memory: Memory,
    /// Our own position; the shared one is its copy.
    tail: u64,
    /// The reader's position as last seen and checked.
    head: u64,
}

impl Writer {
    fn new(memory: Memory) -> Self {
        Self { memory, tail: 0, head: 0 }
    }

    /// Copies as many of these bytes in as there is room for, and shows them to the reader; gives their number. The
    /// reader is not rung for: see [`rings`](Self::rings).
    ///
    /// # Errors
    ///
    /// [`Corrupt`] if the reader's position makes no sense.
    #[inline]
    pub fn write(&mut self, bytes: &[u8]) -> Result<usize, Corrupt> {
        let mut room = self.memory.capacity - (self.tail - self.head) as usize;
        if room < bytes.len() {
            room = self.look()?;
        }
        let count = bytes.len().min(room);
        if count > 0 {
            self.memory.put(self.tail, &bytes[..count]);
            self.tail += count as u64;
            self.memory.shared().tail.0.store(self.tail, Ordering::Release);
        }
        Ok(count)
    }

    /// Asks for the reader's position; gives the bytes that are free.
    fn look(&mut self) -> Result<usize, Corrupt> {
        let head = self.memory.shared().head.0.load(Ordering::Acquire);
        // The reader only moves forward, and not past what there is.
        if head < self.head || head > self.tail {
            return Err(Corrupt);
        }
        self.head = head;
        Ok(self.memory.capacity - (self.tail - head) as usize)
    }

    /// Asked after [`write`](Self::write): whether the reader is to be rung for.
    #[inline]
    pub fn rings(&self) -> bool {
        // Pairs with the fence in Reader::arm: either that sees our bytes or we see that it is armed.
        fence(Ordering::SeqCst);
        let armed = &self.memory.shared().armed.0;
        armed.load(Ordering::Relaxed) != 0 && armed.swap(0, Ordering::AcqRel) != 0
    }

    /// There was no room: says so, and looks once more. If that is true, the reader will ring when half of the pipe is
    /// free.
    ///
    /// # Errors
    ///
    /// [`Corrupt`] if the reader's position makes no sense.
    pub fn is_stuck(&mut self) -> Result<bool, Corrupt> {
        // A swap and no store for loom's sake, as in `SleepFlag::sleep_unless`.
        self.memory.shared().stuck.0.swap(1, Ordering::Relaxed);
        // Pairs with the fence in Reader::rings: either that sees that we are stuck or we see the room.
        fence(Ordering::SeqCst);
        if self.look()? < self.memory.capacity / 2 {
            return Ok(true);
        }
        self.memory.shared().stuck.0.store(0, Ordering::Relaxed);
        Ok(false)
    }

    /// Whether the reader has everything, by its word.
    pub fn is_drained(&self) -> bool {
        self.memory.shared().head.0.load(Ordering::Acquire) == self.tail
    }
}

/// The reading side of a pipe.
pub struct Reader {
    memory: Memory,
    /// The writer's position as last seen and checked.
    tail: u64,
    /// Our own position, of which the shared one is a copy, where an [`Ear`] sees it. Written by the reader.
    head: Arc<AtomicU64>,
}

/// Sees whether a pipe has something to be read, beside the reader.
#[derive(Clone)]
pub struct Ear {
    memory: Memory,
    head: Arc<AtomicU64>,
}

impl Ear {
    /// Whether there is something. A writer that breaks the protocol can make this true; then the next
    /// [`read`](Reader::read) says so.
    #[inline]
    pub fn hears(&self) -> bool {
        // Relaxed: the reader reads again. A position that is behind the reader's makes this true once more.
        self.memory.shared().tail.0.load(Ordering::Acquire) != self.head.load(Ordering::Relaxed)
    }
}

impl Reader {
    fn new(memory: Memory) -> Self {
        Self { memory, tail: 0, head: Arc::new(AtomicU64::new(0)) }
    }

    /// For those who look without the right to read.
    pub fn ear(&self) -> Ear {
        Ear { memory: self.memory.clone(), head: Arc::clone(&self.head) }
    }

    /// Whether there is something to be read; see [`Ear::hears`].
    #[inline]
    pub fn hears(&self) -> bool {
        self.memory.shared().tail.0.load(Ordering::Acquire) != self.head.load(Ordering::Relaxed)
    }

    /// Appends at most `most` bytes to a buffer, and no more than it has room for; 0 if there are none. The writer is
    /// not rung for: see [`rings`](Self::rings).
    ///
    /// # Errors
    ///
    /// [`Corrupt`] if the writer's position makes no sense.
    #[inline]
    pub fn read(&mut self, target: &mut impl BufMut, most: usize) -> Result<usize, Corrupt> {
        let room = target.chunk_mut();
        let length = most.min(room.len());
        let head = self.head.load(Ordering::Relaxed);
        if self.tail - head < length as u64 {
            let tail = self.memory.shared().tail.0.load(Ordering::Acquire);
            // The writer only moves forward, and no further than there is room.
            if tail < self.tail || tail - head > self.memory.capacity as u64 {
                return Err(Corrupt);
            }
            self.tail = tail;
        }
        let count = length.min((self.tail - head) as usize);
        if count > 0 {
            // SAFETY: the room is at least `count` bytes long, and `count` is at most the capacity.
            unsafe { self.memory.get(head, room.as_mut_ptr(), count) };
            // SAFETY: so many bytes of the room were written.
            unsafe { target.advance_mut(count) };
            let head = head + count as u64;
            self.head.store(head, Ordering::Relaxed);
            self.memory.shared().head.0.store(head, Ordering::Release);
        }
        Ok(count)
    }

    /// Asked after [`read`](Self::read): whether the writer is to be rung for.
    #[inline]
    pub fn rings(&self) -> bool {
        // Pairs with the fence in Writer::is_stuck: either that sees the room or we see that it is stuck.
        fence(Ordering::SeqCst);
        let (shared, half) = (self.memory.shared(), self.memory.capacity as u64 / 2);
        shared.stuck.0.load(Ordering::Relaxed) != 0
            // Relaxed: what was written since can only make it more than half, and then a later read rings.
            && shared.tail.0.load(Ordering::Relaxed).wrapping_sub(self.head.load(Ordering::Relaxed)) <= half
            && shared.stuck.0.swap(0, Ordering::AcqRel) != 0
    }

    /// Wants to be rung for from now on, and looks once more: true if something is there already, which nobody rings
    /// for.
    pub fn arm(&self) -> bool {
        let armed = &self.memory.shared().armed.0;
        // A swap and no store for loom's sake, as in `SleepFlag::sleep_unless`.
        armed.swap(1, Ordering::Relaxed);
        // Pairs with the fence in Writer::rings: either that sees that we are armed or we see its bytes.
        fence(Ordering::SeqCst);
        if !self.hears() {
            return false;
        }
        // Whoever has taken it meanwhile rings for nothing.
        armed.store(0, Ordering::Relaxed);
        true
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    fn pair(capacity: usize) -> (End, End) {
        let (one, fd) = End::create(capacity).expect("memory");
        let other = End::open(fd.as_fd(), capacity).expect("what was made");
        (one, other)
    }

    fn take(reader: &mut Reader, most: usize) -> Result<Vec<u8>, Corrupt> {
        let mut bytes = Vec::with_capacity(most);
        reader.read(&mut bytes, most)?;
        Ok(bytes)
    }

    #[test]
    fn bytes_arrive_in_order_both_ways_and_around_the_end() {
        let (mut one, mut other) = pair(4096);
        let sent: Vec<u8> = (0..3000_u32).map(|at| at as u8).collect();
        for _ in 0..50 {
            assert_eq!(one.writer.write(&sent), Ok(3000));
            assert_eq!(other.writer.write(&sent[..7]), Ok(7));
            assert!(other.reader.hears() && other.reader.ear().hears());
            assert_eq!(take(&mut other.reader, 4096).as_deref(), Ok(&sent[..]));
            assert_eq!(take(&mut one.reader, 3).as_deref(), Ok(&sent[..3]));
            assert_eq!(take(&mut one.reader, 30).as_deref(), Ok(&sent[3..7]));
            assert!(!one.reader.hears() && one.writer.is_drained());
        }
    }

    #[test]
    fn who_is_armed_or_stuck_is_rung_for_once() {
        let (mut one, mut other) = pair(4096);
        assert!(!other.reader.arm());
        assert_eq!(one.writer.write(b"a"), Ok(1));
        assert!(one.writer.rings() && !one.writer.rings());
        assert!(other.reader.arm(), "something is there already");
        assert_eq!(one.writer.write(&[0; 5000]), Ok(4095));
        assert!(!one.writer.rings());
        assert_eq!(one.writer.write(b"b"), Ok(0));
        assert_eq!(one.writer.is_stuck(), Ok(true));
        assert_eq!(take(&mut other.reader, 2047).map(|got| got.len()), Ok(2047));
        assert!(!other.reader.rings(), "more than half of it is full");
        assert_eq!(take(&mut other.reader, 1).map(|got| got.len()), Ok(1));
        assert!(other.reader.rings() && !other.reader.rings());
        assert_eq!(one.writer.is_stuck(), Ok(false));
    }

    #[test]
    fn a_peer_that_moves_the_positions_is_found_out() {
        for position in [u64::MAX, 5000, 1 << 63] {
            let (mut one, mut other) = pair(4096);
            assert_eq!(one.writer.write(&[1; 100]), Ok(100));
            one.writer.memory.shared().tail.0.store(position, Ordering::Release);
            assert_eq!(take(&mut other.reader, 4096), Err(Corrupt));
            other.reader.memory.shared().head.0.store(position, Ordering::Release);
            assert_eq!(one.writer.write(&[1; 4096]), Err(Corrupt));
            assert_eq!(one.writer.is_stuck(), Err(Corrupt));
        }
        // Back to where it was before.
        let (mut one, mut other) = pair(4096);
        assert_eq!(one.writer.write(&[1; 100]), Ok(100));
        assert_eq!(take(&mut other.reader, 60).map(|got| got.len()), Ok(60));
        one.writer.memory.shared().tail.0.store(80, Ordering::Release);
        assert_eq!(take(&mut other.reader, 60), Err(Corrupt));
    }

    #[test]
    fn only_what_create_makes_is_opened() {
        let refused = |fd: OwnedFd, capacity: usize| {
            let error = End::open(fd.as_fd(), capacity).err().expect("refused");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        };
        refused(memfd::create(c"test", 4096 + 2 * 4096, false).expect("a memfd"), 4096);
        refused(memfd::create(c"test", 4096 + 2 * 4096, true).expect("a memfd"), 8192);
        refused(memfd::create(c"test", 4096 + 2 * 1000, true).expect("a memfd"), 1000);
        refused(std::fs::File::open("/dev/zero").expect("a file").into(), 4096);
        assert!(End::create(1000).is_err());
    }
}
