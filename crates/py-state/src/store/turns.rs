//! Claims for coroutines: what asks whether a turn has come, and never waits. The package waits, in the event loop.

use std::ptr;

use pyo3_ffi as ffi;
use ropewalk_capi::entry;
use ropewalk_capi::heap::content;
use ropewalk_capi::object::{Object, Raised};

use super::{claiming, store, types_of};
use crate::node::Pointer;
use crate::rule::Rule;

/// The rule that a method was called with.
///
/// # Safety
///
/// A store of ours, and a live argument.
unsafe fn rule_of<'a>(own: Pointer, rule: Pointer) -> Result<&'a Rule, Raised> {
    // SAFETY: the caller's; the type tells the content.
    unsafe {
        if ffi::Py_TYPE(rule) != types_of(own)?.rule.cast() {
            ffi::PyErr_SetString(ffi::PyExc_TypeError, c"a claim is made of a rule".as_ptr());
            return Err(Raised);
        }
        Ok(content::<Rule>(rule))
    }
}

/// `store._ask(rule)`: claims the parts that the rule's transactions touch; gives at once what `_claim` does, though
/// the claim may not be granted yet.
#[entry]
pub(crate) unsafe extern "C" fn ask(own: Pointer, rule: Pointer) -> Pointer {
    // SAFETY: a store of ours, and a live argument.
    unsafe {
        let made = rule_of(own, rule).and_then(|rule| claiming::asked(store(own), rule.touches()));
        made.map_or_else(|Raised| ptr::null_mut(), Object::into_ptr)
    }
}

/// `store._is_granted(number)`: whether there is nothing to wait for: the claim is granted, or the store was closed.
#[entry]
pub(crate) unsafe extern "C" fn is_granted(own: Pointer, number: Pointer) -> Pointer {
    // SAFETY: a store of ours, and a live argument.
    unsafe {
        let number = ffi::PyLong_AsUnsignedLongLong(number);
        if number == u64::MAX && !ffi::PyErr_Occurred().is_null() {
            return ptr::null_mut();
        }
        ffi::PyBool_FromLong(store(own).claims.is_granted(number).into())
    }
}

/// `store._is_allowed(rule)`: the same of the end of the claims that forbid the changes of the rule's transactions.
#[entry]
pub(crate) unsafe extern "C" fn is_allowed(own: Pointer, rule: Pointer) -> Pointer {
    // SAFETY: a store of ours, and a live argument.
    unsafe {
        match rule_of(own, rule) {
            Ok(rule) => ffi::PyBool_FromLong(store(own).claims.is_allowed(rule.changes(), 0).into()),
            Err(Raised) => ptr::null_mut(),
        }
    }
}
