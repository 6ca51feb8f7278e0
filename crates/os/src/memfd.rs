//! Anonymous files in memory: a file is freed with its last descriptor and mapping.
//!
//! Source: memfd_create(2), fcntl(2) on seals.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use crate::call::{check, retry};
use crate::memory;

/// Makes a memfd of `size` zero bytes, and allocates the memory at once, so that a full machine causes an error here
/// and no SIGBUS later. With `seal_size` no process can shrink or grow the file afterwards.
///
/// # Errors
///
/// `StorageFull` or `OutOfMemory` when there is no room; the kernel's error otherwise.
pub fn create(name: &CStr, size: u64, seal_size: bool) -> io::Result<OwnedFd> {
    let fd = reserve(name, size)?;
    if seal_size {
        seal(&fd)?;
    }
    Ok(fd)
}

/// From this size on, [`create`] first asks the kernel whether there is room.
const LARGE: u64 = 16 << 20;

/// The kernel grants a memfd any size, and kills processes when memory runs out later. So check for room before making
/// a large one.
fn check_room(size: u64) -> io::Result<()> {
    if size >= LARGE && size > memory::available() {
        return Err(io::Error::new(
            io::ErrorKind::OutOfMemory,
            format!("{size} bytes are more than the memory that is free"),
        ));
    }
    Ok(())
}

fn reserve(name: &CStr, size: u64) -> io::Result<OwnedFd> {
    check_room(size)?;
    let fd = match create_empty(name, libc::MFD_NOEXEC_SEAL) {
        // Kernels before 6.3 do not know the flag; later ones may be set to refuse a memfd without it.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => create_empty(name, 0)?,
        other => other?,
    };
    let length = libc::off_t::try_from(size).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
    // SAFETY: plain calls on a descriptor that we own.
    unsafe {
        retry(|| check(libc::ftruncate(fd.as_raw_fd(), length)))?;
        if length > 0 {
            retry(|| check(libc::fallocate(fd.as_raw_fd(), 0, 0, length)))?;
        }
    }
    Ok(fd)
}

fn create_empty(name: &CStr, flags: libc::c_uint) -> io::Result<OwnedFd> {
    // SAFETY: the name is a C string; the result is a fresh descriptor that no other code owns.
    unsafe {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING | flags;
        Ok(OwnedFd::from_raw_fd(check(libc::memfd_create(name.as_ptr(), flags))?))
    }
}

/// The descriptor as a `std::fs::File` that does not close it. Duplicating the descriptor would fail when the process
/// is out of descriptors.
fn file(fd: BorrowedFd<'_>) -> ManuallyDrop<File> {
    // SAFETY: the descriptor is open for as long as the borrow, which outlives every use below, and
    // ManuallyDrop keeps the file from closing it.
    ManuallyDrop::new(unsafe { File::from_raw_fd(fd.as_raw_fd()) })
}

fn seal(fd: &OwnedFd) -> io::Result<()> {
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: a plain call on a descriptor that we own.
    unsafe { check(libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals)) }.map(drop)
}

/// A memfd of `size` bytes whose memory is not allocated yet: for content that is written whole and in order with
/// [`write_at`], which itself reports a full machine.
///
/// # Errors
///
/// The kernel's error.
pub fn create_sparse(name: &CStr, size: u64) -> io::Result<OwnedFd> {
    check_room(size)?;
    let fd = reserve(name, 0)?;
    let length = libc::off_t::try_from(size).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
    // SAFETY: a plain call on a descriptor that we own.
    unsafe { retry(|| check(libc::ftruncate(fd.as_raw_fd(), length)))? };
    seal(&fd)?;
    Ok(fd)
}

/// Allocates memory for the parts of the file that have none yet.
///
/// # Errors
///
/// `StorageFull` or `OutOfMemory` when there is no room; the kernel's error otherwise.
pub fn set_aside(fd: BorrowedFd<'_>) -> io::Result<()> {
    let length = libc::off_t::try_from(size(fd)?).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
    // SAFETY: a plain call on a borrowed descriptor.
    retry(|| check(unsafe { libc::fallocate(fd.as_raw_fd(), 0, 0, length) })).map(drop)
}

