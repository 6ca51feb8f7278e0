//! The thread that drives an engine for a server: it sleeps until tasks end, and wakes those that await them.
//!
//! A call that finds itself alone does not need the thread at first: it spins for its own task, which saves two
//! wake-ups of threads. So the thread does not lead the pool while calls come one at a time; it rests beside it.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use ropewalk_pool::{Engine, Task, WaitFor};
use ropewalk_sync::atomic::{AtomicUsize, Ordering};
use ropewalk_sync::{Mutex, Parker};
use tokio::sync::oneshot;

/// How long the thread waits for the end of a pool before it looks for results once more.
const LEAVING: Duration = Duration::from_millis(20);
/// How long the thread rests beside a pool that no call needs it for, before it sleeps in the pool.
const LINGER: Duration = Duration::from_millis(20);

/// See the module. Its thread leaves when the engine has ended.
#[derive(Debug)]
pub struct Driver {
    engine: Engine,
    /// What is woken by the end of a task, by the task's number.
    waiting: Mutex<HashMap<u64, oneshot::Sender<()>>>,
    /// Calls that await the end of a task. A hint, by which one knows that it is alone: relaxed.
    callers: AtomicUsize,
    /// Where the thread rests.
    parker: Parker,
}

impl Driver {
    /// Starts the thread of an engine.
    ///
    /// # Errors
    ///
    /// When the engine has such a thread already, or the machine is out of threads.
    pub fn start(engine: Engine) -> io::Result<Arc<Self>> {
        if !engine.start_collecting() {
            return Err(io::Error::other("another part of the program collects the results of this pool"));
        }
        let driver = Arc::new(Self {
            engine: engine.clone(),
            waiting: Mutex::default(),
            callers: AtomicUsize::new(0),
            parker: Parker::new(),
        });
        let weak = Arc::downgrade(&driver);
        let thread = thread::Builder::new().name(String::from("ropewalk-gateway"));
        if let Err(error) = thread.spawn(move || drive(&engine, &weak)) {
            driver.engine.stop_collecting();
            return Err(error);
        }
        Ok(driver)
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Returns when a task has ended.
    pub(crate) async fn ended(&self, task: &Arc<Task>) {
        let counted = Counted::new(&self.callers);
        if counted.is_alone && self.engine.spin_for(task) {
            return;
        }
        let (sender, receiver) = oneshot::channel();
        let is_first = {
            let mut waiting = self.waiting.lock();
            waiting.insert(task.id, sender);
            waiting.len() == 1
        };
        if is_first {
            self.parker.unpark();
        }
        let forget = Forget { driver: self, id: task.id };
        // Known first, watched second: an end after this finds the sender.
        if task.watch() {
            // The sender goes only with an end, or with the driver.
            let _ = receiver.await;
        }
        drop(forget);
    }

    /// Rests until a call needs the thread, for a while.
    fn linger(&self) {
        let end = Instant::now() + LINGER;
        // A token may be of a call that has been served since.
        while self.waiting.lock().is_empty() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            self.parker.park(Some(left));
        }
    }

    fn wake(&self, ended: &[Arc<Task>]) {
        let mut senders = Vec::with_capacity(ended.len());
        {
            let mut waiting = self.waiting.lock();
            senders.extend(ended.iter().filter_map(|task| waiting.remove(&task.id)));
        }
        for sender in senders {
            // A receiver that has left need not be woken.
            let _ = sender.send(());
        }
    }
}

/// A call that awaits the end of a task.
struct Counted<'a> {
    callers: &'a AtomicUsize,
    is_alone: bool,
}

impl<'a> Counted<'a> {
    fn new(callers: &'a AtomicUsize) -> Self {
        Self { callers, is_alone: callers.fetch_add(1, Ordering::Relaxed) == 0 }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.callers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Removes a task's sender when its receiver leaves.
struct Forget<'a> {
    driver: &'a Driver,
    id: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        let gone = self.driver.waiting.lock().remove(&self.id);
        drop(gone);
    }
}

fn drive(engine: &Engine, driver: &Weak<Driver>) {
    loop {
        {
            let Some(driver) = driver.upgrade() else { break };
            driver.linger();
        }
        let _ = engine.wait(&WaitFor::Completed, None);
        let ended = engine.take_completed();
        let Some(driver) = driver.upgrade() else { break };
        driver.wake(&ended);
        drop(driver);
        // Asked only then, because it takes the engine's lock.
        if ended.is_empty() {
            if engine.has_ended() {
                break;
            }
            if engine.is_closed() {
                // A pool that is broken has nothing to wait for, and may not have ended yet.
                let _ = engine.join(Some(Instant::now() + LEAVING));
            }
        }
    }
    // What is left awaits tasks whose pool is gone: they have their outcome, or will never get one.
    if let Some(driver) = driver.upgrade() {
        let left = std::mem::take(&mut *driver.waiting.lock());
        drop(left);
    }
}
