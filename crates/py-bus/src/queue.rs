//! The queue between publishers and one subscription: bounded, with a policy, and with the threads and coroutines that
//! wait at either end.
//!
//! Threads sleep on a futex word; coroutines wait for a future of their loop. A thread that changes the queue clears
//! the waiters' flag before it wakes them, so a burst wakes a thread once and a loop once.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pyo3_ffi as ffi;
use ropewalk_base::{Code, Error};
use ropewalk_bus::reports::Shared;
use ropewalk_bus::{Backlog, Counters, Offered, Overflow, Taken};

use super::arguments;
use super::feed::Feed;
use super::loops::{Loops, Wakers};
use ropewalk_capi::errors::{fail, raise, raise_made};
use ropewalk_capi::guarded::{Guard, Guarded};
use ropewalk_capi::object::{Object, Raised, text};
use ropewalk_sync::futex::{Futex, Wait};

/// The policy by its number in `ropewalk.bus._bus`.
pub(super) fn numbered_overflow(number: c_int) -> Overflow {
    match number {
        0 => Overflow::Block,
        1 => Overflow::DropOldest,
        2 => Overflow::DropNewest,
        _ => Overflow::Error,
    }
}

pub(super) fn overflow_number(overflow: Overflow) -> c_int {
    match overflow {
        Overflow::Block => 0,
        Overflow::DropOldest => 1,
        Overflow::DropNewest => 2,
        Overflow::Error => 3,
    }
}

/// The error for a use, in a forked child, of a bus that other processes share.
#[cold]
pub(super) fn orphaned() -> Raised {
    raise(&Error::new(
        Code::BusError,
        "the bus was shared with other processes when this process was forked: no message crosses from here. Make a \
         new Bus in the child, and connect it to the endpoint that `bind` has returned.",
    ))
}

/// Raises the report of a loss.
pub(super) fn lagged(count: u64) -> Raised {
    // SAFETY: the thread is attached.
    match unsafe { Object::own(ffi::PyLong_FromUnsignedLongLong(count)) } {
        Ok(count) => raise_made(Code::Lagged, &[count.as_ptr()]),
        Err(raised) => raised,
    }
}

/// A waiting message: an object that a Python thread published, or a report, of which the receiver makes an object.
pub(super) enum Item {
    Object(Object),
    Report(Shared),
}

/// Messages that were taken together.
pub(super) enum Batch {
    Objects(Vec<Object>),
    Reports(Vec<Shared>),
}

/// A link's state beside its queue.
#[derive(Default)]
pub(super) struct LinkParts {
    /// `encode(topic, message)`: returns bytes, or `None` for a message that cannot be encoded; the failure was
    /// reported.
    pub(super) encode: Option<Object>,
    /// `write(encoded)`: returns whether there was room.
    pub(super) write: Option<Object>,
    /// A message was taken out and is not written yet.
    pub(super) held: bool,
    /// The dropped messages of each topic since the last query.
    pub(super) lost: HashMap<String, u64>,
}

impl LinkParts {
    pub(super) fn objects(&self) -> impl Iterator<Item = &Object> {
        self.encode.iter().chain(&self.write)
    }

    pub(super) fn take_objects(&mut self) -> impl Iterator<Item = Object> + use<> {
        self.encode.take().into_iter().chain(self.write.take())
    }
}

/// The mutable part of a queue.
///
/// `repr(C)` keeps this order: the fields that every message touches come first.
#[derive(Default)]
#[repr(C)]
pub(super) struct Content {
    pub(super) backlog: Backlog<Object>,
    /// A thread sleeps in `receive`, or in `room`. It sets the flag; the thread that wakes it clears the flag.
    receiver_sleeps: bool,
    publisher_sleeps: bool,
    pub(super) receivers: Loops,
    pub(super) publishers: Loops,
    /// Receptions since a coroutine last yielded to its loop.
    pub(super) streak: u32,
    /// A link's state beside its queue.
    pub(super) link: LinkParts,
}

// SAFETY: it holds references into the interpreter, which any attached thread may use; see `Guarded`.
unsafe impl Send for Content {}

/// See the module.
pub(super) struct Queue {
    state: Guarded<Content>,
    /// Wake-ups so far: of receivers, and of publishers that wait for room.
    receiver_wakeups: Futex,
    publisher_wakeups: Futex,
    pub(super) capacity: usize,
    pub(super) overflow: Overflow,
    /// Messages are pairs of a topic and the published message.
    pub(super) topics: bool,
    /// The queue leads to another process: see `link`.
    pub(super) is_link: bool,
    /// The source of reports, if the bus carries them.
    pub(super) feed: Option<Feed>,
    /// See `orphan`.
    orphaned: AtomicBool,
}

