//! Reports of the process's rooms, on a bus of Python's.
//!
//! A room reports from a thread of Rust's, with its locks held, so nothing of Python's runs there. A subscription has a
//! mailbox, which such a thread fills and whose receiver makes the objects. What needs Python for each message is
//! served by one thread of Python's, which the first of them starts: handlers, filters, links to other processes, and
//! coroutines, whose loops only Python can wake. Nobody else needs it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3_ffi as ffi;
use ropewalk_bus::reports::{self, Field as Part, Shared};
use ropewalk_bus::{Mailbox, Overflow, Pattern, Subscription, Taken, Watcher};

use super::queue::Side;
use super::registry::{Registry, Target};
use super::{bus, deliver};
use ropewalk_capi::entry;
use ropewalk_capi::errors::fail;
use ropewalk_capi::guarded::Guarded;
use ropewalk_capi::heap::Field;
use ropewalk_capi::object::{Object, Raised, detached, text};

/// What a queue has for reports beside its messages.
pub(super) struct Feed {
    pub(super) mailbox: Arc<Mailbox<Shared>>,
    /// Fills the mailbox for as long as it is there.
    subscription: Guarded<Option<Subscription>>,
}

impl Feed {
    fn new(mailbox: Arc<Mailbox<Shared>>, pattern: &str) -> Result<Self, Raised> {
        match reports::collect(pattern, &mailbox) {
            Ok(subscription) => Ok(Self { mailbox, subscription: Guarded::new(Some(subscription)) }),
            Err(_) => Err(fail(c"the reports of this process cannot be listened to")),
        }
    }

    /// No more reports come.
    pub(super) fn end(&self) {
        // SAFETY: attached; nothing of the interpreter runs before the guard goes.
        let gone = unsafe { self.subscription.lock() }.take();
        drop(gone);
    }
}

/// What a bus has that carries reports.
pub(super) struct Carrier {
    /// `make(topic, *fields)`: the object that a report becomes.
    make: Field,
    /// `start()`: starts a thread that calls `_serve`.
    start: Field,
    has_started: AtomicBool,
    watcher: Arc<Watcher>,
    /// For whatever is not a queue with a feed.
    mailbox: Arc<Mailbox<Shared>>,
    others: Guarded<Option<Feed>>,
}

impl Carrier {
    fn new(make: Object, start: Object) -> Self {
        let watcher = Arc::new(Watcher::default());
        Self {
            make: Field::new(make),
            start: Field::new(start),
            has_started: AtomicBool::new(false),
            mailbox: Arc::new(Mailbox::new(1, Overflow::Block, Some(Arc::clone(&watcher)))),
            watcher,
            others: Guarded::new(None),
        }
    }

    /// The objects that it holds, for the garbage collector.
    pub(super) fn fields(&self) -> [&Field; 2] {
        [&self.make, &self.start]
    }

    /// Breaks a cycle.
    pub(super) fn clear(&self) {
        drop((self.make.take(), self.start.take()));
    }

    /// What was reported while anybody listened, and to how many queues.
    pub(super) fn counts(&self) -> (u64, u64) {
        let reported = reports::statistics();
        (reported.published, reported.reached.saturating_sub(self.mailbox.counters().accepted))
    }

    /// What a queue of its own needs.
    pub(super) fn feed(
        &self,
        pattern: &Pattern,
        capacity: usize,
        overflow: Overflow,
    ) -> Result<Feed, Raised> {
        let mailbox = Mailbox::new(capacity, overflow, Some(Arc::clone(&self.watcher)));
        Feed::new(Arc::new(mailbox), pattern.as_str())
    }

