//! The incoming bytes of one peer that were not taken yet, with a count of the whole messages in them. A part is found
//! by its header when it is taken, and a small one is copied out. So nothing is allocated for a message before the
//! program takes it, and no message is visible before all of it has arrived.

#[cfg(test)]
mod properties;

use std::collections::VecDeque;
use std::io;
use std::ops::Range;

use bytes::{Buf, BytesMut};
use ropewalk_zmtp::CurveSession;
use ropewalk_zmtp::frame::{self, COMMAND, MORE};

use crate::frame::{Frame, INLINE};
use crate::wire::Wire;

/// One read asks for this much, and for more while reads come back full.
const READ: usize = 64 * 1024;
const MOST_READ: usize = 512 * 1024;
/// No machine holds a frame of this size: a peer that announces one will not send it.
const LARGEST: u64 = 1 << 46;
/// The most parts of one message, so that a peer cannot take all memory.
const MOST_PARTS: u32 = 1 << 20;

/// A peer broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Violation {
    /// A header that no frame has.
    Header,
    /// A frame larger than the socket allows.
    TooLarge,
    /// Too many parts.
    TooManyParts,
    /// A frame does not fit the session's keys: libzmq's number for the failure.
    Session(i32),
}

/// How a read ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// So many bytes; there may be more.
    Some(usize),
    /// So many bytes, and the kernel had no more.
    Drained(usize),
    /// The peer sends no more.
    End,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    /// Frames in the clear; what is before `at` is taken.
    buffer: BytesMut,
    at: usize,
    /// The end of the scanned bytes.
    scanned: usize,
    /// The end of the last whole message.
    whole: usize,
    /// The parts so far of the message that is being scanned.
    parts: u32,
    /// Whole messages that were not taken.
    messages: usize,
    /// The ranges of the unhandled commands.
    commands: VecDeque<Range<usize>>,
    /// Under encryption: the bytes as they were read.
    wire: BytesMut,
    /// The bytes that an incomplete frame lacks.
    lacking: usize,
    full_reads: u8,
    /// Bytes are a stream, not frames.
    pub(crate) is_raw: bool,
}

impl Incoming {
    /// Whole messages that were not taken yet.
    #[inline]
    pub(crate) fn messages(&self) -> usize {
        self.messages
    }

    /// Under encryption: whether there are bytes that were not decrypted.
    pub(crate) fn has_wire(&self) -> bool {
        !self.wire.is_empty()
    }

    /// The number of bytes held.
    pub(crate) fn held(&self) -> usize {
        self.buffer.len() - self.at + self.wire.len()
    }

    /// Adds bytes that were read behind a handshake.
    pub(crate) fn feed(&mut self, bytes: &[u8], is_encrypted: bool) {
        let target = if is_encrypted { &mut self.wire } else { &mut self.buffer };
        target.extend_from_slice(bytes);
    }

    /// The connection broke: drops the incomplete message.
    pub(crate) fn cut(&mut self) {
        self.buffer.truncate(self.whole.max(self.at));
        self.scanned = self.buffer.len();
        self.whole = self.buffer.len();
        (self.parts, self.lacking) = (0, 0);
        self.commands.clear();
        self.wire = BytesMut::new();
    }

    /// Takes room from another if it holds nothing: idle connections keep none.
    #[inline]
    pub(crate) fn borrow_room(&mut self, spare: &mut BytesMut) {
        if self.buffer.capacity() == 0 {
            std::mem::swap(&mut self.buffer, spare);
        }
    }

    /// Gives room back when nothing is held.
    #[inline]
    pub(crate) fn return_room(&mut self, spare: &mut BytesMut) {
        if self.at == self.buffer.len() && self.buffer.capacity() > 0 {
            self.buffer.clear();
            (self.at, self.scanned, self.whole) = (0, 0, 0);
            if spare.capacity() < self.buffer.capacity() {
                std::mem::swap(&mut self.buffer, spare);
            }
            self.buffer = BytesMut::new();
            if self.wire.is_empty() {
                self.wire = BytesMut::new();
            }
        }
    }

    /// Reads once.
    pub(crate) fn read(&mut self, wire: &mut Wire<'_>, is_encrypted: bool) -> io::Result<Read> {
        if self.at == self.buffer.len() {
            self.buffer.clear();
            (self.at, self.scanned, self.whole) = (0, 0, 0);
        }
        let want = (READ << self.full_reads.min(3)).min(MOST_READ).max(self.lacking.min(MOST_READ));
        let target = if is_encrypted { &mut self.wire } else { &mut self.buffer };
        if target.capacity() - target.len() < want.min(READ / 2) {
            if !is_encrypted && self.at > 0 {
                target.advance(self.at);
                self.scanned -= self.at;
                self.whole = self.whole.saturating_sub(self.at);
                for range in &mut self.commands {
                    *range = range.start - self.at..range.end - self.at;
                }
                self.at = 0;
            }
            // Grows with the bytes that have arrived, never with the size that a peer announces.
            target.reserve(want.max(target.len().min(self.lacking)));
        }
        let asked = (target.capacity() - target.len()).min(want.max(READ));
        let got = wire.recv(target, asked)?;
        if got == 0 {
            return Ok(Read::End);
        }
        self.lacking = self.lacking.saturating_sub(got);
        if got < asked {
            self.full_reads = self.full_reads.saturating_sub(u8::from(got < asked / 4));
            Ok(Read::Drained(got))
        } else {
            self.full_reads = (self.full_reads + 1).min(3);
            Ok(Read::Some(got))
        }
    }

