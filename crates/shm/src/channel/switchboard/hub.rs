//! The hub's end.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use ropewalk_base::{Code, Result, error};
use ropewalk_os::process;
use ropewalk_sync::Mutex;
use ropewalk_sync::atomic::{Ordering, fence};

use super::{Layout, MAGIC, Receiver, lock_soon, offer, send};
use crate::channel::ring::{Corrupt, Producer, RingMemory};
use crate::memory::Segment;

/// Messages that are heard from one port before the next is looked at.
const TURN: usize = 64;
/// How long to wait for memory.
const RETRY: Duration = Duration::from_millis(10);

/// The hub's ends of a port's rings, for as long as the port is taken.
///
/// Whoever has an `Arc` of this may keep it for longer than that. So the ends are inside the locks, and `clear` takes
/// them out before the port's memory goes to another process: a ring never has two producers or two consumers here.
struct Ends {
    pid: u32,
    /// When the process was started: its number may come again.
    birth: Option<u64>,
    up: Mutex<Option<Receiver>>,
    down: Mutex<Option<Producer>>,
    /// The ring down, to wake its consumer by.
    bell: RingMemory,
    /// Its memory made no sense: nothing more is read from it. Relaxed: nothing depends on when others see it.
    corrupt: AtomicBool,
    /// Nothing is read from it until it is resumed. Relaxed, as above.
    paused: AtomicBool,
    /// It is being cleared: nobody waits for room in it any more. Relaxed, as above.
    closing: AtomicBool,
}

impl Ends {
    fn is_heard(&self) -> bool {
        !self.corrupt.load(Ordering::Relaxed) && !self.paused.load(Ordering::Relaxed)
    }

    fn is_alive(&self) -> bool {
        self.birth.is_some() && process::birth(self.pid) == self.birth
    }

    fn is_ready(&self) -> bool {
        self.up.lock().as_ref().is_some_and(|up| up.ring.is_ready())
    }
}

/// The hub: made by one process, for those that it gives the segment to.
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

/// What the hub hears.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
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
        /// Its bytes.
        message: Vec<u8>,
    },
    /// A port's memory makes no sense; nothing more is heard from it.
    Corrupt {
        /// The port.
        port: usize,
    },
}

impl Switchboard {
    /// Bytes that a switchboard of so many ports spans, with rings of `ring` bytes: a power of two.
    pub fn required(slots: usize, ring: usize) -> usize {
        Layout::required(slots, ring)
    }

    /// Makes a segment, of which only the first pages have memory yet, and the hub over it.
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

    /// A port that was taken since the last look, if its memory can be had.
    fn join(&self, port: usize, pid: u32) -> Result<Arc<Ends>> {
        let (up, down) = self.layout.open(port)?;
        let line = Arc::new(Ends {
            pid,
            birth: process::birth(pid),
            up: Mutex::new(Some(Receiver::new(up.consumer()))),
            bell: down.clone(),
            down: Mutex::new(Some(down.producer())),
            corrupt: AtomicBool::new(false),
            paused: AtomicBool::new(false),
            closing: AtomicBool::new(false),
        });
        self.lines.lock()[port] = Some(Arc::clone(&line));
        Ok(line)
    }

