//! A mailbox: Rust threads fill it, even with locks held, and its receiver empties it.
//!
//! Filling runs no foreign code: it keeps the message, wakes a sleeping receiver through a futex, and wakes the watcher
//! if one has asked for it. So a crate can publish with its locks held, and the receiver decides what to make of the
//! messages.

use std::cell::RefCell;
use std::sync::{Arc, Once};
use std::time::Duration;

use ropewalk_os::process;
use ropewalk_sync::atomic::Ordering;
use ropewalk_sync::futex::{Futex, Wait};
use ropewalk_sync::{Mutex, MutexGuard};

use crate::backlog::{Backlog, Counters, Overflow, Taken};

/// The messages that may wait for a receiver that must miss none. The publisher cannot wait, so there must be a limit.
const MOST_KEPT: usize = 65_536;

/// Held during every access to a mailbox, and across a fork: so a child finds every mailbox whole, and no lock taken by
/// a thread that does not exist in it.
static FORK_GATE: Mutex<()> = Mutex::new(());

thread_local! {
    /// The gate's guard, from before a fork until after it, in the thread that forks.
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
    /// Changes when sleeping receivers are woken.
    word: Futex,
    capacity: usize,
    overflow: Overflow,
    /// The watcher to wake for a message, for receivers that do not sleep here.
    watcher: Option<Arc<Watcher>>,
}

#[derive(Debug)]
struct Content<M> {
    backlog: Backlog<M>,
    /// A receiver sleeps on the word. The receiver sets it; the thread that wakes it clears it.
    sleeps: bool,
    /// The next message wakes the watcher.
    is_watched: bool,
}

/// A thread that serves several mailboxes: it sleeps here, and the first message of any watched mailbox wakes it.
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
    /// The number to sleep on. Read it before checking for work: a message that comes later changes it.
    pub fn number(&self) -> u32 {
        self.word.load(Ordering::Acquire)
    }

    /// Wakes the thread.
    pub fn wake(&self) {
        wake_all(&self.word);
    }

    /// Sleeps until a wake-up after the number was read.
    pub fn sleep(&self, number: u32) {
        let _: Wait = self.word.wait_while(number, None);
    }
}

fn wake_all(word: &Futex) {
    // Release: a thread that sees the new number sees everything that was written before the flag was cleared.
    word.fetch_add(1, Ordering::Release);
    word.wake_all();
}

impl Overflow {
    /// The limit and the policy for messages whose publisher neither waits nor gets an error: a receiver that must miss
    /// none gets more room (65,536 messages at least), and beyond that the newest are dropped.
    #[must_use]
    pub fn of_reports(self, capacity: usize) -> (usize, Self) {
        match self {
            Self::DropOldest | Self::DropNewest => (capacity, self),
            Self::Block | Self::Error => (capacity.max(MOST_KEPT), Self::DropNewest),
        }
    }
}

impl<M> Mailbox<M> {
    /// A mailbox for `capacity` messages, with the policy that [`Overflow::of_reports`] makes of this one.
    pub fn new(capacity: usize, overflow: Overflow, watcher: Option<Arc<Watcher>>) -> Self {
        static AT_FORK: Once = Once::new();
        AT_FORK.call_once(|| process::at_fork(before_fork, after_fork));
        let (capacity, overflow) = overflow.of_reports(capacity);
        let content = Content { backlog: Backlog::default(), sleeps: false, is_watched: false };
        Self { content: Mutex::new(content), word: Futex::new(0), capacity, overflow, watcher }
    }

    fn with<T>(&self, work: impl FnOnce(&mut Content<M>) -> T) -> T {
        let _gate = FORK_GATE.lock();
        work(&mut self.content.lock())
    }

    /// Puts a message in, and wakes its receivers.
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

    /// Takes the next message or report of a loss.
    pub fn take(&self) -> Taken<M> {
        self.with(|content| content.backlog.take())
    }

    /// Takes up to `most` messages that have no gap between them.
    ///
    /// # Errors
    ///
    /// The other result, if the next thing to receive is no message.
    pub fn take_many(&self, most: usize) -> Result<Vec<M>, Taken<M>> {
        self.with(|content| content.backlog.take_many(most))
    }

    /// Prepares a sleep: returns the number to sleep on, unless there is something to receive.
    pub fn prepare(&self) -> Option<u32> {
        self.with(|content| {
            if content.backlog.pending() > 0 || content.backlog.closed {
                return None;
            }
            content.sleeps = true;
            Some(self.word.load(Ordering::Acquire))
        })
    }

    /// Sleeps until a wake-up after the number was read.
    pub fn sleep(&self, number: u32, timeout: Option<Duration>) -> Wait {
        self.word.wait_while(number, timeout)
    }

    /// Wakes the sleeping receivers for a reason other than a message.
    pub fn wake(&self) {
        wake_all(&self.word);
    }

    /// Makes the next message wake the watcher; false if there is something to receive now.
    pub fn watch(&self) -> bool {
        self.with(|content| {
            let waits = content.backlog.pending() == 0;
            content.is_watched |= waits;
            waits
        })
    }

    /// Makes the next message wake the watcher, whatever there is to receive now: for receivers that the messages so
    /// far are not enough for. The caller checks afterwards what there is.
    pub fn watch_next(&self) {
        self.with(|content| content.is_watched = true);
    }

    /// Accepts no more messages; waiting ones can still be received.
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

    /// Counts of all messages so far.
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
        let number = watcher.number();
        mailbox.push(2);
        assert_eq!(watcher.number(), number, "nobody has asked for it");
        mailbox.watch_next();
        mailbox.push(2);
        assert_ne!(watcher.number(), number);
        let number = watcher.number();
        mailbox.push(2);
        assert_eq!(watcher.number(), number, "asked for once");
        assert_eq!(mailbox.take_many(3), Ok(vec![2; 3]));
        assert_eq!((mailbox.prepare(), mailbox.len(), mailbox.take()), (None, 1, Taken::Message(2)));
        mailbox.close();
        mailbox.push(3);
        assert_eq!((mailbox.prepare(), mailbox.take()), (None, Taken::Ended));
    }

    #[test]
    fn a_publisher_that_cannot_wait_drops_and_a_gap_reports_it() {
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
    #[expect(unsafe_code, reason = "it forks")]
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
