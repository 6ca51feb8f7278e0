//! A single-producer single-consumer ring of records in memory that two processes share.
//!
//! Positions are monotonic byte counts. A record is a 32-byte header and its payload, padded to 32 bytes, and
//! never wraps: a padding record fills the end. The header's last word is the record's state, on which the
//! consumer's *start* and the producer's *retract* compete, so that exactly one of them has the record.
//!
//! Neither side trusts the other: each keeps its own position, and every number that comes from the shared words is
//! copied once and checked. All shared memory is accessed through atomics, so a peer that scribbles can garble a
//! payload but cause no data race.
//!
//! Source: the two-index ring is Lamport's ("Proving the correctness of multiprocess programs", 1977); the
//! cached indices are from FastForward and MCRingBuffer.

use std::fmt;
#[cfg(not(loom))]
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

#[cfg(not(loom))]
use ropewalk_base::error;
use ropewalk_base::{Code, Error, Result};
#[cfg(not(loom))]
use ropewalk_os::mmap::Mapping;
use ropewalk_sync::CacheLine;
use ropewalk_sync::atomic::{AtomicU64, Ordering, fence};
use ropewalk_sync::futex::{Shared, SleepFlag};
#[cfg(loom)]
use ropewalk_sync::loom::cell::UnsafeCell;
use ropewalk_sync::spin::AdaptiveSpin;

#[cfg(not(loom))]
use crate::memory::Segment;

/// Records start at multiples of this many bytes; a header is as long.
pub const RECORD_ALIGN: usize = 32;
const WORDS_IN_HEADER: usize = RECORD_ALIGN / 8;
const STATE_WORD: usize = 3;
const PADDING: u16 = u16::MAX;

const QUEUED: u64 = 1;
const STARTED: u64 = 2;
const TAKEN: u64 = 3;

/// A record's header. `len` is the payload's length in bytes; a producer need not fill it in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Defined by the layer above; `u16::MAX` is reserved.
    pub kind: u16,
    /// Defined by the layer above.
    pub flags: u16,
    /// Bytes of payload.
    pub len: u32,
    /// Defined by the layer above.
    pub id: u64,
    /// Defined by the layer above.
    pub aux: u64,
}

impl Header {
    fn first_word(self, len: u32) -> u64 {
        u64::from(len) | u64::from(self.kind) << 32 | u64::from(self.flags) << 48
    }

    fn from_words(first: u64, id: u64, aux: u64) -> Self {
        Self { len: first as u32, kind: (first >> 32) as u16, flags: (first >> 48) as u16, id, aux }
    }
}

/// The words of a ring that both sides touch, a cache line each.
#[repr(C)]
struct RingWords {
    /// Bytes consumed; written by the consumer (release: it has finished with them), read by the producer (acquire).
    head: CacheLine<AtomicU64>,
    /// Bytes produced; written by the producer (release: they are complete), read by the consumer (acquire).
    tail: CacheLine<AtomicU64>,
    /// 1 while the consumer sleeps, or is about to; swapped to 0 by the producer that wakes it.
    sleep: CacheLine<SleepFlag<Shared>>,
    /// The same for a producer that waits for room.
    full: CacheLine<SleepFlag<Shared>>,
}

/// The shared numbers are impossible: the peer is faulty or hostile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt;

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a ring's shared positions are out of range")
    }
}

impl std::error::Error for Corrupt {}

impl From<Corrupt> for Error {
    fn from(corrupt: Corrupt) -> Self {
        Self::caused(Code::SharedMemoryCorrupt, "a ring in shared memory is corrupt", corrupt)
    }
}

/// Why a record could not be pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushError {
    /// There is no room now.
    Full,
    /// It will never fit.
    TooLarge,
    /// The consumer's position is impossible.
    Corrupt,
}

/// Where a pushed record starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position(u64);

/// The result of an attempt to take a record back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Retract {
    /// The consumer will skip it.
    Taken,
    /// The consumer has started it.
    Started,
}

