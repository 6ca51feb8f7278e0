//! The memory that this process's buffers use: leases of the parent's arena, and blocks that came by handle.
//!
//! The parent keeps a lease that outlives its task until the worker reports that the last buffer is gone. A block that
//! came by handle is never reused while a buffer uses it.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use ropewalk_sync::{Mutex, MutexGuard};

/// The memory that a buffer uses.
#[derive(Clone, Copy)]
pub(crate) enum Looked {
    /// By the worker whose task has it, and its number.
    Lease(u64, u64),
    /// By segment and offset.
    Block(u64, u64),
}

/// How many buffers of this process use each lease, and each segment that came by handle. A process may have several
/// workers, each with an interpreter: what one of them owes its pool is not another's.
#[derive(Default)]
struct Watch {
    leases: HashMap<(u64, u64), usize>,
    /// Segment and offset of each block that came by handle.
    blocks: HashMap<(u64, u64), usize>,
    /// Blocks of other processes that were lent from here, until the answer that reports it.
    passed_on: HashSet<(u64, u64)>,
    /// Leases that outlived their task or its attempts: by the lane that ran the last one, and how often the worker
    /// has reported it. The parent waits for the report of the end.
    retained: HashMap<(u64, u64), (usize, u64)>,
    /// Releases to report at the next opportunity, with their lanes and counts. The task's own lane reports them, after
    /// the task's answer: a report by another lane might arrive before the answer that names the lease.
    released: Vec<(Lane, Release)>,
}

/// A lane of one of this process's workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lane {
    /// The worker's number; 0 for a process of its own.
    pub(crate) worker: u64,
    /// The lane's index there.
    pub(crate) index: usize,
}

/// A lease that no buffer here uses any more, and how many promises of a `RELEASE` this settles.
#[derive(Clone, Copy)]
pub(crate) struct Release {
    pub(crate) lease: u64,
    pub(crate) count: u64,
}

static WATCH: LazyLock<Mutex<Watch>> = LazyLock::new(Mutex::default);
/// Length of `Watch::released`, so that checking it between two tasks takes no lock. Written under the lock, and a
/// value that is out of date only delays: hence relaxed.
static RELEASES: AtomicUsize = AtomicUsize::new(0);

fn watch() -> MutexGuard<'static, Watch> {
    WATCH.lock()
}

/// Marks what outlives a task of this lane; true if anything does.
pub(crate) fn outlives(lane: Lane, lease: u64) -> bool {
    let mut watch = watch();
    if lease != 0 && watch.leases.contains_key(&(lane.worker, lease)) {
        watch.retain(lane, lease);
        return true;
    }
    false
}

/// Whether any of these blocks, which a task got by handle, may be used after it.
pub(crate) fn kept(handles: &[(u64, u64)]) -> bool {
    let mut watch = watch();
    let mut any = false;
    for place in handles {
        any |= watch.blocks.contains_key(place);
        any |= watch.passed_on.remove(place);
    }
    any
}

/// A function, or an answer to a call, that lies in a lease has been read: the parent keeps it until the worker
/// reports that no view is left.
pub(crate) fn retain_function(lane: Lane, lease: u64) {
    let mut watch = watch();
    if watch.leases.contains_key(&(lane.worker, lease)) {
        watch.retain(lane, lease);
    } else {
        watch.release(lane, Release { lease, count: 1 });
    }
}

impl Watch {
    fn retain(&mut self, lane: Lane, lease: u64) {
        let entry = self.retained.entry((lane.worker, lease)).or_insert((lane.index, 0));
        *entry = (lane.index, entry.1 + 1);
    }

    fn release(&mut self, lane: Lane, release: Release) {
        self.released.push((lane, release));
        RELEASES.store(self.released.len(), Ordering::Relaxed);
    }
}

/// Leases of this lane's tasks whose last buffer has died since the last call.
pub(crate) fn take_released(lane: Lane) -> Vec<Release> {
    if RELEASES.load(Ordering::Relaxed) == 0 {
        return Vec::new();
    }
    let mut watch = watch();
    let mut leases = Vec::new();
    watch.released.retain(|&(owner, release)| {
        if owner == lane {
            leases.push(release);
        }
        owner != lane
    });
    RELEASES.store(watch.released.len(), Ordering::Relaxed);
    leases
}

/// A worker of this process is gone, with its interpreter and all buffers there: it owes its pool nothing any more.
pub(crate) fn forget_worker(worker: u64) {
    let mut watch = watch();
    watch.leases.retain(|(owner, _), _| *owner != worker);
    watch.retained.retain(|(owner, _), _| *owner != worker);
    watch.released.retain(|(lane, _)| lane.worker != worker);
    RELEASES.store(watch.released.len(), Ordering::Relaxed);
}

/// Counts a buffer that uses this.
pub(crate) fn enter(looked: Looked) {
    let mut watch = watch();
    match looked {
        Looked::Lease(worker, lease) => *watch.leases.entry((worker, lease)).or_default() += 1,
        Looked::Block(segment, offset) => *watch.blocks.entry((segment, offset)).or_default() += 1,
    }
}

/// One buffer less; after the last one, the worker reports a lease that the parent has kept for it.
pub(crate) fn leave(looked: Looked) {
    let mut watch = watch();
    match looked {
        Looked::Block(segment, offset) => {
            count_down(&mut watch.blocks, (segment, offset));
        }
        Looked::Lease(worker, lease) => {
            if count_down(&mut watch.leases, (worker, lease))
                && let Some((index, count)) = watch.retained.remove(&(worker, lease))
            {
                watch.release(Lane { worker, index }, Release { lease, count });
            }
        }
    }
}

/// Whether that was the last one.
fn count_down<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: K) -> bool {
    let Some(count) = counts.get_mut(&key) else { return false };
    *count -= 1;
    let last = *count == 0;
    if last {
        counts.remove(&key);
    }
    last
}

/// A block of another process has been lent from here.
pub(crate) fn pass_on(block: (u64, u64)) {
    watch().passed_on.insert(block);
}
