//! Bytes in and out of connections.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use ropewalk_os::epoll::Interest;
use ropewalk_zmtp::{Command, Session, code};

use super::SocketState;
use crate::background::Notice;
use crate::conn::{Link, Phase};
use crate::incoming::{Read, Violation};
use crate::mailbox::Gather;
use crate::monitor::event;
use crate::outgoing::Flushed;

/// Queued bytes from which on they are written anyway.
const CHUNK: u64 = 64 * 1024;
/// The same through shared memory.
const HANDFUL: u64 = 16 * 1024;
/// What a peer in shared memory pays for a write: it fetches the changed cache lines.
const FETCH: Duration = Duration::from_nanos(500);
/// The most bytes that are encrypted ahead of what the kernel takes.
const CIPHER: usize = 64 * 1024;
/// A stream without frames counts as messages of so many bytes, as libzmq reads them.
const RAW: usize = 8 * 1024;
/// The most reads of one connection in a row before others have their turn.
const READS: usize = 8;

impl SocketState {
    // --- out -----------------------------------------------------------------------------------------------

    /// Bytes were queued: writes them now, or leaves them for more to come.
    #[inline]
    pub(super) fn pushed(&mut self, index: u32) {
        let Some(conn) = self.conns[index as usize].as_deref_mut() else { return };
        if conn.is_blocked || !conn.is_ready() {
            return; // It goes out when the kernel takes more, or when the handshake is over.
        }
        if conn.is_awaited() {
            // Its peer waits for this message. It says nothing about the rate of messages, so it does not count as a
            // write that later ones should wait for.
            return self.flush(index);
        }
        let (is_first, bytes) = (conn.left_at.is_none(), conn.outgoing.bytes());
        if let Link::Shm(link) = &conn.link {
            // There is no system call to save, but each write takes a cache line from a peer that polls it. A peer that
            // has not read the last write yet gets more at a time.
            if self.is_calm || (is_first && link.is_drained()) || bytes >= HANDFUL {
                self.is_calm = false;
                return self.flush(index);
            }
        }
        let is_much = bytes >= CHUNK;
        if !is_first && !is_much && !self.pace.asks() {
            return;
        }
        let now = Instant::now();
        if self.is_calm || is_much || self.pace.may_write(now) {
            self.is_calm = false;
            self.write(index, now);
        } else if is_first {
            self.leave(index, now);
        }
    }

    /// Writes, and counts the time that it takes.
    fn write(&mut self, index: u32, now: Instant) {
        let Some(conn) = self.conns[index as usize].as_deref() else { return };
        let messages = match conn.outgoing.messages() {
            // Commands, such as subscriptions. A program that makes many of them waits for none: each byte counts as
            // much as a message, so that a row of them soon shares its writes.
            0 => conn.outgoing.bytes() as usize,
            messages => messages,
        };
        // A peer in shared memory pays, too.
        let more = if matches!(conn.link, Link::Shm(_)) { FETCH } else { Duration::ZERO };
        self.flush(index);
        self.pace.wrote(now, Instant::now() + more, messages);
    }

    /// The queued bytes are written by a later message, by the next check, or by the background.
    fn leave(&mut self, index: u32, now: Instant) {
        let Some(conn) = self.conns[index as usize].as_deref_mut() else { return };
        conn.left_at = Some(now);
        self.leavings += 1;
        if std::mem::replace(&mut conn.is_listed, true) {
            return;
        }
        let conn_ref = conn.me;
        self.unsent.push(conn_ref);
        if self.me.mailbox.gather() == Gather::Begins {
            self.notify(Notice::Unsent(self.me.id));
        }
    }

