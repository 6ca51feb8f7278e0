//! The views `keys()`, `values()` and `items()` of a map, and its iterators.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;

use pyo3_ffi as ffi;
use ropewalk_capi::entry;
use ropewalk_capi::guarded::Guarded;
use ropewalk_capi::heap::{self, Field, Type, content, make, method};
use ropewalk_capi::module;
use ropewalk_capi::object::{Object, Raised};

use super::cursor::Cursor;
use super::object;
use crate::equality;
use crate::node::{Pointer, same};
use crate::types::{self, State};

/// What a view shows, and an iterator yields, of each entry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Part {
    Key,
    Value,
    Item,
}

const PARTS: [Part; 3] = [Part::Key, Part::Value, Part::Item];

/// A view of a map.
struct View {
    map: Field,
    part: Part,
}

/// An iterator over a map. Its cursor points into the map that it holds; two threads may use one iterator, and each
/// entry is then yielded to one of them.
struct Walk {
    map: Field,
    part: Part,
    place: Guarded<Place>,
}

struct Place {
    cursor: Cursor,
    left: usize,
}

// SAFETY: the pointers lead to nodes of the map that the iterator holds, which never change.
unsafe impl Send for Place {}

/// A view of a map.
///
/// # Safety
///
/// A live map.
pub(super) unsafe fn view(map: Pointer, part: Part) -> Result<Object, Raised> {
    // SAFETY: the caller's; the state has the views in the order of the parts.
    unsafe {
        let kind = types::of(ffi::Py_TYPE(map))?.map_views[part as usize];
        make(kind.cast(), View { map: Field::new(Object::share(map)?), part })
    }
}

/// An iterator over a map.
///
/// # Safety
///
/// A live map.
pub(super) unsafe fn walk(map: Pointer, part: Part) -> Result<Object, Raised> {
    // SAFETY: the caller's; the iterator holds the map for as long as its cursor.
    unsafe {
        let kind = types::of(ffi::Py_TYPE(map))?.map_iterator;
        let place = Place { cursor: Cursor::new(map), left: object::count(map) };
        make(kind.cast(), Walk { map: Field::new(Object::share(map)?), part, place: Guarded::new(place) })
    }
}

fn raw(made: Result<Object, Raised>) -> Pointer {
    made.map_or(null_mut(), Object::into_ptr)
}

#[entry]
unsafe extern "C" fn next(iterator: Pointer) -> Pointer {
    // SAFETY: a live iterator, whose map lives with it; nothing of the interpreter runs under the guard.
    unsafe {
        let walk = content::<Walk>(iterator);
        let entry = {
            let mut place = walk.place.lock();
            let entry = place.cursor.next();
            place.left -= usize::from(entry.is_some());
            entry
        };
        let Some((key, value)) = entry else { return null_mut() };
        match walk.part {
            Part::Key => same(key),
            Part::Value => same(value),
            Part::Item => {
                let pair = ffi::PyTuple_New(2);
                if !pair.is_null() {
                    ffi::PyTuple_SetItem(pair, 0, same(key));
                    ffi::PyTuple_SetItem(pair, 1, same(value));
                }
                pair
            }
        }
    }
}

#[entry]
unsafe extern "C" fn length_hint(iterator: Pointer, _: Pointer) -> Pointer {
    // SAFETY: a live iterator; nothing of the interpreter runs under the guard.
    let left = unsafe { content::<Walk>(iterator).place.lock() }.left;
    // SAFETY: the thread is attached.
    unsafe { ffi::PyLong_FromSize_t(left) }
}

#[entry]
unsafe extern "C" fn itself(object: Pointer) -> Pointer {
    // SAFETY: a live object.
    unsafe { same(object) }
}

#[entry]
unsafe extern "C" fn traverse_iterator(object: Pointer, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    // SAFETY: a live iterator, and the collector's arguments.
    unsafe {
        let answer = content::<Walk>(object).map.visit(visit, arg);
        if answer != 0 { answer } else { heap::visit_type(object, visit, arg) }
    }
}

#[entry]
unsafe extern "C" fn traverse_view(object: Pointer, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    // SAFETY: a live view, and the collector's arguments.
    unsafe {
        let answer = content::<View>(object).map.visit(visit, arg);
        if answer != 0 { answer } else { heap::visit_type(object, visit, arg) }
    }
}

