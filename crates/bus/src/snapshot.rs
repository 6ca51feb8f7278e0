//! A value that is read often and replaced as a whole: read-copy-update.

#![expect(unsafe_code, reason = "argued in README.md")]

use std::fmt;
use std::ptr;

use ropewalk_sync::atomic::{AtomicBool, AtomicPtr, Ordering, fence};
use ropewalk_sync::{Mutex, barrier};

use crate::hazard::{Domain, Protected, Reader, TooDeep};

/// Readers never wait, and never write to memory that another thread reads or writes. Writers take turns.
pub(crate) struct Snapshot<T> {
    /// From `Box::into_raw`. Written by writers under the lock (release), read by readers.
    current: AtomicPtr<T>,
    /// Earlier values that may still be read.
    retired: Mutex<Vec<*mut T>>,
    /// A reader of a retired value has ended, and no thread has looked through `retired` since. Such readers set it;
    /// the thread that holds the lock and is about to look clears it. All writes are swaps, so that a clear comes after
    /// (release, acquire) all sets that it clears.
    asked: AtomicBool,
}

// SAFETY: the snapshot owns the values behind its pointers; any thread may get a shared reference to a value, and any
// thread may drop it.
unsafe impl<T: Send + Sync> Send for Snapshot<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Snapshot<T> {}

impl<T> fmt::Debug for Snapshot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").finish_non_exhaustive()
    }
}

/// A reader's hold on one value.
pub(crate) struct Reading<'a, T> {
    snapshot: &'a Snapshot<T>,
    protected: Protected<'a, T>,
}

impl<T> Snapshot<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            current: AtomicPtr::new(Box::into_raw(Box::new(value))),
            retired: Mutex::new(Vec::new()),
            asked: AtomicBool::new(false),
        }
    }

    /// The current value, which does not change while the reader holds it.
    #[inline]
    pub(crate) fn read<'a>(&'a self, reader: &'a Reader) -> Result<Reading<'a, T>, TooDeep> {
        Ok(Reading { snapshot: self, protected: reader.protect(&self.current)? })
    }

    /// Replaces the current value. Returns the values that no thread reads any more; the caller drops them where their
    /// destructors can do no harm.
    #[must_use]
    pub(crate) fn replace(&self, domain: &Domain, value: T) -> Vec<Box<T>> {
        let fresh = Box::into_raw(Box::new(value));
        let mut retired = self.retired.lock();
        let old = self.current.swap(fresh, Ordering::AcqRel);
        retired.push(old);
        let mut free = Self::sort(domain, &mut retired);
        drop(retired);
        self.look_again(domain, &mut free);
        free
    }

    /// Frees the values that the caller, a reader that has ended, kept from being freed.
    #[cold]
    fn tidy(&self, domain: &Domain) {
        self.asked.swap(true, Ordering::Release);
        let mut free = Vec::new();
        self.look_again(domain, &mut free);
    }

    /// Looks through the retired values for as long as readers ask for it. Does not wait for a thread that holds the
    /// lock: that thread comes here when it has released it.
    fn look_again(&self, domain: &Domain, free: &mut Vec<Box<T>>) {
        loop {
            // One thread sets `asked` and finds the lock taken; another releases the lock and checks `asked`. The
            // fences make at least one of them see the other.
            fence(Ordering::SeqCst);
            if !self.asked.load(Ordering::Relaxed) {
                return;
            }
            let Some(mut retired) = self.retired.try_lock() else { return };
            self.asked.swap(false, Ordering::Acquire);
            free.append(&mut Self::sort(domain, &mut retired));
        }
    }

    /// Takes out the values that no thread reads any more.
    fn sort(domain: &Domain, retired: &mut Vec<*mut T>) -> Vec<Box<T>> {
        if !barrier::heavy() {
            return Vec::new();
        }
        domain.unread(retired).into_iter().map(Self::own).collect()
    }

    fn own(pointer: *mut T) -> Box<T> {
        // SAFETY: from Box::into_raw in `new` or `replace`. It was replaced and removed from `retired`, both under the
        // lock or by the only owner, so no other thread frees it, and none reads it.
        unsafe { Box::from_raw(pointer) }
    }
}

impl<T> Drop for Snapshot<T> {
    fn drop(&mut self) {
        let mut all = std::mem::take(&mut *self.retired.lock());
        all.push(self.current.swap(ptr::null_mut(), Ordering::AcqRel));
        // A reader borrows the snapshot, so no thread reads it now.
        drop(all.into_iter().map(Self::own).collect::<Vec<_>>());
    }
}

impl<T> Reading<'_, T> {
    /// The value.
    #[inline]
    pub(crate) fn value(&self) -> &T {
        // SAFETY: the pointer is never null while the snapshot lives, and the value is not freed while `self` protects
        // it.
        unsafe { &*self.protected.pointer() }
    }

    /// Whether it is still the current one.
    #[inline]
    pub(crate) fn is_current(&self) -> bool {
        self.snapshot.current.load(Ordering::Relaxed) == self.protected.pointer()
    }

    /// Ends the reading; frees the values that a writer could not free because of it.
    #[inline]
    pub(crate) fn finish<'d>(self, domain: impl FnOnce() -> &'d Domain) {
        let Self { snapshot, protected } = self;
        if protected.finish(&snapshot.current) {
            snapshot.tidy(domain());
        }
    }
}

