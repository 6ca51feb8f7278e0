//! A peer that writes anything anywhere at any time: this process's end gives records, nothing, or an error; never a
//! crash, never an endless loop.

#![cfg(not(loom))]

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ropewalk_base::Code;
use ropewalk_os::memfd;
use ropewalk_os::mmap::{Mapping, Protection};
use ropewalk_shm::channel::ring::{Consumer, Header, Producer, PushError, RingMemory};
use ropewalk_shm::memory::{HEADER, Segment};

const CAPACITY: usize = 1024;
const SHARED: usize = 256;
const WORDS: usize = (SHARED + CAPACITY) / 8;
/// The offsets of the shared words, as in the crate's README.
const HEAD: usize = 0;
const TAIL: usize = 8;

/// SplitMix64: small, and the same on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// Numbers near the bounds that a check could get wrong.
    fn nasty(&mut self) -> u64 {
        let base =
            [0, 1, 31, 32, 33, 64, 1023, 1024, 1025, 0xFFFF, u64::from(u32::MAX), u64::MAX][self.below(12)];
        match self.below(4) {
            0 => base,
            1 => base.wrapping_sub(32),
            2 => base << 32 | self.next() >> 40,
            _ => self.next(),
        }
    }
}

fn memory() -> (Arc<Mapping>, RingMemory) {
    let size = RingMemory::required(CAPACITY);
    let fd = memfd::create(c"ropewalk-test", size as u64, true).expect("a memfd");
    let map = Arc::new(Mapping::map(fd.as_fd(), size, Protection::ReadWrite).expect("a mapping"));
    let memory = RingMemory::new(Arc::clone(&map), 0, CAPACITY).expect("it fits");
    memory.initialise();
    (map, memory)
}

fn words(map: &Mapping) -> &[AtomicU64] {
    // SAFETY: the mapping is page-aligned, WORDS words long, and accessed by atomics only in this test.
    unsafe { std::slice::from_raw_parts(map.as_ptr().cast::<AtomicU64>(), WORDS) }
}

/// Reads all records; returns their number, or None once the ring is found corrupt.
fn read(consumer: &mut Consumer) -> Option<usize> {
    let mut copy = Vec::new();
    // No ring holds more records than this, whatever its words contain.
    for count in 0..=CAPACITY / 32 {
        match consumer.peek() {
            Ok(Some(header)) => {
                assert!(header.len as usize <= CAPACITY - 32);
                copy.clear();
                consumer.copy_payload(&mut copy);
                assert_eq!(copy.len(), header.len as usize);
                consumer.start();
                consumer.finish();
            }
            Ok(None) => return Some(count),
            Err(corrupt) => {
                assert_eq!(ropewalk_base::Error::from(corrupt).code(), Code::SharedMemoryCorrupt);
                return None;
            }
        }
    }
    // A tail that keeps moving can supply nonsense for ever, one bounded step at a time.
    Some(CAPACITY / 32)
}

#[test]
fn corrupted_words_never_harm_the_consumer() {
    let mut random = Random(1);
    let (mut corrupt, mut sound) = (0, 0);
    for _ in 0..20_000 {
        let (map, memory) = memory_reused();
        let (mut producer, mut consumer) = (memory.clone().producer(), memory.consumer());
        for id in 0..random.below(12) as u64 {
            let bytes = vec![id as u8; random.below(200)];
            let _ = producer.try_push(Header { kind: 1, flags: 0, len: 0, id, aux: 0 }, &[&bytes]);
        }
        for _ in 0..random.below(3) {
            if consumer.peek().expect("still sound").is_some() {
                consumer.finish();
            }
        }
        for _ in 0..=random.below(6) {
            let at = if random.below(3) == 0 {
                [HEAD, TAIL, 16, 24][random.below(4)]
            } else {
                random.below(WORDS)
            };
            words(map)[at].store(random.nasty(), Ordering::Relaxed);
        }
        match read(&mut consumer) {
            None => corrupt += 1,
            Some(_) => sound += 1,
        }
    }
    assert!(corrupt > 1000 && sound > 1000, "{corrupt} {sound}");
}

#[test]
fn a_record_lies_inside_the_ring_to_its_last_byte() {
    for used in [0, 32, 512, 896, 992] {
        for (beyond, is_sound) in [(0, true), (1, false), (400, false)] {
            let (map, memory) = memory();
            let (mut producer, mut consumer) = (memory.clone().producer(), memory.consumer());
            for _ in 0..used / 32 {
                let pushed = producer.try_push(Header { kind: 1, ..Header::default() }, &[]);
                assert!(pushed.is_ok());
                assert!(consumer.peek().expect("sound").is_some());
                consumer.finish();
            }
            // According to the tail a record of this length is complete, but the ring ends before its end.
            let length = CAPACITY - used - 32 + beyond;
            let (words, at) = (words(&map), (SHARED + used) / 8);
            words[at].store(length as u64 | 1 << 32, Ordering::Relaxed);
            words[at + 3].store(1, Ordering::Relaxed);
            words[TAIL].store((used + CAPACITY) as u64, Ordering::Release);
            let length_of = |record: Option<Header>| record.map(|record| record.len as usize);
            assert_eq!(
                consumer.peek().map(length_of).ok(),
                is_sound.then_some(Some(length)),
                "{used} {beyond}"
            );
        }
    }
}

