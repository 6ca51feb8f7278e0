//! `StoreBase`: the state that is committed, its versions, and the one step in which a commit replaces it.
//!
//! A commit makes the new state without a lock, against the state as it was a moment before. Then, in one step under
//! the guard, it looks whether that is still the state, puts its record into the journal's next batch, and replaces the
//! state. If another commit came between, it makes its new state again. So the order of the records in the journal is
//! the order of the versions, and no code of the program runs under the guard.
//!
//! A state is visible once it is committed, and durable once the journal has written its batch; `run` returns then. If
//! the journal cannot write a batch, the store goes back to the newest state that is durable, and every commit behind
//! it fails: nothing stands on what is not on the disk. Records of such commits may still reach the file. Recovery
//! skips them, because a record says which version it makes and the next one of the same number comes behind it.

use std::collections::VecDeque;
use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use pyo3_ffi as ffi;
use ropewalk_base::{Code, Error};
use ropewalk_capi::entry;
use ropewalk_capi::errors;
use ropewalk_capi::guarded::Guarded;
use ropewalk_capi::heap::{self, Field, content};
use ropewalk_capi::object::{Object, Raised, detached};
use ropewalk_capi::signals;
use ropewalk_journal::{Journal, Ticket};
use ropewalk_state::claims::{Claims, Slots};

use crate::draft::scope::{Phase, Scope};
use crate::node::Pointer;
use crate::transaction::{self, Made};
use crate::types::{self, State};

/// The name of the capsule in which `ropewalk._journal` hands a journal over.
const CAPSULE: &CStr = c"ropewalk.journal";

/// No version.
const NONE: u64 = u64::MAX;

/// A version of the state.
struct Version {
    number: u64,
    root: Object,
    label: Object,
    /// Seconds since 1970.
    at: f64,
    /// The version whose state this is: its own number, unless it was made by an undo.
    same: u64,
    /// The version before that one, in the sense of undo; `NONE` if there is none.
    before: u64,
}

/// A commit whose record is on its way.
struct Pending {
    version: u64,
    root: Object,
    ticket: Arc<Ticket>,
}

/// What commits change. Every object in it is dropped outside of the guard.
struct Inner {
    /// The versions that are kept, the newest last; never empty until the store is cleared.
    versions: VecDeque<Version>,
    most: usize,
    /// Rises with every failure of the journal; the versions behind the durable one are then given up.
    epoch: u64,
    /// The newest durable version at the end of each earlier epoch.
    ended: Vec<u64>,
    /// The newest version that is durable.
    durable: (u64, Option<Object>),
    /// The number in the journal of that version's record, or of the last before it.
    durable_record: u64,
    pending: VecDeque<Pending>,
    /// The effects of commits that nobody has taken yet, in the order of versions.
    effects: VecDeque<(u64, Object)>,
    is_closed: bool,
}

/// The content of a `StoreBase`.
pub(crate) struct Store {
    inner: Guarded<Inner>,
    claims: Claims,
    journal: std::cell::OnceCell<Journal>,
    /// `check(old, new, transaction)`, called before each commit; or nothing.
    check: Field,
    /// `encode(version, changes, transaction)`: the record of a commit, called if there is a journal; or nothing.
    encode: Field,
}

// SAFETY: the cell is written once, while one thread has the new store; the fields as well.
unsafe impl Sync for Store {}

/// The outcome of the one step.
enum Step {
    /// The version, and whether the journal's batch is large.
    Done(u64, u64, Option<(Arc<Ticket>, bool)>),
    /// Another commit came between.
    Moved,
    /// A claim of another transaction forbids it.
    Claimed,
    Closed,
    Failed(Error),
}

/// What a commit adds.
struct New<'a> {
    /// The version that it was made against, and the state of that version: once the journal has failed, another
    /// commit makes a version of the same number.
    base: u64,
    now: &'a Object,
    root: &'a Object,
    label: &'a Object,
    record: Option<&'a [u8]>,
    effects: Option<&'a Object>,
    slots: &'a Slots,
    claim: u64,
    /// For an undo or a redo: the version whose state this is, and the one before it.
    stands_for: Option<(u64, u64)>,
}

impl Store {
    /// The newest state and its number.
    unsafe fn now(&self) -> Result<(Object, u64, u64), Raised> {
        // SAFETY: the thread is attached; taking a reference runs nothing.
        let inner = unsafe { self.inner.lock() };
        match inner.versions.back() {
            Some(newest) if !inner.is_closed => Ok((newest.root.clone(), newest.number, inner.epoch)),
            _ => {
                drop(inner);
                Err(closed())
            }
        }
    }

