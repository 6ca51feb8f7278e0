//! Where a draft stands in the state, for messages: it is looked for from the root down.

use std::ptr;

use pyo3_ffi as ffi;
use ropewalk_capi::heap::content;
use ropewalk_capi::object::{Object, Raised};

use super::cell::CHILD;
use super::scope::{Head, Scope};
use super::{map, record, vector};
use crate::node::Pointer;
use crate::types::State;

/// The path to a place below a draft, as a tuple of names, keys and indices. `step` may be null for the draft's own
/// place.
///
/// # Safety
///
/// A live draft with its head, and a live object or null.
pub(super) unsafe fn to(types: &State, head: &Head, draft: Pointer, step: Pointer) -> Result<Object, Raised> {
    // SAFETY: the caller's; a draft holds its transaction.
    unsafe {
        let scope = head.scope.share().ok_or(Raised)?;
        let root = content::<Scope>(scope.as_ptr()).root.share();
        let mut steps = Vec::new();
        if let Some(root) = root {
            find(types, root.as_ptr(), draft, &mut steps)?;
        }
        if !step.is_null() {
            steps.push(Object::share(step)?);
        }
        tuple(&steps)
    }
}

/// A tuple of these objects.
pub(crate) fn tuple(objects: &[Object]) -> Result<Object, Raised> {
    // SAFETY: a fresh tuple, whose places are filled once.
    unsafe {
        let made = Object::own(ffi::PyTuple_New(objects.len().cast_signed()))?;
        for (index, object) in (0..).zip(objects) {
            ffi::PyTuple_SetItem(made.as_ptr(), index, object.clone().into_ptr());
        }
        Ok(made)
    }
}

/// Looks for a draft below another; `steps` lead to it if it is found.
///
/// # Safety
///
/// Live drafts.
unsafe fn find(
    types: &State,
    own: Pointer,
    wanted: Pointer,
    steps: &mut Vec<Object>,
) -> Result<bool, Raised> {
    if ptr::eq(own, wanted) {
        return Ok(true);
    }
    // SAFETY: the caller's; the children are listed before anything else runs. Not in nested calls: drafts are within
    // each other as deep as the program goes down.
    unsafe {
        let mut levels = vec![children(types, own)?.into_iter()];
        while let Some(level) = levels.last_mut() {
            let Some((step, child)) = level.next() else {
                levels.pop();
                steps.pop();
                continue;
            };
            steps.push(step);
            if ptr::eq(child.as_ptr(), wanted) {
                return Ok(true);
            }
            levels.push(children(types, child.as_ptr())?.into_iter());
        }
    }
    Ok(false)
}

/// The drafts of the places below a draft.
///
/// # Safety
///
/// A live draft.
pub(super) unsafe fn children(types: &State, own: Pointer) -> Result<Vec<(Object, Object)>, Raised> {
    // SAFETY: the caller's; the type tells the content, and nothing of the program runs meanwhile.
    unsafe {
        let kind = ffi::Py_TYPE(own).cast();
        let mut found = Vec::new();
        let index = |place: usize| Object::own(ffi::PyLong_FromSize_t(place));
        if kind == types.record_draft {
            let draft = content::<record::Draft>(own);
            for (place, cell) in draft.cells().iter().enumerate() {
                if cell.has(CHILD) {
                    found.push((Object::share(draft.info().name(place))?, Object::share(cell.get())?));
                }
            }
        } else if kind == types.map_draft {
            for entry in &content::<map::Draft>(own).entries().list {
                if entry.cell.has(CHILD) {
                    found.push((entry.key.share().ok_or(Raised)?, Object::share(entry.cell.get())?));
                }
            }
        } else if kind == types.vector_draft {
            let draft = content::<vector::Draft>(own);
            let parts = draft.parts();
            let base = parts.touched.iter().map(|(place, item)| (*place, &item.cell));
            let list = parts.list.iter().flatten().map(|item| &item.cell).enumerate();
            let rest = parts.appended.iter().enumerate();
            for (place, cell) in base.chain(list).chain(rest) {
                if cell.has(CHILD) {
                    found.push((index(place)?, Object::share(cell.get())?));
                }
            }
        }
        Ok(found)
    }
}