/// On every schedule that loom finds, no thread reads a freed value, each value is freed once, and nothing stays
/// retired when the last reader has ended.
#[cfg(test)]
#[cfg(loom)]
mod tests {
    use ropewalk_sync::Arc;
    use ropewalk_sync::atomic::AtomicUsize;
    use ropewalk_sync::loom::{self, thread};

    use super::*;

    /// Counts the values that are alive; reading one that was dropped is an access that loom reports.
    struct Value {
        number: usize,
        alive: Arc<AtomicUsize>,
        cell: loom::cell::UnsafeCell<usize>,
    }

    impl Value {
        fn new(number: usize, alive: &Arc<AtomicUsize>) -> Self {
            alive.fetch_add(1, Ordering::Relaxed);
            Self { number, alive: Arc::clone(alive), cell: loom::cell::UnsafeCell::new(number) }
        }

        fn check(&self) -> usize {
            // SAFETY: loom checks that no write comes beside this.
            self.cell.with(|cell| assert_eq!(unsafe { *cell }, self.number));
            self.number
        }
    }

    impl Drop for Value {
        fn drop(&mut self) {
            // SAFETY: as above: a reader that has not ended is a race with this write.
            self.cell.with_mut(|cell| unsafe { *cell = usize::MAX });
            self.alive.fetch_sub(1, Ordering::Relaxed);
        }
    }

    struct Model {
        domain: Domain,
        snapshot: Snapshot<Value>,
    }

    fn model(alive: &Arc<AtomicUsize>) -> Arc<Model> {
        Arc::new(Model { domain: Domain::default(), snapshot: Snapshot::new(Value::new(0, alive)) })
    }

    fn read(model: &Model, reader: &Reader) -> usize {
        let reading = model.snapshot.read(reader).expect("not deep");
        let number = reading.value().check();
        reading.finish(|| &model.domain);
        number
    }

    #[test]
    fn a_reader_and_a_writer() {
        loom::model(|| {
            let alive = Arc::new(AtomicUsize::new(0));
            let model = model(&alive);
            let reader = {
                let model = Arc::clone(&model);
                thread::spawn(move || {
                    let reader = model.domain.join();
                    let first = read(&model, &reader);
                    assert!(first <= read(&model, &reader));
                })
            };
            drop(model.snapshot.replace(&model.domain, Value::new(1, &alive)));
            reader.join().expect("no panic");
            assert_eq!(alive.load(Ordering::Relaxed), 1, "one of the two has freed it");
            assert_eq!(read(&model, &model.domain.join()), 1);
            drop(model);
            assert_eq!(alive.load(Ordering::Relaxed), 0);
        });
    }

    #[test]
    fn two_writers_and_a_reader() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let alive = Arc::new(AtomicUsize::new(0));
            let model = model(&alive);
            let other = {
                let (model, alive) = (Arc::clone(&model), Arc::clone(&alive));
                thread::spawn(move || drop(model.snapshot.replace(&model.domain, Value::new(1, &alive))))
            };
            let reader = {
                let model = Arc::clone(&model);
                thread::spawn(move || {
                    read(&model, &model.domain.join());
                })
            };
            drop(model.snapshot.replace(&model.domain, Value::new(2, &alive)));
            other.join().expect("no panic");
            reader.join().expect("no panic");
            assert_eq!(alive.load(Ordering::Relaxed), 1, "the last reader has freed it");
            drop(model);
            assert_eq!(alive.load(Ordering::Relaxed), 0);
        });
    }

    #[test]
    fn two_readers_and_a_writer() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let alive = Arc::new(AtomicUsize::new(0));
            let model = model(&alive);
            let readers = [(); 2].map(|()| {
                let (model, reader) = (Arc::clone(&model), model.domain.join());
                thread::spawn(move || read(&model, &reader))
            });
            drop(model.snapshot.replace(&model.domain, Value::new(1, &alive)));
            for reader in readers {
                reader.join().expect("no panic");
            }
            assert_eq!(alive.load(Ordering::Relaxed), 1, "the last reader has freed it");
        });
    }

    #[test]
    fn what_a_reader_kept_it_frees() {
        loom::model(|| {
            let alive = Arc::new(AtomicUsize::new(0));
            let model = model(&alive);
            let reader = model.domain.join();
            let reading = model.snapshot.read(&reader).expect("not deep");
            let writer = {
                let (model, alive) = (Arc::clone(&model), Arc::clone(&alive));
                thread::spawn(move || drop(model.snapshot.replace(&model.domain, Value::new(1, &alive))))
            };
            reading.value().check();
            writer.join().expect("no panic");
            assert!(!reading.is_current());
            assert_eq!(alive.load(Ordering::Relaxed), 2);
            reading.finish(|| &model.domain);
            assert_eq!(alive.load(Ordering::Relaxed), 1);
        });
    }

    #[test]
    fn places_are_handed_on() {
        loom::model(|| {
            let alive = Arc::new(AtomicUsize::new(0));
            let model = model(&alive);
            let indices = Arc::new(AtomicUsize::new(0));
            let threads = [(); 2].map(|()| {
                let (model, indices) = (Arc::clone(&model), Arc::clone(&indices));
                thread::spawn(move || {
                    let reader = model.domain.join();
                    indices.fetch_or(1 << reader.index(), Ordering::Relaxed);
                    read(&model, &reader);
                })
            });
            for thread in threads {
                thread.join().expect("no panic");
            }
            let reader = model.domain.join();
            assert!(indices.load(Ordering::Relaxed) & (1 << reader.index()) != 0);
        });
    }
}