/// Replaces the mapping under the model checker.
#[cfg(loom)]
struct Model {
    shared: RingWords,
    words: Vec<AtomicU64>,
    /// A non-atomic cell for each place of a record, written and read with the record, so that loom reports a race that
    /// the words' relaxed loads and stores would allow.
    places: Vec<UnsafeCell<()>>,
}

// SAFETY: the cells are accessed through loom only, which reports every access that another thread's could
// race with.
#[cfg(loom)]
unsafe impl Send for Model {}
// SAFETY: as above.
#[cfg(loom)]
unsafe impl Sync for Model {}

/// A ring's memory: the shared words, then `capacity` bytes of records.
#[derive(Clone)]
pub struct RingMemory {
    /// Keeps the memory mapped.
    #[cfg(not(loom))]
    _owner: Owner,
    /// Aligned to a cache line; `required(capacity)` bytes from here are the owner's.
    #[cfg(not(loom))]
    start: NonNull<u8>,
    #[cfg(loom)]
    model: Arc<Model>,
    capacity: usize,
}

/// The owner of a ring's memory.
#[cfg(not(loom))]
#[derive(Clone)]
enum Owner {
    Mapping { _held: Arc<Mapping> },
    Segment { _held: Arc<Segment> },
}

// SAFETY: the pointer is into memory that the owner keeps mapped, and that is accessed through atomics only.
#[cfg(not(loom))]
unsafe impl Send for RingMemory {}
// SAFETY: as above.
#[cfg(not(loom))]
unsafe impl Sync for RingMemory {}

impl fmt::Debug for RingMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingMemory").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

impl RingMemory {
    /// The bytes that a ring of this capacity takes.
    pub fn required(capacity: usize) -> usize {
        size_of::<RingWords>() + capacity
    }

    /// Lays a ring over `required(capacity)` bytes of a mapping, from `offset`. Fresh memory (zeros) is an
    /// empty ring.
    ///
    /// # Errors
    ///
    /// `Code::TooLarge` when it does not fit, or the capacity is not a power of two of 128 at least.
    #[cfg(not(loom))]
    pub fn new(map: Arc<Mapping>, offset: usize, capacity: usize) -> Result<Self> {
        let (start, len) = (map.as_ptr(), map.len());
        Self::over(Owner::Mapping { _held: map }, start, len, offset, capacity)
    }

    /// As [`new`](Self::new), over the data of a segment.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new), and if the segment cannot be mapped.
    #[cfg(not(loom))]
    pub fn in_segment(segment: Arc<Segment>, offset: usize, capacity: usize) -> Result<Self> {
        let (start, len) = (segment.data()?, usize::try_from(segment.size()).unwrap_or(0));
        Self::over(Owner::Segment { _held: segment }, start, len, offset, capacity)
    }

    #[cfg(not(loom))]
    fn over(owner: Owner, start: *mut u8, len: usize, offset: usize, capacity: usize) -> Result<Self> {
        let end = offset.checked_add(Self::required(capacity));
        let fits = end.is_some_and(|end| end <= len);
        if !fits || !capacity.is_power_of_two() || capacity < 128 || !offset.is_multiple_of(64) {
            return Err(error!(Code::TooLarge, "a ring does not fit into its memory"));
        }
        // SAFETY: the offset was checked to lie inside the memory.
        let start = unsafe { NonNull::new_unchecked(start.add(offset)) };
        Ok(Self { _owner: owner, start, capacity })
    }

    /// A ring in the model checker's memory.
    #[cfg(loom)]
    #[cfg_attr(mutants, mutants::skip)]
    pub fn model(capacity: usize) -> Self {
        let shared = RingWords {
            head: CacheLine(AtomicU64::new(0)),
            tail: CacheLine(AtomicU64::new(0)),
            sleep: CacheLine(SleepFlag::new()),
            full: CacheLine(SleepFlag::new()),
        };
        let words = (0..capacity / 8).map(|_| AtomicU64::new(0)).collect();
        let places = (0..capacity / RECORD_ALIGN).map(|_| UnsafeCell::new(())).collect();
        Self { model: Arc::new(Model { shared, words, places }), capacity }
    }

