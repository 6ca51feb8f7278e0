//! Contexts of callbacks. Callbacks scheduled under equal values share one copy of the context; the loop copies it
//! before user code can see it.
//!
//! asyncio copies the context for each callback. Most of these copies are of one context that has not changed, and most
//! callbacks change nothing in theirs. So one *snapshot* serves all callbacks that were scheduled under the same
//! values. The loop never enters a snapshot that several handles share: callbacks run in a *runner*, a copy of it, and
//! the loop reuses a runner only while its values are unchanged. `Handle.get_context()` returns a copy of the handle's
//! own.
//!
//! A context holds an immutable map of its values, so that comparing one pointer shows whether they have changed. The
//! C API does not expose where the map is in a context, or the context in a thread's state. The offsets are known for
//! each version and are checked when the module is loaded; if a check fails, every callback gets a copy, as in asyncio.
//!
//! On a free-threaded build a snapshot would need a lock, so every callback gets a copy there too.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
#[cfg(not(Py_GIL_DISABLED))]
use std::ptr::null_mut;

use pyo3_ffi as ffi;

use super::handle::Handle;
#[cfg(not(Py_GIL_DISABLED))]
use super::handle::{SHARED, handle};
use ropewalk_capi::object::{Object, Raised};

/// Where `context` stands in a `PyThreadState`, in bytes.
#[cfg(not(Py_GIL_DISABLED))]
const CONTEXT_IN_THREAD: usize = if cfg!(Py_3_12) { 208 } else { 224 };
/// Where `ctx_vars` stands in a `PyContext`: after the head and `ctx_prev`.
#[cfg(not(Py_GIL_DISABLED))]
const VALUES_IN_CONTEXT: usize = size_of::<ffi::PyObject>() + size_of::<*mut c_void>();

/// The values of a context, as a pointer that differs when they do.
#[cfg(not(Py_GIL_DISABLED))]
unsafe fn values(context: *mut ffi::PyObject) -> *mut c_void {
    // SAFETY: the caller has a live context, and `are_places_known` has held.
    unsafe { context.byte_add(VALUES_IN_CONTEXT).cast::<*mut c_void>().read() }
}

/// The context of this thread, borrowed; null if it has none yet.
#[cfg(not(Py_GIL_DISABLED))]
unsafe fn current() -> *mut ffi::PyObject {
    // SAFETY: the thread is attached, and `are_places_known` has held.
    unsafe { ffi::PyThreadState_Get().byte_add(CONTEXT_IN_THREAD).cast::<*mut ffi::PyObject>().read() }
}

/// Tries the places on contexts and values of its own.
#[cfg(not(Py_GIL_DISABLED))]
pub(super) fn are_places_known() -> Result<bool, Raised> {
    // The offsets of newer versions are unknown.
    if cfg!(Py_3_15) {
        return Ok(false);
    }
    // SAFETY: fresh objects of the C API; the offsets read lie within a thread's state and a context.
    unsafe {
        let context = Object::own(ffi::PyContext_New())?;
        if ffi::PyContext_Enter(context.as_ptr()) != 0 {
            return Err(Raised);
        }
        let entered = current() == context.as_ptr();
        let variable = Object::own(ffi::PyContextVar_New(c"ropewalk".as_ptr(), null_mut()));
        let copied = variable.and_then(|variable| {
            Object::own(ffi::PyContextVar_Set(variable.as_ptr(), ffi::Py_None()))?;
            let copy = Object::own(ffi::PyContext_Copy(context.as_ptr()))?;
            let same = values(copy.as_ptr()) == values(context.as_ptr());
            Object::own(ffi::PyContextVar_Set(variable.as_ptr(), ffi::Py_True()))?;
            Ok(same && values(copy.as_ptr()) != values(context.as_ptr()))
        });
        if ffi::PyContext_Exit(context.as_ptr()) != 0 {
            return Err(Raised);
        }
        Ok(entered && copied?)
    }
}

#[cfg(Py_GIL_DISABLED)]
pub(super) fn are_places_known() -> Result<bool, Raised> {
    Ok(false)
}

/// The snapshot of a loop, and its runner.
///
/// Copying a context may run the garbage collector, and dropping one the finalizers of what it held; both may schedule,
/// and come back here. So all state is in cells, which are whole whenever other code runs.
#[derive(Default)]
pub(super) struct Snapshots {
    #[cfg(not(Py_GIL_DISABLED))]
    known: bool,
    /// Never entered while other code has it.
    base: Cell<Option<Object>>,
    /// The values of `base`, which holds them.
    #[cfg(not(Py_GIL_DISABLED))]
    values: Cell<usize>,
    /// A snapshot and a copy of it, in which callbacks run.
    runner: Cell<Option<(Object, Object)>>,
    /// The handle that runs, and the context it runs in, while one does.
    #[cfg(not(Py_GIL_DISABLED))]
    running: Cell<Option<(*const Handle, *mut ffi::PyObject)>>,
}

impl Snapshots {
    pub(super) fn new(known: bool) -> Self {
        #[cfg(Py_GIL_DISABLED)]
        let _ = known;
        Self {
            #[cfg(not(Py_GIL_DISABLED))]
            known,
            ..Self::default()
        }
    }

