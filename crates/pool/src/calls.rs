//! Calls of running tasks to functions of the program.
//!
//! A worker sends the call with its results, and waits for the answer in a ring of its own, so that the answer need not
//! pass the tasks that wait in the lane. A thread of the program takes the call, runs it without any lock of ours, and
//! answers.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::outcome::Reply;
use crate::task::Task;

/// A call that a task has made.
#[derive(Debug)]
pub struct Calling {
    /// The task that waits for the answer.
    pub task: Arc<Task>,
    /// The lane in which it runs.
    pub(crate) lane: usize,
    /// Which of the lane's calls it is, as its worker counts.
    pub(crate) number: u64,
    /// The frame: the function's name, its arguments by position, and those by name.
    pub frame: Reply,
}

/// The calls that no thread has taken, at most one of each lane.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    waiting: VecDeque<Calling>,
    /// Whether the program has functions to be called, and a thread that takes calls.
    pub(crate) served: bool,
}

impl Calls {
    /// Adds a call. A lane has one at a time: an earlier one was given up by its worker.
    pub(crate) fn add(&mut self, call: Calling) {
        self.waiting.retain(|known| known.lane != call.lane);
        self.waiting.push_back(call);
    }

    pub(crate) fn next(&mut self) -> Option<Calling> {
        self.waiting.pop_front()
    }
}

/// What became of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Answered {
    /// It is on its way.
    Yes,
    /// Nobody waits for it any more.
    Gone,
    /// There is no room at the moment: try again.
    Full,
}
