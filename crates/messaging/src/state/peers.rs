//! Connections by type of socket: their place among the others, their names, their first messages and their end.

use std::collections::hash_map::Entry;

use ropewalk_os::epoll::Event;
use ropewalk_zmtp::SocketType::*;

use super::SocketState;
use super::deadlines::ROUND;
use super::due::Due;
use crate::conn::{Link, Phase};
use crate::conn_ref::ConnRef;
use crate::error::{Error, Result};
use crate::frame::{Frame, Out};
use crate::options::option;
use crate::shm_link::PeerSign;

impl SocketState {
    /// Bytes are no frames, on this socket.
    pub(super) fn is_raw(&self) -> bool {
        self.kind == Stream || (self.kind == Router && self.options.router_raw)
    }

    /// Incoming messages are handled on arrival, and not when the program receives.
    #[inline]
    pub(super) fn is_eager(&self) -> bool {
        matches!(self.kind, Pub | XPub | Push | Scatter | Radio)
    }

    /// Its messages have one part.
    pub(super) fn is_single(&self) -> bool {
        matches!(self.kind, Server | Client | Radio | Dish | Gather | Scatter | Peer | Channel)
    }

    /// Whether receiving makes sense now.
    #[inline]
    pub(super) fn can_receive(&self) -> bool {
        match self.kind {
            Req => self.pattern.asking.is_out,
            Rep => !self.pattern.answering.is_due,
            _ => true,
        }
    }

    /// Sent messages may go to any peer in turn.
    #[inline]
    pub(super) fn balances(&self) -> bool {
        matches!(self.kind, Push | Dealer | Req | Scatter | Client)
    }

    /// A connection was begun, or has arrived from inside the process: gives it its place.
    pub(super) fn adopt(&mut self, index: u32, routing_id: Option<Vec<u8>>) {
        if matches!(self.kind, Pair | Channel) && self.pattern.sole.is_none() {
            self.pattern.sole = Some(index);
        }
        if let Some(id) = routing_id
            && matches!(self.kind, Router | Stream)
        {
            self.pattern.ids.insert(id.clone(), index);
            if let Some(conn) = self.conn(index) {
                conn.identity = id;
            }
        }
        if matches!(self.kind, Server | Peer) {
            let number = self.number(index);
            if let Some(conn) = self.conn(index) {
                conn.routing_id = number;
            }
        }
        if self.is_raw() {
            if let Some(conn) = self.conn(index) {
                conn.incoming.is_raw = true;
            }
            if !self.options.immediate {
                self.name_peer(index);
            }
        }
        if self.balances() && !self.options.immediate {
            self.make_willing(index);
        }
    }

    /// The number of a SERVER's or PEER's connection.
    pub(crate) fn number_of(&mut self, index: u32) -> u32 {
        self.conn(index).map_or(0, |conn| conn.routing_id)
    }

    /// How many topics are subscribed to, here or by peers.
    pub(crate) fn topics(&self) -> i32 {
        let count = self.pattern.wanted.len().max(self.pattern.subscribers.len());
        i32::try_from(count).unwrap_or(i32::MAX)
    }

    fn number(&mut self, index: u32) -> u32 {
        loop {
            self.pattern.next_number = self.pattern.next_number.wrapping_add(1).max(1);
            let number = self.pattern.next_number;
            if let Entry::Vacant(free) = self.pattern.numbers.entry(number) {
                free.insert(index);
                return number;
            }
        }
    }

    /// Messages can flow: the pattern sends its first messages.
    pub(super) fn ready(&mut self, index: u32) {
        if self.conn(index).is_some_and(|conn| conn.is_parting) {
            // It is here to deliver what it has, and nothing else.
            self.begin_heart(index);
            return self.flush(index);
        }
        let is_welcome = match self.kind {
            // There may be one peer; others are turned away.
            Pair | Channel => *self.pattern.sole.get_or_insert(index) == index,
            Router | Stream => self.name_peer(index),
            _ => true,
        };
        if !is_welcome {
            // Within the process nothing is tried again, and libzmq ends the connection of a PAIR.
            if matches!(self.kind, Pair | Channel) && self.conn(index).is_some_and(|conn| conn.is_inproc()) {
                return self.end(index);
            }
            let conn_ref = self.conn(index).map(|conn| conn.me);
            self.pattern.aside.extend(conn_ref);
            return self.set_aside(index);
        }
        if matches!(self.kind, Server | Peer) && self.conn(index).is_some_and(|conn| conn.routing_id == 0) {
            let number = self.number(index);
            if let Some(conn) = self.conn(index) {
                conn.routing_id = number;
            }
        }
        if self.balances() {
            self.make_willing(index);
        }
        match self.kind {
            Sub | XSub => self.tell_subscriptions(index),
            Dish => self.tell_groups(index),
            Pub | XPub => {
                if let Some(welcome) = self.options.xpub_welcome_msg.clone().filter(|_| self.kind == XPub) {
                    self.push_to(index, &[], &[Out::copied(&welcome)]);
                }
            }
            _ => {}
        }
        if self.options.probe_router && matches!(self.kind, Router | Dealer | Req) {
            self.push_to(index, &[], &[Out::copied(b"")]);
        }
        if let Some(hello) = self.options.hello_msg.clone()
            && matches!(self.kind, Router | Dealer | Server | Client | Peer | Scatter | Push | Channel | Pair)
        {
            self.push_to(index, &[], &[Out::copied(&hello)]);
        }
        if self.tells(option::NOTIFY_CONNECT) {
            self.note_peer(index, b"");
        }
        self.begin_heart(index);
        self.flush(index);
    }

