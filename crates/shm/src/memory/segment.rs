//! Segments: memfds that carry large data, mapped once in each process.
//!
//! The first page is a header (magic, version, id, generation, size), the data follow. The size is sealed, so that no
//! peer can make a mapping fault. The owner raises the generation; a handle with an older one is stale.

use std::collections::HashMap;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use ropewalk_base::{Code, Error, Result, ResultExt, error};
use ropewalk_os::mmap::{Mapping, Protection};
use ropewalk_os::{memfd, process};
use ropewalk_sync::{Mutex, MutexGuard, PerProcess};

use super::arena::Arena;
use super::wide;
use super::words::{Atomics, Words};

/// Bytes before the data.
pub const HEADER: usize = 4096;
const MAGIC: u64 = 0x524F_5045_5741_4C4B;
const VERSION: u64 = 1;
/// The size from which on a segment asks for huge pages.
const WORTH_HUGE: usize = 8 << 20;

/// The header. The owner writes it and never reads it back; a process that attaches checks it once, and later reads
/// only the generation. All fields are atomics, for which any bytes are valid: a peer that scribbles here makes a
/// handle stale but causes no data race.
#[repr(C)]
struct Page {
    magic: AtomicU64,
    version: AtomicU64,
    id: AtomicU64,
    /// Raised by the owner (release) before the memory goes to another use; loaded (acquire) before the data are read.
    generation: AtomicU64,
    /// Bytes of data.
    size: AtomicU64,
}

// SAFETY: atomic integers.
unsafe impl Atomics for Page {}

/// The memory of a segment, which outlives the segment if it is kept for the next one.
#[derive(Debug)]
pub(crate) struct Store {
    /// `None` if the descriptor was closed to save descriptors: then the memory is mapped, and only this process uses
    /// it.
    fd: Option<Counted>,
    page: Words<Page>,
    data: OnceLock<Mapping>,
    id: u64,
    size: usize,
    /// The generation that the next user of this memory gets, if this process owns it.
    generation: u64,
}

/// Descriptors of segments that this process has open.
static OPEN: AtomicUsize = AtomicUsize::new(0);
/// The most descriptors of segments that other processes have made: later segments are mapped and their descriptors
/// closed. A process often has 1,024 descriptors for everything, and a program may keep thousands of results.
const MOST_OPEN: usize = 64;

/// A descriptor that is counted.
#[derive(Debug)]
struct Counted(OwnedFd);

impl Counted {
    fn new(fd: OwnedFd) -> Self {
        OPEN.fetch_add(1, Ordering::Relaxed);
        Self(fd)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Store {
    /// Whether the memory can be passed to another process.
    pub(crate) fn has_descriptor(&self) -> bool {
        self.fd.is_some()
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Bytes that have memory, without the header.
    fn bytes(&self) -> u64 {
        let of_file = self.fd.as_ref().and_then(|fd| memfd::allocated(fd.0.as_fd()).ok());
        of_file.map_or(self.size as u64, |bytes| bytes.saturating_sub(HEADER as u64))
    }

    /// Makes every handle stale.
    fn raise_generation(&mut self) {
        self.generation += 1;
        self.page.generation.store(self.generation, Ordering::Release);
    }
}

/// One segment. With its last reference its memory returns to the arena that it came from, or is freed.
pub struct Segment {
    store: Option<Store>,
    /// Whether this process owns the generation, and hence does not read it from the shared page.
    owned: bool,
    /// The process that made or mapped the segment: a forked child leaves the memory alone.
    fork_generation: u64,
    /// What [`process::children`] was then: a child that was forked since may read the memory.
    children: u64,
    /// The arena that its memory returns to, if this process owns it.
    arena: Option<Weak<Arena>>,
    /// Another process may read the memory for longer than this process knows: it is not reused.
    lent_for_good: AtomicBool,
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segment").field("id", &self.id()).field("size", &self.size()).finish_non_exhaustive()
    }
}

/// Segments of this process by id: each segment is mapped once, and a handle finds it.
static REGISTRY: PerProcess<Mutex<HashMap<u64, Weak<Segment>>>> = PerProcess::new();

fn registry() -> MutexGuard<'static, HashMap<u64, Weak<Segment>>> {
    REGISTRY.get(Mutex::default).lock()
}

fn register(segment: &Arc<Segment>) {
    registry().insert(segment.id(), Arc::downgrade(segment));
}

fn fresh_id() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    static COUNT: AtomicU64 = AtomicU64::new(1);
    // RandomState's keys differ in each thread, the count in each call, and the pid in each forked child.
    let pid = ropewalk_os::process::current_pid();
    let seed = (COUNT.fetch_add(1, Ordering::Relaxed), pid, std::time::Instant::now());
    RandomState::new().hash_one(seed) | 1
}

