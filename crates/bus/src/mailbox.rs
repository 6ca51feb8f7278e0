//! What a thread of Rust's fills while it may hold any lock, and whoever is responsible empties.
//!
//! Filling calls nobody: the message is kept, a sleeper is woken through a futex, and of whoever else wants to know
//! only a note is taken away. So a room can publish with its locks held, and what its messages become is the
//! receiver's affair.

use std::cell::RefCell;
use std::sync::{Arc, Once};
use std::time::Duration;

use ropewalk_os::process;
use ropewalk_sync::atomic::Ordering;
use ropewalk_sync::futex::{Futex, Wait};
use ropewalk_sync::{Mutex, MutexGuard};

use crate::backlog::{Backlog, Counters, Overflow, Taken};

/// Messages that may wait where the receiver is to miss none. The publisher cannot wait, so there is an end to it.
const MOST_KEPT: usize = 65_536;

/// Held by whoever has the content of a mailbox, and across a fork: a child finds every mailbox whole, and no lock
/// taken by a thread that it does not have.
static FORK_GATE: Mutex<()> = Mutex::new(());

thread_local! {
    /// The gate, from before a fork until behind it, in the thread that forks.
    static FORKING: RefCell<Option<MutexGuard<'static, ()>>> = const { RefCell::new(None) };
}

extern "C" fn before_fork() {
    let gate = FORK_GATE.lock();
    let _ = FORKING.try_with(|forking| *forking.borrow_mut() = Some(gate));
}

extern "C" fn after_fork() {
    let _ = FORKING.try_with(|forking| drop(forking.borrow_mut().take()));
}

/// See the module.
#[derive(Debug)]
pub struct Mailbox<M> {
    content: Mutex<Content<M>>,
    /// Changes when sleepers are woken.
    word: Futex,
    capacity: usize,
    overflow: Overflow,
    /// Whoever wants to know of a message and does not sleep here.
    watcher: Option<Arc<Watcher>>,
}

#[derive(Debug)]
struct Content<M> {
    backlog: Backlog<M>,
    /// Somebody sleeps on the word. Set by it, taken away by whoever wakes it.
    sleeps: bool,
    /// The watcher wants to know of the next message.
    is_watched: bool,
}

/// A thread that looks after several mailboxes: it sleeps here, and is woken by the first message of any that is
/// watched.
#[derive(Debug)]
pub struct Watcher {
    word: Futex,
}

impl Default for Watcher {
    fn default() -> Self {
        Self { word: Futex::new(0) }
    }
}

impl Watcher {
    /// The number to sleep on. Read before looking for anything to do: a message that comes later changes it.
    pub fn number(&self) -> u32 {
        self.word.load(Ordering::Acquire)
    }

    /// Wakes the thread.
    pub fn wake(&self) {
        wake_all(&self.word);
    }

    /// Sleeps until somebody has woken it since the number was read.
    pub fn sleep(&self, number: u32) {
        let _: Wait = self.word.wait_while(number, None);
    }
}

fn wake_all(word: &Futex) {
    // Release: who sees the new number sees what was there when the sleepers' mark was taken away.
    word.fetch_add(1, Ordering::Release);
    word.wake_all();
}

impl<M> Mailbox<M> {
    /// A mailbox in which so many messages have room. Where the policy would have the publisher wait, or get an error,
    /// many more have (65,536 at least), and then the newest are dropped.
    pub fn new(capacity: usize, overflow: Overflow, watcher: Option<Arc<Watcher>>) -> Self {
        static AT_FORK: Once = Once::new();
        AT_FORK.call_once(|| process::at_fork(before_fork, after_fork));
        let (capacity, overflow) = match overflow {
            Overflow::DropOldest | Overflow::DropNewest => (capacity, overflow),
            Overflow::Block | Overflow::Error => (capacity.max(MOST_KEPT), Overflow::DropNewest),
        };
        let content = Content { backlog: Backlog::default(), sleeps: false, is_watched: false };
        Self { content: Mutex::new(content), word: Futex::new(0), capacity, overflow, watcher }
    }

    fn with<T>(&self, work: impl FnOnce(&mut Content<M>) -> T) -> T {
        let _gate = FORK_GATE.lock();
        work(&mut self.content.lock())
    }

    /// Puts a message in, and wakes whoever waits for one.
    pub fn push(&self, message: M) {
        let (over, sleeps, watched) = self.with(|content| {
            let over = content.backlog.offer(message, self.capacity, self.overflow);
            (over, std::mem::take(&mut content.sleeps), std::mem::take(&mut content.is_watched))
        });
        drop(over);
        if sleeps {
            wake_all(&self.word);
        }
        if watched && let Some(watcher) = &self.watcher {
            watcher.wake();
        }
    }

