//! The worker's end: one lane's two rings, and the channel for segments' descriptors.
//!
//! A worker trusts its parent, so payloads are read in place. Everything here is for one thread at a time.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ropewalk_base::{Code, Error, Result, ResultExt, error};
use ropewalk_os::mmap::{Mapping, Protection};
use ropewalk_shm::channel::ring::{Consumer, Header, Producer, PushError};
use ropewalk_shm::memory::Segment;
use ropewalk_sync::Mutex;
use ropewalk_sync::spin::AdaptiveSpin;

use crate::control::Control;
use crate::lane::{Begun, LaneLayout, Reached};
use crate::leave::Leave;
use crate::pace::Credit;
use crate::passing::{self, Passed};
use crate::pulse::Progress;
use crate::running::{Running, Terms};
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
    /// What the kind says; for a task its function.
    pub aux: u64,
    /// Which attempt of its task this is, for a task.
    pub attempt: u32,
    /// A task's limits.
    pub terms: Terms,
}

impl Incoming {
    /// The message to leave.
    fn leave() -> Self {
        Self { kind: kind::EXIT, flags: 0, id: 0, aux: 0, attempt: 0, terms: Terms::default() }
    }
}

/// One lane, seen from the worker.
#[derive(Debug)]
pub struct WorkerEnd {
    tasks: Consumer,
    results: Producer,
    begun: Begun,
    reached: Reached,
    running: Arc<Running>,
    answers: Consumer,
    /// The number of the last call that a task of this lane has made.
    calls: u64,
    /// The terms of the task with this id, which is yet to come.
    terms: (u64, Terms),
    control: Arc<Control>,
    spin: AdaptiveSpin,
    /// In the parent's own process: what the parent asks of this worker.
    leave: Option<Arc<Leave>>,
}

impl WorkerEnd {
    /// Maps a lane that the parent made.
    ///
    /// # Errors
    ///
    /// When the descriptor is not that of a lane.
    pub fn attach(lane: OwnedFd, control: Arc<Control>) -> Result<Self> {
        Self::over(lane, control, None)
    }

    /// The same in the parent's own process.
    pub(crate) fn attach_here(lane: OwnedFd, control: Arc<Control>, leave: Arc<Leave>) -> Result<Self> {
        Self::over(lane, control, Some(leave))
    }

    fn over(lane: OwnedFd, control: Arc<Control>, leave: Option<Arc<Leave>>) -> Result<Self> {
        let layout = LaneLayout::DEFAULT;
        let map = Arc::new(
            Mapping::map(lane.as_fd(), layout.size(), Protection::ReadWrite)
                .context("could not map a lane")?,
        );
        if let Some(leave) = &leave {
            leave.wake_by(layout.tasks(&map)?);
        }
        let tasks = layout.tasks(&map)?.consumer();
        let results = layout.results(&map)?.producer();
        let begun = Begun::new(&map, layout)?;
        let reached = Reached::new(&map, layout)?;
        let running = Arc::new(Running::new(&map, layout)?);
        let answers = layout.answers(&map)?.consumer();
        let (terms, spin) = (Default::default(), AdaptiveSpin::new());
        Ok(Self { tasks, results, begun, reached, running, answers, calls: 0, terms, control, spin, leave })
    }

    /// The next record, without blocking. A task is marked as started before it is returned.
    ///
    /// # Errors
    ///
    /// `Code::SharedMemoryCorrupt` when the ring's numbers make no sense; the worker had better leave then.
    pub fn try_next(&mut self) -> Result<Option<Incoming>> {
        if self.must_leave() {
            return Ok(Some(Incoming::leave()));
        }
        loop {
            let Some(header) = self.tasks.peek().map_err(Error::from)? else { return Ok(None) };
            if !self.tasks.start() {
                continue;
            }
            let Header { kind, flags, id, mut aux, .. } = header;
            let (mut attempt, mut terms) = (0, Terms::default());
            match kind {
                kind::TERMS => {
                    self.terms = (id, Terms::from_bytes(self.tasks.payload()));
                    self.tasks.finish();
                    continue;
                }
                kind::TASK => {
                    (aux, attempt) = (aux & u64::from(u32::MAX), (aux >> 32) as u32);
                    if self.terms.0 == id {
                        terms = self.terms.1;
                    }
                }
                _ => {}
            }
            return Ok(Some(Incoming { kind, flags, id, aux, attempt, terms }));
        }
    }

