//! Exceptions of tools, on their way to what can read them: they are Python's, and no thread of the gateway is.
//!
//! A call that ended in an exception leaves it here and waits for the answer. A thread of the layer above takes one
//! after another.

use std::collections::VecDeque;
use std::sync::Arc;

use ropewalk_pool::wire::flags;
use ropewalk_pool::{Outcome, Reply, Task};
use ropewalk_sync::{Event, Mutex};
use tokio::sync::oneshot;

use crate::failed::{Code, Failed};

/// The exceptions that are to be read.
#[derive(Debug, Default)]
pub struct Exceptions {
    waiting: Mutex<Waiting>,
    /// Notified when one comes, and at the end.
    came: Event,
}

#[derive(Debug, Default)]
struct Waiting {
    exceptions: VecDeque<Exception>,
    closed: bool,
}

/// One that is to be read. Dropping it fails the call without its reason.
#[derive(Debug)]
pub struct Exception {
    task: Arc<Task>,
    answer: oneshot::Sender<Failed>,
}

impl Exception {
    /// The reply that has it.
    pub fn reply(&self) -> Option<&Reply> {
        match self.task.outcome() {
            Some(Outcome::Replied(reply)) if reply.flags & flags::ERROR != 0 => Some(reply),
            _ => None,
        }
    }

    /// Why the call has no result.
    pub fn answer(self, failed: Failed) {
        // A caller that has left needs no answer.
        let _ = self.answer.send(failed);
    }
}

impl Exceptions {
    /// Waits for the next one; `None` at the end.
    pub fn next(&self) -> Option<Exception> {
        loop {
            let mut waiting = self.waiting.lock();
            if let Some(exception) = waiting.exceptions.pop_front() {
                return Some(exception);
            }
            if waiting.closed {
                return None;
            }
            drop(waiting);
            self.came.wait(None, || {
                let waiting = self.waiting.lock();
                waiting.closed || !waiting.exceptions.is_empty()
            });
        }
    }

    /// No thread reads them any more.
    pub fn close(&self) {
        let mut waiting = self.waiting.lock();
        waiting.closed = true;
        let left = std::mem::take(&mut waiting.exceptions);
        drop(waiting);
        self.came.notify();
        drop(left);
    }

    /// Why a task that ended in an exception has no result.
    pub(crate) async fn read(&self, task: &Arc<Task>) -> Failed {
        let (answer, answered) = oneshot::channel();
        self.leave(Exception { task: Arc::clone(task), answer });
        answered
            .await
            .unwrap_or_else(|_| Failed::new(Code::Unknown, "the tool raised, and the server leaves"))
    }

    fn leave(&self, exception: Exception) {
        let mut waiting = self.waiting.lock();
        let refused = if waiting.closed {
            Some(exception)
        } else {
            waiting.exceptions.push_back(exception);
            None
        };
        drop(waiting);
        drop(refused);
        self.came.notify();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn raised() -> Arc<Task> {
        Task::ended(Outcome::Replied(Reply { flags: flags::ERROR, bytes: vec![7], segments: Vec::new() }))
    }

    #[tokio::test]
    async fn one_thread_answers_what_calls_ask() {
        let exceptions = Arc::new(Exceptions::default());
        let reader = thread::spawn({
            let exceptions = Arc::clone(&exceptions);
            move || {
                let mut read = 0;
                while let Some(exception) = exceptions.next() {
                    assert_eq!(exception.reply().map(|reply| reply.bytes.clone()), Some(vec![7]));
                    exception.answer(Failed::new(Code::NotFound, "read"));
                    read += 1;
                }
                read
            }
        });
        for _ in 0..3 {
            assert_eq!(exceptions.read(&raised()).await.code, Code::NotFound);
        }
        exceptions.close();
        assert_eq!(reader.join().expect("it ends"), 3);
        assert_eq!(exceptions.read(&raised()).await.code, Code::Unknown);
    }

    #[tokio::test]
    async fn what_is_not_read_fails_its_call_at_the_end() {
        let exceptions = Arc::new(Exceptions::default());
        let asked = tokio::spawn({
            let exceptions = Arc::clone(&exceptions);
            async move { exceptions.read(&raised()).await }
        });
        while exceptions.waiting.lock().exceptions.is_empty() {
            tokio::task::yield_now().await;
        }
        exceptions.close();
        assert_eq!(asked.await.expect("it ends").code, Code::Unknown);
        assert!(exceptions.next().is_none());
    }

    #[test]
    fn a_result_is_no_exception() {
        let (answer, _) = oneshot::channel();
        let task = Task::ended(Outcome::Replied(Reply { flags: 0, bytes: Vec::new(), segments: Vec::new() }));
        assert!(Exception { task, answer }.reply().is_none());
    }
}