/// Bytes of memory that the segments of this process have, those included that other processes have made.
pub(super) fn bytes_of_all() -> u64 {
    // Their last references may go here, which takes the lock again.
    let all: Vec<Arc<Segment>> = registry().values().filter_map(Weak::upgrade).collect();
    all.iter().map(|segment| segment.store().bytes()).sum()
}

impl Segment {
    /// Makes a segment of `size` bytes. With `zeroed` the memory is allocated at once; without, the caller first writes
    /// all of it with [`fill`](Self::fill).
    ///
    /// # Errors
    ///
    /// `Code::OutOfMemory` when there is no room.
    pub fn create(size: usize, zeroed: bool) -> Result<Self> {
        let bytes = HEADER.checked_add(size).filter(|bytes| isize::try_from(*bytes).is_ok());
        let bytes = bytes
            .ok_or_else(|| error!(Code::OutOfMemory, "a segment would be larger than any memory"))?
            as u64;
        let huge = size >= WORTH_HUGE;
        let make = if zeroed && !huge {
            memfd::create(c"ropewalk-segment", bytes, true)
        } else {
            memfd::create_sparse(c"ropewalk-segment", bytes)
        };
        let fd = make.context("could not make a segment of shared memory")?;
        let header = Mapping::map(fd.as_fd(), HEADER, Protection::ReadWrite)
            .context("could not map a segment's header")?;
        let page = Words::new(&Arc::new(header), 0)?;
        memfd::write_at(fd.as_fd(), &[0; 8], 0).context("could not set a segment's header aside")?;
        let fd = Some(Counted::new(fd));
        let store = Store { fd, page, data: OnceLock::new(), id: fresh_id(), size, generation: 1 };
        let page = &store.page;
        page.version.store(VERSION, Ordering::Relaxed);
        page.id.store(store.id, Ordering::Relaxed);
        page.generation.store(1, Ordering::Relaxed);
        page.size.store(size as u64, Ordering::Relaxed);
        page.magic.store(MAGIC, Ordering::Release);
        let segment = Self::from_store(store);
        if zeroed && huge {
            segment.make_huge();
            segment.set_aside().context("could not make a segment of shared memory")?;
        }
        Ok(segment)
    }

    /// Takes huge pages for a large segment without memory, as far as the kernel has any ready: they are allocated
    /// faster than small ones, and every process maps and reads them faster. For a segment that is filled whole.
    pub fn make_huge(&self) {
        if self.store().size >= WORTH_HUGE
            && self.data().is_ok()
            && let Some(map) = self.store().data.get()
        {
            // The rest becomes small pages.
            let _ = map.make_huge();
        }
    }

    /// Registers the segment under its id; in the end its memory returns to `arena`, if there is one.
    pub fn publish(mut self, arena: Option<Weak<Arena>>) -> Arc<Self> {
        self.arena = arena;
        let segment = Arc::new(self);
        register(&segment);
        segment
    }

    /// A segment over memory that this process owns.
    pub(crate) fn from_store(store: Store) -> Self {
        Self {
            store: Some(store),
            owned: true,
            fork_generation: process::fork_generation(),
            children: process::children(),
            arena: None,
            lent_for_good: AtomicBool::new(false),
        }
    }

    /// The segment behind a descriptor that came from a peer.
    ///
    /// # Errors
    ///
    /// `Code::SharedMemoryCorrupt` if it is not the announced segment or its size is not sealed, `Code::StaleHandle`
    /// for another generation.
    pub fn attach(fd: OwnedFd, id: u64, generation: u64) -> Result<Arc<Self>> {
        Self::attach_as(fd, id, Some(generation), None)
    }

