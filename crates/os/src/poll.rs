//! Waiting for a few descriptors, once.
//!
//! Source: ppoll(2).

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use crate::call::check;

/// One descriptor, the events to wait for, and the events found: the bits of `POLLIN` and its siblings.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Polled(libc::pollfd);

/// It can be read.
pub const READ: i16 = libc::POLLIN;
/// It can be written.
pub const WRITE: i16 = libc::POLLOUT;
/// It has urgent data.
pub const PRIORITY: i16 = libc::POLLPRI;
/// It has an error, or is hung up, or is no descriptor. Always reported.
pub const ERROR: i16 = libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;

impl Polled {
    /// A descriptor and the events to wait for.
    pub fn new(fd: RawFd, events: i16) -> Self {
        Self(libc::pollfd { fd, events, revents: 0 })
    }

    /// The events found.
    pub fn found(self) -> i16 {
        self.0.revents
    }
}

/// Waits until one is ready, or the time is up; gives how many are.
///
/// # Errors
///
/// `Interrupted` by a signal.
pub fn poll(all: &mut [Polled], timeout: Option<Duration>) -> io::Result<usize> {
    let time = timeout.map(|timeout| libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: a live slice with its length, whose items have the layout of a `pollfd`; the time is live, and there is
    // no mask.
    let got = check(unsafe {
        libc::ppoll(all.as_mut_ptr().cast(), all.len() as libc::nfds_t, time, std::ptr::null())
    })?;
    Ok(usize::try_from(got).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, AsRawFd};

    use super::*;
    use crate::eventfd::EventFd;

    #[test]
    fn what_is_ready_is_found_and_a_closed_one_is_an_error() {
        let event = EventFd::new().expect("a descriptor");
        let mut all = [Polled::new(event.as_fd().as_raw_fd(), READ)];
        assert_eq!(poll(&mut all, Some(Duration::from_micros(10))).expect("waited"), 0);
        event.signal();
        assert_eq!(poll(&mut all, None).expect("waited"), 1);
        assert_eq!(all[0].found(), READ);
        let mut none = [Polled::new(i32::MAX, READ)];
        assert_eq!(poll(&mut none, None).expect("waited"), 1);
        assert!(none[0].found() & ERROR != 0);
    }
}