#[entry]
unsafe extern "C" fn iter(object: Pointer) -> Pointer {
    // SAFETY: a live view, which holds its map.
    unsafe {
        let view = content::<View>(object);
        raw(walk(view.map.get(), view.part))
    }
}

#[entry]
unsafe extern "C" fn length(object: Pointer) -> ffi::Py_ssize_t {
    // SAFETY: a live view, which holds its map.
    unsafe { object::count(content::<View>(object).map.get()) as _ }
}

#[entry]
unsafe extern "C" fn contains(object: Pointer, item: Pointer) -> c_int {
    // SAFETY: a live view, which holds its map, and a live object.
    let found = unsafe { has(content::<View>(object), item) };
    found.map_or(-1, c_int::from)
}

/// # Safety
///
/// A live view and a live object, which the caller keeps alive. Python code may run.
unsafe fn has(view: &View, item: Pointer) -> Result<bool, Raised> {
    // SAFETY: the caller's.
    unsafe {
        let map = view.map.get();
        match view.part {
            Part::Key => Ok(super::get(map, item)?.is_some()),
            Part::Item => {
                if ffi::PyTuple_Check(item) == 0 || ffi::PyTuple_Size(item) != 2 {
                    return Ok(false);
                }
                match super::get(map, ffi::PyTuple_GetItem(item, 0))? {
                    Some(value) => equality::equal(map, value, ffi::PyTuple_GetItem(item, 1)),
                    None => Ok(false),
                }
            }
            Part::Value => {
                let mut cursor = Cursor::new(map);
                while let Some((_, value)) = cursor.next() {
                    if equality::equal(map, value, item)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
        }
    }
}

#[entry]
unsafe extern "C" fn repr(object: Pointer) -> Pointer {
    // SAFETY: a live view; the format's arguments are a C string and a live object. Every repr that is entered is left.
    unsafe {
        let name = match content::<View>(object).part {
            Part::Key => c"MapKeys",
            Part::Value => c"MapValues",
            Part::Item => c"MapItems",
        };
        let entered = ffi::Py_ReprEnter(object);
        if entered != 0 {
            return if entered > 0 {
                ffi::PyUnicode_FromFormat(c"%s([...])".as_ptr(), name.as_ptr())
            } else {
                null_mut()
            };
        }
        let text = Object::own(ffi::PySequence_List(object)).and_then(|list| {
            Object::own(ffi::PyUnicode_FromFormat(c"%s(%R)".as_ptr(), name.as_ptr(), list.as_ptr()))
        });
        ffi::Py_ReprLeave(object);
        raw(text)
    }
}

/// Whether the object is a view of keys or items, which are sets.
///
/// # Safety
///
/// A live object.
unsafe fn is_set(object: Pointer) -> bool {
    // SAFETY: the caller's; only views have this function for their length.
    unsafe {
        let kind = ffi::Py_TYPE(object);
        let Some(iter_of) = (*kind).tp_iter else { return false };
        std::ptr::fn_addr_eq(iter_of, iter as ffi::getiterfunc) && content::<View>(object).part != Part::Value
    }
}

/// The operand as a set, if it is a view of keys or items.
///
/// # Safety
///
/// A live object. Python code may run.
unsafe fn operand(object: Pointer) -> Result<Object, Raised> {
    // SAFETY: the caller's.
    unsafe { if is_set(object) { Object::own(ffi::PySet_New(object)) } else { Object::share(object) } }
}

/// The operators of sets, which make sets. Any iterable will do for the other side, as for the views of a `dict`.
macro_rules! set_operator {
    ($name:ident, $operation:path) => {
        #[entry]
        unsafe extern "C" fn $name(a: Pointer, b: Pointer) -> Pointer {
            // SAFETY: live objects.
            unsafe {
                let sets =
                    Object::own(ffi::PySet_New(a)).and_then(|a| Ok((a, Object::own(ffi::PySet_New(b))?)));
                sets.map_or(null_mut(), |(a, b)| $operation(a.as_ptr(), b.as_ptr()))
            }
        }
    };
}

set_operator!(and, ffi::PyNumber_And);
set_operator!(or, ffi::PyNumber_Or);
set_operator!(xor, ffi::PyNumber_Xor);
set_operator!(subtract, ffi::PyNumber_Subtract);

#[entry]
unsafe extern "C" fn is_disjoint(object: Pointer, other: Pointer) -> Pointer {
    // SAFETY: a live view and a live object.
    unsafe {
        let answer =
            Object::own(ffi::PySet_New(object)).and_then(|set| set.attribute(c"isdisjoint")?.call(&[other]));
        raw(answer)
    }
}

/// Comparisons of a view with a set, or with another view.
#[entry]
unsafe extern "C" fn compare(object: Pointer, other: Pointer, operation: c_int) -> Pointer {
    // SAFETY: live objects.
    unsafe {
        let is_any_set =
            is_set(other) || ffi::PyAnySet_Check(other) != 0 || ffi::PyDictViewSet_Check(other) != 0;
        if !is_any_set {
            return same(ffi::Py_NotImplemented());
        }
        let sides = operand(object).and_then(|a| Ok((a, operand(other)?)));
        sides.map_or(null_mut(), |(a, b)| ffi::PyObject_RichCompare(a.as_ptr(), b.as_ptr(), operation))
    }
}

/// Makes the types.
pub(super) fn fill(state: &mut State, module: &Object) -> Result<(), Raised> {
    const HIDDEN: std::ffi::c_ulong =
        ffi::Py_TPFLAGS_HAVE_GC | ffi::Py_TPFLAGS_IMMUTABLETYPE | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION;
    const NAMES: [(&CStr, &CStr); 3] = [
        (c"ropewalk._state.MapKeys", c"The keys of a map, as a set."),
        (c"ropewalk._state.MapValues", c"The values of a map."),
        (c"ropewalk._state.MapItems", c"The pairs of a key and its value in a map, as a set."),
    ];
    let iterator = heap::make_type::<Walk>(
        module,
        Type {
            name: c"ropewalk._state._MapIterator",
            doc: c"An iterator over a map.",
            flags: HIDDEN | ffi::Py_TPFLAGS_HAVE_GC,
            methods: vec![method(c"__length_hint__", length_hint, ffi::METH_NOARGS, c"How many are left.")],
            getters: Vec::new(),
            slots: &[
                (ffi::Py_tp_iter, itself as *mut c_void),
                (ffi::Py_tp_iternext, next as *mut c_void),
                (ffi::Py_tp_traverse, traverse_iterator as *mut c_void),
                (ffi::Py_tp_dealloc, heap::dealloc::<Walk> as *mut c_void),
            ],
        },
    )?;
    state.map_iterator = iterator.into_ptr();
    for part in PARTS {
        let (name, doc) = NAMES[part as usize];
        let mut slots = vec![
            (ffi::Py_tp_iter, iter as *mut c_void),
            (ffi::Py_tp_repr, repr as *mut c_void),
            (ffi::Py_sq_length, length as *mut c_void),
            (ffi::Py_sq_contains, contains as *mut c_void),
            (ffi::Py_tp_traverse, traverse_view as *mut c_void),
            (ffi::Py_tp_dealloc, heap::dealloc::<View> as *mut c_void),
        ];
        let mut methods = Vec::new();
        if part != Part::Value {
            slots.extend([
                (ffi::Py_nb_and, and as *mut c_void),
                (ffi::Py_nb_or, or as *mut c_void),
                (ffi::Py_nb_xor, xor as *mut c_void),
                (ffi::Py_nb_subtract, subtract as *mut c_void),
                (ffi::Py_tp_richcompare, compare as *mut c_void),
            ]);
            let doc = c"isdisjoint($self, other, /)\n--\n\nWhether none of the other's items is in the view.";
            methods.push(method(c"isdisjoint", is_disjoint, ffi::METH_O, doc));
        }
        let made = heap::make_type::<View>(
            module,
            Type { name, doc, flags: HIDDEN, methods, getters: Vec::new(), slots: &slots },
        )?;
        state.map_views[part as usize] = made.into_ptr();
        // SAFETY: our fresh module, and a live type.
        unsafe {
            let short = CStr::from_ptr(name.as_ptr().add(c"ropewalk._state.".count_bytes()));
            module::add(module, short, state.map_views[part as usize])?;
        }
    }
    Ok(())
}
