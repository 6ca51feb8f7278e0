//! `EventFeed`: what pools tell of their lives, for a thread of Python's to take.
//!
//! The bus's handler runs in a thread of Rust's, which never attaches to the interpreter: it leaves the events in a
//! channel, where a thread of Python's waits for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use ropewalk_bus::Subscription;
use ropewalk_pool::events::{self, Event, How, What};
use ropewalk_sync::Mutex;

use super::errors;

/// Events that may wait for the thread of Python's; more are counted and dropped, for a pool never waits.
const CAPACITY: usize = 65_536;

/// The feed's end of the channel. `None` in it says that the feed is closed.
type Item = Option<Event>;

/// See the module.
#[pyclass(frozen, module = "ropewalk._core")]
pub(crate) struct EventFeed {
    receiver: Mutex<Receiver<Item>>,
    sender: SyncSender<Item>,
    lost: Arc<AtomicU64>,
    subscription: Mutex<Option<Subscription>>,
}

/// What Python is given: topic, pool, process id, task, wait status, number, text.
type Told = (&'static str, String, i32, Option<u64>, Option<i32>, usize, Option<String>);

fn tell(event: &Event) -> Told {
    let (mut pid, mut task, mut status, mut queued, mut reason) = (0, None, None, 0, None);
    match &event.what {
        What::WorkerStarted { pid: worker } | What::WorkerRecycled { pid: worker } => pid = *worker,
        What::WorkerCrashed { pid: worker, status: left, reason: why } => {
            (pid, status, reason) = (*worker, *left, why.as_deref().map(str::to_owned));
        }
        What::Saturated { queued: waiting } => queued = *waiting,
        What::TaskFailed { task: number, pid: worker, how } => {
            let how = match how {
                How::Raised => "raised",
                How::TimedOut => "timed out",
                How::Crashed => "crashed",
                How::Broken => "broken",
            };
            (pid, task, reason) = (*worker, Some(*number), Some(how.to_owned()));
        }
        What::Broken { reason: why } => reason = Some(why.to_string()),
        _ => {}
    }
    (event.what.topic(), event.pool.to_string(), pid, task, status, queued, reason)
}

#[pymethods]
impl EventFeed {
    #[new]
    fn new() -> PyResult<Self> {
        let (sender, receiver) = sync_channel(CAPACITY);
        let lost = Arc::new(AtomicU64::new(0));
        let (sending, losing) = (sender.clone(), Arc::clone(&lost));
        let subscription = events::bus().subscribe("pool.**", move |event: &Event| {
            if let Err(TrySendError::Full(_)) = sending.try_send(Some(event.clone())) {
                losing.fetch_add(1, Ordering::Relaxed);
            }
        });
        let subscription = subscription.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        let subscription = Mutex::new(Some(subscription));
        Ok(Self { receiver: Mutex::new(receiver), sender, lost, subscription })
    }

    /// The next event, waited for; `None` once the feed is closed.
    fn next(&self, py: Python<'_>) -> PyResult<Option<Told>> {
        let item = py.detach(|| {
            let receiver = self.receiver.lock();
            receiver.recv()
        });
        match item {
            Ok(event) => Ok(event.as_ref().map(tell)),
            Err(_) => Err(errors::value_error("the feed has no sender")),
        }
    }

    /// Ends it: whoever waits for the next event gets what is left, then `None`.
    fn close(&self, py: Python<'_>) {
        py.detach(|| {
            drop(self.subscription.lock().take());
            // Waits for room, if there is none; somebody takes what is there.
            let _ = self.sender.send(None);
        });
    }

    /// Events that were dropped because nobody took them in time.
    #[getter]
    fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}
