//! The outgoing bytes of one peer: a stream of frames in the clear. Small frames are copied behind each other; large
//! ones are kept by reference. It counts whole messages, for the high-water mark, and so that messages that were not
//! sent before a connection broke can go out on the next one.

#[cfg(test)]
mod properties;

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use bytes::Bytes;
use ropewalk_zmtp::frame::{self, COMMAND, MORE};

use crate::frame::Out;
use crate::wire::Wire;

/// Bodies from this size on are not copied, if they have an owner; smaller ones neither, if that is the program.
const SHARE_FROM: usize = 8 * 1024;
/// Sent bytes of `copied` are cut off when there are more of them than this, and more than unsent ones.
const CUT_FROM: usize = 256 * 1024;

#[derive(Debug)]
enum Piece {
    /// This many bytes of `copied`.
    Copied(usize),
    Shared(Bytes),
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Piece::Copied(length) => *length,
            Piece::Shared(bytes) => bytes.len(),
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    copied: Vec<u8>,
    /// The bytes of `copied` that are sent.
    copied_at: usize,
    pieces: VecDeque<Piece>,
    /// The bytes of the first piece that are sent.
    at: usize,
    /// The bytes of each message that is not sent whole; `begun` has those of the first one that were sent.
    ends: VecDeque<u64>,
    begun: u64,
    /// Not sent yet.
    bytes: u64,
    /// The bytes so far of the message that is being queued.
    open: u64,
}

/// How a flush ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// Everything is sent.
    All,
    /// The peer, or the kernel, has no room now.
    Blocked,
}

impl Outgoing {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Messages that are not sent whole.
    pub(crate) fn messages(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes room from another, if it has none of its own: idle connections keep none.
    #[inline]
    pub(crate) fn borrow_room(&mut self, spare: &mut Vec<u8>) {
        if self.copied.capacity() == 0 {
            std::mem::swap(&mut self.copied, spare);
        }
    }

    /// Gives room back when nothing is left.
    #[inline]
    pub(crate) fn return_room(&mut self, spare: &mut Vec<u8>) {
        if self.bytes == 0 && self.copied.capacity() > 512 {
            self.copied.clear();
            if self.copied.capacity() > spare.capacity() {
                std::mem::swap(&mut self.copied, spare);
            }
            self.copied = Vec::new();
        }
    }

    #[inline]
    fn copy(&mut self, bytes: &[u8]) {
        self.copied.extend_from_slice(bytes);
        match self.pieces.back_mut() {
            Some(Piece::Copied(length)) => *length += bytes.len(),
            _ => self.pieces.push_back(Piece::Copied(bytes.len())),
        }
    }

    /// Appends one frame of a message; the last one has no [`MORE`].
    #[inline]
    pub(crate) fn push(&mut self, part: &Out<'_>, more: bool) {
        let mut header = [0; 9];
        let size = part.bytes.len() as u64;
        let length = frame::write_header(&mut header, if more { MORE } else { 0 }, size);
        match part.shared {
            Some(shared) if shared.len() >= SHARE_FROM || (part.is_lent && !shared.is_empty()) => {
                self.copy(&header[..length]);
                self.pieces.push_back(Piece::Shared(shared.clone()));
            }
            _ => {
                self.copied.reserve(length + part.bytes.len());
                self.copied.extend_from_slice(&header[..length]);
                self.copied.extend_from_slice(part.bytes);
                let added = length + part.bytes.len();
                match self.pieces.back_mut() {
                    Some(Piece::Copied(length)) => *length += added,
                    _ => self.pieces.push_back(Piece::Copied(added)),
                }
            }
        }
        let added = length as u64 + size;
        self.bytes += added;
        self.open += added;
        if !more {
            self.ends.push_back(self.open);
            self.open = 0;
        }
    }

    /// Appends a message of one small part, already framed: what a publisher does for each subscriber.
    #[inline]
    pub(crate) fn push_encoded(&mut self, encoded: &[u8]) {
        self.copy(encoded);
        self.bytes += encoded.len() as u64;
        self.ends.push_back(encoded.len() as u64);
    }

    /// Appends bytes of a stream without frames; they count as a message.
    pub(crate) fn push_raw(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.push_encoded(bytes);
        }
    }

