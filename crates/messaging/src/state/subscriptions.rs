//! Subscriptions and groups, in both directions.

use ropewalk_zmtp::Command;
use ropewalk_zmtp::SocketType::*;
use ropewalk_zmtp::frame;

use super::SocketState;
use crate::conn_ref::ConnRef;
use crate::error::{Error, Result};
use crate::frame::{Frame, Out};

impl SocketState {
    // --- SUB, XSUB -----------------------------------------------------------------------------------------

    /// Subscribes or unsubscribes: sends it to every publisher, if it is a change.
    pub(crate) fn want(&mut self, topic: &[u8], is_wanted: bool) {
        let is_news =
            if is_wanted { self.pattern.wanted.add(topic) } else { self.pattern.wanted.remove(topic) };
        // libzmq's subscribers send each repeated subscription; an XPUB may count them.
        let is_forwarded = is_news || is_wanted || self.options.xsub_verbose_unsubscribe;
        if is_forwarded {
            for index in 0..self.conns.len() as u32 {
                if self.conn(index).is_some_and(|conn| conn.is_ready()) {
                    self.tell_subscription(index, topic, is_wanted);
                }
            }
        }
    }

    /// A new publisher gets every subscription.
    pub(super) fn tell_subscriptions(&mut self, index: u32) {
        let mut topics = Vec::new();
        self.pattern.wanted.prefixes(|topic| topics.push(topic.to_vec()));
        // Before what an XSUB has sent meanwhile.
        let Some(waiting) = self.conn(index).map(|conn| std::mem::take(&mut conn.outgoing)) else { return };
        for topic in topics {
            self.tell_subscription(index, &topic, true);
        }
        if let Some(conn) = self.conn(index) {
            conn.outgoing.append(waiting);
        }
        self.flush(index);
    }

    fn tell_subscription(&mut self, index: u32, topic: &[u8], is_wanted: bool) {
        let mut body = std::mem::take(&mut self.pattern.encoded);
        body.clear();
        let Self { conns, spare_out, .. } = self;
        let Some(conn) = conns.get_mut(index as usize).and_then(Option::as_deref_mut) else { return };
        if conn.minor >= 1 && !conn.is_inproc() {
            let command = if is_wanted { Command::Subscribe(topic) } else { Command::Cancel(topic) };
            command.encode(&mut body);
            let mut header = [0; 9];
            let length = frame::write_header(&mut header, frame::COMMAND, body.len() as u64);
            conn.outgoing.borrow_room(spare_out);
            conn.outgoing.push_plain(&header[..length]);
            conn.outgoing.push_plain(&body);
            self.pushed(index);
        } else {
            // ZMTP 3.0: a message whose first byte distinguishes the two.
            body.push(u8::from(is_wanted));
            body.extend_from_slice(topic);
            self.push_to(index, &[], &[Out::copied(&body)]);
        }
        self.pattern.encoded = body;
    }

