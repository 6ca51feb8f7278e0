//! An extension module in the plain C API: its definition, and its state in each interpreter.
//!
//! Multi-phase initialisation, all state in the module and no static types: such a module can be loaded by every
//! interpreter of a process. One compiled file may be loaded by interpreters that know different module slots, so the
//! definition is made when the module is first imported.

use std::ffi::{CStr, c_int, c_void};
use std::marker::PhantomData;
use std::ptr;
use std::sync::OnceLock;

use pyo3_ffi as ffi;

use crate::entry::entry;
use crate::forced_unwind;
use crate::object::{Object, Raised};

/// Slot numbers that older headers lack; only interpreters of these versions and later read them.
const MULTIPLE_INTERPRETERS: c_int = 3;
const GIL: c_int = 4;

/// A module's state in one interpreter.
///
/// # Safety
///
/// All zeros is a valid value of the type, and [`references`](State::references) yields every reference that it owns.
pub unsafe trait State: Sized + 'static {
    /// Every reference in the state, null or owned: the garbage collector visits them, and they are dropped at the end.
    fn references(&mut self) -> impl Iterator<Item = &mut *mut ffi::PyObject>;

    /// The functions of the module.
    #[must_use]
    fn functions() -> Vec<ffi::PyMethodDef> {
        Vec::new()
    }

    /// Fills the state, and adds the public names to the new module.
    ///
    /// # Errors
    ///
    /// An exception is set, which the import raises.
    fn fill(&mut self, module: &Object) -> Result<(), Raised>;

    /// Frees resources that are not references, before the references are dropped. Called more than once.
    fn free(&mut self) {}
}

/// A module whose state is an `S`, made once and kept for ever.
#[derive(Debug)]
pub struct Module<S> {
    name: &'static CStr,
    doc: &'static CStr,
    /// The definition's address, once the module was imported.
    definition: OnceLock<usize>,
    state: PhantomData<fn() -> S>,
}

impl<S: State> Module<S> {
    /// A module with this name, without its package.
    #[must_use]
    pub const fn new(name: &'static CStr, doc: &'static CStr) -> Self {
        Self { name, doc, definition: OnceLock::new(), state: PhantomData }
    }

    /// The return value of a `PyInit_` function.
    pub fn init(&self) -> *mut ffi::PyObject {
        if let Err(Raised) = forced_unwind::check() {
            return ptr::null_mut();
        }
        let definition = *self.definition.get_or_init(|| self.define() as usize);
        // SAFETY: a complete definition that lives for ever.
        unsafe { ffi::PyModuleDef_Init(definition as *mut ffi::PyModuleDef) }
    }

    fn define(&self) -> *mut ffi::PyModuleDef {
        // SAFETY: a constant of the running interpreter, set before any module is loaded.
        let version = unsafe { ffi::Py_Version };
        let slot = |slot: c_int, value: *mut c_void| ffi::PyModuleDef_Slot { slot, value };
        let mut slots = vec![slot(ffi::Py_mod_exec, exec::<S> as *mut c_void)];
        if version >= 0x030C_0000 {
            // 2: supported with a GIL for each interpreter.
            slots.push(slot(MULTIPLE_INTERPRETERS, ptr::without_provenance_mut(2)));
        }
        if version >= 0x030D_0000 {
            // 1: not used.
            slots.push(slot(GIL, ptr::without_provenance_mut(1)));
        }
        slots.push(slot(0, ptr::null_mut()));
        let mut functions = S::functions();
        // SAFETY: a table ends with zeros.
        functions.push(unsafe { std::mem::zeroed() });
        Box::into_raw(Box::new(ffi::PyModuleDef {
            m_base: ffi::PyModuleDef_HEAD_INIT,
            m_name: self.name.as_ptr(),
            m_doc: self.doc.as_ptr(),
            m_size: size_of::<S>() as ffi::Py_ssize_t,
            m_methods: Box::leak(functions.into_boxed_slice()).as_mut_ptr(),
            m_slots: Box::leak(slots.into_boxed_slice()).as_mut_ptr(),
            m_traverse: Some(traverse::<S>),
            m_clear: Some(clear::<S>),
            m_free: Some(free::<S>),
        }))
    }

    /// The state of a module that this definition made; `None` before the interpreter has allocated it.
    ///
    /// # Safety
    ///
    /// `module` is such a module, and alive for as long as the state is used; only one reference at a time is used for
    /// writing.
    #[inline]
    #[must_use]
    pub unsafe fn state<'a>(&self, module: *mut ffi::PyObject) -> Option<&'a mut S> {
        // SAFETY: the caller's.
        unsafe { state(module) }
    }

