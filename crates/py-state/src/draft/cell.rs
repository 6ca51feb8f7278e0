//! A cell: what a transaction has done at one place below a draft.

use std::cell::Cell as Plain;

use ropewalk_capi::heap::Field;
use ropewalk_capi::nest;
use ropewalk_capi::object::Object;

use crate::node::Pointer;

/// The value that the place had was read.
pub(super) const READ: u8 = 1;
/// Whether the place had a value was read.
pub(super) const SEEN: u8 = 2;
/// The place has a new value.
pub(super) const WRITTEN: u8 = 4;
/// The place has no value any more.
pub(super) const DELETED: u8 = 8;
/// The cell's value is a draft.
pub(super) const CHILD: u8 = 16;
/// What a transaction has read stays read when it rolls back to a savepoint.
const READS: u8 = READ | SEEN;

/// What a transaction has done at one place.
///
/// Only the transaction's thread touches it. No reference to a cell is held while the interpreter may run code of the
/// program, which may come back to the same draft.
#[derive(Default)]
pub(crate) struct Cell {
    /// The new value, or the draft of the value; empty if the place was read only.
    value: Option<Field>,
    state: Plain<u8>,
    /// The savepoint for which the cell was noted last, or 0.
    pub(super) noted: Plain<u32>,
}

impl Clone for Cell {
    fn clone(&self) -> Self {
        Self { value: self.value.clone(), state: self.state.clone(), noted: self.noted.clone() }
    }
}

impl Drop for Cell {
    /// Drafts are within each other as deep as the program goes down, and dropping them in nested calls would overflow
    /// the stack.
    fn drop(&mut self) {
        if self.has(CHILD)
            && let Some(draft) = self.value.take().and_then(|field| field.take())
        {
            // SAFETY: an own reference; cells are dropped by threads that are attached.
            unsafe { nest::drop(draft.into_ptr()) };
        }
    }
}

impl Cell {
    #[inline]
    pub(super) fn state(&self) -> u8 {
        self.state.get()
    }

    #[inline]
    pub(super) fn has(&self, flag: u8) -> bool {
        self.state.get() & flag != 0
    }

    #[inline]
    pub(super) fn mark(&self, flag: u8) {
        self.state.set(self.state.get() | flag);
    }

    /// The new value or the draft, borrowed; null if there is none.
    #[inline]
    pub(super) fn get(&self) -> Pointer {
        self.value.as_ref().map_or(std::ptr::null_mut(), Field::get)
    }

    /// Whether the cell has the state and the value that it had, but for marks of what was read.
    #[inline]
    pub(super) fn is_still(&self, state: u8, value: Pointer) -> bool {
        (self.state() ^ state) & !READS == 0 && self.get() == value
    }

    /// Puts a draft of the place's value into the cell.
    #[inline]
    pub(super) fn set_child(&mut self, draft: Object) {
        debug_assert!(!self.has(CHILD));
        // A written value lives on as the draft's base.
        let old = self.value.replace(Field::new(draft));
        self.mark(CHILD);
        // The draft holds the same object, so this drops no last reference.
        drop(old);
    }

    /// Replaces the value; the caller drops what was there.
    #[must_use = "dropping it may run code of the program"]
    pub(super) fn write(&mut self, value: Option<Object>) -> Option<Field> {
        let flag = if value.is_some() { WRITTEN } else { DELETED };
        self.state.set(self.state.get() & READS | flag);
        std::mem::replace(&mut self.value, value.map(Field::new))
    }

    /// A cell of a new value, which a savepoint need not note: its place goes with it.
    pub(super) fn new(value: Object, savepoint: u32) -> Self {
        Self { value: Some(Field::new(value)), state: Plain::new(WRITTEN), noted: Plain::new(savepoint) }
    }

    /// Goes back to an earlier state, but for what was read since. The caller drops what was there.
    #[must_use = "dropping it may run code of the program"]
    pub(super) fn go_back(&mut self, earlier: Cell) -> Cell {
        let reads = self.state() & READS;
        earlier.mark(reads);
        std::mem::replace(self, earlier)
    }

    /// Shows the value to the garbage collector.
    pub(super) fn field(&self) -> Option<&Field> {
        self.value.as_ref()
    }
}
