//! A switchboard: one hub and many ports, each with a ring up to the hub and one down from it.
//!
//! A process that has the segment takes a port by writing its process id into a free slot: the one word that several
//! processes compete for. From then on each ring has one process at either end, so that a process that dies takes
//! nothing with it but its own port, which the hub clears when it has read what was left.
//!
//! Messages are bytes of any length; long ones go in pieces. `README.md` has the protocol.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use windlass_base::{Code, Result, error};
use windlass_os::process;

use crate::ring::{AdaptiveSpin, Consumer, Corrupt, Header, Producer, PushError, RingMemory};
use crate::segment::Segment;
use crate::sync::{AtomicU32, Futex, Ordering, fence};

const MAGIC: u32 = 0x574C_5331;
/// Record kinds: the last piece of a message, and one that others follow.
const LAST: u16 = 1;
const MORE: u16 = 2;
/// Nothing longer is put together: a peer cannot make us take all memory.
const LONGEST: usize = 1 << 30;
/// A wait for room is looked after this often, for the peer may have died.
const PATIENCE: Duration = Duration::from_millis(100);

#[repr(C, align(64))]
struct Line<T>(T);

#[repr(C)]
struct Head {
    /// The shape, written by the hub before anybody else has the segment.
    magic: Line<[AtomicU32; 3]>,
    /// The hub sleeps on it; ports wake it.
    bell: Line<Futex>,
}

/// A port's words.
#[repr(C, align(64))]
struct Slot {
    /// The process that has the port, 0 for nobody. Taken by the port (compare and exchange from 0), given back by
    /// the hub, once the process is gone.
    pid: AtomicU32,
    /// What the hub has acknowledged: a number of the port's. Written by the hub (release), read by the port.
    acknowledged: AtomicU32,
    /// The port sleeps on it while it waits for that.
    bell: Futex,
}

/// Where things are.
#[derive(Clone)]
struct Layout {
    segment: Arc<Segment>,
    slots: usize,
    ring: usize,
}

impl Layout {
    fn required(slots: usize, ring: usize) -> usize {
        size_of::<Head>() + slots * (size_of::<Slot>() + 2 * RingMemory::required(ring))
    }

    fn head(&self) -> Result<&Head> {
        let start = self.segment.data()?;
        // SAFETY: whoever made this layout has checked that the segment is as long as `required` says; its data are
        // page-aligned and live as long as self; Head is atomics only.
        Ok(unsafe { &*start.cast::<Head>() })
    }

    fn slot(&self, at: usize) -> Result<&Slot> {
        if at >= self.slots {
            return Err(error!(Code::TooLarge, "a switchboard has no such port"));
        }
        let start = self.segment.data()?;
        // SAFETY: as above, with the index checked; Slot is atomics only, and as aligned as Head.
        Ok(unsafe { &*start.add(size_of::<Head>() + at * size_of::<Slot>()).cast::<Slot>() })
    }

    /// The memory of a port's rings: up, then down.
    fn rings(&self, at: usize) -> Result<(RingMemory, RingMemory)> {
        let one = RingMemory::required(self.ring);
        let start = size_of::<Head>() + self.slots * size_of::<Slot>() + at * 2 * one;
        let ring = |offset| RingMemory::in_segment(Arc::clone(&self.segment), offset, self.ring);
        Ok((ring(start)?, ring(start + one)?))
    }
}

/// Messages being put together.
struct Receiver {
    ring: Consumer,
    parts: Vec<u8>,
}

impl Receiver {
    fn next(&mut self) -> Result<Option<Vec<u8>>, Corrupt> {
        while let Some(header) = self.ring.peek()? {
            if !self.ring.start() {
                continue;
            }
            if self.parts.len() + header.len as usize > LONGEST {
                return Err(Corrupt);
            }
            self.ring.copy_payload(&mut self.parts);
            self.ring.finish();
            match header.kind {
                LAST => return Ok(Some(std::mem::take(&mut self.parts))),
                MORE => {}
                _ => return Err(Corrupt),
            }
        }
        Ok(None)
    }
}

