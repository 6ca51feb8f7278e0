//! The owner's side of large data: the placement of buffers, and the reuse of memory.
//!
//! Small puts are carved from slabs, larger ones get a segment of their own. A segment that is no longer used is kept,
//! up to a limit, because warm pages cost a third of fresh ones.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use ropewalk_base::{Code, Result, error};
use ropewalk_os::process;
use ropewalk_sync::{Mutex, MutexGuard, PerProcess};

use super::once::Latest;
use super::segment::{Segment, Store, bytes_of_all};
use super::slab::{REGION, SLAB, Slab};

/// Buffers start at multiples of this many bytes.
const ALIGN: usize = 64;
const LARGEST_IN_SLAB: usize = 1 << 20;
const GRAIN: usize = 64 << 10;
/// The most leases that have a segment of their own. Further ones are carved from regions, because each segment takes a
/// descriptor here and in every worker that it is passed to.
const MOST_OWN: usize = 64;
const LARGEST_IN_REGION: usize = 32 << 20;
/// How long unused memory is kept.
pub(super) const KEEP_FOR: Duration = Duration::from_secs(5);
/// The most segments that are kept: each has a descriptor, of which a process often has 1,024.
const MOST_KEPT: usize = 32;

/// Limits of an arena.
#[derive(Clone, Copy, Debug)]
pub struct ArenaConfig {
    /// Bytes of unused segments that are kept.
    pub keep: usize,
}

impl Default for ArenaConfig {
    /// An eighth of the machine's memory, 1 GiB at most.
    fn default() -> Self {
        let eighth = usize::try_from(ropewalk_os::memory::total() / 8).unwrap_or(usize::MAX);
        Self { keep: eighth.min(1 << 30) }
    }
}

#[derive(Debug, Default)]
struct Holdings {
    slabs: HashMap<u64, Slab>,
    kept: Vec<Store>,
    kept_bytes: usize,
    /// The time of the last put, reuse or keeping.
    used: Option<Instant>,
}

/// See the module.
#[derive(Debug)]
pub struct Arena {
    config: ArenaConfig,
    holdings: Mutex<Holdings>,
    latest: Latest,
    next_lease: AtomicU64,
    /// Leases that have a segment of their own.
    own: AtomicUsize,
    /// Called when there is something to free after a while. Without a caretaker nothing is kept.
    caretaker: OnceLock<fn()>,
    /// Whether the thread runs that [`keep_warm`](Self::keep_warm) has asked for.
    pub(super) is_tended: AtomicBool,
    me: Weak<Self>,
    /// The process that it belongs to. A forked child has a copy of the lists but must not hand out the memory in them:
    /// there every put gets a fresh segment, and nothing is kept.
    fork_generation: u64,
}

/// Buffers in shared memory, which live as long as this.
#[derive(Debug)]
pub struct Lease {
    id: u64,
    segment: Arc<Segment>,
    ranges: Vec<(u64, u64)>,
    arena: Weak<Arena>,
    /// The offset and size to return to a slab; `None` for a segment of its own.
    carved: Option<(usize, usize)>,
    /// What [`process::children`] was when it was made: a child that was forked since may read the memory.
    children: u64,
    /// Another process may read the memory for longer than this process knows: it is not reused.
    lent_for_good: AtomicBool,
    /// Other leases that live at least as long as this one.
    with: Vec<Arc<Self>>,
}

impl Lease {
    /// Unique in its arena, never 0.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The segment it lies in.
    pub fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// The segment's generation.
    pub fn generation(&self) -> u64 {
        self.segment.generation()
    }

    /// `(offset, length)` of each part, from the start of the segment's data.
    pub fn ranges(&self) -> &[(u64, u64)] {
        &self.ranges
    }

    /// Bytes of all its parts, and of the leases that it keeps.
    pub fn size(&self) -> u64 {
        let own = self.ranges.iter().map(|range| range.1).sum::<u64>();
        self.with.iter().fold(own, |sum, other| sum.saturating_add(other.size()))
    }

    /// Marks the memory as readable by others for good: it is not reused for other data.
    pub(super) fn lend_for_good(&self) {
        self.lent_for_good.store(true, Ordering::Relaxed);
        if self.carved.is_none() {
            self.segment.lend_for_good();
        }
    }

