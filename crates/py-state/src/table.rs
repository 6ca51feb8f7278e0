//! The types of drafts, transactions and stores with their methods, and the functions that the package sets up with.

use std::ffi::{CStr, c_void};
use std::ptr;

use pyo3_ffi as ffi;
use ropewalk_capi::entry;
use ropewalk_capi::heap::{Type, content, dealloc, fast_method, getter, make_type, method};
use ropewalk_capi::module;
use ropewalk_capi::object::{Object, Raised};

use crate::draft::emptied;
use crate::draft::scope::Scope;
use crate::draft::shown::compare;
use crate::draft::{array, counter, map, record as record_draft, vector};
use crate::form::{self, Form};
use crate::kinds::{self, Kind};
use crate::node::Pointer;
use crate::record::{self, Record};
use crate::rule::{self, Rule};
use crate::store::{self, Store};
use crate::transaction;
use crate::types::{self, State};

/// Only the module makes objects of the type.
const MADE_HERE: std::ffi::c_ulong = ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION;

/// Makes the types and adds them to the module.
pub(crate) fn fill(state: &mut State, module: &Object) -> Result<(), Raised> {
    state.record = record_type(module)?.into_ptr();
    state.form = form_type(module)?.into_ptr();
    state.rule = rule_type(module)?.into_ptr();
    state.record_draft = record_draft_type(module)?.into_ptr();
    state.map_draft = map_draft_type(module)?.into_ptr();
    state.vector_draft = vector_draft_type(module)?.into_ptr();
    state.counter_draft = counter_draft_type(module)?.into_ptr();
    state.array_draft = array_draft_type(module)?.into_ptr();
    state.transaction = transaction_type(module)?.into_ptr();
    state.store = store_type(module)?.into_ptr();
    // SAFETY: the thread is attached; live types, and a fresh module of ours.
    unsafe {
        state.leaves = Object::own(ffi::PyDict_New())?.into_ptr();
        state.record_name =
            Object::own(ffi::PyUnicode_InternFromString(c"__ropewalk_record__".as_ptr()))?.into_ptr();
        module::add(module, c"Record", state.record)?;
        module::add(module, c"Form", state.form)?;
        module::add(module, c"Rule", state.rule)?;
        module::add(module, c"RecordDraft", state.record_draft)?;
        module::add(module, c"MapDraft", state.map_draft)?;
        module::add(module, c"VectorDraft", state.vector_draft)?;
        module::add(module, c"CounterDraft", state.counter_draft)?;
        module::add(module, c"ArrayDraft", state.array_draft)?;
        module::add(module, c"Transaction", state.transaction)?;
        module::add(module, c"StoreBase", state.store)
    }
}

/// The functions of the module that are here.
pub(crate) fn functions() -> Vec<ffi::PyMethodDef> {
    vec![
        fast_method(
            c"set_hooks",
            set_hooks,
            c"Sets what asks the package about classes, and what makes its errors.",
        ),
        fast_method(
            c"set_arrays",
            set_arrays,
            c"Sets what makes and checks arrays, and NumPy's class of them or None.",
        ),
        method(
            c"add_leaf",
            add_leaf,
            ffi::METH_O,
            c"Says that objects of a class never change and have no parts.",
        ),
        method(c"transaction_of", transaction_of, ffi::METH_O, c"The transaction that a draft belongs to."),
        method(
            c"path_of",
            path_of,
            ffi::METH_O,
            c"The names, keys and indices that lead to a draft from the whole state.",
        ),
        fast_method(c"replaced", replaced, c"A copy of a record with another value in a field."),
        fast_method(c"freeze", freeze, c"The value to store for a value: one that nobody can change."),
    ]
}

