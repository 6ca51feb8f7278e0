//! Connections through shared memory: whose words are looked at, and who is told to ring. The `README.md` has the
//! protocol, "Shared memory".

use std::sync::Arc;

use ropewalk_shm::pipe::Ear;

use super::Core;
use crate::background::Notice;
use crate::conn::{Link, State};
use crate::events::Events;
use crate::mailbox::ConnRef;
use crate::ring::{Ring, Rung};
use crate::shared::Shared;

/// What comes while rings are armed is read so often in a row before others have their turn.
const ROUNDS: usize = 4;

/// A connection whose peer does not ring for us, and where to look.
#[derive(Clone)]
pub(crate) struct Hot {
    whom: ConnRef,
    ear: Ear,
}

/// Whether one of them has something to be read. Anybody may look, without the socket's lock.
#[inline]
pub(crate) fn hears(hot: &[Hot]) -> bool {
    hot.iter().any(|hot| hot.ear.hears())
}

impl Core {
    /// Connections whose words must be looked at.
    #[inline]
    pub(crate) fn hot(&self) -> &Arc<Vec<Hot>> {
        &self.hot
    }

    fn ring(&mut self, index: u32) -> Option<&mut Ring> {
        match &mut self.conn(index)?.link {
            Link::Ring(ring) => Some(ring),
            _ => None,
        }
    }

    /// Its words are looked at from now on. Somebody will come to arm it: whoever goes to sleep, or the background.
    pub(super) fn heat(&mut self, index: u32) {
        let Some(whom) = self.conn(index).map(|conn| conn.me) else { return };
        let Some(ring) = self.ring(index) else { return };
        if std::mem::replace(&mut ring.is_hot, true) {
            return;
        }
        let ear = ring.ear();
        Arc::make_mut(&mut self.hot).push(Hot { whom, ear });
        if !self.is_warm {
            self.is_warm = true;
            let id = self.id();
            self.notify(Notice::Warm(id));
        }
    }

    /// Its descriptor has told something.
    pub(super) fn rung(&mut self, index: u32) {
        let me = self.me.upgrade();
        let Some(ring) = self.ring(index) else { return };
        if ring.take_bells() == Rung::Over
            && let Some(me) = me
        {
            // It would tell of the end again and again, also while reading is paused.
            let _ = me.set.remove(ring.fd());
        }
        self.heat(index);
    }

    /// Takes what is in the hot ones. `is_lazy` as in [`handle`](Self::handle).
    pub(super) fn listen_hot(&mut self, is_lazy: bool) {
        if !hears(&self.hot) {
            return;
        }
        for hot in Arc::clone(&self.hot).iter() {
            if !hot.ear.hears() {
                continue;
            }
            match self.known(hot.whom) {
                Some(conn) if !conn.is_paused && matches!(conn.link, Link::Ring(_)) => {
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
            && let Some(ring) = self.ring(whom.index)
        {
            ring.is_hot = false;
        }
    }

    /// Arms them all: their peers ring for what comes from now on. True if something has come before, which is to be
    /// taken.
    fn arm(&mut self) -> bool {
        let mut is_news = false;
        for hot in std::mem::take(Arc::make_mut(&mut self.hot)) {
            let Some(conn) = self.known(hot.whom) else { continue };
            let is_paused = conn.is_paused;
            let Link::Ring(ring) = &mut conn.link else { continue };
            ring.is_hot = false;
            if !is_paused && ring.arm() {
                is_news = true;
                self.heat(hot.whom.index);
            }
        }
        is_news
    }

    /// Somebody is going to sleep on the set: whatever comes from now on is in it. True if there was too much to be
    /// taken before: then it is not so.
    #[inline]
    pub(crate) fn cool(&mut self, shared: &Shared, what: Events) -> bool {
        !self.hot.is_empty() && self.cool_down(shared, what)
    }

    fn cool_down(&mut self, shared: &Shared, what: Events) -> bool {
        for _ in 0..ROUNDS {
            if !self.arm() {
                return false;
            }
            self.handle(shared, &[], what);
        }
        !self.hot.is_empty()
    }

    /// The background has come to see whether anybody still looks; says whether it comes again.
    pub(crate) fn is_warm_yet(&mut self, shared: &Shared, has_looked: bool) -> bool {
        if !self.hot.is_empty() && !has_looked {
            self.cool(shared, Events::NONE);
            self.nudge(shared);
            shared.ring();
            self.finish_closing();
        }
        self.is_warm = !self.hot.is_empty();
        self.is_warm
    }

    /// There may be something to be read from a connection that is up, or at its handshake.
    #[inline]
    pub(super) fn readable(&mut self, index: u32, is_lazy: bool) {
        let Some(conn) = self.conn(index) else { return };
        match conn.state {
            State::Ready => {
                conn.is_readable = true;
                if is_lazy && !conn.has_message() {
                    self.activate(index);
                } else {
                    self.read_ahead(index);
                }
            }
            State::Greeting(_) => self.greet(index, true, false),
            State::Waiting | State::Connecting | State::Ended => {}
        }
    }
}
