//! Undo and redo: which kept version's state the next version has.

use std::ptr;

use pyo3_ffi as ffi;
use ropewalk_capi::entry;
use ropewalk_capi::errors;
use ropewalk_capi::object::{Object, Raised};
use ropewalk_state::claims::Slots;

use super::commit::finished;
use super::{Form, Inner, New, Own, Step, Store, Version, claiming, closed, store};
use crate::node::Pointer;

/// A version that the next one is made of.
struct Past {
    /// The newest version, and its state.
    base: u64,
    now: Object,
    root: Object,
    /// The version whose state this is, and the one before it.
    same: u64,
    before: u64,
}

impl Inner {
    /// The state that comes next: the one before the newest, or the one that the last undo has left.
    fn past(&self, newest: &Version, is_back: bool) -> Option<&Own> {
        if !is_back {
            // An undo goes from a version to the one before it. Of several that it may have come from, the latest.
            return self.own.iter().rev().find(|kept| kept.before == newest.same);
        }
        let place = self.own.partition_point(|kept| kept.same < newest.before);
        self.own.get(place).filter(|kept| kept.same == newest.before)
    }
}

impl Store {
    /// What a step back is made of, or one forward; nothing if there is no such version.
    unsafe fn past(&self, is_back: bool) -> Result<Option<Past>, Raised> {
        // SAFETY: the thread is attached; taking references runs nothing.
        let inner = unsafe { self.inner.lock() };
        let Some(newest) = inner.versions.back().filter(|_| !inner.is_closed) else {
            drop(inner);
            return Err(closed());
        };
        Ok(inner.past(newest, is_back).map(|target| Past {
            base: newest.number,
            now: newest.root.clone(),
            root: target.root.clone(),
            same: target.same,
            before: target.before,
        }))
    }
}

/// `store._past(back)`: the number of the newest version, its state, the state that follows it, and of which version
/// that state is, with the one before; or `None`.
#[entry]
pub(crate) unsafe extern "C" fn past(own: Pointer, back: Pointer) -> Pointer {
    // SAFETY: a store of ours, and a live argument.
    unsafe {
        let is_back = ffi::PyObject_IsTrue(back);
        if is_back < 0 {
            return ptr::null_mut();
        }
        match store(own).past(is_back != 0) {
            Err(Raised) => ptr::null_mut(),
            Ok(None) => Object::none().into_ptr(),
            Ok(Some(past)) => {
                let (now, root) = (past.now.as_ptr(), past.root.as_ptr());
                ffi::Py_BuildValue(c"KOO(KK)".as_ptr(), past.base, now, root, past.same, past.before)
            }
        }
    }
}

/// `store._step(back, label, claim)`: commits the state of an older version; gives the new version and its epoch, or
/// `None` if there is no such version. It is for stores in memory, and for states without transient places.
#[entry]
pub(crate) unsafe extern "C" fn step(own: Pointer, arguments: *mut Pointer, count: isize) -> Pointer {
    // SAFETY: a store of ours, and as many live arguments as `count` says.
    unsafe {
        let done = (|| {
            let this = store(own);
            if count != 3 || this.journal.get().is_some() {
                let said = c"_step takes a direction, a label and a claim, of a store in memory";
                ffi::PyErr_SetString(ffi::PyExc_TypeError, said.as_ptr());
                return Err(Raised);
            }
            let is_back = ffi::PyObject_IsTrue(*arguments);
            let label = Object::share(*arguments.add(1))?;
            let claim = ffi::PyLong_AsUnsignedLongLong(*arguments.add(2));
            if is_back < 0 || (claim == u64::MAX && !ffi::PyErr_Occurred().is_null()) {
                return Err(Raised);
            }
            let slots = Slots::all();
            loop {
                let Some(past) = this.past(is_back != 0)? else { return Ok(Object::none()) };
                let new = New {
                    base: past.base,
                    now: &past.now,
                    root: &past.root,
                    label: &label,
                    record: None,
                    effects: None,
                    slots: &slots,
                    claim,
                    thread: 0,
                    form: Form::Past { same: past.same, before: past.before },
                };
                match this.swap(&new) {
                    Step::Done(number, epoch, ticket) => return finished(this, number, epoch, ticket),
                    Step::Moved => {}
                    Step::Claimed => claiming::allowed(this, &slots, claim)?,
                    Step::Closed => return Err(closed()),
                    Step::Failed(error) => return Err(errors::raise(&error)),
                }
            }
        })();
        done.map_or_else(|Raised| ptr::null_mut(), Object::into_ptr)
    }
}
