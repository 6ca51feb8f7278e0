//! One connection of a socket, from the attempt to make it to its last message.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use ropewalk_os::net;
use ropewalk_zmtp::{Handshake, Session, SocketType};

use crate::conn_ref::ConnRef;
use crate::frame::{Frame, Properties};
use crate::incoming::Incoming;
use crate::lane::End;
use crate::outgoing::Outgoing;
use crate::shm_link::ShmLink;
use crate::wire::Wire;

/// The link that carries it.
pub(crate) enum Link {
    /// Nothing, now.
    None,
    /// A tcp or ipc connection.
    Stream(OwnedFd),
    /// A shm connection whose memory the peer has not given us yet.
    Offered(OwnedFd),
    /// A shm connection.
    Shm(Box<ShmLink>),
    /// Another socket of the process.
    Inproc(End),
}

impl Link {
    /// The wire for its bytes, if it leaves the process and is up.
    pub(crate) fn wire(&mut self) -> Option<Wire<'_>> {
        match self {
            Self::Stream(fd) => Some(Wire::Stream((*fd).as_fd())),
            Self::Shm(link) => Some(Wire::Shm(link)),
            Self::None | Self::Offered(_) | Self::Inproc(_) => None,
        }
    }
}

/// The phase of a connection.
pub(crate) enum Phase {
    /// To be connected, now or after a while.
    Waiting,
    /// A connection is being made.
    Connecting,
    /// The handshake is under way.
    Greeting(Box<Greeting>),
    /// Messages flow.
    Ready,
    /// The connection is up, and another one has its name or its place. It is not read from: the peer keeps what it has
    /// to say until the place is free.
    Aside,
    /// The peer is gone; messages that arrived before may still be taken.
    Ended,
}

/// A handshake, and the bytes that arrived behind it.
pub(crate) struct Greeting {
    pub(crate) handshake: Handshake,
    /// Read and not consumed.
    pub(crate) read: Vec<u8>,
    /// The authenticator, while it has not answered.
    pub(crate) zap: Option<End>,
    /// The handler has been asked once.
    pub(crate) was_asked: bool,
    /// When the handshake times out.
    pub(crate) until: Option<Instant>,
}

/// The times of heartbeats.
pub(crate) struct Heart {
    /// The next PING is sent then.
    pub(crate) next: Option<Instant>,
    /// When the peer counts as dead, unless it sends something before.
    pub(crate) dead: Option<Instant>,
    /// When the peer's own time to live ends, unless it sends something before.
    pub(crate) forget: Option<Instant>,
    /// The one recorded deadline of the heartbeat.
    pub(crate) noted: Option<Instant>,
}

/// See the module.
pub(crate) struct Conn {
    pub(crate) me: ConnRef,
    /// The index of its endpoint among the connected ones, if it is one of them.
    pub(crate) dial: Option<u32>,
    /// The index of its endpoint among the bound ones.
    pub(crate) bound: Option<u32>,
    pub(crate) link: Link,
    pub(crate) phase: Phase,
    pub(crate) incoming: Incoming,
    pub(crate) outgoing: Outgoing,
    pub(crate) session: Session,
    /// Bytes to send before everything else: a handshake's, and encrypted frames.
    pub(crate) urgent: Vec<u8>,
    pub(crate) urgent_at: usize,
    /// The kernel may have bytes.
    pub(crate) is_readable: bool,
    /// The kernel takes no more, and reports when it does.
    pub(crate) is_blocked: bool,
    /// Reading waits until the program has taken something.
    pub(crate) is_paused: bool,
    /// It is in the list of connections that may have a message.
    pub(crate) is_active: bool,
    /// It is in the list of connections that may be sent to.
    pub(crate) is_willing: bool,
    /// It is in the list of connections that may have queued bytes which were not written.
    pub(crate) is_listed: bool,
    /// When the first of them was queued, if there are any. A write ends that.
    pub(crate) left_at: Option<Instant>,
    /// It was read from since it was written to.
    pub(crate) has_replied: bool,
    /// It belongs to the pattern no more, and ends when all its messages are sent, or at `linger_until`.
    pub(crate) is_parting: bool,
    pub(crate) linger_until: Option<Instant>,
    pub(crate) minor: u8,
    pub(crate) peer: SocketType,
    pub(crate) identity: Vec<u8>,
    pub(crate) routing_id: u32,
    pub(crate) properties: Option<Arc<Properties>>,
    pub(crate) heart: Option<Box<Heart>>,
    /// The number of PINGs answered since the kernel takes no more.
    pub(crate) pongs: u8,
    /// The peer's address, as its frames report it.
    pub(crate) address: String,
    /// The endpoint, as a monitor reports it.
    pub(crate) endpoint: String,
}

