//! The times of a call, as its worker measured them, on their way to the parent.
//!
//! They travel in the answer's `aux`, which costs nothing: how long the call took in the lower 40 bits, and when it
//! ended in the upper 24. The end is on the monotonic clock, in units of 1024 ns, of which only the lowest 24 bits are
//! sent: the parent knows the rest unless it reads the answer more than 17 seconds later. What does not fit (a call of
//! more than 18 minutes) or is rarely there (CPU time) follows the payload, and the flag `TIMED` says so.

use std::time::Instant;

use ropewalk_os::clock::{monotonic_nanos, thread_cpu_nanos};

use crate::clock;
use crate::outcome::Record;
use crate::task::Task;
use crate::wire::flags;

const BUSY_BITS: u32 = 40;
const MOST_BUSY: u64 = (1 << BUSY_BITS) - 1;
const UNIT_BITS: u32 = 10;
const ENDS: u64 = 1 << (64 - BUSY_BITS);
/// Two readings of one clock in two processes, and the anchor between them: an end so little ahead of the parent's
/// time is now, and not 17 seconds ago.
const AHEAD: u64 = 1 << 10;
/// Bytes behind the payload.
const TAIL: usize = 16;

/// What a worker says of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// How long it took, in nanoseconds.
    pub busy_ns: u64,
    /// When it ended, in nanoseconds of the monotonic clock; 0 if there was no call.
    pub ended: u64,
    /// How long its thread was on a processor, if that was measured.
    pub cpu_ns: Option<u64>,
}

/// The bytes that follow a payload.
pub type Tail = [u8; TAIL];

impl Times {
    /// The answer's `aux`.
    pub fn aux(&self) -> u64 {
        let end = if self.ended == 0 { 0 } else { ((self.ended >> UNIT_BITS) % ENDS).max(1) };
        end << BUSY_BITS | self.busy_ns.min(MOST_BUSY)
    }

    /// What has to follow the payload.
    pub fn tail(&self) -> Option<Tail> {
        if self.cpu_ns.is_none() && self.busy_ns < MOST_BUSY {
            return None;
        }
        let mut tail = [0; TAIL];
        tail[..8].copy_from_slice(&self.busy_ns.to_le_bytes());
        tail[8..].copy_from_slice(&self.cpu_ns.unwrap_or(u64::MAX).to_le_bytes());
        Some(tail)
    }
}

/// The same as the parent has heard it, within what can be true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) busy_ns: u64,
    /// How long ago it ended.
    pub(crate) ago_ns: u64,
    pub(crate) cpu_ns: Option<u64>,
}

impl Heard {
    /// The record of the task's run, which ended before `now`.
    pub(crate) fn record(&self, (pid, worker): (i32, u64), task: &Task, now: Instant) -> Record {
        let total = clock::in_nanos(now.saturating_duration_since(task.submitted));
        let begun = total.saturating_sub(self.ago_ns).saturating_sub(self.busy_ns);
        Record {
            pid,
            worker,
            busy_ns: self.busy_ns,
            cpu_ns: self.cpu_ns,
            begun_ns: Some(begun),
            ended: Some(now),
            ..Record::default()
        }
    }

    /// Reads an answer at the time `now`, in nanoseconds of the monotonic clock, of a task that was sent `since`
    /// nanoseconds ago; takes what follows the payload away.
    pub(crate) fn read(aux: u64, bits: &mut u16, payload: &mut Vec<u8>, now: u64, since: u64) -> Self {
        let (mut busy_ns, mut cpu_ns) = (aux & MOST_BUSY, None);
        if *bits & flags::TIMED != 0 {
            *bits &= !flags::TIMED;
            if let Some((_, tail)) = payload.split_last_chunk::<TAIL>() {
                let (busy, cpu) = tail.split_at(8);
                let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
                (busy_ns, cpu_ns) = (number(busy), Some(number(cpu)).filter(|cpu| *cpu != u64::MAX));
                payload.truncate(payload.len() - TAIL);
            }
        }
        let ago = match aux >> BUSY_BITS {
            0 => 0,
            end => ((now >> UNIT_BITS).wrapping_sub(end)) % ENDS,
        };
        let ago_ns = if ago > ENDS - AHEAD { 0 } else { ago << UNIT_BITS };
        // It is the worker's word, but no call began before its task was sent, nor will it end.
        let busy_ns = busy_ns.min(since);
        Self { busy_ns, ago_ns: ago_ns.min(since - busy_ns), cpu_ns: cpu_ns.map(|cpu| cpu.min(busy_ns)) }
    }
}

/// Calls longer than this have their CPU time measured: the two system calls then cost a few per cent at most.
const WORTH_NS: u64 = 20_000;

/// One thread's measure of its calls. It reads the thread's clock where that does not matter.
#[derive(Debug)]
pub struct Meter {
    /// Moving average of how long calls take. The first one is measured.
    average_ns: u64,
}

/// A call that has begun.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Begin {
    /// When, in nanoseconds of the monotonic clock.
    pub at: u64,
    cpu: Option<u64>,
}

impl Default for Meter {
    fn default() -> Self {
        Self { average_ns: 2 * WORTH_NS }
    }
}

