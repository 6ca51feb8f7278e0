//! How long to wait before connecting again.

use std::time::Duration;

/// The waits between the attempts of one connection.
///
/// Without a maximum each wait is the base plus a random part of it, so that many clients do not reconnect at one
/// moment. With a maximum each wait is twice the last, from the base to the maximum.
///
/// Source: zmq_setsockopt(3), ZMQ_RECONNECT_IVL and ZMQ_RECONNECT_IVL_MAX.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    base: Option<Duration>,
    most: Duration,
    last: Option<Duration>,
    random: u64,
}

impl Backoff {
    /// A backoff of these options; `None` or zero for `reconnect_ivl` means that no attempt follows. A seed decides the
    /// random parts.
    pub(crate) fn new(reconnect_ivl: Option<Duration>, reconnect_ivl_max: Duration, seed: u64) -> Self {
        let base = reconnect_ivl.filter(|base| !base.is_zero());
        Self { base, most: reconnect_ivl_max, last: None, random: seed }
    }

    /// The next wait; `None` if no attempt follows.
    pub(crate) fn next_wait(&mut self) -> Option<Duration> {
        let base = self.base?;
        if self.most.is_zero() {
            return Some(base.saturating_add(self.jitter(base)));
        }
        let wait = self.last.map_or(base, |last| last.saturating_mul(2)).min(self.most);
        self.last = Some(wait);
        Some(wait)
    }

    /// After a successful connection: the next wait is the first again.
    pub(crate) fn reset(&mut self) {
        self.last = None;
    }

    /// Less than `base`, in steps of a microsecond: libzmq's milliseconds would leave a base of 1 ms without
    /// any.
    fn jitter(&mut self, base: Duration) -> Duration {
        // SplitMix64 (Steele, Lea and Flood 2014): any seed will do, 0 too.
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.random;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^= bits >> 31;
        let micros = u64::try_from(base.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(bits % micros.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn without_a_maximum_a_wait_is_between_one_and_two_bases() {
        let mut backoff = Backoff::new(Some(ms(100)), Duration::ZERO, 7);
        let waits: Vec<_> = (0..1000).map(|_| backoff.next_wait().expect("a wait")).collect();
        assert!(waits.iter().all(|&wait| wait >= ms(100) && wait < ms(200)));
        let (short, long) = (waits.iter().min(), waits.iter().max());
        assert!(short < Some(&ms(110)) && long > Some(&ms(190)), "{short:?} {long:?}");
        let mut same = Backoff::new(Some(ms(100)), Duration::ZERO, 7);
        assert_eq!(same.next_wait(), Some(waits[0]));
        assert_ne!(Backoff::new(Some(ms(100)), Duration::ZERO, 8).next_wait(), Some(waits[0]));
    }

    #[test]
    fn with_a_maximum_waits_double_up_to_it() {
        let mut backoff = Backoff::new(Some(ms(100)), ms(500), 0);
        let mut waits = || [(); 5].map(|()| backoff.next_wait().expect("a wait").as_millis());
        assert_eq!(waits(), [100, 200, 400, 500, 500]);
        backoff.reset();
        assert_eq!(backoff.next_wait(), Some(ms(100)));
        assert_eq!(Backoff::new(Some(ms(100)), ms(50), 0).next_wait(), Some(ms(50)));
    }

    #[test]
    fn nothing_overflows_and_never_is_never() {
        let mut backoff = Backoff::new(Some(Duration::MAX), Duration::MAX, 1);
        assert_eq!(backoff.next_wait(), Some(Duration::MAX));
        assert_eq!(backoff.next_wait(), Some(Duration::MAX));
        assert_eq!(Backoff::new(Some(Duration::MAX), Duration::ZERO, 1).next_wait(), Some(Duration::MAX));
        assert_eq!(
            Backoff::new(Some(Duration::from_nanos(1)), Duration::ZERO, 1).next_wait(),
            Some(Duration::from_nanos(1))
        );
        assert_eq!(Backoff::new(None, ms(5), 1).next_wait(), None);
        assert_eq!(Backoff::new(Some(Duration::ZERO), ms(5), 1).next_wait(), None);
    }
}