    /// Takes what there is to receive.
    pub fn take(&self) -> Taken<M> {
        self.with(|content| content.backlog.take())
    }

    /// Takes up to `most` messages that have no gap between them.
    ///
    /// # Errors
    ///
    /// What else there is to receive, if there is no message in front.
    pub fn take_many(&self, most: usize) -> Result<Vec<M>, Taken<M>> {
        self.with(|content| content.backlog.take_many(most))
    }

    /// Prepares a sleep: the number to sleep on, unless there is something to receive.
    pub fn prepare(&self) -> Option<u32> {
        self.with(|content| {
            if content.backlog.pending() > 0 || content.backlog.closed {
                return None;
            }
            content.sleeps = true;
            Some(self.word.load(Ordering::Acquire))
        })
    }

    /// Sleeps until somebody has woken the sleepers since the number was read.
    pub fn sleep(&self, number: u32, timeout: Option<Duration>) -> Wait {
        self.word.wait_while(number, timeout)
    }

    /// Wakes the sleepers, for they have something else to look at.
    pub fn wake(&self) {
        wake_all(&self.word);
    }

    /// Has the watcher woken by the next message; false if there is something to receive now.
    pub fn watch(&self) -> bool {
        self.with(|content| {
            let waits = content.backlog.pending() == 0;
            content.is_watched |= waits;
            waits
        })
    }

    /// Takes nothing more; what is there can still be received.
    pub fn close(&self) {
        self.with(|content| content.backlog.closed = true);
        self.wake();
    }

    /// How many messages wait.
    pub fn len(&self) -> usize {
        self.with(|content| content.backlog.len())
    }

    /// Whether no message waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many receptions would find something now, reports of losses included.
    pub fn pending(&self) -> usize {
        self.with(|content| content.backlog.pending())
    }

    /// What went through it.
    pub fn counters(&self) -> Counters {
        self.with(|content| content.backlog.counters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleeper_and_a_watcher_are_woken_by_the_first_message() {
        let watcher = Arc::new(Watcher::default());
        let mailbox = Arc::new(Mailbox::new(9, Overflow::DropNewest, Some(Arc::clone(&watcher))));
        std::thread::scope(|scope| {
            let receiver = scope.spawn(|| {
                loop {
                    match mailbox.take() {
                        Taken::Message(message) => return message,
                        _ => {
                            if let Some(number) = mailbox.prepare() {
                                let _ = mailbox.sleep(number, None);
                            }
                        }
                    }
                }
            });
            mailbox.push(1);
            assert_eq!(receiver.join().expect("no panic"), 1);
        });
        assert!(mailbox.watch(), "nothing is there");
        let number = watcher.number();
        mailbox.push(2);
        assert_ne!(watcher.number(), number);
        watcher.sleep(number);
        assert!(!mailbox.watch(), "something is there");
        assert_eq!((mailbox.prepare(), mailbox.len(), mailbox.take()), (None, 1, Taken::Message(2)));
        mailbox.close();
        mailbox.push(3);
        assert_eq!((mailbox.prepare(), mailbox.take()), (None, Taken::Ended));
    }

    #[test]
    fn a_publisher_that_cannot_wait_drops_and_the_receiver_is_told() {
        let block = Mailbox::new(1, Overflow::Block, None);
        let oldest = Mailbox::new(1, Overflow::DropOldest, None);
        for number in 0..=MOST_KEPT {
            block.push(number);
            oldest.push(number);
        }
        assert_eq!((block.len(), block.counters().dropped), (MOST_KEPT, 1));
        assert_eq!(oldest.take(), Taken::Lagged(MOST_KEPT as u64));
        assert_eq!(oldest.take(), Taken::Message(MOST_KEPT));
    }

    #[test]
    #[cfg_attr(miri, ignore = "it forks")]
    fn a_child_finds_no_mailbox_locked() {
        let mailbox = Arc::new(Mailbox::new(100, Overflow::DropOldest, None));
        let over = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let filler = {
            let (mailbox, over) = (Arc::clone(&mailbox), Arc::clone(&over));
            std::thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    mailbox.push(Box::new(1_u8));
                }
            })
        };
        for _ in 0..200 {
            // SAFETY: the child calls only what is safe there: no allocation but the mailbox's own, and `_exit`.
            let child = unsafe { process::fork() }.expect("a child");
            if child == 0 {
                let _ = mailbox.pending();
                process::exit_now(0);
            }
            assert_eq!(process::collect(child).expect("a child"), 0);
        }
        over.store(true, Ordering::Relaxed);
        filler.join().expect("no panic");
    }
}
