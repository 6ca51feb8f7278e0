//! Both ends of a pair of pipes, whose memory a peer changes between any two of their steps.
//!
//! The input is a program of 3-byte commands: what to do, and with what. Until the memory is tampered with, the bytes
//! that are read are those that were written, and nobody waits for a wake-up that does not come. From then on every
//! outcome is fine but a crash, a read outside of the memory, or more bytes than a pipe can hold.

#![no_main]

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use libfuzzer_sys::fuzz_target;
use ropewalk_os::mmap::{Mapping, Protection};
use ropewalk_shm::channel::pipe::End;

const CAPACITY: usize = 4096;
const PAGE: usize = 4096;
const SIZE: usize = PAGE + 2 * CAPACITY;
/// The words of both pipes are in the first page, one in each 128 bytes.
const LINE: usize = 128 / 8;
const WORDS: usize = 8;

/// One direction, as it should be.
#[derive(Default)]
struct Model {
    held: VecDeque<u8>,
    written: u64,
    /// The reader is about to sleep; the writer is.
    is_armed: bool,
    is_stuck: bool,
}

fuzz_target!(|program: &[u8]| {
    let Ok((maker, memory)) = End::create(CAPACITY) else { return };
    let Ok(opener) = End::open(memory.as_fd(), CAPACITY) else { panic!("what was made opens") };
    run(&memory, [maker, opener], program);
});

fn run(memory: &OwnedFd, mut ends: [End; 2], program: &[u8]) {
    let map = Mapping::map(memory.as_fd(), SIZE, Protection::ReadWrite).expect("a mapping");
    // SAFETY: the mapping is page-aligned and that long; it is accessed by atomics only.
    let words = unsafe { std::slice::from_raw_parts(map.as_ptr().cast::<AtomicU64>(), SIZE / 8) };
    let (mut models, mut is_honest) = ([Model::default(), Model::default()], true);
    let bytes: Vec<u8> = (0..=255).cycle().take(2 * CAPACITY).collect();
    for command in program.chunks_exact(3) {
        let (what, a, b) = (command[0] & 0x7f, command[1], command[2]);
        let from = usize::from(command[0] >> 7);
        let amount = usize::from(a) * usize::from(b % 32);
        let [one, other] = &mut ends;
        let (writer, reader) = if from == 0 {
            (&mut one.writer, &mut other.reader)
        } else {
            (&mut other.writer, &mut one.reader)
        };
        let model = &mut models[from];
        match what % 12 {
            0..=2 => {
                let start = (model.written % 256) as usize;
                let Ok(count) = writer.write(&bytes[start..start + amount.min(CAPACITY + 9)]) else {
                    assert!(!is_honest);
                    return;
                };
                assert!(count <= CAPACITY);
                model.held.extend(&bytes[start..start + count]);
                model.written += count as u64;
                let wakes = writer.must_wake_reader();
                assert!(!is_honest || !model.is_armed || wakes);
                model.is_armed &= !wakes;
            }
            3..=5 => {
                let mut read = Vec::with_capacity(amount);
                let Ok(count) = reader.read(&mut read, amount) else {
                    assert!(!is_honest);
                    return;
                };
                assert!(count == read.len() && count <= CAPACITY);
                if is_honest {
                    assert_eq!(count, amount.min(model.held.len()));
                    assert!(model.held.drain(..count).eq(read));
                }
                let wakes = reader.must_wake_writer();
                let has_room = model.held.len() <= CAPACITY / 2;
                assert!(!is_honest || wakes == (model.is_stuck && has_room));
                model.is_stuck &= !wakes;
            }
            6 => {
                let has_bytes = reader.arm();
                assert!(!is_honest || has_bytes == !model.held.is_empty());
                model.is_armed = !has_bytes;
            }
            7 => {
                let Ok(is_stuck) = writer.is_stuck() else {
                    assert!(!is_honest);
                    return;
                };
                assert!(!is_honest || is_stuck == (model.held.len() > CAPACITY / 2));
                model.is_stuck = is_stuck;
            }
            8 => {
                let seen = (reader.has_bytes(), reader.probe().has_bytes(), !writer.is_drained());
                let expected = !model.held.is_empty();
                assert!(!is_honest || seen == (expected, expected, expected));
            }
            // A number near what is right, to one of the words.
            9 => {
                is_honest = false;
                let word = &words[usize::from(a) % WORDS * LINE];
                word.fetch_add(u64::from(b).wrapping_sub(128), Ordering::Relaxed);
            }
            // A number anywhere: one byte of it is b.
            10 => {
                is_honest = false;
                words[usize::from(a) % WORDS * LINE]
                    .store(u64::from(b) << (a / 32 * 8), Ordering::Relaxed);
            }
            // The bytes themselves, which nobody believes.
            _ => {
                is_honest = false;
                words[PAGE / 8 + amount % (2 * CAPACITY / 8)].store(u64::MAX, Ordering::Relaxed);
            }
        }
    }
}
