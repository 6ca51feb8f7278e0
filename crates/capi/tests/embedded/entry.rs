//! The outcome of a panic in each kind of function that the interpreter calls.

use std::ffi::{c_int, c_void};

use pyo3_ffi as ffi;
use ropewalk_capi::entry;
use ropewalk_capi::errors::fail;
use ropewalk_capi::object::{Object, Raised};

use crate::interpreter::{attached, eval, is_raised, raised, run, shown};

#[entry]
unsafe extern "C" fn gives_an_object(wanted: bool) -> *mut ffi::PyObject {
    assert!(!wanted, "asked to");
    Object::none().into_ptr()
}

#[entry]
unsafe extern "C" fn gives_a_number(wanted: bool) -> c_int {
    assert!(!wanted, "asked {}", "to");
    7
}

#[entry]
unsafe extern "C" fn gives_a_size(wanted: bool) -> ffi::Py_ssize_t {
    assert!(!wanted, "asked to");
    7
}

#[entry]
unsafe extern "C" fn sends(wanted: bool) -> ffi::PySendResult {
    if wanted {
        std::panic::panic_any(7);
    }
    ffi::PySendResult::PYGEN_NEXT
}

#[entry]
unsafe extern "C" fn destroys(wanted: bool) {
    assert!(!wanted, "asked to");
}

#[entry]
unsafe extern "C" fn visits(visit: ffi::visitproc, wanted: bool) -> c_int {
    assert!(!wanted, "asked to");
    // SAFETY: the function below, which does not use its arguments.
    unsafe { visit(std::ptr::null_mut(), std::ptr::null_mut()) }
}

unsafe extern "C" fn seven(_: *mut ffi::PyObject, _: *mut c_void) -> c_int {
    7
}

fn is_reported(words: &str) {
    let said = raised();
    assert!(said.starts_with("InternalError") && said.contains(words), "{said}");
}

#[test]
fn what_does_not_panic_answers_for_itself() {
    attached(|| {
        // SAFETY: attached.
        unsafe {
            drop(Object::own(gives_an_object(false)).expect("None"));
            assert_eq!((gives_a_number(false), gives_a_size(false), visits(seven, false)), (7, 7, 7));
            assert!(matches!(sends(false), ffi::PySendResult::PYGEN_NEXT));
            destroys(false);
        }
        assert!(!is_raised());
    });
}

#[test]
fn a_panic_becomes_an_internal_error() {
    attached(|| {
        // SAFETY: attached.
        unsafe {
            assert!(gives_an_object(true).is_null());
            is_reported("asked to");
            assert_eq!(gives_a_number(true), -1);
            is_reported("asked to");
            assert_eq!(gives_a_size(true), -1);
            is_reported("asked to");
            assert!(matches!(sends(true), ffi::PySendResult::PYGEN_ERROR));
            is_reported("says nothing");
        }
    });
}

#[test]
fn a_destructor_reports_its_panic_and_keeps_the_exception_that_was_set() {
    attached(|| {
        let seen = run(
            "import sys\nseen = []\nhook = sys.unraisablehook\n\
             sys.unraisablehook = lambda args: seen.append(type(args.exc_value).__name__)",
            &[],
        );
        let Raised = fail(c"set before");
        // SAFETY: attached.
        unsafe { destroys(true) };
        assert_eq!(raised(), "RuntimeError('set before')");
        let names = eval("space.pop('seen')", &[(c"space", &seen)]);
        run("import sys\nsys.unraisablehook = space['hook']", &[(c"space", &seen)]);
        // The hook is the process's, and another test may report something meanwhile.
        assert_eq!(shown(&names).matches("InternalError").count(), 1);
    });
}

#[test]
fn a_panic_in_the_collector_sets_no_exception() {
    attached(|| {
        // SAFETY: attached.
        assert_eq!(unsafe { visits(seven, true) }, 0);
        assert!(!is_raised());
    });
}
