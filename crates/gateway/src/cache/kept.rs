//! The results that are kept: those that were asked for last, within so many bytes.

use std::collections::{BTreeMap, HashMap};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use crate::call::{Answer, Form};
use crate::tool::Tool;

/// Bytes that a result takes besides its own: keys, places in the tables, allocations.
const OVERHEAD: usize = 512;

/// What calls must have in common.
#[derive(Clone, Debug)]
pub(super) struct Key(Arc<Parts>);

#[derive(Debug, PartialEq, Eq, Hash)]
struct Parts {
    /// A reload makes other tools, whose calls are others.
    generation: u64,
    tool: Arc<str>,
    form: u8,
    arguments: Bytes,
    metadata: Bytes,
}

impl Key {
    pub(super) fn new(tool: &Tool, form: Form, arguments: &[u8], metadata: Bytes) -> Self {
        // Copied: they may lie in a much larger buffer of their connection.
        let (arguments, metadata) = (Bytes::copy_from_slice(arguments), metadata);
        let (generation, name, form) = (tool.generation, Arc::clone(&tool.name), form as u8);
        Self(Arc::new(Parts { generation, tool: name, form, arguments, metadata }))
    }

    fn len(&self) -> usize {
        self.0.arguments.len() + self.0.metadata.len()
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

#[derive(Debug)]
struct Entry {
    answer: Answer,
    /// `None` if it never goes.
    until: Option<Instant>,
    /// When it was asked for last: its place in `order`.
    used: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Kept {
    /// Bytes that may be kept.
    most: usize,
    entries: HashMap<Key, Entry>,
    /// The keys, by when they were asked for last.
    order: BTreeMap<u64, Key>,
    clock: u64,
    bytes: usize,
}

/// What was kept and is no more: to be dropped where no lock is held.
#[derive(Debug, Default)]
pub(super) struct Left(#[expect(dead_code, reason = "it is only dropped")] Vec<(Key, Entry)>);

impl Kept {
    pub(super) fn new(most: usize) -> Self {
        Self { most, entries: HashMap::new(), order: BTreeMap::new(), clock: 0, bytes: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// The result for this key, if it has not gone off.
    pub(super) fn get(&mut self, key: &Key, now: Instant) -> Option<Answer> {
        let tick = self.tick();
        let entry = self.entries.get_mut(key)?;
        if entry.until.is_some_and(|until| until <= now) {
            drop(self.remove(key));
            return None;
        }
        let own = self.order.remove(&entry.used)?;
        entry.used = tick;
        self.order.insert(tick, own);
        Some(entry.answer.clone())
    }

    /// Keeps a result, and lets go of those that were not asked for the longest if there is no room.
    pub(super) fn put(&mut self, key: Key, answer: Answer, until: Option<Instant>) -> Left {
        let mut left: Vec<_> = self.remove(&key).into_iter().collect();
        let size = size(&key, &answer);
        if size > self.most {
            return Left(left);
        }
        while self.bytes + size > self.most
            && let Some(oldest) = self.order.values().next().cloned()
        {
            left.extend(self.remove(&oldest));
        }
        let used = self.tick();
        self.bytes += size;
        self.order.insert(used, key.clone());
        self.entries.insert(key, Entry { answer, until, used });
        Left(left)
    }

    fn remove(&mut self, key: &Key) -> Option<(Key, Entry)> {
        let (key, entry) = self.entries.remove_entry(key)?;
        self.order.remove(&entry.used);
        self.bytes -= size(&key, &entry.answer);
        Some((key, entry))
    }

    pub(super) fn clear(&mut self) -> Left {
        self.order.clear();
        self.bytes = 0;
        Left(std::mem::take(&mut self.entries).into_iter().collect())
    }
}

fn size(key: &Key, answer: &Answer) -> usize {
    OVERHEAD + key.len() + answer.bytes.len()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn key(text: &str) -> Key {
        let parts =
            |arguments| Parts { generation: 0, tool: "t".into(), form: 1, arguments, metadata: Bytes::new() };
        Key(Arc::new(parts(Bytes::from(text.to_owned()))))
    }

    fn answer(length: usize) -> Answer {
        Answer { form: Form::Json, bytes: Bytes::from(vec![b' '; length]) }
    }

    #[test]
    fn what_was_not_asked_for_the_longest_goes() {
        let mut kept = Kept::new(3 * (OVERHEAD + 1 + 100));
        let now = Instant::now();
        for text in ["a", "b", "c"] {
            drop(kept.put(key(text), answer(100), None));
        }
        assert!(kept.get(&key("a"), now).is_some());
        drop(kept.put(key("d"), answer(100), None));
        assert!(kept.get(&key("b"), now).is_none());
        assert!(["a", "c", "d"].iter().all(|text| kept.get(&key(text), now).is_some()));
        assert_eq!(kept.len(), 3);
        // One that would displace all others is not kept, and nothing goes for it.
        drop(kept.put(key("e"), answer(3000), None));
        assert_eq!((kept.len(), kept.get(&key("e"), now)), (3, None));
        drop(kept.clear());
        assert_eq!((kept.len(), kept.bytes(), kept.order.len()), (0, 0, 0));
    }

    #[test]
    fn a_result_goes_off() {
        let mut kept = Kept::new(10_000);
        let now = Instant::now();
        drop(kept.put(key("a"), answer(1), Some(now + Duration::from_secs(1))));
        assert!(kept.get(&key("a"), now).is_some());
        assert!(kept.get(&key("a"), now + Duration::from_secs(1)).is_none());
        assert_eq!((kept.len(), kept.bytes(), kept.order.len()), (0, 0, 0));
    }

    #[test]
    fn a_result_takes_the_place_of_an_older_one() {
        let mut kept = Kept::new(10_000);
        for length in [10, 20] {
            drop(kept.put(key("a"), answer(length), None));
        }
        assert_eq!((kept.len(), kept.order.len(), kept.bytes()), (1, 1, OVERHEAD + 1 + 20));
    }
}
