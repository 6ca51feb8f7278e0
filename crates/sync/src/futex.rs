//! A word that threads sleep on: the only place above `ropewalk-os` that calls futex(2).

#![allow(clippy::disallowed_methods, reason = "the one place that may call it")]

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::time::Duration;

#[cfg(not(loom))]
use ropewalk_os::futex as os;
pub use ropewalk_os::futex::Wait;

use crate::atomic::{AtomicU32, Ordering, fence};

mod sealed {
    pub trait Sealed {
        const SCOPE: ropewalk_os::futex::Scope;
    }
}

/// Which threads may sleep on a word: [`Private`] or [`Shared`].
pub trait Scope: sealed::Sealed {}

/// Threads of this process.
#[derive(Clone, Copy, Debug)]
pub struct Private;

/// Threads of every process that maps the word.
#[derive(Clone, Copy, Debug)]
pub struct Shared;

impl sealed::Sealed for Private {
    const SCOPE: ropewalk_os::futex::Scope = ropewalk_os::futex::Scope::Private;
}

impl sealed::Sealed for Shared {
    const SCOPE: ropewalk_os::futex::Scope = ropewalk_os::futex::Scope::Shared;
}

impl Scope for Private {}
impl Scope for Shared {}

/// An atomic word that threads can sleep on while it has a certain value. It has the size of its word, so it can be
/// mapped onto shared memory.
///
/// The user defines what the values mean. A thread that changes the word wakes the waiting threads; a woken thread
/// checks the word again, whatever has woken it.
#[repr(transparent)]
#[cfg(not(loom))]
pub struct Futex<S = Private> {
    word: AtomicU32,
    scope: PhantomData<S>,
}

#[cfg(not(loom))]
impl<S: Scope> Futex<S> {
    /// A word with this value.
    pub const fn new(value: u32) -> Self {
        Self { word: AtomicU32::new(value), scope: PhantomData }
    }

    /// Sleeps while the word has this value; may return early.
    #[inline]
    pub fn wait_while(&self, value: u32, timeout: Option<Duration>) -> Wait {
        os::wait(&self.word, value, timeout, S::SCOPE)
    }

    /// Wakes one thread that sleeps here, if there is one.
    #[cold]
    pub fn wake_one(&self) {
        os::wake(&self.word, 1, S::SCOPE);
    }

    /// Wakes all threads that sleep here.
    #[cold]
    pub fn wake_all(&self) {
        os::wake(&self.word, u32::MAX >> 1, S::SCOPE);
    }
}

/// The model of a futex: the kernel compares and goes to sleep under a lock that a wake-up takes, too. A thread that
/// sleeps for ever is a deadlock, which loom reports.
#[cfg(loom)]
pub struct Futex<S = Private> {
    word: AtomicU32,
    kernel: loom::sync::Mutex<()>,
    sleepers: loom::sync::Condvar,
    scope: PhantomData<S>,
}

#[cfg(loom)]
#[cfg_attr(mutants, mutants::skip)]
impl<S: Scope> Futex<S> {
    /// A word with this value.
    pub fn new(value: u32) -> Self {
        Self {
            word: AtomicU32::new(value),
            kernel: loom::sync::Mutex::new(()),
            sleepers: loom::sync::Condvar::new(),
            scope: PhantomData,
        }
    }

    /// Sleeps while the word has this value. The model ignores the timeout, which would hide a lost wake-up.
    pub fn wait_while(&self, value: u32, _timeout: Option<Duration>) -> Wait {
        let kernel = self.kernel.lock().expect("no panic under it");
        if self.word.load(Ordering::Relaxed) != value {
            return Wait::Changed;
        }
        drop(self.sleepers.wait(kernel));
        Wait::Woken
    }

    /// Wakes one thread that sleeps here, if there is one.
    pub fn wake_one(&self) {
        let _kernel = self.kernel.lock().expect("no panic under it");
        self.sleepers.notify_one();
    }

    /// Wakes all threads that sleep here.
    pub fn wake_all(&self) {
        let _kernel = self.kernel.lock().expect("no panic under it");
        self.sleepers.notify_all();
    }
}

impl<S> Deref for Futex<S> {
    type Target = AtomicU32;

    #[inline]
    fn deref(&self) -> &AtomicU32 {
        &self.word
    }
}

impl<S> fmt::Debug for Futex<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Futex").field(&self.word).finish()
    }
}

/// One thread's announcement that it sleeps: 1 while the thread sleeps or is about to, else 0.
///
/// The thread announces its sleep and then checks for what it waits for; a waker provides that and then reads the flag.
/// A SeqCst fence stands between the two steps on both sides, so at least one of them sees the other. In shared memory
/// a hostile peer can write any value and so cause a wake-up too many or too few; threads that sleep there use
/// timeouts.
#[repr(transparent)]
#[derive(Debug)]
pub struct SleepFlag<S = Private>(Futex<S>);

impl<S: Scope> SleepFlag<S> {
    /// The flag of a thread that is awake.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self(Futex::new(0))
    }

    /// The flag of a thread that is awake.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self(Futex::new(0))
    }

    /// Announces a sleep, and sleeps until woken unless `ready` holds by then; may return early.
    pub fn sleep_unless(&self, ready: impl FnOnce() -> bool, timeout: Option<Duration>) {
        // This swap comes after a waker's last swap in the word's modification order. A plain store would do as well,
        // but loom does not know that nothing comes between a swap and the store that the swap read.
        self.0.swap(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !ready() {
            let _ = self.0.wait_while(1, timeout);
        }
        self.lower();
    }

    /// Clears the flag: its thread is awake, or has ended.
    pub fn lower(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Whether the thread sleeps or is about to. The caller has issued a SeqCst fence, as for
    /// [`wake_if_asleep`](Self::wake_if_asleep).
    #[inline]
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Wakes the thread if the flag says that it sleeps; costs one load if not. The caller has issued a SeqCst fence
    /// since it provided what the thread waits for.
    #[inline]
    pub fn wake_if_asleep(&self) -> bool {
        if self.0.load(Ordering::Relaxed) == 0 || self.0.swap(0, Ordering::AcqRel) == 0 {
            return false;
        }
        self.0.wake_one();
        true
    }
}

impl<S: Scope> Default for SleepFlag<S> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_slept_on_while_it_has_the_value() {
        let word: Futex = Futex::new(1);
        assert_eq!(word.wait_while(0, None), Wait::Changed);
        assert_eq!(word.wait_while(1, Some(Duration::from_millis(1))), Wait::TimedOut);
        assert_eq!(size_of::<Futex<Shared>>(), 4, "it is laid over shared memory");
    }

    #[test]
    fn one_wake_up_ends_one_sleep_and_another_ends_all() {
        let word: Futex = Futex::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while word.load(Ordering::Acquire) == 0 {
                        let _ = word.wait_while(0, None);
                    }
                });
            }
            word.wake_one();
            word.store(1, Ordering::Release);
            word.wake_all();
        });
    }

    #[test]
    fn only_an_announced_sleeper_is_woken_and_once() {
        let flag: SleepFlag = SleepFlag::new();
        assert!(!flag.wake_if_asleep());
        let woken_before_it_sleeps = || {
            assert!(flag.wake_if_asleep() && !flag.wake_if_asleep());
            false
        };
        flag.sleep_unless(woken_before_it_sleeps, None);
        flag.sleep_unless(|| true, None);
        flag.sleep_unless(|| false, Some(Duration::from_millis(1)));
        assert!(!flag.wake_if_asleep(), "it is awake");
    }
}
