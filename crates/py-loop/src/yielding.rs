//! Lets other threads have the interpreter lock while the loop is busy, and the loop while other threads are.
//!
//! A busy loop has no reason to release the lock, and a thread that wants it waits for Python's switch interval, 5
//! milliseconds. Most threads want it briefly: to call the loop, to go on when it was answered, or between two calls of
//! the system. So a busy loop offers them the lock from time to time.
//!
//! An offer that nobody takes costs some 100 ns. If releasing the lock wakes a thread, which takes longer, the loop
//! stays away until that thread has had time to take the lock, or has made its call. A thread that keeps the lock for
//! long is not offered it again for a while.
//!
//! A thread that is woken too late finds the lock taken, and begins to wait for the switch interval anew. If every
//! offer did that to it, it would never get the lock. So from time to time the loop sleeps over an offer, for longer
//! than a wake-up takes.

use std::hint;
use std::time::Duration;

use super::clock::now;
use super::core::LoopCore;
use ropewalk_capi::object::detached;

/// A loop that no thread calls looks at the clock once in so many checks for signals.
const UNCALLED: u32 = 16;
/// Nanoseconds between two offers.
const EACH: u64 = 50_000;
/// Nanoseconds for which the loop remembers that other threads call it.
const MEMORY: u64 = 1_000_000_000;
/// Releasing the lock takes longer than this, in nanoseconds, if it wakes a thread.
const WAKES: u64 = 500;
/// Most threads that were woken have the lock after so many nanoseconds.
const PATIENCE: u64 = 20_000;
/// A thread that has called needs so many nanoseconds until it waits for the answer.
const CALLER: u64 = 700;
/// Nanoseconds in which threads were woken and none has called, before the loop sleeps over an offer.
const VAIN: u64 = 50_000_000;
/// Such a sleep. A wake-up across cores takes a tenth of it.
const SLEEP: Duration = Duration::from_micros(500);
/// A lock that was kept for so many nanoseconds was not wanted for a call.
const LONG: u64 = 500_000;
/// Such a thread is not offered the lock for so many times as long,
const SHARE: u64 = 20;
/// and for so many nanoseconds at most, twice Python's switch interval: whichever thread waits then has asked for the
/// lock, and a release hands it over for certain.
const PAUSE_AT_MOST: u64 = 10_000_000;

/// When a loop offers the lock next.
#[derive(Debug, Default)]
pub(super) struct Yielding {
    next: u64,
    /// The calls of other threads, when they were counted last.
    seen: u32,
    /// Until when other threads are expected to call again; 0 for not at all.
    expected: u64,
    /// The occasions since the last look at the clock, while no other threads are expected to call.
    passed: u32,
    /// When a thread was woken that may have come too late; 0 if there is none since the last sleep.
    vain: u64,
}

impl Yielding {
    /// Offers the lock, if it is time.
    #[inline]
    pub(super) fn offer(&mut self, core: &LoopCore) {
        self.passed += 1;
        if self.passed >= UNCALLED || self.expected != 0 || core.calls() != self.seen {
            self.passed = 0;
            self.offer_in_time(core);
        }
    }

    #[cold]
    fn offer_in_time(&mut self, core: &LoopCore) {
        let began = now();
        let calls = core.calls();
        if calls != self.seen {
            self.seen = calls;
            self.expected = began + MEMORY;
        } else if began > self.expected {
            self.expected = 0;
        }
        if began < self.next {
            return;
        }
        let sleeps = self.vain != 0 && began - self.vain > VAIN;
        let woken = detached(|| {
            let released = now();
            let wakes = released - began > WAKES;
            if sleeps {
                std::thread::sleep(SLEEP);
            } else if wakes {
                wait_until(released + PATIENCE, || core.calls() != calls);
                // To wait for the lock itself would cost a sleep.
                wait_until(now() + CALLER, || false);
            }
            wakes
        });
        let ended = now();
        let took = ended - began;
        let slow = took > LONG + if sleeps { SLEEP.as_nanos() as u64 } else { 0 };
        self.next = ended + if slow { (SHARE * took).min(PAUSE_AT_MOST) } else { EACH };
        if sleeps || slow || core.calls() != calls {
            self.vain = 0;
        } else if woken && self.vain == 0 {
            self.vain = ended;
        }
    }
}

/// The pause of a thread that calls a loop for which too many calls wait: time for the loop to run a hundred or more.
const PAUSE: Duration = Duration::from_micros(100);

/// Makes a thread that has called a loop pause, without the interpreter lock.
#[cold]
pub(super) fn hold_back() {
    detached(|| std::thread::sleep(PAUSE));
}

fn wait_until(time: u64, is_done: impl Fn() -> bool) {
    while !is_done() && now() < time {
        hint::spin_loop();
    }
}
