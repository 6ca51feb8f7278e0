//! Which parts of a segment are free: first fit, and neighbours are merged.

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

    /// Gives a range back that was taken.
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
    pub(crate) fn is_whole(&self, size: usize) -> bool {
        self.0.get(&0) == Some(&size)
    }
}
