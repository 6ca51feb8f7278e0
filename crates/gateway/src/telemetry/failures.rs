//! The last calls that failed, with their tracebacks, for those who watch the server. Callers never see them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::SystemTime;

use ropewalk_sync::Mutex;

/// Failures that are kept.
const MOST: usize = 100;
/// Bytes of texts that are kept.
const MOST_BYTES: usize = 256 << 10;
/// Failures that are kept of each second: a tool that always fails must not cost more the more often it is called.
const MOST_IN_SECOND: u32 = 20;
/// Bytes of one message.
const LONGEST_MESSAGE: usize = 4 << 10;
/// Bytes of one traceback.
pub(super) const LONGEST_TRACEBACK: usize = 16 << 10;

/// A call that failed.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// Its number among those that were kept, from 1 on.
    pub(crate) number: u64,
    pub(crate) at: SystemTime,
    pub(crate) tool: Arc<str>,
    pub(crate) protocol: &'static str,
    pub(crate) status: &'static str,
    pub(crate) message: Arc<str>,
    /// Where its tool raised.
    pub(crate) traceback: Option<Arc<str>>,
    /// Seconds that the call took.
    pub(crate) took: f64,
    /// The process that ran it last; 0 if none did.
    pub(crate) pid: i32,
    pub(crate) attempts: u32,
    /// The number of its trace.
    pub(crate) trace: Option<String>,
}

impl Failure {
    fn bytes(&self) -> usize {
        self.message.len() + self.traceback.as_ref().map_or(0, |text| text.len())
    }
}

/// The end of a text, or its beginning.
pub(super) fn bounded(text: &str, most: usize, keep_end: bool) -> Arc<str> {
    if text.len() <= most {
        return text.into();
    }
    if keep_end {
        let from =
            (text.len() - most..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
        return format!("…{}", text.get(from..).unwrap_or_default()).into();
    }
    let end = (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    format!("{}…", text.get(..end).unwrap_or_default()).into()
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Failures(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    last: VecDeque<Failure>,
    bytes: usize,
    number: u64,
    /// The second of the last one, and how many came in it.
    second: (u64, u32),
    /// Those that were not kept because too many came.
    unkept: u64,
}

impl Failures {
    /// Keeps one that ended in this second, if not too many have; `make` gives the rest of it.
    pub(super) fn add(&self, second: u64, make: impl FnOnce() -> Failure) {
        let mut kept = self.0.lock();
        if kept.second.0 != second {
            kept.second = (second, 0);
        }
        kept.second.1 += 1;
        if kept.second.1 > MOST_IN_SECOND {
            kept.unkept += 1;
            return;
        }
        kept.number += 1;
        let number = kept.number;
        let made = make();
        let failure = Failure {
            number,
            message: bounded(&made.message, LONGEST_MESSAGE, false),
            traceback: made.traceback.as_deref().map(|text| bounded(text, LONGEST_TRACEBACK, true)),
            ..made
        };
        kept.bytes += failure.bytes();
        kept.last.push_back(failure);
        while kept.last.len() > MOST || kept.bytes > MOST_BYTES {
            let Some(oldest) = kept.last.pop_front() else { break };
            kept.bytes -= oldest.bytes();
        }
    }

    /// Those after this number, oldest first; the number of the last one; and how many were not kept.
    pub(crate) fn after(&self, number: u64) -> (Vec<Failure>, u64, u64) {
        let kept = self.0.lock();
        let after = kept.last.iter().filter(|failure| failure.number > number).cloned().collect();
        (after, kept.number, kept.unkept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(length: usize) -> Failure {
        Failure {
            number: 0,
            at: SystemTime::UNIX_EPOCH,
            tool: "t".into(),
            protocol: "http",
            status: "UNKNOWN",
            message: "ü".repeat(length).into(),
            traceback: Some("é".repeat(length).into()),
            took: 0.0,
            pid: 0,
            attempts: 1,
            trace: None,
        }
    }

    #[test]
    fn the_last_ones_are_kept_as_far_as_there_is_room() {
        let failures = Failures::default();
        for second in 0..300 {
            failures.add(second, || failure(1));
        }
        let (all, last, unkept) = failures.after(0);
        assert_eq!((all.len(), last, unkept), (MOST, 300, 0));
        assert_eq!(failures.after(298).0.iter().map(|one| one.number).collect::<Vec<_>>(), [299, 300]);
        for second in 300..400 {
            failures.add(second, || failure(100_000));
        }
        let (all, ..) = failures.after(0);
        let bytes: usize = all.iter().map(Failure::bytes).sum();
        assert!(bytes <= MOST_BYTES && all.len() < MOST, "{bytes}");
        let one = all.last().expect("one");
        assert!(one.message.ends_with('…') && one.message.len() <= LONGEST_MESSAGE + 3);
        assert!(one.traceback.as_ref().is_some_and(|text| text.starts_with('…')));
    }

    #[test]
    fn a_second_of_failures_costs_no_more_than_some_of_them() {
        let failures = Failures::default();
        for _ in 0..1000 {
            failures.add(7, || failure(1));
        }
        assert_eq!(failures.after(0).2, 980);
        failures.add(8, || failure(1));
        assert_eq!(failures.after(0).0.len(), 21);
    }
}
