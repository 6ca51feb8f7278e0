//! The limits of a frame, and the places of its parts by their size.
//!
//! A record and the socket between two processes are bounded: a table of descriptors has to fit into one record, and
//! the descriptors of one record into the socket, whose reader does not look before it sees the record.

/// Buffers up to this many bytes together are copied into the record; larger ones go into shared memory.
pub const INLINE: usize = 16 * 1024;
/// The largest payload that a pool puts into a record: a task ring takes half of its 128 KiB.
pub const LARGEST_TASK: usize = 48 * 1024;
/// The largest payload of an answer to a task's call that goes into a record: that ring takes half of its 8 KiB.
pub const LARGEST_ANSWER: usize = 3 * 1024;
/// A copy of more bytes than this takes so long that the sender's other threads should go on meanwhile.
pub const LONG_COPY: usize = 256 * 1024;

/// Buffers larger than this lie in a lease of their own, for other tasks may be given them too;
pub const LARGE: usize = 1 << 20;
/// but only if a call has at most this many of them, because each costs a descriptor.
pub const MOST_LARGE: usize = 4;

/// Segments that one frame may refer to. A Unix socket takes some two hundred descriptors before it is full.
pub const MOST_LENT: usize = 128;
/// Buffers that may be left out of one stream: their table takes half of the largest record.
pub const MOST_BUFFERS: usize = 1024;
/// Buffers of those that may lie in shared memory: each takes two entries of the table.
pub const MOST_SHARED: usize = MOST_BUFFERS / 2;
/// Buffers of less than `SMALL` bytes that may be left out: beyond, a copy into the stream is cheaper than a view of
/// each.
const MOST_SMALL: usize = 64;
const SMALL: usize = 4096;

/// Segments that the results of a chunk may refer to before it ends early: the next result may bring as many as a frame
/// may, and all have to fit into the socket.
pub const MOST_SEGMENTS_OF_CHUNK: usize = 16;
/// Views of shared memory likewise.
pub const MOST_VIEWS_OF_CHUNK: usize = 256;

/// Whether a buffer of this many bytes stays in the stream, when `kept` others have been left out of it. Shared memory
/// is never copied, whatever its size.
pub fn stays_in_stream(kept: usize, length: usize, is_shared: impl FnOnce() -> bool) -> bool {
    (kept >= MOST_BUFFERS || (kept >= MOST_SMALL && length < SMALL)) && !is_shared()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::table::{Entry, Part, written_len};
    use crate::lane::Lane;

    #[test]
    fn many_small_buffers_and_too_many_of_any_size_stay() {
        for (kept, length, stays) in [
            (0, 1, false),
            (MOST_SMALL - 1, 1, false),
            (MOST_SMALL, SMALL - 1, true),
            (MOST_SMALL, SMALL, false),
            (MOST_BUFFERS - 1, SMALL, false),
            (MOST_BUFFERS, 1 << 30, true),
        ] {
            assert_eq!(stays_in_stream(kept, length, || false), stays, "{kept} {length}");
            assert!(!stays_in_stream(kept, length, || true), "it is shared");
        }
    }

    #[test]
    fn the_largest_table_fits_into_a_record() {
        let entry = Entry { segment: 1, generation: 1, offset: 0, length: 1 };
        // The stream, and of the buffers as many in shared memory as may be, each of which takes two entries.
        let parts = vec![Part::Placed(entry); 1 + MOST_BUFFERS + MOST_SHARED];
        let ring = Lane::create(0).expect("a lane").0.tasks.max_record();
        assert!(written_len(&parts, MOST_LENT) <= ring);
        assert!(LARGEST_TASK <= ring);
    }
}