    /// Whether the parent waits for no answer any more; never in a process of its own, which is killed instead.
    pub fn must_leave(&self) -> bool {
        self.leave.as_ref().is_some_and(|leave| leave.is_asked())
    }

    /// In the parent's own process: what the parent asks of this worker.
    pub fn leave(&self) -> Option<&Arc<Leave>> {
        self.leave.as_ref()
    }

    /// Bytes of the record that [`try_next`](Self::try_next) returned last; valid until [`finish`](Self::finish).
    pub fn payload(&self) -> &[u8] {
        self.tasks.payload()
    }

    /// Says that everything is ready for the call of a task, and that it begins.
    pub fn begin(&self, task: u64) {
        self.begun.write(task);
    }

    /// The same, by a reading of the monotonic clock.
    pub fn begin_at(&self, task: u64, nanos: u64) {
        self.begun.write_at(task, nanos);
    }

    /// The task that this lane runs, for the task's own code.
    pub fn running(&self) -> &Arc<Running> {
        &self.running
    }

    /// Sends the last progress of a task that has ended, before its answer; false when there is no room at the moment.
    ///
    /// # Errors
    ///
    /// As [`try_reply`](Self::try_reply).
    pub fn try_progress(&mut self, task: u64, progress: &Progress) -> Result<bool> {
        let total = progress.total.unwrap_or(f64::NAN).to_bits().to_le_bytes();
        let note = progress.note.as_deref().unwrap_or_default();
        let parts = [&total[..], note.as_bytes()];
        self.try_reply(kind::PROGRESS, 0, task, progress.done.to_bits(), &parts)
    }

    /// Says that the inputs of a batch will be begun, one after the other; none has been.
    pub fn start_batch(&self, task: u64) {
        self.reached.start(task);
    }

    /// Reports that this many inputs of the batch were begun: if this process dies, the others go to another worker.
    pub fn reach(&self, inputs: u64) {
        self.reached.write(inputs);
    }

    /// Lets the parent reuse the current record's bytes.
    pub fn finish(&mut self) {
        self.tasks.finish();
    }

    /// Blocks until a record is there: a short spin while cores are free, then a futex. May return early.
    pub fn wait(&mut self, timeout: Option<Duration>) {
        let control = &self.control;
        // A request to leave may come right before the sleep.
        let timeout =
            if self.leave.is_some() { timeout.map(|most| most.min(LEAVES_WITHIN)) } else { timeout };
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
        self.push(kind, flags, id, aux, parts, true)
    }

    #[inline]
    fn push(
        &mut self,
        kind: u16,
        flags: u16,
        id: u64,
        aux: u64,
        parts: &[&[u8]],
        may_be_dry: bool,
    ) -> Result<bool> {
        match self.results.try_push(Header { kind, flags, len: 0, id, aux }, parts) {
            Ok(_) => {
                let tasks = &self.tasks;
                let crowded = self.results.used() * 2 > self.results.capacity();
                self.control.after_push(|| may_be_dry && !tasks.is_ready(), crowded);
                Ok(true)
            }
            // Nobody will read the ring.
            Err(PushError::Full) if self.must_leave() => Ok(true),
            Err(PushError::Full) => {
                self.control.wake_parent();
                Ok(false)
            }
            Err(PushError::TooLarge) => Err(error!(Code::TooLarge, "a reply is larger than its ring takes")),
            Err(PushError::Corrupt) => {
                Err(error!(Code::SharedMemoryCorrupt, "a result ring's head is out of range"))
            }
        }
    }

    /// Sends an item of a stream, or returns false when the ring has no room at the moment. It is there to be read at
    /// once; this lane has not run dry by it.
    ///
    /// # Errors
    ///
    /// As [`try_reply`](Self::try_reply).
    pub fn try_item(&mut self, task: u64, form: u8, flags: u16, bytes: &[u8]) -> Result<bool> {
        self.push(kind::ITEM, flags, task, form.into(), &[bytes], false)
    }

    /// Waits until the reader of a stream has read more than it had when this credit was given, or the task is to stop:
    /// a short spin while cores are free, then a futex. May return early; call it with the interpreter released.
    pub fn wait_for_credit(&mut self, task: u64, known: Credit, timeout: Duration) {
        let (running, control) = (&self.running, &self.control);
        let ready = || running.stopped(task) || running.granted(task).is_some_and(|granted| granted != known);
        if !self.spin.spin(|| control.may_spin(), ready) {
            running.wait_for_parent(ready, timeout);
        }
    }

