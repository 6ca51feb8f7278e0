//! A lane: one pair of single-producer single-consumer rings in one unlinked memfd, and the parent's end of it.

use std::collections::{HashSet, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use windlass_base::{Result, ResultExt};
use windlass_os::memfd;
use windlass_os::mmap::{Mapping, Protection};
use windlass_shm::ring::{Consumer, Position, Producer, RingMemory};

use crate::clock;
use crate::task::Task;

/// Where the two rings of a lane lie.
#[derive(Clone, Copy, Debug)]
pub struct LaneLayout {
    capacity: usize,
}

impl LaneLayout {
    /// 128 KiB each way: pages are touched only as the rings advance, so an idle lane costs a few KiB.
    pub const DEFAULT: Self = Self { capacity: 128 * 1024 };

    fn stride(self) -> usize {
        RingMemory::required(self.capacity).next_multiple_of(4096)
    }

    /// Bytes of the memfd.
    pub fn size(self) -> usize {
        2 * self.stride()
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

/// A task that lies in a lane's ring, or is being run.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) task: Arc<Task>,
    pub(crate) position: Position,
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
    /// Functions that the far side has been given.
    pub(crate) functions: HashSet<u32>,
    /// Index of the worker that this lane belongs to.
    pub(crate) worker: usize,
    /// Whether READY has been seen.
    pub(crate) ready: bool,
}

impl Lane {
    /// Makes the memory of a lane and gives back the descriptor that the worker maps.
    pub(crate) fn create(worker: usize) -> Result<(Self, OwnedFd)> {
        let layout = LaneLayout::DEFAULT;
        let fd =
            memfd::create(c"windlass-lane", layout.size() as u64, true).context("could not make a lane")?;
        let map =
            Mapping::map(fd.as_fd(), layout.size(), Protection::ReadWrite).context("could not map a lane")?;
        let map = Arc::new(map);
        let (tasks, results) = (layout.tasks(&map)?, layout.results(&map)?);
        tasks.initialise();
        results.initialise();
        let lane = Self {
            tasks: tasks.producer(),
            results: results.consumer(),
            outstanding: VecDeque::new(),
            front_since: clock::now(),
            functions: HashSet::new(),
            worker,
            ready: false,
        };
        Ok((lane, fd))
    }
}