    /// XSUB: parts that look like subscriptions are those, others go to every publisher. With ONLY_FIRST_SUBSCRIBE a
    /// message whose first part is none has none.
    pub(super) fn send_upstream(&mut self, parts: &[Out<'_>]) -> Result<()> {
        let mut rest = Vec::new();
        let mut may = true;
        for part in parts {
            match part.bytes.split_first() {
                Some((verb @ (0 | 1), topic)) if may => self.want(topic, *verb == 1),
                _ => {
                    rest.push(*part);
                    may = may && !self.options.only_first_subscribe;
                }
            }
        }
        if !rest.is_empty() {
            // Also to those that are being connected, or connected again: their messages wait for them.
            let indices: Vec<u32> =
                self.indices().filter(|index| self.conns[*index as usize].is_some()).collect();
            self.distribute(&indices, &rest)?;
        }
        Ok(())
    }

    // --- PUB, XPUB -----------------------------------------------------------------------------------------

    /// A message from a subscriber; as [`send_upstream`](Self::send_upstream).
    pub(super) fn upstream(&mut self, index: u32, parts: Vec<Frame>) {
        let mut rest = Vec::new();
        let mut may = true;
        for part in parts {
            match part.bytes().split_first() {
                Some((verb @ (0 | 1), topic)) if may => self.subscription(index, topic, *verb == 1),
                _ => {
                    rest.push(part);
                    may = may && !self.options.only_first_subscribe;
                }
            }
        }
        if self.kind == XPub && !rest.is_empty() {
            let count = rest.len();
            for (place, mut part) in rest.into_iter().enumerate() {
                part.set_more(place + 1 < count);
                self.inbox.queue.push_back(part);
            }
            self.tell_readable();
        }
    }

    /// A subscriber subscribes or unsubscribes.
    pub(super) fn subscription(&mut self, index: u32, topic: &[u8], is_wanted: bool) {
        if !matches!(self.kind, Pub | XPub) {
            return;
        }
        let me = self.conn(index).map(|conn| conn.me);
        if self.kind == XPub && self.options.xpub_manual {
            if is_wanted {
                self.pattern.requested.insert(topic, index);
            } else {
                self.pattern.requested.remove(topic, index);
            }
            self.pattern.asked.push_back((me, topic.to_vec(), is_wanted));
            return self.tell_program(topic, is_wanted);
        }
        let is_news = if is_wanted {
            self.pattern.subscribers.insert(topic, index)
        } else {
            self.pattern.subscribers.remove(topic, index)
        };
        let is_verbose = self.options.xpub_verboser || (is_wanted && self.options.xpub_verbose);
        if self.kind == XPub && (is_news || is_verbose) {
            self.tell_program(topic, is_wanted);
        }
    }

    fn tell_program(&mut self, topic: &[u8], is_wanted: bool) {
        let mut message = vec![u8::from(is_wanted)];
        message.extend_from_slice(topic);
        self.inbox.queue.push_back(Frame::copy_of(&message));
        self.tell_readable();
    }

    /// XPUB_MANUAL: the program takes this message; if it is a request, its sender is the one to be answered.
    #[inline]
    pub(super) fn note_subscriber(&mut self, frame: &Frame) {
        let is_it = |(_, topic, is_wanted): &mut (Option<ConnRef>, Vec<u8>, bool)| {
            frame.bytes().split_first() == Some((&u8::from(*is_wanted), topic.as_slice()))
        };
        if self.pattern.asked.front_mut().is_some_and(is_it)
            && let Some((peer, ..)) = self.pattern.asked.pop_front()
        {
            self.pattern.last_subscriber = peer;
        }
    }

    /// XPUB_MANUAL: the program subscribes, or unsubscribes, the one whose request it has taken last.
    pub(crate) fn subscribe_last(&mut self, topic: &[u8], is_wanted: bool) -> Result<()> {
        let Some(last) = self.pattern.last_subscriber.filter(|last| self.known(*last).is_some()) else {
            return Err(Error::invalid("no subscription request was received, or its peer has disconnected"));
        };
        if is_wanted {
            self.pattern.subscribers.insert(topic, last.index);
        } else {
            self.pattern.subscribers.remove(topic, last.index);
        }
        Ok(())
    }

    /// Removes a subscriber with all its subscriptions.
    pub(super) fn forget_subscriber(&mut self, index: u32) {
        for members in self.pattern.groups.values_mut() {
            members.retain(|other| *other != index);
        }
        self.pattern.groups.retain(|_, members| !members.is_empty());
        // XPUB_MANUAL: what it has asked for, whatever the program has made of that.
        let mut gone = Vec::new();
        self.pattern.requested.remove_all(index, |topic, _| gone.push(topic.to_vec()));
        for topic in &gone {
            self.pattern.asked.push_back((None, topic.clone(), false));
        }
        let is_verboser = self.options.xpub_verboser;
        let is_manual = self.options.xpub_manual;
        self.pattern.subscribers.remove_all(index, |topic, is_last| {
            if !is_manual && (is_last || is_verboser) {
                gone.push(topic.to_vec());
            }
        });
        if self.kind == XPub && !self.is_closing {
            for topic in gone {
                self.tell_program(&topic, false);
            }
        }
    }

    // --- groups --------------------------------------------------------------------------------------------

    /// DISH: joins a group, or leaves it.
    pub(crate) fn join(&mut self, group: &str, is_join: bool) -> Result<()> {
        if self.kind != Dish {
            return Err(Error::not_supported(format!("a {} socket has no groups", self.kind.name())));
        }
        if group.len() > 255 {
            return Err(Error::invalid("a group's name has at most 255 bytes"));
        }
        let is_news = if is_join {
            self.pattern.joined.insert(group.to_owned())
        } else {
            self.pattern.joined.remove(group)
        };
        if !is_news {
            let what = if is_join { "joined already" } else { "not joined" };
            return Err(Error::invalid(format!("the group {group:?} is {what}")));
        }
        for index in self.indices() {
            if self.conn(index).is_some_and(|conn| conn.is_ready()) {
                self.tell_group(index, group, is_join);
                self.flush(index);
            }
        }
        Ok(())
    }

    pub(super) fn tell_groups(&mut self, index: u32) {
        let groups: Vec<String> = self.pattern.joined.iter().cloned().collect();
        for group in groups {
            self.tell_group(index, &group, true);
        }
    }

    fn tell_group(&mut self, index: u32, group: &str, is_join: bool) {
        let Some(conn) = self.conn(index) else { return };
        if conn.is_inproc() {
            let mut message = vec![u8::from(is_join)];
            message.extend_from_slice(group.as_bytes());
            return self.push_to(index, &[], &[Out::copied(&message)]);
        }
        let group = group.as_bytes();
        let command = if is_join { Command::Join(group) } else { Command::Leave(group) };
        self.send_command(index, &command);
    }

    /// RADIO: a peer has joined a group, or left it.
    pub(super) fn joined(&mut self, index: u32, group: &[u8], is_join: bool) {
        if self.kind != Radio {
            return;
        }
        let members = self.pattern.groups.entry(group.to_vec()).or_default();
        members.retain(|other| *other != index);
        if is_join {
            members.push(index);
        } else if members.is_empty() {
            self.pattern.groups.remove(group);
        }
    }
}
