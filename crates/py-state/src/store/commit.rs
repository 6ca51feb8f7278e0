//! How a transaction begins and commits: the loop around the one step, and what waits for it.

use std::ptr;
use std::sync::Arc;

use pyo3_ffi as ffi;
use ropewalk_capi::entry;
use ropewalk_capi::errors;
use ropewalk_capi::heap::content;
use ropewalk_capi::object::{Object, Raised};
use ropewalk_journal::Ticket;
use ropewalk_state::claims::Slots;

use super::{Form, New, Step, Store, claiming, closed, store, types_of};
use crate::draft::scope::{Phase, Scope};
use crate::node::Pointer;
use crate::rule::Rule;
use crate::transaction::{self, Made, Wanted};
use crate::types::State;

/// Arguments of a call, with the draft, that lie on the stack.
const FEW: usize = 8;

/// `store._begin(rule, label)`
#[entry]
pub(crate) unsafe extern "C" fn begin(own: Pointer, arguments: *mut Pointer, count: isize) -> Pointer {
    // SAFETY: a store of ours, and as many live arguments as `count` says.
    unsafe {
        let made = (|| {
            let types = types_of(own)?;
            if count != 2 || ffi::Py_TYPE(*arguments) != types.rule.cast() {
                ffi::PyErr_SetString(ffi::PyExc_TypeError, c"_begin takes a rule and a label".as_ptr());
                return Err(Raised);
            }
            let (root, number, _) = store(own).now()?;
            let (rule, label) = (Object::share(*arguments)?, Object::share(*arguments.add(1))?);
            transaction::begin(types, Object::share(own)?, root, number, rule, label)
        })();
        made.map_or_else(|Raised| ptr::null_mut(), Object::into_ptr)
    }
}

/// `store._commit(transaction, claim)`: the new version and its epoch, or `None` after a conflict. The transaction has
/// ended then, in any case, and knows the path of the conflict.
#[entry]
pub(crate) unsafe extern "C" fn commit(own: Pointer, arguments: *mut Pointer, count: isize) -> Pointer {
    // SAFETY: a store of ours, and as many live arguments as `count` says.
    unsafe {
        let done = (|| {
            let types = types_of(own)?;
            if count != 2 || ffi::Py_TYPE(*arguments) != types.transaction.cast() {
                let said = c"_commit takes a transaction and a claim";
                ffi::PyErr_SetString(ffi::PyExc_TypeError, said.as_ptr());
                return Err(Raised);
            }
            let scope = content::<Scope>(*arguments);
            scope.check()?;
            let claim = ffi::PyLong_AsUnsignedLongLong(*arguments.add(1));
            if claim == u64::MAX && !ffi::PyErr_Occurred().is_null() {
                return Err(Raised);
            }
            scope.set_phase(Phase::Committing);
            let made = attempt(types, own, scope, *arguments, claim, true);
            scope.end();
            made
        })();
        done.map_or_else(|Raised| ptr::null_mut(), Object::into_ptr)
    }
}

/// `store._attempt(function, rule, label, claim, args, kwargs)`: runs a function with a draft and the arguments, and
/// commits; gives its result and the commit, or `None` after a conflict. The commit is `None` if the function gave an
/// `Err`, which gives the changes up.
#[entry]
pub(crate) unsafe extern "C" fn run_once(own: Pointer, arguments: *mut Pointer, count: isize) -> Pointer {
    // SAFETY: the interpreter's arguments.
    unsafe { run(own, arguments, count, true) }
}

/// `store._attempt_now(function, rule, label, claim, args, kwargs)`: as `_attempt`, but it gives `None` as well where a
/// claim forbids the commit, and waits for none.
#[entry]
pub(crate) unsafe extern "C" fn run_now(own: Pointer, arguments: *mut Pointer, count: isize) -> Pointer {
    // SAFETY: the interpreter's arguments.
    unsafe { run(own, arguments, count, false) }
}