    /// Drops the messages of which nothing is sent: newer ones take their place. Commands stay.
    pub(crate) fn drop_unsent(&mut self) {
        let begun = self.begun as i64;
        let (keep, messages) = match self.ends.front() {
            Some(first) if begun > 0 => (first - self.begun, 1),
            _ => (begun.unsigned_abs(), 0),
        };
        if self.ends.len() <= messages {
            return;
        }
        let mut dropped = self.split_off(keep);
        self.ends.truncate(messages);
        while let Ok(Some(header)) = frame::parse_header(&dropped.copied[dropped.copied_at..]) {
            // It is in memory, so its size fits a usize.
            let length = header.len + header.size as usize;
            if header.flags & COMMAND != 0 {
                // Copied, as all commands are.
                self.push_plain(&dropped.copied[dropped.copied_at..dropped.copied_at + length]);
            }
            dropped.took(length);
        }
    }

    /// Keeps `keep` bytes, up to the end of a frame, and returns the others, without their counts.
    fn split_off(&mut self, keep: u64) -> Self {
        if let Some(Piece::Copied(length)) = self.pieces.front_mut() {
            *length -= std::mem::take(&mut self.at);
        }
        let (mut pieces, mut copied, mut left, mut at) = (0, self.copied_at, keep as usize, self.at);
        while left > 0
            && let Some(piece) = self.pieces.get_mut(pieces)
        {
            let step = left.min(piece.len() - std::mem::take(&mut at));
            left -= step;
            pieces += 1;
            if let Piece::Copied(length) = piece {
                copied += step;
                let rest = std::mem::replace(length, step) - step;
                if rest > 0 {
                    self.pieces.insert(pieces, Piece::Copied(rest));
                }
            }
        }
        let others = Self {
            copied: self.copied.split_off(copied),
            pieces: self.pieces.split_off(pieces),
            bytes: self.bytes - keep,
            ..Self::default()
        };
        self.bytes = keep;
        if keep == 0 {
            self.copied.clear();
            (self.copied_at, self.at) = (0, 0);
        }
        others
    }

    /// Appends bytes that are no message: a command with its frame, or a part of a raw stream.
    pub(crate) fn push_plain(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.copy(bytes);
        self.bytes += bytes.len() as u64;
        // They belong to the message before them, or are counted as begun: a flush must end with nothing left over.
        match self.ends.back_mut() {
            Some(last) => *last += bytes.len() as u64,
            None => self.begun = self.begun.wrapping_sub(bytes.len() as u64),
        }
    }

    /// Appends everything that another has queued, of which nothing is sent.
    pub(crate) fn append(&mut self, other: Self) {
        debug_assert!(other.at == 0 && (other.begun as i64) <= 0, "nothing of it is sent");
        if self.is_empty() {
            *self = other;
            return;
        }
        let plain = (other.begun as i64).min(0).unsigned_abs();
        match self.ends.back_mut() {
            Some(last) => *last += plain,
            None => self.begun = self.begun.wrapping_sub(plain),
        }
        self.ends.extend(other.ends);
        self.bytes += other.bytes;
        let mut at = other.copied_at;
        for piece in other.pieces {
            match piece {
                Piece::Copied(length) => {
                    self.copy(&other.copied[at..at + length]);
                    at += length;
                }
                shared @ Piece::Shared(_) => self.pieces.push_back(shared),
            }
        }
    }