    /// The state of the module that a type was made for.
    ///
    /// # Safety
    ///
    /// `kind` is one of the module's own types, and no subtype of one; as for [`state`](Self::state).
    #[inline]
    #[must_use]
    pub unsafe fn state_of<'a>(&self, kind: *mut ffi::PyTypeObject) -> Option<&'a mut S> {
        // SAFETY: the caller's; null once the module is gone.
        unsafe { ffi::PyType_GetModuleState(kind).cast::<S>().as_mut() }
    }

    /// The state of the module that a type, or the nearest of its bases, was made for. If there is none, an exception
    /// is set.
    ///
    /// # Safety
    ///
    /// `kind` is a live heap type; as for [`state`](Self::state).
    #[must_use]
    pub unsafe fn state_of_base<'a>(&self, kind: *mut ffi::PyTypeObject) -> Option<&'a mut S> {
        let definition = *self.definition.get()?;
        // SAFETY: the caller's; the definition lives for ever.
        unsafe {
            let module = ffi::PyType_GetModuleByDef(kind, definition as *mut ffi::PyModuleDef);
            if module.is_null() { None } else { state(module) }
        }
    }
}

/// Adds an object to a fresh module under a name.
///
/// # Errors
///
/// An exception is set.
///
/// # Safety
///
/// `object` is live; the module takes its own reference to it.
pub unsafe fn add(module: &Object, name: &CStr, object: *mut ffi::PyObject) -> Result<(), Raised> {
    // SAFETY: the caller's.
    if unsafe { ffi::PyModule_AddObjectRef(module.as_ptr(), name.as_ptr(), object) } == 0 {
        Ok(())
    } else {
        Err(Raised)
    }
}

/// Refuses to load a module that is written with pyo3 into any but the main interpreter: pyo3 would load it without an
/// error and share its type objects between interpreters, which is unsound. `instead` is the message for the user.
///
/// # Errors
///
/// An `ImportError` is set.
pub fn check_main_interpreter(instead: &CStr) -> Result<(), Raised> {
    forced_unwind::check()?;
    // SAFETY: the thread is attached, because this runs during an import; a live exception class and a C string, which
    // is copied.
    unsafe {
        if ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) == 0 {
            return Ok(());
        }
        ffi::PyErr_SetString(ffi::PyExc_ImportError, instead.as_ptr());
    }
    Err(Raised)
}

/// # Safety
///
/// As [`Module::state`].
#[inline]
unsafe fn state<'a, S: State>(module: *mut ffi::PyObject) -> Option<&'a mut S> {
    // SAFETY: the interpreter allocated a zeroed `S`, which is a valid value; the pointer is null before that.
    unsafe { ffi::PyModule_GetState(module).cast::<S>().as_mut() }
}

#[entry]
unsafe extern "C" fn exec<S: State>(module: *mut ffi::PyObject) -> c_int {
    // SAFETY: a new module of ours, which no other code sees yet.
    let filled = unsafe {
        let Some(state) = state::<S>(module) else { return -1 };
        Object::share(module).and_then(|module| state.fill(&module))
    };
    if filled.is_ok() { 0 } else { -1 }
}

#[entry]
unsafe extern "C" fn traverse<S: State>(
    module: *mut ffi::PyObject,
    visit: ffi::visitproc,
    arg: *mut c_void,
) -> c_int {
    // SAFETY: a module of ours; its state may not be there yet.
    let Some(state) = (unsafe { state::<S>(module) }) else { return 0 };
    for reference in state.references() {
        if !reference.is_null() {
            // SAFETY: a reference that the state holds, and the collector's own function.
            let answer = unsafe { visit(*reference, arg) };
            if answer != 0 {
                return answer;
            }
        }
    }
    0
}

#[entry]
unsafe extern "C" fn clear<S: State>(module: *mut ffi::PyObject) -> c_int {
    // SAFETY: a module of ours; its state may not be there yet.
    if let Some(state) = unsafe { state::<S>(module) } {
        state.free();
        for reference in state.references() {
            // SAFETY: a reference that the state owned, or null; it is null from here on.
            drop(unsafe { Object::own(std::mem::replace(reference, ptr::null_mut())) });
        }
    }
    0
}

#[entry]
unsafe extern "C" fn free<S: State>(module: *mut c_void) {
    // SAFETY: as `clear`.
    unsafe { clear::<S>(module.cast()) };
}
