//! Sending: which connection a message goes to, for each type of socket, and what happens if it has no room.

use ropewalk_zmtp::SocketType::{self, *};

use super::SocketState;
use crate::conn::{Link, Phase};
use crate::error::{Error, Result};
use crate::frame::{Frame, Out};

/// A published message up to this size is encoded once, and copied for each subscriber.
const ENCODE_ONCE: usize = 8 * 1024;

impl SocketState {
    /// Takes one part; the last one sends the message.
    #[inline]
    pub(crate) fn send_part(&mut self, part: &Out<'_>, more: bool) -> Result<()> {
        if more || !self.parts.is_empty() {
            return self.collect(part, more);
        }
        self.send(std::slice::from_ref(part))
    }

    fn collect(&mut self, part: &Out<'_>, more: bool) -> Result<()> {
        if self.is_single() {
            return Err(Error::invalid(format!("a {} socket's messages have one part", self.kind.name())));
        }
        if self.parts.is_empty() {
            // Refused now, or taken whole.
            self.may_begin(part)?;
        }
        if more {
            let mut frame = part.to_frame();
            frame.set_more(true);
            self.parts.push(frame);
            return Ok(());
        }
        let parts = std::mem::take(&mut self.parts);
        let mut outs: Vec<Out<'_>> = parts.iter().map(Frame::out).collect();
        outs.push(*part);
        let sent = self.send(&outs);
        drop(outs);
        if sent.as_ref().is_err_and(|error| *error == Error::again()) {
            self.parts = parts;
        }
        sent
    }

    /// A whole message can be sent only if none was begun part by part.
    pub(crate) fn check_whole(&self) -> Result<()> {
        if self.parts.is_empty() {
            return Ok(());
        }
        Err(Error::state("a message was begun part by part: send its last part first"))
    }

    /// Whether a message that begins with this part could be sent now.
    fn may_begin(&mut self, first: &Out<'_>) -> Result<()> {
        match self.kind {
            Router | Stream => match self.pattern.ids.get(first.bytes).copied() {
                Some(index) if self.room(index) => Ok(()),
                Some(_) if self.options.router_mandatory || self.kind == Stream => Err(Error::again()),
                None if self.options.router_mandatory || self.kind == Stream => Err(Error::unroutable()),
                _ => Ok(()),
            },
            Req => self.may_ask().and_then(|()| self.next_willing().map(drop).ok_or_else(Error::again)),
            Rep if !self.pattern.answering.is_due => Err(no_request()),
            Pull | Sub | Gather | Dish => Err(one_way(self.kind)),
            _ => {
                if self.can_send() {
                    Ok(())
                } else {
                    Err(Error::again())
                }
            }
        }
    }

