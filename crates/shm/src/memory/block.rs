//! Memory of shared arrays and buffers: small ones side by side in few segments, larger ones as the arena places them.
//!
//! The owner reuses a block's memory when its last reference is gone, unless another process may still read it, be it
//! a child that was forked meanwhile: then the memory is lost for as long as the segment lives, which is until every
//! block in it is gone.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use ropewalk_base::Result;
use ropewalk_os::process;
use ropewalk_sync::{Mutex, MutexGuard, PerProcess};

use super::arena::{Arena, Lease};
use super::ranges::FreeRanges;
use super::segment::Segment;

/// Blocks start at multiples of this many bytes.
const ALIGN: usize = 64;
/// Larger ones are leases of the arena, or have a segment of their own.
const LARGEST_ON_SHELF: usize = 1 << 20;
/// Bytes of a shelf's first board; each further one is as large as all before together, up to `LARGEST_BOARD`.
const SMALLEST_BOARD: usize = 256 << 10;
const LARGEST_BOARD: usize = 8 << 20;
/// A board is at least this many times as large as the block that it is made for.
const BLOCKS_ON_BOARD: usize = 4;

/// One segment with blocks in it.
#[derive(Debug)]
struct Board {
    segment: Arc<Segment>,
    size: usize,
    free: FreeRanges,
    /// Blocks in use.
    used: usize,
    /// Blocks that are gone here but that another process may still read.
    lost: usize,
    /// Bytes before this offset may have been written to; those from it on are zero.
    touched: usize,
}

impl Board {
    /// Takes a range of zeros.
    fn take(&mut self, size: usize) -> Option<Result<usize>> {
        let offset = self.free.take(size)?;
        let end = offset + size;
        let dirty = end.min(self.touched).saturating_sub(offset);
        if dirty > 0
            && let Err(error) = self.segment.clear(offset as u64, dirty as u64)
        {
            self.free.give(offset, size);
            return Some(Err(error));
        }
        self.touched = self.touched.max(end);
        self.used += 1;
        Some(Ok(offset))
    }
}

/// The boards of one process.
#[derive(Debug)]
struct Shelf {
    boards: Mutex<HashMap<u64, Board>>,
    /// The process that the shelf belongs to: a forked child leaves its parent's memory alone.
    fork_generation: u64,
}

/// A block's place on a shelf.
#[derive(Debug)]
struct Place {
    shelf: Weak<Shelf>,
    size: usize,
    /// What [`process::children`] was when it was taken.
    children: u64,
}

/// Memory of one shared array or buffer, which lives as long as this.
#[derive(Debug)]
pub struct Block {
    segment: Arc<Segment>,
    offset: usize,
    place: Option<Place>,
    lease: Option<Lease>,
    lent_for_good: AtomicBool,
}

impl Shelf {
    fn global() -> &'static Arc<Self> {
        static GLOBAL: PerProcess<Arc<Shelf>> = PerProcess::new();
        GLOBAL
            .get(|| Arc::new(Self { boards: Mutex::default(), fork_generation: process::fork_generation() }))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Board>> {
        self.boards.lock()
    }

    fn take(self: &Arc<Self>, size: usize) -> Result<Block> {
        let mut boards = self.lock();
        let block = |segment: &Arc<Segment>, offset| Block {
            segment: Arc::clone(segment),
            offset,
            place: Some(Place { shelf: Arc::downgrade(self), size, children: process::children() }),
            lease: None,
            lent_for_good: AtomicBool::new(false),
        };
        for board in boards.values_mut() {
            if let Some(taken) = board.take(size) {
                return taken.map(|offset| block(&board.segment, offset));
            }
        }
        let all = boards.values().map(|board| board.size).sum::<usize>();
        let bytes = all.max(size * BLOCKS_ON_BOARD).clamp(SMALLEST_BOARD, LARGEST_BOARD);
        let segment = Segment::create(bytes, true)?.publish(None);
        let mut board = Board {
            segment: Arc::clone(&segment),
            size: bytes,
            free: FreeRanges::new(bytes),
            used: 0,
            lost: 0,
            touched: 0,
        };
        let offset = board.take(size).transpose()?.unwrap_or(0);
        boards.insert(segment.id(), board);
        Ok(block(&segment, offset))
    }

    fn give_back(&self, segment: u64, offset: usize, size: usize, lost: bool) {
        if self.fork_generation != process::fork_generation() {
            return;
        }
        let mut boards = self.lock();
        let Some(board) = boards.get_mut(&segment) else { return };
        board.used -= 1;
        if lost {
            board.lost += 1;
        } else {
            board.free.give(offset, size);
        }
        let unused = board.used == 0;
        let spoiled = board.lost > 0;
        // One small unused board stays for the next array.
        let spare = boards.values().any(|other| other.used == 0 && other.segment.id() != segment);
        let small = boards.get(&segment).is_some_and(|board| board.size == SMALLEST_BOARD);
        let dropped = if unused && (spoiled || spare || !small) { boards.remove(&segment) } else { None };
        drop(boards);
        drop(dropped);
    }
}

