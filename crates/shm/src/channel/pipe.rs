//! Two streams of bytes between two processes, one each way, in memory that both map.
//!
//! A pipe has one writer and one reader. Positions count bytes from the beginning and never go back; a position's place
//! is its value modulo the capacity. Nothing sleeps here: a reader that is about to sleep [arms](Reader::arm) the pipe,
//! a writer that finds no room [announces that](Writer::is_stuck), and the pipe then reports to the other side that it
//! must wake its peer. The user provides the wake-up. `README.md` has the protocol.
//!
//! A pipe's memory is allocated while its first lap is written, so a connection that carries little costs little. Each
//! side allocates before it touches: neither knows whether the other has, and a full machine is then an error here and
//! no signal.
//!
//! Neither side trusts the other: each keeps its own position, every number that comes from the shared words is copied
//! once and checked, and bytes are copied out before they are examined.
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

#[cfg(not(loom))]
use crate::memory::{Atomics, Words};

/// The capacities that a pipe may have; powers of two.
pub const CAPACITIES: std::ops::RangeInclusive<usize> = 4096..=16 << 20;
/// The words of both pipes are in the first page; the bytes follow.
#[cfg(not(loom))]
const PAGE: usize = 4096;

/// Why a pipe carries nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The other side's positions are impossible.
    Corrupt,
    /// There is no memory for more of the pipe's bytes.
    OutOfMemory,
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Corrupt => "the other side of a pipe in shared memory has broken the protocol",
            Self::OutOfMemory => "there is no memory for a pipe in shared memory",
        })
    }
}

impl std::error::Error for Broken {}

/// A pair of cache lines: processors fetch them together.
#[repr(C, align(128))]
struct LinePair<T>(T);

/// The words of a pipe.
#[repr(C)]
struct PipeWords {
    /// Bytes written. Stored by the writer (release: they are complete), loaded by the reader (acquire).
    tail: LinePair<AtomicU64>,
    /// Bytes read. Stored by the reader (release: it has finished with them), loaded by the writer (acquire).
    head: LinePair<AtomicU64>,
    /// 1: the reader sleeps or is about to, and needs a wake-up. Set by the reader; swapped to 0 by the writer that
    /// wakes it.
    armed: LinePair<AtomicU64>,
    /// 1: the writer waits for room. Set by the writer; swapped to 0 by the reader that wakes it.
    stuck: LinePair<AtomicU64>,
}

#[cfg(not(loom))]
// SAFETY: atomic integers, and padding that no code reads.
unsafe impl Atomics for PipeWords {}

