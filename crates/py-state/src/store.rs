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

mod claiming;
mod commit;
mod past;
mod shown;
mod turns;

use std::collections::VecDeque;
use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use pyo3_ffi as ffi;
use ropewalk_base::{Code, Error};
use ropewalk_capi::entry;
use ropewalk_capi::errors;
use ropewalk_capi::guarded::Guarded;
use ropewalk_capi::heap::{self, Field, content};
use ropewalk_capi::object::{Object, Raised, detached};
use ropewalk_journal::{Journal, Ticket};
use ropewalk_state::claims::{Claims, Slots};

use crate::node::Pointer;
use crate::types::{self, State};

pub(crate) use claiming::{claim, release};
pub(crate) use commit::{begin, commit, replace, run_now, run_once, wait};
pub(crate) use past::{past, step};
pub(crate) use shown::{
    close, durable, has_claims, has_effects, is_closed, is_due, next_effects, snapshot, version, versions,
};
pub(crate) use turns::{ask, is_allowed, is_granted};

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
    /// The thread whose transaction made it; 0 if none did.
    thread: usize,
}

/// A state that undo and redo go to: that of a version that no undo has made. They are kept beside the versions, of
/// which each undo makes one more.
struct Own {
    /// The version's number.
    same: u64,
    before: u64,
    root: Object,
}

/// What a new version is to undo and redo.
#[derive(Clone, Copy)]
enum Form {
    /// A state of its own.
    New,
    /// The state of the version before, but for transient places: there is nothing to undo.
    Transient,
    /// The state of an older version, and which one is before that.
    Past { same: u64, before: u64 },
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
    /// What undo and redo go to, the newest last; as many at most.
    own: VecDeque<Own>,
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
    claims: Arc<Claims>,
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
    /// The thread of the transaction; 0 for none.
    thread: usize,
    form: Form,
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
            let (number, was) = (newest.number + 1, (newest.same, newest.before));
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
            let (same, before) = match new.form {
                Form::New => {
                    inner.own.push_back(Own { same: number, before: was.0, root: root.clone() });
                    (number, was.0)
                }
                Form::Transient => was,
                Form::Past { same, before } => (same, before),
            };
            inner.versions.push_back(Version { number, root, label, at, same, before, thread: new.thread });
            if let Some(effects) = effects {
                inner.effects.push_back((number, effects));
            }
            while inner.versions.len() > inner.most {
                if let Some(old) = inner.versions.pop_front() {
                    gone.extend([old.root, old.label]);
                }
            }
            while inner.own.len() > inner.most {
                gone.extend(inner.own.pop_front().map(|old| old.root));
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
                // Batches are written in order, so those before have their outcome by now. If one has failed, this
                // record is in the file and stands on nothing.
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
                thread: 0,
            });
        }
        while self.own.back().is_some_and(|newest| newest.same > durable) {
            gone.extend(self.own.pop_back().map(|newest| newest.root));
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
            thread: 0,
        };
        let inner = Inner {
            versions: VecDeque::from([newest]),
            own: VecDeque::from([Own { same: version, before: NONE, root: root.clone() }]),
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
            claims: Arc::default(),
            journal,
            check: optional(check)?,
            encode: optional(encode)?,
        };
        heap::make(kind, store)
    }
}

/// The module's types, by a store or an instance of a subclass.
unsafe fn types_of<'a>(own: Pointer) -> Result<&'a State, Raised> {
    // SAFETY: a heap type, whose bases lead to the module's own.
    unsafe { types::of_subtype(ffi::Py_TYPE(own)) }
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
        let own_states = inner.own.iter().map(|kept| &kept.root);
        for object in versions.chain(own_states).chain(pending).chain(effects).chain(&inner.durable.1) {
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
            std::mem::take(&mut inner.own),
            std::mem::take(&mut inner.pending),
            std::mem::take(&mut inner.effects),
            inner.durable.1.take(),
        );
        drop((gone, this.check.take(), this.encode.take()));
    }
    0
}