    /// Keeps other leases for as long as this one lives.
    pub fn keep_with_it(&mut self, others: Vec<Arc<Self>>) {
        self.with = others;
    }

    /// Whether a segment is that of this lease, or of one that it keeps.
    pub fn lies_in(&self, segment: u64) -> bool {
        self.segment.id() == segment || self.with.iter().any(|other| other.lies_in(segment))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(arena) = self.arena.upgrade() else { return };
        match self.carved.take() {
            Some((offset, size)) => {
                let is_lost = *self.lent_for_good.get_mut() || self.children != process::children();
                arena.give_back(self.segment.id(), offset, size, is_lost);
            }
            None => {
                arena.own.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

impl Arena {
    /// An empty arena, which keeps memory until it is [trimmed](Self::trim).
    pub fn new(config: ArenaConfig) -> Arc<Self> {
        let arena = Self::unattended(config);
        arena.attend(|| ());
        arena
    }

    fn unattended(config: ArenaConfig) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            config,
            holdings: Mutex::default(),
            latest: Latest::default(),
            next_lease: AtomicU64::new(1),
            own: AtomicUsize::new(0),
            caretaker: OnceLock::new(),
            is_tended: AtomicBool::new(false),
            me: me.clone(),
            fork_generation: process::fork_generation(),
        })
    }

    /// The process's own arena: one pool can reuse the warm memory of another.
    pub fn global() -> &'static Arc<Self> {
        static GLOBAL: PerProcess<Arc<Arena>> = PerProcess::new();
        GLOBAL.get(|| Self::unattended(ArenaConfig::default()))
    }

    /// Registers the caretaker, which frees memory that was kept for too long: `remind` is called when there is
    /// something to free later, with any lock of the caller held. The caretaker then calls
    /// [`trim_idle`](Self::trim_idle) at the time that [`idle_at`](Self::idle_at) returns.
    pub fn attend(&self, remind: fn()) {
        let _ = self.caretaker.set(remind);
    }

    /// When the kept memory will have been unused for long enough; `None` when nothing is kept.
    pub fn idle_at(&self) -> Option<Instant> {
        if !self.is_ours() {
            return None;
        }
        let inner = self.lock();
        let holds = !inner.kept.is_empty() || inner.slabs.values().any(Slab::is_unused);
        holds.then(|| inner.used.map_or_else(Instant::now, |used| used + KEEP_FOR))
    }

    /// Frees the kept memory if it has been unused for long enough.
    pub fn trim_idle(&self, now: Instant) {
        if self.idle_at().is_some_and(|at| at <= now) {
            self.trim();
        }
    }

    /// Bytes of shared memory that this process has: all its segments, and what the arena keeps for the next ones.
    pub fn shared_bytes(&self) -> u64 {
        if !self.is_ours() {
            return 0;
        }
        let kept = self.lock().kept_bytes as u64;
        bytes_of_all().saturating_add(kept)
    }

    /// Whether the arena belongs to this process; if not, even its lock may be taken for ever.
    pub(crate) fn is_ours(&self) -> bool {
        self.fork_generation == process::fork_generation()
    }

    pub(crate) fn latest(&self) -> &Latest {
        &self.latest
    }

