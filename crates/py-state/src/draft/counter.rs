//! The draft of a counter: a number that transactions add to without reading it, so that they never conflict.

use std::cell::Cell as Plain;
use std::ffi::{c_int, c_void};
use std::ptr;

use pyo3_ffi as ffi;
use ropewalk_capi::entry;
use ropewalk_capi::heap::{self, Field, content};
use ropewalk_capi::object::{Object, Raised};

use super::savepoint::{self, Undo};
use super::scope::{self, Head};
use crate::node::Pointer;
use crate::types::State;

/// The content of a `CounterDraft`.
pub(crate) struct Draft {
    pub(super) head: Head,
    /// What the transaction adds: an `int`, or nothing yet.
    pub(super) added: Field,
    /// The number was read.
    pub(super) is_read: Plain<bool>,
}

/// # Safety
///
/// The head's base is live.
pub(super) unsafe fn make(types: &State, head: Head) -> Result<Object, Raised> {
    // SAFETY: the caller's; the module's own type.
    unsafe {
        if ffi::PyLong_CheckExact(head.base.get()) == 0 {
            ffi::PyErr_Format(
                ffi::PyExc_TypeError,
                c"a counter is an int, not %R".as_ptr(),
                ffi::Py_TYPE(head.base.get()),
            );
            return Err(Raised);
        }
        heap::make(
            types.counter_draft.cast(),
            Draft { head, added: Field::empty(), is_read: Plain::new(false) },
        )
    }
}

/// Whether a draft is one of a counter.
///
/// # Safety
///
/// `draft` is live.
pub(super) unsafe fn is_one(types: &State, draft: Pointer) -> bool {
    // SAFETY: the caller's.
    ptr::eq(unsafe { ffi::Py_TYPE(draft) }, types.counter_draft.cast())
}

/// Whether something was added.
///
/// # Safety
///
/// `own` is live, and a counter's draft.
pub(super) unsafe fn is_counted(own: Pointer) -> bool {
    // SAFETY: the caller's.
    !unsafe { content::<Draft>(own) }.added.get().is_null()
}

/// Adds to the counter.
///
/// # Safety
///
/// A draft of ours, and a live object.
unsafe fn add(own: Pointer, number: Pointer, is_taken: bool) -> Result<(), Raised> {
    // SAFETY: the caller's.
    unsafe {
        let draft = content::<Draft>(own);
        draft.head.open()?;
        let types = scope::types(own)?;
        if !draft.head.rule().writes {
            return Err(scope::violated(types, &draft.head, own, ptr::null_mut(), "count"));
        }
        // Anything but an int would run code of the program at commit.
        let number = Object::own(ffi::PyNumber_Index(number))?;
        let number = Object::own(ffi::PyNumber_Long(number.as_ptr()))?;
        let sum = match (draft.added.share(), is_taken) {
            (Some(before), false) => ffi::PyNumber_Add(before.as_ptr(), number.as_ptr()),
            (Some(before), true) => ffi::PyNumber_Subtract(before.as_ptr(), number.as_ptr()),
            (None, false) => number.into_ptr(),
            (None, true) => ffi::PyNumber_Negative(number.as_ptr()),
        };
        let sum = Object::own(sum)?;
        savepoint::note(own, &draft.head, || Undo::Counted(draft.added.clone()))?;
        draft.added.set(sum);
        Ok(())
    }
}

/// The number as it is now; it counts as read.
///
/// # Safety
///
/// A draft of ours.
unsafe fn read(own: Pointer) -> Result<Object, Raised> {
    // SAFETY: the caller's.
    unsafe {
        let draft = content::<Draft>(own);
        draft.head.open()?;
        if !draft.head.rule().reads {
            return Err(scope::violated(scope::types(own)?, &draft.head, own, ptr::null_mut(), "read"));
        }
        draft.is_read.set(true);
        draft.now(draft.head.base.get())
    }
}

impl Draft {
    /// The sum of a number and of what was added.
    ///
    /// # Safety
    ///
    /// `number` is an `int`.
    pub(super) unsafe fn now(&self, number: Pointer) -> Result<Object, Raised> {
        // SAFETY: the caller's.
        unsafe {
            match self.added.share() {
                None => Object::share(number),
                Some(added) => Object::own(ffi::PyNumber_Add(number, added.as_ptr())),
            }
        }
    }
}

/// `counter += number`.
#[entry]
pub(crate) unsafe extern "C" fn add_in_place(own: Pointer, number: Pointer) -> Pointer {
    // SAFETY: the interpreter's arguments.
    unsafe { changed(own, number, false) }
}

/// `counter -= number`.
#[entry]
pub(crate) unsafe extern "C" fn subtract_in_place(own: Pointer, number: Pointer) -> Pointer {
    // SAFETY: the interpreter's arguments.
    unsafe { changed(own, number, true) }
}

/// # Safety
///
/// As [`add`].
unsafe fn changed(own: Pointer, number: Pointer, is_taken: bool) -> Pointer {
    // SAFETY: the caller's.
    unsafe {
        match add(own, number, is_taken) {
            Ok(()) => {
                ffi::Py_INCREF(own);
                own
            }
            Err(Raised) => ptr::null_mut(),
        }
    }
}

/// `counter.add(number)`.
#[entry]
pub(crate) unsafe extern "C" fn add_method(own: Pointer, number: Pointer) -> Pointer {
    // SAFETY: a draft, and a live argument.
    match unsafe { add(own, number, false) } {
        Ok(()) => Object::none().into_ptr(),
        Err(Raised) => ptr::null_mut(),
    }
}

/// `counter.value`.
#[entry]
pub(crate) unsafe extern "C" fn value(own: Pointer, _: *mut c_void) -> Pointer {
    // SAFETY: a draft of ours.
    unsafe { number(own) }
}

/// `int(counter)` and `operator.index(counter)`.
#[entry]
pub(crate) unsafe extern "C" fn number(own: Pointer) -> Pointer {
    // SAFETY: a draft of ours.
    match unsafe { read(own) } {
        Ok(number) => number.into_ptr(),
        Err(Raised) => ptr::null_mut(),
    }
}

/// Comparisons, with numbers and with counters.
#[entry]
pub(crate) unsafe extern "C" fn compare(own: Pointer, other: Pointer, operator: c_int) -> Pointer {
    // SAFETY: the interpreter's arguments.
    unsafe {
        match read(own) {
            Ok(number) => ffi::PyObject_RichCompare(number.as_ptr(), other, operator),
            Err(Raised) => ptr::null_mut(),
        }
    }
}

/// `repr`: the number as it is now.
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
        let answer = heap::visit_fields(&[scope, base, rule, &draft.added], visit, arg);
        if answer != 0 { answer } else { heap::visit_type(own, visit, arg) }
    }
}

#[entry]
pub(crate) unsafe extern "C" fn clear(own: Pointer) -> c_int {
    // SAFETY: only the collector has the object.
    let draft = unsafe { content::<Draft>(own) };
    drop((draft.head.scope.take(), draft.head.base.take()));
    0
}
