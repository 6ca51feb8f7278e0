//! Which worker the calling thread is.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use ropewalk_sync::Event;

use super::{Worker, WorkerPool};

thread_local!(static CURRENT: RefCell<Option<Rc<Worker>>> = const { RefCell::new(None) });

/// The worker that the calling thread is, of any pool.
pub(crate) fn worker() -> Option<Rc<Worker>> {
    CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
}

/// Calls `act` with the worker that the calling thread is, if it is one of this pool.
pub(super) fn with<R>(core: &WorkerPool, act: impl FnOnce(Option<&Worker>) -> R) -> R {
    match worker() {
        Some(worker) if worker.is_of(core) => act(Some(&worker)),
        _ => act(None),
    }
}

/// Makes the calling thread this worker while `act` runs.
pub(super) fn be(worker: &Rc<Worker>, act: impl FnOnce()) {
    CURRENT.set(Some(Rc::clone(worker)));
    act();
    CURRENT.set(None);
}

/// Waits for an event until `ready`; false if the deadline passed before. A worker that may do so runs other jobs
/// meanwhile.
pub(crate) fn wait_for(event: &Event, deadline: Option<Instant>, ready: &dyn Fn() -> bool) -> bool {
    match worker() {
        Some(worker) if worker.helps() => worker.help_until(event, deadline, ready),
        _ => event.wait(deadline, ready),
    }
}
