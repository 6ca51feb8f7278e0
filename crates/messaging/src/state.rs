//! The state of a socket behind its lock: connections, endpoints, queues, and the state of its pattern. The thread that
//! holds the lock does the work: the program's thread in a call, or the background for a socket that no thread calls.
//!
//! Nothing here waits. Work that is due at a certain time is recorded, and the background is notified of the time.

mod connecting;
mod deadlines;
mod due;
mod endpoints;
mod greeting;
mod lifetime;
mod listening;
mod neighbours;
mod pace;
mod pattern;
mod peers;
mod receive;
mod send;
mod shm_links;
mod subscriptions;
#[cfg(all(test, not(loom)))]
mod tests;
mod transfer;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::BytesMut;
use ropewalk_os::epoll::Event;
use ropewalk_zmtp::SocketType;

use self::due::Due;
use self::endpoints::{Bound, Dial, LISTENER};
use self::pace::Pace;
use self::pattern::Pattern;
use crate::background::Notice;
use crate::conn::{Conn, Link, Phase};
use crate::conn_ref::ConnRef;
use crate::error::{Error, Result, errno};
use crate::events::Events;
use crate::frame::Frame;
use crate::lane::Change;
use crate::mail::Mail;
use crate::monitor::Monitor;
use crate::notifier::{Notifier, WAKE_UP};
use crate::options::Options;
use crate::registry::Registry;
use crate::shm_link::Hot;

/// A message that is being given to the program, part by part.
#[derive(Default)]
pub(crate) struct Inbox {
    /// The connection whose message is being taken.
    pub(crate) current: Option<u32>,
    /// The name of its peer, which comes before its parts.
    pub(crate) name: Option<Frame>,
    /// Messages that no connection holds, such as those about peers that come and go: they are taken whole, too, and
    /// never in the middle of a connection's message.
    pub(crate) queue: VecDeque<Frame>,
    /// Another part follows the last one that was taken.
    pub(crate) more: bool,
}

impl Inbox {
    /// The next part, unless a connection holds it.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Frame> {
        if self.current.is_some() { self.name.take() } else { self.queue.pop_front() }
    }
}

/// See the module.
pub(crate) struct SocketState {
    pub(crate) kind: SocketType,
    pub(crate) options: Options,
    me: Arc<Notifier>,
    registry: Arc<Registry>,
    conns: Vec<Option<Box<Conn>>>,
    free: Vec<u32>,
    /// How many of them were accepted.
    accepted: usize,
    generation: u32,
    bounds: Vec<Option<Bound>>,
    dials: Vec<Option<Dial>>,
    /// Connections that may have a message, in the order in which they are asked.
    active: VecDeque<u32>,
    /// Connections that may be sent to, in the order of their turns.
    willing: VecDeque<u32>,
    /// Handshakes that go on, the oldest first.
    greeting: VecDeque<ConnRef>,
    /// A buffer that connections borrow while they hold bytes.
    spare_in: BytesMut,
    spare_out: Vec<u8>,
    spare_cipher: Vec<u8>,
    /// For the events of a wait, and for mail.
    pub(crate) events: Vec<Event>,
    mail: Vec<Mail>,
    /// The parts of a message that the program has not finished.
    parts: Vec<Frame>,
    inbox: Inbox,
    /// Connections that may have queued bytes which were not written. If there are any, the background comes.
    unsent: Vec<ConnRef>,
    /// How often bytes were left to be written later.
    leavings: u64,
    pace: Pace,
    /// The program has polled for messages since it has sent one, so its next one is written at once.
    is_calm: bool,
    /// Connections through shared memory whose peers do not wake this end, because it polls by itself.
    hot: Arc<Vec<Hot>>,
    /// The background comes to check whether it still does.
    is_warm: bool,
    /// How often in a row the only connection was presumed to be readable.
    presumed: u32,
    due: BTreeSet<(Instant, ConnRef, Due)>,
    /// The deadline that the background was notified of.
    notified: Option<Instant>,
    pattern: Pattern,
    pub(crate) monitor: Option<Monitor>,
    pub(crate) last_endpoint: String,
    /// Counts glances at an only connection.
    glances: u32,
    /// A thread of the program is in a wait, on a type that only one may use at a time.
    pub(crate) is_waited_on: bool,
    is_closing: bool,
    /// Closed, and nothing is left.
    is_gone: bool,
}