    /// As [`attach`](Self::attach), for any generation: the descriptor may have waited while the memory was reused.
    /// Each handle's own generation is [checked](Self::check) when it is used.
    ///
    /// # Errors
    ///
    /// `Code::SharedMemoryCorrupt` as [`attach`](Self::attach).
    pub fn attach_any(fd: OwnedFd, id: u64) -> Result<Arc<Self>> {
        Self::attach_as(fd, id, None, None)
    }

    /// As [`attach`](Self::attach), for a segment that its maker gives away: this process becomes its owner, and its
    /// memory returns to `arena` in the end. The maker drops the segment as soon as it has passed the descriptor.
    ///
    /// # Errors
    ///
    /// As [`attach`](Self::attach).
    pub fn adopt(fd: OwnedFd, id: u64, generation: u64, arena: &Arc<Arena>) -> Result<Arc<Self>> {
        Self::attach_as(fd, id, Some(generation), Some(Arc::downgrade(arena)))
    }

    fn attach_as(
        fd: OwnedFd,
        id: u64,
        generation: Option<u64>,
        arena: Option<Weak<Arena>>,
    ) -> Result<Arc<Self>> {
        let known = registry().get(&id).and_then(Weak::upgrade);
        if let Some(known) = known {
            generation.map_or(Ok(()), |generation| known.check(generation))?;
            return Ok(known);
        }
        let corrupt = || {
            error!(Code::SharedMemoryCorrupt, "a descriptor is not that of the segment it was announced as")
        };
        let bytes = memfd::size(fd.as_fd()).context("could not measure a segment")?;
        let bytes = usize::try_from(bytes).map_err(|_| corrupt())?;
        if bytes < HEADER || !memfd::is_size_sealed(fd.as_fd()) {
            return Err(corrupt());
        }
        let header = Mapping::map(fd.as_fd(), HEADER, Protection::ReadWrite)
            .context("could not map a segment's header")?;
        let page = Words::new(&Arc::new(header), 0)?;
        let size = bytes - HEADER;
        let fd = Some(Counted::new(fd));
        let mut store = Store { fd, page, data: OnceLock::new(), id, size, generation: 0 };
        let page = &store.page;
        let right = page.magic.load(Ordering::Acquire) == MAGIC
            && page.version.load(Ordering::Relaxed) == VERSION
            && page.id.load(Ordering::Relaxed) == id
            && page.size.load(Ordering::Relaxed) == size as u64;
        if !right {
            return Err(corrupt());
        }
        let now = page.generation.load(Ordering::Acquire);
        if id == 0 || generation.is_some_and(|generation| generation != now) {
            return Err(stale());
        }
        store.generation = now;
        let mut segment = Self::from_store(store);
        segment.owned = arena.is_some();
        if segment.owned && OPEN.load(Ordering::Relaxed) > MOST_OPEN {
            segment.data()?;
            if let Some(store) = &mut segment.store {
                store.fd = None;
            }
        }
        Ok(segment.publish(arena))
    }

    /// The segment with this id, if this process has it.
    ///
    /// # Errors
    ///
    /// `Code::StaleHandle` if it has another generation.
    pub fn lookup(id: u64, generation: u64) -> Result<Option<Arc<Self>>> {
        let found = registry().get(&id).and_then(Weak::upgrade);
        match found {
            Some(segment) => {
                segment.check(generation)?;
                Ok(Some(segment))
            }
            None => Ok(None),
        }
    }

    fn store(&self) -> &Store {
        match &self.store {
            Some(store) => store,
            // Only `drop` takes the store out, and this cannot be called afterwards.
            None => unreachable!("a segment without memory"),
        }
    }

    /// Its id, never 0.
    pub fn id(&self) -> u64 {
        self.store().id
    }

    /// The current generation: the owner's own record, or for other processes the one that the owner has published.
    pub fn generation(&self) -> u64 {
        let store = self.store();
        if self.owned { store.generation } else { store.page.generation.load(Ordering::Acquire) }
    }

