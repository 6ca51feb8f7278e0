//! Savepoints: what a transaction goes back to without ending.
//!
//! A draft saves its cells when it is first changed behind a savepoint. Going back puts them back, but for what was
//! read: the program has decided by it, so it still counts.

use pyo3_ffi as ffi;
use ropewalk_capi::heap::{Field, content};
use ropewalk_capi::object::{Object, Raised};

use super::scope::{Head, Saved, Scope};
use super::{Cells, array, counter, map, path, record, vector};
use crate::node::Pointer;
use crate::types::State;

/// Saves a draft's cells, if a savepoint is set and they were not saved for it; called before each change.
///
/// # Safety
///
/// `own` is a live draft, and no reference into its cells lives.
#[inline]
pub(super) unsafe fn save(types: &State, own: Pointer, head: &Head) -> Result<(), Raised> {
    let scope = head.open()?;
    let savepoint = scope.savepoint.get();
    if head.saved.get() >= savepoint {
        return Ok(());
    }
    // SAFETY: the caller's; copying cells changes counts of references and runs nothing.
    unsafe {
        let kind = ffi::Py_TYPE(own).cast();
        let cells = if kind == types.record_draft {
            Cells::Record(content::<record::Draft>(own).cells().to_vec())
        } else if kind == types.map_draft {
            Cells::Map(content::<map::Draft>(own).entries().clone())
        } else if kind == types.vector_draft {
            Cells::Vector(content::<vector::Draft>(own).parts().clone())
        } else if kind == types.array_draft {
            let items = array::settled(types, content::<array::Draft>(own))?;
            Cells::Array(items.map_or_else(Field::empty, Field::new))
        } else {
            Cells::Counter(content::<counter::Draft>(own).added.clone())
        };
        let draft = Field::new(Object::share(own)?);
        (*scope.saved.get()).push(Saved { draft, cells });
    }
    head.saved.set(savepoint);
    Ok(())
}

/// Sets a savepoint, and gives the place in the list of saved cells to go back to.
///
/// # Safety
///
/// The drafts are those of the scope.
pub(crate) unsafe fn set(types: &State, scope: &Scope) -> Result<usize, Raised> {
    scope.check()?;
    // From here on each draft saves its cells again with its next change.
    scope.savepoint.set(scope.savepoint.get() + 1);
    // SAFETY: nothing else uses the list now.
    let place = unsafe { &*scope.saved.get() }.len();
    if scope.has_arrays.get() {
        // SAFETY: the caller's.
        unsafe { save_lent(types, scope)? };
    }
    Ok(place)
}

/// Saves the arrays that the program may write to without asking their drafts.
///
/// # Safety
///
/// As [`set`].
unsafe fn save_lent(types: &State, scope: &Scope) -> Result<(), Raised> {
    // SAFETY: the caller's; the drafts are held while Python code runs.
    unsafe {
        let mut rest: Vec<Object> = scope.root.share().into_iter().collect();
        while let Some(draft) = rest.pop() {
            let own = draft.as_ptr();
            if ffi::Py_TYPE(own).cast() == types.array_draft && content::<array::Draft>(own).is_lent.get() {
                save(types, own, super::head(types, own))?;
            }
            rest.extend(path::children(types, own)?.into_iter().map(|(_, child)| child));
        }
        Ok(())
    }
}

/// Goes back to a savepoint.
///
/// # Safety
///
/// The drafts are those of the scope.
pub(crate) unsafe fn go_back(types: &State, scope: &Scope, place: usize) -> Result<(), Raised> {
    scope.check()?;
    let (mut gone, mut arrays) = (Vec::new(), Vec::new());
    // SAFETY: the caller's; nothing of the program runs before the cells are back.
    unsafe {
        let saved = &mut *scope.saved.get();
        while saved.len() > place {
            let Some(Saved { draft, cells }) = saved.pop() else { break };
            let own = draft.get();
            super::head(types, own).saved.set(0);
            match cells {
                Cells::Record(earlier) => {
                    let cells = content::<record::Draft>(own).cells();
                    gone.extend(cells.iter_mut().zip(earlier).filter_map(|(now, then)| now.go_back(then)));
                }
                Cells::Map(earlier) => {
                    let entries = content::<map::Draft>(own).entries();
                    let mut earlier = earlier.list.into_iter();
                    // Entries are only added, so those of then are the first of now.
                    for now in &mut entries.list {
                        let then = earlier.next().map(|entry| entry.cell).unwrap_or_default();
                        gone.extend(now.cell.go_back(then));
                    }
                }
                Cells::Vector(earlier) => {
                    gone.extend(content::<vector::Draft>(own).parts().go_back(earlier));
                }
                Cells::Counter(earlier) => {
                    let counter = content::<counter::Draft>(own);
                    let now = counter.added.take();
                    if let Some(then) = earlier.take() {
                        counter.added.set(then);
                    }
                    gone.extend(now.map(Field::new));
                }
                // The package does it, in Python.
                Cells::Array(items) => arrays.push((draft.clone(), items)),
            }
            gone.push(draft);
        }
    }
    drop(gone);
    for (draft, items) in arrays {
        // SAFETY: a live draft of an array.
        if let Err(Raised) = unsafe { array::go_back(types, draft.get(), &items) } {
            // The transaction is neither here nor there.
            scope.end();
            return Err(Raised);
        }
    }
    Ok(())
}
