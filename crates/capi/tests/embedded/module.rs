//! Module definitions, and a module's state in each interpreter.

use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3_ffi as ffi;
use ropewalk_capi::errors::fail;
use ropewalk_capi::heap::{self, Type};
use ropewalk_capi::module::{self, Module, check_main_interpreter};
use ropewalk_capi::object::{Object, Raised, text};
use ropewalk_sync::Mutex;

use crate::interpreter::{attached, collect, eval, is_raised, raised, references, run, shown};

/// The numbers of the states that have freed their other resources.
static FREED: Mutex<Vec<usize>> = Mutex::new(Vec::new());

struct State {
    kind: *mut ffi::PyObject,
    held: *mut ffi::PyObject,
    /// The state's number; 0 before it is filled, and after it was freed.
    number: usize,
}

/// The number of a module's state.
fn number(module: &Object) -> usize {
    // SAFETY: a module of this definition; no other code has its state.
    unsafe { COUNTERS.state(module.as_ptr()) }.expect("a state").number
}

/// How often a state has freed its other resources.
fn freed(number: usize) -> usize {
    FREED.lock().iter().filter(|&&freed| freed == number).count()
}

// SAFETY: pointers, for which zeros are null, and a number.
unsafe impl module::State for State {
    fn references(&mut self) -> impl Iterator<Item = &mut *mut ffi::PyObject> {
        [&mut self.kind, &mut self.held].into_iter()
    }

    fn fill(&mut self, module: &Object) -> Result<(), Raised> {
        static LAST: AtomicUsize = AtomicUsize::new(0);
        assert!(self.kind.is_null() && self.number == 0, "the state is zeroed");
        self.kind = heap::make_type::<()>(module, counter())?.into_ptr();
        self.held = eval("set()", &[]).into_ptr();
        self.number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        // SAFETY: live objects.
        unsafe {
            module::add(module, c"Counter", self.kind)?;
            module::add(module, c"held", self.held)
        }
    }

    fn free(&mut self) {
        let number = std::mem::take(&mut self.number);
        if number != 0 {
            FREED.lock().push(number);
        }
    }
}

fn counter() -> Type<'static> {
    Type {
        name: c"counters.Counter",
        doc: c"",
        flags: ffi::Py_TPFLAGS_BASETYPE,
        methods: Vec::new(),
        getters: Vec::new(),
        slots: &[],
    }
}

static COUNTERS: Module<State> = Module::new(c"counters", c"Counts.");

struct Nothing;

// SAFETY: it has no bytes.
unsafe impl module::State for Nothing {
    fn references(&mut self) -> impl Iterator<Item = &mut *mut ffi::PyObject> {
        std::iter::empty()
    }

    fn fill(&mut self, _: &Object) -> Result<(), Raised> {
        Err(fail(c"it cannot be filled"))
    }
}

static UNFILLED: Module<Nothing> = Module::new(c"unfilled", c"");

struct Panicking;

// SAFETY: it has no bytes.
unsafe impl module::State for Panicking {
    fn references(&mut self) -> impl Iterator<Item = &mut *mut ffi::PyObject> {
        std::iter::empty()
    }

    fn fill(&mut self, _: &Object) -> Result<(), Raised> {
        panic!("it cannot be filled")
    }
}

static PANICKING: Module<Panicking> = Module::new(c"panicking", c"");

/// Imports a definition as the import system does.
fn import<S: module::State>(definition: &Module<S>) -> Result<Object, Raised> {
    let spec = eval("__import__('importlib.machinery').machinery.ModuleSpec('counters', None)", &[]);
    let definition = definition.init().cast::<ffi::PyModuleDef>();
    assert!(!definition.is_null(), "{}", raised());
    // SAFETY: a complete definition and a live spec; then a module of that definition.
    unsafe {
        let module = Object::own(ffi::PyModule_FromDefAndSpec(definition, spec.as_ptr()))?;
        if ffi::PyModule_ExecDef(module.as_ptr(), definition) == 0 { Ok(module) } else { Err(Raised) }
    }
}

