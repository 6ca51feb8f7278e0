//! Mappings of descriptors.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::time::{Duration, Instant};

use crate::call::{check, retry};

const PAGE: usize = 4096;
/// Bytes of a huge page.
const HUGE: usize = 2 << 20;
/// The most bytes that [`Mapping::make_huge`] asks for at a time. It begins with one page, because that may be slow
/// already: pages that a virtual machine has never touched take fifty times as long.
const STEP: usize = 8 * HUGE;
/// About the time that 512 small pages take.
const SLOWEST: Duration = Duration::from_millis(1);
/// The additional time that it may wait until every core of a busy machine has handed in its lists of pages.
const WAIT: Duration = Duration::from_millis(10);

/// The permitted access to a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// Reading only.
    Read,
    /// Reading and writing.
    ReadWrite,
}

/// A mapping; unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is not tied to a thread; users of its pointer prove their own accesses.
unsafe impl Send for Mapping {}
// SAFETY: as above; the methods of a shared reference only hand out the pointer and the length.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of a descriptor, shared. The caller guarantees that the file is that long and stays
    /// so.
    ///
    /// # Errors
    ///
    /// The kernel's error; `InvalidInput` for a length of zero.
    pub fn map(fd: BorrowedFd<'_>, len: usize, protection: Protection) -> io::Result<Self> {
        let access = match protection {
            Protection::Read => libc::PROT_READ,
            Protection::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
        };
        if len >= HUGE
            && let Some(mapping) = Self::map_aligned(fd, len, access)
        {
            return Ok(mapping);
        }
        // SAFETY: the kernel picks an unused address, so no existing memory is touched.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, access, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        match NonNull::new(start.cast()) {
            Some(start) => Ok(Self { start, len }),
            None => Err(io::Error::from(io::ErrorKind::AddrNotAvailable)),
        }
    }

    /// Maps `len` bytes of a descriptor from `offset` on, a multiple of the page size, shared, for reading and writing.
    /// The caller guarantees that the file is that long and stays so.
    ///
    /// # Errors
    ///
    /// As [`map`](Self::map).
    pub fn map_at(fd: BorrowedFd<'_>, offset: usize, len: usize) -> io::Result<Self> {
        Self::map_anywhere(fd, offset, len, libc::MAP_SHARED)
    }

    /// Maps at a multiple of the size of a huge page: elsewhere the kernel cannot enter a huge page into the page
    /// table.
    fn map_aligned(fd: BorrowedFd<'_>, len: usize, access: libc::c_int) -> Option<Self> {
        let len_mapped = len.checked_next_multiple_of(PAGE)?;
        let room = len_mapped.checked_add(HUGE)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: the kernel picks an unused range. The calls below map and unmap within that range only, and no other
        // code knows its address yet.
        unsafe {
            let start = libc::mmap(ptr::null_mut(), room, libc::PROT_NONE, flags, -1, 0);
            if start == libc::MAP_FAILED {
                return None;
            }
            let before = start.cast::<u8>().align_offset(HUGE);
            let aligned = start.cast::<u8>().add(before);
            let flags = libc::MAP_SHARED | libc::MAP_FIXED;
            let mapped = libc::mmap(aligned.cast(), len, access, flags, fd.as_raw_fd(), 0);
            if mapped == libc::MAP_FAILED {
                libc::munmap(start, room);
                return None;
            }
            if before > 0 {
                libc::munmap(start, before);
            }
            if before < HUGE {
                libc::munmap(aligned.add(len_mapped).cast(), HUGE - before);
            }
            NonNull::new(aligned).map(|start| Self { start, len })
        }
    }

    /// Maps `len` bytes from `offset` on, a multiple of the page size, so that no other process sees what is written.
    /// The caller guarantees that the file is that long and stays so.
    ///
    /// # Errors
    ///
    /// As [`map`](Self::map).
    pub fn map_private(fd: BorrowedFd<'_>, offset: usize, len: usize) -> io::Result<Self> {
        Self::map_anywhere(fd, offset, len, libc::MAP_PRIVATE)
    }

    fn map_anywhere(fd: BorrowedFd<'_>, offset: usize, len: usize, sharing: libc::c_int) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let offset =
            libc::off_t::try_from(offset).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        // SAFETY: the kernel picks an unused address, so no existing memory is touched.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, access, sharing, fd.as_raw_fd(), offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        match NonNull::new(start.cast()) {
            Some(start) => Ok(Self { start, len }),
            None => Err(io::Error::from(io::ErrorKind::AddrNotAvailable)),
        }
    }

    /// Where it starts; page-aligned, valid for `len` bytes while the mapping lives.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it is empty; never true.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Mapping {
    /// Enters the first `len` bytes into the page table at once, for writing: this costs a fraction of a page fault for
    /// each page.
    ///
    /// # Errors
    ///
    /// `InvalidInput` on kernels before 5.14, which lack the call; there each page faults at its first use.
    pub fn populate(&self, len: usize) -> io::Result<()> {
        const MADV_POPULATE_WRITE: libc::c_int = 23;
        self.advise(len, MADV_POPULATE_WRITE)
    }

    /// Allocates a range page by page, and enters it into the page table: a later write causes no fault, and no signal
    /// because memory ran out.
    ///
    /// # Errors
    ///
    /// As [`populate`](Self::populate); `OutOfMemory` and its like when there is no room, `InvalidInput` for a range
    /// outside of the mapping.
    pub fn populate_range(&self, at: usize, len: usize) -> io::Result<()> {
        const MADV_POPULATE_WRITE: libc::c_int = 23;
        let start = at / PAGE * PAGE;
        if at.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.advise_at(start, at + len - start, MADV_POPULATE_WRITE)
    }

    /// As [`populate`](Self::populate), for reading.
    ///
    /// # Errors
    ///
    /// As [`populate`](Self::populate).
    pub fn populate_to_read(&self, len: usize) -> io::Result<()> {
        const MADV_POPULATE_READ: libc::c_int = 22;
        self.advise(len, MADV_POPULATE_READ)
    }

    /// Takes huge pages for the parts of the mapping that they fill whole, and has the kernel zero them. This costs a
    /// fraction of the same memory in small pages, here and in every process that maps it. The call ends early if it
    /// takes longer than small pages would, because the kernel must move other pages first. A caller that needs all the
    /// memory allocated allocates the rest afterwards.
    ///
    /// # Errors
    ///
    /// `InvalidInput` on kernels before 6.1, which lack the call, and where the machine forbids it; `OutOfMemory` or
    /// `WouldBlock` when there are no huge pages.
    pub fn make_huge(&self) -> io::Result<()> {
        const MADV_POPULATE_WRITE: libc::c_int = 23;
        const MADV_COLLAPSE: libc::c_int = 25;
        let whole = self.len / HUGE * HUGE;
        let began = Instant::now();
        let (mut at, mut step) = (0, HUGE);
        while at < whole {
            let bytes = step.min(whole - at);
            for page in (at..at + bytes).step_by(HUGE) {
                // The kernel looks for a page table, and memory without any page has none.
                self.advise_at(page, PAGE, MADV_POPULATE_WRITE)?;
            }
            self.advise_at(at, bytes, MADV_COLLAPSE)?;
            at += bytes;
            step = (2 * step).min(STEP);
            if began.elapsed() > WAIT + SLOWEST * u32::try_from(at / HUGE).unwrap_or(u32::MAX) {
                break;
            }
        }
        Ok(())
    }

    fn advise(&self, len: usize, advice: libc::c_int) -> io::Result<()> {
        self.advise_at(0, len.min(self.len), advice)
    }

    /// Advises the kernel about a range, which lies in the mapping.
    fn advise_at(&self, at: usize, len: usize, advice: libc::c_int) -> io::Result<()> {
        debug_assert!(at + len <= self.len.next_multiple_of(PAGE));
        // SAFETY: the range lies in our own mapping, and no advice that is given here changes its contents.
        retry(|| check(unsafe { libc::madvise(self.start.as_ptr().add(at).cast(), len, advice) })).map(drop)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is exactly what `map` got, and no pointer is used past the mapping's life.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Bytes of a page.
pub fn page_size() -> usize {
    // SAFETY: a plain call.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::memfd;

    #[test]
    fn huge_pages_are_zero_and_shared_with_other_mappings() {
        const LEN: usize = 5 * HUGE + 3 * PAGE;
        let fd = memfd::create_sparse(c"test", LEN as u64).expect("a memfd");
        let one = Mapping::map(fd.as_fd(), LEN, Protection::ReadWrite).expect("mapped");
        assert_eq!(one.as_ptr().align_offset(HUGE), 0);
        // The kernel may have no huge pages free, or lack the call.
        let _ = one.make_huge();
        let two = Mapping::map(fd.as_fd(), LEN, Protection::Read).expect("mapped");
        for at in (0..LEN).step_by(PAGE / 2) {
            // SAFETY: both pointers are to live mappings of LEN bytes, and this thread alone uses them.
            unsafe {
                assert_eq!(two.as_ptr().add(at).read(), 0);
                one.as_ptr().add(at).write((at / PAGE) as u8);
                assert_eq!(two.as_ptr().add(at).read(), (at / PAGE) as u8);
            }
        }
        drop(one);
        assert_eq!(memfd::read_at(fd.as_fd(), 1, (3 * HUGE + PAGE) as u64).expect("read"), [1]);
    }

    #[test]
    fn two_mappings_show_the_same_memory() {
        let fd = memfd::create(c"test", 4096, true).expect("a memfd");
        let one = Mapping::map(fd.as_fd(), 4096, Protection::ReadWrite).expect("mapped");
        let two = Mapping::map(fd.as_fd(), 4096, Protection::Read).expect("mapped");
        // SAFETY: both pointers are to live mappings of 4096 bytes, and this thread alone uses them.
        unsafe {
            one.as_ptr().add(77).write(5);
            assert_eq!(two.as_ptr().add(77).read(), 5);
        }
        assert!(Mapping::map(fd.as_fd(), 0, Protection::Read).is_err());
        // Either the call works, or the kernel reports that it lacks it.
        let populated = one.populate(usize::MAX).map_err(|error| error.kind());
        assert!(matches!(populated, Ok(()) | Err(io::ErrorKind::InvalidInput)), "{populated:?}");
        let part = one.populate_range(5, one.len() - 5).map_err(|error| error.kind());
        assert_eq!(part, populated);
        for (at, len) in [(0, one.len() + 1), (one.len(), 1), (usize::MAX, 2)] {
            assert_eq!(
                one.populate_range(at, len).map_err(|error| error.kind()),
                Err(io::ErrorKind::InvalidInput)
            );
        }
    }
}
