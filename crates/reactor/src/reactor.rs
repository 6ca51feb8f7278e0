//! The set of descriptors that a loop waits for, and its sleep.

use std::io;
use std::os::fd::{AsFd, RawFd};
use std::time::Duration;

use ropewalk_os::epoll::{Epoll, Event, Interest, Woken};
use ropewalk_os::uring::ReadyFlag;

use crate::wake::Wake;

/// A descriptor as it was when it was added: the number may have been closed and given to another file since, and
/// events of the old file must not reach the new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// The descriptor's number.
    pub fd: RawFd,
    /// Counts the files that had the number.
    pub generation: u32,
}

/// The token of the wake-up; no descriptor has this number.
const WAKE: u64 = u64::MAX;

impl Token {
    fn pack(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.fd.cast_unsigned())
    }

    fn unpack(packed: u64) -> Self {
        // Each cast keeps exactly the half that it should.
        Self { fd: (packed as u32).cast_signed(), generation: (packed >> 32) as u32 }
    }
}

/// See the module. One thread at a time uses it; other threads only use its [`Wake`].
#[derive(Debug)]
pub struct Reactor {
    set: Epoll,
    wake: Wake,
}

impl Reactor {
    /// An empty set.
    ///
    /// # Errors
    ///
    /// When the process is out of descriptors.
    pub fn new() -> io::Result<Self> {
        let (set, wake) = (Epoll::new()?, Wake::new()?);
        set.add(wake.fd(), WAKE, Interest::READ | Interest::EDGE)?;
        Ok(Self { set, wake })
    }

    /// The handle that wakes the reactor.
    pub fn wake(&self) -> &Wake {
        &self.wake
    }

    /// Adds a descriptor.
    ///
    /// # Errors
    ///
    /// If the descriptor is in the set already, or cannot be waited for.
    pub fn add(&self, token: Token, interest: Interest) -> io::Result<()> {
        self.set.add(token.fd, token.pack(), interest)
    }

    /// Changes what is waited for.
    ///
    /// # Errors
    ///
    /// If the descriptor is not in the set.
    pub fn modify(&self, token: Token, interest: Interest) -> io::Result<()> {
        self.set.modify(token.fd, token.pack(), interest)
    }

    /// Removes a descriptor.
    ///
    /// # Errors
    ///
    /// If the descriptor is not in the set: closing a file removes it.
    pub fn remove(&self, fd: RawFd) -> io::Result<()> {
        self.set.remove(fd)
    }

    /// Polls for ready descriptors, without waiting.
    ///
    /// # Errors
    ///
    /// None for a live set.
    pub fn look(&self, events: &mut Vec<Event>) -> io::Result<Woken> {
        self.set.wait(events, Some(Duration::ZERO))
    }

    /// Has the kernel raise the flag when a descriptor is ready, or is so already.
    pub(crate) fn arm(&self, flag: &mut ReadyFlag) -> io::Result<()> {
        flag.arm(self.set.as_fd())
    }

    /// Announces a sleep, so that other threads [call](Wake::call). False, and nothing announced, if `has_work` returns
    /// true after that.
    #[must_use]
    pub fn park(&self, has_work: impl FnOnce() -> bool) -> bool {
        self.wake.park(has_work)
    }

    /// Sleeps as [announced](Self::park), until a descriptor is ready, a thread calls, a signal comes, or the time is
    /// up.
    ///
    /// # Errors
    ///
    /// None for a live set.
    pub fn sleep(&self, events: &mut Vec<Event>, timeout: Option<Duration>) -> io::Result<Woken> {
        let woken = self.set.wait(events, timeout);
        self.wake.unpark();
        woken
    }

    /// The token of an event, unless it is the wake-up.
    pub fn token(event: Event) -> Option<Token> {
        if event.token == WAKE { None } else { Some(Token::unpack(event.token)) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn tokens_keep_both_halves() {
        let token = Token { fd: i32::MAX, generation: u32::MAX - 1 };
        assert_eq!(Token::unpack(token.pack()), token);
    }

    #[test]
    fn a_call_wakes_it_and_a_descriptor_is_reported_with_its_token() {
        let reactor = Reactor::new().expect("made");
        let mut events = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // The loop may not sleep yet, and a call to a loop that is awake has no effect, so the call is
                // repeated.
                for _ in 0..1_000 {
                    reactor.wake().call();
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            assert!(reactor.park(|| false));
            reactor.sleep(&mut events, None).expect("slept");
        });
        assert!(events.len() == 1 && Reactor::token(events[0]).is_none());
        let (a, b) = UnixStream::pair().expect("a pair");
        let token = Token { fd: a.as_raw_fd(), generation: 3 };
        reactor.add(token, Interest::READ).expect("added");
        drop(b);
        assert!(reactor.park(|| false));
        reactor.sleep(&mut events, None).expect("slept");
        assert_eq!(events.iter().filter_map(|event| Reactor::token(*event)).collect::<Vec<_>>(), [token]);
        reactor.remove(token.fd).expect("removed");
        assert_eq!(reactor.remove(-1).expect_err("no such number").raw_os_error(), Some(9));
        assert!(!reactor.park(|| true));
        reactor.look(&mut events).expect("looked");
        assert!(events.is_empty());
    }
}