impl Meter {
    /// A call begins now; its CPU time is measured if recent calls were long, or `always`.
    #[inline]
    pub fn begin(&self, always: bool) -> Begin {
        let cpu = (always || self.average_ns > WORTH_NS).then(thread_cpu_nanos);
        Begin { at: monotonic_nanos(), cpu }
    }

    /// It has ended.
    #[inline]
    pub fn end(&mut self, begin: Begin) -> Times {
        let ended = monotonic_nanos();
        let busy_ns = ended.saturating_sub(begin.at);
        let cpu_ns = begin.cpu.map(|cpu| thread_cpu_nanos().saturating_sub(cpu).min(busy_ns));
        self.average_ns = (self.average_ns.saturating_mul(7).saturating_add(busy_ns)) / 8;
        Times { busy_ns, ended, cpu_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400_000_000_000;
    const SECOND: u64 = 1_000_000_000;

    fn sent(times: Times, now: u64, since: u64) -> Heard {
        let (mut bits, mut payload) = (0x4A, b"value".to_vec());
        if let Some(tail) = times.tail() {
            bits |= flags::TIMED;
            payload.extend(tail);
        }
        let heard = Heard::read(times.aux(), &mut bits, &mut payload, now, since);
        assert_eq!((bits, &*payload), (0x4A, &b"value"[..]), "the rest is as it was");
        heard
    }

    #[test]
    fn the_end_is_known_to_a_unit() {
        let now = 3 * DAY + 12_345_678;
        for ago in [0, 1, 1024, 1_000_000, 500_000_000, 16 * SECOND] {
            let heard = sent(Times { busy_ns: 70_000, ended: now - ago, cpu_ns: None }, now, DAY);
            assert_eq!((heard.busy_ns, heard.cpu_ns), (70_000, None));
            assert!(heard.ago_ns.abs_diff(ago) <= 1 << UNIT_BITS, "{ago} {}", heard.ago_ns);
        }
        let ahead = sent(Times { busy_ns: 1, ended: now + 100_000, cpu_ns: None }, now, DAY);
        assert_eq!(ahead.ago_ns, 0, "the clocks of two processes are read one after the other");
        assert_eq!(sent(Times { busy_ns: 1, ..Times::default() }, now, DAY).ago_ns, 0, "it was not said");
        let wraps =
            sent(Times { busy_ns: 1, ended: ENDS << UNIT_BITS, cpu_ns: None }, ENDS << UNIT_BITS, DAY);
        assert!(wraps.ago_ns == 0, "{wraps:?}");
    }

    #[test]
    fn what_is_long_or_measured_follows_the_payload() {
        let long = Times { busy_ns: DAY, ended: 5 * DAY, cpu_ns: Some(DAY / 2) };
        let heard = sent(long, 5 * DAY, 2 * DAY);
        assert_eq!((heard.busy_ns, heard.cpu_ns), (DAY, Some(DAY / 2)));
        assert_eq!(sent(Times { cpu_ns: None, ..long }, 5 * DAY, 2 * DAY).busy_ns, DAY);
        assert_eq!(Times { busy_ns: MOST_BUSY - 1, ..Times::default() }.tail(), None);
        assert!(Times { busy_ns: 1, cpu_ns: Some(0), ..Times::default() }.tail().is_some());
    }

    #[test]
    fn a_lie_stays_within_the_time_since_the_task_was_sent() {
        let all = Times { busy_ns: u64::MAX, ended: 1, cpu_ns: Some(u64::MAX - 1) };
        assert_eq!(sent(all, DAY, 1000), Heard { busy_ns: 1000, ago_ns: 0, cpu_ns: Some(1000) });
        let early = Times { busy_ns: 400, ended: DAY - SECOND, cpu_ns: None };
        assert_eq!(sent(early, DAY, 1000), Heard { busy_ns: 400, ago_ns: 600, cpu_ns: None });
        let (mut bits, mut payload) = (flags::TIMED, b"short".to_vec());
        let heard = Heard::read(7, &mut bits, &mut payload, DAY, 1000);
        assert_eq!((heard.busy_ns, heard.cpu_ns, bits, payload.len()), (7, None, 0, 5));
    }

    #[test]
    fn short_calls_are_measured_only_where_they_are_to_be() {
        let mut meter = Meter::default();
        assert!(meter.begin(false).cpu.is_some(), "the first one");
        let end = |meter: &mut Meter, busy: u64| {
            let begin = Begin { at: monotonic_nanos() - busy, cpu: None };
            assert!(meter.end(begin).busy_ns >= busy);
        };
        for _ in 0..100 {
            end(&mut meter, 0);
        }
        assert!(meter.begin(false).cpu.is_none() && meter.begin(true).cpu.is_some());
        end(&mut meter, 1 << 20);
        assert!(meter.begin(false).cpu.is_some());
    }

    #[test]
    fn a_call_is_on_a_processor_no_longer_than_it_takes() {
        let mut meter = Meter::default();
        let begin = meter.begin(true);
        while thread_cpu_nanos() - begin.cpu.expect("measured") < 1_000_000 {}
        let times = meter.end(begin);
        let cpu = times.cpu_ns.expect("measured");
        assert!(
            (500_000..=times.busy_ns).contains(&cpu) && times.ended >= begin.at + times.busy_ns,
            "{times:?}"
        );
    }
}