/// Allocates memory for the parts of a range that have none yet.
///
/// # Errors
///
/// As [`set_aside`].
pub fn set_range_aside(fd: BorrowedFd<'_>, offset: u64, length: u64) -> io::Result<()> {
    let number = |n: u64| libc::off_t::try_from(n).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
    let (offset, length) = (number(offset)?, number(length)?);
    // SAFETY: a plain call on a borrowed descriptor.
    retry(|| check(unsafe { libc::fallocate(fd.as_raw_fd(), 0, offset, length) })).map(drop)
}

/// Frees the pages that lie wholly inside a range; they read as zeros then. The size stays.
///
/// # Errors
///
/// The kernel's error.
pub fn give_back(fd: BorrowedFd<'_>, offset: u64, length: u64) -> io::Result<()> {
    const PAGE: u64 = 4096;
    let start = offset.next_multiple_of(PAGE);
    let end = (offset + length) / PAGE * PAGE;
    if start >= end {
        return Ok(());
    }
    let number = |n: u64| libc::off_t::try_from(n).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
    let (start, length) = (number(start)?, number(end - start)?);
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: a plain call on a borrowed descriptor.
    retry(|| check(unsafe { libc::fallocate(fd.as_raw_fd(), mode, start, length) })).map(drop)
}

/// Writes all of `bytes` at `offset`.
///
/// # Errors
///
/// `StorageFull` or `OutOfMemory` when there is no room; the kernel's error otherwise.
pub fn write_at(fd: BorrowedFd<'_>, bytes: &[u8], offset: u64) -> io::Result<()> {
    file(fd).write_all_at(bytes, offset)
}

/// Reads up to `most` bytes from `offset` on; fewer at the end of the file.
///
/// # Errors
///
/// The kernel's error.
pub fn read_at(fd: BorrowedFd<'_>, most: usize, offset: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; most];
    let got = file(fd).read_at(&mut bytes, offset)?;
    bytes.truncate(got);
    Ok(bytes)
}

/// Reads the whole of a memfd.
///
/// # Errors
///
/// The kernel's error.
pub fn read_all(fd: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(size(fd)?).unwrap_or(0)];
    file(fd).read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// A sealed memfd with these contents.
///
/// # Errors
///
/// As [`create`].
pub fn with_contents(name: &CStr, contents: &[u8]) -> io::Result<OwnedFd> {
    let fd = create(name, contents.len() as u64, true)?;
    write_at(fd.as_fd(), contents, 0)?;
    Ok(fd)
}

/// Its size in bytes.
///
/// # Errors
///
/// The kernel's error.
pub fn size(fd: BorrowedFd<'_>) -> io::Result<u64> {
    Ok(file(fd).metadata()?.len())
}

/// Bytes of it that have memory: a sparse file has less than its size.
///
/// # Errors
///
/// The kernel's error.
pub fn allocated(fd: BorrowedFd<'_>) -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt as _;
    // stat(2): in units of 512 bytes, whatever the block is.
    Ok(file(fd).metadata()?.blocks() * 512)
}

/// Whether a seal forbids shrinking the file: only then is a mapping of it safe from SIGBUS.
pub fn is_size_sealed(fd: BorrowedFd<'_>) -> bool {
    // SAFETY: a plain call on a borrowed descriptor; a file without seals gives -1.
    let seals = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) };
    seals >= 0 && seals & libc::F_SEAL_SHRINK != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_memfd_cannot_be_shrunk() {
        let fd = create(c"test", 8192, true).expect("a memfd");
        assert_eq!(size(fd.as_fd()).expect("a size"), 8192);
        assert!(is_size_sealed(fd.as_fd()));
        // SAFETY: a plain call on our own descriptor.
        assert_eq!(unsafe { libc::ftruncate(fd.as_raw_fd(), 0) }, -1);
    }

    #[test]
    fn too_much_is_an_error_and_not_a_signal() {
        let error = create(c"test", 1 << 50, true).expect_err("no machine has a pebibyte");
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
    }

    #[test]
    fn a_sparse_memfd_has_memory_where_it_is_written() {
        let fd = create_sparse(c"test", 1 << 20).expect("a memfd");
        assert_eq!(allocated(fd.as_fd()).expect("a size"), 0);
        write_at(fd.as_fd(), &[1; 10], 300_000).expect("written");
        let page = crate::mmap::page_size() as u64;
        assert!((1..=page.max(1 << 16)).contains(&allocated(fd.as_fd()).expect("a size")));
    }

    #[test]
    fn contents_come_back() {
        let fd = with_contents(c"test", b"hello").expect("a memfd");
        assert_eq!(read_all(fd.as_fd()).expect("contents"), b"hello");
    }
}
