//! Who sleeps on a socket, who watches it from outside, and whether there are letters for it: one word, on which every
//! step is one read-modify-write, so that of any two steps one sees the other. The `README.md` has the protocol; the
//! tests below try it on every schedule that loom finds.

#[cfg(all(test, loom))]
mod loom_tests;

use ropewalk_sync::Mutex;
use ropewalk_sync::atomic::{AtomicU64, Ordering};

use crate::events::Events;

/// There may be letters. Set by who posts, after the letter is in; cleared before the letters are taken.
const MAIL: u64 = 1;
/// There is a bell outside, for who watches. Never cleared.
const WATCHED: u64 = 1 << 1;
/// The bell outside can be heard, or somebody is about to ring it: others need not. Set by who rings, cleared by who
/// looks.
const RUNG: u64 = 1 << 2;
/// It was rung: whoever looks may silence it. Without this bit, a bell could be rung right after it was silenced for
/// nothing, and nobody would silence it again.
const AUDIBLE: u64 = 1 << 3;
/// The background comes for what was put in and not written. Changed under the socket's lock only.
const GATHERING: u64 = 1 << 4;
/// Counts threads that sleep on the set, or are about to; beside them, how many of them want to receive and to send.
const SLEEPER: u64 = 1 << 16;
const READER: u64 = 1 << 32;
const WRITER: u64 = 1 << 48;
/// Of one count. A system has fewer threads.
const COUNT: u64 = 0xffff;

/// Whom a change is to be told, by a bell each.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bells {
    /// The one in the set: somebody sleeps.
    pub(crate) inner: bool,
    /// The one outside. [`Sleep::was_rung`] is to be called behind the ring.
    pub(crate) outer: bool,
}

/// What who wanted to sleep does now.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doze {
    /// Sleeps. Whoever changes something rings.
    Sleep,
    /// There are letters: it rises, and reads them.
    Mail,
}

/// What who looks does with the bell outside, before the look.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// Nothing.
    Nothing,
    /// It drains the bell, calls [`Sleep::hush`], and only then looks.
    Bell,
}

/// Whether the background must be told that something was left.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gather {
    /// It must.
    Begins,
    /// It comes anyway.
    GoesOn,
}

/// See the module. The orderings are acquire and release for the letters' and the lock's sake alone; what decides is
/// the order of the changes of the one word.
pub(crate) struct Sleep<T> {
    word: AtomicU64,
    letters: Mutex<Vec<T>>,
}

fn weight(wish: Events) -> u64 {
    SLEEPER
        + if wish.has(Events::READ) { READER } else { 0 }
        + if wish.has(Events::WRITE) { WRITER } else { 0 }
}

fn count(word: u64, unit: u64) -> u64 {
    (word / unit) & COUNT
}

fn bells(before: u64) -> Bells {
    Bells { inner: count(before, SLEEPER) > 0, outer: before & (WATCHED | RUNG) == WATCHED }
}

impl<T> Sleep<T> {
    pub(crate) fn new() -> Self {
        Self { word: AtomicU64::new(0), letters: Mutex::new(Vec::new()) }
    }

    // --- letters -------------------------------------------------------------------------------------------

    /// Puts a letter in. Anybody may.
    pub(crate) fn post(&self, letter: T) -> Bells {
        self.letters.lock().push(letter);
        bells(self.word.fetch_or(MAIL | RUNG, Ordering::AcqRel))
    }

    #[inline]
    pub(crate) fn has_mail(&self) -> bool {
        self.word.load(Ordering::Acquire) & MAIL != 0
    }

    /// Takes the letters. Who has the lock does. `letters` is empty before, and its room is kept for later ones.
    pub(crate) fn take(&self, letters: &mut Vec<T>) {
        self.word.fetch_and(!MAIL, Ordering::AcqRel);
        std::mem::swap(&mut *self.letters.lock(), letters);
    }

    // --- sleepers ------------------------------------------------------------------------------------------

    /// Counts a sleeper. Under the lock, behind a look that found nothing; or without it, if the look comes behind
    /// this.
    pub(crate) fn doze(&self, wish: Events) -> Doze {
        let before = self.word.fetch_add(weight(wish), Ordering::AcqRel);
        if before & MAIL == 0 { Doze::Sleep } else { Doze::Mail }
    }

    /// The sleeper is awake, and looks again.
    pub(crate) fn rise(&self, wish: Events) {
        self.word.fetch_sub(weight(wish), Ordering::AcqRel);
    }

    #[inline]
    pub(crate) fn has_sleepers(&self) -> bool {
        count(self.word.load(Ordering::Acquire), SLEEPER) > 0
    }

    /// What those who sleep want, all together; `None` if nobody sleeps.
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

    // --- who watches from outside --------------------------------------------------------------------------

    /// Whoever sleeps or watches is to look again.
    pub(crate) fn call(&self) -> Bells {
        bells(self.word.fetch_or(RUNG, Ordering::AcqRel))
    }

    /// The bell outside was rung.
    pub(crate) fn was_rung(&self) {
        self.word.fetch_or(AUDIBLE, Ordering::AcqRel);
    }

    /// There is a bell outside from now on, which was rung.
    pub(crate) fn watch(&self) {
        self.word.fetch_or(WATCHED | RUNG | AUDIBLE, Ordering::AcqRel);
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.word.load(Ordering::Acquire) & WATCHED != 0
    }

    /// Asked before a look.
    #[inline]
    pub(crate) fn heard(&self) -> Heard {
        // Rung and not audible yet: it will be, and wakes who watches once more.
        if self.word.load(Ordering::Acquire) & AUDIBLE == 0 { Heard::Nothing } else { Heard::Bell }
    }

    /// The bell was drained: the next change rings again.
    pub(crate) fn hush(&self) {
        self.word.fetch_and(!(RUNG | AUDIBLE), Ordering::AcqRel);
    }

    // --- what was left to be written -----------------------------------------------------------------------

    /// Something was put in and not written. Under the lock.
    #[inline]
    pub(crate) fn gather(&self) -> Gather {
        if self.word.load(Ordering::Relaxed) & GATHERING != 0 {
            return Gather::GoesOn;
        }
        self.word.fetch_or(GATHERING, Ordering::AcqRel);
        Gather::Begins
    }

    /// The background comes no more, unless it is told. Under the lock, when nothing is left.
    pub(crate) fn calm(&self) {
        self.word.fetch_and(!GATHERING, Ordering::AcqRel);
    }
}
