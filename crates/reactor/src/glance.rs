//! How a loop that has work sees in every turn whether a descriptor is ready.
//!
//! A system call for it costs more than a short turn. So after a number of looks that found nothing the kernel is asked
//! to raise a flag in memory when there is something; until then a look is one load. Where the kernel refuses such
//! flags, every look is a system call.

use std::io;

use ropewalk_os::epoll::{Event, Woken};
use ropewalk_os::uring::ReadyFlag;

use crate::Reactor;

/// Looks in a row that find nothing, before the flag is armed: arming it, and the interrupt that raises it, cost about
/// as much as so many looks.
const LEAST: u32 = 32;
/// The same, where the flag was raised soon each time.
const MOST: u32 = 1024;

/// See the module. It belongs to the thread that runs the loop.
#[derive(Debug)]
pub struct Glance {
    flag: Option<ReadyFlag>,
    /// The kernel or a sandbox has refused a flag: it is not asked again.
    refused: bool,
    armed: bool,
    /// Looks in a row that found nothing, or glances at the armed flag.
    empty: u32,
    /// So many of them arm the flag.
    patience: u32,
    /// The thread that has made the flag, as its caller numbers threads.
    thread: usize,
}

impl Default for Glance {
    fn default() -> Self {
        Self { flag: None, refused: false, armed: false, empty: 0, patience: LEAST, thread: 0 }
    }
}

impl Glance {
    /// A thread begins to run the loop. A flag that another thread has armed is given up, because that thread would
    /// have to raise it.
    pub fn begin(&mut self, thread: usize) {
        if self.thread != thread {
            *self = Self { thread, ..Self::default() };
        }
    }

    /// Whether to look in this turn: always, unless the flag is armed and not raised.
    #[inline]
    pub fn is_look_due(&mut self) -> bool {
        if !self.armed {
            return true;
        }
        self.empty = self.empty.saturating_add(1);
        let raised = self.flag.as_mut().is_none_or(ReadyFlag::is_raised);
        if raised {
            self.raised();
        }
        raised
    }

    /// The flag was raised: the next looks are system calls again.
    #[cold]
    fn raised(&mut self) {
        self.armed = false;
        // It did not pay if it was raised soon.
        self.patience = if self.empty < self.patience {
            (2 * self.patience).min(MOST)
        } else {
            (self.patience / 2).max(LEAST)
        };
        self.empty = 0;
    }

    /// The loop has slept until something was ready: it is not so busy that a flag would pay.
    #[inline]
    pub fn slept(&mut self) {
        if !self.armed {
            self.empty = 0;
        }
    }

    /// Polls for ready descriptors, without waiting.
    ///
    /// # Errors
    ///
    /// As [`Reactor::look`].
    pub fn look(&mut self, reactor: &Reactor, events: &mut Vec<Event>) -> io::Result<Woken> {
        let woken = reactor.look(events)?;
        self.empty = if events.is_empty() { self.empty + 1 } else { 0 };
        if self.empty >= self.patience && !self.armed {
            self.arm(reactor);
        }
        Ok(woken)
    }

    #[cold]
    fn arm(&mut self, reactor: &Reactor) {
        self.empty = 0;
        if self.flag.is_none() && !self.refused {
            self.flag = ReadyFlag::new().ok();
        }
        self.armed = self.flag.as_mut().is_some_and(|flag| reactor.arm(flag).is_ok());
        self.refused = !self.armed;
        if self.refused {
            self.flag = None;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use ropewalk_os::epoll::Interest;

    use super::*;
    use crate::Token;

    /// One turn of a loop that has other work; returns whether it saw an event.
    fn turn(glance: &mut Glance, reactor: &Reactor, events: &mut Vec<Event>) -> bool {
        if !glance.is_look_due() {
            return false;
        }
        glance.look(reactor, events).expect("looked");
        !events.is_empty()
    }

    #[test]
    fn every_turn_sees_what_the_turn_before_has_made_ready() {
        let (reactor, mut glance, mut events) =
            (Reactor::new().expect("made"), Glance::default(), Vec::new());
        let (a, mut b) = UnixStream::pair().expect("a pair");
        let token = Token { fd: a.as_raw_fd(), generation: 0 };
        reactor.add(token, Interest::READ | Interest::EDGE).expect("added");
        glance.begin(1);
        for idle in [0, 1, LEAST - 1, LEAST, LEAST + 1, 5 * LEAST, MOST, 3 * MOST].repeat(3) {
            for _ in 0..idle {
                assert!(!turn(&mut glance, &reactor, &mut events));
            }
            b.write_all(b"x").expect("written");
            assert!(turn(&mut glance, &reactor, &mut events), "after {idle} turns");
        }
        // Another thread runs the loop.
        for _ in 0..2 * MOST {
            assert!(!turn(&mut glance, &reactor, &mut events));
        }
        std::thread::scope(|scope| {
            scope.spawn(|| {
                glance.begin(2);
                b.write_all(b"x").expect("written");
                assert!(turn(&mut glance, &reactor, &mut events));
            });
        });
    }

    #[test]
    fn a_loop_that_sleeps_between_short_bursts_of_work_has_no_flag() {
        let (reactor, mut glance, mut events) =
            (Reactor::new().expect("made"), Glance::default(), Vec::new());
        for _ in 0..LEAST {
            for _ in 0..LEAST / 2 {
                turn(&mut glance, &reactor, &mut events);
            }
            glance.slept();
        }
        assert!(glance.flag.is_none());
    }

    #[test]
    fn an_idle_set_costs_no_calls_where_the_kernel_has_flags() {
        let (reactor, mut glance, mut events) =
            (Reactor::new().expect("made"), Glance::default(), Vec::new());
        let mut looks = 0;
        for _ in 0..1_000 {
            if glance.is_look_due() {
                looks += 1;
                glance.look(&reactor, &mut events).expect("looked");
            }
        }
        let expected = if glance.refused { 1_000 } else { LEAST };
        assert_eq!(looks, expected);
    }
}
