//! The end of connections and sockets, without avoidable loss of messages.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ropewalk_os::stream;

use super::SocketState;
use super::due::{Due, SOCKET};
use crate::background::Notice;
use crate::conn::{Link, Phase};
use crate::incoming::Incoming;
use crate::monitor::event;
use crate::outgoing::Outgoing;

/// Unread bytes of a peer are taken from the kernel before a close, up to this many: otherwise the kernel would answer
/// with a reset, which destroys the bytes that were sent to the peer last.
const DISCARD: usize = 4 << 20;

impl SocketState {
    /// The peer is gone, or must be disconnected. A connection that this end has made is made again.
    pub(super) fn lost(&mut self, index: u32) {
        let is_inproc = match self.conn(index) {
            Some(conn) => conn.is_inproc(),
            None => return,
        };
        if is_inproc {
            return self.end(index);
        }
        let is_over = self.dial_of(index).is_none_or(|dial| dial.is_over);
        if is_over {
            return self.end(index);
        }
        let was_ready = self.conn(index).is_some_and(|conn| conn.is_ready());
        if let Some(conn) = self.conn(index)
            && conn.is_aside()
        {
            conn.incoming = Incoming::default();
        }
        self.hang_up(index);
        self.detach(index, false);
        let generation = self.next_generation();
        let (is_raw, is_closing) = (self.is_raw(), self.is_closing);
        let Some(conn) = self.conn(index) else { return };
        conn.me.generation = generation;
        conn.phase = Phase::Waiting;
        let outgoing = std::mem::take(&mut conn.outgoing);
        conn.outgoing = if is_raw { Outgoing::default() } else { outgoing.recover() };
        if was_ready {
            conn.incoming.cut();
            if let Some(message) = self.options.hiccup_msg.clone() {
                self.take_over(index);
                self.note_peer(index, &message);
            }
        }
        let Some(conn) = self.conn(index) else { return };
        if (is_closing || conn.is_parting) && conn.outgoing.is_empty() {
            return self.end(index);
        }
        if let Some(until) = conn.linger_until {
            let conn_ref = conn.me;
            self.note(until, conn_ref, Due::Linger);
        }
        if self.conn(index).is_some_and(|conn| conn.has_message()) {
            self.activate(index);
        }
        self.connect_again(index);
    }

    /// Ends a connection for good. Messages that arrived before may still be taken.
    pub(super) fn end(&mut self, index: u32) {
        if self.conn(index).is_none() {
            return;
        }
        let was_aside = self.conn(index).is_some_and(|conn| conn.is_aside());
        self.hang_up(index);
        self.detach(index, true);
        let is_closing = self.is_closing;
        let Some(conn) = self.conn(index) else { return };
        if let Some(place) = conn.dial.take() {
            self.dials[place as usize] = None;
        }
        let Some(conn) = self.conn(index) else { return };
        let has_message = !is_closing && !was_aside && conn.has_message();
        conn.phase = Phase::Ended;
        if conn.is_willing {
            conn.is_willing = false;
            self.willing.retain(|other| *other != index);
        }
        let Some(conn) = self.conn(index) else { return };
        conn.outgoing = Outgoing::default();
        if has_message {
            conn.incoming.cut();
            self.activate(index);
        } else if self.inbox.current != Some(index) {
            self.remove_conn(index);
        }
        self.tell_readable();
    }

    /// Closes its link.
    fn hang_up(&mut self, index: u32) {
        let Some(conn) = self.conn(index) else { return };
        (conn.is_blocked, conn.is_paused, conn.is_readable, conn.is_listed) = (false, false, false, false);
        conn.left_at = None;
        let conn_ref = conn.me;
        let beat = conn.heart.take().and_then(|heart| heart.noted);
        let greeting = match &conn.phase {
            Phase::Greeting(greeting) => Some(greeting.until),
            _ => None,
        };
        conn.urgent = Vec::new();
        conn.urgent_at = 0;
        let address = conn.endpoint.clone();
        if let Some(beat) = beat {
            self.due.remove(&(beat, conn_ref, Due::Beat));
        }
        if let Some(until) = greeting {
            self.forget_greeting(conn_ref, until);
        }
        let Some(conn) = self.conn(index) else { return };
        match &mut conn.link {
            Link::Stream(_) | Link::Offered(_) | Link::Shm(_) => {
                let fd = match std::mem::replace(&mut conn.link, Link::None) {
                    Link::Stream(fd) | Link::Offered(fd) => fd,
                    Link::Shm(link) => link.into_fd(),
                    Link::None | Link::Inproc(_) => return,
                };
                let number = std::os::fd::AsRawFd::as_raw_fd(&fd);
                // libzmq's words: what has begun its handshake is disconnected, whatever became of that.
                let was_up = !matches!(conn.phase, Phase::Waiting | Phase::Connecting);
                // Its memory would stay mapped for as long as its words may be looked at.
                self.forget_hot(conn_ref);
                self.unwatch(fd.as_fd());
                close_gently(fd);
                self.tell(if was_up { event::DISCONNECTED } else { event::CLOSED }, number, &address);
            }
            // It is dropped with the connection, when its messages are taken.
            Link::Inproc(_) | Link::None => {}
        }
    }

