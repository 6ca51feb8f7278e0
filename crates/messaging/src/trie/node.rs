//! The tree itself: nodes in a vector.
//!
//! Every node but the root has a subscriber or two children, or is a piece of a label that is too long for one node. A
//! node that loses all of these is cut off or joined with its child.

/// The node of the empty prefix, which is always there.
pub(super) const ROOT: u32 = 0;

/// The longest label. It bounds what a split or a join copies, so that one peer's long prefix does not make another's
/// short ones expensive.
const LONGEST: usize = if cfg!(test) { 3 } else { 240 };

use super::KEPT;

#[derive(Debug, Default)]
struct Node {
    /// The bytes from the parent to here; empty for the root only.
    label: Box<[u8]>,
    parent: u32,
    /// Children by the first byte of their labels, in its order.
    children: Vec<(u8, u32)>,
    /// Subscribers and their entries, in the order of keys.
    keys: Vec<(u32, u32)>,
}

/// All nodes.
#[derive(Debug)]
pub(super) struct Nodes {
    nodes: Vec<Node>,
    free: Vec<u32>,
}

impl Default for Nodes {
    fn default() -> Self {
        Self { nodes: vec![Node::default()], free: Vec::new() }
    }
}

impl Nodes {
    fn node(&self, at: u32) -> &Node {
        &self.nodes[at as usize]
    }

    fn node_mut(&mut self, at: u32) -> &mut Node {
        &mut self.nodes[at as usize]
    }

