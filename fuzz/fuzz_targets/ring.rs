//! Both ends of a ring, whose memory a peer changes between any two of their steps.
//!
//! The input is a program of 3-byte commands: what to do, and with what. Every outcome is fine but a crash, a
//! read outside of the memory, or a loop without end.

#![no_main]

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use ropewalk_os::memfd;
use ropewalk_os::mmap::{Mapping, Protection};
use ropewalk_shm::channel::ring::{Header, RingMemory};

const CAPACITY: usize = 512;
const WORDS: usize = (256 + CAPACITY) / 8;

thread_local! {
    static MAP: Arc<Mapping> = {
        let size = RingMemory::required(CAPACITY);
        let fd = memfd::create(c"ropewalk-fuzz", size as u64, true).expect("a memfd");
        Arc::new(Mapping::map(fd.as_fd(), size, Protection::ReadWrite).expect("a mapping"))
    };
}

fuzz_target!(|program: &[u8]| MAP.with(|map| run(map, program)));

fn run(map: &Arc<Mapping>, program: &[u8]) {
    // SAFETY: the mapping is page-aligned and WORDS words long; it is accessed by atomics only.
    let words = unsafe { std::slice::from_raw_parts(map.as_ptr().cast::<AtomicU64>(), WORDS) };
    for word in words {
        word.store(0, Ordering::Relaxed);
    }
    let memory = RingMemory::new(Arc::clone(map), 0, CAPACITY).expect("it fits");
    let (mut producer, mut consumer) = (memory.clone().producer(), memory.clone().consumer());
    let (mut positions, mut copy, bytes) = (Vec::new(), Vec::new(), [7; 300]);
    for command in program.chunks_exact(3) {
        let (what, a, b) = (command[0] % 12, command[1], command[2]);
        match what {
            0..=2 => {
                let header = Header { kind: u16::from(a), flags: 0, len: 0, id: u64::from(b), aux: 0 };
                let length = usize::from(a) + usize::from(b) / 8;
                positions.extend(producer.try_push(header, &[&bytes[..length]]));
            }
            3..=4 => {
                if let Ok(Some(header)) = consumer.peek() {
                    assert!(header.len as usize <= CAPACITY - 32);
                    copy.clear();
                    consumer.copy_payload(&mut copy);
                    assert_eq!(copy.len(), header.len as usize);
                    assert_eq!(consumer.payload().len(), copy.len());
                }
            }
            5 => {
                consumer.start();
            }
            6 => consumer.finish(),
            7 => {
                for position in &positions {
                    let _ = (producer.retract(*position), producer.started(*position));
                }
                assert!(producer.used() <= CAPACITY);
            }
            8 => {
                producer.wait_space(usize::from(a), Some(Duration::ZERO));
                producer.wake_consumer();
            }
            // A small number, to one of the four shared words: near what is right.
            9 => words[usize::from(a % 4) * 8].store(u64::from(b) * 8, Ordering::Relaxed),
            // A number anywhere: one byte of it is b.
            10 => words[usize::from(a) % WORDS].store(u64::from(b) << (a / 32 * 8), Ordering::Relaxed),
            // Fresh ends over what is there, as after an attach.
            _ => (producer, consumer) = (memory.clone().producer(), memory.clone().consumer()),
        }
    }
}
