//! What lies between publishers and one subscription: a bounded queue, its policy, and who waits at either end.
//!
//! Threads sleep on a futex word; coroutines wait for a future of their loop. Whoever changes the queue takes the
//! sleepers' mark away before it wakes them, so that a burst wakes a thread once and a loop once.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::waiters::{Loops, Wakers};
use ropewalk_capi::guarded::{Guard, Guarded};
use ropewalk_capi::object::Object;
use ropewalk_sync::futex::{Futex, Wait};

/// What happens to a message for which there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overflow {
    /// Its publisher waits.
    Block,
    /// The oldest message makes room.
    DropOldest,
    /// It is dropped.
    DropNewest,
    /// Its publisher gets an error.
    Error,
}

impl Overflow {
    /// The policy with a number of `ropewalk.bus._bus`.
    pub(super) fn numbered(number: c_int) -> Self {
        match number {
            0 => Self::Block,
            1 => Self::DropOldest,
            2 => Self::DropNewest,
            _ => Self::Error,
        }
    }

    pub(super) fn number(self) -> c_int {
        match self {
            Self::Block => 0,
            Self::DropOldest => 1,
            Self::DropNewest => 2,
            Self::Error => 3,
        }
    }
}

/// One place in the queue.
pub(super) enum Slot {
    Message(Object),
    /// In a link: a message that may be dropped for a later one.
    Loose(Object),
    /// So many messages were dropped here.
    Gap(u64),
}

impl Slot {
    fn message(self) -> Option<Object> {
        match self {
            Self::Message(message) | Self::Loose(message) => Some(message),
            Self::Gap(_) => None,
        }
    }
}

/// The counters of a queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    /// Messages that were put into the queue.
    pub(super) accepted: u64,
    /// Messages that a receiver took.
    pub(super) received: u64,
    /// Messages that were dropped for want of room.
    pub(super) dropped: u64,
    /// Messages that their publishers were told had no room.
    pub(super) refused: u64,
    /// The most messages that waited at once.
    pub(super) peak: usize,
}

/// The part of a queue that changes.
#[derive(Default)]
pub(super) struct State {
    pub(super) slots: VecDeque<Slot>,
    /// How many of the slots are gaps.
    gaps: usize,
    /// Messages dropped after the last slot.
    tail_gap: u64,
    pub(super) closed: bool,
    /// What a link has beside its queue.
    pub(super) link: super::link::State,
    /// A thread sleeps in `receive`, or in `room`. Set by it; taken away by whoever wakes it.
    receiver_sleeps: bool,
    publisher_sleeps: bool,
    pub(super) receivers: Loops,
    pub(super) publishers: Loops,
    /// Receptions since a coroutine last let its loop go on.
    pub(super) streak: u32,
    pub(super) counters: Counters,
}

// SAFETY: what is in it are references into the interpreter, which any attached thread may use; see `Guarded`.
unsafe impl Send for State {}

/// What came of offering a message. What goes back is dropped by the caller, without the guard.
#[must_use]
#[expect(dead_code, reason = "some of what goes back is only ever dropped")]
pub(super) enum Offered {
    Taken,
    /// Nothing was changed; the message goes back.
    Full(Object),
    /// It was counted as dropped; so was what is in here, or the message itself.
    Dropped(Object),
    /// The policy is to tell the publisher.
    Refused(Object),
    /// Nobody receives any more.
    Closed(Object),
}

/// What there is to receive.
#[must_use]
pub(super) enum Taken {
    Message(Object),
    Lagged(u64),
    Empty,
    /// Closed, and empty.
    Ended,
}

/// See the module.
pub(super) struct Queue {
    state: Guarded<State>,
    /// Changes when a receiver is woken, or a publisher that waits for room.
    message_bell: Futex,
    room_bell: Futex,
    pub(super) capacity: usize,
    pub(super) overflow: Overflow,
    /// Messages are pairs of their topic and what was published.
    pub(super) topics: bool,
    /// It leads to another process: see `link`.
    pub(super) is_link: bool,
}

/// Whom to wake once the guard is dropped.
#[derive(Default)]
#[must_use]
pub(super) struct Wake {
    thread: Option<Side>,
    loops: Wakers,
}

/// An end of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Receivers,
    Publishers,
}

