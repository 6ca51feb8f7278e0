//! A port: the far end of a switchboard.

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

/// The interval of retries while every port is taken: the hub clears ports whose processes are gone.
const RETRY: Duration = Duration::from_millis(20);

/// The result of a wait for a message.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    /// A message.
    Message(Vec<u8>),
    /// No message came in time, or another thread called [`Port::wake`].
    Nothing,
    /// The hub sends no more, and every message was received.
    Ended,
}

/// A port: the far end of a switchboard, one for each process. Dropping it leaves the switchboard.
pub struct Port {
    layout: Layout,
    pub(super) at: usize,
    up: Mutex<Producer>,
    down: Mutex<Receiver>,
    /// The ring down, used to wake its consumer.
    down_ring: RingMemory,
    forks: u64,
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port").field("at", &self.at).finish_non_exhaustive()
    }
}

impl Port {
    /// Takes a free port. If there is none, waits up to `patience` for one to be cleared.
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
        // Checked before they are multiplied, because another process wrote the numbers.
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
                    "all {} ports of a bus between processes are taken: so many processes share it already",
                    slots
                ));
            }
            Self::wake_hub(&layout)?;
            std::thread::sleep(RETRY);
        }
    }

    fn open(layout: Layout, at: usize) -> Result<Self> {
        let opened = layout.open(at).inspect_err(|_| {
            // The hub clears it, because the hub may have seen already that it was taken.
            if let Ok(slot) = layout.slot(at) {
                slot.left.store(1, Ordering::Release);
                let _ = Self::wake_hub(&layout);
            }
        });
        let (up, down) = opened?;
        let port = Self {
            layout,
            at,
            up: Mutex::new(up.producer()),
            down_ring: down.clone(),
            down: Mutex::new(Receiver::new(down.consumer())),
            forks: process::fork_generation(),
        };
        Self::wake_hub(&port.layout)?;
        Ok(port)
    }

    fn check(&self) -> Result<()> {
        if self.forks == process::fork_generation() {
            Ok(())
        } else {
            Err(error!(Code::StaleHandle, "a port belongs to the process that took it, not to its forks"))
        }
    }

    fn wake_hub(layout: &Layout) -> Result<()> {
        // Pairs with the fence in Switchboard::wait.
        fence(Ordering::SeqCst);
        layout.head()?.sleep.0.wake_if_asleep();
        Ok(())
    }

    /// Sends a message to the hub if there is room for all of it, and no thread waits for room; returns whether it was
    /// sent. A sent message arrives even if the process ends at once.
    ///
    /// # Errors
    ///
    /// If the message is too long, the memory is corrupt, or in a forked child.
    pub fn offer(&self, message: &[u8]) -> Result<bool> {
        self.check()?;
        let Some(mut up) = lock_soon(&self.up) else { return Ok(false) };
        let went = offer(&mut up, message)?;
        drop(up);
        if went {
            Self::wake_hub(&self.layout)?;
        }
        Ok(went)
    }

    /// Sends a message to the hub, waiting for room while the hub listens and `goes_on` returns true; false if the
    /// message was not sent to its end.
    ///
    /// # Errors
    ///
    /// As [`offer`](Self::offer).
    pub fn send(&self, message: &[u8], mut goes_on: impl FnMut() -> bool) -> Result<bool> {
        self.check()?;
        let head = self.layout.head()?;
        let wake = |_: &Producer| {
            fence(Ordering::SeqCst);
            head.sleep.0.wake_if_asleep();
        };
        send(&mut self.up.lock(), message, wake, || head.closed.0.load(Ordering::Relaxed) == 0 && goes_on())
    }

    /// Waits for the next message from the hub. One thread at a time calls it.
    ///
    /// # Errors
    ///
    /// If the memory is corrupt, or in a forked child.
    pub fn receive(&self, timeout: Duration) -> Result<Received> {
        self.check()?;
        let closed = &self.layout.head()?.closed.0;
        let mut down = self.down.lock();
        let mut waited = false;
        loop {
            // First check whether anything more can come, then whether there is anything.
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

    /// Wakes the receiving thread.
    pub fn wake(&self) {
        self.down_ring.wake_consumer();
    }

    /// Waits until the hub has acknowledged a number, or the time is up; returns whether it has.
    ///
    /// # Errors
    ///
    /// When the segment cannot be mapped.
    pub fn wait_acknowledged(&self, number: u32, timeout: Duration) -> Result<bool> {
        let slot = self.layout.slot(self.at)?;
        // Numbers wrap: a number is ahead if it is less than half the range away.
        let reached = || slot.acknowledged.load(Ordering::Acquire).wrapping_sub(number) < u32::MAX / 2;
        let end = Instant::now() + timeout;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            slot.sleep.sleep_unless(|| reached() || left.is_zero(), Some(left.min(PATIENCE)));
            if reached() || left.is_zero() {
                return Ok(reached());
            }
        }
    }
}

impl Drop for Port {
    /// Tells the hub that the port is left. Afterwards nothing of the port is touched: another process may take it at
    /// once.
    fn drop(&mut self) {
        if self.check().is_err() {
            return;
        }
        if let Ok(slot) = self.layout.slot(self.at) {
            slot.left.store(1, Ordering::Release);
            let _ = Self::wake_hub(&self.layout);
        }
    }
}
