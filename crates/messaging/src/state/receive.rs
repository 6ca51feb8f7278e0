//! Receiving: which connection has its turn, and which parts of a message the program gets, for each type of socket.

use ropewalk_zmtp::SocketType::{self, *};

use super::SocketState;
use crate::conn::Link;
use crate::error::{Error, Result};
use crate::events::Events;
use crate::frame::Frame;

/// Checks of an only connection between two polls of the set.
const GLANCES: u32 = 64;

impl SocketState {
    /// Takes the next part; EAGAIN if no whole message is here.
    pub(crate) fn take_part(&mut self) -> Result<Frame> {
        self.may_take()?;
        if !self.has_message() {
            return Err(Error::again());
        }
        if let Some(frame) = self.inbox.pop() {
            self.note_subscriber(&frame);
            self.inbox.more = frame.more();
            return Ok(frame);
        }
        let frame = self.take_of_current().ok_or_else(Error::again)?;
        self.inbox.more = frame.more();
        Ok(frame)
    }

    /// Takes the next part of the message that was begun.
    fn take_of_current(&mut self) -> Option<Frame> {
        let (index, kind) = (self.inbox.current?, self.kind);
        let conn = self.conns.get_mut(index as usize)?.as_deref_mut()?;
        let mut frame = conn.take_frame()?;
        if let Some(properties) = &conn.properties {
            frame.set_properties(properties);
        }
        match kind {
            Server | Peer => frame.set_routing_id(conn.routing_id),
            // Its length was judged when it was joined.
            Dish => drop(frame.set_group(&self.pattern.group)),
            _ => {}
        }
        if !frame.more() {
            self.finish_message(index);
        }
        Some(frame)
    }

    /// Moves a peer's messages to those that no connection holds, so that messages about the peer can follow them.
    pub(super) fn take_over(&mut self, index: u32) {
        if self.inbox.current == Some(index) {
            let mut rest: Vec<Frame> = self.inbox.name.take().into_iter().collect();
            while let Some(frame) = self.take_of_current() {
                rest.push(frame);
            }
            for frame in rest.into_iter().rev() {
                self.inbox.queue.push_front(frame);
            }
        }
        let begun = (self.inbox.current.take(), self.inbox.name.take());
        while self.conn(index).is_some_and(|conn| conn.has_message()) {
            if self.open(index) {
                self.inbox.queue.extend(self.inbox.name.take());
                while let Some(frame) = self.take_of_current() {
                    self.inbox.queue.push_back(frame);
                }
            }
        }
        (self.inbox.current, self.inbox.name) = begun;
    }

    /// Takes the next part, borrowed, and says whether another follows; EAGAIN if no whole message is here.
    #[inline]
    pub(crate) fn take_part_with(&mut self, sink: &mut dyn FnMut(&[u8], bool)) -> Result<bool> {
        self.may_take()?;
        if !self.has_message() {
            return Err(Error::again());
        }
        if let Some(frame) = self.inbox.pop() {
            self.note_subscriber(&frame);
            self.inbox.more = frame.more();
            sink(frame.bytes(), frame.more());
            return Ok(frame.more());
        }
        let index = self.inbox.current.unwrap_or(u32::MAX);
        let taken = self.conn(index).and_then(|conn| {
            conn.take_with(|bytes, more| {
                sink(bytes, more);
                more
            })
        });
        let Some(more) = taken else { return Err(Error::again()) };
        self.inbox.more = more;
        if !more {
            self.finish_message(index);
        }
        Ok(more)
    }

