//! Savepoints: what a transaction goes back to without ending.
//!
//! While a savepoint is set, each change of a draft leaves a note of how it is undone. Going back undoes the changes in
//! reverse, but for what was read: the program has decided by it, so it still counts. A cell is noted once for each
//! savepoint, and when the outermost savepoint ends there is nothing to go back to, and the notes are given up: what
//! they hold goes with the number of changes, not with what the drafts have.
//!
//! Of an array all items are noted: before the first write behind a savepoint, or with the savepoint if the program has
//! an array that writes into the copy without asking the draft.

use std::collections::HashSet;

use pyo3_ffi as ffi;
use ropewalk_base::Code;
use ropewalk_capi::errors;
use ropewalk_capi::heap::{Field, content};
use ropewalk_capi::object::{Kept, Object, Raised};

use super::cell::{CHILD, Cell};
use super::parts::{At, Item};
use super::scope::{Head, Saved, Scope};
use super::{array, counter, map, path, record, vector};
use crate::node::Pointer;
use crate::types::State;

/// How one change of a draft is undone.
pub(crate) enum Undo {
    /// The cell of a record's field was written.
    Field(usize, Cell),
    /// The cell of a map's entry was written.
    Entry(usize, Cell),
    /// The cell of a vector's item was written.
    Item(At, Cell),
    /// A value was put behind a vector's last item.
    Appended,
    /// The last of the items that were appended was taken.
    Unappended(Cell),
    /// The last of the base's items was taken.
    Dropped,
    /// The vector became a list of all items: those of the base that were left, those that were taken from its end, and
    /// what was touched of these.
    Spread { rest: usize, dropped: usize, beyond: Vec<(usize, Item)> },
    /// An item was put into the list.
    Inserted(usize),
    /// An item was taken from the list.
    Removed(usize, Item),
    /// The list was turned round.
    Reversed,
    /// All items were taken from the list.
    Cleared(Vec<Item>),
    /// A counter was counted; it had this before.
    Counted(Field),
    /// An array was written: the items that it had before, as an array that never changes, or nothing if the
    /// transaction had not written to it; and the savepoint for which it was noted before.
    Wrote(Field, u32),
}

impl Undo {
    /// Every reference.
    pub(super) fn fields(&self) -> Box<dyn Iterator<Item = &Field> + '_> {
        match self {
            Self::Field(_, cell) | Self::Entry(_, cell) | Self::Item(_, cell) | Self::Unappended(cell) => {
                Box::new(cell.field().into_iter())
            }
            Self::Removed(_, item) => Box::new(item.cell.field().into_iter()),
            Self::Spread { beyond, .. } => Box::new(beyond.iter().filter_map(|(_, item)| item.cell.field())),
            Self::Cleared(list) => Box::new(list.iter().filter_map(|item| item.cell.field())),
            Self::Counted(field) | Self::Wrote(field, _) => Box::new(std::iter::once(field)),
            Self::Appended | Self::Dropped | Self::Inserted(_) | Self::Reversed => {
                Box::new(std::iter::empty())
            }
        }
    }
}

/// Notes how a change is undone, if a savepoint is set; `undo` is made only then. Called with the change itself:
/// nothing of the program runs between them.
///
/// # Safety
///
/// `own` is a live draft of the transaction.
#[inline]
pub(super) unsafe fn note(own: Pointer, head: &Head, undo: impl FnOnce() -> Undo) -> Result<(), Raised> {
    let scope = head.open()?;
    if scope.savepoint.get() == 0 {
        return Ok(());
    }
    // SAFETY: the caller's; only this thread uses the list, and keeps no reference into it.
    unsafe {
        let draft = Field::new(Object::share(own)?);
        (*scope.saved.get()).push(Saved { draft, undo: undo() });
    }
    Ok(())
}

