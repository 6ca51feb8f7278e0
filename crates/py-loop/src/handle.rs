//! `Handle` and `TimerHandle`: a call that was scheduled once.
//!
//! They are subclasses of asyncio's classes and keep to their layout. Python code reads their slots through getters, so
//! that most slots need not be filled: a single argument needs no tuple, and a context is shared until Python code asks
//! for it. The garbage collector does not track a handle while the loop owns it; the loop traverses its content instead
//! (see `loop_type`). When the loop releases a handle that other code still holds, the collector begins to track it.
//! Handles reuse memory (see `spare`).
//!
//! On a free-threaded build one bit of the flags is a lock: one thread may read what a handle holds, or drop it by
//! `cancel`, while the loop takes it out in another.

use std::ffi::{c_int, c_void};
#[cfg(Py_GIL_DISABLED)]
use std::ptr::NonNull;
use std::ptr::{self, null_mut};
use std::sync::atomic::Ordering;
use std::time::Duration;

use pyo3_ffi as ffi;
#[cfg(Py_GIL_DISABLED)]
use ropewalk_reactor::{Link, Linked};
use ropewalk_sync::futex::Futex;

use super::loop_module::LoopModule;
use super::status::{Status, this_thread};
use ropewalk_capi::entry;
use ropewalk_capi::heap;
use ropewalk_capi::object::Raised;

/// The handle was cancelled.
pub(super) const CANCELLED: u32 = 1;
/// The context is shared: it must be copied before code other than a callback can see it.
pub(super) const SHARED: u32 = 2;
/// `args` is the one argument itself, not a tuple.
pub(super) const ONE: u32 = 4;
/// In the heap of timers.
pub(super) const TIMED: u32 = 8;
/// Runs again and again, for a descriptor: its content stays.
pub(super) const LASTING: u32 = 16;
/// Of `call_soon_threadsafe`, from 3.14 on: `cancel` of another thread waits while it runs.
pub(super) const THREAD_SAFE: u32 = 32;
const RUNNING: u32 = 64;
/// Another thread waits for the end of its run.
const AWAITED: u32 = 128;
/// The time of a timer was given as an `int`, and is shown as one.
pub(super) const WHOLE: u32 = 256;
#[cfg(Py_GIL_DISABLED)]
const LOCKED: u32 = 1 << 31;

/// `asyncio.TimerHandle`'s layout, slots in the order of their names, then our fields. A plain handle has the two slots
/// of a timer as well, and leaves them empty.
#[repr(C)]
pub(super) struct Handle {
    head: ffi::PyObject,
    pub(super) args: *mut ffi::PyObject,
    pub(super) callback: *mut ffi::PyObject,
    pub(super) cancelled: *mut ffi::PyObject,
    pub(super) context: *mut ffi::PyObject,
    pub(super) owner: *mut ffi::PyObject,
    pub(super) repr: *mut ffi::PyObject,
    pub(super) source_traceback: *mut ffi::PyObject,
    #[cfg(not(Py_3_12))]
    weak_references: *mut ffi::PyObject,
    scheduled: *mut ffi::PyObject,
    when_slot: *mut ffi::PyObject,
    #[cfg(Py_GIL_DISABLED)]
    link: Link<Self>,
    /// Seconds of the loop's clock.
    pub(super) when: f64,
    pub(super) flags: Futex,
}

/// The length of a sleep before the next check.
const LONG: Duration = Duration::from_secs(1);

/// Where the first slot of a timer stands: the size of a plain handle of asyncio.
pub(super) const PLAIN: usize = std::mem::offset_of!(Handle, scheduled);
pub(super) const TIMER: usize = std::mem::offset_of!(Handle, when_slot) + size_of::<*mut ffi::PyObject>();

// SAFETY: the field of the handle.
#[cfg(Py_GIL_DISABLED)]
unsafe impl Linked for Handle {
    unsafe fn link<'a>(node: NonNull<Self>) -> &'a Link<Self> {
        // SAFETY: the caller's.
        unsafe { &(*node.as_ptr()).link }
    }
}