#[test]
fn each_module_has_a_state_of_its_own_and_gives_it_back() {
    attached(|| {
        let (one, other) = (import(&COUNTERS).expect("a module"), import(&COUNTERS).expect("another"));
        let pair: [(&CStr, &Object); 2] = [(c"one", &one), (c"other", &other)];
        assert_eq!(shown(&eval("one.__doc__, one.held is other.held", &pair)), "('Counts.', False)");
        let held = one.attribute(c"held").expect("it has one");
        // The references of this test, of the module's attribute and of the state.
        assert_eq!(references(held.as_ptr()), 3);
        // The state holds an object that holds the module.
        run("held.add(lambda: one)", &[(c"held", &held), (c"one", &one)]);
        let numbers = (number(&one), number(&other));
        drop((one, other));
        run("held.clear()", &[(c"held", &held)]);
        collect();
        assert_eq!(references(held.as_ptr()), 1);
        assert_eq!((freed(numbers.0), freed(numbers.1)), (1, 1));
    });
}

#[test]
fn a_cycle_through_a_modules_state_is_collected() {
    attached(|| {
        let module = import(&COUNTERS).expect("a module");
        run("del module.held\nmodule.Counter = module.held = None", &[(c"module", &module)]);
        // SAFETY: a module of this definition; no other code has the state.
        let state = unsafe { COUNTERS.state(module.as_ptr()) }.expect("a state");
        // SAFETY: a live object, which the state holds.
        let held = unsafe { Object::share(state.held) }.expect("a set");
        let seen = eval("__import__('weakref').ref(held)", &[(c"held", &held)]);
        run("held.add(lambda: module)", &[(c"held", &held), (c"module", &module)]);
        drop((held, module));
        assert!(!seen.call(&[]).expect("it can be called").is_none());
        collect();
        assert!(seen.call(&[]).expect("it can be called").is_none());
    });
}

#[test]
fn a_type_leads_to_its_module() {
    attached(|| {
        let module = import(&COUNTERS).expect("a module");
        let kind = module.attribute(c"Counter").expect("a type");
        let sub = eval("type('Sub', (Counter,), {})", &[(c"Counter", &kind)]);
        // SAFETY: live types of the module, or of another; one reference at a time.
        unsafe {
            let state = |of: Option<&mut State>| of.map(|state| std::ptr::from_mut(state) as usize);
            let expected = state(COUNTERS.state(module.as_ptr()));
            assert!(expected.is_some());
            assert_eq!(state(COUNTERS.state_of(kind.as_ptr().cast())), expected);
            assert_eq!(state(COUNTERS.state_of_base(sub.as_ptr().cast())), expected);
            let stranger = eval("type('Stranger', (), {})", &[]);
            assert!(COUNTERS.state_of_base(stranger.as_ptr().cast()).is_none());
            assert!(raised().starts_with("TypeError"));
        }
    });
}

#[test]
fn a_module_that_cannot_be_filled_raises() {
    attached(|| {
        assert!(import(&UNFILLED).is_err());
        assert_eq!(raised(), "RuntimeError('it cannot be filled')");
        assert!(import(&PANICKING).is_err());
        let said = raised();
        assert!(said.starts_with("InternalError") && said.contains("it cannot be filled"), "{said}");
    });
}

#[test]
fn a_worker_interpreter_loads_what_stands_on_the_plain_api_only() {
    attached(|| {
        check_main_interpreter(c"not here").expect("this is the main interpreter");
        let main = import(&COUNTERS).expect("a module");
        // SAFETY: attached; the new interpreter's thread state is current until it ends, and then this one is again.
        let there = unsafe {
            let here = ffi::PyThreadState_Get();
            let there = ffi::Py_NewInterpreter();
            assert!(!there.is_null());
            let module = import(&COUNTERS).expect("a module there");
            let said = text("a state of its own").expect("a text");
            run("module.held.add(said)", &[(c"module", &module), (c"said", &said)]);
            assert!(check_main_interpreter(c"not here").is_err());
            assert_eq!(raised(), "ImportError('not here')");
            let number = number(&module);
            drop((module, said));
            ffi::Py_EndInterpreter(there);
            ffi::PyThreadState_Swap(here);
            number
        };
        assert_eq!((freed(there), freed(number(&main))), (1, 0), "its state went with the interpreter");
        assert_eq!(shown(&main.attribute(c"held").expect("it has one")), "set()");
        assert!(!is_raised());
    });
}
