//! Counts of times by their length, with a bounded relative error.
//!
//! The buckets are those of HdrHistogram: 16 of equal width between each power of two and the next, so that a bucket
//! is at most a sixteenth of its lower bound wide, and the middle of it at most 3.2 % off. Unlike the buckets of
//! DDSketch, whose widths grow evenly, those find their value by shifts instead of a logarithm, and the powers of two
//! are bounds of buckets, so that cumulative counts up to them are exact.
//!
//! Source: Gil Tene, [HdrHistogram](http://hdrhistogram.org); Masson, Rim, Lee: "DDSketch" (VLDB 2019).

const SUB_BITS: u32 = 4;
const SUBS: u64 = 1 << SUB_BITS;
const BUCKETS: usize = ((64 - SUB_BITS as usize) + 1) * SUBS as usize;

/// How many times of which length there were. A bucket has those above its lower bound, and up to its upper one.
#[derive(Clone, PartialEq, Eq)]
pub struct Histogram {
    counts: Box<[u64; BUCKETS]>,
    count: u64,
    /// In nanoseconds, as all that follows.
    sum: u128,
    least: u64,
    most: u64,
}

/// A bucket that is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// All are longer than this,
    pub above: u64,
    /// and none is longer than this.
    pub upto: u64,
    /// How many there are.
    pub count: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: Box::new([0; BUCKETS]), count: 0, sum: 0, least: u64::MAX, most: 0 }
    }
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Histogram").field("count", &self.count).finish_non_exhaustive()
    }
}

/// The bucket of a time. The bounds are inclusive above, hence the one less.
const fn index(nanos: u64) -> usize {
    let below = nanos.saturating_sub(1);
    if below < SUBS {
        return below as usize;
    }
    let shift = below.ilog2() - SUB_BITS;
    ((shift as usize + 1) << SUB_BITS) + ((below >> shift) - SUBS) as usize
}

/// The bounds of a bucket. Those of the last one are the only that would not fit.
fn bounds(index: usize) -> (u64, u64) {
    let index = index as u64;
    if index < SUBS {
        return (index, index + 1);
    }
    let (shift, sub) = ((index >> SUB_BITS) - 1, index % SUBS + SUBS);
    (sub << shift, u64::try_from(u128::from(sub + 1) << shift).unwrap_or(u64::MAX))
}

impl Histogram {
    /// Counts a time.
    #[inline]
    pub(crate) fn add(&mut self, nanos: u64) {
        if let Some(count) = self.counts.get_mut(index(nanos)) {
            *count += 1;
        }
        self.count += 1;
        self.sum += u128::from(nanos);
        self.least = self.least.min(nanos);
        self.most = self.most.max(nanos);
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their sum.
    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// The shortest and the longest; `None` if there was none.
    pub fn extremes(&self) -> Option<(u64, u64)> {
        (self.count > 0).then_some((self.least, self.most))
    }

    /// The buckets that are not empty, in order.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> + '_ {
        self.counts.iter().enumerate().filter(|(_, count)| **count > 0).map(|(index, count)| {
            let (above, upto) = bounds(index);
            Bucket { above, upto, count: *count }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_lies_in_its_bucket_and_they_meet() {
        let mut last = 0;
        for index in 0..BUCKETS {
            let (above, upto) = bounds(index);
            assert_eq!((above, super::index(above + 1), super::index(upto)), (last, index, index));
            assert!(above < SUBS || (upto - above) * SUBS <= above, "a bucket is narrow: {above} {upto}");
            last = upto;
        }
        assert_eq!((last, index(u64::MAX), index(0)), (u64::MAX, BUCKETS - 1, 0));
    }

    #[test]
    fn powers_of_two_are_bounds() {
        for power in 0..64 {
            let nanos = 1_u64 << power;
            assert_eq!(bounds(index(nanos)).1, nanos);
            assert_eq!(bounds(index(nanos + 1)).0, nanos);
        }
    }

    #[test]
    fn what_is_added_is_counted() {
        let mut times = Histogram::default();
        assert_eq!((times.extremes(), times.buckets().count()), (None, 0));
        for nanos in [0, 1, 5, 1_000_000, 1_000_001, u64::MAX] {
            times.add(nanos);
        }
        assert_eq!((times.count(), times.extremes()), (6, Some((0, u64::MAX))));
        assert_eq!(times.sum(), 2_000_007 + u128::from(u64::MAX));
        let buckets: Vec<_> = times.buckets().collect();
        assert_eq!(buckets[0], Bucket { above: 0, upto: 1, count: 2 });
        assert_eq!(buckets.iter().map(|bucket| bucket.count).collect::<Vec<_>>(), [2, 1, 2, 1]);
        assert!(buckets[2].above < 1_000_000 && buckets[2].upto >= 1_000_001);
    }
}
