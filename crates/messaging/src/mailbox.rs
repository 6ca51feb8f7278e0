//! A socket's mailbox. One word records whether there is mail, which threads sleep, whether there are watchers, and
//! whether the background must come. Every step on the word is one read-modify-write, so of any two steps one sees the
//! other. The `README.md` has the protocol; the tests below run it on every schedule that loom finds.

#[cfg(all(test, loom))]
mod loom_tests;

use ropewalk_sync::Mutex;
use ropewalk_sync::atomic::{AtomicU64, Ordering};

use crate::events::Events;

/// There may be mail. A poster sets it after its mail is in; a taker clears it before it takes.
const MAIL: u64 = 1;
/// There are watchers, which have a wake-up of their own. Never cleared.
const WATCHED: u64 = 1 << 1;
/// The watchers' wake-up is signalled, or a thread is about to signal it, so others need not. A thread that makes a
/// change sets it; a thread that checks the socket clears it.
const WAKING: u64 = 1 << 2;
/// The signal was written: a thread that checks the socket may drain it. Without this bit, a wake-up could be signalled
/// right after it was drained too early, and no thread would drain it again.
const SIGNALLED: u64 = 1 << 3;
/// The background will come for queued bytes that were not written. Changed under the socket's lock only.
const GATHERING: u64 = 1 << 4;
/// A thread has checked the socket between the signal and `SIGNALLED`, and has not drained the wake-up: a watcher that
/// is woken by changes of the descriptor only (`EPOLLET`) has had its one, and needs another.
const PASSED_BY: u64 = 1 << 5;
/// Counts threads that sleep on the set, or are about to; beside them, how many of them want to receive and to send.
const SLEEPER: u64 = 1 << 16;
const READER: u64 = 1 << 32;
const WRITER: u64 = 1 << 48;
/// The mask of one count. A system has fewer threads.
const COUNT: u64 = 0xffff;

/// The threads that a change wakes.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ToWake {
    /// One thread that sleeps on the set.
    pub(crate) sleepers: bool,
    /// The watchers. Call [`Mailbox::was_signalled`] after the signal.
    pub(crate) watchers: bool,
}

/// What a thread that is about to sleep must do.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doze {
    /// Sleep: a later change wakes it.
    Sleep,
    /// There is mail: it must not sleep, but take the mail.
    Mail,
}

/// What a thread must do after it has signalled the watchers' wake-up.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterSignal {
    /// Nothing.
    Nothing,
    /// Signal once more, and call [`Mailbox::was_signalled`] again.
    Again,
}

/// What a thread must do with the watchers' wake-up before it checks the socket.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BeforeCheck {
    /// Nothing.
    Nothing,
    /// Drain the wake-up, call [`Mailbox::hush`], and only then check.
    Drain,
}

/// Whether the background must be notified of unwritten bytes.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gather {
    /// It must be notified.
    Begins,
    /// It will come anyway.
    GoesOn,
}

/// See the module. The orderings are acquire and release for the mail's and the lock's sake alone; the protocol relies
/// on the order of the changes of the one word.
pub(crate) struct Mailbox<T> {
    word: AtomicU64,
    mail: Mutex<Vec<T>>,
}

fn weight(wish: Events) -> u64 {
    SLEEPER
        + if wish.has(Events::READ) { READER } else { 0 }
        + if wish.has(Events::WRITE) { WRITER } else { 0 }
}

fn count(word: u64, unit: u64) -> u64 {
    (word / unit) & COUNT
}

fn to_wake(before: u64) -> ToWake {
    ToWake { sleepers: count(before, SLEEPER) > 0, watchers: before & (WATCHED | WAKING) == WATCHED }
}

impl<T> Mailbox<T> {
    pub(crate) fn new() -> Self {
        Self { word: AtomicU64::new(0), mail: Mutex::new(Vec::new()) }
    }

    // --- mail ----------------------------------------------------------------------------------------------

    /// Puts mail in. Any thread may call this.
    pub(crate) fn post(&self, mail: T) -> ToWake {
        self.mail.lock().push(mail);
        to_wake(self.word.fetch_or(MAIL | WAKING, Ordering::AcqRel))
    }

    /// Whether mail now would wake a thread. Another may come first, so this is a hint.
    pub(crate) fn would_wake(&self) -> bool {
        let ToWake { sleepers, watchers } = to_wake(self.word.load(Ordering::Relaxed));
        sleepers || watchers
    }

