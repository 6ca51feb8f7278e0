//! The parts that all awaitables share.

use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};

use pyo3_ffi as ffi;
use ropewalk_capi::awaitable::{self, Step, Steps};
use ropewalk_capi::heap::{Field, visit_fields};
use ropewalk_capi::object::{Object, Raised};

use crate::interpreter::{attached, eval, fresh, raised, references, run, shown};

/// Lets the loop turn so many times, waits for a future if it has one, and then gives its result.
struct Turns {
    left: Cell<u32>,
    future: Field,
    result: Field,
    /// How often it has left a wait.
    leaves: Cell<u32>,
    name: Option<&'static CStr>,
}

// SAFETY: it shows its fields.
unsafe impl Steps for Turns {
    const REUSED: &'static CStr = c"awaited twice";

    fn name(&self) -> Option<&'static CStr> {
        self.name
    }

    fn step(&self, _: *mut ffi::PyObject) -> Result<Step, Raised> {
        if self.left.get() > 0 {
            self.left.set(self.left.get() - 1);
            return Ok(Step::Turn);
        }
        match self.future.take() {
            Some(future) => Ok(Step::Wait(future)),
            None => Ok(Step::Done(self.result.take().expect("a result"))),
        }
    }

    fn woken(&self, _: *mut ffi::PyObject, value: Object) -> Option<Object> {
        Some(value).filter(|value| !value.is_none())
    }

    fn leave(&self, _: *mut ffi::PyObject) {
        self.leaves.set(self.leaves.get() + 1);
    }

    unsafe fn visit(&self, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
        // SAFETY: the caller's.
        unsafe { visit_fields(&[&self.future, &self.result], visit, arg) }
    }

    fn clear(&self) {
        drop((self.future.take(), self.result.take()));
    }
}

fn made(left: u32, future: Option<Object>, result: Object) -> Object {
    with_name(left, future, result, None)
}

fn with_name(left: u32, future: Option<Object>, result: Object, name: Option<&'static CStr>) -> Object {
    let module = eval("type(__import__('sys'))('a_module')", &[]);
    let kind = awaitable::make_type::<Turns>(&module, c"a_module.Turns", c"", Vec::new())
        .unwrap_or_else(|_| panic!("{}", raised()));
    let content = Turns {
        left: Cell::new(left),
        future: future.map_or_else(Field::empty, Field::new),
        result: Field::new(result),
        leaves: Cell::new(0),
        name,
    };
    // SAFETY: a type that was made for them.
    unsafe { awaitable::make(kind.as_ptr().cast(), content) }.expect("an awaitable")
}

fn turns(left: u32, result: Object) -> Object {
    made(left, None, result)
}

/// A future in all that matters: what is sent into it is its result.
fn future() -> Object {
    let space = run(
        "class Future:
    def __iter__(self):
        try: return (yield 'waits')
        except LookupError as error: return (yield error.args)",
        &[],
    );
    eval("space['Future']()", &[(c"space", &space)])
}