/// One ring for many rounds: a mapping for each would be most of the test's time.
fn memory_reused() -> (&'static Mapping, RingMemory) {
    use std::cell::OnceCell;
    thread_local! {
        static MEMORY: OnceCell<(&'static Arc<Mapping>, RingMemory)> = const { OnceCell::new() };
    }
    MEMORY.with(|cell| {
        let (map, memory) = cell.get_or_init(|| {
            let (map, memory) = memory();
            (Box::leak(Box::new(map)), memory)
        });
        for word in words(map) {
            word.store(0, Ordering::Relaxed);
        }
        (&***map, memory.clone())
    })
}

#[test]
fn corrupted_heads_never_harm_the_producer() {
    let mut random = Random(2);
    let mut blamed = 0;
    for _ in 0..4_000 {
        let (map, memory) = memory_reused();
        let mut producer = memory.producer();
        let mut positions = Vec::new();
        for id in 0..40 {
            if random.below(8) == 0 {
                words(map)[HEAD].store(random.nasty(), Ordering::Relaxed);
            }
            if random.below(8) == 0 {
                words(map)[random.below(WORDS)].store(random.nasty(), Ordering::Relaxed);
            }
            let bytes = [7; 512];
            let length = random.below(500);
            match producer.try_push(Header { kind: 1, flags: 0, len: 0, id, aux: 0 }, &[&bytes[..length]]) {
                Ok(position) => positions.push(position),
                Err(PushError::Corrupt) => blamed += 1,
                Err(PushError::Full) => {
                    producer.wait_space(length, Some(Duration::ZERO));
                }
                Err(PushError::TooLarge) => assert!(length > producer.max_record()),
            }
            assert!(producer.used() <= CAPACITY);
            for position in &positions {
                let _ = (producer.retract(*position), producer.started(*position));
            }
            producer.is_empty();
            producer.wake_consumer();
        }
    }
    assert!(blamed > 200, "{blamed}");
}

#[test]
fn ends_that_start_on_nonsense_survive_it() {
    let mut random = Random(3);
    for _ in 0..20_000 {
        let (map, memory) = memory_reused();
        for at in [HEAD, TAIL] {
            words(map)[at].store(random.nasty(), Ordering::Relaxed);
        }
        let (mut producer, mut consumer): (Producer, Consumer) =
            (memory.clone().producer(), memory.consumer());
        for id in 0..4 {
            let _ = producer.try_push(Header { kind: 1, flags: 0, len: 0, id, aux: 0 }, &[&[1; 100]]);
            let _ = read(&mut consumer);
        }
    }
}

#[test]
fn a_peer_that_scribbles_meanwhile_does_no_harm() {
    let (map, memory) = memory();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random(4);
            while !stop.load(Ordering::Relaxed) {
                let at = if random.below(2) == 0 {
                    [HEAD, TAIL, 16, 24][random.below(4)]
                } else {
                    random.below(WORDS)
                };
                let sane = words(&map)[TAIL].load(Ordering::Relaxed).wrapping_add(32);
                let value = if random.below(2) == 0 { sane } else { random.nasty() };
                words(&map)[at].store(value, Ordering::Relaxed);
            }
        });
        let end = Instant::now() + Duration::from_millis(700);
        while Instant::now() < end {
            let (mut producer, mut consumer) = (memory.clone().producer(), memory.clone().consumer());
            for id in 0..100 {
                let _ = producer.try_push(Header { kind: 1, flags: 0, len: 0, id, aux: 0 }, &[&[1; 100]]);
                producer.wake_consumer();
                let _ = read(&mut consumer);
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_segment_with_a_corrupt_header_is_refused() {
    let mut random = Random(5);
    for _ in 0..2_000 {
        let segment = Segment::create(1000, true).expect("a segment").publish(None);
        let (id, fd) =
            (segment.id(), segment.fd().expect("open").try_clone_to_owned().expect("a descriptor"));
        drop(segment);
        let at = random.below(5);
        let value = random.nasty();
        let before = {
            let map = Mapping::map(fd.as_fd(), HEADER, Protection::ReadWrite).expect("a mapping");
            // SAFETY: the header page is aligned and five words long at least.
            let words = unsafe { std::slice::from_raw_parts(map.as_ptr().cast::<AtomicU64>(), 5) };
            words[at].swap(value, Ordering::Relaxed)
        };
        match Segment::attach(fd, id, 1) {
            Ok(_) => assert_eq!(before, value),
            Err(error) => {
                assert!(matches!(error.code(), Code::SharedMemoryCorrupt | Code::StaleHandle), "{error:?}")
            }
        }
    }
}

#[test]
fn a_segment_that_could_be_shrunk_is_refused() {
    let segment = Segment::create(8192, true).expect("a segment").publish(None);
    let copy = memfd::create(c"ropewalk-test", 4096 + 8192, false).expect("a memfd");
    let from = Mapping::map(segment.fd().expect("open"), HEADER, Protection::Read).expect("a mapping");
    // SAFETY: the header page is mapped, and no thread writes to it here.
    let page = unsafe { std::slice::from_raw_parts(from.as_ptr(), HEADER) };
    memfd::write_at(copy.as_fd(), page, 0).expect("written");
    let id = segment.id();
    drop((from, segment));
    assert_eq!(Segment::attach(copy, id, 1).expect_err("not sealed").code(), Code::SharedMemoryCorrupt);
}

#[test]
fn ranges_outside_are_refused_without_overflow() {
    let segment = Segment::create(1000, true).expect("a segment");
    for (offset, length) in [(1000, 1), (0, 1001), (u64::MAX, 1), (1, u64::MAX), (u64::MAX, u64::MAX)] {
        assert_eq!(
            segment.check_range(offset, length).expect_err("outside").code(),
            Code::SharedMemoryCorrupt
        );
    }
    segment.check_range(1000, 0).expect("empty, at the end");
    for size in [usize::MAX, usize::MAX - 4096, 1 << 62] {
        assert_eq!(Segment::create(size, true).expect_err("too large").code(), Code::OutOfMemory);
    }
}
