//! Connections inside a process: two lanes of frames, one for each direction. A lane knows its sockets as
//! [`Neighbour`]s alone.

#[cfg(all(test, loom))]
mod loom_tests;

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use ropewalk_sync::Mutex;
use ropewalk_zmtp::SocketType;

use crate::conn_ref::ConnRef;
use crate::frame::Frame;

/// What has changed in a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It was empty and has messages, or it has ended.
    Readable,
    /// It was full and has room.
    Writable,
}

/// A socket, as lanes see it.
pub(crate) trait Neighbour: Send + Sync {
    /// A lane of this connection has changed. If that is urgent, the socket acts even if its program does not call.
    fn tell(&self, change: Change, conn: ConnRef, is_urgent: bool);

    /// The socket to which this connection was made early is bound now: its identity.
    fn met(&self, conn: ConnRef, identity: Vec<u8>);

    /// Whether a thread sleeps on the socket, or watches it, and a change would wake it.
    fn would_wake(&self) -> bool;
}

/// A connection of a socket, which is notified of changes.
struct Address {
    socket: Weak<dyn Neighbour>,
    conn: ConnRef,
    is_urgent: bool,
}

impl Address {
    fn tell(&self, change: Change) {
        if let Some(socket) = self.socket.upgrade() {
            socket.tell(change, self.conn, self.is_urgent);
        }
    }
}

/// On cache lines of its own: two, because the processor fetches them in pairs.
#[repr(align(128))]
struct Apart<T>(T);

impl<T> Deref for Apart<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// One direction. Written by the sender's side and emptied by the receiver's, each under its socket's lock.
pub(crate) struct Lane {
    frames: Mutex<VecDeque<Frame>>,
    /// Whole messages that the receiver's program has not taken. Added to by the sender, lessened by the receiver.
    /// Apart from the rest: a receiver that polls it must not take the lock's cache line from the sender.
    messages: Apart<AtomicUsize>,
    /// No more messages than this; 0 is no limit. Changed once, when a name is bound that was connected to before: only
    /// then are both marks known. A sender or receiver that sees the old one is refused, or notifies, too early.
    most: AtomicUsize,
    /// The sender was refused, and waits for room. Stored before it looks at `messages` again.
    is_refused: AtomicBool,
    /// The receiver polls the lane, and needs no notification. Changed by the receiver under its socket's lock.
    is_polled: AtomicBool,
    /// One of the ends is gone.
    is_ended: AtomicBool,
    sender: OnceLock<Address>,
    receiver: OnceLock<Address>,
}

impl Lane {
    fn new(most: usize) -> Self {
        Self {
            frames: Mutex::default(),
            messages: Apart(AtomicUsize::new(0)),
            most: AtomicUsize::new(most),
            is_refused: AtomicBool::new(false),
            is_polled: AtomicBool::new(false),
            is_ended: AtomicBool::new(false),
            sender: OnceLock::new(),
            receiver: OnceLock::new(),
        }
    }
}

/// One side of a connection inside the process.
pub(crate) struct End {
    output: Arc<Lane>,
    input: Arc<Lane>,
    /// Taken from `input` together, and given to the program one by one.
    batch: VecDeque<Frame>,
}

/// The message to the socket that was found by its name.
pub(crate) struct Arrival {
    pub(crate) end: End,
    pub(crate) kind: SocketType,
    pub(crate) identity: Vec<u8>,
    /// The connecting socket's marks for sending and receiving, if it was there first.
    pub(crate) marks: Option<(usize, usize)>,
    /// The connecting socket, and its connection.
    pub(crate) from: Weak<dyn Neighbour>,
    pub(crate) conn_ref: ConnRef,
}

/// Both limits together, as if each side had a queue of its own; none if one has none.
pub(crate) fn joint_limit(sender: usize, receiver: usize) -> usize {
    if sender == 0 || receiver == 0 { 0 } else { sender.saturating_add(receiver) }
}

/// Both sides of a new connection: of the connecting socket, and of the bound one. `forth` limits what the first sends,
/// `back` what it receives.
pub(crate) fn pair(forth: usize, back: usize) -> (End, End) {
    let (forth, back) = (Arc::new(Lane::new(forth)), Arc::new(Lane::new(back)));
    let one = End { output: Arc::clone(&forth), input: Arc::clone(&back), batch: VecDeque::new() };
    (one, End { output: back, input: forth, batch: VecDeque::new() })
}

impl End {
    /// Sets the socket of this side. The caller then checks for messages that the other side has sent before.
    pub(crate) fn settle(&self, socket: &Arc<impl Neighbour + 'static>, conn: ConnRef, is_urgent: bool) {
        for place in [&self.output.sender, &self.input.receiver] {
            let socket: Weak<dyn Neighbour> = Arc::downgrade(socket) as Weak<_>;
            let _ = place.set(Address { socket, conn, is_urgent });
        }
    }

