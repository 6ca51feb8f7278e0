//! A lane: one pair of single-producer single-consumer rings in one unlinked memfd, and the parent's end of it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Instant;

use ropewalk_base::{Result, ResultExt};
use ropewalk_os::memfd;
use ropewalk_os::mmap::{Mapping, Protection};
use ropewalk_shm::channel::ring::{Consumer, Header, Position, Producer, RingMemory};
use ropewalk_shm::memory::Words;

use crate::clock::{self, Anchor};
use crate::pace::Pace;
use crate::pulse::Pulse;
use crate::session::Session;
use crate::task::Task;
use crate::wire::{flags, kind};

/// Where the two rings of a lane lie.
#[derive(Clone, Copy, Debug)]
pub struct LaneLayout {
    capacity: usize,
    answers: usize,
}

impl LaneLayout {
    /// 128 KiB each way: pages are touched only as the rings advance, so an idle lane costs a few KiB. The answers to
    /// calls need little, because large ones go in a lease.
    pub const DEFAULT: Self = Self { capacity: 128 * 1024, answers: 8 * 1024 };

    fn stride(self) -> usize {
        RingMemory::required(self.capacity).next_multiple_of(4096)
    }

    /// Where the worker says when it began a call: at the end of the first ring's last page.
    fn begun(self) -> usize {
        self.stride() - size_of::<[AtomicU64; 2]>()
    }

    /// Where it says how far it is with a batch: before that.
    fn reached(self) -> usize {
        self.begun() - size_of::<[AtomicU64; 2]>()
    }

    /// Where it reports for the task that it runs: a cache line of its own and more, before that.
    pub(crate) fn pulse(self) -> usize {
        self.pace() - Pulse::SIZE.next_multiple_of(64)
    }

    /// Where the parent says what it asks of that task: before what the worker writes.
    pub(crate) fn pace(self) -> usize {
        self.stride() - 64 - Pace::SIZE
    }

    /// Bytes of the memfd.
    pub fn size(self) -> usize {
        2 * self.stride() + RingMemory::required(self.answers).next_multiple_of(4096)
    }

    /// The ring from parent to worker for answers to the calls of a task that runs.
    ///
    /// # Errors
    ///
    /// When the mapping is too small.
    pub fn answers(self, map: &Arc<Mapping>) -> Result<RingMemory> {
        RingMemory::new(Arc::clone(map), 2 * self.stride(), self.answers)
    }

    /// Where the ring from worker to parent begins.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn results_at(self) -> usize {
        self.stride()
    }

    /// The ring from parent to worker.
    ///
    /// # Errors
    ///
    /// When the mapping is too small.
    pub fn tasks(self, map: &Arc<Mapping>) -> Result<RingMemory> {
        RingMemory::new(Arc::clone(map), 0, self.capacity)
    }

    /// The ring from worker to parent.
    ///
    /// # Errors
    ///
    /// When the mapping is too small.
    pub fn results(self, map: &Arc<Mapping>) -> Result<RingMemory> {
        RingMemory::new(Arc::clone(map), self.stride(), self.capacity)
    }
}

/// Which task a worker has begun to run in a lane, and when: for tasks with a timeout, which counts from there, and for
/// the record of one whose worker dies.
///
/// Written by the worker, when everything is ready for the call, and read by the parent when it has a reason to
/// look. It is a hint: the parent bounds what it says, and keeps the first word that it saw.
#[derive(Debug)]
pub(crate) struct Begun(
    /// The task's id, and nanoseconds of the monotonic clock. The id is written last, and 0 while they do not belong
    /// together.
    Words<[AtomicU64; 2]>,
);

impl Begun {
    pub(crate) fn new(map: &Arc<Mapping>, layout: LaneLayout) -> Result<Self> {
        Words::new(map, layout.begun()).map(Self)
    }

    /// Worker: the call of a task begins now.
    pub(crate) fn write(&self, task: u64) {
        self.write_at(task, clock::nanos());
    }

    /// Worker: the call of a task began then.
    pub(crate) fn write_at(&self, task: u64, nanos: u64) {
        let [id, at] = &*self.0;
        id.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        at.store(nanos, Ordering::Relaxed);
        id.store(task, Ordering::Release);
    }