    /// Writes as much as the kernel takes.
    pub(crate) fn flush(&mut self, wire: &mut Wire<'_>) -> io::Result<Flushed> {
        while self.bytes > 0 {
            let sent = match (self.pieces.len(), self.pieces.front()) {
                (1, Some(Piece::Copied(_))) => wire.send(&self.copied[self.copied_at..]),
                (1, Some(Piece::Shared(bytes))) => wire.send(&bytes[self.at..]),
                _ => self.send_pieces(wire),
            };
            match sent {
                Ok(sent) => self.took(sent),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Flushed::Blocked),
                Err(error) => return Err(error),
            }
        }
        Ok(Flushed::All)
    }

    fn send_pieces(&self, wire: &mut Wire<'_>) -> io::Result<usize> {
        const MOST: usize = 64;
        let mut slices = [IoSlice::new(&[]); MOST];
        let (mut count, mut copied_at, mut at) = (0, self.copied_at, self.at);
        for (slot, piece) in slices.iter_mut().zip(&self.pieces) {
            let bytes = match piece {
                Piece::Copied(length) => {
                    // The first piece's sent part is behind `copied_at` already.
                    let bytes = &self.copied[copied_at..copied_at + length - at];
                    copied_at += bytes.len();
                    bytes
                }
                Piece::Shared(bytes) => &bytes[at..],
            };
            at = 0;
            *slot = IoSlice::new(bytes);
            count += 1;
        }
        wire.send_vectored(&slices[..count])
    }

    /// Removes bytes that were sent.
    fn took(&mut self, sent: usize) {
        self.bytes -= sent as u64;
        if self.bytes == 0 {
            self.copied.clear();
            self.pieces.clear();
            self.ends.clear();
            (self.copied_at, self.at, self.begun) = (0, 0, 0);
            // A message that is being queued part by part is never flushed in between.
            return;
        }
        let mut left = sent;
        while left > 0 {
            let Some(piece) = self.pieces.front() else { break };
            let step = left.min(piece.len() - self.at);
            if matches!(piece, Piece::Copied(_)) {
                self.copied_at += step;
            }
            self.at += step;
            left -= step;
            if self.at == piece.len() {
                self.pieces.pop_front();
                self.at = 0;
            }
        }
        self.begun = self.begun.wrapping_add(sent as u64);
        while let Some(&first) = self.ends.front() {
            if (self.begun as i64) < first as i64 {
                break;
            }
            self.begun -= first;
            self.ends.pop_front();
        }
        if self.copied_at > CUT_FROM && self.copied_at > self.copied.len() / 2 {
            self.copied.drain(..self.copied_at);
            self.copied_at = 0;
        }
    }

    /// Takes the next frame out whole: its flags and body. For a session that encrypts.
    pub(crate) fn pop_frame(&mut self, body: &mut Vec<u8>) -> Option<u8> {
        if self.bytes == 0 {
            return None;
        }
        let header = frame::parse_header(&self.copied[self.copied_at..]).ok()??;
        let size = usize::try_from(header.size).ok()?;
        body.clear();
        let start = self.copied_at + header.len;
        let is_shared = match (self.pieces.front(), self.pieces.get(1)) {
            (Some(Piece::Copied(length)), Some(Piece::Shared(bytes))) if length - self.at == header.len => {
                body.extend_from_slice(bytes);
                true
            }
            _ => false,
        };
        if !is_shared {
            body.extend_from_slice(&self.copied[start..start + size]);
        }
        self.took(header.len + size);
        Some(header.flags & !frame::LONG)
    }

    /// What a new connection must send again: every message of which no byte was sent. Commands are left out, because
    /// they were meant for the old peer.
    pub(crate) fn recover(mut self) -> Self {
        let mut kept = Self::default();
        // The part that the old peer has begun to receive, and dropped: the rest of a message, or of commands before
        // any.
        let begun = self.begun as i64;
        if begun > 0 {
            let rest = self.ends.front().map_or(0, |first| first.saturating_sub(self.begun));
            self.skip(rest);
        } else if begun < 0 {
            self.skip(begun.unsigned_abs());
        }
        let bytes = self.remaining();
        let mut at = 0;
        let mut message = Vec::new();
        while let Ok(Some(header)) = frame::parse_header(&bytes[at..]) {
            let Some(end) =
                usize::try_from(header.size).ok().and_then(|size| (at + header.len).checked_add(size))
            else {
                break;
            };
            if end > bytes.len() {
                break;
            }
            if header.flags & COMMAND == 0 {
                message.extend_from_slice(&bytes[at..end]);
                if header.flags & MORE == 0 {
                    kept.push_encoded(&message);
                    message.clear();
                }
            }
            at = end;
        }
        kept
    }

    fn skip(&mut self, count: u64) {
        if let Ok(count) = usize::try_from(count) {
            self.took(count.min(usize::try_from(self.bytes).unwrap_or(usize::MAX)));
        }
    }

    fn remaining(&self) -> Vec<u8> {
        let mut all = Vec::with_capacity(usize::try_from(self.bytes).unwrap_or(0));
        let (mut copied_at, mut at) = (self.copied_at, self.at);
        for piece in &self.pieces {
            match piece {
                Piece::Copied(length) => {
                    all.extend_from_slice(&self.copied[copied_at..copied_at + length - at]);
                    copied_at += length - at;
                }
                Piece::Shared(bytes) => all.extend_from_slice(&bytes[at..]),
            }
            at = 0;
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn message(outgoing: &mut Outgoing, parts: &[&[u8]]) {
        for (index, part) in parts.iter().enumerate() {
            let owner = Bytes::copy_from_slice(part);
            let out = Out { bytes: &owner, shared: Some(&owner), is_lent: false, routing_id: 0, group: "" };
            outgoing.push(&out, index + 1 < parts.len());
        }
    }

    #[test]
    fn messages_are_counted_until_they_are_sent_whole() {
        let (a, mut b) = UnixStream::pair().expect("a pair");
        a.set_nonblocking(true).expect("set");
        let mut outgoing = Outgoing::default();
        let large = vec![5; 3 << 20];
        message(&mut outgoing, &[b"one", b"", &large]);
        message(&mut outgoing, &[b"two"]);
        assert_eq!(outgoing.messages(), 2);
        assert_eq!(outgoing.flush(&mut Wire::Stream(a.as_fd())).expect("written"), Flushed::Blocked);
        assert_eq!(outgoing.messages(), 2);
        let mut expected = Vec::new();
        frame::encode(&mut expected, MORE, b"one");
        frame::encode(&mut expected, MORE, b"");
        frame::encode(&mut expected, 0, &large);
        frame::encode(&mut expected, 0, b"two");
        let mut got = vec![0; expected.len()];
        let mut at = 0;
        while at < got.len() {
            at += b.read(&mut got[at..]).expect("read");
            outgoing.flush(&mut Wire::Stream(a.as_fd())).expect("written");
        }
        assert!(got == expected && outgoing.is_empty() && outgoing.messages() == 0);
    }

    #[test]
    fn what_was_not_begun_is_recovered_and_commands_are_not() {
        let mut outgoing = Outgoing::default();
        let mut ping = Vec::new();
        frame::encode(&mut ping, frame::COMMAND, b"\x04PING\0\0");
        outgoing.push_plain(&ping);
        message(&mut outgoing, &[b"first"]);
        outgoing.push_plain(&ping);
        message(&mut outgoing, &[b"second", &[9; 20_000]]);
        message(&mut outgoing, &[b"third"]);
        outgoing.took(ping.len() + 3);
        assert_eq!(outgoing.messages(), 3);
        let mut kept = outgoing.recover();
        assert_eq!(kept.messages(), 2);
        let mut body = Vec::new();
        assert_eq!(kept.pop_frame(&mut body), Some(MORE));
        assert_eq!(body, b"second");
        assert_eq!(kept.pop_frame(&mut body), Some(0));
        assert_eq!(body.len(), 20_000);
        assert_eq!((kept.pop_frame(&mut body), body.as_slice()), (Some(0), &b"third"[..]));
        assert!(kept.pop_frame(&mut body).is_none() && kept.is_empty());
    }
}
