//! `Transaction`: one attempt at a change of the state, and what Python does with it.

use std::ffi::{c_int, c_void};
use std::ptr;

use pyo3_ffi as ffi;
use ropewalk_base::Code;
use ropewalk_capi::entry;
use ropewalk_capi::errors;
use ropewalk_capi::heap::{self, content};
use ropewalk_capi::object::{Object, Raised};

use crate::draft::build::{Out, Stop, build};
use crate::draft::scope::{Phase, Scope};
use crate::draft::shown::current;
use crate::draft::{self, savepoint};
use crate::node::Pointer;
use crate::types::{self, State};

/// Begins a transaction on a state.
///
/// # Errors
///
/// The state is a leaf, which has no parts to change.
///
/// # Safety
///
/// Live objects; `rule` is a `Rule`.
pub(crate) unsafe fn begin(
    types: &State,
    store: Object,
    root: Object,
    version: u64,
    rule: Object,
    label: Object,
) -> Result<Object, Raised> {
    // SAFETY: the caller's; the module's own type.
    unsafe {
        let (base, place) = (root.clone(), rule.clone());
        let scope = Scope::new(store, root, version, rule, label);
        let made = heap::make(types.transaction.cast(), scope)?;
        match draft::make(types, made.as_ptr(), base.as_ptr(), place.as_ptr(), false)? {
            Some(root) => content::<Scope>(made.as_ptr()).root.set(root),
            None => {
                let said =
                    "the state of a store must be a record or a map, such as a frozen dataclass or a PMap";
                return Err(errors::raise_text(Code::StateError, said));
            }
        }
        Ok(made)
    }
}

/// What a transaction makes of a state.
pub(crate) enum Made {
    /// A new state, or nothing if the transaction changes nothing; the list of changes if it was wanted; whether there
    /// are changes outside of transient places.
    State(Option<Object>, Option<Object>, bool),
    /// It has read what has changed; the transaction knows where.
    Conflict,
}

/// What is wanted of a transaction.
#[derive(Clone, Copy)]
pub(crate) enum Wanted {
    State,
    /// The state, and the changes that lead to it.
    Both,
    /// What the program has changed, to be repeated by another transaction. Records that this makes anew are checked
    /// there: here they may lack fields, and what their checks change is not the program's change.
    Changes,
}

/// Applies a transaction to the state as it is now.
///
/// # Safety
///
/// `scope` is the content of a transaction that is committing.
pub(crate) unsafe fn apply(
    types: &State,
    scope: &Scope,
    now: Pointer,
    wanted: Wanted,
) -> Result<Made, Raised> {
    // SAFETY: the caller's; the root is held, because what is called may end the transaction.
    unsafe {
        let Some(root) = scope.root.share() else {
            return Err(errors::raise_text(Code::TransactionEnded, "the transaction has ended"));
        };
        let mut out = Out::new(types, !matches!(wanted, Wanted::State))?.guarding();
        match build(&mut out, root.as_ptr(), now) {
            Ok(state) => {
                let is_lasting = out.is_lasting;
                let (unchecked, changes) = out.into_parts();
                let is_repeated = matches!(wanted, Wanted::Changes);
                for one in unchecked {
                    if !(is_repeated && one.is_noted()) {
                        one.run(types, changes.as_ref())?;
                    }
                }
                Ok(Made::State(state, changes, is_lasting))
            }
            Err(Stop::Raised) => Err(Raised),
            Err(Stop::Conflict(mut steps)) => {
                steps.reverse();
                scope.conflict.set(draft::path_of(&steps)?);
                Ok(Made::Conflict)
            }
        }
    }
}

/// The transaction's content, if this thread may use it now.
///
/// # Safety
///
/// `own` is a live transaction.
unsafe fn open<'a>(own: Pointer) -> Result<&'a Scope, Raised> {
    // SAFETY: the caller's.
    let scope = unsafe { content::<Scope>(own) };
    scope.check()?;
    Ok(scope)
}

/// `transaction.root`: the draft of the whole state.
#[entry]
pub(crate) unsafe extern "C" fn root(own: Pointer, _: *mut c_void) -> Pointer {
    // SAFETY: a transaction of ours.
    let found = unsafe { open(own) }.and_then(|scope| scope.root.share().ok_or_else(ended));
    found.map_or(ptr::null_mut(), Object::into_ptr)
}

fn ended() -> Raised {
    errors::raise_text(Code::TransactionEnded, "the transaction has ended")
}

/// `transaction.version`: the number of the state that it began with.
#[entry]
pub(crate) unsafe extern "C" fn version(own: Pointer, _: *mut c_void) -> Pointer {
    // SAFETY: a transaction of ours.
    unsafe { ffi::PyLong_FromUnsignedLongLong(content::<Scope>(own).version.get()) }
}