    /// The object that a report becomes.
    pub(super) fn make(&self, report: &Shared) -> Result<Object, Raised> {
        let Some(make) = self.make.share() else { return Err(fail(c"the bus is gone")) };
        let part = |part: &Part<'_>| match part {
            Part::Nothing => Ok(Object::none()),
            // SAFETY: a plain call.
            Part::Number(number) => unsafe { Object::own(ffi::PyLong_FromLongLong(*number)) },
            Part::Text(characters) => text(characters),
        };
        let mut arguments = vec![text(report.topic())?];
        for field in &report.fields() {
            arguments.push(part(field)?);
        }
        let arguments: Vec<_> = arguments.iter().map(Object::as_ptr).collect();
        make.call(&arguments)
    }

    /// Has the thread run that wakes loops.
    pub(super) fn start_thread(&self) -> Result<(), Raised> {
        if self.has_started.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let started = match self.start.share() {
            Some(start) => start.call(&[]).map(drop),
            None => Err(fail(c"the bus is gone")),
        };
        started.inspect_err(|_| self.has_started.store(false, Ordering::Relaxed))
    }

    /// Has the thread run that serves handlers, filters and links, and reports come to it.
    pub(super) fn serve_others(&self) -> Result<(), Raised> {
        // SAFETY: as `Feed::end`.
        let known = unsafe { self.others.lock() }.is_some();
        if !known {
            let feed = Feed::new(Arc::clone(&self.mailbox), "**")?;
            // SAFETY: as above. Two threads may come here at once; the second replaces what the first put there.
            let before = unsafe { self.others.lock() }.replace(feed);
            drop(before);
        }
        self.start_thread()
    }

    /// Wakes the loops of those who wait for a report that has come.
    fn wake_loops(&self, registry: &Registry) {
        for listener in registry.listeners() {
            if let Target::Queue(queue) = &listener.target.target
                && let Some(feed) = &queue.feed
                && queue.lock().receivers.is_waited_in()
                && !feed.mailbox.watch()
            {
                let wake = queue.lock().wake(Side::Receivers);
                queue.perform(wake);
            }
        }
    }

    fn close(&self) {
        // SAFETY: as `Feed::end`.
        let gone = unsafe { self.others.lock() }.take();
        drop(gone);
        self.mailbox.close();
        self.watcher.wake();
    }
}

/// `_carry(make, start)`: the bus carries what the rooms of this process report.
#[entry]
pub(super) unsafe extern "C" fn carry(
    object: *mut ffi::PyObject,
    arguments: *mut *mut ffi::PyObject,
    given: ffi::Py_ssize_t,
) -> *mut ffi::PyObject {
    if given != 2 {
        let _ = fail(c"_carry takes two functions");
        return std::ptr::null_mut();
    }
    // SAFETY: a bus, and two live arguments.
    let made = unsafe {
        Object::share(*arguments)
            .and_then(|make| Ok(Carrier::new(make, Object::share(*arguments.add(1))?)))
            .map(|carrier| bus::bus(object).carrier.set(carrier))
    };
    match made {
        Ok(Ok(())) => Object::none().into_ptr(),
        Ok(Err(_)) => {
            let _ = fail(c"the bus carries reports already");
            std::ptr::null_mut()
        }
        Err(Raised) => std::ptr::null_mut(),
    }
}

/// `_serve()`: what its thread does, until `_stop` and everything that has come by then is delivered.
#[entry]
pub(super) unsafe extern "C" fn serve(
    object: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a bus.
    let bus = unsafe { bus::bus(object) };
    let Some(carrier) = bus.carrier.get() else { return Object::none().into_ptr() };
    loop {
        // Before looking: what comes after it changes it.
        let number = carrier.watcher.number();
        carrier.wake_loops(&bus.registry);
        match carrier.mailbox.take() {
            Taken::Message(report) => {
                let served = carrier.make(&report).and_then(|message| {
                    let topic = text(report.topic())?;
                    // SAFETY: a bus, and live objects.
                    unsafe { deliver::report(object, topic.as_ptr(), message.as_ptr()) }
                });
                if served.is_err() && !bus.registry.is_closed() {
                    // `BusFull`, or what a handler may not raise: the thread goes on.
                    // SAFETY: an exception is set.
                    unsafe { ffi::PyErr_WriteUnraisable(object) };
                }
                // SAFETY: the thread is attached.
                unsafe { ffi::PyErr_Clear() };
            }
            Taken::Lagged(_) => {}
            Taken::Ended => return Object::none().into_ptr(),
            Taken::Empty => {
                if carrier.mailbox.watch() {
                    detached(|| carrier.watcher.sleep(number));
                }
            }
        }
    }
}

/// `_stop()`: no more reports come, and the thread ends once it has delivered those that have.
#[entry]
pub(super) unsafe extern "C" fn stop(
    object: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a bus.
    if let Some(carrier) = unsafe { bus::bus(object) }.carrier.get() {
        carrier.close();
    }
    Object::none().into_ptr()
}

/// `_restart()`: in a forked child, which has no thread of its parent's.
#[entry]
pub(super) unsafe extern "C" fn restart(
    object: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: a bus.
    let carrier = unsafe { bus::bus(object) }.carrier.get();
    let started = match carrier {
        Some(carrier) if carrier.has_started.swap(false, Ordering::Relaxed) => carrier.start_thread(),
        _ => Ok(()),
    };
    started.map_or(std::ptr::null_mut(), |()| Object::none().into_ptr())
}