impl Block {
    /// A block of `size` zero bytes.
    ///
    /// # Errors
    ///
    /// `Code::OutOfMemory` when there is no room, `Code::OutOfDescriptors` when there is no descriptor.
    pub fn zeroed(size: usize) -> Result<Arc<Self>> {
        if size <= LARGEST_ON_SHELF {
            return Shelf::global().take(size.max(1).next_multiple_of(ALIGN)).map(Arc::new);
        }
        Self::alone(size)
    }

    /// As [`zeroed`](Self::zeroed), in a segment of its own, whatever the size.
    ///
    /// # Errors
    ///
    /// As [`zeroed`](Self::zeroed).
    pub fn alone(size: usize) -> Result<Arc<Self>> {
        Arena::global().zeroed(size).map(Self::whole)
    }

    /// A block with these bytes.
    ///
    /// # Errors
    ///
    /// As [`zeroed`](Self::zeroed).
    pub fn copied(bytes: &[u8]) -> Result<Arc<Self>> {
        if bytes.len() <= LARGEST_ON_SHELF {
            let block = Self::zeroed(bytes.len())?;
            block.segment.copy_in(block.offset(), bytes)?;
            return Ok(block);
        }
        let lease = Arena::global().put_parts(&[bytes])?;
        let segment = Arc::clone(lease.segment());
        let offset = lease.ranges().first().map_or(0, |range| range.0 as usize);
        let lent_for_good = AtomicBool::new(false);
        Ok(Arc::new(Self { segment, offset, place: None, lease: Some(lease), lent_for_good }))
    }

    /// The whole of a segment that this process owns.
    pub fn whole(segment: Arc<Segment>) -> Arc<Self> {
        Arc::new(Self { segment, offset: 0, place: None, lease: None, lent_for_good: AtomicBool::new(false) })
    }

    /// The segment that it lies in.
    pub fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// Bytes from the start of the segment's data.
    pub fn offset(&self) -> u64 {
        self.offset as u64
    }

    /// Marks the memory as readable by others for good: it is not reused for other data.
    pub fn lend_for_good(&self) {
        self.lent_for_good.store(true, Ordering::Relaxed);
        match (&self.place, &self.lease) {
            (Some(_), _) => {}
            (None, Some(lease)) => lease.lend_for_good(),
            (None, None) => self.segment.lend_for_good(),
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some(place) = self.place.take()
            && let Some(shelf) = place.shelf.upgrade()
        {
            let lost = *self.lent_for_good.get_mut() || place.children != process::children();
            shelf.give_back(self.segment.id(), self.offset, place.size, lost);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shelf() -> Arc<Shelf> {
        Arc::new(Shelf { boards: Mutex::default(), fork_generation: process::fork_generation() })
    }

    #[test]
    fn small_blocks_lie_in_few_segments() {
        let shelf = shelf();
        let blocks: Vec<Block> = (0..3000).map(|_| shelf.take(64).expect("room")).collect();
        assert_eq!(shelf.lock().len(), 1);
        let mut offsets: Vec<usize> = blocks.iter().map(|block| block.offset).collect();
        offsets.sort_unstable();
        assert!(offsets.windows(2).all(|pair| pair[1] - pair[0] >= 64));
        let large: Vec<Block> = (0..100).map(|_| shelf.take(1 << 20).expect("room")).collect();
        assert!(shelf.lock().len() <= 20);
        drop((blocks, large));
        assert!(shelf.lock().len() <= 1);
    }

    #[test]
    fn one_small_board_is_kept_for_the_next_block_and_no_large_one() {
        let shelf = shelf();
        let small = shelf.take(64).expect("room");
        let id = small.segment.id();
        drop(small);
        assert_eq!(shelf.lock().keys().copied().collect::<Vec<_>>(), [id]);
        let large = shelf.take(1 << 20).expect("room");
        assert_ne!(large.segment.id(), id, "it does not fit there");
        drop(large);
        assert_eq!(shelf.lock().keys().copied().collect::<Vec<_>>(), [id]);
        // Two small boards, of which either may stay.
        let blocks: Vec<Block> = (0..=SMALLEST_BOARD / 64).map(|_| shelf.take(64).expect("room")).collect();
        assert_eq!(shelf.lock().len(), 2);
        drop(blocks);
        assert_eq!(shelf.lock().len(), 1);
    }

    #[test]
    fn a_block_that_is_used_again_is_zeros() {
        let shelf = shelf();
        let first = shelf.take(128).expect("room");
        let keeps = shelf.take(64).expect("room");
        first.segment.copy_in(first.offset as u64, &[7; 128]).expect("inside");
        let offset = first.offset;
        drop(first);
        let again = shelf.take(64).expect("room");
        assert_eq!(again.offset, offset);
        assert_eq!(again.segment.copy_out(offset as u64, 64).expect("inside"), [0; 64]);
        drop(keeps);
    }

    #[test]
    fn a_block_that_is_lent_for_good_is_not_used_again() {
        let shelf = shelf();
        let lent = shelf.take(64).expect("room");
        let other = shelf.take(64).expect("room");
        let (id, offset) = (lent.segment.id(), lent.offset);
        lent.lend_for_good();
        drop(lent);
        let next = shelf.take(64).expect("room");
        assert_eq!(next.segment.id(), id);
        assert_ne!(next.offset, offset);
        drop((next, other));
        // No block of this process is in the segment any more: the segment is freed, with the lost blocks in it.
        assert!(shelf.lock().is_empty());
    }
}