    /// Whether the program receives an empty message when a peer has come or gone.
    fn tells(&self, what: i32) -> bool {
        match self.kind {
            Stream => self.options.stream_notify,
            Router => self.options.router_notify & what != 0,
            _ => false,
        }
    }

    /// Queues a message about a peer, as if the peer had sent it. Before a message about its end, the caller takes over
    /// the messages that it has sent.
    pub(super) fn note_peer(&mut self, index: u32, message: &[u8]) {
        let kind = self.kind;
        let Some(conn) = self.conn(index) else { return };
        let mut frame = Frame::copy_of(message);
        match kind {
            Router | Stream => {
                let mut name = Frame::copy_of(&conn.identity);
                name.set_more(true);
                self.inbox.queue.push_back(name);
            }
            Server | Peer => frame.set_routing_id(conn.routing_id),
            _ => {}
        }
        self.inbox.queue.push_back(frame);
        self.tell_readable();
    }

    /// Gives a peer the name by which it is addressed; false if it has none that it may have.
    fn name_peer(&mut self, index: u32) -> bool {
        let handover = self.options.router_handover;
        let Some(conn) = self.conn(index) else { return false };
        let mut identity = conn.identity.clone();
        if self.pattern.ids.get(&identity) == Some(&index) {
            return true;
        }
        if identity.is_empty() || self.kind == Stream || self.is_raw() || self.options.router_own_ids {
            // Peers may choose names that this socket would give to others.
            while {
                self.pattern.next_number = self.pattern.next_number.wrapping_add(1);
                identity = [&[0], &self.pattern.next_number.to_be_bytes()[..]].concat();
                self.pattern.ids.contains_key(&identity)
            } {}
            if self.kind == Stream {
                // libzmq's way to tell the program the name of the peer that it connects to.
                self.options.routing_id.clone_from(&identity);
            }
        } else if let Some(&other) = self.pattern.ids.get(&identity) {
            if !handover {
                return false;
            }
            self.pattern.ids.remove(&identity);
            // The old peer may be alive: cut off, it would come again and take the name back, for ever.
            // What it has sent before is received.
            if let Some(conn) = self.conn(other) {
                conn.is_readable = true;
            }
            self.read_ahead(other);
            self.take_over(other);
            self.flush(other);
            if let Some(conn_ref) = self.conn(other).filter(|conn| conn.is_ready()).map(|conn| conn.me) {
                self.pattern.aside.push_front(conn_ref);
                self.set_aside(other);
            }
        }
        self.rename(index, identity);
        true
    }

    /// ROUTER: ends the connection of the peer of this name, with what was not sent.
    pub(crate) fn hang_up_on(&mut self, name: &[u8]) -> Result<()> {
        if self.kind != Router {
            return Err(Error::not_supported("only a ROUTER socket hangs up on a peer by its name"));
        }
        let index = *self.pattern.ids.get(name).ok_or_else(Error::unroutable)?;
        self.lost(index);
        Ok(())
    }

    pub(super) fn rename(&mut self, index: u32, identity: Vec<u8>) {
        let Some(conn) = self.conn(index) else { return };
        let old = std::mem::replace(&mut conn.identity, identity.clone());
        if self.pattern.ids.get(&old) == Some(&index) {
            self.pattern.ids.remove(&old);
        }
        self.pattern.ids.insert(identity, index);
    }

    /// Another connection has the name of this one, or its place.
    fn set_aside(&mut self, index: u32) {
        let Some(conn) = self.conn(index) else { return };
        let conn_ref = conn.me;
        conn.phase = Phase::Aside;
        let beat = conn.heart.take().and_then(|heart| heart.noted);
        let was_active = std::mem::replace(&mut conn.is_active, false);
        if let Some(beat) = beat {
            self.due.remove(&(beat, conn_ref, Due::Beat));
        }
        if was_active {
            self.active.retain(|other| *other != index);
        }
        self.forget_hot(conn_ref);
        self.update_interest(index);
        let patience = self.options.heartbeat_patience();
        self.ask_whether_alive(index, patience.unwrap_or(ROUND));
    }