    /// Ends an unwanted connection once its queued messages are sent, for which it may still have to be made; they have
    /// as long as those of a closed socket.
    pub(super) fn part(&mut self, index: u32) {
        self.flush(index);
        let linger = self.options.linger;
        let Some(conn) = self.conn(index) else { return };
        let has_way = conn.is_ready() || conn.dial.is_some();
        // Encrypted bytes are on their way, too; those of a handshake are no messages.
        let is_sent = conn.outgoing.is_empty() && (!conn.is_ready() || conn.is_flushed());
        if conn.is_inproc() || conn.is_ended() || conn.is_aside() || !has_way || is_sent {
            return self.end(index);
        }
        if linger == Some(Duration::ZERO) {
            return self.end(index);
        }
        self.detach(index, true);
        let Some(conn) = self.conn(index) else { return };
        conn.is_parting = true;
        let conn_ref = conn.me;
        if std::mem::replace(&mut conn.is_willing, false) {
            self.willing.retain(|other| *other != index);
        }
        let until = linger.and_then(|wait| Instant::now().checked_add(wait));
        if let Some(until) = until {
            if let Some(conn) = self.conn(index) {
                conn.linger_until = Some(until);
            }
            self.note(until, conn_ref, Due::Linger);
        }
    }

    /// Everything that a connection had is sent.
    pub(super) fn flushed(&mut self, index: u32) {
        let is_closing = self.is_closing;
        if let Some(conn) = self.conn(index)
            && conn.is_ready()
            && conn.is_flushed()
            && (is_closing || conn.is_parting)
        {
            self.end(index);
            self.finish_closing();
        }
    }

    // --- the socket ----------------------------------------------------------------------------------------

    /// Begins to close: queued messages are sent, for as long as `linger` allows.
    pub(crate) fn close(&mut self, linger: Option<Duration>) {
        if self.is_closing {
            return;
        }
        self.is_closing = true;
        self.parts.clear();
        self.inbox = super::Inbox::default();
        self.close_all_bound();
        self.settle();
        for index in self.indices() {
            self.flush(index);
            let is_now = linger == Some(Duration::ZERO);
            let Some(conn) = self.conn(index) else { continue };
            if is_now || conn.is_flushed() || conn.is_inproc() || conn.is_ended() || conn.is_aside() {
                self.end(index);
            }
        }
        if let Some(wait) = linger
            && self.conns.iter().any(Option::is_some)
        {
            self.note_after(wait, SOCKET, Due::Linger);
        }
        self.finish_closing();
    }

    /// Drops the messages that were not sent.
    pub(super) fn abandon(&mut self) {
        for index in self.indices() {
            self.end(index);
        }
    }

    /// Notifies the context when the socket has finished.
    pub(crate) fn finish_closing(&mut self) {
        if !self.is_closing || self.is_gone || self.conns.iter().any(Option::is_some) {
            return;
        }
        self.is_gone = true;
        self.monitor = None;
        let id = self.id();
        if self.me.is_served.load(Ordering::SeqCst) {
            self.notify(Notice::Remove(id));
        }
        self.registry.closed(id);
    }
}

/// Hangs up without a reset.
fn close_gently(fd: OwnedFd) {
    let _ = stream::shut_down_sending(fd.as_fd());
    discard(fd.as_fd());
}

fn discard(fd: BorrowedFd<'_>) {
    let (mut buffer, mut total) = ([0; 16 * 1024], 0);
    while let Ok(got @ 1..) = stream::recv_buf(fd, &mut &mut buffer[..], usize::MAX) {
        total += got;
        if total > DISCARD {
            return;
        }
    }
}
