//! What a draft's place has now, as the transaction sees it.

use std::ffi::c_int;
use std::ptr;

use pyo3_ffi as ffi;
use ropewalk_base::Code;
use ropewalk_capi::entry;
use ropewalk_capi::errors;
use ropewalk_capi::heap::content;
use ropewalk_capi::object::{Object, Raised};

use super::build::{Out, Stop, Unchecked, build};
use super::{array, counter, map as maps, record, scope, vector as vectors};
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
        value(types, own, &mut false).map(|(value, _)| value)
    }
}

/// The same, for a comparison; `None` if the values of a record in it do not fit, so that there is no such value.
///
/// # Safety
///
/// As [`current`].
unsafe fn comparable(types: &State, own: Pointer) -> Result<Option<Object>, Raised> {
    // SAFETY: the caller's; an exception is set where one is looked at.
    unsafe {
        read_whole(types, own)?;
        let mut is_unfit = false;
        match value(types, own, &mut is_unfit) {
            Ok((value, _)) => Ok(Some(value)),
            Err(Raised) if is_unfit && ffi::PyErr_ExceptionMatches(ffi::PyExc_Exception) != 0 => {
                ffi::PyErr_Clear();
                Ok(None)
            }
            Err(Raised) => Err(Raised),
        }
    }
}

/// Comparisons of a draft with a value or with another draft. A draft whose values do not fit equals itself alone.
#[entry]
pub(crate) unsafe extern "C" fn compare(own: Pointer, other: Pointer, operator: c_int) -> Pointer {
    // SAFETY: the interpreter's arguments.
    unsafe {
        let compared = (|| {
            let types = scope::types(own)?;
            let truth = |is_true: bool| Object::own(ffi::PyBool_FromLong(is_true.into()));
            if ptr::eq(own, other) {
                return truth(operator == ffi::Py_EQ);
            }
            let value = comparable(types, own)?;
            let other = match types.is_draft(other) {
                true => comparable(types, other)?,
                false => Some(Object::share(other)?),
            };
            match (value, other) {
                (Some(value), Some(other)) => {
                    Object::own(ffi::PyObject_RichCompare(value.as_ptr(), other.as_ptr(), operator))
                }
                _ if operator == ffi::Py_EQ || operator == ffi::Py_NE => truth(operator == ffi::Py_NE),
                _ => Object::share(ffi::Py_NotImplemented()),
            }
        })();
        compared.map_or_else(|Raised| ptr::null_mut(), Object::into_ptr)
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
        } else if kind == types.array_draft {
            content::<array::Draft>(own).is_read.set(true);
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
        let (value, unchecked) = value(types, own, &mut false)?;
        for (made, check) in unchecked {
            drop(check.call(&[made.as_ptr()])?);
        }
        Ok(value)
    }
}

/// The value that a draft's place has now, without any record of it. `is_unfit` says of an exception whether a class
/// has refused the values of a record's fields.
///
/// # Safety
///
/// A live draft of an open transaction.
unsafe fn value(types: &State, own: Pointer, is_unfit: &mut bool) -> Result<(Object, Unchecked), Raised> {
    // SAFETY: the caller's.
    unsafe {
        let head = super::head(types, own);
        let base = head.base.share().ok_or(Raised)?;
        let mut out = Out::new(types, false)?;
        let built = build(&mut out, own, base.as_ptr());
        *is_unfit = out.is_unfit;
        match built {
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
            return ffi::PyUnicode_FromString(c"<draft of a transaction that has ended>".as_ptr());
        }
        match value(types, own, &mut false) {
            Ok((value, _)) => ffi::PyUnicode_FromFormat(c"<draft of %R>".as_ptr(), value.as_ptr()),
            Err(Raised) if ffi::PyErr_ExceptionMatches(ffi::PyExc_Exception) == 0 => ptr::null_mut(),
            Err(Raised) => {
                ffi::PyErr_Clear();
                unfit(types, own, head.base.get()).map_or_else(|Raised| ptr::null_mut(), Object::into_ptr)
            }
        }
    }
}

/// `repr` of a draft whose value cannot be made, most often because a validator refuses what the fields have so far.
///
/// # Safety
///
/// A live draft and its base.
unsafe fn unfit(types: &State, own: Pointer, base: Pointer) -> Result<Object, Raised> {
    // SAFETY: the caller's; the formats' arguments are live objects, which are held while the program's code runs.
    unsafe {
        let class = Object::share(ffi::Py_TYPE(base).cast())?;
        let name = class.attribute(c"__name__")?;
        if !ptr::eq(ffi::Py_TYPE(own), types.record_draft.cast()) {
            let text = c"<draft of a %U in which values do not fit>".as_ptr();
            return Object::own(ffi::PyUnicode_FromFormat(text, name.as_ptr()));
        }
        let draft = content::<record::Draft>(own);
        let mut fields = Object::own(ffi::PyUnicode_FromString(c"".as_ptr()))?;
        for index in 0..draft.info().count() {
            let held = draft.cells().get(index).map_or(ptr::null_mut(), |cell| cell.get());
            let value = if held.is_null() { draft.info().read(base, index)? } else { Object::share(held)? };
            let between = if index == 0 { c"%U%U=%R" } else { c"%U, %U=%R" };
            let named = draft.info().name(index);
            fields = Object::own(ffi::PyUnicode_FromFormat(
                between.as_ptr(),
                fields.as_ptr(),
                named,
                value.as_ptr(),
            ))?;
        }
        let text = c"<draft of %U(%U), whose values do not fit>".as_ptr();
        Object::own(ffi::PyUnicode_FromFormat(text, name.as_ptr(), fields.as_ptr()))
    }
}
