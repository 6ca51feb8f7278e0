//! Deadlines: reconnections and given-up attempts, handshakes that took too long, heartbeats, and the end of a linger.

use std::time::{Duration, Instant};

use ropewalk_zmtp::frame::{self, COMMAND};
use ropewalk_zmtp::{Command, SocketType};

use super::SocketState;
use super::due::{Due, SOCKET};
use crate::background::Notice;
use crate::conn::{Heart, Phase};
use crate::conn_ref::ConnRef;
use crate::monitor::event;

/// The most PINGs that are answered while the kernel takes no more.
const MOST_PONGS: u8 = 64;

impl SocketState {
    /// Records a deadline.
    pub(super) fn note(&mut self, at: Instant, conn_ref: ConnRef, due: Due) {
        self.due.insert((at, conn_ref, due));
        if self.notified.is_none_or(|notified| at < notified) {
            self.notified = Some(at);
            self.notify(Notice::Deadline(self.id(), at));
        }
    }

    pub(super) fn note_after(&mut self, wait: Duration, conn_ref: ConnRef, due: Due) {
        if let Some(at) = Instant::now().checked_add(wait) {
            self.note(at, conn_ref, due);
        }
    }

    /// Does what is due.
    pub(crate) fn run_deadlines(&mut self, now: Instant) {
        self.notified = None;
        while let Some(&(at, conn_ref, due)) = self.due.first()
            && at <= now
        {
            self.due.pop_first();
            if conn_ref == SOCKET {
                match due {
                    Due::Linger => self.abandon(),
                    _ => self.listen_again(),
                }
                continue;
            }
            let Some(conn) = self.known(conn_ref) else { continue };
            match (due, &conn.phase) {
                (Due::Reconnect, Phase::Waiting) => self.dial(conn_ref.index),
                (Due::Connect, Phase::Connecting) => {
                    let address = conn.endpoint.clone();
                    self.tell(event::CLOSED, 0, &address);
                    self.lost(conn_ref.index);
                }
                (Due::Handshake, Phase::Greeting(_)) => {
                    let address = conn.endpoint.clone();
                    self.tell(event::HANDSHAKE_FAILED_NO_DETAIL, 110, &address);
                    self.lost(conn_ref.index);
                }
                (Due::Beat, Phase::Ready) => self.beat(conn_ref.index, now),
                (Due::Linger, _) if conn.is_parting => self.end(conn_ref.index),
                _ => {}
            }
        }
        if let Some(&(at, ..)) = self.due.first() {
            self.notified = Some(at);
            self.notify(Notice::Deadline(self.id(), at));
        }
        self.finish_closing();
    }

    // --- heartbeats (ZMTP 3.1, "PING and PONG") ------------------------------------------------------------

    /// After a handshake: heartbeats begin, if they are configured.
    pub(super) fn begin_heart(&mut self, index: u32) {
        let Some(interval) = self.options.heartbeat_ivl.filter(|interval| !interval.is_zero()) else {
            return;
        };
        let next = Instant::now() + interval;
        let Some(conn) = self.conn(index) else { return };
        if conn.minor == 0 || conn.peer == SocketType::Stream {
            return;
        }
        conn.heart = Some(Box::new(Heart { next: Some(next), dead: None, forget: None, noted: None }));
        self.note_beat(index, next);
    }

    /// Records the next deadline of the heartbeat, unless there is an earlier one: there is one for each connection,
    /// however often its peer pings.
    fn note_beat(&mut self, index: u32, at: Instant) {
        let Some(conn) = self.conn(index) else { return };
        let me = conn.me;
        let Some(heart) = conn.heart.as_mut().filter(|heart| heart.noted.is_none_or(|noted| at < noted))
        else {
            return;
        };
        if let Some(later) = heart.noted.replace(at) {
            self.due.remove(&(later, me, Due::Beat));
        }
        self.note(at, me, Due::Beat);
    }

    fn beat(&mut self, index: u32, now: Instant) {
        let (interval, patience) = (self.options.heartbeat_ivl, self.options.heartbeat_patience());
        let ttl = (self.options.heartbeat_ttl.as_millis() / 100).min(u128::from(u16::MAX)) as u16;
        let Some(conn) = self.conn(index) else { return };
        let Some(heart) = conn.heart.as_mut() else { return };
        heart.noted = None;
        let is_late = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_late(heart.dead) || is_late(heart.forget) {
            // Unread bytes in the kernel are a sign of life, too. Only as many are read as there is room for: otherwise
            // a peer that sends without end to a program that does not receive would fill the memory.
            conn.is_readable = true;
            self.read_ahead(index);
            let Some(conn) = self.conn(index).filter(|conn| conn.is_ready()) else { return };
            let is_waiting = conn.is_paused && conn.has_unread();
            let Some(heart) = conn.heart.as_mut() else { return };
            if is_waiting {
                (heart.dead, heart.forget) = (None, None);
            } else if is_late(heart.dead) || is_late(heart.forget) {
                return self.lost(index);
            }
        }
        let Some(conn) = self.conn(index) else { return };
        let Some(heart) = conn.heart.as_mut() else { return };
        let is_time = is_late(heart.next);
        if is_time {
            heart.next = interval.map(|interval| now + interval);
            if heart.dead.is_none() {
                heart.dead = patience.map(|patience| now + patience);
            }
        }
        let first = [heart.next, heart.dead, heart.forget].into_iter().flatten().min();
        if let Some(first) = first {
            self.note_beat(index, first);
        }
        if is_time {
            self.send_command(index, &Command::Ping { ttl, context: &[] });
        }
    }

    /// Something has arrived from the peer.
    #[inline]
    pub(super) fn note_arrival(&mut self, index: u32) {
        if let Some(heart) = self.conn(index).and_then(|conn| conn.heart.as_mut()) {
            (heart.dead, heart.forget) = (None, None);
        }
    }

    /// Answers a PING; the peer is dropped if it is silent for longer than its time to live.
    pub(super) fn pinged(&mut self, index: u32, ttl: u16, context: &[u8]) {
        let Some(conn) = self.conn(index) else { return };
        conn.pongs = if conn.is_blocked { conn.pongs.saturating_add(1) } else { 0 };
        // A peer that pings and does not read will get enough signs of life.
        if conn.pongs < MOST_PONGS {
            self.send_command(index, &Command::Pong { context: &context[..context.len().min(16)] });
        }
        let Some(conn) = self.conn(index).filter(|conn| conn.is_ready()) else { return };
        if ttl > 0 {
            let at = Instant::now() + Duration::from_millis(u64::from(ttl) * 100);
            let heart = conn
                .heart
                .get_or_insert_with(|| Box::new(Heart { next: None, dead: None, forget: None, noted: None }));
            heart.forget = Some(at);
            self.note_beat(index, at);
        }
    }

    /// Sends a command behind what is on its way.
    pub(super) fn send_command(&mut self, index: u32, command: &Command<'_>) {
        let (mut body, mut framed) = (Vec::new(), Vec::new());
        command.encode(&mut body);
        frame::encode(&mut framed, COMMAND, &body);
        if let Some(conn) = self.conn(index)
            && conn.is_ready()
        {
            conn.outgoing.push_plain(&framed);
            self.flush(index);
        }
    }
}