/// # Safety
///
/// A store of ours, and as many live arguments as `count` says.
unsafe fn run(own: Pointer, arguments: *mut Pointer, count: isize, waits: bool) -> Pointer {
    // SAFETY: the caller's.
    unsafe {
        let done = (|| {
            let types = types_of(own)?;
            let given = std::slice::from_raw_parts(arguments, count.unsigned_abs());
            let &[function, rule, label, claim, args, kwargs] = given else { return Err(wrong_attempt()) };
            if ffi::Py_TYPE(rule) != types.rule.cast()
                || ffi::PyTuple_CheckExact(args) == 0
                || ffi::PyDict_CheckExact(kwargs) == 0
            {
                return Err(wrong_attempt());
            }
            let claim = ffi::PyLong_AsUnsignedLongLong(claim);
            if claim == u64::MAX && !ffi::PyErr_Occurred().is_null() {
                return Err(Raised);
            }
            let (root, number, _) = store(own).now()?;
            let (rule, label) = (Object::share(rule)?, Object::share(label)?);
            let begun = transaction::begin(types, Object::share(own)?, root, number, rule, label)?;
            let scope = content::<Scope>(begun.as_ptr());
            // A claim that was made without waiting is a coroutine's: the thread has it for this call.
            let patient = (claim != 0 && !waits).then(claiming::Patient::new);
            let made = ran(types, own, &begun, scope, function, claim, waits, args, kwargs);
            drop(patient);
            scope.end();
            made
        })();
        done.map_or_else(|Raised| ptr::null_mut(), Object::into_ptr)
    }
}

fn wrong_attempt() -> Raised {
    // SAFETY: the thread is attached; a live exception class and a C string.
    unsafe {
        ffi::PyErr_SetString(ffi::PyExc_TypeError, c"_attempt was called with other arguments".as_ptr());
    }
    Raised
}

/// # Safety
///
/// Live objects of the kinds that `run_once` has checked.
#[allow(clippy::too_many_arguments, reason = "one caller, which has checked them")]
unsafe fn ran(
    types: &State,
    own: Pointer,
    begun: &Object,
    scope: &Scope,
    function: Pointer,
    claim: u64,
    waits: bool,
    args: Pointer,
    kwargs: Pointer,
) -> Result<Object, Raised> {
    // SAFETY: the caller's; an array of live objects, which the tuple and the root keep.
    unsafe {
        let draft = scope.root.share().ok_or(Raised)?;
        let count = ffi::PyTuple_Size(args).unsigned_abs();
        // Most calls have few arguments, and need no memory for the list of them.
        let (mut few, mut many) = ([ptr::null_mut(); FEW], Vec::new());
        let all = match few.get_mut(..=count) {
            Some(few) => few,
            None => {
                many.resize(count + 1, ptr::null_mut());
                &mut many[..]
            }
        };
        all[0] = draft.as_ptr();
        for (index, place) in all[1..].iter_mut().enumerate() {
            *place = ffi::PyTuple_GetItem(args, index.cast_signed());
        }
        let named = if ffi::PyDict_Size(kwargs) == 0 { ptr::null_mut() } else { kwargs };
        let result = Object::own(ffi::PyObject_VectorcallDict(function, all.as_ptr(), all.len(), named))?;
        scope.check()?;
        let mut result = result;
        let class = ffi::Py_TYPE(result.as_ptr());
        if !crate::kinds::is_atom(class) {
            result = Object::share(types.plain)?.call(&[result.as_ptr()])?;
        }
        if class == types.err.cast() {
            return pair(result, Object::none());
        }
        scope.check()?;
        scope.set_phase(Phase::Committing);
        let done = attempt(types, own, scope, begun.as_ptr(), claim, waits)?;
        if done.is_none() {
            met_itself(own, scope)?;
            return Ok(done);
        }
        pair(result, done)
    }
}