    #[cfg(not(loom))]
    fn shared(&self) -> &RingWords {
        // SAFETY: `over` has checked that size_of::<RingWords>() bytes lie inside the memory at an aligned
        // offset; RingWords is atomics only, for which any bit pattern is valid, and the owner keeps the memory
        // mapped for as long as self lives.
        unsafe { self.start.cast::<RingWords>().as_ref() }
    }

    #[cfg(not(loom))]
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: `over` has checked that `capacity` bytes follow the shared words inside the memory; both
        // are multiples of 8 from a page-aligned start, and any bit pattern is a valid atomic.
        unsafe {
            let start = self.start.as_ptr().add(size_of::<RingWords>());
            std::slice::from_raw_parts(start.cast::<AtomicU64>(), self.capacity / 8)
        }
    }

    #[cfg(loom)]
    #[cfg_attr(mutants, mutants::skip)]
    fn shared(&self) -> &RingWords {
        &self.model.shared
    }

    #[cfg(loom)]
    #[cfg_attr(mutants, mutants::skip)]
    fn words(&self) -> &[AtomicU64] {
        &self.model.words
    }

    /// Empties the ring. Call it before either end exists.
    pub fn initialise(&self) {
        self.shared().head.0.store(0, Ordering::Relaxed);
        self.shared().tail.0.store(0, Ordering::Relaxed);
        self.shared().sleep.0.lower();
        self.shared().full.0.lower();
        fence(Ordering::Release);
    }

    /// Wakes the consumer if it sleeps, as [`Producer::wake_consumer`], for callers that have neither end.
    pub fn wake_consumer(&self) -> bool {
        fence(Ordering::SeqCst);
        self.shared().sleep.0.wake_if_asleep()
    }

    /// The producing end; there must be one only.
    pub fn producer(self) -> Producer {
        // Masked, because the bounds of every record depend on the alignment; in a sound ring it is aligned already.
        let tail = self.shared().tail.0.load(Ordering::Relaxed) & !(RECORD_ALIGN as u64 - 1);
        let head = self.shared().head.0.load(Ordering::Acquire);
        Producer { memory: self, tail, head }
    }

    /// The consuming end; there must be one only.
    pub fn consumer(self) -> Consumer {
        let head = self.shared().head.0.load(Ordering::Relaxed) & !(RECORD_ALIGN as u64 - 1);
        Consumer { memory: self, head, tail: head, current: None }
    }

    fn at(&self, position: u64) -> usize {
        (position as usize & (self.capacity - 1)) / 8
    }
}

fn record_size(len: usize) -> usize {
    RECORD_ALIGN + len.next_multiple_of(RECORD_ALIGN)
}

/// The producing end of a ring.
#[derive(Debug)]
pub struct Producer {
    memory: RingMemory,
    /// This end's own position; the shared one is its copy.
    tail: u64,
    /// The consumer's position as last seen and checked.
    head: u64,
}

impl Producer {
    /// The longest payload that is accepted: two such records fit.
    pub fn max_record(&self) -> usize {
        self.memory.capacity / 2 - 2 * RECORD_ALIGN
    }

    /// Bytes for records.
    pub fn capacity(&self) -> usize {
        self.memory.capacity
    }