/// `set_hooks(kind_of, violated, plain, misplaced, absent, effect, err)`
#[entry]
unsafe extern "C" fn set_hooks(module: Pointer, arguments: *mut Pointer, count: isize) -> Pointer {
    // SAFETY: our module, and as many live arguments as `count` says.
    unsafe {
        let done = (|| {
            let Some(state) = types::MODULE.state(module).filter(|_| count == 7) else {
                ffi::PyErr_SetString(
                    ffi::PyExc_TypeError,
                    c"set_hooks takes six functions and a class".as_ptr(),
                );
                return Err(Raised);
            };
            let hooks = [
                Object::share(*arguments)?,
                Object::share(*arguments.add(1))?,
                Object::share(*arguments.add(2))?,
                Object::share(*arguments.add(3))?,
                Object::share(*arguments.add(4))?,
                Object::share(*arguments.add(5))?,
                Object::share(*arguments.add(6))?,
            ];
            let [kind_of, violated, plain, misplaced, absent, effect, err] = hooks.map(Object::into_ptr);
            let old = [
                std::mem::replace(&mut state.kind_of, kind_of),
                std::mem::replace(&mut state.violated, violated),
                std::mem::replace(&mut state.plain, plain),
                std::mem::replace(&mut state.effect, effect),
                std::mem::replace(&mut state.misplaced, misplaced),
                std::mem::replace(&mut state.absent, absent),
                std::mem::replace(&mut state.err, err),
            ];
            for old in old {
                drop(Object::own(old));
            }
            Ok(Object::none())
        })();
        done.map_or_else(|Raised| ptr::null_mut(), Object::into_ptr)
    }
}

/// `set_arrays(arrays, class)`
#[entry]
unsafe extern "C" fn set_arrays(module: Pointer, arguments: *mut Pointer, count: isize) -> Pointer {
    // SAFETY: our module, and as many live arguments as `count` says.
    unsafe {
        let done = (|| {
            let Some(state) = types::MODULE.state(module).filter(|_| count == 2) else {
                let said = c"set_arrays takes what makes arrays, and a class or None";
                ffi::PyErr_SetString(ffi::PyExc_TypeError, said.as_ptr());
                return Err(Raised);
            };
            let (arrays, class) = (Object::share(*arguments)?, Object::share(*arguments.add(1))?);
            let old = [
                std::mem::replace(&mut state.arrays, arrays.into_ptr()),
                std::mem::replace(&mut state.array, class.into_ptr()),
            ];
            for old in old {
                drop(Object::own(old));
            }
            Ok(Object::none())
        })();
        done.map_or_else(|Raised| ptr::null_mut(), Object::into_ptr)
    }
}

/// `add_leaf(class)`
#[entry]
unsafe extern "C" fn add_leaf(module: Pointer, class: Pointer) -> Pointer {
    // SAFETY: our module, and a live argument.
    unsafe {
        match types::of_module(module) {
            Ok(state) if ffi::PyDict_SetItem(state.leaves, class, ffi::Py_None()) == 0 => {
                Object::none().into_ptr()
            }
            _ => ptr::null_mut(),
        }
    }
}

/// `transaction_of(draft)`
#[entry]
unsafe extern "C" fn transaction_of(module: Pointer, draft: Pointer) -> Pointer {
    // SAFETY: our module, and a live argument, whose type is checked.
    unsafe {
        let found = (|| {
            let state = types::of_module(module)?;
            if !state.is_draft(draft) {
                ffi::PyErr_SetString(ffi::PyExc_TypeError, c"transaction_of takes a draft".as_ptr());
                return Err(Raised);
            }
            let head = crate::draft::head(state, draft);
            head.open()?;
            head.scope.share().ok_or(Raised)
        })();
        found.map_or_else(|Raised| ptr::null_mut(), Object::into_ptr)
    }
}

/// `path_of(draft)`
#[entry]
unsafe extern "C" fn path_of(module: Pointer, draft: Pointer) -> Pointer {
    // SAFETY: our module, and a live argument, whose type is checked.
    unsafe {
        let found = (|| {
            let state = types::of_module(module)?;
            if !state.is_draft(draft) {
                ffi::PyErr_SetString(ffi::PyExc_TypeError, c"path_of takes a draft".as_ptr());
                return Err(Raised);
            }
            let head = crate::draft::head(state, draft);
            head.open()?;
            crate::draft::path_to(state, head, draft, ptr::null_mut())
        })();
        found.map_or_else(|Raised| ptr::null_mut(), Object::into_ptr)
    }
}

