//! The parts that all awaitables share.

use std::cell::Cell;
use std::ffi::{c_int, c_void};

use pyo3_ffi as ffi;
use ropewalk_capi::awaitable::{AM_SEND, await_method, itself, next, send, throw_into};
use ropewalk_capi::entry;
use ropewalk_capi::heap::{self, Field, Type, content, fast_method, make, method};
use ropewalk_capi::object::{Object, Raised};

use crate::interpreter::{attached, eval, fresh, raised, references, run, shown};

/// Yields `None` a given number of times, and then returns its result; a sent value other than `None` is the result.
struct Steps {
    left: Cell<u32>,
    result: Field,
}

#[entry]
unsafe extern "C" fn step(
    object: *mut ffi::PyObject,
    sent: *mut ffi::PyObject,
    result: *mut *mut ffi::PyObject,
) -> ffi::PySendResult {
    // SAFETY: an object of the type below, a live object, and room for the result.
    unsafe {
        let steps = content::<Steps>(object);
        if sent != ffi::Py_None() {
            steps.left.set(0);
            steps.result.set(Object::share(sent).expect("an object"));
        }
        if steps.left.get() > 0 {
            steps.left.set(steps.left.get() - 1);
            *result = Object::none().into_ptr();
            return ffi::PySendResult::PYGEN_NEXT;
        }
        match steps.result.take() {
            Some(value) => {
                *result = value.into_ptr();
                ffi::PySendResult::PYGEN_RETURN
            }
            None => {
                ffi::PyErr_SetString(ffi::PyExc_RuntimeError, c"awaited twice".as_ptr());
                ffi::PySendResult::PYGEN_ERROR
            }
        }
    }
}

#[entry]
unsafe extern "C" fn throw(
    _: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    given: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter's arguments.
    unsafe { throw_into(None, arguments, given) }.map_or(std::ptr::null_mut(), Object::into_ptr)
}

#[entry]
unsafe extern "C" fn traverse(object: *mut ffi::PyObject, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    // SAFETY: an object of the type below, and the collector's arguments.
    unsafe {
        let answer = content::<Steps>(object).result.visit(visit, arg);
        if answer != 0 { answer } else { heap::visit_type(object, visit, arg) }
    }
}

fn steps(left: u32, result: Object) -> Object {
    let kind = heap::make_type::<Steps>(
        &eval("type(__import__('sys'))('a_module')", &[]),
        Type {
            name: c"a_module.Steps",
            doc: c"",
            flags: ffi::Py_TPFLAGS_HAVE_GC,
            methods: vec![
                method(c"send", send, ffi::METH_O, c""),
                method(c"__await__", await_method, ffi::METH_NOARGS, c""),
                fast_method(c"throw", throw, c""),
            ],
            getters: Vec::new(),
            slots: &[
                (ffi::Py_tp_dealloc, heap::dealloc::<Steps> as *mut c_void),
                (ffi::Py_tp_traverse, traverse as *mut c_void),
                (ffi::Py_tp_iter, itself as *mut c_void),
                (ffi::Py_tp_iternext, next as *mut c_void),
                (ffi::Py_am_await, itself as *mut c_void),
                (AM_SEND, step as *mut c_void),
            ],
        },
    )
    .unwrap_or_else(|_| panic!("{}", raised()));
    let content = Steps { left: Cell::new(left), result: Field::new(result) };
    // SAFETY: a type that was made for this content.
    unsafe { make(kind.as_ptr().cast(), content) }.expect("an awaitable")
}

/// The result of a coroutine that awaits it.
const DRIVE: &str = "
async def main():
    return await awaitable
coroutine = main()
turns = 0
try:
    while True:
        coroutine.send(None)
        turns += 1
except StopIteration as stop:
    seen = turns, stop.value
except BaseException as error:
    seen = turns, repr(error)
";

fn driven(awaitable: &Object) -> String {
    let space = run(DRIVE, &[(c"awaitable", awaitable)]);
    shown(&eval("space['seen']", &[(c"space", &space)]))
}

#[test]
fn a_coroutine_awaits_it() {
    attached(|| {
        for result in ["7", "(1, 2)", "None", "ValueError('a value')"] {
            assert_eq!(driven(&steps(2, eval(result, &[]))), format!("(2, {result})").replace("\"", ""));
        }
        let once = steps(0, eval("7", &[]));
        assert_eq!(driven(&once), "(0, 7)");
        assert_eq!(driven(&once), "(0, \"RuntimeError('awaited twice')\")");
    });
}

#[test]
fn an_end_is_a_stop_iteration_with_just_that_value() {
    attached(|| {
        // A tuple as the value must not be taken for an exception's arguments, nor an exception for the one that is
        // raised.
        for result in ["7", "(1, 2)", "None", "ValueError('a value')", "StopIteration(5)"] {
            let value = eval(result, &[]);
            let awaitable = steps(1, value.clone());
            // SAFETY: a live awaitable, and None.
            unsafe {
                assert!(Object::own(next(awaitable.as_ptr())).expect("a step").is_none());
                assert!(send(awaitable.as_ptr(), ffi::Py_None()).is_null());
            }
            let stop = ropewalk_capi::object::take_exception();
            let same = eval(
                "type(stop) is StopIteration and stop.value is value",
                &[(c"stop", &stop), (c"value", &value)],
            );
            assert_eq!(shown(&same), "True", "{result}");
        }
    });
}

#[test]
fn what_is_sent_arrives_and_is_counted() {
    attached(|| {
        let (awaitable, sent) = (steps(5, Object::none()), fresh());
        let seen = run(
            "try: awaitable.send(sent)\nexcept StopIteration as stop: seen = stop.value is sent",
            &[(c"awaitable", &awaitable), (c"sent", &sent)],
        );
        assert_eq!(shown(&eval("space['seen']", &[(c"space", &seen)])), "True");
        drop(seen);
        assert_eq!(references(sent.as_ptr()), 1);
        assert_eq!(
            shown(&eval(
                "iter(awaitable) is awaitable.__await__() is awaitable",
                &[(c"awaitable", &awaitable)]
            )),
            "True"
        );
    });
}

#[test]
fn a_throw_raises_in_all_its_forms() {
    attached(|| {
        let awaitable = steps(1, Object::none());
        let forms = [
            ("KeyError('a')", "KeyError('a')"),
            ("KeyError", "KeyError()"),
            ("KeyError, 'a'", "KeyError('a')"),
            ("KeyError, KeyError('a'), None", "KeyError('a')"),
            ("", "RuntimeError('throw() takes an exception')"),
        ];
        for (thrown, expected) in forms {
            let call = eval(&format!("lambda awaitable: awaitable.throw({thrown})"), &[]);
            let Raised = call.call(&[awaitable.as_ptr()]).expect_err("it raises");
            assert_eq!(raised(), expected, "{thrown}");
        }
    });
}

#[test]
fn a_throw_goes_to_the_iterator_that_is_waited_for() {
    attached(|| {
        let space = run(
            "def waited_for():
    try: yield
    except KeyError as error: yield error.args
inner = waited_for()
next(inner)",
            &[],
        );
        let (inner, thrown) = (eval("space['inner']", &[(c"space", &space)]), eval("KeyError('a')", &[]));
        // SAFETY: one live argument.
        let answer = unsafe { throw_into(Some(&inner), [thrown.as_ptr()].as_ptr(), 1) };
        assert_eq!(shown(&answer.expect("what it yields")), "('a',)");
    });
}
