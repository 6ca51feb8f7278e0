//! Subscriptions: which subscribers have asked for the beginning of a topic.
//!
//! A radix tree: a node stands for a prefix, and its edge carries all bytes that lead to it without a choice. A look-up
//! costs the topic's length, not the number of subscriptions. The nodes are in one vector and refer to each other by
//! index: nothing recurs, however deep a peer makes the tree. Each added prefix costs at most two nodes, one entry, and
//! its bytes.
//!
//! Source: D. R. Morrison, PATRICIA (J. ACM 15, 1968).

mod filter;
mod node;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

pub(crate) use filter::Filter;
use node::Nodes;

/// More nodes or entries than this are freed with the last prefix.
const KEPT: usize = 64;

/// No entry.
const NONE: u32 = u32::MAX;

/// One subscriber's subscription to a prefix.
#[derive(Debug)]
struct Entry {
    key: u32,
    /// The prefix's node, which keeps its index while any subscriber has the prefix.
    node: u32,
    /// How often it has subscribed and not unsubscribed.
    count: u32,
    /// The neighbours in the list of the subscriber's entries.
    before: u32,
    after: u32,
}

/// Prefixes, and for each the subscribers that have it, by their keys.
#[derive(Debug, Default)]
pub(crate) struct Trie {
    nodes: Nodes,
    entries: Vec<Entry>,
    free: Vec<u32>,
    /// The first entry of each subscriber.
    heads: HashMap<u32, u32>,
    /// The number of prefixes with subscribers.
    prefixes: usize,
}

impl Trie {
    /// Nothing.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// The number of different prefixes with subscribers.
    pub(crate) fn len(&self) -> usize {
        self.prefixes
    }

    /// Whether there is no subscription.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.prefixes == 0
    }

    /// Adds a prefix for a subscriber, which must remove it as often; returns whether it is the first to have it.
    pub(crate) fn add(&mut self, prefix: &[u8], key: u32) -> bool {
        let (entry, first) = self.entry(prefix, key);
        let count = &mut self.entries[entry as usize].count;
        *count = count.saturating_add(1);
        first
    }

    /// Adds a prefix for a subscriber, unless it has it: one removal is enough; returns whether it is the first to have
    /// it.
    ///
    /// This is for peers. libzmq's subscriber sends each subscription, but only the last cancellation of a
    /// prefix.
    pub(crate) fn insert(&mut self, prefix: &[u8], key: u32) -> bool {
        let (entry, first) = self.entry(prefix, key);
        self.entries[entry as usize].count = 1;
        first
    }

    /// Takes one addition back; true if no subscriber has the prefix any more. False if this one did not have it.
    pub(crate) fn remove(&mut self, prefix: &[u8], key: u32) -> bool {
        let Some(node) = self.nodes.find(prefix) else { return false };
        let Some(entry) = self.nodes.entry(node, key) else { return false };
        let count = &mut self.entries[entry as usize].count;
        *count -= 1;
        if *count > 0 {
            return false;
        }
        let last = self.forget(entry);
        if last {
            self.nodes.prune(node);
        }
        self.shrink();
        last
    }

    /// Removes everything of a subscriber, and calls `gone` with each of its prefixes and whether that has no
    /// subscriber any more.
    ///
    /// The cost depends on this subscriber's prefixes only.
    pub(crate) fn remove_all(&mut self, key: u32, mut gone: impl FnMut(&[u8], bool)) {
        let mut prefix = Vec::new();
        while let Some(&entry) = self.heads.get(&key) {
            let node = self.entries[entry as usize].node;
            let is_last = self.forget(entry);
            self.nodes.prefix(node, &mut prefix);
            if is_last {
                self.nodes.prune(node);
            }
            gone(&prefix, is_last);
        }
        self.shrink();
    }

    /// Calls with the key of each subscriber for each of its prefixes that the topic begins with.
    #[cfg(test)]
    pub(crate) fn matches(&self, topic: &[u8], each: &mut impl FnMut(u32)) {
        self.nodes.walk(topic, |keys| {
            for &(key, _) in keys {
                each(key);
            }
            true
        });
    }

    /// Puts the key of each subscriber that the topic matches into `keys`, in ascending order and once.
    ///
    /// It replaces what is there, and allocates only while the vector is smaller than the largest answer.
    pub(crate) fn matches_unique(&self, topic: &[u8], keys: &mut Vec<u32>) {
        keys.clear();
        let mut nodes = 0;
        self.nodes.walk(topic, |found| {
            nodes += 1;
            keys.extend(found.iter().map(|&(key, _)| key));
            true
        });
        // The keys of one node are in order and different.
        if nodes > 1 {
            keys.sort_unstable();
            keys.dedup();
        }
    }

    /// Whether the topic begins with any prefix.
    pub(crate) fn is_match(&self, topic: &[u8]) -> bool {
        let mut found = false;
        self.nodes.walk(topic, |_| {
            found = true;
            false
        });
        found
    }

    /// Calls with each prefix, in ascending order.
    pub(crate) fn prefixes(&self, each: impl FnMut(&[u8])) {
        self.nodes.prefixes(each);
    }

    /// Calls with each prefix of one subscriber, in no order.
    #[cfg(test)]
    pub(crate) fn prefixes_of(&self, key: u32, mut each: impl FnMut(&[u8])) {
        let mut prefix = Vec::new();
        let mut at = self.heads.get(&key).copied().unwrap_or(NONE);
        while at != NONE {
            let entry = &self.entries[at as usize];
            self.nodes.prefix(entry.node, &mut prefix);
            each(&prefix);
            at = entry.after;
        }
    }

    /// The entry of a subscriber for a prefix, made with a count of 0 if it had none, and whether the prefix had no
    /// subscriber.
    fn entry(&mut self, prefix: &[u8], key: u32) -> (u32, bool) {
        let node = self.nodes.make(prefix);
        if let Some(entry) = self.nodes.entry(node, key) {
            return (entry, false);
        }
        let after = self.heads.get(&key).copied().unwrap_or(NONE);
        let made = Entry { key, node, count: 0, before: NONE, after };
        let entry = match self.free.pop() {
            Some(entry) => {
                self.entries[entry as usize] = made;
                entry
            }
            None => {
                self.entries.push(made);
                u32::try_from(self.entries.len() - 1).expect("memory for so many entries does not exist")
            }
        };
        if after != NONE {
            self.entries[after as usize].before = entry;
        }
        self.heads.insert(key, entry);
        let first = self.nodes.attach(node, key, entry);
        self.prefixes += usize::from(first);
        (entry, first)
    }

    /// Takes an entry out of its node and of its subscriber's list; true if it was the node's last. The node
    /// stays.
    fn forget(&mut self, entry: u32) -> bool {
        let Entry { key, node, before, after, .. } = self.entries[entry as usize];
        match (before, after) {
            (NONE, NONE) => {
                self.heads.remove(&key);
            }
            (NONE, _) => {
                self.heads.insert(key, after);
            }
            _ => self.entries[before as usize].after = after,
        }
        if after != NONE {
            self.entries[after as usize].before = before;
        }
        self.free.push(entry);
        let last = self.nodes.detach(node, key);
        self.prefixes -= usize::from(last);
        last
    }

    /// Frees all memory with the last prefix. Before that it is kept for the next ones.
    fn shrink(&mut self) {
        if self.prefixes == 0 && (self.nodes.has_grown() || self.entries.len() > KEPT) {
            *self = Self::default();
        }
    }
}