    /// Appends a record whose payload is `parts`, one after the other. This does not wake the consumer: see
    /// [`wake_consumer`](Self::wake_consumer).
    ///
    /// # Errors
    ///
    /// See [`PushError`].
    pub fn try_push(&mut self, header: Header, parts: &[&[u8]]) -> Result<Position, PushError> {
        let len = parts.iter().map(|part| part.len()).sum::<usize>();
        if len > self.max_record() {
            return Err(PushError::TooLarge);
        }
        let size = record_size(len);
        let to_end = self.memory.capacity - (self.tail as usize & (self.memory.capacity - 1));
        let padding = if size > to_end { to_end } else { 0 };
        if !self.has_room(size + padding)? {
            return Err(PushError::Full);
        }
        let words = self.memory.words();
        if padding > 0 {
            let filler = Header { kind: PADDING, ..Header::default() };
            let at = self.memory.at(self.tail);
            words[at].store(filler.first_word((padding - RECORD_ALIGN) as u32), Ordering::Relaxed);
            words[at + STATE_WORD].store(QUEUED, Ordering::Relaxed);
            self.tail = self.tail.wrapping_add(padding as u64);
        }
        let position = self.tail;
        let at = self.memory.at(position);
        let record = &words[at..at + size / 8];
        record[0].store(header.first_word(len as u32), Ordering::Relaxed);
        record[1].store(header.id, Ordering::Relaxed);
        record[2].store(header.aux, Ordering::Relaxed);
        record[STATE_WORD].store(QUEUED, Ordering::Relaxed);
        write_words(&record[WORDS_IN_HEADER..], parts);
        #[cfg(loom)]
        self.memory.model.places[at * 8 / RECORD_ALIGN].with_mut(|_| ());
        self.tail = self.tail.wrapping_add(size as u64);
        self.memory.shared().tail.0.store(self.tail, Ordering::Release);
        Ok(Position(position))
    }

    fn has_room(&mut self, size: usize) -> Result<bool, PushError> {
        // An impossible head, such as one found at the start, wraps to more than the capacity.
        let capacity = self.memory.capacity as u64;
        let fits = |head: u64| self.tail.wrapping_sub(head) <= capacity - size as u64;
        if fits(self.head) {
            return Ok(true);
        }
        let head = self.memory.shared().head.0.load(Ordering::Acquire);
        // The consumer only moves forward, from record to record, and not past the tail.
        let sane = head >= self.head && head <= self.tail && self.tail - head <= capacity;
        if !sane || !head.is_multiple_of(RECORD_ALIGN as u64) {
            return Err(PushError::Corrupt);
        }
        self.head = head;
        Ok(fits(head))
    }

    /// Wakes the consumer if it sleeps; returns whether it did.
    pub fn wake_consumer(&self) -> bool {
        // Its fence pairs with the one in Consumer::wait: either the consumer sees this record, or the producer sees
        // that the consumer sleeps.
        self.memory.wake_consumer()
    }

    /// The ring's memory if its consumer sleeps, for a caller that wakes it later.
    pub fn sleeper(&self) -> Option<RingMemory> {
        // As in `wake_consumer`.
        fence(Ordering::SeqCst);
        self.memory.shared().sleep.0.is_raised().then(|| self.memory.clone())
    }

    /// Whether records of these lengths, pushed one after another, fit now.
    ///
    /// # Errors
    ///
    /// As [`try_push`](Self::try_push).
    pub fn has_room_for(&mut self, lengths: impl Iterator<Item = usize>) -> Result<bool, PushError> {
        let capacity = self.memory.capacity;
        let mut size = 0_usize;
        for len in lengths {
            let record = record_size(len);
            let to_end = capacity - ((self.tail as usize).wrapping_add(size) & (capacity - 1));
            size += record + if record > to_end { to_end } else { 0 };
            if size > capacity {
                return Ok(false);
            }
        }
        self.has_room(size)
    }

    /// Takes back a record that the consumer has not started.
    pub fn retract(&self, position: Position) -> Retract {
        if self.passed(position) {
            return Retract::Started;
        }
        let state = &self.memory.words()[self.memory.at(position.0) + STATE_WORD];
        match state.compare_exchange(QUEUED, TAKEN, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Retract::Taken,
            Err(_) => Retract::Started,
        }
    }

    /// Whether the consumer has started a record that was not taken back.
    pub fn started(&self, position: Position) -> bool {
        let state = &self.memory.words()[self.memory.at(position.0) + STATE_WORD];
        // The record is overwritten only after the consumer has passed its position, and only by this producer.
        self.passed(position) || state.load(Ordering::Acquire) != QUEUED
    }

