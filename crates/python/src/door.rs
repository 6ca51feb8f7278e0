//! A module's definition as the interpreter at run time wants it.
//!
//! One compiled file may be loaded by interpreters that know different module slots, so the array of slots is made when
//! the module is first asked for.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

use pyo3_ffi as ffi;

use crate::forced_unwind;

/// Slot numbers that older headers do not know: they are looked at by interpreters of these versions and later only.
const MULTIPLE_INTERPRETERS: c_int = 3;
const GIL: c_int = 4;

/// What a door needs to know of its module: multi-phase, all state in the module, no static types.
pub(crate) struct Door {
    pub(crate) name: &'static CStr,
    pub(crate) doc: &'static CStr,
    /// Bytes of state, zeroed before `exec` runs.
    pub(crate) state: usize,
    /// Ends with zeros, and is never changed.
    pub(crate) methods: &'static [ffi::PyMethodDef],
    pub(crate) exec: unsafe extern "C" fn(*mut ffi::PyObject) -> c_int,
    pub(crate) traverse: ffi::traverseproc,
    pub(crate) clear: ffi::inquiry,
    pub(crate) free: ffi::freefunc,
}

/// The definition, made once and kept for ever.
pub(crate) struct Definition(OnceLock<usize>);

impl Definition {
    pub(crate) const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// The module that a type, or the nearest of its bases, was made for, borrowed.
    ///
    /// # Safety
    ///
    /// `kind` is a live heap type.
    pub(crate) unsafe fn module_of(&self, kind: *mut ffi::PyTypeObject) -> *mut ffi::PyObject {
        let Some(&definition) = self.0.get() else { return ptr::null_mut() };
        // SAFETY: the caller's; the definition lives for ever.
        unsafe { ffi::PyType_GetModuleByDef(kind, definition as *mut ffi::PyModuleDef) }
    }

    /// What a `PyInit_` function returns.
    pub(crate) fn init(&self, door: Door) -> *mut ffi::PyObject {
        if !forced_unwind::is_in_place() {
            // SAFETY: a live exception class and a C string, which is copied.
            unsafe { ffi::PyErr_SetString(ffi::PyExc_ImportError, forced_unwind::NOT_IN_PLACE.as_ptr()) };
            return ptr::null_mut();
        }
        let definition = *self.0.get_or_init(|| {
            // SAFETY: a constant of the running interpreter, set before any module is loaded.
            let version = unsafe { ffi::Py_Version };
            let slot = |slot: c_int, value: *mut c_void| ffi::PyModuleDef_Slot { slot, value };
            let mut slots = vec![slot(ffi::Py_mod_exec, door.exec as *mut c_void)];
            if version >= 0x030C_0000 {
                // 2: supported with a GIL for each interpreter.
                slots.push(slot(MULTIPLE_INTERPRETERS, ptr::without_provenance_mut(2)));
            }
            if version >= 0x030D_0000 {
                // 1: not used.
                slots.push(slot(GIL, ptr::without_provenance_mut(1)));
            }
            slots.push(slot(0, ptr::null_mut()));
            let definition = ffi::PyModuleDef {
                m_base: ffi::PyModuleDef_HEAD_INIT,
                m_name: door.name.as_ptr(),
                m_doc: door.doc.as_ptr(),
                m_size: ffi::Py_ssize_t::try_from(door.state).unwrap_or(0),
                m_methods: door.methods.as_ptr().cast_mut(),
                m_slots: Box::leak(slots.into_boxed_slice()).as_mut_ptr(),
                m_traverse: Some(door.traverse),
                m_clear: Some(door.clear),
                m_free: Some(door.free),
            };
            Box::into_raw(Box::new(definition)) as usize
        });
        // SAFETY: a complete definition that lives for ever.
        unsafe { ffi::PyModuleDef_Init(definition as *mut ffi::PyModuleDef) }
    }
}

/// Shows a module's references to the garbage collector: `m_traverse`.
///
/// # Safety
///
/// The references are live or null; `visit` and `arg` are what `m_traverse` was given.
pub(crate) unsafe fn visit_all<'a>(
    references: impl IntoIterator<Item = &'a mut *mut ffi::PyObject>,
    visit: ffi::visitproc,
    arg: *mut c_void,
) -> c_int {
    for reference in references {
        if !reference.is_null() {
            // SAFETY: the caller's.
            let answer = unsafe { visit(*reference, arg) };
            if answer != 0 {
                return answer;
            }
        }
    }
    0
}

/// Drops a module's references: `m_clear`.
///
/// # Safety
///
/// The references are owned, or null.
pub(crate) unsafe fn drop_all<'a>(references: impl IntoIterator<Item = &'a mut *mut ffi::PyObject>) {
    for reference in references {
        // SAFETY: the caller's; it is null from here on.
        unsafe { ffi::Py_XDECREF(std::mem::replace(reference, ptr::null_mut())) };
    }
}