/// `replaced(record, name, value)`
#[entry]
unsafe extern "C" fn replaced(module: Pointer, arguments: *mut Pointer, count: isize) -> Pointer {
    // SAFETY: our module, and as many live arguments as `count` says, which are checked.
    unsafe {
        let made = (|| {
            let wrong = || {
                ffi::PyErr_SetString(
                    ffi::PyExc_TypeError,
                    c"replaced takes a record, the name of one of its fields, and a value".as_ptr(),
                );
                Raised
            };
            if count != 3 || ffi::PyUnicode_Check(*arguments.add(1)) == 0 {
                return Err(wrong());
            }
            let state = types::of_module(module)?;
            let Kind::Record(info) = kinds::kind_of(state, *arguments)? else { return Err(wrong()) };
            let info = content::<Record>(info.as_ptr());
            let index = info.index(*arguments.add(1)).ok_or_else(wrong)?;
            let mut changes = vec![None; info.count()];
            changes[index] = Some(Object::share(*arguments.add(2))?);
            info.copy(*arguments, &changes)
        })();
        made.map_or_else(|Raised| ptr::null_mut(), Object::into_ptr)
    }
}

/// `freeze(value, form=None)`
#[entry]
unsafe extern "C" fn freeze(module: Pointer, arguments: *mut Pointer, count: isize) -> Pointer {
    // SAFETY: our module, and as many live arguments as `count` says, whose types are checked.
    unsafe {
        let made = (|| {
            let state = types::of_module(module)?;
            let form = if count == 2 { *arguments.add(1) } else { ffi::Py_None() };
            let is_none = form == ffi::Py_None();
            if !(1..=2).contains(&count) || !is_none && ffi::Py_TYPE(form) != state.form.cast() {
                ffi::PyErr_SetString(
                    ffi::PyExc_TypeError,
                    c"freeze takes a value, and a Form or None".as_ptr(),
                );
                return Err(Raised);
            }
            let form = if is_none { None } else { Some(content::<Form>(form)) };
            crate::draft::freeze::freeze_whole(state, *arguments, form)
        })();
        made.map_or_else(|Raised| ptr::null_mut(), Object::into_ptr)
    }
}

fn record_type(module: &Object) -> Result<Object, Raised> {
    make_type::<Record>(
        module,
        Type {
            name: c"ropewalk._state.Record",
            doc: c"Record(class, names, rebuild, check)\n--\n\nWhat is known of a class of records.",
            flags: ffi::Py_TPFLAGS_HAVE_GC,
            methods: vec![method(
                c"__reduce__",
                record::reduce,
                ffi::METH_NOARGS,
                c"__reduce__($self, /)\n--\n\nNone: a class gets a new record where it is used.",
            )],
            getters: vec![],
            slots: &[
                (ffi::Py_tp_new, record::new as *mut c_void),
                (ffi::Py_tp_dealloc, dealloc::<Record> as *mut c_void),
                (ffi::Py_tp_traverse, record::traverse as *mut c_void),
                (ffi::Py_tp_clear, record::clear as *mut c_void),
            ],
        },
    )
}

fn form_type(module: &Object) -> Result<Object, Raised> {
    make_type::<Form>(
        module,
        Type {
            name: c"ropewalk._state.Form",
            doc: c"Form(classes, fits, text, is_loose, record, names, /)\n--\n\nThe declared values of a place.",
            flags: ffi::Py_TPFLAGS_HAVE_GC,
            methods: vec![fast_method(
                c"link",
                form::link,
                c"link($self, fields, items, key, /)\n--\n\nSets the forms of the places below, once.",
            )],
            getters: vec![],
            slots: &[
                (ffi::Py_tp_new, form::new as *mut c_void),
                (ffi::Py_tp_dealloc, dealloc::<Form> as *mut c_void),
                (ffi::Py_tp_traverse, form::traverse as *mut c_void),
                (ffi::Py_tp_clear, form::clear as *mut c_void),
            ],
        },
    )
}

