//! The descriptor table of a record's payload whose parts lie in more than one place.
//!
//! A frame is a pickle-5 stream and the buffers that travel out of band. Where one of them lies in a segment, the
//! payload is a table: `{count: u32, handles: u32, lease: u64}` then `count` entries
//! `{segment: u64, generation: u64, offset: u64, length: u64}`, little-endian, then the inline bytes. Entry 0 is the
//! stream, the others are the buffers in order. Segment 0 means "inline, at `offset` from the payload's
//! start". The last `handles` entries are not buffers: they name the segments of shared arrays inside the
//! stream, so that the reader has them before it unpickles.
//!
//! A buffer that lies in a shared array takes two entries. The first is the handle of the array's memory, with the top
//! bit of `length` set; the second has the part in it by `offset` and `length`, and the same segment. The bit below the
//! top one says that nobody writes to that memory any more.
//!
//! Source: [PEP 574](https://peps.python.org/pep-0574/) for out-of-band buffers.

use ropewalk_base::{Code, Error, Result};

const HEAD: usize = 16;
const ENTRY: usize = 32;
/// Inline buffers start at multiples of this many bytes, so that arrays of any element type are aligned.
pub const ALIGN: usize = 64;

/// Where one part of a frame lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The segment's id; 0 for bytes inside the payload itself.
    pub segment: u64,
    /// The segment's generation when the entry was written.
    pub generation: u64,
    /// Bytes from the start of the segment's data, or of the payload.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
}

/// The top bit of an entry's length.
const SHARED: u64 = 1 << 63;
/// The bit below.
const SEALED: u64 = 1 << 62;

impl Entry {
    /// The first of the two entries of a buffer in a shared array: the handle of its memory.
    pub fn shared(segment: u64, generation: u64, offset: u64, length: u64) -> Self {
        Self { segment, generation, offset, length: length | SHARED }
    }

    /// The same, of memory to which nobody writes any more.
    #[must_use]
    pub fn sealed(self) -> Self {
        Self { length: self.length | SEALED, ..self }
    }

    /// Whether it is a handle of memory to which nobody writes any more.
    pub fn is_sealed(&self) -> bool {
        self.is_shared() && self.length & SEALED != 0
    }

    /// Whether it is such a handle.
    pub fn is_shared(&self) -> bool {
        self.segment != 0 && self.length & SHARED != 0
    }

    /// Its length, of whichever kind it is.
    pub fn bytes(&self) -> u64 {
        self.length & !(SHARED | SEALED)
    }
}

/// A checked table over the bytes of a payload.
#[derive(Debug)]
pub struct Table<'a> {
    payload: &'a [u8],
    lease: u64,
    count: usize,
    handles: usize,
}

/// One part of a frame to be written.
#[derive(Clone, Copy, Debug)]
pub enum Part<'a> {
    /// Bytes to be copied into the payload.
    Inline(&'a [u8]),
    /// Bytes that already lie in a segment.
    Placed(Entry),
}

fn corrupt(what: &'static str) -> Error {
    Error::new(Code::SharedMemoryCorrupt, what)
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let chunk = bytes.get(at..at.checked_add(8)?)?;
    chunk.try_into().ok().map(u64::from_le_bytes)
}

impl<'a> Table<'a> {
    /// Reads and checks a payload's table.
    ///
    /// # Errors
    ///
    /// `Code::SharedMemoryCorrupt` when the table is longer than the payload or has no entry, an inline entry points
    /// outside, or a handle names no segment.
    pub fn parse(payload: &'a [u8]) -> Result<Self> {
        let count = payload.get(..4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
        let (Some(count), Some(lease)) = (count, word(payload, 8)) else {
            return Err(corrupt("a descriptor table is shorter than its head"));
        };
        let count = count as usize;
        let handles =
            payload.get(4..8).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes) as usize;
        let table_end = count.checked_mul(ENTRY).and_then(|n| n.checked_add(HEAD));
        if count <= handles || table_end.is_none_or(|end| end > payload.len()) {
            return Err(corrupt("a descriptor table is longer than its payload"));
        }
        let table = Self { payload, lease, count, handles };
        for index in 0..count {
            let entry = table.entry(index).ok_or_else(|| corrupt("a descriptor is cut off"))?;
            if entry.segment == 0 && index >= count - handles {
                return Err(corrupt("a handle names no segment"));
            }
            if entry.segment == 0 && table.inline(&entry).is_none() {
                return Err(corrupt("an inline descriptor points outside its payload"));
            }
        }
        Ok(table)
    }

