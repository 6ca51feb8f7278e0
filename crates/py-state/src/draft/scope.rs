//! What all drafts of a transaction share, and what each of them has.

use std::cell::{Cell, UnsafeCell};
use std::ffi::{c_int, c_void};
use std::ptr;

use pyo3_ffi as ffi;
use ropewalk_base::Code;
use ropewalk_capi::errors;
use ropewalk_capi::heap::{Field, content, visit_fields};
use ropewalk_capi::object::{Object, Raised};

use crate::node::Pointer;
use crate::rule::Rule;
use crate::types::{self, State};

/// Where a transaction stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Its drafts may be read and written.
    Open,
    /// A draft of it is being read whole: what that calls may not touch its drafts.
    Reading,
    /// Its drafts are being read by a commit: what the commit calls may not touch them.
    Committing,
    /// Its drafts are of no use any more.
    Ended,
}

/// The content of a `Transaction`.
///
/// Only the thread that has begun the transaction touches it; the collector visits the references.
pub(crate) struct Scope {
    thread: usize,
    phase: Cell<Phase>,
    /// The number of the innermost savepoint that is set, or 0.
    pub(super) savepoint: Cell<u32>,
    /// The number of the savepoint that was set last: each has its own.
    pub(super) last_savepoint: Cell<u32>,
    /// The savepoints that are set, with the place in the list of notes to go back to.
    pub(super) points: UnsafeCell<Vec<(u32, usize)>>,
    /// How the changes since the first of them are undone.
    pub(super) saved: UnsafeCell<Vec<Saved>>,
    /// The transaction has written to arrays.
    pub(super) has_arrays: Cell<bool>,
    /// The store, or `None`.
    pub(crate) store: Field,
    /// The state that the transaction began with.
    pub(crate) base: Field,
    /// The number of that state.
    pub(crate) version: Cell<u64>,
    /// The draft of the whole state; empty once the transaction has ended.
    pub(crate) root: Field,
    pub(crate) rule: Field,
    pub(crate) label: Field,
    /// The path and the reason of the last conflict, or nothing.
    pub(crate) conflict: Field,
    /// What runs after the commit: a list, or nothing.
    pub(crate) effects: Field,
}

/// How a change of a draft is undone.
pub(crate) struct Saved {
    pub(super) draft: Field,
    pub(super) undo: super::savepoint::Undo,
}

impl Saved {
    /// # Safety
    ///
    /// Called from `tp_traverse` with its arguments.
    unsafe fn visit(&self, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
        // SAFETY: the caller's.
        unsafe {
            for field in std::iter::once(&self.draft).chain(self.undo.fields()) {
                let answer = field.visit(visit, arg);
                if answer != 0 {
                    return answer;
                }
            }
        }
        0
    }
}

thread_local! {
    /// Its address is the thread's for as long as the thread lives.
    static HERE: u8 = const { 0 };
}

/// A number that no other living thread has.
#[inline]
fn this_thread() -> usize {
    HERE.with(|here| ptr::from_ref(here) as usize)
}

impl Scope {
    pub(crate) fn new(store: Object, base: Object, version: u64, rule: Object, label: Object) -> Self {
        Self {
            thread: this_thread(),
            phase: Cell::new(Phase::Open),
            savepoint: Cell::new(0),
            last_savepoint: Cell::new(0),
            points: UnsafeCell::new(Vec::new()),
            saved: UnsafeCell::new(Vec::new()),
            has_arrays: Cell::new(false),
            store: Field::new(store),
            base: Field::new(base),
            version: Cell::new(version),
            root: Field::empty(),
            rule: Field::new(rule),
            label: Field::new(label),
            conflict: Field::empty(),
            effects: Field::empty(),
        }
    }

    /// The number of the thread that has begun the transaction.
    pub(crate) fn thread(&self) -> usize {
        self.thread
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase.get()
    }

    pub(crate) fn set_phase(&self, phase: Phase) {
        self.phase.set(phase);
    }

    /// Whether this thread may use the transaction now; if not, an exception is set.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), Raised> {
        // The thread first: only its own thread may look at the rest.
        if self.thread == this_thread() && self.phase.get() == Phase::Open {
            return Ok(());
        }
        self.refuse()
    }

    #[cold]
    fn refuse(&self) -> Result<(), Raised> {
        if self.thread == this_thread() && self.phase.get() == Phase::Reading {
            let said = "a draft of the transaction is being read whole: a comparison or another method that this \
                        calls cannot use the transaction's drafts";
            return Err(errors::raise_text(Code::StateError, said));
        }
        let said = if self.thread != this_thread() {
            "a draft belongs to the thread that runs its transaction; pass values to other threads, not drafts"
        } else if self.phase.get() == Phase::Committing {
            "the transaction is being committed: a check or a comparison that the commit calls cannot use its drafts"
        } else {
            "the transaction has ended, and its drafts with it; take values out of the drafts before it ends, or read \
             a snapshot afterwards"
        };
        Err(errors::raise_text(Code::TransactionEnded, said))
    }

    /// Runs a walk over drafts, which keeps references into them while code of the program runs: that code may not use
    /// the drafts meanwhile.
    ///
    /// # Errors
    ///
    /// Those of [`check`](Self::check), so that there are no walks within each other.
    pub(super) fn reading<T>(&self, walk: impl FnOnce() -> T) -> Result<T, Raised> {
        self.check()?;
        self.phase.set(Phase::Reading);
        let made = walk();
        // The collector ends a transaction that it clears.
        if self.phase.get() == Phase::Reading {
            self.phase.set(Phase::Open);
        }
        Ok(made)
    }

    /// Shows every reference to the garbage collector.
    ///
    /// # Safety
    ///
    /// Called from `tp_traverse` with its arguments.
    pub(crate) unsafe fn visit(&self, visit: ffi::visitproc, arg: *mut c_void) -> c_int {
        // SAFETY: the caller's; no other thread runs, and this one is outside of the list.
        unsafe {
            for saved in &*self.saved.get() {
                let answer = saved.visit(visit, arg);
                if answer != 0 {
                    return answer;
                }
            }
            let fields =
                [&self.store, &self.base, &self.root, &self.rule, &self.label, &self.conflict, &self.effects];
            visit_fields(&fields, visit, arg)
        }
    }

    /// Ends the transaction, and drops what it has done; that may run code of the program.
    pub(crate) fn end(&self) {
        self.phase.set(Phase::Ended);
        // SAFETY: only this thread uses the transaction, and holds no reference into the list.
        let saved = unsafe { std::mem::take(&mut *self.saved.get()) };
        drop((self.root.take(), self.effects.take(), saved));
    }
}

