//! Heap types: their tables, their memory, their cycles.

use std::ffi::{CStr, c_int, c_void};
use std::sync::Arc;

use pyo3_ffi as ffi;
use ropewalk_capi::entry;
use ropewalk_capi::heap::{self, Field, Type, content, getter, make};
use ropewalk_capi::object::Object;

use crate::interpreter::{attached, collect, eval, fresh, raised, references, run, shown};

/// The content of a node; an `Arc` counts the nodes.
struct Node {
    held: Field,
    _counted: Arc<()>,
}

#[entry]
unsafe extern "C" fn traverse(object: *mut ffi::PyObject, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    // SAFETY: a node, and the collector's arguments.
    unsafe {
        let answer = content::<Node>(object).held.visit(visit, arg);
        if answer != 0 { answer } else { heap::visit_type(object, visit, arg) }
    }
}

/// A `tp_traverse` that does not visit the object's field.
#[entry]
unsafe extern "C" fn traverse_nothing(
    object: *mut ffi::PyObject,
    visit: ffi::visitproc,
    arg: *mut c_void,
) -> c_int {
    // SAFETY: a node, and the collector's arguments.
    unsafe { heap::visit_type(object, visit, arg) }
}

#[entry]
unsafe extern "C" fn clear(object: *mut ffi::PyObject) -> c_int {
    // SAFETY: a node that is garbage.
    drop(unsafe { content::<Node>(object) }.held.take());
    0
}

#[entry]
unsafe extern "C" fn get_held(object: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: a node.
    unsafe { content::<Node>(object) }.held.share().unwrap_or_else(Object::none).into_ptr()
}

#[entry]
unsafe extern "C" fn hold(object: *mut ffi::PyObject, held: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a node, and a live argument.
    if let Ok(held) = unsafe { Object::share(held) } {
        // SAFETY: a node.
        unsafe { content::<Node>(object) }.held.set(held);
    }
    Object::none().into_ptr()
}

#[entry]
unsafe extern "C" fn count(
    _: *mut ffi::PyObject,
    _: *mut *mut ffi::PyObject,
    given: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    // SAFETY: attached.
    unsafe { ffi::PyLong_FromSsize_t(given) }
}

#[entry]
unsafe extern "C" fn count_all(
    _: *mut ffi::PyObject,
    _: *const *mut ffi::PyObject,
    given: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: attached; the names are a tuple or null.
    unsafe {
        let named = if names.is_null() { 0 } else { ffi::PyTuple_Size(names) };
        ffi::PyLong_FromSsize_t(given + 10 * named)
    }
}

fn module() -> Object {
    eval("type(__import__('sys'))('a_module')", &[])
}

fn node_type(traverse: ffi::traverseproc) -> Object {
    let made = heap::make_type::<Node>(
        &module(),
        Type {
            name: c"a_module.Node",
            doc: c"Holds something.",
            flags: ffi::Py_TPFLAGS_HAVE_GC | ffi::Py_TPFLAGS_BASETYPE,
            methods: vec![
                heap::method(c"hold", hold, ffi::METH_O, c"Holds something else."),
                heap::fast_method(c"count", count, c"How many arguments."),
                heap::keyword_method(c"count_all", count_all, c"And names."),
            ],
            getters: vec![getter(c"held", get_held, c"What it holds.")],
            slots: &[
                (ffi::Py_tp_dealloc, heap::dealloc::<Node> as *mut c_void),
                (ffi::Py_tp_traverse, traverse as *mut c_void),
                (ffi::Py_tp_clear, clear as *mut c_void),
            ],
        },
    );
    made.unwrap_or_else(|_| panic!("{}", raised()))
}

/// A node, and the counter that it shares.
fn node(kind: &Object, held: Object) -> (Object, Arc<()>) {
    let counted = Arc::new(());
    let node = Node { held: Field::new(held), _counted: Arc::clone(&counted) };
    // SAFETY: a type that was made for nodes.
    (unsafe { make(kind.as_ptr().cast(), node) }.expect("a node"), counted)
}