    /// The lease that the segment entries belong to; 0 for none.
    pub fn lease(&self) -> u64 {
        self.lease
    }

    /// Number of entries, at least one.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Out-of-band buffers, in the order in which the stream asks for them.
    pub fn buffers(&self) -> impl Iterator<Item = Entry> + '_ {
        (1..self.count - self.handles).filter_map(|index| self.entry(index))
    }

    /// How many entries at the end name segments of shared arrays.
    pub fn handles(&self) -> usize {
        self.handles
    }

    /// Whether there is no entry; never true of a parsed table.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The entry at `index`.
    pub fn entry(&self, index: usize) -> Option<Entry> {
        if index >= self.count {
            return None;
        }
        let at = HEAD + index * ENTRY;
        Some(Entry {
            segment: word(self.payload, at)?,
            generation: word(self.payload, at + 8)?,
            offset: word(self.payload, at + 16)?,
            length: word(self.payload, at + 24)?,
        })
    }

    /// The bytes of an inline entry; `None` for one that lies in a segment or outside the payload.
    pub fn inline(&self, entry: &Entry) -> Option<&'a [u8]> {
        if entry.segment != 0 {
            return None;
        }
        let start = usize::try_from(entry.offset).ok()?;
        let end = start.checked_add(usize::try_from(entry.length).ok()?)?;
        self.payload.get(start..end)
    }

    /// All entries in order.
    pub fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        (0..self.count).filter_map(|index| self.entry(index))
    }
}

