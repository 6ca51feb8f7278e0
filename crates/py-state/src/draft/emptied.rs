//! `clear` and `popitem` of the draft of a map.

use std::ptr;

use pyo3_ffi as ffi;
use ropewalk_capi::entry;
use ropewalk_capi::heap::content;
use ropewalk_capi::object::{Object, Raised};

use super::map::{Draft, check_delete, get, keys_of, set};
use super::{path, scope};
use crate::node::Pointer;

/// `draft.clear()`.
#[entry]
pub(crate) unsafe extern "C" fn clear_entries(own: Pointer, _: Pointer) -> Pointer {
    // SAFETY: a draft of ours.
    match unsafe { cleared(own) } {
        Ok(()) => Object::none().into_ptr(),
        Err(Raised) => ptr::null_mut(),
    }
}

/// # Safety
///
/// As [`clear_entries`].
unsafe fn cleared(own: Pointer) -> Result<(), Raised> {
    // SAFETY: the caller's; nobody else has the list of keys.
    unsafe {
        let keys = keys_of(own)?;
        let (draft, types) = (content::<Draft>(own), scope::types(own)?);
        let count = ffi::PyList_Size(keys.as_ptr());
        // All first, so that a key that may not be deleted leaves the others.
        for index in 0..count {
            let key = ffi::PyList_GetItem(keys.as_ptr(), index);
            let below = draft.head.rule().key(draft.head.rule.get(), key)?;
            check_delete(types, &draft.head, own, key, &below)?;
        }
        for index in 0..count {
            set(own, ffi::PyList_GetItem(keys.as_ptr(), index), ptr::null_mut())?;
        }
        Ok(())
    }
}

/// `draft.popitem()`.
#[entry]
pub(crate) unsafe extern "C" fn popitem(own: Pointer, _: Pointer) -> Pointer {
    // SAFETY: a draft of ours.
    unsafe { popped(own) }.map_or(ptr::null_mut(), Object::into_ptr)
}

/// # Safety
///
/// As [`popitem`].
unsafe fn popped(own: Pointer) -> Result<Object, Raised> {
    // SAFETY: the caller's; the key is held.
    unsafe {
        let draft = content::<Draft>(own);
        draft.head.open()?;
        draft.read_whole(scope::types(own)?, own)?;
        loop {
            let Some(key) = draft.first()? else {
                ffi::PyErr_SetString(ffi::PyExc_KeyError, c"the map has no entries".as_ptr());
                return Err(Raised);
            };
            // A comparison may have deleted the key meanwhile.
            let Some(value) = get(own, key.as_ptr())? else { continue };
            set(own, key.as_ptr(), ptr::null_mut())?;
            return path::tuple(&[key, value]);
        }
    }
}