    /// The arena that fresh segments return to.
    fn home(&self) -> Option<Weak<Self>> {
        self.is_ours().then(|| self.me.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Holdings> {
        self.holdings.lock()
    }

    /// Copies `parts` into shared memory, each 64-byte aligned.
    ///
    /// # Errors
    ///
    /// `Code::OutOfMemory` when there is no room.
    pub fn put_parts(&self, parts: &[&[u8]]) -> Result<Lease> {
        let mut total = 0;
        let mut ranges = Vec::with_capacity(parts.len());
        for part in parts {
            ranges.push((total as u64, part.len() as u64));
            total += part.len().next_multiple_of(ALIGN);
        }
        let total = total.max(ALIGN);
        let id = self.next_lease.fetch_add(1, Ordering::Relaxed);
        let large = total > LARGEST_IN_SLAB;
        if !self.is_ours() {
            let segment = self.segment_of(parts, &ranges, total)?;
            return Ok(Lease {
                id,
                segment,
                ranges,
                arena: Weak::new(),
                carved: None,
                children: process::children(),
                lent_for_good: AtomicBool::new(false),
                with: Vec::new(),
            });
        }
        let mut carved = None;
        if large && (total > LARGEST_IN_REGION || self.own.load(Ordering::Relaxed) < MOST_OWN) {
            match self.segment_of(parts, &ranges, total) {
                Ok(segment) => return Ok(self.lease_whole(id, segment, ranges)),
                // An existing region may have room, and memory that is only kept has descriptors to free.
                Err(error) if error.code() == Code::OutOfDescriptors && total <= LARGEST_IN_REGION => {
                    self.trim()
                }
                Err(error) => return Err(error),
            }
        }
        if large {
            carved = self.carve(total, REGION).ok();
        }
        let (segment, offset) = match carved {
            Some(carved) => carved,
            None if large => {
                // The kernel refused a region: the limit of file sizes, or too little memory.
                let segment = self.segment_of(parts, &ranges, total)?;
                return Ok(self.lease_whole(id, segment, ranges));
            }
            None => self.carve(total, SLAB)?,
        };
        for range in &mut ranges {
            range.0 += offset as u64;
        }
        let carved = Some((offset, total));
        let lease = Lease {
            id,
            segment,
            ranges,
            arena: self.me.clone(),
            carved,
            children: process::children(),
            lent_for_good: AtomicBool::new(false),
            with: Vec::new(),
        };
        for (part, (at, _)) in parts.iter().zip(&lease.ranges) {
            if large {
                // Through the descriptor, which allocates memory page by page and reports when there is none.
                lease.segment.fill(*at, part)?;
            } else {
                lease.segment.copy_in(*at, part)?;
            }
        }
        Ok(lease)
    }

    /// The lease of a segment that holds nothing else.
    fn lease_whole(&self, id: u64, segment: Arc<Segment>, ranges: Vec<(u64, u64)>) -> Lease {
        self.own.fetch_add(1, Ordering::Relaxed);
        Lease {
            id,
            segment,
            ranges,
            arena: self.me.clone(),
            carved: None,
            children: process::children(),
            lent_for_good: AtomicBool::new(false),
            with: Vec::new(),
        }
    }

    /// A segment of its own with these bytes, in warm memory if any fits, else in fresh memory.
    ///
    /// # Errors
    ///
    /// `Code::OutOfMemory` when there is no room.
    pub fn whole(&self, bytes: &[u8]) -> Result<Arc<Segment>> {
        self.segment_of(&[bytes], &[(0, bytes.len() as u64)], bytes.len().max(ALIGN))
    }

    /// A fresh segment of zeros.
    ///
    /// # Errors
    ///
    /// `Code::OutOfMemory` when there is no room.
    pub fn zeroed(&self, size: usize) -> Result<Arc<Segment>> {
        let size = size.max(ALIGN).checked_next_multiple_of(ALIGN);
        let size =
            size.ok_or_else(|| error!(Code::OutOfMemory, "an array would be larger than any memory"))?;
        Ok(Segment::create(size, true)?.publish(self.home()))
    }

    fn segment_of(&self, parts: &[&[u8]], ranges: &[(u64, u64)], total: usize) -> Result<Arc<Segment>> {
        let warm = self.take_kept(total);
        let fresh = warm.is_none();
        let segment = match warm {
            Some(store) => {
                let segment = Segment::from_store(store);
                segment.warm_up(total)?;
                segment
            }
            None => {
                let segment = Segment::create(total.next_multiple_of(GRAIN), false)?;
                segment.make_huge();
                segment
            }
        };
        for (part, (at, _)) in parts.iter().zip(ranges) {
            if segment.fill_wide(*at, part)? {
                continue;
            }
            if fresh {
                segment.fill(*at, part)?;
            } else {
                segment.copy_in(*at, part)?;
            }
        }
        if fresh {
            segment.set_aside()?;
        }
        Ok(segment.publish(self.home()))
    }

    fn take_kept(&self, total: usize) -> Option<Store> {
        if !self.is_ours() {
            return None;
        }
        let mut inner = self.lock();
        inner.used = Some(Instant::now());
        let most = total.saturating_mul(2).max(total + GRAIN);
        let best = (0..inner.kept.len())
            .filter(|i| (total..=most).contains(&inner.kept[*i].size()))
            .min_by_key(|i| inner.kept[*i].size())?;
        let store = inner.kept.remove(best);
        inner.kept_bytes -= store.size();
        Some(store)
    }

    /// Keeps the memory of a segment that has ended.
    pub(crate) fn keep(&self, store: Store) {
        // No put would use a small one: small puts go into slabs.
        let unfit = store.size() > self.config.keep || store.size() <= LARGEST_IN_SLAB;
        let Some(remind) = self.caretaker.get().filter(|_| !unfit && store.has_descriptor()) else { return };
        let mut inner = self.lock();
        inner.used = Some(Instant::now());
        let first = inner.kept.is_empty();
        inner.kept_bytes += store.size();
        inner.kept.push(store);
        let mut dropped = Vec::new();
        while inner.kept_bytes > self.config.keep || inner.kept.len() > MOST_KEPT {
            // The oldest first.
            let oldest = inner.kept.remove(0);
            inner.kept_bytes -= oldest.size();
            dropped.push(oldest);
        }
        drop(inner);
        drop(dropped);
        if first {
            remind();
        }
    }

    #[cfg(test)]
    pub(super) fn pretend_unused(&self) {
        self.lock().used = Instant::now().checked_sub(KEEP_FOR);
    }

    /// Frees all kept memory.
    pub fn trim(&self) {
        if !self.is_ours() {
            return;
        }
        let mut inner = self.lock();
        inner.kept_bytes = 0;
        let kept = std::mem::take(&mut inner.kept);
        let unused: Vec<u64> =
            inner.slabs.iter().filter(|(_, slab)| slab.is_unused()).map(|(id, _)| *id).collect();
        let slabs: Vec<_> = unused.iter().filter_map(|id| inner.slabs.remove(id)).collect();
        drop(inner);
        drop((kept, slabs));
    }

    fn carve(&self, size: usize, from: usize) -> Result<(Arc<Segment>, usize)> {
        let mut inner = self.lock();
        inner.used = Some(Instant::now());
        for slab in inner.slabs.values_mut().filter(|slab| slab.size() == from) {
            if let Some(offset) = slab.take(size) {
                return Ok((Arc::clone(slab.segment()), offset));
            }
        }
        let segment = Segment::create(from, from == SLAB)?.publish(None);
        let mut slab = Slab::new(Arc::clone(&segment), from);
        let offset = slab.take(size).unwrap_or(0);
        inner.slabs.insert(segment.id(), slab);
        Ok((segment, offset))
    }

    fn give_back(&self, segment: u64, offset: usize, size: usize, is_lost: bool) {
        if !self.is_ours() {
            return;
        }
        let mut inner = self.lock();
        inner.used = Some(Instant::now());
        let Some(slab) = inner.slabs.get_mut(&segment) else { return };
        slab.give_back(offset, size, is_lost);
        let unused = slab.is_unused();
        // One unused slab is kept for the next put, if a caretaker frees it in the end.
        let spare = slab.is_region()
            || slab.is_spoiled()
            || self.caretaker.get().is_none()
            || inner.slabs.values().filter(|slab| slab.is_unused()).count() > 1;
        let dropped = if unused && spare { inner.slabs.remove(&segment) } else { None };
        drop(inner);
        if unused
            && dropped.is_none()
            && let Some(remind) = self.caretaker.get()
        {
            remind();
        }
        drop(dropped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(lease: &Lease, part: usize) -> Vec<u8> {
        let (offset, length) = lease.ranges()[part];
        // SAFETY: the range is inside the segment, and no thread writes to it.
        let slice = unsafe {
            std::slice::from_raw_parts(
                lease.segment().data().expect("mapped").add(offset as usize),
                length as usize,
            )
        };
        slice.to_vec()
    }

    #[test]
    fn parts_lie_aligned_and_whole() {
        let arena = Arena::new(ArenaConfig::default());
        for scale in [1, 100_000] {
            let parts: [Vec<u8>; 3] = [vec![1; 7 * scale], vec![2; 65 * scale], Vec::new()];
            let slices: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
            let lease = arena.put_parts(&slices).expect("room");
            for (at, part) in parts.iter().enumerate() {
                assert_eq!(lease.ranges()[at].0 % 64, 0);
                assert_eq!(&bytes(&lease, at), part);
            }
        }
    }

    #[test]
    fn a_returned_segment_is_used_again_under_a_new_generation() {
        let arena = Arena::new(ArenaConfig { keep: 64 << 20 });
        let big = vec![7; 4 << 20];
        let first = arena.put_parts(&[&big]).expect("room");
        let (id, generation) = (first.segment().id(), first.generation());
        drop(first);
        let second = arena.put_parts(&[&big]).expect("room");
        assert_eq!(second.segment().id(), id);
        assert_eq!(second.generation(), generation + 1);
        assert!(second.segment().check(generation).is_err());
        second.segment().lend_for_good();
        drop(second);
        assert_ne!(arena.put_parts(&[&big]).expect("room").segment().id(), id);
    }

    #[test]
    fn slabs_are_carved_merged_and_dropped() {
        let arena = Arena::new(ArenaConfig::default());
        let part = vec![1; 900 << 10];
        let leases: Vec<Lease> = (0..20).map(|_| arena.put_parts(&[&part]).expect("room")).collect();
        assert!(arena.lock().slabs.len() >= 3);
        drop(leases);
        assert_eq!(arena.lock().slabs.len(), 1);
        assert!(arena.lock().slabs.values().all(Slab::is_unused));
    }

    #[test]
    fn shared_bytes_are_those_in_use_and_those_that_are_kept() {
        let arena = Arena::new(ArenaConfig::default());
        let lease = arena.put_parts(&[&vec![1; 5 << 20]]).expect("room");
        // Other tests have segments of their own, which come and go.
        assert!(arena.shared_bytes() >= 5 << 20);
        drop(lease);
        assert!(arena.lock().kept_bytes == 5 << 20 && arena.shared_bytes() >= 5 << 20);
    }

    #[test]
    fn no_more_is_kept_than_the_limit() {
        let arena = Arena::new(ArenaConfig { keep: 8 << 20 });
        let part = vec![1; 3 << 20];
        let leases: Vec<Lease> = (0..5).map(|_| arena.put_parts(&[&part]).expect("room")).collect();
        drop(leases);
        assert!(arena.lock().kept_bytes <= 8 << 20);
        arena.trim();
        assert_eq!(arena.lock().kept_bytes, 0);
    }

    #[test]
    fn the_oldest_goes_when_the_limit_is_passed_and_not_before() {
        let arena = Arena::new(ArenaConfig { keep: 6 << 20 });
        let put = |megabytes: usize| arena.put_parts(&[&vec![1; megabytes << 20]]).expect("room");
        let kept = || arena.lock().kept.iter().map(Store::size).collect::<Vec<_>>();
        drop((put(2), put(4)));
        let sizes = kept();
        assert_eq!(sizes.len(), 2, "exactly as much as may be");
        assert_eq!(arena.lock().kept_bytes, 6 << 20);
        let (three, two) = (put(3), put(2));
        assert!(kept().is_empty(), "warm memory is taken, of up to twice the size");
        assert_eq!(arena.lock().kept_bytes, 0);
        drop((two, three));
        assert_eq!(kept(), [2 << 20, 4 << 20]);
        let five = put(5);
        assert_eq!(kept().len(), 2, "none fits");
        drop(five);
        assert_eq!((kept(), arena.lock().kept_bytes), (vec![5 << 20], 5 << 20));
        drop(put(7));
        assert_eq!(kept(), [5 << 20], "it is larger than all that may be kept");
        drop(put(1));
        assert_eq!(kept(), [5 << 20], "a small one is a slab's");
    }

    #[test]
    fn no_more_segments_are_kept_than_their_number_may_be() {
        let arena = Arena::new(ArenaConfig { keep: usize::MAX });
        let part = vec![1; LARGEST_IN_SLAB + 1];
        let leases: Vec<Lease> =
            (0..MOST_KEPT + 3).map(|_| arena.put_parts(&[&part]).expect("room")).collect();
        drop(leases);
        assert_eq!(arena.lock().kept.len(), MOST_KEPT);
    }

    #[test]
    fn what_fits_into_a_slab_lies_there_and_a_larger_put_alone() {
        let arena = Arena::new(ArenaConfig { keep: 0 });
        let fits = arena.put_parts(&[&vec![1; LARGEST_IN_SLAB]]).expect("room");
        assert_eq!((fits.carved, fits.segment().size()), (Some((0, LARGEST_IN_SLAB)), SLAB as u64));
        assert_eq!(arena.own.load(Ordering::Relaxed), 0);
        let large = arena.put_parts(&[&vec![1; LARGEST_IN_SLAB], &[1]]).expect("room");
        assert_eq!(large.carved, None);
        assert_eq!(arena.own.load(Ordering::Relaxed), 1);
        let empty = arena.put_parts(&[]).expect("room");
        assert_eq!(empty.carved, Some((LARGEST_IN_SLAB, ALIGN)), "behind the first");
        assert_eq!((fits.id(), large.id(), empty.id()), (1, 2, 3));
        let other = arena.put_parts(&[&[1; 3]]).expect("room");
        let mut kept = arena.put_parts(&[&[1; 3]]).expect("room");
        let elsewhere = large.segment().id();
        assert!(kept.lies_in(other.segment().id()) && !kept.lies_in(elsewhere));
        kept.keep_with_it(vec![Arc::new(large)]);
        assert!(kept.lies_in(elsewhere) && !kept.lies_in(0));
        drop(kept);
        assert_eq!(arena.own.load(Ordering::Relaxed), 0, "it goes with what kept it");
    }

    #[test]
    fn beyond_a_number_leases_share_segments_and_give_their_memory_back() {
        let arena = Arena::new(ArenaConfig::default());
        let size = LARGEST_IN_SLAB + 4096;
        let leases: Vec<Lease> =
            (0..MOST_OWN + 40).map(|n| arena.put_parts(&[&vec![n as u8; size]]).expect("room")).collect();
        let mut ids: Vec<u64> = leases.iter().map(|lease| lease.segment().id()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), MOST_OWN + 1);
        for (n, lease) in leases.iter().enumerate() {
            assert!(bytes(lease, 0).iter().all(|byte| *byte == n as u8), "lease {n}");
        }
        // A reused range holds the bytes that were put last.
        let mut leases = leases;
        let region = leases.last().expect("some").segment().id();
        leases.truncate(MOST_OWN + 20);
        let again = arena.put_parts(&[&vec![200; size]]).expect("room");
        assert_eq!(again.segment().id(), region);
        assert!(bytes(&again, 0).iter().all(|byte| *byte == 200));
        drop((leases, again));
        assert!(arena.lock().slabs.is_empty(), "a region goes with its last lease");
        assert_eq!(arena.own.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_is_of_no_use_is_given_back_after_a_while() {
        let arena = Arena::new(ArenaConfig { keep: 64 << 20 });
        assert!(arena.idle_at().is_none());
        drop(arena.put_parts(&[&vec![1; 3 << 20]]).expect("room"));
        drop(arena.put_parts(&[&vec![1; 3 << 10]]).expect("room"));
        let at = arena.idle_at().expect("something is kept");
        arena.trim_idle(at - Duration::from_millis(1));
        assert!(arena.lock().kept_bytes > 0 && arena.lock().slabs.len() == 1);
        arena.trim_idle(at);
        assert!(arena.lock().kept_bytes == 0 && arena.lock().slabs.is_empty());
        assert!(arena.idle_at().is_none());
    }

    #[test]
    fn nothing_is_kept_without_a_caretaker() {
        let arena = Arena::unattended(ArenaConfig { keep: 64 << 20 });
        drop(arena.put_parts(&[&vec![1; 3 << 20]]).expect("room"));
        drop(arena.put_parts(&[&vec![1; 3 << 10]]).expect("room"));
        assert!(arena.lock().kept.is_empty() && arena.lock().slabs.is_empty());
    }
}
