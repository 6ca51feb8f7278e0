//! Turns: calls of one session run one at a time, in the order in which they came, and only so many may wait.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use ropewalk_sync::Mutex;
use tokio::sync::oneshot;

/// The calls of a session that have come and have not ended.
#[derive(Debug)]
pub(crate) struct Turns {
    most: usize,
    line: Mutex<Line>,
}

#[derive(Debug)]
struct Line {
    /// The number of the call whose turn it is.
    running: Option<u64>,
    /// The others, and what wakes each.
    waiting: VecDeque<(u64, oneshot::Sender<()>)>,
    next: u64,
    /// When the last one ended.
    idle_since: Instant,
}

/// A call's place in the line. Dropping it leaves the line.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: Arc<Turns>,
    number: u64,
    /// Gets a message when its turn comes; `None` if it is its turn.
    comes: Option<oneshot::Receiver<()>>,
}

/// As many calls wait as may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full(pub(crate) usize);

impl Turns {
    /// A line in which so many calls may wait.
    pub(crate) fn new(most: usize) -> Arc<Self> {
        let line = Line { running: None, waiting: VecDeque::new(), next: 0, idle_since: Instant::now() };
        Arc::new(Self { most, line: Mutex::new(line) })
    }

    /// Takes the last place in the line.
    pub(crate) fn enter(self: &Arc<Self>) -> Result<Turn, Full> {
        let mut line = self.line.lock();
        if line.running.is_some() && line.waiting.len() >= self.most {
            return Err(Full(self.most));
        }
        let number = line.next;
        line.next += 1;
        let comes = if line.running.is_some() {
            let (sender, receiver) = oneshot::channel();
            line.waiting.push_back((number, sender));
            Some(receiver)
        } else {
            line.running = Some(number);
            None
        };
        Ok(Turn { turns: Arc::clone(self), number, comes })
    }

    /// Since when no call has been in the line; `None` if one is.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        let line = self.line.lock();
        line.running.is_none().then_some(line.idle_since)
    }
}

impl Turn {
    /// Returns when its turn has come.
    pub(crate) async fn comes(&mut self) {
        if let Some(comes) = &mut self.comes {
            // The line outlives its turns, so the sender goes only with a message.
            let _ = comes.await;
            self.comes = None;
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut line = self.turns.line.lock();
        if line.running != Some(self.number) {
            let left = line.waiting.iter().position(|(number, _)| *number == self.number);
            let left = left.and_then(|place| line.waiting.remove(place));
            drop(line);
            drop(left);
            return;
        }
        let next = line.waiting.pop_front();
        line.running = next.as_ref().map(|(number, _)| *number);
        line.idle_since = Instant::now();
        drop(line);
        if let Some((_, sender)) = next {
            // A turn that is dropped at this moment finds itself running, and passes the turn on.
            let _ = sender.send(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    fn is_its_turn(turn: &mut Turn) -> bool {
        pin!(turn.comes()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn turns_come_in_the_order_of_the_line() {
        let turns = Turns::new(8);
        let [mut first, mut second, mut third] = [(); 3].map(|()| turns.enter().expect("a place"));
        assert!(is_its_turn(&mut first) && !is_its_turn(&mut second) && !is_its_turn(&mut third));
        drop(first);
        assert!(!is_its_turn(&mut third) && is_its_turn(&mut second));
        drop(second);
        assert!(is_its_turn(&mut third));
        assert_eq!(turns.idle_since(), None);
        drop(third);
        assert!(turns.idle_since().is_some());
    }

    #[test]
    fn what_leaves_the_line_is_passed_over() {
        let turns = Turns::new(8);
        let [first, second, mut third] = [(); 3].map(|()| turns.enter().expect("a place"));
        drop(second);
        assert!(!is_its_turn(&mut third));
        drop(first);
        assert!(is_its_turn(&mut third));
    }

    #[test]
    fn a_turn_that_has_come_unseen_is_passed_on() {
        let turns = Turns::new(8);
        let [first, second, mut third] = [(); 3].map(|()| turns.enter().expect("a place"));
        drop(first);
        // It has its turn, and never looked.
        drop(second);
        assert!(is_its_turn(&mut third));
    }

    #[test]
    fn only_so_many_wait() {
        let turns = Turns::new(2);
        let taken: Vec<Turn> = (0..3).map(|_| turns.enter().expect("a place")).collect();
        assert_eq!(turns.enter().err(), Some(Full(2)));
        drop(taken);
        assert!(turns.enter().is_ok());
    }
}