    /// Scans the bytes that have arrived. Commands are left for [`take_command`](Self::take_command).
    #[inline]
    pub(crate) fn scan(&mut self, limit: Option<u64>) -> Result<(), Violation> {
        if self.is_raw {
            self.messages = usize::from(self.at < self.buffer.len());
            self.scanned = self.buffer.len();
            self.whole = self.scanned;
            return Ok(());
        }
        let limit = limit.unwrap_or(u64::MAX).min(LARGEST);
        while let Some(header) =
            frame::parse_header(&self.buffer[self.scanned..]).map_err(|_| Violation::Header)?
        {
            if header.size > limit {
                return Err(Violation::TooLarge);
            }
            let have = (self.buffer.len() - self.scanned - header.len) as u64;
            if have < header.size {
                self.lacking = usize::try_from(header.size - have).unwrap_or(usize::MAX);
                break;
            }
            // The frame is in memory, so its size fits a usize.
            let end = self.scanned + header.len + header.size as usize;
            if header.flags & COMMAND != 0 {
                self.commands.push_back(self.scanned + header.len..end);
            } else if header.flags & MORE != 0 {
                self.parts += 1;
                if self.parts > MOST_PARTS {
                    return Err(Violation::TooManyParts);
                }
            } else {
                self.parts = 0;
                self.messages += 1;
                self.whole = end;
            }
            self.scanned = end;
        }
        Ok(())
    }

    /// Decrypts the bytes that have arrived, up to this many messages; 0 is no limit.
    pub(crate) fn decrypt(
        &mut self,
        session: &mut CurveSession,
        limit: Option<u64>,
        most: usize,
    ) -> Result<(), Violation> {
        /// The bytes that the box around a frame adds: the command's name, the nonce, the tag, and the flags.
        const AROUND: u64 = 8 + 8 + 16 + 1;
        let limit = limit.map_or(LARGEST, |limit| limit.saturating_add(AROUND).min(LARGEST));
        let mut plain = Vec::new();
        while most == 0 || self.messages < most {
            let Some(header) = frame::parse_header(&self.wire).map_err(|_| Violation::Header)? else { break };
            if header.size > limit {
                return Err(Violation::TooLarge);
            }
            let have = (self.wire.len() - header.len) as u64;
            if have < header.size {
                self.lacking = usize::try_from(header.size - have).unwrap_or(usize::MAX);
                break;
            }
            let end = header.len + header.size as usize;
            plain.clear();
            let flags = session
                .decrypt(&self.wire[header.len..end], &mut plain)
                .map_err(|error| Violation::Session(error.code()))?;
            let mut head = [0; 9];
            let length = frame::write_header(&mut head, flags, plain.len() as u64);
            self.buffer.extend_from_slice(&head[..length]);
            self.buffer.extend_from_slice(&plain);
            self.wire.advance(end);
            self.scan(None)?;
        }
        Ok(())
    }

    /// Takes the next command.
    pub(crate) fn take_command(&mut self) -> Option<Vec<u8>> {
        let range = self.commands.pop_front()?;
        let command = self.buffer[range].to_vec();
        self.pass_commands();
        Some(command)
    }

    pub(crate) fn has_commands(&self) -> bool {
        !self.commands.is_empty()
    }

    /// If there is no message, and none has begun, all scanned bytes are handled commands, and are dropped. Otherwise a
    /// publisher would keep every subscription that it has ever received.
    #[inline]
    fn pass_commands(&mut self) {
        if self.messages == 0 && self.parts == 0 && self.commands.is_empty() {
            self.at = self.scanned;
        }
    }

    /// The next part's place, and whether another follows; it is taken by [`advance`](Self::advance).
    #[inline]
    fn next(&mut self) -> Option<(Range<usize>, bool)> {
        if self.messages == 0 {
            return None;
        }
        if self.is_raw {
            return Some((self.at..self.buffer.len(), false));
        }
        loop {
            // Scanned before, so the header is there.
            let header = frame::parse_header(&self.buffer[self.at..]).ok()??;
            let start = self.at + header.len;
            let end = start + header.size as usize;
            if header.flags & COMMAND == 0 {
                return Some((start..end, header.flags & MORE != 0));
            }
            self.at = end;
        }
    }

    #[inline]
    fn advance(&mut self, end: usize, more: bool) {
        self.at = end;
        if !more {
            self.messages -= 1;
            self.pass_commands();
        }
    }