/// Whom to wake at one end, once the guard is dropped.
#[must_use]
pub(super) struct Wake {
    side: Side,
    /// A thread sleeps there.
    thread: bool,
    loops: Wakers,
}

/// An end of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Receivers,
    Publishers,
}

impl Content {
    /// Marks the waiters for messages, or for room, as woken.
    pub(super) fn wake(&mut self, side: Side) -> Wake {
        let (sleeps, loops) = match side {
            Side::Receivers => (&mut self.receiver_sleeps, &mut self.receivers),
            Side::Publishers => (&mut self.publisher_sleeps, &mut self.publishers),
        };
        Wake { side, thread: std::mem::take(sleeps), loops: loops.mark_pending() }
    }

    pub(super) fn loops(&mut self, side: Side) -> &mut Loops {
        match side {
            Side::Receivers => &mut self.receivers,
            Side::Publishers => &mut self.publishers,
        }
    }
}

impl Queue {
    pub(super) fn new(capacity: usize, overflow: Overflow, topics: bool, feed: Option<Feed>) -> Self {
        Self {
            state: Guarded::new(Content::default()),
            receiver_wakeups: Futex::new(0),
            publisher_wakeups: Futex::new(0),
            capacity,
            overflow,
            topics,
            is_link: false,
            feed,
            orphaned: AtomicBool::new(false),
        }
    }

    /// A queue that leads to another process.
    pub(super) fn of_link(capacity: usize) -> Self {
        Self { is_link: true, ..Self::new(capacity, Overflow::Block, true, None) }
    }

