//! How a deep nest of results ends: `Ok(Ok(Ok(...)))`.
//!
//! Dropping a result drops what it holds, one call within the other, and a million of them would overflow the stack.
//! CPython's own containers are guarded by its trashcan, whose form changes with every version; so this is ours. Beyond
//! a depth, what is to be dropped is put on a list, and the outermost drop works the list off. Only results within
//! results come here. Where another container lies between two of them, its trashcan bounds the depth.

use std::cell::{Cell, RefCell};
use std::ptr;

use pyo3_ffi as ffi;

use super::Pointer;

/// Drops within drops: a few hundred bytes of stack each.
const DEEPEST: usize = 64;

/// The outermost drop of this thread and what it has to work off.
struct Nest {
    /// Code that a drop runs may enter another interpreter, whose objects must not end here.
    interpreter: *mut ffi::PyInterpreterState,
    depth: Cell<usize>,
    waiting: RefCell<Vec<Pointer>>,
}

thread_local! {
    /// It lies on this thread's stack, and is taken away before it is gone.
    static OUTERMOST: Cell<*const Nest> = const { Cell::new(ptr::null()) };
}

/// Gives back a reference to a result.
///
/// # Safety
///
/// `result` is a reference that nobody else gives back, and the thread is attached.
pub(super) unsafe fn drop(result: Pointer) {
    // SAFETY: the thread is attached.
    let interpreter = unsafe { ffi::PyInterpreterState_Get() };
    let before = OUTERMOST.get();
    // SAFETY: null, or a nest further down this very stack; see below.
    if let Some(nest) = unsafe { before.as_ref() }
        && nest.interpreter == interpreter
    {
        if nest.depth.get() == DEEPEST {
            nest.waiting.borrow_mut().push(result);
            return;
        }
        nest.depth.set(nest.depth.get() + 1);
        // SAFETY: the caller's.
        unsafe { ffi::Py_DECREF(result) };
        nest.depth.set(nest.depth.get() - 1);
        return;
    }
    let nest = Nest { interpreter, depth: Cell::new(0), waiting: RefCell::default() };
    OUTERMOST.set(&raw const nest);
    // SAFETY: the caller's.
    unsafe { ffi::Py_DECREF(result) };
    loop {
        // Not held over the drop, which may put more on the list.
        let next = nest.waiting.borrow_mut().pop();
        let Some(next) = next else { break };
        // SAFETY: its reference was put on the list to be given back here.
        unsafe { ffi::Py_DECREF(next) };
    }
    OUTERMOST.set(before);
}
