//! The places of a frame's parts: the record, a lease, a segment, or none because they are shared already.

use std::sync::Arc;

use ropewalk_base::Result;
use ropewalk_shm::memory::{Arena, Lease, Segment};

use super::limits::{INLINE, LARGE, LONG_COPY, MOST_LARGE};
use super::loans::Loans;
use super::places;
use super::table::{self, ALIGN, Entry, Part};

/// A stream and the buffers beside it, which are yet to be placed.
#[derive(Debug)]
pub struct Frame<'a> {
    pieces: Vec<Piece<'a>>,
    /// Bytes that have to be copied.
    total: usize,
}

/// A frame whose large parts lie in a lease.
#[derive(Debug)]
pub struct Leased {
    /// The record's payload.
    pub bytes: Vec<u8>,
    /// It keeps those beside it.
    pub lease: Lease,
    /// The segments of it and of those.
    pub segments: Vec<Arc<Segment>>,
}

#[derive(Debug)]
enum Piece<'a> {
    /// Bytes to be copied.
    Copied(&'a [u8]),
    /// A part of shared memory, by the two entries that say so.
    Shared(Entry, Entry),
}

impl<'a> Piece<'a> {
    fn of(bytes: &'a [u8], loans: &Loans) -> Self {
        if loans.segments.is_empty() || bytes.is_empty() {
            return Self::Copied(bytes);
        }
        let address = bytes.as_ptr() as usize;
        match places::find(address, bytes.len()) {
            Some(place) if loans.segments.iter().any(|lent| Arc::ptr_eq(lent, &place.segment)) => {
                let (segment, generation) = (place.segment.id(), place.segment.generation());
                let start = (address - place.address) as u64;
                let whole = Entry::shared(segment, generation, place.offset, place.length);
                Self::Shared(
                    if place.is_sealed { whole.sealed() } else { whole },
                    Entry { segment, generation, offset: start, length: bytes.len() as u64 },
                )
            }
            _ => Self::Copied(bytes),
        }
    }

    fn copied(&self) -> &'a [u8] {
        match self {
            Self::Copied(bytes) => bytes,
            Self::Shared(..) => &[],
        }
    }
}

/// Whether these bytes lie in shared memory that was lent, so that the frame would name them and not copy them.
pub fn is_lent(bytes: &[u8], loans: &Loans) -> bool {
    matches!(Piece::of(bytes, loans), Piece::Shared(..))
}

/// The entries that name lent segments, for a reader that must have them before it reads the stream.
pub fn handles(loans: &Loans) -> Vec<Entry> {
    let handle = |segment: &Arc<Segment>| Entry {
        segment: segment.id(),
        generation: segment.generation(),
        offset: 0,
        length: segment.size(),
    };
    loans.segments.iter().map(handle).collect()
}

impl<'a> Frame<'a> {
    /// The frame of a stream and its buffers, whose encoding has lent `loans`.
    pub fn new(stream: &'a [u8], buffers: impl Iterator<Item = &'a [u8]>, loans: &Loans) -> Self {
        let buffers = buffers.map(|bytes| Piece::of(bytes, loans));
        let pieces: Vec<_> = std::iter::once(Piece::Copied(stream)).chain(buffers).collect();
        let total = pieces.iter().map(|piece| piece.copied().len()).sum();
        Self { pieces, total }
    }

    /// Whether to place it takes long.
    pub fn is_long(&self) -> bool {
        self.total > LONG_COPY
    }