/// What each draft has.
pub(crate) struct Head {
    /// The transaction.
    pub(crate) scope: Field,
    /// The value that the place had when the draft was made.
    pub(super) base: Field,
    pub(super) rule: Field,
    /// The value was put there by this transaction, so that no other can have changed it.
    pub(super) is_fresh: bool,
    /// Its place was undone with a savepoint.
    is_undone: Cell<bool>,
}

impl Head {
    pub(super) fn new(scope: Object, base: Object, rule: Object, is_fresh: bool) -> Self {
        Self {
            scope: Field::new(scope),
            base: Field::new(base),
            rule: Field::new(rule),
            is_fresh,
            is_undone: Cell::new(false),
        }
    }

    /// Lets nobody use the draft any more, because its place was undone with a savepoint.
    pub(super) fn close(&self) {
        self.is_undone.set(true);
        // Its user has the transaction, so this is no last reference.
        drop(self.scope.take());
    }

    /// The transaction, if this thread may use it now.
    #[inline]
    pub(crate) fn open(&self) -> Result<&Scope, Raised> {
        let scope = self.scope.get();
        if scope.is_null() {
            return Err(self.given_up());
        }
        // SAFETY: a live transaction, which the draft holds.
        let scope = unsafe { content::<Scope>(scope) };
        scope.check()?;
        Ok(scope)
    }

    #[cold]
    fn given_up(&self) -> Raised {
        if self.is_undone.get() {
            let said = "the savepoint in which the draft's place was made was rolled back, and the place is gone; \
                        take the draft again from the one above it";
            return errors::raise_text(Code::StateError, said);
        }
        errors::raise_text(Code::TransactionEnded, "the draft was given up")
    }

    /// Whether a walk of this thread's goes over the transaction's drafts.
    pub(super) fn is_being_read(&self) -> bool {
        let scope = self.scope.get();
        // SAFETY: null, or a live transaction, which the draft holds.
        let scope = unsafe { scope.as_ref().map(|_| content::<Scope>(scope)) };
        scope.is_some_and(|scope| scope.thread == this_thread() && scope.phase.get() == Phase::Reading)
    }

    #[inline]
    pub(super) fn rule(&self) -> &Rule {
        // SAFETY: drafts are made with rules; the collector clears no draft that is still used.
        unsafe { content::<Rule>(self.rule.get()) }
    }

    pub(super) fn fields(&self) -> [&Field; 3] {
        [&self.scope, &self.base, &self.rule]
    }
}

/// Raises the exception for an access to the place `step` below a draft that the contract does not declare.
///
/// # Safety
///
/// `draft` is a live draft; `step` is live, or null for the draft's own place.
#[cold]
pub(super) unsafe fn violated(
    types: &State,
    head: &Head,
    draft: Pointer,
    step: Pointer,
    access: &str,
) -> Raised {
    // SAFETY: the caller's.
    unsafe {
        match super::path::to(types, head, draft, step) {
            Ok(path) => refused(types, head, &path, access),
            Err(Raised) => Raised,
        }
    }
}

/// Raises the exception for an access to the place at a path that the contract does not declare, or its zone refuses.
///
/// # Safety
///
/// The head of a live draft.
#[cold]
pub(super) unsafe fn refused(types: &State, head: &Head, path: &Object, access: &str) -> Raised {
    // SAFETY: the caller's; the hook gives an exception or raises one.
    let made = unsafe {
        (|| {
            let access = ropewalk_capi::object::text(access)?;
            let scope = head.scope.share().ok_or(Raised)?;
            if types.violated.is_null() {
                return Err(errors::fail(c"ropewalk.state was not imported"));
            }
            Object::share(types.violated)?.call(&[scope.as_ptr(), path.as_ptr(), access.as_ptr()])
        })()
    };
    if let Ok(error) = made {
        // SAFETY: a live object; the call sets a TypeError if it is no exception.
        unsafe { ffi::PyErr_SetObject(ffi::Py_TYPE(error.as_ptr()).cast(), error.as_ptr()) };
    }
    Raised
}

/// The module's types, by a draft.
///
/// # Safety
///
/// `draft` is a live draft.
#[inline]
pub(super) unsafe fn types<'a>(draft: Pointer) -> Result<&'a State, Raised> {
    // SAFETY: the types of drafts are the module's own, and have no subtypes.
    unsafe { types::of(ffi::Py_TYPE(draft)) }
}