/// Bytes that [`write()`] will produce for `parts` and so many handles.
pub fn written_len(parts: &[Part<'_>], handles: usize) -> usize {
    parts.iter().fold(HEAD + (parts.len() + handles) * ENTRY, |at, part| match part {
        Part::Inline(bytes) => at.next_multiple_of(ALIGN) + bytes.len(),
        Part::Placed(_) => at,
    })
}

/// Writes a table and the inline bytes of `parts` into one payload.
/// `handles` name segments that the stream refers to by itself.
pub fn write(lease: u64, parts: &[Part<'_>], handles: &[Entry]) -> Vec<u8> {
    let mut out = Vec::with_capacity(written_len(parts, handles.len()));
    let count = parts.len() + handles.len();
    for number in [count, handles.len()] {
        out.extend_from_slice(&u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes());
    }
    out.extend_from_slice(&lease.to_le_bytes());
    let mut at = HEAD + count * ENTRY;
    for part in parts {
        let entry = match part {
            Part::Placed(entry) => *entry,
            Part::Inline(bytes) => {
                let offset = at.next_multiple_of(ALIGN);
                at = offset + bytes.len();
                Entry { segment: 0, generation: 0, offset: offset as u64, length: bytes.len() as u64 }
            }
        };
        write_entry(&mut out, &entry);
    }
    for entry in handles {
        write_entry(&mut out, entry);
    }
    for part in parts {
        if let Part::Inline(bytes) = part {
            out.resize(out.len().next_multiple_of(ALIGN), 0);
            out.extend_from_slice(bytes);
        }
    }
    out
}

fn write_entry(out: &mut Vec<u8>, entry: &Entry) {
    for field in [entry.segment, entry.generation, entry.offset, entry.length] {
        out.extend_from_slice(&field.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_back_as_written() {
        let placed = Entry { segment: 7, generation: 3, offset: 4096, length: 10 };
        let bytes =
            write(42, &[Part::Inline(b"stream"), Part::Placed(placed), Part::Inline(b"buffer")], &[placed]);
        let table = Table::parse(&bytes).expect("a table that was written");
        assert_eq!((table.lease(), table.len(), table.buffers().count()), (42, 4, 2));
        let entries: Vec<_> = table.entries().collect();
        assert_eq!(table.inline(&entries[0]), Some(&b"stream"[..]));
        assert_eq!(entries[1], placed);
        assert_eq!(table.inline(&entries[2]), Some(&b"buffer"[..]));
        assert_eq!(entries[2].offset % ALIGN as u64, 0);
    }

    #[test]
    fn a_frame_is_as_long_as_was_said() {
        let placed = Entry { segment: 7, generation: 3, offset: 4096, length: 10 };
        let stream = [9; 65];
        for (parts, handles, length) in [
            (&[Part::Inline(&stream)][..], 0, 64 + 65),
            (&[Part::Inline(&stream), Part::Inline(&stream)][..], 0, 128 + 128 + 65),
            (&[Part::Inline(&stream), Part::Placed(placed)][..], 2, 192 + 65),
            (&[Part::Placed(placed)][..], 0, 48),
        ] {
            assert_eq!(written_len(parts, handles), length);
            let bytes = write(5, parts, &vec![placed; handles]);
            assert_eq!(bytes.len(), length);
            let table = Table::parse(&bytes).expect("a table that was written");
            assert_eq!((table.len(), table.handles()), (parts.len() + handles, handles));
            assert!(!table.is_empty());
            assert_eq!(table.buffers().count(), parts.len() - 1);
            assert_eq!(table.entries().count(), table.len());
            assert_eq!(table.entry(table.len()), None);
            assert!(Table::parse(&bytes[..length - 1]).is_err(), "the last part is cut off");
        }
    }

    #[test]
    fn only_an_entry_of_a_segment_is_a_shared_one() {
        let shared = Entry::shared(7, 3, 64, 10);
        assert!(shared.is_shared());
        assert_eq!((shared.bytes(), shared.offset, shared.generation), (10, 64, 3));
        let placed = Entry { segment: 7, generation: 3, offset: 64, length: 10 };
        assert!(!placed.is_shared() && placed.bytes() == 10);
        assert!(!Entry { segment: 0, ..shared }.is_shared());
        assert!(shared.sealed().is_shared() && shared.sealed().is_sealed() && !shared.is_sealed());
        assert_eq!(shared.sealed().bytes(), 10);
        assert!(!placed.sealed().is_sealed());
        let bytes = write(1, &[Part::Inline(b"stream"), Part::Placed(placed)], &[]);
        let table = Table::parse(&bytes).expect("sound");
        let outside = Entry { segment: 0, generation: 0, offset: bytes.len() as u64, length: 0 };
        assert_eq!(table.inline(&placed), None);
        assert_eq!(table.inline(&outside), Some(&b""[..]));
        assert_eq!(table.inline(&Entry { length: 1, ..outside }), None);
        assert_eq!(table.inline(&Entry { length: u64::MAX, ..outside }), None);
    }

    #[test]
    fn a_table_that_makes_no_sense_is_refused() {
        let bytes = write(1, &[Part::Inline(b"stream")], &[]);
        let with = |count: u32, handles: u32| {
            let mut bytes = bytes.clone();
            bytes[..4].copy_from_slice(&count.to_le_bytes());
            bytes[4..8].copy_from_slice(&handles.to_le_bytes());
            Table::parse(&bytes).map(|table| table.len()).map_err(|error| (error.code(), error.to_string()))
        };
        assert_eq!(with(1, 0), Ok(1));
        for (count, handles) in [(0, 0), (1, 1), (1, 2), (3, 0), (u32::MAX, 0)] {
            let (code, text) = with(count, handles).expect_err("senseless");
            assert_eq!(code, Code::SharedMemoryCorrupt, "{text}");
        }
        assert!(Table::parse(&[1; 15]).is_err() && Table::parse(&[]).is_err());
    }

    #[test]
    fn a_handle_names_a_segment() {
        let nowhere = Entry { segment: 0, generation: 0, offset: 0, length: 1 };
        let bytes = write(0, &[Part::Inline(b"stream")], &[nowhere]);
        assert!(Table::parse(&bytes).is_err());
    }

    #[test]
    fn no_prefix_or_flipped_byte_crashes_the_reader() {
        let bytes = write(1, &[Part::Inline(b"stream"), Part::Inline(&[9; 100])], &[]);
        for end in 0..bytes.len() {
            let _ = Table::parse(&bytes[..end])
                .map(|t| t.entries().filter_map(|e| t.inline(&e)).map(<[u8]>::len).sum::<usize>());
        }
        for at in 0..bytes.len() {
            let mut broken = bytes.clone();
            broken[at] ^= 0xFF;
            let _ = Table::parse(&broken)
                .map(|t| t.entries().filter_map(|e| t.inline(&e)).map(<[u8]>::len).sum::<usize>());
        }
    }
}
