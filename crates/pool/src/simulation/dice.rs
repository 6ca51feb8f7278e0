//! Chance that a seed decides.

/// A small generator.
///
/// Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators" (OOPSLA 2014): SplitMix64.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        // Neighbouring seeds must not be the same sequence a step apart.
        let mut dice = Self(seed);
        Self(dice.roll())
    }

    pub(super) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `end`, 0 if that is 0.
    pub(super) fn below(&mut self, end: usize) -> usize {
        if end == 0 { 0 } else { (self.roll() % end as u64) as usize }
    }

    /// True once in so many.
    pub(super) fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}