impl SocketState {
    pub(crate) fn new(me: Arc<Notifier>, registry: &Arc<Registry>, options: Options, seed: u64) -> Self {
        Self {
            kind: me.kind,
            options,
            me,
            registry: Arc::clone(registry),
            conns: Vec::new(),
            free: Vec::new(),
            accepted: 0,
            generation: 0,
            bounds: Vec::new(),
            dials: Vec::new(),
            active: VecDeque::new(),
            willing: VecDeque::new(),
            greeting: VecDeque::new(),
            spare_in: BytesMut::new(),
            spare_out: Vec::new(),
            spare_cipher: Vec::new(),
            events: Vec::new(),
            mail: Vec::new(),
            parts: Vec::new(),
            inbox: Inbox::default(),
            unsent: Vec::new(),
            leavings: 0,
            pace: Pace::new(Instant::now()),
            is_calm: true,
            hot: Arc::default(),
            is_warm: false,
            presumed: 0,
            due: BTreeSet::new(),
            notified: None,
            pattern: Pattern::new(seed),
            monitor: None,
            last_endpoint: String::new(),
            glances: 0,
            is_waited_on: false,
            is_closing: false,
            is_gone: false,
        }
    }

    /// Whether calls may go on.
    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.is_closing {
            return Err(Error::closed());
        }
        if self.registry.is_terminated.load(Ordering::Relaxed) {
            return Err(Error::terminated());
        }
        Ok(())
    }

    /// Whether a call may begin. One that does not wait is over before another thread has the lock; one that waits
    /// keeps others out.
    #[inline]
    pub(crate) fn check_call(&self) -> Result<()> {
        if self.is_waited_on {
            return Err(Error::new(
                errno::EBUSY,
                "another thread waits on the socket: use one for each thread, or a thread-safe type",
            ));
        }
        self.check_open()
    }

    // --- connections ---------------------------------------------------------------------------------------

    #[inline]
    fn conn(&mut self, index: u32) -> Option<&mut Conn> {
        self.conns.get_mut(index as usize)?.as_deref_mut()
    }

    /// The connection, if it is still the one that `conn_ref` names.
    fn known(&mut self, conn_ref: ConnRef) -> Option<&mut Conn> {
        self.conn(conn_ref.index).filter(|conn| conn.me == conn_ref)
    }

    /// Whether all peers' messages arrive without the kernel, as far as that can be checked quickly.
    pub(crate) fn is_near(&self) -> bool {
        const FEW: usize = 8;
        self.conns.len() <= FEW
            && self.bounds.len() <= FEW
            && self.conns.iter().flatten().all(|conn| conn.is_near())
            && self.bounds.iter().flatten().all(Bound::is_near)
    }

    fn next_generation(&mut self) -> u32 {
        self.generation = (self.generation + 1) & 0x3fff_ffff;
        self.generation
    }

    fn add_conn(&mut self) -> u32 {
        let generation = self.next_generation();
        let index = self.free.pop().unwrap_or_else(|| {
            self.conns.push(None);
            // Descriptors run out long before.
            (self.conns.len() - 1) as u32
        });
        self.conns[index as usize] = Some(Box::new(Conn::new(ConnRef { index, generation })));
        index
    }

    /// Forgets a connection, and everything that names it.
    fn remove_conn(&mut self, index: u32) {
        let Some(mut conn) = self.conns.get_mut(index as usize).and_then(Option::take) else { return };
        if let Some(fd) = conn.fd() {
            let _ = self.me.set.remove(fd);
        }
        if conn.is_active {
            self.active.retain(|other| *other != index);
        }
        if conn.is_willing {
            self.willing.retain(|other| *other != index);
        }
        if self.inbox.current == Some(index) {
            (self.inbox.current, self.inbox.name) = (None, None);
        }
        if conn.bound.is_some() {
            self.accepted -= 1;
        }
        conn.outgoing.return_room(&mut self.spare_out);
        self.free.push(index);
    }

    fn indices(&self) -> impl Iterator<Item = u32> + use<> {
        (0..self.conns.len() as u32).collect::<Vec<_>>().into_iter()
    }

    /// It may have a message.
    #[inline]
    fn activate(&mut self, index: u32) {
        if let Some(conn) = self.conn(index)
            && !conn.is_active
        {
            conn.is_active = true;
            self.active.push_back(index);
        }
    }

    /// It may be sent to.
    #[inline]
    fn make_willing(&mut self, index: u32) {
        if let Some(conn) = self.conn(index)
            && !conn.is_willing
        {
            conn.is_willing = true;
            self.willing.push_back(index);
        }
    }

    // --- looking -------------------------------------------------------------------------------------------

    /// Checks for events, without waiting.
    pub(crate) fn look(&mut self, what: Events) -> Result<()> {
        self.presumed = 0;
        self.me.looks.fetch_add(1, Ordering::Relaxed);
        // Before the check: mail that comes later wakes again.
        self.me.silence();
        self.settle();
        let mut events = std::mem::take(&mut self.events);
        let looked = self.me.set.wait(&mut events, Some(std::time::Duration::ZERO));
        self.handle(&events, what);
        events.clear();
        self.events = events;
        looked?;
        if self.me.is_watched() {
            // Watchers may sleep after this check.
            self.cool(what);
        }
        self.check_open()
    }

    /// The background's check: it does everything that can be done without the program.
    pub(crate) fn attend(&mut self) {
        self.settle();
        // Sleeping threads were counted under this lock, and would never be woken for bytes that are read here: so the
        // bytes are left to them.
        if self.me.mailbox.has_sleepers() {
            return self.finish_closing();
        }
        let mut events = std::mem::take(&mut self.events);
        if self.me.set.wait(&mut events, Some(std::time::Duration::ZERO)).is_ok() {
            self.handle(&events, Events::NONE);
        }
        events.clear();
        self.events = events;
        self.cool(Events::NONE);
        if !self.hot.is_empty() && !self.is_warm {
            self.warm_up();
        }
        self.me.tell_watchers();
        self.finish_closing();
    }

    /// The background has changed something that threads sleeping on the descriptors would not see.
    pub(crate) fn nudge(&mut self) {
        self.rouse();
        if self.me.is_watched() && self.ready_events() != Events::NONE {
            self.me.tell_watchers();
        }
    }

    /// Wakes other sleeping threads for messages or room that are in no descriptor any more. A thread that has handled
    /// events or mail calls this before it releases the lock.
    #[inline]
    pub(crate) fn rouse(&mut self) {
        if let Some(wishes) = self.me.mailbox.wishes() {
            let is_hot = self.cool(wishes);
            if is_hot || self.check_open().is_err() || self.may(wishes) {
                self.me.wake_one();
            }
        }
        if !self.hot.is_empty() && !self.is_warm {
            self.warm_up();
        }
    }

    /// Handles the events of descriptors and the mail. A caller that wants to receive reads by itself, later and only
    /// as much as it needs; for others this reads up to the high-water mark.
    pub(crate) fn handle(&mut self, events: &[Event], what: Events) {
        if self.me.has_mail() {
            self.take_mail();
        }
        self.is_calm = true;
        let is_lazy = what.has(Events::READ) && self.can_receive() && !self.is_eager();
        for event in events {
            if event.token == WAKE_UP {
                self.me.drain();
                self.take_mail();
                continue;
            }
            if event.token & LISTENER != 0 {
                self.accept_all(event.token);
                continue;
            }
            let conn_ref = ConnRef::from_token(event.token);
            let Some(conn) = self.known(conn_ref) else { continue };
            let is_shm = matches!(conn.link, Link::Shm(_));
            match conn.phase {
                Phase::Connecting => self.connected(conn_ref.index),
                Phase::Aside => self.stir(conn_ref.index, *event),
                _ if is_shm => {
                    self.shm_woken(conn_ref.index);
                    if self.known(conn_ref).is_some_and(|conn| conn.is_blocked) {
                        self.flush(conn_ref.index);
                    }
                    if self.known(conn_ref).is_some() {
                        self.readable(conn_ref.index, is_lazy);
                    }
                }
                Phase::Greeting(_) => self.greet(conn_ref.index, event.is_readable(), event.is_writable()),
                Phase::Ready => {
                    if event.is_writable() && conn.is_blocked {
                        self.flush(conn_ref.index);
                    }
                    if event.is_readable() && self.known(conn_ref).is_some() {
                        self.readable(conn_ref.index, is_lazy);
                    }
                }
                Phase::Waiting | Phase::Ended => {}
            }
        }
        self.listen_hot(is_lazy);
    }

    /// Reads the mail.
    pub(crate) fn take_mail(&mut self) {
        let mut mail = std::mem::take(&mut self.mail);
        self.me.mailbox.take(&mut mail);
        for each in mail.drain(..) {
            match each {
                Mail::Lane(conn_ref, change) => {
                    if self.known(conn_ref).is_some() {
                        match change {
                            Change::Readable => self.lane_changed(conn_ref.index),
                            Change::Writable => self.make_willing(conn_ref.index),
                        }
                    }
                }
                Mail::Arrived(arrival) => self.arrived(*arrival),
                Mail::Met(conn_ref, identity) => self.met(conn_ref, identity),
                Mail::Resolved(conn_ref, found) => self.resolved(conn_ref, found),
                Mail::Terminated => {}
            }
        }
        self.mail = mail;
    }

    /// Writes queued bytes that were left.
    #[inline]
    pub(crate) fn settle(&mut self) {
        if !self.unsent.is_empty() {
            for conn_ref in std::mem::take(&mut self.unsent) {
                self.settle_one(conn_ref);
            }
        }
    }

    fn settle_one(&mut self, conn_ref: ConnRef) {
        if let Some(conn) = self.known(conn_ref) {
            conn.is_listed = false;
            if conn.left_at.is_some() {
                self.flush(conn_ref.index);
            }
        }
    }

    /// Writes what is overdue, for each connection separately: a program that writes to one peer again and again must
    /// not hold up its bytes for another. Gives the number of messages, and when the next ones are overdue.
    pub(crate) fn settle_overdue(&mut self, now: Instant) -> (usize, Option<Instant>) {
        let (mut written, mut next) = (0, None);
        for conn_ref in std::mem::take(&mut self.unsent) {
            let Some(conn) = self.known(conn_ref) else { continue };
            let Some(left_at) = conn.left_at else {
                conn.is_listed = false;
                continue;
            };
            let messages = conn.outgoing.messages();
            let due = self.pace.overdue(left_at);
            if due <= now {
                written += messages.max(1);
                self.settle_one(conn_ref);
            } else {
                self.unsent.push(conn_ref);
                next = Some(next.map_or(due, |next: Instant| next.min(due)));
            }
        }
        if written > 0 || next.is_none() {
            self.pace.forget();
        }
        (written, next)
    }

    pub(crate) fn leavings(&self) -> u64 {
        self.leavings
    }

    /// Whether any of these is possible now. Does not poll the descriptors, but may read bytes that are known to be
    /// there.
    pub(crate) fn may(&mut self, what: Events) -> bool {
        (what.has(Events::READ) && self.has_message()) || (what.has(Events::WRITE) && self.can_send())
    }

    /// What can be had now.
    pub(crate) fn ready_events(&mut self) -> Events {
        let mut events = Events::NONE;
        if self.has_message() {
            events = events | Events::READ;
        }
        if self.can_send() {
            events = events | Events::WRITE;
        }
        events
    }

    /// Notifies the background.
    fn notify(&self, notice: Notice) {
        self.registry.background.notify(notice);
    }

    fn id(&self) -> u64 {
        self.me.id
    }
}
