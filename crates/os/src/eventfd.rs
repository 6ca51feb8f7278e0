//! A counter that can be waited for with epoll.
//!
//! Source: eventfd(2).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::call::{check, retry};

/// A non-blocking event descriptor.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// A new event descriptor, not signalled.
    ///
    /// # Errors
    ///
    /// When the process is out of descriptors.
    pub fn new() -> io::Result<Self> {
        // SAFETY: the result is a fresh descriptor that no other code owns.
        unsafe {
            let raw = check(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK))?;
            Ok(Self(OwnedFd::from_raw_fd(raw)))
        }
    }

    /// Wraps an event descriptor that came from another process.
    pub fn from_owned(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Makes the descriptor readable. A full counter refuses the write, but it is readable already.
    pub fn signal(&self) {
        let one = 1_u64.to_ne_bytes();
        // SAFETY: eight readable bytes, as an eventfd wants.
        let _ = retry(|| unsafe {
            check(libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) as libc::c_int)
        });
    }

    /// Makes the descriptor unreadable, and returns how often it was signalled.
    pub fn drain(&self) -> u64 {
        let mut count = [0; 8];
        // SAFETY: eight writable bytes, as an eventfd wants.
        let read = retry(|| unsafe {
            check(libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) as libc::c_int)
        });
        if read.is_ok() { u64::from_ne_bytes(count) } else { 0 }
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_add_up_and_are_drained() {
        let event = EventFd::new().expect("a descriptor");
        event.signal();
        event.signal();
        assert_eq!((event.drain(), event.drain()), (2, 0));
    }
}
