//! A short look at shared memory by a caller in an event loop, whose sleep and wake-up would take longer than the next
//! message.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::shared_socket::SharedSocket;
use crate::shm_link::{Hot, has_bytes};
use crate::socket::Socket;

/// Checks between two readings of the clock.
const GLANCES: u32 = 64;

/// A look, without the socket's lock; [`Socket::near_look`] begins it.
pub struct NearLook {
    socket: Arc<SharedSocket>,
    hot: Arc<Vec<Hot>>,
}

impl Socket {
    /// Whether messages may come through shared memory.
    #[inline]
    pub fn may_come_near(&self) -> bool {
        self.0.notifier.has_shm.load(Ordering::Relaxed)
    }

    /// Begins a look at the memory that this process shares with the socket's peers. `None` if nothing can come that
    /// way, or looking has not paid off lately. The peers wake nobody from now on, until the caller makes a hot attempt
    /// to receive that finds nothing.
    pub fn near_look(&self) -> Option<NearLook> {
        let shared = &self.0;
        if !self.may_come_near() || !shared.may_spin || !shared.spin.is_worth_it() {
            return None;
        }
        let mut state = shared.lock();
        // The attempt reports what is wrong. Nothing may be hot while a thread sleeps.
        if state.check_call().is_err() || shared.notifier.mailbox.has_sleepers() {
            return None;
        }
        // A peer may wait for what was left unwritten before it answers.
        state.settle();
        state.heat_all();
        let hot = Arc::clone(state.hot());
        (!hot.is_empty()).then(|| NearLook { socket: Arc::clone(shared), hot })
    }
}

impl NearLook {
    /// Whether something has come.
    #[inline]
    pub fn has_come(&self) -> bool {
        self.socket.notifier.has_mail() || has_bytes(&self.hot)
    }

    /// Looks until something has come, or the time is over; returns the time that it took.
    pub fn wait(&self, most: Duration) -> Duration {
        let began = Instant::now();
        loop {
            let found = (0..GLANCES).any(|_| {
                std::hint::spin_loop();
                self.has_come()
            });
            let took = began.elapsed();
            if found || took >= most {
                // A late find means that the thread lost its core to another one.
                self.socket.spin.learn(found && took < most);
                return took;
            }
        }
    }
}
