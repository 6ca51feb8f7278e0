//! Waiting for many descriptors.
//!
//! Source: epoll(7), epoll_pwait2(2).

use std::io;
use std::ops::BitOr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::call::check;

/// What to wait for; the kernel always reports errors and hang-ups, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest(u32);

impl Interest {
    /// The descriptor can be read, or its peer has closed it.
    pub const READ: Self = Self(libc::EPOLLIN as u32 | libc::EPOLLRDHUP as u32);
    /// The peer has closed the descriptor, and nothing else.
    pub const END: Self = Self(libc::EPOLLRDHUP as u32);
    /// Urgent data have come, or the like.
    pub const URGENT: Self = Self(libc::EPOLLPRI as u32);
    /// The descriptor can be written.
    pub const WRITE: Self = Self(libc::EPOLLOUT as u32);
    /// The kernel reports each change once, and not for as long as the state lasts.
    pub const EDGE: Self = Self(libc::EPOLLET as u32);
    /// The kernel reports the descriptor once, and not again before it is [modified](Epoll::modify).
    pub const ONCE: Self = Self(libc::EPOLLONESHOT as u32);
}

impl BitOr for Interest {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// One ready descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// The token that the descriptor was added with.
    pub token: u64,
    bits: u32,
}

impl Event {
    /// A read would not block: there are bytes, an end, or an error to report.
    pub fn is_readable(self) -> bool {
        self.bits & (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLERR | libc::EPOLLHUP) as u32 != 0
    }

    /// A write would not block: there is room, or an error to report.
    pub fn is_writable(self) -> bool {
        self.bits & (libc::EPOLLOUT | libc::EPOLLERR | libc::EPOLLHUP) as u32 != 0
    }

    /// Urgent data have come: a read stops before them, even if there are bytes behind.
    pub fn is_urgent(self) -> bool {
        self.bits & libc::EPOLLPRI as u32 != 0
    }

    /// The peer will send no more: read to the end.
    pub fn is_at_end(self) -> bool {
        self.bits & (libc::EPOLLRDHUP | libc::EPOLLERR | libc::EPOLLHUP) as u32 != 0
    }
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// With events, or because the time was up.
    InTime,
    /// By a signal.
    BySignal,
}

/// A set of descriptors. Level-triggered, unless [`Interest::EDGE`] is set. A descriptor may be given as a number: the
/// kernel refuses one that is not open.
#[derive(Debug)]
pub struct Epoll(OwnedFd);

const BATCH: usize = 256;

/// Whether the kernel or a sandbox refuses `epoll_pwait2`.
static COARSE: AtomicBool = AtomicBool::new(false);

impl Epoll {
    /// An empty set.
    ///
    /// # Errors
    ///
    /// When the process is out of descriptors.
    pub fn new() -> io::Result<Self> {
        // SAFETY: the result is a fresh descriptor that no other code owns.
        unsafe { Ok(Self(OwnedFd::from_raw_fd(check(libc::epoll_create1(libc::EPOLL_CLOEXEC))?))) }
    }

    /// Adds a descriptor.
    ///
    /// # Errors
    ///
    /// When it is in the set already, or cannot be waited for.
    pub fn add(&self, fd: impl AsRawFd, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, token, interest)
    }

    /// Changes what is waited for, and checks again whether it is ready already.
    ///
    /// # Errors
    ///
    /// When it is not in the set.
    pub fn modify(&self, fd: impl AsRawFd, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, token, interest)
    }

    /// Removes a descriptor.
    ///
    /// # Errors
    ///
    /// When it is not in the set.
    pub fn remove(&self, fd: impl AsRawFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0, Interest(0))
    }

    fn control(
        &self,
        operation: libc::c_int,
        fd: impl AsRawFd,
        token: u64,
        interest: Interest,
    ) -> io::Result<()> {
        let mut event = libc::epoll_event { events: interest.0, u64: token };
        // SAFETY: the set and the event are live; the kernel checks the descriptor.
        check(unsafe { libc::epoll_ctl(self.0.as_raw_fd(), operation, fd.as_raw_fd(), &raw mut event) })
            .map(drop)
    }

    /// Waits, and fills `events` with what is ready; empty when the time is up or a signal came. It never returns early
    /// for another reason, and it returns nanoseconds rather than milliseconds late.
    ///
    /// # Errors
    ///
    /// None for a live set.
    pub fn wait(&self, events: &mut Vec<Event>, timeout: Option<Duration>) -> io::Result<Woken> {
        events.clear();
        let mut ready = [const { std::mem::MaybeUninit::<libc::epoll_event>::uninit() }; BATCH];
        let buffer = ready.as_mut_ptr().cast();
        match check(self.wait_raw(buffer, timeout)) {
            Ok(got) => {
                let got = usize::try_from(got).unwrap_or(0);
                events.extend(ready.iter().take(got).map(|event| {
                    // SAFETY: the kernel has written the first `got`.
                    let event = unsafe { event.assume_init() };
                    Event { token: event.u64, bits: event.events }
                }));
                Ok(Woken::InTime)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Woken::BySignal),
            Err(error) => Err(error),
        }
    }

    fn wait_raw(&self, buffer: *mut libc::epoll_event, timeout: Option<Duration>) -> libc::c_int {
        let (set, most) = (self.0.as_raw_fd(), BATCH as libc::c_int);
        let whole = match timeout {
            None => -1,
            Some(Duration::ZERO) => 0,
            Some(timeout) => {
                if !COARSE.load(Ordering::Relaxed) {
                    let time = libc::timespec {
                        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
                        tv_nsec: timeout.subsec_nanos().into(),
                    };
                    let none = std::ptr::null::<libc::sigset_t>();
                    // SAFETY: the buffer holds BATCH events, the time is live, and there is no mask.
                    let got = unsafe {
                        libc::syscall(libc::SYS_epoll_pwait2, set, buffer, most, &raw const time, none, 0)
                    };
                    let refused = got == -1
                        && matches!(
                            io::Error::last_os_error().raw_os_error(),
                            Some(libc::ENOSYS | libc::EPERM | libc::EINVAL)
                        );
                    if !refused {
                        return got as libc::c_int;
                    }
                    COARSE.store(true, Ordering::Relaxed);
                }
                // Rounded up, so that a deadline has passed when the wait is over.
                i32::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
            }
        };
        // SAFETY: the buffer holds BATCH events.
        unsafe { libc::epoll_wait(set, buffer, most, whole) }
    }
}