impl Conn {
    pub(crate) fn new(me: ConnRef) -> Self {
        Self {
            me,
            dial: None,
            bound: None,
            link: Link::None,
            phase: Phase::Waiting,
            incoming: Incoming::default(),
            outgoing: Outgoing::default(),
            session: Session::Clear,
            urgent: Vec::new(),
            urgent_at: 0,
            is_readable: false,
            is_blocked: false,
            is_paused: false,
            is_active: false,
            is_willing: false,
            is_listed: false,
            left_at: None,
            has_replied: false,
            is_parting: false,
            linger_until: None,
            minor: 1,
            peer: SocketType::Pair,
            identity: Vec::new(),
            routing_id: 0,
            properties: None,
            heart: None,
            pongs: 0,
            address: String::new(),
            endpoint: String::new(),
        }
    }

    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.link {
            Link::Stream(fd) | Link::Offered(fd) => Some(fd.as_fd()),
            Link::Shm(link) => Some(link.fd()),
            Link::None | Link::Inproc(_) => None,
        }
    }

    /// Whether the peer has sent bytes that were not read.
    pub(crate) fn has_unread(&self) -> bool {
        match &self.link {
            Link::Stream(fd) => net::has_bytes(fd.as_fd()),
            Link::Shm(link) => link.has_bytes(),
            Link::None | Link::Offered(_) | Link::Inproc(_) => false,
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.phase, Phase::Ready)
    }

    pub(crate) fn is_aside(&self) -> bool {
        matches!(self.phase, Phase::Aside)
    }

    pub(crate) fn is_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended)
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        matches!(self.session, Session::Curve(_))
    }

    /// Whether its messages arrive without the kernel.
    pub(crate) fn is_near(&self) -> bool {
        match &self.link {
            Link::Inproc(_) => true,
            Link::Shm(link) => link.is_hot,
            Link::None | Link::Stream(_) | Link::Offered(_) => false,
        }
    }

    pub(crate) fn is_inproc(&self) -> bool {
        matches!(self.link, Link::Inproc(_))
    }

    /// Whether all queued bytes are written.
    pub(crate) fn is_flushed(&self) -> bool {
        self.outgoing.is_empty() && self.urgent_at == self.urgent.len()
    }

    /// Whether everything that has arrived was taken.
    #[inline]
    pub(crate) fn is_drained(&self) -> bool {
        matches!(self.link, Link::Stream(_))
            && !self.is_readable
            && !self.is_paused
            && self.incoming.messages() == 0
            && !self.incoming.has_wire()
    }

    /// Whether the peer may wait for a message: it has sent something since the last write, and nothing of it waits
    /// here.
    #[inline]
    pub(crate) fn is_awaited(&self) -> bool {
        self.has_replied && self.is_drained()
    }

    /// Whether a whole message is here.
    #[inline]
    pub(crate) fn has_message(&mut self) -> bool {
        match &mut self.link {
            Link::Inproc(end) => end.has_message(),
            _ => self.incoming.messages() > 0,
        }
    }

    /// The bytes of the next part of a whole message, and whether more follow.
    #[inline]
    pub(crate) fn peek(&mut self) -> Option<(&[u8], bool)> {
        match &mut self.link {
            Link::Inproc(end) => end.first().map(|frame| (frame.bytes(), frame.more())),
            _ => self.incoming.peek(),
        }
    }

    /// Takes the next part.
    pub(crate) fn take_frame(&mut self) -> Option<Frame> {
        match &mut self.link {
            Link::Inproc(end) => end.take(),
            _ => self.incoming.take_frame(),
        }
    }

    /// Takes the next part, borrowed.
    #[inline]
    pub(crate) fn take_with<T>(&mut self, sink: impl FnOnce(&[u8], bool) -> T) -> Option<T> {
        match &mut self.link {
            Link::Inproc(end) => end.take().map(|frame| sink(frame.bytes(), frame.more())),
            _ => self.incoming.take_with(sink),
        }
    }

    /// Drops the rest of the current message.
    pub(crate) fn skip_message(&mut self) {
        match &mut self.link {
            Link::Inproc(end) => while end.take().is_some_and(|frame| frame.more()) {},
            _ => self.incoming.skip_message(),
        }
    }

    /// Takes a whole message.
    pub(crate) fn take_message(&mut self) -> Vec<Frame> {
        let mut parts = Vec::new();
        while let Some(frame) = self.take_frame() {
            let more = frame.more();
            parts.push(frame);
            if !more {
                break;
            }
        }
        parts
    }
}
