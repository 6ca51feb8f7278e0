//! Heap types in the plain C API: their tables, their memory, their fields.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;

use pyo3_ffi as ffi;

use crate::entry::entry;
use crate::object::{Object, Raised};

/// An object of ours: the interpreter's head, then our content.
#[repr(C)]
pub struct Layout<T> {
    head: ffi::PyObject,
    content: T,
}

/// The content of an object of ours.
///
/// # Safety
///
/// `object` is of a type that was made with `make_type::<T>`, its content is written, and it lives while the
/// reference does.
#[inline]
#[must_use]
pub unsafe fn content<'a, T>(object: *mut ffi::PyObject) -> &'a T {
    // SAFETY: the caller's.
    unsafe { &(*object.cast::<Layout<T>>()).content }
}

/// Makes an object and writes its content.
///
/// # Safety
///
/// `kind` is a type that was made with `make_type::<T>`, or a subtype of one.
#[inline]
pub unsafe fn make<T>(kind: *mut ffi::PyTypeObject, content: T) -> Result<Object, Raised> {
    // SAFETY: tp_alloc gives memory of at least the type's basic size. From here on the collector knows an object of a
    // type with a collector's head, but it cannot run before the content is written.
    unsafe {
        let Some(alloc) = (*kind).tp_alloc else { return Err(Raised) };
        let object = alloc(kind, 0);
        if object.is_null() {
            return Err(Raised);
        }
        ptr::write(&raw mut (*object.cast::<Layout<T>>()).content, content);
        Object::own(object)
    }
}

/// `tp_dealloc` of a type whose content is `T` and that takes part in garbage collection.
///
/// # Safety
///
/// Called by the interpreter, once, with the last reference gone.
#[entry]
pub unsafe extern "C" fn dealloc<T>(object: *mut ffi::PyObject) {
    // SAFETY: the caller's.
    unsafe {
        ffi::PyObject_GC_UnTrack(object.cast());
        free::<T>(object);
    }
}

/// `tp_dealloc` of a type whose content is `T` and that takes no part in garbage collection.
///
/// # Safety
///
/// As of [`dealloc`].
#[entry]
pub unsafe extern "C" fn dealloc_untracked<T>(object: *mut ffi::PyObject) {
    // SAFETY: the caller's.
    unsafe { free::<T>(object) }
}

/// Drops the content of an object and gives its memory back.
///
/// # Safety
///
/// As of [`dealloc`], and the collector does not know the object.
unsafe fn free<T>(object: *mut ffi::PyObject) {
    // SAFETY: the caller's; an object of a heap type holds its type.
    unsafe {
        let kind = ffi::Py_TYPE(object);
        drop(ptr::read(&raw const (*object.cast::<Layout<T>>()).content));
        if let Some(free) = (*kind).tp_free {
            free(object.cast());
        }
        ffi::Py_DECREF(kind.cast());
    }
}

/// A reference in a field of an object: visited by the collector, and dropped with the object.
///
/// The collector clears it to break a cycle; it is null afterwards.
#[derive(Debug)]
pub struct Field(std::cell::Cell<*mut ffi::PyObject>);

// SAFETY: only attached threads touch fields, and any attached thread may change a reference count. A field is written
// when its object is made, and when no other thread has the object any more.
unsafe impl Send for Field {}
// SAFETY: as above.
unsafe impl Sync for Field {}

impl Field {
    /// A field with this object.
    #[inline]
    #[must_use]
    pub fn new(object: Object) -> Self {
        Self(std::cell::Cell::new(object.into_ptr()))
    }

    /// A field that holds nothing.
    #[must_use]
    pub const fn empty() -> Self {
        Self(std::cell::Cell::new(ptr::null_mut()))
    }

    /// The object, borrowed; null if there is none.
    #[inline]
    #[must_use]
    pub fn get(&self) -> *mut ffi::PyObject {
        self.0.get()
    }

    /// A new reference to the object, if there is one.
    #[inline]
    #[must_use]
    pub fn share(&self) -> Option<Object> {
        let object = self.get();
        if object.is_null() {
            return None;
        }
        // SAFETY: a live object that the field holds.
        unsafe { Object::share(object) }.ok()
    }

    /// Shows the object to the garbage collector.
    ///
    /// # Safety
    ///
    /// Called from `tp_traverse` with its arguments.
    #[inline]
    pub unsafe fn visit(&self, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
        let object = self.get();
        // SAFETY: a live object.
        if object.is_null() { 0 } else { unsafe { visit(object, arg) } }
    }

    /// Replaces the object. Only this thread has the field's owner.
    #[inline]
    pub fn set(&self, object: Object) {
        drop(self.take());
        self.0.set(object.into_ptr());
    }

    /// Takes the object out. Only this thread has the field's owner.
    #[inline]
    pub fn take(&self) -> Option<Object> {
        // SAFETY: the reference that the field held.
        unsafe { Object::own(self.0.replace(ptr::null_mut())) }.ok()
    }
}

impl Clone for Field {
    fn clone(&self) -> Self {
        let object = self.get();
        // SAFETY: a live object or null; the thread is attached.
        unsafe { ffi::Py_XINCREF(object) };
        Self(std::cell::Cell::new(object))
    }
}

