//! The datagrams that wait: to be passed on, and to be sent.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;

use ropewalk_os::net::datagrams::{Name, send_many};

use ropewalk_capi::object::Object;

/// What asyncio counts for a datagram beside its bytes.
const HEADER: usize = 8;

/// Bytes and the sender's address.
pub(super) type Incoming = VecDeque<(Object, Object)>;

/// Where a datagram goes.
pub(super) enum Target {
    /// To the socket's peer.
    Peer,
    Name(Name),
    /// To an address that the socket object understands.
    Object(Object),
}

/// See the module.
#[derive(Default)]
pub(super) struct Queue {
    waiting: VecDeque<(Object, Target)>,
    size: usize,
}

fn length(bytes: &Object) -> usize {
    bytes.as_bytes().map_or(0, <[u8]>::len) + HEADER
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    pub(super) fn push(&mut self, bytes: Object, to: Target) {
        self.size += length(&bytes);
        self.waiting.push_back((bytes, to));
    }

    /// Puts back what [`pop`](Self::pop) has taken.
    pub(super) fn push_front(&mut self, bytes: Object, to: Target) {
        self.size += length(&bytes);
        self.waiting.push_front((bytes, to));
    }

    pub(super) fn pop(&mut self) -> Option<(Object, Target)> {
        let (bytes, to) = self.waiting.pop_front()?;
        self.size -= length(&bytes);
        Some((bytes, to))
    }

    /// Sends datagrams from the front on whose names are known, with one system call. Those that have left are handed
    /// back, to be dropped; none if the first one needs the socket object.
    pub(super) fn send(&mut self, fd: BorrowedFd<'_>) -> io::Result<Vec<Object>> {
        let batch = self.waiting.iter().map_while(|(bytes, to)| {
            let name = match to {
                Target::Peer => None,
                Target::Name(name) => Some(name),
                Target::Object(_) => return None,
            };
            Some((bytes.as_bytes().unwrap_or_default(), name))
        });
        let sent = send_many(fd, batch)?;
        Ok((0..sent).filter_map(|_| self.pop()).map(|(bytes, _)| bytes).collect())
    }
}