    /// Everything that has been said since the last call. By one thread at a time.
    ///
    /// # Errors
    ///
    /// In a forked child, or when the segment cannot be mapped.
    pub fn hear(&self, heard: &mut VecDeque<Heard>) -> Result<()> {
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
                        // There is no memory for its rings at the moment. It is tried again, and not too often.
                        std::thread::sleep(RETRY);
                        continue;
                    };
                    heard.push_back(Heard::Joined { port, pid });
                    line
                }
            };
            if !line.is_heard() {
                continue;
            }
            let mut up = line.up.lock();
            let Some(up) = up.as_mut() else { continue };
            // Bounded, so that one port that never rests does not keep the others from being heard.
            for _ in 0..TURN {
                match up.next() {
                    Ok(Some(message)) => heard.push_back(Heard::Message { port, message }),
                    Ok(None) => break,
                    Err(Corrupt) => {
                        line.corrupt.store(true, Ordering::Relaxed);
                        heard.push_back(Heard::Corrupt { port });
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
                Some(line) => line.is_heard() && (line.is_ready() || slot.left.load(Ordering::Acquire) != 0),
                None => slot.pid.load(Ordering::Acquire) != 0,
            };
            if fresh {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Sleeps until there is something to hear, a port was left, somebody calls [`wake`](Self::wake), or the time is
    /// up. One thread at a time.
    ///
    /// # Errors
    ///
    /// As [`hear`](Self::hear).
    pub fn wait(&self, timeout: Duration) -> Result<()> {
        self.check()?;
        let mut looked = Ok(false);
        let is_there = || {
            looked = self.anything();
            !matches!(looked, Ok(false))
        };
        // Its fence pairs with the one in Port::ring_bell: either that sees that we sleep or we see what it did.
        self.layout.head()?.bell.0.sleep_unless(is_there, Some(timeout));
        looked.map(drop)
    }

    /// Wakes the thread that waits.
    ///
    /// # Errors
    ///
    /// When the segment cannot be mapped.
    pub fn wake(&self) -> Result<()> {
        fence(Ordering::SeqCst);
        self.layout.head()?.bell.0.wake_if_asleep();
        Ok(())
    }

    /// Reads nothing from a port, or reads from it again: how whoever publishes there is held up. Whoever resumes calls
    /// [`wake`](Self::wake).
    pub fn pause(&self, port: usize, paused: bool) {
        if let Some(line) = self.line(port) {
            line.paused.store(paused, Ordering::Relaxed);
        }
    }

    /// Ports whose process has ended or left, and of which everything was heard: to be cleared.
    ///
    /// # Errors
    ///
    /// In a forked child, or when the segment cannot be mapped.
    pub fn gone(&self) -> Result<Vec<usize>> {
        self.check()?;
        let mut gone = Vec::new();
        for port in 0..self.layout.slots {
            let Some(line) = self.line(port) else { continue };
            // First whether anything more can come, then whether there is anything.
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

    /// Sends a message to a port if there is room for all of it, and nobody waits for room there; whether it went.
    ///
    /// # Errors
    ///
    /// When the message is too long, the port's memory makes no sense, or in a forked child.
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

    /// Sends a message to a port, waiting for room for as long as the port's process lives and has not left, and
    /// `goes_on` says so; false if it was not sent to its end.
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

    /// Tells a port that what it numbered so has been dealt with.
    ///
    /// # Errors
    ///
    /// When there is no such port.
    pub fn acknowledge(&self, port: usize, number: u32) -> Result<()> {
        let slot = self.layout.slot(port)?;
        slot.acknowledged.store(number, Ordering::Release);
        fence(Ordering::SeqCst);
        slot.bell.wake_if_asleep();
        Ok(())
    }

    /// Says that nothing more is sent: the ports read what there is, and end.
    ///
    /// # Errors
    ///
    /// In a forked child, or when the segment cannot be mapped.
    pub fn close(&self) -> Result<()> {
        self.check()?;
        self.layout.head()?.closed.0.store(1, Ordering::Release);
        let lines: Vec<_> = self.lines.lock().iter().flatten().cloned().collect();
        for line in lines {
            line.bell.wake_consumer();
        }
        Ok(())
    }

    /// Whether anything but this hub and `others` holds the segment, while no port of it is taken.
    pub fn is_held(&self, others: usize) -> bool {
        Arc::strong_count(&self.layout.segment) > 1 + others
    }

    /// The process behind a port, if there is one.
    pub fn pid(&self, port: usize) -> Option<u32> {
        self.line(port).map(|line| line.pid)
    }

    /// Clears a port whose process is gone, once everything was heard of it, for the next one to take.
    ///
    /// # Errors
    ///
    /// When the segment cannot be mapped.
    pub fn clear(&self, port: usize) -> Result<()> {
        self.check()?;
        let line = self.lines.lock().get_mut(port).and_then(Option::take);
        let Some(line) = line else { return Ok(()) };
        line.closing.store(true, Ordering::Relaxed);
        // A thread that found the line before it was taken out is done with it, or finds nothing here.
        drop((line.up.lock().take(), line.down.lock().take()));
        self.layout.close(port)?;
        let slot = self.layout.slot(port)?;
        slot.acknowledged.store(0, Ordering::Relaxed);
        slot.left.store(0, Ordering::Relaxed);
        slot.bell.lower();
        slot.pid.store(0, Ordering::Release);
        Ok(())
    }
}
