//! Reports of this process's crates, on a Python bus.
//!
//! A crate reports from a Rust thread, with its locks held, so no Python code runs there. A subscription has a mailbox,
//! which such a thread fills; the receiver makes the Python objects. One Python thread serves the listeners that need
//! Python for each message: handlers, filters, links to other processes, and coroutines, whose loops only Python can
//! wake. The first of them starts the thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3_ffi as ffi;
use ropewalk_bus::reports::{self, Field as Part, Shared};
use ropewalk_bus::{Mailbox, Overflow, Pattern, Subscription, Watcher};

use ropewalk_capi::errors::fail;
use ropewalk_capi::guarded::Guarded;
use ropewalk_capi::heap::Field;
use ropewalk_capi::object::{Object, Raised, text};

/// A queue's source of reports, beside its messages.
pub(super) struct Feed {
    pub(super) mailbox: Arc<Mailbox<Shared>>,
    /// Makes the objects of reports.
    pub(super) carrier: Arc<Carrier>,
    /// Fills the mailbox for as long as it lives.
    subscription: Guarded<Option<Subscription>>,
}

impl Feed {
    /// Ends the reports.
    pub(super) fn end(&self) {
        // SAFETY: attached; nothing of the interpreter runs before the guard goes.
        let gone = unsafe { self.subscription.lock() }.take();
        drop(gone);
    }
}

fn collect(pattern: &str, mailbox: &Arc<Mailbox<Shared>>) -> Result<Subscription, Raised> {
    reports::collect(pattern, mailbox).map_err(|_| fail(c"the reports of this process cannot be listened to"))
}

/// The state of a bus that carries reports.
pub(super) struct Carrier {
    /// `make(topic, *fields)`: returns the object of a report.
    make: Field,
    /// `start()`: starts a thread that calls `_serve`.
    start: Field,
    has_started: AtomicBool,
    pub(super) watcher: Arc<Watcher>,
    /// For the listeners that are no queues with a feed.
    pub(super) mailbox: Arc<Mailbox<Shared>>,
    /// Fills that mailbox, once there is such a listener.
    others: Guarded<Option<Subscription>>,
}

impl Carrier {
    pub(super) fn new(make: Object, start: Object) -> Self {
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

    /// The objects that the carrier holds, for the garbage collector.
    pub(super) fn fields(&self) -> [&Field; 2] {
        [&self.make, &self.start]
    }

    /// Breaks a cycle.
    pub(super) fn clear(&self) {
        drop((self.make.take(), self.start.take()));
    }

    /// How many reports were published while anything listened, and to how many queues.
    pub(super) fn counts(&self) -> (u64, u64) {
        let reported = reports::statistics();
        (reported.published, reported.reached.saturating_sub(self.mailbox.counters().accepted))
    }

    /// Makes a feed for a queue.
    pub(super) fn feed(
        self: &Arc<Self>,
        pattern: &Pattern,
        capacity: usize,
        overflow: Overflow,
    ) -> Result<Feed, Raised> {
        let mailbox = Arc::new(Mailbox::new(capacity, overflow, Some(Arc::clone(&self.watcher))));
        let subscription = Guarded::new(Some(collect(pattern.as_str(), &mailbox)?));
        Ok(Feed { mailbox, carrier: Arc::clone(self), subscription })
    }

    /// Makes the object of a report.
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

    /// Starts the serving thread, which wakes loops, if it does not run.
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

    /// Starts the serving thread, if it does not run, and subscribes it to the reports for handlers, filters and links.
    pub(super) fn serve_others(&self) -> Result<(), Raised> {
        // SAFETY: as `Feed::end`.
        let known = unsafe { self.others.lock() }.is_some();
        if !known {
            let subscription = collect("**", &self.mailbox)?;
            // SAFETY: as above. Two threads may come here at once; the second replaces what the first put there.
            let before = unsafe { self.others.lock() }.replace(subscription);
            drop(before);
        }
        self.start_thread()
    }

    /// Restarts the serving thread in a forked child, which has no thread of its parent.
    pub(super) fn restart(&self) -> Result<(), Raised> {
        if self.has_started.swap(false, Ordering::Relaxed) { self.start_thread() } else { Ok(()) }
    }

    /// Ends the reports; the thread ends once it has delivered those that have arrived.
    pub(super) fn close(&self) {
        // SAFETY: as `Feed::end`.
        let gone = unsafe { self.others.lock() }.take();
        drop(gone);
        self.mailbox.close();
        self.watcher.wake();
    }
}
