//! A segment that a peer has passed: its header is the input, what was said of it are the first 16 bytes.

#![no_main]

use std::os::fd::AsFd;

use libfuzzer_sys::fuzz_target;
use ropewalk_os::memfd;
use ropewalk_shm::memory::{HEADER, Segment};

fuzz_target!(|input: &[u8]| {
    let Some((said, header)) = input.split_at_checked(18) else { return };
    let number = |at: usize| said[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
    let size = u64::from(said[16]) * 40 + u64::from(said[17]) * HEADER as u64 / 64;
    let sealed = size % 2 == 0;
    let fd = memfd::create(c"ropewalk-fuzz", size, sealed).expect("a memfd");
    let fits = header.len().min(usize::try_from(size).unwrap_or(0));
    memfd::write_at(fd.as_fd(), &header[..fits], 0).expect("it fits");
    if let Ok(segment) = Segment::attach(fd, number(0), number(8)) {
        assert!(sealed && segment.size() + HEADER as u64 <= size);
        assert_eq!(segment.id(), number(0));
        let data = segment.data().expect("mapped");
        if let Some(last) = segment.size().checked_sub(1) {
            // SAFETY: the byte lies in the segment, whose size is sealed.
            unsafe { data.add(last as usize).read_volatile() };
        }
    }
});