    /// Parent: when the worker says that it began this task.
    pub(crate) fn read(&self, task: u64) -> Option<u64> {
        let [id, at] = &*self.0;
        if id.load(Ordering::Acquire) != task {
            return None;
        }
        let begun = at.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        (id.load(Ordering::Relaxed) == task).then_some(begun)
    }
}

/// Which batch a worker runs in a lane, and how many of its inputs it has begun: for those that it had not, when it
/// dies.
///
/// Written by the worker, and read by the parent when the worker is gone. It is a hint: the parent bounds what it says,
/// and a worker that lies costs, or spares, inputs of its own.
#[derive(Debug)]
pub(crate) struct Reached(
    /// The task's id, and how many of its inputs have been begun.
    Words<[AtomicU64; 2]>,
);

impl Reached {
    pub(crate) fn new(map: &Arc<Mapping>, layout: LaneLayout) -> Result<Self> {
        Words::new(map, layout.reached()).map(Self)
    }

    /// Worker: a batch begins, with none of its inputs.
    pub(crate) fn start(&self, task: u64) {
        let [id, count] = &*self.0;
        id.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        count.store(0, Ordering::Relaxed);
        id.store(task, Ordering::Release);
    }

    /// Worker: the number of the batch's inputs that were begun.
    pub(crate) fn write(&self, inputs: u64) {
        self.0[1].store(inputs, Ordering::Release);
    }

    /// Parent: how many inputs of this task had been begun by a worker that is gone; 0 if it never said so.
    pub(crate) fn read(&self, task: u64) -> u64 {
        let [id, count] = &*self.0;
        if id.load(Ordering::Acquire) == task { count.load(Ordering::Acquire) } else { 0 }
    }
}

/// A task that lies in a lane's ring, or is being run.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) task: Arc<Task>,
    pub(crate) position: Position,
    /// Where its function lies, if that was sent for it.
    pub(crate) function: Option<Position>,
    /// The time right before it was put there.
    pub(crate) at: Instant,
    /// When the parent first saw that the worker had taken it, if it has checked.
    pub(crate) taken: Option<Instant>,
    /// When its call began, as the parent first saw it.
    pub(crate) begun: Option<Instant>,
    /// Its last sign of life: the worker's word, and the time that the parent made of it.
    pub(crate) pulse: Option<(u64, Instant)>,
    /// What a stream's pace of life was when the parent looked last.
    pub(crate) pace: u64,
}

/// A session whose state is in a lane, or is to be made there.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) session: Arc<Session>,
    /// The number of the state; 0 before the worker is asked to make it.
    pub(crate) generation: u32,
    /// Whether a task of it has been answered.
    pub(crate) answered: bool,
    /// When its last task was sent or answered.
    pub(crate) used: Instant,
    /// Whether there is a timer for its end.
    pub(crate) timed: bool,
}

impl Sent {
    /// Whether no other lane may run it.
    pub(crate) fn is_pinned(&self) -> bool {
        self.task.session().is_some_and(|session| session.is_pinned())
    }

    /// From its submission to the beginning of its call, in nanoseconds, as the worker says in its lane; `monotonic`
    /// relates the worker's clock to ours.
    pub(crate) fn begun_ns(&self, begun: &Begun, monotonic: &Anchor) -> Option<u64> {
        let begun = begun.read(self.task.id)?;
        let [submitted, sent, now] =
            [self.task.submitted, self.at, clock::now()].map(|at| monotonic.nanos_of(at));
        (sent..=now).contains(&begun).then(|| begun - submitted)
    }

    pub(crate) fn new(task: Arc<Task>, position: Position, function: Option<Position>, at: Instant) -> Self {
        Self { task, position, function, at, taken: None, begun: None, pulse: None, pace: 0 }
    }
}

/// The parent's end of a lane.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) tasks: Producer,
    pub(crate) results: Consumer,
    /// Sent and not answered, oldest first: the worker answers in this order.
    pub(crate) outstanding: VecDeque<Sent>,
    /// Since when the first of them has been the first.
    pub(crate) front_since: Instant,
    /// Functions that the far side has been given: mostly few, which are found without a hash.
    pub(crate) functions: BTreeSet<u32>,
    /// Those that it must forget; the message to do so waits for room in its ring.
    pub(crate) forgotten: Vec<u32>,
    /// Sessions whose state is here, or is to be made here, by their numbers.
    pub(crate) sessions: BTreeMap<u32, Kept>,
    /// The session that was named last in the ring; 0 for none.
    pub(crate) named: u32,
    /// Sessions whose state is to be dropped; the message waits for room in the ring.
    pub(crate) dropped: Vec<u32>,
    /// Index of the worker that this lane belongs to.
    pub(crate) worker: usize,
    /// Whether READY has been seen.
    pub(crate) ready: bool,
    /// It gets no more tasks: its worker is being ended.
    pub(crate) closed: bool,
    /// The message to leave waits for room in its ring.
    pub(crate) owes_exit: bool,
    pub(crate) begun: Begun,
    pub(crate) reached: Reached,
    pub(crate) pulse: Pulse,
    pub(crate) pace: Pace,
    pub(crate) answers: Producer,
    /// The call whose answer the lane's task waits for: the last that its worker made.
    pub(crate) call: Option<u64>,
}

