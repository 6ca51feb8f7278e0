//! The calls of a tool that wait for others, and when they go.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use ropewalk_sync::Mutex;
use tokio::sync::oneshot;

use crate::call::{Answer, Beside, Form};
use crate::deadline::Deadline;
use crate::failed::Failed;
use crate::telemetry::Watched;
use crate::tool::Batch;

/// Bytes of arguments, arrays and metadata after which no call is added to a batch: it must fit into shared memory.
const MOST_BYTES: usize = 32 << 20;

/// A call that waits.
pub(super) struct Item {
    pub(super) form: Form,
    pub(super) arguments: Bytes,
    pub(super) beside: Beside,
    pub(super) metadata: Bytes,
    /// When its time is up.
    pub(super) deadline: Option<Deadline>,
    pub(super) came: Instant,
    pub(super) watched: Watched,
    pub(super) answer: oneshot::Sender<Result<Answer, Failed>>,
}

impl Item {
    /// The bytes that it brings.
    pub(super) fn size(&self) -> usize {
        let Beside { arrays, buffers, .. } = &self.beside;
        let buffers: usize = buffers.iter().map(Bytes::len).sum();
        self.arguments.len() + self.metadata.len() + arrays.len() + buffers
    }
}

/// What is to be done now.
pub(super) enum Next {
    /// Run these together.
    Batch(Vec<Item>),
    /// Look again then.
    Later(Instant),
    /// Nothing: another call, or the end of a batch, will look again.
    Nothing,
}

/// See the module.
pub(super) struct Queue {
    batch: Batch,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    items: VecDeque<(u64, Item)>,
    /// The number of the next call.
    next: u64,
    /// Batches that run.
    running: usize,
    /// Calls in the batch before: about so many callers call in step.
    last: usize,
    /// Whether something looks again when the window of the first call has passed.
    watched: bool,
}

/// A batch that runs.
pub(super) struct Running<'a>(&'a Queue);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.state.lock().running -= 1;
    }
}

impl Queue {
    pub(super) fn new(batch: Batch) -> Self {
        Self { batch, state: Mutex::default() }
    }

    /// Adds a call, and gives its number. If too many wait, the error says how many wait and how many may.
    pub(super) fn add(&self, item: Item) -> Result<u64, (usize, usize)> {
        let mut state = self.state.lock();
        if state.items.len() >= self.batch.capacity {
            let waiting = state.items.len();
            drop(state);
            return Err((waiting, self.batch.capacity));
        }
        let number = state.next;
        state.next += 1;
        state.items.push_back((number, item));
        Ok(number)
    }

    /// Takes a call out, if it still waits.
    pub(super) fn remove(&self, number: u64) -> Option<Item> {
        let mut state = self.state.lock();
        // Numbers grow.
        let place = state.items.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        state.items.remove(place).map(|(_, item)| item)
    }

    /// What is to be done; a batch that it gives counts as running from now on.
    pub(super) fn next(&self, now: Instant) -> Next {
        let mut passed = Vec::new();
        let mut state = self.state.lock();
        let next = state.next(self.batch, now, &mut passed);
        drop(state);
        // Outside of the lock: their callers have given up.
        drop(passed);
        next
    }

    /// Holds the place of a batch that [`next`](Self::next) has given.
    pub(super) fn running(&self) -> Running<'_> {
        Running(self)
    }

    /// The time of [`Next::Later`] has come.
    pub(super) fn is_due(&self) {
        self.state.lock().watched = false;
    }
}

impl State {
    fn next(&mut self, batch: Batch, now: Instant, passed: &mut Vec<(u64, Item)>) -> Next {
        let Some((_, first)) = self.items.front() else { return Next::Nothing };
        // A full batch cannot become better, and goes one ahead of the workers: none waits for the way there and back.
        let lanes = batch.lanes.max(1);
        if self.running > lanes || (self.running == lanes && self.items.len() < batch.most) {
            return Next::Nothing;
        }
        let due = first.came + batch.window;
        let enough = if self.running == 0 { self.last.clamp(1, batch.most) } else { batch.most };
        if self.items.len() < enough && now < due {
            if self.watched {
                return Next::Nothing;
            }
            self.watched = true;
            return Next::Later(due);
        }
        let (mut items, mut bytes) = (Vec::with_capacity(batch.most.min(self.items.len())), 0_usize);
        while items.len() < batch.most
            && let Some((_, item)) = self.items.front()
        {
            let size = item.size();
            if !items.is_empty() && bytes + size > MOST_BYTES {
                break;
            }
            let Some((number, item)) = self.items.pop_front() else { break };
            if item.answer.is_closed() || item.deadline.is_some_and(|deadline| deadline.at <= now) {
                passed.push((number, item));
                continue;
            }
            bytes += size;
            items.push(item);
        }
        if items.is_empty() {
            return Next::Nothing;
        }
        self.running += 1;
        self.last = items.len();
        Next::Batch(items)
    }
}
