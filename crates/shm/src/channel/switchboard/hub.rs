//! The hub's end.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use ropewalk_base::{Code, Result, ResultExt, error};
use ropewalk_os::process;
use ropewalk_sync::Mutex;
use ropewalk_sync::atomic::{Ordering, fence};

use super::{Layout, MAGIC, Receiver, lock_soon, offer, send};
use crate::channel::ring::{Corrupt, Producer, RingMemory};
use crate::memory::Segment;

/// The most messages that are read from one port before the next.
const TURN: usize = 64;
/// How long to wait for memory.
const RETRY: Duration = Duration::from_millis(10);

/// The hub's ends of a port's rings, for as long as the port is taken.
///
/// A holder of an `Arc` of this may keep it for longer than that. So the ends are inside the locks, and `clear` takes
/// them out before the port's memory goes to another process: a ring never has two producers or two consumers here.
struct Ends {
    pid: u32,
    /// The process's start time, because its id may be reused.
    birth: Option<u64>,
    up: Mutex<Option<Receiver>>,
    down: Mutex<Option<Producer>>,
    /// The ring down, used to wake its consumer.
    down_ring: RingMemory,
    /// The port's memory was corrupt: nothing more is read from it. Relaxed: nothing depends on when others see it.
    corrupt: AtomicBool,
    /// Nothing is read from the port until it is resumed. Relaxed, as above.
    paused: AtomicBool,
    /// The port is being cleared: no thread waits for room in it any more. Relaxed, as above.
    closing: AtomicBool,
}

impl Ends {
    fn is_readable(&self) -> bool {
        !self.corrupt.load(Ordering::Relaxed) && !self.paused.load(Ordering::Relaxed)
    }

    fn is_alive(&self) -> bool {
        // A hub that has no descriptor left to look with disconnects nobody.
        process::birth(self.pid).map_or(true, |birth| birth.is_some() && birth == self.birth)
    }

    fn is_ready(&self) -> bool {
        self.up.lock().as_ref().is_some_and(|up| up.ring.is_ready())
    }
}

/// The hub: made by one process, for the processes that it gives the segment to.
pub struct Switchboard {
    layout: Layout,
    lines: Mutex<Vec<Option<Arc<Ends>>>>,
    forks: u64,
}

impl fmt::Debug for Switchboard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Switchboard").field("slots", &self.layout.slots).finish_non_exhaustive()
    }
}

/// An event that the hub receives.
#[derive(Debug, PartialEq, Eq)]
pub enum HubEvent {
    /// A process took a port.
    Joined {
        /// The port.
        port: usize,
        /// The process.
        pid: u32,
    },
    /// A message from a port.
    Message {
        /// The port.
        port: usize,
        /// The message's bytes.
        message: Vec<u8>,
    },
    /// A port's memory is corrupt; nothing more is received from it.
    Corrupt {
        /// The port.
        port: usize,
    },
}

impl Switchboard {
    /// The bytes that a switchboard of `slots` ports spans, with rings of `ring` bytes, a power of two.
    pub fn required(slots: usize, ring: usize) -> usize {
        Layout::required(slots, ring)
    }

    /// Makes a segment, of which only the first pages are allocated yet, and the hub over it.
    ///
    /// # Errors
    ///
    /// When there is no room for it.
    pub fn make(slots: usize, ring: usize) -> Result<(Arc<Segment>, Self)> {
        let segment = Segment::create(Self::required(slots, ring), false)?.publish(None);
        Ok((Arc::clone(&segment), Self::create(segment, slots, ring)?))
    }

    /// Makes the hub over a segment of zeros.
    ///
    /// # Errors
    ///
    /// When the segment is too short, cannot be mapped, or there is no memory for its first pages.
    pub fn create(segment: Arc<Segment>, slots: usize, ring: usize) -> Result<Self> {
        let fits = usize::try_from(segment.size()).is_ok_and(|size| size >= Layout::required(slots, ring));
        if !fits || slots == 0 || !ring.is_power_of_two() || ring < 128 {
            return Err(error!(Code::TooLarge, "a switchboard does not fit into its segment"));
        }
        segment.set_range_aside(0, Layout::front(slots) as u64)?;
        let layout = Layout { segment, slots, ring };
        let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        let [magic, count, bytes] = &layout.head()?.magic.0;
        count.store(number(slots), Ordering::Relaxed);
        bytes.store(number(ring), Ordering::Relaxed);
        magic.store(MAGIC, Ordering::Release);
        let lines = Mutex::new((0..slots).map(|_| None).collect());
        Ok(Self { layout, lines, forks: process::fork_generation() })
    }