    /// Replaces the state in one step, if it is still the one that the new state was made against.
    unsafe fn swap(&self, new: &New<'_>) -> Step {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        let (label, root, effects) = (new.label.clone(), new.root.clone(), new.effects.cloned());
        let mut gone = Vec::new();
        // SAFETY: the thread is attached. What runs under the guard is Rust; what is dropped is dropped behind it.
        let mut inner = unsafe { self.inner.lock() };
        let step = (|| {
            let Some(newest) = inner.versions.back().filter(|_| !inner.is_closed) else {
                return Step::Closed;
            };
            if newest.number != new.base || newest.root.as_ptr() != new.now.as_ptr() {
                return Step::Moved;
            }
            if self.claims.forbids(new.slots, new.claim) {
                return Step::Claimed;
            }
            let (number, before) = (newest.number + 1, newest.same);
            let ticket = match (self.journal.get(), new.record) {
                (Some(journal), Some(record)) => match journal.enqueue([record]) {
                    Ok((ticket, is_full)) => Some((Arc::new(ticket), is_full)),
                    Err(error) => return Step::Failed(error),
                },
                _ => None,
            };
            if let Some((ticket, _)) = &ticket {
                let (root, ticket) = (root.clone(), Arc::clone(ticket));
                inner.pending.push_back(Pending { version: number, root, ticket });
            } else {
                gone.extend(inner.durable.1.replace(root.clone()));
                inner.durable.0 = number;
            }
            let (same, before) = new.stands_for.unwrap_or((number, before));
            inner.versions.push_back(Version { number, root, label, at, same, before });
            if let Some(effects) = effects {
                inner.effects.push_back((number, effects));
            }
            while inner.versions.len() > inner.most {
                if let Some(old) = inner.versions.pop_front() {
                    gone.extend([old.root, old.label]);
                }
            }
            Step::Done(number, inner.epoch, ticket)
        })();
        drop(inner);
        drop(gone);
        step
    }

    /// Waits until a commit is durable.
    unsafe fn wait(&self, version: u64, epoch: u64) -> Result<(), Raised> {
        // SAFETY: the thread is attached, but for the wait; nothing of the interpreter runs under the guard.
        unsafe {
            let Some(journal) = self.journal.get() else { return Ok(()) };
            let inner = self.inner.lock();
            let is_lost = inner.is_lost(version, epoch);
            let place = inner.pending.partition_point(|pending| pending.version < version);
            let pending = inner.pending.get(place).filter(|pending| pending.version == version);
            let ticket = pending.map(|pending| Arc::clone(&pending.ticket));
            drop(inner);
            if is_lost {
                return Err(lost());
            }
            // It is durable: it has been waited for, or a later commit has taken it along.
            let Some(ticket) = ticket else { return Ok(()) };
            let written = detached(|| journal.finish(&ticket));
            let mut gone = Vec::new();
            let mut inner = self.inner.lock();
            let is_lost = inner.is_lost(version, epoch);
            let failed = match written {
                Ok(()) if is_lost => Some(None),
                // Batches are written in order, so those before have their outcome by now. If one has failed, this record
                // is in the file and stands on nothing.
                Ok(()) if inner.stands(version) => {
                    gone.extend(inner.reach(version));
                    None
                }
                Ok(()) => {
                    gone.extend(inner.go_back());
                    Some(None)
                }
                Err(error) => {
                    if !is_lost {
                        gone.extend(inner.go_back());
                    }
                    Some(Some(error))
                }
            };
            drop(inner);
            drop(gone);
            match failed {
                None => Ok(()),
                Some(None) => Err(lost()),
                Some(Some(error)) => Err(errors::raise(&error)),
            }
        }
    }
}

impl Inner {
    /// Whether a commit was given up because the journal failed.
    fn is_lost(&self, version: u64, epoch: u64) -> bool {
        let ended = usize::try_from(epoch).ok().and_then(|epoch| self.ended.get(epoch));
        ended.is_some_and(|durable| version > *durable)
    }

    /// Whether the records of all commits up to a version were written.
    fn stands(&self, version: u64) -> bool {
        let mut before = self.pending.iter().take_while(|pending| pending.version <= version);
        before.all(|pending| pending.ticket.is_written())
    }

