use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;

use super::{Filter, Trie};

#[derive(Clone, Debug)]
enum Step {
    Add(Vec<u8>, u32),
    Insert(Vec<u8>, u32),
    Remove(Vec<u8>, u32),
    RemoveAll(u32),
}

/// Few bytes and few lengths, so that prefixes meet.
fn topic() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![3 => 0_u8..2, 1 => 254_u8..=255], 0..12)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (topic(), 0_u32..5).prop_map(|(prefix, key)| Step::Add(prefix, key)),
        2 => (topic(), 0_u32..5).prop_map(|(prefix, key)| Step::Insert(prefix, key)),
        4 => (topic(), 0_u32..5).prop_map(|(prefix, key)| Step::Remove(prefix, key)),
        1 => (0_u32..5).prop_map(Step::RemoveAll),
    ]
}

/// What a trie should be: counts of prefixes and keys, and a scan.
#[derive(Default)]
struct Model(BTreeMap<(Vec<u8>, u32), u32>);

impl Model {
    fn has(&self, prefix: &[u8]) -> bool {
        self.0.keys().any(|(known, _)| known == prefix)
    }

    fn apply(&mut self, step: &Step) -> (bool, BTreeSet<Vec<u8>>) {
        let mut gone = BTreeSet::new();
        let answer = match step {
            Step::Add(prefix, key) | Step::Insert(prefix, key) => {
                let first = !self.has(prefix);
                let count = self.0.entry((prefix.clone(), *key)).or_default();
                *count = if matches!(step, Step::Insert(..)) { 1 } else { *count + 1 };
                first
            }
            Step::Remove(prefix, key) => match self.0.get_mut(&(prefix.clone(), *key)) {
                None => false,
                Some(1) => {
                    self.0.remove(&(prefix.clone(), *key));
                    !self.has(prefix)
                }
                Some(count) => {
                    *count -= 1;
                    false
                }
            },
            Step::RemoveAll(key) => {
                let theirs: Vec<_> = self.0.keys().filter(|(_, known)| known == key).cloned().collect();
                for one in theirs {
                    self.0.remove(&one);
                    if !self.has(&one.0) {
                        gone.insert(one.0);
                    }
                }
                false
            }
        };
        (answer, gone)
    }

    fn matches(&self, topic: &[u8]) -> Vec<u32> {
        let mut keys: Vec<_> =
            self.0.keys().filter(|(prefix, _)| topic.starts_with(prefix)).map(|&(_, key)| key).collect();
        keys.sort_unstable();
        keys
    }
}

fn apply(trie: &mut Trie, step: &Step) -> (bool, BTreeSet<Vec<u8>>) {
    let mut gone = BTreeSet::new();
    let answer = match step {
        Step::Add(prefix, key) => trie.add(prefix, *key),
        Step::Insert(prefix, key) => trie.insert(prefix, *key),
        Step::Remove(prefix, key) => trie.remove(prefix, *key),
        Step::RemoveAll(key) => {
            trie.remove_all(*key, |prefix, is_last| {
                assert!(!is_last || gone.insert(prefix.to_vec()), "told twice");
            });
            false
        }
    };
    (answer, gone)
}

