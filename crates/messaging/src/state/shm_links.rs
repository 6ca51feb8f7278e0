//! Connections through shared memory: which of them this end polls, and which peers must wake it. The `README.md` has
//! the protocol, "Shared memory".

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::SocketState;
use crate::background::Notice;
use crate::conn::{Link, Phase};
use crate::conn_ref::ConnRef;
use crate::error::Result;
use crate::events::Events;
use crate::shm_link::{Hot, PeerSign, ShmLink, has_bytes};

/// Bytes that arrive while links are armed are read this often in a row before others have their turn.
const ROUNDS: usize = 4;

impl SocketState {
    /// Connections that this end must poll.
    #[inline]
    pub(crate) fn hot(&self) -> &Arc<Vec<Hot>> {
        &self.hot
    }

    fn shm(&mut self, index: u32) -> Option<&mut ShmLink> {
        match &mut self.conn(index)?.link {
            Link::Shm(link) => Some(link),
            _ => None,
        }
    }

    /// This end polls the connection from now on. A thread that goes to sleep, or the background, will arm it.
    pub(super) fn heat(&mut self, index: u32) {
        let Some(conn_ref) = self.conn(index).map(|conn| conn.me) else { return };
        let Some(link) = self.shm(index) else { return };
        if std::mem::replace(&mut link.is_hot, true) {
            return;
        }
        let probe = link.probe();
        self.me.has_shm.store(true, Ordering::Relaxed);
        Arc::make_mut(&mut self.hot).push(Hot { conn_ref, probe });
    }

    /// Something stays hot: the background will arm it if the program does not look any more. A socket with watchers
    /// mostly arms again what it has made hot, and then nobody needs to be woken for it.
    #[cold]
    pub(super) fn warm_up(&mut self) {
        self.is_warm = true;
        let id = self.id();
        self.notify(Notice::Warm(id));
    }

    /// This end polls all of them from now on, if they are few. Only for a caller that arms them when it has found
    /// nothing: watchers may sleep.
    pub(crate) fn heat_all(&mut self) {
        const FEW: usize = 8;
        if self.conns.len() > FEW {
            return;
        }
        for index in self.indices() {
            let Some(conn) = self.conn(index) else { continue };
            if !conn.is_ready() || conn.is_paused {
                continue;
            }
            if let Link::Shm(link) = &conn.link
                && !link.is_hot
                && !link.is_over()
            {
                link.disarm();
                self.heat(index);
            }
        }
    }

    /// As [`look`](Self::look), for messages: without the kernel if one has come through shared memory.
    pub(crate) fn look_near(&mut self) -> Result<()> {
        if has_bytes(&self.hot) {
            self.handle(&[], Events::READ);
            if self.may(Events::READ) {
                return self.check_open();
            }
        }
        self.look(Events::READ)
    }

    /// Its descriptor can be read.
    pub(super) fn shm_woken(&mut self, index: u32) {
        let me = Arc::clone(&self.me);
        let Some(link) = self.shm(index) else { return };
        if link.take_wake_ups() == PeerSign::Gone {
            // It would report the end again and again, also while reading is paused.
            let _ = me.set.remove(link.fd());
        }
        self.heat(index);
    }

    /// Reads the hot connections. `is_lazy` as in [`handle`](Self::handle).
    pub(super) fn listen_hot(&mut self, is_lazy: bool) {
        if !has_bytes(&self.hot) {
            return;
        }
        for hot in Arc::clone(&self.hot).iter() {
            if !hot.probe.has_bytes() {
                continue;
            }
            match self.known(hot.conn_ref) {
                Some(conn) if !conn.is_paused && matches!(conn.link, Link::Shm(_)) => {
                    self.readable(hot.conn_ref.index, is_lazy);
                }
                // It becomes hot again when there is room; one that is gone never does.
                _ => self.forget_hot(hot.conn_ref),
            }
        }
    }

    pub(super) fn forget_hot(&mut self, conn_ref: ConnRef) {
        Arc::make_mut(&mut self.hot).retain(|hot| hot.conn_ref != conn_ref);
        if self.known(conn_ref).is_some()
            && let Some(link) = self.shm(conn_ref.index)
        {
            link.is_hot = false;
        }
    }

    /// Arms them all: their peers wake this end for bytes that arrive from now on. True if bytes have arrived before,
    /// which must be taken.
    fn arm(&mut self) -> bool {
        let mut is_news = false;
        for hot in std::mem::take(Arc::make_mut(&mut self.hot)) {
            let Some(conn) = self.known(hot.conn_ref) else { continue };
            let is_paused = conn.is_paused;
            let Link::Shm(link) = &mut conn.link else { continue };
            link.is_hot = false;
            if !is_paused && link.arm() {
                is_news = true;
                self.heat(hot.conn_ref.index);
            }
        }
        is_news
    }

    /// A thread is going to sleep on the set: arms all links, so that later events are in it. True if there was too
    /// much to take before: then they are not armed.
    #[inline]
    pub(crate) fn cool(&mut self, what: Events) -> bool {
        !self.hot.is_empty() && self.cool_down(what)
    }

    fn cool_down(&mut self, what: Events) -> bool {
        for _ in 0..ROUNDS {
            if !self.arm() {
                return false;
            }
            self.handle(&[], what);
        }
        !self.hot.is_empty()
    }

    /// The background has come to check whether the program still polls; returns whether it comes again.
    pub(crate) fn is_warm_yet(&mut self, has_looked: bool) -> bool {
        if !self.hot.is_empty() && !has_looked {
            self.cool(Events::NONE);
            // It comes again if anything is still hot; nobody needs to tell it.
            self.is_warm = true;
            self.nudge();
            self.me.tell_watchers();
            self.finish_closing();
        }
        self.is_warm = !self.hot.is_empty();
        self.is_warm
    }

    /// There may be bytes to read from a connection that is up, or in its handshake.
    #[inline]
    pub(super) fn readable(&mut self, index: u32, is_lazy: bool) {
        let Some(conn) = self.conn(index) else { return };
        match conn.phase {
            Phase::Ready => {
                conn.is_readable = true;
                if is_lazy && !conn.has_message() {
                    self.activate(index);
                } else {
                    self.read_ahead(index);
                }
            }
            Phase::Greeting(_) => self.greet(index, true, false),
            Phase::Waiting | Phase::Connecting | Phase::Aside | Phase::Ended => {}
        }
    }
}
