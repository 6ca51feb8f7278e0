//! Connections through shared memory: whose words are looked at, and which peers are to wake this end. The `README.md`
//! has the protocol, "Shared memory".

use std::sync::Arc;

use super::SocketState;
use crate::background::Notice;
use crate::conn::{Link, Phase};
use crate::conn_ref::ConnRef;
use crate::events::Events;
use crate::shm_link::{Hot, PeerSign, ShmLink, has_bytes};

/// What comes while links are armed is read so often in a row before others have their turn.
const ROUNDS: usize = 4;

impl SocketState {
    /// Connections whose words must be looked at.
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

    /// Its words are looked at from now on. Somebody will come to arm it: whoever goes to sleep, or the background.
    pub(super) fn heat(&mut self, index: u32) {
        let Some(whom) = self.conn(index).map(|conn| conn.me) else { return };
        let Some(link) = self.shm(index) else { return };
        if std::mem::replace(&mut link.is_hot, true) {
            return;
        }
        let probe = link.probe();
        Arc::make_mut(&mut self.hot).push(Hot { whom, probe });
        if !self.is_warm {
            self.is_warm = true;
            let id = self.id();
            self.notify(Notice::Warm(id));
        }
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

    /// Takes what is in the hot ones. `is_lazy` as in [`handle`](Self::handle).
    pub(super) fn listen_hot(&mut self, is_lazy: bool) {
        if !has_bytes(&self.hot) {
            return;
        }
        for hot in Arc::clone(&self.hot).iter() {
            if !hot.probe.has_bytes() {
                continue;
            }
            match self.known(hot.whom) {
                Some(conn) if !conn.is_paused && matches!(conn.link, Link::Shm(_)) => {
                    self.readable(hot.whom.index, is_lazy);
                }
                // It is heated again when there is room; one that is gone never.
                _ => self.forget_hot(hot.whom),
            }
        }
    }

    pub(super) fn forget_hot(&mut self, whom: ConnRef) {
        Arc::make_mut(&mut self.hot).retain(|hot| hot.whom != whom);
        if self.known(whom).is_some()
            && let Some(link) = self.shm(whom.index)
        {
            link.is_hot = false;
        }
    }

    /// Arms them all: their peers wake this end for what comes from now on. True if something has come before, which is
    /// to be taken.
    fn arm(&mut self) -> bool {
        let mut is_news = false;
        for hot in std::mem::take(Arc::make_mut(&mut self.hot)) {
            let Some(conn) = self.known(hot.whom) else { continue };
            let is_paused = conn.is_paused;
            let Link::Shm(link) = &mut conn.link else { continue };
            link.is_hot = false;
            if !is_paused && link.arm() {
                is_news = true;
                self.heat(hot.whom.index);
            }
        }
        is_news
    }

    /// Somebody is going to sleep on the set: whatever comes from now on is in it. True if there was too much to be
    /// taken before: then it is not so.
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

    /// The background has come to see whether anybody still looks; says whether it comes again.
    pub(crate) fn is_warm_yet(&mut self, has_looked: bool) -> bool {
        if !self.hot.is_empty() && !has_looked {
            self.cool(Events::NONE);
            self.nudge();
            self.me.tell_watchers();
            self.finish_closing();
        }
        self.is_warm = !self.hot.is_empty();
        self.is_warm
    }

    /// There may be something to be read from a connection that is up, or at its handshake.
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
            Phase::Waiting | Phase::Connecting | Phase::Ended => {}
        }
    }
}