/// Asks the store's `_met_itself` about a conflict if the function has committed transactions of its own to the same
/// store: it raises if they are the reason, for they would be so each time.
///
/// # Safety
///
/// A store of ours, and the content of a transaction of this thread.
unsafe fn met_itself(own: Pointer, scope: &Scope) -> Result<(), Raised> {
    // SAFETY: the caller's; nothing of the interpreter runs under the guard.
    unsafe {
        let Some(path) = scope.conflict.share() else { return Ok(()) };
        let inner = store(own).inner.lock();
        let from = inner.versions.partition_point(|kept| kept.number <= scope.version.get());
        let newer = inner.versions.range(from..).filter(|kept| kept.thread == scope.thread());
        let numbers: Vec<u64> = newer.map(|kept| kept.number).collect();
        drop(inner);
        if numbers.is_empty() {
            return Ok(());
        }
        let list = Object::own(ffi::PyList_New(0))?;
        for number in numbers {
            let number = Object::own(ffi::PyLong_FromUnsignedLongLong(number))?;
            if ffi::PyList_Append(list.as_ptr(), number.as_ptr()) < 0 {
                return Err(Raised);
            }
        }
        let label = scope.label.share().unwrap_or_else(Object::none);
        let asked = Object::share(own)?.attribute(c"_met_itself")?;
        asked.call(&[path.as_ptr(), label.as_ptr(), list.as_ptr()]).map(drop)
    }
}

/// # Safety
///
/// Live objects; the transaction is committing.
unsafe fn attempt(
    types: &State,
    own: Pointer,
    scope: &Scope,
    transaction: Pointer,
    claim: u64,
    waits: bool,
) -> Result<Object, Raised> {
    // SAFETY: the caller's.
    unsafe {
        let this = store(own);
        let rule = scope.rule.share().ok_or(Raised)?;
        let slots = content::<Rule>(rule.as_ptr()).changes();
        let encode = this.encode.share();
        let (check, effects) = (this.check.share(), scope.effects.share());
        let label = scope.label.share().unwrap_or_else(Object::none);
        let wanted = if encode.is_some() { Wanted::Both } else { Wanted::State };
        loop {
            let (now, base, epoch) = this.now()?;
            let (made, changes, is_lasting) = match transaction::apply(types, scope, now.as_ptr(), wanted)? {
                Made::Conflict => return Ok(Object::none()),
                Made::State(made, changes, is_lasting) => (made, changes, is_lasting),
            };
            if made.is_none() && effects.is_none() {
                // It has changed nothing: it stands where it was validated.
                return committed(base, epoch);
            }
            let is_changed = made.is_some();
            let root = made.unwrap_or_else(|| now.clone());
            if let Some(check) = check.as_ref().filter(|_| is_changed) {
                drop(check.call(&[now.as_ptr(), root.as_ptr(), transaction])?);
            }
            let mut record = None;
            if let (Some(encode), Some(changes)) = (&encode, changes) {
                let number = Object::own(ffi::PyLong_FromUnsignedLongLong(base + 1))?;
                record = Some(encode.call(&[number.as_ptr(), changes.as_ptr(), transaction])?);
            }
            let new = New {
                base,
                now: &now,
                root: &root,
                label: &label,
                record: record.as_ref().and_then(Object::as_bytes),
                effects: effects.as_ref(),
                slots,
                claim,
                thread: scope.thread(),
                form: if is_lasting || !is_changed { Form::New } else { Form::Transient },
            };
            match this.swap(&new) {
                Step::Done(number, epoch, ticket) => return finished(this, number, epoch, ticket),
                Step::Moved => {}
                Step::Claimed if !waits => return Ok(Object::none()),
                Step::Claimed => {
                    if !claiming::wait_allowed(this, slots, claim)? {
                        return Ok(Object::none());
                    }
                }
                Step::Closed => return Err(closed()),
                Step::Failed(error) => return Err(errors::raise(&error)),
            }
        }
    }
}

/// The result of a commit; writes the journal's batch if it has grown large.
pub(super) unsafe fn finished(
    this: &Store,
    number: u64,
    epoch: u64,
    ticket: Option<(Arc<Ticket>, bool)>,
) -> Result<Object, Raised> {
    if let (Some((_, true)), true) = (ticket, this.journal.get().is_some()) {
        // SAFETY: the thread is attached.
        unsafe { this.wait(number, epoch)? };
    }
    committed(number, epoch)
}

