//! Connections to other sockets of the process: one connects to a name, and the other learns of it by mail.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use ropewalk_zmtp::SocketType;

use super::SocketState;
use crate::conn::{Link, Phase};
use crate::conn_ref::ConnRef;
use crate::lane::{self, Arrival};
use crate::mail::Mail;

impl SocketState {
    pub(super) fn connect_inproc(&mut self, index: u32, name: &str) {
        let (sndhwm, rcvhwm) = (self.options.sndhwm, self.options.rcvhwm);
        let is_named = self.dial_of(index).is_some_and(|dial| dial.routing_id.is_some());
        let Some(conn) = self.conn(index) else { return };
        let conn_ref = conn.me;
        let registry = Arc::clone(&self.registry);
        let mut names = registry.names.lock();
        let found = names.find(name);
        let limits = found.as_ref().map_or((sndhwm, rcvhwm), |other| {
            let theirs = other.limits();
            (lane::joint_limit(sndhwm, theirs.1), lane::joint_limit(theirs.0, rcvhwm))
        });
        let (mine, theirs) = lane::pair(limits.0, limits.1);
        mine.settle(&self.me, conn_ref, self.is_eager());
        self.me.has_lanes.store(true, Ordering::Relaxed);
        let arrival = Arrival {
            end: theirs,
            kind: self.kind,
            identity: self.options.routing_id.clone(),
            marks: found.is_none().then_some((sndhwm, rcvhwm)),
            from: Arc::downgrade(&self.me) as Weak<_>,
            conn_ref,
        };
        let peer = found.as_ref().map(|other| (other.kind, other.identity()));
        match found {
            Some(other) => {
                drop(names);
                if arrival.kind.accepts(other.kind) {
                    // The new connection may be owed a first message, by a program that makes no calls.
                    other.post(Mail::Arrived(Box::new(arrival)), true);
                }
            }
            None => names.wait(name, arrival),
        }
        if let Some(conn) = self.conn(index) {
            conn.link = Link::Inproc(mine);
            conn.phase = Phase::Ready;
            if let Some((kind, identity)) = peer {
                conn.peer = kind;
                if !is_named {
                    conn.identity = identity;
                }
            }
        }
        self.ready(index);
    }

    /// Whether a message now would wake a thread of this process. Of many connections it is not asked.
    pub(crate) fn would_wake(&self) -> bool {
        const FEW: usize = 8;
        self.conns.len() <= FEW
            && self
                .conns
                .iter()
                .flatten()
                .any(|conn| matches!(&conn.link, Link::Inproc(end) if end.would_wake()))
    }

    /// A socket of the process has connected.
    pub(super) fn arrived(&mut self, arrival: Arrival) {
        let Arrival { end, kind, identity, marks, from, conn_ref } = arrival;
        if !kind.accepts(self.kind) || self.is_closing {
            return;
        }
        let index = self.add_conn();
        let (me, is_urgent) = (Arc::clone(&self.me), self.is_eager());
        let own = self.options.routing_id.clone();
        let (sndhwm, rcvhwm) = (self.options.sndhwm, self.options.rcvhwm);
        let Some(conn) = self.conn(index) else { return };
        if let Some((theirs_out, theirs_in)) = marks {
            end.limit(lane::joint_limit(sndhwm, theirs_in), lane::joint_limit(theirs_out, rcvhwm));
        }
        end.settle(&me, conn.me, is_urgent);
        me.has_lanes.store(true, Ordering::Relaxed);
        conn.link = Link::Inproc(end);
        conn.phase = Phase::Ready;
        conn.peer = kind;
        conn.identity = identity;
        if let Some(other) = from.upgrade() {
            other.met(conn_ref, own);
        }
        self.adopt(index, None);
        self.ready(index);
        self.lane_changed(index);
    }

    /// The socket to which this one connected early is bound now.
    pub(super) fn met(&mut self, conn_ref: ConnRef, identity: Vec<u8>) {
        let is_free = self.kind == SocketType::Router
            && !identity.is_empty()
            && !self.options.router_own_ids
            && !self.pattern.ids.contains_key(&identity)
            && self.dial_of(conn_ref.index).is_none_or(|dial| dial.routing_id.is_none());
        if is_free && self.known(conn_ref).is_some() {
            self.rename(conn_ref.index, identity);
        }
    }
}