#[test]
fn an_object_gives_back_its_content_and_its_type() {
    attached(|| {
        let (kind, held) = (node_type(traverse), fresh());
        let types = references(kind.as_ptr());
        let (object, counted) = node(&kind, held.clone());
        assert_eq!((references(kind.as_ptr()), references(held.as_ptr())), (types + 1, 2));
        drop(object);
        assert_eq!((references(kind.as_ptr()), references(held.as_ptr())), (types, 1));
        assert_eq!(Arc::strong_count(&counted), 1);
    });
}

#[test]
fn a_cycle_is_collected_if_the_collector_sees_it() {
    attached(|| {
        for (seen, left) in [(traverse as ffi::traverseproc, 1), (traverse_nothing, 2)] {
            let (object, counted) = node(&node_type(seen), Object::none());
            run("node.hold(node)", &[(c"node", &object)]);
            drop(object);
            assert_eq!(Arc::strong_count(&counted), 2, "the cycle keeps it");
            collect();
            assert_eq!(Arc::strong_count(&counted), left);
        }
    });
}

#[test]
fn a_cycle_through_a_list_and_a_subtype_is_collected() {
    attached(|| {
        let kind = subtype();
        let (object, counted) = node(&kind, Object::none());
        run("node.hold([node, {'again': node}])", &[(c"node", &object)]);
        drop(object);
        collect();
        assert_eq!(Arc::strong_count(&counted), 1);
    });
}

/// A type that inherits everything from its base.
fn subtype() -> Object {
    let made = heap::make_sized_type(
        &module(),
        Type {
            name: c"a_module.Sub",
            doc: c"A node with a base.",
            flags: 0,
            methods: Vec::new(),
            getters: Vec::new(),
            slots: &[],
        },
        0,
        Some(&node_type(traverse)),
    );
    made.unwrap_or_else(|_| panic!("{}", raised()))
}

#[test]
fn tables_outlive_what_they_were_made_from() {
    attached(|| {
        let kind = node_type(traverse);
        let (object, _) = node(&kind, eval("'held'", &[]));
        let names: [(&CStr, &Object); 2] = [(c"node", &object), (c"Node", &kind)];
        let seen = eval("node.held, node.count(1, 2), node.count_all(1, a=2, b=3), Node.__doc__", &names);
        assert_eq!(shown(&seen), "('held', 2, 21, 'Holds something.')");
        let refused = eval("[Node.__module__, hasattr(node, '__dict__')]", &names);
        assert_eq!(shown(&refused), "['a_module', False]");
        let setting = eval("lambda node: setattr(node, 'held', 1)", &[]);
        assert!(setting.call(&[object.as_ptr()]).is_err(), "a getter without a setter");
        assert!(raised().starts_with("AttributeError"));
    });
}

#[test]
fn a_field_counts_what_it_holds() {
    attached(|| {
        let (one, other) = (fresh(), fresh());
        let field = Field::new(one.clone());
        let clone = field.clone();
        assert_eq!(references(one.as_ptr()), 3);
        field.set(other.clone());
        assert_eq!((references(one.as_ptr()), references(other.as_ptr())), (2, 2));
        assert_eq!(field.get(), other.as_ptr());
        drop(clone);
        assert_eq!(references(one.as_ptr()), 1);
        let taken = field.take().expect("it holds one");
        assert_eq!(references(other.as_ptr()), 2);
        drop(taken);
        assert!(field.take().is_none());
        assert!(field.share().is_none());
        drop(field);
        assert_eq!(references(other.as_ptr()), 1);
        assert!(Field::empty().get().is_null());
    });
}

#[test]
fn a_type_that_the_interpreter_refuses_is_an_exception() {
    attached(|| {
        let kind = Type {
            name: c"a_module.Wrong",
            doc: c"",
            flags: 0,
            methods: Vec::new(),
            getters: Vec::new(),
            slots: &[(-5, std::ptr::null_mut())],
        };
        assert!(heap::make_type::<Node>(&module(), kind).is_err());
        let _ = raised();
    });
}