    /// Takes up to this many more messages of the connection that the last one came from, if no other has its turn and
    /// messages of this type are taken as they came; returns their number.
    pub(crate) fn take_run(&mut self, most: usize, sink: &mut dyn FnMut(&[u8], bool)) -> usize {
        let is_plain = matches!(self.kind, Pull | Dealer) && !self.options.conflates(self.kind);
        let (Some(&index), 1) = (self.active.front(), self.active.len()) else { return 0 };
        if !is_plain || self.inbox.current.is_some() || !self.inbox.queue.is_empty() {
            return 0;
        }
        let Some(conn) = self.conn(index).filter(|conn| conn.is_ready()) else { return 0 };
        let mut taken = 0;
        while taken < most && conn.has_message() {
            let more = conn.take_with(|bytes, more| {
                sink(bytes, more);
                more
            });
            taken += usize::from(more == Some(false));
        }
        taken
    }

    /// Whether another part of the message that was begun follows.
    pub(crate) fn more(&self) -> bool {
        self.inbox.more
    }

    #[inline]
    fn may_take(&self) -> Result<()> {
        match self.kind {
            Req if !self.pattern.asking.is_out
                && self.inbox.current.is_none()
                && self.inbox.queue.is_empty() =>
            {
                Err(Error::state("a REQ socket sends a request before it receives a reply"))
            }
            Rep if self.pattern.answering.is_due => {
                Err(Error::state("a REP socket sends the reply before it receives another request"))
            }
            Push | Pub | Scatter | Radio => Err(one_way(self.kind)),
            _ => Ok(()),
        }
    }

    /// The last part of a message was taken.
    #[inline]
    fn finish_message(&mut self, index: u32) {
        self.inbox.current = None;
        match self.kind {
            Rep => self.pattern.answering.is_due = true,
            Req => (self.pattern.asking.is_out, self.pattern.asking.to) = (false, None),
            _ => {}
        }
        if self.active.len() > 1 || self.conns[index as usize].as_ref().is_some_and(|conn| conn.is_ended()) {
            self.turn(index);
        }
    }

    /// The next one has its turn.
    fn turn(&mut self, index: u32) {
        if self.active.front() == Some(&index) {
            let Self { conns, active, spare_in, .. } = self;
            match conns[index as usize].as_deref_mut() {
                // It is checked again when there may be more. Connections that hold nothing share one buffer.
                Some(conn) if conn.is_drained() && conn.is_ready() => {
                    conn.is_active = false;
                    conn.incoming.return_room(spare_in);
                    active.pop_front();
                }
                _ => active.rotate_left(1),
            }
        }
        if self.conn(index).is_some_and(|conn| conn.is_ended() && !conn.has_message()) {
            self.remove_conn(index);
        }
    }

    /// Whether a whole message can be taken. Reads bytes that are known to be there, if need be.
    #[inline]
    pub(crate) fn has_message(&mut self) -> bool {
        if self.inbox.current.is_some() || !self.inbox.queue.is_empty() {
            return true;
        }
        if !self.can_receive() {
            return false;
        }
        self.next_message()
    }

    /// Finds the next message, and makes it the current one.
    fn next_message(&mut self) -> bool {
        while let Some(&index) = self.active.front() {
            let Some(conn) = self.conn(index) else {
                self.active.pop_front();
                continue;
            };
            if conn.has_message() {
                if self.open(index) {
                    return true;
                }
                // It was not for us; the same connection may have another.
                if !self.inbox.queue.is_empty() {
                    return true;
                }
                continue;
            }
            if conn.is_paused {
                self.resume(index);
            }
            let Some(conn) = self.conn(index) else { continue };
            if conn.is_encrypted() && conn.incoming.has_wire() {
                self.count(index);
                if self.conn(index).is_some_and(|conn| conn.has_message()) {
                    continue;
                }
            }
            if self.conn(index).is_some_and(|conn| conn.is_readable) {
                // An incomplete message leaves the connection readable until there is no more; a peer that sends
                // without end is read on, because others only wait for their turn.
                self.fill(index);
                continue;
            }
            // There is nothing. It is checked again when there may be.
            self.active.pop_front();
            let Self { conns, spare_in, .. } = self;
            let Some(conn) = conns[index as usize].as_deref_mut() else { continue };
            conn.is_active = false;
            conn.incoming.return_room(spare_in);
            if conn.is_ended() {
                self.remove_conn(index);
            } else if let Link::Inproc(end) = &mut conn.link
                && end.is_over()
            {
                self.lost(index);
            }
            if !self.inbox.queue.is_empty() {
                return true;
            }
        }
        // A connection that ended on the way may have left a message about its end.
        !self.inbox.queue.is_empty()
    }