    /// The state, under the rules of `Guarded::lock`, which every caller in this crate keeps: attached, and no Python
    /// code runs while the guard lives.
    pub(super) fn lock(&self) -> Guard<'_, Content> {
        // SAFETY: every caller keeps the rules above.
        unsafe { self.state.lock() }
    }

    /// For the garbage collector: see `Guarded::in_collection`.
    pub(super) fn in_collection(&self) -> *mut Content {
        self.state.in_collection()
    }

    fn wakeups(&self, side: Side) -> &Futex {
        match side {
            Side::Receivers => &self.receiver_wakeups,
            Side::Publishers => &self.publisher_wakeups,
        }
    }

    /// Wakes the waiters that a change of the queue concerns. The thread is attached and holds no guard.
    pub(super) fn perform(&self, wake: Wake) {
        match (wake.side, &self.feed) {
            _ if !wake.thread => {}
            (Side::Receivers, Some(feed)) => feed.mailbox.wake(),
            (side, _) => {
                let wakeups = self.wakeups(side);
                // Release: a thread that sees the new number sees the queue as it was when the flag was cleared.
                wakeups.fetch_add(1, Ordering::Release);
                wakeups.wake_all();
            }
        }
        wake.loops.wake(wake.side as usize);
    }

    /// Offers a message to the queue.
    #[inline]
    pub(super) fn offer(&self, message: Object) -> Offered<Object> {
        let mut state = self.lock();
        if state.backlog.closed
            || state.backlog.len() >= self.capacity
            || state.receiver_sleeps
            || state.receivers.any()
        {
            drop(state);
            return self.offer_with(message, self.capacity, self.overflow);
        }
        state.backlog.put(message);
        Offered::Taken
    }

    /// Offers a report, for which nobody waits.
    pub(super) fn offer_report(&self, message: Object) {
        let (capacity, overflow) = self.overflow.of_reports(self.capacity);
        drop(self.offer_with(message, capacity, overflow));
    }

    /// As `offer`, for queues that are full or closed or that somebody waits at, and with a limit of the caller's.
    fn offer_with(&self, message: Object, capacity: usize, overflow: Overflow) -> Offered<Object> {
        let mut state = self.lock();
        let accepted = state.backlog.counters.accepted;
        let offered = state.backlog.offer(message, capacity, overflow);
        if state.backlog.counters.accepted > accepted && (state.receiver_sleeps || state.receivers.any()) {
            let wake = state.wake(Side::Receivers);
            drop(state);
            self.perform(wake);
        }
        offered
    }

    /// Records that `count` messages were dropped before they came here, so that a gap reports them to the receiver.
    pub(super) fn lag(&self, count: u64) {
        let mut state = self.lock();
        state.backlog.lag(count);
        let wake = state.wake(Side::Receivers);
        drop(state);
        self.perform(wake);
    }

    /// Counts a message that was refused because there was no room.
    pub(super) fn refuse(&self) {
        self.lock().backlog.counters.refused += 1;
    }

    /// Takes the oldest message, if it is an object: the way of nearly every reception.
    #[inline(always)]
    pub(super) fn take_object(&self) -> Option<Object> {
        let mut state = self.lock();
        let message = state.backlog.take_message()?;
        self.make_room(state);
        Some(message)
    }

    /// A message was taken: wakes whoever waits for its room.
    #[inline(always)]
    fn make_room(&self, mut state: Guard<'_, Content>) {
        if state.publisher_sleeps || state.publishers.any() {
            let wake = state.wake(Side::Publishers);
            drop(state);
            self.perform(wake);
        }
    }

    /// Takes the next message or report of a loss.
    pub(super) fn take(&self) -> Taken<Item> {
        let mut state = self.lock();
        match state.backlog.take() {
            Taken::Message(message) => {
                self.make_room(state);
                Taken::Message(Item::Object(message))
            }
            other => {
                drop(state);
                self.take_elsewhere(&other)
            }
        }
    }

    /// Takes from the feed if no object waits.
    #[cold]
    fn take_elsewhere(&self, found: &Taken<Object>) -> Taken<Item> {
        let nothing = match found {
            Taken::Lagged(count) => return Taken::Lagged(*count),
            Taken::Ended => Taken::Ended,
            Taken::Empty | Taken::Message(_) => Taken::Empty,
        };
        match self.feed.as_ref().map(|feed| feed.mailbox.take()) {
            Some(Taken::Message(report)) => Taken::Message(Item::Report(report)),
            Some(Taken::Lagged(count)) => Taken::Lagged(count),
            Some(Taken::Empty | Taken::Ended) | None => nothing,
        }
    }

    /// Takes up to `most` messages that have no gap between them, or the other result if there is none.
    pub(super) fn take_many(&self, most: usize) -> Result<Batch, Taken<Item>> {
        let mut state = self.lock();
        match state.backlog.take_many(most) {
            Ok(messages) => {
                let wake = state.wake(Side::Publishers);
                drop(state);
                self.perform(wake);
                Ok(Batch::Objects(messages))
            }
            Err(other) => {
                drop(state);
                match &self.feed {
                    Some(feed) if !matches!(other, Taken::Lagged(_)) => {
                        let reports = feed.mailbox.take_many(most).map(Batch::Reports);
                        reports.map_err(|found| match found {
                            Taken::Lagged(count) => Taken::Lagged(count),
                            _ => self.take_elsewhere(&other),
                        })
                    }
                    _ => Err(self.take_elsewhere(&other)),
                }
            }
        }
    }

    /// Whether a waiter at this end could go on.
    pub(super) fn is_open(&self, side: Side) -> bool {
        self.lock().backlog.closed || self.worth_waking(side) > 0
    }

    /// How many waiters at this end may find something.
    pub(super) fn worth_waking(&self, side: Side) -> usize {
        let reports = match (&self.feed, side) {
            (Some(feed), Side::Receivers) => feed.mailbox.pending(),
            _ => 0,
        };
        let state = self.lock();
        match side {
            _ if state.backlog.closed => usize::MAX,
            Side::Receivers => state.backlog.pending() + reports,
            Side::Publishers => self.capacity.saturating_sub(state.backlog.len()),
        }
    }

    /// Prepares a thread's sleep: the number of wake-ups to sleep on, unless there is no need to.
    pub(super) fn prepare(&self, side: Side) -> Option<u32> {
        if self.is_open(side) {
            return None;
        }
        let mut state = self.lock();
        match side {
            Side::Receivers => state.receiver_sleeps = true,
            Side::Publishers => state.publisher_sleeps = true,
        }
        // Read after setting the flag: a thread that clears it changes the number later.
        let number = match (&self.feed, side) {
            (Some(feed), Side::Receivers) => {
                drop(state);
                feed.mailbox.prepare()?
            }
            _ => {
                let number = self.wakeups(side).load(Ordering::Acquire);
                drop(state);
                number
            }
        };
        // On a free-threaded build another thread may have changed the queue between the check and the flag.
        if self.is_open(side) { None } else { Some(number) }
    }

    /// Sleeps until another wake-up. The thread is detached.
    pub(super) fn sleep(&self, side: Side, number: u32, timeout: Option<Duration>) -> Wait {
        match (&self.feed, side) {
            (Some(feed), Side::Receivers) => feed.mailbox.sleep(number, timeout),
            _ => self.wakeups(side).wait_while(number, timeout),
        }
    }

    /// Closes the queue; waiting messages can still be received.
    pub(super) fn close(&self) {
        if let Some(feed) = &self.feed {
            feed.end();
        }
        let mut state = self.lock();
        state.backlog.closed = true;
        let (receivers, publishers) = (state.wake(Side::Receivers), state.wake(Side::Publishers));
        drop(state);
        self.perform(receivers);
        self.perform(publishers);
    }

    /// Gives the queue up in a forked child, for a bus that other processes share: what waits is the parent's, and
    /// whoever receives gets an error. It wakes nobody: the loops whose coroutines wait are the parent's too.
    pub(super) fn orphan(&self) {
        self.orphaned.store(true, Ordering::Release);
        let mut state = self.lock();
        state.backlog.closed = true;
        let messages = state.backlog.drain();
        drop(state);
        // Without the guard: the drop may run any code.
        drop(messages);
    }

    pub(super) fn is_orphaned(&self) -> bool {
        self.orphaned.load(Ordering::Acquire)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().backlog.closed
    }

    /// How many messages wait.
    pub(super) fn len(&self) -> usize {
        self.lock().backlog.len() + self.feed.as_ref().map_or(0, |feed| feed.mailbox.len())
    }

    /// Counts of all messages so far.
    pub(super) fn counters(&self) -> Counters {
        let counters = self.lock().backlog.counters;
        let Some(feed) = &self.feed else { return counters };
        let reports = feed.mailbox.counters();
        Counters {
            accepted: counters.accepted + reports.accepted,
            received: counters.received + reports.received,
            dropped: counters.dropped + reports.dropped,
            refused: counters.refused + reports.refused,
            peak: counters.peak.max(reports.peak),
        }
    }

    /// Counts a reception by a coroutine; returns whether there were too many without a turn of the loop.
    pub(super) fn is_streak_over(&self, longest: u32) -> bool {
        let mut state = self.lock();
        state.streak = if state.streak < longest { state.streak + 1 } else { 0 };
        state.streak == 0
    }

    /// Marks the waiters of one end as woken, after a waiter was woken without using the wake-up.
    pub(super) fn pass_on(&self, side: Side) {
        if self.is_open(side) {
            let wake = self.lock().wake(side);
            self.perform(wake);
        }
    }
}