fn committed(number: u64, epoch: u64) -> Result<Object, Raised> {
    // SAFETY: the thread is attached.
    unsafe {
        let number = Object::own(ffi::PyLong_FromUnsignedLongLong(number))?;
        pair(number, Object::own(ffi::PyLong_FromUnsignedLongLong(epoch))?)
    }
}

/// A tuple of two objects; a format that is parsed would take longer than the rest of a small commit.
pub(super) fn pair(first: Object, second: Object) -> Result<Object, Raised> {
    // SAFETY: a fresh tuple takes a reference to each of its two items.
    unsafe {
        let made = Object::own(ffi::PyTuple_New(2))?;
        ffi::PyTuple_SetItem(made.as_ptr(), 0, first.into_ptr());
        ffi::PyTuple_SetItem(made.as_ptr(), 1, second.into_ptr());
        Ok(made)
    }
}

/// `store._wait(version, epoch)`: waits until a commit is durable.
#[entry]
pub(crate) unsafe extern "C" fn wait(own: Pointer, arguments: *mut Pointer, count: isize) -> Pointer {
    // SAFETY: a store of ours, and as many live arguments as `count` says.
    unsafe {
        if count != 2 {
            ffi::PyErr_SetString(ffi::PyExc_TypeError, c"_wait takes a version and an epoch".as_ptr());
            return ptr::null_mut();
        }
        let version = ffi::PyLong_AsUnsignedLongLong(*arguments);
        let epoch = ffi::PyLong_AsUnsignedLongLong(*arguments.add(1));
        if !ffi::PyErr_Occurred().is_null() {
            return ptr::null_mut();
        }
        match store(own).wait(version, epoch) {
            Ok(()) => Object::none().into_ptr(),
            Err(Raised) => ptr::null_mut(),
        }
    }
}

/// `store._replace(base, now, root, label, record, stands_for, claim)`: commits a state that was made elsewhere, by an
/// undo for instance; `None` if `base` is no longer the newest version, or `now` not its state.
#[entry]
pub(crate) unsafe extern "C" fn replace(own: Pointer, arguments: *mut Pointer, count: isize) -> Pointer {
    // SAFETY: a store of ours, and as many live arguments as `count` says, which are checked.
    unsafe {
        let done = (|| {
            if count != 7 {
                ffi::PyErr_SetString(ffi::PyExc_TypeError, c"_replace takes seven arguments".as_ptr());
                return Err(Raised);
            }
            let argument = |index: usize| Object::share(*arguments.add(index));
            let base = ffi::PyLong_AsUnsignedLongLong(*arguments);
            let claim = ffi::PyLong_AsUnsignedLongLong(*arguments.add(6));
            if !ffi::PyErr_Occurred().is_null() {
                return Err(Raised);
            }
            let (now, root, label, record) = (argument(1)?, argument(2)?, argument(3)?, argument(4)?);
            let (mut same, mut before): (u64, u64) = (0, 0);
            let stands_for = argument(5)?;
            if !stands_for.is_none()
                && (ffi::PyTuple_CheckExact(stands_for.as_ptr()) == 0
                    || ffi::PyArg_ParseTuple(
                        stands_for.as_ptr(),
                        c"KK".as_ptr(),
                        &raw mut same,
                        &raw mut before,
                    ) == 0)
            {
                return Err(Raised);
            }
            let this = store(own);
            let slots = Slots::all();
            let new = New {
                base,
                now: &now,
                root: &root,
                label: &label,
                record: record.as_bytes(),
                effects: None,
                slots: &slots,
                claim,
                thread: 0,
                form: if stands_for.is_none() { Form::New } else { Form::Past { same, before } },
            };
            loop {
                match this.swap(&new) {
                    Step::Done(number, epoch, ticket) => return finished(this, number, epoch, ticket),
                    Step::Moved => return Ok(Object::none()),
                    Step::Claimed => claiming::allowed(this, &slots, claim)?,
                    Step::Closed => return Err(closed()),
                    Step::Failed(error) => return Err(errors::raise(&error)),
                }
            }
        })();
        done.map_or_else(|Raised| ptr::null_mut(), Object::into_ptr)
    }
}