    // --- looking at an only connection ---------------------------------------------------------------------

    /// The only connection, if a wait for messages may check it instead of the set, which saves a system call. A lane's
    /// sender posts no mail from now on.
    pub(crate) fn begin_glances(&mut self, what: Events, is_watched: bool) -> Option<u32> {
        // Where other threads may call or watch, the mail is for them, too.
        let is_alone = self.conns.len() == self.free.len() + 1 && self.is_waited_on && !is_watched;
        if what != Events::READ || !is_alone || !self.can_receive() || self.is_eager() {
            return None;
        }
        let index = self.conns.iter().position(Option::is_some)? as u32;
        let conn = self.conn(index)?;
        if !conn.is_ready() {
            return None;
        }
        if let Link::Inproc(end) = &conn.link {
            end.poll(true);
        }
        Some(index)
    }

    /// Checks whether the connection has a message.
    #[inline]
    pub(crate) fn glance(&mut self, index: u32) -> bool {
        let Some(conn) = self.conn(index) else { return false };
        match &conn.link {
            Link::Stream(_) if conn.is_ready() && !conn.is_paused => conn.is_readable = true,
            Link::Shm(link) if link.has_bytes() && conn.is_ready() && !conn.is_paused => {
                conn.is_readable = true
            }
            Link::Inproc(end) if end.has_news() => {}
            _ => return false,
        }
        self.is_calm = true;
        self.activate(index);
        self.has_message()
    }

    /// Something can be read: if there is only one connection, it is presumed to be that. Now and then the set is
    /// polled instead, for other events.
    pub(crate) fn presume(&mut self) {
        /// Glances in a row.
        const MOST: u32 = 16;
        if self.presumed >= MOST || self.conns.len() != self.free.len() + 1 || self.is_eager() {
            return;
        }
        if let Some(index) = self.conns.iter().position(Option::is_some)
            && self.conns[index].as_ref().is_some_and(|conn| matches!(conn.link, Link::Stream(_)))
        {
            self.presumed += 1;
            self.glance(index as u32);
        }
    }

    /// Mail comes again. The next check finds messages that came without it.
    pub(crate) fn end_glances(&mut self, index: u32) {
        if let Some(conn) = self.conn(index)
            && let Link::Inproc(end) = &conn.link
        {
            end.poll(false);
            self.activate(index);
        }
    }

    /// Whether the set is polled after a glance, for other events than the only connection's, such as listeners'.
    pub(crate) fn is_turn_of_set(&mut self, only: Option<u32>) -> bool {
        let is_stream =
            only.and_then(|index| self.conn(index)).is_some_and(|conn| matches!(conn.link, Link::Stream(_)));
        self.glances = self.glances.wrapping_add(u32::from(is_stream));
        !is_stream || self.glances.is_multiple_of(GLANCES)
    }

    /// Begins to take a connection's message. False if it is not for the program; it is dropped then.
    fn open(&mut self, index: u32) -> bool {
        let kind = self.kind;
        let is_single = self.is_single();
        if self.options.conflates(kind) {
            self.read_to_last(index);
        }
        let Some(conn) = self.conns[index as usize].as_deref_mut() else { return false };
        match kind {
            Pull | Dealer | XSub => {}
            Pair | Channel if self.pattern.sole != Some(index) => {
                conn.skip_message();
                return false;
            }
            Sub => {
                let Some((topic, _)) = conn.peek() else { return false };
                let wanted = &self.pattern.wanted;
                if wanted.is_match(topic) == self.options.invert_matching {
                    conn.skip_message();
                    return false;
                }
            }
            Router | Stream => {
                let mut id = Frame::copy_of(&conn.identity);
                id.set_more(true);
                if let Some(properties) = &conn.properties {
                    id.set_properties(properties);
                }
                self.inbox.name = Some(id);
            }
            Req => return self.open_reply(index),
            Rep => return self.open_request(index),
            Dish => {
                let Some((group, true)) = conn.peek() else {
                    conn.skip_message();
                    return false;
                };
                let group = String::from_utf8_lossy(group).into_owned();
                if !self.pattern.joined.contains(&group) {
                    conn.skip_message();
                    return false;
                }
                self.pattern.group = group;
                conn.take_frame();
            }
            _ => {}
        }
        if is_single && conn.peek().is_none_or(|(_, more)| more) {
            conn.skip_message();
            return false;
        }
        self.inbox.current = Some(index);
        true
    }