impl State {
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.gaps
    }

    /// Marks those who wait for messages, or for room, as woken.
    pub(super) fn wake(&mut self, side: Side) -> Wake {
        let (sleeps, loops) = match side {
            Side::Receivers => (&mut self.receiver_sleeps, &mut self.receivers),
            Side::Publishers => (&mut self.publisher_sleeps, &mut self.publishers),
        };
        Wake { thread: std::mem::take(sleeps).then_some(side), loops: loops.mark_pending() }
    }

    pub(super) fn loops(&mut self, side: Side) -> &mut Loops {
        match side {
            Side::Receivers => &mut self.receivers,
            Side::Publishers => &mut self.publishers,
        }
    }

    pub(super) fn is_open(&self, side: Side, capacity: usize) -> bool {
        self.closed
            || match side {
                Side::Receivers => !self.slots.is_empty() || self.tail_gap > 0,
                Side::Publishers => self.len() < capacity,
            }
    }

    /// How many of those who wait at this end may find something.
    pub(super) fn worth_waking(&self, side: Side, capacity: usize) -> usize {
        match side {
            _ if self.closed => usize::MAX,
            Side::Receivers => self.slots.len() + usize::from(self.tail_gap > 0),
            Side::Publishers => capacity.saturating_sub(self.len()),
        }
    }

    #[inline(always)]
    pub(super) fn put(&mut self, slot: Slot) {
        if self.tail_gap > 0 {
            self.put_gap();
        }
        self.slots.push_back(slot);
        self.counters.accepted += 1;
        self.counters.peak = self.counters.peak.max(self.len());
    }

    #[cold]
    fn put_gap(&mut self) {
        self.slots.push_back(Slot::Gap(std::mem::take(&mut self.tail_gap)));
        self.gaps += 1;
    }

    /// The oldest message makes room; its place says that it was there.
    fn drop_oldest(&mut self) -> Option<Object> {
        let (mut lost, mut oldest) = (0, None);
        while oldest.is_none() {
            match self.slots.pop_front()? {
                Slot::Message(message) | Slot::Loose(message) => oldest = Some(message),
                Slot::Gap(count) => {
                    lost += count;
                    self.gaps -= 1;
                }
            }
        }
        // A gap that follows belongs to the same silence.
        if let Some(Slot::Gap(count)) = self.slots.front() {
            lost += count;
            self.slots.pop_front();
            self.gaps -= 1;
        }
        self.slots.push_front(Slot::Gap(lost + 1));
        self.gaps += 1;
        self.counters.dropped += 1;
        oldest
    }

    #[inline(always)]
    pub(super) fn take(&mut self) -> Taken {
        match self.slots.pop_front() {
            Some(Slot::Message(message) | Slot::Loose(message)) => {
                self.counters.received += 1;
                Taken::Message(message)
            }
            Some(Slot::Gap(count)) => {
                self.gaps -= 1;
                Taken::Lagged(count)
            }
            None if self.tail_gap > 0 => Taken::Lagged(std::mem::take(&mut self.tail_gap)),
            None if self.closed => Taken::Ended,
            None => Taken::Empty,
        }
    }
}

impl Queue {
    pub(super) fn new(capacity: usize, overflow: Overflow, topics: bool) -> Self {
        Self::with(capacity, overflow, topics, false)
    }

    pub(super) fn with(capacity: usize, overflow: Overflow, topics: bool, is_link: bool) -> Self {
        Self {
            state: Guarded::new(State::default()),
            message_bell: Futex::new(0),
            room_bell: Futex::new(0),
            capacity,
            overflow,
            topics,
            is_link,
        }
    }