    /// A context with the values of this thread's, and whether it is shared.
    pub(super) fn capture(&self) -> Result<(Object, bool), Raised> {
        #[cfg(not(Py_GIL_DISABLED))]
        if self.known {
            // SAFETY: the places are known. A context that is null is made by the first copy.
            let now = unsafe {
                let now = current();
                if now.is_null() { 0 } else { values(now) as usize }
            };
            if now != 0
                && now == self.values.get()
                && let Some(base) = self.base.take()
            {
                self.base.set(Some(base.clone()));
                return Ok((base, true));
            }
            let base = copy_current()?;
            // SAFETY: a live context. The snapshot holds the values, so that their pointer stays theirs.
            self.values.set(unsafe { values(base.as_ptr()) } as usize);
            self.base.set(Some(base.clone()));
            return Ok((base, true));
        }
        copy_current().map(|context| (context, false))
    }

    /// A context to run a callback in that shares `base`. Given back by [`Entered::leave`].
    #[cfg(not(Py_GIL_DISABLED))]
    fn runner(&self, base: &Object) -> Result<Object, Raised> {
        // A snapshot of a single handle (the other reference is the caller's) can be entered itself. SAFETY: a live
        // context.
        if unsafe { ffi::Py_REFCNT(base.as_ptr()) } == 2 {
            return Ok(base.clone());
        }
        if let Some((of, runner)) = self.runner.take() {
            if of.as_ptr() == base.as_ptr() {
                return Ok(runner);
            }
            self.runner.set(Some((of, runner)));
        }
        // SAFETY: a live context.
        unsafe { Object::own(ffi::PyContext_Copy(base.as_ptr())) }
    }

    /// The context that a handle runs in now, if it runs.
    #[cfg(not(Py_GIL_DISABLED))]
    pub(super) fn of_running(&self, made: &Handle) -> Option<Object> {
        let (running, runner) = self.running.get()?;
        // SAFETY: the code that runs the handle holds it.
        if running == std::ptr::from_ref(made) { unsafe { Object::share(runner) }.ok() } else { None }
    }

    /// No context is shared on a free-threaded build.
    #[cfg(Py_GIL_DISABLED)]
    pub(super) fn of_running(&self, _: &Handle) -> Option<Object> {
        None
    }

    /// Shows its references to the collector.
    ///
    /// # Safety
    ///
    /// Called from `tp_traverse` with its arguments.
    pub(super) unsafe fn visit(&self, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
        // SAFETY: nothing else runs while the collector looks, so the cells may be read where they are.
        let (base, runner) = unsafe { (&*self.base.as_ptr(), &*self.runner.as_ptr()) };
        let runner = runner.iter().flat_map(|(of, runner)| [of, runner]);
        for object in base.iter().chain(runner) {
            // SAFETY: a live object, and the collector's own function.
            let answer = unsafe { visit(object.as_ptr(), arg) };
            if answer != 0 {
                return answer;
            }
        }
        0
    }

    pub(super) fn clear(&self) {
        #[cfg(not(Py_GIL_DISABLED))]
        self.values.set(0);
        drop((self.base.take(), self.runner.take()));
    }
}

fn copy_current() -> Result<Object, Raised> {
    // SAFETY: the thread is attached.
    unsafe { Object::own(ffi::PyContext_CopyCurrent()) }
}

/// A context that was entered for callbacks, until a callback has another one.
#[cfg(not(Py_GIL_DISABLED))]
pub(super) struct Entered {
    base: Object,
    runner: Object,
}

#[cfg(not(Py_GIL_DISABLED))]
impl Entered {
    /// Enters a runner of the shared context `base`.
    pub(super) fn enter(snapshots: &Snapshots, base: Object) -> Result<Self, Raised> {
        let runner = snapshots.runner(&base)?;
        // SAFETY: a live context that is not entered: it was made for this.
        if unsafe { ffi::PyContext_Enter(runner.as_ptr()) } != 0 {
            return Err(Raised);
        }
        Ok(Self { base, runner })
    }

    pub(super) fn is_of(&self, base: *mut ffi::PyObject) -> bool {
        self.base.as_ptr() == base && self.runner.as_ptr() != base
    }

    /// Before a callback: records the handle, whose context the callback may request.
    pub(super) fn begin(&self, snapshots: &Snapshots, running: *const Handle) {
        snapshots.running.set(Some((running, self.runner.as_ptr())));
    }

    /// After a callback: whether the next one may run in the same context.
    pub(super) fn is_clean(&self, snapshots: &Snapshots) -> bool {
        snapshots.running.set(None);
        // One reference is ours, one is the thread's that has entered it; a third would be a token's or a handle's.
        // SAFETY: the places are known, as there is a shared context; both are live.
        unsafe {
            ffi::Py_REFCNT(self.runner.as_ptr()) == 2
                && values(self.runner.as_ptr()) == values(self.base.as_ptr())
        }
    }

    /// Leaves it, and keeps it for reuse if it is unchanged.
    pub(super) fn leave(self, snapshots: &Snapshots) -> Result<(), Raised> {
        let clean = self.is_clean(snapshots) && self.runner.as_ptr() != self.base.as_ptr();
        // SAFETY: it was entered, and any context that was entered meanwhile was left.
        if unsafe { ffi::PyContext_Exit(self.runner.as_ptr()) } != 0 {
            return Err(Raised);
        }
        if clean {
            snapshots.runner.set(Some((self.base, self.runner)));
        }
        Ok(())
    }
}

/// Gives a handle its own context, the one that it ran in, so that the report of its error sees the values that it had
/// set.
#[cfg(not(Py_GIL_DISABLED))]
pub(super) fn keep(made: *mut Handle, entered: &Entered) {
    // SAFETY: a live handle.
    unsafe {
        let made = handle(made.cast());
        if made.has(SHARED) {
            let old = std::mem::replace(&mut made.context, entered.runner.clone().into_ptr());
            made.unset(SHARED);
            ffi::Py_XDECREF(old);
        }
    }
}