impl Handle {
    pub(super) fn has(&self, flag: u32) -> bool {
        self.flags.load(Ordering::Relaxed) & flag != 0
    }

    pub(super) fn set(&self, flag: u32) {
        // Where there is an interpreter lock, no other thread writes between the two.
        if cfg!(Py_GIL_DISABLED) {
            self.flags.fetch_or(flag, Ordering::AcqRel);
        } else {
            self.flags.store(self.flags.load(Ordering::Relaxed) | flag, Ordering::Relaxed);
        }
    }

    pub(super) fn unset(&self, flag: u32) {
        if cfg!(Py_GIL_DISABLED) {
            self.flags.fetch_and(!flag, Ordering::AcqRel);
        } else {
            self.flags.store(self.flags.load(Ordering::Relaxed) & !flag, Ordering::Relaxed);
        }
    }

    /// Runs it, while a `cancel` in other threads waits.
    pub(super) fn while_running<R>(made: *mut Self, act: impl FnOnce() -> R) -> R {
        // SAFETY: a live handle.
        unsafe { (*made).set(RUNNING) };
        let result = act();
        // SAFETY: as above.
        let this = unsafe { &*made };
        // Where there is an interpreter lock, other threads write between the two no more than in `set`.
        let before = if cfg!(Py_GIL_DISABLED) {
            this.flags.fetch_and(!(RUNNING | AWAITED), Ordering::AcqRel)
        } else {
            let before = this.flags.load(Ordering::Relaxed);
            this.flags.store(before & !(RUNNING | AWAITED), Ordering::Release);
            before
        };
        if before & AWAITED != 0 {
            this.flags.wake_all();
        }
        result
    }

    /// Waits while another thread runs it, if that matters, with the interpreter released.
    pub(super) fn wait_if_running_elsewhere(&self) {
        // SAFETY: a live loop, which the handle holds.
        let elsewhere = self.has(THREAD_SAFE)
            && !self.owner.is_null()
            && unsafe { Status::of(self.owner) }.thread() != this_thread();
        if !elsewhere {
            return;
        }
        while self.has(RUNNING) {
            let seen = self.flags.fetch_or(AWAITED, Ordering::AcqRel) | AWAITED;
            if seen & RUNNING != 0 {
                let _ = ropewalk_capi::object::detached(|| self.flags.wait_while(seen, Some(LONG)));
            }
        }
    }

    /// Accesses the content, briefly and without running Python code.
    pub(super) fn locked<R>(&mut self, act: impl FnOnce(&mut Self) -> R) -> R {
        #[cfg(Py_GIL_DISABLED)]
        ropewalk_sync::spin::until(|| self.flags.fetch_or(LOCKED, Ordering::Acquire) & LOCKED == 0);
        let result = act(self);
        #[cfg(Py_GIL_DISABLED)]
        self.flags.fetch_and(!LOCKED, Ordering::Release);
        result
    }

    /// Takes callback and arguments out.
    pub(super) fn take(&mut self) -> (*mut ffi::PyObject, *mut ffi::PyObject, bool) {
        self.locked(|handle| {
            let one = handle.has(ONE);
            (
                std::mem::replace(&mut handle.callback, null_mut()),
                std::mem::replace(&mut handle.args, null_mut()),
                one,
            )
        })
    }
}

/// The handle behind a reference.
///
/// # Safety
///
/// `object` is a live handle of ours. The reference is used briefly: other threads reach the same handle, and what they
/// may touch meanwhile is guarded by `locked`.
pub(super) unsafe fn handle<'a>(object: *mut ffi::PyObject) -> &'a mut Handle {
    // SAFETY: the caller's.
    unsafe { &mut *object.cast::<Handle>() }
}

