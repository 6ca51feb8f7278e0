//! What a transaction has read and written, place by place: for the report of a contract, and for another process.

use pyo3_ffi as ffi;
use ropewalk_capi::heap::content;
use ropewalk_capi::object::{Object, Raised, text};

use super::cell::{CHILD, Cell, DELETED, READ, SEEN, WRITTEN};
use super::{array, counter, map, path, record, vector};
use crate::node::Pointer;
use crate::types::State;

/// A list of `(path, access)`; the access is `"read"`, `"whole"`, `"seen"`, `"write"`, `"append"` or `"count"`.
///
/// # Safety
///
/// A live draft of an open transaction.
pub(crate) unsafe fn of(types: &State, root: Pointer) -> Result<Object, Raised> {
    // SAFETY: the caller's.
    unsafe {
        let list = Object::own(ffi::PyList_New(0))?;
        walk(types, root, &mut Vec::new(), &list)?;
        Ok(list)
    }
}

/// # Safety
///
/// A live draft.
unsafe fn walk(types: &State, own: Pointer, steps: &mut Vec<Object>, list: &Object) -> Result<(), Raised> {
    // SAFETY: the caller's; the type tells the content, and only allocations run meanwhile, none of the program's code.
    unsafe {
        let kind = ffi::Py_TYPE(own).cast();
        if kind == types.record_draft {
            let draft = content::<record::Draft>(own);
            note(draft.is_whole.get(), "whole", steps, list)?;
            for index in 0..draft.info().count() {
                let cell = draft.cells()[index].clone();
                at(types, &cell, Object::share(draft.info().name(index))?, steps, list)?;
            }
        } else if kind == types.map_draft {
            let draft = content::<map::Draft>(own);
            note(draft.is_whole.get(), "whole", steps, list)?;
            for entry in draft.entries().list.clone() {
                at(types, &entry.cell, entry.key.share().ok_or(Raised)?, steps, list)?;
            }
        } else if kind == types.vector_draft {
            let draft = content::<vector::Draft>(own);
            note(draft.is_whole.get() || draft.is_counted.get(), "whole", steps, list)?;
            let parts = draft.parts().clone();
            note(parts.list.is_some() || parts.dropped > 0, "write", steps, list)?;
            note(!parts.appended.is_empty(), "append", steps, list)?;
            let items = parts.touched.iter().map(|(index, item)| (*index, &item.cell));
            let moved = parts.list.iter().flatten().map(|item| &item.cell).enumerate();
            for (index, cell) in items.chain(moved) {
                at(types, cell, Object::own(ffi::PyLong_FromSize_t(index))?, steps, list)?;
            }
        } else if kind == types.array_draft {
            let draft = content::<array::Draft>(own);
            note(draft.is_read.get(), "read", steps, list)?;
            note(!draft.work.get().is_null(), "write", steps, list)?;
        } else {
            let draft = content::<counter::Draft>(own);
            note(draft.is_read.get(), "read", steps, list)?;
            note(counter::is_counted(own), "count", steps, list)?;
        }
        Ok(())
    }
}

/// Notes what a cell has, and what is below it.
///
/// # Safety
///
/// The cell's value is live.
unsafe fn at(
    types: &State,
    cell: &Cell,
    step: Object,
    steps: &mut Vec<Object>,
    list: &Object,
) -> Result<(), Raised> {
    steps.push(step);
    note(cell.has(READ), "read", steps, list)?;
    note(cell.has(SEEN), "seen", steps, list)?;
    note(cell.has(WRITTEN | DELETED), "write", steps, list)?;
    if cell.has(CHILD) {
        // SAFETY: the caller's; a child is a draft.
        unsafe {
            if ffi::Py_EnterRecursiveCall(c" while a footprint is listed".as_ptr()) != 0 {
                return Err(Raised);
            }
            let walked = walk(types, cell.get(), steps, list);
            ffi::Py_LeaveRecursiveCall();
            walked?;
        }
    }
    steps.pop();
    Ok(())
}

fn note(applies: bool, access: &str, steps: &[Object], list: &Object) -> Result<(), Raised> {
    if !applies {
        return Ok(());
    }
    let pair = path::tuple(&[path::tuple(steps)?, text(access)?])?;
    // SAFETY: live objects.
    if unsafe { ffi::PyList_Append(list.as_ptr(), pair.as_ptr()) } < 0 { Err(Raised) } else { Ok(()) }
}
