//! Values by type and name. Entries are added and never removed, so a look-up takes no lock, writes nothing, and needs
//! no protection for the value that it found.
//!
//! A table of open addressing, at most half full. Threads that add entries take turns; when the table is half full they
//! replace it by one of twice the size. The old table stays until the directory is dropped, for threads that still read
//! it; all old tables together are smaller than the current one.

#![expect(unsafe_code, reason = "argued in README.md")]

use std::any::TypeId;
use std::hash::{BuildHasher, Hash, Hasher};
use std::ptr;
use std::sync::Arc;

use ropewalk_sync::Mutex;
use ropewalk_sync::atomic::{AtomicPtr, Ordering};

/// Places in the first table; a power of two, as all sizes are.
const FIRST: usize = if cfg!(loom) { 4 } else { 16 };

struct Entry<V> {
    hash: u64,
    kind: TypeId,
    name: Arc<str>,
    value: V,
}

struct Table<V> {
    /// Null, or an entry. A place is written once (release), by the thread that adds the entry, under the lock.
    places: Box<[AtomicPtr<Entry<V>>]>,
}

/// See the module. `S` makes the hashes.
pub(crate) struct Directory<V, S = foldhash::fast::RandomState> {
    /// The table that look-ups use: the last one of `Tables::all`. Written under the lock (release).
    current: AtomicPtr<Table<V>>,
    tables: Mutex<Tables<V>>,
    hashes: S,
}

struct Tables<V> {
    /// From `Box::into_raw`; freed with the directory.
    all: Vec<*mut Table<V>>,
    entries: usize,
}

// SAFETY: the pointers are to tables and entries that the directory owns; any thread may get a shared reference to a
// value, and any thread may drop them.
unsafe impl<V: Send + Sync, S: Send> Send for Directory<V, S> {}
// SAFETY: as above.
unsafe impl<V: Send + Sync, S: Sync> Sync for Directory<V, S> {}

impl<V> Table<V> {
    fn new(places: usize) -> Self {
        Self { places: (0..places).map(|_| AtomicPtr::new(ptr::null_mut())).collect() }
    }

    /// The first place for this hash that is free or has a matching entry, and its content. There is one, because half
    /// of the places are free.
    #[inline]
    fn find(&self, hash: u64, fits: impl Fn(&Entry<V>) -> bool) -> (&AtomicPtr<Entry<V>>, Option<&Entry<V>>) {
        // A mask needs only the lower bits.
        #[expect(clippy::cast_possible_truncation)]
        let mut at = hash as usize;
        loop {
            let place = &self.places[at & (self.places.len() - 1)];
            // Acquire: pairs with the release in `add`.
            let entry = place.load(Ordering::Acquire);
            // SAFETY: from Box::into_raw in `add`; an entry that is in a table lives as long as the directory.
            let entry = unsafe { entry.as_ref() };
            if entry.is_none_or(|entry| entry.hash == hash && fits(entry)) {
                return (place, entry);
            }
            at = at.wrapping_add(1);
        }
    }
}

impl<V> Default for Directory<V> {
    fn default() -> Self {
        Self::with_hashes(foldhash::fast::RandomState::default())
    }
}

impl<V, S> Directory<V, S> {
    fn with_hashes(hashes: S) -> Self {
        let first = Box::into_raw(Box::new(Table::new(FIRST)));
        Self {
            current: AtomicPtr::new(first),
            tables: Mutex::new(Tables { all: vec![first], entries: 0 }),
            hashes,
        }
    }
}

impl<V, S: BuildHasher> Directory<V, S> {
    #[inline]
    fn hash(&self, kind: TypeId, name: &str) -> u64 {
        let mut hasher = self.hashes.build_hasher();
        kind.hash(&mut hasher);
        hasher.write(name.as_bytes());
        hasher.finish()
    }

    /// The value for this type and name.
    #[inline]
    pub(crate) fn get(&self, kind: TypeId, name: &str) -> Option<&V> {
        let hash = self.hash(kind, name);
        // SAFETY: from Box::into_raw, and freed with the directory. Acquire: pairs with the release in `add`.
        let table = unsafe { &*self.current.load(Ordering::Acquire) };
        let (_, found) = table.find(hash, |entry| entry.kind == kind && *entry.name == *name);
        found.map(|entry| &entry.value)
    }

    /// Adds a value for good, unless there is one for this type and name.
    pub(crate) fn add(&self, kind: TypeId, name: Arc<str>, value: V) {
        let hash = self.hash(kind, &name);
        let mut tables = self.tables.lock();
        let mut current = self.current.load(Ordering::Relaxed);
        // SAFETY: as in `get`.
        let mut table = unsafe { &*current };
        if table.find(hash, |entry| entry.kind == kind && entry.name == name).1.is_some() {
            return;
        }
        if 2 * (tables.entries + 1) > table.places.len() {
            let more = Table::new(2 * table.places.len());
            for place in &table.places {
                let entry = place.load(Ordering::Relaxed);
                // SAFETY: as in `find`.
                if let Some(hash) = unsafe { entry.as_ref() }.map(|entry| entry.hash) {
                    more.find(hash, |_| false).0.store(entry, Ordering::Relaxed);
                }
            }
            current = Box::into_raw(Box::new(more));
            tables.all.push(current);
            // Release: a thread that sees the table sees its content.
            self.current.store(current, Ordering::Release);
            // SAFETY: as in `get`.
            table = unsafe { &*current };
        }
        let entry = Box::into_raw(Box::new(Entry { hash, kind, name, value }));
        // Release: a thread that sees the entry sees its content.
        table.find(hash, |_| false).0.store(entry, Ordering::Release);
        tables.entries += 1;
    }
}