fn rule_type(module: &Object) -> Result<Object, Raised> {
    make_type::<Rule>(
        module,
        Type {
            name: c"ropewalk._state.Rule",
            doc: c"Rule(reads, writes, zone, record, names)\n--\n\nWhat a transaction may do at one place.",
            flags: ffi::Py_TPFLAGS_HAVE_GC,
            methods: vec![
                fast_method(
                    c"link",
                    rule::link,
                    c"link($self, fields, items, arrays, /)\n--\n\nSets the rules of the places below, once.",
                ),
                method(
                    c"form",
                    rule::set_form,
                    ffi::METH_O,
                    c"form($self, form, /)\n--\n\nSets what the values are declared to be, once.",
                ),
                fast_method(
                    c"number",
                    rule::number,
                    c"number($self, touches, changes, /)\n--\n\nSets the numbered parts that are touched and changed.",
                ),
            ],
            getters: vec![],
            slots: &[
                (ffi::Py_tp_new, rule::new as *mut c_void),
                (ffi::Py_tp_dealloc, dealloc::<Rule> as *mut c_void),
                (ffi::Py_tp_traverse, rule::traverse as *mut c_void),
                (ffi::Py_tp_clear, rule::clear as *mut c_void),
            ],
        },
    )
}

const ON_COMMIT: &CStr = c"on_commit($self, function, /, *args)\n--\n\n\
Calls the function with the arguments after the commit, in the order of versions.";

fn record_draft_type(module: &Object) -> Result<Object, Raised> {
    make_type::<record_draft::Draft>(
        module,
        Type {
            name: c"ropewalk._state.RecordDraft",
            doc: c"A record as a transaction sees and changes it.",
            flags: ffi::Py_TPFLAGS_HAVE_GC | MADE_HERE,
            methods: vec![fast_method(c"on_commit", transaction::on_commit, ON_COMMIT)],
            getters: vec![],
            slots: &[
                (ffi::Py_tp_getattro, record_draft::getattro as *mut c_void),
                (ffi::Py_tp_setattro, record_draft::setattro as *mut c_void),
                (ffi::Py_tp_richcompare, compare as *mut c_void),
                (ffi::Py_tp_hash, ffi::PyObject_HashNotImplemented as *mut c_void),
                (ffi::Py_tp_repr, record_draft::repr as *mut c_void),
                (ffi::Py_tp_dealloc, dealloc::<record_draft::Draft> as *mut c_void),
                (ffi::Py_tp_traverse, record_draft::traverse as *mut c_void),
                (ffi::Py_tp_clear, record_draft::clear as *mut c_void),
            ],
        },
    )
}

fn map_draft_type(module: &Object) -> Result<Object, Raised> {
    make_type::<map::Draft>(
        module,
        Type {
            name: c"ropewalk._state.MapDraft",
            doc: c"A map as a transaction sees and changes it.",
            flags: ffi::Py_TPFLAGS_HAVE_GC | MADE_HERE,
            methods: vec![
                fast_method(
                    c"get",
                    map::get_or,
                    c"get($self, key, default=None, /)\n--\n\nThe value under a key, or the default.",
                ),
                method(
                    c"popitem",
                    emptied::popitem,
                    ffi::METH_NOARGS,
                    c"popitem($self, /)\n--\n\nTakes an entry out and gives it; that reads which keys there are.",
                ),
                method(
                    c"clear",
                    emptied::clear_entries,
                    ffi::METH_NOARGS,
                    c"clear($self, /)\n--\n\nDeletes all entries; that reads which keys there are.",
                ),
                fast_method(c"on_commit", transaction::on_commit, ON_COMMIT),
            ],
            getters: vec![],
            slots: &[
                (ffi::Py_mp_subscript, map::subscript as *mut c_void),
                (ffi::Py_mp_ass_subscript, map::assign as *mut c_void),
                (ffi::Py_mp_length, map::length as *mut c_void),
                (ffi::Py_sq_contains, map::contains as *mut c_void),
                (ffi::Py_tp_iter, map::iter as *mut c_void),
                (ffi::Py_tp_richcompare, compare as *mut c_void),
                (ffi::Py_tp_hash, ffi::PyObject_HashNotImplemented as *mut c_void),
                (ffi::Py_tp_repr, map::repr as *mut c_void),
                (ffi::Py_tp_dealloc, dealloc::<map::Draft> as *mut c_void),
                (ffi::Py_tp_traverse, map::traverse as *mut c_void),
                (ffi::Py_tp_clear, map::clear as *mut c_void),
            ],
        },
    )
}

