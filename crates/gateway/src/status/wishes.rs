//! What only the program can do: say what its flows and its buses are doing, and end the server.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ropewalk_sync::{Event, Mutex};
use tokio::sync::oneshot;

use crate::telemetry::BusNow;

/// Wishes that wait, at most: the program's thread may be busy.
const MOST: usize = 16;

/// How long the program may take to count the messages of its buses. Its numbers are left out otherwise: a program that
/// is busy in C code must not hold up those of the server.
const COUNTING: Duration = Duration::from_millis(500);

/// What the program is to do.
#[derive(Debug)]
pub enum Wish {
    /// End the server when what has begun is answered.
    Drain,
    /// Say what goes on beside the tools, as a JSON object; an empty text for nothing.
    Beside(Answering),
    /// Count the messages of the buses that are shown.
    Buses(Counting),
}

/// Where the counts of buses go. Dropping it answers nothing.
#[derive(Debug)]
pub struct Counting(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    given: Mutex<Option<Vec<BusNow>>>,
    /// Notified when they are given, or will not be.
    over: Event,
}

impl Counting {
    /// Gives the counts.
    pub fn answer(self, counts: Vec<BusNow>) {
        *self.0.given.lock() = Some(counts);
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        self.0.given.lock().get_or_insert_default();
        self.0.over.notify();
    }
}

/// Where the answer to a wish goes. Dropping it answers nothing.
#[derive(Debug)]
pub struct Answering(oneshot::Sender<String>);

impl Answering {
    /// Gives the answer.
    pub fn answer(self, text: String) {
        // One that does not wait any more needs none.
        let _ = self.0.send(text);
    }
}

/// Wishes on their way to the thread of the program that fulfils them.
#[derive(Debug, Default)]
pub struct Wishes {
    waiting: Mutex<Waiting>,
    /// Notified when one comes, and at the end.
    came: Event,
}

#[derive(Debug, Default)]
struct Waiting {
    wishes: VecDeque<Wish>,
    /// Whether a thread fulfils them.
    served: bool,
    closed: bool,
}

impl Wishes {
    /// Waits for the next one; `None` at the end.
    pub fn next(&self) -> Option<Wish> {
        loop {
            let mut waiting = self.waiting.lock();
            waiting.served = true;
            if let Some(wish) = waiting.wishes.pop_front() {
                return Some(wish);
            }
            if waiting.closed {
                return None;
            }
            drop(waiting);
            self.came.wait(None, || {
                let waiting = self.waiting.lock();
                waiting.closed || !waiting.wishes.is_empty()
            });
        }
    }

    /// No thread fulfils them any more.
    pub fn close(&self) {
        let mut waiting = self.waiting.lock();
        waiting.closed = true;
        let left = std::mem::take(&mut waiting.wishes);
        drop(waiting);
        self.came.notify();
        drop(left);
    }

    /// Leaves a wish; false if no thread will fulfil it.
    pub(crate) fn leave(&self, wish: Wish) -> bool {
        let mut waiting = self.waiting.lock();
        let room = waiting.served && !waiting.closed && waiting.wishes.len() < MOST;
        let refused = if room {
            waiting.wishes.push_back(wish);
            None
        } else {
            Some(wish)
        };
        drop(waiting);
        drop(refused);
        self.came.notify();
        room
    }

    /// Asks what goes on beside the tools; the answer comes if a thread is there to give it.
    pub(crate) fn ask(&self) -> oneshot::Receiver<String> {
        let (sender, receiver) = oneshot::channel();
        let _ = self.leave(Wish::Beside(Answering(sender)));
        receiver
    }

    /// Asks how many messages the buses have, and waits a moment for the answer; nothing if no thread gives it.
    pub(crate) fn buses(&self) -> Vec<BusNow> {
        let counts = Arc::new(Counts::default());
        let _ = self.leave(Wish::Buses(Counting(Arc::clone(&counts))));
        counts.over.wait(Instant::now().checked_add(COUNTING), || counts.given.lock().is_some());
        counts.given.lock().take().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[tokio::test]
    async fn one_thread_answers_and_hears_of_the_end() {
        let wishes = Arc::new(Wishes::default());
        assert!(!wishes.leave(Wish::Drain), "no thread is there");
        assert_eq!(wishes.buses(), Vec::new());
        let served = thread::spawn({
            let wishes = Arc::clone(&wishes);
            move || {
                let mut drains = 0;
                while let Some(wish) = wishes.next() {
                    match wish {
                        Wish::Drain => drains += 1,
                        Wish::Beside(answering) => answering.answer(String::from("{}")),
                        Wish::Buses(counting) => counting.answer(vec![BusNow {
                            name: "b".into(),
                            published: 3,
                            waiting: 2,
                            failed: 1,
                        }]),
                    }
                }
                drains
            }
        });
        while !wishes.waiting.lock().served {
            thread::yield_now();
        }
        assert_eq!(wishes.ask().await.as_deref(), Ok("{}"));
        assert_eq!(wishes.buses().first().map(|bus| bus.waiting), Some(2));
        assert!(wishes.leave(Wish::Drain));
        while !wishes.waiting.lock().wishes.is_empty() {
            thread::yield_now();
        }
        wishes.close();
        assert_eq!(wishes.buses(), Vec::new());
        assert_eq!(served.join().expect("it ends"), 1);
        assert!(wishes.ask().await.is_err());
    }
}
