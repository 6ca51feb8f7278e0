//! Owned references and exceptions: the small part of pyo3 that the extension modules need.

use std::ffi::CStr;
use std::ptr::NonNull;

use pyo3_ffi as ffi;

/// A marker: an exception is set in this thread.
#[derive(Clone, Copy, Debug)]
pub struct Raised;

/// An owned reference, released when dropped. The thread is attached to the interpreter wherever one lives.
#[derive(Debug)]
pub struct Object(NonNull<ffi::PyObject>);

impl Object {
    /// Takes over a new reference, or the failure that null signals.
    ///
    /// # Safety
    ///
    /// `pointer` is null with an exception set, or a new reference that no other code releases.
    #[inline]
    pub unsafe fn own(pointer: *mut ffi::PyObject) -> Result<Self, Raised> {
        NonNull::new(pointer).map(Self).ok_or(Raised)
    }

    /// Takes a new reference to a borrowed object.
    ///
    /// # Safety
    ///
    /// `pointer` is a live object, or null with an exception set.
    #[inline]
    pub unsafe fn share(pointer: *mut ffi::PyObject) -> Result<Self, Raised> {
        // SAFETY: Py_XINCREF accepts null; the caller guarantees the rest.
        unsafe {
            ffi::Py_XINCREF(pointer);
            Self::own(pointer)
        }
    }

    /// The object, borrowed.
    #[inline]
    #[must_use]
    pub fn as_ptr(&self) -> *mut ffi::PyObject {
        self.0.as_ptr()
    }

    /// Passes the reference to the interpreter.
    #[inline]
    #[must_use]
    pub fn into_ptr(self) -> *mut ffi::PyObject {
        let pointer = self.0.as_ptr();
        std::mem::forget(self);
        pointer
    }

    /// An attribute of the object.
    ///
    /// # Errors
    ///
    /// An exception is set.
    pub fn attribute(&self, name: &CStr) -> Result<Self, Raised> {
        // SAFETY: a live object and a C string.
        unsafe { Self::own(ffi::PyObject_GetAttrString(self.as_ptr(), name.as_ptr())) }
    }

    /// Calls the object with positional arguments.
    ///
    /// # Errors
    ///
    /// An exception is set.
    #[inline]
    pub fn call(&self, arguments: &[*mut ffi::PyObject]) -> Result<Self, Raised> {
        // SAFETY: live objects, with their number.
        unsafe {
            Self::own(ffi::PyObject_Vectorcall(
                self.as_ptr(),
                arguments.as_ptr(),
                arguments.len(),
                std::ptr::null_mut(),
            ))
        }
    }

    /// A `bytes` object with a copy of these bytes.
    ///
    /// # Errors
    ///
    /// An exception is set.
    pub fn bytes(bytes: &[u8]) -> Result<Self, Raised> {
        let length = ffi::Py_ssize_t::try_from(bytes.len()).map_err(|_| Raised)?;
        // SAFETY: the bytes are copied.
        unsafe { Self::own(ffi::PyBytes_FromStringAndSize(bytes.as_ptr().cast(), length)) }
    }

    /// A reference to `None`.
    #[inline]
    #[must_use]
    pub fn none() -> Self {
        // SAFETY: `None` is immortal.
        match unsafe { Self::share(ffi::Py_None()) } {
            Ok(none) => none,
            Err(Raised) => unreachable!("None is never null"),
        }
    }

    /// Whether it is `None`.
    #[inline]
    #[must_use]
    pub fn is_none(&self) -> bool {
        // SAFETY: `None` is immortal.
        self.as_ptr() == unsafe { ffi::Py_None() }
    }

    /// The bytes of a `bytes` object.
    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> Option<&[u8]> {
        // SAFETY: checked to be bytes, whose memory lives as long as the object and never changes.
        unsafe {
            if ffi::PyBytes_Check(self.as_ptr()) == 0 {
                return None;
            }
            let length = usize::try_from(ffi::PyBytes_Size(self.as_ptr())).ok()?;
            Some(std::slice::from_raw_parts(ffi::PyBytes_AsString(self.as_ptr()).cast(), length))
        }
    }
}