    /// Bytes of data.
    pub fn size(&self) -> u64 {
        self.store().size as u64
    }

    /// The descriptor, to be passed on; `None` if the segment was taken over when there were too many descriptors: then
    /// only this process uses the memory, and sends a copy to others.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.store().fd.as_ref().map(|fd| fd.0.as_fd())
    }

    fn open_fd(&self) -> Result<BorrowedFd<'_>> {
        self.fd().ok_or_else(|| {
            error!(Code::OutOfDescriptors, "a segment's descriptor was closed to save descriptors")
        })
    }

    /// Checks a handle's generation.
    ///
    /// # Errors
    ///
    /// `Code::StaleHandle` if not.
    pub fn check(&self, generation: u64) -> Result<()> {
        if self.generation() == generation {
            return Ok(());
        }
        Err(stale())
    }

    /// Checks that `length` bytes from `offset` lie inside the data.
    ///
    /// # Errors
    ///
    /// `Code::SharedMemoryCorrupt` if not.
    pub fn check_range(&self, offset: u64, length: u64) -> Result<()> {
        if offset.checked_add(length).is_some_and(|end| end <= self.size()) {
            return Ok(());
        }
        Err(error!(Code::SharedMemoryCorrupt, "a handle points outside its segment"))
    }

    /// A pointer to the data: 4096-byte aligned, `size` bytes, mapped at the first call.
    ///
    /// # Errors
    ///
    /// When the address space is full.
    pub fn data(&self) -> Result<*mut u8> {
        let store = self.store();
        if let Some(map) = store.data.get() {
            // SAFETY: the header lies inside the mapping.
            return Ok(unsafe { map.as_ptr().add(HEADER) });
        }
        let map = Mapping::map(self.open_fd()?, HEADER + store.size, Protection::ReadWrite)
            .context("could not map a segment")?;
        // SAFETY: as above.
        Ok(unsafe { store.data.get_or_init(|| map).as_ptr().add(HEADER) })
    }

    /// A private writable mapping of part of the data: written pages are copied, and no other process sees the writes.
    /// Returns the mapping and a pointer to the part in it.
    ///
    /// # Errors
    ///
    /// When the address space is full; `Code::SharedMemoryCorrupt` outside the segment.
    pub fn private_copy(&self, offset: u64, length: u64) -> Result<(Mapping, *mut u8)> {
        self.check_range(offset, length)?;
        let start = HEADER + offset as usize;
        let page = start / HEADER * HEADER;
        let map = Mapping::map_private(self.open_fd()?, page, start - page + (length as usize).max(1))
            .context("could not map a private copy of a segment")?;
        // SAFETY: the part starts inside the mapping.
        let at = unsafe { map.as_ptr().add(start - page) };
        Ok((map, at))
    }

    /// Maps the first `length` bytes of the data for writing, if no byte is mapped yet: for memory that has pages, this
    /// and a copy together take two thirds of the time of a write through the descriptor, and half the time of a copy
    /// that faults on each page.
    ///
    /// # Errors
    ///
    /// As [`data`](Self::data).
    pub(crate) fn warm_up(&self, length: usize) -> Result<()> {
        if self.store().data.get().is_none() {
            self.data()?;
            if let Some(map) = self.store().data.get() {
                // Older kernels lack the call; then each page faults.
                let _ = map.populate(HEADER + length);
            }
        }
        Ok(())
    }

    /// As [`warm_up`](Self::warm_up), for memory that has pages and is only read.
    ///
    /// # Errors
    ///
    /// As [`data`](Self::data).
    pub(crate) fn warm_up_to_read(&self, length: usize) -> Result<()> {
        if self.store().data.get().is_none() {
            self.data()?;
            if let Some(map) = self.store().data.get() {
                // As above.
                let _ = map.populate_to_read(HEADER + length);
            }
        }
        Ok(())
    }

    /// Writes bytes at an offset through the descriptor: the fastest way into memory that has no pages yet.
    ///
    /// # Errors
    ///
    /// `Code::OutOfMemory` when there is no room, `Code::SharedMemoryCorrupt` outside the segment.
    pub fn fill(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check_range(offset, bytes.len() as u64)?;
        memfd::write_at(self.open_fd()?, bytes, HEADER as u64 + offset).context("could not fill a segment")
    }

    /// Writes many bytes at an offset with several threads, into memory that may have no pages yet. False if the kernel
    /// lacks the call or memory is short: [`fill`](Self::fill) reports the reason.
    ///
    /// # Errors
    ///
    /// `Code::SharedMemoryCorrupt` outside the segment.
    pub(crate) fn fill_wide(&self, offset: u64, bytes: &[u8]) -> Result<bool> {
        /// The bytes that are allocated and filled at a time, so that they stay in the cache.
        const STEP: usize = 1 << 20;
        self.check_range(offset, bytes.len() as u64)?;
        if bytes.len() < wide::WORTH || self.data().is_err() {
            return Ok(false);
        }
        let Some(map) = self.store().data.get() else { return Ok(false) };
        let first = HEADER + offset as usize;
        Ok(wide::all(bytes.len(), |part| {
            part.clone().step_by(STEP).all(|at| {
                let piece = &bytes[at..(at + STEP).min(part.end)];
                if map.populate_range(first + at, piece.len()).is_err() {
                    return false;
                }
                // SAFETY: the range was checked and lies in the mapping, its memory is allocated, and its size is
                // sealed. The parts do not overlap, and no other code knows this segment yet.
                unsafe {
                    let target = map.as_ptr().add(first + at);
                    std::ptr::copy_nonoverlapping(piece.as_ptr(), target, piece.len());
                }
                true
            })
        }))
    }

    /// Allocates memory for the parts that [`fill`](Self::fill) has not written.
    ///
    /// # Errors
    ///
    /// `Code::OutOfMemory` when there is no room.
    pub fn set_aside(&self) -> Result<()> {
        memfd::set_aside(self.open_fd()?).context("could not set a segment's memory aside")
    }

    /// Frees the pages of a range; [`fill`](Self::fill) takes new ones.
    pub(crate) fn give_pages_back(&self, offset: u64, length: u64) {
        if let Some(fd) = self.fd() {
            // Memory that cannot be freed is reused all the same.
            let _ = memfd::give_back(fd, HEADER as u64 + offset, length);
        }
    }

    /// Allocates memory for a range of the data. The owner can always do this, other processes while they have the
    /// descriptor.
    ///
    /// # Errors
    ///
    /// `Code::OutOfMemory` when there is no room, `Code::SharedMemoryCorrupt` outside the segment.
    pub fn set_range_aside(&self, offset: u64, length: u64) -> Result<()> {
        self.check_range(offset, length)?;
        let Some(fd) = self.fd() else { return Ok(()) };
        memfd::set_range_aside(fd, HEADER as u64 + offset, length)
            .context("could not set part of a segment aside")
    }

    /// Frees the memory of a range of the data, for every process: it then reads as zeros.
    ///
    /// # Errors
    ///
    /// `Code::SharedMemoryCorrupt` outside the segment; the kernel's error otherwise.
    pub fn give_range_back(&self, offset: u64, length: u64) -> Result<()> {
        self.check_range(offset, length)?;
        memfd::give_back(self.open_fd()?, HEADER as u64 + offset, length)
            .context("could not give part of a segment back")
    }

    /// Copies bytes to an offset of the mapped data.
    ///
    /// # Errors
    ///
    /// As [`data`](Self::data), and `Code::SharedMemoryCorrupt` outside the segment.
    pub fn copy_in(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check_range(offset, bytes.len() as u64)?;
        let data = self.data()?;
        // SAFETY: the range was checked, the memory is allocated and its size sealed. Other processes read it meanwhile
        // only if they got a handle before it was filled, and then see what any shared array shows.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), data.add(offset as usize), bytes.len()) };
        Ok(())
    }

    /// Fills part of the mapped data with zeros.
    ///
    /// # Errors
    ///
    /// As [`copy_in`](Self::copy_in).
    pub(crate) fn clear(&self, offset: u64, length: u64) -> Result<()> {
        self.check_range(offset, length)?;
        let data = self.data()?;
        // SAFETY: as in `copy_in`.
        unsafe { std::ptr::write_bytes(data.add(offset as usize), 0, length as usize) };
        Ok(())
    }

    /// A copy of part of the data.
    ///
    /// # Errors
    ///
    /// As [`data`](Self::data), and `Code::SharedMemoryCorrupt` outside the segment.
    pub fn copy_out(&self, offset: u64, length: u64) -> Result<Vec<u8>> {
        let mut copy = Vec::new();
        self.copy_to(offset, length, &mut copy)?;
        Ok(copy)
    }

    /// Appends a copy of part of the data.
    ///
    /// # Errors
    ///
    /// As [`copy_out`](Self::copy_out); nothing is appended then.
    pub fn copy_to(&self, offset: u64, length: u64, to: &mut Vec<u8>) -> Result<()> {
        self.check_range(offset, length)?;
        let data = self.data()?;
        let length = length as usize;
        to.reserve(length);
        // SAFETY: the range was checked, the memory is allocated and its size sealed. A peer that still writes to it
        // garbles only its own data. The vector has room for so many bytes, which are written before its length says
        // that they are there.
        unsafe {
            std::ptr::copy_nonoverlapping(data.add(offset as usize), to.as_mut_ptr().add(to.len()), length);
            to.set_len(to.len() + length);
        }
        Ok(())
    }

    /// Marks the memory as readable by others for good: it is not reused for other data.
    pub fn lend_for_good(&self) {
        self.lent_for_good.store(true, Ordering::Relaxed);
    }
}

