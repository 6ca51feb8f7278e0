//! The arithmetic of a 32-way trie: which child of a node a hash leads to, and where a compressed node keeps it.
//!
//! Source: Bagwell, "Ideal Hash Trees" (2001); Steindorfer and Vinju, "Optimizing Hash-Array Mapped Tries" (2015).

/// Bits of a hash or an index that one level of a trie takes.
pub const WIDTH: u32 = 5;
/// Children of a node at most.
pub const FANOUT: usize = 1 << WIDTH;
/// The bits of one level.
pub const MASK: u32 = FANOUT as u32 - 1;

/// The bit of a node's bitmap for the part of a hash from bit `shift` on.
#[inline]
#[must_use]
pub const fn bit(hash: u32, shift: u32) -> u32 {
    1 << ((hash >> shift) & MASK)
}

/// How many children of a compressed node lie before the one with this bit.
#[inline]
#[must_use]
pub const fn rank(bitmap: u32, bit: u32) -> usize {
    (bitmap & (bit - 1)).count_ones() as usize
}

/// Which child of a vector's node leads to an index; `shift` is the node's lowest bit of it.
#[inline]
#[must_use]
pub const fn slot(index: usize, shift: u32) -> usize {
    (index >> shift) & (FANOUT - 1)
}

/// How many of a vector's items are in full leaves; the others, one at least, are in its tail.
#[inline]
#[must_use]
pub const fn leaves_end(count: usize) -> usize {
    if count == 0 { 0 } else { (count - 1) & !(FANOUT - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_takes_five_bits() {
        assert_eq!(bit(0, 0), 1);
        assert_eq!(bit(31, 0), 1 << 31);
        assert_eq!(bit(0b10_0001, 0), 0b10);
        assert_eq!(bit(0b10_0001, 5), 0b10);
        // The last level has two bits.
        assert_eq!(bit(u32::MAX, 30), 0b1000);
    }

    #[test]
    fn children_lie_in_the_order_of_their_bits() {
        assert_eq!(rank(0b1011, 0b1), 0);
        assert_eq!(rank(0b1011, 0b10), 1);
        assert_eq!(rank(0b1011, 0b1000), 2);
        assert_eq!(rank(u32::MAX, 1 << 31), 31);
    }

    #[test]
    fn an_index_has_a_slot_at_each_level() {
        assert_eq!((slot(31, 0), slot(32, 0), slot(33, 0)), (31, 0, 1));
        assert_eq!((slot(31, 5), slot(32, 5), slot(1024, 5)), (0, 1, 0));
        assert_eq!(slot(1024, 10), 1);
    }

    #[test]
    fn the_tail_has_the_last_item() {
        assert_eq!([0, 1, 32, 33, 64, 65].map(leaves_end), [0, 0, 0, 32, 32, 64]);
    }
}
