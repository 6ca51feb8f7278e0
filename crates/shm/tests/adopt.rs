//! A segment that its maker gives away.

#![cfg(not(loom))]

use std::os::fd::AsFd;

use windlass_shm::arena::{Arena, ArenaConfig};
use windlass_shm::segment::Segment;

#[test]
fn an_adopted_segment_is_used_again_by_its_new_owner() {
    let arena = Arena::new(ArenaConfig { keep: 64 << 20 });
    let made = Segment::create(3 << 20, true).expect("room").publish(None);
    made.copy_in(5, b"result").expect("inside");
    let (id, generation) = (made.id(), made.generation());
    let fd = made.fd().expect("open").try_clone_to_owned().expect("a descriptor");
    let spy = fd.as_fd().try_clone_to_owned().expect("a descriptor");
    drop(made);

    let adopted = Segment::adopt(fd, id, generation, &arena).expect("sound");
    // SAFETY: six bytes inside the segment that nobody writes to.
    let bytes = unsafe { std::slice::from_raw_parts(adopted.data().expect("mapped").add(5), 6) };
    assert_eq!(bytes, b"result");
    drop(adopted);

    let lease = arena.put_parts(&[&vec![7; 3 << 20]]).expect("room");
    assert_eq!((lease.segment().id(), lease.generation()), (id, generation + 1));
    // Whoever still has the old handle learns that it is stale; in another process that is by the shared
    // header.
    assert!(Segment::lookup(id, generation).is_err());
    drop(lease);
    arena.trim();
    assert!(Segment::attach(spy, id, generation).is_err());
}