    fn parts<'b>(&self, mut place: impl FnMut(&'a [u8]) -> Part<'b>) -> Vec<Part<'b>> {
        let mut parts = Vec::with_capacity(self.pieces.len());
        for piece in &self.pieces {
            match piece {
                Piece::Copied(bytes) => parts.push(place(bytes)),
                Piece::Shared(block, part) => parts.extend([Part::Placed(*block), Part::Placed(*part)]),
            }
        }
        parts
    }

    /// The payload with everything in it, if that is short enough for a record that takes `most` bytes.
    pub fn inline(&self, handles: &[Entry], most: usize) -> Option<Vec<u8>> {
        if self.total > INLINE {
            return None;
        }
        let parts = self.parts(Part::Inline);
        (table::written_len(&parts, handles.len()) <= most).then(|| table::write(0, &parts, handles))
    }

    /// Copies it into a lease, large buffers into leases of their own: other tasks may be given them too.
    ///
    /// # Errors
    ///
    /// When the machine is out of memory or descriptors.
    pub fn lease(&self, arena: &Arena) -> Result<Leased> {
        let large = |bytes: &[u8]| bytes.len() > LARGE;
        let few = self.pieces.iter().filter(|piece| large(piece.copied())).count() <= MOST_LARGE;
        let alone = |bytes: &[u8]| few && large(bytes);
        let copied = || {
            self.pieces.iter().filter_map(|piece| match piece {
                Piece::Copied(bytes) => Some(*bytes),
                Piece::Shared(..) => None,
            })
        };
        let once = copied().filter(|bytes| alone(bytes)).map(|bytes| arena.put_once(bytes));
        let once = once.collect::<Result<Vec<_>>>()?;
        let mut lease = arena.put_parts(&copied().filter(|bytes| !alone(bytes)).collect::<Vec<_>>())?;
        lease.keep_with_it(once.clone());
        let place = |lease: &Lease, range: Option<&(u64, u64)>| {
            let (segment, generation) = (lease.segment().id(), lease.generation());
            let (offset, length) = range.copied().unwrap_or_default();
            Part::Placed(Entry { segment, generation, offset, length })
        };
        let (mut ranges, mut leases) = (lease.ranges().iter(), once.iter());
        let parts = self.parts(|bytes| match alone(bytes).then(|| leases.next()).flatten() {
            Some(large) => place(large, large.ranges().first()),
            None => place(&lease, ranges.next()),
        });
        let bytes = table::write(lease.id(), &parts, &[]);
        let mut segments = vec![Arc::clone(lease.segment())];
        segments.extend(once.iter().map(|large| Arc::clone(large.segment())));
        Ok(Leased { bytes, lease, segments })
    }

    /// Copies it into a segment of its own, which the receiver takes over; gives that and the payload.
    ///
    /// # Errors
    ///
    /// When the machine is out of memory or descriptors.
    pub fn give(&self, handles: &[Entry]) -> Result<(Arc<Segment>, Vec<u8>)> {
        let lengths = self.pieces.iter().map(|piece| piece.copied().len());
        let segment = Segment::create(lengths.map(|length| length.next_multiple_of(ALIGN)).sum(), false)?;
        segment.make_huge();
        let (id, generation) = (segment.id(), segment.generation());
        let mut offset = 0;
        let mut filled = Ok(());
        let parts = self.parts(|bytes| {
            let (at, length) = (offset, bytes.len() as u64);
            if filled.is_ok() {
                filled = segment.fill(at, bytes);
            }
            offset += length.next_multiple_of(ALIGN as u64);
            Part::Placed(Entry { segment: id, generation, offset: at, length })
        });
        filled?;
        segment.set_aside()?;
        Ok((segment.publish(None), table::write(0, &parts, handles)))
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_shm::memory::ArenaConfig;

    use super::super::places::Place;
    use super::super::table::Table;
    use super::*;

    /// What a frame's reader sees: each part's bytes, from wherever the table says.
    fn read(bytes: &[u8], segments: &[Arc<Segment>]) -> Vec<Vec<u8>> {
        let table = Table::parse(bytes).expect("sound");
        let mut entries = table.entries().take(table.len() - table.handles());
        let mut parts = Vec::new();
        while let Some(entry) = entries.next() {
            if let Some(inline) = table.inline(&entry) {
                parts.push(inline.to_vec());
                continue;
            }
            let segment = segments.iter().find(|segment| segment.id() == entry.segment).expect("it is named");
            segment.check(entry.generation).expect("this use");
            let (offset, length) = if entry.is_shared() {
                let part = entries.next().expect("the part");
                (entry.offset + part.offset, part.length)
            } else {
                (entry.offset, entry.length)
            };
            parts.push(segment.copy_out(offset, length).expect("inside"));
        }
        parts
    }

    fn of(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at * 7 + length) as u8).collect()
    }

    #[test]
    fn what_is_short_lies_in_the_record() {
        let (stream, buffer) = (of(100), of(INLINE - 100));
        let frame = Frame::new(&stream, [&buffer[..]].into_iter(), &Loans::default());
        let bytes = frame.inline(&[], 48 * 1024).expect("it fits");
        assert_eq!(read(&bytes, &[]), [stream.clone(), buffer.clone()]);
        assert!(frame.inline(&[], bytes.len() - 1).is_none() && !frame.is_long());
        let more = of(INLINE - 99);
        assert!(
            Frame::new(&stream, [&more[..]].into_iter(), &Loans::default()).inline(&[], 1 << 20).is_none()
        );
    }

    #[test]
    fn what_is_large_lies_in_leases_and_comes_back_in_order() {
        let arena = Arena::new(ArenaConfig { keep: 0 });
        for count in [MOST_LARGE, MOST_LARGE + 1] {
            let mut buffers = vec![of(10), of(0)];
            buffers.extend((0..count).map(|at| of(LARGE + 1 + at)));
            buffers.push(of(LARGE));
            let stream = of(33);
            let frame = Frame::new(&stream, buffers.iter().map(Vec::as_slice), &Loans::default());
            assert!(frame.is_long());
            let leased = frame.lease(&arena).expect("room");
            assert_eq!(leased.segments.len(), if count > MOST_LARGE { 1 } else { 1 + count });
            assert_eq!(Table::parse(&leased.bytes).expect("sound").lease(), leased.lease.id());
            buffers.insert(0, stream.clone());
            assert_eq!(read(&leased.bytes, &leased.segments), buffers);
        }
    }

    #[test]
    fn what_is_given_lies_in_one_segment() {
        let (stream, buffers) = (of(5), [of(70), of(0), of(LONG_COPY)]);
        let frame = Frame::new(&stream, buffers.iter().map(Vec::as_slice), &Loans::default());
        let (segment, bytes) = frame.give(&[]).expect("room");
        let parts = read(&bytes, &[segment]);
        assert_eq!(parts[0], stream);
        assert_eq!(parts[1..], buffers);
    }

    #[test]
    fn what_is_shared_is_named_and_not_copied() {
        // Of this process's memory, which the segment stands for.
        let memory = of(1024);
        let segment = Segment::create(4096, true).expect("a segment");
        segment.fill(64, &memory).expect("room");
        let segment = segment.publish(None);
        let (inside, address) = (&memory[64..128], memory.as_ptr() as usize);
        let place = Place {
            segment: Arc::clone(&segment),
            block: None,
            address,
            offset: 64,
            length: 1024,
            is_sealed: false,
        };
        places::enter(&place);
        let loans = Loans { segments: vec![Arc::clone(&segment)], blocks: Vec::new() };
        assert!(is_lent(inside, &loans) && !is_lent(inside, &Loans::default()) && !is_lent(&[], &loans));
        let (stream, other) = (of(9), of(INLINE));
        let buffers = [inside, &other[..INLINE - 9]];
        let bytes = Frame::new(&stream, buffers.into_iter(), &loans).inline(&handles(&loans), 48 * 1024);
        let bytes = bytes.expect("what is shared does not count");
        let table = Table::parse(&bytes).expect("sound");
        assert_eq!((table.len(), table.handles()), (5, 1));
        let read = read(&bytes, &[segment]);
        assert_eq!(read, [&stream[..], inside, &other[..INLINE - 9]]);
        places::leave(address);
    }
}
