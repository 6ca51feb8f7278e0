//! The free parts of a segment: first fit, and neighbours are merged.

use std::collections::BTreeMap;

/// Free ranges by offset.
#[derive(Debug)]
pub(crate) struct FreeRanges(BTreeMap<usize, usize>);

impl FreeRanges {
    /// Everything from 0 to `size` is free.
    pub(crate) fn new(size: usize) -> Self {
        Self(BTreeMap::from([(0, size)]))
    }

    /// Takes the first range of `size` bytes.
    pub(crate) fn take(&mut self, size: usize) -> Option<usize> {
        let (offset, length) = self.0.iter().find(|(_, length)| **length >= size).map(|(o, l)| (*o, *l))?;
        self.0.remove(&offset);
        if length > size {
            self.0.insert(offset + size, length - size);
        }
        Some(offset)
    }

    /// Returns a range that was taken.
    pub(crate) fn give(&mut self, offset: usize, size: usize) {
        let (mut start, mut end) = (offset, offset + size);
        if let Some((before, length)) = self.0.range(..offset).next_back().map(|(o, l)| (*o, *l))
            && before + length == start
        {
            self.0.remove(&before);
            start = before;
        }
        if let Some(length) = self.0.remove(&end) {
            end += length;
        }
        self.0.insert(start, end - start);
    }

    /// Whether all of `size` bytes are free.
    #[cfg(test)]
    pub(crate) fn is_whole(&self, size: usize) -> bool {
        self.0.get(&0) == Some(&size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_fits_is_taken() {
        let mut free = FreeRanges::new(100);
        assert!(free.is_whole(100) && !free.is_whole(99));
        assert_eq!((free.take(40), free.take(40), free.take(40)), (Some(0), Some(40), None));
        assert_eq!((free.take(20), free.take(1)), (Some(80), None));
        assert!(free.0.is_empty(), "nothing of length 0 is left");
        free.give(40, 40);
        assert_eq!((free.take(10), free.take(30)), (Some(40), Some(50)));
    }

    #[test]
    fn neighbours_are_merged_in_whatever_order_they_come_back() {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut free = FreeRanges::new(90);
            let taken: Vec<usize> = (0..3).filter_map(|_| free.take(30)).collect();
            assert_eq!(taken, [0, 30, 60]);
            for (back, at) in order.iter().enumerate() {
                assert!(!free.is_whole(90), "{back} are back");
                free.give(taken[*at], 30);
            }
            assert!(free.is_whole(90), "{order:?}: {free:?}");
        }
        let mut free = FreeRanges::new(90);
        assert_eq!((free.take(30), free.take(60)), (Some(0), Some(30)));
        free.give(0, 10);
        free.give(20, 10);
        assert_eq!(free.0.len(), 2, "they are no neighbours");
    }
}
