//! Waiting for many descriptors.
//!
//! Source: epoll(7).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use crate::check;

/// What to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// That it can be read, or is closed.
    Read,
}

/// One ready descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// What it was added with.
    pub token: u64,
}

/// A level-triggered set.
#[derive(Debug)]
pub struct Epoll(OwnedFd);

const BATCH: usize = 64;

impl Epoll {
    /// An empty set.
    ///
    /// # Errors
    ///
    /// When the process is out of descriptors.
    pub fn new() -> io::Result<Self> {
        // SAFETY: the result is a fresh descriptor that nobody else owns.
        unsafe { Ok(Self(OwnedFd::from_raw_fd(check(libc::epoll_create1(libc::EPOLL_CLOEXEC))?))) }
    }

    /// Adds a descriptor.
    ///
    /// # Errors
    ///
    /// When it is in the set already, or cannot be waited for.
    pub fn add(&self, fd: BorrowedFd<'_>, token: u64, interest: Interest) -> io::Result<()> {
        let Interest::Read = interest;
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: token };
        // SAFETY: both descriptors and the event are live.
        check(unsafe {
            libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_ADD, fd.as_raw_fd(), &raw mut event)
        })
        .map(drop)
    }

    /// Removes a descriptor.
    ///
    /// # Errors
    ///
    /// When it is not in the set.
    pub fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        // SAFETY: both descriptors are live; the event is not looked at.
        check(unsafe {
            libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_DEL, fd.as_raw_fd(), std::ptr::null_mut())
        })
        .map(drop)
    }

    /// Waits, and fills `events` with what is ready; empty when the time is up or a signal came.
    ///
    /// # Errors
    ///
    /// None that a live set has.
    pub fn wait(&self, events: &mut Vec<Event>, timeout: Option<Duration>) -> io::Result<()> {
        events.clear();
        // Rounded up, so that a deadline has passed when the wait is over.
        let limit = timeout
            .map_or(-1, |timeout| i32::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX));
        let mut ready = [libc::epoll_event { events: 0, u64: 0 }; BATCH];
        // SAFETY: the buffer holds BATCH events.
        let got =
            unsafe { libc::epoll_wait(self.0.as_raw_fd(), ready.as_mut_ptr(), BATCH as libc::c_int, limit) };
        match check(got) {
            Ok(got) => {
                let got = usize::try_from(got).unwrap_or(0);
                events.extend(ready.iter().take(got).map(|event| Event { token: event.u64 }));
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::eventfd::EventFd;

    #[test]
    fn what_is_ready_is_told_until_it_is_removed() {
        let (epoll, event) = (Epoll::new().expect("a set"), EventFd::new().expect("a descriptor"));
        epoll.add(event.as_fd(), 7, Interest::Read).expect("added");
        assert!(epoll.add(event.as_fd(), 8, Interest::Read).is_err());
        let mut events = Vec::new();
        epoll.wait(&mut events, Some(Duration::ZERO)).expect("waited");
        assert!(events.is_empty());
        event.signal();
        epoll.wait(&mut events, Some(Duration::from_secs(30))).expect("waited");
        assert_eq!(events.iter().map(|event| event.token).collect::<Vec<_>>(), [7]);
        epoll.remove(event.as_fd()).expect("removed");
        epoll.wait(&mut events, Some(Duration::from_micros(10))).expect("waited");
        assert!(events.is_empty());
    }
}
