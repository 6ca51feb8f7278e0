//! A worker's link to its parent: one for a worker process, or one for each thread that is a worker of this process.

use std::cell::RefCell;
use std::sync::{Arc, OnceLock};

use ropewalk_capi::errors::{fail, raise};
use ropewalk_capi::object::Raised;
use ropewalk_pool::worker::{FdChannel, WorkerEnd};
use ropewalk_sync::Mutex;

use crate::seats;

/// See the module.
pub(super) struct Link {
    pub(super) channel: FdChannel,
    lanes: Mutex<Vec<Option<WorkerEnd>>>,
    /// The worker's number; 0 for a process of its own.
    pub(super) worker: u64,
}

static OF_PROCESS: OnceLock<Arc<Link>> = OnceLock::new();

thread_local! {
    static SEATED: RefCell<Option<Arc<Link>>> = const { RefCell::new(None) };
}

/// The link of a worker process.
pub(super) fn of_process() -> Option<&'static Arc<Link>> {
    OF_PROCESS.get()
}

/// The number of the worker that this thread is; 0 if it is none, or belongs to a worker process.
pub(super) fn here() -> u64 {
    SEATED.with_borrow(|link| link.as_ref().map_or(0, |link| link.worker))
}

/// The link of this thread, or of the process.
pub(super) fn get() -> Result<Arc<Link>, Raised> {
    let seated = SEATED.with_borrow(Clone::clone);
    seated.or_else(|| OF_PROCESS.get().cloned()).ok_or_else(|| fail(c"this process is not a worker"))
}

/// Makes this process a worker.
pub(super) fn open(channel: FdChannel, lanes: Vec<Option<WorkerEnd>>) -> Result<(), Raised> {
    let link = Arc::new(Link { channel, lanes: Mutex::new(lanes), worker: 0 });
    OF_PROCESS.set(link).map_err(|_| fail(c"this process is a worker already"))
}

/// Makes this thread a worker; gives the settings of its pool's workers, and its number among them.
pub(super) fn sit(seat: u64) -> Result<(Arc<[u8]>, u64), Raised> {
    let sat = seats::with(seat, |seat| seat.sit().map(|ends| (ends, seat.spec(), seat.number())));
    let sat = sat.ok_or_else(|| fail(c"there is no such seat"))?;
    let ((end, channel), spec, number) = sat.map_err(|error| raise(&error))?;
    let link = Arc::new(Link { channel, lanes: Mutex::new(vec![Some(end)]), worker: number });
    let before = SEATED.replace(Some(link));
    drop(before);
    Ok((spec, number))
}

impl Link {
    /// Uses a lane that is not being served.
    pub(super) fn with_lane<T>(
        &self,
        index: usize,
        work: impl FnOnce(&mut WorkerEnd) -> Result<T, Raised>,
    ) -> Result<T, Raised> {
        let mut lanes = self.lanes.lock();
        let lane = lanes.get_mut(index).and_then(Option::as_mut);
        work(lane.ok_or_else(|| fail(c"there is no such lane, or it is being served"))?)
    }

    /// Takes a lane to serve it.
    pub(super) fn take_lane(&self, index: usize) -> Result<WorkerEnd, Raised> {
        let taken = self.lanes.lock().get_mut(index).and_then(Option::take);
        taken.ok_or_else(|| fail(c"there is no such lane, or it is being served"))
    }
}