    /// Writes as much as the kernel takes.
    pub(super) fn flush(&mut self, index: u32) {
        let Self { conns, spare_out, spare_cipher, .. } = self;
        let Some(conn) = conns.get_mut(index as usize).and_then(Option::as_deref_mut) else { return };
        let Some(mut wire) = conn.link.wire() else { return };
        (conn.left_at, conn.has_replied) = (None, false);
        let mut is_blocked = false;
        let mut is_broken = false;
        let mut body = Vec::new();
        loop {
            while conn.urgent_at < conn.urgent.len() {
                match wire.send(&conn.urgent[conn.urgent_at..]) {
                    Ok(sent) => conn.urgent_at += sent,
                    Err(error) => {
                        is_blocked = error.kind() == std::io::ErrorKind::WouldBlock;
                        is_broken = !is_blocked;
                        break;
                    }
                }
            }
            if is_blocked || is_broken {
                break;
            }
            conn.urgent.clear();
            conn.urgent_at = 0;
            if !matches!(conn.phase, Phase::Ready | Phase::Aside) {
                break;
            }
            if let Session::Curve(session) = &mut conn.session {
                if conn.outgoing.is_empty() {
                    break;
                }
                if conn.urgent.capacity() == 0 {
                    std::mem::swap(&mut conn.urgent, spare_cipher);
                }
                while conn.urgent.len() < CIPHER {
                    let Some(flags) = conn.outgoing.pop_frame(&mut body) else { break };
                    session.encrypt(flags, &body, &mut conn.urgent);
                }
                continue;
            }
            match conn.outgoing.flush(&mut wire) {
                Ok(Flushed::All) => {}
                Ok(Flushed::Blocked) => is_blocked = true,
                Err(_) => is_broken = true,
            }
            break;
        }
        wire.finish();
        if conn.urgent.is_empty() && conn.urgent.capacity() > 0 {
            if conn.urgent.capacity() > spare_cipher.capacity() {
                std::mem::swap(&mut conn.urgent, spare_cipher);
            }
            conn.urgent = Vec::new();
        }
        conn.outgoing.return_room(spare_out);
        if is_broken {
            // The peer's bytes from before its end are still there.
            self.read_all(index);
            return self.lost(index);
        }
        let Some(conn) = self.conn(index) else { return };
        if conn.is_blocked != is_blocked {
            conn.is_blocked = is_blocked;
            self.update_interest(index);
        }
        if self.balances() && self.room(index) {
            self.make_willing(index);
        }
        if !is_blocked {
            self.flushed(index);
        }
    }

    // --- what the set tells of it --------------------------------------------------------------------------

    pub(super) fn update_interest(&mut self, index: u32) {
        let Some(conn) = self.conns.get(index as usize).and_then(Option::as_deref) else { return };
        let set = &self.me.set;
        let token = conn.me.token();
        // A peer in shared memory is not armed while reading is paused, and itself sees when there is no room.
        let Link::Stream(fd) = &conn.link else { return };
        let interest = match (!conn.is_paused, conn.is_blocked) {
            _ if conn.is_aside() && conn.is_blocked => Interest::END | Interest::WRITE,
            _ if conn.is_aside() => Interest::END,
            (true, true) => Interest::READ | Interest::WRITE,
            (true, false) => Interest::READ,
            (false, true) => Interest::WRITE,
            // A set reports ends even without any interest.
            (false, false) => {
                let _ = set.remove(fd.as_fd());
                return;
            }
        };
        if set.modify(fd.as_fd(), token, interest).is_err() {
            let _ = set.add(fd.as_fd(), token, interest);
        }
    }

    /// Nothing more is read for now.
    pub(super) fn pause(&mut self, index: u32) {
        if let Some(conn) = self.conn(index)
            && !conn.is_paused
        {
            conn.is_paused = true;
            self.update_interest(index);
        }
    }

    /// There is room for more.
    pub(super) fn resume(&mut self, index: u32) {
        if let Some(conn) = self.conn(index)
            && conn.is_paused
        {
            conn.is_paused = false;
            conn.is_readable = true;
            self.update_interest(index);
            self.heat(index);
        }
    }

    // --- in ------------------------------------------------------------------------------------------------

    /// Reads once, and counts the messages. False if nothing has arrived, or the connection is gone.
    pub(super) fn fill(&mut self, index: u32) -> bool {
        let Self { conns, spare_in, .. } = self;
        let Some(conn) = conns.get_mut(index as usize).and_then(Option::as_deref_mut) else { return false };
        let Some(mut wire) = conn.link.wire() else {
            conn.is_readable = false;
            return false;
        };
        let is_encrypted = matches!(conn.session, Session::Curve(_));
        conn.incoming.borrow_room(spare_in);
        conn.has_replied = true;
        match conn.incoming.read(&mut wire, is_encrypted) {
            Ok(Read::Some(_)) => {}
            // The end of a link through shared memory is not reported again.
            Ok(Read::Drained(_)) => {
                conn.is_readable = matches!(&conn.link, Link::Shm(link) if link.is_over());
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                conn.is_readable = false;
                conn.incoming.return_room(spare_in);
                return false;
            }
            Ok(Read::End) | Err(_) => {
                conn.is_readable = false;
                self.lost(index);
                return false;
            }
        }
        if conn.heart.is_some() {
            self.note_arrival(index);
        }
        self.count(index)
    }