    /// Whether there is room for another message. If not, this side is notified when there is.
    pub(crate) fn has_room(&self) -> bool {
        let lane = &self.output;
        if lane.is_ended.load(Ordering::SeqCst) {
            return false; // Others may have room, and this one is forgotten when its mail is read.
        }
        let has = || {
            let most = lane.most.load(Ordering::SeqCst);
            most == 0 || lane.messages.load(Ordering::SeqCst) < most
        };
        if has() {
            return true;
        }
        lane.is_refused.store(true, Ordering::SeqCst);
        has()
    }

    /// Sets how many messages this side may have under way, and how many the other. A sender that was refused is
    /// notified.
    pub(crate) fn limit(&self, output: usize, input: usize) {
        self.output.most.store(output, Ordering::SeqCst);
        self.input.most.store(input, Ordering::SeqCst);
        if self.input.is_refused.swap(false, Ordering::SeqCst)
            && let Some(sender) = self.input.sender.get()
        {
            sender.tell(Change::Writable);
        }
    }

    /// Sends a whole message; returns whether the other side still exists.
    pub(crate) fn send(&self, parts: impl Iterator<Item = Frame>, conflates: bool) -> bool {
        let lane = &self.output;
        if lane.is_ended.load(Ordering::SeqCst) {
            return false;
        }
        let mut frames = lane.frames.lock();
        if conflates && !frames.is_empty() {
            let dropped = frames.iter().filter(|frame| !frame.more()).count();
            lane.messages.fetch_sub(dropped, Ordering::SeqCst);
            frames.clear();
        }
        let was_empty = frames.is_empty();
        frames.extend(parts);
        // Before the receiver can take it, and count it off.
        lane.messages.fetch_add(1, Ordering::SeqCst);
        drop(frames);
        // Behind the lock: a receiver that has ended its polling before it found the lane empty is seen here.
        if was_empty
            && !lane.is_polled.load(Ordering::Acquire)
            && let Some(receiver) = lane.receiver.get()
        {
            receiver.tell(Change::Readable);
        }
        true
    }

    /// Whether a message now would wake a thread of the receiver.
    pub(crate) fn would_wake(&self) -> bool {
        let receiver = self.output.receiver.get().and_then(|receiver| receiver.socket.upgrade());
        !self.output.is_polled.load(Ordering::Acquire) && receiver.is_some_and(|socket| socket.would_wake())
    }

    /// Sets whether the receiver polls by itself. When it stops, it checks once more after this.
    pub(crate) fn poll(&self, is_polled: bool) {
        self.input.is_polled.store(is_polled, Ordering::Release);
    }

    /// Whether a message may be there, without the lane's lock.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        self.input.messages.load(Ordering::Acquire) > 0
    }

    /// Whether a message is there.
    pub(crate) fn has_message(&mut self) -> bool {
        self.first().is_some()
    }

    /// The next part.
    pub(crate) fn first(&mut self) -> Option<&Frame> {
        if self.batch.is_empty() {
            std::mem::swap(&mut self.batch, &mut *self.input.frames.lock());
        }
        self.batch.front()
    }

    /// Takes the next part.
    pub(crate) fn take(&mut self) -> Option<Frame> {
        self.first()?;
        let frame = self.batch.pop_front()?;
        if !frame.more() {
            let lane = &self.input;
            let left = lane.messages.fetch_sub(1, Ordering::SeqCst) - 1;
            if left <= lane.most.load(Ordering::SeqCst) / 2
                && lane.is_refused.swap(false, Ordering::SeqCst)
                && let Some(sender) = lane.sender.get()
            {
                sender.tell(Change::Writable);
            }
        }
        Some(frame)
    }

    /// Drops all messages but the last.
    pub(crate) fn keep_last(&mut self) {
        self.batch.append(&mut *self.input.frames.lock());
        while self.batch.iter().filter(|frame| !frame.more()).count() > 1 {
            while self.take().is_some_and(|frame| frame.more()) {}
        }
    }

    /// Whether the other side is gone and everything that it has sent is taken.
    pub(crate) fn is_over(&mut self) -> bool {
        // `is_ended` first: messages that were sent before the end are then seen by the check.
        self.input.is_ended.load(Ordering::SeqCst) && !self.has_message()
    }

    /// Whether the other side is gone.
    pub(crate) fn is_ended(&self) -> bool {
        self.input.is_ended.load(Ordering::SeqCst)
    }
}

impl Drop for End {
    /// Notifies the other side. It may still take the messages that it was sent; messages that it sends from now on
    /// have no receiver.
    fn drop(&mut self) {
        for lane in [&self.output, &self.input] {
            lane.is_ended.store(true, Ordering::SeqCst);
        }
        if let Some(receiver) = self.output.receiver.get() {
            receiver.tell(Change::Readable);
        }
    }
}
