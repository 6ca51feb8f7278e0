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