    /// The child of `at` whose label `rest` begins with, and what is left of `rest` behind it.
    #[inline]
    fn descend<'a>(&self, at: u32, rest: &'a [u8]) -> Option<(u32, &'a [u8])> {
        let children = &self.node(at).children;
        let first = rest.first()?;
        let place = children.binary_search_by_key(first, |child| child.0).ok()?;
        let child = children[place].1;
        Some((child, rest.strip_prefix(&*self.node(child).label)?))
    }

    /// Calls with the keys of each node on the topic's path that has some, from the root on, until the callback returns
    /// false.
    #[inline]
    pub(super) fn walk(&self, topic: &[u8], mut each: impl FnMut(&[(u32, u32)]) -> bool) {
        let (mut at, mut rest) = (ROOT, topic);
        loop {
            let keys = &self.node(at).keys;
            if !keys.is_empty() && !each(keys) {
                return;
            }
            match self.descend(at, rest) {
                Some(next) => (at, rest) = next,
                None => return,
            }
        }
    }

    /// The node of exactly this prefix.
    pub(super) fn find(&self, prefix: &[u8]) -> Option<u32> {
        let (mut at, mut rest) = (ROOT, prefix);
        while !rest.is_empty() {
            (at, rest) = self.descend(at, rest)?;
        }
        Some(at)
    }

    /// The node of exactly this prefix, which is made if there is none; the caller attaches a key to it.
    pub(super) fn make(&mut self, prefix: &[u8]) -> u32 {
        let (mut at, mut rest) = (ROOT, prefix);
        while let Some(&first) = rest.first() {
            match self.node(at).children.binary_search_by_key(&first, |child| child.0) {
                Err(place) => {
                    let (label, left) = rest.split_at(rest.len().min(LONGEST));
                    let leaf = self.put(Node { label: label.into(), parent: at, ..Node::default() });
                    self.node_mut(at).children.insert(place, (first, leaf));
                    (at, rest) = (leaf, left);
                }
                Ok(place) => {
                    let child = self.node(at).children[place].1;
                    let label = &self.node(child).label;
                    let common = label.iter().zip(rest).take_while(|(a, b)| a == b).count();
                    at = if common == label.len() { child } else { self.split(child, place, common) };
                    rest = &rest[common..];
                }
            }
        }
        at
    }

    /// Puts a node between a child and its parent, `common` bytes behind the parent. A node with keys keeps
    /// its number, since entries know it.
    fn split(&mut self, child: u32, place: usize, common: usize) -> u32 {
        let label = std::mem::take(&mut self.node_mut(child).label);
        let parent = self.node(child).parent;
        let middle = self.put(Node {
            label: label[..common].into(),
            parent,
            children: vec![(label[common], child)],
            keys: Vec::new(),
        });
        self.node_mut(parent).children[place].1 = middle;
        let lower = self.node_mut(child);
        lower.label = label[common..].into();
        lower.parent = middle;
        // Both halves are shorter than the whole was, so each may now fit with its other neighbour.
        self.join(child);
        self.join(parent);
        middle
    }

    /// Cuts a node that has lost its last key, and what else is not needed then.
    pub(super) fn prune(&mut self, mut at: u32) {
        while at != ROOT && self.node(at).keys.is_empty() && self.node(at).children.is_empty() {
            let Node { label, parent, .. } = self.take(at);
            let siblings = &mut self.node_mut(parent).children;
            siblings.retain(|child| child.0 != label[0]);
            siblings.shrink_to(siblings.len() * 2);
            at = parent;
        }
        self.join(at);
    }

    /// Joins a node with its child, if it has one child, no key, and one label is enough. The child keeps its
    /// number.
    fn join(&mut self, at: u32) {
        let node = self.node(at);
        let &[(_, only)] = node.children.as_slice() else { return };
        let fits = node.label.len() + self.node(only).label.len() <= LONGEST;
        if at == ROOT || !node.keys.is_empty() || !fits {
            return;
        }
        let Node { label, parent, .. } = self.take(at);
        let child = self.node_mut(only);
        child.label = [&*label, &*child.label].concat().into();
        child.parent = parent;
        let siblings = &mut self.node_mut(parent).children;
        let place = siblings.partition_point(|child| child.0 < label[0]);
        siblings[place].1 = only;
    }

    fn put(&mut self, node: Node) -> u32 {
        if let Some(at) = self.free.pop() {
            *self.node_mut(at) = node;
            return at;
        }
        self.nodes.push(node);
        u32::try_from(self.nodes.len() - 1).expect("memory for so many nodes does not exist")
    }

    fn take(&mut self, at: u32) -> Node {
        self.free.push(at);
        std::mem::take(self.node_mut(at))
    }

    /// The entry of a key at a node.
    pub(super) fn entry(&self, at: u32, key: u32) -> Option<u32> {
        let keys = &self.node(at).keys;
        keys.binary_search_by_key(&key, |known| known.0).ok().map(|place| keys[place].1)
    }

    /// Gives a node a key that it does not have; true if it is the first.
    pub(super) fn attach(&mut self, at: u32, key: u32, entry: u32) -> bool {
        let keys = &mut self.node_mut(at).keys;
        let place = keys.partition_point(|known| known.0 < key);
        keys.insert(place, (key, entry));
        keys.len() == 1
    }

    /// Takes a key from a node that has it; true if it was the last.
    pub(super) fn detach(&mut self, at: u32, key: u32) -> bool {
        let keys = &mut self.node_mut(at).keys;
        let place = keys.partition_point(|known| known.0 < key);
        keys.remove(place);
        keys.is_empty()
    }

    /// Writes the prefix of a node into `prefix`.
    pub(super) fn prefix(&self, mut at: u32, prefix: &mut Vec<u8>) {
        prefix.clear();
        while at != ROOT {
            let node = self.node(at);
            prefix.extend(node.label.iter().rev());
            at = node.parent;
        }
        prefix.reverse();
    }

    /// Calls with the prefix of each node that has keys, in ascending order.
    pub(super) fn prefixes(&self, mut each: impl FnMut(&[u8])) {
        let mut prefix = Vec::new();
        // Nodes to visit, and how long the prefix of each one's parent is.
        let mut ahead = vec![(ROOT, 0)];
        while let Some((at, length)) = ahead.pop() {
            let node = self.node(at);
            prefix.truncate(length);
            prefix.extend_from_slice(&node.label);
            if !node.keys.is_empty() {
                each(&prefix);
            }
            ahead.extend(node.children.iter().rev().map(|&(_, child)| (child, prefix.len())));
        }
    }

    /// Whether there is enough memory in it to be worth giving back.
    pub(super) fn has_grown(&self) -> bool {
        self.nodes.len() > KEPT
    }

    /// Checks that every node is needed, and has the right neighbours.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let mut seen = 0;
        let mut ahead = vec![ROOT];
        while let Some(at) = ahead.pop() {
            seen += 1;
            let node = self.node(at);
            assert!((1..=LONGEST).contains(&node.label.len()) || at == ROOT, "the length of {at}'s label");
            let needed = match node.children.as_slice() {
                [] => false,
                [(_, only)] => node.label.len() + self.node(*only).label.len() > LONGEST,
                _ => true,
            };
            assert!(at == ROOT || needed || !node.keys.is_empty(), "{at} is not needed");
            assert!(node.keys.is_sorted_by(|a, b| a.0 < b.0), "{at} has its keys in order");
            assert!(node.children.is_sorted_by(|a, b| a.0 < b.0), "{at} has its children in order");
            for &(byte, child) in &node.children {
                assert_eq!((self.node(child).parent, self.node(child).label[0]), (at, byte));
                ahead.push(child);
            }
        }
        assert_eq!(seen + self.free.len(), self.nodes.len(), "no node is lost");
    }
}
