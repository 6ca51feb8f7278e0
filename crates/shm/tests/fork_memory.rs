//! What a forked child has of its parent's memory stays as it was, whatever the parent does with its own references.

#![cfg(not(loom))]

use ropewalk_shm::memory::{Arena, Block, Segment};

fn bytes(segment: &Segment, offset: u64, length: usize) -> &[u8] {
    let data = segment.data().expect("mapped");
    // SAFETY: the range lies in the segment, which the caller has, and no thread writes to it.
    unsafe { std::slice::from_raw_parts(data.add(offset as usize), length) }
}

fn pipe() -> (i32, i32) {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    (ends[0], ends[1])
}

#[test]
fn a_child_keeps_what_it_had() {
    Arena::keep_warm();
    let arena = Arena::global();
    // On a shelf, in a segment of its own, in a slab, and a lease with a segment of its own.
    let sizes = [1000, 3 << 20];
    let blocks = sizes.map(|size| Block::copied(&vec![1; size]).expect("room"));
    let leases = sizes.map(|size| arena.put_parts(&[&vec![1; size]]).expect("room"));
    // They keep the shelf's and the slab's segment.
    let beside = (Block::copied(&[3; 10]).expect("room"), arena.put_parts(&[&[3; 10]]).expect("room"));
    let ids = [blocks[1].segment().id(), leases[1].segment().id()];
    let (wait, go) = pipe();

    // SAFETY: the child has no other thread, and exits by _exit.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let mut byte = 0_u8;
        // SAFETY: room for one byte.
        unsafe { libc::read(wait, (&raw mut byte).cast(), 1) };
        let all = |found: &[u8]| found.iter().all(|byte| *byte == 1);
        let whole = blocks.iter().zip(sizes).all(|(one, size)| all(bytes(one.segment(), one.offset(), size)))
            && leases.iter().zip(sizes).all(|(one, size)| all(bytes(one.segment(), one.ranges()[0].0, size)));
        ropewalk_os::process::exit_now(i32::from(!whole));
    }
    assert!(pid > 0);
    drop((blocks, leases));
    let mut kept = Vec::new();
    for size in sizes.repeat(3) {
        let block = Block::copied(&vec![2; size]).expect("room");
        let lease = arena.put_parts(&[&vec![2; size]]).expect("room");
        assert!(!ids.contains(&block.segment().id()) && !ids.contains(&lease.segment().id()));
        kept.push((block, lease));
    }
    // SAFETY: one byte; then the status is a live integer.
    let status = unsafe {
        libc::write(go, b"x".as_ptr().cast(), 1);
        let mut status = -1;
        while libc::waitpid(pid, &raw mut status, 0) < 0 {}
        status
    };
    assert_eq!(status, 0, "the child's memory has changed");

    // What was made since is reused as ever.
    let made: Vec<u64> = kept.iter().map(|(_, lease)| lease.segment().id()).collect();
    drop(kept);
    let again: Vec<_> = (0..6).map(|_| arena.put_parts(&[&vec![4; 3 << 20]]).expect("room")).collect();
    assert!(again.iter().any(|lease| made.contains(&lease.segment().id())));
    drop((again, beside));
}