impl AsFd for Epoll {
    /// The set is a descriptor too: readable while something in it is ready.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::eventfd::EventFd;

    #[test]
    fn a_ready_descriptor_is_reported_until_it_is_removed() {
        let (epoll, event) = (Epoll::new().expect("a set"), EventFd::new().expect("a descriptor"));
        epoll.add(event.as_fd(), 7, Interest::READ).expect("added");
        assert!(epoll.add(event.as_fd(), 8, Interest::READ).is_err());
        let mut events = Vec::new();
        epoll.wait(&mut events, Some(Duration::ZERO)).expect("waited");
        assert!(events.is_empty());
        event.signal();
        epoll.wait(&mut events, Some(Duration::from_secs(30))).expect("waited");
        assert_eq!(events.iter().map(|event| event.token).collect::<Vec<_>>(), [7]);
        assert!(events[0].is_readable() && !events[0].is_writable() && !events[0].is_at_end());
        epoll.modify(event.as_fd(), 9, Interest::READ | Interest::WRITE).expect("modified");
        epoll.wait(&mut events, None).expect("waited");
        assert!(events[0].token == 9 && events[0].is_readable() && events[0].is_writable());
        epoll.remove(event.as_fd()).expect("removed");
        assert!(epoll.modify(event.as_fd(), 9, Interest::READ).is_err());
        epoll.wait(&mut events, Some(Duration::from_micros(10))).expect("waited");
        assert!(events.is_empty());
    }

    #[test]
    fn an_edge_is_reported_once() {
        let (epoll, event) = (Epoll::new().expect("a set"), EventFd::new().expect("a descriptor"));
        epoll.add(event.as_fd(), 1, Interest::READ | Interest::EDGE).expect("added");
        event.signal();
        let mut events = Vec::new();
        for expected in [1, 0] {
            epoll.wait(&mut events, Some(Duration::ZERO)).expect("waited");
            assert_eq!(events.len(), expected);
        }
    }

    #[test]
    fn a_set_in_a_set_is_reported_once_for_each_wait() {
        let (outer, inner) = (Epoll::new().expect("a set"), Epoll::new().expect("a set"));
        let event = EventFd::new().expect("a descriptor");
        inner.add(event.as_fd(), 1, Interest::READ).expect("added");
        outer.add(inner.as_fd(), 2, Interest::READ | Interest::ONCE).expect("added");
        event.signal();
        let mut events = Vec::new();
        for expected in [1, 0] {
            outer.wait(&mut events, Some(Duration::ZERO)).expect("waited");
            assert_eq!(events.len(), expected);
        }
        outer.modify(inner.as_fd(), 2, Interest::READ | Interest::ONCE).expect("modified");
        outer.wait(&mut events, Some(Duration::ZERO)).expect("waited");
        assert_eq!(events.len(), 1);
    }

    #[test]
    fn a_wait_is_never_too_short() {
        let epoll = Epoll::new().expect("a set");
        let mut events = Vec::new();
        for micros in [1, 300, 1_700] {
            let (limit, began) = (Duration::from_micros(micros), Instant::now());
            assert_eq!(epoll.wait(&mut events, Some(limit)).expect("waited"), Woken::InTime);
            assert!(began.elapsed() >= limit);
        }
    }
}
