//! Drafts that are read whole: for a result, for a place where they are stored, and for `repr`.

use std::ptr;

use pyo3_ffi as ffi;
use ropewalk_base::Code;
use ropewalk_capi::errors;
use ropewalk_capi::heap::content;
use ropewalk_capi::object::{Object, Raised};

use super::build::{Out, Stop, Unchecked, build};
use super::{counter, map as maps, record, scope, vector as vectors};
use crate::node::Pointer;
use crate::types::State;

/// The value that a draft's place has now, as the transaction sees it. All of it counts as read.
///
/// # Safety
///
/// A live draft.
pub(crate) unsafe fn current(types: &State, own: Pointer) -> Result<Object, Raised> {
    // SAFETY: the caller's.
    unsafe {
        read_whole(types, own)?;
        value(types, own).map(|(value, _)| value)
    }
}

/// Marks all of a draft as read, if the contract lets it.
///
/// # Safety
///
/// As [`current`].
unsafe fn read_whole(types: &State, own: Pointer) -> Result<(), Raised> {
    // SAFETY: the caller's; the type tells the content.
    unsafe {
        let head = super::head(types, own);
        head.open()?;
        if !head.rule().reads {
            return Err(scope::violated(types, head, own, ptr::null_mut(), "read"));
        }
        let kind = ffi::Py_TYPE(own).cast();
        if kind == types.record_draft {
            content::<record::Draft>(own).is_whole.set(true);
        } else if kind == types.map_draft {
            content::<maps::Draft>(own).is_whole.set(true);
        } else if kind == types.vector_draft {
            content::<vectors::Draft>(own).is_whole.set(true);
        } else {
            content::<counter::Draft>(own).is_read.set(true);
        }
        Ok(())
    }
}

/// The same, for a value that is stored elsewhere: its new records are checked now, because the commit checks only
/// those that the drafts have by then.
///
/// # Errors
///
/// What a check raises.
///
/// # Safety
///
/// As [`current`].
pub(super) unsafe fn checked(types: &State, own: Pointer) -> Result<Object, Raised> {
    // SAFETY: the caller's; the value and the records are held while the checks run.
    unsafe {
        read_whole(types, own)?;
        let (value, unchecked) = value(types, own)?;
        for (made, check) in unchecked {
            drop(check.call(&[made.as_ptr()])?);
        }
        Ok(value)
    }
}

/// The value that a draft's place has now, without any record of it.
///
/// # Safety
///
/// A live draft of an open transaction.
unsafe fn value(types: &State, own: Pointer) -> Result<(Object, Unchecked), Raised> {
    // SAFETY: the caller's; the caller's draft holds its transaction. While the phase lasts nobody changes a draft.
    unsafe {
        let head = super::head(types, own);
        let base = head.base.share().ok_or(Raised)?;
        let mut out = Out::new(types, false)?;
        match head.open()?.reading(|| build(&mut out, own, base.as_ptr()))? {
            Ok(built) => Ok((built.unwrap_or(base), out.unchecked)),
            Err(Stop::Raised) => Err(Raised),
            Err(Stop::Conflict(_)) => {
                Err(errors::raise_text(Code::StateError, "a draft does not fit to its own base"))
            }
        }
    }
}

/// `repr` of a draft: the value as it is now. Looking at it in a debugger reads nothing.
///
/// # Safety
///
/// A live draft.
pub(super) unsafe fn shown(own: Pointer) -> Pointer {
    // SAFETY: the caller's; the formats' arguments are live objects.
    unsafe {
        let Ok(types) = scope::types(own) else { return ptr::null_mut() };
        let head = super::head(types, own);
        if head.open().is_err() {
            ffi::PyErr_Clear();
            let said = if head.is_being_read() {
                c"<draft that is being read>"
            } else {
                c"<draft of a transaction that has ended>"
            };
            return ffi::PyUnicode_FromString(said.as_ptr());
        }
        match value(types, own) {
            Ok((value, _)) => ffi::PyUnicode_FromFormat(c"<draft of %R>".as_ptr(), value.as_ptr()),
            Err(Raised) => ptr::null_mut(),
        }
    }
}
