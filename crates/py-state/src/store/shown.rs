//! What a store shows: its state, its versions, what is durable, what waits for delivery; and its end.

use std::ffi::c_void;
use std::ptr;

use pyo3_ffi as ffi;
use ropewalk_capi::entry;
use ropewalk_capi::object::{Object, Raised};

use super::store;
use crate::node::Pointer;

/// `store.snapshot()`
#[entry]
pub(crate) unsafe extern "C" fn snapshot(own: Pointer, _: Pointer) -> Pointer {
    // SAFETY: a store of ours.
    match unsafe { store(own).now() } {
        Ok((root, ..)) => root.into_ptr(),
        Err(Raised) => ptr::null_mut(),
    }
}

/// `store.version`
#[entry]
pub(crate) unsafe extern "C" fn version(own: Pointer, _: *mut c_void) -> Pointer {
    // SAFETY: a store of ours.
    unsafe {
        match store(own).now() {
            Ok((_, number, _)) => ffi::PyLong_FromUnsignedLongLong(number),
            Err(Raised) => ptr::null_mut(),
        }
    }
}

/// `store._has_effects`: whether a commit has effects that nobody has taken.
#[entry]
pub(crate) unsafe extern "C" fn has_effects(own: Pointer, _: *mut c_void) -> Pointer {
    // SAFETY: a store of ours; nothing of the interpreter runs under the guard.
    unsafe {
        let has_some = !store(own).inner.lock().effects.is_empty();
        ffi::PyBool_FromLong(has_some.into())
    }
}

/// `store._is_due`: whether something is to be done after a commit: to wait for the journal, or to deliver effects.
#[entry]
pub(crate) unsafe extern "C" fn is_due(own: Pointer, _: *mut c_void) -> Pointer {
    // SAFETY: a store of ours; nothing of the interpreter runs under the guard.
    unsafe {
        let this = store(own);
        let is_due = this.journal.get().is_some() || !this.inner.lock().effects.is_empty();
        ffi::PyBool_FromLong(is_due.into())
    }
}

/// `store._has_claims`: whether a transaction has claimed a part of the state, or waits for one.
#[entry]
pub(crate) unsafe extern "C" fn has_claims(own: Pointer, _: *mut c_void) -> Pointer {
    // SAFETY: a store of ours.
    unsafe { ffi::PyBool_FromLong((!store(own).claims.is_empty()).into()) }
}

/// `store._versions(first)`: the versions from that number on, as tuples `(number, root, label, at, same, before)`.
#[entry]
pub(crate) unsafe extern "C" fn versions(own: Pointer, first: Pointer) -> Pointer {
    // SAFETY: a store of ours, and a live argument; nothing of the interpreter runs under the guard but counting.
    unsafe {
        let first = ffi::PyLong_AsUnsignedLongLong(first);
        if first == u64::MAX && !ffi::PyErr_Occurred().is_null() {
            return ptr::null_mut();
        }
        let inner = store(own).inner.lock();
        let from = inner.versions.partition_point(|kept| kept.number < first);
        let kept: Vec<_> = inner
            .versions
            .range(from..)
            .map(|kept| (kept.number, kept.root.clone(), kept.label.clone(), kept.at, kept.same, kept.before))
            .collect();
        drop(inner);
        let made = (|| {
            let list = Object::own(ffi::PyList_New(0))?;
            for (number, root, label, at, same, before) in &kept {
                let (root, label) = (root.as_ptr(), label.as_ptr());
                let made = ffi::Py_BuildValue(c"KOOdKK".as_ptr(), *number, root, label, *at, *same, *before);
                let made = Object::own(made)?;
                if ffi::PyList_Append(list.as_ptr(), made.as_ptr()) < 0 {
                    return Err(Raised);
                }
            }
            Ok(list)
        })();
        made.map_or_else(|Raised| ptr::null_mut(), Object::into_ptr)
    }
}

/// `store._durable()`: the newest durable version, its state, and the number of the journal's record that made it.
#[entry]
pub(crate) unsafe extern "C" fn durable(own: Pointer, _: Pointer) -> Pointer {
    // SAFETY: a store of ours; nothing of the interpreter runs under the guard but counting.
    unsafe {
        let inner = store(own).inner.lock();
        let (version, root, record) = (inner.durable.0, inner.durable.1.clone(), inner.durable_record);
        drop(inner);
        let root = root.unwrap_or_else(Object::none);
        ffi::Py_BuildValue(c"KOK".as_ptr(), version, root.as_ptr(), record)
    }
}

/// `store._next_effects(known)`: the effects of the oldest durable commit behind version `known` that has some, as
/// `(version, list)`; or `None`. Those up to `known` are forgotten, so that an interrupt between this call and the next
/// line loses none.
#[entry]
pub(crate) unsafe extern "C" fn next_effects(own: Pointer, known: Pointer) -> Pointer {
    // SAFETY: a store of ours, and a live argument; nothing of the interpreter runs under the guard.
    unsafe {
        let known = ffi::PyLong_AsUnsignedLongLong(known);
        if known == u64::MAX && !ffi::PyErr_Occurred().is_null() {
            return ptr::null_mut();
        }
        let mut inner = store(own).inner.lock();
        let durable = inner.durable.0;
        let count = inner.effects.iter().take_while(|(version, _)| *version <= known.min(durable)).count();
        let gone: Vec<_> = inner.effects.drain(..count).collect();
        let next = inner.effects.front().filter(|(version, _)| *version <= durable);
        let next = next.map(|(version, list)| (*version, list.clone()));
        drop(inner);
        drop(gone);
        match next {
            None => Object::none().into_ptr(),
            Some((version, list)) => ffi::Py_BuildValue(c"KO".as_ptr(), version, list.as_ptr()),
        }
    }
}

/// `store._close()`: no transaction begins or commits from here on.
#[entry]
pub(crate) unsafe extern "C" fn close(own: Pointer, _: Pointer) -> Pointer {
    // SAFETY: a store of ours; nothing of the interpreter runs under the guard.
    unsafe {
        store(own).inner.lock().is_closed = true;
        store(own).claims.close();
        Object::none().into_ptr()
    }
}

/// `store.closed`
#[entry]
pub(crate) unsafe extern "C" fn is_closed(own: Pointer, _: *mut c_void) -> Pointer {
    // SAFETY: a store of ours; nothing of the interpreter runs under the guard.
    unsafe {
        let is_closed = store(own).inner.lock().is_closed;
        ffi::PyBool_FromLong(is_closed.into())
    }
}
