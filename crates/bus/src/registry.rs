//! The listeners of a bus, and its channels. Publishers do not use it: they read the lists that are made from it.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;

use crate::channel::AnyChannel;
use crate::handler::AnyHandler;
use crate::pattern::Pattern;
use crate::table::{Listener, Table};

/// Replaced values, to be dropped once no lock is held.
pub(crate) type Leftovers = Vec<Box<dyn Any>>;

/// See the module; under the bus's lock.
#[derive(Default)]
pub(crate) struct Registry {
    pub(crate) table: Table<AnyHandler>,
    pub(crate) channels: HashMap<(TypeId, Arc<str>), Arc<dyn AnyChannel>>,
}

impl Registry {
    /// Adds a handler; returns a number to remove it by. If the bus is closed, the handler comes back.
    pub(crate) fn add(
        &mut self,
        pattern: Pattern,
        priority: i32,
        handler: AnyHandler,
        leftovers: &mut Leftovers,
    ) -> Result<u64, AnyHandler> {
        let (kind, topics) = (handler.kind, pattern.clone());
        let id = self.table.add(pattern, priority.into(), handler)?;
        self.refresh(kind, &topics, leftovers);
        Ok(id)
    }

    /// Removes a handler; the caller drops it once no lock is held.
    pub(crate) fn remove(&mut self, id: u64, leftovers: &mut Leftovers) -> Vec<Listener<AnyHandler>> {
        let gone = self.table.remove(id);
        for listener in &gone {
            listener.target.retire();
            self.refresh(listener.target.kind, &listener.pattern, leftovers);
        }
        gone
    }

    /// Removes all handlers and accepts no more.
    pub(crate) fn close(&mut self, leftovers: &mut Leftovers) -> Vec<Listener<AnyHandler>> {
        let gone = self.table.close();
        for listener in &gone {
            listener.target.retire();
        }
        for channel in self.channels.values() {
            leftovers.push(channel.refresh(&self.table));
        }
        gone
    }

    fn refresh(&self, kind: TypeId, pattern: &Pattern, leftovers: &mut Leftovers) {
        for channel in self.channels.values() {
            if channel.kind() == kind && pattern.matches(channel.name()) {
                leftovers.push(channel.refresh(&self.table));
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

    fn registry() -> Registry {
        let mut registry = Registry::default();
        let config = Arc::new(Config::default());
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        for name in [&a, &b] {
            let of_bytes =
                Arc::new(Channel::<u8>::new(Arc::clone(name), Arc::clone(&config), &registry.table));
            registry.channels.insert((TypeId::of::<u8>(), Arc::clone(name)), of_bytes);
            let of_words =
                Arc::new(Channel::<u16>::new(Arc::clone(name), Arc::clone(&config), &registry.table));
            registry.channels.insert((TypeId::of::<u16>(), Arc::clone(name)), of_words);
        }
        registry
    }

    #[test]
    fn only_the_topics_that_it_concerns_get_a_new_list() {
        let mut registry = registry();
        for (pattern, topics) in [("a", 1), ("*", 2), ("c", 0)] {
            let mut leftovers = Leftovers::new();
            let handler: Arc<dyn Handle<u8>> = Arc::new(Plain { mark: Mark::new(), handler: |_: &u8| () });
            let pattern = Pattern::parse(pattern).expect("sound");
            let added = registry.add(pattern, 0, AnyHandler::new(handler), &mut leftovers);
            let id = added.expect("open");
            assert_eq!(leftovers.len(), topics);
            assert_eq!(registry.remove(id, &mut leftovers).len(), 1);
            assert_eq!(leftovers.len(), 2 * topics);
            assert!(registry.remove(id, &mut leftovers).is_empty(), "it is gone");
            assert_eq!(leftovers.len(), 2 * topics);
        }
        let mut leftovers = Leftovers::new();
        assert!(registry.close(&mut leftovers).is_empty());
        assert_eq!(leftovers.len(), 4, "every topic's list is replaced");
    }
}