    /// A forked child has the memory, but the hub is its parent's.
    fn check(&self) -> Result<()> {
        if self.forks == process::fork_generation() {
            Ok(())
        } else {
            Err(error!(
                Code::StaleHandle,
                "a switchboard belongs to the process that made it, not to its forks"
            ))
        }
    }

    fn line(&self, port: usize) -> Option<Arc<Ends>> {
        self.lines.lock().get(port).cloned().flatten()
    }

    /// The ends of a port that was taken since the last call, if its memory can be allocated.
    fn join(&self, port: usize, pid: u32) -> Result<Arc<Ends>> {
        let birth = process::birth(pid).context("cannot look at the process of a bus's port")?;
        let (up, down) = self.layout.open(port)?;
        let line = Arc::new(Ends {
            pid,
            birth,
            up: Mutex::new(Some(Receiver::new(up.consumer()))),
            down_ring: down.clone(),
            down: Mutex::new(Some(down.producer())),
            corrupt: AtomicBool::new(false),
            paused: AtomicBool::new(false),
            closing: AtomicBool::new(false),
        });
        self.lines.lock()[port] = Some(Arc::clone(&line));
        Ok(line)
    }

    /// Receives everything that arrived since the last call. One thread at a time calls it.
    ///
    /// # Errors
    ///
    /// In a forked child, or when the segment cannot be mapped.
    pub fn receive(&self, events: &mut VecDeque<HubEvent>) -> Result<()> {
        self.check()?;
        for port in 0..self.layout.slots {
            let line = match self.line(port) {
                Some(line) => line,
                None => {
                    // Acquire: pairs with the port's compare and exchange.
                    let pid = self.layout.slot(port)?.pid.load(Ordering::Acquire);
                    if pid == 0 {
                        continue;
                    }
                    let Ok(line) = self.join(port, pid) else {
                        // There is no memory for its rings or no descriptor now. The next call tries again, after a
                        // pause.
                        std::thread::sleep(RETRY);
                        continue;
                    };
                    events.push_back(HubEvent::Joined { port, pid });
                    line
                }
            };
            if !line.is_readable() {
                continue;
            }
            let mut up = line.up.lock();
            let Some(up) = up.as_mut() else { continue };
            // Bounded, so that one busy port does not keep the others waiting.
            for _ in 0..TURN {
                match up.next() {
                    Ok(Some(message)) => events.push_back(HubEvent::Message { port, message }),
                    Ok(None) => break,
                    Err(Corrupt) => {
                        line.corrupt.store(true, Ordering::Relaxed);
                        events.push_back(HubEvent::Corrupt { port });
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn anything(&self) -> Result<bool> {
        for port in 0..self.layout.slots {
            let slot = self.layout.slot(port)?;
            let fresh = match self.line(port) {
                Some(line) => {
                    line.is_readable() && (line.is_ready() || slot.left.load(Ordering::Acquire) != 0)
                }
                None => slot.pid.load(Ordering::Acquire) != 0,
            };
            if fresh {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Sleeps until there is something to receive, a port was left, another thread calls [`wake`](Self::wake), or the
    /// time is up. One thread at a time calls it.
    ///
    /// # Errors
    ///
    /// As [`receive`](Self::receive).
    pub fn wait(&self, timeout: Duration) -> Result<()> {
        self.check()?;
        let mut looked = Ok(false);
        let is_there = || {
            looked = self.anything();
            !matches!(looked, Ok(false))
        };
        // Its fence pairs with the one in Port::wake_hub: either the port sees that the hub sleeps, or the hub sees
        // what the port did.
        self.layout.head()?.sleep.0.sleep_unless(is_there, Some(timeout));
        looked.map(drop)
    }

    /// Wakes the thread that waits.
    ///
    /// # Errors
    ///
    /// When the segment cannot be mapped.
    pub fn wake(&self) -> Result<()> {
        fence(Ordering::SeqCst);
        self.layout.head()?.sleep.0.wake_if_asleep();
        Ok(())
    }

    /// Pauses a port, so that nothing is read from it, or resumes it. This holds up the process that publishes there.
    /// After resuming, call [`wake`](Self::wake).
    pub fn pause(&self, port: usize, paused: bool) {
        if let Some(line) = self.line(port) {
            line.paused.store(paused, Ordering::Relaxed);
        }
    }

    /// Ports to be cleared: their process has ended or left, and everything of theirs was received.
    ///
    /// # Errors
    ///
    /// In a forked child, or when the segment cannot be mapped.
    pub fn gone(&self) -> Result<Vec<usize>> {
        self.check()?;
        let mut gone = Vec::new();
        for port in 0..self.layout.slots {
            let Some(line) = self.line(port) else { continue };
            // First check whether anything more can come, then whether there is anything.
            let is_over = self.layout.slot(port)?.left.load(Ordering::Acquire) != 0 || !line.is_alive();
            if is_over
                && !line.paused.load(Ordering::Relaxed)
                && (line.corrupt.load(Ordering::Relaxed) || !line.is_ready())
            {
                gone.push(port);
            }
        }
        Ok(gone)
    }

    /// Sends a message to a port if there is room for all of it, and no thread waits for room there; returns whether it
    /// was sent.
    ///
    /// # Errors
    ///
    /// If the message is too long, the port's memory is corrupt, or in a forked child.
    pub fn offer(&self, port: usize, message: &[u8]) -> Result<bool> {
        self.check()?;
        let Some(line) = self.line(port) else { return Ok(false) };
        let Some(mut down) = lock_soon(&line.down) else { return Ok(false) };
        let Some(ring) = down.as_mut() else { return Ok(false) };
        let went = offer(ring, message)?;
        if went {
            ring.wake_consumer();
        }
        Ok(went)
    }

    /// Sends a message to a port, waiting for room while the port's process lives, has not left, and `goes_on` returns
    /// true; false if the message was not sent to its end.
    ///
    /// # Errors
    ///
    /// As [`offer`](Self::offer).
    pub fn send(&self, port: usize, message: &[u8], mut goes_on: impl FnMut() -> bool) -> Result<bool> {
        self.check()?;
        let Some(line) = self.line(port) else { return Ok(false) };
        let slot = self.layout.slot(port)?;
        let mut down = line.down.lock();
        let Some(ring) = down.as_mut() else { return Ok(false) };
        let wake = |ring: &Producer| {
            ring.wake_consumer();
        };
        send(ring, message, wake, || {
            let closing = line.closing.load(Ordering::Relaxed) || slot.left.load(Ordering::Relaxed) != 0;
            !closing && goes_on() && line.is_alive()
        })
    }

    /// Acknowledges the port's message of this number.
    ///
    /// # Errors
    ///
    /// When there is no such port.
    pub fn acknowledge(&self, port: usize, number: u32) -> Result<()> {
        let slot = self.layout.slot(port)?;
        slot.acknowledged.store(number, Ordering::Release);
        fence(Ordering::SeqCst);
        slot.sleep.wake_if_asleep();
        Ok(())
    }

    /// Announces that nothing more is sent: the ports read the remaining messages, and end.
    ///
    /// # Errors
    ///
    /// In a forked child, or when the segment cannot be mapped.
    pub fn close(&self) -> Result<()> {
        self.check()?;
        self.layout.head()?.closed.0.store(1, Ordering::Release);
        let lines: Vec<_> = self.lines.lock().iter().flatten().cloned().collect();
        for line in lines {
            line.down_ring.wake_consumer();
        }
        Ok(())
    }

    /// Whether anything but this hub and `others` holds the segment, while no port of it is taken.
    pub fn is_held(&self, others: usize) -> bool {
        Arc::strong_count(&self.layout.segment) > 1 + others
    }

    /// The process that has a port, if there is one.
    pub fn pid(&self, port: usize) -> Option<u32> {
        self.line(port).map(|line| line.pid)
    }

    /// Clears a port whose process is gone, once everything of it was received, for the next process to take.
    ///
    /// # Errors
    ///
    /// When the segment cannot be mapped.
    pub fn clear(&self, port: usize) -> Result<()> {
        self.check()?;
        let line = self.lines.lock().get_mut(port).and_then(Option::take);
        let Some(line) = line else { return Ok(()) };
        line.closing.store(true, Ordering::Relaxed);
        // A thread that found the line before it was taken out has finished with it, or finds no ends in the locks.
        drop((line.up.lock().take(), line.down.lock().take()));
        self.layout.close(port)?;
        let slot = self.layout.slot(port)?;
        slot.acknowledged.store(0, Ordering::Relaxed);
        slot.left.store(0, Ordering::Relaxed);
        slot.sleep.lower();
        slot.pid.store(0, Ordering::Release);
        Ok(())
    }
}
