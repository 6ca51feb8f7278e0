//! The monotonic clock, which all timers use.
//!
//! Source: clock_gettime(2).

/// Nanoseconds of `CLOCK_MONOTONIC`, which is Python's `time.monotonic()`.
pub fn monotonic_nanos() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a live timespec; the clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_does_not_go_back() {
        let first = monotonic_nanos();
        assert!(monotonic_nanos() >= first);
    }
}
