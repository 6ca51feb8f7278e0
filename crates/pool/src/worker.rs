//! The worker's end: one lane's two rings, and the channel that segments' descriptors come through.
//!
//! A worker trusts its parent, so payloads are read in place. Everything here is for one thread at a time.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use windlass_base::{Code, Error, Result, ResultExt, error};
use windlass_os::mmap::{Mapping, Protection};
use windlass_os::socket;
use windlass_shm::arena::Arena;
use windlass_shm::ring::{AdaptiveSpin, Consumer, Header, Producer, PushError};
use windlass_shm::segment::Segment;

use crate::control::Control;
use crate::lane::LaneLayout;
use crate::wire::kind;

/// A record for this worker, copied out of the ring; its payload is read by [`WorkerEnd::payload`].
#[derive(Clone, Copy, Debug)]
pub struct Incoming {
    /// One of `wire::kind`.
    pub kind: u16,
    /// Bits of `wire::flags`.
    pub flags: u16,
    /// The task's id, for a task.
    pub id: u64,
    /// What the kind says.
    pub aux: u64,
}

/// One lane, seen from the worker.
#[derive(Debug)]
pub struct WorkerEnd {
    tasks: Consumer,
    results: Producer,
    control: Arc<Control>,
    spin: AdaptiveSpin,
}

impl WorkerEnd {
    /// Maps a lane that the parent made.
    ///
    /// # Errors
    ///
    /// When the descriptor is not that of a lane.
    pub fn attach(lane: OwnedFd, control: Arc<Control>) -> Result<Self> {
        let layout = LaneLayout::DEFAULT;
        let map = Arc::new(
            Mapping::map(lane.as_fd(), layout.size(), Protection::ReadWrite)
                .context("could not map a lane")?,
        );
        let tasks = layout.tasks(&map)?.consumer();
        let results = layout.results(&map)?.producer();
        Ok(Self { tasks, results, control, spin: AdaptiveSpin::new() })
    }

    /// The next record, without blocking. A task is marked as started before it is returned.
    ///
    /// # Errors
    ///
    /// `Code::ShmCorrupt` when the ring's numbers make no sense; the worker had better leave then.
    pub fn try_next(&mut self) -> Result<Option<Incoming>> {
        loop {
            let Some(header) = self.tasks.peek().map_err(Error::from)? else { return Ok(None) };
            if self.tasks.start() {
                return Ok(Some(Incoming {
                    kind: header.kind,
                    flags: header.flags,
                    id: header.id,
                    aux: header.aux,
                }));
            }
        }
    }

    /// Bytes of the record that [`try_next`](Self::try_next) returned last; valid until [`finish`](Self::finish).
    pub fn payload(&self) -> &[u8] {
        self.tasks.payload()
    }

    /// Lets the parent reuse the current record's bytes.
    pub fn finish(&mut self) {
        self.tasks.finish();
    }

    /// Blocks until a record is there: a short spin while cores are free, then a futex. May return early.
    pub fn wait(&mut self, timeout: Option<Duration>) {
        let control = &self.control;
        self.tasks.wait(&mut self.spin, || control.may_spin(), timeout);
    }

    /// The largest payload that a reply can carry inside the ring.
    pub fn max_inline(&self) -> usize {
        self.results.max_record()
    }

    /// Sends a record, or returns false when the ring has no room at the moment.
    ///
    /// # Errors
    ///
    /// `Code::TooLarge` for a payload beyond [`max_inline`](Self::max_inline).
    pub fn try_reply(&mut self, kind: u16, flags: u16, id: u64, aux: u64, parts: &[&[u8]]) -> Result<bool> {
        match self.results.try_push(Header { kind, flags, len: 0, id, aux }, parts) {
            Ok(_) => {
                let tasks = &self.tasks;
                let crowded = self.results.used() * 2 > self.results.capacity();
                self.control.after_push(|| !tasks.is_ready(), crowded);
                Ok(true)
            }
            Err(PushError::Full) => {
                self.control.ring(self.control.mode());
                Ok(false)
            }
            Err(PushError::TooLarge) => Err(error!(Code::TooLarge, "a reply is larger than its ring takes")),
            Err(PushError::Corrupt) => Err(error!(Code::ShmCorrupt, "a result ring's head makes no sense")),
        }
    }

    /// Waits for room for `need` bytes of payload; call it with the interpreter released, then try again.
    pub fn wait_room(&mut self, need: usize) {
        self.results.wait_space(need, Some(Duration::from_millis(20)));
    }

    /// Sends a record, blocking while the ring is full.
    ///
    /// # Errors
    ///
    /// As [`try_reply`](Self::try_reply).
    pub fn reply(&mut self, kind: u16, flags: u16, id: u64, aux: u64, parts: &[&[u8]]) -> Result<()> {
        let need = parts.iter().map(|part| part.len()).sum();
        while !self.try_reply(kind, flags, id, aux, parts)? {
            self.wait_room(need);
        }
        Ok(())
    }

    /// Says that the initializer has run.
    ///
    /// # Errors
    ///
    /// As [`try_reply`](Self::try_reply).
    pub fn ready(&mut self) -> Result<()> {
        let pid = u64::from(windlass_os::process::current_pid().unsigned_abs());
        self.reply(kind::READY, crate::wire::flags::EMPTY, 0, pid, &[])
    }
}

