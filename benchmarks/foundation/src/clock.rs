//! Times and what is said about them.

use std::time::Instant;

/// Batches whose median is one round's figure: an interruption spoils a batch and not the round.
const BATCHES: usize = 9;

/// The median time of one of `calls` calls, in nanoseconds; the first batch only warms up.
pub fn per_call(calls: usize, mut call: impl FnMut(usize)) -> f64 {
    per_batch(calls, || (0..calls).for_each(&mut call))
}

/// The median time of a batch divided by `calls`, in nanoseconds; the first batch only warms up.
pub fn per_batch(calls: usize, mut batch: impl FnMut()) -> f64 {
    batch();
    let mut times: Vec<f64> = (0..BATCHES)
        .map(|_| {
            let begin = Instant::now();
            batch();
            begin.elapsed().as_nanos() as f64 / calls as f64
        })
        .collect();
    percentile(&mut times, 0.5)
}

/// The value below which this share of the values lies, by nearest rank.
///
/// # Panics
///
/// If there are no values.
pub fn percentile(values: &mut [f64], share: f64) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[((values.len() as f64 * share) as usize).min(values.len() - 1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let mut values: Vec<f64> = (0..100).rev().map(f64::from).collect();
        assert_eq!(percentile(&mut values, 0.5), 50.0);
        assert_eq!(percentile(&mut values, 0.99), 99.0);
        assert_eq!(percentile(&mut values, 1.0), 99.0);
        assert_eq!(percentile(&mut [7.0], 0.5), 7.0);
    }

    #[test]
    fn a_figure_plays_the_warm_up_and_every_batch() {
        let mut calls = 0;
        assert!(per_call(10, |_| calls += 1) >= 0.0);
        assert_eq!(calls, 10 * (BATCHES + 1));
    }
}
