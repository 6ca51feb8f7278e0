//! The loop's clock: the system's monotonic one, or what a program has put in the place of `Loop.time`.
//!
//! asyncio calls `self.time()` wherever it needs the time, so a subclass, a test or a simulation may give the loop
//! another clock. Ours asks for an override where it needs the time: the attribute of an instance is noted when it is
//! set, and that of a class is looked up when the version of the class's attributes has changed.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use pyo3_ffi as ffi;

use super::loop_module::LoopModule;
use ropewalk_capi::object::{Object, Raised};

/// See the module. Attached threads may write it; each value is whole, and the last one is right.
#[derive(Default)]
pub(super) struct Clock {
    /// The instance has an attribute `time`.
    own: AtomicBool,
    /// The version of the class in which `of_class` was found; 0 for none.
    version: AtomicU32,
    /// The class's `time` is not ours.
    of_class: AtomicBool,
}

/// The version of a class's attributes, which changes when one of them does; 0 where the interpreter has none yet.
unsafe fn version_of(class: *mut ffi::PyTypeObject) -> u32 {
    // SAFETY: the caller has a live class. Other threads of a free-threaded build may write the word, which is aligned.
    unsafe { AtomicU32::from_ptr(&raw mut (*class).tp_version_tag) }.load(Ordering::Relaxed)
}

/// Nanoseconds of the system's monotonic clock.
pub(super) fn now() -> u64 {
    ropewalk_os::clock::monotonic_nanos()
}

/// The same, as `time.monotonic()` returns it.
pub(super) fn as_seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// A number of seconds.
///
/// # Safety
///
/// A live object.
pub(super) unsafe fn seconds(object: *mut ffi::PyObject) -> Result<f64, Raised> {
    // SAFETY: the caller's.
    unsafe {
        let seconds = ffi::PyFloat_AsDouble(object);
        if seconds == -1.0 && !ffi::PyErr_Occurred().is_null() { Err(Raised) } else { Ok(seconds) }
    }
}

impl Clock {
    /// The instance's attribute `time` was set or deleted.
    pub(super) fn set_own(&self, own: bool) {
        self.own.store(own, Ordering::Relaxed);
    }

    /// Whether the program has replaced the clock.
    ///
    /// # Safety
    ///
    /// `owner` is the live loop of this clock.
    #[inline]
    pub(super) unsafe fn is_replaced(
        &self,
        owner: *mut ffi::PyObject,
        state: &LoopModule,
    ) -> Result<bool, Raised> {
        // SAFETY: the caller's.
        let version = unsafe { version_of(ffi::Py_TYPE(owner)) };
        if version == 0 || version != self.version.load(Ordering::Relaxed) {
            // SAFETY: the caller's.
            unsafe { self.look_up(owner, state)? };
        }
        Ok(self.own.load(Ordering::Relaxed) || self.of_class.load(Ordering::Relaxed))
    }

    /// Looks the class's `time` up, which gives the class a version.
    #[cold]
    unsafe fn look_up(&self, owner: *mut ffi::PyObject, state: &LoopModule) -> Result<(), Raised> {
        // SAFETY: the caller's; a class has at least the attribute of ours.
        unsafe {
            let class = ffi::Py_TYPE(owner);
            let found = Object::own(ffi::PyObject_GetAttr(class.cast(), state.names.time))?;
            self.of_class.store(found.as_ptr() != state.time, Ordering::Relaxed);
            self.version.store(version_of(class), Ordering::Relaxed);
        }
        Ok(())
    }

    /// The loop's time in seconds. `nanos` is that of the system's clock.
    ///
    /// # Safety
    ///
    /// `owner` is the live loop of this clock; no guard lives.
    #[inline]
    pub(super) unsafe fn seconds(
        &self,
        owner: *mut ffi::PyObject,
        state: &LoopModule,
        nanos: u64,
    ) -> Result<f64, Raised> {
        // SAFETY: the caller's.
        unsafe {
            if !self.is_replaced(owner, state)? {
                return Ok(as_seconds(nanos));
            }
            let time = Object::own(ffi::PyObject_CallMethodNoArgs(owner, state.names.time))?;
            seconds(time.as_ptr())
        }
    }
}