impl Clone for Object {
    #[inline]
    fn clone(&self) -> Self {
        // SAFETY: a live object, and the thread is attached.
        unsafe { ffi::Py_INCREF(self.as_ptr()) };
        Self(self.0)
    }
}

impl Drop for Object {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this owns one reference, and the thread is attached.
        unsafe { ffi::Py_DECREF(self.as_ptr()) }
    }
}

/// Takes the exception that is set in this thread, with its traceback attached.
#[allow(deprecated, reason = "what replaces these calls is not there before 3.12")]
pub fn take_exception() -> Object {
    // SAFETY: PyErr_Fetch passes ownership of its three references.
    unsafe {
        let (mut kind, mut value, mut trace) =
            (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
        ffi::PyErr_Fetch(&raw mut kind, &raw mut value, &raw mut trace);
        if kind.is_null() {
            return Object::none();
        }
        ffi::PyErr_NormalizeException(&raw mut kind, &raw mut value, &raw mut trace);
        if !trace.is_null() {
            ffi::PyException_SetTraceback(value, trace);
            ffi::Py_DECREF(trace);
        }
        ffi::Py_XDECREF(kind);
        Object::own(value).unwrap_or_else(|Raised| Object::none())
    }
}

/// Saves the current exception, if any, while other code runs. Dropping this sets it again, in place of any exception
/// that is set by then.
#[derive(Debug)]
pub struct Kept([*mut ffi::PyObject; 3]);

#[allow(deprecated, reason = "what replaces these calls is not there before 3.12")]
impl Kept {
    /// Takes the current exception out of this thread.
    #[must_use]
    pub fn take() -> Self {
        let mut kept = [std::ptr::null_mut(); 3];
        let [kind, value, trace] = &mut kept;
        // SAFETY: PyErr_Fetch stores three references here and passes their ownership.
        unsafe { ffi::PyErr_Fetch(kind, value, trace) };
        Self(kept)
    }

    /// The exception's class, borrowed; null if there is no exception.
    #[must_use]
    pub fn class(&self) -> *mut ffi::PyObject {
        self.0[0]
    }

    /// Sets the exception again now: an explicit drop.
    pub fn put_back(self) {
        drop(self);
    }

    /// Drops the saved exception: another one has been raised since.
    pub fn discard(self) {
        let kept = self.0;
        std::mem::forget(self);
        for part in kept {
            // SAFETY: null, or an owned reference.
            unsafe { ffi::Py_XDECREF(part) };
        }
    }
}

impl Drop for Kept {
    #[allow(deprecated, reason = "what replaces it is not there before 3.12")]
    fn drop(&mut self) {
        let [kind, value, trace] = self.0;
        // SAFETY: the thread is attached; PyErr_Restore takes the references over.
        unsafe { ffi::PyErr_Restore(kind, value, trace) };
    }
}

/// A string.
pub fn text(text: &str) -> Result<Object, Raised> {
    let length = ffi::Py_ssize_t::try_from(text.len()).map_err(|_| Raised)?;
    // SAFETY: the characters are copied.
    unsafe { Object::own(ffi::PyUnicode_FromStringAndSize(text.as_ptr().cast(), length)) }
}

/// Runs a blocking call with the interpreter released. If the interpreter finalizes meanwhile, the thread does not
/// return: see `forced_unwind`.
#[inline]
pub fn detached<T>(work: impl FnOnce() -> T) -> T {
    /// Attaches the thread again when dropped, also by a panic.
    struct Away(*mut ffi::PyThreadState);

    impl Drop for Away {
        fn drop(&mut self) {
            // SAFETY: the state that SaveThread returned, in the same thread.
            unsafe { ffi::PyEval_RestoreThread(self.0) };
        }
    }

    // SAFETY: the thread is attached, and attaches again before it touches the interpreter.
    let _away = Away(unsafe { ffi::PyEval_SaveThread() });
    work()
}