fn vector_draft_type(module: &Object) -> Result<Object, Raised> {
    make_type::<vector::Draft>(
        module,
        Type {
            name: c"ropewalk._state.VectorDraft",
            doc: c"A vector as a transaction sees and changes it.",
            flags: ffi::Py_TPFLAGS_HAVE_GC | MADE_HERE,
            methods: vec![
                method(
                    c"append",
                    vector::append,
                    ffi::METH_O,
                    c"append($self, value, /)\n--\n\nPuts a value behind the last item; that reads nothing.",
                ),
                method(
                    c"extend",
                    vector::extend,
                    ffi::METH_O,
                    c"extend($self, values, /)\n--\n\nPuts values behind the last item; that reads nothing.",
                ),
                fast_method(
                    c"pop",
                    vector::pop,
                    c"pop($self, index=-1, /)\n--\n\nTakes an item out and gives it.",
                ),
                fast_method(
                    c"insert",
                    vector::insert,
                    c"insert($self, index, value, /)\n--\n\nPuts a value before an item.",
                ),
                method(
                    c"reverse",
                    vector::reverse,
                    ffi::METH_NOARGS,
                    c"reverse($self, /)\n--\n\nTurns the order of the items round; that reads them all.",
                ),
                method(
                    c"clear",
                    vector::clear_items,
                    ffi::METH_NOARGS,
                    c"clear($self, /)\n--\n\nTakes all items out; that reads them all.",
                ),
            ],
            getters: vec![],
            slots: &[
                (ffi::Py_mp_subscript, vector::subscript as *mut c_void),
                (ffi::Py_mp_ass_subscript, vector::assign as *mut c_void),
                (ffi::Py_mp_length, vector::length as *mut c_void),
                (ffi::Py_sq_length, vector::length as *mut c_void),
                (ffi::Py_sq_item, vector::item as *mut c_void),
                (ffi::Py_sq_inplace_concat, vector::extend_in_place as *mut c_void),
                (ffi::Py_tp_richcompare, compare as *mut c_void),
                (ffi::Py_tp_hash, ffi::PyObject_HashNotImplemented as *mut c_void),
                (ffi::Py_tp_repr, vector::repr as *mut c_void),
                (ffi::Py_tp_dealloc, dealloc::<vector::Draft> as *mut c_void),
                (ffi::Py_tp_traverse, vector::traverse as *mut c_void),
                (ffi::Py_tp_clear, vector::clear as *mut c_void),
            ],
        },
    )
}

fn counter_draft_type(module: &Object) -> Result<Object, Raised> {
    make_type::<counter::Draft>(
        module,
        Type {
            name: c"ropewalk._state.CounterDraft",
            doc: c"A counter as a transaction sees and changes it: `+=` and `-=` read nothing.",
            flags: ffi::Py_TPFLAGS_HAVE_GC | MADE_HERE,
            methods: vec![method(
                c"add",
                counter::add_method,
                ffi::METH_O,
                c"add($self, number, /)\n--\n\nAdds to the counter; that reads nothing.",
            )],
            getters: vec![getter(c"value", counter::value, c"The number as it is now; that reads it.")],
            slots: &[
                (ffi::Py_nb_inplace_add, counter::add_in_place as *mut c_void),
                (ffi::Py_nb_inplace_subtract, counter::subtract_in_place as *mut c_void),
                (ffi::Py_nb_int, counter::number as *mut c_void),
                (ffi::Py_nb_index, counter::number as *mut c_void),
                (ffi::Py_tp_richcompare, counter::compare as *mut c_void),
                (ffi::Py_tp_hash, ffi::PyObject_HashNotImplemented as *mut c_void),
                (ffi::Py_tp_repr, counter::repr as *mut c_void),
                (ffi::Py_tp_dealloc, dealloc::<counter::Draft> as *mut c_void),
                (ffi::Py_tp_traverse, counter::traverse as *mut c_void),
                (ffi::Py_tp_clear, counter::clear as *mut c_void),
            ],
        },
    )
}