    /// Sends a whole message; EAGAIN if there is no room now.
    #[inline]
    pub(crate) fn send(&mut self, parts: &[Out<'_>]) -> Result<()> {
        match self.kind {
            Push | Dealer => self.send_to_next(&[], parts),
            Pair => self.send_to_sole(parts),
            Pub | XPub => self.publish(parts),
            Router => self.route(parts),
            Req => self.ask(parts),
            Rep => self.answer(parts),
            XSub => self.send_upstream(parts),
            Stream => self.send_raw(parts),
            Client | Scatter if parts.len() == 1 => self.send_to_next(&[], parts),
            Channel if parts.len() == 1 => self.send_to_sole(parts),
            Server | Peer if parts.len() == 1 => self.send_to_number(parts),
            Radio if parts.len() == 1 => self.radiate(parts),
            Client | Scatter | Channel | Server | Peer | Radio => {
                Err(Error::invalid(format!("a {} socket's messages have one part", self.kind.name())))
            }
            Pull | Sub | Gather | Dish | Dgram => Err(one_way(self.kind)),
        }
    }

    /// Whether a message could be sent now.
    pub(crate) fn can_send(&mut self) -> bool {
        match self.kind {
            Push | Dealer | Client | Scatter => self.next_willing().is_some(),
            Req => self.may_ask().is_ok() && self.next_willing().is_some(),
            Rep => self.pattern.answering.is_due,
            Pair | Channel => self.pattern.sole.is_some_and(|index| self.room(index)),
            Pub | XPub | XSub | Radio | Router | Server | Peer | Stream => true,
            Pull | Sub | Gather | Dish | Dgram => false,
        }
    }

    // --- room ----------------------------------------------------------------------------------------------

    /// Whether a connection takes another message.
    #[inline]
    pub(super) fn room(&mut self, index: u32) -> bool {
        let (most, bytes, immediate) =
            (self.options.sndhwm, self.options.sndhwm_bytes as u64, self.options.immediate);
        let conflates = self.options.conflates(self.kind);
        let Some(conn) = self.conn(index) else { return false };
        match (&conn.phase, &conn.link) {
            (Phase::Ended | Phase::Aside, _) => false,
            _ if conn.is_parting => false,
            (_, Link::Inproc(end)) => end.has_room(),
            (Phase::Ready, _) => {
                conflates
                    || ((most == 0 || conn.outgoing.messages() < most)
                        && (bytes == 0 || conn.outgoing.bytes() < bytes))
            }
            _ if conn.dial.is_none() || immediate => false,
            _ => conflates || most == 0 || conn.outgoing.messages() < most,
        }
    }

    /// The connection that is next in turn, and has room.
    #[inline]
    pub(super) fn next_willing(&mut self) -> Option<u32> {
        while let Some(&index) = self.willing.front() {
            if self.room(index) {
                return Some(index);
            }
            self.willing.pop_front();
            if let Some(conn) = self.conn(index) {
                conn.is_willing = false;
            }
        }
        None
    }

    /// Queues a message for a connection that has room.
    #[inline]
    pub(super) fn push_to(&mut self, index: u32, prefix: &[Out<'_>], parts: &[Out<'_>]) {
        // A SUB sends subscriptions, of which none replaces another.
        let conflates = self.options.conflates(self.kind) && self.kind != Sub;
        let Self { conns, spare_out, .. } = self;
        let Some(conn) = conns.get_mut(index as usize).and_then(Option::as_deref_mut) else { return };
        let count = prefix.len() + parts.len();
        if let Link::Inproc(end) = &conn.link {
            let frames = prefix.iter().chain(parts).enumerate().map(|(place, part)| {
                let mut frame = part.to_frame();
                frame.set_more(place + 1 < count);
                frame
            });
            end.send(frames, conflates);
            return;
        }
        if conn.incoming.is_raw {
            for part in parts {
                conn.outgoing.push_raw(part.bytes);
            }
        } else {
            if conflates {
                conn.outgoing.drop_unsent();
            }
            conn.outgoing.borrow_room(spare_out);
            for (place, part) in prefix.iter().chain(parts).enumerate() {
                conn.outgoing.push(part, place + 1 < count);
            }
        }
        self.pushed(index);
    }

    // --- one of many ---------------------------------------------------------------------------------------

    #[inline]
    fn send_to_next(&mut self, prefix: &[Out<'_>], parts: &[Out<'_>]) -> Result<()> {
        let index = self.next_willing().ok_or_else(Error::again)?;
        if self.willing.len() > 1 {
            self.willing.rotate_left(1);
        }
        self.push_to(index, prefix, parts);
        Ok(())
    }

    fn send_to_sole(&mut self, parts: &[Out<'_>]) -> Result<()> {
        let index = self.pattern.sole.ok_or_else(Error::again)?;
        if !self.room(index) {
            return Err(Error::again());
        }
        self.push_to(index, &[], parts);
        Ok(())
    }

    // --- by name -------------------------------------------------------------------------------------------

    fn route(&mut self, parts: &[Out<'_>]) -> Result<()> {
        let is_raw = self.is_raw();
        let Some((id, rest)) = parts.split_first() else { return Ok(()) };
        if is_raw {
            return self.send_raw(parts);
        }
        let Some(&index) = self.pattern.ids.get(id.bytes) else {
            return if self.options.router_mandatory { Err(Error::unroutable()) } else { Ok(()) };
        };
        if !self.room(index) {
            return if self.options.router_mandatory { Err(Error::again()) } else { Ok(()) };
        }
        if rest.is_empty() {
            return Ok(()); // A name and nothing to send: libzmq drops it, too.
        }
        self.push_to(index, &[], rest);
        Ok(())
    }

    /// STREAM: bytes to a peer, and nothing at all to hang up.
    fn send_raw(&mut self, parts: &[Out<'_>]) -> Result<()> {
        let [id, data @ ..] = parts else { return Ok(()) };
        let Some(&index) = self.pattern.ids.get(id.bytes) else { return Err(Error::unroutable()) };
        if data.iter().all(|part| part.bytes.is_empty()) {
            if !data.is_empty() {
                self.part(index);
            }
            return Ok(());
        }
        if !self.room(index) {
            return Err(Error::again());
        }
        self.push_to(index, &[], data);
        Ok(())
    }

    fn send_to_number(&mut self, parts: &[Out<'_>]) -> Result<()> {
        let Some(&index) = self.pattern.numbers.get(&parts[0].routing_id) else {
            return Err(Error::unroutable());
        };
        if !self.room(index) {
            return Err(Error::again());
        }
        self.push_to(index, &[], parts);
        Ok(())
    }

    // --- requests and replies ------------------------------------------------------------------------------

    fn may_ask(&self) -> Result<()> {
        if self.pattern.asking.is_out && !self.options.req_relaxed {
            return Err(Error::state("a REQ socket receives the reply before it sends another request"));
        }
        Ok(())
    }

    fn ask(&mut self, parts: &[Out<'_>]) -> Result<()> {
        self.may_ask()?;
        if self.pattern.asking.is_out {
            // The reply to the old request must not be taken for the new one's.
            if let Some(old) = self.pattern.asking.to.take()
                && !self.options.req_correlate
                && self.known(old).is_some()
            {
                self.lost(old.index);
            }
            self.pattern.asking.is_out = false;
        }
        let index = self.next_willing().ok_or_else(Error::again)?;
        self.pattern.asking.number = self.pattern.asking.number.wrapping_add(1);
        let number = self.pattern.asking.number.to_be_bytes();
        let envelope = [Out::copied(&number), Out::copied(b"")];
        let prefix = if self.options.req_correlate { &envelope[..] } else { &envelope[1..] };
        let to = self.conn(index).map(|conn| conn.me);
        self.send_to_next(prefix, parts)?;
        (self.pattern.asking.is_out, self.pattern.asking.to) = (true, to);
        Ok(())
    }

    fn answer(&mut self, parts: &[Out<'_>]) -> Result<()> {
        if !self.pattern.answering.is_due {
            return Err(no_request());
        }
        self.pattern.answering.is_due = false;
        let mut envelope = std::mem::take(&mut self.pattern.answering.envelope);
        // A peer that has gone, or does not read, gets no reply.
        if let Some(to) = self.pattern.answering.to.take()
            && self.known(to).is_some()
            && self.room(to.index)
        {
            match &envelope[..] {
                [end] => self.push_to(to.index, &[end.out()], parts),
                frames => {
                    let prefix: Vec<Out<'_>> = frames.iter().map(Frame::out).collect();
                    self.push_to(to.index, &prefix, parts);
                }
            }
        }
        // The memory of an envelope of usual size is kept for the next one.
        envelope.clear();
        envelope.shrink_to(4);
        self.pattern.answering.envelope = envelope;
        Ok(())
    }

    // --- to all who want it --------------------------------------------------------------------------------

    fn publish(&mut self, parts: &[Out<'_>]) -> Result<()> {
        let mut matching = std::mem::take(&mut self.pattern.matching);
        let topic = parts.first().map_or(&b""[..], |part| part.bytes);
        self.pattern.subscribers.matches_unique(topic, &mut matching);
        if self.options.xpub_manual_last_value
            && let Some(last) = self.pattern.last_subscriber.take()
        {
            // The value that the subscriber has missed: the first message after its request is for it alone.
            matching.retain(|index| *index == last.index);
        }
        if self.options.invert_matching {
            let all = self
                .indices()
                .filter(|index| self.conns[*index as usize].as_ref().is_some_and(|conn| conn.is_ready()));
            matching = all.filter(|index| matching.binary_search(index).is_err()).collect();
        }
        let sent = self.distribute(&matching, parts);
        self.pattern.matching = matching;
        sent
    }

    /// Sends to all of these; a peer without room misses the message, unless nothing may be missed.
    pub(super) fn distribute(&mut self, indices: &[u32], parts: &[Out<'_>]) -> Result<()> {
        if self.options.xpub_nodrop && matches!(self.kind, Pub | XPub) {
            for &index in indices {
                if !self.room(index) {
                    return Err(Error::again());
                }
            }
        }
        match indices {
            [] => {}
            [index] => {
                if self.room(*index) {
                    self.push_to(*index, &[], parts);
                }
            }
            _ if parts.iter().map(|part| part.bytes.len()).sum::<usize>() <= ENCODE_ONCE => {
                self.distribute_encoded(indices, parts);
            }
            _ => {
                let frames: Vec<Frame> = parts.iter().map(|part| part.to_frame()).collect();
                let outs: Vec<Out<'_>> = frames.iter().map(Frame::out).collect();
                for &index in indices {
                    if self.room(index) {
                        self.push_to(index, &[], &outs);
                    }
                }
            }
        }
        Ok(())
    }

    fn distribute_encoded(&mut self, indices: &[u32], parts: &[Out<'_>]) {
        let mut encoded = std::mem::take(&mut self.pattern.encoded);
        encoded.clear();
        for (place, part) in parts.iter().enumerate() {
            let flags = if place + 1 < parts.len() { ropewalk_zmtp::frame::MORE } else { 0 };
            ropewalk_zmtp::frame::encode(&mut encoded, flags, part.bytes);
        }
        let conflates = self.options.conflates(self.kind);
        for &index in indices {
            if !self.room(index) {
                continue;
            }
            if self.conn(index).is_some_and(|conn| conn.is_inproc()) {
                self.push_to(index, &[], parts);
                continue;
            }
            let Self { conns, spare_out, .. } = self;
            let Some(conn) = conns[index as usize].as_deref_mut() else { continue };
            if conflates {
                conn.outgoing.drop_unsent();
            }
            conn.outgoing.borrow_room(spare_out);
            conn.outgoing.push_encoded(&encoded);
            self.pushed(index);
        }
        self.pattern.encoded = encoded;
    }

    fn radiate(&mut self, parts: &[Out<'_>]) -> Result<()> {
        let group = parts[0].group;
        let indices = self.pattern.groups.get(group.as_bytes()).cloned().unwrap_or_default();
        let body = Out { group: "", ..parts[0] };
        self.distribute(&indices, &[Out::copied(group.as_bytes()), body])
    }
}

fn no_request() -> Error {
    Error::state("a REP socket receives a request before it sends a reply")
}

fn one_way(kind: SocketType) -> Error {
    Error::not_supported(format!("a {} socket does not send", kind.name()))
}
