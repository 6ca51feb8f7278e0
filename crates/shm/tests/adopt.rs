//! A segment that its maker gives away.

#![cfg(not(loom))]

use std::os::fd::AsFd;

use ropewalk_base::Code;
use ropewalk_shm::memory::{Arena, ArenaConfig, Segment};

/// One test after the other: the descriptors of a process are counted.
#[test]
fn adoption() {
    beyond_a_number_an_adopted_segment_has_no_descriptor();
    an_adopted_segment_is_used_again_by_its_new_owner();
}

fn beyond_a_number_an_adopted_segment_has_no_descriptor() {
    const MOST_OPEN: usize = 64;
    let arena = Arena::new(ArenaConfig { keep: 0 });
    let adopt = || {
        let made = Segment::create(100, true).expect("room").publish(None);
        made.copy_in(0, b"still there").expect("inside");
        let (id, fd) = (made.id(), made.fd().expect("open").try_clone_to_owned().expect("a descriptor"));
        drop(made);
        Segment::adopt(fd, id, 1, &arena).expect("sound")
    };
    for _ in 0..2 {
        let all: Vec<_> = (0..MOST_OPEN + 2).map(|_| adopt()).collect();
        assert!(all[..MOST_OPEN].iter().all(|segment| segment.fd().is_some()));
        for late in &all[MOST_OPEN..] {
            assert!(late.fd().is_none());
            assert_eq!(late.copy_out(0, 11).expect("mapped"), b"still there");
            assert_eq!(late.set_aside().expect_err("no descriptor").code(), Code::OutOfDescriptors);
        }
        // Once they are gone there is room for more.
    }
}

fn an_adopted_segment_is_used_again_by_its_new_owner() {
    let arena = Arena::new(ArenaConfig { keep: 64 << 20 });
    let made = Segment::create(3 << 20, true).expect("room").publish(None);
    made.copy_in(5, b"result").expect("inside");
    let (id, generation) = (made.id(), made.generation());
    let fd = made.fd().expect("open").try_clone_to_owned().expect("a descriptor");
    let spy = fd.as_fd().try_clone_to_owned().expect("a descriptor");
    drop(made);

    let adopted = Segment::adopt(fd, id, generation, &arena).expect("sound");
    // SAFETY: six bytes inside the segment that no thread writes to.
    let bytes = unsafe { std::slice::from_raw_parts(adopted.data().expect("mapped").add(5), 6) };
    assert_eq!(bytes, b"result");
    drop(adopted);

    let lease = arena.put_parts(&[&vec![7; 3 << 20]]).expect("room");
    assert_eq!((lease.segment().id(), lease.generation()), (id, generation + 1));
    // A holder of the old handle learns that it is stale; another process learns it from the shared header.
    assert!(Segment::lookup(id, generation).is_err());
    drop(lease);
    arena.trim();
    assert!(Segment::attach(spy, id, generation).is_err());
}
