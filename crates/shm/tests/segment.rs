//! A segment's memory, descriptor and copies.

#![cfg(not(loom))]

use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use ropewalk_base::Code;
use ropewalk_shm::memory::{Arena, ArenaConfig, HEADER, Segment};

/// Bytes of memory that a segment has.
fn memory(segment: &Segment) -> u64 {
    let fd = segment.fd().expect("open").as_raw_fd();
    std::fs::metadata(format!("/proc/self/fd/{fd}")).expect("open").blocks() * 512
}

fn bytes(segment: &Segment, offset: u64, length: u64) -> Vec<u8> {
    segment.copy_out(offset, length).expect("inside")
}

#[test]
fn memory_is_taken_and_given_back_where_it_is_asked_for() {
    let whole = Segment::create(1 << 20, true).expect("room");
    assert!(memory(&whole) >= (1 << 20) + HEADER as u64, "set aside at once");
    let sparse = Segment::create(1 << 20, false).expect("room");
    let empty = memory(&sparse);
    assert!(empty < 64 << 10, "{empty} bytes for nothing");
    sparse.fill(0, &[7; 100]).expect("room");
    sparse.set_range_aside(512 << 10, 64 << 10).expect("room");
    let some = memory(&sparse);
    assert!(some >= empty + (64 << 10) && some < 512 << 10, "{some}");
    sparse.set_aside().expect("room");
    assert!(memory(&sparse) >= 1 << 20);
    assert_eq!(bytes(&sparse, 0, 100), [7; 100], "what is there stays");
    sparse.copy_in(512 << 10, &[9; 64 << 10]).expect("inside");
    sparse.give_range_back(512 << 10, 64 << 10).expect("inside");
    assert!(memory(&sparse) <= (1 << 20) + HEADER as u64 - (64 << 10));
    assert_eq!(bytes(&sparse, 512 << 10, 64 << 10), vec![0; 64 << 10]);
    assert_eq!(bytes(&sparse, 0, 100), [7; 100]);
    for error in [
        sparse.fill((1 << 20) - 1, &[1; 2]).expect_err("outside"),
        sparse.copy_in(1 << 20, &[1]).expect_err("outside"),
        sparse.copy_out(1, 1 << 20).expect_err("outside"),
        sparse.set_range_aside(1 << 20, 1).expect_err("outside"),
        sparse.give_range_back(0, (1 << 20) + 1).expect_err("outside"),
        sparse.private_copy(1 << 20, 1).expect_err("outside"),
    ] {
        assert_eq!(error.code(), Code::SharedMemoryCorrupt, "{error}");
    }
}

#[test]
fn what_is_filled_is_seen_where_it_was_put() {
    let segment = Segment::create(20_000, false).expect("room");
    let all: Vec<u8> = (0..20_000_u32).map(|n| (n % 251) as u8).collect();
    segment.fill(0, &all[..9000]).expect("inside");
    segment.copy_in(9000, &all[9000..]).expect("inside");
    assert_eq!(bytes(&segment, 0, 20_000), all);
    assert_eq!(bytes(&segment, 4095, 3), all[4095..4098]);
    assert_eq!(segment.size(), 20_000);
}

#[test]
fn a_private_copy_shows_the_part_and_keeps_its_changes() {
    let segment = Segment::create(20_000, true).expect("room");
    let all: Vec<u8> = (0..20_000_u32).map(|n| (n % 251) as u8).collect();
    segment.copy_in(0, &all).expect("inside");
    for (offset, length) in [(0, 20_000), (0, 1), (4096, 4096), (5000, 9000), (19_999, 1), (100, 0)] {
        let (map, start) = segment.private_copy(offset, length).expect("inside");
        assert!(start as usize + length as usize <= map.as_ptr() as usize + map.len());
        // SAFETY: the part lies in the mapping, which no other code has.
        let part = unsafe { std::slice::from_raw_parts_mut(start, length as usize) };
        assert_eq!(part, &all[offset as usize..][..length as usize]);
        part.fill(255);
        assert_eq!(bytes(&segment, 0, 20_000), all, "no other mapping sees the write");
    }
}

#[test]
fn an_owner_that_reuses_memory_makes_old_handles_stale() {
    let arena = Arena::new(ArenaConfig { keep: 64 << 20 });
    let segment = arena.whole(&[3; 3 << 20]).expect("room");
    let (id, generation) = (segment.id(), segment.generation());
    assert!(id != 0 && segment.check(generation).is_ok());
    assert_eq!(segment.check(generation + 1).expect_err("another").code(), Code::StaleHandle);
    assert!(Arc::ptr_eq(&segment, &Segment::lookup(id, generation).expect("sound").expect("known")));
    assert_eq!(Segment::lookup(id, generation + 1).expect_err("another").code(), Code::StaleHandle);
    assert!(Segment::lookup(id ^ 2, generation).expect("sound").is_none());
    drop(segment);
    assert!(Segment::lookup(id, generation).expect("sound").is_none());
    let again = arena.whole(&[4; 3 << 20]).expect("room");
    assert_eq!((again.id(), again.generation()), (id, generation + 1));
    assert_eq!(bytes(&again, 0, 3 << 20), vec![4; 3 << 20]);
    let zeroed = arena.zeroed(3 << 20).expect("room");
    assert!(zeroed.id() != id && bytes(&zeroed, 0, 3 << 20) == vec![0; 3 << 20]);
    assert_eq!(arena.zeroed(1).expect("room").size(), 64);
    assert_eq!(arena.zeroed(65).expect("room").size(), 128);
    assert_eq!(arena.zeroed(usize::MAX).expect_err("too large").code(), Code::OutOfMemory);
}

#[test]
fn a_descriptor_is_attached_once_and_checked() {
    let segment = Segment::create(100, true).expect("room").publish(None);
    let (id, generation) = (segment.id(), segment.generation());
    let fd = || segment.fd().expect("open").try_clone_to_owned().expect("a descriptor");
    let same = Segment::attach(fd(), id, generation).expect("known");
    assert!(Arc::ptr_eq(&same, &segment));
    assert_eq!(Segment::attach(fd(), id, generation + 1).expect_err("another").code(), Code::StaleHandle);
    assert!(Arc::ptr_eq(&Segment::attach_any(fd(), id).expect("known"), &segment));
    assert_eq!(
        Segment::attach(fd(), id ^ 2, generation).expect_err("another").code(),
        Code::SharedMemoryCorrupt
    );
    let late = fd();
    drop((same, segment));
    let attached = Segment::attach_any(late, id).expect("sound");
    assert_eq!((attached.id(), attached.size(), attached.generation()), (id, 100, generation));
}
