//! The turns of a loop. A turn takes the calls of other threads, polls the descriptors, queues the timers that are due,
//! and runs everything that was ready by then.

use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pyo3_ffi as ffi;
use ropewalk_os::epoll::Event;
use ropewalk_reactor::{Glance, Pace, Reactor};

use super::calling::{invoke, is_ending, within};
use super::clock::now;
#[cfg(not(Py_GIL_DISABLED))]
use super::context::{self, Entered};
use super::core::{LoopCore, none};
#[cfg(not(Py_GIL_DISABLED))]
use super::handle::SHARED;
use super::handle::{self, CANCELLED, Handle, LASTING, THREAD_SAFE, TIMED};
use super::item::{Item, drop_item};
#[cfg(not(Py_GIL_DISABLED))]
use super::yielding::Yielding;
use super::{operation, stream, transport};
use ropewalk_capi::entry;
use ropewalk_capi::errors::raise_os;
use ropewalk_capi::heap::method;
use ropewalk_capi::object::{Kept, Object, Raised, detached, take_exception};

/// The longest sleep in seconds: asyncio's own limit.
const LONGEST: f64 = 86_400.0;
/// Turns of a loop that has work between two checks for signals.
const SIGNALS: u32 = 16;

struct Run<'a> {
    owner: *mut ffi::PyObject,
    core: &'a LoopCore,
    reactor: Arc<Reactor>,
    glance: Glance,
    pace: Pace,
    /// Turns since signals were checked for.
    unchecked: u32,
    #[cfg(not(Py_GIL_DISABLED))]
    yielding: Yielding,
    events: Vec<Event>,
    #[cfg(not(Py_GIL_DISABLED))]
    entered: Option<Entered>,
}

#[entry]
unsafe extern "C" fn run(owner: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: a loop, which the caller holds.
    let core = unsafe { LoopCore::of(owner) };
    let Ok(reactor) = core.reactor() else { return null_mut() };
    let mut run = Run {
        owner,
        core,
        reactor,
        glance: core.swap_glance(Glance::default()),
        pace: Pace::new(),
        unchecked: 0,
        #[cfg(not(Py_GIL_DISABLED))]
        yielding: Yielding::default(),
        events: Vec::new(),
        #[cfg(not(Py_GIL_DISABLED))]
        entered: None,
    };
    run.glance.begin(core.thread());
    let ended = loop {
        if run.turn().is_err() {
            // A callback that failed has left its context.
            break Err(Raised);
        }
        if core.stopping.load(Ordering::Relaxed) {
            break run.leave();
        }
    };
    core.swap_glance(run.glance);
    if ended.is_ok() { none() } else { null_mut() }
}

/// Whether no callback follows the current one, as far as this thread knows.
///
/// # Safety
///
/// A loop that this thread runs.
pub(super) unsafe fn is_idle(owner: *mut ffi::PyObject) -> bool {
    // SAFETY: the caller's loop; the batch is this thread's, and nothing runs while the guard lives.
    unsafe {
        let core = LoopCore::of(owner);
        let batch = &*core.batch.get();
        batch.at >= batch.items.len() && core.inner.lock().ready.is_empty()
    }
}

