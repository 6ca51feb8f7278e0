//! The listeners and their patterns: one table for every bus, whatever its handlers are.
//!
//! Publishers do not use the table. Each bus makes from it what its publishers read: here a list for each topic, which
//! hazard pointers protect (`channel`); Python's bus makes routes of its own.

use crate::pattern::Pattern;

/// A listener.
#[derive(Clone, Debug)]
pub struct Listener<T> {
    /// Its number in the table.
    pub id: u64,
    /// The topics that the listener wants.
    pub pattern: Pattern,
    /// Listeners of greater priority are served first, those of equal priority in their order of arrival.
    pub priority: i64,
    /// The listener is one of several with this number; a topic uses the first of them that matches.
    pub is_alternative: bool,
    /// The receiver of the messages.
    pub target: T,
}

/// See the module. The owner guards the table, and drops what it returns after it has released the guard.
#[derive(Debug)]
pub struct Table<T> {
    /// In the order of service: by priority, the greatest first, then by arrival.
    listeners: Vec<Listener<T>>,
    closed: bool,
    last: u64,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { listeners: Vec::new(), closed: false, last: 0 }
    }
}

impl<T> Table<T> {
    /// Adds a listener; returns its number. If the table is closed, the target comes back.
    ///
    /// # Errors
    ///
    /// When the table is closed.
    pub fn add(&mut self, pattern: Pattern, priority: i64, target: T) -> Result<u64, T> {
        if self.closed {
            return Err(target);
        }
        let id = self.reserve();
        let at = self.listeners.partition_point(|known| known.priority >= priority);
        self.listeners.insert(at, Listener { id, pattern, priority, is_alternative: false, target });
        Ok(id)
    }

    /// Reserves a number for [`set_alternatives`](Self::set_alternatives).
    pub fn reserve(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Replaces the alternatives with this number, behind all other listeners; returns the old ones. A closed table
    /// accepts none.
    #[must_use = "what was replaced is dropped without the guard"]
    pub fn set_alternatives(
        &mut self,
        id: u64,
        alternatives: impl IntoIterator<Item = (Pattern, T)>,
    ) -> Vec<Listener<T>> {
        let gone = self.remove(id);
        if !self.closed {
            self.listeners.extend(alternatives.into_iter().map(|(pattern, target)| Listener {
                id,
                pattern,
                priority: i64::MIN,
                is_alternative: true,
                target,
            }));
        }
        gone
    }

    /// Removes a listener, or all alternatives with this number; returns nothing if it was removed before.
    #[must_use = "what goes is dropped without the guard"]
    pub fn remove(&mut self, id: u64) -> Vec<Listener<T>> {
        let Some(at) = self.listeners.iter().position(|listener| listener.id == id) else {
            return Vec::new();
        };
        if self.listeners[at].is_alternative {
            return self.listeners.extract_if(at.., |listener| listener.id == id).collect();
        }
        vec![self.listeners.remove(at)]
    }

    /// Removes all listeners and accepts no more.
    #[must_use = "what goes is dropped without the guard"]
    pub fn close(&mut self) -> Vec<Listener<T>> {
        self.closed = true;
        std::mem::take(&mut self.listeners)
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// All listeners, in the order of service.
    pub fn listeners(&self) -> &[Listener<T>] {
        &self.listeners
    }

    /// The listeners of a topic, in the order of service.
    pub fn matching<'a>(&'a self, topic: &'a str) -> impl Iterator<Item = &'a Listener<T>> {
        let mut taken: Vec<u64> = Vec::new();
        self.listeners.iter().filter(move |listener| {
            if listener.is_alternative && taken.contains(&listener.id) || !listener.pattern.matches(topic) {
                return false;
            }
            if listener.is_alternative {
                taken.push(listener.id);
            }
            true
        })
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::parse(text).expect("sound")
    }

    fn served(table: &Table<char>, topic: &str) -> String {
        table.matching(topic).map(|listener| listener.target).collect()
    }

    #[test]
    fn the_greatest_priority_comes_first_and_then_the_oldest() {
        let mut table = Table::default();
        for (priority, target) in [(0, 'c'), (9, 'a'), (0, 'd'), (-1, 'e'), (9, 'b')] {
            table.add(pattern("t"), priority, target).expect("open");
        }
        assert_eq!(served(&table, "t"), "abcde");
        assert_eq!(served(&table, "u"), "");
    }

    #[test]
    fn a_removed_listener_gets_nothing_more() {
        let mut table = Table::default();
        let ids = ['a', 'b'].map(|target| table.add(pattern("**"), 0, target).expect("open"));
        assert_eq!(table.remove(ids[0]).len(), 1);
        assert!(table.remove(ids[0]).is_empty(), "it is gone");
        assert_eq!(served(&table, "t"), "b");
        assert_eq!(table.close().len(), 1);
        assert_eq!((table.add(pattern("t"), 0, 'c'), table.is_closed()), (Err('c'), true));
    }

    #[test]
    fn of_alternatives_the_first_that_matches_counts() {
        let mut table = Table::default();
        let id = table.reserve();
        assert!(table.set_alternatives(id, [(pattern("a.*"), '1'), (pattern("**"), '2')]).is_empty());
        table.add(pattern("**"), -5, 'x').expect("open");
        assert_eq!(served(&table, "a.b"), "x1", "behind all others");
        assert_eq!(served(&table, "b"), "x2");
        let gone = table.set_alternatives(id, [(pattern("c"), '3')]);
        assert_eq!(gone.iter().map(|listener| listener.target).collect::<String>(), "12");
        assert_eq!((served(&table, "a.b"), served(&table, "c")), ("x".into(), "x3".into()));
        assert_eq!(table.remove(id).len(), 1);
        drop(table.close());
        assert!(table.set_alternatives(id, [(pattern("c"), '3')]).is_empty());
        assert_eq!(served(&table, "c"), "");
    }
}