impl<V, S> Drop for Directory<V, S> {
    fn drop(&mut self) {
        let all = std::mem::take(&mut self.tables.lock().all);
        // SAFETY: from Box::into_raw; a look-up borrows the directory, so no thread reads a table.
        let all: Vec<_> = all.into_iter().map(|table| unsafe { Box::from_raw(table) }).collect();
        // The last table has every entry; the older ones have some of the same.
        for place in all.iter().rev().take(1).flat_map(|table| &table.places) {
            let entry = place.load(Ordering::Relaxed);
            if !entry.is_null() {
                // SAFETY: from Box::into_raw in `add`, and in the last table once.
                drop(unsafe { Box::from_raw(entry) });
            }
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::hash::BuildHasherDefault;

    use super::*;

    /// A hasher that gives every key the same hash.
    #[derive(Default)]
    struct Same;

    impl Hasher for Same {
        fn finish(&self) -> u64 {
            u64::MAX
        }

        fn write(&mut self, _: &[u8]) {}
    }

    fn finds_what_was_added<S: BuildHasher>(directory: &Directory<(u8, usize), S>) {
        let kinds = [TypeId::of::<u8>(), TypeId::of::<u16>()];
        let names: Vec<Arc<str>> = (0..100).map(|number| format!("topic.{number}").into()).collect();
        for (number, name) in names.iter().enumerate() {
            for (kind, id) in kinds.into_iter().zip(0..) {
                assert!(directory.get(kind, name).is_none());
                directory.add(kind, Arc::clone(name), (id, number));
                directory.add(kind, Arc::clone(name), (9, 9));
            }
            let known = directory.get(kinds[0], &names[0]).expect("it was added");
            assert_eq!(*known, (0, 0));
        }
        for (number, name) in names.iter().enumerate() {
            for (kind, id) in kinds.into_iter().zip(0..) {
                assert_eq!(directory.get(kind, name), Some(&(id, number)));
            }
        }
        assert!(directory.get(TypeId::of::<u32>(), &names[0]).is_none());
        let tables = directory.tables.lock();
        let sizes: Vec<usize> =
            // SAFETY: the directory lives.
            tables.all.iter().map(|&table| unsafe { &*table }.places.len()).collect();
        assert_eq!(sizes, [16, 32, 64, 128, 256, 512], "half of the places are free");
        assert_eq!(tables.entries, 200);
    }

    #[test]
    fn what_was_added_is_found_while_the_table_grows() {
        finds_what_was_added(&Directory::default());
    }

    #[test]
    fn equal_hashes_do_not_mix_entries() {
        finds_what_was_added(&Directory::with_hashes(BuildHasherDefault::<Same>::default()));
    }

    #[test]
    fn every_value_is_dropped_once() {
        let value = Arc::new(());
        let directory = Directory::default();
        for number in 0..50 {
            directory.add(TypeId::of::<u8>(), number.to_string().into(), Arc::clone(&value));
        }
        assert_eq!(Arc::strong_count(&value), 51);
        drop(directory);
        assert_eq!(Arc::strong_count(&value), 1);
    }
}

/// On every schedule that loom finds, an added value is found complete while other threads add and the table grows.
#[cfg(test)]
#[cfg(loom)]
mod tests {
    use foldhash::fast::FixedState;
    use ropewalk_sync::Arc as Shared;
    use ropewalk_sync::loom::{self, thread};

    use super::*;

    /// A value whose reading loom checks against its writing.
    struct Value(loom::cell::UnsafeCell<usize>);

    fn kind() -> TypeId {
        TypeId::of::<u8>()
    }

    fn add(directory: &Directory<Value, FixedState>, name: &str, number: usize) {
        let value = loom::cell::UnsafeCell::new(0);
        // A separate write, because loom does not check reads against the construction of a cell. SAFETY: no other
        // thread has it yet.
        value.with_mut(|value| unsafe { *value = number });
        directory.add(kind(), name.into(), Value(value));
    }

    fn get(directory: &Directory<Value, FixedState>, name: &str) -> Option<usize> {
        // SAFETY: no thread writes to it once it is made; loom checks that.
        directory.get(kind(), name).map(|value| value.0.with(|value| unsafe { *value }))
    }

    #[test]
    fn a_reader_beside_two_writers() {
        loom::model(|| {
            let directory = Shared::new(Directory::with_hashes(FixedState::default()));
            // The second finds room, and the third makes the table grow.
            add(&directory, "a", 1);
            let other = {
                let directory = Shared::clone(&directory);
                thread::spawn(move || {
                    add(&directory, "b", 2);
                    assert_eq!(get(&directory, "b"), Some(2), "one's own");
                })
            };
            let reader = {
                let directory = Shared::clone(&directory);
                thread::spawn(move || {
                    assert_eq!(get(&directory, "a"), Some(1), "added before");
                    let (b, c) = (get(&directory, "b"), get(&directory, "c"));
                    assert!(matches!(b, None | Some(2)) && matches!(c, None | Some(3)));
                    assert!(b.is_none() || get(&directory, "b") == b, "once there, it stays");
                })
            };
            add(&directory, "c", 3);
            other.join().expect("no panic");
            reader.join().expect("no panic");
            assert_eq!(["a", "b", "c"].map(|name| get(&directory, name)), [Some(1), Some(2), Some(3)]);
        });
    }
}