    /// Looks at the next part.
    #[inline]
    pub(crate) fn peek(&mut self) -> Option<(&[u8], bool)> {
        let (range, more) = self.next()?;
        Some((&self.buffer[range], more))
    }

    /// Takes the next part, borrowed.
    #[inline]
    pub(crate) fn take_with<T>(&mut self, sink: impl FnOnce(&[u8], bool) -> T) -> Option<T> {
        let (range, more) = self.next()?;
        let end = range.end;
        let taken = sink(&self.buffer[range], more);
        self.advance(end, more);
        Some(taken)
    }

    /// Takes the next part as a frame: a small one is copied, a large one shares the buffer.
    pub(crate) fn take_frame(&mut self) -> Option<Frame> {
        let (range, more) = self.next()?;
        let mut frame = if range.len() <= INLINE || !self.commands.is_empty() {
            let frame = Frame::copy_of(&self.buffer[range.clone()]);
            self.advance(range.end, more);
            frame
        } else {
            let mut body = self.buffer.split_to(range.end);
            body.advance(range.start);
            self.scanned -= range.end;
            self.whole -= range.end;
            self.advance(0, more);
            Frame::received(body.freeze())
        };
        frame.set_more(more);
        Some(frame)
    }

    /// Drops the rest of the message whose next part is not wanted.
    pub(crate) fn skip_message(&mut self) {
        while let Some((range, more)) = self.next() {
            self.advance(range.end, more);
            if !more {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fed(bytes: &[u8]) -> Incoming {
        let mut incoming = Incoming::default();
        incoming.buffer.extend_from_slice(bytes);
        incoming
    }

    fn stream() -> Vec<u8> {
        let mut bytes = Vec::new();
        frame::encode(&mut bytes, MORE, b"a");
        frame::encode(&mut bytes, COMMAND, b"\x04PING\0\0");
        frame::encode(&mut bytes, 0, &[3; 300]);
        frame::encode(&mut bytes, 0, b"");
        bytes
    }

    #[test]
    fn no_message_is_seen_before_all_of_it_is_there() {
        let bytes = stream();
        for cut in 0..=bytes.len() {
            let mut incoming = fed(&bytes[..cut]);
            incoming.scan(None).expect("good frames");
            let expected = usize::from(cut >= bytes.len() - 2) + usize::from(cut == bytes.len());
            assert_eq!(incoming.messages(), expected, "cut at {cut}");
            assert_eq!(incoming.peek().is_some(), expected > 0);
            incoming.buffer.extend_from_slice(&bytes[cut..]);
            incoming.scan(None).expect("good frames");
            assert_eq!(incoming.messages(), 2);
            assert_eq!(incoming.take_command().as_deref(), Some(&b"\x04PING\0\0"[..]));
            let mut parts = Vec::new();
            while let Some(frame) = incoming.take_frame() {
                parts.push((frame.bytes().len(), frame.more()));
            }
            assert_eq!(parts, [(1, true), (300, false), (0, false)]);
            assert!(incoming.held() == 0);
        }
    }

    /// A flood of commands costs a number of steps that is linear in their count. With quadratic cost, as when each was
    /// taken from the front of a vector, this would take the better part of an hour.
    #[test]
    fn a_flood_of_commands_is_handled_at_a_cost_of_its_length() {
        #[expect(clippy::disallowed_methods, reason = "a test's own thread")]
        let (done, is_done) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            frame::encode(&mut bytes, COMMAND, b"\x01?");
            let mut incoming = fed(&bytes.repeat(2_000_000));
            incoming.scan(None).expect("good frames");
            let mut taken = 0;
            while incoming.take_command().is_some() {
                taken += 1;
            }
            // The test has ended if this has taken too long.
            let _ = done.send((taken, incoming.held()));
        });
        let taken = is_done.recv_timeout(std::time::Duration::from_secs(100));
        assert_eq!(taken, Ok((2_000_000, 0)));
    }

    #[test]
    fn a_message_can_be_skipped_and_a_part_borrowed() {
        let mut incoming = fed(&stream());
        incoming.scan(None).expect("good frames");
        assert_eq!(incoming.peek(), Some((&b"a"[..], true)));
        incoming.skip_message();
        assert_eq!(incoming.take_with(|bytes, more| (bytes.len(), more)), Some((0, false)));
        assert_eq!(incoming.take_with(|bytes, _| bytes.len()), None);
    }

    #[test]
    fn limits_are_held_on_what_is_declared() {
        let mut declared = vec![frame::LONG];
        declared.extend_from_slice(&(1_u64 << 40).to_be_bytes());
        assert_eq!(fed(&declared).scan(Some(1 << 20)), Err(Violation::TooLarge));
        let mut incoming = fed(&declared);
        incoming.scan(None).expect("as large as it likes");
        assert!(incoming.messages() == 0 && incoming.buffer.capacity() < 4_096);
        assert_eq!(fed(&[0xff, 0]).scan(None), Err(Violation::Header));
    }
}
