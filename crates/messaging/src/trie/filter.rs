//! The subscriptions of one subscriber.

use super::Trie;

/// Prefixes, each as often as it was added: what a SUB socket asks for, and lets through.
#[derive(Debug, Default)]
pub(crate) struct Filter(Trie);

/// The one subscriber.
const SELF: u32 = 0;

impl Filter {
    /// Nothing, which lets nothing through.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// How many different prefixes there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds a prefix; true if it is new.
    pub(crate) fn add(&mut self, prefix: &[u8]) -> bool {
        self.0.add(prefix, SELF)
    }

    /// Takes one addition back; true if it was the last of this prefix. False if there was none.
    pub(crate) fn remove(&mut self, prefix: &[u8]) -> bool {
        self.0.remove(prefix, SELF)
    }

    /// Whether the topic begins with any prefix.
    #[inline]
    pub(crate) fn is_match(&self, topic: &[u8]) -> bool {
        self.0.is_match(topic)
    }

    /// Calls with each prefix, in ascending order.
    pub(crate) fn prefixes(&self, each: impl FnMut(&[u8])) {
        self.0.prefixes(each);
    }
}