/// `transaction.base`: the state that it began with.
#[entry]
pub(crate) unsafe extern "C" fn base(own: Pointer, _: *mut c_void) -> Pointer {
    // SAFETY: a transaction of ours.
    unsafe { content::<Scope>(own).base.share().unwrap_or_else(Object::none).into_ptr() }
}

/// `transaction.store`
#[entry]
pub(crate) unsafe extern "C" fn store(own: Pointer, _: *mut c_void) -> Pointer {
    // SAFETY: a transaction of ours.
    unsafe { content::<Scope>(own).store.share().unwrap_or_else(Object::none).into_ptr() }
}

/// `transaction.label`
#[entry]
pub(crate) unsafe extern "C" fn label(own: Pointer, _: *mut c_void) -> Pointer {
    // SAFETY: a transaction of ours.
    unsafe { content::<Scope>(own).label.share().unwrap_or_else(Object::none).into_ptr() }
}

/// `transaction.conflict`: the path of the last conflict, as a tuple of names, keys and indices; or `None`.
#[entry]
pub(crate) unsafe extern "C" fn conflict(own: Pointer, _: *mut c_void) -> Pointer {
    // SAFETY: a transaction of ours.
    unsafe { content::<Scope>(own).conflict.share().unwrap_or_else(Object::none).into_ptr() }
}

/// `transaction.effects`: a list of what runs after the commit, or `None`.
#[entry]
pub(crate) unsafe extern "C" fn effects(own: Pointer, _: *mut c_void) -> Pointer {
    // SAFETY: a transaction of ours.
    unsafe { content::<Scope>(own).effects.share().unwrap_or_else(Object::none).into_ptr() }
}

/// `transaction.open`: whether its drafts may be used.
#[entry]
pub(crate) unsafe extern "C" fn is_open(own: Pointer, _: *mut c_void) -> Pointer {
    // SAFETY: a transaction of ours.
    unsafe { ffi::PyBool_FromLong((content::<Scope>(own).phase() == Phase::Open).into()) }
}

/// `transaction.savepoint()`: where `rollback` goes back to.
#[entry]
pub(crate) unsafe extern "C" fn savepoint(own: Pointer, _: Pointer) -> Pointer {
    // SAFETY: a transaction of ours; its list of effects is a list.
    unsafe {
        let made = (|| {
            let scope = open(own)?;
            let number = savepoint::set(types::of(ffi::Py_TYPE(own))?, scope)?;
            let effects = scope.effects.share().map_or(0, |list| ffi::PyList_Size(list.as_ptr()));
            Object::own(ffi::Py_BuildValue(c"nn".as_ptr(), number as isize, effects))
        })();
        made.map_or_else(|Raised| ptr::null_mut(), Object::into_ptr)
    }
}

/// The number of a savepoint, and how many effects there were.
///
/// # Safety
///
/// A live object.
unsafe fn point_of(point: Pointer) -> Result<(u32, isize), Raised> {
    let (mut number, mut effects): (isize, isize) = (0, 0);
    // SAFETY: the caller's; the tuple is parsed by its checked type.
    unsafe {
        if ffi::PyTuple_CheckExact(point) == 0
            || ffi::PyArg_ParseTuple(point, c"nn".as_ptr(), &raw mut number, &raw mut effects) == 0
        {
            if ffi::PyErr_Occurred().is_null() {
                ffi::PyErr_SetString(ffi::PyExc_TypeError, c"a savepoint is what savepoint() gave".as_ptr());
            }
            return Err(Raised);
        }
    }
    Ok((u32::try_from(number).unwrap_or(0), effects))
}

/// `transaction.release(savepoint)`: ends a savepoint that nobody goes back to.
#[entry]
pub(crate) unsafe extern "C" fn release(own: Pointer, point: Pointer) -> Pointer {
    // SAFETY: a transaction of ours, and a live argument.
    unsafe {
        let done = open(own).and_then(|scope| savepoint::end(scope, point_of(point)?.0));
        done.map_or(ptr::null_mut(), |()| Object::none().into_ptr())
    }
}

/// `transaction.rollback(savepoint)`: undoes what was done since.
#[entry]
pub(crate) unsafe extern "C" fn rollback(own: Pointer, point: Pointer) -> Pointer {
    // SAFETY: a transaction of ours, and a live argument, which is parsed.
    unsafe {
        let done = (|| {
            let scope = open(own)?;
            let (number, effects) = point_of(point)?;
            savepoint::go_back(types::of(ffi::Py_TYPE(own))?, scope, number)?;
            if let Some(list) = scope.effects.share() {
                let size = ffi::PyList_Size(list.as_ptr());
                if effects < size
                    && ffi::PyList_SetSlice(list.as_ptr(), effects.max(0), size, ptr::null_mut()) < 0
                {
                    return Err(Raised);
                }
            }
            Ok(Object::none())
        })();
        done.map_or_else(|Raised| ptr::null_mut(), Object::into_ptr)
    }
}