fn array_draft_type(module: &Object) -> Result<Object, Raised> {
    make_type::<array::Draft>(
        module,
        Type {
            name: c"ropewalk._state.ArrayDraft",
            doc: c"An array as a transaction sees and changes it.",
            flags: ffi::Py_TPFLAGS_HAVE_GC | MADE_HERE,
            methods: vec![method(
                c"_held",
                array::held,
                ffi::METH_O,
                c"_held($self, access, /)\n--\n\nThe transaction's copy, or the committed array.",
            )],
            getters: vec![],
            slots: &[
                (ffi::Py_tp_hash, ffi::PyObject_HashNotImplemented as *mut c_void),
                (ffi::Py_tp_repr, array::repr as *mut c_void),
                (ffi::Py_tp_dealloc, dealloc::<array::Draft> as *mut c_void),
                (ffi::Py_tp_traverse, array::traverse as *mut c_void),
                (ffi::Py_tp_clear, array::clear as *mut c_void),
            ],
        },
    )
}

fn transaction_type(module: &Object) -> Result<Object, Raised> {
    make_type::<Scope>(
        module,
        Type {
            name: c"ropewalk._state.Transaction",
            doc: c"One attempt at a change of the state.",
            flags: ffi::Py_TPFLAGS_HAVE_GC | MADE_HERE,
            methods: vec![
                method(
                    c"savepoint",
                    transaction::savepoint,
                    ffi::METH_NOARGS,
                    c"savepoint($self, /)\n--\n\nWhere `rollback` goes back to.",
                ),
                method(
                    c"rollback",
                    transaction::rollback,
                    ffi::METH_O,
                    c"rollback($self, savepoint, /)\n--\n\nUndoes what was done since a savepoint, and ends it.",
                ),
                method(
                    c"release",
                    transaction::release,
                    ffi::METH_O,
                    c"release($self, savepoint, /)\n--\n\nEnds a savepoint that nobody goes back to.",
                ),
                method(
                    c"value",
                    transaction::value,
                    ffi::METH_O,
                    c"value($self, draft, /)\n--\n\nThe value that a draft's place has now; all of it counts as read.",
                ),
                method(
                    c"footprint",
                    transaction::footprint,
                    ffi::METH_NOARGS,
                    c"footprint($self, /)\n--\n\nWhat was read and written so far, as a list of (path, access).",
                ),
                method(
                    c"changes",
                    transaction::changes,
                    ffi::METH_NOARGS,
                    c"changes($self, /)\n--\n\nWhat was changed so far, as a list of (number, path, value).",
                ),
                method(
                    c"abort",
                    transaction::abort,
                    ffi::METH_NOARGS,
                    c"abort($self, /)\n--\n\nGives the changes up.",
                ),
                fast_method(c"on_commit", transaction::on_commit, ON_COMMIT),
            ],
            getters: vec![
                getter(c"root", transaction::root, c"The draft of the whole state."),
                getter(c"version", transaction::version, c"The version that it began with."),
                getter(c"base", transaction::base, c"The state that it began with."),
                getter(c"store", transaction::store, c"The store."),
                getter(c"label", transaction::label, c"What it was begun with as its label."),
                getter(c"conflict", transaction::conflict, c"The path of the last conflict, or None."),
                getter(c"effects", transaction::effects, c"What runs after the commit, or None."),
                getter(c"is_open", transaction::is_open, c"Whether its drafts may be used."),
            ],
            slots: &[
                (ffi::Py_tp_dealloc, dealloc::<Scope> as *mut c_void),
                (ffi::Py_tp_traverse, transaction::traverse as *mut c_void),
                (ffi::Py_tp_clear, transaction::clear as *mut c_void),
            ],
        },
    )
}

