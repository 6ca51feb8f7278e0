//! Lets other threads have the interpreter lock while the loop is busy, and the loop while other threads are.
//!
//! A busy loop has no reason to release the lock, and a thread that wants it waits for Python's switch interval, 5
//! milliseconds. Threads that call the loop want it briefly: for the call, and to go on when it was answered. So a busy
//! loop that other threads call offers them the lock from time to time.
//!
//! An offer that nobody takes costs some 100 ns. If releasing the lock wakes a thread, which takes longer, the loop
//! stays away until that thread has had time to take the lock, or has made its call. A thread that keeps the lock for
//! long is not offered it again for a while.

use std::hint;
use std::time::Duration;

use super::clock::now;
use super::core::LoopCore;
use ropewalk_capi::object::detached;

/// A loop that no thread calls offers the lock once in so many checks for signals. Other threads may want it, and a
/// loop whose callbacks are all compiled functions would never release it otherwise.
const UNCALLED: u32 = 256;
/// Nanoseconds between two offers.
const EACH: u64 = 50_000;
/// Nanoseconds for which the loop remembers that other threads call it.
const MEMORY: u64 = 1_000_000_000;
/// Releasing the lock takes longer than this, in nanoseconds, if it wakes a thread.
const WAKES: u64 = 500;
/// A thread that was woken has the lock after so many nanoseconds, or gets it by its own means.
const PATIENCE: u64 = 20_000;
/// A thread that has called needs so many nanoseconds until it waits for the answer.
const CALLER: u64 = 700;
/// A lock that was kept for so many nanoseconds was not wanted for a call.
const LONG: u64 = 500_000;
/// Such a thread costs the loop at most this part of its time.
const SHARE: u64 = 20;

/// When a loop offers the lock next.
#[derive(Debug, Default)]
pub(super) struct Yielding {
    next: u64,
    /// The calls of other threads, when they were counted last.
    seen: u32,
    /// Until when other threads are expected to call again; 0 for not at all.
    expected: u64,
    /// The occasions since the last offer, while no other threads are expected to call.
    passed: u32,
}

impl Yielding {
    /// Offers the lock, if it is time.
    #[inline]
    pub(super) fn offer(&mut self, core: &LoopCore) {
        if self.expected != 0 || core.calls() != self.seen {
            self.offer_to_callers(core);
            return;
        }
        self.passed += 1;
        if self.passed == UNCALLED {
            self.passed = 0;
            // A thread that has waited for the switch interval gets the lock for certain.
            detached(|| {});
        }
    }

    #[cold]
    fn offer_to_callers(&mut self, core: &LoopCore) {
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
        detached(|| {
            let released = now();
            if released - began > WAKES {
                wait_until(released + PATIENCE, || core.calls() != calls);
                // To wait for the lock itself would cost a sleep.
                wait_until(now() + CALLER, || false);
            }
        });
        let ended = now();
        let took = ended - began;
        self.next = ended + if took > LONG { SHARE * took } else { EACH };
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