/// The parts of a new handle. It takes all references over; `context` may be null with `SHARED` unset.
pub(super) struct Content {
    pub(super) callback: *mut ffi::PyObject,
    pub(super) args: *mut ffi::PyObject,
    pub(super) context: *mut ffi::PyObject,
    pub(super) flags: u32,
    pub(super) when: f64,
}

/// The type of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Plain,
    Timer,
    /// Of `call_soon_threadsafe`; a type of its own from 3.14 on.
    ThreadSafe,
}

impl Kind {
    #[cfg(not(Py_GIL_DISABLED))]
    fn of(state: &LoopModule, kind: *mut ffi::PyTypeObject) -> Self {
        if kind.cast() == state.timer_type {
            Self::Timer
        } else if kind.cast() == state.handle_type {
            Self::Plain
        } else {
            Self::ThreadSafe
        }
    }

    /// The list of spare memory of such handles: one for each type.
    #[cfg(not(Py_GIL_DISABLED))]
    fn list(self) -> usize {
        match self {
            Self::Plain => 0,
            Self::Timer => 1,
            Self::ThreadSafe if cfg!(Py_3_14) => 2,
            Self::ThreadSafe => 0,
        }
    }

    /// The initial flags of such handles.
    pub(super) fn flags(self) -> u32 {
        match self {
            Self::Plain => 0,
            Self::Timer => TIMED,
            Self::ThreadSafe if cfg!(Py_3_14) => THREAD_SAFE,
            Self::ThreadSafe => 0,
        }
    }
}

/// Makes a handle of a loop. On failure the content is released.
///
/// # Safety
///
/// `state` is of the live module, `owner` a live loop, the content's references are owned.
pub(super) unsafe fn make(
    state: &mut LoopModule,
    owner: *mut ffi::PyObject,
    content: Content,
    kind: Kind,
) -> Result<*mut Handle, Raised> {
    // SAFETY: the types are ours and their objects have this layout; memory of the list had the same type. What is
    // written is every field, so that no old one is read.
    unsafe {
        #[cfg(not(Py_GIL_DISABLED))]
        let list = kind.list();
        let kind: *mut ffi::PyTypeObject = match kind {
            Kind::Plain => state.handle_type,
            Kind::Timer => state.timer_type,
            Kind::ThreadSafe => state.thread_safe_type,
        }
        .cast();
        #[cfg(not(Py_GIL_DISABLED))]
        let old = state.spare.as_mut().and_then(|spare| spare.pop(list));
        #[cfg(Py_GIL_DISABLED)]
        let old = None;
        let object = match old {
            Some(object) => ffi::PyObject_Init(object, kind),
            None => super::compat::new_untracked(kind),
        };
        if object.is_null() {
            ffi::Py_XDECREF(content.callback);
            ffi::Py_XDECREF(content.args);
            ffi::Py_XDECREF(content.context);
            return Err(Raised);
        }
        ffi::Py_INCREF(owner);
        let made = object.cast::<Handle>();
        (*made).args = content.args;
        (*made).callback = content.callback;
        (*made).cancelled = null_mut();
        (*made).context = content.context;
        (*made).owner = owner;
        (*made).repr = null_mut();
        (*made).source_traceback = null_mut();
        #[cfg(not(Py_3_12))]
        {
            (*made).weak_references = null_mut();
        }
        (*made).scheduled = null_mut();
        (*made).when_slot = null_mut();
        #[cfg(Py_GIL_DISABLED)]
        ptr::write(&raw mut (*made).link, Link::new());
        (*made).when = content.when;
        ptr::write(&raw mut (*made).flags, Futex::new(content.flags));
        // See `LoopCore::show_kept`: the caller may keep the handle.
        if Status::of(owner).thread() == 0 {
            ffi::PyObject_GC_Track(object.cast());
        }
        Ok(made)
    }
}

