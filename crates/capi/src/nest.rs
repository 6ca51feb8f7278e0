//! Drops deep nests: a map in a map in a map, or `Ok(Ok(Ok(...)))`.
//!
//! Dropping a container drops what it holds in a nested call, and a hundred thousand containers within each other would
//! overflow the stack. CPython guards its own containers by its trashcan, whose form changes with every version; so
//! this module has its own. Beyond a depth, objects to be dropped are put on a list, which the outermost drop works
//! off. Where a container of CPython's lies between two of ours, its trashcan bounds the depth too.

use std::cell::{Cell, RefCell};
use std::ptr;

use pyo3_ffi as ffi;

/// The most nested drops. That of a map takes the frames of a trie's height, which are a kilobyte or two.
const DEEPEST: usize = 32;

/// The outermost drop of this thread, and its list of objects.
struct Nest {
    /// Code that a drop runs may enter another interpreter, whose objects must not be dropped here.
    interpreter: *mut ffi::PyInterpreterState,
    depth: Cell<usize>,
    waiting: RefCell<Vec<*mut ffi::PyObject>>,
}

thread_local! {
    /// It is on this thread's stack, and is removed before it ends.
    static OUTERMOST: Cell<*const Nest> = const { Cell::new(ptr::null()) };
}

/// Releases a reference to an object whose drop may come back here, as one does that may hold another such object.
///
/// # Safety
///
/// `held` is a reference that no other code releases, and the thread is attached.
// Not inlined, because its registers and its unwinding would cost the other drops.
#[inline(never)]
pub unsafe fn drop(held: *mut ffi::PyObject) {
    // SAFETY: the thread is attached.
    let interpreter = unsafe { ffi::PyInterpreterState_Get() };
    let before = OUTERMOST.get();
    // SAFETY: null, or a nest further down this very stack; see below.
    if let Some(nest) = unsafe { before.as_ref() }
        && nest.interpreter == interpreter
    {
        if nest.depth.get() == DEEPEST {
            nest.waiting.borrow_mut().push(held);
            return;
        }
        nest.depth.set(nest.depth.get() + 1);
        // SAFETY: the caller passes a reference that no other code releases.
        unsafe { ffi::Py_DECREF(held) };
        nest.depth.set(nest.depth.get() - 1);
        return;
    }
    let nest = Nest { interpreter, depth: Cell::new(0), waiting: RefCell::default() };
    OUTERMOST.set(&raw const nest);
    // SAFETY: the caller passes a reference that no other code releases.
    unsafe { ffi::Py_DECREF(held) };
    loop {
        // Not held over the drop, which may put more on the list.
        let next = nest.waiting.borrow_mut().pop();
        let Some(next) = next else { break };
        // SAFETY: its reference was put on the list to be released here.
        unsafe { ffi::Py_DECREF(next) };
    }
    OUTERMOST.set(before);
}