    /// A version has become durable, and all before it. The caller drops what is returned, outside of the guard.
    fn reach(&mut self, version: u64) -> Vec<Object> {
        let mut gone = Vec::new();
        while self.pending.front().is_some_and(|first| first.version <= version) {
            let Some(first) = self.pending.pop_front() else { break };
            self.durable_record = first.ticket.sequence();
            self.durable.0 = first.version;
            gone.extend(self.durable.1.replace(first.root));
        }
        gone
    }

    /// The journal has failed: the newest durable version is the newest one again. The caller drops what is returned.
    fn go_back(&mut self) -> Vec<Object> {
        let mut gone = Vec::new();
        // What the journal has written is durable, though no thread may have come to say so.
        while self.pending.front().is_some_and(|first| first.ticket.is_written()) {
            let version = self.pending.front().map_or(0, |first| first.version);
            gone.extend(self.reach(version));
        }
        let durable = self.durable.0;
        self.epoch += 1;
        self.ended.push(durable);
        gone.extend(self.pending.drain(..).map(|pending| pending.root));
        while self.versions.back().is_some_and(|newest| newest.number > durable) {
            if let Some(newest) = self.versions.pop_back() {
                gone.extend([newest.root, newest.label]);
            }
        }
        if self.versions.is_empty()
            && let Some(root) = self.durable.1.clone()
        {
            let label = Object::none();
            self.versions.push_back(Version {
                number: durable,
                root,
                label,
                at: 0.0,
                same: durable,
                before: NONE,
            });
        }
        while self.effects.back().is_some_and(|(version, _)| *version > durable) {
            gone.extend(self.effects.pop_back().map(|(_, list)| list));
        }
        gone
    }
}

#[cold]
fn closed() -> Raised {
    errors::raise_text(Code::StoreClosed, "the store is closed; open it again")
}

#[cold]
fn lost() -> Raised {
    let said = "the transaction stood on another one whose record did not reach the disk, and was undone with it. Make \
                room on the disk, or open the store again, and run the transaction again";
    errors::raise_text(Code::JournalFailed, said)
}

/// The content of a store.
///
/// # Safety
///
/// `own` is an instance of `StoreBase` or of a subclass.
unsafe fn store<'a>(own: Pointer) -> &'a Store {
    // SAFETY: the caller's; subclasses have the content at the same place.
    unsafe { content::<Store>(own) }
}

/// `StoreBase(root, version, history, check, encode, journal)`
#[entry]
pub(crate) unsafe extern "C" fn new(
    kind: *mut ffi::PyTypeObject,
    arguments: Pointer,
    named: Pointer,
) -> Pointer {
    // SAFETY: the interpreter's arguments: our type or a subtype, a tuple, a dictionary or null.
    match unsafe { make(kind, arguments, named) } {
        Ok(made) => made.into_ptr(),
        Err(Raised) => ptr::null_mut(),
    }
}

/// # Safety
///
/// As [`new`].
unsafe fn make(kind: *mut ffi::PyTypeObject, arguments: Pointer, named: Pointer) -> Result<Object, Raised> {
    let [mut root, mut check, mut encode, mut capsule]: [Pointer; 4] = [ptr::null_mut(); 4];
    let (mut version, mut most): (u64, isize) = (0, 0);
    // SAFETY: the caller's; the parsed objects are borrowed from the tuple. A capsule of that name has a journal.
    unsafe {
        if !named.is_null() && ffi::PyDict_Size(named) != 0 {
            ffi::PyErr_SetString(ffi::PyExc_TypeError, c"StoreBase takes no argument by name".as_ptr());
            return Err(Raised);
        }
        let parsed = ffi::PyArg_ParseTuple(
            arguments,
            c"OKnOOO".as_ptr(),
            &raw mut root,
            &raw mut version,
            &raw mut most,
            &raw mut check,
            &raw mut encode,
            &raw mut capsule,
        );
        if parsed == 0 {
            return Err(Raised);
        }
        let none = ffi::Py_None();
        let optional = |object: Pointer| {
            if object == none { Ok(Field::empty()) } else { Object::share(object).map(Field::new) }
        };
        let journal = std::cell::OnceCell::new();
        if capsule != none {
            let found = ffi::PyCapsule_GetPointer(capsule, CAPSULE.as_ptr()).cast::<Journal>();
            let Some(found) = found.as_ref() else { return Err(Raised) };
            // The cell is new, so it takes the journal.
            drop(journal.set(found.clone()));
        }
        let root = Object::share(root)?;
        let newest = Version {
            number: version,
            root: root.clone(),
            label: Object::none(),
            at: 0.0,
            same: version,
            before: NONE,
        };
        let inner = Inner {
            versions: VecDeque::from([newest]),
            most: most.max(1).unsigned_abs(),
            epoch: 0,
            ended: Vec::new(),
            durable: (version, Some(root)),
            durable_record: 0,
            pending: VecDeque::new(),
            effects: VecDeque::new(),
            is_closed: false,
        };
        let store = Store {
            inner: Guarded::new(inner),
            claims: Claims::default(),
            journal,
            check: optional(check)?,
            encode: optional(encode)?,
        };
        heap::make(kind, store)
    }
}

