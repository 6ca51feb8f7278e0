//! The interpreter of this process, and the tests' access to it.

use std::ffi::{CStr, CString};
use std::sync::Once;

use pyo3_ffi as ffi;
use ropewalk_capi::object::{Object, Raised, take_exception};

/// Attaches this thread, and detaches it when dropped: also by a panic.
struct Attached(ffi::PyGILState_STATE);

impl Drop for Attached {
    fn drop(&mut self) {
        // SAFETY: the state that `attached` got.
        unsafe { ffi::PyGILState_Release(self.0) };
    }
}

/// Runs a test's body in an attached thread.
pub(crate) fn attached<T>(body: impl FnOnce() -> T) -> T {
    static STARTED: Once = Once::new();
    STARTED.call_once(start);
    // SAFETY: the interpreter was started, and never ends.
    let _attached = Attached(unsafe { ffi::PyGILState_Ensure() });
    body()
}

fn start() {
    // SAFETY: called once, before anything else of the interpreter; the configurations are filled by its own functions.
    unsafe {
        let mut before = std::mem::zeroed::<ffi::PyPreConfig>();
        ffi::PyPreConfig_InitIsolatedConfig(&raw mut before);
        if !cfg!(Py_GIL_DISABLED) {
            before.allocator = 3; // PYMEM_ALLOCATOR_MALLOC
        }
        assert_eq!(ffi::PyStatus_Exception(ffi::Py_PreInitialize(&raw const before)), 0);
        let mut config = std::mem::zeroed::<ffi::PyConfig>();
        ffi::PyConfig_InitIsolatedConfig(&raw mut config);
        let home = CString::new(env!("ROPEWALK_TEST_PYTHONHOME")).expect("a path");
        let status = ffi::PyConfig_SetBytesString(&raw mut config, &raw mut config.home, home.as_ptr());
        assert_eq!(ffi::PyStatus_Exception(status), 0);
        assert_eq!(ffi::PyStatus_Exception(ffi::Py_InitializeFromConfig(&raw const config)), 0);
        ffi::PyConfig_Clear(&raw mut config);
        // `ropewalk._errors` has the classes that are raised.
        let path =
            concat!("import sys; sys.path.insert(0, r'", env!("CARGO_MANIFEST_DIR"), "/../../python')");
        run(path, &[]);
        ffi::PyEval_SaveThread();
    }
}

/// The value of an expression that uses these names.
pub(crate) fn eval(expression: &str, names: &[(&CStr, &Object)]) -> Object {
    compiled(expression, names, ffi::Py_eval_input).0
}

/// Runs statements; returns their namespace.
pub(crate) fn run(statements: &str, names: &[(&CStr, &Object)]) -> Object {
    compiled(statements, names, ffi::Py_file_input).1
}

fn compiled(code: &str, names: &[(&CStr, &Object)], start: std::ffi::c_int) -> (Object, Object) {
    let source = CString::new(code).expect("no zero in it");
    // SAFETY: attached; live objects and C strings.
    let done = unsafe {
        let space = Object::own(ffi::PyDict_New()).expect("a dictionary");
        for (name, object) in names {
            assert_eq!(ffi::PyDict_SetItemString(space.as_ptr(), name.as_ptr(), object.as_ptr()), 0);
        }
        Object::own(ffi::Py_CompileString(source.as_ptr(), c"<test>".as_ptr(), start))
            .and_then(|code| Object::own(ffi::PyEval_EvalCode(code.as_ptr(), space.as_ptr(), space.as_ptr())))
            .map(|value| (value, space))
    };
    done.unwrap_or_else(|Raised| panic!("{code}: {}", shown(&take_exception())))
}

/// The result of `repr`.
pub(crate) fn shown(object: &Object) -> String {
    // SAFETY: attached; a live object.
    let bytes = unsafe {
        let text = Object::own(ffi::PyObject_Repr(object.as_ptr())).expect("a text");
        Object::own(ffi::PyUnicode_AsUTF8String(text.as_ptr())).expect("its bytes")
    };
    String::from_utf8_lossy(bytes.as_bytes().expect("bytes")).into_owned()
}

/// Takes the exception that is set; returns its `repr`.
pub(crate) fn raised() -> String {
    assert!(is_raised(), "no exception is set");
    shown(&take_exception())
}

/// Whether an exception is set.
pub(crate) fn is_raised() -> bool {
    // SAFETY: attached.
    unsafe { !ffi::PyErr_Occurred().is_null() }
}

/// The number of references to an object.
pub(crate) fn references(object: *mut ffi::PyObject) -> isize {
    // SAFETY: attached; a live object.
    unsafe { ffi::Py_REFCNT(object) as isize }
}

/// A new object whose references a test can count. The interpreter keeps the memory of dead lists, tuples and numbers
/// for the next ones, where a sanitizer would not detect a use after free; it frees that of a bytearray.
pub(crate) fn fresh() -> Object {
    // SAFETY: attached.
    unsafe { Object::own(ffi::PyByteArray_FromStringAndSize(std::ptr::null(), 0)) }.expect("a bytearray")
}

/// Runs the garbage collector.
pub(crate) fn collect() {
    // SAFETY: attached.
    unsafe { ffi::PyGC_Collect() };
}