/// `transaction.on_commit(function, *args)`, and the same method of drafts of records.
#[entry]
pub(crate) unsafe extern "C" fn on_commit(own: Pointer, arguments: *mut Pointer, count: isize) -> Pointer {
    // SAFETY: a transaction or a draft of ours, and as many live arguments as `count` says.
    unsafe {
        let done = (|| {
            let types = types::of(ffi::Py_TYPE(own))?;
            let scope = if types.is_draft(own) { draft::head(types, own).open()? } else { open(own)? };
            if count < 1 || ffi::PyCallable_Check(*arguments) == 0 {
                ffi::PyErr_SetString(
                    ffi::PyExc_TypeError,
                    c"on_commit takes a function, and the arguments to call it with after the commit"
                        .as_ptr(),
                );
                return Err(Raised);
            }
            let call = Object::own(ffi::PyTuple_New(count))?;
            for index in 0..count {
                let part = Object::share(*arguments.offset(index))?;
                ffi::PyTuple_SetItem(call.as_ptr(), index, part.into_ptr());
            }
            // A draft would be of no use after the commit.
            let call = Object::share(types.effect)?.call(&[call.as_ptr()])?;
            let list = match scope.effects.share() {
                Some(list) => list,
                None => {
                    let list = Object::own(ffi::PyList_New(0))?;
                    scope.effects.set(list.clone());
                    list
                }
            };
            if ffi::PyList_Append(list.as_ptr(), call.as_ptr()) < 0 {
                return Err(Raised);
            }
            Ok(Object::none())
        })();
        done.map_or_else(|Raised| ptr::null_mut(), Object::into_ptr)
    }
}

/// `transaction.value(draft)`: the value that a draft's place has now; all of it counts as read. What is no draft is
/// given back.
#[entry]
pub(crate) unsafe extern "C" fn value(own: Pointer, object: Pointer) -> Pointer {
    // SAFETY: a transaction of ours, and a live argument.
    unsafe {
        let made = (|| {
            open(own)?;
            let types = types::of(ffi::Py_TYPE(own))?;
            if types.is_draft(object) { current(types, object) } else { Object::share(object) }
        })();
        made.map_or_else(|Raised| ptr::null_mut(), Object::into_ptr)
    }
}

/// `transaction.footprint()`: what was read and written so far, as a list of `(path, access)`.
#[entry]
pub(crate) unsafe extern "C" fn footprint(own: Pointer, _: Pointer) -> Pointer {
    // SAFETY: a transaction of ours.
    unsafe {
        let made = (|| {
            let scope = open(own)?;
            let root = scope.root.share().ok_or_else(ended)?;
            draft::footprint::of(types::of(ffi::Py_TYPE(own))?, root.as_ptr())
        })();
        made.map_or_else(|Raised| ptr::null_mut(), Object::into_ptr)
    }
}

/// `transaction.changes()`: what was changed so far, as a list of `(number, path, value)`.
#[entry]
pub(crate) unsafe extern "C" fn changes(own: Pointer, _: Pointer) -> Pointer {
    // SAFETY: a transaction of ours.
    unsafe {
        let made = (|| {
            let scope = open(own)?;
            let base = scope.base.share().ok_or_else(ended)?;
            scope.set_phase(Phase::Committing);
            let applied = apply(types::of(ffi::Py_TYPE(own))?, scope, base.as_ptr(), Wanted::Changes);
            scope.set_phase(Phase::Open);
            match applied? {
                Made::State(_, Some(changes), _) => Ok(changes),
                _ => Err(errors::raise_text(Code::StateError, "a transaction does not fit to its own base")),
            }
        })();
        made.map_or_else(|Raised| ptr::null_mut(), Object::into_ptr)
    }
}

/// `transaction.abort()`: gives the changes up. Nothing happens if it has ended.
#[entry]
pub(crate) unsafe extern "C" fn abort(own: Pointer, _: Pointer) -> Pointer {
    // SAFETY: a transaction of ours.
    unsafe {
        let scope = content::<Scope>(own);
        if scope.phase() != Phase::Ended {
            if scope.check().is_err() {
                return ptr::null_mut();
            }
            scope.end();
        }
        Object::none().into_ptr()
    }
}

#[entry]
pub(crate) unsafe extern "C" fn traverse(own: Pointer, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    // SAFETY: a complete object of ours, and the collector's own function, while no other thread runs.
    unsafe {
        let answer = content::<Scope>(own).visit(visit, arg);
        if answer != 0 { answer } else { heap::visit_type(own, visit, arg) }
    }
}

#[entry]
pub(crate) unsafe extern "C" fn clear(own: Pointer) -> c_int {
    // SAFETY: only the collector has the object; what is dropped is out of it by then.
    unsafe {
        let scope = content::<Scope>(own);
        scope.end();
        drop((scope.store.take(), scope.base.take(), scope.conflict.take(), scope.label.take()));
    }
    0
}
