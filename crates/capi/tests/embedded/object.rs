//! References and exceptions.

use std::io;

use pyo3_ffi as ffi;
use ropewalk_base::{Code, Error};
use ropewalk_capi::errors::{fail, os_error, raise, raise_made, raise_os, raise_text};
use ropewalk_capi::object::{Kept, Object, Raised, take_exception, text};

use crate::interpreter::{attached, eval, fresh, is_raised, raised, references, run, shown};

#[test]
fn every_reference_is_given_back_once() {
    attached(|| {
        let object = fresh();
        let pointer = object.as_ptr();
        assert_eq!(references(pointer), 1);
        // SAFETY: a live object.
        let shared = unsafe { Object::share(pointer) }.expect("an object");
        let clone = shared.clone();
        assert_eq!(references(pointer), 3);
        drop((shared, clone));
        assert_eq!(references(pointer), 1);
        let given = object.into_ptr();
        assert_eq!((given, references(given)), (pointer, 1));
        // SAFETY: the reference that was just given away.
        drop(unsafe { Object::own(given) });
    });
}

#[test]
fn null_is_a_failure() {
    attached(|| {
        // SAFETY: null is allowed here, and the missing exception is not read.
        unsafe {
            assert!(Object::own(std::ptr::null_mut()).is_err());
            assert!(Object::share(std::ptr::null_mut()).is_err());
        }
    });
}

#[test]
fn a_call_takes_nothing_of_its_arguments() {
    attached(|| {
        let (object, tuple) = (fresh(), eval("lambda *all: all", &[]));
        let made = tuple.call(&[object.as_ptr(), object.as_ptr()]).expect("a tuple");
        assert_eq!(shown(&made), "(bytearray(b''), bytearray(b''))");
        assert_eq!(references(object.as_ptr()), 3);
        drop(made);
        assert_eq!(references(object.as_ptr()), 1);
        let Raised = eval("lambda: 1 // 0", &[]).call(&[]).expect_err("it divides by zero");
        assert!(raised().starts_with("ZeroDivisionError"));
    });
}

#[test]
fn attributes_are_found_or_raise() {
    attached(|| {
        let object = eval("3+4j", &[]);
        assert_eq!(shown(&object.attribute(c"imag").expect("it has one")), "4.0");
        let Raised = object.attribute(c"missing").expect_err("there is none");
        assert!(raised().starts_with("AttributeError"));
    });
}

#[test]
fn bytes_and_texts_are_copied_whole() {
    attached(|| {
        let bytes = Object::bytes(b"a\0b").expect("bytes");
        assert_eq!(bytes.as_bytes(), Some(&b"a\0b"[..]));
        let text = text("a\0\u{e4}").expect("a text");
        assert_eq!((shown(&text).as_str(), text.as_bytes()), ("'a\\x00\u{e4}'", None));
        assert!(Object::none().is_none());
        assert!(!bytes.is_none());
    });
}

#[test]
fn a_taken_exception_is_set_no_more_and_has_its_traceback() {
    attached(|| {
        assert!(take_exception().is_none());
        let Raised = eval("lambda: 1 // 0", &[]).call(&[]).expect_err("it divides by zero");
        let error = take_exception();
        assert!(!is_raised());
        let line = eval("error.__traceback__.tb_lineno", &[(c"error", &error)]);
        assert_eq!(shown(&line), "1");
        assert_eq!(references(error.as_ptr()), 1);
    });
}

#[test]
fn a_kept_exception_survives_what_else_is_raised() {
    attached(|| {
        let Raised = fail(c"the first");
        let kept = Kept::take();
        assert!(!is_raised());
        let Raised = fail(c"the second");
        kept.put_back();
        assert_eq!(raised(), "RuntimeError('the first')");
        Kept::take().put_back();
        assert!(!is_raised());
    });
}

#[test]
fn a_kept_exception_comes_back_unless_it_is_discarded() {
    attached(|| {
        let Raised = fail(c"the first");
        let panicked = std::panic::catch_unwind(|| {
            let _kept = Kept::take();
            assert!(is_raised(), "asked to panic");
        });
        assert!(panicked.is_err());
        assert_eq!(raised(), "RuntimeError('the first')");
        let error = eval("KeyError('a')", &[]);
        // SAFETY: a live exception.
        unsafe { ffi::PyErr_SetObject(ffi::Py_TYPE(error.as_ptr()).cast(), error.as_ptr()) };
        let kept = Kept::take();
        assert_eq!(kept.class(), eval("KeyError", &[]).as_ptr());
        kept.discard();
        assert!(!is_raised());
        assert_eq!(references(error.as_ptr()), 1);
    });
}

#[test]
fn an_error_of_rust_is_raised_as_the_class_of_its_code() {
    attached(|| {
        let Raised = raise(&Error::new(Code::StaleHandle, "it is gone"));
        let error = take_exception();
        let seen = eval("type(error).__name__, error.code, str(error)[:10]", &[(c"error", &error)]);
        assert_eq!(shown(&seen), "('StaleHandle', 'RW-SHM-STALE', 'it is gone')");
    });
}

#[test]
fn an_exception_of_ours_is_made_of_a_text_or_of_arguments() {
    attached(|| {
        let Raised = raise_text(Code::BusClosed, "what it says");
        assert_eq!(raised(), "BusClosed('what it says')");
        let said = text("what it says").expect("a text");
        let Raised = raise_made(Code::BusClosed, &[said.as_ptr()]);
        assert_eq!(raised(), "BusClosed('what it says')");
        let Raised = raise_made(Code::Lagged, &[]);
        assert!(raised().starts_with("TypeError"), "what cannot be made raises why");
    });
}

#[test]
fn errors_of_the_system_have_pythons_classes() {
    attached(|| {
        let Raised = raise_os(&io::Error::from_raw_os_error(2));
        assert_eq!(raised(), "FileNotFoundError(2, 'No such file or directory')");
        let made = os_error(&io::Error::from_raw_os_error(32)).expect("an exception");
        assert_eq!(shown(&made), "BrokenPipeError(32, 'Broken pipe')");
    });
}

#[test]
fn an_object_dies_with_its_last_reference() {
    attached(|| {
        let space = run("import weakref\nclass Thing: pass\nthing = Thing()\nseen = weakref.ref(thing)", &[]);
        // SAFETY: a live dictionary, and borrowed items of it.
        let (thing, seen) = unsafe {
            let item = |name: &std::ffi::CStr| {
                Object::share(ffi::PyDict_GetItemString(space.as_ptr(), name.as_ptr()))
            };
            (item(c"thing").expect("it is there"), item(c"seen").expect("it is there"))
        };
        drop(space);
        assert!(!seen.call(&[]).expect("it can be called").is_none());
        drop(thing);
        assert!(seen.call(&[]).expect("it can be called").is_none());
    });
}