fn leaves(object: &Object) -> u32 {
    // SAFETY: `made` has made it.
    unsafe { awaitable::steps::<Turns>(object.as_ptr()) }.leaves.get()
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
            assert_eq!(driven(&turns(2, eval(result, &[]))), format!("(2, {result})").replace("\"", ""));
        }
        let once = turns(0, eval("7", &[]));
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
            let awaitable = turns(1, value.clone());
            let send = awaitable.attribute(c"send").expect("a method");
            let none = Object::none();
            assert!(send.call(&[none.as_ptr()]).expect("a step").is_none());
            send.call(&[none.as_ptr()]).expect_err("an end");
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
fn what_is_sent_reaches_the_future_and_is_counted() {
    attached(|| {
        let (awaitable, sent) = (made(1, Some(future()), Object::none()), fresh());
        let seen = run(
            "steps = [awaitable.send(None), awaitable.send(None)]
try: awaitable.send(sent)
except StopIteration as stop: seen = steps, stop.value is sent",
            &[(c"awaitable", &awaitable), (c"sent", &sent)],
        );
        assert_eq!(shown(&eval("space['seen']", &[(c"space", &seen)])), "([None, 'waits'], True)");
        drop(seen);
        assert_eq!((references(sent.as_ptr()), leaves(&awaitable)), (1, 0));
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
fn a_wait_without_a_value_goes_on() {
    attached(|| {
        assert_eq!(driven(&made(0, Some(future()), eval("7", &[]))), "(1, 7)");
        // What cannot be waited for is left at once.
        let wrong = made(0, Some(Object::none()), Object::none());
        assert!(driven(&wrong).contains("TypeError"));
        assert_eq!(leaves(&wrong), 1);
    });
}

#[test]
fn a_wait_is_left_once_and_ends() {
    attached(|| {
        for way in ["throw(OSError)", "throw(GeneratorExit())", "close()"] {
            let waits = made(0, Some(future()), Object::none());
            run(
                &format!(
                    "awaitable.send(None)\ntry: awaitable.{way}\nexcept BaseException: pass\nawaitable.close()"
                ),
                &[(c"awaitable", &waits)],
            );
            assert_eq!(leaves(&waits), 1, "{way}");
            assert_eq!(driven(&waits), "(0, \"RuntimeError('awaited twice')\")", "{way}");
        }
    });
}

#[test]
fn one_that_has_ended_may_be_renewed() {
    attached(|| {
        let twice = turns(0, eval("1", &[]));
        let object = twice.as_ptr();
        // SAFETY: `made` has made it, and nobody else has it.
        unsafe {
            assert_eq!(driven(&twice), "(0, 1)");
            awaitable::steps::<Turns>(object).result.set(eval("2", &[]));
            awaitable::renew::<Turns>(object);
            assert_eq!(driven(&twice), "(0, 2)");
            awaitable::renew::<Turns>(object);
            awaitable::end::<Turns>(object);
            assert_eq!(driven(&twice), "(0, \"RuntimeError('awaited twice')\")");
        }
    });
}

#[test]
fn a_throw_raises_in_all_its_forms() {
    attached(|| {
        let forms = [
            ("KeyError('a')", "KeyError('a')"),
            ("KeyError", "KeyError()"),
            ("KeyError, 'a'", "KeyError('a')"),
            ("KeyError, KeyError('a'), None", "KeyError('a')"),
            ("", "RuntimeError('throw() takes an exception')"),
        ];
        for (thrown, expected) in forms {
            let awaitable = turns(1, Object::none());
            let call = eval(&format!("lambda awaitable: awaitable.throw({thrown})"), &[]);
            let Raised = call.call(&[awaitable.as_ptr()]).expect_err("it raises");
            assert_eq!(raised(), expected, "{thrown}");
        }
    });
}

#[test]
fn a_throw_goes_to_the_future_that_is_waited_for() {
    attached(|| {
        let waits = made(0, Some(future()), Object::none());
        let seen = run(
            "awaitable.send(None)
seen = awaitable.throw(KeyError('a'))
try: awaitable.send(5)
except StopIteration as stop: seen = seen, stop.value",
            &[(c"awaitable", &waits)],
        );
        assert_eq!(shown(&eval("space['seen']", &[(c"space", &seen)])), "(('a',), 5)");
        assert_eq!(leaves(&waits), 0);
    });
}

/// The warnings that dropping the one reference to an awaitable gives, after some use of it.
fn warnings(awaitable: Object, using: &str) -> String {
    let code = format!(
        "import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter('always')
    awaitable = held.pop()
    try: {using}
    except (StopIteration, LookupError): pass
    del awaitable
seen = [str(warning.message) for warning in caught]"
    );
    let held = eval("[]", &[]);
    // SAFETY: a live list, which takes a reference of its own; ours goes.
    assert_eq!(unsafe { ffi::PyList_Append(held.as_ptr(), awaitable.as_ptr()) }, 0);
    drop(awaitable);
    let space = run(&code, &[(c"held", &held)]);
    shown(&eval("space['seen']", &[(c"space", &space)]))
}

#[test]
fn one_with_a_name_is_missed_if_nobody_awaits_it() {
    attached(|| {
        let named = |result| with_name(0, None, result, Some(c"Kind.act"));
        let none = || eval("None", &[]);
        assert_eq!(warnings(named(none()), "pass"), "[\"coroutine 'Kind.act' was never awaited\"]");
        for using in ["awaitable.send(None)", "awaitable.close()", "awaitable.throw(LookupError())"] {
            assert_eq!(warnings(named(none()), using), "[]", "{using}");
        }
        assert_eq!(warnings(turns(0, none()), "pass"), "[]");
    });
}

#[test]
fn one_with_a_name_says_it() {
    attached(|| {
        let awaitable = with_name(0, None, eval("None", &[]), Some(c"Kind.act"));
        let names = [(c"it", &awaitable)];
        assert_eq!(shown(&eval("it.__name__, it.__qualname__", &names)), "('act', 'Kind.act')");
        assert_eq!(shown(&eval("repr(it) == f'<coroutine object Kind.act at {id(it):#x}>'", &names)), "True");
        let plain = turns(0, eval("None", &[]));
        let names = [(c"it", &plain)];
        assert_eq!(
            shown(&eval("hasattr(it, '__name__'), hasattr(it, '__qualname__')", &names)),
            "(False, False)"
        );
        assert_eq!(shown(&eval("repr(it).startswith('<a_module.Turns object at')", &names)), "True");
    });
}
