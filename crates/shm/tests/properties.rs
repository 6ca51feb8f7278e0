//! A ring against a simple reference queue.

#![cfg(not(loom))]

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;

use proptest::prelude::*;
use ropewalk_os::memfd;
use ropewalk_os::mmap::{Mapping, Protection};
use ropewalk_shm::channel::ring::{Header, Position, PushError, Retract, RingMemory};

#[derive(Clone, Debug)]
enum Step {
    Push(Vec<Vec<u8>>),
    Take,
    /// Takes back the record at this distance from the newest.
    Retract(usize),
    Peek,
}

fn step() -> impl Strategy<Value = Step> {
    let part = proptest::collection::vec(any::<u8>(), 0..120);
    prop_oneof![
        4 => proptest::collection::vec(part, 0..4).prop_map(Step::Push),
        4 => Just(Step::Take),
        1 => (0..6_usize).prop_map(Step::Retract),
        1 => Just(Step::Peek),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_ring_is_a_queue(capacity in prop_oneof![Just(256_usize), Just(512), Just(2048)],
                         steps in proptest::collection::vec(step(), 1..300)) {
        let size = RingMemory::required(capacity);
        let fd = memfd::create(c"ropewalk-test", size as u64, true).expect("a memfd");
        let map = Mapping::map(fd.as_fd(), size, Protection::ReadWrite).expect("a mapping");
        let memory = RingMemory::new(Arc::new(map), 0, capacity).expect("it fits");
        memory.initialise();
        let (mut producer, mut consumer) = (memory.clone().producer(), memory.consumer());
        // The expected content of the ring: id, payload, position, whether it was started.
        let mut queue: VecDeque<(u64, Vec<u8>, Position, bool)> = VecDeque::new();
        let mut passed: Vec<Position> = Vec::new();
        for (id, step) in steps.into_iter().enumerate() {
            let id = id as u64;
            match step {
                Step::Push(parts) => {
                    let bytes = parts.concat();
                    let slices: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
                    let header = Header { kind: 1, flags: id as u16, len: 0, id, aux: id ^ 7 };
                    match producer.try_push(header, &slices) {
                        Ok(position) => queue.push_back((id, bytes, position, false)),
                        Err(PushError::TooLarge) => prop_assert!(bytes.len() > producer.max_record()),
                        Err(PushError::Full) => prop_assert!(!producer.is_empty(), "an empty one has room"),
                        Err(PushError::Corrupt) => prop_assert!(false, "no end writes nonsense"),
                    }
                }
                Step::Peek => {
                    let found = consumer.peek().expect("a sound ring");
                    prop_assert_eq!(found.map(|header| header.id), queue.front().map(|front| front.0));
                }
                Step::Take => {
                    let found = consumer.peek().expect("a sound ring");
                    let expected = queue.pop_front();
                    prop_assert_eq!(found.is_some(), expected.is_some());
                    let (Some(header), Some((id, bytes, position, _))) = (found, expected) else { continue };
                    prop_assert_eq!((header.id, header.aux, header.flags), (id, id ^ 7, id as u16));
                    prop_assert_eq!(header.len as usize, bytes.len());
                    prop_assert!(consumer.start());
                    let mut copy = vec![9; 3];
                    consumer.copy_payload(&mut copy);
                    prop_assert_eq!(&copy[3..], &bytes[..], "appended");
                    prop_assert_eq!(consumer.payload(), &bytes[..]);
                    consumer.finish();
                    passed.push(position);
                }
                Step::Retract(back) => {
                    let Some(at) = queue.len().checked_sub(back + 1) else { continue };
                    let position = queue[at].2;
                    prop_assert_eq!(producer.retract(position), Retract::Taken);
                    // A consumer that has peeked at it learns this when it starts.
                    if at == 0 {
                        let _ = consumer.start();
                    }
                    queue.remove(at);
                }
            }
            prop_assert!(producer.used() <= capacity);
            for position in &passed {
                prop_assert_eq!(producer.retract(*position), Retract::Started);
            }
            passed.truncate(8);
        }
        while let Some((id, ..)) = queue.pop_front() {
            prop_assert_eq!(consumer.peek().expect("a sound ring").map(|header| header.id), Some(id));
            consumer.finish();
        }
        prop_assert_eq!(consumer.peek(), Ok(None));
    }
}
