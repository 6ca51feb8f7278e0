//! The draft of an array in shared memory: the committed array until the transaction writes, then a copy of its own.
//!
//! NumPy is not known here. The package's `arrays` make, settle and restore the copy, and the package gives the type
//! its face: indexing, operators, methods. Here is what the copy counts for: who may touch it, what was read, what a
//! savepoint goes back to, and which array the commit puts into the state.

use std::cell::Cell as Plain;
use std::ffi::{CStr, c_int, c_void};
use std::ptr;

use pyo3_ffi as ffi;
use ropewalk_capi::entry;
use ropewalk_capi::errors;
use ropewalk_capi::heap::{self, Field, content};
use ropewalk_capi::object::{Object, Raised};

use super::savepoint;
use super::scope::{self, Head};
use crate::node::Pointer;
use crate::types::State;

/// The content of an `ArrayDraft`.
pub(crate) struct Draft {
    pub(super) head: Head,
    /// The transaction's copy, an object of the package; empty before the first write.
    pub(super) work: Field,
    /// The array was read. A write reads too, because the copy has the items that it leaves alone.
    pub(super) is_read: Plain<bool>,
    /// The program was given an array that writes into the copy without asking the draft.
    pub(super) is_lent: Plain<bool>,
    /// The savepoint for which the items were noted last, or 0.
    pub(super) noted: Plain<u32>,
}

/// What the program asks `_held` for: the numbers of `ropewalk.state._array_draft`.
const READ: i64 = 0;
const LEND: i64 = 2;

/// # Safety
///
/// The head's base is an array that never changes.
pub(super) unsafe fn make(types: &State, head: Head) -> Result<Object, Raised> {
    let draft = Draft {
        head,
        work: Field::empty(),
        is_read: Plain::new(false),
        is_lent: Plain::new(false),
        noted: Plain::new(0),
    };
    // SAFETY: the module's own type.
    unsafe { heap::make(types.array_draft.cast(), draft) }
}

/// Calls a method of the package's `arrays`.
///
/// # Safety
///
/// Live objects. Python code runs.
pub(super) unsafe fn ask(types: &State, method: &CStr, arguments: &[Pointer]) -> Result<Object, Raised> {
    if types.arrays.is_null() {
        return Err(errors::fail(c"ropewalk.state was not imported"));
    }
    // SAFETY: the caller's.
    unsafe { Object::share(types.arrays)?.attribute(method)?.call(arguments) }
}

/// `draft._held(access)`: the transaction's copy, or the committed array while there is none.
#[entry]
pub(crate) unsafe extern "C" fn held(own: Pointer, access: Pointer) -> Pointer {
    // SAFETY: a draft of ours, and a live argument.
    match unsafe { touched(own, access) } {
        Ok(found) => found.into_ptr(),
        Err(Raised) => ptr::null_mut(),
    }
}

/// # Safety
///
/// As [`held`].
unsafe fn touched(own: Pointer, access: Pointer) -> Result<Object, Raised> {
    // SAFETY: the caller's.
    unsafe {
        let access = ffi::PyLong_AsLongLong(access);
        if access == -1 && !ffi::PyErr_Occurred().is_null() {
            return Err(Raised);
        }
        let draft = content::<Draft>(own);
        draft.head.open()?;
        let types = scope::types(own)?;
        let rule = draft.head.rule();
        if access == READ {
            if !rule.reads {
                return Err(scope::violated(types, &draft.head, own, ptr::null_mut(), "read"));
            }
            draft.is_read.set(true);
            return draft.work.share().or_else(|| draft.head.base.share()).ok_or(Raised);
        }
        if !rule.writes {
            return Err(scope::violated(types, &draft.head, own, ptr::null_mut(), "write"));
        }
        savepoint::note_array(types, own, &draft.head)?;
        draft.is_read.set(true);
        let work = match draft.work.share() {
            Some(work) => work,
            None => {
                let base = draft.head.base.share().ok_or(Raised)?;
                let work = ask(types, c"opened", &[base.as_ptr()])?;
                // What ran meanwhile may have come here, too.
                draft.work.share().unwrap_or_else(|| {
                    draft.work.set(work.clone());
                    work
                })
            }
        };
        draft.head.open()?.has_arrays.set(true);
        if access == LEND {
            draft.is_lent.set(true);
        }
        Ok(work)
    }
}

/// The array to commit, if the transaction has written: one that never changes.
///
/// # Safety
///
/// A draft of ours. Python code runs.
pub(super) unsafe fn settled(types: &State, draft: &Draft) -> Result<Option<Object>, Raised> {
    // SAFETY: the caller's.
    draft.work.share().map(|work| unsafe { ask(types, c"settled", &[work.as_ptr()]) }).transpose()
}

/// Puts the items back that the array had at a savepoint; returns whether the program still has an array that writes
/// into the copy.
///
/// # Safety
///
/// `own` is a draft of ours; `earlier` has what [`settled`] gave at the savepoint. Python code runs.
pub(super) unsafe fn go_back(types: &State, own: Pointer, earlier: &Field) -> Result<bool, Raised> {
    // SAFETY: the caller's.
    unsafe {
        let draft = content::<Draft>(own);
        let Some(work) = draft.work.share() else { return Ok(false) };
        let base = draft.head.base.share().ok_or(Raised)?;
        let (items, is_base) = match earlier.share() {
            Some(items) => (items, false),
            None => (base, true),
        };
        let is_kept = ask(types, c"restored", &[work.as_ptr(), items.as_ptr()])?;
        let is_kept = ffi::PyObject_IsTrue(is_kept.as_ptr()) != 0;
        if is_base && !is_kept {
            drop(draft.work.take());
        }
        Ok(is_kept)
    }
}

/// `repr`: the array as it is now.
#[entry]
pub(crate) unsafe extern "C" fn repr(own: Pointer) -> Pointer {
    // SAFETY: a draft of ours.
    unsafe { super::shown::shown(own) }
}

#[entry]
pub(crate) unsafe extern "C" fn traverse(own: Pointer, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    // SAFETY: a complete object of ours, and the collector's own function.
    unsafe {
        let draft = content::<Draft>(own);
        let [scope, base, rule] = draft.head.fields();
        let answer = heap::visit_fields(&[scope, base, rule, &draft.work], visit, arg);
        if answer != 0 { answer } else { heap::visit_type(own, visit, arg) }
    }
}

#[entry]
pub(crate) unsafe extern "C" fn clear(own: Pointer) -> c_int {
    // SAFETY: only the collector has the object.
    let draft = unsafe { content::<Draft>(own) };
    drop((draft.head.scope.take(), draft.head.base.take(), draft.work.take()));
    0
}