/// As [`note`], of a cell that is written next, unless it was noted for the innermost savepoint.
///
/// # Safety
///
/// As there.
#[inline]
pub(super) unsafe fn note_cell(
    own: Pointer,
    head: &Head,
    cell: &Cell,
    undo: impl FnOnce(Cell) -> Undo,
) -> Result<(), Raised> {
    let savepoint = head.open()?.savepoint.get();
    if cell.noted.get() >= savepoint {
        return Ok(());
    }
    let earlier = cell.clone();
    cell.noted.set(savepoint);
    // SAFETY: the caller's.
    unsafe { note(own, head, || undo(earlier)) }
}

/// As [`note`], of an array that is written next, or may be.
///
/// # Safety
///
/// `own` is a live draft of an array. Python code runs.
pub(super) unsafe fn note_array(types: &State, own: Pointer, head: &Head) -> Result<(), Raised> {
    // SAFETY: the caller's.
    unsafe {
        let draft = content::<array::Draft>(own);
        if draft.noted.get() >= head.open()?.savepoint.get() {
            return Ok(());
        }
        let items = array::settled(types, draft)?.map_or_else(Field::empty, Field::new);
        // What ran meanwhile may have set and ended savepoints.
        let savepoint = head.open()?.savepoint.get();
        let noted = draft.noted.get();
        if noted < savepoint {
            note(own, head, || Undo::Wrote(items, noted))?;
            draft.noted.set(savepoint);
        }
        Ok(())
    }
}

/// Sets a savepoint, and gives its number.
///
/// # Safety
///
/// The drafts are those of the scope.
pub(crate) unsafe fn set(types: &State, scope: &Scope) -> Result<u32, Raised> {
    scope.check()?;
    let Some(number) = scope.last_savepoint.get().checked_add(1) else {
        return Err(errors::raise_text(Code::StateError, "a transaction sets at most 2^32 - 1 savepoints"));
    };
    scope.last_savepoint.set(number);
    scope.savepoint.set(number);
    // SAFETY: only this thread uses the lists, and keeps no reference into them.
    unsafe {
        let place = (*scope.saved.get()).len();
        (*scope.points.get()).push((number, place));
    }
    if scope.has_arrays.get() {
        // SAFETY: the caller's.
        if let Err(Raised) = unsafe { note_lent(types, scope) } {
            let error = Kept::take();
            end(scope, number).unwrap_or_default();
            error.put_back();
            return Err(Raised);
        }
    }
    Ok(number)
}

/// Notes the arrays that the program may write to without asking their drafts.
///
/// # Safety
///
/// As [`set`].
unsafe fn note_lent(types: &State, scope: &Scope) -> Result<(), Raised> {
    // SAFETY: the caller's; the drafts are held while Python code runs.
    unsafe {
        let mut rest: Vec<Object> = scope.root.share().into_iter().collect();
        while let Some(draft) = rest.pop() {
            let own = draft.as_ptr();
            if ffi::Py_TYPE(own).cast() == types.array_draft && content::<array::Draft>(own).is_lent.get() {
                note_array(types, own, super::head(types, own))?;
            }
            rest.extend(path::children(types, own)?.into_iter().map(|(_, child)| child));
        }
        Ok(())
    }
}

/// Takes a savepoint out of those that are set, and gives the place in the list of notes to go back to. With `inner`
/// the later ones are taken, too.
fn take(scope: &Scope, number: u32, inner: bool) -> Option<usize> {
    // SAFETY: only this thread uses the list, and the reference ends here.
    let points = unsafe { &mut *scope.points.get() };
    let index = points.iter().position(|(known, _)| *known == number)?;
    let (_, place) = points[index];
    if inner {
        points.truncate(index);
    } else {
        points.remove(index);
    }
    scope.savepoint.set(points.last().map_or(0, |(known, _)| *known));
    Some(place)
}

/// Ends a savepoint that nobody goes back to; nothing happens if it has ended.
pub(crate) fn end(scope: &Scope, number: u32) -> Result<(), Raised> {
    scope.check()?;
    take(scope, number, false);
    if scope.savepoint.get() == 0 {
        // SAFETY: only this thread uses the list; what falls out of it is dropped behind that.
        let gone = unsafe { std::mem::take(&mut *scope.saved.get()) };
        drop(gone);
    }
    Ok(())
}