impl Drop for Field {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// Shows fields to the garbage collector.
///
/// # Safety
///
/// Called from `tp_traverse` with what that was given.
#[inline]
pub unsafe fn visit_fields(fields: &[&Field], visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    for field in fields {
        // SAFETY: the caller's.
        let answer = unsafe { field.visit(visit, arg) };
        if answer != 0 {
            return answer;
        }
    }
    0
}

/// Shows the type of an object to the collector, as heap types must.
///
/// # Safety
///
/// Called from `tp_traverse` with its arguments.
#[inline]
pub unsafe fn visit_type(object: *mut ffi::PyObject, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    // SAFETY: a live object's type is live.
    unsafe { visit(ffi::Py_TYPE(object).cast(), arg) }
}

/// The parts of a heap type.
pub struct Type<'a> {
    /// The name with its module: `ropewalk._bus.Bus`.
    pub name: &'static CStr,
    /// The docstring.
    pub doc: &'static CStr,
    /// Flags beside the defaults.
    pub flags: std::ffi::c_ulong,
    /// Methods, made with [`method`] and its siblings.
    pub methods: Vec<ffi::PyMethodDef>,
    /// Properties, made with [`getter`].
    pub getters: Vec<ffi::PyGetSetDef>,
    /// Slots by number.
    pub slots: &'a [(c_int, *mut c_void)],
}

/// Makes a heap type whose objects hold a `T`, once in each interpreter.
///
/// # Errors
///
/// An exception is set.
pub fn make_type<T>(module: &Object, kind: Type<'_>) -> Result<Object, Raised> {
    make_sized_type(module, kind, size_of::<Layout<T>>() as c_int, None)
}

/// Makes a heap type that belongs to no module: one that several modules of an interpreter share.
///
/// # Errors
///
/// An exception is set.
pub fn make_type_apart<T>(kind: Type<'_>) -> Result<Object, Raised> {
    assemble(ptr::null_mut(), kind, size_of::<Layout<T>>() as c_int, None)
}

/// Makes a heap type whose objects have this many bytes, on a base other than `object` if one is given.
///
/// # Errors
///
/// An exception is set.
pub fn make_sized_type(
    module: &Object,
    kind: Type<'_>,
    size: c_int,
    base: Option<&Object>,
) -> Result<Object, Raised> {
    assemble(module.as_ptr(), kind, size, base)
}

/// `module` is live, or null for a type that belongs to none.
fn assemble(
    module: *mut ffi::PyObject,
    kind: Type<'_>,
    size: c_int,
    base: Option<&Object>,
) -> Result<Object, Raised> {
    let slot = |slot: c_int, pfunc: *mut c_void| ffi::PyType_Slot { slot, pfunc };
    let mut slots = vec![slot(ffi::Py_tp_doc, kind.doc.as_ptr().cast_mut().cast())];
    // The tables of methods and getters must outlive the type, so they are leaked: a few small tables for each
    // interpreter.
    if !kind.methods.is_empty() {
        let mut methods = kind.methods;
        // SAFETY: a table ends with zeros.
        methods.push(unsafe { std::mem::zeroed() });
        slots.push(slot(ffi::Py_tp_methods, Box::leak(methods.into_boxed_slice()).as_mut_ptr().cast()));
    }
    if !kind.getters.is_empty() {
        let mut getters = kind.getters;
        // SAFETY: as above.
        getters.push(unsafe { std::mem::zeroed() });
        slots.push(slot(ffi::Py_tp_getset, Box::leak(getters.into_boxed_slice()).as_mut_ptr().cast()));
    }
    slots.extend(kind.slots.iter().map(|&(number, pointer)| slot(number, pointer)));
    slots.push(slot(0, ptr::null_mut()));
    let mut spec = ffi::PyType_Spec {
        name: kind.name.as_ptr(),
        basicsize: size,
        itemsize: 0,
        flags: (ffi::Py_TPFLAGS_DEFAULT | kind.flags) as _,
        slots: slots.as_mut_ptr(),
    };
    let base = base.map_or(ptr::null_mut(), Object::as_ptr);
    // SAFETY: a complete spec, whose tables outlive the type; a live base class or none.
    unsafe { Object::own(ffi::PyType_FromModuleAndSpec(module, &raw mut spec, base)) }
}

/// A method without arguments, or with one.
pub fn method(
    name: &'static CStr,
    function: ffi::PyCFunction,
    flags: c_int,
    doc: &'static CStr,
) -> ffi::PyMethodDef {
    ffi::PyMethodDef {
        ml_name: name.as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunction: function },
        ml_flags: flags,
        ml_doc: doc.as_ptr(),
    }
}

/// A method that takes its arguments as an array, positional ones only.
pub fn fast_method(
    name: &'static CStr,
    function: ffi::PyCFunctionFast,
    doc: &'static CStr,
) -> ffi::PyMethodDef {
    ffi::PyMethodDef {
        ml_name: name.as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunctionFast: function },
        ml_flags: ffi::METH_FASTCALL,
        ml_doc: doc.as_ptr(),
    }
}

/// A method that takes its arguments as an array, by position or by name.
pub fn keyword_method(
    name: &'static CStr,
    function: ffi::PyCFunctionFastWithKeywords,
    doc: &'static CStr,
) -> ffi::PyMethodDef {
    ffi::PyMethodDef {
        ml_name: name.as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: function },
        ml_flags: ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
        ml_doc: doc.as_ptr(),
    }
}

/// A read-only property.
pub fn getter(name: &'static CStr, get: ffi::getter, doc: &'static CStr) -> ffi::PyGetSetDef {
    ffi::PyGetSetDef {
        name: name.as_ptr(),
        get: Some(get),
        set: None,
        doc: doc.as_ptr(),
        closure: ptr::null_mut(),
    }
}