/// `store.snapshot()`
#[entry]
pub(crate) unsafe extern "C" fn snapshot(own: Pointer, _: Pointer) -> Pointer {
    // SAFETY: a store of ours.
    match unsafe { store(own).now() } {
        Ok((root, ..)) => root.into_ptr(),
        Err(Raised) => ptr::null_mut(),
    }
}

/// `store.version`
#[entry]
pub(crate) unsafe extern "C" fn version(own: Pointer, _: *mut c_void) -> Pointer {
    // SAFETY: a store of ours.
    unsafe {
        match store(own).now() {
            Ok((_, number, _)) => ffi::PyLong_FromUnsignedLongLong(number),
            Err(Raised) => ptr::null_mut(),
        }
    }
}

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

/// The module's types, by a store or an instance of a subclass.
unsafe fn types_of<'a>(own: Pointer) -> Result<&'a State, Raised> {
    // SAFETY: a heap type, whose bases lead to the module's own.
    unsafe { types::of_subtype(ffi::Py_TYPE(own)) }
}

/// The parts that a transaction may change, from the argument `slots`: an `int` with a bit for each, or `None` for all.
unsafe fn slots_of(given: Pointer) -> Result<Slots, Raised> {
    // SAFETY: a live argument; a fresh object of bytes.
    unsafe {
        if given == ffi::Py_None() {
            return Ok(Slots::all());
        }
        let bits = Object::share(given)?.attribute(c"bit_length")?.call(&[])?;
        let size = ffi::PyLong_AsSsize_t(bits.as_ptr());
        if size < 0 {
            return Err(Raised);
        }
        let words = size.unsigned_abs().div_ceil(64);
        let count = Object::own(ffi::PyLong_FromSize_t(words * 8))?;
        let order = ropewalk_capi::object::text("little")?;
        let bytes = Object::share(given)?.attribute(c"to_bytes")?.call(&[count.as_ptr(), order.as_ptr()])?;
        let bytes = bytes.as_bytes().unwrap_or_default();
        let word = |chunk: &[u8]| chunk.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        Ok(Slots::of(bytes.chunks(8).map(word).collect()))
    }
}