    fn passed(&self, position: Position) -> bool {
        self.memory.shared().head.0.load(Ordering::Acquire) > position.0
    }

    /// Whether the consumer has passed all records.
    pub fn is_empty(&self) -> bool {
        self.memory.shared().head.0.load(Ordering::Acquire) == self.tail
    }

    /// Bytes not yet consumed, according to the consumer's shared position: only a hint, and at most the capacity.
    pub fn used(&self) -> usize {
        let head = self.memory.shared().head.0.load(Ordering::Relaxed);
        usize::try_from(self.tail.saturating_sub(head)).unwrap_or(usize::MAX).min(self.memory.capacity)
    }

    /// Waits until a record with `need` bytes of payload fits, or the time is up. Returns true if it fits, or if the
    /// consumer's position is impossible, which the next push reports. May return early.
    pub fn wait_space(&mut self, need: usize, timeout: Option<Duration>) -> bool {
        // Padding at the end may take as much again.
        let size = (2 * record_size(need)).min(self.memory.capacity);
        // Its fence pairs with the one in Consumer::finish: either the consumer sees that the producer sleeps, or the
        // producer sees the room.
        let memory = self.memory.clone();
        memory.shared().full.0.sleep_unless(|| !matches!(self.has_room(size), Ok(false)), timeout);
        !matches!(self.has_room(size), Ok(false))
    }
}

/// Writes bytes word by word; the rest of the last word is zero.
fn write_words(words: &[AtomicU64], parts: &[&[u8]]) {
    let mut words = words.iter();
    let mut pending = [0_u8; 8];
    let mut filled = 0;
    for part in parts {
        let mut bytes = *part;
        if filled > 0 {
            let take = bytes.len().min(8 - filled);
            pending[filled..filled + take].copy_from_slice(&bytes[..take]);
            filled += take;
            bytes = &bytes[take..];
            if filled < 8 {
                continue;
            }
            if let Some(word) = words.next() {
                word.store(u64::from_ne_bytes(pending), Ordering::Relaxed);
            }
        }
        let (whole, rest) = bytes.as_chunks::<8>();
        for chunk in whole {
            if let Some(word) = words.next() {
                word.store(u64::from_ne_bytes(*chunk), Ordering::Relaxed);
            }
        }
        pending[..rest.len()].copy_from_slice(rest);
        filled = rest.len();
    }
    if filled > 0
        && let Some(word) = words.next()
    {
        pending[filled..].fill(0);
        word.store(u64::from_ne_bytes(pending), Ordering::Relaxed);
    }
}

/// The consuming end of a ring.
#[derive(Debug)]
pub struct Consumer {
    memory: RingMemory,
    /// This end's own position; the shared one is its copy.
    head: u64,
    /// The producer's position as last seen and checked.
    tail: u64,
    /// The length and size of the record that `peek` found.
    current: Option<(usize, usize)>,
}

impl Consumer {
    /// Whether there is a record, perhaps a retracted one.
    pub fn is_ready(&self) -> bool {
        self.memory.shared().tail.0.load(Ordering::Acquire) != self.head
    }