fn stale() -> Error {
    error!(Code::StaleHandle, "a handle names shared memory that has been given back")
}

impl Drop for Segment {
    fn drop(&mut self) {
        let Some(mut store) = self.store.take() else { return };
        if self.fork_generation != process::fork_generation() {
            // A copy in a forked child: only the parent may reuse the memory.
            return;
        }
        {
            let mut registry = registry();
            // Another Segment may have been attached under the same id meanwhile.
            if registry.get(&store.id).is_some_and(|weak| weak.strong_count() == 0) {
                registry.remove(&store.id);
            }
        }
        let arena = self.arena.as_ref().and_then(Weak::upgrade);
        if let Some(arena) = arena
            && !*self.lent_for_good.get_mut()
            && self.children == process::children()
        {
            // From here on every handle of the old generation is stale.
            store.raise_generation();
            arena.keep(store);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_are_seen_through_another_descriptor() {
        let segment = Segment::create(10_000, true).expect("a segment").publish(None);
        segment.copy_in(100, b"hello").expect("inside");
        assert!(segment.copy_in(9_998, b"hello").is_err());
        let again = Segment::lookup(segment.id(), 1).expect("not stale").expect("known");
        assert!(Arc::ptr_eq(&segment, &again));
        let (id, fd) =
            (segment.id(), segment.fd().expect("open").try_clone_to_owned().expect("a descriptor"));
        drop((segment, again));
        assert!(Segment::lookup(id, 1).expect("nothing").is_none());
        let attached = Segment::attach(fd, id, 1).expect("attached");
        // SAFETY: five bytes inside the segment that no thread writes to.
        let bytes = unsafe { std::slice::from_raw_parts(attached.data().expect("mapped").add(100), 5) };
        assert_eq!(bytes, b"hello");
    }

    #[test]
    fn what_is_no_segment_is_refused() {
        let plain = memfd::create(c"test", 8192, true).expect("a memfd");
        assert_eq!(Segment::attach(plain, 7, 1).expect_err("no header").code(), Code::SharedMemoryCorrupt);
        let short = memfd::create(c"test", 100, true).expect("a memfd");
        assert_eq!(Segment::attach(short, 7, 1).expect_err("too short").code(), Code::SharedMemoryCorrupt);
        let segment = Segment::create(100, true).expect("a segment");
        let fd = segment.fd().expect("open").try_clone_to_owned().expect("a descriptor");
        assert_eq!(
            Segment::attach(fd, segment.id(), 2).expect_err("another generation").code(),
            Code::StaleHandle
        );
    }
}