    /// REQ: the reply to the request that is out, behind its envelope.
    fn open_reply(&mut self, index: u32) -> bool {
        let correlate = self.options.req_correlate;
        let (to, number) = (self.pattern.asking.to, self.pattern.asking.number);
        let Some(conn) = self.conn(index) else { return false };
        let is_asked = to.is_none_or(|to| to.index == index);
        let mut is_good = is_asked;
        if is_good && correlate {
            is_good = conn.peek().is_some_and(|(bytes, more)| more && bytes == number.to_be_bytes());
            if is_good {
                conn.take_frame();
            }
        }
        is_good = is_good && conn.peek().is_some_and(|(bytes, more)| more && bytes.is_empty());
        if !is_good {
            conn.skip_message();
            return false;
        }
        conn.take_frame();
        self.inbox.current = Some(index);
        true
    }

    /// REP: a request, behind the envelope that its reply will have.
    fn open_request(&mut self, index: u32) -> bool {
        let mut envelope = std::mem::take(&mut self.pattern.answering.envelope);
        envelope.clear();
        let Some(conn) = self.conn(index) else { return false };
        loop {
            match conn.take_frame() {
                Some(frame) if frame.more() => {
                    let is_end = frame.bytes().is_empty();
                    envelope.push(frame);
                    if is_end {
                        break;
                    }
                }
                // It ended before the empty frame: no request.
                _ => return false,
            }
        }
        let to = conn.me;
        self.pattern.answering.to = Some(to);
        self.pattern.answering.envelope = envelope;
        self.inbox.current = Some(index);
        true
    }

    /// CONFLATE: reads everything, and keeps the last message.
    fn read_to_last(&mut self, index: u32) {
        loop {
            self.keep_last(index);
            if let Some(conn) = self.conn(index)
                && let Link::Inproc(end) = &mut conn.link
            {
                end.keep_last();
            }
            if !self.conn(index).is_some_and(|conn| conn.is_readable) || !self.fill(index) {
                return;
            }
        }
    }

    /// PUB, XPUB, PUSH, SCATTER, RADIO: handles the peers' messages at once.
    pub(super) fn digest(&mut self, index: u32) {
        let kind = self.kind;
        while self.conn(index).is_some_and(|conn| conn.has_message()) {
            let Some(conn) = self.conn(index) else { return };
            match kind {
                Pub | XPub => {
                    let parts = conn.take_message();
                    self.upstream(index, parts);
                }
                // Inside the process there are no commands: a group is joined by a message.
                Radio if conn.is_inproc() => {
                    let parts = conn.take_message();
                    if let Some((verb, group)) = parts.first().and_then(|part| part.bytes().split_first()) {
                        let (is_join, group) = (*verb == 1, group.to_vec());
                        self.joined(index, &group, is_join);
                    }
                }
                _ => conn.skip_message(),
            }
        }
        let Self { conns, spare_in, .. } = self;
        if let Some(conn) = conns.get_mut(index as usize).and_then(Option::as_deref_mut) {
            conn.incoming.return_room(spare_in);
        }
    }
}

fn one_way(kind: SocketType) -> Error {
    Error::not_supported(format!("a {} socket does not receive", kind.name()))
}