/// Releases a reference of the loop. The garbage collector begins to track a handle that other code keeps.
///
/// # Safety
///
/// The reference is owned; the thread is attached.
pub(super) unsafe fn release(made: *mut Handle) {
    // SAFETY: the caller's.
    unsafe {
        show_if_kept(made);
        ffi::Py_DECREF(made.cast());
    }
}

/// Tracks a handle that code beside the loop holds.
///
/// # Safety
///
/// It is live; the thread is attached.
pub(super) unsafe fn show_if_kept(made: *mut Handle) {
    let object = made.cast::<ffi::PyObject>();
    // SAFETY: a live object of a type that the collector knows.
    unsafe {
        if ffi::Py_REFCNT(object) > 1 && ffi::PyObject_GC_IsTracked(object) == 0 {
            ffi::PyObject_GC_Track(object.cast());
        }
    }
}

#[entry]
pub(super) unsafe extern "C" fn dealloc(object: *mut ffi::PyObject) {
    // SAFETY: the last reference is gone, so no other code reaches the handle; an object of a heap type holds its type.
    // References are dropped once. After the weak references are cleared nothing leads here.
    unsafe {
        if ffi::PyObject_GC_IsTracked(object) != 0 {
            ffi::PyObject_GC_UnTrack(object.cast());
        }
        let kind = ffi::Py_TYPE(object);
        // The list of weak references is before the object or in it, depending on the version.
        if !object.byte_offset((*kind).tp_weaklistoffset).cast::<*mut c_void>().read().is_null() {
            ffi::PyObject_ClearWeakRefs(object);
        }
        #[cfg(not(Py_GIL_DISABLED))]
        let state = {
            let owner = handle(object).owner;
            if owner.is_null() {
                super::loop_module::state_of(kind)
            } else {
                Status::of(owner).module.as_mut()
            }
        };
        drop_content(&mut *object.cast());
        #[cfg(not(Py_GIL_DISABLED))]
        if let Some(state) = state
            && let Some(spare) = state.spare.as_mut()
            && spare.keep(Kind::of(state, kind).list(), object)
        {
            ffi::Py_DECREF(kind.cast());
            return;
        }
        ffi::PyObject_GC_Del(object.cast());
        ffi::Py_DECREF(kind.cast());
    }
}

fn drop_content(made: &mut Handle) {
    let fields = made.locked(|made| {
        [
            &mut made.args,
            &mut made.callback,
            &mut made.context,
            &mut made.owner,
            &mut made.repr,
            &mut made.source_traceback,
        ]
        .map(|field| std::mem::replace(field, null_mut()))
    });
    for field in fields {
        // SAFETY: the reference that the field held.
        unsafe { ffi::Py_XDECREF(field) };
    }
}

/// Shows a handle's references to the collector: from its own `tp_traverse`, or from the loop's as long as only the
/// loop has it.
///
/// # Safety
///
/// Called by the collector, with what it gave.
pub(super) unsafe fn visit_content(made: &Handle, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    let fields = [made.args, made.callback, made.context, made.owner, made.source_traceback];
    for field in fields {
        if !field.is_null() {
            // SAFETY: a live object, and the collector's own function.
            let answer = unsafe { visit(field, arg) };
            if answer != 0 {
                return answer;
            }
        }
    }
    0
}

#[entry]
pub(super) unsafe extern "C" fn traverse(
    object: *mut ffi::PyObject,
    visit: ffi::visitproc,
    arg: *mut c_void,
) -> c_int {
    // SAFETY: a live handle, and what the collector gave.
    unsafe {
        let answer = visit_content(handle(object), visit, arg);
        if answer != 0 { answer } else { heap::visit_type(object, visit, arg) }
    }
}

#[entry]
pub(super) unsafe extern "C" fn clear(object: *mut ffi::PyObject) -> c_int {
    // SAFETY: a live handle that is garbage. The reference to its loop stays, because a getter may still be called.
    drop_content(unsafe { handle(object) });
    0
}
