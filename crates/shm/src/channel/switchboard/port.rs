//! A port: the far end.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ropewalk_base::{Code, Result, error};
use ropewalk_os::process;
use ropewalk_sync::Mutex;
use ropewalk_sync::atomic::{Ordering, fence};
use ropewalk_sync::spin::AdaptiveSpin;

use super::{HubWords, Layout, MAGIC, PATIENCE, Receiver, lock_soon, offer, send};
use crate::channel::ring::{Producer, RingMemory};
use crate::memory::Segment;

/// Whoever finds every port taken looks again this often: the hub clears those whose processes are gone.
const RETRY: Duration = Duration::from_millis(20);

/// What came of a wait for a message.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    /// One came.
    Message(Vec<u8>),
    /// None came in time, or somebody called [`Port::wake`].
    Nothing,
    /// The hub sends no more, and everything was received.
    Ended,
}

/// A port: the far end of a switchboard, one for each process. Left when it is dropped.
pub struct Port {
    layout: Layout,
    pub(super) at: usize,
    up: Mutex<Producer>,
    down: Mutex<Receiver>,
    /// The ring down, to wake its consumer by.
    bell: RingMemory,
    forks: u64,
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port").field("at", &self.at).finish_non_exhaustive()
    }
}

impl Port {
    /// Takes a free port. When none is, waits for one to be cleared for as long as `patience`.
    ///
    /// # Errors
    ///
    /// When the segment holds no switchboard, no port of it is free, or there is no memory for one.
    pub fn take(segment: Arc<Segment>, patience: Duration) -> Result<Self> {
        let size = usize::try_from(segment.size()).unwrap_or(0);
        let corrupt = || error!(Code::SharedMemoryCorrupt, "a segment holds no switchboard");
        if size < size_of::<HubWords>() {
            return Err(corrupt());
        }
        let layout = Layout { segment, slots: 0, ring: 0 };
        let shape = &layout.head()?.magic.0;
        let [magic, slots, ring] = [0, 1, 2].map(|at: usize| shape[at].load(Ordering::Acquire) as usize);
        // Checked before it is multiplied: the numbers are another process's.
        let sane = magic == MAGIC as usize
            && (1..=1 << 16).contains(&slots)
            && (128..=1 << 30).contains(&ring)
            && ring.is_power_of_two();
        if !sane || Layout::required(slots, ring) > size {
            return Err(corrupt());
        }
        let layout = Layout { slots, ring, ..layout };
        let pid = u32::try_from(process::current_pid()).unwrap_or(0);
        let deadline = Instant::now() + patience;
        loop {
            for at in 0..slots {
                let word = &layout.slot(at)?.pid;
                if word.compare_exchange(0, pid, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                    return Self::open(layout, at);
                }
            }
            if Instant::now() >= deadline {
                return Err(error!(
                    Code::OutOfPorts,
                    "all {} ports of a bus between processes are taken: so many workers share it already",
                    slots
                ));
            }
            Self::ring_bell(&layout)?;
            std::thread::sleep(RETRY);
        }
    }

    fn open(layout: Layout, at: usize) -> Result<Self> {
        let opened = layout.open(at).inspect_err(|_| {
            // The hub gives it back, for it may have seen that it was taken.
            if let Ok(slot) = layout.slot(at) {
                slot.left.store(1, Ordering::Release);
                let _ = Self::ring_bell(&layout);
            }
        });
        let (up, down) = opened?;
        let port = Self {
            layout,
            at,
            up: Mutex::new(up.producer()),
            bell: down.clone(),
            down: Mutex::new(Receiver::new(down.consumer())),
            forks: process::fork_generation(),
        };
        Self::ring_bell(&port.layout)?;
        Ok(port)
    }

    fn check(&self) -> Result<()> {
        if self.forks == process::fork_generation() {
            Ok(())
        } else {
            Err(error!(Code::StaleHandle, "a port belongs to the process that took it, not to its forks"))
        }
    }

    fn ring_bell(layout: &Layout) -> Result<()> {
        // Pairs with the fence in Switchboard::wait.
        fence(Ordering::SeqCst);
        layout.head()?.bell.0.wake_if_asleep();
        Ok(())
    }

    /// Sends a message to the hub if there is room for all of it, and nobody waits for room; whether it went. What went
    /// arrives, also if the process ends at once.
    ///
    /// # Errors
    ///
    /// When the message is too long, the memory makes no sense, or in a forked child.
    pub fn offer(&self, message: &[u8]) -> Result<bool> {
        self.check()?;
        let Some(mut up) = lock_soon(&self.up) else { return Ok(false) };
        let went = offer(&mut up, message)?;
        drop(up);
        if went {
            Self::ring_bell(&self.layout)?;
        }
        Ok(went)
    }

    /// Sends a message to the hub, waiting for room for as long as the hub listens and `goes_on` says so; false if it
    /// was not sent to its end.
    ///
    /// # Errors
    ///
    /// As [`offer`](Self::offer).
    pub fn send(&self, message: &[u8], mut goes_on: impl FnMut() -> bool) -> Result<bool> {
        self.check()?;
        let head = self.layout.head()?;
        let wake = |_: &Producer| {
            fence(Ordering::SeqCst);
            head.bell.0.wake_if_asleep();
        };
        send(&mut self.up.lock(), message, wake, || head.closed.0.load(Ordering::Relaxed) == 0 && goes_on())
    }

    /// The next message from the hub, waited for. By one thread at a time.
    ///
    /// # Errors
    ///
    /// When the memory makes no sense, or in a forked child.
    pub fn receive(&self, timeout: Duration) -> Result<Received> {
        self.check()?;
        let closed = &self.layout.head()?.closed.0;
        let mut down = self.down.lock();
        let mut waited = false;
        loop {
            // First whether anything more can come, then whether there is anything.
            let is_closed = closed.load(Ordering::Acquire) != 0;
            if let Some(message) = down.next()? {
                return Ok(Received::Message(message));
            }
            if is_closed && !down.ring.is_ready() {
                return Ok(Received::Ended);
            }
            if waited {
                return Ok(Received::Nothing);
            }
            down.ring.wait(&mut AdaptiveSpin::new(), || false, Some(timeout));
            waited = true;
        }
    }

    /// Wakes the thread that receives.
    pub fn wake(&self) {
        self.bell.wake_consumer();
    }

    /// Waits until the hub has acknowledged a number, or the time is up; true if it has.
    ///
    /// # Errors
    ///
    /// When the segment cannot be mapped.
    pub fn wait_acknowledged(&self, number: u32, timeout: Duration) -> Result<bool> {
        let slot = self.layout.slot(self.at)?;
        // Numbers go round: ahead is what is less than half the circle away.
        let reached = || slot.acknowledged.load(Ordering::Acquire).wrapping_sub(number) < u32::MAX / 2;
        let end = Instant::now() + timeout;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            slot.bell.sleep_unless(|| reached() || left.is_zero(), Some(left.min(PATIENCE)));
            if reached() || left.is_zero() {
                return Ok(reached());
            }
        }
    }
}

impl Drop for Port {
    /// Tells the hub that this was all. Nothing of the port is touched any more: it may be another process's at once.
    fn drop(&mut self) {
        if self.check().is_err() {
            return;
        }
        if let Ok(slot) = self.layout.slot(self.at) {
            slot.left.store(1, Ordering::Release);
            let _ = Self::ring_bell(&self.layout);
        }
    }
}