    /// Counts the messages that have arrived, and handles commands. False if the connection is gone.
    pub(super) fn count(&mut self, index: u32) -> bool {
        let (limit, most, bytes) = (self.options.maxmsgsize, self.options.rcvhwm, self.options.rcvhwm_bytes);
        let Some(conn) = self.conn(index) else { return false };
        let mut counted = match &mut conn.session {
            Session::Curve(session) => conn.incoming.decrypt(session, limit, most),
            Session::Clear => conn.incoming.scan(limit),
        };
        // One message is read to its end, so it may not be without one.
        if let (Some(limit), 1..) = (limit, bytes)
            && conn.incoming.messages() == 0
            && conn.incoming.held() as u64 > limit.saturating_add(bytes as u64)
        {
            counted = counted.and(Err(Violation::TooLarge));
        }
        if let Err(violation) = counted {
            let code = match violation {
                Violation::Session(code) => code,
                Violation::Header | Violation::TooLarge | Violation::TooManyParts => {
                    code::ZMTP_MALFORMED_COMMAND_MESSAGE
                }
            };
            // The bytes before it were valid.
            self.handle_commands(index);
            self.violated(index, code);
            return false;
        }
        if conn.incoming.has_commands() && !self.handle_commands(index) {
            self.violated(index, code::ZMTP_MALFORMED_COMMAND_UNSPECIFIED);
        }
        self.conn(index).is_some_and(|conn| conn.is_ready())
    }

    /// The peer has broken the protocol: reports it to the monitor, and closes the connection.
    fn violated(&mut self, index: u32, code: i32) {
        if let Some(address) = self.conn(index).map(|conn| conn.endpoint.clone()) {
            self.tell(event::HANDSHAKE_FAILED_PROTOCOL, code, &address);
            self.lost(index);
        }
    }

    /// False if one of the commands is malformed.
    fn handle_commands(&mut self, index: u32) -> bool {
        while let Some(body) = self.conn(index).and_then(|conn| conn.incoming.take_command()) {
            match Command::parse(&body) {
                Ok(Command::Ping { ttl, context }) => self.pinged(index, ttl, context),
                Ok(Command::Subscribe(topic)) => self.subscription(index, topic, true),
                Ok(Command::Cancel(topic)) => self.subscription(index, topic, false),
                Ok(Command::Join(group)) => self.joined(index, group, true),
                Ok(Command::Leave(group)) => self.joined(index, group, false),
                // Unknown commands are ignored (ZMTP 3.1, "commands").
                Ok(_) => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// Reads until there is no more, the high-water mark is reached, or others should have their turn.
    pub(super) fn read_ahead(&mut self, index: u32) {
        let is_eager = self.is_eager();
        for _ in 0..READS {
            if is_eager {
                self.digest(index);
            } else if self.is_full(index) {
                if self.options.conflates(self.kind) {
                    self.keep_last(index);
                } else {
                    self.pause(index);
                    break;
                }
            }
            if !self.conn(index).is_some_and(|conn| conn.is_readable) || !self.fill(index) {
                break;
            }
        }
        if is_eager {
            self.digest(index);
        }
        if self.conn(index).is_some_and(|conn| conn.has_message()) {
            self.activate(index);
        }
    }

    /// Reads everything, without regard to limits: the connection is about to be removed. True if there was anything.
    pub(super) fn read_all(&mut self, index: u32) -> bool {
        let mut any = false;
        if let Some(conn) = self.conn(index)
            && conn.is_ready()
        {
            conn.is_readable = true;
        }
        while self.conn(index).is_some_and(|conn| conn.is_readable && conn.is_ready()) {
            if !self.fill(index) {
                break;
            }
            any = true;
            if self.is_eager() {
                self.digest(index);
            }
        }
        if self.conn(index).is_some_and(|conn| conn.has_message()) {
            self.activate(index);
        }
        any
    }

    /// Messages that came with a handshake are handled at once, by the types that do so.
    pub(super) fn read_if_eager(&mut self, index: u32) {
        if let Some(conn) = self.conn(index) {
            conn.is_readable = true;
        }
        if self.is_eager() {
            self.read_ahead(index);
        } else {
            self.activate(index);
        }
    }

    fn is_full(&mut self, index: u32) -> bool {
        let (most, bytes) = (self.options.rcvhwm, self.options.rcvhwm_bytes);
        let conflates = self.options.conflates(self.kind);
        let Some(conn) = self.conn(index) else { return false };
        let most = if conflates { 2 } else { most };
        // A stream without frames is one message, however much it is.
        let bytes = match bytes {
            0 if conn.incoming.is_raw => most.saturating_mul(RAW),
            bytes => bytes,
        };
        let messages = conn.incoming.messages();
        // Whatever the limit in bytes is, one message is read to its end: nothing else would make room for it.
        (most > 0 && messages >= most) || (bytes > 0 && messages > 0 && conn.incoming.held() >= bytes)
    }

    /// Of the messages that are here, only the last one is kept.
    pub(super) fn keep_last(&mut self, index: u32) {
        if let Some(conn) = self.conn(index) {
            while conn.incoming.messages() > 1 {
                conn.skip_message();
            }
        }
    }
}