impl Lane {
    /// Makes the memory of a lane and gives back the descriptor that the worker maps.
    pub(crate) fn create(worker: usize) -> Result<(Self, OwnedFd)> {
        let layout = LaneLayout::DEFAULT;
        let fd =
            memfd::create(c"ropewalk-lane", layout.size() as u64, true).context("could not make a lane")?;
        let map =
            Mapping::map(fd.as_fd(), layout.size(), Protection::ReadWrite).context("could not map a lane")?;
        let map = Arc::new(map);
        let (tasks, results) = (layout.tasks(&map)?, layout.results(&map)?);
        tasks.initialise();
        results.initialise();
        let answers = layout.answers(&map)?;
        answers.initialise();
        let lane = Self {
            tasks: tasks.producer(),
            results: results.consumer(),
            outstanding: VecDeque::new(),
            front_since: clock::now(),
            functions: BTreeSet::new(),
            forgotten: Vec::new(),
            sessions: BTreeMap::new(),
            named: 0,
            dropped: Vec::new(),
            worker,
            ready: false,
            closed: false,
            owes_exit: false,
            begun: Begun::new(&map, layout)?,
            reached: Reached::new(&map, layout)?,
            pulse: Pulse::new(&map, layout.pulse())?,
            pace: Pace::new(&map, layout.pace())?,
            answers: answers.producer(),
            call: None,
        };
        Ok((lane, fd))
    }

    /// Tells the far side which functions to forget, as far as there is room.
    pub(crate) fn forget(&mut self) {
        while let Some(id) = self.forgotten.last()
            && send_plain(&mut self.tasks, kind::FORGET_FUNCTION, u64::from(*id))
        {
            self.forgotten.pop();
        }
        while let Some(id) = self.dropped.last()
            && send_plain(&mut self.tasks, kind::DROP_SESSION, u64::from(*id))
        {
            self.dropped.pop();
        }
    }

    /// The last of the tasks that wait here and that another lane may run as well.
    pub(crate) fn last_movable(&self) -> Option<usize> {
        let last = self.outstanding.len().checked_sub(1).filter(|last| *last > 0)?;
        if self.sessions.is_empty() {
            return Some(last);
        }
        (1..=last).rev().find(|at| !self.outstanding[*at].is_pinned())
    }

    /// How many tasks wait here that another lane may run as well.
    pub(crate) fn movable(&self) -> usize {
        if self.sessions.is_empty() {
            return self.outstanding.len().saturating_sub(1);
        }
        self.outstanding.iter().skip(1).filter(|sent| !sent.is_pinned()).count()
    }

    /// Whether a task of this session is here.
    pub(crate) fn has_task_of(&self, session: u32) -> bool {
        self.outstanding.iter().any(|sent| sent.task.session().is_some_and(|known| known.id == session))
    }

    /// Gives the lane no more tasks, and tells the far side to leave after those that it has.
    pub(crate) fn close(&mut self) {
        self.closed = true;
        self.owes_exit = true;
        self.send_exit();
    }

    /// Sends the message to leave if that waits, and there is room.
    pub(crate) fn send_exit(&mut self) {
        if self.owes_exit && send_plain(&mut self.tasks, kind::EXIT, 0) {
            self.owes_exit = false;
        }
    }
}

/// Sends a record without a payload; false if there is no room for it.
pub(crate) fn send_plain(tasks: &mut Producer, kind: u16, aux: u64) -> bool {
    let header = Header { kind, flags: flags::EMPTY, len: 0, id: 0, aux };
    let sent = tasks.try_push(header, &[]).is_ok();
    tasks.wake_consumer();
    sent
}