    /// The state, under the rules of `Guarded::lock`, which every caller in this room keeps: attached, and nothing of
    /// the interpreter runs while the guard lives.
    pub(super) fn lock(&self) -> Guard<'_, State> {
        // SAFETY: as the documentation above says; the room's functions are short enough to see it.
        unsafe { self.state.lock() }
    }

    /// For the garbage collector: see `Guarded::in_collection`.
    pub(super) fn in_collection(&self) -> *mut State {
        self.state.in_collection()
    }

    fn bell(&self, side: Side) -> &Futex {
        match side {
            Side::Receivers => &self.message_bell,
            Side::Publishers => &self.room_bell,
        }
    }

    /// Wakes whom a change of the queue concerns. The thread is attached and holds no guard.
    pub(super) fn perform(&self, wake: Wake) {
        if let Some(side) = wake.thread {
            let bell = self.bell(side);
            // Release: who sees the new number sees the queue as it was when the sleepers' mark was taken.
            bell.fetch_add(1, Ordering::Release);
            bell.wake_all();
        }
        wake.loops.wake();
    }

    /// Offers a message to the queue.
    #[inline]
    pub(super) fn offer(&self, message: Object) -> Offered {
        let mut state = self.lock();
        if state.closed || state.len() >= self.capacity || state.receiver_sleeps || state.receivers.any() {
            drop(state);
            return self.offer_elsewise(message);
        }
        state.put(Slot::Message(message));
        Offered::Taken
    }

    /// The same where there may be more to do than to put it there.
    fn offer_elsewise(&self, message: Object) -> Offered {
        let mut state = self.lock();
        if state.closed {
            return Offered::Closed(message);
        }
        let mut dropped = None;
        if state.len() >= self.capacity {
            match self.overflow {
                Overflow::Block => return Offered::Full(message),
                Overflow::Error => {
                    state.counters.refused += 1;
                    return Offered::Refused(message);
                }
                Overflow::DropNewest => {
                    state.counters.dropped += 1;
                    state.tail_gap += 1;
                    return Offered::Dropped(message);
                }
                Overflow::DropOldest => dropped = state.drop_oldest(),
            }
        }
        state.put(Slot::Message(message));
        if state.receiver_sleeps || state.receivers.any() {
            let wake = state.wake(Side::Receivers);
            drop(state);
            self.perform(wake);
        } else {
            drop(state);
        }
        dropped.map_or(Offered::Taken, Offered::Dropped)
    }

    /// Notes that so many messages were dropped before they came here, for its receiver to be told.
    pub(super) fn lag(&self, count: u64) {
        let mut state = self.lock();
        state.tail_gap += count;
        state.counters.dropped += count;
        let wake = state.wake(Side::Receivers);
        drop(state);
        self.perform(wake);
    }

    /// Counts a message whose publisher is told that there was no room.
    pub(super) fn refuse(&self) {
        self.lock().counters.refused += 1;
    }

    /// Takes what there is to receive.
    #[inline(always)]
    pub(super) fn take(&self) -> Taken {
        let mut state = self.lock();
        let taken = state.take();
        if matches!(taken, Taken::Message(_)) && (state.publisher_sleeps || state.publishers.any()) {
            let wake = state.wake(Side::Publishers);
            drop(state);
            self.perform(wake);
        }
        taken
    }

    /// Takes up to `most` messages that have no gap between them; what else there is to say, if there is none.
    pub(super) fn take_many(&self, most: usize) -> Result<Vec<Object>, Taken> {
        let mut state = self.lock();
        let whole = state.slots.iter().take(most).take_while(|slot| matches!(slot, Slot::Message(_))).count();
        if whole == 0 {
            return Err(state.take());
        }
        let messages: Vec<Object> = state.slots.drain(..whole).filter_map(Slot::message).collect();
        state.counters.received += messages.len() as u64;
        let wake = state.wake(Side::Publishers);
        drop(state);
        self.perform(wake);
        Ok(messages)
    }

    /// Whether somebody at this end could go on.
    pub(super) fn is_open(&self, side: Side) -> bool {
        self.lock().is_open(side, self.capacity)
    }

    /// Prepares a thread's sleep: the bell's number to sleep on, unless there is no need to.
    pub(super) fn prepare(&self, side: Side) -> Option<u32> {
        if self.is_open(side) {
            return None;
        }
        let mut state = self.lock();
        match side {
            Side::Receivers => state.receiver_sleeps = true,
            Side::Publishers => state.publisher_sleeps = true,
        }
        // Under the guard: whoever takes the mark away rings after this.
        let number = self.bell(side).load(Ordering::Acquire);
        drop(state);
        // Between the look and the mark another thread may have been here, on a free-threaded build.
        if self.is_open(side) { None } else { Some(number) }
    }

    /// Sleeps until the bell rings. The thread is detached.
    pub(super) fn sleep(&self, side: Side, number: u32, timeout: Option<Duration>) -> Wait {
        self.bell(side).wait_while(number, timeout)
    }

    /// No more messages come; what is there can still be received.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        let (receivers, publishers) = (state.wake(Side::Receivers), state.wake(Side::Publishers));
        drop(state);
        self.perform(receivers);
        self.perform(publishers);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// How many messages wait.
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Counts a reception by a coroutine; true if there were too many without a turn of the loop.
    pub(super) fn is_streak_over(&self, longest: u32) -> bool {
        let mut state = self.lock();
        state.streak = if state.streak < longest { state.streak + 1 } else { 0 };
        state.streak == 0
    }

    /// Marks those of one end as woken, for one who was woken in vain.
    pub(super) fn pass_on(&self, side: Side) {
        if self.is_open(side) {
            let wake = self.lock().wake(side);
            self.perform(wake);
        }
    }
}

impl State {
    /// Every message in the queue, for the garbage collector.
    pub(super) fn messages(&self) -> impl Iterator<Item = &Object> {
        let messages = self.slots.iter().filter_map(|slot| match slot {
            Slot::Message(message) | Slot::Loose(message) => Some(message),
            Slot::Gap(_) => None,
        });
        messages.chain(self.link.objects())
    }

    /// Takes every message, for whoever has the queue to itself.
    pub(super) fn drain(&mut self) -> Vec<Object> {
        self.gaps = 0;
        let slots = std::mem::take(&mut self.slots);
        slots.into_iter().filter_map(Slot::message).chain(self.link.take_objects()).collect()
    }
}
