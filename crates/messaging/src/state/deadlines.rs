//! Deadlines: reconnections and given-up attempts, handshakes that took too long, heartbeats, and the end of a linger.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use ropewalk_os::net;
use ropewalk_zmtp::frame::{self, COMMAND};
use ropewalk_zmtp::{Command, SocketType};

use super::SocketState;
use super::due::{Due, SOCKET};
use crate::background::Notice;
use crate::conn::{Heart, Link, Phase};
use crate::conn_ref::ConnRef;
use crate::monitor::event;

/// The most PINGs that are answered while the kernel takes no more.
const MOST_PONGS: u8 = 64;
/// A peer that was set aside is asked so often whether it lives, at first as soon as heartbeats ask.
pub(super) const ROUND: Duration = Duration::from_secs(30);

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
                (Due::Beat, Phase::Aside) => self.judge_whether_alive(conn_ref.index),
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

    /// A peer that was set aside is not read from, and might be gone without a word: it would keep a descriptor for
    /// ever, and get the name when that is free. So it is asked, and its answer stays in the kernel.
    pub(super) fn ask_whether_alive(&mut self, index: u32, patience: Duration) {
        let Some(at) = Instant::now().checked_add(patience) else { return };
        let is_kernel_s = self.options.tcp_keepalive == -1;
        let Some(conn) = self.conn(index) else { return };
        if conn.minor == 0 {
            // It does not know the question (ZMTP 3.0), so the two kernels speak to each other, if TCP is between them.
            if let (Link::Stream(fd), true) = (&conn.link, is_kernel_s) {
                let round = u32::try_from(ROUND.as_secs()).ok();
                let _ = net::set_keepalive(fd.as_fd(), Some(true), None, round, round);
            }
            return;
        }
        if conn.is_inproc() {
            return;
        }
        conn.heart = Some(Box::new(Heart { next: None, dead: Some(at), forget: None, noted: None }));
        // What blocks is in the care of the kernel, which gives up by itself.
        let is_blocked = conn.is_blocked;
        self.note_beat(index, at);
        if !is_blocked {
            self.send_command(index, &Command::Ping { ttl: 0, context: &[] });
        }
    }

    fn judge_whether_alive(&mut self, index: u32) {
        let patience = self.options.heartbeat_patience();
        let Some(conn) = self.conn(index) else { return };
        conn.heart = None;
        if conn.is_blocked || conn.has_unread() {
            self.ask_whether_alive(index, ROUND.max(patience.unwrap_or(ROUND)));
        } else {
            self.lost(index);
        }
    }

    /// Sends a command behind what is on its way.
    pub(super) fn send_command(&mut self, index: u32, command: &Command<'_>) {
        let (mut body, mut framed) = (Vec::new(), Vec::new());
        command.encode(&mut body);
        frame::encode(&mut framed, COMMAND, &body);
        if let Some(conn) = self.conn(index)
            && (conn.is_ready() || conn.is_aside())
        {
            conn.outgoing.push_plain(&framed);
            self.flush(index);
        }
    }
}
