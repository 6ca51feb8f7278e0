//! Who listens to what. Publishers do not look here: they read the lists that are made from it.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;

use crate::channel::AnyChannel;
use crate::pattern::Pattern;

/// One who listens.
pub(crate) struct Record {
    pub(crate) id: u64,
    pub(crate) kind: TypeId,
    pub(crate) pattern: Pattern,
    pub(crate) priority: i32,
    /// An `Arc<dyn Handle<E>>` of the type that `kind` says.
    pub(crate) handler: Box<dyn Any + Send + Sync>,
    pub(crate) retire: Box<dyn Fn() + Send + Sync>,
    pub(crate) filtered: Box<dyn Fn() -> u64 + Send + Sync>,
}

/// What was replaced, to be dropped once no lock is held.
pub(crate) type Leftovers = Vec<Box<dyn Any>>;

/// See the module; under the bus's lock.
#[derive(Default)]
pub(crate) struct Registry {
    /// In the order of service: by priority, the greatest first, then by arrival.
    pub(crate) records: Vec<Record>,
    pub(crate) channels: HashMap<(TypeId, Arc<str>), Arc<dyn AnyChannel>>,
    pub(crate) closed: bool,
    last: u64,
}

impl Registry {
    /// Adds somebody; a number to take it away by.
    pub(crate) fn add(&mut self, make: impl FnOnce(u64) -> Record, leftovers: &mut Leftovers) -> u64 {
        self.last += 1;
        let record = make(self.last);
        let (kind, pattern) = (record.kind, record.pattern.clone());
        let at = self.records.partition_point(|known| known.priority >= record.priority);
        self.records.insert(at, record);
        self.refresh(kind, &pattern, leftovers);
        self.last
    }

    /// Takes somebody away; the record, to be dropped once no lock is held.
    pub(crate) fn remove(&mut self, id: u64, leftovers: &mut Leftovers) -> Option<Record> {
        let at = self.records.iter().position(|record| record.id == id)?;
        let record = self.records.remove(at);
        (record.retire)();
        self.refresh(record.kind, &record.pattern, leftovers);
        Some(record)
    }

    /// Takes everybody away for good.
    pub(crate) fn close(&mut self, leftovers: &mut Leftovers) -> Vec<Record> {
        self.closed = true;
        let records = std::mem::take(&mut self.records);
        for record in &records {
            (record.retire)();
        }
        for channel in self.channels.values() {
            leftovers.push(channel.refresh(&[], true));
        }
        records
    }

    fn refresh(&self, kind: TypeId, pattern: &Pattern, leftovers: &mut Leftovers) {
        for channel in self.channels.values() {
            if channel.kind() == kind && pattern.matches(channel.name()) {
                leftovers.push(channel.refresh(&self.records, self.closed));
            }
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::channel::Channel;
    use crate::config::Config;
    use crate::handler::{Handle, Mark, Plain};

    fn record(id: u64, pattern: &str, priority: i32) -> Record {
        let handler: Arc<dyn Handle<u8>> = Arc::new(Plain { mark: Mark::new(), handler: |_: &u8| () });
        let pattern = Pattern::parse(pattern).expect("sound");
        let (retire, filtered) = (Box::new(|| ()), Box::new(|| 0));
        Record {
            id,
            kind: TypeId::of::<u8>(),
            pattern,
            priority,
            handler: Box::new(handler),
            retire,
            filtered,
        }
    }

    fn registry() -> Registry {
        let mut registry = Registry::default();
        let config = Arc::new(Config::default());
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        for name in [&a, &b] {
            let of_bytes = Arc::new(Channel::<u8>::new(Arc::clone(name), Arc::clone(&config), &[], false));
            registry.channels.insert((TypeId::of::<u8>(), Arc::clone(name)), of_bytes);
            let of_words = Arc::new(Channel::<u16>::new(Arc::clone(name), Arc::clone(&config), &[], false));
            registry.channels.insert((TypeId::of::<u16>(), Arc::clone(name)), of_words);
        }
        registry
    }

    #[test]
    fn only_the_topics_that_it_concerns_get_a_new_list() {
        let mut registry = registry();
        for (pattern, topics) in [("a", 1), ("*", 2), ("c", 0)] {
            let mut leftovers = Leftovers::new();
            let id = registry.add(|id| record(id, pattern, 0), &mut leftovers);
            assert_eq!(leftovers.len(), topics);
            assert!(registry.remove(id, &mut leftovers).is_some());
            assert_eq!(leftovers.len(), 2 * topics);
            assert!(registry.remove(id, &mut leftovers).is_none(), "it is gone");
            assert_eq!(leftovers.len(), 2 * topics);
        }
        let mut leftovers = Leftovers::new();
        assert!(registry.close(&mut leftovers).is_empty());
        assert_eq!(leftovers.len(), 4, "all topics hear that it is over");
    }

    #[test]
    fn the_greatest_priority_comes_first_and_then_the_oldest() {
        let mut registry = registry();
        let ids = [0, 9, 0, -1, 9]
            .map(|priority| registry.add(|id| record(id, "a", priority), &mut Leftovers::new()));
        let order: Vec<_> = registry.records.iter().map(|record| record.id).collect();
        assert_eq!(order, [ids[1], ids[4], ids[0], ids[2], ids[3]]);
    }
}
