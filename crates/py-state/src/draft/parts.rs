//! What a transaction has done with a vector, and how that is undone.

use std::collections::HashMap;

use ropewalk_capi::heap::Field;

use super::cell::Cell;
use super::savepoint::Undo;
use crate::node::Pointer;

/// Where an item is.
#[derive(Clone, Copy)]
pub(crate) enum At {
    Base(usize),
    Appended(usize),
    List(usize),
}

/// An item that was touched.
#[derive(Clone)]
pub(crate) struct Item {
    /// What the base has there, or null for an item that is not of the base. The base keeps it alive.
    pub(super) base: Pointer,
    pub(super) cell: Cell,
}

/// What was done with a vector.
#[derive(Clone, Default)]
pub(crate) struct Parts {
    /// Items of the base, by index.
    pub(super) touched: HashMap<usize, Item>,
    /// So many items were taken from the base's end.
    pub(super) dropped: usize,
    /// What was appended behind the rest.
    pub(super) appended: Vec<Cell>,
    /// All items, once some have moved; the fields above are empty then.
    pub(super) list: Option<Vec<Item>>,
}

impl Parts {
    /// Every reference.
    pub(super) fn fields(&self) -> impl Iterator<Item = &Field> {
        let items = self.touched.values().chain(self.list.iter().flatten()).map(|item| &item.cell);
        items.chain(&self.appended).filter_map(Cell::field)
    }

    /// The cell of an item, if it was touched.
    fn cell(&mut self, at: At) -> Option<&mut Cell> {
        match at {
            At::Base(index) => self.touched.get_mut(&index).map(|item| &mut item.cell),
            At::Appended(index) => self.appended.get_mut(index),
            At::List(index) => self.list.as_mut()?.get_mut(index).map(|item| &mut item.cell),
        }
    }

    /// Undoes a change. All later ones are undone, so the items are where they were behind it. What falls out is for
    /// the caller to drop.
    pub(super) fn undo(&mut self, undo: Undo, gone: &mut Vec<Cell>) {
        match undo {
            Undo::Item(at, earlier) => gone.extend(self.cell(at).map(|cell| cell.go_back(earlier))),
            Undo::Appended => gone.extend(match &mut self.list {
                Some(list) => list.pop().map(|item| item.cell),
                None => self.appended.pop(),
            }),
            Undo::Unappended(cell) => self.appended.push(cell),
            Undo::Dropped => self.dropped -= 1,
            Undo::Spread { rest, dropped, beyond } => {
                let mut list = self.list.take().unwrap_or_default();
                let appended = list.split_off(rest.min(list.len()));
                self.appended = appended.into_iter().map(|item| item.cell).collect();
                let touched = list.into_iter().enumerate().filter(|(_, item)| item.cell.state() != 0);
                self.touched = touched.chain(beyond).collect();
                self.dropped = dropped;
            }
            of_list => {
                let list = self.list.get_or_insert_default();
                match of_list {
                    Undo::Inserted(index) if index < list.len() => gone.push(list.remove(index).cell),
                    Undo::Removed(index, item) => list.insert(index.min(list.len()), item),
                    Undo::Reversed => list.reverse(),
                    Undo::Cleared(items) => *list = items,
                    _ => debug_assert!(false, "a change of another kind of draft"),
                }
            }
        }
    }
}