/// Sends a message in as many pieces as it takes. `goes_on` is asked while there is no room.
fn send(
    ring: &mut Producer,
    message: &[u8],
    mut pushed: impl FnMut(&Producer),
    mut goes_on: impl FnMut() -> bool,
) -> Result<bool> {
    if message.len() > LONGEST {
        return Err(error!(Code::TooLarge, "a message between processes is longer than 1 GiB"));
    }
    let most = ring.max_record();
    let count = message.len().div_ceil(most).max(1);
    for (number, piece) in (1..).zip(message.chunks(most).chain(message.is_empty().then_some(&[][..]))) {
        let header = Header { kind: if number == count { LAST } else { MORE }, ..Header::default() };
        loop {
            match ring.try_push(header, &[piece]) {
                Ok(_) => break,
                Err(PushError::Full) => {
                    if !ring.wait_space(piece.len(), Some(PATIENCE)) && !goes_on() {
                        return Ok(false);
                    }
                }
                Err(PushError::TooLarge) => {
                    return Err(error!(Code::TooLarge, "a message does not fit into its ring"));
                }
                Err(PushError::Corrupt) => return Err(Corrupt.into()),
            }
        }
        pushed(ring);
    }
    Ok(true)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The hub's ends of a port's rings. The locks are of this process: they keep its own threads apart.
struct Ends {
    pid: u32,
    up: Mutex<Receiver>,
    down: Mutex<Producer>,
    /// Its ring up made no sense: nothing more is read from it. Written by the thread that hears; relaxed, for it reads
    /// it, too.
    corrupt: AtomicBool,
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
    /// Bytes that a switchboard of so many ports takes, with rings of `ring` bytes: a power of two.
    pub fn required(slots: usize, ring: usize) -> usize {
        Layout::required(slots, ring)
    }

    /// Makes the hub over a segment of zeros.
    ///
    /// # Errors
    ///
    /// When the segment is too short or cannot be mapped.
    pub fn create(segment: Arc<Segment>, slots: usize, ring: usize) -> Result<Self> {
        let fits = usize::try_from(segment.size()).is_ok_and(|size| size >= Layout::required(slots, ring));
        if !fits || slots == 0 {
            return Err(error!(Code::TooLarge, "a switchboard does not fit into its segment"));
        }
        let layout = Layout { segment, slots, ring };
        for at in 0..slots {
            let (up, down) = layout.rings(at)?;
            up.initialise();
            down.initialise();
        }
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
            Err(error!(Code::ShmStale, "a switchboard belongs to the process that made it, not to its forks"))
        }
    }

    /// Everything that has been said since the last call.
    ///
    /// # Errors
    ///
    /// In a forked child, or when the segment cannot be mapped.
    pub fn hear(&self, heard: &mut VecDeque<Heard>) -> Result<()> {
        self.check()?;
        for port in 0..self.layout.slots {
            // Acquire: pairs with the port's compare and exchange.
            let pid = self.layout.slot(port)?.pid.load(Ordering::Acquire);
            let known = lock(&self.lines)[port].clone();
            let line = match known {
                Some(line) => line,
                None if pid == 0 => continue,
                None => {
                    let (up, down) = self.layout.rings(port)?;
                    let up = Mutex::new(Receiver { ring: up.consumer(), parts: Vec::new() });
                    let down = Mutex::new(down.producer());
                    let line = Arc::new(Ends { pid, up, down, corrupt: AtomicBool::new(false) });
                    lock(&self.lines)[port] = Some(Arc::clone(&line));
                    heard.push_back(Heard::Joined { port, pid });
                    line
                }
            };
            if line.corrupt.load(Ordering::Relaxed) {
                continue;
            }
            let mut up = lock(&line.up);
            // Bounded, so that one port that never rests does not keep the others from being heard.
            for _ in 0..64 {
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

    fn anything(&self) -> Result<bool> {
        for port in 0..self.layout.slots {
            let known = lock(&self.lines)[port].clone();
            let fresh = match known {
                Some(line) => !line.corrupt.load(Ordering::Relaxed) && lock(&line.up).ring.is_ready(),
                None => self.layout.slot(port)?.pid.load(Ordering::Acquire) != 0,
            };
            if fresh {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Sleeps until there is something to hear, somebody calls [`wake`](Self::wake), or the time is up. One thread at a
    /// time.
    ///
    /// # Errors
    ///
    /// As [`hear`](Self::hear).
    pub fn wait(&self, timeout: Duration) -> Result<()> {
        self.check()?;
        let bell = &self.layout.head()?.bell.0;
        // Its fence pairs with the one in Port::ring: either that sees that we sleep or we see what it did.
        bell.announce();
        if !self.anything()? {
            bell.sleep(Some(timeout));
        }
        bell.withdraw();
        Ok(())
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

    /// Sends a message to a port, waiting for room for as long as `goes_on` says so; false if it was not sent to its
    /// end.
    ///
    /// # Errors
    ///
    /// When the message is too long, the port's memory makes no sense, or in a forked child.
    pub fn send(&self, port: usize, message: &[u8], goes_on: impl FnMut() -> bool) -> Result<bool> {
        self.check()?;
        let line = lock(&self.lines).get(port).cloned().flatten();
        let Some(line) = line else { return Ok(false) };
        let mut down = lock(&line.down);
        let wake = |ring: &Producer| {
            ring.wake_consumer();
        };
        send(&mut down, message, wake, goes_on)
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

    /// The process behind a port, if there is one.
    pub fn pid(&self, port: usize) -> Option<u32> {
        lock(&self.lines).get(port)?.as_ref().map(|line| line.pid)
    }

    /// Clears a port whose process is gone, once everything was heard of it.
    ///
    /// # Errors
    ///
    /// When the segment cannot be mapped.
    pub fn clear(&self, port: usize) -> Result<()> {
        self.check()?;
        let line = lock(&self.lines).get_mut(port).and_then(Option::take);
        if let Some(line) = line {
            // Whoever sends to it right now has its ends until it is done.
            drop((lock(&line.up), lock(&line.down)));
            let (up, down) = self.layout.rings(port)?;
            up.initialise();
            down.initialise();
            let slot = self.layout.slot(port)?;
            slot.acknowledged.store(0, Ordering::Relaxed);
            slot.pid.store(0, Ordering::Release);
        }
        Ok(())
    }
}

/// A port: the far end of a switchboard, one for each process.
pub struct Port {
    layout: Layout,
    at: usize,
    up: Mutex<Producer>,
    down: Mutex<Receiver>,
    forks: u64,
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port").field("at", &self.at).finish_non_exhaustive()
    }
}

impl Port {
    /// Takes a free port.
    ///
    /// # Errors
    ///
    /// When the segment holds no switchboard, or no port of it is free.
    pub fn take(segment: Arc<Segment>) -> Result<Self> {
        let size = usize::try_from(segment.size()).unwrap_or(0);
        let corrupt = || error!(Code::ShmCorrupt, "a segment holds no switchboard");
        if size < size_of::<Head>() {
            return Err(corrupt());
        }
        let layout = Layout { segment, slots: 0, ring: 0 };
        let shape = &layout.head()?.magic.0;
        let [magic, slots, ring] = [0, 1, 2].map(|at: usize| shape[at].load(Ordering::Acquire) as usize);
        // Checked before it is multiplied: the numbers are another process's.
        let sane = magic == MAGIC as usize && slots > 0 && slots <= 1 << 16 && ring <= 1 << 30;
        if !sane || Layout::required(slots, ring) > size {
            return Err(corrupt());
        }
        let layout = Layout { slots, ring, ..layout };
        let pid = u32::try_from(process::current_pid()).unwrap_or(0);
        for at in 0..slots {
            let word = &layout.slot(at)?.pid;
            if word.compare_exchange(0, pid, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                let (up, down) = layout.rings(at)?;
                let (up, down) =
                    (Mutex::new(up.producer()), Receiver { ring: down.consumer(), parts: Vec::new() });
                let port = Self { layout, at, up, down: Mutex::new(down), forks: process::fork_generation() };
                port.ring_bell()?;
                return Ok(port);
            }
        }
        Err(error!(Code::Ports, "every port of a switchboard is taken"))
    }

    fn check(&self) -> Result<()> {
        if self.forks == process::fork_generation() {
            Ok(())
        } else {
            Err(error!(Code::ShmStale, "a port belongs to the process that took it, not to its forks"))
        }
    }

    fn ring_bell(&self) -> Result<()> {
        // Pairs with the fence in Switchboard::wait.
        fence(Ordering::SeqCst);
        self.layout.head()?.bell.0.wake_if_asleep();
        Ok(())
    }

    /// Sends a message to the hub, waiting for room for as long as `goes_on` says so; false if it was not sent to its
    /// end.
    ///
    /// # Errors
    ///
    /// When the message is too long, the memory makes no sense, or in a forked child.
    pub fn send(&self, message: &[u8], goes_on: impl FnMut() -> bool) -> Result<bool> {
        self.check()?;
        let bell = self.layout.head()?;
        let wake = |_: &Producer| {
            fence(Ordering::SeqCst);
            bell.bell.0.wake_if_asleep();
        };
        send(&mut lock(&self.up), message, wake, goes_on)
    }

    /// The next message from the hub, waited for.
    ///
    /// # Errors
    ///
    /// When the memory makes no sense, or in a forked child.
    pub fn receive(&self, timeout: Duration) -> Result<Option<Vec<u8>>> {
        self.check()?;
        let mut down = lock(&self.down);
        if let Some(message) = down.next()? {
            return Ok(Some(message));
        }
        down.ring.wait(&mut AdaptiveSpin::new(), || false, Some(timeout));
        Ok(down.next()?)
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
            slot.bell.announce();
            if !reached() && !left.is_zero() {
                slot.bell.sleep(Some(left.min(PATIENCE)));
            }
            slot.bell.withdraw();
            if reached() || left.is_zero() {
                return Ok(reached());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hub(slots: usize, ring: usize) -> (Arc<Segment>, Switchboard) {
        let segment =
            Segment::create(Switchboard::required(slots, ring), true).expect("memory").publish(None);
        let board = Switchboard::create(Arc::clone(&segment), slots, ring).expect("it fits");
        (segment, board)
    }

    fn hear(board: &Switchboard) -> Vec<Heard> {
        let mut heard = VecDeque::new();
        board.hear(&mut heard).expect("the hub is ours");
        heard.into()
    }

    #[test]
    fn messages_go_both_ways_in_order_and_in_pieces() {
        let (segment, board) = hub(2, 1024);
        let port = Port::take(segment).expect("a free port");
        let pid = u32::try_from(process::current_pid()).expect("a process id");
        assert_eq!(hear(&board), [Heard::Joined { port: 0, pid }]);
        let long: Vec<u8> = (0..100_000_u32).map(|n| n as u8).collect();
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                for message in [&b"short"[..], &[], &long] {
                    assert!(port.send(message, || true).expect("sent"));
                }
            });
            let mut heard = Vec::new();
            while heard.len() < 3 {
                board.wait(Duration::from_millis(100)).expect("the hub is ours");
                heard.extend(hear(&board));
            }
            let message = |message: &[u8]| Heard::Message { port: 0, message: message.to_vec() };
            assert_eq!(heard, [message(b"short"), message(&[]), message(&long)]);
            sender.join().expect("no panic");
            let sender = scope.spawn(|| assert!(board.send(0, &long, || true).expect("sent")));
            let mut received = None;
            while received.is_none() {
                received = port.receive(Duration::from_millis(100)).expect("sound");
            }
            assert_eq!(received, Some(long.clone()));
            sender.join().expect("no panic");
        });
    }

    #[test]
    fn a_port_is_taken_once_and_can_be_cleared() {
        let (segment, board) = hub(1, 1024);
        let first = Port::take(Arc::clone(&segment)).expect("a free port");
        assert_eq!(Port::take(Arc::clone(&segment)).expect_err("taken").code(), Code::Ports);
        first.send(b"left behind", || true).expect("sent");
        assert_eq!(hear(&board).len(), 2);
        board.clear(0).expect("the hub is ours");
        drop(first);
        let second = Port::take(segment).expect("free again");
        assert!(matches!(hear(&board)[..], [Heard::Joined { .. }]));
        assert!(second.receive(Duration::ZERO).expect("sound").is_none());
    }

    #[test]
    fn a_full_ring_waits_for_as_long_as_it_is_told() {
        let (segment, board) = hub(1, 1024);
        let port = Port::take(segment).expect("a free port");
        hear(&board);
        let mut asked = 0;
        let sent = port.send(&[7; 5000], || {
            asked += 1;
            asked < 3
        });
        assert!(!sent.expect("no error"));
        assert_eq!(asked, 3);
    }

    #[test]
    fn an_acknowledgement_is_waited_for() {
        let (segment, board) = hub(1, 1024);
        let port = Port::take(segment).expect("a free port");
        assert!(!port.wait_acknowledged(5, Duration::from_millis(1)).expect("mapped"));
        std::thread::scope(|scope| {
            scope.spawn(|| board.acknowledge(0, 6).expect("there is such a port"));
            assert!(port.wait_acknowledged(5, Duration::from_secs(30)).expect("mapped"));
        });
    }

    #[test]
    fn a_hostile_segment_is_refused() {
        let segment = Segment::create(8192, true).expect("memory").publish(None);
        assert_eq!(Port::take(Arc::clone(&segment)).expect_err("zeros").code(), Code::ShmCorrupt);
        let head = segment.data().expect("mapped").cast::<u32>();
        for (slots, ring) in [(0, 1024), (u32::MAX, 1024), (1, u32::MAX), (1 << 16, 1 << 30), (4, 4096)] {
            // SAFETY: the first words of a mapped segment that nobody else has.
            unsafe {
                head.write(MAGIC);
                head.add(1).write(slots);
                head.add(2).write(ring);
            }
            let error = Port::take(Arc::clone(&segment)).expect_err("nonsense");
            assert!(matches!(error.code(), Code::ShmCorrupt | Code::TooLarge), "{error:?}");
        }
    }

    #[test]
    fn a_port_that_scribbles_is_told_and_harms_no_other() {
        let (segment, board) = hub(2, 1024);
        let one = Port::take(Arc::clone(&segment)).expect("a free port");
        let two = Port::take(segment).expect("a free port");
        hear(&board);
        two.send(b"sound", || true).expect("sent");
        let (up, _) = one.layout.rings(0).expect("it fits");
        let mut rogue = up.producer();
        for _ in 0..20 {
            let _ = rogue.try_push(Header { kind: 77, ..Header::default() }, &[b"no such kind"]);
        }
        let heard = hear(&board);
        assert!(heard.contains(&Heard::Corrupt { port: 0 }), "{heard:?}");
        assert!(heard.contains(&Heard::Message { port: 1, message: b"sound".to_vec() }), "{heard:?}");
        board.clear(0).expect("the hub is ours");
        two.send(b"still", || true).expect("sent");
        assert_eq!(hear(&board), [Heard::Message { port: 1, message: b"still".to_vec() }]);
    }
}
