//! The entries of a map that a transaction has touched, and how they are found.

use ropewalk_capi::heap::Field;

use super::cell::{CHILD, Cell, DELETED, WRITTEN};
use crate::node::Pointer;

/// So many entries are searched one by one; more have a table.
const FEW: usize = 8;

/// An entry that was touched.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(super) key: Field,
    pub(super) hash: isize,
    /// What the base map has under the key, or null. The base keeps it alive.
    pub(super) base: Pointer,
    pub(super) cell: Cell,
}

impl Entry {
    /// Whether there is a value that was not counted from nothing: a counter that was not there, or was deleted, is
    /// there once it is counted.
    pub(super) fn has_value(&self) -> bool {
        self.cell.has(WRITTEN) || !self.base.is_null() && !self.cell.has(DELETED)
    }

    /// Whether the key has a value now.
    ///
    /// # Safety
    ///
    /// The cell's child is live.
    pub(super) unsafe fn is_there(&self) -> bool {
        // SAFETY: the caller's; a child without a value below it is a counter's draft.
        self.has_value() || self.cell.has(CHILD) && unsafe { super::counter::is_counted(self.cell.get()) }
    }
}

/// The places of a table where a key with a hash may be, in the order in which they are searched: as those of a `dict`.
pub(super) struct Probe {
    pub(super) at: usize,
    rest: usize,
    mask: usize,
}

impl Probe {
    /// `size` is a power of two.
    pub(super) fn new(hash: isize, size: usize) -> Self {
        let (rest, mask) = (hash.cast_unsigned(), size - 1);
        Self { at: rest & mask, rest, mask }
    }

    pub(super) fn go_on(&mut self) {
        self.rest >>= 5;
        self.at = self.at.wrapping_mul(5).wrapping_add(self.rest).wrapping_add(1) & self.mask;
    }
}

/// The entries of a map that were touched, in that order.
#[derive(Clone, Default)]
pub(crate) struct Entries {
    pub(super) list: Vec<Entry>,
    /// Once there are more than a few: by their hashes, the places in the list, counted from 1. Zero is a free place,
    /// of which there are at least as many as others.
    pub(super) table: Vec<u32>,
}

impl Entries {
    /// Every reference.
    pub(super) fn fields(&self) -> impl Iterator<Item = &Field> {
        self.list.iter().flat_map(|entry| [Some(&entry.key), entry.cell.field()]).flatten()
    }

    /// Adds an entry, and its place to the table.
    pub(super) fn push(&mut self, entry: Entry) {
        let hash = entry.hash;
        self.list.push(entry);
        let count = self.list.len();
        if count <= FEW {
            return;
        }
        if 2 * count > self.table.len() {
            self.table.clear();
            self.table.resize((4 * count).next_power_of_two(), 0);
            for index in 0..count {
                self.enter(index, self.list[index].hash);
            }
        } else {
            self.enter(count - 1, hash);
        }
    }

    fn enter(&mut self, index: usize, hash: isize) {
        let mut probe = Probe::new(hash, self.table.len());
        while self.table[probe.at] != 0 {
            probe.go_on();
        }
        self.table[probe.at] = index as u32 + 1;
    }
}
