//! Mappings of descriptors.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};

use crate::{check, retry};

/// What a mapping may be used for.
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

// SAFETY: a mapping is memory that is not tied to a thread; what is done with its pointer is its users'
// proof.
unsafe impl Send for Mapping {}
// SAFETY: as above; the methods of a shared reference only hand out the pointer and the length.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of a descriptor, shared. The caller sees to it that the file is that long
    /// and stays so.
    ///
    /// # Errors
    ///
    /// The kernel's error; `InvalidInput` for a length of zero.
    pub fn map(fd: BorrowedFd<'_>, len: usize, protection: Protection) -> io::Result<Self> {
        let access = match protection {
            Protection::Read => libc::PROT_READ,
            Protection::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
        };
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

    /// Maps `len` bytes from `offset` on, a multiple of the page size, so that nobody else sees what is written. The
    /// caller sees to it that the file is that long and stays so.
    ///
    /// # Errors
    ///
    /// As [`map`](Self::map).
    pub fn map_private(fd: BorrowedFd<'_>, offset: usize, len: usize) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let offset =
            libc::off_t::try_from(offset).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        // SAFETY: the kernel picks an unused address, so no existing memory is touched.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), len, access, libc::MAP_PRIVATE, fd.as_raw_fd(), offset) };
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
    /// Enters the first `len` bytes into the page table at once, for writing: a fraction of the price of a
    /// fault for each page.
    ///
    /// # Errors
    ///
    /// `InvalidInput` on kernels before 5.14, which cannot; then the faults come one by one.
    pub fn populate(&self, len: usize) -> io::Result<()> {
        const MADV_POPULATE_WRITE: libc::c_int = 23;
        self.advise(len, MADV_POPULATE_WRITE)
    }

    /// The same, for reading.
    ///
    /// # Errors
    ///
    /// As [`populate`](Self::populate).
    pub fn populate_to_read(&self, len: usize) -> io::Result<()> {
        const MADV_POPULATE_READ: libc::c_int = 22;
        self.advise(len, MADV_POPULATE_READ)
    }

    fn advise(&self, len: usize, advice: libc::c_int) -> io::Result<()> {
        let len = len.min(self.len);
        // SAFETY: the range lies in our own mapping, and populating it changes no contents.
        retry(|| check(unsafe { libc::madvise(self.start.as_ptr().cast(), len, advice) })).map(drop)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is exactly what `map` got, and nobody can hold a pointer past the mapping's life.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::memfd;

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
        // Either it works, or the kernel says that it does not know how.
        let populated = one.populate(usize::MAX).map_err(|error| error.kind());
        assert!(matches!(populated, Ok(()) | Err(io::ErrorKind::InvalidInput)), "{populated:?}");
    }
}