/// Goes back to a savepoint, which ends with those that were set later. Nothing happens if it has ended.
///
/// # Safety
///
/// The drafts are those of the scope.
pub(crate) unsafe fn go_back(types: &State, scope: &Scope, number: u32) -> Result<(), Raised> {
    scope.check()?;
    let Some(place) = take(scope, number, true) else { return Ok(()) };
    let (mut gone, mut drafts, mut arrays) = (Vec::new(), Vec::new(), Vec::new());
    // SAFETY: the caller's; nothing of the program runs before all is undone and the drafts without a place are closed.
    unsafe {
        while (*scope.saved.get()).len() > place {
            let Some(Saved { draft, undo }) = (*scope.saved.get()).pop() else { break };
            match undo {
                // The package does it, in Python.
                Undo::Wrote(items, noted) => arrays.push((draft.clone(), items, noted)),
                undo => undone(draft.get(), undo, &mut gone),
            }
            drafts.push(draft);
        }
        for cell in &gone {
            if cell.has(CHILD) {
                close(types, cell.get())?;
            }
        }
        for (draft, _, noted) in &arrays {
            content::<array::Draft>(draft.get()).noted.set(*noted);
        }
        let mut known = HashSet::new();
        // The note that was made first is the last here, and has what the array goes back to.
        for (draft, items, _) in arrays.into_iter().rev() {
            if known.insert(draft.get())
                && let Err(Raised) = restored(types, scope, draft.get(), items)
            {
                // The transaction is neither here nor there.
                scope.end();
                return Err(Raised);
            }
        }
    }
    drop((gone, drafts));
    Ok(())
}

/// Puts the items of an array back. An array that the program still writes into is noted for the savepoint around.
///
/// # Safety
///
/// A live draft of an array. Python code runs.
unsafe fn restored(types: &State, scope: &Scope, own: Pointer, items: Field) -> Result<(), Raised> {
    // SAFETY: the caller's.
    unsafe {
        let draft = content::<array::Draft>(own);
        if draft.head.scope.get().is_null() || !array::go_back(types, own, &items)? {
            return Ok(());
        }
        let (noted, savepoint) = (draft.noted.get(), scope.savepoint.get());
        if noted < savepoint {
            note(own, &draft.head, || Undo::Wrote(items, noted))?;
            draft.noted.set(savepoint);
        }
        Ok(())
    }
}

/// Undoes one change. What falls out is for the caller to drop.
///
/// # Safety
///
/// A live draft of the kind that the change is of.
unsafe fn undone(own: Pointer, undo: Undo, gone: &mut Vec<Cell>) {
    // SAFETY: the caller's; nothing of the program runs.
    unsafe {
        match undo {
            Undo::Field(index, earlier) => {
                gone.push(content::<record::Draft>(own).cells()[index].go_back(earlier));
            }
            Undo::Entry(index, earlier) => gone.extend(content::<map::Draft>(own).go_back(index, earlier)),
            Undo::Counted(earlier) => {
                // An `int` runs nothing when it is dropped.
                let counter = content::<counter::Draft>(own);
                drop(counter.added.take());
                if let Some(then) = earlier.take() {
                    counter.added.set(then);
                }
            }
            of_vector => content::<vector::Draft>(own).parts().undo(of_vector, gone),
        }
    }
}

/// Closes a draft whose place is gone with what was undone, and all below it: what they did would be lost.
///
/// # Safety
///
/// A live draft.
unsafe fn close(types: &State, own: Pointer) -> Result<(), Raised> {
    // SAFETY: the caller's; the children are held.
    unsafe {
        let mut waiting = vec![Object::share(own)?];
        while let Some(draft) = waiting.pop() {
            waiting.extend(path::children(types, draft.as_ptr())?.into_iter().map(|(_, child)| child));
            super::head(types, draft.as_ptr()).close();
        }
    }
    Ok(())
}
