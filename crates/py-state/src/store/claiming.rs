//! Claims, as Python's threads make them and wait for them.
//!
//! A claim is a capsule that ends it when it goes: an interrupt that comes after the claim was granted, and before the
//! program's side has a name for it, drops it.
//!
//! A thread may hold a claim while it waits for another: its transaction runs others, of this store or of another one.
//! So two threads could wait for each other. A thread that holds a claim therefore has a *patience*, after which its
//! wait ends as a conflict.

use std::cell::Cell;
use std::ffi::CStr;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use pyo3_ffi as ffi;
use ropewalk_base::{Code, Error};
use ropewalk_capi::entry;
use ropewalk_capi::errors;
use ropewalk_capi::heap::content;
use ropewalk_capi::object::{Object, Raised, detached};
use ropewalk_capi::signals;
use ropewalk_state::claims::{Claims, Slots};

use super::{Store, store, types_of};
use crate::node::Pointer;
use crate::rule::Rule;

const CAPSULE: &CStr = c"ropewalk.claim";

/// The patience of a thread that serves a transaction whose claim another thread has made.
const LENT: Duration = Duration::from_millis(50);

thread_local! {
    /// How long this thread waits for others, if it holds a claim of any store.
    static PATIENCE: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// What a capsule keeps.
struct Held {
    claims: Arc<Claims>,
    number: u64,
    /// The thread that has made it, and its patience before; nothing if a coroutine has, which waits in its event loop.
    before: Option<(ThreadId, Option<Duration>)>,
    has_ended: AtomicBool,
}

impl Held {
    fn end(&self) {
        // One thread at a time has the capsule: nothing is ordered by this.
        if self.has_ended.swap(true, Ordering::Relaxed) {
            return;
        }
        if let Some((thread, before)) = self.before
            && thread::current().id() == thread
        {
            PATIENCE.set(before);
        }
        self.claims.release(self.number);
    }

    /// What `_claim` and `_ask` return: the number, and a capsule that ends the claim when it goes.
    fn given(self: Box<Self>) -> Result<Object, Raised> {
        let number = self.number;
        let held = Box::into_raw(self);
        // SAFETY: the thread is attached; the capsule takes the box, and if there is none, nothing else has it.
        let capsule = unsafe {
            let capsule = ffi::PyCapsule_New(held.cast(), CAPSULE.as_ptr(), Some(drop_claim));
            if capsule.is_null() {
                Box::from_raw(held).end();
                return Err(Raised);
            }
            Object::own(capsule)?
        };
        // SAFETY: the thread is attached.
        let number = unsafe { Object::own(ffi::PyLong_FromUnsignedLongLong(number)) }?;
        super::commit::pair(number, capsule)
    }
}

/// While it lives, this thread has the patience of one that holds a claim.
pub(super) struct Patient(Option<Duration>);

impl Patient {
    pub(super) fn new() -> Self {
        let before = PATIENCE.get();
        PATIENCE.set(before.or(Some(LENT)));
        Self(before)
    }
}

impl Drop for Patient {
    fn drop(&mut self) {
        PATIENCE.set(self.0);
    }
}

/// Makes a claim and does not wait until it is granted; gives what `_claim` does. The thread's patience stays as it is:
/// it runs other coroutines while the one that claims waits.
pub(super) fn asked(this: &Store, slots: Slots) -> Result<Object, Raised> {
    let number = this.claims.claim(slots);
    let claims = Arc::clone(&this.claims);
    Box::new(Held { claims, number, before: None, has_ended: AtomicBool::new(false) }).given()
}

/// Sleeps in slices until `wait` is true, or the patience has ended; tells whether it is true. Signal handlers run in
/// between.
fn sleep(patience: Option<Duration>, wait: impl Fn(Option<Instant>) -> bool) -> Result<bool, Raised> {
    let end = patience.map(|patience| Instant::now() + patience);
    loop {
        let slice = signals::slice().map(|slice| Instant::now() + slice);
        let until = slice.into_iter().chain(end).min();
        if detached(|| wait(until)) {
            return Ok(true);
        }
        // SAFETY: the thread is attached.
        if unsafe { ffi::PyErr_CheckSignals() } < 0 {
            return Err(Raised);
        }
        if end.is_some_and(|end| end <= Instant::now()) {
            return Ok(false);
        }
    }
}

/// Waits until no claim of others forbids a change of these parts; false if this thread's patience has ended first.
pub(super) fn wait_allowed(this: &Store, slots: &Slots, claim: u64) -> Result<bool, Raised> {
    let patience = PATIENCE.get().or((claim != 0).then_some(LENT));
    sleep(patience, |deadline| this.claims.wait_allowed(slots, claim, deadline))
}

/// The same, where the end of the patience is an error.
pub(super) fn allowed(this: &Store, slots: &Slots, claim: u64) -> Result<(), Raised> {
    if wait_allowed(this, slots, claim)? {
        return Ok(());
    }
    let text =
        "another transaction has claimed the state, and this thread is in a transaction that has a claim too";
    Err(errors::raise(&Error::new(Code::Conflict, text)))
}

/// `store._claim(rule, patience)`: claims the parts that the rule's transactions touch, and waits until they are
/// granted; gives the claim's number, and a capsule that ends the claim when it goes. From then on this thread waits
/// for others no longer than `patience` seconds. `None` if it does so already, and that time has passed.
#[entry]
pub(crate) unsafe extern "C" fn claim(own: Pointer, arguments: *mut Pointer, count: isize) -> Pointer {
    // SAFETY: a store of ours, and as many live arguments as `count` says, which are checked.
    unsafe {
        let made = (|| {
            if count != 2 || ffi::Py_TYPE(*arguments) != types_of(own)?.rule.cast() {
                ffi::PyErr_SetString(ffi::PyExc_TypeError, c"_claim takes a rule and a patience".as_ptr());
                return Err(Raised);
            }
            let patience = ffi::PyFloat_AsDouble(*arguments.add(1));
            if patience == -1.0 && !ffi::PyErr_Occurred().is_null() {
                return Err(Raised);
            }
            let this = store(own);
            let number = this.claims.claim(content::<Rule>(*arguments).touches());
            let before = PATIENCE.get();
            let held = Box::new(Held {
                claims: Arc::clone(&this.claims),
                number,
                before: Some((thread::current().id(), before)),
                has_ended: AtomicBool::new(false),
            });
            let granted = sleep(before, |deadline| this.claims.wait_granted(number, deadline));
            // A store that is closed has granted nothing.
            let granted = granted.and_then(|is_granted| this.now().map(|_| is_granted));
            if !matches!(granted, Ok(true)) {
                held.end();
                return granted.map(|_| Object::none());
            }
            PATIENCE.set(Some(Duration::try_from_secs_f64(patience).unwrap_or(LENT)));
            held.given()
        })();
        made.map_or_else(|Raised| ptr::null_mut(), Object::into_ptr)
    }
}

/// The capsule goes.
#[entry]
unsafe extern "C" fn drop_claim(capsule: Pointer) {
    // SAFETY: a capsule of ours, whose destructor runs once; it keeps the box.
    unsafe {
        let held = ffi::PyCapsule_GetPointer(capsule, CAPSULE.as_ptr());
        if held.is_null() {
            ffi::PyErr_Clear();
        } else {
            Box::from_raw(held.cast::<Held>()).end();
        }
    }
}

/// `store._release(claim)`: ends the claim of a capsule; it may have ended before.
#[entry]
pub(crate) unsafe extern "C" fn release(_own: Pointer, capsule: Pointer) -> Pointer {
    // SAFETY: a live argument, which is checked; the capsule keeps the box as long as it lives.
    unsafe {
        let held = ffi::PyCapsule_GetPointer(capsule, CAPSULE.as_ptr());
        if held.is_null() {
            return ptr::null_mut();
        }
        (*held.cast::<Held>()).end();
        Object::none().into_ptr()
    }
}
