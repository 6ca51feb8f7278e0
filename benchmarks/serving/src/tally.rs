//! What came of requests.

use std::time::Duration;

/// What came of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// An answer.
    Answered,
    /// The server had no room, or no time.
    Refused,
    /// Another failure.
    Failed,
    /// The connection broke.
    Broken,
}

/// The times of many.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    answered: Vec<u32>,
    refused: Vec<u32>,
    failed: u64,
}

impl Tally {
    /// Counts one.
    pub fn add(&mut self, outcome: Outcome, took: Duration) {
        let took = u32::try_from(took.as_micros()).unwrap_or(u32::MAX);
        match outcome {
            Outcome::Answered => self.answered.push(took),
            Outcome::Refused => self.refused.push(took),
            Outcome::Failed | Outcome::Broken => self.failed += 1,
        }
    }

    /// Adds another's.
    pub fn merge(&mut self, other: &Self) {
        self.answered.extend(&other.answered);
        self.refused.extend(&other.refused);
        self.failed += other.failed;
    }

    /// The figures, as JSON; times are microseconds.
    #[must_use]
    pub fn figures(&mut self, over: Duration) -> String {
        self.answered.sort_unstable();
        self.refused.sort_unstable();
        let of = |values: &[u32], hundredths: usize| {
            let place = (values.len() * hundredths / 100).min(values.len().saturating_sub(1));
            f64::from(values.get(place).copied().unwrap_or(0))
        };
        let figures = [
            ("rate", self.answered.len() as f64 / over.as_secs_f64()),
            ("p50", of(&self.answered, 50)),
            ("p90", of(&self.answered, 90)),
            ("p99", of(&self.answered, 99)),
            ("answered", self.answered.len() as f64),
            ("refused", self.refused.len() as f64),
            ("refused p99", of(&self.refused, 99)),
            ("errors", self.failed as f64),
        ];
        let written: Vec<String> =
            figures.iter().map(|(name, value)| format!(r#""{name}": {value}"#)).collect();
        format!("{{{}}}", written.join(", "))
    }
}