impl Run<'_> {
    fn turn(&mut self) -> Result<(), Raised> {
        let core = self.core;
        core.collect();
        // SAFETY: the thread is attached, and runs nothing while the guard lives. The batch is this thread's.
        let (idle, timers) = unsafe {
            let mut inner = core.inner.lock();
            let batch = &mut *core.batch.get();
            if batch.at < batch.items.len() {
                // The last run ended by an exception in the midst of a batch.
                let mut rest = batch.items.split_off(batch.at);
                rest.append(&mut inner.ready);
                inner.ready = rest;
            }
            batch.items.clear();
            batch.at = 0;
            batch.number = batch.number.wrapping_add(1);
            (inner.ready.is_empty(), !inner.timers.is_empty())
        };
        let stopping = core.stopping.load(Ordering::Relaxed);
        if idle && !stopping {
            self.wait()?;
        } else {
            self.look(stopping)?;
            if !timers {
                self.pace.paused();
            } else if self.pace.is_reading_due() || stopping {
                let time = now();
                self.pace.read(time);
                self.fire(time)?;
            }
        }
        // SAFETY: as above.
        unsafe {
            let batch = &mut *core.batch.get();
            std::mem::swap(&mut core.inner.lock().ready, &mut batch.items);
        }
        self.run_batch()
    }

    /// Queues the waiters of descriptors that are ready, without waiting.
    #[inline]
    fn look(&mut self, stopping: bool) -> Result<(), Raised> {
        if self.glance.is_look_due() || stopping {
            self.glance.look(&self.reactor, &mut self.events).map_err(|error| raise_os(&error))?;
            self.note_events();
        }
        self.unchecked += 1;
        if self.unchecked < SIGNALS && !stopping {
            return Ok(());
        }
        self.check_signals()?;
        #[cfg(not(Py_GIL_DISABLED))]
        self.yielding.offer(self.core);
        Ok(())
    }

    /// Sleeps until there is something to do.
    fn wait(&mut self) -> Result<(), Raised> {
        self.leave()?;
        let core = self.core;
        let timeout = self.time_left()?;
        // SAFETY: the module's, reached by attached threads by turns.
        if let Some(spare) = unsafe { (*core.module).spare.as_mut() } {
            spare.trim();
        }
        let reactor = &*self.reactor;
        let events = &mut self.events;
        // The drops above may have scheduled something, because finalizers run any code.
        let has_work = || {
            #[cfg(Py_GIL_DISABLED)]
            if !core.handed.is_empty() {
                return true;
            }
            // SAFETY: as of `turn`.
            !unsafe { core.inner.lock() }.ready.is_empty()
        };
        // The sleep is announced before the interpreter is released: who gets it next finds a sleeper to wake.
        let woken = if timeout == Some(Duration::ZERO) || !reactor.park(has_work) {
            reactor.look(events)
        } else {
            detached(|| reactor.sleep(events, timeout))
        };
        woken.map_err(|error| raise_os(&error))?;
        self.pace.paused();
        self.glance.slept();
        self.note_events();
        self.check_signals()?;
        core.collect();
        if timeout.is_some() {
            let time = now();
            self.pace.read(time);
            self.fire(time)?;
        }
        Ok(())
    }

    fn note_events(&self) {
        if !self.events.is_empty() {
            // SAFETY: the table holds live transports.
            self.core.note_events(&self.events, |object, event| unsafe { transport::note(object, event) });
        }
    }

    /// Runs signal handlers, which a loop whose callbacks are all compiled functions would never do otherwise. They do
    /// not run in the context of a callback.
    fn check_signals(&mut self) -> Result<(), Raised> {
        self.unchecked = 0;
        self.leave()?;
        // SAFETY: the thread is attached.
        if unsafe { ffi::PyErr_CheckSignals() } != 0 { Err(Raised) } else { Ok(()) }
    }

    /// The time to the next timer that is not cancelled, if there is one.
    fn time_left(&self) -> Result<Option<Duration>, Raised> {
        let next = loop {
            let mut gone = Vec::new();
            // SAFETY: as of `turn`; what is taken out is dropped after.
            let next = unsafe {
                let mut inner = self.core.inner.lock();
                while let Some(first) = inner.timers.first()
                    && (*first).has(CANCELLED)
                {
                    inner.timers.pop();
                    inner.timers.took_cancelled();
                    gone.push(first);
                }
                inner.timers.next()
            };
            if gone.is_empty() {
                break next;
            }
            for made in gone {
                // SAFETY: the reference that the heap had. What it held may set a timer when it is dropped.
                unsafe {
                    (*made).unset(TIMED);
                    handle::release(made);
                }
            }
        };
        let Some(next) = next else { return Ok(None) };
        // SAFETY: a live loop, and no guard lives.
        let left = next - unsafe { self.core.time(self.owner)? };
        Ok(Some(Duration::try_from_secs_f64(left.clamp(0.0, LONGEST)).unwrap_or_default()))
    }

    /// Puts the timers whose time has come into the queue; `nanos` is that of the system's clock.
    fn fire(&mut self, nanos: u64) -> Result<(), Raised> {
        // SAFETY: as of `turn`; the heap's references go to the queue. A clock of the program's runs before the guard
        // lives, and in no callback's context.
        unsafe {
            if self.core.inner.lock().timers.is_empty() {
                return Ok(());
            }
            if self.core.clock.is_replaced(self.owner, &*self.core.module)? {
                self.leave()?;
            }
            let time = self.core.seconds(self.owner, nanos)?;
            let mut inner = self.core.inner.lock();
            while let Some(made) = inner.timers.pop_due(time) {
                (*made).unset(TIMED);
                if (*made).has(CANCELLED) {
                    inner.timers.took_cancelled();
                }
                inner.ready.push(Item::of_handle(made));
            }
        }
        Ok(())
    }

    fn run_batch(&mut self) -> Result<(), Raised> {
        let batch = self.core.batch.get();
        loop {
            // SAFETY: this thread's batch, whose items no other thread takes out; a callback may not run the loop
            // again.
            let item = unsafe {
                let batch = &mut *batch;
                let Some(&item) = batch.items.get(batch.at) else { return Ok(()) };
                batch.at += 1;
                item
            };
            let done = if item.is_handle() {
                let made = item.as_handle();
                // SAFETY: the queue's reference, which is ours now.
                let flags = unsafe { (*made).flags.load(Ordering::Relaxed) };
                let done = if flags & CANCELLED != 0 {
                    Ok(())
                } else if flags & THREAD_SAFE != 0 {
                    Handle::while_running(made, || self.run_handle(made))
                } else {
                    self.run_handle(made)
                };
                drop_item(item);
                done
            } else {
                let done = self.run_ready(item.object());
                drop_item(item);
                done
            };
            if !self.core.writing.get().is_null() {
                stream::callback_ended(self.core)?;
            }
            done?;
        }
    }

    /// A transport or an operation that is ready.
    fn run_ready(&mut self, object: *mut ffi::PyObject) -> Result<(), Raised> {
        self.leave()?;
        if !self.core.is_debug() {
            return self.run_object(object);
        }
        // SAFETY: live objects.
        unsafe {
            let began = self.core.time(self.owner)?;
            self.run_object(object)?;
            let took = Object::own(ffi::PyFloat_FromDouble(self.core.time(self.owner)? - began))?;
            let arguments = [self.owner, object, took.as_ptr()];
            let name = (*self.core.module).names.tell_slow;
            Object::own(ffi::PyObject_VectorcallMethod(name, arguments.as_ptr(), 3, null_mut())).map(drop)
        }
    }

    fn run_object(&mut self, object: *mut ffi::PyObject) -> Result<(), Raised> {
        // SAFETY: a live object of one of two types of ours.
        unsafe {
            if ffi::Py_TYPE(object).cast() == (*self.core.module).operation_type {
                operation::resume(object)
            } else {
                transport::run(object)
            }
        }
    }

    fn run_handle(&mut self, made: *mut Handle) -> Result<(), Raised> {
        // SAFETY: a live handle, whose reference is ours, in the thread that runs the loop.
        unsafe {
            if self.core.is_debug() && !(*made).context.is_null() {
                self.leave()?;
                return self.run_in_debug(made);
            }
            let (callback, args, one) = if (*made).has(LASTING) {
                (*made).locked(|made| {
                    ffi::Py_XINCREF(made.callback);
                    ffi::Py_XINCREF(made.args);
                    (made.callback, made.args, made.has(handle::ONE))
                })
            } else {
                (*made).take()
            };
            if callback.is_null() {
                ffi::Py_XDECREF(args);
                return Ok(());
            }
            let failed = self.call(made, callback, args, one);
            if let Err(Raised) = failed {
                return self.failed(made, callback, args, one);
            }
            ffi::Py_DECREF(callback);
            ffi::Py_XDECREF(args);
            Ok(())
        }
    }

    /// Calls in the handle's context.
    unsafe fn call(
        &mut self,
        made: *mut Handle,
        callback: *mut ffi::PyObject,
        args: *mut ffi::PyObject,
        one: bool,
    ) -> Result<(), Raised> {
        // SAFETY: live objects throughout.
        unsafe {
            let own = (*made).context;
            #[cfg(not(Py_GIL_DISABLED))]
            if (*made).has(SHARED) {
                let snapshots = &self.core.snapshots;
                if !self.entered.as_ref().is_some_and(|entered| entered.is_of(own)) {
                    if let Some(entered) = self.entered.take() {
                        entered.leave(snapshots)?;
                    }
                    self.entered = Some(Entered::enter(snapshots, Object::share(own)?)?);
                }
                if let Some(entered) = &self.entered {
                    entered.begin(snapshots, made);
                }
                let result = invoke(callback, args, one);
                if let Some(entered) = &self.entered {
                    let clean = entered.is_clean(&self.core.snapshots);
                    if result.is_null() {
                        context::keep(made, entered);
                    }
                    if !clean || result.is_null() {
                        let kept = if result.is_null() { Some(Kept::take()) } else { None };
                        let left = self.leave();
                        if let Some(kept) = kept {
                            kept.put_back();
                        }
                        left?;
                    }
                }
                return Object::own(result).map(drop);
            }
            self.leave()?;
            let act = || Object::own(invoke(callback, args, one)).map(drop);
            // A handle of another class enters its own.
            if own.is_null() { act() } else { within(own, act) }
        }
    }

    /// Leaves the context that was entered for several callbacks.
    fn leave(&mut self) -> Result<(), Raised> {
        #[cfg(not(Py_GIL_DISABLED))]
        if let Some(entered) = self.entered.take() {
            return entered.leave(&self.core.snapshots);
        }
        Ok(())
    }

    /// A callback has raised: returns its function and arguments to the handle, and reports the error to the loop's
    /// exception handler.
    unsafe fn failed(
        &mut self,
        made: *mut Handle,
        callback: *mut ffi::PyObject,
        args: *mut ffi::PyObject,
        one: bool,
    ) -> Result<(), Raised> {
        // SAFETY: live objects; the references go back into the handle.
        unsafe {
            let ends = is_ending();
            let kept = Kept::take();
            if (*made).has(LASTING) || (*made).has(CANCELLED) {
                ffi::Py_DECREF(callback);
                ffi::Py_XDECREF(args);
            } else {
                (*made).locked(|made| {
                    made.callback = callback;
                    made.args = args;
                });
                if one {
                    (*made).set(handle::ONE);
                }
            }
            kept.put_back();
            if ends {
                return Err(Raised);
            }
            tell_failed(self.core, self.owner, made, &take_exception())
        }
    }

    /// Runs a handle as asyncio does in debug mode: timed, and recorded as the current one.
    unsafe fn run_in_debug(&mut self, made: *mut Handle) -> Result<(), Raised> {
        // SAFETY: live objects.
        unsafe {
            let arguments = [self.owner, made.cast()];
            let name = (*self.core.module).names.run_in_debug;
            Object::own(ffi::PyObject_VectorcallMethod(name, arguments.as_ptr(), 2, null_mut())).map(drop)
        }
    }
}

/// Reports an exception in a callback to the loop's exception handler.
unsafe fn tell_failed(
    core: &LoopCore,
    owner: *mut ffi::PyObject,
    made: *mut Handle,
    error: &Object,
) -> Result<(), Raised> {
    // SAFETY: live objects.
    unsafe {
        let arguments = [owner, made.cast(), error.as_ptr()];
        let name = (*core.module).names.callback_failed;
        Object::own(ffi::PyObject_VectorcallMethod(name, arguments.as_ptr(), 3, null_mut())).map(drop)
    }
}

pub(super) fn methods() -> Vec<ffi::PyMethodDef> {
    vec![method(c"_run", run, ffi::METH_NOARGS, c"_run(): turns until stop() was called.")]
}