/// Replaces the mapping under the model checker: the words, and a non-atomic cell for each byte, so that loom reports a
/// race that the words' orderings would allow.
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
    /// The offset of the bytes from the start of the mapping.
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

    /// Allocates bytes of the first lap, from one position to another at least, and twice as many each time; returns
    /// the position up to which there is memory now.
    #[cold]
    fn allocate(&self, from: u64, to: u64) -> Result<u64, Broken> {
        let until = to.max(2 * from).next_multiple_of(PAGE as u64).min(self.capacity as u64);
        match self.words.map().populate_range(self.start + from as usize, (until - from) as usize) {
            Ok(()) if until < self.capacity as u64 => Ok(until),
            Ok(()) => Ok(u64::MAX),
            // The kernel lacks the call: `create` has allocated everything.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(u64::MAX),
            Err(_) => Err(Broken::OutOfMemory),
        }
    }

    /// Copies bytes in at a position; there is room for them.
    #[inline]
    fn put(&self, position: u64, bytes: &[u8]) {
        debug_assert!(bytes.len() <= self.capacity);
        let at = position as usize & (self.capacity - 1);
        let first = bytes.len().min(self.capacity - at);
        // SAFETY: both targets lie inside the pipe's bytes, which are `capacity` long. The reader does not read them
        // before the tail has passed them; one that breaks the protocol is another process, and reads garbled bytes.
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
        // SAFETY: both sources lie inside the pipe's bytes; the target is the caller's. A writer that breaks the
        // protocol and changes them meanwhile is another process, and garbles the copy. Only the copy is examined, and
        // only after the release of the head, across which no load of the copy can be moved or repeated.
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

    fn allocate(&self, _from: u64, _to: u64) -> Result<u64, Broken> {
        Ok(u64::MAX)
    }

    fn put(&self, position: u64, bytes: &[u8]) {
        for (at, byte) in (position as usize..).zip(bytes) {
            // SAFETY: loom checks that no other thread has the cell.
            self.model.bytes[at & (self.capacity - 1)].with_mut(|cell| unsafe { *cell = *byte });
        }
    }

    unsafe fn get(&self, position: u64, target: *mut u8, length: usize) {
        for at in 0..length {
            let cell = &self.model.bytes[(position as usize + at) & (self.capacity - 1)];
            // SAFETY: loom checks that no thread writes to the cell; the caller guarantees the target.
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
    /// Makes a pair of pipes of `capacity` bytes each: returns one end, and the descriptor from which the peer
    /// [opens](Self::open) the other. Only the words' memory is allocated yet. No holder of the descriptor can make the
    /// file shorter.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a capacity outside [`CAPACITIES`]; an error when descriptors or memory have run out.
    #[cfg(not(loom))]
    pub fn create(capacity: usize) -> io::Result<(Self, OwnedFd)> {
        use std::os::fd::AsFd;
        if !is_capacity(capacity) {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let fd = memfd::create_sparse(c"ropewalk-pipe", (PAGE + 2 * capacity) as u64)?;
        let end = Self::over(fd.as_fd(), capacity, true)?;
        match end.writer.memory.words.map().populate_range(0, PAGE) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => memfd::set_aside(fd.as_fd())?,
            Err(error) => return Err(error),
        }
        Ok((end, fd))
    }

    /// Opens the other end from the descriptor.
    ///
    /// # Errors
    ///
    /// `InvalidData` for a descriptor that [`create`](Self::create) did not make; an error when memory has run out.
    #[cfg(not(loom))]
    pub fn open(fd: BorrowedFd<'_>, capacity: usize) -> io::Result<Self> {
        let is_good = is_capacity(capacity)
            // Only a memfd has that seal. Without it a peer could shrink the file, and an access would raise SIGBUS.
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

    /// The model checker has no shared memory: see [`model`].
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
    /// This end's own position; the shared one is its copy.
    tail: u64,
    /// The reader's position as last seen and checked.
    head: u64,
    /// The position up to which there is memory; the greatest number after the first lap.
    allocated: u64,
}

impl Writer {
    fn new(memory: Memory) -> Self {
        Self { memory, tail: 0, head: 0, allocated: 0 }
    }

    /// Copies in as many of these bytes as there is room for, and publishes them to the reader; returns their number.
    /// This does not wake the reader: see [`must_wake_reader`](Self::must_wake_reader).
    ///
    /// # Errors
    ///
    /// [`Broken`] if the reader's position is impossible, or there is no memory.
    #[inline]
    pub fn write(&mut self, bytes: &[u8]) -> Result<usize, Broken> {
        let mut room = self.memory.capacity - (self.tail - self.head) as usize;
        if room < bytes.len() {
            room = self.look()?;
        }
        let count = bytes.len().min(room);
        if count > 0 {
            let end = self.tail + count as u64;
            if end > self.allocated {
                self.allocated = self.memory.allocate(self.allocated, end)?;
            }
            self.memory.put(self.tail, &bytes[..count]);
            self.tail = end;
            self.memory.shared().tail.0.store(end, Ordering::Release);
        }
        Ok(count)
    }

    /// Loads the reader's position; returns the number of free bytes.
    fn look(&mut self) -> Result<usize, Broken> {
        let head = self.memory.shared().head.0.load(Ordering::Acquire);
        // The reader only moves forward, and not past the tail.
        if head < self.head || head > self.tail {
            return Err(Broken::Corrupt);
        }
        self.head = head;
        Ok(self.memory.capacity - (self.tail - head) as usize)
    }

    /// After [`write`](Self::write): whether the writer must wake the reader.
    #[inline]
    pub fn must_wake_reader(&self) -> bool {
        // Pairs with the fence in Reader::arm: either the reader sees these bytes, or this thread sees that the reader
        // is armed.
        fence(Ordering::SeqCst);
        let armed = &self.memory.shared().armed.0;
        armed.load(Ordering::Relaxed) != 0 && armed.swap(0, Ordering::AcqRel) != 0
    }

    /// After there was no room: announces that, and checks once more. If this returns true, the reader will wake the
    /// writer when half of the pipe is free.
    ///
    /// # Errors
    ///
    /// [`Broken`] if the reader's position is impossible.
    pub fn is_stuck(&mut self) -> Result<bool, Broken> {
        // A swap and no store for loom's sake, as in `SleepFlag::sleep_unless`.
        self.memory.shared().stuck.0.swap(1, Ordering::Relaxed);
        // Pairs with the fence in Reader::must_wake_writer: either the reader sees that the writer is stuck, or the
        // writer sees the room.
        fence(Ordering::SeqCst);
        if self.look()? < self.memory.capacity / 2 {
            return Ok(true);
        }
        self.memory.shared().stuck.0.store(0, Ordering::Relaxed);
        Ok(false)
    }

    /// Whether the reader has read everything, according to its shared position.
    pub fn is_drained(&self) -> bool {
        self.memory.shared().head.0.load(Ordering::Acquire) == self.tail
    }
}

/// The reading side of a pipe.
pub struct Reader {
    memory: Memory,
    /// The writer's position as last seen and checked.
    tail: u64,
    /// This end's own position, where a [`Probe`] sees it; the shared one is its copy. Written by the reader.
    head: Arc<AtomicU64>,
    /// As the writer's.
    allocated: u64,
}

/// Checks whether a pipe has bytes to read, without being the reader.
#[derive(Clone)]
pub struct Probe {
    memory: Memory,
    head: Arc<AtomicU64>,
}

impl Probe {
    /// Whether there are bytes to read. A writer that breaks the protocol can make this true; the next
    /// [`read`](Reader::read) then reports it.
    #[inline]
    pub fn has_bytes(&self) -> bool {
        // Relaxed: the reader checks again. If this load is older than the reader's position, the result is true once
        // too often.
        self.memory.shared().tail.0.load(Ordering::Acquire) != self.head.load(Ordering::Relaxed)
    }
}

impl Reader {
    fn new(memory: Memory) -> Self {
        Self { memory, tail: 0, head: Arc::new(AtomicU64::new(0)), allocated: 0 }
    }

    /// A probe, for threads that check without the right to read.
    pub fn probe(&self) -> Probe {
        Probe { memory: self.memory.clone(), head: Arc::clone(&self.head) }
    }

    /// Whether there are bytes to read; see [`Probe::has_bytes`].
    #[inline]
    pub fn has_bytes(&self) -> bool {
        self.memory.shared().tail.0.load(Ordering::Acquire) != self.head.load(Ordering::Relaxed)
    }

    /// Appends at most `most` bytes to a buffer, and no more than it has room for; 0 if there are none. This does not
    /// wake the writer: see [`must_wake_writer`](Self::must_wake_writer).
    ///
    /// # Errors
    ///
    /// [`Broken`] if the writer's position is impossible, or there is no memory.
    #[inline]
    pub fn read(&mut self, target: &mut impl BufMut, most: usize) -> Result<usize, Broken> {
        let room = target.chunk_mut();
        let length = most.min(room.len());
        let head = self.head.load(Ordering::Relaxed);
        if self.tail - head < length as u64 {
            let tail = self.memory.shared().tail.0.load(Ordering::Acquire);
            // The writer only moves forward, and no further than there is room.
            if tail < self.tail || tail - head > self.memory.capacity as u64 {
                return Err(Broken::Corrupt);
            }
            self.tail = tail;
        }
        let count = length.min((self.tail - head) as usize);
        if count > 0 {
            let end = head + count as u64;
            if end > self.allocated {
                self.allocated = self.memory.allocate(self.allocated, end)?;
            }
            // SAFETY: the room is at least `count` bytes long, and `count` is at most the capacity.
            unsafe { self.memory.get(head, room.as_mut_ptr(), count) };
            // SAFETY: this many bytes of the room were written.
            unsafe { target.advance_mut(count) };
            self.head.store(end, Ordering::Relaxed);
            self.memory.shared().head.0.store(end, Ordering::Release);
        }
        Ok(count)
    }

    /// After [`read`](Self::read): whether the reader must wake the writer.
    #[inline]
    pub fn must_wake_writer(&self) -> bool {
        // Pairs with the fence in Writer::is_stuck: either the writer sees the room, or the reader sees that the writer
        // is stuck.
        fence(Ordering::SeqCst);
        let (shared, half) = (self.memory.shared(), self.memory.capacity as u64 / 2);
        shared.stuck.0.load(Ordering::Relaxed) != 0
            // Relaxed: bytes written since can only make the pipe more than half full, and then a later read wakes the
            // writer.
            && shared.tail.0.load(Ordering::Relaxed).wrapping_sub(self.head.load(Ordering::Relaxed)) <= half
            && shared.stuck.0.swap(0, Ordering::AcqRel) != 0
    }

    /// Asks for a wake-up from now on, and checks once more: true if there are bytes already, for which no wake-up
    /// comes.
    pub fn arm(&self) -> bool {
        let armed = &self.memory.shared().armed.0;
        // A swap and no store for loom's sake, as in `SleepFlag::sleep_unless`.
        armed.swap(1, Ordering::Relaxed);
        // Pairs with the fence in Writer::must_wake_reader: either the writer sees that the reader is armed, or the
        // reader sees the bytes.
        fence(Ordering::SeqCst);
        if !self.has_bytes() {
            return false;
        }
        // A writer that has swapped it meanwhile causes a needless wake-up.
        armed.store(0, Ordering::Relaxed);
        true
    }
}

impl Reader {
    /// Asks for no wake-up any more: the reader looks by itself from now on. A writer that has seen the request already
    /// causes a needless wake-up.
    pub fn disarm(&self) {
        self.memory.shared().armed.0.store(0, Ordering::Relaxed);
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

    fn take(reader: &mut Reader, most: usize) -> Result<Vec<u8>, Broken> {
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
            assert!(other.reader.has_bytes() && other.reader.probe().has_bytes());
            assert_eq!(take(&mut other.reader, 4096).as_deref(), Ok(&sent[..]));
            assert_eq!(take(&mut one.reader, 3).as_deref(), Ok(&sent[..3]));
            assert_eq!(take(&mut one.reader, 30).as_deref(), Ok(&sent[3..7]));
            assert!(!one.reader.has_bytes() && one.writer.is_drained());
        }
    }

    /// Bytes of memory behind a descriptor.
    fn allocated(fd: &OwnedFd) -> u64 {
        use std::os::unix::fs::MetadataExt;
        let file = std::fs::File::from(fd.try_clone().expect("a descriptor"));
        512 * file.metadata().expect("looked at").blocks()
    }

    #[test]
    fn memory_is_allocated_with_the_first_lap_and_not_before() {
        const CAPACITY: usize = 128 << 10;
        let (mut one, fd) = End::create(CAPACITY).expect("memory");
        let mut other = End::open(fd.as_fd(), CAPACITY).expect("what was made");
        let before = allocated(&fd);
        assert_eq!(one.writer.write(b"hello"), Ok(5));
        assert_eq!(take(&mut other.reader, 5).as_deref(), Ok(&b"hello"[..]));
        assert_eq!(other.writer.write(b"you"), Ok(3));
        assert_eq!(take(&mut one.reader, 3).as_deref(), Ok(&b"you"[..]));
        // A kernel that lacks the call for it has allocated everything.
        let is_sparse = before < CAPACITY as u64;
        if is_sparse {
            assert_eq!((before, allocated(&fd)), (PAGE as u64, 3 * PAGE as u64));
        }
        let sent: Vec<u8> = (0..50_000_u32).map(|at| (at * 7) as u8).collect();
        let mut most = 0;
        for _ in 0..20 {
            assert_eq!(one.writer.write(&sent), Ok(sent.len()));
            assert_eq!(take(&mut other.reader, sent.len()).as_deref(), Ok(&sent[..]));
            most = allocated(&fd);
        }
        if is_sparse {
            assert_eq!(most, (2 * PAGE + CAPACITY) as u64, "the other pipe has carried three bytes");
        }
    }

    #[test]
    fn an_armed_or_stuck_end_is_woken_once() {
        let (mut one, mut other) = pair(4096);
        assert!(!other.reader.arm());
        assert_eq!(one.writer.write(b"a"), Ok(1));
        assert!(one.writer.must_wake_reader() && !one.writer.must_wake_reader());
        assert!(other.reader.arm(), "something is there already");
        assert_eq!(take(&mut other.reader, 1).map(|got| got.len()), Ok(1));
        assert!(!other.reader.arm());
        other.reader.disarm();
        assert_eq!(one.writer.write(b"a"), Ok(1));
        assert!(!one.writer.must_wake_reader(), "the reader looks by itself");
        assert_eq!(one.writer.write(&[0; 5000]), Ok(4095));
        assert!(!one.writer.must_wake_reader());
        assert_eq!(one.writer.write(b"b"), Ok(0));
        assert_eq!(one.writer.is_stuck(), Ok(true));
        assert_eq!(take(&mut other.reader, 2047).map(|got| got.len()), Ok(2047));
        assert!(!other.reader.must_wake_writer(), "more than half of it is full");
        assert_eq!(take(&mut other.reader, 1).map(|got| got.len()), Ok(1));
        assert!(other.reader.must_wake_writer() && !other.reader.must_wake_writer());
        assert_eq!(one.writer.is_stuck(), Ok(false));
    }

    #[test]
    fn a_peer_that_moves_the_positions_is_found_out() {
        for position in [u64::MAX, 5000, 1 << 63] {
            let (mut one, mut other) = pair(4096);
            assert_eq!(one.writer.write(&[1; 100]), Ok(100));
            one.writer.memory.shared().tail.0.store(position, Ordering::Release);
            assert_eq!(take(&mut other.reader, 4096), Err(Broken::Corrupt));
            other.reader.memory.shared().head.0.store(position, Ordering::Release);
            assert_eq!(one.writer.write(&[1; 4096]), Err(Broken::Corrupt));
            assert_eq!(one.writer.is_stuck(), Err(Broken::Corrupt));
        }
        // A position behind the earlier one.
        let (mut one, mut other) = pair(4096);
        assert_eq!(one.writer.write(&[1; 100]), Ok(100));
        assert_eq!(take(&mut other.reader, 60).map(|got| got.len()), Ok(60));
        one.writer.memory.shared().tail.0.store(80, Ordering::Release);
        assert_eq!(take(&mut other.reader, 60), Err(Broken::Corrupt));
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