proptest! {
    #[test]
    fn it_is_what_a_scan_says(steps in vec(step(), 0..80), topics in vec(topic(), 1..8)) {
        let (mut trie, mut model) = (Trie::new(), Model::default());
        let mut unique = vec![7; 3];
        for step in &steps {
            prop_assert_eq!(apply(&mut trie, step), model.apply(step), "{:?}", step);
            trie.nodes.check();
            for topic in &topics {
                let expected = model.matches(topic);
                let mut keys = Vec::new();
                trie.matches(topic, &mut |key| keys.push(key));
                keys.sort_unstable();
                prop_assert_eq!(&keys, &expected);
                prop_assert_eq!(trie.is_match(topic), !expected.is_empty());
                keys.dedup();
                trie.matches_unique(topic, &mut unique);
                prop_assert_eq!(&unique, &keys);
            }
        }
        let expected: BTreeSet<Vec<u8>> = model.0.keys().map(|(prefix, _)| prefix.clone()).collect();
        let mut prefixes = Vec::new();
        trie.prefixes(|prefix| prefixes.push(prefix.to_vec()));
        prop_assert_eq!(trie.len(), prefixes.len());
        prop_assert!(prefixes.iter().eq(&expected), "{:?} {:?}", prefixes, expected);
        for key in 0..5 {
            let mut theirs = BTreeSet::new();
            trie.prefixes_of(key, |prefix| assert!(theirs.insert(prefix.to_vec())));
            let expected = model.0.keys().filter(|known| known.1 == key).map(|known| known.0.clone());
            prop_assert_eq!(theirs, expected.collect::<BTreeSet<_>>());
        }
        for key in 0..5 {
            trie.remove_all(key, |_, _| {});
        }
        prop_assert!(trie.is_empty() && trie.heads.is_empty());
        prop_assert_eq!(trie.entries.len(), trie.free.len());
    }
}

#[test]
fn a_deep_tree_needs_no_stack_and_leaves_nothing() {
    const DEPTH: usize = 3_000;
    let topic = vec![b'a'; DEPTH];
    let mut trie = Trie::new();
    for length in 0..DEPTH {
        assert!(trie.add(&topic[..length], 1));
    }
    assert_eq!(trie.len(), DEPTH);
    let mut keys = Vec::new();
    trie.matches_unique(&topic, &mut keys);
    assert_eq!(keys, [1]);
    let mut gone = 0;
    trie.remove_all(1, |_, is_last| gone += usize::from(is_last));
    assert_eq!((gone, trie.len()), (DEPTH, 0));
    assert!(!trie.nodes.has_grown(), "the memory is given back");
}

#[test]
fn memory_follows_what_is_there_and_not_what_was() {
    let mut trie = Trie::new();
    trie.add(b"stays", 9);
    for round in 0_u32..10_000 {
        let prefix = round.to_be_bytes();
        trie.add(&prefix, 1);
        trie.insert(&prefix[..3], 2);
        if round % 2 == 0 {
            trie.remove(&prefix, 1);
            trie.remove(&prefix[..3], 2);
        } else {
            trie.remove_all(2, |_, _| {});
            trie.remove_all(1, |_, _| {});
        }
    }
    assert!(trie.entries.len() < 10 && !trie.nodes.has_grown(), "{trie:?}");
}

#[test]
fn a_repeated_subscription_of_a_peer_goes_with_one_cancellation() {
    let mut trie = Trie::new();
    assert!(trie.insert(b"a", 1));
    assert!(!trie.insert(b"a", 1));
    assert!(!trie.insert(b"a", 2));
    assert!(!trie.remove(b"a", 1));
    assert!(!trie.remove(b"a", 1), "it has none any more");
    assert!(trie.is_match(b"abc"));
    assert!(trie.remove(b"a", 2));
    assert!(!trie.is_match(b"abc"));
}

#[test]
fn a_filter_counts() {
    let mut filter = Filter::new();
    assert!(filter.len() == 0 && !filter.is_match(b""));
    assert!(filter.add(b"ab") && !filter.add(b"ab") && filter.add(b""));
    assert_eq!(filter.len(), 2);
    assert!(filter.is_match(b"x") && filter.is_match(b""));
    assert!(filter.remove(b"") && !filter.remove(b""));
    assert!(!filter.is_match(b"a") && filter.is_match(b"ab"));
    assert!(!filter.remove(b"ab"), "it was added twice");
    assert!(!filter.remove(b"abc") && filter.is_match(b"abc"));
    let mut prefixes = Vec::new();
    filter.prefixes(|prefix| prefixes.push(prefix.to_vec()));
    assert_eq!(prefixes, [b"ab"]);
    assert!(filter.remove(b"ab") && filter.len() == 0);
}