    #[inline]
    pub(crate) fn has_mail(&self) -> bool {
        self.word.load(Ordering::Acquire) & MAIL != 0
    }

    /// Takes the mail, under the socket's lock. `mail` is empty before, and its room is kept for later.
    pub(crate) fn take(&self, mail: &mut Vec<T>) {
        self.word.fetch_and(!MAIL, Ordering::AcqRel);
        std::mem::swap(&mut *self.mail.lock(), mail);
    }

    // --- sleepers ------------------------------------------------------------------------------------------

    /// Counts a sleeping thread. Call it under the lock, after a check that found nothing; or without the lock, if the
    /// check comes afterwards.
    pub(crate) fn doze(&self, wish: Events) -> Doze {
        let before = self.word.fetch_add(weight(wish), Ordering::AcqRel);
        if before & MAIL == 0 { Doze::Sleep } else { Doze::Mail }
    }

    /// The thread is awake, and checks again.
    pub(crate) fn rise(&self, wish: Events) {
        self.word.fetch_sub(weight(wish), Ordering::AcqRel);
    }

    #[inline]
    pub(crate) fn has_sleepers(&self) -> bool {
        count(self.word.load(Ordering::Acquire), SLEEPER) > 0
    }

    /// The union of what the sleeping threads want; `None` if no thread sleeps.
    #[inline]
    pub(crate) fn wishes(&self) -> Option<Events> {
        let word = self.word.load(Ordering::Acquire);
        if count(word, SLEEPER) == 0 {
            return None;
        }
        let mut wishes = Events::NONE;
        if count(word, READER) > 0 {
            wishes = wishes | Events::READ;
        }
        if count(word, WRITER) > 0 {
            wishes = wishes | Events::WRITE;
        }
        Some(wishes)
    }

    // --- watchers --------------------------------------------------------------------------------------

    /// Makes every sleeping thread and watcher check again.
    pub(crate) fn call(&self) -> ToWake {
        to_wake(self.word.fetch_or(WAKING, Ordering::AcqRel))
    }

    /// The watchers' wake-up was signalled. A further signal must come before `SIGNALLED` is set: after that a thread
    /// may have drained the wake-up, which would stay readable.
    pub(crate) fn was_signalled(&self) -> AfterSignal {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            if word & PASSED_BY != 0 {
                self.word.fetch_and(!PASSED_BY, Ordering::AcqRel);
                return AfterSignal::Again;
            }
            match self.word.compare_exchange_weak(word, word | SIGNALLED, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return AfterSignal::Nothing,
                Err(now) => word = now,
            }
        }
    }

    /// Records that there are watchers from now on, whose wake-up was signalled.
    pub(crate) fn watch(&self) {
        self.word.fetch_or(WATCHED | WAKING | SIGNALLED, Ordering::AcqRel);
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.word.load(Ordering::Acquire) & WATCHED != 0
    }

    /// Called before a check of the socket.
    #[inline]
    pub(crate) fn before_check(&self) -> BeforeCheck {
        let mut word = self.word.load(Ordering::Acquire);
        if word & (WATCHED | WAKING | SIGNALLED) == WATCHED | WAKING {
            // Announced, and perhaps not signalled yet: the signal will come, and wakes the watchers once more.
            word = self.word.fetch_or(PASSED_BY, Ordering::AcqRel);
        }
        if word & SIGNALLED == 0 { BeforeCheck::Nothing } else { BeforeCheck::Drain }
    }

    /// The wake-up was drained: the next change signals again.
    pub(crate) fn hush(&self) {
        self.word.fetch_and(!(WAKING | SIGNALLED | PASSED_BY), Ordering::AcqRel);
    }

    // --- what was left to be written -----------------------------------------------------------------------

    /// Records unwritten bytes. Called under the lock.
    #[inline]
    pub(crate) fn gather(&self) -> Gather {
        if self.word.load(Ordering::Relaxed) & GATHERING != 0 {
            return Gather::GoesOn;
        }
        self.word.fetch_or(GATHERING, Ordering::AcqRel);
        Gather::Begins
    }

    /// The background comes no more, unless it is notified. Called under the lock, when no bytes are left.
    pub(crate) fn calm(&self) {
        self.word.fetch_and(!GATHERING, Ordering::AcqRel);
    }
}