/// `store._commit(transaction, slots, claim)`: the new version and its epoch, or `None` after a conflict. The
/// transaction ends with success and with an exception; after a conflict it has ended, too, and knows the path.
#[entry]
pub(crate) unsafe extern "C" fn commit(own: Pointer, arguments: *mut Pointer, count: isize) -> Pointer {
    // SAFETY: a store of ours, and as many live arguments as `count` says.
    unsafe {
        let done = (|| {
            let types = types_of(own)?;
            if count != 3 || ffi::Py_TYPE(*arguments) != types.transaction.cast() {
                ffi::PyErr_SetString(
                    ffi::PyExc_TypeError,
                    c"_commit takes a transaction, slots and a claim".as_ptr(),
                );
                return Err(Raised);
            }
            let scope = content::<Scope>(*arguments);
            scope.check()?;
            let slots = slots_of(*arguments.add(1))?;
            let claim = ffi::PyLong_AsUnsignedLongLong(*arguments.add(2));
            if claim == u64::MAX && !ffi::PyErr_Occurred().is_null() {
                return Err(Raised);
            }
            scope.set_phase(Phase::Committing);
            let made = attempt(types, own, scope, *arguments, &slots, claim);
            scope.end();
            made
        })();
        done.map_or_else(|Raised| ptr::null_mut(), Object::into_ptr)
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
    slots: &Slots,
    claim: u64,
) -> Result<Object, Raised> {
    // SAFETY: the caller's.
    unsafe {
        let this = store(own);
        let encode = this.encode.share();
        let (check, effects) = (this.check.share(), scope.effects.share());
        let label = scope.label.share().unwrap_or_else(Object::none);
        loop {
            let (now, base, epoch) = this.now()?;
            let (made, changes) = match transaction::apply(types, scope, now.as_ptr(), encode.is_some())? {
                Made::Conflict => return Ok(Object::none()),
                Made::State(made, changes) => (made, changes),
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
                stands_for: None,
            };
            match this.swap(&new) {
                Step::Done(number, epoch, ticket) => return finished(this, number, epoch, ticket),
                Step::Moved => {}
                Step::Claimed => {
                    sleep(|deadline| this.claims.wait_allowed(slots, claim, deadline))?;
                }
                Step::Closed => return Err(closed()),
                Step::Failed(error) => return Err(errors::raise(&error)),
            }
        }
    }
}

/// The result of a commit; writes the journal's batch if it has grown large.
unsafe fn finished(
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
    // SAFETY: two numbers for their formats.
    unsafe { Object::own(ffi::Py_BuildValue(c"KK".as_ptr(), number, epoch)) }
}

/// Sleeps in slices until `wait` is true; signal handlers run in between.
fn sleep(wait: impl Fn(Option<Instant>) -> bool) -> Result<(), Raised> {
    loop {
        let slice = signals::slice();
        if detached(|| wait(slice.map(|slice| Instant::now() + slice))) {
            return Ok(());
        }
        // SAFETY: the thread is attached.
        if unsafe { ffi::PyErr_CheckSignals() } < 0 {
            return Err(Raised);
        }
    }
}

/// `store._claim(slots)`: claims parts, waits until they are granted, and gives the claim's number.
#[entry]
pub(crate) unsafe extern "C" fn claim(own: Pointer, slots: Pointer) -> Pointer {
    // SAFETY: a store of ours, and a live argument.
    unsafe {
        let made = (|| {
            let this = store(own);
            let number = this.claims.claim(slots_of(slots)?);
            if let Err(Raised) = sleep(|deadline| this.claims.wait_granted(number, deadline)) {
                this.claims.release(number);
                return Err(Raised);
            }
            Object::own(ffi::PyLong_FromUnsignedLongLong(number))
        })();
        made.map_or_else(|Raised| ptr::null_mut(), Object::into_ptr)
    }
}

/// `store._release(claim)`
#[entry]
pub(crate) unsafe extern "C" fn release(own: Pointer, number: Pointer) -> Pointer {
    // SAFETY: a store of ours, and a live argument.
    unsafe {
        let number = ffi::PyLong_AsUnsignedLongLong(number);
        if number == u64::MAX && !ffi::PyErr_Occurred().is_null() {
            return ptr::null_mut();
        }
        store(own).claims.release(number);
        Object::none().into_ptr()
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

/// `store._replace(base, now, root, label, record, stands_for)`: commits a state that was made elsewhere, by an undo for
/// instance; `None` if `base` is no longer the newest version, or `now` not its state.
#[entry]
pub(crate) unsafe extern "C" fn replace(own: Pointer, arguments: *mut Pointer, count: isize) -> Pointer {
    // SAFETY: a store of ours, and as many live arguments as `count` says, which are checked.
    unsafe {
        let done = (|| {
            if count != 6 {
                ffi::PyErr_SetString(ffi::PyExc_TypeError, c"_replace takes six arguments".as_ptr());
                return Err(Raised);
            }
            let argument = |index: usize| Object::share(*arguments.add(index));
            let base = ffi::PyLong_AsUnsignedLongLong(*arguments);
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
                claim: 0,
                stands_for: (!stands_for.is_none()).then_some((same, before)),
            };
            loop {
                match this.swap(&new) {
                    Step::Done(number, epoch, ticket) => return finished(this, number, epoch, ticket),
                    Step::Moved => return Ok(Object::none()),
                    Step::Claimed => sleep(|deadline| this.claims.wait_allowed(&slots, 0, deadline))?,
                    Step::Closed => return Err(closed()),
                    Step::Failed(error) => return Err(errors::raise(&error)),
                }
            }
        })();
        done.map_or_else(|Raised| ptr::null_mut(), Object::into_ptr)
    }
}

/// `store._versions(first)`: the versions from that number on, as tuples `(number, root, label, at, same, before)`.
#[entry]
pub(crate) unsafe extern "C" fn versions(own: Pointer, first: Pointer) -> Pointer {
    // SAFETY: a store of ours, and a live argument; nothing of the interpreter runs under the guard but counting.
    unsafe {
        let first = ffi::PyLong_AsUnsignedLongLong(first);
        if first == u64::MAX && !ffi::PyErr_Occurred().is_null() {
            return ptr::null_mut();
        }
        let inner = store(own).inner.lock();
        let from = inner.versions.partition_point(|kept| kept.number < first);
        let kept: Vec<_> = inner
            .versions
            .range(from..)
            .map(|kept| (kept.number, kept.root.clone(), kept.label.clone(), kept.at, kept.same, kept.before))
            .collect();
        drop(inner);
        let made = (|| {
            let list = Object::own(ffi::PyList_New(0))?;
            for (number, root, label, at, same, before) in &kept {
                let (root, label) = (root.as_ptr(), label.as_ptr());
                let made = ffi::Py_BuildValue(c"KOOdKK".as_ptr(), *number, root, label, *at, *same, *before);
                let made = Object::own(made)?;
                if ffi::PyList_Append(list.as_ptr(), made.as_ptr()) < 0 {
                    return Err(Raised);
                }
            }
            Ok(list)
        })();
        made.map_or_else(|Raised| ptr::null_mut(), Object::into_ptr)
    }
}

/// `store._durable()`: the newest durable version, its state, and the number of the journal's record that made it.
#[entry]
pub(crate) unsafe extern "C" fn durable(own: Pointer, _: Pointer) -> Pointer {
    // SAFETY: a store of ours; nothing of the interpreter runs under the guard but counting.
    unsafe {
        let inner = store(own).inner.lock();
        let (version, root, record) = (inner.durable.0, inner.durable.1.clone(), inner.durable_record);
        drop(inner);
        let root = root.unwrap_or_else(Object::none);
        ffi::Py_BuildValue(c"KOK".as_ptr(), version, root.as_ptr(), record)
    }
}

/// `store._take_effects()`: the effects of the oldest durable commit that has some, as `(version, list)`; or `None`.
#[entry]
pub(crate) unsafe extern "C" fn take_effects(own: Pointer, _: Pointer) -> Pointer {
    // SAFETY: a store of ours; nothing of the interpreter runs under the guard.
    unsafe {
        let mut inner = store(own).inner.lock();
        let durable = inner.durable.0;
        let is_due = inner.effects.front().is_some_and(|(version, _)| *version <= durable);
        let taken = if is_due { inner.effects.pop_front() } else { None };
        drop(inner);
        match taken {
            None => Object::none().into_ptr(),
            Some((version, list)) => ffi::Py_BuildValue(c"KO".as_ptr(), version, list.as_ptr()),
        }
    }
}

/// `store._close()`: no transaction begins or commits from here on.
#[entry]
pub(crate) unsafe extern "C" fn close(own: Pointer, _: Pointer) -> Pointer {
    // SAFETY: a store of ours; nothing of the interpreter runs under the guard.
    unsafe {
        store(own).inner.lock().is_closed = true;
        Object::none().into_ptr()
    }
}

/// `store.closed`
#[entry]
pub(crate) unsafe extern "C" fn is_closed(own: Pointer, _: *mut c_void) -> Pointer {
    // SAFETY: a store of ours; nothing of the interpreter runs under the guard.
    unsafe {
        let is_closed = store(own).inner.lock().is_closed;
        ffi::PyBool_FromLong(is_closed.into())
    }
}

#[entry]
pub(crate) unsafe extern "C" fn traverse(own: Pointer, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
    // SAFETY: a complete object of ours, and the collector's own function, while no other thread is in a guard.
    unsafe {
        let this = store(own);
        let inner = &*this.inner.in_collection();
        let versions = inner.versions.iter().flat_map(|kept| [&kept.root, &kept.label]);
        let pending = inner.pending.iter().map(|pending| &pending.root);
        let effects = inner.effects.iter().map(|(_, list)| list);
        for object in versions.chain(pending).chain(effects).chain(&inner.durable.1) {
            let answer = visit(object.as_ptr(), arg);
            if answer != 0 {
                return answer;
            }
        }
        let answer = heap::visit_fields(&[&this.check, &this.encode], visit, arg);
        if answer != 0 { answer } else { heap::visit_type(own, visit, arg) }
    }
}

#[entry]
pub(crate) unsafe extern "C" fn clear(own: Pointer) -> c_int {
    // SAFETY: only the collector has the object; what is dropped is out of it by then.
    unsafe {
        let this = store(own);
        let inner = &mut *this.inner.in_collection();
        inner.is_closed = true;
        let gone = (
            std::mem::take(&mut inner.versions),
            std::mem::take(&mut inner.pending),
            std::mem::take(&mut inner.effects),
            inner.durable.1.take(),
        );
        drop((gone, this.check.take(), this.encode.take()));
    }
    0
}