    /// What the set reports of a connection that was set aside: its end, or room for what it was sent before.
    pub(super) fn stir(&mut self, index: u32, event: Event) {
        let is_over = match self.conn(index).map(|conn| &mut conn.link) {
            Some(Link::Shm(link)) => link.take_wake_ups() == PeerSign::Gone,
            _ => event.is_at_end(),
        };
        if is_over {
            return self.lost(index);
        }
        self.flush(index);
    }

    /// A name is free, or the place of the one peer: the next connection that was set aside for it takes it.
    fn admit_next(&mut self, name: Option<&[u8]>) {
        let mut aside = std::mem::take(&mut self.pattern.aside);
        aside.retain(|conn_ref| self.known(*conn_ref).is_some_and(|conn| conn.is_aside()));
        let place = aside.iter().position(|conn_ref| {
            self.known(*conn_ref).is_some_and(|conn| name.is_none_or(|name| conn.identity == name))
        });
        let next = place.and_then(|place| aside.remove(place));
        self.pattern.aside = aside;
        let Some(ConnRef { index, .. }) = next else { return };
        let Some(conn) = self.conn(index) else { return };
        conn.phase = Phase::Ready;
        conn.is_paused = false;
        let conn_ref = conn.me;
        let question = conn.heart.take().and_then(|heart| heart.noted);
        let is_inproc = conn.is_inproc();
        if let Some(question) = question {
            self.due.remove(&(question, conn_ref, Due::Beat));
        }
        self.update_interest(index);
        self.heat(index);
        self.ready(index);
        if is_inproc {
            self.lane_changed(index);
        } else if self.conn(index).is_some_and(|conn| conn.is_ready()) && self.count(index) {
            // What came with its handshake was counted just now; the kernel may have more.
            self.read_if_eager(index);
        }
        self.tell_readable();
    }

    /// A connection is gone, for good or until it is made again: its names address no peer.
    pub(super) fn detach(&mut self, index: u32, is_for_good: bool) {
        let is_closing = self.is_closing;
        let Some(conn) = self.conn(index).filter(|conn| !conn.is_parting) else { return };
        if conn.is_aside() {
            let me = conn.me;
            return self.pattern.aside.retain(|other| *other != me);
        }
        let (me, identity, number) = (conn.me, conn.identity.clone(), conn.routing_id);
        if conn.is_ready() && !is_closing {
            // Inside the process, an accepted peer has no endpoint.
            let is_accepted = conn.bound.is_some() || conn.endpoint.is_empty();
            if self.tells(option::NOTIFY_DISCONNECT) {
                self.take_over(index);
                self.note_peer(index, b"");
            }
            if is_accepted && let Some(message) = self.options.disconnect_msg.clone() {
                self.take_over(index);
                self.note_peer(index, &message);
            }
        }
        match self.kind {
            Router | Stream => {
                let fixed = self.dial_of(index).and_then(|dial| dial.routing_id.clone());
                if self.pattern.ids.get(&identity) == Some(&index)
                    && (is_for_good || fixed.as_ref() != Some(&identity))
                {
                    self.pattern.ids.remove(&identity);
                    if !is_closing && !self.pattern.aside.is_empty() {
                        self.admit_next(Some(&identity));
                    }
                }
            }
            Server | Peer if is_for_good => {
                self.pattern.numbers.remove(&number);
            }
            Pub | XPub | Radio => self.forget_subscriber(index),
            Pair | Channel if is_for_good && self.pattern.sole == Some(index) => {
                // What it has sent is the program's; what follows is from another.
                if !is_closing {
                    self.take_over(index);
                }
                self.pattern.sole = None;
                if !is_closing && !self.pattern.aside.is_empty() {
                    self.admit_next(None);
                }
            }
            Req if is_for_good && self.pattern.asking.to == Some(me) => self.pattern.asking.to = None,
            _ => {}
        }
    }

    /// Notifies watchers that a message may be there.
    pub(super) fn tell_readable(&self) {
        self.me.wake();
    }

    /// A lane has changed.
    pub(super) fn lane_changed(&mut self, index: u32) {
        let is_eager = self.is_eager();
        let Some(conn) = self.conn(index) else { return };
        let is_aside = conn.is_aside();
        match &mut conn.link {
            Link::Inproc(end) => {
                if is_eager {
                    let is_over = end.is_ended();
                    self.read_ahead(index);
                    if is_over {
                        self.lost(index);
                    }
                } else if is_aside {
                    if end.is_ended() {
                        self.lost(index);
                    }
                } else {
                    self.activate(index);
                    // An ended lane stays until its messages are taken; nothing is sent to it any more.
                    if let Some(conn) = self.conn(index)
                        && let Link::Inproc(end) = &mut conn.link
                        && end.is_over()
                    {
                        self.lost(index);
                    }
                }
            }
            _ => self.handler_spoke(index),
        }
    }

    /// Reports an event to the monitor.
    pub(super) fn tell(&mut self, event: u64, value: i32, address: &str) {
        if let Some(monitor) = &mut self.monitor {
            monitor.tell(event, value, address);
        }
    }
}
