//! A forked child does nothing to its parent's segments.

#![cfg(not(loom))]

use std::sync::Arc;

use ropewalk_shm::memory::{Arena, ArenaConfig, Lease, Segment};

fn bytes(lease: &Lease) -> Vec<u8> {
    let (offset, length) = lease.ranges()[0];
    let data = lease.segment().data().expect("mapped");
    // SAFETY: the range lies in the segment, and no thread writes to it meanwhile.
    unsafe { std::slice::from_raw_parts(data.add(offset as usize), length as usize).to_vec() }
}

/// Runs `child` in a forked child; its result says whether all was well.
fn in_child(child: impl FnOnce() -> bool) -> bool {
    // The first call counts from here on.
    ropewalk_os::process::fork_generation();
    // SAFETY: this test binary has one test, so only the harness's thread could hold a lock, and the child uses none of
    // its locks: it exits by _exit, even when `child` panics.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let fine = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).unwrap_or(false);
        ropewalk_os::process::exit_now(i32::from(!fine));
    }
    let mut status = -1;
    // SAFETY: the status is a live integer.
    while unsafe { libc::waitpid(pid, &raw mut status, 0) } < 0 {}
    status == 0
}

#[test]
fn a_child_neither_returns_nor_reuses_its_parents_memory() {
    let arena = Arena::new(ArenaConfig { keep: 64 << 20 });
    let (small, large) = (vec![1; 40_000], vec![2; 3 << 20]);
    let mut leases =
        vec![arena.put_parts(&[&small]).expect("room"), arena.put_parts(&[&large]).expect("room")];
    drop(arena.put_parts(&[&large]).expect("room"));
    let before: Vec<_> = leases.iter().map(|lease| (lease.segment().id(), lease.generation())).collect();
    let global = Arc::as_ptr(Arena::global());

    let fine = in_child(|| {
        let inherited = leases.iter().map(|lease| lease.segment().id()).collect::<Vec<_>>();
        // The child drops the parent's leases, and must not use memory that the parent keeps for reuse.
        leases.clear();
        let own = [arena.put_parts(&[&vec![9; 40_000]]), arena.put_parts(&[&vec![9; 3 << 20]])];
        let own = own.map(|lease| lease.expect("room"));
        let fresh = own.iter().all(|lease| !inherited.contains(&lease.segment().id()));
        let found = own
            .iter()
            .all(|lease| Segment::lookup(lease.segment().id(), 1).is_ok_and(|segment| segment.is_some()));
        let right = own.iter().all(|lease| bytes(lease).iter().all(|byte| *byte == 9));
        drop(own);
        arena.trim();
        let global_differs = !std::ptr::eq(Arc::as_ptr(Arena::global()), global);
        fresh
            && found
            && right
            && global_differs
            && Segment::lookup(inherited[0], 1).is_ok_and(|s| s.is_none())
    });
    assert!(fine);

    for (lease, (id, generation)) in leases.iter().zip(before) {
        let found = Segment::lookup(id, generation).expect("not stale").expect("still known");
        assert!(Arc::ptr_eq(&found, lease.segment()));
    }
    assert!(bytes(&leases[0]) == small && bytes(&leases[1]) == large);
    let reused = arena.put_parts(&[&large]).expect("room");
    assert_eq!(reused.generation(), 2, "the kept segment is still the parent's to use");
}
