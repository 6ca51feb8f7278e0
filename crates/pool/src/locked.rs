//! The engine's lock, the values that must not be dropped under it, and the workers that are not woken under it.
//!
//! The values that the layer above puts into tasks run arbitrary code when they are dropped: a finalizer may come back
//! to the engine, or wait for a thread that does. So no [`Opaque`] is ever dropped by a thread that holds a lock of the
//! engine: its content goes to a bin of the thread, and the guard empties the bin after it has released the lock. No
//! caller must remember this: it is in the two types' own `Drop`.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use ropewalk_shm::channel::ring::RingMemory;
use ropewalk_sync::{Condvar, Mutex, MutexGuard};

type Content = Box<dyn Any + Send + Sync>;

thread_local! {
    /// Locks of engines that this thread holds.
    static HELD: Cell<usize> = const { Cell::new(0) };
    /// The values that were dropped meanwhile.
    static BIN: RefCell<Vec<Content>> = const { RefCell::new(Vec::new()) };
    /// The rings whose consumers are to be woken then.
    static BELLS: RefCell<Vec<RingMemory>> = const { RefCell::new(Vec::new()) };
}

/// Wakes the consumer of a ring once this thread has released the engine's lock: a thread that is woken may take the
/// core at once from the one that wakes it, and whoever wants the lock would wait for that one to come back.
pub(crate) fn wake_later(ring: RingMemory) {
    BELLS.with_borrow_mut(|bells| bells.push(ring));
}

fn wake_now() {
    for ring in BELLS.take() {
        ring.wake_consumer();
    }
}

/// Something only the layer above understands: a Python call for a thread worker, or its result.
///
/// Dropped while the thread holds an engine's lock, it is kept until the lock is released.
pub struct Opaque(Option<Content>);

impl Opaque {
    /// Wraps a value.
    pub fn new(value: impl Any + Send + Sync) -> Self {
        Self(Some(Box::new(value)))
    }

    /// Takes the value out of its place, which holds none from then on.
    pub(crate) fn take(&mut self) -> Self {
        Self(self.0.take())
    }

    /// The value, if it is of this type.
    pub fn downcast_ref<T: Any>(&self) -> Option<&T> {
        self.0.as_ref()?.downcast_ref()
    }
}

impl fmt::Debug for Opaque {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opaque").finish_non_exhaustive()
    }
}

impl Drop for Opaque {
    fn drop(&mut self) {
        let Some(content) = self.0.take() else { return };
        // A thread that is ending has no bin any more, and holds no lock either.
        let held = HELD.try_with(Cell::get).unwrap_or(0) > 0;
        if held {
            BIN.with_borrow_mut(|bin| bin.push(content));
        }
    }
}

/// A mutex under which nothing opaque is dropped.
#[derive(Debug, Default)]
pub(crate) struct Locked<T>(Mutex<T>);

impl<T> Locked<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> Guard<'_, T> {
        Guard::new(self.0.lock())
    }

    /// The guard, unless another thread has it.
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        self.0.try_lock().map(Guard::new)
    }
}

/// A lock that is held; see the module.
#[derive(Debug)]
pub(crate) struct Guard<'a, T> {
    /// Released first, as it stands first: what is dropped then may take the lock itself.
    inner: MutexGuard<'a, T>,
    counted: Counted,
}

/// One of the locks that this thread holds. The last one to be released empties the bin.
#[derive(Debug)]
struct Counted;

impl Counted {
    fn new() -> Self {
        HELD.set(HELD.get() + 1);
        Self
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let left = HELD.get() - 1;
        HELD.set(left);
        if left > 0 {
            return;
        }
        wake_now();
        loop {
            // Taken out first: a finalizer may take the lock itself, and fill the bin anew.
            let bin = BIN.take();
            if bin.is_empty() {
                return;
            }
            drop(bin);
        }
    }
}

impl<'a, T> Guard<'a, T> {
    fn new(inner: MutexGuard<'a, T>) -> Self {
        Self { inner, counted: Counted::new() }
    }

    /// Releases the lock until the condition is signalled or the time is up, and takes it again; the flag says that the
    /// time was up. May return early.
    pub(crate) fn wait(self, mutex: &'a Locked<T>, condition: &Condvar, timeout: Duration) -> (Self, bool) {
        if BIN.with_borrow(|bin| !bin.is_empty()) {
            // What is in the bin must not wait as long as this thread does: the caller looks again.
            drop(self);
            return (mutex.lock(), false);
        }
        let Self { inner, counted } = self;
        // The bin is empty, and nothing is dropped before the lock is released.
        drop(counted);
        let (inner, is_late) = condition.wait_timeout(inner, timeout);
        (Self::new(inner), is_late)
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::control::Control;
    use crate::lane::Lane;
    use crate::worker::WorkerEnd;

    /// Notes how many locks its thread held when it was dropped, and takes the lock itself.
    struct Finalizer {
        lock: Arc<Locked<Vec<Opaque>>>,
        dropped: Arc<AtomicUsize>,
    }

    impl Drop for Finalizer {
        fn drop(&mut self) {
            assert_eq!(HELD.get(), 0);
            drop(self.lock.lock());
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn what_is_dropped_under_a_lock_goes_after_it() {
        let lock = Arc::new(Locked::new(Vec::new()));
        let dropped = Arc::new(AtomicUsize::new(0));
        let make = || Opaque::new(Finalizer { lock: Arc::clone(&lock), dropped: Arc::clone(&dropped) });
        let mut guard = lock.lock();
        guard.extend([make(), make()]);
        guard.clear();
        let other = Locked::new(());
        drop(other.lock());
        assert_eq!(dropped.load(Ordering::Relaxed), 0);
        drop(guard);
        assert_eq!(dropped.load(Ordering::Relaxed), 2);
        drop(make());
        assert_eq!(dropped.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn a_sleeper_is_woken_once_the_lock_is_free() {
        let (control, page) = Control::create(1).expect("a page");
        let event = control.event_fd().try_clone_to_owned().expect("a descriptor");
        let control = Control::attach(page, event).expect("a page");
        let (lane, fd) = Lane::create(0).expect("a lane");
        let mut end = WorkerEnd::attach(fd, control).expect("a lane");
        let sleeper = std::thread::spawn(move || end.wait(Some(Duration::from_secs(60))));
        let lock = Locked::new(());
        let guard = lock.lock();
        let asleep = loop {
            match lane.tasks.sleeper() {
                Some(asleep) => break asleep,
                None => std::thread::yield_now(),
            }
        };
        wake_later(asleep);
        assert!(lane.tasks.sleeper().is_some(), "it sleeps on");
        drop(guard);
        assert!(lane.tasks.sleeper().is_none(), "it has been woken");
        sleeper.join().expect("no panic");
    }

    #[test]
    fn a_thread_that_waits_empties_its_bin_first() {
        let lock = Arc::new(Locked::new(Vec::new()));
        let dropped = Arc::new(AtomicUsize::new(0));
        let condition = Condvar::new();
        let mut guard = lock.lock();
        guard.push(Opaque::new(Finalizer { lock: Arc::clone(&lock), dropped: Arc::clone(&dropped) }));
        guard.clear();
        let (guard, late) = guard.wait(&lock, &condition, Duration::from_secs(60));
        assert!(!late && dropped.load(Ordering::Relaxed) == 1);
        let (guard, late) = guard.wait(&lock, &condition, Duration::from_millis(1));
        assert!(late && guard.is_empty());
        assert!(lock.try_lock().is_none());
    }
}