const SEGMENT_MESSAGE: usize = 32;
const PATIENCE: Duration = Duration::from_secs(10);

/// Writes the message that goes beside a segment's descriptor; `given`: the receiver is its only owner from now on.
pub(crate) fn segment_message(segment: &Segment, given: bool) -> [u8; SEGMENT_MESSAGE] {
    let mut out = [0; SEGMENT_MESSAGE];
    out[..4].copy_from_slice(&1_u32.to_le_bytes());
    out[4..8].copy_from_slice(&u32::from(given).to_le_bytes());
    out[8..16].copy_from_slice(&segment.id().to_le_bytes());
    out[16..24].copy_from_slice(&segment.generation().to_le_bytes());
    out[24..32].copy_from_slice(&segment.size().to_le_bytes());
    out
}

/// Reads one segment from a socket; `Ok(None)` when there is none yet, or the peer is gone. One that is given away goes
/// to `arena` in the end, if there is one. Without an arena the generation is left to whoever uses a handle.
pub(crate) fn receive_segment(socket: &OwnedFd, arena: Option<&Arc<Arena>>) -> Result<Option<Arc<Segment>>> {
    let mut message = [0; SEGMENT_MESSAGE];
    let mut fds = Vec::new();
    let got = match socket::recv(socket.as_fd(), &mut message, &mut fds, false) {
        Ok(got) => got,
        Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return Ok(None),
        Err(e) => return Err(e).context("could not receive a segment"),
    };
    if got == 0 {
        return Ok(None);
    }
    let field =
        |at: usize| message.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
    let Some(fd) = fds.pop().filter(|_| got == SEGMENT_MESSAGE && fds.is_empty()) else {
        return Err(error!(Code::ShmCorrupt, "a segment's message is malformed"));
    };
    let given = message[4..8] == 1_u32.to_le_bytes();
    match arena {
        Some(arena) if given => Segment::adopt(fd, field(8), field(16), arena).map(Some),
        Some(_) => Segment::attach(fd, field(8), field(16)).map(Some),
        None => Segment::attach_any(fd, field(8)).map(Some),
    }
}

/// The socket that segments' descriptors come and go by, and the segments that this worker keeps mapped.
#[derive(Debug)]
pub struct FdChannel {
    socket: OwnedFd,
    /// Mapped segments by id, each with how often the parent has passed it less how often it gave it up. A
    /// descriptor may be read from the socket before the `FORGET` that the parent sent earlier is read from
    /// the ring.
    kept: Mutex<HashMap<u64, (Arc<Segment>, u32)>>,
}

impl FdChannel {
    /// Wraps the worker's end of the socket pair.
    pub fn new(socket: OwnedFd) -> Self {
        Self { socket, kept: Mutex::default() }
    }

    /// Passes a segment's descriptor to the parent; send it before the record that names it. With `given` the parent
    /// becomes its owner: drop it here right afterwards.
    ///
    /// # Errors
    ///
    /// When the parent is gone.
    pub fn send_segment(&self, segment: &Segment, given: bool) -> Result<()> {
        socket::send(self.socket.as_fd(), &[&segment_message(segment, given)], &[segment.as_fd()], true)
            .context("could not pass a segment to the parent")
    }

    /// The segment with this id, mapped: from what is kept, from the process's registry, or from the socket.
    ///
    /// # Errors
    ///
    /// `Code::ShmStale` when the generation is not the segment's any more; an error when it does not come.
    pub fn segment(&self, id: u64, generation: u64) -> Result<Arc<Segment>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some((segment, _)) = kept.get(&id) {
                segment.check(generation)?;
                return Ok(Arc::clone(segment));
            }
            if let Some(segment) = Segment::lookup(id, generation)? {
                return Ok(segment);
            }
            self.take_in(&mut kept)?;
            if kept.contains_key(&id) {
                continue;
            }
            if Instant::now() > deadline {
                return Err(error!(Code::ShmStale, "a segment was named but its descriptor never came"));
            }
            windlass_os::process::wait_readable(self.socket.as_fd(), Duration::from_millis(100));
        }
    }

    fn take_in(&self, kept: &mut HashMap<u64, (Arc<Segment>, u32)>) -> Result<()> {
        while let Some(segment) = receive_segment(&self.socket, None)? {
            kept.entry(segment.id()).or_insert((segment, 0)).1 += 1;
        }
        Ok(())
    }

    /// Reads what has come, if nobody else is at it: descriptors for tasks that were taken back again fill the socket,
    /// and the parent feeds no task whose descriptors do not fit.
    ///
    /// # Errors
    ///
    /// When one cannot be mapped.
    pub fn drain(&self) -> Result<()> {
        self.kept.try_lock().map_or(Ok(()), |mut kept| self.take_in(&mut kept))
    }

    /// Drops the cached mapping of a segment that its owner has given up.
    pub fn forget(&self, id: u64) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if !kept.contains_key(&id) {
            // Its descriptor was sent before this, and nobody has needed it. One that cannot be mapped is no loss here.
            let _ = self.take_in(&mut kept);
        }
        if let Entry::Occupied(mut entry) = kept.entry(id) {
            entry.get_mut().1 -= 1;
            if entry.get().1 == 0 {
                entry.remove();
            }
        }
    }
}
