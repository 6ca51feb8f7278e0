//! The monotonic clock, which all timers use, and how punctual they are.
//!
//! Source: clock_gettime(2), PR_SET_TIMERSLACK(2const).

/// Nanoseconds of `CLOCK_MONOTONIC`, which is Python's `time.monotonic()`.
pub fn monotonic_nanos() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a live timespec; the clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Nanoseconds for which the calling thread has been on a processor. Unlike the other clock it costs a system call.
pub fn thread_cpu_nanos() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a live timespec; every thread has the clock.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// This thread's waits with a time end at that time: by default the kernel may end them 50 µs later, to wake the
/// processor for many of them at once.
pub fn wake_punctually() {
    // SAFETY: plain numbers. The kernel knows no reason to refuse, and a refusal would change nothing but punctuality.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong, 0, 0, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_wakes_punctually_has_the_least_slack() {
        let slack = || {
            // SAFETY: plain numbers.
            unsafe { libc::prctl(libc::PR_GET_TIMERSLACK, 0, 0, 0, 0) }
        };
        std::thread::spawn(move || {
            wake_punctually();
            assert_eq!(slack(), 1);
        })
        .join()
        .expect("joined");
        assert!(slack() > 1, "other threads keep theirs");
    }

    #[test]
    fn a_thread_that_sleeps_uses_no_processor() {
        let (wall, cpu) = (monotonic_nanos(), thread_cpu_nanos());
        std::thread::sleep(std::time::Duration::from_millis(50));
        let slept = thread_cpu_nanos() - cpu;
        assert!(slept < monotonic_nanos() - wall, "{slept} ns");
        let begin = thread_cpu_nanos();
        while thread_cpu_nanos() - begin < 1_000_000 {}
    }

    #[test]
    fn it_does_not_go_back() {
        let first = monotonic_nanos();
        assert!(monotonic_nanos() >= first);
    }
}