    /// The next record's header; retracted records and padding are skipped. The record stays until
    /// [`finish`](Self::finish), and another peek returns it again.
    ///
    /// # Errors
    ///
    /// [`Corrupt`] if the shared numbers are impossible.
    pub fn peek(&mut self) -> Result<Option<Header>, Corrupt> {
        // Loads the shared tail only once: a peer that moves it for ever must not keep this loop running.
        let mut looked = false;
        loop {
            if self.tail == self.head {
                if looked {
                    return Ok(None);
                }
                looked = true;
                let tail = self.memory.shared().tail.0.load(Ordering::Acquire);
                let ahead = tail.wrapping_sub(self.head);
                if ahead > self.memory.capacity as u64 || !ahead.is_multiple_of(RECORD_ALIGN as u64) {
                    return Err(Corrupt);
                }
                if ahead == 0 {
                    return Ok(None);
                }
                self.tail = tail;
            }
            let at = self.memory.at(self.head);
            let words = self.memory.words();
            let first = words[at].load(Ordering::Relaxed);
            let header = Header::from_words(
                first,
                words[at + 1].load(Ordering::Relaxed),
                words[at + 2].load(Ordering::Relaxed),
            );
            let len = header.len as usize;
            let size = record_size(len);
            if size as u64 > self.tail.wrapping_sub(self.head) || at * 8 + size > self.memory.capacity {
                return Err(Corrupt);
            }
            self.current = Some((len, size));
            match words[at + STATE_WORD].load(Ordering::Acquire) {
                QUEUED | STARTED if header.kind != PADDING => return Ok(Some(header)),
                QUEUED | TAKEN => self.finish(),
                _ => {
                    self.current = None;
                    return Err(Corrupt);
                }
            }
        }
    }

    /// Claims the record that [`peek`](Self::peek) returned; false if the producer has retracted it, and then it is
    /// skipped.
    pub fn start(&mut self) -> bool {
        if self.current.is_none() {
            return false;
        }
        let state = &self.memory.words()[self.memory.at(self.head) + STATE_WORD];
        match state.compare_exchange(QUEUED, STARTED, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) | Err(STARTED) => true,
            Err(_) => {
                self.finish();
                false
            }
        }
    }

    /// The current record's payload, in place: for a consumer that trusts its producer not to write to it.
    #[cfg(not(loom))]
    pub fn payload(&self) -> &[u8] {
        let Some((len, _)) = self.current else { return &[] };
        let words = &self.memory.words()[self.memory.at(self.head) + WORDS_IN_HEADER..];
        // SAFETY: `peek` has checked that the record lies inside the ring; the producer does not write to it
        // before `finish`, which needs &mut self.
        unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), len) }
    }

    /// Copies the current record's payload onto the end of `out`: for a consumer that does not trust its
    /// producer.
    pub fn copy_payload(&self, out: &mut Vec<u8>) {
        let Some((len, _)) = self.current else { return };
        let at = self.memory.at(self.head) + WORDS_IN_HEADER;
        let words = &self.memory.words()[at..at + len.div_ceil(8)];
        #[cfg(loom)]
        self.memory.model.places[self.memory.at(self.head) * 8 / RECORD_ALIGN].with(|_| ());
        let start = out.len();
        // Zeroed first, so that the loop below need not check the capacity for each word.
        out.resize(start + len.next_multiple_of(8), 0);
        let (chunks, _) = out[start..].as_chunks_mut::<8>();
        for (chunk, word) in chunks.iter_mut().zip(words) {
            *chunk = word.load(Ordering::Relaxed).to_ne_bytes();
        }
        out.truncate(start + len);
    }

    /// Passes the current record: the producer may use its bytes again.
    pub fn finish(&mut self) {
        let Some((_, size)) = self.current.take() else { return };
        self.head = self.head.wrapping_add(size as u64);
        self.memory.shared().head.0.store(self.head, Ordering::Release);
        // Pairs with the fence in Producer::wait_space: either the producer sees the room, or the consumer sees that it
        // waits.
        fence(Ordering::SeqCst);
        self.memory.shared().full.0.wake_if_asleep();
    }

    /// Waits for a record: spins for a moment, then sleeps. May return early; returns whether there is one.
    pub fn wait(
        &mut self,
        spin: &mut AdaptiveSpin,
        may_spin: impl Fn() -> bool,
        timeout: Option<Duration>,
    ) -> bool {
        if spin.spin(may_spin, || self.is_ready()) {
            return true;
        }
        // Its fence pairs with the one in Producer::wake_consumer: either the producer sees that the consumer sleeps,
        // or the consumer sees the record.
        self.memory.shared().sleep.0.sleep_unless(|| self.is_ready(), timeout);
        self.is_ready()
    }
}
