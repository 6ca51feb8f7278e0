//! A segment from which an arena cuts leases: a slab of small ones, or a region of large ones.

use std::sync::Arc;

use super::ranges::FreeRanges;
use super::segment::Segment;

/// Bytes of a slab.
pub(super) const SLAB: usize = 8 << 20;
/// Bytes of a region, whose memory is allocated and freed with its leases.
pub(super) const REGION: usize = 256 << 20;

#[derive(Debug)]
pub(super) struct Slab {
    segment: Arc<Segment>,
    free: FreeRanges,
    /// Leases in it.
    used: usize,
    /// A range did not come back, because a forked child may still read it.
    is_spoiled: bool,
    size: usize,
}

impl Slab {
    pub(super) fn new(segment: Arc<Segment>, size: usize) -> Self {
        Self { segment, free: FreeRanges::new(size), used: 0, is_spoiled: false, size }
    }

    pub(super) fn take(&mut self, size: usize) -> Option<usize> {
        let offset = self.free.take(size)?;
        self.used += 1;
        Some(offset)
    }

    /// Whether only its leases have memory.
    pub(super) fn is_region(&self) -> bool {
        self.size == REGION
    }

    pub(super) fn is_unused(&self) -> bool {
        self.used == 0
    }

    pub(super) fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    pub(super) fn is_spoiled(&self) -> bool {
        self.is_spoiled
    }

    /// Takes the range of a lease that is gone back, unless a forked child may still read it.
    pub(super) fn give_back(&mut self, offset: usize, size: usize, is_lost: bool) {
        self.used -= 1;
        if is_lost {
            self.is_spoiled = true;
            return;
        }
        if self.is_region() {
            // While the range cannot be handed out again.
            self.segment.give_pages_back(offset as u64, size as u64);
        }
        self.free.give(offset, size);
    }
}