    /// Sends the call of a task, and gives its number; or nothing when the ring has no room at the moment.
    ///
    /// # Errors
    ///
    /// As [`try_reply`](Self::try_reply).
    pub fn try_call(&mut self, task: u64, flags: u16, bytes: &[u8]) -> Result<Option<u64>> {
        let number = self.calls + 1;
        if !self.push(kind::CALL, flags, task, number, &[bytes], false)? {
            return Ok(None);
        }
        self.calls = number;
        // The program may not be waiting for anything.
        self.control.wake_parent();
        Ok(Some(number))
    }

    /// The answer to a call, if it has come: its flags and its payload. Answers to calls that were given up are
    /// skipped; `dropped` is called with each.
    ///
    /// # Errors
    ///
    /// `Code::SharedMemoryCorrupt` when the ring's numbers make no sense.
    pub fn take_answer(
        &mut self,
        number: u64,
        mut dropped: impl FnMut(u16, &[u8]),
    ) -> Result<Option<(u16, Vec<u8>)>> {
        while let Some(header) = self.answers.peek().map_err(Error::from)? {
            if !self.answers.start() {
                continue;
            }
            let answer = (header.flags, self.answers.payload().to_vec());
            self.answers.finish();
            if header.aux == number {
                return Ok(Some(answer));
            }
            dropped(answer.0, &answer.1);
        }
        Ok(None)
    }

    /// Waits for an answer; may return early. Call it with the interpreter released.
    pub fn wait_answer(&mut self, timeout: Duration) {
        let control = &self.control;
        self.answers.wait(&mut self.spin, || control.may_spin(), Some(timeout));
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
        let pid = u64::from(ropewalk_os::process::current_pid().unsigned_abs());
        self.reply(kind::READY, crate::wire::flags::EMPTY, 0, pid, &[])
    }
}

const PATIENCE: Duration = Duration::from_secs(10);
/// How late a worker of the parent's process may see that it is to leave.
const LEAVES_WITHIN: Duration = Duration::from_secs(1);

/// The socket that segments' descriptors come and go by, and the segments that this worker keeps mapped.
#[derive(Debug)]
pub struct FdChannel {
    socket: OwnedFd,
    kept: Mutex<Kept>,
}