fn store_type(module: &Object) -> Result<Object, Raised> {
    make_type::<Store>(
        module,
        Type {
            name: c"ropewalk._state.StoreBase",
            doc: c"The compiled base of Store.",
            flags: ffi::Py_TPFLAGS_HAVE_GC | ffi::Py_TPFLAGS_BASETYPE,
            methods: vec![
                method(
                    c"snapshot",
                    store::snapshot,
                    ffi::METH_NOARGS,
                    c"snapshot($self, /)\n--\n\nThe state as it is now; it never changes.",
                ),
                fast_method(c"_begin", store::begin, c"_begin($self, rule, label, /)\n--\n\nBegins a transaction."),
                fast_method(
                    c"_commit",
                    store::commit,
                    c"_commit($self, transaction, claim, /)\n--\n\nCommits a transaction.",
                ),
                fast_method(
                    c"_attempt",
                    store::run_once,
                    c"_attempt($self, function, rule, label, claim, args, kwargs, /)\n--\n\nRuns and commits.",
                ),
                fast_method(
                    c"_attempt_now",
                    store::run_now,
                    c"_attempt_now($self, function, rule, label, claim, args, kwargs, /)\n--\n\n\
As _attempt, but waits for no claim.",
                ),
                method(
                    c"_ask",
                    store::ask,
                    ffi::METH_O,
                    c"_ask($self, rule, /)\n--\n\nClaims parts of the state, and does not wait for them.",
                ),
                method(
                    c"_is_granted",
                    store::is_granted,
                    ffi::METH_O,
                    c"_is_granted($self, number, /)\n--\n\nWhether a claim is granted.",
                ),
                method(
                    c"_is_allowed",
                    store::is_allowed,
                    ffi::METH_O,
                    c"_is_allowed($self, rule, /)\n--\n\nWhether no claim forbids the changes of a rule.",
                ),
                fast_method(
                    c"_wait",
                    store::wait,
                    c"_wait($self, version, epoch, /)\n--\n\nWaits until a commit is durable.",
                ),
                fast_method(
                    c"_replace",
                    store::replace,
                    c"_replace($self, base, now, root, label, record, stands_for, claim, /)\n--\n\nCommits a state.",
                ),
                method(
                    c"_past",
                    store::past,
                    ffi::METH_O,
                    c"_past($self, back, /)\n--\n\nThe older state that an undo or a redo goes to.",
                ),
                fast_method(
                    c"_step",
                    store::step,
                    c"_step($self, back, label, claim, /)\n--\n\nCommits an older state.",
                ),
                fast_method(
                    c"_claim",
                    store::claim,
                    c"_claim($self, rule, patience, /)\n--\n\nClaims parts of the state.",
                ),
                method(
                    c"_release",
                    store::release,
                    ffi::METH_O,
                    c"_release($self, claim, /)\n--\n\nEnds a claim.",
                ),
                method(
                    c"_versions",
                    store::versions,
                    ffi::METH_O,
                    c"_versions($self, first, /)\n--\n\nThe versions that are kept, from a number on.",
                ),
                method(
                    c"_durable",
                    store::durable,
                    ffi::METH_NOARGS,
                    c"_durable($self, /)\n--\n\nThe newest durable version.",
                ),
                method(
                    c"_next_effects",
                    store::next_effects,
                    ffi::METH_O,
                    c"_next_effects($self, known, /)\n--\n\nThe effects of the oldest durable commit behind a version.",
                ),
                method(
                    c"_close",
                    store::close,
                    ffi::METH_NOARGS,
                    c"_close($self, /)\n--\n\nNo transaction begins or commits from here on.",
                ),
            ],
            getters: vec![
                getter(c"version", store::version, c"The number of the newest version."),
                getter(c"_has_claims", store::has_claims, c"Whether a part of the state is claimed."),
                getter(c"_has_effects", store::has_effects, c"Whether effects wait for delivery."),
                getter(c"_is_due", store::is_due, c"Whether something is to be done after a commit."),
                getter(c"closed", store::is_closed, c"Whether it was closed."),
            ],
            slots: &[
                (ffi::Py_tp_new, store::new as *mut c_void),
                (ffi::Py_tp_dealloc, dealloc::<Store> as *mut c_void),
                (ffi::Py_tp_traverse, store::traverse as *mut c_void),
                (ffi::Py_tp_clear, store::clear as *mut c_void),
            ],
        },
    )
}
