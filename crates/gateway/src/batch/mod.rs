//! Calls of one tool that a worker runs together: each waits for others, and they go as one call.
//!
//! A batch leaves when it is full, when its first call has waited for the window, or, while none of the tool's batches
//! runs, as soon as it has as many calls as the batch before: see `queue.rs`. So a caller alone waits for no window,
//! and callers in step with each other find themselves in one batch.
//!
//! Source: Clipper (Crankshaw et al., NSDI 2017), section 4.3; the dynamic batcher of NVIDIA's Triton.

mod packed;
mod queue;

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use ropewalk_pool::Engine;
use ropewalk_sync::Mutex;
use tokio::sync::oneshot;
use tokio::time::{sleep_until, timeout_at};

use self::queue::{Item, Next, Queue};
use crate::call::{Answer, Beside, Form, Items, Readiness, Request, Runner, Seat};
use crate::deadline::Deadline;
use crate::depth;
use crate::failed::{Failed, Shed};
use crate::telemetry::{Now, Watched};
use crate::tool::{Batch, SessionTool, Tool};

/// Runs calls of tools that have `batch` together, and passes on all others.
pub struct Batched(Arc<Shared>);

struct Shared {
    runner: Arc<dyn Runner>,
    /// The calls that wait, by the address of their tool, which is its own while a reference to it is here.
    queues: Mutex<HashMap<usize, Kept>>,
}

/// A tool, and its calls that wait.
type Kept = (Weak<Tool>, Arc<Queue>);

impl Batched {
    /// Batches go to this runner.
    pub fn new(runner: Arc<dyn Runner>) -> Self {
        Self(Arc::new(Shared { runner, queues: Mutex::default() }))
    }
}

impl Shared {
    fn queue(&self, tool: &Arc<Tool>, batch: Batch) -> Arc<Queue> {
        let key = Arc::as_ptr(tool) as usize;
        let mut queues = self.queues.lock();
        if let Some((_, queue)) = queues.get(&key) {
            return Arc::clone(queue);
        }
        // Those of tools that a reload has replaced.
        queues.retain(|_, (tool, _)| tool.strong_count() > 0);
        let queue = Arc::new(Queue::new(batch));
        queues.insert(key, (Arc::downgrade(tool), Arc::clone(&queue)));
        queue
    }
}

impl Runner for Batched {
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Answer, Failed>> {
        let Some(batch) = request.tool.batch else { return self.0.runner.call(request) };
        let queue = self.0.queue(&request.tool, batch);
        let bound = Bound { shared: Arc::clone(&self.0), tool: Arc::clone(&request.tool), queue };
        Box::pin(bound.call(request))
    }

    fn stream(&self, request: Request) -> BoxFuture<'_, Result<Items, Failed>> {
        self.0.runner.stream(request)
    }

    fn seat(&self, of: &SessionTool) -> Result<Arc<dyn Seat>, Failed> {
        self.0.runner.seat(of)
    }

    fn readiness(&self) -> Readiness {
        self.0.runner.readiness()
    }

    fn now(&self) -> Now {
        self.0.runner.now()
    }

    fn engines(&self) -> Vec<Engine> {
        self.0.runner.engines()
    }
}

/// A tool, and the calls of it that wait.
#[derive(Clone)]
struct Bound {
    shared: Arc<Shared>,
    tool: Arc<Tool>,
    queue: Arc<Queue>,
}

/// A call that waits. Dropped, because its caller has left, it is in no batch.
struct Waiting<'a> {
    queue: &'a Queue,
    number: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        drop(self.queue.remove(self.number));
    }
}

impl Bound {
    async fn call(self, request: Request) -> Result<Answer, Failed> {
        let came = Instant::now();
        let deadline = Deadline::first(request.deadline, self.tool.deadline, came);
        if let Some(deadline) = deadline.filter(|deadline| deadline.at <= came) {
            return Err(deadline.passed().shed(Shed::Deadline));
        }
        let (answer, answered) = oneshot::channel();
        let Request { form, arguments, beside, metadata, watched, .. } = request;
        // The engine sees the bytes of the batch alone.
        depth::check(form, &arguments)?;
        let item = Item { form, arguments, beside, metadata, deadline, came, watched, answer };
        let number = self.queue.add(item).map_err(|(waiting, most)| Failed::full(waiting, most))?;
        let waiting = Waiting { queue: &self.queue, number };
        self.go();
        let done = match deadline {
            Some(deadline) => timeout_at(deadline.at.into(), answered).await.map_err(|_| deadline.passed()),
            None => Ok(answered.await),
        };
        match done {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(Failed::leaving()),
            Err(passed) => {
                let unbegun = waiting.queue.remove(number).is_some();
                Err(if unbegun { passed.shed(Shed::Deadline) } else { passed })
            }
        }
    }

    /// Sends off the batches that can go now, and comes back when the next one is due.
    fn go(&self) {
        loop {
            match self.queue.next(Instant::now()) {
                Next::Batch(items) => drop(tokio::spawn(self.clone().run(items))),
                Next::Later(at) => {
                    let bound = self.clone();
                    drop(tokio::spawn(async move {
                        sleep_until(at.into()).await;
                        bound.queue.is_due();
                        bound.go();
                    }));
                    return;
                }
                Next::Nothing => return,
            }
        }
    }

    async fn run(self, items: Vec<Item>) {
        let running = self.queue.running();
        let now = Instant::now();
        let mut answers = Vec::with_capacity(items.len());
        let mut seen: Vec<(Watched, Duration)> = Vec::with_capacity(items.len());
        let arguments = packed::arguments(&items);
        for item in items {
            seen.push((item.watched, now.saturating_duration_since(item.came)));
            answers.push(item.answer);
        }
        let request = Request {
            tool: Arc::clone(&self.tool),
            form: Form::Raw,
            arguments,
            beside: Beside::default(),
            metadata: bytes::Bytes::new(),
            deadline: None,
            reports: None,
            watched: Watched::batch(seen),
        };
        // Dropped when every caller has left: then it is cancelled as a call is.
        let done = tokio::select! {
            biased;
            done = self.shared.runner.call(request) => Some(done),
            () = all_gone(&mut answers) => None,
        };
        // The next batch goes first: a worker waits for it.
        drop(running);
        self.go();
        let Some(done) = done else { return };
        let results = done.and_then(|answer| packed::results(&answer, answers.len()));
        match results {
            Ok(results) => {
                for (answer, result) in answers.into_iter().zip(results) {
                    // A caller that has left needs no answer.
                    let _ = answer.send(result);
                }
            }
            Err(failed) => {
                for answer in answers {
                    let _ = answer.send(Err(failed.clone()));
                }
            }
        }
    }
}

async fn all_gone(answers: &mut [oneshot::Sender<Result<Answer, Failed>>]) {
    for answer in answers {
        answer.closed().await;
    }
}