/// The segments that the parent has passed and not withdrawn since, in the order of its messages.
#[derive(Debug, Default)]
struct Kept {
    segments: HashMap<u64, Arc<Segment>>,
    /// Segments that arrived and could not be mapped, each with the reason. The worker reports them, and the parent
    /// sends them again.
    lost: HashMap<u64, Error>,
    /// Of those, the segments that the worker has not reported yet.
    untold: Vec<u64>,
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
        passing::pass(self.socket.as_fd(), segment, given)
    }

    /// The segment with this id, mapped: from what is kept, from the process's registry, or from the socket.
    ///
    /// # Errors
    ///
    /// `Code::StaleHandle` when the generation is not the segment's any more; `Code::OutOfDescriptors` when its
    /// descriptor came and did not fit; an error when it does not come.
    pub fn segment(&self, id: u64, generation: u64) -> Result<Arc<Segment>> {
        self.segment_by(id, generation, Instant::now() + PATIENCE)
    }

    fn segment_by(&self, id: u64, generation: u64, deadline: Instant) -> Result<Arc<Segment>> {
        loop {
            {
                let mut kept = self.kept.lock();
                // What has come is read first: a lost segment may have been passed again.
                if !kept.segments.contains_key(&id) {
                    self.take_in(&mut kept)?;
                }
                if let Some(segment) = kept.segments.get(&id) {
                    segment.check(generation)?;
                    return Ok(Arc::clone(segment));
                }
                if let Some(segment) = Segment::lookup(id, generation)? {
                    return Ok(segment);
                }
                if let Some(error) = kept.lost.get(&id) {
                    return Err(Error::new(error.code(), error.to_string()));
                }
            }
            if Instant::now() > deadline {
                return Err(error!(Code::StaleHandle, "a segment was named but its descriptor never came"));
            }
            ropewalk_os::process::wait_readable(self.socket.as_fd(), Duration::from_millis(100));
        }
    }

    fn take_in(&self, kept: &mut Kept) -> Result<()> {
        while let Some(passed) = passing::receive(&self.socket, None)? {
            match passed {
                Passed::Segment(segment) => {
                    kept.lost.remove(&segment.id());
                    kept.segments.insert(segment.id(), segment);
                }
                Passed::Forget(id) => {
                    kept.lost.remove(&id);
                    kept.segments.remove(&id);
                }
                Passed::Lost(id, error) => {
                    kept.untold.push(id);
                    kept.lost.insert(id, error);
                }
            }
        }
        Ok(())
    }

    /// Reads the messages that have arrived, unless another thread does. The parent requests this when it has withdrawn
    /// segments, or when its end of the socket is full: it feeds no task whose descriptors do not fit.
    ///
    /// # Errors
    ///
    /// When a message makes no sense.
    pub fn drain(&self) -> Result<()> {
        self.kept.try_lock().map_or(Ok(()), |mut kept| self.take_in(&mut kept))
    }

    /// Segments that could not be mapped since the last call, for a report to the parent.
    pub fn take_lost(&self) -> Vec<u64> {
        std::mem::take(&mut self.kept.lock().untold)
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_os::socket;

    use super::*;
    use crate::lane::{Lane, send_plain};
    use crate::wire::flags;

    fn ends() -> (Lane, WorkerEnd) {
        let (control, fd) = Control::create(1).expect("a page");
        let event = control.event_fd().try_clone_to_owned().expect("a descriptor");
        let control = Control::attach(fd, event).expect("a page");
        let (lane, fd) = Lane::create(4).expect("a lane");
        (lane, WorkerEnd::attach(fd, control).expect("a lane"))
    }

    #[test]
    fn records_go_both_ways() {
        let (mut lane, mut end) = ends();
        assert_eq!((lane.worker, lane.ready, lane.closed), (4, false, false));
        assert!(end.try_next().expect("sound").is_none());
        let header = Header { kind: kind::TASK, flags: 3, len: 0, id: 8, aux: 9 };
        let position = lane.tasks.try_push(header, &[b"what"]).expect("room");
        end.wait(None);
        assert!(!lane.tasks.started(position));
        let record = end.try_next().expect("sound").expect("a record");
        assert_eq!((record.kind, record.flags, record.id, record.aux), (kind::TASK, 3, 8, 9));
        assert!(lane.tasks.started(position));
        assert_eq!(end.payload(), b"what");
        end.finish();
        assert!(end.payload().is_empty() && lane.tasks.is_empty());
        assert!(send_plain(&mut lane.tasks, kind::LOOK, 5));
        let record = end.try_next().expect("sound").expect("a record");
        assert_eq!((record.kind, record.flags, record.aux), (kind::LOOK, flags::EMPTY, 5));
        end.ready().expect("said");
        let ready = lane.results.peek().expect("sound").expect("a record");
        assert_eq!((ready.kind, ready.aux), (kind::READY, u64::from(std::process::id())));
    }

    #[test]
    fn a_reply_waits_for_room_and_one_too_large_is_refused() {
        let (mut lane, mut end) = ends();
        let large = vec![7; end.max_inline()];
        assert_eq!(end.max_inline(), lane.tasks.max_record());
        assert_eq!(
            end.try_reply(kind::DONE, 0, 1, 2, &[&large, b"x"]).expect_err("large").code(),
            Code::TooLarge
        );
        let mut sent = 0_u64;
        while end.try_reply(kind::DONE, 0, sent, 2, &[&large]).expect("sound") {
            sent += 1;
        }
        assert_eq!(sent, 2);
        std::thread::scope(|scope| {
            let late = scope.spawn(|| end.reply(kind::DONE, 0, sent, 2, &[&large]));
            for id in 0..=sent {
                let deadline = Instant::now() + Duration::from_secs(20);
                let header = loop {
                    if let Some(header) = lane.results.peek().expect("sound") {
                        break header;
                    }
                    assert!(Instant::now() < deadline, "it never came");
                    std::thread::yield_now();
                };
                assert_eq!((header.id, header.len as usize), (id, large.len()));
                lane.results.finish();
            }
            late.join().expect("no panic").expect("there was room in the end");
        });
    }

    #[test]
    fn how_far_a_batch_is_is_read_for_its_own_task() {
        let (lane, end) = ends();
        assert_eq!(lane.reached.read(7), 0);
        end.start_batch(7);
        assert_eq!(lane.reached.read(7), 0);
        end.reach(3);
        assert_eq!((lane.reached.read(7), lane.reached.read(8)), (3, 0));
        end.begin(9);
        assert_eq!(
            (lane.reached.read(7), lane.begun.read(9).is_some()),
            (3, true),
            "they have their own words"
        );
        end.start_batch(8);
        assert_eq!((lane.reached.read(7), lane.reached.read(8)), (0, 0));
    }

    #[test]
    fn a_begin_is_read_for_its_own_task() {
        let (lane, end) = ends();
        assert_eq!(lane.begun.read(7), None);
        let before = ropewalk_os::clock::monotonic_nanos();
        end.begin(7);
        let begun = lane.begun.read(7).expect("it has begun");
        assert!((before..=ropewalk_os::clock::monotonic_nanos()).contains(&begun));
        assert_eq!(lane.begun.read(8), None);
        end.begin(8);
        assert_eq!(lane.begun.read(7), None);
    }

    #[test]
    fn functions_to_forget_wait_for_room() {
        let (mut lane, mut end) = ends();
        lane.forgotten = vec![1, 2];
        while send_plain(&mut lane.tasks, kind::LOOK, 0) {}
        lane.forget();
        assert_eq!(lane.forgotten, [1, 2]);
        while end.try_next().expect("sound").is_some() {
            end.finish();
        }
        lane.forget();
        assert!(lane.forgotten.is_empty());
        let mut told = Vec::new();
        while let Some(record) = end.try_next().expect("sound") {
            assert_eq!(record.kind, kind::FORGET_FUNCTION);
            told.push(record.aux);
            end.finish();
        }
        assert_eq!(told, [2, 1]);
    }

    #[test]
    fn a_segment_that_is_under_way_is_waited_for_and_not_for_ever() {
        let (ours, theirs) = socket::seqpacket_pair().expect("a pair");
        let channel = FdChannel::new(theirs);
        // Neither is in this process's registry, as in another process.
        let [first, second] = [64, 64].map(|size| Segment::create(size, true).expect("a segment"));
        let pass = |segment: &Segment| passing::pass(ours.as_fd(), segment, false).expect("passed");
        pass(&first);
        let found = std::thread::scope(|scope| {
            let waits = scope.spawn(|| channel.segment(second.id(), second.generation()));
            // Once it has read the first, it has looked for the second in vain.
            let has_looked = || channel.kept.lock().segments.contains_key(&first.id());
            while !has_looked() && !waits.is_finished() {
                std::thread::yield_now();
            }
            pass(&second);
            waits.join().expect("no panic")
        });
        assert_eq!(found.expect("it has come").id(), second.id());
        let never = channel.segment_by(1 << 50, 1, Instant::now()).expect_err("it is not passed");
        assert_eq!(never.code(), Code::StaleHandle);
    }

    #[test]
    fn segments_are_kept_until_they_are_given_up() {
        let (ours, theirs) = socket::seqpacket_pair().expect("a pair");
        let channel = FdChannel::new(theirs);
        // Without one of this process's own registry, as in another process.
        let passed = |segment: &Segment| passing::pass(ours.as_fd(), segment, false).expect("passed");
        let one = Segment::create(64, true).expect("a segment").publish(None);
        let (id, generation) = (one.id(), one.generation());
        passed(&one);
        drop(one);
        let found = channel.segment(id, generation).expect("it has come");
        assert_eq!(found.id(), id);
        assert_eq!(channel.segment(id, generation + 1).expect_err("another").code(), Code::StaleHandle);
        drop(found);
        channel.drain().expect("sound");
        assert!(Segment::lookup(id, generation).expect("its own").is_some(), "it is kept");
        assert_eq!(passing::try_forget(ours.as_fd(), id), passing::Sent::Yes);
        channel.drain().expect("sound");
        assert!(Segment::lookup(id, generation).expect("nothing").is_none(), "it is given up");
        assert!(channel.take_lost().is_empty());
        let back = Segment::create(64, true).expect("a segment").publish(None);
        channel.send_segment(&back, false).expect("passed");
        assert!(
            matches!(passing::receive(&ours, None), Ok(Some(Passed::Segment(got))) if got.id() == back.id())
        );
    }
}