impl Queue {
    /// The object of a report, as its receivers get it.
    fn object_of(&self, report: &Shared) -> Result<Object, Raised> {
        let Some(feed) = &self.feed else { return Err(fail(c"a report has come without a feed")) };
        let made = feed.carrier.make(report)?;
        if !self.topics {
            return Ok(made);
        }
        let topic = text(report.topic())?;
        // SAFETY: two live objects, of which the tuple takes references of its own.
        unsafe { Object::own(ffi::PyTuple_Pack(2, topic.as_ptr(), made.as_ptr())) }
    }

    /// The message, or nothing if there is none yet; a gap or the end is raised.
    pub(super) fn or_raise(&self, taken: Taken<Item>) -> Result<Option<Object>, Raised> {
        match taken {
            Taken::Message(Item::Object(message)) => Ok(Some(message)),
            Taken::Message(Item::Report(report)) => self.object_of(&report).map(Some),
            Taken::Empty => Ok(None),
            Taken::Lagged(count) => Err(lagged(count)),
            Taken::Ended if self.is_orphaned() => Err(orphaned()),
            Taken::Ended => {
                let said = "the subscription is closed and every message in it was received";
                Err(raise(&Error::new(Code::BusClosed, said)))
            }
        }
    }

    /// A list of these messages.
    pub(super) fn list_of(&self, messages: Batch) -> Result<Object, Raised> {
        match messages {
            Batch::Objects(objects) => arguments::list(objects),
            Batch::Reports(reports) => {
                let objects: Result<Vec<_>, _> =
                    reports.iter().map(|report| self.object_of(report)).collect();
                arguments::list(objects?)
            }
        }
    }
}

impl Content {
    /// Every object in the queue, for the garbage collector.
    pub(super) fn messages(&self) -> impl Iterator<Item = &Object> {
        self.backlog.messages().chain(self.link.objects())
    }

    /// Takes every object. Only the caller has the queue.
    pub(super) fn drain(&mut self) -> Vec<Object> {
        let mut objects = self.backlog.drain();
        objects.extend(self.link.take_objects());
        objects
    }
}
